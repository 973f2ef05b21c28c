"""Runs of agents: with the complete result, or as an event stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Annotated

from fastapi import APIRouter, FastAPI, Header
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from wick.api.types import InvokeResult
from wick.server.auth.access_table import RouteAccess
from wick.server.auth.identity import User
from wick.server.auth.middleware import request_path
from wick.server.dependencies import Caller, Wick
from wick.server.errors import ApiError, handle_error, handle_http
from wick.server.http.json_body import JsonRequest, JsonRoute, replay_body
from wick.server.runs import QueuedRun
from wick.server.runs.sse import EventStream
from wick.server.schemas import RunRequest, parse_messages, thread_response
from wick.server.stream_responses import STREAM
from wick.stores.held_thread import load

KEY_HEADER, KEY_CHARS = "Idempotency-Key", 200


router = APIRouter(prefix="/agents", tags=["runs"], route_class=JsonRoute)

IdempotencyKey = Annotated[
    str,
    Header(
        alias=KEY_HEADER,
        max_length=KEY_CHARS,
        description="a repeated request with the same key returns the same run; another request with this key is a 409",
    ),
]


@router.post("/{id}/invoke", response_model=InvokeResult)
async def invoke(id: str, body: RunRequest, caller: Caller, wick: Wick, key: IdempotencyKey = "") -> Response:
    """Run an agent, and return the complete result. The run continues if the client disconnects."""
    turn = await _start_run(id, body, caller, wick, key)
    info = await turn.wait_end()
    if info.error is not None:
        headers = {"X-Run-Id": turn.run_id, "X-Thread-Id": turn.thread_id}
        status = 400 if info.error["code"] == "config_error" else 502  # an invalid configuration, or a failed run
        raise ApiError(status, info.error["code"], info.error["message"], headers)
    thread = turn.thread or await load(wick.store, caller.id, turn.thread_id)
    outcome = {"outcome": info.outcome, "reason": info.reason, "usage": info.usage or {}, "cost": info.cost}
    response = next((message.text for message in reversed(thread.messages) if message.role == "assistant"), "")
    about = {"thread_id": turn.thread_id, "run_id": turn.run_id, "response": response}
    return await thread_response(InvokeResult, about | outcome, thread)


@router.post("/{id}/stream", status_code=200, response_class=EventStream, responses=STREAM)
async def stream(id: str, body: RunRequest, caller: Caller, wick: Wick, key: IdempotencyKey = "") -> EventStream:
    """Run an agent, and stream its events up to `done` or `error`.

    The headers `X-Run-Id` and `X-Thread-Id` identify the run. After a disconnect, `/runs/{id}/events` resumes it.
    """
    with ExitStack() as holding:
        holding.enter_context(wick.limits.hold("streams", caller.id))  # before the run starts: it could not be streamed
        turn = await _start_run(id, body, caller, wick, key)
        headers = {"X-Run-Id": turn.run_id, "X-Thread-Id": turn.thread_id}
        return EventStream(turn.frames, headers, holding.pop_all())


async def _start_run(id: str, body: RunRequest, caller: Caller, wick: Wick, key: str) -> QueuedRun:
    words = parse_messages(body, systems=wick.settings.allow_system_messages)
    more = {"recipe": body.recipe, "model": body.model}
    return await wick.runs.start(caller, id, words, body.thread_id or "", key=key, **more)


# -- without FastAPI --------------------------------------------------------------------------------------------------

_ENDPOINTS: dict[str, Callable[..., Awaitable[Response]]] = {
    "/agents/{id}/invoke": invoke,
    "/agents/{id}/stream": stream,
}


class DirectRuns:
    """Calls the endpoints of runs for usual requests. All others go to FastAPI, which validates and reports them.

    The result is the same. FastAPI's layers take a seventh of a run's CPU, and hold memory while it is streamed.
    """

    def __init__(self, api: FastAPI) -> None:
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route, caller = scope.get("wick.route_access"), scope.get("wick.user")
        if not isinstance(route, RouteAccess) or route.path not in _ENDPOINTS or not isinstance(caller, User):
            await self._api(scope, receive, send)
            return
        scope["app"] = self._api
        request = JsonRequest(scope, receive)
        response: Response
        try:
            given = await _read_run_request(request)
            if given is None:
                has_body = hasattr(request, "_body")
                again = replay_body(await request.body(), request.receive) if has_body else request.receive
                await self._api(scope, again, send)
                return
            found, (body, key) = route.pattern.match(request_path(scope)), given
            assert found is not None  # as the route was found by it
            response = await _ENDPOINTS[route.path](found["id"], body, caller, self._api.state.service, key)
        except HTTPException as error:
            response = await handle_http(request, error)
        except Exception as error:
            response = await handle_error(request, error)
        await response(scope, receive, send)


async def _read_run_request(request: JsonRequest) -> tuple[RunRequest, str] | None:
    """Return the body and the idempotency key of a usual request, or None."""
    key = request.headers.get(KEY_HEADER, "")
    if request.headers.get("content-type") != "application/json" or len(key) > KEY_CHARS:
        return None
    try:
        return RunRequest.model_validate(await request.json()), key
    except (ValueError, ClientDisconnect):
        return None
