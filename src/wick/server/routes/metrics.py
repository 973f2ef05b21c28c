"""`GET /metrics`: the server's numbers, for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import PlainTextResponse

from wick.server.dependencies import Wick

router = APIRouter(tags=["server"])
FORMAT = "text/plain; version=0.0.4; charset=utf-8"


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(wick: Wick) -> PlainTextResponse:
    """The server's numbers, as Prometheus reads them."""
    return PlainTextResponse(wick.metrics.render(), media_type=FORMAT)
