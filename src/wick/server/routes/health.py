"""`GET /health`: the public health check."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from wick.server.dependencies import Wick

router = APIRouter(tags=["server"])


class Health(BaseModel):
    """The server is there."""

    status: Literal["ok"] = "ok"
    agents: int


@router.get("/health")
async def health(wick: Wick) -> Health:
    """Check the server: a 503 if its database is damaged or cannot be read."""
    wick.check_health()
    return Health(agents=wick.agent_count())
