"""Evals: run the cases of a suite with several variants of an agent, score what was done, and compare.

suite = load_suite("refunds.yaml")
report = await run_suite(suite, EvalOptions(folder=Path(".")))
print(report.to_json())
"""

from __future__ import annotations

from wick.evals.report import EvalReport as EvalReport
from wick.evals.report import read_report as read_report
from wick.evals.runner import EvalOptions as EvalOptions
from wick.evals.runner import run_suite as run_suite
from wick.evals.scorers import Score as Score
from wick.evals.suite import EvalSuite as EvalSuite
from wick.evals.suite import load_suite as load_suite
from wick.evals.transcript import EvalTranscript as EvalTranscript
