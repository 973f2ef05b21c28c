"""Recordings of a suite: secrets, structured output and judges replay the same way offline, on any machine."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import eval_shop
from eval_shop import failed_checks, make_suite
from wick import Agent, FunctionModel, Scripted, ToolCall, tool
from wick.errors import ConfigError
from wick.evals import EvalOptions, load_suite, read_recordings, recordings_path, run_suite, write_recordings
from wick.evals.report import EvalReport
from wick.evals.suite import EvalSuite
from wick.protocols import Delta, Finish, HoldsSchema, Request, TextDelta
from wick.testing import Cassette
from wick.testing.cassettes import session

FOLDER = Path(eval_shop.__file__).parent
PASSWORD = "hunter2-and-more"


@pytest.fixture(autouse=True)
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of one reply leaves the others of a file unused."""
    monkeypatch.setattr(session, "cassettes", None)


async def replay_twice(suite: EvalSuite, path: Path) -> EvalReport:
    """Record a suite in a file, replay the file twice offline, and return the report; its bytes are the same."""
    options = EvalOptions(folder=FOLDER, record=True)
    recorded = await run_suite(suite, options)
    assert not recorded.failed, failed_checks(recorded, suite.cases[0].id)
    write_recordings(path, options.recordings, suite)
    first, second = [
        await run_suite(suite, EvalOptions(folder=FOLDER, recordings=read_recordings(path), offline=True))
        for _ in range(2)
    ]
    assert first.to_json() == second.to_json()
    return first


class Refund(BaseModel):
    amount: int


class Native:
    """A model that replies in the JSON Schema of the request, or fails without one."""

    holds_schema: HoldsSchema = "always"

    def __init__(self, name: str, **reply: Any) -> None:
        self.name, self.reply = name, reply

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        assert "response_format" in request.settings and not request.tools
        yield TextDelta(json.dumps(self.reply))
        yield Finish("stop")


async def test_a_structured_output_and_a_judge_are_replayed(tmp_path: Path) -> None:
    eval_shop.structured = Agent(Native("acme:one", amount=20), output_type=Refund)  # type: ignore[attr-defined]
    eval_shop.strict = Native("acme:judge", score=0.9, reason="polite")  # type: ignore[attr-defined]
    suite = make_suite(
        {"id": "one", "input": "How much?", "expect": {"text": "20", "judge": "It is polite."}},
        variants={"base": "eval_shop:structured"},
        judge={"model": "eval_shop:strict"},
    )
    path = tmp_path / "shop.recordings.yaml"
    report = await replay_twice(suite, path)
    assert failed_checks(report, "one") == {} and report.failed == 0
    assert "holds_schema: always" in path.read_text()
    played = Cassette(path)  # a cassette of the same file asks in the same form
    result = await Agent(played, output_type=Refund).run("How much?")
    assert result.output == Refund(amount=20)


async def test_a_judge_without_a_schema_beside_an_agent_with_one_is_replayed(tmp_path: Path) -> None:
    eval_shop.structured = Agent(Native("acme:one", amount=20), output_type=Refund)  # type: ignore[attr-defined]
    verdict = ToolCall("1", "final_answer", {"score": 1, "reason": "polite"})

    def make_judge() -> FunctionModel:
        return FunctionModel(lambda request: [verdict], name="acme:judge")

    eval_shop.make_judge = make_judge  # type: ignore[attr-defined]
    cases = [{"id": f"n{n}", "input": "How much?", "expect": {"judge": "It is polite."}} for n in range(2)]
    suite = make_suite(*cases, variants={"base": "eval_shop:structured"}, judge="eval_shop:make_judge")
    report = await replay_twice(suite, tmp_path / "shop.recordings.yaml")
    assert report.failed == 0, [failed_checks(report, case.id) for case in report.cases]


async def test_an_answer_by_a_tool_is_replayed(tmp_path: Path) -> None:
    """A model without schema support gives the structured output as a call of `final_answer`."""

    def reply(request: Request) -> list[ToolCall]:
        if request.messages[-1].role != "tool":
            return [ToolCall("1", "lookup", {"order": 7})]
        return [ToolCall("2", "final_answer", {"amount": 20})]

    model = FunctionModel(reply, name="acme:one")
    eval_shop.answering = Agent(model, tools=[eval_shop.lookup], output_type=Refund)  # type: ignore[attr-defined]
    order = ["lookup", "final_answer"]
    for calls in (["lookup"], ["lookup", "final_answer"]):
        suite = make_suite(
            {"id": "one", "input": "How much?", "expect": {"calls": calls, "order": order, "text": "20"}},
            variants={"base": "eval_shop:answering"},
        )
        report = await replay_twice(suite, tmp_path / "shop.recordings.yaml")
        assert failed_checks(report, "one") == {}
    eval_shop.executed.clear()
    recordings = read_recordings(tmp_path / "shop.recordings.yaml")
    await run_suite(suite, EvalOptions(folder=FOLDER, recordings=recordings, offline=True))
    assert not eval_shop.executed  # other tools are still recorded
    assert [result.tool for result in recordings["one", "base"].results] == ["lookup"]


@tool
def sign_in(user: str, password: str) -> str:
    """Sign in."""
    return f"{user} signed in with {password}"


async def test_a_secret_argument_is_not_recorded_and_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = ToolCall("c1", "sign_in", {"user": "ada", "password": PASSWORD})
    model = FunctionModel(
        lambda request: f"Signed in with {PASSWORD}." if request.messages[-1].role == "tool" else [call]
    )
    eval_shop.signing = Agent(model, tools=[sign_in])  # type: ignore[attr-defined]
    eval_shop.polite = FunctionModel(  # type: ignore[attr-defined]
        lambda request: '{"score": 1, "reason": "polite"}', name="acme:judge"
    )
    arguments = {"tool": "sign_in", "args": {"password": PASSWORD}}
    suite = make_suite(
        {"id": "one", "input": f"Sign in with {PASSWORD}.", "expect": {"arguments": arguments, "judge": "Polite."}},
        variants={"base": "eval_shop:signing"},
        judge="eval_shop:polite",
    )
    path = tmp_path / "shop.recordings.yaml"
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    options = EvalOptions(folder=FOLDER, record=True)
    recorded = await run_suite(suite, options)
    assert not recorded.failed
    write_recordings(path, options.recordings, suite)
    assert PASSWORD not in path.read_text() and "- reply: 1" in path.read_text()
    monkeypatch.delenv("SHOP_PASSWORD")
    monkeypatch.setenv("OTHER_TOKEN", "signed in")
    for _ in range(2):
        report = await run_suite(suite, EvalOptions(folder=FOLDER, recordings=read_recordings(path), offline=True))
        assert failed_checks(report, "one") == {}
    assert PASSWORD not in "".join(call.model_dump_json() for call in report.cases[0].results["base"].calls)


async def test_a_recording_of_an_earlier_version_with_a_secret_argument_is_replayed(tmp_path: Path) -> None:
    """Earlier versions recorded the argument in clear, in the reply and in the next request."""
    eval_shop.signing = Agent("openai:no-such-model", tools=[sign_in])  # type: ignore[attr-defined]
    suite = make_suite({"id": "one", "input": "Sign in."}, variants={"base": "eval_shop:signing"})
    path = tmp_path / "shop.recordings.yaml"
    path.write_text("""\
version: 1
name: acme:one
recordings:
- case: one
  variant: base
  replies:
  - number: 1
    request:
      tools:
        sign_in: '(user: string, password: string) a1b2c3d4'
      messages:
      - user: Sign in.
    reply:
    - call: sign_in
      id: c1
      args: '{"user": "ada", "password": "open sesame"}'
    - finish: tool_calls
  - number: 2
    request:
      continues: 1
      messages:
      - reply: 1
      - tool: sign_in
        result: ada signed in
    reply:
    - text: Done.
    - finish: stop
  results:
  - tool: sign_in
    args: {user: ada, password: open sesame}
    output: ada signed in
""")
    suite.requests = ["messages"]
    report = await run_suite(suite, EvalOptions(folder=FOLDER, recordings=read_recordings(path), offline=True))
    assert failed_checks(report, "one") == {}


async def test_the_advice_to_record_again_is_not_given_beside_a_failed_expectation(tmp_path: Path) -> None:
    eval_shop.greeter = Agent(FunctionModel(lambda request: "Hello."), system="Be brief.")  # type: ignore[attr-defined]
    cases = [{"id": id, "input": "Hi.", "expect": {"text": text}} for id, text in (("ok", "Hello"), ("bad", "Bye"))]
    suite = make_suite(*cases, variants={"base": "eval_shop:greeter"})
    options = EvalOptions(folder=FOLDER, record=True)
    await run_suite(suite, options)
    eval_shop.greeter = eval_shop.greeter.with_options(system="Be rude.")  # type: ignore[attr-defined]
    report = await run_suite(suite, EvalOptions(folder=FOLDER, recordings=options.recordings, offline=True))
    assert failed_checks(report, "ok")["requests"].endswith("if the change is intended, record again with --record")
    assert "record again" not in "".join(failed_checks(report, "bad").values())
    assert [row.results["base"].verdict for row in report.cases] == ["changed", "failed"]


async def test_a_number_of_a_recorded_result_fits_a_decimal() -> None:
    @tool
    def pay(amount: Decimal) -> str:
        """Pay."""
        return "paid"

    eval_shop.payer = Agent("demo", tools=[pay])  # type: ignore[attr-defined]
    case = {"id": "one", "input": "Pay.", "replies": [{"calls": [{"tool": "pay", "args": {"amount": 60}}]}, "Paid."]}
    for amount, passed in ((60, True), (61, False)):
        results = [{"tool": "pay", "args": {"amount": amount}, "output": "paid"}]
        suite = make_suite({**case, "results": results}, variants={"base": "eval_shop:payer"})
        report = await run_suite(suite, EvalOptions(folder=FOLDER))
        assert report.cases[0].results["base"].passed is passed


async def test_the_output_of_a_recorded_result_may_be_data() -> None:
    results = [
        {"tool": "charge", "output": {"paid": 60, "currency": "€"}},
        {"tool": "charge", "output": ["a"], "data": 1},
    ]
    recorded = make_suite({"id": "one", "input": "Pay.", "results": results}).cases[0].results
    assert [result.output for result in recorded] == ['{"paid": 60, "currency": "€"}', '["a"]']
    assert [result.data for result in recorded] == [{"paid": 60, "currency": "€"}, 1]


# -- mistakes in a suite ---------------------------------------------------------------------------------------------

HEAD = "variants: {base: 'greeter:agent'}\n"
MISTAKES = {
    "line 2: judge: there is no model named 'nowhere:judge'": "judge: {model: 'nowhere:judge'}\n",
    "line 2: judge: greeter:agent is not a model, but has the type Agent; a function is a scorer": (
        "judge: greeter:agent\n"
    ),
    "line 2: judge: greeter:score() failed: TypeError: ": "judge: greeter:score\n",
    "name a model, or a function without parameters that returns one": "judge: greeter:score\n",
    "line 2: judge: greeter:missing cannot be loaded": "judge: greeter:missing\n",
}
CASE = "cases:\n- id: one\n  input: Hi.\n  expect:\n    judge: It is polite.\n"


@pytest.fixture
def greeter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "greeter.py").write_text(
        "from wick import Agent, FunctionModel\nagent, ten = Agent('demo'), 10\ndef score(done): ...\n"
        "stand_in = FunctionModel(lambda request: 'Hello from the stand-in.')\ndef create_stand_in(): return stand_in\n"
    )
    monkeypatch.delitem(sys.modules, "greeter", raising=False)
    return tmp_path


@pytest.mark.parametrize("problem", MISTAKES)
async def test_a_judge_that_is_not_a_model_is_refused_with_the_line(problem: str, greeter: Path) -> None:
    (greeter / "suite.yaml").write_text(HEAD + MISTAKES[problem] + CASE)
    with pytest.raises(ConfigError) as caught:
        await run_suite(load_suite(greeter / "suite.yaml"), EvalOptions(folder=greeter))
    assert problem in str(caught.value)


@pytest.mark.parametrize("model", ["greeter:stand_in", "greeter:create_stand_in"])
async def test_the_model_of_a_variant_may_be_an_object_beside_the_suite(model: str, greeter: Path) -> None:
    (greeter / "suite.yaml").write_text(
        f"variants:\n  base: greeter:agent\n  other: {{agent: 'greeter:agent', model: '{model}'}}\n"
        "cases: [{id: one, input: Hi., expect: {text: from the stand-in}}]\n"
    )
    report = await run_suite(load_suite(greeter / "suite.yaml"), EvalOptions(folder=greeter))
    assert [result.passed for result in report.cases[0].results.values()] == [False, True]


async def test_a_variant_whose_model_is_none_is_refused_with_the_line(greeter: Path) -> None:
    (greeter / "suite.yaml").write_text("variants: {base: {agent: 'greeter:agent', model: 'greeter:ten'}}\n" + CASE)
    with pytest.raises(ConfigError, match="line 1: variant 'base': greeter:ten is not a model, but has the type int"):
        await run_suite(load_suite(greeter / "suite.yaml"), EvalOptions(folder=greeter))


SCORERS = {
    "line 6: case 'one': scorers: greeter:nothing cannot be loaded": "greeter:nothing",
    "line 6: case 'one': scorers: nowhere:score cannot be loaded": "nowhere:score",
    "line 6: case 'one': scorers: greeter:ten is not a function, but has the type int": "greeter:ten",
}


@pytest.mark.parametrize("problem", SCORERS)
async def test_a_scorer_that_cannot_be_loaded_is_refused_with_the_line(problem: str, greeter: Path) -> None:
    case = f"cases:\n- id: one\n  input: Hi.\n  expect:\n    scorers: ['{SCORERS[problem]}']\n"
    (greeter / "suite.yaml").write_text(HEAD + case)
    with pytest.raises(ConfigError) as caught:
        await run_suite(load_suite(greeter / "suite.yaml"), EvalOptions(folder=greeter))
    assert problem in str(caught.value)


async def test_a_scorer_of_all_cases_is_refused_with_the_line(greeter: Path) -> None:
    (greeter / "suite.yaml").write_text(HEAD + "expect: {scorers: ['greeter:nothing']}\ncases: [{id: a, input: Hi.}]\n")
    with pytest.raises(ConfigError, match=r"line 2: scorers: greeter:nothing cannot be loaded"):
        await run_suite(load_suite(greeter / "suite.yaml"), EvalOptions(folder=greeter))


FAMILIAR = {
    "line 5: case 'one': there is no key 'scorers'; write it below `expect:`, as `expect: {scorers: …}`": (
        "  scorers: ['a:b']\n"
    ),
    "line 5: case 'one': there is no key 'judge'; write it below `expect:`": "  judge: It is polite.\n",
    "line 5: case 'one': there is no key 'expect.rubric'; did you mean 'judge'?": "  expect: {rubric: Polite.}\n",
    "line 5: case 'one': expect.scorers: a judge is not a scorer; write `judge: RUBRIC` in `expect`": (
        "  expect: {scorers: [judge]}\n"
    ),
    "a judge is not a scorer": "  expect: {scorers: [{judge: It is polite.}]}\n",
    "line 5: case 'one': expect.scorers: 'polite' is not written as module:name": "  expect: {scorers: polite}\n",
    "line 5: case 'one': there is no key 'expect.judge.model'; name the model in the suite: `judge: {model: …}`": (
        "  expect: {judge: {rubric: Polite., model: sonnet}}\n"
    ),
    "there is no key 'expect.output'; did you mean 'text'?": "  expect: {output: Hello}\n",
    "there is no key 'expect.contains'; write it below `text:`, as `text: {contains: …}`": "  expect: {contains: Hi}\n",
    "there is no key 'expected_output'; write it below `expect:`, as `expect: {text: …}`": "  expected_output: Hello\n",
    "case 2: there is no key 'name'; did you mean 'id'?": "- name: two\n  prompt: Hi.\n",
    "there is no key 'expect.tools'; did you mean 'calls'?": "  expect: {tools: [lookup]}\n",
    "line 5: case 'one': expect: this is a mapping with keys such as outcome, calls, order": "  expect: Hello\n",
    "'judges:strict' is not a rubric": "  expect: {judge: 'judges:strict'}\n",
    "name your own judge model in the suite, `judge: {model: 'judges:strict'}`": (
        "  expect: {judge: {rubric: 'judges:strict'}}\n"
    ),
}


@pytest.mark.parametrize("problem", FAMILIAR)
def test_a_guess_in_a_suite_is_answered_with_the_key(problem: str, tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(HEAD + "cases:\n- id: one\n  input: Hi.\n" + FAMILIAR[problem])
    with pytest.raises(ConfigError) as caught:
        load_suite(path)
    assert problem in str(caught.value), str(caught.value)


def test_a_rubric_is_not_the_name_of_a_model(tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text("judge: The answer is polite.\ncases: [{id: a, input: Hi.}]\n")
    with pytest.raises(ConfigError, match="line 1: judge.*is not the name of a model; write a rubric in `expect`"):
        load_suite(path)


async def test_a_variant_may_name_the_file_of_a_module(greeter: Path) -> None:
    (greeter / "parts").mkdir()
    (greeter / "parts" / "polite.py").write_text("from wick import Agent\nagent = Agent('demo')\n")
    (greeter / "suite.yaml").write_text(
        "variants: {base: './parts/polite.py:agent'}\ncases: [{id: a, input: Hi., replies: [Hi.]}]\n"
    )
    report = await run_suite(load_suite(greeter / "suite.yaml"), EvalOptions(folder=greeter))
    assert not report.failed


async def test_the_module_of_a_variant_may_be_above_the_suite(greeter: Path) -> None:
    (folder := greeter / "evals").mkdir()
    (greeter / "above.py").write_text("from wick import Agent\nagent = Agent('demo')\n")
    for spec in ("../above.py:agent", f"{greeter}/above.py:agent"):
        (folder / "suite.yaml").write_text(
            f"variants: {{base: '{spec}'}}\ncases: [{{id: a, input: Hi., replies: [Hi.]}}]\n"
        )
        report = await run_suite(load_suite(folder / "suite.yaml"), EvalOptions(folder=folder))
        assert not report.failed, spec


async def test_a_variant_whose_function_fails_is_refused(greeter: Path) -> None:
    (greeter / "suite.yaml").write_text("variants: {base: 'greeter:score'}\ncases: [{id: a, input: Hi.}]\n")
    with pytest.raises(ConfigError, match=r"variant 'base': greeter:score\(\) failed: TypeError"):
        await run_suite(load_suite(greeter / "suite.yaml"), EvalOptions(folder=greeter))


def test_a_suite_in_a_program_has_no_lines() -> None:
    suite = make_suite()
    assert str(suite.error_at(("judge",), "no")) == "no"
    assert str(suite.error_at(("expect",), "no", "small")) == "case 'small': no"


async def test_recorded_files_are_those_of_the_suite(tmp_path: Path) -> None:
    eval_shop.greeter = Agent(Scripted("Hello.", name="acme:one"))  # type: ignore[attr-defined]
    suite = make_suite({"id": "hello", "input": "Hi."}, variants={"base": "eval_shop:greeter"})
    path = recordings_path(tmp_path / "shop.yaml")
    report = await replay_twice(suite, path)
    assert report.failed == 0 and "holds_schema" not in path.read_text()
