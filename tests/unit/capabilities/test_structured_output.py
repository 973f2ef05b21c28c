"""Answers that are values: held to a schema by the provider or by a tool, and asked for again if they do not fit."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel, field_validator
from typing_extensions import TypedDict

from kit import ScriptedUser, collect_events, echo, thread_entries, tool_call, tool_calls_reply, tool_results
from provider import Call as Called
from provider import Reply, ScriptedServer
from smollm2 import needs_smollm2
from wick import (
    Agent,
    Ask,
    Block,
    Continue,
    Deps,
    FunctionModel,
    Limits,
    Message,
    Paused,
    Run,
    Scripted,
    Step,
    Stop,
    Thread,
    ToolCall,
    ToolUse,
    after,
    assistant,
    guard,
    user,
)
from wick.capabilities.budget import Budget
from wick.capabilities.fallback import Fallback
from wick.capabilities.permissions import Permissions
from wick.capabilities.sessions import Sessions
from wick.capabilities.structured_output import StructuredOutput
from wick.capabilities.subagents import Subagent, Subagents
from wick.capabilities.summarization import Summarization
from wick.errors import ConfigError, MissingOutput, ModelError
from wick.models import _http
from wick.models.anthropic import Anthropic
from wick.models.demo import Demo
from wick.models.local import Local
from wick.models.openai import OpenAI
from wick.models.openai_responses import OpenAIResponses
from wick.protocols import HoldsSchema, Model, Request, holds_schema


class Item(BaseModel):
    name: str
    price: float = Field(gt=0)


class Invoice(BaseModel):
    """An invoice."""

    number: int
    items: list[Item] = []


CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


class Native(Scripted):
    """A model whose provider enforces a schema."""

    holds_schema: HoldsSchema = "always"


class Alone(Scripted):
    holds_schema: HoldsSchema = "alone"


NAMES = st.sampled_from(["number", "items", "name", "price", "x"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


def answer(id: str = "1", tool: str = "final_answer", **args: Any) -> ToolCall:
    return ToolCall(id, tool, args)


# -- by a tool --------------------------------------------------------------------------------------------------------


async def test_the_answer_is_a_value_of_the_model() -> None:
    model = Scripted(answer(number="7", items=[{"name": "pen", "price": 2}]))
    result = await Agent(model, hooks=[StructuredOutput(Invoice)]).run("go")
    assert result.output == Invoice(number=7, items=[Item(name="pen", price=2.0)])
    assert (result.outcome, result.reason) == ("completed", "completed")
    assert json.loads(result.text) == {"number": 7, "items": [{"name": "pen", "price": 2.0}]}
    assert result.thread is not None
    assert result.thread.values["outputs"] == {"answer": json.loads(result.text)}
    assert len(model.requests) == 1  # there is no final request
    result.messages.validate()


async def test_the_tool_has_the_schema() -> None:
    model = Scripted(answer(number=7))
    await Agent(model, system="Be brief.", hooks=[StructuredOutput(Invoice)]).run("go")
    (told,) = model.requests[0].tools
    assert (told.name, told.read_only) == ("final_answer", True)
    assert told.parameters["properties"]["items"]["items"] == {"$ref": "#/$defs/Item"}
    assert model.requests[0].system.startswith("Be brief.\n\nWhen you have the answer, give it by calling final_answer")
    assert "response_format" not in model.requests[0].settings


async def test_a_json_schema_returns_plain_data() -> None:
    result = await Agent(Scripted(answer(city="Bern")), hooks=[StructuredOutput(CITY)]).run("go")
    assert result.output == {"city": "Bern"}


async def test_other_tools_can_be_used() -> None:
    model = Scripted(tool_calls_reply(tool_call()), tool_calls_reply(tool_call(id="2"), answer("3", number=7)))
    result = await Agent(model, tools=[echo], hooks=[StructuredOutput(Invoice)]).run("go")
    assert tool_results(result) == ["hi", "hi", "Accepted."]
    assert result.output == Invoice(number=7)


async def test_invalid_output_is_returned_with_its_errors() -> None:
    model = Scripted(
        answer("1", number="x", items=[{"name": "pen", "price": -1}]), answer("2", items=[]), answer("3", number=7)
    )
    result = await Agent(model, hooks=[StructuredOutput(Invoice)]).run("go")
    first, second, third = tool_results(result)
    assert "number should be a valid integer" in first and "items.0.price should be greater than 0 (got -1)" in first
    assert second == "final_answer: number is missing"
    assert third == "Accepted."
    assert result.output == Invoice(number=7)


async def test_text_is_accepted_only_if_valid() -> None:
    model = Scripted("It is 7.", '{"number": "seven"}', "[7]", '```json\n{"number": 7}\n```')
    result = await Agent(model, hooks=[StructuredOutput(Invoice)]).run("go")
    told = [message.text for message in result.messages if message.name == "structured_output.check"]
    assert "it is not JSON" in told[0] and told[0].endswith("Call final_answer.")
    assert "number should be a valid integer" in told[1]
    assert "it must be a JSON object" in told[2]
    assert result.output == Invoice(number=7)


class Trip(BaseModel):
    city: str
    nights: int


@dataclass
class Places:
    free: dict[str, int]


async def check_place(trip: Trip, places: Deps[Places], run: Run) -> None:
    assert run.deps is places
    if trip.city not in places.free:
        raise ValueError(f"{trip.city} is full")


FULL, FREE = {"city": "Oslo", "nights": 2}, {"city": "Bern", "nights": 2}


def as_call(trip: dict[str, Any], id: str) -> ToolCall:
    return ToolCall(id, "final_answer", trip)


@pytest.mark.parametrize("as_text", [False, True])
async def test_a_validator_with_deps_refuses_an_answer(as_text: bool) -> None:
    def give(*trips: dict[str, Any]) -> Agent[Places, Trip]:
        replies = [json.dumps(trip) if as_text else as_call(trip, str(n)) for n, trip in enumerate(trips)]
        output = StructuredOutput(Trip, retries=1, validator=check_place)
        return Agent(Scripted(*replies), output_type=output, deps_type=Places)

    places = Places({"Bern": 1})
    result = await give(FULL, FREE).run("Go.", deps=places)
    assert (result.outcome, result.output.city) == ("completed", "Bern")
    assert "Oslo is full" in "".join(message.text for message in result.messages)
    result = await give(FULL, FULL).run("Go.", deps=places)
    assert (result.outcome, result.value) == ("stopped", None) and result.reason.endswith("Oslo is full")
    assert "outputs" not in result.thread.values


async def test_a_validator_without_its_deps_is_reported_before_the_run() -> None:
    agent = Agent(Scripted("{}", spare=True), hooks=[StructuredOutput(Trip, validator=check_place)])
    with pytest.raises(ConfigError, match="validator of the output has the parameter places: Places"):
        await agent.run("Go.")
    with pytest.raises(ConfigError, match="give a function"):
        StructuredOutput(Trip, validator="check")  # type: ignore[arg-type]


async def test_after_three_retries_the_run_stops() -> None:
    model = Scripted("a", answer("1", number="x"), "c", answer("2"))
    result = await Agent(model, hooks=[StructuredOutput(Invoice)]).run("go")
    assert result.outcome == "stopped"
    assert result.reason == "retry limit: no answer fitted after 3 retries: final_answer: number is missing"
    with pytest.raises(MissingOutput, match="without an output"):
        result.output  # noqa: B018
    model = Scripted("a", "b", "c", "d")
    result = await Agent(model, hooks=[StructuredOutput(Invoice)]).run("go")
    assert result.reason.startswith("retry limit: no answer fitted after 3 retries: it is not JSON")


async def test_retries_can_be_none() -> None:
    result = await Agent(Scripted("a"), hooks=[StructuredOutput(Invoice, retries=0)]).run("go")
    assert result.reason.startswith("retry limit: ")


async def test_a_run_without_an_answer_never_completes() -> None:
    model = Scripted(*"abcdefghi")  # hooks send a run back eight times in a row, and no more
    result = await Agent(model, hooks=[StructuredOutput(Invoice, retries=20)]).run("go")
    assert (result.outcome, result.value) == ("stopped", None)
    assert result.reason.startswith("retry limit: ")


async def test_a_slash_command_is_answered_directly() -> None:
    thread = Thread()
    thread.add(user("x" * 400), assistant("y" * 400), user("z"), assistant("."))
    hooks = [StructuredOutput(Invoice), Summarization(summarizer=lambda messages: "in short")]
    result = await Agent(Scripted(), hooks=hooks).run("/compact", thread=thread)
    assert (result.outcome, result.value) == ("completed", None)
    assert result.text.startswith("The conversation was summed up")


async def test_the_words_of_a_validator_reach_the_model() -> None:
    class Even(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def even(cls, value: int) -> int:
            if value % 2:
                raise ValueError("it must be even")
            return value

    model = Scripted(answer(number=1), answer(number=2))
    result = await Agent(model, hooks=[StructuredOutput(Even)]).run("go")
    assert "number is wrong: it must be even" in tool_results(result)[0]
    assert result.output == Even(number=2)


class Node(BaseModel):
    name: str
    children: list[Node] = []


class Renamed(BaseModel):
    number: int = Field(validation_alias="no", serialization_alias="NO")
    model_config = ConfigDict(extra="allow")


class Reserved(BaseModel):
    use: str
    run: str
    self: str


@pytest.mark.parametrize(
    ("schema", "given", "kept"),
    [
        (Node, {"name": "a", "children": [{"name": "b"}]},
         {"name": "a", "children": [{"name": "b", "children": []}]}),
        (Renamed, {"no": 3, "more": [1]}, {"NO": 3, "more": [1]}),
        (Reserved, {"use": "a", "run": "b", "self": "c"}, {"use": "a", "run": "b", "self": "c"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [Scripted, Native])
async def test_models_of_all_kinds(schema: Any, given: dict[str, Any], kept: Any, kind: type[Scripted]) -> None:
    model = kind(answer(**given) if kind is Scripted else json.dumps(given))
    result = await Agent(model, hooks=[StructuredOutput(schema)]).run("go")
    assert result.output == schema.model_validate(given)
    assert result.thread is not None and result.thread.values["outputs"]["answer"] == kept


async def test_a_json_schema_may_use_any_name() -> None:
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in ("use", "run", "self", "fields")}}
    given = {"use": "a", "run": "b", "self": "c", "fields": "d"}
    result = await Agent(Scripted(answer(**given)), hooks=[StructuredOutput(schema)]).run("go")
    assert result.output == given


async def test_output_that_is_not_json_is_invalid() -> None:
    class Measured(BaseModel):
        value: float

    model = Scripted(answer(value="nan"), answer(value=1))
    result = await Agent(model, hooks=[StructuredOutput(Measured)]).run("go")
    assert "it cannot be kept as JSON" in tool_results(result)[0]
    assert result.output == Measured(value=1)


@given(st.lists(st.text() | JSON.map(json.dumps), min_size=4, max_size=4))
@example(['{"number": 7}', "", "", ""])
def test_a_run_completes_with_an_answer_or_not_at_all(replies: list[str]) -> None:
    for kind in (Scripted, Native):
        model = kind(*map(assistant, replies), spare=True)
        result = Agent(model, hooks=[StructuredOutput(Invoice)]).run_sync("go")
        assert (result.outcome == "completed") is isinstance(result.value, Invoice)
        assert result.outcome == "completed" or result.reason.startswith("retry limit: ")


# -- several ----------------------------------------------------------------------------------------------------------

BOTH: dict[str, Any] = {"invoice": Invoice, "where": CITY}


async def test_several_by_name() -> None:
    model = Scripted(answer("1", "answer_invoice", number=7), answer("2", "answer_where", city="Bern"))
    thread = Thread()
    result = await Agent(model, hooks=[StructuredOutput(BOTH)]).run("go", thread=thread)
    assert tool_results(result) == ["Accepted. Still wanted: answer_where.", "Accepted."]
    assert result.output == {"invoice": Invoice(number=7), "where": {"city": "Bern"}}
    assert thread.values["outputs"] == {"invoice": {"number": 7, "items": []}, "where": {"city": "Bern"}}
    assert "calling each of these: answer_invoice, answer_where." in model.requests[0].system


async def test_several_at_once() -> None:
    model = Scripted([answer("1", "answer_invoice", number=7), answer("2", "answer_where", city="Bern")])
    result = await Agent(model, hooks=[StructuredOutput(BOTH)]).run("go")
    assert set(result.output) == {"invoice", "where"}


async def test_any_of_several() -> None:
    model = Native(answer("1", "answer_where", city="Bern"))  # no provider holds an answer to one of several
    result = await Agent(model, hooks=[StructuredOutput(BOTH, need="any")]).run("go")
    assert result.output == {"where": {"city": "Bern"}}
    assert "the one of these that fits" in model.requests[0].system


async def test_several_as_text() -> None:
    both = {"invoice": {"number": 7}, "where": {"city": "Bern"}}
    model = Scripted('{"weather": {}}', '{"invoice": 7}', '{"invoice": {"number": 7}}', json.dumps(both))
    result = await Agent(model, hooks=[StructuredOutput(BOTH)]).run("go")
    told = [message.text for message in result.messages if message.name]
    assert "there is no answer 'weather'; the answers are invoice, where" in told[0]
    assert "it must be a JSON object" in told[1]
    assert "something is missing. Call answer_where." in told[2]
    assert result.output["where"] == {"city": "Bern"}


async def test_a_repeated_part_is_no_progress() -> None:
    model = Scripted(*['{"invoice": {"number": 7}}', "{}"] * 2, '{"invoice": {"number": 8}}', spare=True)
    thread = Thread()
    result = await Agent(model, hooks=[StructuredOutput(BOTH)]).run("go", thread=thread)
    assert result.reason == "retry limit: no answer fitted after 3 retries: something is missing"
    assert len(model.requests) == 4
    assert thread.values["outputs"] == {"invoice": {"number": 7, "items": []}}  # valid output is stored


async def test_output_of_an_earlier_run_is_ignored() -> None:
    thread, hook = Thread(), StructuredOutput(BOTH, need="any")
    await Agent(Scripted(answer("1", "answer_invoice", number=7)), hooks=[hook]).run("go", thread=thread)
    model = Scripted("hm", answer("1", "answer_where", city="Bern"))
    result = await Agent(model, hooks=[hook]).run("and where?", thread=thread)
    assert result.output == {"where": {"city": "Bern"}}
    assert set(thread.values["outputs"]) == {"invoice", "where"}  # each under its name, the latest one


# -- by the provider --------------------------------------------------------------------------------------------------


async def test_a_provider_with_schema_support_gets_the_schema() -> None:
    model = Native(tool_calls_reply(tool_call()), '{"number": "x"}', '{"number": 7}')
    result = await Agent(model, tools=[echo], hooks=[StructuredOutput(Invoice)]).run("go")
    assert result.output == Invoice(number=7)
    for request in model.requests:
        assert request.settings["response_format"]["title"] == "Invoice"
        assert [tool.name for tool in request.tools] == ["echo"] and request.system == ""
    told = result.messages[-2]
    assert told.name == "structured_output.check" and "Answer again, with JSON that fits the schema" in told.text


async def test_a_provider_that_can_only_without_tools() -> None:
    model = Alone('{"number": 7}')
    assert (await Agent(model, hooks=[StructuredOutput(Invoice)]).run("go")).output == Invoice(number=7)
    assert "response_format" in model.requests[0].settings
    model = Alone(answer(number=7))
    result = await Agent(model, tools=[echo], hooks=[StructuredOutput(Invoice)]).run("go")
    assert result.output == Invoice(number=7)
    assert "response_format" not in model.requests[0].settings


@pytest.mark.parametrize(("kind", "native", "expected"), [(Native, False, False), (Scripted, True, True)])
async def test_native_output_is_configurable(kind: type[Scripted], native: bool, expected: bool) -> None:
    model = kind('{"number": 7}')
    result = await Agent(model, hooks=[StructuredOutput(Invoice, native=native)]).run("go")
    assert result.output == Invoice(number=7)
    assert ("response_format" in model.requests[0].settings) is expected


async def test_a_provider_that_refuses_the_schema_is_asked_for_a_call() -> None:
    model = Native(ModelError("schema not supported", status=400), answer("1", number="x"), answer("2", number=7))
    result = await Agent(model, hooks=[StructuredOutput(Invoice)]).run("go")
    assert result.output == Invoice(number=7)
    formats = ["response_format" in request.settings for request in model.requests]
    assert formats == [True, False, False]
    assert [event["name"] for event in thread_entries(result.thread, "event")] == ["schema_refused"]


@pytest.mark.parametrize(("status", "native"), [(401, None), (500, None), (400, True)])
async def test_another_error_is_an_error(status: int, native: bool | None) -> None:
    model = Native(ModelError("no", status=status))
    with pytest.raises(ModelError, match="no"):
        await Agent(model, hooks=[StructuredOutput(Invoice, native=native)]).run("go")


async def test_an_output_format_of_the_agent_is_overridden() -> None:
    for model in (Scripted(answer(number=7)), Native('{"number": 7}')):
        agent = Agent(model, hooks=[StructuredOutput(Invoice)], settings={"response_format": CITY})
        assert (await agent.run("go")).output == Invoice(number=7)
        assert model.requests[0].settings.get("response_format", {}).get("title") in (None, "Invoice")


async def test_with_fallback_the_format_fits_the_model() -> None:
    first, second = Native(ModelError("gone", status=503), name="a"), Scripted(answer(number=7), name="b")
    for hooks in ([Fallback(second), StructuredOutput(Invoice)], [StructuredOutput(Invoice), Fallback(second)]):
        first.requests.clear()
        second.requests.clear()
        result = await Agent(first, hooks=hooks).run("go")
        assert result.output == Invoice(number=7)
        assert "response_format" in first.requests[0].settings
        assert "response_format" not in second.requests[0].settings


def test_schema_support_is_declared_by_the_model() -> None:
    key = {"api_key": "k"}
    always: list[Model] = [
        Demo(),
        OpenAI("gpt-4o", **key),
        OpenAIResponses("gpt-5", **key),
        Anthropic("claude-x", **key),
    ]
    assert all(holds_schema(model, tools=tools) for model in always for tools in (True, False))
    ollama = OpenAI("llama3.1:8b", base_url="http://localhost:11434/v1", name="ollama")
    assert holds_schema(ollama, tools=False) and not holds_schema(ollama, tools=True)
    assert Local.holds_schema == "alone"
    assert not holds_schema(Scripted(), tools=False)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as server:
        yield server
        await _http.close()


CLIENTS = {"chat": (OpenAI, "gpt-4o"), "responses": (OpenAIResponses, "gpt-5"), "messages": (Anthropic, "claude-x")}


@pytest.mark.parametrize("wire", CLIENTS)
async def test_over_the_wire(wire: str, server: ScriptedServer) -> None:
    kind, name = CLIENTS[wire]
    script = server.script(Reply('{"number": "x"}'), Reply('{"number": 7}'))
    model: Any = kind(name, base_url=script.url, api_key="k")
    result = await Agent(model, hooks=[StructuredOutput(Invoice)]).run("go")
    assert result.output == Invoice(number=7) and not script.refusals
    assert all("number" in json.dumps(asked.body) and not asked.body.get("tools") for asked in script.asked)


@pytest.mark.parametrize("wire", CLIENTS)
async def test_by_a_tool_over_the_wire(wire: str, server: ScriptedServer) -> None:
    kind, name = CLIENTS[wire]
    replies = [Reply(calls=(Called("c1", "final_answer", given),)) for given in ('{"number": "x"}', '{"number": 7}')]
    script = server.script(*replies)
    model: Any = kind(name, base_url=script.url, api_key="k")
    result = await Agent(model, hooks=[StructuredOutput(Invoice, native=False)]).run("go")
    assert result.output == Invoice(number=7) and not script.refusals


async def test_a_small_local_model_is_constrained() -> None:
    class Weather(BaseModel):
        sunny: bool
        degrees: Literal[10, 20, 30]

    needs_smollm2()
    model = Local("smollm2", context=512, threads=1)
    try:
        agent = Agent(
            model, hooks=[StructuredOutput(Weather, retries=0)], settings={"max_tokens": 60, "temperature": 0}
        )
        result = await agent.run("It is sunny, and 20 degrees. Write it as JSON.")
    finally:
        await model.close()
    assert isinstance(result.output, Weather)


async def test_an_empty_reply_does_not_repeat_the_answer() -> None:
    @after(Step)
    def once(step: Step) -> Continue | None:
        return Continue("Sure?") if len(step.run.output) == 2 else None

    model = Native('{"number": 7}', assistant(""), '{"number": 8}')
    result = await Agent(model, hooks=[once, StructuredOutput(Invoice)]).run("go")
    assert result.output == Invoice(number=8)


# -- a longer story ---------------------------------------------------------------------------------------------------


async def test_further_user_messages_give_another_answer() -> None:
    def reply(request: Request) -> Message:
        if len(request.messages) == 1:
            stream.run.send("No, 8.")
            return assistant("", answer("1", number=7))
        return assistant("", answer("2", number=8))

    stream = Agent(FunctionModel(reply), hooks=[StructuredOutput(Invoice)]).stream("go")
    _ = [event async for event in stream]
    assert stream.result.output == Invoice(number=8)


async def test_the_events_end_with_the_answer() -> None:
    agent = Agent(Scripted(answer(number=7)), hooks=[StructuredOutput(Invoice)])
    seen = await collect_events(agent)
    names = [event.event for event in seen]
    assert names[-3:] == ["on_chat_model_restart", "on_chat_model_end", "done"]
    assert names.count("on_chat_model_start") == 1  # the model was called once
    assert names.count("on_state") == 1
    assert seen[-1].text == '{"number": 7, "items": []}'  # type: ignore[attr-defined]


async def test_a_guard_that_blocks_the_answer_ends_in_the_retry_limit() -> None:
    @guard(ToolUse, match="final_answer")
    def never(use: ToolUse) -> Block:
        return Block("not this one")

    model = Scripted(*(answer(str(n), number=7) for n in range(4)))
    result = await Agent(model, hooks=[StructuredOutput(Invoice), never]).run("go")
    assert result.reason == "retry limit: no answer fitted after 3 retries: not this one"
    assert result.thread is not None and "outputs" not in result.thread.values


async def test_an_answer_is_allowed_in_plan_mode() -> None:
    result = await Agent(Scripted(answer(number=7)), hooks=[Permissions(mode="plan"), StructuredOutput(Invoice)]).run(
        "go"
    )
    assert result.output == Invoice(number=7)


async def test_a_question_with_a_purpose_is_left_alone() -> None:
    @after(Run)
    async def sum_up(run: Run) -> None:
        await run.call_model([], purpose="summary")

    model = Native('{"number": 7}', "short")
    result = await Agent(model, hooks=[StructuredOutput(Invoice), sum_up]).run("go")
    assert result.output == Invoice(number=7)
    assert not model.requests[1].settings and not model.requests[1].tools


async def test_a_paused_run_keeps_its_output(tmp_path: Path) -> None:
    @guard(ToolUse, match="echo")
    def ask(use: ToolUse) -> Ask:
        return Ask("may it?")

    sessions = Sessions(tmp_path)
    first = Scripted(answer("1", "answer_invoice", number=7), tool_calls_reply(tool_call(id="2")))
    hooks = [sessions, StructuredOutput(BOTH), ask]
    waiting = await Agent(first, tools=[echo], hooks=hooks, ask=ScriptedUser(Paused("later"))).run("go", thread="t1")
    assert (waiting.outcome, waiting.value) == ("interrupted", None)
    second = Scripted(answer("3", "answer_where", city="Bern"))
    result = await Agent(second, tools=[echo], hooks=hooks, ask=ScriptedUser(True)).run(thread="t1")
    assert result.output == {"invoice": Invoice(number=7), "where": {"city": "Bern"}}
    await sessions.close()


async def test_a_run_that_had_all_but_ended_has_its_answer() -> None:
    thread, hook = Thread(), StructuredOutput(Invoice)
    await Agent(Scripted(answer(number=7)), hooks=[hook]).run("go", thread=thread)
    data = thread.to_json()
    data["entries"] = [entry for entry in data["entries"] if entry["kind"] != "run_end"]
    result = await Agent(Scripted(), hooks=[hook]).run(thread=Thread.from_json(data))
    assert result.output == Invoice(number=7)


async def test_concurrent_runs_have_separate_outputs() -> None:
    hook = StructuredOutput(Invoice)
    agents = [Agent(Scripted(answer(number=number)), hooks=[hook]) for number in range(3)]
    assert [(await agent.run("go")).output.number for agent in agents] == [0, 1, 2]


# -- other types ------------------------------------------------------------------------------------------------------


class Numbers(RootModel[list[int]]):
    pass


@dataclass
class Point:
    x: int
    y: int = 0


class Color(Enum):
    RED = "red"


class Size(TypedDict):
    width: int


@pytest.mark.parametrize(
    ("output_type", "sent", "output"),
    [
        (int, {"value": 5}, 5),
        (bool, {"value": True}, True),
        (list[int], {"value": [1, 2]}, [1, 2]),
        (list[Item], {"value": [{"name": "tea", "price": 2.5}]}, [Item(name="tea", price=2.5)]),
        (tuple[int, str], {"value": [1, "a"]}, (1, "a")),
        (Item | Invoice, {"value": {"name": "tea", "price": 2.5}}, Item(name="tea", price=2.5)),
        (Literal["yes", "no"], {"value": "no"}, "no"),
        (Annotated[int, Field(gt=3)], {"value": 4}, 4),
        (Color, {"value": "red"}, Color.RED),
        (Numbers, {"value": [1]}, Numbers([1])),
        (Point, {"x": 1}, Point(1)),  # an object needs no field around it
        (Size, {"width": 2}, {"width": 2}),
        (dict[str, int], {"a": 1}, {"a": 1}),
    ],
)
@pytest.mark.parametrize("native", [True, False])
async def test_an_answer_of_any_type(output_type: Any, sent: dict[str, Any], output: Any, native: bool) -> None:
    model = Scripted(json.dumps(sent) if native else ToolCall("1", "final_answer", sent))
    result = await Agent(model, output_type=StructuredOutput(output_type, native=native)).run("go")
    assert result.output == output and type(result.output) is type(output)
    stored = result.thread.values["outputs"]["answer"]
    assert json.loads(result.text) == sent if native else json.loads(result.text) == stored
    assert stored.items() >= sent.items()


async def test_an_answer_of_another_type_is_validated() -> None:
    replies = [ToolCall(str(number), "final_answer", {"value": number}) for number in (2, 5)]
    agent = Agent(Scripted(*replies), output_type=StructuredOutput(Annotated[int, Field(gt=3)]))
    result = await agent.run("go")
    assert result.output == 5 and tool_results(result)[0].endswith("value should be greater than 3 (got 2)")


async def test_a_child_answers_with_any_type() -> None:
    child = Subagent("counter", "Counts", "You count.", output_type=list[int], model=Scripted(
        ToolCall("1", "final_answer", {"value": [1, 2]})
    ))  # fmt: skip
    model = Scripted(ToolCall("t", "task", {"agent": "counter", "prompt": "Count."}), "done")
    result = await Agent(model, hooks=[Subagents([child])]).run("go")
    assert json.loads(tool_results(result)[0]) == {"value": [1, 2]}


# -- invalid options --------------------------------------------------------------------------------------------------


class Odd(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    path: ScriptedServer


@pytest.mark.parametrize(
    ("schema", "options", "sentence"),
    [
        (7, {}, "takes a type, such as a pydantic model, a JSON Schema, or several"),
        (str, {}, "without an output_type, result.text is the text"),
        ({}, {}, "takes a type"),
        ({"a": 7}, {}, "takes a type"),
        ({"properties": {"a": {"type": "string"}}}, {}, "must be of type object|takes a type"),
        ({"type": "array"}, {}, "must be of type object; put the value into a field"),
        ({"a": {"type": "string"}}, {}, "the schema of 'a' must be of type object"),
        (ScriptedServer, {}, "ScriptedServer cannot be described as a JSON Schema"),
        (list[ScriptedServer], {}, "cannot be described as a JSON Schema"),
        (int | None, {}, "the output cannot be None, which means a missing output; use a model with an optional field"),
        (Odd, {}, "Odd cannot be described as a JSON Schema"),
        ({"type": "object", "properties": 7}, {}, "not a JSON Schema"),
        ({"a b": Invoice}, {}, "'a b' cannot name an answer"),
        (Invoice, {"retries": -1}, "give a whole number of at least 0"),
        (Invoice, {"retries": True}, "give a whole number"),
        (Invoice, {"native": "yes"}, "native=True, False or None"),
        (Invoice, {"need": "some"}, 'need="all" or "any"'),
        (BOTH, {"native": True}, "holds an answer to one schema"),
    ],
)
def test_invalid_options_are_refused(schema: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        StructuredOutput(schema, **options)


# -- budgets and limits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_budget_first", [True, False])
async def test_no_budget_is_reserved_for_the_call_that_the_answer_replaces(is_budget_first: bool) -> None:
    budget, model = Budget(tokens=1_200, reserve=400), Scripted(ToolCall("1", "final_answer", {"city": "Bern"}))
    hooks = [budget, StructuredOutput(CITY)] if is_budget_first else [StructuredOutput(CITY), budget]
    result = await Agent(model, hooks=hooks).run("x" * 2_000)
    assert (result.outcome, result.value) == ("completed", {"city": "Bern"})
    assert budget.reserved.tokens == 0


@pytest.mark.parametrize("limits", [Limits(1), Limits(tokens=1)])
async def test_a_run_that_has_its_answer_is_not_stopped_by_limits(limits: Limits) -> None:
    model = Scripted(ToolCall("1", "final_answer", {"city": "Bern"}))
    result = await Agent(model, hooks=[limits, StructuredOutput(CITY)]).run("go")
    assert (result.outcome, result.value) == ("completed", {"city": "Bern"})


async def test_limits_stop_a_run_that_continues_after_its_answer() -> None:
    @after(Step)
    def go_on(step: Step) -> Continue | None:
        return Continue("Check it.") if isinstance(step.result, Stop) else None

    model = Scripted(ToolCall("1", "final_answer", {"city": "Bern"}))
    result = await Agent(model, hooks=[Limits(2), StructuredOutput(CITY), go_on]).run("go")
    assert (result.outcome, result.reason) == ("stopped", "step limit")
