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
from wick._internal.tasks import closing
from wick.capabilities._child_agents.definitions import Subagent
from wick.capability import Capability
from wick.errors import ConfigError, StoreError, ToolError, forget
from wick.events import ChatModelStart, Event, SubagentEnd, SubagentStart, ToolStart
from wick.operations import Result, Run
from wick.stores.held_thread import HeldThread, hold
from wick.threads import Thread
from wick.tools import Tool

SNAPSHOT = "subagent_paused"  # the event that holds the thread of a child, where threads are not kept
OWN_ANSWER = "answer"  # the kind of tools by which an agent gives its own answer
OPEN: tuple[str, ...] = ("running", "waiting")  # what a task in the background is until it has ended


@dataclass(eq=False, slots=True)
class ChildJob:
    """One piece of work for an agent, and how far it is."""

    agent: str
    prompt: str
    call: str
    thread: str
    run: Run | None = None
    step: int = 0
    activity: str = ""
    pending_messages: list[str] = field(default_factory=list)  # what was said to it before it began
    description: str = ""

    def send(self, message: str) -> None:
        """Say something to its agent, who hears it at its next step."""
        if self.run is None:
            self.pending_messages.append(message)
        else:
            self.run.send(message)

    def track_event(self, event: Event, run: str) -> None:
        """Note what its agent does; what agents below that do is not told here."""
        if event.run_id != run:
            return
        if isinstance(event, ChatModelStart):
            self.step, self.activity = event.step, "thinking"
        elif isinstance(event, ToolStart):
            self.activity = f"using {event.name}"


@dataclass(eq=False, slots=True)
class BackgroundTask:
    """A piece of work in the background of a run."""

    id: str
    job: ChildJob
    status: str = "running"
    status_reason: str = ""
    answer: str = ""
    async_task: asyncio.Task[None] | None = None
    shown: bool = False  # the model has read how it ended
    started_at_step: int = 0  # how many steps the run at the top had made when it was begun, or taken up

    @classmethod
    def from_record(cls, id: str, record: Mapping[str, Any]) -> BackgroundTask:
        job = ChildJob(record["agent"], record["prompt"], record["call"], record["thread"])
        job.description = record.get("description", "")
        return cls(id, job, record["status"], record["reason"], record["answer"])

    @property
    def is_open(self) -> bool:
        return self.status in OPEN

    @property
    def title(self) -> str:
        about = f": {self.job.description}" if self.job.description else ""
        return f"{self.id} ({self.job.agent}{about})"

    def raise_failure(self) -> None:
        """Raise what went wrong with writing down what it came to."""
        if self.async_task is not None and self.async_task.done() and not self.async_task.cancelled():
            self.async_task.result()

    def to_record(self, run: Run) -> dict[str, Any]:
        job = self.job
        whose = {"agent": job.agent, "prompt": job.prompt, "call": job.call, "thread": job.thread, "run": run.id}
        whose |= {"description": job.description} if job.description else {}
        return {"id": self.id, **whose, "status": self.status, "reason": self.status_reason, "answer": self.answer}

    def format_line(self) -> str:
        more = f", step {self.job.step}, {self.job.activity}" if self.status == "running" and self.job.step else ""
        hint = "" if self.is_open else "; check_task gives its answer"
        return f"- {self.title}: {self.status}{more}{hint}"


async def run_child(run: Run, job: ChildJob, make: Callable[[], Any]) -> Result:
    """Let an agent do its work below a run; what it had done before it was interrupted is not done again."""
    async with _open_thread(run, job) as thread:
        if (earlier := _find_earlier_result(thread)) is not None:
            return earlier
        begun = bool(thread.messages) and (thread.open_run is not None or _find_last_run_end(thread) is None)
        words = "" if begun else "\n\n".join((job.prompt, *job.pending_messages))
        try:
            stream = make().stream(words, thread=thread, parent=run, without=run.progress.without)
        except ConfigError as error:
            raise ToolError(f"{job.agent} cannot be started: {error}") from None
        for message in job.pending_messages if begun else ():
            stream.run.send(message)
        result = await _follow_child(run, job, stream)
        if result.outcome == "interrupted" and thread.keeper is None:
            run.thread.append("event", {"run": run.id, "name": SNAPSHOT, "data": thread.to_json()})
        return result


async def _follow_child(run: Run, job: ChildJob, stream: Any) -> Result:
    """See a child through to its end; who watches the run above hears of it under the child's id."""
    job.run = child = stream.run
    whose = (child.id, job.agent, run.id, job.call, child.thread.id)
    begins = SubagentStart(*whose, job.prompt, child.resumed, job.description)
    _emit_event(run, begins)
    result = Result(outcome="cancelled", reason="user requested")
    try:
        async with closing(aiter(stream)) as events:
            async for event in events:
                job.track_event(event, child.id)
    finally:
        result = child.progress.result or result
        came_to = (result.outcome, explain_outcome(result), result.text, child.usage.to_json())
        _emit_event(run, SubagentEnd(child.id, job.agent, run.id, job.call, *came_to))
        forget(result.error)
    return result


def _emit_event(run: Run, event: Event) -> None:
    if run.emitter is not None and not run.progress.over:
        run.emitter(event)


def explain_outcome(result: Result) -> str:
    """Why a run came to what it came to."""
    return str(result.error) if result.error is not None else result.reason


# -- what a child is made of ------------------------------------------------------------------------------------------


def build_child(run: Run, subagent: Subagent, model: Any, *, spare: Container[str]) -> Any:
    """The agent that a definition stands for, with those of the parent's tools that it wants, except for `spare`.

    A tool of a capability comes with that capability's hooks. Its guards, and what is inherited, hold anyway.
    """
    taken = {part.name for part in subagent.hooks}
    names = {item.name for item in (*subagent.own, *list_capability_tools(subagent))}
    given = [item for item in run.tools.values() if _is_handed_down(item, subagent, taken)]
    given = [item for item in given if item.name not in names and item.name not in spare]
    owners = {id(owner): owner for item in given if (owner := _find_owner(item)) is not None}
    hooks = [hook for owner in owners.values() for hook in owner.hooks()]
    return run.make(
        model,
        name=subagent.name,
        system=subagent.prompt,
        tools=[*given, *subagent.own],
        hooks=[*(hook for hook in hooks if hook.position != "guard" and not hook.inherit), *subagent.hooks],
    )


def _is_handed_down(item: Tool, subagent: Subagent, taken: Container[str]) -> bool:
    """Whether a child gets a tool of its parent; not if it brings the capability that the tool is of by itself."""
    owner = _find_owner(item)
    return subagent.can_use(item) and item.kind != OWN_ANSWER and (owner is None or owner.name not in taken)


def _find_owner(item: Tool) -> Capability | None:
    owner = getattr(item.fn, "__self__", None)
    return owner if isinstance(owner, Capability) else None


def list_capability_tools(subagent: Subagent) -> list[Tool]:
    """The tools of a subagent's own capabilities."""
    return [item for part in subagent.hooks if isinstance(part, Capability) for item in part.tools()]


# -- its thread -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _open_thread(run: Run, job: ChildJob) -> AsyncIterator[Thread]:
    """The thread of a job, where that of the run above is kept; else what the run above has of it."""
    keeper = run.thread.keeper
    if not isinstance(keeper, HeldThread):
        yield find_paused_thread(run.thread, job.thread) or Thread(job.thread)
        return
    thread, about = Thread(job.thread), {"parent": run.thread.id, "agent": job.agent}
    try:
        await keeper.store.create(keeper.owner, thread.id, meta=about)
    except StoreError as error:  # it is there already
        if error.code != "conflict":
            raise
    async with hold(keeper.store, keeper.owner, thread, patience=keeper.patience, seconds=keeper.seconds):
        yield thread


def can_resume(run: Run, job: ChildJob) -> bool:
    """Whether a job of a run that was interrupted can be taken up."""
    return isinstance(run.thread.keeper, HeldThread) or find_paused_thread(run.thread, job.thread) is not None


def find_paused_thread(above: Thread, id: str) -> Thread | None:
    """The thread of a child that paused, as the thread above has it."""
    for entry in reversed(above.effective_entries()):
        if entry.kind == "event" and entry.data["name"] == SNAPSHOT and entry.data["data"]["id"] == id:
            return Thread.from_json(thaw(entry.data["data"]))
    return None


def _find_earlier_result(thread: Thread) -> Result | None:
    """What the job had come to already, if it had; a crash may have cut off that somebody heard of it."""
    last = _find_last_run_end(thread)
    if thread.open_run is not None or last is None or last["outcome"] not in ("completed", "stopped"):
        return None
    text = next((message.text for message in reversed(thread.messages) if message.role == "assistant"), "")
    return Result(text, last["reason"], last["outcome"], messages=thread.messages, thread=thread)


def _find_last_run_end(thread: Thread) -> Any:
    return next((entry.data for entry in reversed(thread.entries) if entry.kind == "run_end"), None)
