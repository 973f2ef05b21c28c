"""What the server knows and nobody is to see."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import Any

import pytest

from serving import events, hosted, talking
from talkers import say
from wick import Agent, FunctionModel, Scripted, ToolCall, assistant, tool
from wick.errors import ModelError
from wick.events import Event, ToolEnd, ToolStream
from wick.messages import TextPart, ToolResult
from wick.server.secrets import Redacting, Redaction, Secrets, Unsaid, known_secrets
from wick.server.settings import Settings

SECRET = "hush-0123456789"


def test_secrets_are_those_of_the_settings_and_of_the_environment(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, token="of-the-settings", store="postgresql://u:p%40ssword1@h/d")
    environment = {"OPENAI_API_KEY": "sk-0123456789", "GH_TOKEN": " gh-0123456789\n", "HOME": "/home/somebody"}
    found = {*known_secrets(settings, "of-the-folder", environment)}
    assert found == {"of-the-settings", "of-the-folder", "p@ssword1", "sk-0123456789", "gh-0123456789"}


def test_what_is_short_is_no_secret_and_what_is_longer_counts_first() -> None:
    secrets = Secrets(["", "abc", "password", "password-and-more"])
    assert secrets.without("abc password-and-more, password") == "abc [secret], [secret]"
    assert not Secrets() and Secrets().without(SECRET) == SECRET
    assert SECRET not in repr(Secrets([SECRET]))


def test_data_is_looked_through() -> None:
    data = {"a": [SECRET, 1, None, {SECRET: f"x{SECRET}x"}]}
    assert Secrets([SECRET]).without_any(data) == {"a": ["[secret]", 1, None, {"[secret]": "x[secret]x"}]}


@tool
def leak() -> ToolResult:
    """Say what must not be said."""
    return ToolResult(f"it is {SECRET}", data={"it": SECRET}, parts=(TextPart(f"it is {SECRET}"),))


@tool
def fail() -> str:
    """Fail, and say why."""
    raise ValueError(SECRET)


async def test_tools_cannot_say_them() -> None:
    calls = assistant("", ToolCall("1", "leak", {}), ToolCall("2", "fail", {}))
    agent = Agent(Scripted(calls, "Done."), tools=[leak, fail], hooks=[Redaction(Secrets([SECRET]))])
    result = await agent.run("go")
    log = str([entry.to_json() for entry in result.thread.entries])
    assert SECRET not in log and "it is [secret]" in log


async def test_they_stay_out_of_what_a_server_says(tmp_path: Path) -> None:
    def make(user: object) -> Agent:
        return Agent(Scripted(assistant("", ToolCall("1", "leak", {})), "Done."), tools=[leak])

    async with hosted(tmp_path, agents={"leaky": make}, token=SECRET) as here, here.client(SECRET) as owner:
        async with owner.post("/agents/leaky/stream", json={"messages": [{"content": "go"}]}) as answer:
            text = await answer.text()
            assert answer.status == 200 and "[secret]" in text and SECRET not in text
        async with owner.get(f"/agents/{SECRET}") as answer:
            assert answer.status == 404 and SECRET not in await answer.text()
        kept = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*.db*"))
        assert SECRET.encode() not in kept


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_they_stay_out_of_what_comes_in_pieces(size: int) -> None:
    said, told = f"hu hush hush-01 {SECRET} and {SECRET}{SECRET[:5]}, hush-012345678", list[Event]()
    emit = Unsaid(Secrets([SECRET, "another-secret"]), told.append)
    for at in range(0, len(said), size):
        emit(ToolStream("run_1", call_id="c1", delta=said[at : at + size]))
        emit(ToolStream("run_1", call_id="c2", delta="hush"))  # another call's, in between
    emit(ToolEnd("run_1", call_id="c1", output="all of it"))
    pieces = [event.delta for event in told if isinstance(event, ToolStream) and event.call_id == "c1"]
    text = "".join(pieces)
    assert SECRET not in text and all(pieces)
    assert said.replace(SECRET, "[secret]").startswith(text) and text.endswith("hush-, ")
    assert isinstance(told[-1], ToolEnd)


async def test_they_stay_out_of_a_command_while_it_runs(tmp_path: Path) -> None:
    command = f"printf 'it is {SECRET[:6]}'; sleep 0.3; printf '{SECRET[6:]}, I think\\n'; sleep 0.3"
    model = Scripted(assistant("", ToolCall("1", "execute", {"command": command})), "Done.")
    made = {"runner": {"model": model, "backend": "local"}}
    async with (
        hosted(tmp_path, agents=made, token=SECRET) as here,
        here.client(SECRET) as owner,
        owner.post("/agents/runner/stream", json={"messages": [{"content": "go"}]}) as answer,
    ):
        seen = await events(answer)
    live = "".join(each["data"]["data"]["delta"] for each in seen if each["event"] == "on_tool_stream")
    assert SECRET not in live and "it is [secret], I think" in live


def test_they_stay_out_of_logs() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Redacting(logging.Formatter("%(message)s"), Secrets([SECRET])))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    try:
        raise ValueError(SECRET)
    except ValueError:
        logger.exception("it is %s", SECRET)
    assert "it is [secret]" in stream.getvalue() and "ValueError: [secret]" in stream.getvalue()
    assert SECRET not in stream.getvalue()


async def test_what_a_models_server_says_is_told_without_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may repeat the key that it refuses: in the stream, in the log, and in what is noted of the run."""
    monkeypatch.setenv("SOME_API_KEY", "sk-live-0123456789")

    def refuses(request: Any) -> str:
        raise ModelError("the key sk-live-0123456789 is not known here", status=401)

    made = {"refused": Agent(FunctionModel(refuses))}
    async with hosted(tmp_path, agents=made) as server, talking(server) as client:
        async with client.post("/agents/refused/stream", json=say("Hello.", "th_1")) as response:
            told = await response.text()
        noted = await (await client.get(f"/runs/{response.headers['X-Run-Id']}")).text()
        log = await (await client.get("/threads/th_1/export")).text()
    for text in (told, noted, log):
        assert "sk-live" not in text and "the key [secret] is not known here" in text
