"""A refund agent for tests of evals, and a suite with recorded replies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wick import Agent, Ask, Block, ToolUse, after, guard, tool
from wick.evals.report import EvalReport
from wick.evals.runner import EvalOptions, run_suite
from wick.evals.suite import EvalSuite
from wick.evals.transcript import EvalTranscript

executed: list[str] = []
MODEL = "openai:no-such-model"  # no request reaches it: replies are recorded


@tool
def lookup(order: int) -> str:
    """Look up an order."""
    executed.append("lookup")
    return f"order {order}: 20 dollars"


@tool
def refund(order: int, amount: int, note: str = "none") -> str:
    """Refund money."""
    executed.append("refund")
    return "refunded"


@guard(ToolUse, match="refund")
def check_amount(use: ToolUse) -> Ask | Block | None:
    if use.args["amount"] > 100:
        return Block("more than 100 needs a person")
    return Ask(f"Refund {use.args['amount']}?") if use.args["amount"] > 50 else None


@after(ToolUse, match="lookup")
def redact_output(use: ToolUse) -> None:
    use.result.output = use.result.output.replace("dollars", "USD")


agent = Agent(MODEL, system="You are support.", tools=[lookup, refund], hooks=[check_amount, redact_output])
unguarded = agent.without_hooks("check_amount")


def make_agent() -> Agent:
    return agent


def quick_scorer(done: EvalTranscript) -> bool:
    return done.steps <= 3


async def half_scorer(done: EvalTranscript) -> float:
    return 0.4


def broken_scorer(done: EvalTranscript) -> float:
    raise RuntimeError("no score")


def make_deps() -> dict[str, int]:
    return {"limit": 5}


def broken_deps() -> object:
    raise RuntimeError("no deps")


SMALL: dict[str, Any] = {
    "id": "small",
    "input": "Refund order 7.",
    "replies": [
        {"calls": [{"tool": "lookup", "args": {"order": 7}}]},
        {"calls": [{"tool": "refund", "args": {"order": 7, "amount": 20}}]},
        "Done: 20 dollars.",
    ],
    "results": [
        {"tool": "lookup", "output": "order 7: 20 dollars"},
        {"tool": "refund", "args": {"order": 7, "amount": 20}, "output": "refunded"},
    ],
    "expect": {"calls": ["lookup", "refund"], "blocked": [], "text": "Done"},
}
LARGE: dict[str, Any] = {
    "id": "large",
    "input": "Refund 2,000.",
    "replies": [{"calls": [{"tool": "refund", "args": {"order": 7, "amount": 2000}}]}, "I may not."],
    "results": [{"tool": "refund", "output": "refunded"}],
    "expect": {"blocked": ["refund"]},
}


def make_suite(*cases: dict[str, Any], **options: Any) -> EvalSuite:
    data = {"name": "shop", "variants": {"base": "eval_shop:agent"}, "cases": [*(cases or (SMALL, LARGE))], **options}
    return EvalSuite.model_validate(data)


async def run_cases(*cases: dict[str, Any], **options: Any) -> EvalReport:
    """Run cases in this process; no tool is executed."""
    executed.clear()
    return await run_suite(make_suite(*cases, **options), EvalOptions(folder=Path(__file__).parent))


def failed_checks(report: EvalReport, case: str = "small", variant: str = "base") -> dict[str, str]:
    """Return the failed checks of a case, with their details."""
    found = next(row for row in report.cases if row.id == case)
    return {check.name: check.detail for check in found.results[variant].checks if not check.passed}
