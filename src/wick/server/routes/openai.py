"""OpenAI-compatible chat completions: `model` is the id of an agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack
from time import time
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from fastapi.exceptions import RequestValidationError

from wick._internal.fast_json import encode_json
from wick.errors import WickError
from wick.events import Done, Event, Failed
from wick.server.dependencies import Caller, Wick
from wick.server.errors import ApiError, as_api_error, validation_message
from wick.server.http.json_body import JsonRoute
from wick.server.openai_schemas import (
    ChatChoice,
    ChatCompletion,
    ChatModel,
    ChatModels,
    ChatReply,
    ChatRequest,
    CompletionText,
    OpenAIError,
    chat_usage,
    create_choice,
    create_chunk,
    failure_error,
    finish_reason,
    parse_conversation,
    request_error,
)
from wick.server.runs import QueuedRun
from wick.server.runs.frames import Frame
from wick.server.runs.sse import EventStream


class OpenAIRoute(JsonRoute):
    """A route whose errors have the shape that OpenAI's clients parse."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                raise request_error(validation_message(error.errors()), code="invalid") from None
            except (ApiError, WickError) as error:
                known = as_api_error(error)
                if known is None or isinstance(known, OpenAIError):
                    raise
                raise OpenAIError(known.status, known.code, known.message, known.headers) from error

        return answer


router = APIRouter(prefix="/v1", tags=["openai"], route_class=OpenAIRoute)


@router.get("/models")
async def models(caller: Caller, wick: Wick) -> ChatModels:
    """List your agents as models."""
    return ChatModels(data=[ChatModel(id=id) for id in await wick.registry.list_ids(caller)])


@router.get("/models/{id}")
async def model(id: str, caller: Caller, wick: Wick) -> ChatModel:
    """Return one of your agents as a model."""
    return ChatModel(id=(await wick.registry.get_template(caller, id)).id)


_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The completion; with `stream`, in chunks.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


@router.post("/chat/completions", response_model=ChatCompletion, responses=_RESPONSES)
async def complete(
    asked: ChatRequest,
    caller: Caller,
    wick: Wick,
    key: Annotated[str, Header(alias="Idempotency-Key", max_length=200)] = "",
) -> Response | ChatCompletion:
    """Run an agent in a new thread. Assistant messages of the request are taken from the client without a check."""
    messages = parse_conversation(asked, systems=wick.settings.allow_system_messages)
    if not asked.stream:
        turn = await wick.runs.start(caller, asked.model, [*messages], key=key)
        spoken = CompletionText(turn.run_id)
        text = "".join([
            spoken.add_event(frame.event)
            async for batch in turn.frames()
            for frame in batch
            if frame.position is not None or frame.terminal  # deltas are repeated in the complete message
        ])  # fmt: skip
        end = _require_end(spoken, turn)
        return ChatCompletion(
            id=_completion_id(turn),
            created=int(time()),
            model=asked.model,
            choices=[ChatChoice(message=ChatReply(content=text), finish_reason=finish_reason(end.reason))],
            usage=chat_usage(end.usage),
        )
    with ExitStack() as holding:
        holding.enter_context(wick.limits.hold("streams", caller.id))  # before the run starts: it could not be streamed
        turn = await wick.runs.start(caller, asked.model, [*messages], key=key)
        return EventStream(lambda: _stream_chunks(asked, turn), holding=holding.pop_all())


async def _stream_chunks(asked: ChatRequest, turn: QueuedRun) -> AsyncIterator[list[Frame]]:
    """Yield the chunks of a completion in OpenAI's format, and empty batches as heartbeats."""
    spoken, head = CompletionText(turn.run_id), (_completion_id(turn), int(time()), asked.model)
    yield [_data_frame(create_chunk(*head, [create_choice({"role": "assistant", "content": ""})], None))]
    async for batch in turn.frames():
        text = "".join([spoken.add_event(frame.event) for frame in batch])
        if text or not batch:
            yield [_data_frame(create_chunk(*head, [create_choice({"content": text})], None))] if text else []
    try:
        end = _require_end(spoken, turn)
    except OpenAIError as error:
        yield [_data_frame(error.body())]
        return
    last = [create_chunk(*head, [create_choice({}, finish_reason(end.reason))], None)]
    if asked.stream_options is not None and asked.stream_options.include_usage:
        last.append(create_chunk(*head, [], chat_usage(end.usage)))
    yield [*map(_data_frame, last), Frame(Event(), b"data: [DONE]\n\n", terminal=True)]


def _require_end(spoken: CompletionText, turn: QueuedRun) -> Done:
    """Return the end of the run; raise an OpenAIError if it failed or is not finished."""
    if spoken.end is None:
        why = turn.unfinished_error()
        raise OpenAIError(why.status, why.code, why.message, why.headers)
    if isinstance(spoken.end, Failed):
        raise failure_error(spoken.end)
    return spoken.end


def _completion_id(turn: QueuedRun) -> str:
    return f"chatcmpl-{turn.run_id}"


def _data_frame(data: dict[str, Any]) -> Frame:
    """Return a frame without an event of wick."""
    # An unpaired surrogate is possible; the other half follows in the next chunk.
    return Frame(Event(), b"data: %s\n\n" % encode_json(data))
