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
    totals = [(budget, *await budget.fetch_totals()) for budget in owners if isinstance(budget, Budget)]
    budgets = [
        BudgetInfo(
            name=budget.name,
            tokens=budget.tokens,
            dollars=None if budget.dollars is None else float(budget.dollars),
            spent_tokens=spent.tokens,
            spent_dollars=float(spent.dollars),
            reserved_tokens=reserved.tokens,
            reserved_dollars=float(reserved.dollars),
        )
        for budget, spent, reserved in totals
    ]
    limits = next((one for one in owners if isinstance(one, Limits)), None)
    run_limits = None
    if limits is not None:
        run_limits = RunLimits(
            steps=limits.steps,
            tokens=limits.tokens,
            seconds=limits.seconds,
            cost=None if limits.cost is None else float(limits.cost),
            tool_calls=limits.tool_calls,
        )
    return LimitsInfo(agent_id=id, limits=run_limits, budgets=budgets)
