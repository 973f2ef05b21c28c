"""The events of a run: typed objects, emitted as they happen.

    on_chat_model_start → on_chat_model_stream … → on_chat_model_end        one model call
    on_tool_start → on_tool_stream … → on_tool_end                         one tool use
    on_approval_request → on_approval_response                             a question to the user
    on_subagent_start → the child's own events → on_subagent_end           a subagent
    on_task_start → on_task_update … → on_task_end                         a subagent in the background
    on_state                                                               todos, files and other values
    on_user_message                                                        a message sent during the run
    resync                                                                 deltas were dropped; complete events follow
    done | error                                                           exactly one of them, as the last event

Deltas are provisional: `on_chat_model_restart` retracts the streamed text of a message and has its
replacement. Events with content are emitted after the content was logged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from wick._internal.familiar_words import EVENT_ATTRIBUTES, explain_attributes, refuse_item


@explain_attributes(EVENT_ATTRIBUTES)
@dataclass(slots=True)
class Event:
    """Base class of events. `name` is the name of the tool, model or agent."""

    event: ClassVar[str] = ""
    terminal: ClassVar[bool] = False

    run_id: str = ""  # the run; a child has its own
    name: str = ""  # the tool, the model or the agent

    def data(self) -> dict[str, Any]:
        """Return the payload of the event as JSON data."""
        return {}

    def to_json(self) -> dict[str, Any]:
        """Return the event in its wire format, without empty fields."""
        fields = {"event": self.event, "name": self.name, "run_id": self.run_id, "data": self.data()}
        return {key: value for key, value in fields.items() if value}

    if not TYPE_CHECKING:  # type checkers report these mistakes themselves
        __getitem__ = refuse_item("event.event, event.name or event.to_json()")


Emit = Callable[[Event], None]


@dataclass(slots=True)
class ChatModelStart(Event):
    """A model call starts."""

    event = "on_chat_model_start"

    step: int = 0  # the number of the step

    def data(self) -> dict[str, Any]:
        return {"step": self.step}


@dataclass(slots=True)
class ChatModelStream(Event):
    """A delta of the reply. `kind` is text, reasoning or tool_args."""

    event = "on_chat_model_stream"

    delta: str = ""  # the next piece
    kind: str = "text"  # text, reasoning or tool_args
    index: int | None = None  # the tool call, for tool_args

    def data(self) -> dict[str, Any]:
        index = {} if self.index is None else {"index": self.index}
        return {"delta": self.delta, "kind": self.kind, **index}


@dataclass(slots=True)
class ChatModelRestart(Event):
    """Retracts the deltas of this message. `content` replaces them."""

    event = "on_chat_model_restart"

    content: str = ""  # the text that replaces the streamed one

    def data(self) -> dict[str, Any]:
        return {"content": self.content}


@dataclass(slots=True)
class ChatModelEnd(Event):
    """The reply is complete and logged. `cut` marks the beginning of a reply whose run was cancelled."""

    event = "on_chat_model_end"

    message: dict[str, Any] = field(default_factory=dict)  # the whole reply, as logged
    usage: dict[str, int] = field(default_factory=dict)  # tokens; empty if the model reports none
    cut: bool = False  # the run was cancelled before the end of the reply

    def data(self) -> dict[str, Any]:
        return {"message": self.message, "usage": self.usage} | ({"cut": True} if self.cut else {})


@dataclass(slots=True)
class ToolStart(Event):
    """A tool use starts."""

    event = "on_tool_start"

    call_id: str = ""  # the tool call
    args: dict[str, Any] = field(default_factory=dict)  # the arguments from the model, before hooks run
    program: str = ""  # the call of the program that makes this one; empty if the model makes it itself
    lines: tuple[int, ...] = ()  # its first and last line in the program

    def data(self) -> dict[str, Any]:
        nested = {"program": self.program, "lines": [*self.lines]} if self.program else {}
        return {"call_id": self.call_id, "args": self.args, **nested}


@dataclass(slots=True)
class ToolStream(Event):
    """A piece of a tool's output while it runs."""

    event = "on_tool_stream"

    call_id: str = ""  # the tool call
    delta: str = ""  # the next piece of output

    def data(self) -> dict[str, Any]:
        return {"call_id": self.call_id, "delta": self.delta}


@dataclass(slots=True)
class ToolEnd(Event):
    """A tool's result as logged, and the verdicts of its hooks."""

    event = "on_tool_end"

    call_id: str = ""  # the tool call
    output: str = ""  # the result, as logged
    error: str = ""  # the error, if it failed or was blocked
    why: list[dict[str, Any]] = field(default_factory=list)  # the decision record of its hooks

    def data(self) -> dict[str, Any]:
        data = {"call_id": self.call_id, "output": self.output, "error": self.error, "why": self.why}
        return {key: value for key, value in data.items() if value or key in ("call_id", "output")}


@dataclass(slots=True)
class StateChange(Event):
    """A value of the thread was set: todos, files, or a value of a capability."""

    event = "on_state"

    values: dict[str, Any] = field(default_factory=dict)  # the changed values by name

    def data(self) -> dict[str, Any]:
        return self.values


@dataclass(slots=True)
class ApprovalRequest(Event):
    """A question to the user about one sealed operation."""

    event = "on_approval_request"

    id: str = ""  # the id of the question
    question: str = ""  # the text of the question
    about: dict[str, Any] = field(default_factory=dict)  # its subject: `tool`, `args` and `call_id` of a tool use

    def data(self) -> dict[str, Any]:
        return {"id": self.id, "question": self.question, **self.about}


@dataclass(slots=True)
class ApprovalResponse(Event):
    """The user's answer to a question."""

    event = "on_approval_response"

    id: str = ""  # the id of the question
    allowed: bool = False  # the user's answer
    reason: str = ""  # why not
    args: dict[str, Any] | None = None  # the arguments to run the tool with instead; None if they are unchanged

    def data(self) -> dict[str, Any]:
        changed = {} if self.args is None else {"args": self.args}
        return {"id": self.id, "allowed": self.allowed, "reason": self.reason, **changed}


@dataclass(slots=True)
class SubagentStart(Event):
    """A subagent starts. `run_id` is its own, as in all of its events; `name` is its name."""

    event = "on_subagent_start"

    parent_id: str = ""  # the run of the parent
    call_id: str = ""  # the call of the parent that started it
    thread_id: str = ""  # the thread of the subagent
    prompt: str = ""  # its task
    resumed: bool = False  # it was started before
    description: str = ""  # a few words for the user, written by the model

    def data(self) -> dict[str, Any]:
        ids = {"parent_id": self.parent_id, "call_id": self.call_id, "thread_id": self.thread_id}
        return {**ids, "prompt": self.prompt, "resumed": self.resumed, "description": self.description}


@dataclass(slots=True)
class SubagentEnd(Event):
    """The outcome of a subagent."""

    event = "on_subagent_end"

    parent_id: str = ""  # the run of the parent
    call_id: str = ""  # the call of the parent that started it
    outcome: str = "completed"  # as in the result of a run
    reason: str = ""  # why it ended
    text: str = ""  # its answer
    usage: dict[str, int] = field(default_factory=dict)  # its tokens

    def data(self) -> dict[str, Any]:
        result = {"outcome": self.outcome, "reason": self.reason, "text": self.text, "usage": self.usage}
        return {"parent_id": self.parent_id, "call_id": self.call_id, **result}


@dataclass(slots=True)
class TaskStart(Event):
    """A background task starts. `name` is the name of its agent."""

    event = "on_task_start"

    task_id: str = ""  # the id of the task
    call_id: str = ""  # the call that started it
    prompt: str = ""  # its task
    description: str = ""  # a few words for the user

    def data(self) -> dict[str, Any]:
        task = {"prompt": self.prompt, "description": self.description}
        return {"task_id": self.task_id, "call_id": self.call_id, **task}


@dataclass(slots=True)
class TaskUpdate(Event):
    """A background task got a message, or changed its status."""

    event = "on_task_update"

    task_id: str = ""  # the id of the task
    status: str = ""  # the new status
    message: str = ""  # the message sent to it

    def data(self) -> dict[str, Any]:
        return {"task_id": self.task_id, "status": self.status, "message": self.message}


@dataclass(slots=True)
class TaskEnd(Event):
    """A background task has ended. `status` is done, stopped, failed or cancelled."""

    event = "on_task_end"

    task_id: str = ""  # the id of the task
    status: str = ""  # done, stopped, failed or cancelled
    text: str = ""  # its answer
    reason: str = ""  # why it ended

    def data(self) -> dict[str, Any]:
        return {"task_id": self.task_id, "status": self.status, "text": self.text, "reason": self.reason}


@dataclass(slots=True)
class UserMessage(Event):
    """A message sent during the run was added to the thread. Only server streams have it, from the log."""

    event = "on_user_message"

    message: dict[str, Any] = field(default_factory=dict)  # the message, now part of the thread

    def data(self) -> dict[str, Any]:
        return {"message": self.message}


@dataclass(slots=True)
class Resync(Event):
    """A slow client of a server stream missed deltas. Complete events from the log follow."""

    event = "resync"


@dataclass(slots=True)
class Done(Event):
    """The run is over: completed, stopped, cancelled, or interrupted until it is resumed."""

    event = "done"
    terminal = True

    thread_id: str = ""  # the thread
    outcome: str = "completed"  # completed, stopped, cancelled or interrupted
    reason: str = ""  # why the run ended
    text: str = ""  # the last text of the model
    usage: dict[str, int] = field(default_factory=dict)  # tokens, including children

    def data(self) -> dict[str, Any]:
        return {"outcome": self.outcome, "reason": self.reason, "text": self.text, "usage": self.usage}

    def to_json(self) -> dict[str, Any]:
        return {**Event.to_json(self), "thread_id": self.thread_id}


@dataclass(slots=True)
class Failed(Event):
    """The run has failed."""

    event = "error"
    terminal = True

    thread_id: str = ""  # the thread
    code: str = "error"  # the error code, such as `model_error`
    message: str = ""  # a sentence that describes the error

    def data(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message}}

    def to_json(self) -> dict[str, Any]:
        return {**Event.to_json(self), "thread_id": self.thread_id}
