"""`GET /health`: the public health check."""

from __future__ import annotations

from fastapi import APIRouter

from wick.api.types import Health
from wick.server.dependencies import Wick

router = APIRouter(tags=["server"])


@router.get("/health")
async def health(wick: Wick) -> Health:
    """Check the server: a 503 if its database is damaged or cannot be read."""
    wick.check_health()
    live = wick.live
    return Health(agents=wick.agent_count(), live=wick.settings.live_kind, live_connected=not live.problem)
