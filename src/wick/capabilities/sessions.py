"""Persistent threads: runs are written to a store while they proceed, and resumed from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from wick._internal.familiar_words import (
    ANSWER_OPTIONS,
    SESSIONS_ARGUMENTS,
    SESSIONS_ATTRIBUTES,
    SESSIONS_OPTIONS,
    explain_arguments,
    explain_attributes,
    explain_options,
)
from wick._internal.frozen import FrozenDict
from wick._internal.run_context import find_run
from wick._internal.worker_threads import run_in_thread
from wick.approvals import SOURCE, list_step_questions
from wick.capability import Capability
from wick.constants import ASK_SECONDS
from wick.errors import ConfigError, StoreError
from wick.hooks import before
from wick.messages import Message, user
from wick.models.message_dicts import read_message_dicts
from wick.operations import Run
from wick.permissions.proposals import propose_rules
from wick.protocols import Lease, Page, Store, Summary
from wick.resume import end_abandoned_run
from wick.stores.held_thread import HeldThread, hold, iter_threads, iter_unfinished, load, send_messages
from wick.stores.rows import LEASE_SECONDS
from wick.threads import Thread
from wick.tools import Tool, find_tool

LOCAL = "local"  # the owner of threads of runs without a user
Choice = Literal["allow", "deny", "allow_session", "allow_always", "allow_source", "allow_step", "deny_step"]
_SCOPES = {"allow_session": "session", "allow_always": "always"}


@dataclass(eq=False, slots=True)
class _HeldRun:
    """A root run whose thread is held in this process, or that waits for it."""

    run: Run
    task: asyncio.Task[Any]
    has_thread: bool = False
    closed: asyncio.Event = field(default_factory=asyncio.Event)  # its end is saved, and its lease released


@explain_attributes(SESSIONS_ATTRIBUTES)
class Sessions(Capability):
    """Persists threads in a store: `Sessions("./sessions")` creates a SQLite store in that folder.

    A run with `thread="…"` continues that thread, from any program, with `user` as its owner. A second run of a thread
    waits for the first, or is refused with `busy="refuse"`. Without `ask=`, a question waits `patience` seconds for
    `sessions.answer`; then the run pauses. A question lapses after `answer_within` seconds. `unknown="ask_user"` asks
    the user about a tool use that a crash interrupted, instead of reporting it to the model.
    """

    def __init__(
        self,
        store: Store | str | Path,
        *,
        busy: Literal["wait", "refuse"] = "wait",
        unknown: Literal["tell_model", "ask_user"] = "tell_model",
        patience: float = 0.0,
        lease: float = LEASE_SECONDS,
        answer_within: float = ASK_SECONDS,
    ) -> None:
        if busy not in ("wait", "refuse") or unknown not in ("tell_model", "ask_user"):
            raise ConfigError('Sessions takes busy="wait" or "refuse", and unknown="tell_model" or "ask_user"')
        if patience < 0 or lease <= 0:
            raise ConfigError("patience and lease are seconds: patience at least 0, lease more than that")
        if type(answer_within) not in (int, float) or not answer_within > 0:
            raise ConfigError(
                f"answer_within= takes seconds, a number above 0, not {answer_within!r}; without it, a day"
            )
        if isinstance(store, str | Path):
            from wick.stores.registry import open_folder_or_address

            store = open_folder_or_address(store)
        self.store: Store = store
        self.busy, self.unknown, self.patience, self.lease = busy, unknown, patience, lease
        self.answer_within = answer_within
        self._held_runs: set[_HeldRun] = set()

    if not TYPE_CHECKING:  # type checkers report these mistakes themselves
        __init__ = explain_arguments(
            "Sessions()",
            'Sessions("./sessions") stores threads in a folder, Sessions(store) in a store, such as one of wick.stores',
        )(__init__)

    @asynccontextmanager
    async def session(self, run: Run) -> AsyncIterator[None]:
        """Hold the lease of the run's thread from before the start until after the end of the run."""
        above = run.parent
        while above is not None:
            if above.thread.id == run.thread.id:
                raise ConfigError(f"thread {run.thread.id} is that of the run above; give this one another thread")
            above = above.parent
        held = _HeldRun(run, cast(asyncio.Task[Any], asyncio.current_task()))
        if run.parent is None:
            self._held_runs.add(held)
        try:
            async with hold(
                self.store,
                run.user or LOCAL,
                run.thread,
                wait=self.busy == "wait",
                patience=self.patience,
                seconds=self.lease,
                lease=self.take_lease(run),
                meta={"agent_name": run.agent},  # commands list it
            ) as thread:
                held.has_thread = thread.saves_on_release = True
                yield
        except asyncio.CancelledError:
            if run.progress.resumption.released and not held.has_thread:
                await self._queue_input(run)
            raise
        finally:
            self._held_runs.discard(held)
            held.closed.set()

    async def _queue_input(self, run: Run) -> None:
        """Store the input of a released run that still waited for its thread: the next run answers it."""
        messages = [message.to_json() for message in run.input if message.role == "user"]
        owner = run.user or LOCAL
        if messages:
            with suppress(StoreError):  # it exists, unless the run has just begun
                await self.store.create(owner, run.thread.id, meta={"agent_name": run.agent})
            await self.store.enqueue(owner, run.thread.id, *messages)

    async def release(self, grace: float = 0.0) -> None:
        """Interrupt the runs in progress, so that they can be resumed: by another process, or after a restart.

        A run that only waits for a stored answer pauses at once. The others have `grace` seconds to end. Then their
        tasks are cancelled, and their outcome is `interrupted` instead of `cancelled`. It covers the runs of this
        event loop except one that calls it, and returns when they are saved and their threads released.
        """
        if type(grace) not in (int, float) or not grace >= 0:
            raise ConfigError(f"release takes the seconds in which runs may end, a number from 0, not {grace!r}")
        loop, own = asyncio.get_running_loop(), find_run()
        mine = {held: held.task for held in self._held_runs if own is None or held.run is not own.root}
        mine = {held: task for held, task in mine.items() if task.get_loop() is loop}
        for held in mine:
            if isinstance(writer := held.run.thread.writer, HeldThread):
                writer.stop_waiting()
        closing = [loop.create_task(held.closed.wait()) for held in mine]
        if closing and grace:
            await asyncio.wait(closing, timeout=grace)
        for held, task in mine.items():
            if not held.closed.is_set():
                held.run.progress.resumption.released = True
                task.cancel()
        await asyncio.gather(*closing)

    def take_lease(self, run: Run) -> Lease | None:
        """Return the lease of the run's thread if it was acquired before the run."""
        return None

    @before(Run)
    async def set_policy(self, run: Run) -> None:
        run.progress.resumption.ask_before_rerun = self.unknown == "ask_user"
        run.progress.resumption.answer_within = self.answer_within

    # -- managing threads ----------------------------------------------------------------------------------------------

    async def load(self, id: str, *, owner: str = LOCAL) -> Thread:
        """Return a read-only copy of a stored thread; `agent.run(thread=id)` continues it."""
        with _naming_owner(owner):
            await self.store.head(owner, id)
            return await load(self.store, owner, id)

    async def threads(
        self,
        *,
        owner: str = LOCAL,
        asking: bool | None = None,
        running: bool | None = None,
        queued: bool | None = None,
        prefix: str = "",
        order: Literal["updated", "created"] = "updated",
        oldest_first: bool = False,
        cursor: str = "",
        limit: int = 50,
    ) -> Page:
        """Return a page of an owner's threads, the latest first: by default all, with a flag those that match it."""
        _check_owner(owner)
        for name, flag in (("asking", asking), ("running", running), ("queued", queued)):
            if flag is not None and not isinstance(flag, bool):
                raise StoreError(f"{name}= takes True, False, or None for both, not {flag!r}", "invalid")
        for name, text in (("prefix", prefix), ("cursor", cursor)):
            if not isinstance(text, str):
                raise StoreError(f"{name}= takes a text, not {text!r}", "invalid")
        return await self.store.list(
            owner,
            asking=asking,
            running=running,
            queued=queued,
            prefix=prefix,
            order=order,
            oldest_first=oldest_first,
            cursor=cursor,
            limit=limit,
        )

    def iter_unfinished(self) -> AsyncIterator[Summary]:
        """Iterate over all threads of all owners with an open run or queued messages, to resume them after a crash."""
        return iter_unfinished(self.store)

    async def fork(self, id: str, at: int, *, owner: str = LOCAL, new_id: str = "") -> Summary:
        """Create a thread that starts with the entries of this one up to `at`."""
        return await self.store.fork(owner, id, at, new_id or Thread().id)

    async def rewind(self, id: str, to: int, *, owner: str = LOCAL) -> Thread:
        """Rewind a thread to its entry `to`. Later entries stay in the log and are ignored."""
        async with self._hold_idle(id, owner) as thread:
            thread.rewind(to)
        return thread

    async def switch_branch(self, id: str, message: int, *, owner: str = LOCAL) -> Thread:
        """Return to the branch of a message that a rewind has undone; `message` is its entry."""
        async with self._hold_idle(id, owner) as thread:
            thread.switch_branch(message)
        return thread

    async def cancel(self, id: str, *, owner: str = LOCAL) -> bool:
        """End the open run of a thread as cancelled: a run that is paused, or whose process was killed.

        Its open questions are closed, and its pending tool calls get a result that reports the cancellation. Without
        an open run it does nothing, and returns False. A run in progress is a `conflict`: cancel its task instead.
        """
        async with self._hold_idle(id, owner) as thread:
            if thread.open_run is None:
                return False
            end_abandoned_run(thread, thread.open_run["run"], (), "cancelled", "user requested")
        return True

    @asynccontextmanager
    async def _hold_idle(self, id: str, owner: str) -> AsyncIterator[Thread]:
        """Hold an existing thread without a run, and save what is appended to it."""
        with _naming_owner(owner):
            await self.store.head(owner, id)
        thread = Thread(id)
        async with hold(self.store, owner, thread, wait=False, seconds=self.lease):
            yield thread
            await thread.saved()

    async def send(
        self, id: str, message: str | Message | Mapping[str, object], *, owner: str = LOCAL, key: str = ""
    ) -> int:
        """Queue a user message for a thread: the current run reads it at its next step, else the next run does.

        With an idempotency `key`, a repeated message is queued once.
        """
        queued = user(message) if isinstance(message, str) else read_message_dicts([message])[0]
        if queued.role != "user":
            raise ConfigError(f"only a message of the user can be sent to a thread, not a message of the {queued.role}")
        with _naming_owner(owner):
            return await send_messages(self.store, owner, id, queued.to_json(), key=key)

    # -- questions -----------------------------------------------------------------------------------------------------

    async def questions(self, id: str, *, owner: str = LOCAL) -> Sequence[FrozenDict]:
        """Return the pending questions of a thread, as read-only dicts with `id`, `question`, `tool`, `args` and more.

        A question that was answered or has expired is not pending.
        """
        return [question for question in await self._unanswered(id, owner) if not _has_lapsed(question)]

    async def _unanswered(self, id: str, owner: str) -> list[FrozenDict]:
        with _naming_owner(owner):
            answered = {row.data["id"] for row in await self.store.inbox(owner, id) if row.kind == "answer"}
        thread = await self.load(id, owner=owner)
        return [question for key, question in thread.questions.items() if key not in answered]

    async def iter_questions(self) -> AsyncIterator[tuple[Summary, FrozenDict]]:
        """Iterate over the pending questions of all owners, each with its thread: an inbox of approvals."""
        async for head in self.iter_unfinished():
            if head.asking:
                for question in await self.questions(head.id, owner=head.owner):
                    yield head, question

    async def iter_lapsed(self) -> AsyncIterator[tuple[Summary, FrozenDict]]:
        """Iterate over the expired questions of all owners, each with its thread. A run continues without answers."""
        async for found in self._iter_lapsed(self.iter_unfinished()):
            yield found

    async def lapsed(self, *, owner: str = LOCAL) -> list[str]:
        """Return the ids of threads with an expired question. A new run continues such a thread without the answer."""
        _check_owner(owner)
        heads = iter_threads(self.store, owner, running=True)
        return [*dict.fromkeys([head.id async for head, _ in self._iter_lapsed(heads)])]

    async def _iter_lapsed(self, heads: AsyncIterable[Summary]) -> AsyncIterator[tuple[Summary, FrozenDict]]:
        async for head in heads:
            if head.run:
                for question in await self._unanswered(head.id, head.owner):
                    if _has_lapsed(question):
                        yield head, question

    async def answer(
        self,
        id: str,
        question: str,
        choice: Choice,
        *,
        owner: str = LOCAL,
        words: str = "",
        args: Mapping[str, Any] | None = None,
        rules: Sequence[str] = (),
        by: str = "",
    ) -> None:
        """Answer a question of a thread, from any program; the first answer counts, a second is a `conflict`.

        `allow` may change the arguments; `deny` gives the reason in `words`. `allow_session` and `allow_always` also
        grant the same use for this thread or permanently. `rules` of `propose_rules` extend `allow_session` to all
        commands that they allow. `allow_source` endorses the sources of the question for this run; `allow_step` and
        `deny_step` also answer the other questions of the step. Run the thread again to continue it.
        """
        if choice not in get_args(Choice):
            raise StoreError(f"the answer is one of {', '.join(get_args(Choice))}, not {choice!r}", "invalid")
        if args is not None and choice.startswith("deny"):
            raise StoreError("a denial cannot change arguments; give instructions in its words instead", "invalid")
        if args is not None and choice not in ("allow", *_SCOPES):
            raise StoreError(f"{choice} cannot change arguments; answer allow with args", "invalid")
        asked = (await self.load(id, owner=owner)).questions.get(question)
        if asked is None:
            raise StoreError(f"thread {id} has no open question {question!r}", "not_found")
        if _has_lapsed(asked):
            raise StoreError(
                f"the question {question} has lapsed; run the thread to continue without an answer", "conflict"
            )
        if rules:
            await _check_rules(asked, choice, args, rules)
        if choice == "allow_source" and not asked.get("sources"):
            raise StoreError("this question names no source that could be endorsed; answer allow", "invalid")
        answer: dict[str, Any] = {"id": asked["id"], "hash": asked["hash"], "allowed": not choice.startswith("deny")}
        answer["reason"] = "" if answer["allowed"] else words or f"the user said no to: {asked['question']}"
        if choice in _SCOPES:  # propose a rule that allows this tool with these arguments
            rule = {key: asked[key] for key in ("operation", "tool", "args") if key in asked}
            answer |= {"scope": _SCOPES[choice], "rule": {**rule, "rules": [*rules]} if rules else rule}
        answer |= ({"args": dict(args)} if args is not None else {}) | ({"by": by} if by else {})
        if choice == "allow_source":
            answer["scope"] = SOURCE
        await self.store.answer(owner, id, question, answer)
        if choice.endswith("_step"):
            for other in list_step_questions({row["id"]: row for row in await self.questions(id, owner=owner)}, asked):
                with suppress(StoreError):  # answered elsewhere first
                    await self.store.answer(
                        owner, id, other["id"], {**answer, "id": other["id"], "hash": other["hash"]}
                    )

    async def close(self) -> None:
        """Close the store's files and connections; they are reopened on demand."""
        await self.store.close()


async def _check_rules(
    asked: Mapping[str, Any], choice: str, args: Mapping[str, Any] | None, rules: Sequence[str]
) -> None:
    """Raise a StoreError unless a question proposes these rules."""
    proposed = await run_in_thread(lambda: propose_rules(asked), "proposing rules")
    if choice != "allow_session" or args is not None:
        raise StoreError("rules are for the choice allow_session, with the arguments of the question", "invalid")
    if unknown := [rule for rule in rules if rule not in proposed]:
        known = ", ".join(proposed) or "none"
        raise StoreError(f"the question does not propose the rule {unknown[0][:200]}; it proposes {known}", "invalid")


async def check_changed_args(tools: Sequence[Tool], name: str, args: Mapping[str, Any]) -> None:
    """Raise InvalidArgs if the arguments of an answer do not fit the tool. The gate checks those of unknown tools."""
    tool = find_tool(name, {tool.name: tool for tool in tools})
    if tool is not None and tool.name != "ask_user":  # the answer to a question is not an argument of the tool
        await tool.prepare(args)
        tool.validate(args)


if not TYPE_CHECKING:  # type checkers report these mistakes themselves
    iterators = "iter_unfinished", "iter_questions", "iter_lapsed"
    others = "load", "threads", "fork", "rewind", "switch_branch", "cancel", "send", "questions", "lapsed", "answer"
    for method in (*iterators, *others):
        explained = vars(Sessions)[method]
        if method in SESSIONS_ARGUMENTS:
            explained = explain_arguments(f"Sessions.{method}()", SESSIONS_ARGUMENTS[method])(explained)
        words = ANSWER_OPTIONS if method == "answer" else SESSIONS_OPTIONS
        setattr(Sessions, method, explain_options(f"Sessions.{method}()", words)(explained))


def _check_owner(owner: object) -> None:
    if not isinstance(owner, str) or not owner:
        raise StoreError(f"owner= takes the name of a user, as user= of a run, not {owner!r}", "invalid")


@contextmanager
def _naming_owner(owner: str) -> Iterator[None]:
    """Add the owner to the error about an unknown thread. Users of a server do not see it."""
    try:
        yield
    except StoreError as error:
        if error.code != "not_found" or "owner=" in str(error):
            raise
        hint = f"{error} of the owner {owner!r}; pass owner=, the same as user= of its run"
        raise StoreError(hint, error.code, public=error.public) from None


def _has_lapsed(asked: FrozenDict) -> bool:
    return time() >= float(asked.get("expires", inf))
