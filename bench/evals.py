"""Measure evals: cases per minute with recorded replies, by the number of jobs and the size of a case.

    python bench/evals.py            # 1,000 cases of each kind, about half a minute
    python bench/evals.py --quick    # a few seconds

Times are wall time of `run_suite`, with three steps and two tool uses in each case. The report is written as JSON and
HTML in the same time.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from measure import Rows, main, table

from wick import Agent, Block, ToolUse, guard, tool
from wick.evals import EvalOptions, EvalSuite, run_suite
from wick.evals.html_report import render_html

GOAL = 1_000  # cases per minute


@tool
def lookup(order: int) -> str:
    """Look up an order."""
    return str(order)


@tool
def refund(order: int, amount: int) -> str:
    """Refund money."""
    return "refunded"


@guard(ToolUse, match="refund")
def no_large_sums(use: ToolUse) -> Block | None:
    return Block("too much") if use.args["amount"] > 100 else None


agent = Agent("openai:none", system="You are support.", tools=[lookup, refund], hooks=[no_large_sums])


def make_case(number: int, history: int) -> dict[str, Any]:
    """Return a case with three recorded replies, two recorded results, and the messages of an earlier conversation."""
    roles = ("user", "assistant")
    earlier = [{"role": roles[at % 2], "content": f"message {at} of case {number}"} for at in range(history)]
    return {
        "id": f"case-{number}",
        "messages": earlier,
        "input": f"Refund order {number}.",
        "replies": [
            {"calls": [{"tool": "lookup", "args": {"order": number}}]},
            {"calls": [{"tool": "refund", "args": {"order": number, "amount": 20}}]},
            "Done.",
        ],
        "results": [{"tool": "lookup", "output": "20 dollars"}, {"tool": "refund", "output": "refunded"}],
        "expect": {"order": ["lookup", "refund"], "blocked": [], "text": "Done", "max_steps": 3},
    }


async def measure_suite(cases: int, jobs: int, history: int) -> dict[str, Any]:
    rows = [make_case(number, history) for number in range(cases)]
    suite = EvalSuite.model_validate({"name": "bench", "variants": {"base": "evals:agent"}, "cases": rows})
    start = perf_counter()
    report = await run_suite(suite, EvalOptions(folder=Path(__file__).parent, jobs=jobs))
    pages = len(report.to_json()) + len(render_html(report))
    seconds = perf_counter() - start
    assert not report.failed and pages
    return {
        "group": "evals",
        "case": f"{jobs} jobs, {history} earlier messages",
        "cases": cases,
        "seconds": round(seconds, 3),
        "per_minute": round(cases / seconds * 60),
        "goal": GOAL,
    }


def run(quick: bool) -> Rows:
    sys.modules.setdefault("evals", sys.modules[__name__])
    cases = 100 if quick else 1_000
    kinds = [(1, 0), (8, 0), (64, 0), (8, 100)]
    return [asyncio.run(measure_suite(cases, jobs, history)) for jobs, history in kinds]


def tell(rows: Rows) -> None:
    lines = [[row["case"], row["cases"], row["seconds"], row["per_minute"]] for row in rows]
    table(f"cases with recorded replies (goal {GOAL:,} in a minute)", ("", "cases", "s", "per minute"), lines)


if __name__ == "__main__":
    main(__doc__, "evals", run, tell)
