"""Cassettes: replies of any model are recorded to a readable file and played back, and changes are reported."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fake_http_server import model_request, run_fake_server, sse_body, stream_deltas
from wick import Agent, FunctionModel, Scripted, ToolCall, assistant, tool, user
from wick._internal.frozen import canonical_json, digest
from wick.capabilities.subagents import Subagents
from wick.errors import ConfigError, ModelError
from wick.messages import ImagePart, Reasoning, TextPart
from wick.models.demo import Demo
from wick.models.openai import OpenAI
from wick.protocols import CallArgs, CallStart, Delta, Finish, Request, TextDelta, Usage
from wick.testing import Cassette
from wick.testing.cassettes import session

KEY = "sk-test-0123456789abcdefghij"


@pytest.fixture(autouse=True)
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests check cassettes themselves, and play whatever option the test run has."""
    monkeypatch.setattr(session, "cassettes", None)
    monkeypatch.setattr(session, "record", False)
    monkeypatch.setattr(session, "test", "test_it.py::test_it")


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def record(path: Path, *replies: Any, **options: Any) -> Cassette:
    return Cassette(path, Scripted(*replies, name="acme:one"), record=True, **options)


# -- recording and playing ------------------------------------------------------------------------------------------


async def test_a_run_with_tools_is_played_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "it.yaml"
    recorded = record(path, ToolCall("c1", "add", {"a": 2, "b": 3}), "It is 5, of course.")
    first = await Agent(recorded, tools=[add], system="Be brief.").run("What is 2 + 3?")
    recorded.check()
    played = Cassette(path)
    second = await Agent(played, tools=[add], system="Be brief.").run("What is 2 + 3?")
    played.check()
    assert second.text == first.text == "It is 5, of course."
    assert second.messages.to_json() == first.messages.to_json()
    assert (second.usage, played.name) == (first.usage, "acme:one")


REPLIES = {
    "text": "What is 2 + 3?\n It is 5.\n",
    "empty": "",
    "calls": [ToolCall("1", "add", {"a": 1, "b": 2}), ToolCall("2", "add", {"a": 3, "b": 4})],
    "both": assistant("Let me add.", ToolCall("1", "add", {"a": 1, "b": 2}), reasoning=[Reasoning("hm", "s", "acme")]),
    "thoughts": assistant("So.", reasoning=[Reasoning("one", "s1"), Reasoning("two", "s2"), Reasoning("three")]),
    "scalar": "null",
    "signs": "a: b # c\n- 'd' \"e\"\n\ttab\r\nΩ 😀 \x07\x85\u2028\ufeff end",
}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
async def test_the_same_deltas_are_streamed(reply: Any, tmp_path: Path) -> None:
    live = await stream_deltas(record(tmp_path / "it.yaml", reply))
    assert await stream_deltas(Cassette(tmp_path / "it.yaml")) == live


class Raw:
    """A model that yields given deltas."""

    name = "raw"
    holds_schema = "alone"

    def __init__(self, *deltas: Delta) -> None:
        self.deltas = deltas

    async def stream(self, request: Request) -> Any:
        for delta in self.deltas:
            yield delta


async def test_interleaved_calls_keep_their_order(tmp_path: Path) -> None:
    deltas = (
        CallStart(3, "a", "add"),
        CallArgs(3, '{"a"'),
        CallStart(5, "", "add"),
        CallArgs(3, ": 1"),
        CallArgs(3, "}"),
        CallArgs(5, ""),
        CallArgs(5, "{}"),
        TextDelta(""),
        TextDelta("x"),
        Usage(1, 2, 3, 4, 5),
        Finish("length"),
    )
    live = await stream_deltas(Cassette(tmp_path / "it.yaml", Raw(*deltas), record=True))
    played = Cassette(tmp_path / "it.yaml")
    assert await stream_deltas(played) == live == [*deltas]
    assert played.holds_schema == "alone"


async def test_a_client_of_a_server_is_recorded_without_its_key(tmp_path: Path) -> None:
    def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
        return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    path = tmp_path / "it.yaml"
    async with run_fake_server() as server:
        server.say(sse_body(chunk(content="Hel"), chunk(content=f"lo, {KEY}"), chunk("stop")))
        server.say(b'{"error": {"message": "overloaded"}}', status=529, content_type="application/json")
        model = OpenAI("m", base_url=server.url, name="local", api_key=KEY)
        cassette = Cassette(path, model, record=True)
        live = await stream_deltas(cassette)
        with pytest.raises(ModelError) as first:
            await stream_deltas(cassette, model_request(user("again")))
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert KEY not in path.read_text() and "authorization" not in path.read_text().lower()
    played = Cassette(path)
    deltas = await stream_deltas(played)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "Hello, [secret]"
    assert deltas[-1] == live[-1] == Finish("stop")
    with pytest.raises(ModelError, match="overloaded") as again:
        await stream_deltas(played, model_request(user("again")))
    assert vars(again.value) == vars(first.value) and again.value.status == 529 and again.value.retryable


class QuotaExceeded(ModelError):
    """An error of a provider."""

    def __init__(self, message: str, plan: str) -> None:
        super().__init__(message, status=429)
        self.plan = plan


@pytest.mark.parametrize(
    "error", [TimeoutError("too late"), QuotaExceeded("used up", "free"), ConfigError("no key")], ids=repr
)
async def test_an_error_is_raised_again(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(type(error)):
        await stream_deltas(record(tmp_path / "it.yaml", error))
    with pytest.raises(type(error)) as again:
        await stream_deltas(Cassette(tmp_path / "it.yaml"))
    assert type(again.value) is type(error) and str(again.value) == str(error) and vars(again.value) == vars(error)


async def test_an_error_of_an_unknown_class_is_a_model_error(tmp_path: Path) -> None:
    path = tmp_path / "it.yaml"
    with pytest.raises(TimeoutError):
        await stream_deltas(record(path, TimeoutError("late")))
    path.write_text(path.read_text().replace("TimeoutError", "no_such_module:Late"))
    with pytest.raises(ModelError, match="no_such_module:Late: late"):
        await stream_deltas(Cassette(path))


async def test_a_cassette_imports_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "named_in_a_cassette.py").write_text("class Late(Exception): pass")
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "it.yaml"
    with pytest.raises(TimeoutError):
        await stream_deltas(record(path, TimeoutError("late")))
    path.write_text(path.read_text().replace("TimeoutError", "named_in_a_cassette:Late"))
    with pytest.raises(ModelError, match="named_in_a_cassette:Late: late"):
        await stream_deltas(Cassette(path))
    assert "named_in_a_cassette" not in sys.modules


async def test_the_demo_model_is_recorded_by_name(tmp_path: Path) -> None:
    recorded = Cassette(tmp_path / "it.yaml", "demo", record=True)
    live = await Agent(recorded).run("What can you do?")
    played = Cassette(tmp_path / "it.yaml", "demo")
    assert (await Agent(played).run("What can you do?")).text == live.text
    assert played.name == Demo.name and played.holds_schema == Demo.holds_schema


async def test_a_cancelled_reply_is_not_recorded(tmp_path: Path) -> None:
    cassette = record(tmp_path / "it.yaml", "one two three")
    stream = cassette.stream(model_request())
    assert await anext(stream) == TextDelta("one")
    await stream.aclose()  # type: ignore[attr-defined]
    assert not (tmp_path / "it.yaml").exists()


async def test_equal_requests_are_answered_in_order(tmp_path: Path) -> None:
    recorded = record(tmp_path / "it.yaml", "one", "two")
    await stream_deltas(recorded)
    await stream_deltas(recorded)
    played = Cassette(tmp_path / "it.yaml")
    texts = [(await stream_deltas(played))[0] for _ in range(2)]
    assert texts == [TextDelta("one"), TextDelta("two")]
    with pytest.raises(ModelError, match="recorded 2 times in .* was sent once more; record again with: pytest"):
        await stream_deltas(played)


async def test_parallel_subagents_get_their_own_replies(tmp_path: Path) -> None:
    def reply(request: Request) -> Any:
        if request.messages[-1].role == "tool":
            return " and ".join(message.text.splitlines()[0] for message in request.messages if message.role == "tool")
        if request.messages[0].text == "Ask both.":
            return [ToolCall(str(n), "task", {"agent": "expert", "prompt": f"Question {n}?"}) for n in range(4)]
        return f"answer to {request.messages[-1].text}"

    def build(model: Cassette) -> Agent:
        return Agent(model, hooks=[Subagents({"expert": {"description": "Answers."}})])

    live = await build(Cassette(tmp_path / "it.yaml", FunctionModel(reply), record=True)).run("Ask both.")
    for _ in range(3):
        played = Cassette(tmp_path / "it.yaml")
        assert (await build(played).run("Ask both.")).text == live.text
        played.check()
    assert "answer to Question 3?" in live.text


async def test_concurrent_requests_are_numbered_by_their_start(tmp_path: Path) -> None:
    turns = {"slow": asyncio.Event(), "fast": asyncio.Event()}
    turns["fast"].set()

    async def reply(request: Request) -> str:
        await turns[request.messages[-1].text].wait()
        turns["slow"].set()
        return request.messages[-1].text

    cassette = Cassette(tmp_path / "it.yaml", FunctionModel(reply), record=True)
    slow = asyncio.create_task(stream_deltas(cassette, model_request(user("slow"))))
    await asyncio.sleep(0)
    await stream_deltas(cassette, model_request(user("fast")))
    await slow
    text = (tmp_path / "it.yaml").read_text()
    assert text.index("user: slow") < text.index("user: fast")


# -- the file -------------------------------------------------------------------------------------------------------


async def test_the_file_is_readable(tmp_path: Path) -> None:
    path = tmp_path / "it.yaml"
    recorded = record(path, ToolCall("c1", "add", {"a": 2, "b": 3}), "It is 5.\nAnything else?")
    await Agent(recorded, tools=[add], system="Be brief.\nBe kind.").run("What is 2 + 3?")
    assert path.read_text().partition("version")[2] == (
        """: 1
name: acme:one
replies:
- number: 1
  request:
    system: |-
      Be brief.
      Be kind.
    tools:
      add: '(a: integer, b: integer) DIGEST Add two numbers.'
    messages:
    - user: What is 2 + 3?
  reply:
  - call: add
    id: c1
    args: '{"a": 2, "b": 3}'
    chunks: 12 4
  - usage:
      input_tokens: 3
      output_tokens: 4
  - finish: tool_calls
- number: 2
  request:
    continues: 1
    messages:
    - reply: 1
    - tool: add
      result: '5'
  reply:
  - text: |-
      It is 5.
      Anything else?
    chunks: 2 3*2 9 6
  - usage:
      output_tokens: 5
  - finish: stop
"""
    ).replace("DIGEST", path.read_text().partition("b: integer) ")[2][:8])


async def test_a_system_prompt_and_tools_are_written_once(tmp_path: Path) -> None:
    path = tmp_path / "it.yaml"
    agent = Agent(record(path, "one", "two", "three"), tools=[add], system="Be brief.")
    await agent.run("first"), await agent.run("second")
    await Agent(agent.model, system="Be rude.").run("second")
    text = path.read_text()
    assert text.count("Be brief.") == text.count("add:") == text.count("like: 1") == 1 and "system: Be rude." in text
    played = Cassette(path)
    agent = Agent(played, tools=[add], system="Be brief.")
    assert [(await agent.run(word)).text for word in ("second", "first")] == ["two", "one"]
    assert (await Agent(played, system="Be rude.").run("second")).text == "three"


async def test_an_edited_reply_is_played(tmp_path: Path) -> None:
    path = tmp_path / "it.yaml"
    await Agent(record(path, "I like tea.")).run("What do you like?")
    path.write_text(path.read_text().replace("I like tea.", "no"))  # a switch in YAML 1.1
    assert (await Agent(Cassette(path)).run("What do you like?")).text == "no"


async def test_an_edited_reply_counts_in_later_requests(tmp_path: Path) -> None:
    path = tmp_path / "it.yaml"
    recorded = record(path, ToolCall("c1", "add", {"a": 2, "b": 3}), "It is 5.")
    await Agent(recorded, tools=[add]).run("What is 2 + 3?")
    path.write_text(path.read_text().replace('"a": 2, "b": 3', '"a": 1, "b": 4'))
    played = Cassette(path)
    assert (await Agent(played, tools=[add]).run("What is 2 + 3?")).text == "It is 5."
    played.check()


RECORDED = """
version: 1
name: acme:one
replies:
- number: 1
  request:
    tools:
      add: '(a: integer, b: integer) DIGEST'
    messages:
    - user: What is 2 + 3?
  reply:
  - call: add
    id: c1
    args: '{"a": 2, "b": 3}'
    chunks: 8 8
  - finish: tool_calls
- number: 2
  request:
    continues: 1
    messages:
    - reply: 1
    - tool: add
      result: '5'
  reply:
  - text: It is 5.
    chunks: 2 3 3
  - finish: stop
"""


async def test_a_file_of_an_earlier_version_is_played(tmp_path: Path) -> None:
    """The format is a promise: if this fails, files of users fail, too."""
    path = tmp_path / "it.yaml"
    path.write_text(RECORDED.replace("DIGEST", digest(canonical_json(add.schema))[:8]))
    played = Cassette(path)
    assert (await Agent(played, tools=[add]).run("What is 2 + 3?")).text == "It is 5."
    played.check()


BROKEN = {
    "replies: [": "not valid YAML",
    "a: 1": "is not a cassette of this version; record it with: pytest --wick-record-all",
    "version: 1\nreplies: [1]": "reply 1: a reply has a number, a request and the list of events",
    "version: 1\nreplies: [{number: 1, request: {continues: 7}, reply: []}]": "reply 1: there is no reply 7 before",
    "version: 1\nreplies: [{number: 1, request: {messages: []}, reply: []}, {number: 1, request: {}, reply: []}]": (
        "reply 2: the number 1 is repeated"
    ),
    "version: 1\nreplies:\n- {number: 1, request: {}, reply: [{error: E}]}\n"
    "- {number: 2, request: {messages: [{reply: 1}]}, reply: []}": "reply 2: reply 1 has an error and is not a message",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_file_is_refused_with_the_place(text: str, tmp_path: Path) -> None:
    (tmp_path / "it.yaml").write_text(text)
    with pytest.raises(ConfigError, match=BROKEN[text]):
        Cassette(tmp_path / "it.yaml")


async def test_an_unknown_event_is_refused(tmp_path: Path) -> None:
    row = "{number: 1, request: {messages: [{user: hi}]}, reply: [{song: la}]}"
    (tmp_path / "it.yaml").write_text(f"version: 1\nname: m\nreplies: [{row}]")
    with pytest.raises(ConfigError, match="a cassette has no event {'song': 'la'}"):
        await stream_deltas(Cassette(tmp_path / "it.yaml"))


# -- changed requests -----------------------------------------------------------------------------------------------


async def test_a_changed_request_fails_with_a_diff(tmp_path: Path) -> None:
    path = tmp_path / "it.yaml"
    recorded = record(path, ToolCall("c1", "add", {"a": 2, "b": 3}), "It is 5.")
    await Agent(recorded, tools=[add], system="Be brief.").run("What is 2 + 3?")

    @tool(name="add")
    def changed(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b + 1

    played = Cassette(path)
    with pytest.raises(ModelError) as failed:
        await Agent(played, tools=[changed], system="Be brief.").run("What is 2 + 3?")
    assert str(failed.value) == (
        f"request 2 has no recorded reply in {path}; it differs from request 2 there:\n"
        "- recorded\n+ sent now\n - tool: add\n-  result: '5'\n+  result: '6'\n"
        "If the change is intended, record again with: pytest --wick-record 'test_it.py::test_it'"
    )
    with pytest.raises(AssertionError, match="request 2 has no recorded reply"):
        played.check()  # also if a capability or a parent agent hides the error


CHANGES: dict[str, tuple[Request, str]] = {
    "system": (model_request(system="Be rude."), r"-system: Be kind\.\n\+system: Be rude\."),
    "tool": (model_request(system="Be kind.", tools=(add,)), r"\+tools:\n\+  add: '\(a: integer"),
    "settings": (model_request(system="Be kind.", settings={"temperature": 1}), r"\+settings:\n\+  temperature: 1"),
    "text": (model_request(user("hello"), system="Be kind."), r"-- user: hi\n\+- user: hello"),
    "image": (
        model_request(user([TextPart("hi"), ImagePart(data="aGk=", media_type="image/png")]), system="Be kind."),
        r"image: image/png [0-9a-f]{8}",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_each_part_of_a_request_counts(change: str, tmp_path: Path) -> None:
    await stream_deltas(record(tmp_path / "it.yaml", "Hello."), model_request(system="Be kind."))
    request, diff = CHANGES[change]
    with pytest.raises(ModelError, match=diff):
        await stream_deltas(Cassette(tmp_path / "it.yaml"), request)


async def test_a_diff_shows_no_unchanged_line_that_is_not_a_parent(tmp_path: Path) -> None:
    path = tmp_path / "it.yaml"
    await stream_deltas(record(path, "Hello."), model_request(user("one"), user("two"), user("three")))
    with pytest.raises(ModelError) as failed:
        await stream_deltas(Cassette(path), model_request(user("one"), user("2"), user("three")))
    assert "- recorded\n+ sent now\n-- user: two\n+- user: '2'\nIf the change" in str(failed.value)


async def test_a_long_diff_is_cut(tmp_path: Path) -> None:
    await stream_deltas(record(tmp_path / "it.yaml", "Hello."), model_request(system="one\n" * 99))
    with pytest.raises(ModelError, match="… and 175 more lines") as failed:
        await stream_deltas(Cassette(tmp_path / "it.yaml"), model_request(system="two\n" * 99))
    assert len(str(failed.value).splitlines()) < 32


def test_unused_replies_fail(tmp_path: Path) -> None:
    recorded = record(tmp_path / "it.yaml", "one", "two")
    agent = Agent(recorded)
    agent.run_sync("first"), agent.run_sync("second")
    played = Cassette(tmp_path / "it.yaml")
    Agent(played).run_sync("first")
    with pytest.raises(AssertionError, match=r"1 of the 2 replies in .* reply 2, to user: 'second'\. The test"):
        played.check()


def test_another_model_is_refused(tmp_path: Path) -> None:
    Agent(record(tmp_path / "it.yaml", "one")).run_sync("first")
    assert Cassette(tmp_path / "it.yaml", "acme:one").name == "acme:one"
    with pytest.raises(ConfigError, match="was recorded with the model acme:one, not with acme:two; record it again"):
        Cassette(tmp_path / "it.yaml", {"provider": "acme", "model": "two", "api_key": KEY})


def test_a_missing_cassette_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no cassette .*; record it with: pytest --wick-record 'test_it"):
        Cassette(tmp_path / "it.yaml", "demo")


def test_a_test_without_requests_has_an_empty_cassette(tmp_path: Path) -> None:
    record(tmp_path / "it.yaml").check()
    played = Cassette(tmp_path / "it.yaml", "acme:one")
    played.check()
    with pytest.raises(ModelError, match="it.yaml has no replies; record again with: pytest"):
        Agent(played).run_sync("Hi.")


def test_invalid_arguments_are_refused(tmp_path: Path) -> None:
    options: dict[str, Any] = {"record": "once"}
    with pytest.raises(ConfigError, match="record='once': use False to play, True to record what is missing, or 'all'"):
        Cassette(tmp_path / "it.yaml", Scripted(), **options)
    model: Any = lambda request: "Hi."  # noqa: E731
    with pytest.raises(ConfigError, match=r"a cassette records a model .*; give FunctionModel\(…\) for a function"):
        Cassette(tmp_path / "it.yaml", model, record=True)


def test_recording_needs_a_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs a model"):
        Cassette(tmp_path / "it.yaml", record=True)


def test_a_cassette_without_a_model_only_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cassette = record(tmp_path / "it.yaml", "Hello.")
    Agent(cassette).run_sync("Hi.")
    monkeypatch.setattr(session, "record", True)
    played = Cassette(tmp_path / "it.yaml")
    assert Agent(played).run_sync("Hi.").text == "Hello."
    with pytest.raises(ModelError, match="no recorded reply"):
        Agent(played).run_sync("Bye.")
    played.changed.clear()  # it was expected
    played.check()


# -- recording again ------------------------------------------------------------------------------------------------


def asks(cassette: Cassette, *texts: str) -> list[str]:
    agent = Agent(cassette)
    return [agent.run_sync(text).text for text in texts]


def test_only_missing_replies_are_recorded_again(tmp_path: Path) -> None:
    path = tmp_path / "it.yaml"
    asks(record(path, "one", "two", "three"), "a", "b", "c")
    again = record(path, "new")
    assert asks(again, "a", "changed", "c") == ["one", "new", "three"]
    again.check()
    played = Cassette(path)
    assert asks(played, "a", "changed", "c") == ["one", "new", "three"]
    played.check()
    assert [line for line in path.read_text().splitlines() if "number" in line] == [
        f"- number: {number}" for number in (1, 2, 3)
    ]


def test_everything_is_recorded_again(tmp_path: Path) -> None:
    path = tmp_path / "it.yaml"
    asks(record(path, "one"), "a")
    assert asks(Cassette(path, Scripted("new", name="acme:one"), record="all"), "a") == ["new"]
    assert asks(Cassette(path), "a") == ["new"]


async def test_dropped_failures_leave_a_file_that_can_be_played(tmp_path: Path) -> None:
    path = tmp_path / "it.yaml"
    recorded = record(path, ModelError("overloaded", status=529), "Hello.")
    request = model_request(user("hi"), system="Be brief.")
    with pytest.raises(ModelError):
        await stream_deltas(recorded, request)
    await stream_deltas(recorded, request)
    assert "continues: 1" in path.read_text()  # the request of the failure
    recorded.drop_failures()
    played = Cassette(path)
    assert TextDelta("Hello.") in await stream_deltas(played, request)
    played.check()


async def test_only_failures_of_this_recording_are_dropped(tmp_path: Path) -> None:
    path, request = tmp_path / "it.yaml", model_request(user("hi"))
    with pytest.raises(ModelError):
        await stream_deltas(record(path, ModelError("overloaded")), request)
    again = record(path, "Hello.")  # plays the error, which a test may expect
    with pytest.raises(ModelError, match="overloaded") as played:
        await stream_deltas(again, request)
    assert f"reply 1 of {path}" in str(played.value.__cause__) and "--wick-record-all" in str(played.value.__cause__)
    again.drop_failures()
    assert "overloaded" in path.read_text()


def test_replies_of_another_model_are_recorded_again(tmp_path: Path) -> None:
    path = tmp_path / "it.yaml"
    asks(record(path, "one"), "a")
    assert asks(Cassette(path, Scripted("new", name="acme:two"), record=True), "a") == ["new"]
    assert Cassette(path).name == "acme:two"


# -- secrets and texts that differ ----------------------------------------------------------------------------------


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("ACME_TOKEN", "hush-0123456789-abcdef")
    yield "hush-0123456789-abcdef"


async def test_secrets_are_redacted(secret: str, tmp_path: Path) -> None:
    path = tmp_path / "it.yaml"
    header = "Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.payload"
    request = model_request(
        user(f"{header} and {secret} and {KEY}"),
        system=f"The key is {secret}.",
        settings={"api_key": "short", "extra": {"Authorization": "x"}},
    )
    replies = assistant(f"I saw {secret}.", ToolCall("1", "add", {"key": KEY}))
    await stream_deltas(record(path, replies), request)
    text = path.read_text()
    assert not any(part in text for part in (secret, KEY, "eyJ", "short", ": x\n"))
    assert "Authorization: Bearer [secret] and [secret] and [secret]" in text
    deltas = await stream_deltas(Cassette(path), request)
    assert TextDelta(" [secret].") in deltas


async def test_short_passwords_are_redacted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DB_PASSWORD", "tr0ub4do")
    path, request = tmp_path / "it.yaml", model_request(user("log in with tr0ub4do"))
    await stream_deltas(record(path, assistant("tr0ub4do works")), request)
    assert "tr0ub4do" not in path.read_text()
    assert TextDelta(" works") in await stream_deltas(Cassette(path), request)


async def test_texts_that_differ_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "it.yaml"
    call = ToolCall("1", "add", {"path": "/tmp/first/a.txt"})
    await stream_deltas(record(path, call, replace={"/tmp/first": "{folder}"}), model_request(user("in /tmp/first")))
    assert "/tmp/first" not in path.read_text()
    deltas = await stream_deltas(Cassette(path, replace={"/srv/two": "{folder}"}), model_request(user("in /srv/two")))
    args = "".join(delta.text for delta in deltas if isinstance(delta, CallArgs))
    assert args == '{"path": "/srv/two/a.txt"}'


def test_parts_are_refused_by_the_model(tmp_path: Path) -> None:
    class Blind(Scripted):
        def unsupported_reason(self, part: Any) -> str:
            return "no images"

    image = ImagePart(url="https://example.org/a.png")
    assert Cassette(tmp_path / "it.yaml", Blind(), record=True).unsupported_reason(image) == "no images"
    assert record(tmp_path / "it.yaml").unsupported_reason(image) == ""
