"""Usage of runs: tokens and dollars, summed by user, day, agent and model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime
from decimal import Decimal
from time import time
from typing import TypeVar

from wick._internal.worker_threads import run_in_thread
from wick.operations import Result
from wick.prices import Charge
from wick.server.auth.identity import User
from wick.server.records import Records, RecordSum

KIND, COUNTED = "usage", "counted"
COUNTED_SECONDS = 30 * 86_400.0  # how long the recorded charges of an interrupted run are remembered
FEW_CHARGES, MAX_PRICED = 20, 1_000
NANO = Decimal(1_000_000_000)  # dollars are summed as integer billionths, which keeps small amounts exact

T = TypeVar("T")


@dataclass(slots=True)
class UsageAmount:
    """An amount of usage. `cost` is in dollars and leaves out `unpriced` model calls."""

    runs: int = 0
    questions: int = 0
    unpriced: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0
    nanodollars: int = 0

    @property
    def cost(self) -> float:
        return self.nanodollars / 1e9

    def __add__(self, other: UsageAmount) -> UsageAmount:
        return UsageAmount(*[getattr(self, name) + getattr(other, name) for name in _NAMES])

    def numbers(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in _NAMES if getattr(self, name)}


_NAMES = tuple(field.name for field in fields(UsageAmount))


@dataclass(frozen=True, slots=True)
class UsageLine:
    """The usage of one user, agent and model on one day (UTC)."""

    owner: str
    user: str
    day: str
    agent: str
    model: str
    used: UsageAmount


_priced: set[str] = set()  # models whose prices were looked up


async def compute_prices(work: Callable[[], T], charges: Sequence[Charge]) -> T:
    """Run work that needs the prices of charges. Many charges, and new models, are priced in a thread.

    The price list is loaded on first use, and a model is searched in it, which takes a moment.
    """
    models = {charge.model for charge in charges}
    if models <= _priced and len(charges) <= FEW_CHARGES:
        return work()
    result = await run_in_thread(work, "prices")
    if len(_priced) > MAX_PRICED:
        _priced.clear()
    _priced.update(models)
    return result


class UsageLedger:
    """The usage of all users, stored in the server's records."""

    def __init__(self, records: Records) -> None:
        self.records = records

    async def record(
        self, user: User, agent: str, result: Result, *, run: str = "", begin: int = 0, ended: bool = True
    ) -> dict[str, UsageAmount]:
        """Record the usage of a run, and return it by model. After a pause, only the new charges of a run are added.

        `begin` is the number of entries of its thread before the run: those are not searched for its pauses. With
        `ended=False` the log has no end of the run: its charges are recorded now, the run itself when it ends.
        """
        spent, sums = await self.prepare(user, agent, result, run=run, begin=begin, ended=ended)
        for one in sums:
            await self.records.add(one.kind, one.owner, one.id, one.numbers, one.facts)
        return spent

    async def prepare(
        self, user: User, agent: str, result: Result, *, run: str = "", begin: int = 0, ended: bool = True
    ) -> tuple[dict[str, UsageAmount], list[RecordSum]]:
        """Return the usage of a run by model, and the sums that record it."""
        entries = result.thread.entries[begin:]
        ends = [entry for entry in entries if entry.kind == "run_end" and entry.data["run"] == run]
        before = await self.records.get(COUNTED, user.id, run) if len(ends) > 1 else None  # it has paused before
        if run and result.outcome == "interrupted" and ended:
            counted = {"charges": len(result.charges)}
            await self.records.put(COUNTED, user.id, run, counted, until=time() + COUNTED_SECONDS)
        charges = result.charges[int(before["charges"]) if before is not None else 0 :]
        spent: dict[str, UsageAmount] = {}

        def sum_by_model() -> None:
            for charge in charges:
                if charge.usage.total_tokens:  # else the provider reported no usage
                    price = charge.price
                    cost = 0 if price is None else round(price * NANO)
                    used = UsageAmount(questions=1, unpriced=price is None, nanodollars=cost, **charge.usage.to_json())
                    spent[charge.model] = spent[charge.model] + used if charge.model in spent else used

        await compute_prices(sum_by_model, charges)
        if before is None and ended:  # the run counts once, for the model of its first call
            first = result.charges[0].model if result.charges else ""
            spent[first] = spent.get(first, UsageAmount()) + UsageAmount(runs=1)
        day = datetime.now(UTC).date().isoformat()
        about = {"user": user.name, "day": day, "agent": agent}
        return spent, [
            RecordSum(KIND, user.id, f"{day}/{agent}/{model}", used.numbers(), {**about, "model": model})
            for model, used in spent.items()
        ]

    async def list_lines(
        self, owner: str | None, *, since: date | None = None, until: date | None = None, agent: str = ""
    ) -> list[UsageLine]:
        """Return the usage of an owner, or of all users, from `since` to `until` inclusive."""
        first, last = since.isoformat() if since else "", until.isoformat() if until else "9999-12-31"
        lines, after = list[UsageLine](), ""
        while rows := await self.records.list(KIND, owner, after=after):
            for row in rows:
                data = row.data
                if first <= data["day"] <= last and agent in ("", data["agent"]):
                    used = UsageAmount(**{name: int(data[name]) for name in _NAMES if name in data})
                    lines.append(UsageLine(row.owner, data["user"], data["day"], data["agent"], data["model"], used))
            after = rows[-1].id if owner is not None else rows[-1].cursor
        return sorted(lines, key=lambda line: (line.day, line.user, line.agent, line.model))


def sum_usage(lines: Iterable[UsageLine]) -> UsageAmount:
    """Return the sum of usage lines."""
    return sum((line.used for line in lines), UsageAmount())
