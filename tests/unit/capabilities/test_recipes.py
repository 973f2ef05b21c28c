"""Runs that begin with a recipe, and the built-in handlers that its hooks name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kit import echo, hook_at, thread_entries, tool_call, tool_calls_reply, tool_result, tool_results
from wick import (
    Agent,
    FunctionModel,
    Message,
    ModelCall,
    Paused,
    Result,
    Run,
    Scripted,
    Step,
    Thread,
    ToolCall,
    ToolUse,
    after,
    before,
    tool,
    user,
)
from wick.capabilities._child_agents.definitions import Subagent
from wick.capabilities.executables import Executables
from wick.capabilities.recipes import Recipes
from wick.capabilities.subagents import Subagents
from wick.capabilities.summarization import Summarization
from wick.config import load
from wick.decisions import Ask
from wick.errors import ConfigError
from wick.messages import ImagePart, TextPart


class Write:
    """Writes recipes, and makes the capability that has them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, name: str, text: str, hooks: str = "") -> Write:
        front = f"---\nhooks: {{{hooks}}}\n---\n" if hooks else ""
        (self.folder / f"{name}.md").write_text(front + text)
        return self

    def recipes(self, **handlers: Any) -> Recipes:
        return Recipes(self.folder, handlers=handlers)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return Write(tmp_path)


def request_texts(model: Scripted, request: int = 0) -> list[str]:
    return [message.text for message in model.requests[request].messages]


# -- the text -------------------------------------------------------------------------------------------------------


async def test_a_run_answers_the_text_of_its_recipe(write: Write) -> None:
    model = Scripted("done")
    agent = Agent(model, hooks=[write("review", "Review {{input}}, kindly.").recipes()])
    result = await agent.run("the branch", recipe="review")
    assert request_texts(model) == ["Review the branch, kindly."]
    assert result.thread is not None and result.thread.values["recipe"] == "review"


async def test_a_recipe_needs_no_input(write: Write) -> None:
    model = Scripted("done")
    await Agent(model, hooks=[write("tidy", "Tidy up.").recipes()]).run(recipe="tidy")
    assert request_texts(model) == ["Tidy up."]


async def test_pictures_stay_with_the_words(write: Write) -> None:
    model, picture = Scripted("a cat"), ImagePart(url="https://example.com/cat.png")
    words = Message("user", (TextPart("this"), picture))
    await Agent(model, hooks=[write("see", "Look at {{input}}.").recipes()]).run(words, recipe="see")
    assert model.requests[0].messages[0].content == (TextPart("Look at this."), picture)


async def test_earlier_messages_are_kept(write: Write) -> None:
    model = Scripted("done")
    agent = Agent(model, hooks=[write("tidy", "Tidy up.").recipes()])
    await agent.run([user("Hi."), Message("assistant", "Hello.")], recipe="tidy")
    assert request_texts(model) == ["Hi.", "Hello.", "Tidy up."]


async def test_hooks_see_the_rendered_recipe(write: Write) -> None:
    seen: list[str] = []

    @before(Run)
    def look(run: Run) -> None:
        seen.extend([run.recipe, *(message.text for message in run.input)])

    agent = Agent(Scripted("done"), hooks=[look, write("tidy", "Tidy {{input}}.").recipes()])
    await agent.run("up", recipe="tidy")
    assert seen == ["tidy", "Tidy up."]


async def test_an_unknown_recipe_is_an_error_that_names_the_nearest(write: Write) -> None:
    agent = Agent(Scripted("done"), hooks=[write("review", "x").recipes()])
    with pytest.raises(ConfigError, match="did you mean 'review'"):
        await agent.run("x", recipe="revue")
    await agent.run("x")


async def test_a_recipe_needs_the_capability() -> None:
    with pytest.raises(ConfigError, match="recipe='tidy' needs a source of recipes: hooks=\\[Recipes\\(\\)\\]"):
        await Agent("demo").run(recipe="tidy")


async def test_the_next_run_is_not_under_the_recipe(write: Write) -> None:
    stops: list[str] = []
    agent = Agent(
        Scripted("one", "two"),
        hooks=[
            write("tidy", "Tidy up.", "agent_stop: note").recipes(
                note=lambda payload, run: stops.append(payload["recipe_name"])
            )
        ],
    )
    thread = Thread()
    await agent.run(recipe="tidy", thread=thread)
    await agent.run("And now?", thread=thread)
    assert stops == ["tidy"] and thread.values["recipe"] == ""


async def test_a_resumed_run_is_under_its_recipe(write: Write) -> None:
    answers: list[Any] = [Paused("later"), True]
    stops: list[str] = []

    async def ask(question: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Paused):
            raise answer
        return answer

    recipes = write("tidy", "Tidy up.", "agent_stop: note").recipes(
        note=lambda payload, run: stops.append(payload["recipe_name"])
    )
    model = Scripted(tool_calls_reply(tool_call()), "done")
    agent = Agent(model, tools=[echo], hooks=[recipes, hook_at("guard", ToolUse, Ask("sure?"))], ask=ask)
    thread = Thread()
    assert (await agent.run(recipe="tidy", thread=thread)).outcome == "interrupted"
    with pytest.raises(ConfigError, match="was started with the recipe 'tidy'; resume it without recipe="):
        await agent.run(thread=thread, recipe="other")
    result = await agent.run(thread=thread)
    assert (result.outcome, stops, request_texts(model, 1)[0]) == ("completed", ["tidy"], "Tidy up.")
    assert [message.text for message in thread.messages if message.role == "user"] == ["Tidy up."]


async def test_a_run_paused_before_its_start_renders_at_start(write: Write) -> None:
    answers: list[Any] = [Paused("later"), True]

    async def ask(question: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Paused):
            raise answer
        return answer

    model, thread = Scripted("done"), Thread()
    recipes = write("tidy", "Tidy {{input}}.").recipes()
    agent = Agent(model, hooks=[recipes, hook_at("guard", Run, Ask("begin?"))], ask=ask)
    assert (await agent.run("up", recipe="tidy", thread=thread)).outcome == "interrupted"
    assert (await agent.run(thread=thread)).outcome == "completed"
    assert request_texts(model) == ["Tidy up."]


# -- handlers -------------------------------------------------------------------------------------------------------


async def echoed(write: Write, hooks: str, handler: Any, *more: Any) -> tuple[Result, Scripted]:
    """Run an echo of "hi" under a recipe whose hooks name the handler `mine`."""
    model = Scripted(tool_calls_reply(tool_call()), "done", spare=True)
    agent = Agent(model, tools=[echo], hooks=[*more, write("r", "Go.", hooks).recipes(mine=handler)])
    return await agent.run(recipe="r"), model


async def test_before_tool_call_gets_the_payload_of_programs_and_blocks(write: Write) -> None:
    told: list[Any] = []

    def mine(payload: dict[str, Any], run: Run) -> dict[str, Any]:
        told.append(payload)
        return {"blocked": True, "reason": "not today"}

    result, _ = await echoed(write, "before_tool_call: mine", mine)
    assert tool_result(result) == "not today"
    (payload,) = told
    assert {key: payload[key] for key in ("event", "tool_name", "tool_input", "invoked_by", "recipe_name")} == {
        "event": "before_tool_call",
        "tool_name": "echo",
        "tool_input": {"text": "hi", "times": 1},
        "invoked_by": "main",
        "recipe_name": "r",
    }
    assert payload["conv_id"] == result.thread.id and payload["cwd"]  # type: ignore[union-attr]


async def test_before_tool_call_changes_the_input(write: Write) -> None:
    result, _ = await echoed(write, "before_tool_call: mine", lambda payload, run: {"input": {"text": "ho"}})
    assert tool_result(result) == "ho"


async def test_a_handler_is_called_again_after_a_later_change(write: Write) -> None:
    @before(ToolUse, priority=-1000)
    def later(use: ToolUse) -> None:
        use.args["text"] = "secret"

    def mine(payload: dict[str, Any], run: Run) -> dict[str, Any]:
        return {"blocked": "secret" in payload["tool_input"]["text"], "reason": "no secrets"}

    result, _ = await echoed(write, "before_tool_call: mine", mine, later)
    assert tool_result(result) == "no secrets"
    result, _ = await echoed(write, "before_tool_call: mine", lambda payload, run: {"input": {"text": "ho"}}, later)
    assert "wants to change a call that other hooks have changed after it" in tool_result(result)


async def test_a_handler_that_decides_and_fails_has_not_agreed(write: Write) -> None:
    def broken(payload: Any, run: Run) -> Any:
        raise RuntimeError("oh")

    result, _ = await echoed(write, "before_tool_call: mine", broken)
    assert tool_result(result) == "a handler of the recipe failed, so it has not agreed: RuntimeError: oh"
    result, _ = await echoed(write, "user_message_send: mine", lambda payload, run: "nonsense")
    assert (result.outcome, result.messages.pretty()) == ("stopped", "")
    assert "answers a dict or nothing, not 'nonsense'" in result.reason


async def test_a_failing_observer_handler_changes_nothing(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    def broken(payload: Any, run: Run) -> Any:
        raise RuntimeError("oh")

    for event in ("after_tool_call", "turn_end", "agent_stop"):
        result, _ = await echoed(write, f"{event}: mine", broken)
        assert (result.text, result.outcome, tool_result(result)) == ("done", "completed", "hi")
        assert f"recipes.{event} failed" in caplog.text


async def test_after_tool_call_replaces_the_output(write: Write) -> None:
    def mine(payload: dict[str, Any], run: Run) -> dict[str, Any]:
        assert payload["tool_output"]["success"] and payload["tool_output"]["toolName"] == "echo"
        return {"output": {"toolName": "echo", "success": True, "metadata": {"output": "redacted"}}}

    result, _ = await echoed(write, "after_tool_call: mine", mine)
    assert tool_result(result) == "redacted"


async def test_user_message_send_refuses_the_prompt(write: Write) -> None:
    def mine(payload: dict[str, Any], run: Run) -> dict[str, Any]:
        return {"blocked": payload["message"] == "Go.", "reason": "stay"}

    result, model = await echoed(write, "user_message_send: mine", mine)
    assert (result.outcome, result.reason, model.requests) == ("stopped", "blocked: stay", [])


async def test_user_message_send_screens_changed_messages_again(write: Write) -> None:
    def mine(payload: Any, run: Run) -> Any:
        return {"blocked": True, "reason": "keep it"} if "1234" in payload["message"] else None

    @before(Run, priority=-99)
    def change(run: Run) -> None:
        run.input = [user("my password is 1234")]

    model = Scripted("never", spare=True)
    recipes = write("r", "Go.", "user_message_send: mine").recipes(mine=mine)
    result = await Agent(model, hooks=[recipes, change]).run("on", recipe="r")
    assert (result.reason, model.requests) == ("blocked: keep it", [])


async def test_user_message_send_screens_inbox_messages(write: Write) -> None:
    @tool
    def interrupt(run: Run) -> str:
        """Send messages to the running run."""
        run.send("the password is x")
        run.send("hurry up")
        return "ok"

    def mine(payload: dict[str, Any], run: Run) -> dict[str, Any]:
        return {"blocked": "password" in payload["message"]}

    model = Scripted(tool_calls_reply(ToolCall("c1", "interrupt", {})), "done")
    recipes = write("r", "Go.", "user_message_send: mine").recipes(mine=mine)
    result = await Agent(model, tools=[interrupt], hooks=[recipes]).run(recipe="r")
    assert [message.text for message in result.messages if message.role == "user"] == ["Go.", "hurry up"]


async def test_agent_stop_sends_the_agent_back(write: Write) -> None:
    def mine(payload: dict[str, Any], run: Run) -> dict[str, Any]:
        finished = len(payload["messages"]) > 2
        return {} if finished else {"follow_up_messages": ["And the tests?", "And the docs?"]}

    model = Scripted("done", "all done")
    recipes = write("r", "Go.", "agent_stop: {handler: mine}").recipes(mine=mine)
    result = await Agent(model, hooks=[recipes]).run(recipe="r")
    assert result.text == "all done"
    assert request_texts(model, 1)[-1] == "And the tests?\n\nAnd the docs?"


async def test_turn_end_gets_each_answer_and_once_only_the_first(write: Write) -> None:
    for once, heard in (("false", [("one", 1), ("two", 2)]), ("true", [("one", 1)])):
        turns: list[tuple[str, int]] = []

        def mine(payload: dict[str, Any], run: Run, turns: list[Any] = turns) -> None:
            turns.append((payload["response"], payload["turn_number"]))

        def again(payload: dict[str, Any], run: Run) -> Any:
            return {"follow_up_messages": ["more"]} if len(payload["messages"]) == 2 else {}

        hooks = f"turn_end: {{handler: mine, once: {once}}}, agent_stop: again"
        recipes = write("r", "Go.", hooks).recipes(mine=mine, again=again)
        await Agent(Scripted("one", "two"), hooks=[recipes]).run(recipe="r")
        assert turns == heard


async def test_once_holds_for_tools_of_the_first_turn(write: Write) -> None:
    seen: list[str] = []
    handlers = {
        "mine": lambda payload, run: seen.append(payload["tool_input"]["text"]),
        "again": lambda payload, run: {"follow_up_messages": ["more"]} if len(payload["messages"]) == 2 else {},
    }
    hooks = "before_tool_call: {handler: mine, once: true}, agent_stop: again"
    recipes = write("r", "Go.", hooks).recipes(**handlers)
    model = Scripted(tool_calls_reply(tool_call(text="a")), "one", tool_calls_reply(tool_call(text="b")), "two")
    await Agent(model, tools=[echo], hooks=[recipes]).run(recipe="r")
    assert seen == ["a"]


async def test_handlers_run_after_every_other_hook(write: Write) -> None:
    order: list[str] = []
    handlers = {"mine": lambda payload, run: order.append(payload["event"])}
    hooks = [
        hook_noting(order, "before", ToolUse),
        hook_noting(order, "after", ToolUse),
        hook_noting(order, "after", Step),
    ]
    events = ", ".join(f"{event}: mine" for event in ("before_tool_call", "after_tool_call", "agent_stop"))
    recipes = write("r", "Go.", events).recipes(**handlers)
    for ring in ([recipes, *hooks], [*hooks, recipes]):
        order.clear()
        await Agent(Scripted(tool_calls_reply(tool_call()), "done"), tools=[echo], hooks=ring).run(recipe="r")
        assert order == [
            *("before tool_use", "before_tool_call", "after tool_use", "after_tool_call"),
            *("after step", "after step", "agent_stop"),
        ]


PROGRAM = """#!/bin/sh
case "$1" in
hook) echo {event} ;;
run) cat > {event}.json; echo "{event} program" >> order ;;
esac
"""


@pytest.mark.shows("kodelet", "before_tool_call", "recipe_name")
async def test_handlers_run_after_programs_which_get_the_recipe(write: Write, tmp_path: Path) -> None:
    events = ("user_message_send", "before_tool_call", "after_tool_call", "turn_end", "agent_stop")
    folder = tmp_path / "programs"
    folder.mkdir()
    for event in events:
        (folder / event).write_text(PROGRAM.format(event=event))
        (folder / event).chmod(0o755)

    def mine(payload: dict[str, Any], run: Run) -> None:
        with (tmp_path / "order").open("a") as file:
            file.write(f"{payload['event']} handler\n")

    recipes = write("r", "Go {{input}}.", ", ".join(f"{event}: mine" for event in events)).recipes(mine=mine)
    programs = Executables([folder], cwd=tmp_path, trust=tmp_path / "trust.json")
    model = Scripted(tool_calls_reply(tool_call()), "done")
    await Agent(model, tools=[echo], hooks=[recipes, programs]).run("on", recipe="r")
    lines = [line.split() for line in (tmp_path / "order").read_text().splitlines()]
    assert {event: [who for named, who in lines if named == event] for event in events} == {
        event: ["program", "handler"] for event in events
    }
    told = {event: json.loads((tmp_path / f"{event}.json").read_text()) for event in events}
    assert {payload["recipe_name"] for payload in told.values()} == {"r"}
    assert told["user_message_send"]["message"] == "Go on."


def hook_noting(order: list[str], position: Any, operation: Any) -> Any:
    hook = {"before": before, "after": after}[position]

    def note(op: Any) -> None:
        order.append(f"{position} {operation.operation_name}")

    return hook(operation, name=f"{position}_{operation.operation_name}_note")(note)


async def test_a_handler_may_be_an_object_a_map_or_a_function_and_async(write: Write) -> None:
    heard: list[str] = []

    class Mine:
        async def agent_stop(self, payload: Any, run: Run) -> None:
            heard.append("object")

    async def stop(payload: Any, run: Run) -> None:
        heard.append("map")

    for mine in (Mine(), {"agent_stop": stop}, lambda payload, run: heard.append("function")):
        await echoed(write, "agent_stop: mine", mine)
    assert heard == ["object", "map", "function"]


@pytest.mark.parametrize(
    ("hooks", "sentence"),
    [
        ("turn_end: swap_contxt", "names the handler 'swap_contxt', which is not there; did you mean swap_context"),
        ("turn_end: zzz", "the handlers are swap_context"),
        ("agent_stop: swap_context", "names 'swap_context' for agent_stop, which it is not for"),
    ],
)
async def test_a_recipe_names_only_handlers_that_there_are(write: Write, hooks: str, sentence: str) -> None:
    model = Scripted("done", spare=True)
    with pytest.raises(ConfigError, match=sentence):
        await Agent(model, hooks=[write("r", "Go.", hooks).recipes()]).run(recipe="r")
    assert model.requests == []


def test_a_handler_is_for_some_event(write: Write) -> None:
    with pytest.raises(ConfigError, match="the handler 'mine' has no method for any of before_tool_call"):
        write.recipes(mine=object())


async def test_tools_of_children_are_under_the_recipe(write: Write) -> None:
    def mine(payload: dict[str, Any], run: Run) -> dict[str, Any]:
        return {"blocked": payload["invoked_by"] == "subagent", "reason": "not by children"}

    child = Scripted(tool_calls_reply(tool_call(text="hi")), "child done", name="child")
    subagents = Subagents([Subagent("helper", "Helps", "Help.", model=child, tools=[echo])])
    model = Scripted(tool_calls_reply(tool_call("task", prompt="echo", agent="helper")), "done")
    recipes = write("r", "Go.", "before_tool_call: mine").recipes(mine=mine)
    await Agent(model, hooks=[recipes, subagents]).run(recipe="r")
    assert child.requests[1].messages[-1].text == "not by children"


# -- swap_context ---------------------------------------------------------------------------------------------------


@pytest.mark.shows("kodelet", "recipe", "handler", "once", "swap_context")
@pytest.mark.parametrize("more", [[], [Summarization()]], ids=["alone", "beside summaries"])
async def test_swap_context_puts_the_answer_in_the_place_of_the_conversation(write: Write, more: list[Any]) -> None:
    model, thread = Scripted("We know: 42.", "Yes.", "And so on."), Thread()
    recipes = write("r", "Find out.", "turn_end: {handler: swap_context, once: true}").recipes()
    agent = Agent(model, hooks=[*more, recipes])
    await agent.run(recipe="r", thread=thread)
    await agent.run("Sure?", thread=thread)
    summary, question = model.requests[1].messages
    assert (summary.role, summary.name, question.text) == ("user", "recipes", "Sure?")
    assert "We know: 42." in summary.text and "Find out." not in summary.text
    assert [message.text for message in thread.messages] == ["Find out.", "We know: 42.", "Sure?", "Yes."]
    (entry,) = thread_entries(thread, "compaction")
    assert (entry["replaces"], entry["from"]) == (2, 0)
    await agent.run("More?", thread=thread)  # once: the second answer has swapped nothing
    assert len(model.requests[2].messages) == 4


async def test_swap_context_on_every_turn(write: Write) -> None:
    model = Scripted("one", "two", "three")
    recipes = write("r", "{{input}}", "turn_end: swap_context").recipes()
    agent, thread = Agent(model, hooks=[recipes]), Thread()
    for words in ("a", "b", "c"):
        await agent.run(words, recipe="r", thread=thread)
    summary, question = model.requests[2].messages
    assert "two" in summary.text and question.text == "c"
    assert [entry["from"] for entry in thread_entries(thread, "compaction")] == [0, 2, 4]


async def test_messages_that_another_hook_chose_are_left_alone(write: Write) -> None:
    @before(ModelCall, priority=1000)
    def other(call: ModelCall) -> None:
        call.messages = [user("Only this.")]

    model, thread = Scripted("one", "two"), Thread()
    agent = Agent(model, hooks=[write("r", "Go.", "turn_end: swap_context").recipes(), other])
    await agent.run(recipe="r", thread=thread)
    await agent.run("More?", thread=thread)
    assert request_texts(model, 1) == ["Only this."]


# -- agents.yaml ----------------------------------------------------------------------------------------------------

HANDLERS = """
class Note:
    seen = []
    def agent_stop(self, payload, run):
        Note.seen.append(payload["recipe_name"])
"""


async def test_recipes_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "notes_of_recipes.py").write_text(HANDLERS)
    (tmp_path / ".wick" / "recipes").mkdir(parents=True)
    (tmp_path / ".wick" / "recipes" / "hi.md").write_text("---\nhooks: {agent_stop: note}\n---\nSay hi.")
    file = tmp_path / "agents.yaml"
    file.write_text('model: demo\nrecipes: {handlers: {note: "notes_of_recipes:Note"}}\n')
    agent = load(file).agent()
    (recipes,) = [part for part in agent._parts if isinstance(part, Recipes)]
    assert recipes.dirs == (tmp_path / ".wick" / "recipes",)
    assert (await agent.run(recipe="hi")).outcome == "completed"
    assert type(recipes.handlers["note"]).seen == ["hi"]


def test_recipes_of_a_file_in_short(tmp_path: Path) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text("model: demo\nrecipes: mine\n")
    (recipes,) = [part for part in load(file).agent()._parts if isinstance(part, Recipes)]
    assert recipes.dirs == (tmp_path / "mine",)
    file.write_text("model: demo\nrecipes: {handlers: {note: 5}}\n")
    with pytest.raises(ConfigError, match="line 2: recipes: '5' is not written as module:name"):
        load(file).agent()


def test_a_model_that_answers_nothing_ends_no_turn(write: Write) -> None:
    turns: list[Any] = []
    recipes = write("r", "Go.", "turn_end: mine").recipes(mine=lambda payload, run: turns.append(payload))
    agent = Agent(FunctionModel(lambda request: ""), hooks=[recipes])
    agent.run_sync(recipe="r")
    assert turns == [] and tool_results(agent.run_sync(recipe="r")) == []


# -- once, in a conversation that is there already --------------------------------------------------------------------

COMPACT = """---
name: compact
description: Compact the conversation context into a comprehensive summary
hooks:
  turn_end:
    handler: swap_context
    once: true
allowed_tools: []
---
Create a comprehensive summary of the conversation history.
"""


@pytest.mark.shows("kodelet", "recipe", "once", "swap_context", "allowed_tools")
@pytest.mark.parametrize("before", [0, 1, 7])
async def test_once_counts_the_answers_of_the_run_and_not_of_the_conversation(tmp_path: Path, before: int) -> None:
    (tmp_path / "compact.md").write_text(COMPACT)
    model = Scripted(*(f"answer {n}" for n in range(before)), "In short: 42.", "Yes.")
    agent, thread = Agent(model, tools=[echo], hooks=[Recipes(tmp_path)]), Thread()
    for number in range(before):
        await agent.run(f"question {number}", thread=thread)
    await agent.run(recipe="compact", thread=thread)
    assert [tool.name for tool in model.requests[-1].tools] == []
    await agent.run("Sure?", thread=thread)
    summary, question = model.requests[-1].messages
    assert "In short: 42." in summary.text and question.text == "Sure?"
    assert [tool.name for tool in model.requests[-1].tools] == ["echo"]  # the next run is under no recipe
    (entry,) = thread_entries(thread, "compaction")
    assert entry["replaces"] == 2 * before + 2


async def test_once_counts_answers_before_a_resume(write: Write) -> None:
    turns: list[str] = []
    answers: list[Any] = [Paused("later"), True]

    async def ask(question: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Paused):
            raise answer
        return answer

    def again(payload: dict[str, Any], run: Run) -> dict[str, Any]:
        return {"follow_up_messages": ["more"]} if payload["messages"][-1]["content"] == "one" else {}

    recipes = write("r", "Go.", "turn_end: {handler: mine, once: true}, agent_stop: again").recipes(
        mine=lambda payload, run: turns.append(payload["response"]), again=again
    )
    model, thread = Scripted("zero", "one", tool_calls_reply(tool_call(text="a")), "two"), Thread()
    agent = Agent(model, tools=[echo], hooks=[recipes, hook_at("guard", ToolUse, Ask("sure?"))], ask=ask)
    await agent.run("Hello", thread=thread)
    result = await agent.run(recipe="r", thread=thread)
    assert result.outcome == "interrupted" and turns == ["one"]
    await agent.run(thread=thread)
    assert thread.messages[-1].text == "two" and turns == ["one"]


# -- the tools that a recipe allows -----------------------------------------------------------------------------------


@tool(kind="shell")
async def execute(command: str) -> str:
    """Run a command."""
    return f"ran {command}"


@pytest.mark.shows("kodelet", "recipe", "allowed_tools")
@pytest.mark.parametrize(
    ("allowed", "offered"),
    [("[]", []), ("[bash]", ["execute"]), ("[Bash, echo]", ["echo", "execute"]), ("'echo, bash'", ["echo", "execute"])],
)
async def test_a_run_has_only_the_tools_that_its_recipe_allows(
    tmp_path: Path, allowed: str, offered: list[str]
) -> None:
    (tmp_path / "r.md").write_text(f"---\nallowed_tools: {allowed}\n---\nGo.")
    model = Scripted(
        tool_calls_reply(tool_call("execute", "c1", command="ls"), tool_call("echo", "c2", text="x")), "done"
    )
    thread = Thread()
    await Agent(model, tools=[echo, execute], hooks=[Recipes(tmp_path)]).run(recipe="r", thread=thread)
    assert sorted(tool.name for tool in model.requests[0].tools) == offered
    ran = {
        name for name in ("execute", "echo") if any(entry["tool"] == name for entry in thread_entries(thread, "intent"))
    }
    assert ran == set(offered)
    for name in {"execute", "echo"} - ran:
        assert any(f"allows no {name}" in text for text in tool_results(thread))


async def test_a_child_and_a_late_tool_are_under_the_recipe_too(tmp_path: Path) -> None:
    (tmp_path / "r.md").write_text("---\nallowed_tools: [task]\n---\nGo.")
    child = Scripted(tool_calls_reply(tool_call("echo", text="x")), "child done")
    subagents = Subagents([Subagent("helper", "Helps", "Help.", model=child, tools=[echo])])

    @before(Run, priority=-1000)
    def late(run: Run) -> None:
        run.tools["execute"] = execute

    model = Scripted(
        tool_calls_reply(tool_call("task", prompt="echo", agent="helper")),
        tool_calls_reply(tool_call("execute", command="ls")),
        "done",
    )
    thread = Thread()
    await Agent(model, hooks=[subagents, Recipes(tmp_path), late]).run(recipe="r", thread=thread)
    assert [tool.name for tool in model.requests[0].tools] == ["task"] and child.requests[0].tools == ()
    assert "allows no echo" in child.requests[1].messages[-1].text
    assert "allows no execute" in tool_results(thread)[-1]


@pytest.mark.parametrize(
    "front", ["allowed_tools: 3", "allowed_tools: [1]", "allowed_tools: ['Bash(ls)']", "allowed_commands: ['git *']"]
)
async def test_a_restriction_that_cannot_be_applied_is_refused(tmp_path: Path, front: str) -> None:
    (tmp_path / "r.md").write_text(f"---\n{front}\n---\nGo.")
    with pytest.raises(ConfigError, match="allowed_"):
        await Agent(Scripted("x", spare=True), hooks=[Recipes(tmp_path)]).run(recipe="r")
