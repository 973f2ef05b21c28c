"""`GET /health`: whether the server is there, for everybody; and how many agents it has, and nothing else."""

from __future__ import annotations

from wick.api.types import Health
from wick.server.dependencies import Wick
from wick.server.http.json_body import Router

router = Router(tags=["server"])


@router.get("/health")
async def health(wick: Wick) -> Health:
    """Whether the server is there; a 503 if its database is damaged or cannot be read."""
    wick.check_health()
    return Health(agents=wick.agent_count())
