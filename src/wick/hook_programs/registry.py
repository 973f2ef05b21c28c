"""What discovery found, and how it is listed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from wick.hook_programs.failure_policy import Fail

Protocol = Literal["run", "lines", "settings"]
Standing = Literal["trusted", "untrusted", "changed"]


def _stands() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Found:
    """A program that hooks something.

    `points` are the names that it gave itself. `check` says what is wrong with its file now, as the rest of a
    sentence, or nothing; it is asked before each call.
    """

    name: str
    path: Path
    source: str = ""
    points: tuple[str, ...] = ()
    protocol: Protocol = "run"
    trust: Standing = "trusted"
    fail: Fail | None = None
    problem: str = ""
    match: str | None = None
    tools: tuple[Mapping[str, Any], ...] = ()  # that it brings: name, description, parameters
    check: Callable[[], str] = field(default=_stands, repr=False, compare=False)

    @property
    def trusted(self) -> bool:
        return self.trust == "trusted"


@dataclass(frozen=True, slots=True)
class Listed:
    """One row of a list of hooks."""

    name: str
    source: str
    trust: Standing = "trusted"
    point: str = ""  # wick's name of it, or empty where nobody knows
    event: str = ""  # as the program, or its settings, call it
    ring: int = 0  # the place among the programs, 0 is the outermost
    priority: float = 0
    fail: str = ""  # "open" and "closed", where somebody chose it; "closed" for what decides
    problem: str = ""
