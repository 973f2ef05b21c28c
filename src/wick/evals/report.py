"""Reports: the results of a suite by case and variant, regressions, and the comparison with an earlier report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from wick.constants import EVAL_TEXT_CHARS
from wick.errors import ConfigError
from wick.evals.transcript import Decided, EvalTranscript
from wick.testing.redaction import RecordingRedactor, find_secret_values

# They fail a case, but are not in its score: it is the same while a case is recorded and when it is replayed.
REPLAY_CHECKS = ("recording", "requests", "judge recording", "judge requests")
REQUEST_CHECKS = {"requests", "judge requests"}


UNKNOWN_COST = "Costs without a figure are unknown: the price of the model is not known."
NO_SCORE = "Variants with changed requests or incomplete recordings have no score: it would be that of other replies."


class _ReportModel(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)


class EvalCheck(_ReportModel):
    """The result of one expectation."""

    name: str
    passed: bool
    score: float = 1.0
    detail: str = ""


class EvalCall(_ReportModel):
    """One tool call of a run."""

    tool: str
    args: dict[str, Any] = Field(default_factory=dict)
    decision: Decided
    asked: bool = False
    hook: str = ""
    reason: str = ""
    output: str = ""
    failed: bool = False


EvalVerdict = Literal["passed", "changed", "failed", "regressed", "known_failure"]
VERDICTS: dict[EvalVerdict, str] = {  # in a table
    "passed": "pass",
    "changed": "CHANGED",
    "failed": "FAIL",
    "regressed": "REGRESSED",
    "known_failure": "known failure",
}


class EvalCaseResult(_ReportModel):
    """The result of one case with one variant.

    The verdict `changed` means that only the requests differ from the recorded ones: the recorded replies say nothing
    about them.
    """

    passed: bool
    verdict: EvalVerdict = "passed"
    score: float
    checks: list[EvalCheck]
    outcome: str
    reason: str = ""
    text: str = ""
    calls: list[EvalCall] = Field(default_factory=list)
    steps: int = 0
    tokens: int = 0
    cost: float | None = None

    @model_validator(mode="after")
    def _set_verdict(self) -> Self:
        """Derive the verdict from the checks, also for a report of an earlier version. A baseline may change it."""
        if "verdict" not in self.model_fields_set and not self.passed:
            self.verdict = "changed" if self.has_only_changed_requests else "failed"
        return self

    @property
    def replay_failures(self) -> list[str]:
        """The failed checks, if the score leaves out all of them. It would be that of a case that passes."""
        failed = [check.name for check in self.checks if not check.passed]
        return failed if {*failed} <= {*REPLAY_CHECKS} else []

    @property
    def has_only_changed_requests(self) -> bool:
        """Return True if the result fails, and only because its requests differ from the recorded ones."""
        failed = {check.name for check in self.checks if not check.passed}
        return not self.passed and bool(failed) and failed <= REQUEST_CHECKS


class EvalCaseRow(_ReportModel):
    """The results of one case, by variant."""

    id: str
    input: str
    thread: str = ""
    results: dict[str, EvalCaseResult] = Field(default_factory=dict)


class EvalVariantSummary(_ReportModel):
    """The totals of one variant."""

    name: str
    agent: str
    passed: int
    failed: int
    score: float
    tokens: int
    cost: float | None


class EvalRegression(_ReportModel):
    """A case that fails with a variant, and passes with the first variant or in the baseline report."""

    case: str
    variant: str
    against: Literal["variant", "baseline"]
    reference: str
    detail: str


class EvalReport(_ReportModel):
    """The results of a suite. The same recordings give the same bytes of JSON."""

    version: Literal[1] = 1
    suite: str
    partial: bool = False
    planned: int = 0
    variants: list[EvalVariantSummary] = Field(default_factory=list)
    regressions: list[EvalRegression] = Field(default_factory=list)
    cases: list[EvalCaseRow] = Field(default_factory=list)

    @property
    def finished(self) -> int:
        """The number of results."""
        return sum(len(case.results) for case in self.cases)

    @property
    def failed(self) -> int:
        """The number of results that do not pass."""
        return sum(variant.failed for variant in self.variants)

    def to_json(self) -> str:
        """Return the report as JSON text."""
        return self.model_dump_json(indent=2) + "\n"


def build_case_result(
    transcript: EvalTranscript, checks: Sequence[EvalCheck], redactor: RecordingRedactor
) -> EvalCaseResult:
    """Return the result of a case, without secrets.

    Its score is the mean of its checks, without those that only a replay has.
    """
    secrets = [*find_secret_values([call.args for call in transcript.calls])]

    def show(text: str) -> str:
        return shorten_text(redactor.redact_json(text, secrets))

    scores = [check.score for check in checks if check.name not in REPLAY_CHECKS] or [check.score for check in checks]
    score = sum(scores) / len(scores) if scores else 1.0
    return EvalCaseResult(
        passed=all(check.passed for check in checks),
        score=round(score, 4),
        checks=[check.model_copy(update={"detail": show(check.detail)}) for check in checks],
        outcome=transcript.outcome,
        reason=show(transcript.reason),
        text=show(transcript.text),
        calls=[
            EvalCall(
                tool=call.tool,
                args={
                    name: _shorten_argument(value) for name, value in redactor.redact_json(call.args, secrets).items()
                },
                decision=call.decision,
                asked=call.asked,
                hook=call.hook,
                reason=show(call.reason),
                output=show(call.output),
                failed=call.failed,
            )
            for call in transcript.calls
        ],
        steps=transcript.steps,
        tokens=transcript.usage.total_tokens,
        cost=None if transcript.price is None else round(float(transcript.price), 9),
    )


def _shorten_argument(value: Any) -> Any:
    """Return an argument of a call. If it is long, it is the beginning of its text or of its JSON."""
    if isinstance(value, str):
        return shorten_text(value)
    if not isinstance(value, dict | list):
        return value
    text = json.dumps(value, ensure_ascii=False, default=str)
    return value if len(text) <= EVAL_TEXT_CHARS else shorten_text(text)


def shorten_text(text: str) -> str:
    """Return a text, cut to the length that a report shows."""
    if len(text) <= EVAL_TEXT_CHARS:
        return text
    return f"{text[:EVAL_TEXT_CHARS]}… ({len(text) - EVAL_TEXT_CHARS:,} more characters)"


def summarize_variant(name: str, agent: str, cases: Sequence[EvalCaseRow]) -> EvalVariantSummary:
    """Return the totals of a variant. The cost is None if one result has no known price."""
    results = [case.results[name] for case in cases if name in case.results]
    costs = [result.cost for result in results]
    known = [cost for cost in costs if cost is not None]
    passed = sum(result.passed for result in results)
    return EvalVariantSummary(
        name=name,
        agent=agent,
        passed=passed,
        failed=len(results) - passed,
        score=round(sum(result.score for result in results) / len(results), 4) if results else 0.0,
        tokens=sum(result.tokens for result in results),
        cost=round(sum(known), 9) if len(known) == len(costs) and costs else None,
    )


def find_regressions(report: EvalReport, baseline: EvalReport | None = None) -> list[EvalRegression]:
    """Return the cases that fail, although they pass with the first variant or in a baseline report.

    A known failure is not a regression. Neither is a changed request.
    """
    found, first = list[EvalRegression](), report.variants[0].name if report.variants else ""
    known = find_known_failures(report, baseline)
    failed = [
        (case, name, result)
        for case in report.cases
        for name, result in case.results.items()
        if not result.passed and result.verdict != "changed" and (case.id, name) not in known
    ]
    for case, name, result in failed:
        reference = case.results.get(first)
        if reference is not None and reference.passed:
            found.append(_make_regression(case.id, name, "variant", first, result))
    if baseline is not None:
        passed = _select_results(baseline, passed=True)
        for case, name, result in failed:
            if (case.id, name) in passed:
                found.append(_make_regression(case.id, name, "baseline", baseline.suite, result))
    return found


def compare_results(report: EvalReport, baseline: EvalReport | None) -> None:
    """Find the regressions of a report, and give its results the verdicts `regressed` and `known_failure`."""
    report.regressions = find_regressions(report, baseline)
    verdicts: dict[tuple[str, str], EvalVerdict] = {(one.case, one.variant): "regressed" for one in report.regressions}
    verdicts |= dict.fromkeys(find_known_failures(report, baseline), "known_failure")
    for case in report.cases:
        for name, result in case.results.items():
            result.verdict = verdicts.get((case.id, name), result.verdict)


def count_verdicts(report: EvalReport) -> Counter[EvalVerdict]:
    """Return the number of results with each verdict."""
    return Counter(result.verdict for case in report.cases for result in case.results.values())


def list_unscored_variants(report: EvalReport) -> set[str]:
    """Return the variants with results that fail only because they differ from their recordings."""
    return {
        name
        for case in report.cases
        for name, result in case.results.items()
        if result.verdict == "changed" or result.replay_failures
    }


def find_known_failures(report: EvalReport, baseline: EvalReport | None) -> set[tuple[str, str]]:
    """Return the cases and variants that fail in a report and in its baseline.

    A result of the baseline with changed requests only is left out: its expectations were met.
    """
    if baseline is None:
        return set()
    changed = {
        (case.id, name)
        for case in baseline.cases
        for name, result in case.results.items()
        if result.has_only_changed_requests
    }
    return _select_results(report, passed=False) & _select_results(baseline, passed=False) - changed


def _select_results(report: EvalReport, *, passed: bool) -> set[tuple[str, str]]:
    rows = ((case.id, name, result) for case in report.cases for name, result in case.results.items())
    return {(case, name) for case, name, result in rows if result.passed is passed}


def _make_regression(
    case: str, variant: str, against: Literal["variant", "baseline"], reference: str, result: EvalCaseResult
) -> EvalRegression:
    detail = "; ".join(describe_check(check) for check in result.checks if not check.passed)
    return EvalRegression(case=case, variant=variant, against=against, reference=reference, detail=detail)


def describe_check(check: EvalCheck) -> str:
    """Return a check as one line."""
    return f"{check.name}: {check.detail}" if check.detail else check.name


def format_spending(one: EvalCaseResult | EvalVariantSummary) -> list[str]:
    """Return the tokens of a result or of a variant, and its cost in dollars if it is known."""
    return [f"{one.tokens:,} tokens", *([] if one.cost is None else [format_cost(one.cost)])]


def format_cost(cost: float) -> str:
    """Return a cost in dollars: with four decimals, or two significant digits if it is small."""
    return f"${cost:.4f}" if cost == 0 or cost >= 0.001 else f"${Decimal(f'{cost:.2g}'):f}"


def read_report(path: Path) -> EvalReport:
    """Return the report of a JSON file; raise a ConfigError if it is not one."""
    try:
        return EvalReport.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}; write one with: wick eval run … --output {path}") from None
    except ValidationError as problem:
        error = problem.errors(include_url=False)[0]
        where = ".".join(map(str, error["loc"])) or "the file"
        raise ConfigError(f"{path} is not a report of `wick eval run --output`: {where}: {error['msg']}") from None
