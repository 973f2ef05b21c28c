"""Request bodies of runs and threads, and their conversion to and from messages, threads and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter
from starlette.responses import Response

from wick._internal.frozen import thaw
from wick._internal.worker_threads import run_in_thread
from wick.api.conversions import make_thread_info
from wick.api.types import ErrorDetail, RunState, RunStatus, ThreadContent, ThreadInfo, ThreadMessage, TokenUsage
from wick.constants import MEDIA_CHARS
from wick.messages import Message
from wick.protocols import Summary
from wick.server.errors import ApiError
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
    """A picture, a recording or a file: its address, or its bytes in base64."""

    type: Literal["image", "audio", "file"]
    url: str = Field("", max_length=MEDIA_CHARS)
    data: str = Field("", max_length=MEDIA_CHARS)
    media_type: str = Field("", max_length=200)
    name: str = Field("", max_length=500)


PartIn = Annotated[TextIn | MediaIn, Field(discriminator="type")]


class MessageIn(StrictModel):
    """A message of a client. Messages of assistants and tools come from the server only."""

    role: Literal["user", "system"] = "user"
    content: (
        Annotated[str, Field(min_length=1, max_length=MESSAGE_CHARS)]
        | Annotated[list[PartIn], Field(min_length=1, max_length=100)]
    )


class MessageRequest(StrictModel):
    """Messages for a thread."""

    messages: list[MessageIn] = Field(min_length=1, max_length=100)


class RunRequest(MessageRequest):
    """Messages for an agent, in a new thread or in `thread_id`, which is created if it does not exist."""

    thread_id: str | None = Field(None, min_length=1, max_length=200, pattern=r"^[A-Za-z0-9_.:-]+$")
    recipe: str = Field("", max_length=100, pattern=r"^[\w.-]*$")
    model: str = Field("", max_length=200)


def parse_messages(words: MessageRequest, *, systems: bool) -> list[Message]:
    """Return the messages of a request; raise a 403 for a system message unless the settings allow it."""
    if not systems and any(message.role == "system" for message in words.messages):
        message = "system messages are not taken here; the operator may allow them with allow_system_messages"
        raise ApiError(403, "forbidden", message)
    messages = []
    for given in words.messages:
        if isinstance(given.content, str):
            messages.append(Message(given.role, given.content))
        else:
            parts = [part.model_dump(exclude_defaults=True) | {"type": part.type} for part in given.content]
            messages.append(Message.from_json({"role": given.role, "content": parts}))
    return messages


_MESSAGES = TypeAdapter(list[ThreadMessage], config=ConfigDict(defer_build=True))
_NO_LISTS = dict.fromkeys(("tool_calls", "reasoning", "branches"), ())  # pydantic makes a deep copy of each default
MESSAGES_PER_BATCH = 100
SHORT_CHARS = 50_000  # of a thread that is serialized on the event loop


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
    """Return a thread as a JSON response; a long one is serialized in a worker thread."""

    def encode() -> bytes:
        history = ThreadHistory.from_thread(thread)
        rest = kind.model_validate({**about, **_thread_values(thread, history), "messages": []})
        pieces = []
        for at in range(0, len(thread.messages), MESSAGES_PER_BATCH):  # validating a whole list would hold the GIL
            batch = thread.messages[at : at + MESSAGES_PER_BATCH]
            rows = [{**_NO_LISTS, **history.to_json(message)} for message in batch]
            pieces.append(_MESSAGES.dump_json(_MESSAGES.validate_python(rows))[1:-1])
        return b'{"messages":[%s],%s' % (b",".join(pieces), rest.model_dump_json(exclude={"messages"})[1:].encode())

    is_short = len(thread.messages) <= MESSAGES_PER_BATCH and sum(len(m.text) for m in thread.messages) <= SHORT_CHARS
    body = encode() if is_short else await run_in_thread(encode, "a thread")
    return Response(body, media_type="application/json")


# -- runs and threads -------------------------------------------------------------------------------------------------


def make_run_state(info: RunInfo, state: RunStatus) -> RunState:
    return RunState(
        id=info.id,
        thread_id=info.thread,
        agent_id=info.agent,
        state=state,
        outcome=info.outcome,
        reason=info.reason,
        started=info.started,
        ended=info.ended or None,
        usage=TokenUsage.model_validate(info.usage or {}),
        cost=info.cost,
        error=None if info.error is None else ErrorDetail.model_validate(dict(info.error)),
    )


# Metadata that clients cannot set: `agent_file` names code.
OWN_META = ("agent", "parent", "forked_from", "forked_at", "agent_name", "agent_file")


def list_root_threads(heads: Sequence[Summary]) -> list[ThreadInfo]:
    """Return the threads of a list, without those of subagents."""
    return [make_thread_info(head) for head in heads if "parent" not in head.meta]
