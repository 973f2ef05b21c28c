"""One agent works for another: what it is made of, where its thread is, and how its work goes.

    job = Job("reviewer", "Review the patch.", call="c1", thread="th_1.5c0ffee")
    result = await work(run, job, lambda: child(run, subagent, model, spare=…))

The thread of a job is kept where that of the run above is. Where threads are not kept, the one above holds that of a
child that paused. So a job that was interrupted goes on where it was, and what it had done is not done again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Container, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from wick._internal.frozen import thaw
from wick._internal.tasks import closing_stream
from wick.capabilities._child_agents.definitions import Subagent
from wick.capability import Capability
from wick.errors import ConfigError, StoreError, ToolError, clear_tracebacks
from wick.events import ChatModelStart, Event, SubagentEnd, SubagentStart, ToolStart
from wick.operations import Result, Run
from wick.stores.held_thread import HeldThread, hold
from wick.threads import Thread
from wick.tools import Tool

SNAPSHOT = "subagent_paused"  # the event that holds the thread of a child, where threads are not kept
OWN_ANSWER = "answer"  # the kind of tools by which an agent gives its own answer
OPEN: tuple[str, ...] = ("running", "waiting")  # what a task in the background is until it has ended


@dataclass(eq=False, slots=True)
class Job:
    """One piece of work for an agent, and how far it is."""

    agent: str
    prompt: str
    call: str
    thread: str
    run: Run | None = None
    step: int = 0
    doing: str = ""
    unheard: list[str] = field(default_factory=list)  # what was said to it before it began
    description: str = ""

    def tell(self, message: str) -> None:
        """Say something to its agent, who hears it at its next step."""
        if self.run is None:
            self.unheard.append(message)
        else:
            self.run.send(message)

    def follow(self, event: Event, run: str) -> None:
        """Note what its agent does; what agents below that do is not told here."""
        if event.run_id != run:
            return
        if isinstance(event, ChatModelStart):
            self.step, self.doing = event.step, "thinking"
        elif isinstance(event, ToolStart):
            self.doing = f"using {event.name}"


@dataclass(eq=False, slots=True)
class Task:
    """A piece of work in the background of a run."""

    id: str
    job: Job
    status: str = "running"
    reason: str = ""
    answer: str = ""
    work: asyncio.Task[None] | None = None
    shown: bool = False  # the model has read how it ended
    begun_at: int = 0  # how many steps the run at the top had made when it was begun, or taken up

    @classmethod
    def of(cls, id: str, record: Mapping[str, Any]) -> Task:
        job = Job(record["agent"], record["prompt"], record["call"], record["thread"])
        job.description = record.get("description", "")
        return cls(id, job, record["status"], record["reason"], record["answer"])

    @property
    def open(self) -> bool:
        return self.status in OPEN

    @property
    def title(self) -> str:
        about = f": {self.job.description}" if self.job.description else ""
        return f"{self.id} ({self.job.agent}{about})"

    def raise_failure(self) -> None:
        """Raise what went wrong with writing down what it came to."""
        if self.work is not None and self.work.done() and not self.work.cancelled():
            self.work.result()

    def record(self, run: Run) -> dict[str, Any]:
        job = self.job
        whose = {"agent": job.agent, "prompt": job.prompt, "call": job.call, "thread": job.thread, "run": run.id}
        whose |= {"description": job.description} if job.description else {}
        return {"id": self.id, **whose, "status": self.status, "reason": self.reason, "answer": self.answer}

    def line(self) -> str:
        more = f", step {self.job.step}, {self.job.doing}" if self.status == "running" and self.job.step else ""
        hint = "" if self.open else "; check_task gives its answer"
        return f"- {self.title}: {self.status}{more}{hint}"


async def work(run: Run, job: Job, make: Callable[[], Any]) -> Result:
    """Let an agent do its work below a run; what it had done before it was interrupted is not done again."""
    async with _thread(run, job) as thread:
        if (earlier := _earlier(thread)) is not None:
            return earlier
        begun = bool(thread.messages) and (thread.open_run is not None or _last_end(thread) is None)
        words = "" if begun else "\n\n".join((job.prompt, *job.unheard))
        try:
            stream = make().stream(words, thread=thread, parent=run, without=run.progress.waived_guards)
        except ConfigError as error:
            raise ToolError(f"{job.agent} cannot be started: {error}") from None
        for message in job.unheard if begun else ():
            stream.run.send(message)
        result = await _watched(run, job, stream)
        if result.outcome == "interrupted" and thread.writer is None:
            run.thread.append("event", {"run": run.id, "name": SNAPSHOT, "data": thread.to_json()})
        return result


async def _watched(run: Run, job: Job, stream: Any) -> Result:
    """See a child through to its end; who watches the run above hears of it under the child's id."""
    job.run = child = stream.run
    whose = (child.id, job.agent, run.id, job.call, child.thread.id)
    begins = SubagentStart(*whose, job.prompt, child.resumed, job.description)
    _tell(run, begins)
    result = Result(outcome="cancelled", reason="user requested")
    try:
        async with closing_stream(aiter(stream)) as events:
            async for event in events:
                job.follow(event, child.id)
    finally:
        result = child.progress.result or result
        came_to = (result.outcome, reason(result), result.text, child.usage.to_json())
        _tell(run, SubagentEnd(child.id, job.agent, run.id, job.call, *came_to))
        clear_tracebacks(result.error)
    return result


def _tell(run: Run, event: Event) -> None:
    if run.emitter is not None and not run.progress.over:
        run.emitter(event)


def reason(result: Result) -> str:
    """Why a run came to what it came to."""
    return str(result.error) if result.error is not None else result.reason


# -- what a child is made of ------------------------------------------------------------------------------------------


def child(run: Run, subagent: Subagent, model: Any, *, spare: Container[str]) -> Any:
    """The agent that a definition stands for, with those of the parent's tools that it wants, except for `spare`.

    A tool of a capability comes with that capability's hooks. Its guards, and what is inherited, hold anyway.
    """
    taken = {part.name for part in subagent.hooks}
    names = {item.name for item in (*subagent.own, *brought(subagent))}
    given = [item for item in run.tools.values() if _hands_down(item, subagent, taken)]
    given = [item for item in given if item.name not in names and item.name not in spare]
    owners = {id(owner): owner for item in given if (owner := _owner(item)) is not None}
    hooks = [hook for owner in owners.values() for hook in owner.hooks()]
    return run.make(
        model,
        name=subagent.name,
        system=subagent.prompt,
        tools=[*given, *subagent.own],
        hooks=[*(hook for hook in hooks if hook.position != "guard" and not hook.inherit), *subagent.hooks],
    )


def _hands_down(item: Tool, subagent: Subagent, taken: Container[str]) -> bool:
    """Whether a child gets a tool of its parent; not if it brings the capability that the tool is of by itself."""
    owner = _owner(item)
    return subagent.wants(item) and item.kind != OWN_ANSWER and (owner is None or owner.name not in taken)


def _owner(item: Tool) -> Capability | None:
    owner = getattr(item.fn, "__self__", None)
    return owner if isinstance(owner, Capability) else None


def brought(subagent: Subagent) -> list[Tool]:
    """The tools of a subagent's own capabilities."""
    return [item for part in subagent.hooks if isinstance(part, Capability) for item in part.tools()]


# -- its thread -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _thread(run: Run, job: Job) -> AsyncIterator[Thread]:
    """The thread of a job, where that of the run above is kept; else what the run above has of it."""
    keeper = run.thread.writer
    if not isinstance(keeper, HeldThread):
        yield paused(run.thread, job.thread) or Thread(job.thread)
        return
    thread, about = Thread(job.thread), {"parent": run.thread.id, "agent": job.agent}
    try:
        await keeper.store.create(keeper.owner, thread.id, meta=about)
    except StoreError as error:  # it is there already
        if error.code != "conflict":
            raise
    async with hold(keeper.store, keeper.owner, thread, patience=keeper.patience, seconds=keeper.seconds):
        yield thread


def lasts(run: Run, job: Job) -> bool:
    """Whether a job of a run that was interrupted can be taken up."""
    return isinstance(run.thread.writer, HeldThread) or paused(run.thread, job.thread) is not None


def paused(above: Thread, id: str) -> Thread | None:
    """The thread of a child that paused, as the thread above has it."""
    for entry in reversed(above.effective_entries()):
        if entry.kind == "event" and entry.data["name"] == SNAPSHOT and entry.data["data"]["id"] == id:
            return Thread.from_json(thaw(entry.data["data"]))
    return None


def _earlier(thread: Thread) -> Result | None:
    """What the job had come to already, if it had; a crash may have cut off that somebody heard of it."""
    last = _last_end(thread)
    if thread.open_run is not None or last is None or last["outcome"] not in ("completed", "stopped"):
        return None
    text = next((message.text for message in reversed(thread.messages) if message.role == "assistant"), "")
    return Result(text, last["reason"], last["outcome"], messages=thread.messages, thread=thread)


def _last_end(thread: Thread) -> Any:
    return next((entry.data for entry in reversed(thread.entries) if entry.kind == "run_end"), None)
