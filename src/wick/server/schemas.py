"""Request and response schemas of runs and threads that several routes share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter
from starlette.responses import Response

from wick._internal.frozen import thaw
from wick._internal.worker_threads import run_in_thread
from wick.constants import MEDIA_CHARS
from wick.messages import Message
from wick.protocols import Summary
from wick.server.errors import ApiError
from wick.server.runs import State
from wick.server.runs.history import ThreadHistory
from wick.server.runs.record import RunInfo
from wick.server.strict_models import StrictModel
from wick.threads import Thread

MESSAGE_CHARS = 2_000_000


# -- messages ---------------------------------------------------------------------------------------------------------


class TextIn(StrictModel):
    """A piece of text."""

    type: Literal["text"]
    text: str = Field(max_length=MESSAGE_CHARS)


class MediaIn(StrictModel):
    """A picture or a file: its address, or its bytes in base64."""

    type: Literal["image", "file"]
    url: str = Field("", max_length=MEDIA_CHARS)
    data: str = Field("", max_length=MEDIA_CHARS)
    media_type: str = Field("", max_length=200)
    name: str = Field("", max_length=500)


PartIn = Annotated[TextIn | MediaIn, Field(discriminator="type")]


class MessageIn(StrictModel):
    """What somebody says. The words of an assistant or a tool come from the server, never from a client."""

    role: Literal["user", "system"] = "user"
    content: (
        Annotated[str, Field(min_length=1, max_length=MESSAGE_CHARS)]
        | Annotated[list[PartIn], Field(min_length=1, max_length=100)]
    )


class Words(StrictModel):
    """What is said to a thread."""

    messages: list[MessageIn] = Field(min_length=1, max_length=100)


class Asked(Words):
    """What is said to an agent: in a new thread, or in that one, which is made if there is none."""

    thread_id: str | None = Field(None, min_length=1, max_length=200, pattern=r"^[A-Za-z0-9_.:-]+$")
    recipe: str = Field("", max_length=100, pattern=r"^[\w.-]*$")


def parse_messages(words: Words, *, systems: bool) -> list[Message]:
    """Return the messages of a request; raise a 403 for a system message unless the settings allow it."""
    if not systems and any(message.role == "system" for message in words.messages):
        message = "system messages are not taken here; the operator may allow them with allow_system_messages"
        raise ApiError(403, "forbidden", message)
    return [_parse_message(message) for message in words.messages]


def _parse_message(given: MessageIn) -> Message:
    if isinstance(given.content, str):
        return Message(given.role, given.content)
    parts = [part.model_dump(exclude_defaults=True) | {"type": part.type} for part in given.content]
    return Message.from_json({"role": given.role, "content": parts})


class PartOut(BaseModel):
    """A part of a message: a text, a picture or a file."""

    type: Literal["text", "image", "file"]
    text: str | None = None
    url: str | None = None
    data: str | None = None
    media_type: str | None = None
    name: str | None = None


class CallOut(BaseModel):
    """A tool that the model asks for; `invalid` says why its arguments could not be read."""

    id: str
    name: str
    args: dict[str, JsonValue]
    invalid: str | None = None
    child: str = Field("", description="the thread of the subagent that worked for it")


class ReasoningOut(BaseModel):
    """What the model thought."""

    text: str = ""
    signature: str = ""
    provider: str = ""


class MessageOut(BaseModel):
    """A message of a conversation; `seq` is its entry in the log, `at` the time of that in seconds since 1970.

    `run` is the run that it is of, `failed` says that a tool tells of an error, `ms` how long that tool took.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[PartOut]
    tool_calls: list[CallOut] = []
    tool_call_id: str = ""
    name: str = ""
    reasoning: list[ReasoningOut] = []
    failed: bool = False
    seq: int | None = None
    at: float = 0.0
    run: str = ""
    ms: float | None = None


_MESSAGES = TypeAdapter(list[MessageOut], config=ConfigDict(defer_build=True))
MESSAGES_PER_BATCH = 100  # messages


class ErrorOut(BaseModel):
    """Why a run failed."""

    code: str
    message: str


class EndOut(BaseModel):
    """How a run ended, and the entry that says so."""

    run: str
    seq: int
    at: float
    outcome: str
    reason: str
    error: ErrorOut | None = None


class TodoOut(BaseModel):
    """One thing to do."""

    id: str
    title: str
    status: Literal["pending", "in_progress", "done"]


class FileOut(BaseModel):
    """A file that is not text, or too large to be kept with the thread."""

    content: str | None = None
    encoding: str | None = None
    size: int | None = None


class UsageOut(BaseModel):
    """Tokens."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0


class ThreadContent(BaseModel):
    """What a thread keeps beside its messages."""

    messages: list[MessageOut]
    todos: list[TodoOut] = []
    files: dict[str, str | FileOut] = {}
    tasks: dict[str, JsonValue] = Field({}, description="what tasks in the background came to, by their ids")
    ends: list[EndOut] = Field([], description="how each run ended, the earliest first")


def thread_content(thread: Thread) -> dict[str, Any]:
    """Return the fields of `ThreadContent` for a thread."""
    history = ThreadHistory.from_thread(thread)
    return {"messages": [history.to_json(message) for message in thread.messages], **_thread_values(thread, history)}


def _thread_values(thread: Thread, history: ThreadHistory) -> dict[str, Any]:
    return {
        "todos": thaw(thread.values.get("todos", [])),
        "files": thaw(thread.values.get("files", {})),
        "tasks": thaw(thread.values.get("tasks", {})),
        "ends": thaw(history.ends),
    }


async def thread_response(kind: type[ThreadContent], about: Mapping[str, Any], thread: Thread) -> Response:
    """Return a thread as a JSON response, serialized in a worker thread since it may be long."""
    return Response(
        await run_in_thread(lambda: _dump_thread(kind, about, thread), "a thread"), media_type="application/json"
    )


def _dump_thread(kind: type[ThreadContent], about: Mapping[str, Any], thread: Thread) -> bytes:
    """Return the JSON of a thread. Serialize messages in batches: validating a list holds the GIL."""
    history = ThreadHistory.from_thread(thread)
    rest = kind.model_validate({**about, **_thread_values(thread, history), "messages": []})
    pieces = []
    for at in range(0, len(thread.messages), MESSAGES_PER_BATCH):
        told = [history.to_json(message) for message in thread.messages[at : at + MESSAGES_PER_BATCH]]
        pieces.append(_MESSAGES.dump_json(_MESSAGES.validate_python(told))[1:-1])
    return b'{"messages":[%s],%s' % (b",".join(pieces), rest.model_dump_json(exclude={"messages"})[1:].encode())


# -- runs and threads -------------------------------------------------------------------------------------------------


class RunOut(BaseModel):
    """A run. `state` is queued, running, waiting for an answer, interrupted until it is taken up, or ended."""

    id: str
    thread_id: str
    agent_id: str
    state: State
    outcome: str = ""
    reason: str = ""
    started: float
    ended: float | None = None
    usage: UsageOut = UsageOut()
    cost: float | None = Field(None, description="in dollars; null if a price is not known")
    error: ErrorOut | None = None


def run_out(info: RunInfo, state: State) -> RunOut:
    return RunOut(
        id=info.id,
        thread_id=info.thread,
        agent_id=info.agent,
        state=state,
        outcome=info.outcome,
        reason=info.reason,
        started=info.started,
        ended=info.ended or None,
        usage=UsageOut.model_validate(info.usage or {}),
        cost=info.cost,
        error=None if info.error is None else ErrorOut.model_validate(dict(info.error)),
    )


class ThreadOut(BaseModel):
    """A thread, without what was said in it."""

    id: str
    title: str
    agent_id: str
    meta: dict[str, JsonValue]
    created: float
    updated: float
    last: int = Field(description="the number of its last entry")
    run_id: str = Field("", description="the run that has begun and not ended")
    running: bool = Field(False, description="somebody works on it now")
    asking: int = Field(0, description="questions that nobody has answered")
    queued: int = Field(0, description="what was said and is not heard yet")


# Metadata that clients cannot set: `agent_file` names code.
OWN_META = ("agent", "parent", "forked_from", "forked_at", "agent_name", "agent_file")


def thread_out(head: Summary) -> ThreadOut:
    return ThreadOut(
        id=head.id,
        title=head.title,
        agent_id=str(head.meta.get("agent", "")),
        meta={key: thaw(value) for key, value in head.meta.items() if key not in ("agent", "parent")},
        created=head.created,
        updated=head.updated,
        last=head.last,
        run_id=head.run,
        running=head.leased,
        asking=head.asking,
        queued=head.queued,
    )


def list_root_threads(heads: Sequence[Summary]) -> list[ThreadOut]:
    """Return the threads of a list, without those of subagents."""
    return [thread_out(head) for head in heads if "parent" not in head.meta]
