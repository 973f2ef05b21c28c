"""Models for tests: scripted replies in pieces, with recorded requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wick import Agent, FunctionModel, Message, Scripted, ToolCall, assistant, tool, user
from wick.errors import ConfigError, ModelError, Paused
from wick.messages import Reasoning
from wick.models import resolve
from wick.models.reply import Reply
from wick.protocols import CallArgs, CallStart, Delta, Finish, Model, ReasoningDelta, Request, TextDelta, Usage

ASKED = Request((user("hi there, how are you?"),))


async def collect_deltas(model: Model, request: Request = ASKED) -> list[Delta]:
    return [delta async for delta in model.stream(request)]


async def test_text_is_streamed_word_by_word() -> None:
    deltas = await collect_deltas(Scripted("What is 2 + 3?\n It is 5. "))
    words = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
    assert words == ["What", " is", " 2", " +", " 3?", "\n It", " is", " 5. "]
    assert deltas[-1] == Finish("stop")


@given(st.text())
def test_the_words_add_up_to_the_text(text: str) -> None:
    message = Message("assistant", text)
    reply = Reply()
    for delta in asyncio.run(collect_deltas(Scripted(message))):
        reply.feed(delta)
    assert reply.message() == message


async def test_call_arguments_are_streamed_in_pieces() -> None:
    args = {"path": "/workspace/main.py", "text": "hello"}
    deltas = await collect_deltas(Scripted(assistant("", ToolCall("a", "write", args), ToolCall("b", "list"))))
    assert [delta for delta in deltas if isinstance(delta, CallStart)] == [
        CallStart(0, "a", "write"),
        CallStart(1, "b", "list"),
    ]
    pieces = [delta.text for delta in deltas if isinstance(delta, CallArgs) and delta.index == 0]
    assert len(pieces) > 3 and json.loads("".join(pieces)) == args
    assert deltas[-1] == Finish("tool_calls")


async def test_a_reply_may_be_nothing_but_calls() -> None:
    look, list_ = ToolCall("a", "look"), ToolCall("b", "list", {"path": "/"})
    for reply, wanted in ((look, (look,)), ([look, list_], (look, list_))):
        made = Reply()
        for delta in await collect_deltas(Scripted(reply)):
            made.feed(delta)
        assert made.message() == assistant("", *wanted)


@pytest.mark.parametrize("nonsense", [None, 5, {"role": "assistant"}, ["text"], user("hi")])
async def test_an_invalid_reply_is_an_error(nonsense: Any) -> None:
    for model in (Scripted(nonsense), FunctionModel(lambda request: nonsense)):
        with pytest.raises(ModelError, match="is not a reply"):
            await collect_deltas(model)


async def test_raw_arguments_are_streamed_verbatim() -> None:
    deltas = await collect_deltas(Scripted(assistant("", ToolCall("a", "write", {}, raw='{"half'))))
    assert "".join(delta.text for delta in deltas if isinstance(delta, CallArgs)) == '{"half'


async def test_reasoning_is_streamed_first() -> None:
    thought = Reasoning("hm", "sig", "p")
    deltas = await collect_deltas(Scripted(assistant("yes", reasoning=[thought])))
    assert deltas[:2] == [ReasoningDelta("hm", "sig", "p"), TextDelta("yes")]


async def test_usage_is_estimated() -> None:
    (usage,) = (delta for delta in await collect_deltas(Scripted("x" * 40)) if isinstance(delta, Usage))
    assert usage == Usage(len("hi there, how are you?") // 4, 10)


@pytest.mark.parametrize("error", [ValueError("no"), ModelError("down"), KeyError("x"), Paused("later")])
async def test_an_exception_is_raised(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        await collect_deltas(Scripted(error))
    assert caught.value is error


async def test_requests_are_remembered() -> None:
    @tool
    def look() -> str:
        """Look around."""
        return "a room"

    model = Scripted(assistant("", ToolCall("a", "look")), "A room.")
    agent = Agent(model, system="You are here.", tools=[look], settings={"temperature": 0.5, "stop": ["END"]})
    await agent.run("Where are you?")
    first, second = model.requests
    assert [message.text for message in first.messages] == ["Where are you?"]
    assert [message.role for message in second.messages] == ["user", "assistant", "tool"]
    for request in model.requests:
        assert request.system == "You are here."
        assert [tool.name for tool in request.tools] == ["look"]
        assert request.settings == {"temperature": 0.5, "stop": ["END"]}


async def test_a_generator_streams_its_reply() -> None:
    closed = []

    async def reply(request: Request) -> AsyncIterator[str | ToolCall]:
        try:
            yield "I look "
            yield f"at {request.text[:2]}."
            yield ToolCall("a", "look", {"at": "it"})
        finally:
            closed.append(True)

    deltas = await collect_deltas(FunctionModel(reply))
    assert deltas[:3] == [TextDelta("I look "), TextDelta("at hi."), CallStart(0, "a", "look")]
    assert isinstance(deltas[-2], Usage) and deltas[-1] == Finish("tool_calls")
    stream = FunctionModel(reply).stream(ASKED)
    assert await anext(stream) == TextDelta("I look ")
    await stream.aclose()  # type: ignore[attr-defined]  # a cancelled run
    assert closed == [True, True]

    async def nonsense(request: Request) -> AsyncIterator[Any]:
        yield 7

    with pytest.raises(ModelError, match="7 is not a part of a reply: yield texts and tool calls"):
        await collect_deltas(FunctionModel(nonsense))
    sync: Any = lambda request: iter(["It is ", "5."])  # noqa: E731
    with pytest.raises(ModelError, match="is not a reply: .*; a function that yields is `async def`"):
        await collect_deltas(FunctionModel(sync))


async def test_a_question_beyond_the_script_is_an_error() -> None:
    model = Scripted("one")
    await collect_deltas(model)
    with pytest.raises(ModelError, match="the script has 1 reply, and this is question 2"):
        await collect_deltas(model)
    assert len(model.requests) == 2


async def test_unused_replies_are_an_error_when_checked() -> None:
    model = Scripted("one", "two", "three", spare=False)
    model.spare = True  # this test leaves some
    assert model.unused == []
    model.check()
    model.spare = False
    await collect_deltas(model)
    assert model.unused == ["two", "three"]
    with pytest.raises(AssertionError, match=r"2 of the 3 scripted replies were not used: \['two', 'three'\]"):
        model.check()
    model.spare = True


async def test_a_function_answers() -> None:
    model = FunctionModel(lambda request: f"you said: {request.messages[-1].text}")
    assert (await Agent(model).run("hello")).text == "you said: hello"
    assert [message.text for message in model.requests[0].messages] == ["hello"]
    assert model.name == "function"


async def test_an_async_function_answers() -> None:
    async def answer(request: Request) -> Message:
        await asyncio.sleep(0)
        return assistant(str(len(request.messages)))

    assert (await Agent(FunctionModel(answer, name="counter")).run("hello")).text == "1"


@pytest.mark.parametrize("raises", [True, False])
async def test_a_function_may_fail(raises: bool) -> None:
    def answer(request: Request) -> Any:
        if raises:
            raise ModelError("overloaded")
        return ModelError("overloaded")

    with pytest.raises(ModelError, match="overloaded"):
        await Agent(FunctionModel(answer)).run("hello")


def test_a_model_is_unchanged_and_an_unknown_name_refused() -> None:
    model = Scripted()
    assert resolve(model) is model
    with pytest.raises(ConfigError, match="there is no model named 'abacus'"):
        resolve("abacus")


async def test_a_long_answering_function_uses_bounded_memory() -> None:
    model = FunctionModel(lambda request: "yes")
    for number in range(150):
        await Agent(model).run(str(number))
    assert [request.messages[0].text for request in model.requests] == [str(number) for number in range(50, 150)]


def test_a_request_has_the_text_of_its_last_message() -> None:
    assert ASKED.text == "hi there, how are you?" and Request(()).text == ""
    assert Agent(FunctionModel(lambda request: f"You said {request.text}")).run_sync("Hi.").text == "You said Hi."


@pytest.mark.parametrize(
    ("fn", "sentence"),
    [
        (lambda messages, info: "x", "takes one argument, the request, with request.text, request.messages"),
        (lambda: "x", "takes one argument, the request"),
        ("Hi.", "FunctionModel takes a function of the request, not 'Hi.'; Scripted takes replies"),
    ],
)
def test_a_function_of_anything_but_the_request_is_refused(fn: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        FunctionModel(fn)
    assert FunctionModel(str).fn is str and FunctionModel(lambda request, extra=None: "x")
