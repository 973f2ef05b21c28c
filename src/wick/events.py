"""What a run announces, as it happens: one typed object an event, in one queue, for every reader.

    on_chat_model_start → on_chat_model_stream … → on_chat_model_end        one question to the model
    on_tool_start → on_tool_stream … → on_tool_end                         one tool being used
    on_approval_request → on_approval_response                             a question to the user
    on_subagent_start → the child's own events → on_subagent_end           an agent that works for this one
    on_task_start → on_task_update … → on_task_end                         one that does so in the background
    on_state                                                               todos, files and other values
    on_user_message                                                        what was said while the run went on
    resync                                                                 pieces were left out; what follows is whole
    done | error                                                           exactly one of them, and the last

Deltas are provisional: `on_chat_model_restart` means that what was streamed of this message does not
count, and what it is instead. Events that carry content come after it was logged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(slots=True)
class Event:
    """Something that happened in a run. `name` is the tool's or the model's."""

    event: ClassVar[str] = ""
    terminal: ClassVar[bool] = False

    run_id: str = ""
    name: str = ""

    def data(self) -> dict[str, Any]:
        """What the event carries, as JSON data."""
        return {}

    def to_json(self) -> dict[str, Any]:
        """The event as it goes over the wire; what is empty is left out."""
        fields = {"event": self.event, "name": self.name, "run_id": self.run_id, "data": self.data()}
        return {key: value for key, value in fields.items() if value}


Emit = Callable[[Event], None]


@dataclass(slots=True)
class ChatModelStart(Event):
    """The model is being asked."""

    event = "on_chat_model_start"

    step: int = 0

    def data(self) -> dict[str, Any]:
        return {"step": self.step}


@dataclass(slots=True)
class ChatModelStream(Event):
    """A piece of the reply: `kind` is text, reasoning or tool_args."""

    event = "on_chat_model_stream"

    delta: str = ""
    kind: str = "text"
    index: int | None = None

    def data(self) -> dict[str, Any]:
        place = {} if self.index is None else {"index": self.index}
        return {"delta": self.delta, "kind": self.kind, **place}


@dataclass(slots=True)
class ChatModelRestart(Event):
    """What was streamed of this message does not count; `content` is what it is instead, so far."""

    event = "on_chat_model_restart"

    content: str = ""

    def data(self) -> dict[str, Any]:
        return {"content": self.content}


@dataclass(slots=True)
class ChatModelEnd(Event):
    """The reply is complete and logged."""

    event = "on_chat_model_end"

    message: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, int] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        return {"message": self.message, "usage": self.usage}


@dataclass(slots=True)
class ToolStart(Event):
    """A tool is about to be used."""

    event = "on_tool_start"

    call_id: str = ""
    args: dict[str, Any] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        return {"call_id": self.call_id, "args": self.args}


@dataclass(slots=True)
class ToolStream(Event):
    """A piece of a tool's output, while it runs."""

    event = "on_tool_stream"

    call_id: str = ""
    delta: str = ""

    def data(self) -> dict[str, Any]:
        return {"call_id": self.call_id, "delta": self.delta}


@dataclass(slots=True)
class ToolEnd(Event):
    """A tool's result, as it was logged, and why it came to that."""

    event = "on_tool_end"

    call_id: str = ""
    output: str = ""
    error: str = ""
    why: list[dict[str, Any]] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        data = {"call_id": self.call_id, "output": self.output, "error": self.error, "why": self.why}
        return {key: value for key, value in data.items() if value or key in ("call_id", "output")}


@dataclass(slots=True)
class StateChange(Event):
    """A value of the thread was set: todos, files, or what a capability keeps."""

    event = "on_state"

    values: dict[str, Any] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        return self.values


@dataclass(slots=True)
class ApprovalRequest(Event):
    """The user is asked about exactly one sealed operation."""

    event = "on_approval_request"

    id: str = ""
    question: str = ""
    about: dict[str, Any] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        return {"id": self.id, "question": self.question, **self.about}


@dataclass(slots=True)
class ApprovalResponse(Event):
    """What the user said."""

    event = "on_approval_response"

    id: str = ""
    allowed: bool = False
    reason: str = ""

    def data(self) -> dict[str, Any]:
        return {"id": self.id, "allowed": self.allowed, "reason": self.reason}


@dataclass(slots=True)
class SubagentStart(Event):
    """An agent begins to work for another. `run_id` is its own, as in all of its events; `name` is its name."""

    event = "on_subagent_start"

    parent_id: str = ""
    call_id: str = ""
    thread_id: str = ""
    prompt: str = ""
    resumed: bool = False
    description: str = ""  # a few words for the user, by the model that started it

    def data(self) -> dict[str, Any]:
        whose = {"parent_id": self.parent_id, "call_id": self.call_id, "thread_id": self.thread_id}
        return {**whose, "prompt": self.prompt, "resumed": self.resumed, "description": self.description}


@dataclass(slots=True)
class SubagentEnd(Event):
    """What the work of such an agent came to."""

    event = "on_subagent_end"

    parent_id: str = ""
    call_id: str = ""
    outcome: str = "completed"
    reason: str = ""
    text: str = ""
    usage: dict[str, int] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        came_to = {"outcome": self.outcome, "reason": self.reason, "text": self.text, "usage": self.usage}
        return {"parent_id": self.parent_id, "call_id": self.call_id, **came_to}


@dataclass(slots=True)
class TaskStart(Event):
    """An agent begins to work in the background of a run. `name` is its name."""

    event = "on_task_start"

    task_id: str = ""
    call_id: str = ""
    prompt: str = ""
    description: str = ""

    def data(self) -> dict[str, Any]:
        told = {"prompt": self.prompt, "description": self.description}
        return {"task_id": self.task_id, "call_id": self.call_id, **told}


@dataclass(slots=True)
class TaskUpdate(Event):
    """A task in the background was told something, or is in another state than before."""

    event = "on_task_update"

    task_id: str = ""
    status: str = ""
    message: str = ""

    def data(self) -> dict[str, Any]:
        return {"task_id": self.task_id, "status": self.status, "message": self.message}


@dataclass(slots=True)
class TaskEnd(Event):
    """A task in the background has ended; `status` is done, stopped, failed or cancelled."""

    event = "on_task_end"

    task_id: str = ""
    status: str = ""
    text: str = ""
    reason: str = ""

    def data(self) -> dict[str, Any]:
        return {"task_id": self.task_id, "status": self.status, "text": self.text, "reason": self.reason}


@dataclass(slots=True)
class UserMessage(Event):
    """Something was said while the run went on, and has joined it. Streams of a server have it, from its log."""

    event = "on_user_message"

    message: dict[str, Any] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        return {"message": self.message}


@dataclass(slots=True)
class Resync(Event):
    """A reader of a server's stream was too slow: pieces were left out, and what is durable follows from the log."""

    event = "resync"


@dataclass(slots=True)
class Done(Event):
    """The run is over. It completed, was stopped, was cancelled, or waits to be taken up again."""

    event = "done"
    terminal = True

    thread_id: str = ""
    outcome: str = "completed"
    reason: str = ""
    text: str = ""
    usage: dict[str, int] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        return {"outcome": self.outcome, "reason": self.reason, "text": self.text, "usage": self.usage}

    def to_json(self) -> dict[str, Any]:
        return {**Event.to_json(self), "thread_id": self.thread_id}


@dataclass(slots=True)
class Failed(Event):
    """The run is over: it failed."""

    event = "error"
    terminal = True

    thread_id: str = ""
    code: str = "error"
    message: str = ""

    def data(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message}}

    def to_json(self) -> dict[str, Any]:
        return {**Event.to_json(self), "thread_id": self.thread_id}
