"""The ledger: usage of runs is summed, each model call once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from wick import Agent, Ask, Scripted, Thread, ToolCall, ToolUse, guard, tool
from wick.capabilities.sessions import Sessions
from wick.operations import Result
from wick.prices import Charge
from wick.protocols import Usage
from wick.server.auth.identity import User
from wick.server.records.sqlite import SqliteRecords
from wick.server.runs.usage import UsageAmount, UsageLedger, sum_usage
from wick.stores.sqlite import Sqlite


@tool
def add(a: int) -> int:
    """Add one."""
    return a + 1


@guard(ToolUse)
def careful(use: ToolUse) -> Ask:
    return Ask("Really?")


ADA, BOB = User("u_1", "ada"), User("u_2", "bob")
TODAY = datetime.now(UTC).date()


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[UsageLedger]:
    records = SqliteRecords(Sqlite(tmp_path / "threads.db"))
    yield UsageLedger(records)
    await records.close()


def result(*charges: Charge) -> Result:
    return Result("fine", charges=charges)


HOME = Charge("demo:demo", Usage(10, 5))
PAID = Charge("openai:gpt-4o", Usage(1_000, 100, cached_tokens=400, reasoning_tokens=20))


async def test_a_run_is_counted_by_model(ledger: UsageLedger) -> None:
    days = [datetime.now(UTC).date().isoformat()]
    await ledger.record(ADA, "default", result(PAID, HOME, PAID), run="run_1")
    days.append(datetime.now(UTC).date().isoformat())  # it may be midnight
    paid, home = sorted(await ledger.list_lines(ADA.id), key=lambda line: line.used.questions, reverse=True)
    assert (paid.model, home.model) == ("openai:gpt-4o", "demo:demo")
    assert (paid.owner, paid.user, paid.agent) == ("u_1", "ada", "default") and paid.day in days
    price = PAID.price
    assert price and paid.used == UsageAmount(1, 2, 0, 2_000, 200, 800, 40, 0, round(2 * price * 10**9))
    assert home.used == UsageAmount(0, 1, 1, 10, 5) and paid.used.cost == pytest.approx(2 * float(price))


async def test_runs_of_a_day_add_up(ledger: UsageLedger) -> None:
    for number in range(3):
        await ledger.record(ADA, "default", result(HOME), run=f"run_{number}")
    (line,) = await ledger.list_lines(ADA.id)
    assert line.used == UsageAmount(runs=3, questions=3, unpriced=3, input_tokens=30, output_tokens=15)


async def test_a_paused_and_resumed_run_is_counted_once(ledger: UsageLedger) -> None:
    thread = Thread()

    async def ends(outcome: Any, *charges: Charge) -> None:
        thread.append("run_end", {"run": "run_1", "outcome": outcome, "reason": ""})
        await ledger.record(ADA, "default", Result(outcome=outcome, charges=charges, thread=thread), run="run_1")

    thread.append("run_start", {"run": "run_1", "input": 0, "guards": []})
    await ends("interrupted", HOME)
    await ends("interrupted", HOME)
    await ends("completed", HOME, HOME, PAID)
    used = sum_usage(await ledger.list_lines(ADA.id))
    assert (used.runs, used.questions, used.input_tokens) == (1, 3, 1_020)


async def test_a_real_run_that_pauses(ledger: UsageLedger, tmp_path: Path) -> None:
    model = Scripted(ToolCall("1", "add", {"a": 2}), "done")
    sessions = Sessions(tmp_path / "threads")
    agent = Agent(model, tools=[add], hooks=[sessions, careful])
    paused = await agent.run("go", thread="th_1")
    (entry,) = [entry for entry in paused.thread.entries if entry.kind == "run_end"] if paused.thread else []
    await ledger.record(ADA, "default", paused, run=entry.data["run"])
    (asked,) = await sessions.questions("th_1")
    await sessions.answer("th_1", asked["id"], "allow")
    ended = await agent.run(thread="th_1")
    await ledger.record(ADA, "default", ended, run=entry.data["run"])
    await sessions.close()
    used = sum_usage(await ledger.list_lines(ADA.id))
    assert (paused.outcome, ended.outcome) == ("interrupted", "completed")
    assert (used.runs, used.questions) == (1, 2)
    assert (used.input_tokens, used.output_tokens) == (ended.usage.input_tokens, ended.usage.output_tokens)


async def test_a_run_without_questions_is_a_run(ledger: UsageLedger) -> None:
    await ledger.record(ADA, "default", result(Charge("", Usage())), run="run_1")
    (line,) = await ledger.list_lines(ADA.id)
    assert (line.model, line.used) == ("", UsageAmount(runs=1))


async def test_users_do_not_see_each_other(ledger: UsageLedger) -> None:
    await ledger.record(ADA, "default", result(HOME))
    await ledger.record(BOB, "coder", result(HOME, HOME))
    assert [line.user for line in await ledger.list_lines(ADA.id)] == ["ada"]
    all_users = await ledger.list_lines(None)
    assert [line.user for line in all_users] == ["ada", "bob"]
    assert sum_usage(all_users).questions == 3


@pytest.mark.parametrize(
    ("since", "until", "agent", "found"),
    [
        (None, None, "", 2),
        (TODAY, TODAY + timedelta(1), "", 2),  # it may be midnight
        (date(2020, 1, 1), date(2020, 1, 2), "", 0),
        (TODAY + timedelta(2), None, "", 0),
        (None, None, "coder", 1),
        (None, None, "nobody", 0),
    ],
)
async def test_filtered_usage(
    ledger: UsageLedger, since: date | None, until: date | None, agent: str, found: int
) -> None:
    await ledger.record(ADA, "default", result(HOME))
    await ledger.record(ADA, "coder", result(HOME))
    assert len(await ledger.list_lines(ADA.id, since=since, until=until, agent=agent)) == found


async def test_many_rows_are_all_found(ledger: UsageLedger) -> None:
    for number in range(1_100):
        await ledger.records.add("usage", ADA.id, f"2026-01-01/{number}/m", {"runs": 1},
                                 {"user": "ada", "day": "2026-01-01", "agent": str(number), "model": "m"})  # fmt: skip
    assert sum_usage(await ledger.list_lines(ADA.id)).runs == sum_usage(await ledger.list_lines(None)).runs == 1_100
