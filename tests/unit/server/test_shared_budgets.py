"""Processes share a budget: each draws blocks from counters in the records, and returns the unspent part."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest

from kit import echo
from wick import Agent, Result
from wick.capabilities.budget import BLOCK, Amount, Budget
from wick.errors import StoreError
from wick.prices import price
from wick.protocols import CallArgs, CallStart, Delta, Finish, Request, TextDelta, Usage
from wick.server.records.counters import RecordCounters
from wick.server.records.sqlite import SqliteRecords
from wick.stores.sqlite import Sqlite

SONNET = "anthropic:claude-sonnet-4-5"
STEPS = 5


class Metered:
    """A model that uses a tool a few times, and reports the same usage for each call."""

    def __init__(self, tokens: int, name: str = "metered") -> None:
        self.tokens, self.name, self.calls = tokens, name, 0

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        self.calls += 1
        await asyncio.sleep(0.001)
        if sum(message.role == "tool" for message in request.messages) < STEPS - 1:
            yield CallStart(0, f"c{self.calls}", "echo")
            yield CallArgs(0, '{"text": "hi"}')
        else:
            yield TextDelta("done")
        yield Usage(self.tokens, 0)
        yield Finish("stop")


class LosesReplies(RecordCounters):
    """Counters whose replies are lost after the database has written."""

    async def add(self, key: str, amount: int) -> None:
        await super().add(key, amount)
        raise StoreError("Postgres could not do it", "unavailable")


class LosesFirstDraw(SqliteRecords):
    """Records whose connection breaks after the first draw was written."""

    lost = 0

    async def draw(self, kind: str, owner: str, id: str, least: int, most: int, limit: int) -> int:
        drawn = await super().draw(kind, owner, id, least, most, limit)
        if not self.lost:
            self.lost = drawn
            raise StoreError("Postgres could not do it", "unavailable")
        return drawn


@pytest.fixture
async def records(tmp_path: Path) -> AsyncIterator[SqliteRecords]:
    opened = SqliteRecords(Sqlite(tmp_path / "threads.db"))
    yield opened
    await opened.close()


@pytest.fixture
def counters(records: SqliteRecords) -> RecordCounters:
    return RecordCounters(records)


def share_tokens(counters: RecordCounters, tokens: int, reserve: int = 200) -> Budget:
    """Return a budget as another process would have it."""
    budget = Budget(tokens=tokens, reserve=reserve)
    budget.share(counters, "key")
    return budget


async def run(model: Metered, budget: Budget) -> Result:
    return await Agent(model, tools=[echo], hooks=[budget]).run("Hello.")


async def test_four_processes_spend_one_budget(counters: RecordCounters) -> None:
    model, budgets = Metered(100), [share_tokens(counters, 10_000) for _ in range(4)]
    results = await asyncio.gather(*(run(model, budget) for budget in budgets * 10))
    stopped = [result for result in results if result.outcome == "stopped"]
    assert stopped and all(result.reason.startswith("budget: the next model call may take") for result in stopped)
    assert 100 * model.calls <= 10_000
    for budget in budgets:
        await budget.release()
    assert await counters.read("key/tokens") == 100 * model.calls == sum(budget.spent.tokens for budget in budgets)
    while (await run(model, budgets[0])).outcome == "completed":
        await budgets[0].release()
    assert 10_000 - 400 < 100 * model.calls <= 10_000, "a call that fits is made by any process"


async def test_a_block_is_drawn_for_several_calls(counters: RecordCounters) -> None:
    budget, draws = share_tokens(counters, 1_000_000), list[int]()

    async def draw(key: str, least: int, most: int, limit: int) -> int:
        draws.append(await RecordCounters.draw(counters, key, least, most, limit))
        return draws[-1]

    counters.draw = draw  # type: ignore[method-assign]
    assert (await run(Metered(100), budget)).outcome == "completed"
    assert len(draws) == 1 and budget.spent.tokens == STEPS * 100
    assert await budget.fetch_totals() == (Amount(STEPS * 100), Amount())


async def test_a_crash_loses_at_most_a_block(counters: RecordCounters) -> None:
    await run(Metered(100), share_tokens(counters, 1_000_000))  # and its process dies
    left = share_tokens(counters, 1_000_000)
    lost = (await left.fetch_totals())[0].tokens - STEPS * 100
    assert 0 < lost <= BLOCK * 250


async def test_usage_above_the_reservation_is_counted(counters: RecordCounters) -> None:
    budget = share_tokens(counters, 1_000, reserve=10)
    result = await run(Metered(700), budget)
    await budget.release()
    assert result.outcome == "stopped" and await counters.read("key/tokens") == 1_400
    assert "of 1,000 tokens, 1,400 tokens are spent" in (await run(Metered(700), share_tokens(counters, 1_000))).reason


async def test_dollars_are_shared(counters: RecordCounters) -> None:
    cost = price(SONNET, Usage(100, 0))
    assert cost is not None
    budgets = [Budget(dollars=cost * 30, reserve=10) for _ in range(3)]
    for budget in budgets:
        budget.share(counters, "key")
    model = Metered(100, SONNET)
    results = await asyncio.gather(*(run(model, budget) for budget in budgets * 5))
    assert any("budget: the next model call may take $" in result.reason for result in results)
    for budget in budgets:
        await budget.release()
    assert cost * model.calls <= cost * 30
    assert Decimal(await counters.read("key/dollars")) / 10**9 == cost * model.calls
    assert (await budgets[0].fetch_totals())[0].dollars == cost * model.calls


async def test_a_lost_reply_returns_nothing_twice(records: SqliteRecords, counters: RecordCounters) -> None:
    budget = share_tokens(LosesReplies(records), 1_000_000)
    await run(Metered(100), budget)
    for _ in range(2):
        await budget.release()
    assert await counters.read("key/tokens") == STEPS * 100


async def test_a_draw_with_a_lost_reply_is_repeated_and_counted(tmp_path: Path) -> None:
    records = LosesFirstDraw(Sqlite(tmp_path / "threads.db"))
    budget = share_tokens(RecordCounters(records), 1_000_000)
    assert (await run(Metered(100), budget)).outcome == "completed"
    await budget.release()
    assert await RecordCounters(records).read("key/tokens") == STEPS * 100 + records.lost > STEPS * 100
    await records.close()


async def test_an_unshared_budget_counts_alone_again(counters: RecordCounters) -> None:
    budget = share_tokens(counters, 1_000)
    await run(Metered(100), budget)
    await budget.unshare()
    assert not budget.is_shared and await counters.read("key/tokens") == 500
    assert (await run(Metered(10), budget)).outcome == "completed"
    assert await counters.read("key/tokens") == 500 and (await budget.fetch_totals())[0].tokens == 550
