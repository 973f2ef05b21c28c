"""Requirements of every model client, for any behaviour of the server.

Each test runs over a scripted server that speaks a client's wire format and refuses what the vendor would refuse. It
runs against every client, except for faults in code that all clients share (`clients_for`). Where something goes
wrong, a whole agent with a tool runs: it has exactly one outcome, its tool is never used on what the model did not say,
its thread can be continued, and no connection stays behind.
"""

from __future__ import annotations

import asyncio
import json
import os
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from provider import (
    FAULTS,
    WIRES,
    Answer,
    Call,
    Fault,
    Kind,
    Reply,
    Script,
    ScriptedServer,
    Thought,
    Tokens,
    Wire,
    stream_of,
)
from provider.faults import before, corrupt, cut, drop_at, end, framed, reset, stall, swap_at, twice_at
from provider.flow import STALL
from wick import Agent, Message, Thread, constants, tool
from wick.capabilities.retry import Retry
from wick.errors import ModelError
from wick.events import Event
from wick.messages import ImagePart, Reasoning, TextPart, ToolCall, ToolResult, assistant, system, tool_message, user
from wick.models import _http
from wick.models._http import TimeLimits
from wick.models.anthropic import Anthropic
from wick.models.bedrock import Bedrock
from wick.models.google import Google
from wick.models.openai import OpenAI
from wick.models.openai_responses import OpenAIResponses
from wick.operations import Result
from wick.protocols import Model, Request, Usage

FULL = bool(os.environ.get("WICK_FULL"))
KEY = "sk-very-secret-0123456789"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@dataclass(frozen=True)
class Client:
    """A client, and how its server is scripted."""

    kind: Any
    model: str
    wire: Wire

    def __call__(self, script: Script, **options: Any) -> Model:
        model: Model = self.kind(self.model, base_url=script.url, api_key=KEY, **options)
        return model


CLIENTS = {
    "openai": Client(OpenAI, "gpt-4o", WIRES["chat"]),
    "openai-responses": Client(OpenAIResponses, "gpt-5", WIRES["responses"]),
    "anthropic": Client(Anthropic, "claude-sonnet-4-5", WIRES["messages"]),
    "google": Client(Google, "gemini-3-pro-preview", WIRES["gemini"]),
    "bedrock": Client(Bedrock, "amazon.nova-pro-v1:0", WIRES["converse"]),
}


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Client:
    return CLIENTS[request.param]


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    """The server; when the test is over, no connection to it is left."""
    async with ScriptedServer() as server:
        yield server
        assert await server.idle(), "an answer is still being read"
        await _http.close()
        assert await server.quiet(), f"{server.open} connections were left open"


# -- an agent that adds ---------------------------------------------------------------------------------------------

USES: ContextVar[list[tuple[int, int]]] = ContextVar("USES")

QUESTION = "What is 2 + 3?"
ADDS = Reply(
    "I'll add.",
    (Thought("Two and three …", "c2lnbmF0dXJl"),),
    (Call("call_1", "add", '{"a": 2, "b": 3}'),),
    Tokens(40, 30, 8, 5),
    piece=6,
)
SAYS = Reply("2 + 3 = 5, naïvely ✓", tokens=Tokens(70, 9))
BYE = Reply("bye")


@tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    USES.get().append((a, b))
    return str(a + b)


@dataclass
class Trial:
    """A run and its outcome."""

    thread: Thread
    uses: list[tuple[int, int]]
    kinds: list[str] = field(default_factory=list)
    terminal: list[Event] = field(default_factory=list)
    result: Result | None = None
    error: BaseException | None = None

    def take(self, event: Event) -> None:
        self.kinds.append(event.event)
        self.terminal += [event] if event.terminal else []

    @property
    def first_reply(self) -> Message:
        """The first reply."""
        return self.thread.messages.assistant_messages()[0]

    def check(self) -> None:
        """Check invariants that hold for any fault."""
        assert len(self.terminal) == 1 and self.kinds[-1] in ("done", "error"), self.kinds[-5:]
        assert self.error is None or type(self.error) is ModelError, repr(self.error)
        assert (self.result is None) != (self.error is None)
        assert self.result is None or self.result.outcome == "completed", self.result
        assert self.uses in ([], [(2, 3)], [(2, 3), (1, 1)]), f"the tool was used with {self.uses}"
        assert not self.thread.busy and not self.thread.pending
        self.thread.messages.validate()
        assert KEY not in f"{self.error} {self.terminal}"

    def check_read(self, first: Reply = ADDS, last: Reply = SAYS) -> None:
        """Nothing was lost."""
        assert self.error is None, self.error
        assert self.result is not None and self.result.text == last.text
        assert self.uses == [(2, 3)]
        assert self.first_reply.text == first.text
        assert [(call.id, call.name, call.raw_args.replace(" ", "")) for call in self.first_reply.tool_calls] == [
            (call.id, call.name, call.args.replace(" ", "")) for call in first.calls
        ]
        assert "".join(thought.text for thought in self.first_reply.reasoning) == "".join(
            t.text for t in first.thoughts
        )


ONCE = Retry(attempts=1)  # errors are to be seen
AGAIN = Retry(attempts=2, base=0)  # a keep-alive connection may turn out to be closed


async def attempt(
    model: Model, thread: Thread | None = None, text: Any = QUESTION, retry: Retry = ONCE, **options: Any
) -> Trial:
    """Run an agent that can add."""
    trial = Trial(thread if thread is not None else Thread(), [])
    USES.set(trial.uses)
    agent = Agent(model, tools=[add], hooks=[retry], **options)
    try:
        trial.result = await agent.run(text, thread=trial.thread, emit=trial.take)
    except Exception as error:
        trial.error = error
    return trial


# -- replies --------------------------------------------------------------------------------------------------------


async def test_text(client: Client, server: ScriptedServer) -> None:
    script = server.script(SAYS)
    trial = await attempt(client(script))
    trial.check()
    assert trial.result is not None and trial.result.text == SAYS.text
    assert trial.kinds.count("on_chat_model_stream") == len(SAYS.pieces(SAYS.text))
    assert not script.refusals


async def test_a_reply_of_nothing(client: Client, server: ScriptedServer) -> None:
    trial = await attempt(client(server.script(Reply(""))))
    assert trial.error is None or type(trial.error) is ModelError
    assert len(trial.terminal) == 1


async def test_one_tool_call(client: Client, server: ScriptedServer) -> None:
    script = server.script(ADDS, SAYS)
    trial = await attempt(client(script))
    trial.check()
    trial.check_read()
    assert not script.refusals and len(script.asked) == 2
    assert '"5"' in script.asked[1].raw.decode() or '"text":"5"' in script.asked[1].raw.decode()


@pytest.mark.parametrize("order", [(), (0, 1, 2) * 4, (2, 0, 1, 1, 0, 2, 2, 1), (1, 1, 1, 1, 2, 0)])
async def test_three_calls_side_by_side(client: Client, server: ScriptedServer, order: tuple[int, ...]) -> None:
    heard: list[tuple[str, str]] = []

    @tool
    async def look(place: str) -> str:
        """Read something."""
        heard.append(("look", place))
        return f"nothing in {place}"

    @tool
    async def now() -> str:
        """Return the time."""
        heard.append(("now", ""))
        return "noon"

    calls = (
        Call.of("call_x", "look", place="the attic"),
        Call("call_y", "now"),
        Call.of("call_z", "look", place="Zoë"),
    )
    script = server.script(Reply("", calls=calls, order=order, piece=5), SAYS)
    result = await Agent(client(script), tools=[look, now]).run("Where?")
    assert not script.refusals and result.text == SAYS.text
    assert sorted(heard) == [("look", "Zoë"), ("look", "the attic"), ("now", "")]
    assert [(call.id, call.name, call.args) for call in result.messages.assistant_messages()[0].tool_calls] == [
        (call.id, call.name, json.loads(call.args)) for call in calls
    ]
    answers = {message.tool_call_id: message.text for message in result.messages if message.role == "tool"}
    assert answers == {"call_x": "nothing in the attic", "call_y": "noon", "call_z": "nothing in Zoë"}


async def test_reasoning_is_read(client: Client, server: ScriptedServer) -> None:
    trial = await attempt(client(server.script(ADDS, SAYS)))
    assert "".join(thought.text for thought in trial.first_reply.reasoning) == ADDS.thoughts[0].text


@pytest.mark.parametrize("name", ["openai-responses", "anthropic", "google", "bedrock"])
async def test_signed_reasoning_is_replayed_unchanged(name: str, server: ScriptedServer) -> None:
    client = CLIENTS[name]
    thoughts = (Thought("First, …", "Zmlyc3Q="), Thought("Second: é", "c2Vjb25k"))
    script = server.script(replace(ADDS, thoughts=thoughts), replace(SAYS, thoughts=thoughts[:1]), BYE)
    trial = await attempt(client(script))
    trial.check_read(replace(ADDS, thoughts=thoughts))
    assert [thought.text for thought in trial.first_reply.reasoning] == ["First, …", "Second: é"]
    kept = Thread.from_json(json.loads(json.dumps(trial.thread.to_json())))  # and survives being stored
    again = await attempt(client(script), kept, "Thanks!")
    assert again.error is None and not script.refusals
    for asked in script.asked[1:]:
        assert all(thought.signature in asked.raw.decode() for thought in thoughts)


async def test_reasoning_is_replayed_to_a_chat_server_that_needs_it(server: ScriptedServer) -> None:
    script = server.script(ADDS, SAYS)
    await attempt(CLIENTS["openai"](script, replay_reasoning=True))
    assert script.asked[1].body["messages"][1]["reasoning_content"] == ADDS.thoughts[0].text
    assert not script.refusals


async def test_usage(client: Client, server: ScriptedServer) -> None:
    for tokens in (Tokens(100, 20), Tokens(100, 20, 60, 15), Tokens(0, 0), Tokens(10**9, 10**6)):
        trial = await attempt(client(server.script(replace(ADDS, tokens=tokens), replace(SAYS, tokens=Tokens(7, 3)))))
        assert trial.result is not None
        thought = 0 if client.wire.name == "converse" else tokens.reasoning  # its API does not count reasoning
        assert trial.result.usage == Usage(tokens.input + 7, tokens.output + 3, tokens.cached, thought)


STOPS = {"stop": "completed", "length": "finish reason: length", "content_filter": "finish reason: content_filter"}


async def test_stop_reasons(client: Client, server: ScriptedServer) -> None:
    for finish, reason in STOPS.items():
        trial = await attempt(client(server.script(replace(SAYS, finish=finish))))
        assert trial.result is not None and trial.result.reason == reason
        assert trial.result.text == SAYS.text


# -- requests -------------------------------------------------------------------------------------------------------


def find_values(data: Any, key: str) -> list[Any]:
    """Return all values of a key, at any depth."""
    if isinstance(data, dict):
        return [v for k, value in data.items() for v in ([value] if k == key else []) + find_values(value, key)]
    return [each for item in data for each in find_values(item, key)] if isinstance(data, list) else []


async def send_accepted(client: Client, server: ScriptedServer, text: Any = QUESTION, **options: Any) -> Any:
    """The body of a request that the server accepted."""
    script = server.script(SAYS)
    trial = await attempt(client(script), text=text, **options)
    assert trial.error is None and not script.refusals
    return script.asked[0].body


async def test_pictures(client: Client, server: ScriptedServer) -> None:
    body = await send_accepted(client, server, user([TextPart("Look:"), ImagePart(data=PIXEL, media_type="image/png")]))
    assert PIXEL in json.dumps(body) and "Look:" in json.dumps(body)
    by_address = user([ImagePart(url="https://example.com/a.png"), TextPart("Well?")])
    if client.wire.name == "converse":
        trial = await attempt(client(server.script(SAYS)), text=by_address)
        assert "takes files as data, not by their address" in str(trial.error)
        return
    body = await send_accepted(client, server, by_address)
    assert "https://example.com/a.png" in json.dumps(body)


async def test_pictures_of_tools(client: Client, server: ScriptedServer) -> None:
    @tool
    async def draw(what: str) -> ToolResult:
        """Draw something."""
        return ToolResult(f"here is {what}", parts=(ImagePart(data=PIXEL, media_type="image/png"),))

    calls = Call.of("call_1", "draw", what="a dot"), Call.of("call_2", "draw", what="a spot")
    script = server.script(Reply("", calls=calls), SAYS)
    result = await Agent(client(script), tools=[draw]).run("Draw!")
    assert result.text == SAYS.text and not script.refusals
    raw = script.asked[1].raw.decode()
    assert raw.count(PIXEL) == 2 and "here is a dot" in raw and "here is a spot" in raw


async def test_system_and_tools(client: Client, server: ScriptedServer) -> None:
    body = await send_accepted(client, server, system="You can add. Ünd?")
    assert "You can add. Ünd?" in json.dumps(body, ensure_ascii=False)
    assert "Add two numbers." in find_values(body, "description")
    assert find_values(body, "name")[:1] == ["add"]
    if client.wire.name in ("chat", "responses", "messages"):  # others name both in the address
        assert body["stream"] is True and body["model"] == client.model


async def test_settings(client: Client, server: ScriptedServer) -> None:
    body = await send_accepted(client, server, settings={"temperature": 0.25, "top_p": 0.5, "max_tokens": 777})
    assert find_values(body, "temperature") == [0.25] and find_values(body, "top_p") + find_values(body, "topP") == [
        0.5
    ]
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens", "maxTokens")
    assert [value for name in names for value in find_values(body, name)] == [777]


async def test_stop_words(client: Client, server: ScriptedServer) -> None:
    if client.wire.name == "responses":
        trial = await attempt(client(server.script(SAYS)), settings={"stop": ["END"]})
        assert "has no setting 'stop'" in str(trial.error)  # the API has none
        return
    for stop in (["END", "\n\nUser:"], "END"):
        body = await send_accepted(client, server, settings={"stop": stop})
        assert (find_values(body, "stop") + find_values(body, "stop_sequences") + find_values(body, "stopSequences"))[
            0
        ] in (stop, [stop])


async def test_extra(client: Client, server: ScriptedServer) -> None:
    field = {"gemini": "labels", "converse": "requestMetadata"}.get(client.wire.name, "metadata")
    assert (await send_accepted(client, server, settings={"extra": {field: {"user_id": "u1"}}}))[field] == {
        "user_id": "u1"
    }


CHOICES: dict[str, dict[str, Any]] = {
    "auto": {"chat": "auto", "responses": "auto", "messages": {"type": "auto"}, "gemini": {"mode": "AUTO"}},
    "none": {"chat": "none", "responses": "none", "messages": {"type": "none"}, "gemini": {"mode": "NONE"}},
    "required": {"chat": "required", "responses": "required", "messages": {"type": "any"}, "gemini": {"mode": "ANY"}},
    "add": {
        "chat": {"type": "function", "function": {"name": "add"}},
        "responses": {"type": "function", "name": "add"},
        "messages": {"type": "tool", "name": "add"},
        "gemini": {"mode": "ANY", "allowedFunctionNames": ["add"]},
    },
}


CONVERSE_CHOICES: dict[str, list[Any]] = {
    "auto": [{"auto": {}}],
    "none": [],
    "required": [{"any": {}}],
    "add": [{"tool": {"name": "add"}}],
}


async def test_tool_choice(client: Client, server: ScriptedServer) -> None:
    for choice, expected in CHOICES.items():
        body = await send_accepted(client, server, settings={"tool_choice": choice})
        if client.wire.name == "converse":
            assert find_values(body, "toolChoice") == CONVERSE_CHOICES[choice]
            assert bool(find_values(body, "toolConfig")) == (choice != "none")  # the API cannot forbid tools
            continue
        assert find_values(body, "tool_choice") + find_values(body, "functionCallingConfig") == [
            expected[client.wire.name]
        ]


async def test_calls_one_after_the_other(client: Client, server: ScriptedServer) -> None:
    if client.wire.name in ("gemini", "converse"):
        trial = await attempt(client(server.script(SAYS)), settings={"parallel_tool_calls": False})
        assert "has no setting 'parallel_tool_calls'" in str(trial.error)  # the API has none
        return
    body = await send_accepted(client, server, settings={"parallel_tool_calls": False})
    assert find_values(body, "parallel_tool_calls") == [False] or find_values(body, "disable_parallel_tool_use") == [
        True
    ]


async def test_settings_of_tools_without_tools(client: Client, server: ScriptedServer) -> None:
    script = server.script(SAYS)
    settings = {"tool_choice": "auto", "parallel_tool_calls": True}
    assert (await Agent(client(script), settings=settings).run("hi")).text == SAYS.text
    assert not script.refusals and not find_values(script.asked[0].body, "tools")


async def test_response_format(client: Client, server: ScriptedServer) -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    closed = {**schema, "additionalProperties": False}
    for wanted in (schema, closed):
        body = await send_accepted(client, server, settings={"response_format": wanted})
        (sent_schema,) = find_values(body, "schema") + find_values(body, "responseJsonSchema")
        assert (json.loads(sent_schema) if isinstance(sent_schema, str) else sent_schema) in (schema, closed)


async def test_an_unknown_setting_is_a_sentence(client: Client, server: ScriptedServer) -> None:
    script = server.script(SAYS)
    request = Request((user("hi"),), settings={"colour": "red"})
    with pytest.raises(ModelError, match="there is no setting 'colour'"):
        _ = [delta async for delta in client(script).stream(request)]
    assert not script.asked


FOREIGN = [
    system("Be brief."),
    user("   "),
    user(QUESTION),
    assistant(
        "  ",
        ToolCall("call/1:é", "add", {"a": 2, "b": 3}, raw='{"a": 2, "b": 3}'),
        ToolCall("x" * 60, "add", {}, raw='{"a": 2, "b', invalid="the arguments are not valid JSON"),
        ToolCall("call_3", "odd name!", {}, raw="[1]", invalid="the arguments must be a JSON object"),
        reasoning=[Reasoning("hm", "c2ln", "someone-else"), Reasoning("unsigned")],
    ),
    tool_message("call/1:é", "add", "5"),
    tool_message("x" * 60, "add", ""),
    tool_message("call_3", "odd name!", "there is no such tool"),
    system("Now be long."),
    user([TextPart(""), TextPart("And now?")]),
    Message("user", "Go on.", name="some_hook"),
    assistant("It is 5.\n"),
    user("Thanks. \ud83d"),
    user("And 3 + 4?"),
]


async def test_a_conversation_with_another_model_continues(client: Client, server: ScriptedServer) -> None:
    """Ids, names, arguments, reasoning and silence that this vendor would refuse do not make a thread unusable."""
    script = server.script(SAYS)
    trial = await attempt(client(script), text=FOREIGN)
    assert trial.error is None, trial.error
    assert not script.refusals


async def test_a_conversation_of_many_turns(
    client: Client, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "LAST_BYTE_SECONDS", 30.0)  # for a slow client, not server
    turns = 12
    script = server.script(*[reply for n in range(turns) for reply in (_renamed(ADDS, n), SAYS)])
    model, thread = client(script), Thread()
    for _ in range(turns):
        trial = await attempt(model, thread)
        assert trial.error is None and trial.uses == [(2, 3)]
    assert not script.refusals and len(script.asked) == 2 * turns
    assert server.accepted == 1, "a connection is used again"


def _renamed(reply: Reply, number: int) -> Reply:
    return replace(reply, calls=tuple(replace(call, id=f"call_{number}") for call in reply.calls))


# -- cancelling -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault", [stall(0, "wire"), stall(0), stall(0.5), before("end", STALL)], ids=["head", "body", "middle", "end"]
)
async def test_cancel(client: Client, server: ScriptedServer, fault: Fault) -> None:
    script = server.script(Answer(ADDS, fault), SAYS)
    trial = Trial(Thread(), [])
    USES.set(trial.uses)
    run = Agent(client(script), tools=[add]).run(QUESTION, thread=trial.thread, emit=trial.take)
    task = asyncio.create_task(run)
    while not script.asked:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.03)  # drain the stream
    if task.done() or trial.uses or len(script.asked) > 1:
        await task
        return  # the reply was complete without its end
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [event.data()["outcome"] for event in trial.terminal] == ["cancelled"]
    assert await server.idle(), "the server still waits"
    assert script.asked[0].left.is_set() and not trial.uses
    again = await attempt(client(script), trial.thread, "And now?")
    assert again.error is None and not script.refusals


async def test_a_stream_that_is_left_is_closed(client: Client, server: ScriptedServer) -> None:
    script = server.script(Answer(SAYS, stall(0.9)))
    async for event in Agent(client(script)).stream("hi"):
        if event.event == "on_chat_model_stream":
            break
    assert await server.idle() and script.asked[0].left.is_set()


async def test_a_server_that_is_not_there(client: Client) -> None:
    async with ScriptedServer() as server:
        script = server.script(SAYS)
    trial = await attempt(client(script))
    trial.check()
    assert isinstance(trial.error, ModelError) and trial.error.retryable
    assert f"127.0.0.1:{server.port}" in str(trial.error)
    await _http.close()


# -- faults ---------------------------------------------------------------------------------------------------------


BIG = [name for name in FAULTS if any(word in name for word in ("without end", "20 MB", "bomb", "huge error"))]

# Faults in bytes occur in the code for HTTP and for server-sent events, which all clients share, except for these:
# the client's parser of events decides their outcome.
PARSED = {
    *("400", "200 with an error", "no names of events", "more after the end", "a wrong byte"),
}
# Faults in events and in the reply that all clients have the same code for: where JSON and numbers are decoded, where
# arguments are parsed, where tools are looked up, and where the end of a connection is noticed.
SHARED = {
    *("arguments with NaN", "arguments with a key twice", "arguments in a list", "arguments in a text"),
    *("arguments twice", "arguments with more behind", "arguments in a fence", "arguments of other types"),
    *("an argument missing", "an argument too many", "a huge number", "deep arguments", "arguments of 5 MB"),
    *("arguments with half a character", "no arguments at the length", "two hundred calls"),
    *("a tool that is not there", "a tool with an odd name"),
    *("a control character", "invalid UTF-8", "half a character", "a deep event"),
    *("an event that is a number", "an event that is a text", "an error before the finish", "text that is a number"),
    *("negative usage", "usage in words"),
    *("huge usage", "usage beyond JSON's numbers", "events of nothing for ever", "reset before the end", "two ends"),
}
ONLY = {"calls in the old form": ["openai"], "calls in both forms": ["openai"]}  # other formats have one form
LINES = {  # faults of server-sent events, which a binary stream does not have
    *("CRLF", "CRLF, one byte at a time", "CR alone", "CR alone, one byte at a time", "comments", "other fields"),
    *("blank lines", "no space after the colon", "no names of events", "no last empty line", "data in several lines"),
    *("a byte order mark", "a byte order mark, one byte at a time"),
}


def clients_for(name: str) -> list[str]:
    """Return every client for a fault that reaches its parser, else one of them in turn."""
    if name in ONLY:
        return ONLY[name]
    stages = {stage for stage, _ in FAULTS[name].fault.steps}
    is_shared = name in SHARED or (name not in PARSED and not stages & {"reply", "events"})
    clients = one_in_turn(FAULTS, name) if is_shared else [*CLIENTS]
    return [client for client in clients if client != "bedrock"] or ["openai"] if name in LINES else clients


def one_in_turn(names: Iterable[str], name: str) -> list[str]:
    """Return one client, or all of them for `make test-full`."""
    return [*CLIENTS] if FULL else [[*CLIENTS][[*names].index(name) % len(CLIENTS)]]


def each_fault(names: Iterable[str], clients: Callable[[str], list[str]] = clients_for) -> Any:
    """Parametrize a test with these faults, each with its clients."""
    pairs = [(client, name) for name in names for client in clients(name)]
    return pytest.mark.parametrize(("client", "name"), pairs, indirect=["client"])


def test_every_fault_has_a_client() -> None:
    assert not (PARSED | SHARED | LINES | ONLY.keys()) - FAULTS.keys()
    used = [client for name in FAULTS for client in clients_for(name)]
    assert all(used.count(client) > len(FAULTS) / 3 for client in CLIENTS)


@each_fault(name for name in FAULTS if name not in BIG)
async def test_fault(client: Client, server: ScriptedServer, name: str) -> None:
    await overcome(client, server, FAULTS[name])


@each_fault(BIG)
async def test_memory_is_bounded(client: Client, server: ScriptedServer, name: str) -> None:
    await attempt(client(server.script(ADDS, SAYS)))  # lazy imports do not count
    tracemalloc.start()
    try:
        await overcome(client, server, FAULTS[name])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64_000_000, f"{peak / 1e6:.0f} MB"


async def overcome(client: Client, server: ScriptedServer, kind: Kind) -> None:
    """Check the expected outcome of a fault, and that the conversation can be continued."""
    script = server.script(Answer(ADDS, kind.fault), SAYS, BYE)
    model = client(script, limits=TimeLimits(**kind.limits))
    trial = await attempt(model)
    trial.check()
    meaning = kind.meaning(client.wire.name)
    if meaning == "read":
        trial.check_read()
    elif meaning == "told":
        assert trial.result is not None and trial.result.text == SAYS.text and trial.uses == [], trial.error
    elif meaning == "fail":
        check_failure(trial.error, kind)
    if trial.error is not None:
        assert trial.uses == [] and 10 < len(str(trial.error)) < 1000
    again = await attempt(model, trial.thread, "And now?", retry=AGAIN)
    assert again.error is None, again.error
    assert not script.refusals


def check_failure(error: BaseException | None, kind: Kind) -> None:
    assert isinstance(error, ModelError), "nothing failed"
    assert kind.status is None or error.status == kind.status
    assert kind.retryable is None or error.retryable == kind.retryable
    assert error.retry_after == kind.retry_after


PASSING = [name for name, kind in FAULTS.items() if kind.retryable and not kind.retry_after]


@each_fault(PASSING, lambda name: one_in_turn(PASSING, name))  # `Retry` is the same for all clients
async def test_a_fault_that_passes_is_overcome(client: Client, server: ScriptedServer, name: str) -> None:
    """After a retry the model's reply is complete and appears once."""
    script = server.script(Answer(ADDS, FAULTS[name].fault), ADDS, SAYS)
    model = client(script, limits=TimeLimits(**FAULTS[name].limits))
    trial = await attempt(model, retry=AGAIN)
    trial.check()
    trial.check_read()
    assert len(script.asked) == 3 and not script.refusals
    assert len(trial.thread.messages) == 4


LAST = [*FAULTS][:: 1 if FULL else 8]


@each_fault(LAST, lambda name: one_in_turn(LAST, name))  # effects of a fault on a reply are in `test_fault`
async def test_fault_in_the_last_reply(client: Client, server: ScriptedServer, name: str) -> None:
    script = server.script(ADDS, Answer(SAYS, FAULTS[name].fault), BYE, BYE)  # it may be asked again by itself
    model = client(script, limits=TimeLimits(**FAULTS[name].limits))
    trial = await attempt(model)
    trial.check()
    assert trial.uses[:1] == [(2, 3)]
    again = await attempt(model, trial.thread, "And now?", retry=AGAIN)
    assert again.error is None and not script.refusals


# -- at every byte --------------------------------------------------------------------------------------------------

SMALL = replace(ADDS, text="", thoughts=(Thought("…", "c2ln"),), piece=12)
assert len(SMALL.pieces(SMALL.calls[0].args)) == 2


async def stream_bytes(client: Client, server: ScriptedServer, reply: Reply) -> tuple[bytes, int]:
    """The stream of a reply, and where its finish begins."""
    script = server.script(reply, SAYS)
    assert (await attempt(client(script))).error is None
    stream = stream_of(reply, client.wire, script.asked[0].body)
    events = [*client.wire.events(reply, script.asked[0].body)]
    place = next(number for number, event in enumerate(events) if event.tag == "finish")
    return stream, sum(len(client.wire.encode(event)) for event in events[:place])


async def side_by_side(trials: Iterable[Callable[[], Any]], width: int = 32) -> None:
    """All of them, so many at a time, in one event loop."""
    left = iter(trials)

    async def some() -> None:
        for trial in left:
            await trial()

    async with asyncio.TaskGroup() as group:
        for _ in range(width):
            group.create_task(some())


async def survive(client: Client, server: ScriptedServer, reply: Reply, fault: Fault, must_fail: bool) -> None:
    script = server.script(Answer(reply, fault), SAYS)
    trial = await attempt(client(script))
    trial.check()
    assert trial.error is not None or not must_fail
    if trial.error is None and reply.calls:
        trial.check_read(reply)
    elif trial.error is None:
        assert trial.result is not None and trial.result.text == reply.text


CUTS: dict[str, Callable[[int], Fault]] = {
    "ends": end,  # HTTP sees nothing wrong with it
    "ends by closing": lambda place: framed("close") | end(place),
    "closed": cut,
    "reset": reset,
}
STREAMS = {"call": SMALL, "text": replace(SAYS, text="5 ✓")}


@pytest.mark.parametrize("client", CLIENTS, indirect=True)
@pytest.mark.parametrize("what", STREAMS)
async def test_end_at_every_byte(client: Client, server: ScriptedServer, what: str) -> None:
    await cut_at_every_byte(client, server, STREAMS[what], "ends")


BROKEN = ["ends by closing", "closed", "reset"]  # HTTP framing tells the clients


@pytest.mark.parametrize(
    ("client", "how"), [(name, how) for how in BROKEN for name in one_in_turn(BROKEN, how)], indirect=["client"]
)
@pytest.mark.parametrize("what", STREAMS)
async def test_cut_at_every_byte(client: Client, server: ScriptedServer, what: str, how: str) -> None:
    await cut_at_every_byte(client, server, STREAMS[what], how)


async def cut_at_every_byte(client: Client, server: ScriptedServer, reply: Reply, how: str) -> None:
    stream, finish = await stream_bytes(client, server, reply)
    step = 1 if FULL else 11 if how == "ends" else 37
    edges = (place + 1 for place, byte in enumerate(stream) if byte == ord("\n") and how == "ends")
    places = sorted({*range(0, len(stream), step), *edges})
    await side_by_side(partial(survive, client, server, reply, CUTS[how](n), n <= finish) for n in places)


async def survive_strangely(client: Client, server: ScriptedServer, reply: Reply, fault: Fault) -> None:
    """Missing text cannot be detected, but no tool runs with partial arguments."""
    trial = await attempt(client(server.script(Answer(reply, fault), SAYS)))
    trial.check()


async def test_a_wrong_byte_anywhere(client: Client, server: ScriptedServer) -> None:
    stream, _ = await stream_bytes(client, server, SMALL)
    places = range(0, len(stream), 1 if FULL else 19)
    faults = [corrupt(place, byte) for place in places for byte in (0xFF, 0x00, 0x0A)]
    await side_by_side(partial(survive_strangely, client, server, SMALL, fault) for fault in faults)


@pytest.mark.parametrize("change", [drop_at, twice_at, swap_at])
async def test_an_event_is_lost_repeated_or_late(
    client: Client, server: ScriptedServer, change: Callable[[int], Fault]
) -> None:
    count = len([*client.wire.events(ADDS, {"model": "m", "stream_options": {"include_usage": True}})])
    await side_by_side(partial(survive_strangely, client, server, ADDS, change(n)) for n in range(count))
