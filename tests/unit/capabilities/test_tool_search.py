"""Many tools do not fill the prompt: the model finds those it needs."""

from __future__ import annotations

from typing import Any

import pytest

from kit import thread_entries, tool_calls_reply, tool_results
from wick import (
    Agent,
    Block,
    ModelCall,
    Result,
    Run,
    Scripted,
    Thread,
    Tool,
    ToolCall,
    ToolUse,
    after,
    before,
    guard,
    tool,
)
from wick.capabilities.structured_output import StructuredOutput
from wick.capabilities.tool_search import ToolSearch
from wick.errors import ConfigError


def make_tool(name: str, about: str = "", **options: Any) -> Tool:
    async def answer(path: str = "") -> str:
        return f"{name} was used"

    return tool(answer, name=name, description=about or f"What {name} does.", **options)


MANY = [
    make_tool("send_email", "Send a message to a person by mail."),
    make_tool("readCalendar", "The appointments of a day."),
    make_tool("weather", "The forecast for a city."),
    make_tool("translate", "Translate a text from one language to another."),
    *(make_tool(f"sensor_{number:02}", f"Read sensor {number}.") for number in range(96)),
]


def find(action: str, id: str = "1", **args: str) -> ToolCall:
    return ToolCall(id, "tools", {"action": action, **args})


def offered_tools(model: Scripted, request: int = -1) -> list[str]:
    return [tool.name for tool in model.requests[request].tools]


async def ask(
    *replies: Any, tools: Any = MANY, thread: Thread | None = None, **options: Any
) -> tuple[Result, Scripted]:
    model = Scripted(*replies, "done")
    return await Agent(model, tools=tools, hooks=[ToolSearch(**options)]).run("go", thread=thread), model


async def test_a_hundred_tools_are_one_in_the_prompt() -> None:
    _, model = await ask()
    assert offered_tools(model) == ["tools"]
    assert "there are 100 more" in model.requests[0].system


async def test_few_tools_are_all_shown_without_search() -> None:
    _, model = await ask(tools=MANY[:20])
    assert offered_tools(model) == [tool.name for tool in MANY[:20]]
    assert model.requests[0].system == ""
    _, model = await ask(tools=MANY[:21])
    assert offered_tools(model) == ["tools"]


async def test_found_tools_are_shown_from_then_on() -> None:
    thread = Thread()
    result, model = await ask(
        tool_calls_reply(find("search", query="mail to somebody")),
        tool_calls_reply(ToolCall("2", "send_email", {})),
        thread=thread,
    )
    assert "send_email: Send a message to a person by mail.\narguments: {" in tool_results(result)[0]
    assert tool_results(result)[1] == "send_email was used"
    assert [offered_tools(model, number) for number in range(3)] == [
        ["tools"],
        ["tools", "send_email"],
        ["tools", "send_email"],
    ]
    _, later = await ask(thread=Thread.from_json(thread.to_json()))
    assert offered_tools(later) == ["tools", "send_email"]


async def test_help_describes_a_tool_and_shows_it() -> None:
    result, model = await ask(tool_calls_reply(find("help", name="weather")))
    assert tool_results(result)[0].startswith(
        'weather: The forecast for a city.\narguments: {"additionalProperties": false'
    )
    assert offered_tools(model) == ["tools", "weather"]


async def test_help_accepts_aliases_and_suggests_names() -> None:
    tools = [*MANY, make_tool("http_request", "Ask a web server.")]
    result, model = await ask(
        tool_calls_reply(find("help", name="WebFetch")),
        tool_calls_reply(find("help", name="email")),
        tool_calls_reply(find("help", name="zzz")),
        tools=tools,
        always=[],
    )
    told = tool_results(result)
    assert told[0].startswith("http_request: ")
    assert told[1] == "there is no tool named 'email'; did you mean send_email?"
    assert told[2] == """there is no tool named 'zzz'; see them all with action "list\""""
    assert offered_tools(model) == ["tools", "http_request"]


async def test_a_list_has_a_line_for_each_tool_and_offers_none() -> None:
    result, model = await ask(tool_calls_reply(find("list")))
    lines = tool_results(result)[0].splitlines()
    assert len(lines) == 100
    assert lines[0] == "send_email: Send a message to a person by mail."
    assert offered_tools(model) == ["tools"]


async def test_a_very_long_list_is_cut() -> None:
    result, _ = await ask(tool_calls_reply(find("list")), tools=[make_tool(f"t{number}") for number in range(350)])
    assert tool_results(result)[0].splitlines()[-1] == "… and 50 more; search for what you need"


async def test_a_tool_that_is_hidden_can_be_used_by_its_name_and_is_shown_then() -> None:
    result, model = await ask(tool_calls_reply(ToolCall("1", "sensor_07", {})))
    assert tool_results(result) == ["sensor_07 was used"]
    assert offered_tools(model) == ["tools", "sensor_07"]


async def test_a_search_that_finds_nothing() -> None:
    result, model = await ask(
        tool_calls_reply(find("search", query="¿dónde?")), tool_calls_reply(find("search", query="the of a"))
    )
    assert tool_results(result) == ["No tool fits; try other words, or list all of them."] * 2
    assert offered_tools(model) == ["tools"]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("calendar", "readCalendar"),  # a part of the name
        ("read_calendar", "readCalendar"),
        ("languages", "translate"),  # of which a word is the beginning
        ("forecast", "weather"),  # in the description
        ("SENSOR 42", "sensor_42"),
        ("send an email about the weather", "send_email"),
    ],
)
async def test_ranking(query: str, first: str) -> None:
    result, _ = await ask(tool_calls_reply(find("search", query=query)))
    assert tool_results(result)[0].partition(":")[0] == first


async def test_ranking_does_not_depend_on_the_order_of_the_tools() -> None:
    found = [
        tool_results((await ask(tool_calls_reply(find("search", query="read sensor")), tools=tools, results=3))[0])[0]
        for tools in (MANY, MANY[::-1])
    ]
    assert found[0] == found[1]
    assert found[0].count("arguments:") == 3


async def test_those_that_are_never_hidden() -> None:
    tools = [*MANY, make_tool("read_file"), make_tool("bash", aliases=("execute",))]
    _, model = await ask(tools=tools)
    assert offered_tools(model) == ["read_file", "bash", "tools"]
    _, model = await ask(tools=tools, always=["weather", "Read"])
    assert offered_tools(model) == ["weather", "read_file", "tools"]


async def test_a_tool_that_must_be_used_is_shown() -> None:
    model = Scripted("done")
    await Agent(model, tools=MANY, hooks=[ToolSearch()], settings={"tool_choice": "weather"}).run("go")
    assert offered_tools(model) == ["tools", "weather"]


async def test_tools_added_at_run_start_are_found_and_request_tools_are_unchanged() -> None:
    @before(Run, tools="late_*")
    def bring(run: Run) -> None:
        run.tools["late_bus"] = make_tool("late_bus", "Where the bus is.")

    @before(ModelCall)
    def add(call: ModelCall) -> None:
        call.tools.append(make_tool("just_now"))

    model = Scripted(tool_calls_reply(find("search", query="bus")), "done")
    await Agent(model, tools=MANY, hooks=[bring, add, ToolSearch()]).run("go")
    assert offered_tools(model, 0) == ["tools", "just_now"]
    assert offered_tools(model, 1) == ["tools", "just_now", "late_bus"]


async def test_guards_see_every_use() -> None:
    seen: list[str] = []

    @guard(ToolUse, match="weather")
    def no_weather(use: ToolUse) -> Block:
        seen.append(use.call.name)
        return Block("not today")

    model = Scripted(tool_calls_reply(ToolCall("1", "weather", {})), "done")
    result = await Agent(model, tools=MANY, hooks=[ToolSearch(), no_weather]).run("go")
    assert (seen, tool_results(result)) == (["weather"], ["not today"])


async def test_a_question_with_a_purpose_is_left_alone() -> None:
    @after(Run)
    async def sum_up(run: Run) -> None:
        await run.call_model([], purpose="summary", tools=[*MANY])

    model = Scripted("done", "short")
    await Agent(model, tools=MANY, hooks=[ToolSearch(), sum_up]).run("go")
    assert len(model.requests[1].tools) == 100
    assert model.requests[1].system == ""


async def test_together_with_structured_output() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    model = Scripted(
        tool_calls_reply(find("search", query="forecast")), ToolCall("2", "final_answer", {"city": "Bern"})
    )
    result = await Agent(model, tools=MANY, hooks=[StructuredOutput(schema), ToolSearch()]).run("go")
    assert result.output == {"city": "Bern"}
    assert offered_tools(model, 0) == ["tools", "final_answer"]
    assert offered_tools(model, 1) == ["tools", "weather", "final_answer"]


async def test_shown_tools_are_logged_once() -> None:
    thread = Thread()
    await ask(*(tool_calls_reply(find("help", name="weather")) for _ in range(3)), thread=thread)
    assert [entry["value"] for entry in thread_entries(thread, "value")] == [["weather"]]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"threshold": -1}, "give a whole number of at least 0"),
        ({"threshold": "20"}, "give a whole number"),
        ({"results": 0}, "give a whole number of at least 1"),
        ({"always": "ls"}, "takes a list of names, also of one"),
        ({"always": 7}, "takes a list of names"),
        ({"always": [7]}, "takes a list of names"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        ToolSearch(**options)
