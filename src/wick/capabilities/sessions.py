"""Persistent threads: runs are written to a store while they proceed, and resumed from it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from math import inf
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Literal

from wick._internal.familiar_words import ANSWER_OPTIONS, explain_options
from wick._internal.frozen import FrozenDict
from wick.capability import Capability
from wick.errors import ConfigError, StoreError
from wick.hooks import before
from wick.messages import Message, user
from wick.operations import Run
from wick.protocols import Lease, Page, Store, Summary
from wick.resume import end_abandoned_run
from wick.stores.held_thread import hold, iter_threads, iter_unfinished, load
from wick.stores.rows import LEASE_SECONDS
from wick.threads import Thread
from wick.tools import Tool, find_tool

LOCAL = "local"  # the owner of threads of runs without a user
Choice = Literal["allow", "deny", "allow_session", "allow_always"]
_SCOPES = {"allow_session": "session", "allow_always": "always"}


class Sessions(Capability):
    """Persists threads in a store: `Sessions("./sessions")` creates a SQLite store in that folder.

    A run with `thread="…"` continues that thread, from any program, with `user` as its owner. A second run of a thread
    waits for the first, or is refused with `busy="refuse"`. Without `ask=`, a question waits `patience` seconds for
    `sessions.answer`; then the run pauses. `unknown="ask_user"` asks the user about a tool use that a crash
    interrupted, instead of reporting it to the model.
    """

    def __init__(
        self,
        store: Store | str | Path,
        *,
        busy: Literal["wait", "refuse"] = "wait",
        unknown: Literal["tell_model", "ask_user"] = "tell_model",
        patience: float = 0.0,
        lease: float = LEASE_SECONDS,
    ) -> None:
        if busy not in ("wait", "refuse") or unknown not in ("tell_model", "ask_user"):
            raise ConfigError('Sessions takes busy="wait" or "refuse", and unknown="tell_model" or "ask_user"')
        if patience < 0 or lease <= 0:
            raise ConfigError("patience and lease are seconds: patience at least 0, lease more than that")
        if isinstance(store, str | Path):
            from wick.stores.registry import open_folder_or_address

            store = open_folder_or_address(store)
        self.store: Store = store
        self.busy, self.unknown, self.patience, self.lease = busy, unknown, patience, lease

    @asynccontextmanager
    async def session(self, run: Run) -> AsyncIterator[None]:
        """Hold the lease of the run's thread from before the start until after the end of the run."""
        above = run.parent
        while above is not None:
            if above.thread.id == run.thread.id:
                raise ConfigError(f"thread {run.thread.id} is that of the run above; give this one another thread")
            above = above.parent
        wait = self.busy == "wait"
        async with hold(
            self.store,
            run.user or LOCAL,
            run.thread,
            wait=wait,
            patience=self.patience,
            seconds=self.lease,
            lease=self.take_lease(run),
        ):
            yield

    def take_lease(self, run: Run) -> Lease | None:
        """Return the lease of the run's thread if it was acquired before the run."""
        return None

    @before(Run)
    async def set_policy(self, run: Run) -> None:
        run.progress.resumption.ask_before_rerun = self.unknown == "ask_user"

    # -- managing threads ----------------------------------------------------------------------------------------------

    async def load(self, id: str, *, owner: str = LOCAL) -> Thread:
        """Return a read-only copy of a stored thread; `agent.run(thread=id)` continues it."""
        with _naming_owner(owner):
            await self.store.head(owner, id)
            return await load(self.store, owner, id)

    async def threads(self, *, owner: str = LOCAL, **options: Any) -> Page:
        """Return a page of an owner's threads, the latest first; see `Store.list`."""
        return await self.store.list(owner, **options)

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

    async def cancel(self, id: str, *, owner: str = LOCAL) -> None:
        """End the open run of a thread as cancelled: a run that is paused, or whose process was killed.

        Its open questions are closed, and its pending tool calls get a result that reports the cancellation. Without
        an open run there is no effect. A run in progress is a `conflict`: cancel its task instead.
        """
        async with self._hold_idle(id, owner) as thread:
            if thread.open_run is not None:
                end_abandoned_run(thread, thread.open_run["run"], (), "cancelled", "user requested")

    @asynccontextmanager
    async def _hold_idle(self, id: str, owner: str) -> AsyncIterator[Thread]:
        """Hold an existing thread without a run, and save what is appended to it."""
        await self.store.head(owner, id)
        thread = Thread(id)
        async with hold(self.store, owner, thread, wait=False, seconds=self.lease):
            yield thread
            await thread.saved()

    async def send(self, id: str, message: str | Message, *, owner: str = LOCAL) -> int:
        """Queue a user message for a thread: the current run reads it at its next step, else the next run does."""
        queued = user(message) if isinstance(message, str) else message
        if queued.role != "user":
            raise ConfigError(f"only a message of the user can be sent to a thread, not a message of the {queued.role}")
        with _naming_owner(owner):
            return await self.store.enqueue(owner, id, queued.to_json())

    async def questions(self, id: str, *, owner: str = LOCAL) -> Sequence[FrozenDict]:
        """Return the open questions of a thread, as read-only dicts with `id`, `question`, `tool`, `args` and more."""
        with _naming_owner(owner):
            waiting = {row.data["id"] for row in await self.store.inbox(owner, id) if row.kind == "answer"}
        thread = await self.load(id, owner=owner)
        return [question for key, question in thread.questions.items() if key not in waiting]

    async def iter_questions(self) -> AsyncIterator[tuple[Summary, FrozenDict]]:
        """Iterate over the open questions of all owners, each with its thread: an inbox of approvals."""
        async for head in self.iter_unfinished():
            if head.asking:
                for question in await self.questions(head.id, owner=head.owner):
                    yield head, question

    async def lapsed(self, *, owner: str = LOCAL) -> list[str]:
        """Return the ids of threads with an expired question. A new run continues such a thread without the answer."""
        ids = list[str]()
        async for head in iter_threads(self.store, owner, asking=True):
            if any(_has_lapsed(question) for question in await self.questions(head.id, owner=owner)):
                ids.append(head.id)
        return ids

    async def answer(
        self,
        id: str,
        question: str,
        choice: Choice,
        *,
        owner: str = LOCAL,
        words: str = "",
        args: Mapping[str, Any] | None = None,
        by: str = "",
    ) -> None:
        """Answer a question of a thread, from any program; the first answer counts, a second is a `conflict`.

        `allow` may change the arguments; `deny` gives the reason in `words`. `allow_session` and `allow_always` also
        grant the same use for this thread or permanently. Run the thread again to continue it.
        """
        if choice not in ("allow", "deny", *_SCOPES):
            raise StoreError(f"the answer is allow, deny, allow_session or allow_always, not {choice!r}", "invalid")
        if args is not None and choice == "deny":
            raise StoreError("a denial cannot change arguments; give instructions in its words instead", "invalid")
        asked = (await self.load(id, owner=owner)).questions.get(question)
        if asked is None:
            raise StoreError(f"thread {id} has no open question {question!r}", "not_found")
        if _has_lapsed(asked):
            raise StoreError(
                f"the question {question} has lapsed; run the thread to continue without an answer", "conflict"
            )
        answer: dict[str, Any] = {"id": asked["id"], "hash": asked["hash"], "allowed": choice != "deny"}
        answer["reason"] = "" if answer["allowed"] else words or f"the user said no to: {asked['question']}"
        if choice in _SCOPES:  # propose a rule that allows this tool with these arguments
            rule = {key: asked[key] for key in ("operation", "tool", "args") if key in asked}
            answer |= {"scope": _SCOPES[choice], "rule": rule}
        answer |= ({"args": dict(args)} if args is not None else {}) | ({"by": by} if by else {})
        await self.store.answer(owner, id, question, answer)

    if not TYPE_CHECKING:  # type checkers report unknown options themselves
        answer = explain_options("Sessions.answer()", ANSWER_OPTIONS)(answer)

    async def close(self) -> None:
        """Close the store's files and connections; they are reopened on demand."""
        await self.store.close()


async def check_changed_args(tools: Sequence[Tool], name: str, args: Mapping[str, Any]) -> None:
    """Raise InvalidArgs if the arguments of an answer do not fit the tool. The gate checks those of unknown tools."""
    tool = find_tool(name, {tool.name: tool for tool in tools})
    if tool is not None and tool.name != "ask_user":  # the answer to a question is not an argument of the tool
        await tool.prepare(args)
        tool.validate(args)


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
