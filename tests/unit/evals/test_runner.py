"""Suites that are run: recorded replies and results, guards, approvals, variants and limits."""

from __future__ import annotations

import asyncio
import re
import resource
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import eval_shop
from eval_shop import LARGE, SMALL, executed, failed_checks, make_suite, run_cases
from wick import Agent, Deps, FunctionModel, ModelCall, Scripted, ToolCall, ToolUse, before, evals, guard, tool
from wick.capabilities.subagents import Subagents
from wick.cli.commands.eval import print_report
from wick.errors import ConfigError, ModelError
from wick.evals.html_report import render_html
from wick.evals.recording_file import Recording, Recordings, read_recordings, recordings_path, write_recordings
from wick.evals.report import EvalReport
from wick.evals.runner import EvalOptions, SuiteRunner, run_suite
from wick.evals.suite import EvalReply, ExpectedArguments, load_suite
from wick.protocols import CallArgs, CallStart, Delta, Finish, ReasoningDelta, Request, TextDelta
from wick.testing import Cassette

FOLDER = Path(eval_shop.__file__).parent


def case(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**base, **changes}


async def test_recorded_tools_are_not_executed_and_all_hooks_run() -> None:
    report = await run_cases()
    assert not executed and not report.failed
    small, large = (row.results["base"] for row in report.cases)
    assert [(call.tool, call.decision, call.output) for call in small.calls] == [
        ("lookup", "ran", "order 7: 20 USD"),  # an after hook changed the recorded result
        ("refund", "ran", "refunded"),
    ]
    assert small.calls[1].args == {"order": 7, "amount": 20, "note": "none"}  # sealed, with defaults
    assert (large.calls[0].decision, large.calls[0].hook) == ("blocked", "check_amount")
    assert large.calls[0].output == "more than 100 needs a person"
    assert (small.steps, small.text, small.outcome) == (3, "Done: 20 dollars.", "completed")


async def test_real_tools_are_executed() -> None:
    report = await run_cases(tools="real")
    assert executed == ["lookup", "refund"] and not report.failed


async def test_a_case_may_have_real_tools() -> None:
    await run_cases(case(SMALL, tools="real"), LARGE)
    assert executed == ["lookup", "refund"]


async def test_a_result_that_is_not_recorded_fails_the_case() -> None:
    report = await run_cases(case(SMALL, results=SMALL["results"][:1]))
    assert not executed
    assert failed_checks(report)["recording"] == (
        'the result of refund({"amount": 20, "note": "none", "order": 7}) is not recorded; '
        "add it to the `results` of the case, or set `tools: real`"
    )


async def test_recorded_errors_reach_the_model() -> None:
    results = [{"tool": "lookup", "error": "no such order"}, *SMALL["results"][1:]]
    report = await run_cases(case(SMALL, results=results))
    call = report.cases[0].results["base"].calls[0]
    assert (call.output, call.failed, call.decision) == ("no such order", True, "ran")


async def test_a_question_is_answered_as_the_case_says() -> None:
    replies = [{"calls": [{"tool": "refund", "args": {"order": 7, "amount": 70}}]}, "Done."]
    asked = case(SMALL, replies=replies, expect={"asked": "refund"})
    for approvals, decision in (("allow", "ran"), ("deny", "denied"), ({"refund": "allow"}, "ran"), ({}, "denied")):
        results = [{"tool": "refund", "output": "refunded"}]
        report = await run_cases(case(asked, approvals=approvals, results=results))
        call = report.cases[0].results["base"].calls[0]
        assert (call.decision, call.asked, report.failed) == (decision, True, 0)


async def test_an_answer_may_change_the_arguments() -> None:
    replies = [{"calls": [{"tool": "refund", "args": {"order": 7, "amount": 70}}]}, "Done."]
    results = [{"tool": "refund", "args": {"amount": 30}, "output": "refunded"}]
    answers = {"refund": [{"answer": "allow", "run_with": {"order": 7, "amount": 30}}]}
    report = await run_cases(case(SMALL, replies=replies, results=results, approvals=answers, expect={}))
    (call,) = report.cases[0].results["base"].calls
    assert (call.args, call.output, report.failed) == ({"order": 7, "amount": 30, "note": "none"}, "refunded", 0)
    with pytest.raises(ValidationError, match="`run_with` has the arguments of a call that is allowed"):
        eval_shop.make_suite(case(SMALL, approvals={"refund": [{"answer": "deny", "run_with": {}}]}))


async def test_a_case_that_fails_only_for_its_recording_is_shown_without_a_score(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = await run_cases(case(SMALL, results=SMALL["results"][:1], expect={}))
    result = report.cases[0].results["base"]
    assert (result.score, result.replay_failures) == (1.0, ["recording"])
    print_report(report)
    assert "FAIL recording, " in (shown := capsys.readouterr().out) and "0/1 pass, 6" in shown and "1.00" not in shown
    assert "recording · " in (page := render_html(report)) and "<td>—</td>" in page and "1.00" not in page


async def test_replies_that_are_missing_or_left_over_fail_the_case() -> None:
    report = await run_cases(case(SMALL, replies=SMALL["replies"][:2]))
    assert failed_checks(report)["recording"] == "reply 3 is not recorded"
    report = await run_cases(case(SMALL, replies=["Done.", "And more."]))
    assert failed_checks(report)["recording"] == "1 of 2 recorded replies were not needed"


async def test_a_hook_cannot_put_a_real_tool_in_place_of_a_recorded_one() -> None:
    @tool
    def other(order: int) -> str:
        """Do something else."""
        executed.append("other")
        return "other"

    @before(ToolUse, match="lookup", priority=-100)
    def swap_tool(use: ToolUse) -> None:
        use.tool = other

    @before(ToolUse, match="lookup")
    def swap_outside(use: ToolUse) -> None:
        use.tool = other

    eval_shop.swapping = eval_shop.agent.with_hooks(swap_tool)  # type: ignore[attr-defined]
    eval_shop.redirecting = eval_shop.agent.with_hooks(swap_outside)  # type: ignore[attr-defined]
    for name, check in (("swapping", "recording"), ("redirecting", "calls")):
        report = await run_cases(SMALL, variants={"base": f"eval_shop:{name}"})
        assert not executed and check in failed_checks(report)


async def test_a_call_that_does_not_fit_its_tool_is_invalid() -> None:
    replies = [{"calls": [{"tool": "lookup", "args": {"number": 7}}]}, "Done."]
    report = await run_cases(case(SMALL, replies=replies, expect={"invalid": []}))
    assert failed_checks(report)["invalid"].startswith("lookup was invalid: lookup: order is missing")


async def test_messages_are_the_history_of_a_case() -> None:
    messages = [
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Refund order 7."},
    ]
    report = await run_cases(case(SMALL, input="", messages=messages))
    assert not report.failed and report.cases[0].input == "Refund order 7."
    assert report.cases[0].results["base"].steps == 3  # the history does not count


async def test_variants_change_model_prompt_guards_and_rules() -> None:
    variants = {
        "base": "eval_shop:agent",
        "unguarded": {"agent": "eval_shop:agent", "without": "check_amount"},
        "guarded": {"agent": "eval_shop:unguarded", "guards": "eval_shop:check_amount"},
        "ruled": {"agent": "eval_shop:make_agent", "permissions": {"deny": ["refund"]}},
        "prompted": {"agent": "eval_shop:agent", "system_prompt": "You are rude.", "settings": {"temperature": 0}},
    }
    report = await run_cases(variants=variants)
    assert [(one.name, one.passed, one.failed) for one in report.variants] == [
        ("base", 2, 0), ("unguarded", 1, 1), ("guarded", 2, 0), ("ruled", 1, 1), ("prompted", 2, 0),
    ]  # fmt: skip
    assert {(one.case, one.variant, one.reference) for one in report.regressions} == {
        ("large", "unguarded", "base"),
        ("small", "ruled", "base"),
    }


async def test_guards_see_the_name_of_the_model_and_its_price_is_known() -> None:
    seen = list[str]()

    @guard(ModelCall)
    def note_model(call: ModelCall) -> None:
        seen.append(call.model.name)

    eval_shop.noted = eval_shop.agent.with_hooks(note_model)  # type: ignore[attr-defined]
    variants = {"base": "eval_shop:noted", "other": {"agent": "eval_shop:noted", "model": "openai:gpt-4o"}}
    usage = {"input_tokens": 1_000_000}
    for reply, names in (
        ({}, {eval_shop.MODEL, "openai:gpt-4o"}),
        ({"model": "openai:o3"}, {"openai:o3", "openai:gpt-4o"}),
    ):
        hello = {"id": "hello", "input": "Hi.", "replies": [{"text": "Hello.", "usage": usage, **reply}]}
        report = await run_cases(hello, variants=variants)
        assert {*seen} == names
        assert report.cases[0].results["other"].cost == 2.5
        seen.clear()


async def test_agents_of_a_file_are_variants(tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text(
        "agents:\n  calm: {model: demo, builtins: [calculate], sessions: true}\n"
        "  strict: {model: demo, builtins: [calculate], permissions: {mode: bypassPermissions}}\n"
    )
    replies = [{"calls": [{"tool": "calculate", "args": {"expr": "2+2"}}]}, "4"]
    sums = {"id": "sum", "input": "2+2?", "replies": replies, "results": [{"tool": "calculate", "output": "4"}]}
    deny = {"permissions": {"deny": ["calculate"]}}
    variants = {
        "calm": "agents.yaml:calm",
        "strict": {"agent": "agents.yaml:strict", **deny},
        "denied": {"agent": "agents.yaml:calm", **deny},
    }
    suite = make_suite({**sums, "expect": {"blocked": []}}, variants=variants)
    report = await run_suite(suite, EvalOptions(folder=tmp_path))
    assert [one.passed for one in report.variants] == [1, 0, 0]
    assert not (tmp_path / "sessions").exists()  # threads of evals are not stored


WRONG = {
    "variant 'base': the agent agent has no hook 'nothing'": {"agent": "eval_shop:agent", "without": "nothing"},
    "variant 'base': eval_shop:SMALL is not an agent, but a dict": {"agent": "eval_shop:SMALL"},
    "variant 'base': eval_shop:nothing cannot be loaded": {"agent": "eval_shop:nothing"},
    "variant 'base': there is no file": {"agent": "nowhere.yaml:a"},
    "variant 'base': eval_shop:SMALL is not a guard": {"agent": "eval_shop:agent", "guards": "eval_shop:SMALL"},
}


@pytest.mark.parametrize("sentence", WRONG)
async def test_an_invalid_variant_is_refused_before_the_first_case(sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        await run_cases(variants={"base": WRONG[sentence]})
    assert str(raised.value).startswith(sentence)


async def test_a_misspelt_tool_that_must_not_be_called_is_refused() -> None:
    for wrong in ({"expect": {"not_called": "refnd"}}, {}):
        common = {} if wrong else {"expect": {"not_called": "refnd"}}
        with pytest.raises(ConfigError, match="not_called: there is no tool 'refnd'; did you mean 'refund'?"):
            await run_cases(case(SMALL, **wrong), **common)
    report = await run_cases(case(SMALL, expect={"not_called": "delete_everything"}))  # a name that a model may invent
    assert not report.failed


async def test_a_suite_without_an_agent_is_refused() -> None:
    with pytest.raises(ConfigError, match="no agent is named"):
        await run_cases(variants={})


async def test_deps_come_from_a_factory() -> None:
    seen = list[object]()

    @tool
    def limit(deps: Deps[dict[str, int]]) -> str:
        """Return the limit."""
        seen.append(deps)
        return "5"

    replies = [ToolCall("1", "limit"), "5"]
    eval_shop.deep = Agent(Scripted(*replies), tools=[limit])  # type: ignore[attr-defined]
    limits = {"id": "limit", "input": "Limit?", "tools": "real"}
    variants = {"base": {"agent": "eval_shop:deep", "deps": "eval_shop:make_deps"}}
    assert not (await run_cases(limits, variants=variants)).failed and seen == [{"limit": 5}]
    report = await run_cases(limits, variants={"base": "eval_shop:deep"})
    assert "needs deps" in failed_checks(report, "limit")["outcome"]


async def test_a_factory_of_deps_takes_the_run_or_nothing(tmp_path: Path) -> None:
    (tmp_path / "open_shops.py").write_text(
        "from wick import Agent, Deps, ToolUse, guard\n"
        "@guard(ToolUse)\ndef look(use, deps: Deps[dict]): seen.append(deps['shop'])\n"
        "seen = []\n"
        "agent = Agent('openai:none', tools=[len], hooks=[look])\n"
        "def of_run(run): return {'shop': run.agent}\n"
        "def of_nothing(): return {'shop': 'fixed'}\n"
        "def of_two(run, shop): return {}\n"
        "async def later(run): return {}\n"
    )
    path = tmp_path / "suite.yaml"

    async def run(deps: str) -> EvalReport:
        path.write_text(
            f"variants:\n  today:\n    agent: open_shops:agent\n    deps: open_shops:{deps}\n"
            "cases:\n- {id: a, input: Go., replies: [{calls: [{tool: len, args: {obj: a}}]}, Done.],"
            " results: [{tool: len, output: '1'}]}\n"
        )
        return await run_suite(load_suite(path), EvalOptions(folder=tmp_path))

    assert not (await run("of_run")).failed and not (await run("of_nothing")).failed
    assert sys.modules["open_shops"].seen == ["agent", "fixed"]
    wrong = {
        "of_two": "open_shops:of_two must take the run or nothing: def of_two(run: Run), or def of_two()",
        "later": "open_shops:later is not a plain function; name one that returns the deps of a run",
        "seen": "open_shops:seen is not a plain function; name one that returns the deps of a run",
        "nothing": "open_shops:nothing cannot be loaded",
    }
    for deps, sentence in wrong.items():
        with pytest.raises(ConfigError, match=rf"suite.yaml.*4.*variant 'today': deps: {re.escape(sentence)}"):
            await run(deps)


async def test_a_factory_of_deps_that_fails_fails_the_case() -> None:
    report = await run_cases(variants={"base": {"agent": "eval_shop:agent", "deps": "eval_shop:broken_deps"}})
    assert failed_checks(report)["outcome"].startswith("failed (RuntimeError: no deps)")


async def test_a_scorer_that_cannot_be_loaded_names_its_case() -> None:
    with pytest.raises(ConfigError, match="case 'small': scorers: eval_shop:none cannot be loaded"):
        await run_cases({**SMALL, "expect": {"scorers": "eval_shop:none"}})


async def test_a_case_has_a_time_limit() -> None:
    @tool
    async def wait() -> str:
        """Wait."""
        await asyncio.sleep(60)
        return ""

    eval_shop.slow = Agent(Scripted(ToolCall("1", "wait"), spare=True), tools=[wait])  # type: ignore[attr-defined]
    waits = {"id": "wait", "input": "Wait.", "tools": "real"}
    report = await run_cases(waits, variants={"base": "eval_shop:slow"}, timeout=0.05)
    assert failed_checks(report, "wait") == {"timeout": "not finished after 0.05 s"}


async def test_a_cancelled_suite_raises_and_its_runner_has_a_partial_report() -> None:
    options = EvalOptions(folder=FOLDER, jobs=1, on_result=lambda *_: task.cancel() and None)
    task: asyncio.Task[Any] = asyncio.create_task(run_suite(make_suite(), options))
    with pytest.raises(asyncio.CancelledError):
        await task
    runner = SuiteRunner(make_suite(), options)
    task = asyncio.create_task(runner.run())
    with pytest.raises(asyncio.CancelledError):
        await task
    report = runner.build_report()
    assert report.partial and (report.finished, report.planned) == (1, 2)
    assert report.cases[1].results == {}


async def test_an_error_of_a_check_fails_one_case() -> None:
    broken = make_suite()
    broken.cases[0].expect.arguments = [
        ExpectedArguments.model_construct(tool="lookup", args={"order": "("}, match="regex")
    ]
    report = await run_suite(broken, EvalOptions(folder=FOLDER))
    assert failed_checks(report)["scorers"].startswith("the case could not be scored: PatternError: missing )") or (
        failed_checks(report)["scorers"].startswith("the case could not be scored: error: missing )")
    )
    assert failed_checks(report, "large") == {} and not report.partial


async def test_an_error_of_on_result_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no terminal")

    report = await run_suite(make_suite(), EvalOptions(folder=FOLDER, on_result=fail))
    assert report.finished == 2 and not report.failed
    assert "on_result failed for case small, variant base" in caplog.text


async def test_offline_a_case_without_replies_fails_and_no_model_is_called() -> None:
    called = list[str]()

    def reply(request: Request) -> str:
        called.append(request.messages[-1].text)
        return "Done."

    eval_shop.online = eval_shop.agent.with_options(model=FunctionModel(reply))  # type: ignore[attr-defined]
    judged = {"id": "judged", "input": "Hi.", "replies": ["Hello."], "expect": {"judge": "It is polite."}}
    suite = make_suite({"id": "bare", "input": "Hi."}, judged, SMALL, variants={"base": "eval_shop:online"})
    suite.judge.model = "openai:no-such-model"
    report = await run_suite(suite, EvalOptions(folder=FOLDER, offline=True))
    advice = "record them with --record, or run without --offline to call the model"
    assert failed_checks(report, "bare") == {"recording": f"the case has no recorded replies; {advice}"}
    assert failed_checks(report, "judged") == {"judge": f"the judge has no recorded replies; {advice}"}
    assert failed_checks(report) == {} and not called
    assert report.cases[0].results["base"].cost == 0.0  # it never ran
    with pytest.raises(ConfigError, match="choose one of --record and --offline"):
        await run_suite(suite, EvalOptions(folder=FOLDER, offline=True, record=True))


async def test_the_same_suite_gives_the_same_bytes() -> None:
    first, second = [(await run_cases(SMALL, LARGE)).to_json() for _ in range(2)]
    assert first == second
    options = EvalOptions(folder=FOLDER, jobs=1)
    assert (await run_suite(make_suite(), options)).to_json() == first


# -- recording -------------------------------------------------------------------------------------------------------


async def record(path: Path, suite: Any) -> Recordings:
    options = EvalOptions(folder=FOLDER, record=True)
    report = await run_suite(suite, options)
    assert not report.failed
    write_recordings(recordings_path(path), options.recordings, suite)
    return read_recordings(recordings_path(path))


async def test_models_and_tools_are_recorded_and_replayed(tmp_path: Path) -> None:
    replies = [ToolCall("1", "lookup", {"order": 7}), ToolCall("2", "refund", {"order": 7, "amount": 20}), "Done."]
    eval_shop.live = eval_shop.agent.with_options(model=Scripted(*replies))  # type: ignore[attr-defined]
    bare = {"id": "small", "input": "Refund order 7.", "expect": SMALL["expect"]}
    suite = make_suite(bare, variants={"base": "eval_shop:live"})
    executed.clear()
    recordings = await record(tmp_path / "shop.yaml", suite)
    assert executed == ["lookup", "refund"]
    (recorded,) = recordings.values()
    assert [reply.text for reply in recorded.replies] == ["", "", "Done."] and recorded.replies[0].request is not None
    assert [(result.tool, result.output) for result in recorded.results] == [
        ("lookup", "order 7: 20 dollars"),
        ("refund", "refunded"),
    ]
    report = await run_suite(suite, EvalOptions(folder=FOLDER, recordings=recordings))
    assert executed == ["lookup", "refund"] and not report.failed
    assert [check.name for check in report.cases[0].results["base"].checks][-2:] == ["recording", "requests"]


async def test_requests_of_recorded_replies_are_recorded(tmp_path: Path) -> None:
    recordings = await record(tmp_path / "shop.yaml", make_suite())
    assert [len(one.requests) for one in recordings.values()] == [3, 2]
    changed = make_suite(variants={"base": {"agent": "eval_shop:agent", "system_prompt": "You are rude."}})
    report = await run_suite(changed, EvalOptions(folder=FOLDER, recordings=recordings))
    assert failed_checks(report)["requests"].startswith("the system prompt ('support.' is now 'rude.') changed since")
    changed.requests = ["tools", "messages"]
    report = await run_suite(changed, EvalOptions(folder=FOLDER, recordings=recordings))
    assert not report.failed


async def test_reasoning_and_invalid_arguments_are_replayed(tmp_path: Path) -> None:
    class Thinker:
        name = "thinker"

        async def stream(self, request: Request) -> AsyncIterator[Delta]:
            step = sum(message.role == "assistant" for message in request.messages)
            yield ReasoningDelta("Which order?", "c2lnbmF0dXJl", "anthropic")
            yield ReasoningDelta("Number 7.")
            if step == 3:
                yield TextDelta("Done.")
            else:
                yield CallStart(0, "call_0", ("lookup", "", "lookup")[step])
                yield CallArgs(0, ('{"order": 7', '{"order": 7}', '{"order": 7}')[step])
            yield Finish("stop" if step == 3 else "tool_calls")

    eval_shop.thinker = eval_shop.agent.with_options(model=Thinker())  # type: ignore[attr-defined]
    thought = {"id": "thought", "input": "Look up order 7.", "expect": {"text": "Done."}}
    suite = make_suite(thought, variants={"base": "eval_shop:thinker"})
    recordings = await record(tmp_path / "shop.yaml", suite)
    first, unnamed, third, _ = recordings["thought", "base"].replies
    assert [(one.text, one.signature) for one in first.reasoning] == [
        ("Which order?", "c2lnbmF0dXJl"),
        ("Number 7.", ""),
    ]
    assert [reply.calls[0].raw for reply in (first, unnamed, third)] == ['{"order": 7', '{"order": 7}', None]
    report = await run_suite(suite, EvalOptions(folder=FOLDER, recordings=recordings, offline=True))
    assert failed_checks(report, "thought") == {}
    decisions = [call.decision for call in report.cases[0].results["base"].calls]
    assert decisions == ["invalid", "invalid", "ran"]


async def test_secrets_are_redacted_in_recordings_that_still_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "letmein-12345")
    key = "sk-ant-api03-abcdefghijklmnop"

    @tool
    def read_settings(token: str) -> str:
        """Read the settings."""
        return f"key: {key}, token: {token}"

    @before(ToolUse)
    def add_token(use: ToolUse) -> None:
        use.args = {**use.args, "token": "letmein-12345"}

    replies = [ToolCall("1", "read_settings", {"token": ""}), f"The key is {key}."]
    eval_shop.leaky = Agent(Scripted(*replies), tools=[read_settings], hooks=[add_token])  # type: ignore[attr-defined]
    leaks = {"id": "leaks", "input": "Which key?", "expect": {"text": "The key is"}}
    suite = make_suite(leaks, variants={"base": "eval_shop:leaky"})
    recordings = await record(tmp_path / "shop.yaml", suite)
    text = recordings_path(tmp_path / "shop.yaml").read_text()
    assert key not in text and "letmein" not in text and "The key is [secret]." in text
    report = await run_suite(suite, EvalOptions(folder=FOLDER, recordings=recordings, offline=True))
    assert failed_checks(report, "leaks") == {}


async def test_a_program_records_and_replays_with_the_public_names(tmp_path: Path) -> None:
    eval_shop.planted = Agent(FunctionModel(lambda request: "Hello."))  # type: ignore[attr-defined]
    suite = make_suite({"id": "hello", "input": "Hello!"}, variants={"base": "eval_shop:planted"})
    path = evals.recordings_path(str(tmp_path / "shop.yaml"))
    options = evals.EvalOptions(folder=FOLDER, recordings=evals.read_recordings(path), record=True)
    await evals.run_suite(suite, options)
    assert not path.exists()  # the run changes the dict, and writes no file
    evals.write_recordings(path, options.recordings, suite)
    eval_shop.planted = Agent("openai:no-such-model")  # type: ignore[attr-defined]
    recordings = evals.read_recordings(path)
    report = await evals.run_suite(suite, evals.EvalOptions(folder=FOLDER, recordings=recordings, offline=True))
    assert (report.failed, report.cases[0].results["base"].text) == (0, "Hello.")


def test_an_interrupted_write_leaves_the_old_recordings(tmp_path: Path) -> None:
    path = tmp_path / "shop.recordings.yaml"
    path.write_text("old\n")
    long = Recording(case="small", variant="base", replies=[EvalReply(text="Hello. " * 10_000)])
    before_test = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before_test[1]))  # like a full disk
    try:
        with pytest.raises(OSError):
            write_recordings(path, {("small", "base"): long}, make_suite())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before_test)
    assert path.read_text() == "old\n"


async def test_ids_of_calls_may_repeat() -> None:
    calls = [[{"tool": "lookup", "args": {"order": order}, "id": "call_0"}] for order in (7, 8)]
    results = [{"tool": "lookup", "args": {"order": order}, "output": f"order {order}"} for order in (7, 8)]
    replies = [*({"calls": call} for call in calls), "Done."]
    report = await run_cases({"id": "twice", "input": "Look up both.", "replies": replies, "results": results})
    assert [call.output for call in report.cases[0].results["base"].calls] == ["order 7", "order 8"]


async def test_a_failed_run_keeps_the_recorded_replies_of_the_judge() -> None:
    eval_shop.failing = eval_shop.agent.with_options(model=Scripted(ModelError("no")))  # type: ignore[attr-defined]
    verdict = EvalReply(text='{"score": 1, "reason": "polite"}')
    old = Recording(case="fails", variant="base", replies=[EvalReply(text="Hello.")], judge=[verdict])
    options = EvalOptions(folder=FOLDER, record=True, recordings={("fails", "base"): old})
    fails = {"id": "fails", "input": "Hi.", "expect": {"judge": "It is polite."}}
    report = await run_suite(make_suite(fails, variants={"base": "eval_shop:failing"}), options)
    assert report.failed and options.recordings["fails", "base"].judge == [verdict]


async def test_a_failed_run_is_not_recorded(tmp_path: Path) -> None:
    eval_shop.failing = eval_shop.agent.with_options(model=Scripted(ModelError("no")))  # type: ignore[attr-defined]
    options = EvalOptions(folder=FOLDER, record=True)
    suite = make_suite({"id": "fails", "input": "Hi."}, variants={"base": "eval_shop:failing"})
    report = await run_suite(suite, options)
    assert failed_checks(report, "fails")["outcome"] == "failed (ModelError: no), not completed"
    assert options.recordings == {}


@pytest.mark.parametrize("tools", ["real", "recorded"])
async def test_parallel_subagents_are_recorded_and_replayed(tools: str) -> None:
    def reply(request: Request) -> str | list[ToolCall]:
        text = request.messages[-1].text
        if text == "Research both.":
            tasks = ("tea", "coffee")
            return [ToolCall(task, "task", {"agent": "reader", "prompt": task}) for task in tasks]
        return f"about {text}" if text in ("tea", "coffee") else "Done."

    reader = {"reader": {"description": "Reads.", "prompt": "You read."}}
    children = Subagents(reader)
    eval_shop.parent = Agent(FunctionModel(reply), hooks=[children])  # type: ignore[attr-defined]
    both = {"id": "both", "input": "Research both.", "tools": tools, "expect": {"text": "Done."}}
    suite = make_suite(both, variants={"base": "eval_shop:parent"})
    options = EvalOptions(folder=FOLDER, record=True)
    report = await run_suite(suite, options)
    assert not report.failed, report
    recorded = options.recordings["both", "base"].replies
    assert sorted(one.text for one in recorded if one.purpose) == ["about coffee", "about tea"]
    recorded.reverse()  # whatever the order of the subagents was
    report = await run_suite(suite, EvalOptions(folder=FOLDER, recordings=options.recordings, offline=True))
    assert not report.failed, report
    outputs = [call.output for call in report.cases[0].results["base"].calls]
    assert ["tea" in outputs[0], "coffee" in outputs[1]] == [True, True]


INVALID = {
    "version: 1\nrecordings: [{case: small}]": "recording 1: variant: Field required; record the suite again",
    "version: 1\nrecordings: [1]": "recording 1: a recording has a case, a variant, and replies with a request",
    "version: 1\nrecordings: [{case: a, variant: b, replies: [{reply: [{error: Oops}]}]}]": "recording 1: a record",
    "version: 1\nrecordings: [{case: a, variant: b, replies: [{number: 1, request: {like: 7}, reply: []}]}]": (
        "recording 1: there is no reply 7 before the request that refers to it; correct it, or record the suite again"
    ),
    "version: 7\nrecordings: []": "has no recordings of this version; record the suite again with --record",
}


@pytest.mark.parametrize("text", INVALID)
def test_an_invalid_recording_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "shop.recordings.yaml"
    assert read_recordings(path) == {}
    path.write_text(text)
    with pytest.raises(ConfigError, match=INVALID[text]):
        read_recordings(path)


# -- the file --------------------------------------------------------------------------------------------------------

HASHES = (
    '{"system":"b149d8c752937e81","tools":{"lookup":"ad7f98d62b6d4111","refund":"2686fbf990d6455b"},"messages":"%s"}'
)
OLD = (  # a file of an earlier version
    '{"case":"first","variant":"base","replies":[{"calls":[{"tool":"lookup","args":{"order":7},"id":"1"}],'
    '"model":"scripted","usage":{"input_tokens":3,"output_tokens":3},"request":'
    + HASHES % "fefa77f0981d51c4"
    + '},{"text":"Done: 20 dollars.","model":"scripted","request":'
    + HASHES % "c3f1eca1646c0368"
    + '}],"results":[{"tool":"lookup","args":{"order":7},"output":"order 7: 20 dollars"}]}\n\n'
    + '{"case":"large","variant":"base","requests":['
    + HASHES % "5f5d5b2747c6c1a4"
    + ","
    + HASHES % "03f5361b076f2af6"
    + "]}\n"
)
FIRST = {"id": "first", "input": "Refund order 7.", "expect": {"calls": "lookup", "text": "Done"}}


async def test_recordings_of_an_earlier_version_are_replayed_and_converted(tmp_path: Path) -> None:
    old, path = tmp_path / "shop.recordings.jsonl", tmp_path / "shop.recordings.yaml"
    old.write_text(OLD)
    suite = make_suite(FIRST, LARGE)
    rude = make_suite(FIRST, LARGE, variants={"base": {"agent": "eval_shop:agent", "system_prompt": "You are rude."}})
    reports = list[str]()
    for _ in range(2):
        recordings = read_recordings(path)
        report = await run_suite(suite, EvalOptions(folder=FOLDER, recordings=recordings, offline=True))
        assert not report.failed and [check.name for check in report.cases[0].results["base"].checks][-1] == "requests"
        reports.append(report.to_json())
        report = await run_suite(rude, EvalOptions(folder=FOLDER, recordings=recordings, offline=True))
        assert [*failed_checks(report, "first")] == [*failed_checks(report, "large")] == ["requests"]
        write_recordings(path, recordings, suite)  # with the hashes: nothing was recorded again
    assert reports[0] == reports[1] and path.exists() and not old.exists()
    old.write_text("not read, as there is a newer file")
    assert read_recordings(path).keys() == {("first", "base"), ("large", "base")}
    old.write_text('\n{"case": "small"}\n')
    path.unlink()
    with pytest.raises(ConfigError, match="line 2: variant: Field required; record the suite again"):
        read_recordings(path)


async def test_recordings_have_the_format_of_a_cassette(tmp_path: Path) -> None:
    replies = [ToolCall("1", "lookup", {"order": 7}), "Done: 20 dollars."]
    for name in ("live", "other"):
        setattr(eval_shop, name, eval_shop.agent.with_options(model=Scripted(*replies, name=f"acme:{name}")))
    variants = {"base": "eval_shop:live", "other": "eval_shop:other"}
    suite = make_suite(FIRST, variants=variants)
    recordings = await record(tmp_path / "shop.yaml", suite)
    assert [one.replies[0].model for one in recordings.values()] == ["acme:live", "acme:other"]
    path = recordings_path(tmp_path / "shop.yaml")
    text = path.read_text()
    assert "    - call: lookup\n      id: '1'\n      args: '{\"order\": 7}'\n" in text
    assert "      continues: 1\n      messages:\n      - reply: 1\n      - tool: lookup\n" in text
    assert text.count("You are support.") == 1  # later requests refer to the first one
    assert text.count("model: acme:other") == 2
    played = Cassette(path)
    assert played.name == "acme:live"
    for _ in range(2):
        result = await eval_shop.agent.with_options(model=played).run("Refund order 7.")
        assert result.text == "Done: 20 dollars."
    played.check()
    with pytest.raises(ConfigError, match="has the recordings of a suite; record them with: wick eval run --record"):
        Cassette(path, "acme:live", record=True)
    write_recordings(path, recordings, suite)
    assert path.read_text() == text


async def test_a_cassette_plays_recordings_of_a_suite_that_has_replies(tmp_path: Path) -> None:
    eval_shop.live = eval_shop.agent.with_options(model=Scripted("Hello."))  # type: ignore[attr-defined]
    hello = {"id": "hello", "input": "Hi."}
    await record(tmp_path / "shop.yaml", make_suite(LARGE, hello, variants={"base": "eval_shop:live"}))
    played = Cassette(recordings_path(tmp_path / "shop.yaml"))
    assert (await eval_shop.agent.with_options(model=played).run("Hi.")).text == "Hello."
    played.check()
