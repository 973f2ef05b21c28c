#!/usr/bin/env python3
"""Write the results of the fault tests to docs/promises.md.

    make test-full                  test each promise in full; each test adds a line to bench/results/faults/
    make soak                       an hour with many users and faults; writes bench/results/soak.json
    python scripts/promises.py      copy the last line of each test to bench/promises.json, and update the page

Results of tests that did not run here are unchanged.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS, KEPT, PAGE = ROOT / "bench" / "results", ROOT / "bench" / "promises.json", ROOT / "docs" / "promises.md"
PICTURE = "![Finished runs, open streams and memory, per minute](images/soak.svg)"
BLOCK = r"(<!-- {0} -->\n).*?(<!-- /{0} -->)"

PROMISES = {
    "R1": "Acknowledged data is neither lost nor duplicated, and no thread becomes unusable.",
    "R2": "Nothing leaks: no process, container, descriptor, temporary file or control group.",
    "R3": "Memory is bounded: growth of at most 64 MB, and 250 MB with 10,000 idle threads and 1,000 idle streams.",
    "R4": "The server stays responsive: event-loop lag of at most 50 ms, `/health` within 100 ms (99 %).",
    "R5": "Under an hour of load, 99.9 % of the runs without faults complete; ready in 2 s after a kill.",
    "R6": "For any fault of a provider, a run ends once, no tool gets partial arguments, and the thread stays valid.",
    "R7": "Cancellation works: one second after a cancel or a time limit, all processes have ended.",
    "S1": "No access without a valid credential, and none to the data of other users.",
    "S2": "File operations stay in the workspace: no escape and no false refusal, also while folders are swapped.",
    "S3": "The sandbox holds, and no secret appears in a child process, a log, a trace or an event.",
    "S4": "Hooks are enforced: a failing guard blocks, any deny wins, and the executed operation is the decided one.",
    "S5": "Bad input never breaks the server: no 5xx, no hang, no script execution, no outbound request.",
    "S6": "Stored bytes are only data: a flipped bit is an error or the same data, never executed code.",
}
OURS = ("promise", "what", "tried", "violated", "seconds", "at")  # of a line; the other keys are figures
SOAKED = ("minutes", "users", "most_streams", "streams_median", "tool_calls_per_second", "store", "faults", "turns",
          "untouched", "share", "touched", "through_kills", "checked_runs", "checked_threads", "effects", "reconnects",
          "answers", "terminal_lines", "lost", "duplicated", "invalid", "leaked", "refused", "ready_p50_ms",
          "ready_p99_ms", "health_p50_ms", "health_p99_ms", "lag_p99_ms", "memory_mb_most",
          "memory_slope_mb_per_minute", "longest_life_minutes", "files_most", "files_idle",
          "files_after")  # fmt: skip


def taken(results: Path, kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored record, updated with newer results."""
    tried = {promise: dict(kept.get("tried", {}).get(promise, {})) for promise in PROMISES}
    for promise, ways in tried.items():
        for line in _lines(results / "faults" / f"{promise}.json"):
            ways[line["what"]] = {key: value for key, value in line.items() if key not in ("promise", "what")}
    soak = kept.get("soak")
    if (results / "soak.json").exists():
        found = json.loads((results / "soak.json").read_text("utf-8"))
        soak = {name: found[name] for name in SOAKED if name in found}
    return {"machine": _machine(), "tried": tried, "soak": soak}


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    text = path.read_text("utf-8") if path.exists() else ""
    yield from map(json.loads, text.splitlines())


def _machine() -> str:
    return f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}"


def promises(record: Mapping[str, Any]) -> str:
    """Return the table of promises, and a table for each of them."""
    rows = [_row(promise, told, record["tried"][promise]) for promise, told in PROMISES.items()]
    head = "| | promise | tried | violated |\n|---|---|---:|---:|\n"
    ways = "".join(_ways(promise, record["tried"][promise]) for promise in PROMISES)
    return f"{head}{''.join(rows)}\nTried on {record['machine']}.\n{ways}"


def _row(promise: str, told: str, ways: Mapping[str, Any]) -> str:
    if not ways:
        return f"| {promise} | {told} | not yet tested in full | |\n"
    tried, violated = (sum(way[key] for way in ways.values()) for key in ("tried", "violated"))
    return f"| [{promise}](#{promise.lower()}) | {told} | {tried:,} | {violated:,} |\n"


def _ways(promise: str, ways: Mapping[str, Any]) -> str:
    if not ways:
        return ""
    lines = [f"| {what} | {way['tried']:,} | {way['violated']:,} | {_measured(way)} |\n" for what, way in ways.items()]
    return f"\n### {promise}\n\n| | tried | violated | measured |\n|---|---:|---:|---|\n{''.join(lines)}"


def _measured(way: Mapping[str, Any]) -> str:
    own = [f"{name.replace('_', ' ')} {value}" for name, value in way.items() if name not in OURS]
    return ", ".join([*own, way["at"][:10]])


def soaked(record: Mapping[str, Any]) -> str:
    """Return the report of the last long soak."""
    if not record["soak"]:
        return "Not soaked for an hour yet.\n"
    rows = (f"| {name.replace('_', ' ')} | {_said(value)} |\n" for name, value in record["soak"].items())
    return f"{PICTURE}\n\n| | |\n|---|---|\n{''.join(rows)}"


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {count:,}" for name, count in sorted(value.items())) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


def rendered(page: str, record: Mapping[str, Any]) -> str:
    """Return the page with new tables."""
    for name, text in {"promises": promises(record), "soak": soaked(record)}.items():
        page = re.sub(BLOCK.format(name), lambda found, text=text: f"{found[1]}{text}{found[2]}", page, flags=re.DOTALL)
    return page


if __name__ == "__main__":
    record = taken(RESULTS, json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {})
    KEPT.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(rendered(PAGE.read_text("utf-8"), record), encoding="utf-8")
    print(f"wrote {KEPT.name} and {PAGE.name}")
