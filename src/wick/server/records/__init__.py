"""The server's own small facts: users, sessions, runs, tickets, counters. Rows of JSON by kind, owner and id.

    await records.put("agent", user.id, "helper", {"model": "auto"})
    await records.get("agent", user.id, "helper")

What returns is on disk. A row with `until` is gone when that time has come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Record:
    """One fact. `cursor` is where a list over all owners goes on."""

    owner: str
    id: str
    data: dict[str, Any]

    @property
    def cursor(self) -> str:
        return f"{self.owner}/{self.id}"


class Records(Protocol):
    """A place for rows of JSON. Somebody else's row is not there."""

    async def put(
        self, kind: str, owner: str, id: str, data: Mapping[str, Any], *, new: bool = False, until: float = 0.0
    ) -> bool:
        """Keep a row in place of the one before. With `new`, only if there is none: False if there was."""

    async def get(self, kind: str, owner: str, id: str) -> dict[str, Any] | None: ...

    async def find(self, kind: str, id: str) -> tuple[str, dict[str, Any]] | None:
        """A row whoever owns it: its owner and what it says."""

    async def list(
        self, kind: str, owner: str | None = None, *, after: str = "", limit: int = 1000
    ) -> Sequence[Record]:
        """Rows in the order of their ids, after that id; of all owners, in the order of their cursors after that."""

    async def delete(self, kind: str, owner: str, id: str) -> bool: ...

    async def add(
        self, kind: str, owner: str, id: str, numbers: Mapping[str, float], facts: Mapping[str, Any] | None = None
    ) -> None:
        """Add to the numbers of a row, all at once; facts stand beside them as they were said last."""

    async def take(self, kind: str, id: str) -> tuple[str, dict[str, Any]] | None:
        """A row and its end: of two who take it one gets it."""

    async def close(self) -> None: ...


def add_numbers(
    row: Mapping[str, Any], numbers: Mapping[str, float], facts: Mapping[str, Any] | None
) -> dict[str, Any]:
    """A row with these numbers added to its own."""
    sums = {name: row.get(name, 0) + number for name, number in numbers.items()}
    return {**row, **(facts or {}), **sums}
