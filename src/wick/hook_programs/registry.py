"""Discovered hook programs, and their rows in lists of hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from wick.hook_programs.failure_policy import Fail

Protocol = Literal["run", "lines", "settings"]
TrustState = Literal["trusted", "untrusted", "changed"]


@dataclass(frozen=True, slots=True)
class HookProgram:
    """A discovered hook program.

    `points` are the names that it declared. `check` runs before each call and returns a problem of its file, which
    continues a sentence, or an empty text.
    """

    name: str
    path: Path
    source: str = ""
    points: tuple[str, ...] = ()
    protocol: Protocol = "run"
    trust: TrustState = "trusted"
    fail: Fail | None = None
    problem: str = ""
    match: str | None = None
    tools: tuple[Mapping[str, Any], ...] = ()  # tools of the program: name, description, parameters
    check: Callable[[], str] = field(default=lambda: "", repr=False, compare=False)

    @property
    def trusted(self) -> bool:
        return self.trust == "trusted"


@dataclass(frozen=True, slots=True)
class HookRow:
    """A row in a list of hooks."""

    name: str
    source: str
    trust: TrustState = "trusted"
    point: str = ""  # wick's name of the point, or empty if it is unknown
    event: str = ""  # the name in the program or its settings
    ring: int = 0  # position among the programs; 0 is the outermost
    priority: float = 0
    fail: str = ""  # "open" or "closed" if configured; "closed" for deciding programs
    problem: str = ""
