"""Planted regressions: a changed prompt, tool or guard is found each time. Reports are compared with earlier ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

import eval_shop
from eval_shop import LARGE, SMALL, agent, failed_checks, lookup, make_suite, refund, run_cases
from wick import Agent, Block, FunctionModel, Scripted, Tool, ToolCall, ToolUse, guard, tool
from wick.errors import ConfigError
from wick.evals.recording_file import Recordings
from wick.evals.report import (
    EvalReport,
    compare_results,
    count_verdicts,
    find_known_failures,
    find_regressions,
    format_cost,
    read_report,
)
from wick.evals.runner import EvalOptions, run_suite

FOLDER = Path(eval_shop.__file__).parent
ROUNDS = 20


async def record(**options: Any) -> Recordings:
    """Record the requests of the suite, as they are before a regression."""
    recorded = EvalOptions(folder=FOLDER, record=True)
    await run_suite(make_suite(**options), recorded)
    return recorded.recordings


async def find_failures(planted: Agent, recordings: Recordings, **options: Any) -> dict[str, str]:
    """Return the failed checks of both cases with a planted regression."""
    eval_shop.planted = planted  # type: ignore[attr-defined]
    suite = make_suite(variants={"base": "eval_shop:planted"}, **options)
    report = await run_suite(suite, EvalOptions(folder=FOLDER, recordings=recordings))
    small, large = failed_checks(report, "small"), failed_checks(report, "large")
    return {name: "; ".join(found[name] for found in (small, large) if name in found) for name in {**small, **large}}


def build_replies(case: dict[str, Any]) -> list[Any]:
    """Return the replies of a case for a scripted model."""
    rows = (row if isinstance(row, str) else row["calls"] for row in case["replies"])
    return [
        row if isinstance(row, str) else [ToolCall(str(at), one["tool"], one["args"]) for one in row]
        for at, row in enumerate(rows)
    ]


def change_prompt(random: Random) -> Agent:
    """Change one character of the prompt."""
    place, letter = random.randrange(len(agent.system)), random.choice("xyz#!")
    return agent.with_options(system=agent.system[:place] + letter + agent.system[place + 1 :])


def _with_lookup(changed: Tool) -> Agent:
    hooks = [eval_shop.check_amount, eval_shop.redact_output]
    return Agent(eval_shop.MODEL, system=agent.system, tools=[changed, refund], hooks=hooks)


def change_tool(random: Random) -> Agent:
    """Change the description, the parameters or the name of a tool."""

    def renamed(order_id: int) -> str:
        """Look up an order."""
        return ""

    def retyped(order: str) -> str:
        """Look up an order."""
        return ""

    changes = [
        replace(lookup, description=f"Look up order {random.randrange(1000)}."),
        tool(renamed, name="lookup"),
        tool(retyped, name="lookup"),
        lookup.renamed("look_up"),
    ]
    return _with_lookup(random.choice(changes))


def change_result(random: Random) -> Agent:
    """Change the result that a tool computes."""
    amount = random.randrange(21, 1000)

    def lookup(order: int) -> str:
        """Look up an order."""
        return f"order {order}: {amount} dollars"

    return _with_lookup(tool(lookup))


def change_guard(random: Random) -> Agent:
    """Remove the guard, or another hook."""
    return agent.without_hooks(random.choice(["check_amount", "redact_output"]))


@pytest.mark.parametrize("plant", [change_prompt, change_tool, change_guard], ids=lambda plant: plant.__name__)
async def test_a_planted_regression_is_found_each_time(plant: Callable[[Random], Agent]) -> None:
    recordings = await record()
    assert not await find_failures(agent, recordings)
    found = [await find_failures(plant(Random(number)), recordings) for number in range(ROUNDS)]
    assert [bool(failures) for failures in found] == [True] * ROUNDS


async def test_a_changed_result_of_a_real_tool_is_found_each_time() -> None:
    recordings = await record(tools="real")
    assert not await find_failures(agent, recordings, tools="real")
    for number in range(ROUNDS):
        failures = await find_failures(change_result(Random(number)), recordings, tools="real")
        assert "the messages" in failures["requests"]


async def test_a_failure_says_what_changed() -> None:
    recordings = await record()
    assert "the system prompt" in (await find_failures(change_prompt(Random(1)), recordings))["requests"]
    described = replace(lookup, description="Look up.")
    changed = (await find_failures(_with_lookup(described), recordings))["requests"]
    advice = "if the change is intended, record again with --record"
    assert (
        changed.split("; ") == ["the tool lookup ('up an order.' is now 'up.') changed since the recording", advice] * 2
    )
    failures = await find_failures(agent.without_hooks("check_amount"), recordings)
    assert failures["blocked"] == "refund was not blocked"
    change = "refund: 'more than 100 needs a person' is now 'refunded', from request 2"
    assert failures["requests"] == f"the messages ({change}) changed since the recording"


async def test_a_guard_that_stops_a_recorded_call_is_a_regression() -> None:
    """The expectations may be met: recorded replies do not depend on the guard."""
    case = {**SMALL, "replies": [], "results": [], "expect": {"calls": ["lookup", "refund"]}}
    eval_shop.planted = agent.with_options(model=Scripted(*build_replies(SMALL), spare=True))  # type: ignore[attr-defined]
    suite = make_suite(case, variants={"base": "eval_shop:planted"})
    recorded = EvalOptions(folder=FOLDER, record=True)
    await run_suite(suite, recorded)
    before = await run_suite(suite, EvalOptions(folder=FOLDER, recordings=recorded.recordings, offline=True))
    assert not before.failed

    @guard(ToolUse, match="refund")
    def too_strict(use: ToolUse) -> Block:
        return Block("no refunds")

    eval_shop.planted = agent.with_hooks(too_strict)  # type: ignore[attr-defined]
    options = EvalOptions(folder=FOLDER, recordings=recorded.recordings, offline=True, baseline=before)
    after = await run_suite(suite, options)
    assert count_verdicts(after) == {"regressed": 1}
    stopped = "refund ran when the case was recorded, and was blocked: no refunds (too_strict)"
    assert failed_checks(after)["recording"] == stopped


async def test_a_changed_request_is_not_a_regression() -> None:
    recordings = await record()
    before = await run_suite(make_suite(), EvalOptions(folder=FOLDER, recordings=recordings))
    eval_shop.planted = change_prompt(Random(1))  # type: ignore[attr-defined]
    suite = make_suite(variants={"base": "eval_shop:planted"})
    after = await run_suite(suite, EvalOptions(folder=FOLDER, recordings=recordings, baseline=before))
    assert (after.failed, after.regressions, count_verdicts(after)) == (2, [], {"changed": 2})
    eval_shop.planted = change_prompt(Random(1)).without_hooks("check_amount")  # type: ignore[attr-defined]
    after = await run_suite(suite, EvalOptions(folder=FOLDER, recordings=recordings, baseline=before))
    assert [one.case for one in after.regressions] == ["large"]  # a guard is gone, too
    assert count_verdicts(after) == {"changed": 1, "regressed": 1}


@pytest.mark.parametrize("verdict", ["changed", "known_failure"])  # a second run with the baseline gave the latter
async def test_a_failure_after_a_changed_request_is_not_known(verdict: Any) -> None:
    recordings = await record()
    eval_shop.planted = change_prompt(Random(1))  # type: ignore[attr-defined]
    suite = make_suite(variants={"base": "eval_shop:planted"})
    before = await run_suite(suite, EvalOptions(folder=FOLDER, recordings=recordings))
    for row in before.cases:
        row.results["base"].verdict = verdict
    options = EvalOptions(folder=FOLDER, recordings=recordings, baseline=before)
    assert count_verdicts(await run_suite(suite, options)) == {"changed": 2}
    eval_shop.planted = eval_shop.planted.without_hooks("check_amount")  # type: ignore[attr-defined]
    after = await run_suite(suite, options)
    assert find_known_failures(after, before) == set()
    assert count_verdicts(after) == {"changed": 1, "failed": 1}


async def test_verdicts_of_a_report_of_an_earlier_version_are_derived(tmp_path: Path) -> None:
    report = await run_suite(make_suite(), EvalOptions(folder=FOLDER, recordings=await record(tools="real")))
    data = report.model_dump()
    checks = [{"name": "requests", "passed": False}, {"name": "text", "passed": True}]
    for row, change in zip(data["cases"], ({}, {"passed": False, "checks": checks}), strict=True):
        row["results"]["base"] |= change
        del row["results"]["base"]["verdict"]
    assert count_verdicts(EvalReport.model_validate(data)) == {"passed": 1, "changed": 1}


async def test_a_baseline_tolerates_known_failures() -> None:
    wrong = {**LARGE, "expect": {"text": "Sorry"}}
    before = await run_cases(SMALL, wrong)
    assert find_regressions(before, before) == []
    after = await run_cases({**SMALL, "expect": {"text": "Sorry"}}, wrong, {**wrong, "id": "new"})
    found = find_regressions(after, before)
    assert [(one.case, one.against) for one in found] == [("small", "baseline")]  # the baseline has no case "new"
    assert find_known_failures(after, before) == {("large", "base")}
    compare_results(after, before)
    assert [row.results["base"].verdict for row in after.cases] == ["regressed", "known_failure", "failed"]
    assert '"verdict": "known_failure"' in after.to_json()
    assert found[0].detail == "text: 'Sorry' is missing: 'Done: 20 dollars.'"


async def test_a_failure_that_the_baseline_has_is_not_a_regression_against_another_variant() -> None:
    variants = {"base": "eval_shop:agent", "unguarded": "eval_shop:unguarded"}
    before = await run_suite(make_suite(variants=variants), EvalOptions(folder=FOLDER))
    assert [(one.case, one.variant) for one in before.regressions] == [("large", "unguarded")]
    after = await run_suite(make_suite(variants=variants), EvalOptions(folder=FOLDER, baseline=before))
    assert after.regressions == [] and find_known_failures(after, before) == {("large", "unguarded")}


async def test_the_score_is_the_same_when_a_case_is_recorded_and_replayed() -> None:
    eval_shop.planted = Agent(FunctionModel(lambda request: "Hello."))  # type: ignore[attr-defined]
    case = {"id": "hello", "input": "Hello!", "expect": {"text": "Sorry", "max_steps": 9}}
    suite = make_suite(case, variants={"base": "eval_shop:planted"})
    options = EvalOptions(folder=FOLDER, record=True)
    recorded = await run_suite(suite, options)
    replayed = await run_suite(suite, EvalOptions(folder=FOLDER, recordings=options.recordings))
    first, second = (report.cases[0].results["base"] for report in (recorded, replayed))
    assert {check.name for check in second.checks} - {check.name for check in first.checks} == {"recording", "requests"}
    assert first.score == second.score == 0.6667


async def test_long_arguments_and_details_are_shortened() -> None:
    args = {"order": 7, "amount": 20, "note": "x" * 1_000_000}
    replies = [
        {"calls": [{"tool": "refund", "args": args}]},
        {"calls": [{"tool": "lookup", "args": {"order": [7] * 100_000}}]},
    ]
    report = await run_cases({**SMALL, "replies": [*replies, "Done."], "results": []})
    refund_call, lookup_call = report.cases[0].results["base"].calls
    assert refund_call.args["note"].endswith("x… (996,000 more characters)") and refund_call.args["order"] == 7
    assert lookup_call.args["order"].startswith("[7, 7, ")
    assert len(report.to_json()) < 50_000


async def test_a_report_is_read_again(tmp_path: Path) -> None:
    report, path = await run_cases(), tmp_path / "report.json"
    path.write_text(report.to_json())
    assert read_report(path) == report
    path.write_text('{"suite": 1}')
    with pytest.raises(ConfigError, match="is not a report of `wick eval run --output`: suite"):
        read_report(path)
    with pytest.raises(ConfigError, match="there is no file"):
        read_report(tmp_path / "none.json")


def test_small_costs_have_significant_digits() -> None:
    costs = (0.0, 12.3, 0.0012, 0.00042, 0.000_002_5, 1e-9)
    assert [*map(format_cost, costs)] == ["$0.0000", "$12.3000", "$0.0012", "$0.00042", "$0.0000025", "$0.000000001"]
