"""Records of the server: users, sessions, runs, tickets, counters. JSON objects by kind, owner and id.

    await records.put("agent", user.id, "helper", {"model": "auto"})
    await records.get("agent", user.id, "helper")

A write is durable when it returns. A record with `until` expires at that time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

# Kinds that agents are built from. A write of one changes the version in the same transaction, so that every process
# can keep what it built from them until the version changes.
VERSIONED_KINDS = frozenset(("agent", "override", "grant", "tool", "provider_key"))
VERSION = ("version", "", "registry")  # kind, owner and id of the record of the version
DRAWN_SHARE = 16  # a draw of more than the least amount takes at most this fraction of the rest, for other processes


@dataclass(frozen=True, slots=True)
class Record:
    """One record. `cursor` is the position after which a list over all owners continues."""

    owner: str
    id: str
    data: dict[str, Any]

    @property
    def cursor(self) -> str:
        return f"{self.owner}/{self.id}"


@dataclass(frozen=True, slots=True)
class RecordSum:
    """Numbers that are added to a record, and its other facts; see `Records.add`."""

    kind: str
    owner: str
    id: str
    numbers: Mapping[str, float]
    facts: Mapping[str, Any]


class Records(Protocol):
    """A store of JSON records. Reads see only the records of the given owner."""

    # Whether `put_in` may write in the transactions of the store in which leases are acquired, and released.
    joins_lease: bool
    joins_release: bool

    async def put(
        self,
        kind: str,
        owner: str,
        id: str,
        data: Mapping[str, Any],
        *,
        new: bool = False,
        until: float = 0.0,
        sums: Sequence[RecordSum] = (),
    ) -> bool:
        """Write a record, replacing the previous one. With `new`, return False if there is one already.

        `sums` are added in the same transaction, unless the record already has this data: a repeated call adds nothing.
        """

    def put_in(
        self,
        transaction: Any,
        kind: str,
        owner: str,
        id: str,
        data: Mapping[str, Any],
        sums: Sequence[RecordSum] = (),
        *,
        new: bool = False,
    ) -> Awaitable[bool] | bool:
        """Write a record as `put` does, in a transaction of the store: in the `also` of its `lease` or `release`."""

    async def get(self, kind: str, owner: str, id: str) -> dict[str, Any] | None: ...

    async def find(self, kind: str, id: str) -> tuple[str, dict[str, Any]] | None:
        """Return the owner and the data of a record by its id, for any owner."""

    async def list(
        self, kind: str, owner: str | None = None, *, after: str = "", limit: int = 1000
    ) -> Sequence[Record]:
        """Return records after an id, sorted by id. Without an owner, sort by cursor and start after a cursor."""

    async def delete(self, kind: str, owner: str, id: str) -> bool: ...

    async def add(
        self, kind: str, owner: str, id: str, numbers: Mapping[str, float], facts: Mapping[str, Any] | None = None
    ) -> None:
        """Add to the numbers of a record atomically, and overwrite its other `facts`."""

    async def replace(self, kind: str, owner: str, id: str, before: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
        """Replace the data of a record; return False if it is not `before` any more. It costs less than `add`."""

    async def draw(self, kind: str, owner: str, id: str, least: int, most: int, limit: int) -> int:
        """Add an amount to `used` of a record unless that passes the limit; return the amount, or 0.

        The amount is between `least` and `most`; see `compute_draw`.
        """

    async def take(self, kind: str, id: str) -> tuple[str, dict[str, Any]] | None:
        """Delete a record and return it. Of two concurrent calls, one gets it."""

    async def version(self) -> str:
        """Return a token that changes with every write of a record of the registry (see `VERSIONED_KINDS`)."""

    async def close(self) -> None: ...


def compute_draw(used: int, least: int, most: int, limit: int) -> int:
    """Return the amount to draw from a counter, or 0. The less is left, the closer it is to `least`."""
    return 0 if used + least > limit else max(least, min(most, (limit - used) // DRAWN_SHARE))


def add_numbers(
    row: Mapping[str, Any], numbers: Mapping[str, float], facts: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the data of a record with these numbers added to its own."""
    sums = {name: row.get(name, 0) + number for name, number in numbers.items()}
    return {**row, **(facts or {}), **sums}
