"""Usage: tokens and dollars, by user, day, agent and model."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date
from typing import Annotated

from fastapi import APIRouter, Query

from wick.api.types import UsageReport, UsageRow, UsageTotals
from wick.server.dependencies import Caller, Wick
from wick.server.errors import ApiError
from wick.server.runs.usage import UsageAmount, sum_usage

router = APIRouter(tags=["usage"])

ALL_USERS = "*"


@router.get("/usage")
async def usage(
    caller: Caller,
    wick: Wick,
    since: Annotated[date | None, Query(description="the first day")] = None,
    until: Annotated[date | None, Query(description="the last day")] = None,
    agent: str = "",
    user: Annotated[str, Query(description="the id of another user, or * for all; admins only")] = "",
) -> UsageReport:
    """Return your usage; an admin may request that of other users."""
    if user not in ("", caller.id) and not caller.has_role("admin"):
        raise ApiError(403, "denied", "the usage of other users requires an admin; leave out user")
    owner = None if user == ALL_USERS else user or caller.id
    lines = await wick.usage.list_lines(owner, since=since, until=until, agent=agent)
    rows = []
    for line in lines:
        facts = {"user_id": line.owner, "user": line.user, "day": line.day, "agent": line.agent, "model": line.model}
        rows.append(UsageRow.model_validate({**facts, **_amounts(line.used)}))
    return UsageReport(rows=rows, total=UsageTotals.model_validate(_amounts(sum_usage(lines))))


def _amounts(used: UsageAmount) -> dict[str, float]:
    return {name: amount for name, amount in asdict(used).items() if name != "nanodollars"} | {"cost": used.cost}
