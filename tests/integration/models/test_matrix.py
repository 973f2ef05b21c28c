"""Aspects of every model: a table whose every cell is a test or a reason why there is none.

    ASPECTS            what is looked at, each a function of the model that is looked at
    MODELS             who is: the clients over a scripted server, SmolLM2 in llama.cpp, and the demo model
    DOES_NOT_APPLY     the cells without a test, and why

What goes wrong on the way to a server, and what is sent there, is in test_models.py.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from provider import FAULTS, WIRES, Answer, Call, Reply, Script, ScriptedServer, Thought, Tokens
from provider.faults import stall
from smollm2 import load_model, needs_smollm2
from wick import Agent, ModelCall, Thread, ToolCall, before, tool, user
from wick.capabilities.retry import Retry
from wick.errors import ModelError
from wick.messages import FilePart, ImagePart, Message, TextPart, assistant, tool_message
from wick.models import _http
from wick.models.anthropic import Anthropic
from wick.models.bedrock import Bedrock
from wick.models.demo import Demo
from wick.models.google import Google
from wick.models.local import Local
from wick.models.openai import OpenAI
from wick.models.openai_responses import OpenAIResponses
from wick.models.reply import Reply as Assembled
from wick.operations import Result
from wick.prices import Charge
from wick.protocols import CallArgs, CallStart, Delta, Finish, Model, ReasoningDelta, Request, TextDelta, Usage

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
DELTAS = (TextDelta, ReasoningDelta, CallStart, CallArgs, Usage, Finish)
BRIEF = {"max_tokens": 16, "temperature": 0}  # one of the vendors takes no less

# -- models ---------------------------------------------------------------------------------------------------------

CLIENTS: dict[str, tuple[Any, str, str]] = {
    "openai": (OpenAI, "gpt-4o", "chat"),
    "openai-responses": (OpenAIResponses, "gpt-5", "responses"),
    "anthropic": (Anthropic, "claude-sonnet-4-5", "messages"),
    "google": (Google, "gemini-3-pro-preview", "gemini"),
    "bedrock": (Bedrock, "amazon.nova-pro-v1:0", "converse"),
}
MODELS = (*CLIENTS, "local", "demo")
NO_SWITCH = ("google", "bedrock")


@dataclass
class Subject:
    """A model under test. Servers reply from a script; the other two generate."""

    name: str
    server: ScriptedServer | None = None
    small: Local | None = None
    scripts: list[Script] = field(default_factory=list)
    is_refused: bool = False  # its server refuses on purpose

    def model(self, *replies: Reply | Answer) -> Model:
        if self.small is not None:
            return self.small
        if self.server is None:
            return Demo()
        client, model, _ = CLIENTS[self.name]
        self.scripts.append(self.server.script(*replies))
        made: Model = client(model, base_url=self.scripts[-1].url, api_key="sk-test")
        return made


@pytest.fixture(scope="module")
def small() -> Iterator[Local]:
    """SmolLM2, loaded once for all of these tests."""
    needs_smollm2()
    model = load_model(Local("smollm2", context=512, threads=1))
    yield model
    asyncio.run(model.close())


@pytest.fixture
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    name: str = request.param
    if name in CLIENTS:
        async with ScriptedServer() as server:
            subject = Subject(name, server)
            yield subject
            assert await server.idle()
            await _http.close()
            assert subject.is_refused or not any(script.refusals for script in subject.scripts)
    else:
        yield Subject(name, small=request.getfixturevalue("small") if name == "local" else None)
        await _http.close()


# -- aspects --------------------------------------------------------------------------------------------------------

HELLO = Reply("Hello, Ada!", tokens=Tokens(12, 5))
USED: list[str] = []


@tool
async def ls(path: str) -> str:
    """List a folder."""
    USED.append(path)
    return "notes.txt"


def make_request(text: str | Message = "Hello!", *, tools: tuple[Any, ...] = (), **settings: Any) -> Request:
    message = user(text) if isinstance(text, str) else text
    return Request((message,), tools=tools, settings={**BRIEF, **settings})


async def collect_deltas(model: Model, request: Request) -> list[Delta]:
    """Return all deltas of a model: only deltas, and exactly one end, at the end."""
    deltas = [delta async for delta in model.stream(request)]
    assert all(type(delta) in DELTAS for delta in deltas), deltas
    assert [type(delta) for delta in deltas].count(Finish) == 1
    assert type(deltas[-1]) is Finish
    begun = [delta.index for delta in deltas if isinstance(delta, CallStart)]
    assert len(begun) == len(set(begun))
    assert {delta.index for delta in deltas if isinstance(delta, CallArgs)} <= set(begun)
    return deltas


def put_together(deltas: list[Delta]) -> Assembled:
    reply = Assembled()
    for delta in deltas:
        reply.feed(delta)
    return reply


async def says_text(subject: Subject) -> None:
    reply = put_together(await collect_deltas(subject.model(HELLO), make_request()))
    assert reply.message().text.strip()
    assert not reply.message().tool_calls


async def streams_text_in_pieces(subject: Subject) -> None:
    deltas = await collect_deltas(subject.model(HELLO), make_request())
    assert len([delta for delta in deltas if isinstance(delta, TextDelta) and delta.text]) > 1


async def ends_by_itself(subject: Subject) -> None:
    """A model this small ends a text when it likes, so a word is set at which it must."""
    word = {"stop": [" "]} if subject.name == "local" else {}
    most = {} if subject.name == "local" else {"max_tokens": 500}
    assert (await collect_deltas(subject.model(HELLO), make_request(**word, **most)))[-1] == Finish("stop")


async def is_cut_off_at_max_tokens(subject: Subject) -> None:
    cut = Reply("Hel", finish="length", tokens=Tokens(12, 1))
    most = 16 if subject.name in CLIENTS else 1
    result = await Agent(subject.model(cut), settings={"max_tokens": most}).run("Hello!")
    assert (result.outcome, result.reason) == ("completed", "finish reason: length")
    assert result.text


@before(ModelCall)
def first_a_tool(call: ModelCall) -> None:
    """The first answer must be a call; once a tool has answered, the model must talk."""
    answered = any(message.role == "tool" for message in call.messages)
    call.settings["tool_choice"] = "none" if answered else "ls"


async def used_ls(subject: Subject, *replies: Reply, text: str) -> Result:
    USED.clear()
    settings = {"max_tokens": 60, "temperature": 0}
    return await Agent(subject.model(*replies), tools=[ls], hooks=[first_a_tool], settings=settings).run(text)


async def uses_a_tool(subject: Subject) -> None:
    once = Reply("", calls=(Call.of("call_1", "ls", path="src"),))
    result = await used_ls(subject, once, Reply("There are notes."), text="List the files in the folder src.")
    (call,) = result.messages.assistant_messages()[0].tool_calls
    assert (call.name, call.invalid) == ("ls", "")
    assert [call.args["path"]] == USED
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]
    assert result.messages[2].text == "notes.txt"
    assert result.text


async def uses_three_tools_side_by_side(subject: Subject) -> None:
    calls = tuple(Call.of(f"call_{path}", "ls", path=path) for path in ("docs", "src", "tests"))
    replies = Reply("", calls=calls, order=(2, 0, 1) * 9, piece=3), Reply("There are notes.")
    text = "List the files in docs/, list the files in src/ and list the files in tests/."
    result = await used_ls(subject, *replies, text=text)
    assert sorted(path.strip("/") for path in USED) == ["docs", "src", "tests"]
    assert len(result.messages.assistant_messages()[0].tool_calls) == 3


async def reads_calls_of_an_earlier_turn(subject: Subject) -> None:
    calls = [ToolCall(f"call_{path}", "ls", {"path": path}) for path in ("docs", "src")]
    messages = (
        user("List the files."),
        assistant("", *calls),
        *(tool_message(call.id, "ls", "notes.txt") for call in calls),
    )
    request = Request(messages, "Be brief.", (ls,), {**BRIEF, "tool_choice": "none"})
    assert put_together(await collect_deltas(subject.model(HELLO), request)).message().text


async def tells_its_thoughts(subject: Subject) -> None:
    thinks = Reply("Hello!", thoughts=(Thought("Somebody greets me.", "c2ln"),))
    reply = put_together(await collect_deltas(subject.model(thinks), make_request()))
    assert "".join(thought.text for thought in reply.message().reasoning) == "Somebody greets me."


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"sunny": {"type": "boolean"}},
    "required": ["sunny"],
    "additionalProperties": False,
}


async def keeps_to_a_schema(subject: Subject) -> None:
    request = make_request("Is it sunny?", response_format=SCHEMA, max_tokens=40)
    reply = put_together(await collect_deltas(subject.model(Reply('{"sunny": true}')), request))
    assert isinstance(json.loads(reply.message().text)["sunny"], bool)


PICTURE = ImagePart(data=PIXEL, media_type="image/png")


async def answers_beside_a_picture(subject: Subject) -> None:
    message = user([TextPart("Hello!"), PICTURE])
    assert put_together(await collect_deltas(subject.model(HELLO), make_request(message))).message().text


async def refuses_pictures_in_a_sentence(subject: Subject) -> None:
    """There is no retry; nothing is stored, and media of a tool become a note."""
    pictures = [
        user([TextPart("Hello!"), PICTURE]),
        user([TextPart("Hello!"), FilePart(data=PIXEL, media_type="image/png")]),
    ]
    for message in pictures:
        with pytest.raises(ModelError, match="reads text alone, .* or ask another model") as caught:
            await collect_deltas(subject.model(), make_request(message))
        assert not caught.value.retryable
    thread = Thread()
    with pytest.raises(ModelError, match="reads text alone"):
        await Agent(subject.model()).run(pictures[0], thread=thread)
    assert not thread.entries
    drawn = Message("tool", (TextPart("done"), PICTURE), tool_call_id="call_1", name="draw")
    history = (pictures[0], assistant("", ToolCall("call_1", "draw")), drawn)
    assert (
        put_together(await collect_deltas(subject.model(HELLO), replace(make_request(), messages=history)))
        .message()
        .text
    )


async def counts_tokens(subject: Subject) -> None:
    deltas = await collect_deltas(subject.model(HELLO), make_request())
    usage = put_together(deltas).usage
    assert usage.input_tokens > 0
    assert usage.output_tokens > 0
    model = subject.model(HELLO)
    result = await Agent(model, settings=BRIEF).run("Hello!")
    assert result.charges == (Charge(model.name, result.usage),)
    assert (result.price is not None) == (subject.name in CLIENTS)  # local models have no list price


async def stops_when_it_is_cancelled(subject: Subject) -> None:
    model = subject.model(Answer(HELLO, stall(0.6)), HELLO)
    begun = asyncio.Event()
    extra = {"extra": {"ignore_eos": True}} if subject.name == "local" else {}

    async def read() -> None:
        async for _ in model.stream(make_request("Tell me a very long story.", max_tokens=400, **extra)):
            begun.set()
            await asyncio.sleep(0)

    task = asyncio.create_task(read())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (
        put_together(await collect_deltas(model, make_request())).message().text
    )  # and the next request need not wait for it


async def can_be_left_in_the_middle(subject: Subject) -> None:
    model = subject.model(Answer(HELLO, stall(0.6)), HELLO)
    stream: Any = model.stream(make_request(max_tokens=400))
    async with aclosing(stream) as deltas:
        async for _ in deltas:
            break
    assert put_together(await collect_deltas(model, make_request())).message().text


async def refused(subject: Subject, request: Request, sentence: str) -> None:
    model = subject.model(HELLO)
    with pytest.raises(ModelError, match=sentence) as caught:
        await collect_deltas(model, request)
    assert not caught.value.retryable
    subject.is_refused = True


async def refuses_an_unknown_setting(subject: Subject) -> None:
    await refused(subject, make_request(colour="red"), "there is no setting 'colour'; .* max_tokens")


async def refuses_a_choice_of_no_tool(subject: Subject) -> None:
    await refused(subject, make_request(tools=(ls,), tool_choice="rm"), "there is no tool named 'rm'; the tools are ls")


async def refuses_a_wrong_value(subject: Subject) -> None:
    await refused(subject, make_request(max_tokens="many"), "(?i)max_?(completion_?|output_?)?tokens")


async def takes_every_setting(subject: Subject) -> None:
    settings = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 16, "tool_choice": "auto"}
    settings |= {"parallel_tool_calls": subject.name in NO_SWITCH}  # these call tools in parallel whenever they like
    stop = {} if subject.name == "openai-responses" else {"stop": "END"}  # its API has none, and wick reports it
    reply = put_together(await collect_deltas(subject.model(HELLO), make_request(tools=(ls,), **settings, **stop)))
    assert reply.message().text or reply.message().tool_calls


async def overcomes_a_server_that_stumbles(subject: Subject) -> None:
    down = Answer(HELLO, FAULTS["529"].fault)
    result = await Agent(subject.model(down, HELLO), hooks=[Retry(2, base=0)]).run("Hello!")
    assert result.text == HELLO.text


Check = Callable[[Subject], Awaitable[None]]

ASPECTS: tuple[Check, ...] = (
    says_text,
    streams_text_in_pieces,
    ends_by_itself,
    is_cut_off_at_max_tokens,
    uses_a_tool,
    uses_three_tools_side_by_side,
    reads_calls_of_an_earlier_turn,
    tells_its_thoughts,
    keeps_to_a_schema,
    answers_beside_a_picture,
    refuses_pictures_in_a_sentence,
    counts_tokens,
    stops_when_it_is_cancelled,
    can_be_left_in_the_middle,
    refuses_an_unknown_setting,
    refuses_a_choice_of_no_tool,
    refuses_a_wrong_value,
    takes_every_setting,
    overcomes_a_server_that_stumbles,
)

DOES_NOT_APPLY: Mapping[tuple[Check, str], str] = {
    (uses_three_tools_side_by_side, "local"): "a forced reply is held to one call, and SmolLM2 makes none by itself",
    (tells_its_thoughts, "local"): "SmolLM2 does not think aloud",
    (tells_its_thoughts, "demo"): "a table of requests does not think",
    (answers_beside_a_picture, "local"): "it reads text alone, and refuses pictures",
    (refuses_pictures_in_a_sentence, "openai"): "whether a model can see is for the server to say",
    (refuses_pictures_in_a_sentence, "openai-responses"): "whether a model can see is for the server to say",
    (refuses_pictures_in_a_sentence, "anthropic"): "whether a model can see is for the server to say",
    (refuses_pictures_in_a_sentence, "google"): "whether a model can see is for the server to say",
    (refuses_pictures_in_a_sentence, "bedrock"): "whether a model can see is for the server to say",
    (refuses_pictures_in_a_sentence, "demo"): "it goes by the words beside a picture",
    (overcomes_a_server_that_stumbles, "local"): "its server is a child process; what becomes of one that dies is in "
    "tests/integration/models/test_local.py",
    (overcomes_a_server_that_stumbles, "demo"): "nothing is sent, so nothing gets lost",
}

CELLS = [(aspect, name) for aspect in ASPECTS for name in MODELS if (aspect, name) not in DOES_NOT_APPLY]


@pytest.mark.parametrize(
    ("aspect", "subject"), CELLS, indirect=["subject"], ids=[f"{name}-{aspect.__name__}" for aspect, name in CELLS]
)
async def test_model(aspect: Check, subject: Subject) -> None:
    await aspect(subject)


def test_every_cell_is_a_test_or_a_reason() -> None:
    assert len(CELLS) + len(DOES_NOT_APPLY) == len(ASPECTS) * len(MODELS)
    assert all(aspect in ASPECTS and name in MODELS and len(why) > 10 for (aspect, name), why in DOES_NOT_APPLY.items())
    assert {wire for *_, wire in CLIENTS.values()} == set(WIRES)
