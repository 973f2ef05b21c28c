"""`GET /metrics`: Prometheus metrics."""

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
    """Return the metrics of the server in the Prometheus text format."""
    return PlainTextResponse(await wick.render_metrics(), media_type=CONTENT_TYPE_LATEST)
