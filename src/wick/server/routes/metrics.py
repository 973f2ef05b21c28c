"""`GET /metrics`: the server's numbers, for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import PlainTextResponse

from wick.server.dependencies import Wick

router = APIRouter(tags=["server"])


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(wick: Wick) -> PlainTextResponse:
    """The server's numbers, as Prometheus reads them."""
    return PlainTextResponse(wick.metrics.render(), media_type=CONTENT_TYPE_LATEST)
