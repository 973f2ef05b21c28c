"""The four decisions as values; their effects are in test_onion.py."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from kit import echo, echo_agent, hello_agent, tool_calls_reply
from kit import tool_call as tool_call
from wick import Agent, Allow, Ask, Block, Continue, Run, Scripted, Stop, ToolUse, before, guard
from wick.decisions import DECISIONS, STOPS, Question

# rule 15: decisions are values, never exceptions


@pytest.mark.parametrize("decision", [Block("a"), Ask("a"), Stop("a"), Continue("a"), Allow({"a": 1})])
def test_a_decision_is_a_value_that_cannot_change(decision: object) -> None:
    field = decision.__slots__[0]  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError):
        setattr(decision, field, "b")
    assert not isinstance(decision, BaseException)
    assert decision == replace(decision)  # type: ignore[type-var]


def test_there_are_four_decisions() -> None:
    assert (Block, Ask, Stop, Continue) == DECISIONS


def test_decisions_with_the_same_words_are_still_different() -> None:
    assert len({Block("a"), Ask("a"), Stop("a"), Continue("a")}) == 4


def test_continue_needs_no_message() -> None:
    assert Continue() == Continue("")


def test_an_ask_does_not_print_its_operation() -> None:
    one, other = Question("sure?", "id", "hash", {}, op="x"), Question("sure?", "id", "hash", {}, op="y")
    assert one == other
    assert "op=" not in repr(one)


def test_a_question_has_the_arguments_that_the_tool_would_run_with() -> None:
    @before(ToolUse)
    def shout(use: ToolUse) -> None:
        use.args["text"] = use.args["text"].upper()

    @guard(ToolUse)
    def confirm(use: ToolUse) -> Ask:
        return Ask("Echo it?")

    asked: list[Question] = []
    agent = Agent(
        Scripted(tool_calls_reply(tool_call(text="hi")), "done"),
        tools=[echo],
        hooks=[shout, confirm],
        ask=lambda question: asked.append(question) or True,
    )
    result = agent.run_sync("go")
    (question,) = asked
    assert (question.tool, question.args) == ("echo", {"text": "HI", "times": 1})
    assert "HI" in result.messages.tool_messages()[0].text


def test_a_question_about_another_operation_has_no_tool() -> None:
    question = Question("Start?", "id", "hash", {"input": []}, op="x")
    assert (question.tool, question.args) == ("", {})


# a Stop's reason


@pytest.mark.parametrize("word", STOPS)
def test_a_known_reason_is_unchanged(word: str) -> None:
    assert Stop(word).with_prefix() == Stop(word)
    assert Stop(f"{word}: too much").with_prefix() == Stop(f"{word}: too much")
    assert Stop(f"{word}: too much").kind == word


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("enough", "stop requested: enough"),
        ("", "stop requested"),
        ("budgets are fine", "stop requested: budgets are fine"),
        ("completed", "stop requested: completed"),  # a hook cannot pass its Stop off as the model's own end
    ],
)
def test_any_other_reason_names_its_author(reason: str, kept: str) -> None:
    assert Stop(reason).with_prefix() == Stop(kept)


def test_known_reasons_are_ordered_by_authority() -> None:
    stops = [Stop(f"{word}: x") for word in STOPS]
    for place, stop in enumerate(stops):
        assert not any(stop.outranks(other) for other in stops[: place + 1])
        assert all(stop.outranks(other) for other in stops[place + 1 :])


@pytest.mark.parametrize(
    ("reason", "ended"), [("budget: 3 of 2 cents", "budget: 3 of 2 cents"), ("enough", "stop requested: enough")]
)
async def test_a_run_ends_with_the_reason_of_its_stop(reason: str, ended: str) -> None:
    result = await hello_agent(before(Run)(lambda run: Stop(reason))).run("hi")
    assert (result.outcome, result.reason) == ("stopped", ended)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_of_two_stops_the_more_authoritative_wins_in_any_order(order: tuple[int, int]) -> None:
    @before(ToolUse)
    async def stop(use: ToolUse) -> Stop:
        return Stop("budget: spent") if use.args["text"] == "budget" else Stop("token limit")

    uses = [tool_call(id="a", text="budget"), tool_call(id="b", text="tokens")]
    model = Scripted(tool_calls_reply(uses[order[0]], uses[order[1]]))
    result = await Agent(model, tools=[echo], hooks=[stop]).run("go")
    assert result.reason == "budget: spent"


async def test_a_block_of_a_tool_use_does_not_end_the_run() -> None:
    result = await echo_agent(guard(ToolUse)(lambda use: Block("no"))).run("go")
    assert (result.outcome, result.text) == ("completed", "done")
