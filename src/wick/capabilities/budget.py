"""A token and dollar budget shared by several runs. The cost of a model call is reserved before it is sent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from threading import Lock
from typing import Any

from wick._internal.frozen import canonical_json
from wick.capability import Capability
from wick.constants import CHARS_PER_TOKEN
from wick.decisions import Stop
from wick.errors import ConfigError
from wick.hooks import after, before
from wick.operations import ModelCall
from wick.prices import Charge, price
from wick.protocols import Usage
from wick.tools import Tool

RESERVE_TOKENS = 4_096  # reserved for a reply without a `max_tokens` limit
INNERMOST = -100.0  # inside Retry and Fallback, so that each attempt gets its own reservation


@dataclass(frozen=True, slots=True)
class Amount:
    """Tokens, and dollars where a budget counts them."""

    tokens: int = 0
    dollars: Decimal = Decimal(0)

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.dollars + other.dollars)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.tokens - other.tokens, self.dollars - other.dollars)


NOTHING = Amount()


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

    @property
    def spent(self) -> Amount:
        """Return the amount spent so far."""
        return self._ledger.read_totals()[0]

    @property
    def reserved(self) -> Amount:
        """Return the amount reserved for model calls in progress."""
        return self._ledger.read_totals()[1]

    @before(ModelCall, priority=INNERMOST, inherit=True)
    def reserve_tokens(self, call: ModelCall) -> Stop | None:
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
        refusal = self._ledger.reserve(call, Amount(wanted.total_tokens, cost))
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
                return _REFUSAL.format(*(f"{sum:,} tokens" for sum in sums))
            if self.dollars is not None and total.dollars > self.dollars:
                prices = (amount.dollars, self.dollars, self.spent.dollars, self.reserved_total.dollars)
                return _REFUSAL.format(*(f"${price:f}" for price in prices))
            self.reservations[call] = _Reservation(call, amount, call.usage)
            self.reserved_total += amount
            return ""

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


_REFUSAL = "the next model call may take {}; of {}, {} are spent and {} reserved"


@lru_cache(maxsize=1_024)
def _count_schema_tokens(tool: Tool) -> int:
    return len(canonical_json(tool.schema)) // CHARS_PER_TOKEN
