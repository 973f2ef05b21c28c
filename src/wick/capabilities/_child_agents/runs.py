"""Runs of child agents: building the child, its thread, and background tasks.

    job = ChildJob("reviewer", "Review the patch.", call="c1", thread="th_1.5c0ffee")
    result = await run_child(run, job, lambda: build_child(run, subagent, model, spare=…))

The thread of a job is stored where its parent's is. Without a store, the parent's thread holds a snapshot of a paused
child. So an interrupted job resumes where it stopped, and finished work is not repeated.
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

SNAPSHOT = "subagent_paused"  # the event with the thread of a paused child, without a store
OWN_ANSWER = "answer"  # the kind of tools that accept an agent's final answer
OPEN: tuple[str, ...] = ("running", "waiting")  # states of an unfinished background task


@dataclass(eq=False, slots=True)
class ChildJob:
    """A prompt for a child agent, and its progress."""

    agent: str
    prompt: str
    call: str
    thread: str
    run: Run | None = None
    step: int = 0
    activity: str = ""
    pending_messages: list[str] = field(default_factory=list)  # messages sent before the child started
    description: str = ""

    def send(self, message: str) -> None:
        """Send a message to the child; it reads the message at its next step."""
        if self.run is None:
            self.pending_messages.append(message)
        else:
            self.run.send(message)

    def track_event(self, event: Event, run: str) -> None:
        """Update the progress from an event of the child; ignore events of its own children."""
        if event.run_id != run:
            return
        if isinstance(event, ChatModelStart):
            self.step, self.activity = event.step, "thinking"
        elif isinstance(event, ToolStart):
            self.activity = f"using {event.name}"


@dataclass(eq=False, slots=True)
class BackgroundTask:
    """A job that runs in the background of a run."""

    id: str
    job: ChildJob
    status: str = "running"
    status_reason: str = ""
    answer: str = ""
    async_task: asyncio.Task[None] | None = None
    shown: bool = False  # the model has read the result
    started_at_step: int = 0  # steps of the root run when the task was last launched

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
        """Raise the exception of the asyncio task, such as a failed write of the result."""
        if self.async_task is not None and self.async_task.done() and not self.async_task.cancelled():
            self.async_task.result()

    def to_record(self, run: Run) -> dict[str, Any]:
        job = self.job
        fields = {"agent": job.agent, "prompt": job.prompt, "call": job.call, "thread": job.thread, "run": run.id}
        fields |= {"description": job.description} if job.description else {}
        return {"id": self.id, **fields, "status": self.status, "reason": self.status_reason, "answer": self.answer}

    def format_line(self) -> str:
        more = f", step {self.job.step}, {self.job.activity}" if self.status == "running" and self.job.step else ""
        hint = "" if self.is_open else "; check_task gives its answer"
        return f"- {self.title}: {self.status}{more}{hint}"


async def run_child(run: Run, job: ChildJob, make: Callable[[], Any]) -> Result:
    """Run a child agent below a run; an interrupted child resumes its thread."""
    async with _open_thread(run, job) as thread:
        last_end = next((entry.data for entry in reversed(thread.entries) if entry.kind == "run_end"), None)
        if thread.open_run is None and last_end is not None and last_end["outcome"] in ("completed", "stopped"):
            # The child finished before a crash of its parent.
            text = next((message.text for message in reversed(thread.messages) if message.role == "assistant"), "")
            return Result(text, last_end["reason"], last_end["outcome"], messages=thread.messages, thread=thread)
        has_started = bool(thread.messages) and (thread.open_run is not None or last_end is None)
        input = "" if has_started else "\n\n".join((job.prompt, *job.pending_messages))
        try:
            stream = make().stream(input, thread=thread, parent=run, without=run.progress.resumption.waived_guards)
        except ConfigError as error:
            raise ToolError(f"{job.agent} cannot be started: {error}") from None
        for message in job.pending_messages if has_started else ():
            stream.run.send(message)
        result = await _follow_child(run, job, stream)
        if result.outcome == "interrupted" and thread.writer is None:
            run.thread.append("event", {"run": run.id, "name": SNAPSHOT, "data": thread.to_json()})
        return result


async def _follow_child(run: Run, job: ChildJob, stream: Any) -> Result:
    """Follow a child to its end, and emit its start and end as events of the parent run."""
    job.run = child = stream.run
    ids = (child.id, job.agent, run.id, job.call, child.thread.id)
    _emit_event(run, SubagentStart(*ids, job.prompt, child.resumed, job.description))
    result = Result(outcome="cancelled", reason="user requested")
    try:
        async with closing_stream(aiter(stream)) as events:
            async for event in events:
                job.track_event(event, child.id)
    finally:
        result = child.progress.result or result
        outcome = (result.outcome, explain_outcome(result), result.text, child.usage.to_json())
        _emit_event(run, SubagentEnd(child.id, job.agent, run.id, job.call, *outcome))
        clear_tracebacks(result.error, *result.crashes)
    return result


def _emit_event(run: Run, event: Event) -> None:
    if run.emitter is not None and not run.progress.over:
        run.emitter(event)


def explain_outcome(result: Result) -> str:
    """Return the error of a result as text, or its reason."""
    return result.reason if result.error is None else str(result.error) or type(result.error).__name__


def find_structured_answer(result: Result) -> Any:
    """Return the answer of a completed child with an `output_type` as JSON data, or None. Its thread has the data."""
    outputs = thaw(result.thread.values.get("outputs")) if result.outcome == "completed" else None
    return outputs["answer"] if outputs is not None and [*outputs] == ["answer"] else outputs


# -- building a child -------------------------------------------------------------------------------------------------


def build_child(run: Run, subagent: Subagent, model: Any, *, spare: Container[str]) -> Any:
    """Return the agent of a definition, with the tools it inherits from its parent, except for `spare`.

    A tool of a capability brings the hooks of that capability. Guards and inherited hooks apply in any case.
    """
    taken = {part.name for part in subagent.hooks}
    names = {item.name for item in (*subagent.own, *list_capability_tools(subagent))}
    given = [item for item in run.tools.values() if subagent.can_use(item) and item.kind != OWN_ANSWER]
    given = [item for item in given if item.name not in names and item.name not in spare]
    # The child's own capability of a name replaces the inherited one.
    given = [item for item in given if (owner := _find_owner(item)) is None or owner.name not in taken]
    owners = {id(owner): owner for item in given if (owner := _find_owner(item)) is not None}
    hooks = [hook for owner in owners.values() for hook in owner.hooks()]
    return run.make(
        model,
        name=subagent.name,
        system=subagent.prompt,
        tools=[*given, *subagent.own],
        hooks=[*(hook for hook in hooks if hook.position != "guard" and not hook.inherit), *subagent.hooks],
        settings=subagent.settings,
        output_type=subagent.output_type,
    )


def _find_owner(item: Tool) -> Capability | None:
    owner = getattr(item.fn, "__self__", None)
    return owner if isinstance(owner, Capability) else None


def list_capability_tools(subagent: Subagent) -> list[Tool]:
    """Return the tools of a subagent's own capabilities."""
    return [item for part in subagent.hooks if isinstance(part, Capability) for item in part.tools()]


# -- the child's thread -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def _open_thread(run: Run, job: ChildJob) -> AsyncIterator[Thread]:
    """Yield the thread of a job: leased from the parent's store, or else the parent's snapshot of it."""
    keeper = run.thread.writer
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
    """Return True if a job of an interrupted run can be resumed."""
    return isinstance(run.thread.writer, HeldThread) or find_paused_thread(run.thread, job.thread) is not None


def find_paused_thread(above: Thread, id: str) -> Thread | None:
    """Return the thread of a paused child from the latest snapshot in its parent's thread, or None."""
    for entry in reversed(above.effective_entries()):
        if entry.kind == "event" and entry.data["name"] == SNAPSHOT and entry.data["data"]["id"] == id:
            return Thread.from_json(thaw(entry.data["data"]))
    return None
