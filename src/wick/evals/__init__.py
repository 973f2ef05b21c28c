"""Evals: run the cases of a suite with several variants of an agent, score what was done, and compare.

suite = load_suite("refunds.yaml")
recordings = read_recordings(recordings_path("refunds.yaml"))  # of `wick eval run refunds.yaml --record`
report = await run_suite(suite, EvalOptions(recordings=recordings, offline=True))
print(report.to_json())

A case without recorded replies calls the model, or fails with `offline=True`.
"""

from __future__ import annotations

from wick.evals.recording_file import read_recordings as read_recordings
from wick.evals.recording_file import recordings_path as recordings_path
from wick.evals.recording_file import write_recordings as write_recordings
from wick.evals.report import EvalReport as EvalReport
from wick.evals.report import read_report as read_report
from wick.evals.runner import EvalOptions as EvalOptions
from wick.evals.runner import run_suite as run_suite
from wick.evals.scorers import Score as Score
from wick.evals.suite import EvalSuite as EvalSuite
from wick.evals.suite import load_suite as load_suite
from wick.evals.transcript import EvalTranscript as EvalTranscript
