"""Cases from stored threads: what they contain, what is redacted, and that they pass again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import eval_shop
from eval_shop import agent, executed
from wick import Agent, Allow, Ask, Scripted, ToolCall, ToolUse, before, guard, tool
from wick.capabilities.sessions import Sessions
from wick.capabilities.structured_output import StructuredOutput
from wick.constants import YAML_VALUES
from wick.errors import ConfigError, ModelError, StoreError
from wick.evals import importer
from wick.evals.importer import ImportFilter, format_suite, import_threads, open_store
from wick.evals.runner import EvalOptions, run_suite
from wick.evals.suite import EvalCase, load_suite
from wick.messages import Reasoning, assistant
from wick.models.scripted import Reply
from wick.stores.in_memory import InMemory
from wick.testing.redaction import RecordingRedactor
from wick.threads.state import Entry, ThreadState

FOLDER = Path(eval_shop.__file__).parent
KEY = "sk-ant-api03-abcdefghijklmnop"


@dataclass
class Decision:
    refund: bool


@pytest.fixture
async def sessions() -> AsyncIterator[Sessions]:
    found = Sessions(InMemory())
    yield found
    await found.close()


async def converse(sessions: Sessions, thread: str, text: str, *replies: Reply, using: Agent = agent) -> None:
    """Run the shop's agent in a stored thread."""
    real = using.with_options(model=Scripted(*replies), ask=lambda question: True).with_hooks(sessions)
    await real.run(text, thread=thread)


def call(id: str, tool: str, **args: Any) -> ToolCall:
    return ToolCall(id, tool, args)


async def record_threads(sessions: Sessions) -> None:
    await converse(
        sessions,
        "th_small",
        "Refund order 7.",
        call("a", "lookup", order=7),
        [call("b", "refund", order=7, amount=20), call("c", "refund", order=7, amount=70)],
        "Done.",
    )
    await converse(
        sessions, "th_small", f"And 2,000? My key is {KEY}.", call("a", "refund", order=7, amount=2000), "No."
    )
    await converse(sessions, "th_other", "Look up.", call("a", "lookup", number=7), "Hm.")


async def import_all(sessions: Sessions, **filters: Any) -> list[EvalCase]:
    return (await import_threads(sessions.store, ImportFilter(**filters))).cases


async def test_a_run_becomes_a_case(sessions: Sessions) -> None:
    await record_threads(sessions)
    small, large, other = await import_all(sessions)
    assert (small.id, small.input, small.thread) == ("th_small-1", "Refund order 7.", "th_small")
    assert [[(one.id, one.tool) for one in reply.calls] for reply in small.replies] == [
        [("a", "lookup")], [("b", "refund"), ("c", "refund")], [],
    ]  # fmt: skip
    assert small.replies[0].model == "scripted" and small.replies[0].usage["output_tokens"] > 0
    assert [(one.tool, one.args, one.output) for one in small.results] == [
        ("lookup", {"order": 7}, "order 7: 20 USD"),
        ("refund", {"order": 7, "amount": 20, "note": "none"}, "refunded"),
        ("refund", {"order": 7, "amount": 70, "note": "none"}, "refunded"),
    ]
    assert small.approvals == {"refund": "allow"}
    assert small.expect.calls == small.expect.order == ["lookup", "refund", "refund"]
    assert (small.expect.blocked, small.expect.asked, small.expect.invalid) == ([], ["refund"], [])
    assert [message["role"] for message in large.messages][-2:] == ["assistant", "user"]  # the run before is history
    assert (large.expect.blocked, large.results) == (["refund"], [])
    assert other.expect.invalid == ["lookup"]


async def test_the_text_of_a_structured_output_is_no_reply_of_the_model(sessions: Sessions) -> None:
    deciding = agent.with_hooks(StructuredOutput(Decision))
    eval_shop.deciding = deciding  # type: ignore[attr-defined]
    replies = [call("a", "lookup", order=7), call("b", "final_answer", refund=True)]
    await converse(sessions, "th_1", "Refund order 7?", *replies, using=deciding)
    (case,) = await import_all(sessions)
    assert [[one.tool for one in reply.calls] for reply in case.replies] == [["lookup"], ["final_answer"]]
    suite = eval_shop.make_suite(case.model_dump(exclude_unset=True), variants={"base": "eval_shop:deciding"})
    assert not (await run_suite(suite, EvalOptions(folder=FOLDER))).failed


async def test_a_denied_call_is_expected_to_be_denied(sessions: Sessions) -> None:
    real = agent.with_options(
        model=Scripted(call("a", "refund", order=7, amount=70), "No."), ask=lambda question: False
    )
    await real.with_hooks(sessions).run("Refund order 7.", thread="th_1")
    (case,) = await import_all(sessions)
    assert (case.expect.calls, case.expect.asked, case.expect.denied) == (["refund"], ["refund"], ["refund"])


async def test_each_use_of_a_tool_has_its_own_answer(sessions: Sessions) -> None:
    amounts = {"a": 60, "b": 70, "c": 70, "d": 80}
    calls = [call(id, "refund", order=7, amount=amount) for id, amount in amounts.items()]
    given = iter([False, True, False])  # the two with 70 dollars differ, too
    real = agent.with_options(
        model=Scripted(*calls, "Done."), ask=lambda question: question.args["amount"] == 80 or next(given)
    ).with_hooks(sessions)
    await real.run("Refund.", thread="th_refunds")
    (case,) = await import_all(sessions)
    rows = [(60, "deny"), (70, "allow"), (70, "deny"), (80, "allow")]
    assert case.model_dump(exclude_unset=True)["approvals"] == {
        "refund": [
            {"args": {"order": 7, "amount": amount, "note": "none"}, "answer": answer} for amount, answer in rows
        ]
    }
    report = await run_suite(eval_shop.make_suite(case.model_dump(exclude_unset=True)), EvalOptions(folder=FOLDER))
    decisions = [one.decision for one in report.cases[0].results["base"].calls]
    assert decisions == ["denied", "ran", "denied", "ran"] and not report.failed


async def test_arguments_that_an_answer_changes_are_part_of_the_case(sessions: Sessions) -> None:
    @before(ToolUse, match="refund")
    def double(use: ToolUse) -> None:
        if use.args["amount"] == 40:
            use.args["amount"] = 80

    calls = [call("a", "refund", order=7, amount=40), call("b", "refund", order=7, amount=70)]
    changes = {80: {"order": 8, "amount": 55}, 70: None}
    doubling = eval_shop.doubling = agent.with_hooks(double)  # type: ignore[attr-defined]
    real = doubling.with_options(
        model=Scripted(*calls, "Done."), ask=lambda question: Allow(changes[question.args["amount"]])
    ).with_hooks(sessions)
    await real.run("Refund.", thread="th_changed")
    (case,) = await import_all(sessions)
    data = case.model_dump(exclude_unset=True)
    assert data["approvals"] == {
        "refund": [
            {"args": {"order": 7, "amount": 80, "note": "none"}, "answer": "allow", "run_with": changes[80]},
            {"args": {"order": 7, "amount": 70, "note": "none"}, "answer": "allow"},
        ]
    }
    assert [one["args"]["amount"] for one in data["results"]] == [55, 70]
    suite = eval_shop.make_suite(data, variants={"base": "eval_shop:doubling"})
    executed.clear()
    report = await run_suite(suite, EvalOptions(folder=FOLDER))
    assert not report.failed and not executed, report.cases[0].results["base"].checks


async def test_an_answer_of_ones_own_arguments_is_read_again(sessions: Sessions) -> None:
    """An answer may give the arguments of the model again, after a hook has changed them."""

    @before(ToolUse, match="refund")
    def raise_once(use: ToolUse) -> None:
        if use.args["order"] == 7:
            use.args |= {"amount": 80, "order": 8}

    real = agent.with_hooks(raise_once).with_options(
        model=Scripted(call("a", "refund", order=7, amount=20), "Done."),
        ask=lambda question: Allow({"order": 9, "amount": 20}),
    )
    await real.with_hooks(sessions).run("Refund.", thread="th_again")
    (case,) = await import_all(sessions)
    assert case.results[0].args == {"order": 9, "amount": 20, "note": "none"}


@pytest.mark.parametrize("suffix", [".yaml", ".jsonl"])
async def test_imported_cases_pass_and_execute_nothing(sessions: Sessions, tmp_path: Path, suffix: str) -> None:
    await record_threads(sessions)
    cases = await import_all(sessions)
    path = tmp_path / f"suite{suffix}"
    path.write_text(format_suite(cases, suffix), encoding="utf-8")
    suite = load_suite(path)
    assert suite.cases == cases
    executed.clear()
    variants = load_variants("eval_shop:agent")
    report = await run_suite(suite.model_copy(update={"variants": variants}), EvalOptions(folder=FOLDER))
    assert not report.failed and not executed
    unguarded = suite.model_copy(update={"variants": load_variants("eval_shop:unguarded")})
    assert (await run_suite(unguarded, EvalOptions(folder=FOLDER))).failed == 2


def load_variants(spec: str) -> Any:
    return eval_shop.make_suite(variants={"base": spec}).variants


async def test_secrets_are_redacted(sessions: Sessions) -> None:
    await record_threads(sessions)
    redactor = RecordingRedactor(["order \\d"], {"SHOP_TOKEN": "letmein-12345", "PLAIN": "Refund order"})
    await converse(sessions, "th_secret", "Use letmein-12345.", "Yes: letmein-12345.")
    found = await import_threads(sessions.store, ImportFilter(), redactor)
    text = format_suite(found.cases, ".jsonl")
    assert KEY not in text and "letmein" not in text and "order 7" not in text and "Refund [secret]." in text
    assert "My key is [secret]." in text and redactor.count > 4


@pytest.mark.parametrize(
    "secret",
    [
        "ghp_abcdefghijklmnopqrstuvwxyz",
        "AKIAABCDEFGHIJKLMNOP",
        "xoxb-123456789012-abc",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "-----BEGIN PRIVATE KEY-----\nabc\ndef\n-----END PRIVATE KEY-----",
        "AIza" + "b" * 35,
    ],
)
def test_known_forms_of_secrets_are_redacted(secret: str) -> None:
    assert RecordingRedactor(environment={}).redact_json({"a": [f"x {secret} y"]}) == {"a": ["x [secret] y"]}


def test_tokens_in_headers_and_urls_are_redacted() -> None:
    redact = RecordingRedactor(environment={}).redact_text
    assert redact("Authorization: Bearer abcdefghijklmnop123") == "Authorization: Bearer [secret]"
    assert redact("postgresql://ada:hunter2@db/x") == "postgresql://[secret]@db/x"
    assert redact("https://example.com:8080/a@b") == "https://example.com:8080/a@b"
    with pytest.raises(ConfigError, match="--redact is not a regular expression"):
        RecordingRedactor(["("])


async def test_inputs_only_leaves_out_replies(sessions: Sessions) -> None:
    await record_threads(sessions)
    cases = await import_all(sessions, inputs_only=True)
    assert cases and not any(case.replies for case in cases)
    assert cases[0].input == "Refund order 7." and cases[0].results and cases[0].expect.calls


async def test_filters(sessions: Sessions) -> None:
    await record_threads(sessions)
    clerk = agent.with_options(name="clerk")
    await converse(sessions, "th_clerk", "Hi.", "Hello.", using=clerk)
    assert [case.id for case in await import_all(sessions, agent="clerk")] == ["th_clerk-1"]
    assert [case.id for case in await import_all(sessions, threads=["th_other"])] == ["th_other-1"]
    assert await import_all(sessions, since=4e9) == [] and await import_all(sessions, owner="ada") == []
    found = await import_threads(sessions.store, ImportFilter(limit=1))
    assert [case.id for case in found.cases] == ["th_clerk-1"]
    assert found.skipped == ["2 of 3 threads, the oldest: the limit of 1 cases is reached"]
    found = await import_threads(sessions.store, ImportFilter(limit=3))
    assert [case.id for case in found.cases] == ["th_small-2", "th_other-1", "th_clerk-1"]  # the latest run of th_small
    assert found.skipped == ["th_small: 1 of 2 runs, the oldest: the limit of 3 cases is reached"]


async def test_the_log_of_a_thread_is_folded_once(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, folded, fold = 12, list[int](), importer.fold
    for number in range(runs):
        await converse(sessions, "th_long", f"Question {number}", f"Answer {number}")

    def count_entries(state: ThreadState, entry: Entry, log: Sequence[Entry]) -> None:
        folded.append(entry.seq)
        fold(state, entry, log)

    monkeypatch.setattr(importer, "fold", count_entries)
    cases = await import_all(sessions)
    assert [len(case.messages) for case in cases] == [0, *range(3, 2 * runs, 2)]
    assert folded == sorted({*folded})  # each entry once, in order


async def test_reasoning_and_invalid_arguments_are_imported(sessions: Sessions) -> None:
    thought = assistant(
        "", ToolCall("a", "lookup", {}, "{", "the arguments are not valid JSON"), reasoning=[Reasoning("Hm.")]
    )
    await converse(sessions, "th_thought", "Look up.", thought, "Done.")
    (case,) = await import_all(sessions)
    assert [one.text for one in case.replies[0].reasoning] == ["Hm."] and case.replies[0].calls[0].raw
    suite = eval_shop.make_suite(case.model_dump(exclude_unset=True))
    report = await run_suite(suite, EvalOptions(folder=FOLDER, offline=True))
    assert report.cases[0].results["base"].calls[0].decision == "invalid" and not report.failed
    with pytest.raises(StoreError):
        await import_all(sessions, threads=["th_none"])


async def test_runs_that_cannot_be_replayed_are_skipped(sessions: Sessions) -> None:
    @tool
    async def wait(use: ToolUse) -> str:
        """Wait."""
        use.run.send("And another thing.")
        return ""

    await converse(sessions, "th_sent", "Go.", call("a", "wait"), "Done.", using=Agent("demo", tools=[wait]))
    with pytest.raises(ModelError):
        await converse(sessions, "th_failed", "Go.", ModelError("no"))
    found = await import_threads(sessions.store, ImportFilter())
    assert not found.cases and sorted(found.skipped) == [
        "th_failed-1: the run ended as failed",
        "th_sent-1: the user sent messages during the run",
    ]


async def test_a_resumed_run_is_one_case_and_a_rewound_run_is_left_out(sessions: Sessions) -> None:
    @guard(ToolUse, match="lookup")
    def confirm(use: ToolUse) -> Ask:
        return Ask("Look up?")

    model = Scripted(call("a", "lookup", order=7), "Done.", "Again.")
    asking = agent.with_options(model=model).with_hooks(confirm, sessions)
    assert (await asking.run("Look up.", thread="th_paused")).outcome == "interrupted"
    (question,) = await sessions.questions("th_paused")
    await sessions.answer("th_paused", question["id"], "allow")
    await asking.run(thread="th_paused")
    (case,) = await import_all(sessions)
    assert [reply.text for reply in case.replies] == ["", "Done."] and case.expect.asked == ["lookup"]
    last = (await sessions.store.head("local", "th_paused")).last
    await asking.run("Once more.", thread="th_paused")
    assert len(await import_all(sessions)) == 2
    await sessions.rewind("th_paused", last)
    assert [case.id for case in await import_all(sessions)] == ["th_paused-1"]


async def test_stores_are_opened_by_path(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    await converse(sessions, "th_1", "Hi.", "Hello.")
    await sessions.close()
    for place in (tmp_path, tmp_path / "threads.db"):
        async with open_store(str(place)) as store:
            assert len((await import_threads(store, ImportFilter())).cases) == 1
    with pytest.raises(ConfigError, match="there is no store of threads"):
        async with open_store(str(tmp_path / "nowhere")):
            """Never reached."""


def test_large_cases_need_jsonl() -> None:
    calls = [{"tool": "t", "args": {"numbers": [*range(YAML_VALUES)]}}]
    large = EvalCase.model_validate({"id": "large", "input": "Hi.", "replies": [{"calls": calls}]})
    with pytest.raises(ConfigError, match="too large for a YAML file; choose a name that ends with .jsonl"):
        format_suite([large], ".yaml")
    assert format_suite([large], ".jsonl").count("\n") == 1


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    [
        "1e5",
        "0o17",
        "1:30",
        "yes",
        "null",
        "~",
        "2020-01-01",
        "- a",
        "a: b",
        "# c",
        " x",
        "x\n",
        "\n\n",
        "a\n  b\n",
        "é\tü",
    ]
)


@settings(max_examples=60, deadline=None)
@given(TEXTS, st.dictionaries(TEXTS, st.none() | st.booleans() | st.integers() | TEXTS, max_size=3))
def test_any_text_survives_a_yaml_file(tmp_path_factory: Any, text: str, args: dict[str, Any]) -> None:
    data = {"id": "a", "input": "x" + text, "replies": [{"text": text, "calls": [{"tool": "t", "args": args}]}]}
    case = EvalCase.model_validate(data)
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(format_suite([case], ".yaml"), encoding="utf-8", newline="")
    assert load_suite(path).cases == [case]
    assert yaml.safe_load(path.read_text("utf-8"))["cases"][0]["id"] == json.loads(json.dumps("a"))


async def test_a_secret_argument_is_not_imported(sessions: Sessions) -> None:
    """Neither in the replies and results, nor where the user and the tool repeat it; the case passes offline."""

    @tool
    def sign_in(user: str, password: str) -> str:
        """Sign in."""
        return f"{user} signed in with {password}"

    call = ToolCall("c1", "sign_in", {"user": "ada", "password": "hunter2-and-more"})
    model = Scripted(call, "Signed in with hunter2-and-more.", "You did.")
    eval_shop.signing = Agent(model, tools=[sign_in])  # type: ignore[attr-defined]
    signing: Agent = eval_shop.signing.with_hooks(sessions)  # type: ignore[attr-defined]
    await signing.run("Sign in with hunter2-and-more.", thread="th_signs")
    await signing.run("Did I?", thread="th_signs")
    found = await import_threads(sessions.store, ImportFilter())
    for suffix in (".yaml", ".jsonl"):
        assert "hunter2" not in format_suite(found.cases, suffix)
    first, second = found.cases
    assert first.input == "Sign in with [secret]." and first.replies[0].calls[0].args["password"] == "[secret]"
    assert len(second.messages) > 3  # the history has the call, too
    suite = eval_shop.make_suite(variants={"base": "eval_shop:signing"}).model_copy(update={"cases": found.cases})
    report = await run_suite(suite, EvalOptions(folder=FOLDER, offline=True))
    assert report.failed == 0, report.to_json()
