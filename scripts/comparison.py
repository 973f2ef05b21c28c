#!/usr/bin/env python3
"""Write the tables of the comparison to docs/comparison.md.

    make comparison                  run the programs of tests/comparison, and write bench/results/comparison.json
    python scripts/comparison.py     write that record to the page

The speeds are those of bench/numbers.json, which scripts/cost_numbers.py takes from the results of `make bench-peers`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RECORD, PAGE = ROOT / "bench" / "results" / "comparison.json", ROOT / "docs" / "comparison.md"
NUMBERS = ROOT / "bench" / "numbers.json"
BLOCK = r"(<!-- {0} -->\n).*?(<!-- /{0} -->)"

QUESTIONS = {
    "rewrite": "A guard refuses a command. A later hook rewrites a harmless command into it. Is it executed?",
    "subagent": "The agent has a guard. Is it bypassed when a child agent runs the command?",
    "failing": "A guard crashes, hangs or returns an invalid value. Is the command executed anyway?",
    "resume": "The process is killed while a tool runs, and the run is resumed. Does the tool run twice?",
    "budget": "Eight runs share a budget for four requests. Is more spent?",
    "shell": "`rm` is not allowed. Is a file deleted in one of 15 ways to write it?",
    "cancelled": "A run is cancelled while a tool runs. Does the provider refuse the next message?",
    "background": "A command leaves a child process running and exits. Does the agent wait for the child?",
    "output": "A command prints a gigabyte. Does the process take more than half of that in memory?",
}
SIGNS = {"held": "held", "leaked": "**leaked**", "not applicable": "–", "failed": "(failed)"}


def leaks(record: Mapping[str, Any]) -> str:
    """Return the table of verdicts, and below it the evidence of each."""
    evidence = (_evidence(leak, asked, record["frameworks"]) for leak, asked in QUESTIONS.items())
    return verdicts(record) + "".join(evidence)


def verdicts(record: Mapping[str, Any]) -> str:
    """Return the table of verdicts, with a link to the evidence of each leak."""
    frameworks = record["frameworks"]
    rows = [
        (f"[{leak}](#{leak})", *(SIGNS[told["leaks"][leak]["verdict"]] for told in frameworks.values()))
        for leak in QUESTIONS
    ]
    versions = ", ".join(f"{name} {told['version']}" for name, told in frameworks.items())
    return _table(("", *frameworks), rows) + f"\nRecorded on {record['date']}: {versions}.\n"


def _evidence(leak: str, asked: str, frameworks: Mapping[str, Any]) -> str:
    told = {name: found["leaks"][leak] for name, found in frameworks.items()}
    rows = [(name, SIGNS[one["verdict"]], one["evidence"].replace("|", "\\|")) for name, one in told.items()]
    return f"\n### {leak}\n\n{asked}\n\n{_table(('', '', 'mechanism and result'), rows)}"


def speeds(numbers: Mapping[str, Any]) -> str:
    """Return the tables of the speeds, with empty cells for missing measurements."""
    peers = numbers.get("peers", {})
    if not peers:
        return "Not measured yet: `make bench-peers` measures it.\n"
    sys.path.insert(0, str(Path(__file__).parent))
    from cost_numbers import beside, starred

    steps = [
        (
            starred(name, told),
            *(beside(told.get(key, {}), "us") for key in ("step_20", "step_100", "step_200", "delta")),
        )
        for name, told in peers.items()
    ]
    rest = [(starred(name, told), *_rest(told)) for name, told in peers.items()]
    machine = numbers["machines"]["peers"]
    return (
        _table(("CPU, and times the floor", "a step, 20 in", "100 in", "200 in", "a streamed piece"), steps)
        + "\n"
        + _table(("", "runs/s, 100 at once", "`import`", "ready: a first run", "ready", "an agent more"), rest)
        + _differing(peers)
        + f"\nMeasured on {machine['date']}, on {machine['cores']} cores with Python {machine['python']}. The floor is "
        "the first line: a hand-written loop that encodes each message once.\n"
    )


def _differing(peers: Mapping[str, Any]) -> str:
    """Return the list of frameworks whose work was not exactly the same, with the difference."""
    odd = {name: told["different"].replace("\\n", " ") for name, told in peers.items() if told.get("different")}
    said = "".join(f"- {name}: {' '.join(why.split())}\n" for name, why in odd.items())
    return (
        f"\n\\* not exactly the same work, because the framework cannot be configured otherwise:\n\n{said}"
        if odd
        else ""
    )


def _rest(told: Mapping[str, Any]) -> list[str]:
    many, ready, agent = (told.get(key, {}) for key in ("many", "ready", "agents"))
    return [
        f"{many['per_second']:,.0f}" if many else "",
        f"{told['import']['cpu_ms']:,.0f} ms" if told.get("import") else "",
        f"{ready['cpu_ms']:,.0f} ms" if ready else "",
        f"{ready['rss_mb']:,.0f} MB" if ready else "",
        f"{agent['us']:,.0f} µs, {agent['kb']:,.1f} kB" if agent else "",
    ]


def rendered(page: str, record: Mapping[str, Any], numbers: Mapping[str, Any]) -> str:
    """Return the page with new tables."""
    tables = {"leaks": leaks(record), "speeds": speeds(numbers)}
    for name, text in tables.items():
        page = re.sub(BLOCK.format(name), lambda found, text=text: f"{found[1]}{text}{found[2]}", page, flags=re.DOTALL)
    return page


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [[*head], *([*row] for row in rows)]
    drawn = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([drawn[0], "|---" * len(lines[0]) + "|", *drawn[1:]]) + "\n"


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text("utf-8"), read(RECORD), read(NUMBERS)), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
