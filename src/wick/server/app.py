"""The ASGI app of the server: its routes and its middleware."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from wick._internal.worker_threads import run_in_thread
from wick.errors import WickError
from wick.server.auth.access_table import ACCESS, AccessTable, sort_routes
from wick.server.auth.middleware import AuthMiddleware
from wick.server.errors import ApiError, handle_error, handle_http, handle_invalid
from wick.server.forwarding import ForwardMiddleware
from wick.server.http.admission import AdmissionMiddleware
from wick.server.http.compression import CompressionMiddleware
from wick.server.http.middleware import BodyLimitMiddleware, ErrorMiddleware, RequestIdMiddleware
from wick.server.http.spooling import SpoolingMiddleware
from wick.server.openapi import build_document
from wick.server.routes import ROUTERS
from wick.server.routes.invoke import DirectRuns
from wick.server.service import Service
from wick.server.static_files import page_routes


def create_app(service: Service) -> ASGIApp:
    """Return the ASGI app of a service, with its middleware."""
    api = create_api(service)
    settings, access = service.settings, AccessTable(api.router.routes, (*ACCESS, *page_routes(service.static)[1]))
    app: ASGIApp = SpoolingMiddleware(ErrorMiddleware(DirectRuns(api)))
    if service.registry.locality.is_shared:
        app = ForwardMiddleware(app, service)
    app = BodyLimitMiddleware(app)
    app = CompressionMiddleware(app)
    app = AuthMiddleware(
        app, settings, service.authenticator, access, service.limits, service.metrics, service.forwards
    )
    if settings.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=[*settings.cors_origins],
            allow_methods=["*"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "If-Match", "Last-Event-ID"],
            expose_headers=["ETag", "Retry-After", "X-Request-Id", "X-Run-Id", "X-Thread-Id"],
        )
    return AdmissionMiddleware(RequestIdMiddleware(app, service.metrics), service.loop_monitor.note_request)


def create_api(service: Service) -> FastAPI:
    """Return the FastAPI app with all routes and error handlers, without authentication."""
    api = FastAPI(
        title="wick",
        summary="Agents made of hooks, over HTTP.",
        version=version("wick-agent"),
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    api.state.service = service
    routes = [route for router in ROUTERS for route in router.routes]
    routes += page_routes(service.static)[0]
    routes.append(Route("/openapi.json", _openapi_endpoint(api), include_in_schema=False))
    api.router.routes[:] = sort_routes(routes)
    for kind in (ApiError, WickError, Exception):
        api.add_exception_handler(kind, handle_error)
    api.add_exception_handler(RequestValidationError, handle_invalid)
    api.add_exception_handler(HTTPException, handle_http)
    return api


def _openapi_endpoint(api: FastAPI) -> Callable[[Request], Awaitable[Response]]:
    document: list[bytes] = []

    async def openapi(request: Request) -> Response:
        if not document:
            document.append(
                await run_in_thread(lambda: orjson.dumps(build_document(api)), "building the OpenAPI document")
            )
        return Response(document[0], media_type="application/json")

    return openapi


@asynccontextmanager
async def _lifespan(api: FastAPI) -> AsyncIterator[None]:
    service: Service = api.state.service
    await service.start()
    try:
        yield
    finally:
        await service.stop()
