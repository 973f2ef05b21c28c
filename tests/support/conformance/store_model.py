"""A model that is simple enough to be right, and a state machine that compares a store with it."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from store_fixtures import StoreLocation, make_entry, place, read_entries
from wick.errors import StoreError
from wick.stores.sqlite import Sqlite

FULL = bool(os.environ.get("WICK_FULL"))
MODEL_SECONDS = 3600 if FULL else 300
EXAMPLES = {"in_memory": 40, "sqlite": 8, "postgres": 3}

IDS = st.sampled_from(["a", "a", "a", "b", "c"])
RARELY = st.integers(0, 7)  # 0: do it
QUESTIONS = st.sampled_from(["q1", "q2"])
TEXTS = st.text(max_size=20)
KINDS_OF_ENTRIES = st.sampled_from(["message", "assistant", "event", "asked", "answered", "run_start", "run_end"])
SOME = st.lists(st.tuples(KINDS_OF_ENTRIES, QUESTIONS, TEXTS), min_size=1, max_size=4)


@dataclass
class ModelThread:
    """A thread as it should be."""

    log: list[dict[str, Any]] = field(default_factory=list)
    run: str = ""
    asked: dict[str, str] = field(default_factory=dict)  # open, answered, over
    queue: dict[int, Any] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)
    positions: int = 0
    holder: int | None = None  # the fence, while it is leased


class ExpectedError(Exception):
    """The code that the store should refuse with."""


class StoreMachine(RuleBasedStateMachine):
    """Does the same to a store and to the model."""

    kind: str

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="wick-model-"))
        self.runner = asyncio.Runner()
        self.threads: dict[str, ModelThread] = {}
        self.fences = [0]

    @initialize()
    def begin(self) -> None:
        self.place: StoreLocation = place(self.kind, self.folder)
        self.store: Any = self.place.open()
        self.create("a")
        self.lease("a")

    def teardown(self) -> None:
        self.runner.run(self.store.close())
        self.runner.close()
        shutil.rmtree(self.folder)

    def same(self, work: Callable[[], Coroutine[Any, Any, Any]], model: Callable[[], Any]) -> Any:
        """Do it to both: they give the same, or refuse for the same reason and change nothing."""
        before = deepcopy(self.threads)
        try:
            wanted, code = model(), None
        except ExpectedError as refusal:
            self.threads, wanted, code = before, None, refusal.args[0]
        try:
            found = self.runner.run(work())
        except StoreError as error:
            assert error.code == code, f"{error} instead of {code}, {wanted}"
            return None
        assert code is None, f"it was not refused: {code}"
        return found if wanted is None else self.equal(found, wanted)

    def equal(self, found: Any, wanted: Any) -> Any:
        assert found == wanted
        return found

    def find(self, id: str) -> ModelThread:
        if id not in self.threads:
            raise ExpectedError("not_found")
        return self.threads[id]

    # -- actions ----------------------------------------------------------------------------------------------------

    @rule(id=IDS)
    def create(self, id: str) -> None:
        def model() -> None:
            if id in self.threads:
                raise ExpectedError("conflict")
            self.threads[id] = ModelThread()

        self.same(lambda: self.store.create("ada", id), model)

    @rule(id=IDS, rarely=RARELY)
    def delete(self, id: str, rarely: int) -> None:
        if not rarely:
            self._delete(id)

    def _delete(self, id: str) -> None:
        def model() -> None:
            self.find(id)
            del self.threads[id]

        self.same(lambda: self.store.delete("ada", id), model)

    @rule(id=IDS)
    def lease(self, id: str) -> None:
        def model() -> None:
            if self.find(id).holder is not None:
                raise ExpectedError("conflict")

        made = self.same(lambda: self.store.lease("ada", id, "me", 1000), model)
        if made is not None:
            assert made.fence > 0 and made.fence not in self.fences
            self.threads[id].holder = made.fence
            self.fences.append(made.fence)

    @rule(id=IDS, which=st.integers(0, 3), rarely=RARELY)
    def release(self, id: str, which: int, rarely: int) -> None:
        if rarely and which:
            return
        fence = self.fence(id, which)

        def model() -> None:
            kept = self.find(id)
            kept.holder = None if kept.holder == fence else kept.holder

        self.same(lambda: self.store.release("ada", id, fence), model)

    @rule(id=IDS, which=st.integers(0, 3))
    def renew(self, id: str, which: int) -> None:
        fence = self.fence(id, which)

        def model() -> None:
            if self.find(id).holder != fence:
                raise ExpectedError("fenced")

        self.same(lambda: self.store.renew("ada", id, fence, 1000), model)

    def fence(self, id: str, which: int) -> int:
        """Mostly the right one; else one that was right once, or never."""
        kept = self.threads.get(id)
        return kept.holder if which and kept is not None and kept.holder else self.fences[which % len(self.fences)]

    @rule(id=IDS, kinds=SOME)
    def write(self, id: str, kinds: list[Any]) -> None:
        """A correct write: by the lease holder at the current position."""
        self.hold(id)
        self._append(id, kinds)

    @rule(id=IDS, kinds=SOME, take=st.integers(1, 3))
    def write_queued(self, id: str, kinds: list[Any], take: int) -> None:
        self.hold(id)
        self.enqueue(id, "more")
        self._append(id, kinds, take=take)

    @rule(id=IDS, kinds=SOME)
    def write_twice(self, id: str, kinds: list[Any]) -> None:
        self.hold(id)
        self._append(id, kinds, again=True)

    @rule(id=IDS, kinds=SOME, off=st.integers(-1, 1), which=st.integers(0, 3))
    def write_invalid(self, id: str, kinds: list[Any], off: int, which: int) -> None:
        self._append(id, kinds, off, which)

    @rule(id=IDS, question=QUESTIONS, texts=TEXTS)
    def ask(self, id: str, question: str, texts: str) -> None:
        self.hold(id)
        self._append(id, [("asked", question, texts)])
        self.answer(id, question)

    def hold(self, id: str) -> None:
        if id not in self.threads:
            self.create(id)
        if self.threads[id].holder is None:
            self.lease(id)

    def _append(
        self, id: str, kinds: list[Any], off: int = 0, which: int = 1, take: int = 0, again: bool = False
    ) -> None:
        fence, kept = self.fence(id, which), self.threads.get(id, ModelThread())
        expect = max(0, len(kept.log) + off)
        rows = [_row(expect + number, *kind) for number, kind in enumerate(kinds, 1)]
        took = [*kept.queue][:take]

        def model() -> int:
            thread = self.find(id)
            if thread.holder is None or thread.holder != fence:
                raise ExpectedError("fenced")
            if len(thread.log) != expect:
                raise ExpectedError("conflict")
            for position in took:
                thread.queue.pop(position)
            _fold(thread, rows, took)
            thread.log += rows
            return len(thread.log)

        def work() -> Coroutine[Any, Any, int]:
            written: Coroutine[Any, Any, int] = self.store.append(
                "ada", id, rows, expect=expect, fence=fence, took=took
            )
            return written

        done = self.same(work, model)
        if done is not None and again:
            assert self.runner.run(work()) == done

    @rule(id=IDS, text=TEXTS)
    def enqueue(self, id: str, text: str) -> None:
        self.same(lambda: self.store.enqueue("ada", id, {"text": text}), lambda: _queue(self.find(id), {"text": text}))

    @rule(id=IDS, question=QUESTIONS)
    def answer(self, id: str, question: str) -> None:
        def model() -> int:
            kept = self.find(id)
            if question not in kept.asked:
                raise ExpectedError("not_found")
            if kept.asked[question] != "open":
                raise ExpectedError("conflict")
            kept.asked[question] = "answered"
            kept.answers[question] = _queue(kept, {"yes": True, "id": question})
            return kept.answers[question]

        self.same(lambda: self.store.answer("ada", id, question, {"yes": True}), model)

    @rule(id=IDS, new_id=st.sampled_from(["b", "c"]), back=st.integers(-1, 5))
    def fork(self, id: str, new_id: str, back: int) -> None:
        at = len(self.threads.get(id, ModelThread()).log) - back  # beyond either end, sometimes
        if back % 2 and new_id in self.threads and new_id != id:
            self._delete(new_id)

        def model() -> None:
            kept = self.find(id)
            if not 0 <= at <= len(kept.log):
                raise ExpectedError("invalid")
            if new_id in self.threads:
                raise ExpectedError("conflict")
            made = ModelThread()
            _fold(made, kept.log[:at], [], strict=False)
            made.log = kept.log[:at]
            made.asked = {question: state for question, state in made.asked.items() if state == "open"}
            self.threads[new_id] = made

        self.same(lambda: self.store.fork("ada", id, at, new_id), model)

    @rule()
    def reopen(self) -> None:
        if self.kind != "in_memory":
            self.runner.run(self.store.close())
            self.store = self.place.open()

    @rule()
    def crash(self) -> None:
        """Copy the files as a process that dies now would leave them."""
        if not isinstance(self.store, Sqlite):
            return
        left = Path(tempfile.mkdtemp(dir=self.folder))
        for path in self.place.folder.glob("threads.db*"):
            if not path.name.endswith("-shm"):
                shutil.copy(path, left)
        self.runner.run(self.store.close())
        self.place = StoreLocation(self.kind, left)
        self.store = self.place.open()

    # -- invariants -------------------------------------------------------------------------------------------------

    @invariant()
    def matches_model(self) -> None:
        if hasattr(self, "store"):
            self.runner.run(self._compare())

    async def _compare(self) -> None:
        found = {head.id: head for head in (await self.store.list("ada")).threads}
        assert found.keys() == self.threads.keys()
        for id, kept in self.threads.items():
            head = found[id]
            asking = sum(state == "open" for state in kept.asked.values())
            about = (head.last, head.run, head.asking, head.queued, head.leased)
            assert about == (len(kept.log), kept.run, asking, len(kept.queue), kept.holder is not None)
            assert await read_entries(self.store, id) == kept.log
            assert {item.position: item.data for item in await self.store.inbox("ada", id)} == kept.queue


def _row(seq: int, kind: str, question: str, text: str) -> dict[str, Any]:
    if kind in ("message", "assistant"):
        return make_entry(seq, "message", {"role": "user" if kind == "message" else kind, "content": text})
    if kind in ("asked", "answered"):
        return make_entry(seq, kind, {"id": question, "text": text})
    if kind in ("run_start", "run_end"):
        return make_entry(seq, kind, {"run": question, "outcome": "interrupted" if "a" in text else "completed"})
    return make_entry(seq, kind, {"text": text})


def _queue(kept: ModelThread, data: Any) -> int:
    kept.positions += 1
    kept.queue[kept.positions] = data
    return kept.positions


def _fold(kept: ModelThread, rows: list[dict[str, Any]], took: list[int], strict: bool = True) -> None:
    for row in rows:
        kind, data = row["kind"], row["data"]
        over = kind == "message" and data["role"] == "assistant"
        if kind == "run_start":
            kept.run = data["run"]
        elif kind == "run_end" and data["outcome"] != "interrupted":
            kept.run, over = "", True
        elif kind == "asked":
            if kept.answers.get(data["id"]) not in kept.queue or kept.answers[data["id"]] in took:
                kept.asked[data["id"]] = "open"
                kept.answers.pop(data["id"], None)
        elif kind == "answered" and data["id"] in kept.asked:
            state, queued = kept.asked[data["id"]], kept.answers.pop(data["id"], None)
            if strict and state == "answered" and queued not in took:
                raise ExpectedError("conflict")
            kept.asked[data["id"]] = "answered"
        if over:
            kept.asked = {question: "over" if state == "open" else state for question, state in kept.asked.items()}


def check_store(kind: str) -> None:
    """Do the same to a store of this kind and to the model, in many generated orders."""
    machine = type("Machine", (StoreMachine,), {"kind": kind})
    examples = EXAMPLES[kind] * (40 if FULL else 1)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=40, deadline=None, suppress_health_check=[*HealthCheck]
        ),
    )
