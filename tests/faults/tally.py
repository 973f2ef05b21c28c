"""Count attempts and violations of a promise, report them, and fail if there were any.

    with Tally("R1", "power cuts") as tally:
        for number in range(200):
            with tally.trying(f"cut {number}"):
                ...  # whatever fails in here is one violation

prints `R1 power cuts: tried 200, violated 0`. With WICK_FULL a line of JSON goes to bench/results/faults/R1.json,
unless the fault was planted (`planted=True`), for then it says nothing about wick.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

FULL = bool(os.environ.get("WICK_FULL"))
RESULTS = Path(__file__).parents[2] / "bench" / "results" / "faults"
SHOWN = 5


class Violated(AssertionError):
    """A promise was violated."""


@dataclass
class Tally:
    """One promise and one way to try it: the number of attempts, and the violations."""

    promise: str
    what: str
    planted: bool = False
    tried: int = 0
    violations: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def check(self, kept: object, why: str) -> bool:
        """Count one attempt, with a message if it failed."""
        self.tried += 1
        if not kept:
            self.violations.append(why)
        return bool(kept)

    @contextmanager
    def trying(self, label: str = "") -> Iterator[None]:
        """Count one attempt; an exception inside is a violation, and the next attempt follows."""
        self.tried += 1
        try:
            yield
        except Exception as error:
            self.violations.append(f"{label}: {type(error).__name__}: {error}")

    def note(self, **figures: Any) -> None:
        """Add measured figures to the report."""
        self.figures |= figures

    def show_progress(self) -> None:
        """Print the counts so far, so that the log of a long test shows where it is."""
        self._say()

    def __enter__(self) -> Tally:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self.end()

    def end(self) -> None:
        """Report and store the result; raise if a violation occurred or nothing was tried."""
        self._say()
        if FULL and not self.planted:
            self._keep()
        if not self.tried:
            raise Violated(f"{self.promise} {self.what}: nothing was tried")
        if self.violations:
            shown = "\n".join(self.violations[:SHOWN])
            raise Violated(f"{self.promise} {self.what}: violated {len(self.violations)} of {self.tried}\n{shown}")

    def _say(self) -> None:
        figures = "".join(f", {name} {value}" for name, value in self.figures.items())
        print(f"{self.promise} {self.what}: tried {self.tried}, violated {len(self.violations)}{figures}", flush=True)

    def _keep(self) -> None:
        RESULTS.mkdir(parents=True, exist_ok=True)
        said = {
            "promise": self.promise,
            "what": self.what,
            "tried": self.tried,
            "violated": len(self.violations),
            "seconds": round(time.monotonic() - self.began, 1),
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            **self.figures,
        }
        with (RESULTS / f"{self.promise}.json").open("a") as file:
            file.write(json.dumps(said) + "\n")
