"""A token and dollar budget shared by several runs. The cost of a model call is reserved before it is sent."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from threading import Lock
from typing import Any, Protocol

from wick._internal.frozen import canonical_json
from wick.capability import Capability
from wick.constants import CHARS_PER_TOKEN
from wick.decisions import Stop
from wick.errors import ConfigError, StoreError
from wick.hooks import after, before
from wick.operations import ModelCall
from wick.prices import Charge, price
from wick.protocols import Usage
from wick.tools import Tool

logger = logging.getLogger("wick.budget")

RESERVE_TOKENS = 4_096  # reserved for a reply without a `max_tokens` limit
INNERMOST = -100.0  # inside Retry and Fallback, so that each attempt gets its own reservation
BLOCK = 4  # reservations that are drawn from shared counters at once, so that not every model call needs a commit
NANO = 1_000_000_000  # shared counters are integers: dollars are counted in billionths


@dataclass(frozen=True, slots=True)
class Amount:
    """Tokens, and dollars where a budget counts them."""

    tokens: int = 0
    dollars: Decimal = Decimal(0)

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.dollars + other.dollars)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.tokens - other.tokens, self.dollars - other.dollars)


@dataclass(frozen=True, slots=True)
class Remaining:
    """The tokens and dollars that a budget has left; None where it has no limit."""

    tokens: int | None
    dollars: Decimal | None


NOTHING = Amount()


class Counters(Protocol):
    """Counters that several processes share, such as the servers of one database."""

    async def draw(self, key: str, least: int, most: int, limit: int) -> int:
        """Add an amount between `least` and `most` to a counter; return it, or 0 if the limit would be exceeded."""

    async def add(self, key: str, amount: int) -> None:
        """Add to a counter without a limit. A negative amount returns what was drawn."""

    async def read(self, key: str) -> int:
        """Return the value of a counter."""


class Budget(Capability):
    """A limit on tokens and dollars, shared by all runs of all agents with this object and by their children.

    Each model call reserves its estimated input, plus `max_tokens` from the settings or `reserve` for the reply. If the
    reservation does not fit, the run stops. After the call, the reported usage replaces the reservation.
    """

    def __init__(
        self,
        tokens: int | None = None,
        dollars: float | str | Decimal | None = None,
        *,
        reserve: int = RESERVE_TOKENS,
        name: str = "budget",
    ) -> None:
        if tokens is None and dollars is None:
            raise ConfigError("Budget() limits nothing; write Budget(tokens=…), Budget(dollars=…) or both")
        if tokens is not None and (type(tokens) is not int or tokens <= 0):
            raise ConfigError(f"Budget(tokens={tokens!r}): tokens are a whole number above 0")
        if type(reserve) is not int or reserve < 0:
            raise ConfigError(f"Budget(reserve={reserve!r}): the tokens reserved for an answer are 0 or more")
        if type(name) is not str or not name:
            raise ConfigError(f"Budget(name={name!r}): a name is a text")
        self.tokens, self.reserve, self.name, self.dollars = tokens, reserve, name, None
        if dollars is not None:
            try:
                self.dollars = Decimal(str(dollars)) if not isinstance(dollars, bool) else Decimal(0)
            except InvalidOperation:
                self.dollars = Decimal(0)
            if not (self.dollars.is_finite() and self.dollars > 0):
                raise ConfigError(f"Budget(dollars={dollars!r}): dollars are a number above 0")
        self._ledger = _Ledger(self.tokens, self.dollars)
        self._shared: _SharedAccount | None = None

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("tokens", "dollars") and "_ledger" in self.__dict__:
            fresh = f"agent.without_hooks({self.name!r}).with_hooks(Budget({name}={value!r}))"
            raise ConfigError(f"the limits of a Budget do not change; create another one and an agent with it: {fresh}")
        super().__setattr__(name, value)

    def share(self, counters: Counters, key: str) -> None:
        """Share the limits with all processes that use this key of the counters. A server does this for its agents."""
        if self._shared is None:
            self._shared = _SharedAccount(counters, key, self.tokens, self.dollars, self._ledger)
            self._ledger.limit_to(None if self.tokens is None else 0, None if self.dollars is None else Decimal(0))

    @property
    def is_shared(self) -> bool:
        """Return True if the limits are shared with other processes."""
        return self._shared is not None

    async def release(self) -> None:
        """Return the drawn amount that is neither spent nor reserved to the shared counters."""
        if self._shared is not None:
            await self._shared.release()

    async def unshare(self) -> None:
        """Release the drawn amount and count in this process only."""
        try:
            await self.release()
        finally:
            self._shared = None
            self._ledger.limit_to(self.tokens, self.dollars)

    async def fetch_totals(self) -> tuple[Amount, Amount]:
        """Return the amount spent by all processes, and the amount reserved by this one.

        Amounts that other processes have drawn count as spent.
        """
        spent, reserved = self._ledger.read_totals()
        return (spent if self._shared is None else await self._shared.fetch_spent(spent)), reserved

    @property
    def spent(self) -> Amount:
        """Return the amount spent so far."""
        return self._ledger.read_totals()[0]

    @property
    def reserved(self) -> Amount:
        """Return the amount reserved for model calls in progress."""
        return self._ledger.read_totals()[1]

    @property
    def remaining(self) -> Remaining:
        """Return the amount that is neither spent nor reserved; of a shared budget, use `fetch_totals`."""
        used = sum(self._ledger.read_totals(), NOTHING)
        return Remaining(
            None if self.tokens is None else max(0, self.tokens - used.tokens),
            None if self.dollars is None else max(Decimal(0), self.dollars - used.dollars),
        )

    @before(ModelCall, priority=INNERMOST, inherit=True)
    def reserve_tokens(self, call: ModelCall) -> Stop | Awaitable[Stop | None] | None:
        title = "budget" if self.name == "budget" else f"budget: {self.name}"
        estimated = (
            sum(message.tokens for message in call.messages)
            + len(call.system) // CHARS_PER_TOKEN
            + sum(map(_count_schema_tokens, call.tools))
        )
        wanted = Usage(estimated, call.settings.get("max_tokens") or self.reserve)
        cost = price(call.model.name, wanted) if self.dollars is not None else Decimal(0)
        if cost is None:
            return Stop(f"{title}: the price of {call.model.name} is not known; limit tokens= in place of dollars=")
        amount = Amount(wanted.total_tokens, cost)
        if self._shared is not None:
            return self._shared.reserve(call, amount, title)
        refusal = self._ledger.reserve(call, amount)
        return Stop(f"{title}: {refusal}") if refusal else None

    @after(ModelCall, priority=INNERMOST, inherit=True)
    def settle(self, call: ModelCall) -> None:
        self._ledger.settle(call)


@dataclass(eq=False, slots=True)
class _Reservation:
    """The amount reserved for one attempt at a model call."""

    call: ModelCall
    amount: Amount
    usage_before: Usage  # the usage of the call's trail at the time of the reservation
    task: asyncio.Task[Any] | None = field(default_factory=asyncio.current_task)

    def is_abandoned(self, now: ModelCall | None) -> bool:
        """Return True if the attempt was cancelled or replaced, so that no `after` hook will settle it."""
        again = now is not None and now.state is self.call.state and self.task is asyncio.current_task()
        return again or self.call.run.progress.over or (self.task is not None and self.task.done())

    @property
    def was_sent(self) -> bool:
        """Return True if the request was sent: each request leaves its own usage object in the trail."""
        return self.call.usage is not self.usage_before

    def compute_amount(self, charge: Charge, dollars: bool) -> Amount:
        """Return the amount charged for an attempt; the reserved amount if the usage or price is unknown."""
        if charge.estimated or not charge.usage.total_tokens:
            return self.amount
        cost = charge.price if dollars else Decimal(0)
        return Amount(charge.usage.total_tokens, self.amount.dollars if cost is None else cost)


@dataclass(eq=False, slots=True)
class _Ledger:
    """The spent and reserved totals. The lock allows agents in several threads to share one."""

    tokens: int | None
    dollars: Decimal | None
    spent: Amount = NOTHING
    reserved_total: Amount = NOTHING
    reservations: dict[ModelCall, _Reservation] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def read_totals(self) -> tuple[Amount, Amount]:
        with self.lock:
            self._settle_abandoned()
            return self.spent, self.reserved_total

    def reserve(self, call: ModelCall, amount: Amount) -> str:
        """Reserve an amount; return why it does not fit, or ""."""
        with self.lock:
            if call in self.reservations:  # an agent and its parent share this budget
                return ""
            self._settle_abandoned(call)
            total = self.spent + self.reserved_total + amount
            if self.tokens is not None and total.tokens > self.tokens:
                sums = (amount.tokens, self.tokens, self.spent.tokens, self.reserved_total.tokens)
                return _format_refusal(call, [f"{sum:,} tokens" for sum in sums])
            if self.dollars is not None and total.dollars > self.dollars:
                prices = (amount.dollars, self.dollars, self.spent.dollars, self.reserved_total.dollars)
                return _format_refusal(call, [f"${price:f}" for price in prices])
            self.reservations[call] = _Reservation(call, amount, call.usage)
            self.reserved_total += amount
            return ""

    def limit_to(self, tokens: int | None, dollars: Decimal | None) -> None:
        with self.lock:
            self.tokens, self.dollars = tokens, dollars

    def raise_limits(self, amount: Amount) -> None:
        with self.lock:
            self.tokens = None if self.tokens is None else self.tokens + amount.tokens
            self.dollars = None if self.dollars is None else self.dollars + amount.dollars

    def compute_room(self) -> Amount:
        """Return the amount that is neither spent nor reserved; negative if more was spent than the limits."""
        with self.lock:
            self._settle_abandoned()
            return self._compute_room()

    def take_room(self) -> Amount:
        """Lower the limits to the spent and reserved amount, and return the difference."""
        with self.lock:
            self._settle_abandoned()
            room = self._compute_room()
            self.tokens = None if self.tokens is None else self.tokens - room.tokens
            self.dollars = None if self.dollars is None else self.dollars - room.dollars
            return room

    def _compute_room(self) -> Amount:
        limits = Amount(self.tokens or 0, self.dollars or Decimal(0))
        room = limits - self.spent - self.reserved_total
        return Amount(0 if self.tokens is None else room.tokens, Decimal(0) if self.dollars is None else room.dollars)

    def settle(self, call: ModelCall) -> None:
        """Charge an attempt that ended with a reply or an error."""
        with self.lock:
            if call in self.reservations:
                self._settle(self.reservations[call])

    def _settle_abandoned(self, now: ModelCall | None = None) -> None:
        """Settle cancelled attempts. Their usage is unknown, so a request that was sent is charged its reservation."""
        for hold in [hold for hold in self.reservations.values() if hold.is_abandoned(now)]:
            self._settle(hold, hold.amount if hold.was_sent else NOTHING)

    def _settle(self, hold: _Reservation, unreported: Amount = NOTHING) -> None:
        counted = hold.call.notes.setdefault("budgets", {})  # concurrent attempts share the charges of their call
        new = hold.call.charges[counted.get(self, 0) :]
        counted[self] = counted.get(self, 0) + len(new)
        charged = sum((hold.compute_amount(charge, self.dollars is not None) for charge in new), NOTHING)
        self.spent += charged if new else unreported
        self.reserved_total -= hold.amount
        del self.reservations[hold.call]


@dataclass(eq=False, slots=True)
class _SharedAccount:
    """The part of a process in a shared budget: its ledger is limited to the amount that the process has drawn."""

    counters: Counters
    key: str
    tokens: int | None  # the limits of all processes together
    dollars: Decimal | None
    ledger: _Ledger

    async def reserve(self, call: ModelCall, amount: Amount, title: str) -> Stop | None:
        """Reserve an amount. Draw from the counters until it fits; stop the run if they have too little left."""
        refused = ""
        while self.ledger.reserve(call, amount):  # again after a refusal: another run may have released enough
            if refused:
                spent, reserved = self.ledger.read_totals()
                limit = Amount(self.tokens or 0, self.dollars or NOTHING.dollars)
                sums = amount, limit, await self.fetch_spent(spent), reserved
                shown = [f"{sum.tokens:,} tokens" if refused == "tokens" else f"${sum.dollars:f}" for sum in sums]
                return Stop(f"{title}: {_format_refusal(call, shown)}")
            refused = await self._draw(amount - self.ledger.compute_room(), amount)
        return None

    async def _draw(self, lack: Amount, reservation: Amount) -> str:
        """Draw what a reservation lacks, and more if plenty is left; return the exhausted unit, or ""."""
        if self.tokens is not None and lack.tokens > 0:
            most = lack.tokens + (BLOCK - 1) * reservation.tokens
            drawn = await self.counters.draw(f"{self.key}/tokens", lack.tokens, most, self.tokens)
            self.ledger.raise_limits(Amount(drawn))
            if not drawn:
                return "tokens"
        if self.dollars is not None and lack.dollars > 0:
            least, extra = _to_nano(lack.dollars), _to_nano((BLOCK - 1) * reservation.dollars)
            drawn = await self.counters.draw(f"{self.key}/dollars", least, least + extra, int(self.dollars * NANO))
            self.ledger.raise_limits(Amount(0, Decimal(drawn) / NANO))
            if not drawn:
                return "dollars"
        return ""

    async def release(self) -> None:
        """Return the unused amount. It is lost if the reply is lost, since a repetition could return it twice.

        A negative amount was spent above the reservation. It is added to the counters, now or with a later draw.
        """
        room = self.ledger.take_room()
        dollars = math.floor(room.dollars * NANO)
        self.ledger.raise_limits(Amount(0, room.dollars - Decimal(dollars) / NANO))
        for unit, unused in (("tokens", room.tokens), ("dollars", dollars)):
            if unused:
                try:
                    await self.counters.add(f"{self.key}/{unit}", -unused)
                except StoreError:
                    if unused < 0:
                        lost = Amount(unused) if unit == "tokens" else Amount(0, Decimal(unused) / NANO)
                        self.ledger.raise_limits(lost)
                    logger.warning("the budget %s could not return %d %s", self.key, unused, unit, exc_info=True)

    async def fetch_spent(self, spent: Amount) -> Amount:
        """Return the amount that all processes have spent, given the amount of this one."""
        held = self.ledger.compute_room() + self.ledger.read_totals()[1]
        tokens = 0 if self.tokens is None else await self.counters.read(f"{self.key}/tokens") - held.tokens
        nano = 0 if self.dollars is None else await self.counters.read(f"{self.key}/dollars")
        dollars = Decimal(0) if self.dollars is None else Decimal(nano) / NANO - held.dollars
        return Amount(spent.tokens if self.tokens is None else tokens, dollars)


def _to_nano(dollars: Decimal) -> int:
    return math.ceil(dollars * NANO)


def _format_refusal(call: ModelCall, sums: Sequence[str]) -> str:
    """Return why an amount does not fit; `sums` are the amount, the limit, and what is spent and reserved."""
    name = f"the next model call, for a {call.purpose}," if call.purpose else "the next model call"
    amount, limit, spent, reserved = sums
    return f"{name} may take {amount}; of {limit}, {spent} are spent and {reserved} reserved"


@lru_cache(maxsize=1_024)
def _count_schema_tokens(tool: Tool) -> int:
    return len(canonical_json(tool.schema)) // CHARS_PER_TOKEN
