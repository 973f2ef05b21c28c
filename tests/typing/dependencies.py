"""Programs with dependencies and typed outputs, which mypy --strict and pyright accept."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, assert_type

from pydantic import BaseModel

from wick import (
    Agent,
    Block,
    Capability,
    Deps,
    Hook,
    Message,
    ModelCall,
    Next,
    Result,
    Run,
    Scripted,
    ToolResult,
    ToolUse,
    after,
    before,
    guard,
    tool,
    wrap,
)
from wick.capabilities.structured_output import StructuredOutput


@dataclass
class Shop:
    orders: dict[int, str]


class Trip(BaseModel):
    city: str


@tool
def find_order(number: int, shop: Deps[Shop]) -> str:
    """Find an order."""
    return assert_type(shop, Shop).orders[number]


@tool(timeout=3)
async def count_orders(run: Run[Shop], use: ToolUse) -> int:
    """Count the orders."""
    return len(assert_type(run.deps, Shop).orders)


@guard(ToolUse)
def own_orders_only(use: ToolUse, shop: Deps[Shop]) -> Block | None:
    return None if use.args["number"] in shop.orders else Block("not yours")


@before(Run)
def start(run: Run[Shop]) -> None:
    run.record("orders", count=len(run.deps.orders))


@after(ToolUse)
async def end(use: ToolUse, shop: Deps[Shop | None] = None) -> None:
    assert_type(use.run.deps, Any)


@wrap(ToolUse)
async def measure(use: ToolUse, next: Next[ToolResult], shop: Deps[Shop]) -> ToolResult:
    return await next(use)


class Orders(Capability):
    """A capability whose hooks and tools receive deps."""

    @guard(ToolUse)
    def check(self, use: ToolUse, shop: Deps[Shop]) -> Block | None:
        return None

    @wrap(ModelCall)
    async def around(self, call: ModelCall, next: Next[Message], shop: Deps[Shop]) -> Message | str:
        return await next(call) if shop.orders else "There are no orders."

    @tool
    def cancel(self, number: int, shop: Deps[Shop]) -> bool:
        """Cancel an order."""
        return number in shop.orders


shop = Shop({7: "shipped"})
assert_type(find_order(7, shop), str)
assert_type(find_order(number=7, shop=shop).upper(), str)
assert_type(Orders().cancel(7, shop), bool)


async def use_tools(run: Run[Shop], use: ToolUse) -> None:
    coroutine: Coroutine[Any, Any, int] = count_orders(run, use)
    assert_type(await coroutine, int)


hooks: list[Hook | Capability] = [own_orders_only, start, end, measure, Orders()]
assert_type(Agent(Scripted()), Agent)
assert_type(Agent(Scripted(), deps_type=Shop), Agent[Shop])
agent = Agent(Scripted(), tools=[find_order, count_orders], hooks=hooks, deps_type=Shop, output_type=Trip)
assert_type(agent, Agent[Shop, Trip])
assert_type(agent.with_tools(len), Agent[Shop, Trip])
made = Agent(Scripted(), output_type=StructuredOutput(Trip, retries=1), deps_factory=lambda run: Shop({}))
assert_type(made, Agent[Shop, Trip])
plain = Agent(Scripted(), output_type=StructuredOutput({"type": "object"}))
assert_type(plain.run_sync("hello").output, dict[str, Any])


async def run_agents(any_agent: Agent) -> str:
    assert_type(await agent.run("hello", deps=shop), Result[Trip])
    assert_type((await agent.run("hello", deps=shop)).output.city, str)
    stream = agent.stream("hello", deps=shop)
    assert_type(await stream.finish(), Result[Trip])
    assert_type(stream.result.output, Trip)
    assert_type(agent.run_sync("hello", deps=None).thread.id, str)
    result: Result = await any_agent.run("hello", deps="anything")
    return result.text + str(result.output)
