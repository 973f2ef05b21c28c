#!/usr/bin/env python3
"""Write the figures of the benchmarks to docs/costs.md.

    make bench                        measure, and write bench/results/*.json, which are not committed
    python scripts/cost_numbers.py    copy some figures to bench/numbers.json, which is committed, and to the page

Figures of benchmarks that were not run here are unchanged. Quick runs do not count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS, KEPT, PAGE = ROOT / "bench" / "results", ROOT / "bench" / "numbers.json", ROOT / "docs" / "costs.md"
BLOCK = re.compile(r"(<!-- numbers -->\n).*?(<!-- /numbers -->)", re.DOTALL)

FLOOR, SDK, OURS = "bare aiohttp + orjson", "the vendor's SDK", "wick's client"
# name → file, rows that count, the field
PICKED: dict[str, tuple[str, dict[str, Any], str]] = {
    **{f"call {count} {case}": ("models", {"group": "call", "case": case, "messages": count}, "us")
       for count in (20, 200) for case in (OURS, FLOOR, SDK)},
    **{f"delta {case}": ("models", {"group": "delta", "case": case, "pace": "burst"}, "us")
       for case in (OURS, FLOOR, SDK)},
    "program kept": ("executables", {"group": "call", "case": "Python, long-running", "in_flight": 1}, "p50_ms"),
    "program started": (
        "executables",
        {"group": "call", "case": "Python, started each time", "in_flight": 1},
        "p50_ms",
    ),
    "memory": ("server", {"group": "memory", "case": "10,000 threads and 1,000 streams"}, "megabytes"),
    "event": ("server", {"group": "burst", "case": "wick"}, "us"),
    "event bare": ("server", {"group": "burst", "case": "bare"}, "us"),
}  # fmt: skip
CASES = ("import", "ready", "step_20", "step_100", "step_200", "many", "delta", "agents")
PROSE = """
A hook program responds in {program_kept} if it stays running, and in {program_started} if Python is started each time.
The server uses {event} of CPU per streamed chunk (a bare response without users, runs and a log: {event_bare}).
It uses {memory:.0f} MB of memory with 10,000 threads and 1,000 open streams.
"""
HOW = "\nMeasured on {}, by `make bench` ([how](../bench/README.md)). Compare ratios, not microseconds.\n"


def taken(results: Path, kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored figures, updated with new measurements."""
    figures, machines = dict(kept.get("figures", {})), dict(kept.get("machines", {}))
    for name, (file, row, field) in PICKED.items():
        if found := _read(results / f"{file}.json"):
            figures[name] = next(one[field] for one in found["rows"] if row.items() <= one.items())
            machines[file] = {"python": found["python"], "cores": found["cpus"]}
    peers = kept.get("peers", {})
    if found := _read(results / "peers.json"):
        peers = {name: _peer(told) for name, told in found["peers"].items()}
        machines["peers"] = {key: found[key] for key in ("python", "cores", "date")}
    return {"machines": machines, "figures": figures, **({"peers": peers} if peers else {})}


def _read(path: Path) -> dict[str, Any] | None:
    found: dict[str, Any] | None = json.loads(path.read_text("utf-8")) if path.exists() else None
    return None if found is None or found.get("quick") else found


def _peer(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of one framework, and the difference of its work."""
    about = {"version": told.get("version", ""), "different": told.get("different", "")}
    return about | {key: told[key] for key in CASES if told.get(key)}


def rendered(numbers: Mapping[str, Any]) -> str:
    """Return the figures as text of the page."""
    figures = numbers["figures"]
    named = {name: figures.get(name) for name in PICKED}
    if None in named.values():
        return ""
    wide = [(what, *(_time(named[f"{key} {case}"]) for case in (OURS, FLOOR, SDK))) for what, key in (
        ("CPU per model call, 20 messages in the conversation", "call 20"),
        ("the same, 200 messages", "call 200"),
        ("CPU per streamed chunk", "delta"),
    )]  # fmt: skip
    text = _table(("", "wick's client", "a bare aiohttp loop", "the OpenAI SDK"), wide)
    times = {"program kept": 1_000, "program started": 1_000, "event": 1, "event bare": 1}
    told = {name.replace(" ", "_"): _time(scale * named[name]) for name, scale in times.items()}
    text += PROSE.format(**told, memory=named["memory"])
    return text + _how(numbers["machines"])


def starred(name: str, told: Mapping[str, Any]) -> str:
    """Return the name of a framework, with a star if its work was not exactly the same."""
    return f"{name} \\*" if told.get("different") else name


def beside(case: Mapping[str, Any], field: str) -> str:
    """Return a time, and its ratio to the floor."""
    if field not in case:
        return ""
    ratio = case.get("ratio", 0.0)
    times = f" ({ratio:,.0f}×)" if ratio >= 10 else f" ({ratio:.1f}×)" if ratio else ""
    return _time(case[field] * (1_000 if field == "cpu_ms" else 1)) + times


def _how(machines: Mapping[str, Any]) -> str:
    said = sorted({f"{one['cores']} cores, Python {one['python']}" for one in machines.values()})
    return HOW.format(" and ".join(said))


def _time(us: float) -> str:
    return f"{us / 1_000:,.0f} ms" if us >= 10_000 else f"{us / 1_000:.2g} ms" if us >= 100 else f"{us:.0f} µs"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [[*head], *([*row] for row in rows)]
    drawn = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([drawn[0], "|---" * len(lines[0]) + "|", *drawn[1:]]) + "\n"


if __name__ == "__main__":
    numbers = taken(RESULTS, json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {})
    KEPT.write_text(json.dumps(numbers, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    text = PAGE.read_text("utf-8")
    PAGE.write_text(BLOCK.sub(lambda found: f"{found[1]}{rendered(numbers)}{found[2]}", text), encoding="utf-8")
    print(f"wrote {KEPT.name} and {PAGE.name}")
