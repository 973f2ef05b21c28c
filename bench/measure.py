"""Shared code of the benchmarks: CPU time of cases in rounds, comparison with a floor, tables and reports."""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter, process_time_ns
from typing import Any, TypeVar

Key = TypeVar("Key")
Prepare = Callable[[], Awaitable[object]]  # sets up a case without being measured; the returned awaitable is measured
Samples = dict[Key, list[float]]  # microseconds, one for each round


async def measure(cases: dict[Key, Prepare], rounds: int) -> Samples[Key]:
    """Return the CPU time of each case in each round. Each round runs all cases, so that noise affects all of them.

    The order differs between rounds and is the same in every run. No case always follows one that leaves caches cold.
    """
    samples: Samples[Key] = {key: [] for key in cases}
    for number in range(-1, rounds):
        for key in Random(number).sample([*cases], len(cases)):
            work = cases[key]()
            gc.collect()
            start = process_time_ns()
            await work
            spent = (process_time_ns() - start) / 1_000
            if number >= 0:  # the first round warms up
                samples[key].append(spent)
    return samples


def share(more: list[float], less: list[float], count: int, times: int = 1) -> list[float]:
    """Return the cost of one unit in each round: the difference that `count` of them make, divided by `count`."""
    return [(a - b) / count * times for a, b in zip(more, less, strict=True)]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure, its floor, and their ratio, or the ratio to another unit."""

    group: str
    case: str
    us: float
    floor_us: float
    ratio: float
    messages: int | None = None
    goal_us: float | None = None

    @property
    def own_us(self) -> float:
        return self.us - self.floor_us

    def to_json(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__slots__} | {"own_us": self.own_us}
        return {key: round(value, 3) if isinstance(value, float) else value for key, value in fields.items()}


def compare(
    group: str, case: str, cost: list[float], floor: list[float], unit: list[float] | None = None, **more: Any
) -> Row:
    ratio = median(a / b for a, b in zip(cost, unit or floor, strict=True))
    return Row(group, case, median(cost), median(floor), ratio, **more)


# -- reporting ------------------------------------------------------------------------------------------------------


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table: the first column is text, the others are numbers."""
    cells = [[*heads], *([_shown(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    print(f"\n{title}")
    for line in cells:
        first, *rest = zip(line, widths, strict=True)
        print(" ", "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]).rstrip())


def _shown(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:,.2f}" if abs(cell) < 10 else f"{cell:,.0f}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def pick(rows: Iterable[dict[str, Any]], *keys: str) -> list[list[object]]:
    return [[row["case"], *(row[key] for key in keys)] for row in rows]


def by_length(rows: Iterable[dict[str, Any]], case: str, key: str) -> list[object]:
    return [row[key] for row in rows if row["case"] == case]


def groups(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["group"], []).append(row)
    return found


Rows = list[dict[str, Any]]


def main(about: str | None, name: str, run: Callable[[bool], Rows], tell: Callable[[Rows], None]) -> None:
    """Run a benchmark with the options of the command line, print its figures and write them to a file."""
    options = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    results = Path(__file__).parent / "results" / f"{name}.json"
    options.add_argument("--quick", action="store_true", help="a few rounds, for a first impression")
    options.add_argument("--json", type=Path, default=results, metavar="FILE", help="write the figures to this file")
    chosen = options.parse_args()
    start = perf_counter()
    gc.collect()
    gc.freeze()  # exclude imported modules from collections
    rows = run(chosen.quick)
    tell(rows)
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}
    report = machine | {"quick": chosen.quick, "seconds": round(perf_counter() - start, 1), "rows": rows}
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    chosen.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"\n{report['seconds']} s; written to {chosen.json}")
