"""`GET /health`, `/health/live` and `/health/ready`: the public health checks. `POST /drain`: start to drain."""

from __future__ import annotations

from fastapi import APIRouter

from wick.api.types import DrainStatus, Health, Liveness, Readiness
from wick.server.dependencies import Wick

router = APIRouter(tags=["server"])


@router.get("/health")
async def health(wick: Wick) -> Health:
    """Check the server: a 503 if its database is damaged or cannot be read."""
    wick.check_health()
    return Health(agents=wick.agent_count())


@router.get("/health/live")
async def live() -> Liveness:
    """Check the process: any response means that it need not be restarted."""
    return Liveness()


@router.get("/health/ready")
async def ready(wick: Wick) -> Readiness:
    """Check the readiness: a 503 if the server starts or drains, or if its database does not respond."""
    await wick.check_ready()
    return Readiness()


@router.post("/drain", status_code=202)
async def drain(wick: Wick) -> DrainStatus:
    """Drain the server: no new runs, `grace` seconds for the others, then they are released to other servers."""
    done = wick.start_drain().done()
    return DrainStatus(status="drained" if done else "draining", runs=len(wick.runs.executor.running))
