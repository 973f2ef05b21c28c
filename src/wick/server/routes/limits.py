"""Limits of an agent's runs, and the state of its budgets."""

from __future__ import annotations

from fastapi import APIRouter

from wick.api.types import BudgetInfo, LimitsInfo, RunLimits
from wick.capabilities.budget import Budget
from wick.capabilities.limits import Limits
from wick.server.dependencies import Caller, Wick

router = APIRouter(tags=["limits"])


@router.get("/agents/{id}/limits")
async def get_limits(id: str, caller: Caller, wick: Wick) -> LimitsInfo:
    """Return the limits of your agent's runs, and the state of its budgets."""
    hooks = (await wick.registry.get_agent(caller, id)).agent.hooks
    owners = [*dict.fromkeys(hook.owner for hook in hooks if isinstance(hook.owner, Budget | Limits))]
    limits = next((one for one in owners if isinstance(one, Limits)), None)
    budgets = [_budget_info(one) for one in owners if isinstance(one, Budget)]
    return LimitsInfo(agent_id=id, limits=_run_limits(limits) if limits is not None else None, budgets=budgets)


def _run_limits(found: Limits) -> RunLimits:
    return RunLimits(
        steps=found.steps,
        tokens=found.tokens,
        seconds=found.seconds,
        cost=None if found.cost is None else float(found.cost),
        tool_calls=found.tool_calls,
    )


def _budget_info(found: Budget) -> BudgetInfo:
    spent, reserved = found.spent, found.reserved
    return BudgetInfo(
        name=found.name,
        tokens=found.tokens,
        dollars=None if found.dollars is None else float(found.dollars),
        spent_tokens=spent.tokens,
        spent_dollars=float(spent.dollars),
        reserved_tokens=reserved.tokens,
        reserved_dollars=float(reserved.dollars),
    )
