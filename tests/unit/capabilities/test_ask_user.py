"""Questions of the model to the user: at a terminal, by a callback, or in the log until an answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from kit import ScriptedUser, collect_events, thread_entries, tool_calls_reply, tool_result, tool_results
from wick import Agent, Allow, Block, Paused, Scripted, Thread, ToolCall, ToolUse, guard
from wick.capabilities import ask_user as module
from wick.capabilities._child_agents.definitions import Subagent
from wick.capabilities.ask_user import AskUser, Inquiry, Terminal
from wick.capabilities.sessions import Sessions
from wick.capabilities.subagents import Subagents
from wick.errors import ConfigError
from wick.protocols import Store
from wick.stores.in_memory import InMemory
from wick.stores.sqlite import Sqlite


def ask(kind: str = "input", question: str = "Which?", id: str = "q1", **args: Any) -> ToolCall:
    return ToolCall(id, "ask_user", {"question": question, "kind": kind, **args})


COLOURS = ["red", "green", "blue"]


def asking(call: ToolCall, interactor: Any = None, hooks: Any = (), **options: Any) -> Agent:
    capability = AskUser(interactor) if not isinstance(interactor, AskUser) else interactor
    return Agent(Scripted(tool_calls_reply(call), "done"), hooks=[*hooks, capability], **options)


class Answers:
    """An interactor that gives these answers in turn."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.inquiries = list(answers), list[Inquiry]()

    async def __call__(self, inquiry: Inquiry) -> Any:
        self.inquiries.append(inquiry)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


# -- an interactor ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "answer", "said"),
    [
        (ask("confirm"), True, '{"answer": true}'),
        (ask("confirm"), "No", '{"answer": false}'),
        (ask("confirm", default=True), None, '{"answer": true}'),
        (ask("select", options=COLOURS), "blue", '{"answer": "blue"}'),
        (ask("select", options=COLOURS, default="red"), "", '{"answer": "red"}'),
        (ask("multiselect", options=COLOURS), ["blue", "red"], '{"answer": ["red", "blue"]}'),
        (ask("multiselect", options=COLOURS), [], '{"answer": []}'),
        (ask("input"), "a text", '{"answer": "a text"}'),
        (ask("input", default=""), "a text", '{"answer": "a text"}'),
    ],
)
async def test_an_answer_is_the_result(call: ToolCall, answer: Any, said: str) -> None:
    assert tool_result(await asking(call, Answers(answer)).run("go")) == said


async def test_the_interactor_sees_the_whole_question() -> None:
    user = Answers("red")
    await asking(ask("select", " Which colour? ", options=COLOURS, default="red"), user).run("go")
    assert user.inquiries == [Inquiry("select", "Which colour?", ("red", "green", "blue"), "red")]


async def test_an_answer_that_cannot_be_used_is_asked_for_again() -> None:
    user = Answers("purple", "green")
    assert tool_result(await asking(ask("select", options=COLOURS), user).run("go")) == '{"answer": "green"}'
    assert user.inquiries[1].problem == "the answer is one of red, green, blue, not 'purple'"


@pytest.mark.parametrize(
    ("call", "answer", "problem"),
    [
        (ask("confirm"), "perhaps", "the answer is yes or no, not 'perhaps'"),
        (ask("confirm"), None, "the answer is yes or no, not none"),
        (ask("confirm"), 7, "the answer is yes or no, not 7"),
        (ask("select", options=COLOURS), ["red"], "the answer is one of red, green, blue, not ['red']"),
        (ask("multiselect", options=COLOURS), "red", "the answer is a list of some of red, green, blue, not 'red'"),
        (ask("multiselect", options=COLOURS), [["red"]], "the answer is one of red, green, blue, not ['red']"),
        (ask("input"), "  ", "the answer is a text, not '  '"),
        (ask("input"), {"a": 1}, "the answer is a text, not {'a': 1}"),
        (ask("input"), "x" * 10_001, "the answer is longer than 10,000 characters"),
    ],
)
async def test_but_not_for_ever(call: ToolCall, answer: Any, problem: str) -> None:
    user = Answers(answer, answer, answer)
    said = tool_result(await asking(call, user).run("go"))
    assert said == f"the user gave no answer that can be used: {problem}"
    assert user.answers == []


async def test_an_interactor_that_fails_is_a_sentence() -> None:
    assert tool_result(await asking(ask(), Answers(RuntimeError("no line"))).run("go")) == (
        "the user could not be asked: no line"
    )


async def test_a_question_lapses() -> None:
    async def never(inquiry: Inquiry) -> Any:
        await asyncio.sleep(60)

    said = tool_result(await asking(ask(), AskUser(never, seconds=0.01)).run("go"))
    assert said == "the question lapsed without an answer: Which?"


async def test_an_interactor_may_put_the_run_aside() -> None:
    thread = Thread()
    agent = Agent(Scripted(tool_calls_reply(ask())), hooks=[AskUser(Answers(Paused("out to lunch")))])
    waits = await agent.run("go", thread=thread)
    assert (waits.outcome, waits.reason) == ("interrupted", "paused: out to lunch")
    agent = Agent(Scripted("done"), hooks=[AskUser(Answers("here I am"))])
    assert tool_result(await agent.run(thread=thread)) == '{"answer": "here I am"}'


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (ask(question=" "), "a question is a text of up to 2,000 characters"),
        (ask(question="x" * 2_001), "a question is a text of up to 2,000 characters"),
        (ask("input", options=["a", "b"]), "has no options; for these, kind is select or multiselect"),
        (ask("confirm", options=["a", "b"]), "has no options"),
        (ask("select"), "a select needs 2 to 20 options, each another one"),
        (ask("select", options=["a", "a"]), "a select needs 2 to 20 options"),
        (ask("multiselect", options=["a"]), "a multiselect needs 2 to 20 options"),
        (ask("select", options=[str(n) for n in range(21)]), "needs 2 to 20 options"),
        (ask("select", options=["a", " "]), "an option is one line of up to 200 characters"),
        (ask("select", options=["a", "b\n  3) c"]), "an option is one line of up to 200 characters"),
        (ask("select", options=["a", ""]), "an option is one line of up to 200 characters"),
        (ask("select", options=["a", "b" * 201]), "an option is one line of up to 200 characters"),
        (ask("select", options=["a", "b"], default="c"), "the default cannot be the answer: the answer is one of a, b"),
        (ask("confirm", default="maybe"), "the default cannot be the answer"),
        (ask("multiselect", options=["a", "b"], default=["c"]), "the default cannot be the answer"),
        (ask("shout"), "kind"),
    ],
)
async def test_unreadable_questions_are_refused(call: ToolCall, words: str) -> None:
    user = Answers()
    assert words in tool_result(await asking(call, user).run("go"))
    assert user.inquiries == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: AskUser("me"), "an interactor is an async function"),  # type: ignore[arg-type]
        (lambda: AskUser(seconds=0), "give a number of seconds"),
        (lambda: AskUser(seconds=True), "give a number of seconds"),
        (lambda: AskUser(seconds=float("nan")), "give a number of seconds"),
    ],
)
def test_bad_options_are_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()


# -- the terminal -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "typed", "said"),
    [
        (ask("confirm"), "y\n", '{"answer": true}'),
        (ask("confirm", default=False), "\n", '{"answer": false}'),
        (ask("select", options=COLOURS), "2\n", '{"answer": "green"}'),
        (ask("select", options=COLOURS), "blue\n", '{"answer": "blue"}'),
        (ask("select", options=["2", "1"]), "1\n", '{"answer": "1"}'),
        (ask("select", options=COLOURS), "9\nred\n", '{"answer": "red"}'),
        (ask("multiselect", options=COLOURS), "3, 1\n", '{"answer": ["red", "blue"]}'),
        (ask("multiselect", options=COLOURS, default=["red"]), "-\n", '{"answer": []}'),
        (ask("multiselect", options=COLOURS, default=["red"]), "\n", '{"answer": ["red"]}'),
        (ask("input"), "\n\nat last\n", '{"answer": "at last"}'),
        (ask("input"), "", "the user could not be asked: the terminal is closed"),
    ],
)
async def test_typed_answers_are_parsed(call: ToolCall, typed: str, said: str) -> None:
    assert tool_result(await asking(call, Terminal(StringIO(typed), StringIO())).run("go")) == said


async def test_the_terminal_shows_questions() -> None:
    output = StringIO()
    call = ask("select", "Which\x1b[2J colour?", options=COLOURS, default="red")
    await asking(call, Terminal(StringIO("purple\n3\n"), output)).run("go")
    first = "Which[2J colour?\n  1) red\n  2) green\n  3) blue [a number; Enter for red] "
    assert output.getvalue() == f"{first}the answer is one of red, green, blue, not 'purple'\n{first}"


async def test_the_terminal_is_that_of_the_program(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("sys.stdin", StringIO("yes\n"))
    assert tool_result(await asking(ask("confirm", "Go on?"), Terminal()).run("go")) == '{"answer": true}'
    assert capsys.readouterr().out == "Go on? [yes or no] "


async def test_questions_are_asked_one_at_a_time() -> None:
    """Two agents ask at the same terminal; one is cancelled before its turn and asks nothing."""
    read, write = os.pipe()
    output = StringIO()
    with os.fdopen(read, encoding="utf-8") as lines, os.fdopen(write, "w", encoding="utf-8") as keys:
        terminal = Terminal(lines, output)
        first = asyncio.create_task(asking(ask(question="First?"), terminal).run("go"))
        while "First?" not in output.getvalue():
            await asyncio.sleep(0.01)
        model = Scripted(tool_calls_reply(ask(question="Second?")))
        second = asyncio.create_task(Agent(model, hooks=[AskUser(terminal)]).run("go"))
        while not model.requests:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        keys.write("one\n")
        keys.flush()
        assert tool_result(await first) == '{"answer": "one"}'
        third = asyncio.create_task(asking(ask(question="Third?"), terminal).run("go"))
        keys.write("three\n")
        keys.flush()
        assert tool_result(await third) == '{"answer": "three"}'
    assert "Second?" not in output.getvalue()


# -- the way of every question ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "answer", "said"),
    [
        (ask("confirm"), True, '{"answer": true}'),
        (ask("confirm"), False, '{"answer": false, "reason": "the user said no to: Which?"}'),
        (ask("confirm"), Allow({"answer": False}), '{"answer": false}'),
        (ask("input"), Allow({"answer": "x"}), '{"answer": "x"}'),
        (ask("input", default="y"), True, '{"answer": "y"}'),
        (ask("input"), Block("none of your business"), '{"answer": null, "reason": "none of your business"}'),
        (ask("select", options=COLOURS), Allow({"answer": "red"}), '{"answer": "red"}'),
    ],
)
async def test_the_agents_user_is_asked(call: ToolCall, answer: Any, said: str) -> None:
    user = ScriptedUser(answer)
    assert tool_result(await asking(call, ask=user).run("go")) == said
    assert user.question.about["kind"] == call.args["kind"]


async def test_without_a_user_the_model_is_informed() -> None:
    assert tool_result(await asking(ask()).run("go")) == (
        "there is no user to ask; decide by yourself, and say so in your answer"
    )


async def test_another_name_will_do() -> None:
    @guard(ToolUse, match="AskUserQuestion")
    def never(use: ToolUse) -> Block:
        return Block("no questions")

    assert tool_result(await asking(ask(), Answers(), hooks=[never]).run("go")) == "no questions"


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    store: Store = InMemory() if request.param == "memory" else Sqlite(tmp_path / "threads.db")
    yield store
    await store.close()


def build_agent(store: Store, *replies: Any, **options: Any) -> Agent:
    return Agent(Scripted(*replies), hooks=[Sessions(store), AskUser(**options)])


async def test_a_run_pauses_until_an_answer(store: Store) -> None:
    waits = await build_agent(store, tool_calls_reply(ask("select", options=COLOURS))).run("go", thread="th_1")
    assert (waits.outcome, waits.reason) == ("interrupted", "paused: waiting for an answer to: Which?")
    sessions = Sessions(store)
    (question,) = await sessions.questions("th_1")
    assert (question["kind"], question["options"]) == ("select", COLOURS)
    await sessions.answer("th_1", question["id"], "allow", args={"answer": "blue"})
    assert tool_result(await build_agent(store, "done").run(thread="th_1")) == '{"answer": "blue"}'


async def test_an_answer_that_cannot_be_used_leads_to_another_question(store: Store) -> None:
    await build_agent(store, tool_calls_reply(ask("select", options=COLOURS))).run("go", thread="th_1")
    sessions = Sessions(store)
    (first,) = await sessions.questions("th_1")
    await sessions.answer("th_1", first["id"], "allow", args={"answer": "purple"})
    assert (await build_agent(store).run(thread="th_1")).outcome == "interrupted"
    (second,) = await sessions.questions("th_1")
    assert second["question"] == "the answer is one of red, green, blue, not 'purple'\nWhich?"
    await sessions.answer("th_1", second["id"], "deny", words="I do not care")
    result = await build_agent(store, "done").run(thread="th_1")
    assert tool_result(result) == '{"answer": null, "reason": "I do not care"}'


async def test_a_question_in_the_log_lapses(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await build_agent(store, tool_calls_reply(ask()), seconds=100).run("go", thread="th_1")
    now = module.time()
    monkeypatch.setattr("wick.approvals.time", lambda: now + 101)
    result = await build_agent(store, "done", seconds=100).run(thread="th_1")
    assert tool_result(result) == "the question lapsed without an answer: Which?"
    assert thread_entries(result.thread, "answered")[-1]["lapsed"]


async def test_two_questions_wait_together(store: Store) -> None:
    await build_agent(store, tool_calls_reply(ask(id="1", question="One?"), ask(id="2", question="Two?"))).run(
        "go", thread="th_1"
    )
    sessions = Sessions(store)
    for question in await sessions.questions("th_1"):
        await sessions.answer("th_1", question["id"], "allow", args={"answer": question["question"][:3]})
    assert tool_results(await build_agent(store, "done").run(thread="th_1")) == [
        '{"answer": "One"}',
        '{"answer": "Two"}',
    ]


async def test_a_question_is_announced() -> None:
    seen = await collect_events(asking(ask("confirm", "Sure?"), ask=ScriptedUser(True)))
    request = next(event for event in seen if event.event == "on_approval_request").to_json()["data"]
    assert (request["question"], request["kind"], request["call_id"]) == ("Sure?", "confirm", "q1")


async def test_a_child_asks_the_user_of_the_run_at_the_top(store: Store) -> None:
    def agent(child: tuple[Any, ...], *replies: Any) -> Agent:
        helper = Subagent("helper", "Helps.", model=Scripted(*child), tools=["AskUserQuestion"])
        return Agent(Scripted(*replies), hooks=[Sessions(store), AskUser(), Subagents([helper])])

    hand = ToolCall("t1", "task", {"agent": "helper", "prompt": "find out"})
    assert (await agent((tool_calls_reply(ask()),), hand).run("go", thread="th_1")).outcome == "interrupted"
    sessions = Sessions(store)
    (question,) = await sessions.questions("th_1")
    await sessions.answer("th_1", question["id"], "allow", args={"answer": "that one"})
    result = await agent(("it is that one",), "done").run(thread="th_1")
    assert tool_result(result) == "it is that one"
