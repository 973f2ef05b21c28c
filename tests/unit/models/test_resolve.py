"""Resolution of model names, and errors for unknown ones."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from wick import Agent, Scripted, Thread
from wick._internal.worker_threads import list_abandoned
from wick.errors import ConfigError
from wick.models import resolve
from wick.models.anthropic import Anthropic
from wick.models.ollama import list_installed, ollama_url
from wick.models.openai import OpenAI
from wick.models.openai_responses import OpenAIResponses
from wick.models.registry import ALIASES, CREDENTIALS, choose_model

VARIABLES = "ANTHROPIC_API_KEY ANTHROPIC_BASE_URL OPENAI_API_KEY OPENAI_BASE_URL OLLAMA_HOST".split()
UNSET = "ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY and GOOGLE_API_KEY are not set"
NOBODY = "127.0.0.1:1"  # where no server listens


@pytest.fixture(autouse=True)
def env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    credentials = (name for alternatives, _ in CREDENTIALS.values() for names in alternatives for name in names.split())
    for name in (*VARIABLES, *credentials):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.fixture
def keys(env: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    env.setenv("ANTHROPIC_API_KEY", "sk-ant")
    env.setenv("OPENAI_API_KEY", "sk-open")
    return env


def there(module: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(module) is None, reason=f"{module} is not there")


def sent_header(model: Any, header: str = "authorization") -> str | None:
    found: str | None = model.server.headers.get(header)
    return found


# -- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "kind", "name"),
    [
        ("anthropic:claude-sonnet-4-5", Anthropic, "anthropic:claude-sonnet-4-5"),
        ("claude-opus-4-5", Anthropic, "anthropic:claude-opus-4-5"),
        ("haiku", Anthropic, f"anthropic:{ALIASES['haiku']}"),
        ("sonnet", Anthropic, f"anthropic:{ALIASES['sonnet']}"),
        ("opus", Anthropic, f"anthropic:{ALIASES['opus']}"),
        ("anthropic:opus", Anthropic, f"anthropic:{ALIASES['opus']}"),
        ("openai:gpt-4o", OpenAI, "openai:gpt-4o"),
        ("openai:ft:gpt-4o:me::1", OpenAI, "openai:ft:gpt-4o:me::1"),
        ("gpt-4o", OpenAI, "openai:gpt-4o"),
        ("o3", OpenAI, "openai:o3"),
        (" o4-mini\n", OpenAI, "openai:o4-mini"),
        ("openai : gpt-4o", OpenAI, "openai:gpt-4o"),
        ("openai-responses:gpt-5", OpenAIResponses, "openai-responses:gpt-5"),
        ("ollama:llama3.1:8b", OpenAI, "ollama:llama3.1:8b"),
        ("ollama:sonnet", OpenAI, "ollama:sonnet"),
        ("gateway:anthropic/claude-sonnet-4-5@http://localhost:4000", OpenAI, "gateway:anthropic/claude-sonnet-4-5"),
        ("proxy:m@2024@https://gate/openai", OpenAI, "gateway:m@2024"),
        ({"provider": "openai", "model": "gpt-4o"}, OpenAI, "openai:gpt-4o"),
        ({"provider": "anthropic", "model": "sonnet"}, Anthropic, f"anthropic:{ALIASES['sonnet']}"),
        ({"model": "gpt-4o", "api_key": None}, OpenAI, "openai:gpt-4o"),
        ({"model": "ollama:qwen3:4b"}, OpenAI, "ollama:qwen3:4b"),
        ({"provider": "proxy", "model": "m", "base_url": "http://gate:4000"}, OpenAI, "gateway:m"),
    ],
)
def test_names(keys: Any, spec: Any, kind: type, name: str) -> None:
    model = resolve(spec)
    assert type(model) is kind
    assert model.name == name


def test_a_model_is_returned_unchanged() -> None:
    model = Scripted()
    assert resolve(model) is model


@pytest.mark.parametrize("spec", ["", "gpt", "llama3.1:8b", "gpt-oss:20b", "antropic:claude", "claude-", "x:", "oh"])
def test_names_of_nothing_list_the_forms(keys: Any, spec: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(spec)
    said = str(caught.value)
    assert re.match(
        rf"there is no model named '{spec}'; (use|did you mean \S+\? The names are) anthropic:MODEL, op", said
    )
    assert all(form in said for form in ("ollama:MODEL", "local:FILE", "gateway:MODEL@URL", "sonnet", "auto", "demo"))
    assert "\n" not in said


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"provider": "nobody", "model": "x"}, "there is no provider 'nobody'"),
        ({}, "there is no model named ''"),
        ({"provider": "openai"}, "name the model of openai"),
        ("openai:", "name the model of openai"),
        ("anthropic:", "name the model of anthropic"),
        ({"provider": "openai", "model": "gpt-4o", "colour": "red"}, "there is no key 'colour' for a model of openai"),
        (
            {"name": "large", "timeout": 3},
            "the key 'model' or 'provider', or both, as in .provider: openai, model: gpt",
        ),
        ({"provider": "openai", "model": 4}, "the 'model' of a model's spec must be a string, not int"),
        ({"provider": "openai", "model": "x", "base_url": ["x"]}, "the 'base_url' of a model's spec must be a string"),
        ({"provider": "openai", "model": "x", "base_url": "nonsense"}, "must be like http://host:port"),
        ({"provider": "openai", "model": "x", "name": 5}, "the 'name' of a model's spec must be a string"),
        ({"provider": "anthropic", "model": "x", "version": 5}, "the 'version' of a model's spec must be a string"),
        (
            {"provider": "openai", "model": "x", "stream_usage": "no"},
            "'stream_usage' .* must be true or false, not 'no'",
        ),
        ({"provider": "anthropic", "model": "x", "cache": 1}, "the 'cache' of a model's spec must be true or false"),
        ({"provider": "openai", "model": "x", "limits": {"first": 1}}, "'limits' .* are connect, .* total, not first"),
        ({"provider": "ollama", "model": "x", "limits": 30}, "the 'limits' of a model's spec must be seconds above 0"),
        ({"provider": "openai", "model": "x", "limits": {"total": "9"}}, "must be seconds above 0, as in"),
        ({"provider": "openai", "model": "x", "limits": {"total": -9}}, "must be seconds above 0, as in"),
        (
            {"provider": "openai", "model": "x", "headers": "x-team: a"},
            "the 'headers' of a model's spec must be strings",
        ),
        (
            {"provider": "openai", "model": "x", "headers": {"x-team": 1}},
            "the 'headers' of a model's spec must be strings",
        ),
        (
            {"provider": "gateway", "model": "x@http://a", "headers": {1: "a"}},
            "the 'headers' of a model's spec must be",
        ),
        (None, "a model is a text such as 'auto', a dict or an object with a stream method, not None"),
        (5, "a model is a text"),
    ],
)
def test_specs_that_mean_nothing(keys: Any, spec: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        resolve(spec)


@given(
    st.text()
    | st.dictionaries(st.sampled_from(["provider", "model", "base_url"]), st.none() | st.integers() | st.text())
)
def test_any_spec_gives_a_model_or_an_error(spec: Any) -> None:
    try:
        resolve(spec)
    except ConfigError as error:
        assert str(error)


# -- keys and addresses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "variable"),
    [
        ("sonnet", "ANTHROPIC_API_KEY"),
        ("gpt-4o", "OPENAI_API_KEY"),
        ("openai-responses:gpt-5", "OPENAI_API_KEY"),
        ({"provider": "anthropic", "model": "opus", "api_key": ""}, "ANTHROPIC_API_KEY"),
    ],
)
def test_a_missing_key_names_its_variable(spec: Any, variable: str) -> None:
    with pytest.raises(ConfigError, match=f"needs a key: set {variable}"):
        resolve(spec)


def test_keys_are_read_when_the_name_is(env: pytest.MonkeyPatch) -> None:
    agent = Agent("sonnet")
    env.setenv("ANTHROPIC_API_KEY", "sk-later")
    assert sent_header(agent.model, "x-api-key") == "sk-later"


def test_a_key_in_the_spec_takes_precedence(keys: Any) -> None:
    model = resolve({"model": "sonnet", "api_key": "sk-mine"})
    assert sent_header(model, "x-api-key") == "sk-mine"
    assert "sk-" not in f"{model!r} {vars(model)}"


@pytest.mark.parametrize(
    ("spec", "url"),
    [
        ("gpt-4o", "http://gate:1/x/v1/chat/completions"),
        ("openai-responses:gpt-5", "http://gate:1/x/v1/responses"),
        ("gateway:llama", "http://gate:1/x/v1/chat/completions"),
        ("sonnet", "http://gate:2/v1/messages"),
    ],
)
def test_addresses_of_the_environment_get_its_keys(keys: pytest.MonkeyPatch, spec: str, url: str) -> None:
    keys.setenv("OPENAI_BASE_URL", "http://gate:1/x/v1")
    keys.setenv("ANTHROPIC_BASE_URL", " http://gate:2 ")
    model: Any = resolve(spec)
    assert model.server.url == url
    assert (sent_header(model) or sent_header(model, "x-api-key")) in ("Bearer sk-open", "sk-ant")


@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic", "gateway", "ollama"])
def test_an_address_in_the_spec_gets_no_key_of_the_environment(keys: pytest.MonkeyPatch, provider: str) -> None:
    keys.setenv("OPENAI_BASE_URL", "http://gate:1/v1")
    keys.setenv("ANTHROPIC_BASE_URL", "http://gate:2")
    model: Any = resolve({"provider": provider, "model": "m", "base_url": "http://elsewhere:3/v1"})
    assert model.server.url.startswith("http://elsewhere:3/v1/")
    assert (sent_header(model), sent_header(model, "x-api-key")) == (None, None)


@pytest.mark.parametrize("key", ["sk-1\nsk-2", "sk\r\nx-other: 1", "sk\0"])
@pytest.mark.parametrize("spec", ["sonnet", "gpt-4o", "openai-responses:gpt-5"])
def test_a_key_with_a_line_break_is_a_sentence(env: pytest.MonkeyPatch, spec: str, key: str) -> None:
    if "\0" not in key:
        env.setenv("ANTHROPIC_API_KEY", key)
        env.setenv("OPENAI_API_KEY", key)
    given = {"api_key": key} if "\0" in key else {}  # the environment holds no such text
    with pytest.raises(ConfigError, match="there is a line break in what .* check its key and headers") as caught:
        resolve({"model": spec, **given})
    assert "sk" not in str(caught.value)


def test_a_header_with_a_line_break_is_a_sentence(keys: Any) -> None:
    with pytest.raises(ConfigError, match="there is a line break in what openai is sent as 'x-team'"):
        resolve({"model": "gpt-4o", "headers": {"X-Team": "a\r\nb: c"}})


def test_a_server_without_keys_needs_none() -> None:
    resolve({"provider": "openai", "model": "qwen", "base_url": "http://localhost:8000/v1"})
    resolve("ollama:llama3.1:8b")


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("http://gate:4000", "http://gate:4000/v1/chat/completions"),
        ("http://gate:4000/", "http://gate:4000/v1/chat/completions"),
        ("https://gate/openai", "https://gate/openai/chat/completions"),
    ],
)
def test_a_gateway_without_a_path_gets_the_usual_one(address: str, url: str) -> None:
    for spec in (f"gateway:m@{address}", {"provider": "gateway", "model": "m", "base_url": address}):
        model: Any = resolve(spec)
        assert model.server.url == url


def test_a_gateway_needs_an_address() -> None:
    with pytest.raises(ConfigError, match="use gateway:MODEL@http://host:4000, or set OPENAI_BASE_URL"):
        resolve("gateway:gpt-4o")


@pytest.mark.parametrize(
    ("host", "url"),
    [
        (None, "http://localhost:11434"),
        ("", "http://localhost:11434"),
        ("box", "http://box:11434"),
        ("box:80", "http://box:80"),
        (":8080", "http://localhost:8080"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:99", "http://127.0.0.1:99"),
        ("[::]:99", "http://[::1]:99"),
        ("[::1]", "http://[::1]:11434"),
        ("http://box:11434/", "http://box:11434"),
        ("http://box", "http://box:80"),
        ("https://box", "https://box:443"),
        (" box ", "http://box:11434"),
    ],
)
def test_where_ollama_is(env: pytest.MonkeyPatch, host: str | None, url: str) -> None:
    if host is not None:
        env.setenv("OLLAMA_HOST", host)
    assert ollama_url() == url
    model: Any = resolve("ollama:llama3.1:8b")
    assert model.server.url == f"{url}/v1/chat/completions"


@pytest.mark.parametrize("host", ["ftp://box", "box:port", "me:secret@box", "a b"])
def test_where_ollama_cannot_be(env: pytest.MonkeyPatch, host: str) -> None:
    env.setenv("OLLAMA_HOST", host)
    with pytest.raises(ConfigError, match="OLLAMA_HOST must be like localhost:11434") as caught:
        resolve("ollama:llama3.1:8b")
    assert "secret" not in str(caught.value)


# -- auto -----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def ollama(env: pytest.MonkeyPatch) -> AsyncIterator[dict[str, Any]]:
    """A server in place of Ollama, with the responses of the test."""
    says: dict[str, Any] = {"answer": {"models": [{"name": "nomic-embed-text:latest"}, {"name": "qwen3:4b"}]}}

    async def tags(request: web.Request) -> web.Response:
        assert request.path == "/api/tags"
        answer = says["answer"]
        return answer if isinstance(answer, web.Response) else web.json_response(answer)

    app = web.Application()
    app.router.add_get("/{rest:.*}", tags)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    env.setenv("OLLAMA_HOST", f"127.0.0.1:{runner.addresses[0][1]}")
    env.setenv("http_proxy", f"http://{NOBODY}")  # which must not be asked
    env.setattr("wick.models.ollama.OLLAMA_SECONDS", 10)  # a slow machine is not a missing Ollama
    yield says
    await runner.cleanup()


def test_auto_takes_anthropic_first(keys: Any) -> None:
    model, why = choose_model()
    assert model.name == f"anthropic:{ALIASES['sonnet']}"
    assert why == f"{model.name}, as ANTHROPIC_API_KEY is set"


def test_auto_takes_openai_next(env: pytest.MonkeyPatch) -> None:
    env.setenv("ANTHROPIC_API_KEY", " ")
    env.setenv("OPENAI_API_KEY", "sk-open")
    model, why = choose_model()
    assert model.name == "openai:gpt-4o"
    assert why == "openai:gpt-4o, as OPENAI_API_KEY is set"


async def test_auto_takes_an_ollama_that_answers(ollama: Any) -> None:
    model, why = await asyncio.to_thread(choose_model)
    assert model.name == "ollama:qwen3:4b"
    assert why == f"ollama:qwen3:4b, as {UNSET} and Ollama answers at {ollama_url()}"


@pytest.mark.parametrize(
    "answer",
    [
        {"models": []},
        {"models": [{"name": "all-minilm"}]},
        {"models": None},
        {"models": [{}]},
        {},
        [],
        None,
        web.Response(text="<html>"),
        web.Response(status=500),
    ],
)
async def test_something_else_that_answers_is_no_ollama(ollama: Any, answer: Any) -> None:
    ollama["answer"] = answer
    assert await asyncio.to_thread(list_installed) == []


async def test_a_server_that_never_answers_is_no_ollama(env: pytest.MonkeyPatch) -> None:
    over = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while not over.is_set():
            writer.write(b"x")
            await asyncio.sleep(0.05)
        writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    env.setenv("OLLAMA_HOST", f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert await asyncio.to_thread(list_installed) == []
    over.set()
    server.close()
    await server.wait_closed()
    await asyncio.sleep(0.1)


@pytest.mark.parametrize("variable", ["GEMINI_API_KEY", "GOOGLE_API_KEY"])
def test_auto_takes_gemini_next(env: pytest.MonkeyPatch, variable: str) -> None:
    env.setenv(variable, "sk-goog")
    assert choose_model()[1] == f"google:gemini-2.5-flash, as {variable} is set"


@there("wick.models.demo")
@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("GROQ_API_KEY", "for groq give the name of a model, as in groq:llama-3.3-70b-versatile"),
        ("AWS_PROFILE", "for bedrock give the name of a model, as in bedrock:amazon.nova-pro-v1:0"),
    ],
)
def test_auto_names_the_provider_of_another_key(env: pytest.MonkeyPatch, variable: str, hint: str) -> None:
    env.setenv("OLLAMA_HOST", NOBODY)
    env.setenv(variable, "x")
    model, why = choose_model()
    assert "demo" in model.name and why.endswith(f"; {variable} set: {hint}")


@there("wick.models.demo")
def test_auto_takes_the_demo_when_nothing_else_is_there(env: pytest.MonkeyPatch) -> None:
    env.setenv("OLLAMA_HOST", NOBODY)
    model, why = choose_model()
    assert "demo" in model.name
    assert why.endswith(f"as {UNSET} and no Ollama with a model answers at http://{NOBODY}")


@there("wick.models.demo")
def test_the_demo(env: pytest.MonkeyPatch) -> None:
    assert "demo" in resolve("demo").name
    assert "demo" in resolve({"provider": "demo", "model": "demo"}).name


@there("wick.models.demo")
def test_auto_warns_of_a_demo(env: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A warning is visible without logging configuration, too."""
    env.setenv("OLLAMA_HOST", NOBODY)
    model: Any = resolve("auto")
    assert "demo" in model.why
    assert caplog.record_tuples == [("wick.auto", logging.WARNING, f"auto: {model.why}")]


@pytest.fixture
def deaf(env: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A listener in place of Ollama that accepts connections and is silent until closed."""
    env.setattr("wick.models.ollama.OLLAMA_SECONDS", 60)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        env.setenv("OLLAMA_HOST", f"127.0.0.1:{listening.getsockname()[1]}")
        yield listening


@pytest.mark.parametrize("spec", ["auto", {"model": " auto "}, {"provider": "auto"}])
async def test_probing_ollama_does_not_block_the_loop(deaf: socket.socket, spec: Any) -> None:
    resolve("demo")  # import slow modules first
    turns, agent = 0, Agent(spec)
    task = asyncio.create_task(agent.run("hello"))
    while not task.done():
        turns += 1
        if turns == 10:
            deaf.close()
        await asyncio.sleep(0.01)
    assert turns >= 10
    assert "demo" in task.result().text
    events = [event.event async for event in agent.with_hooks().stream("hello")]
    assert events[-1] == "done"


async def test_a_failed_auto_ends_the_run(env: pytest.MonkeyPatch) -> None:
    env.setenv("OLLAMA_HOST", "a b")
    with pytest.raises(ConfigError, match="OLLAMA_HOST must be like"):
        await Agent("auto").run("hello")
    stream = Agent("auto").stream("hello")
    assert [event.event async for event in stream] == ["error"]
    assert stream.result.outcome == "failed"


async def test_a_cancelled_run_stops_probing(deaf: socket.socket) -> None:
    thread = Thread()
    task = asyncio.create_task(Agent("auto").run("hello", thread=thread))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not thread.busy
    deaf.close()
    while list_abandoned():  # the probing thread has an answer now
        await asyncio.sleep(0.01)


def test_auto_reports_its_choice_and_reason(keys: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "wick.auto"):
        model: Any = resolve("auto")
    assert model.why == f"anthropic:{ALIASES['sonnet']}, as ANTHROPIC_API_KEY is set"
    assert caplog.record_tuples == [("wick.auto", logging.INFO, f"auto: {model.why}")]


# -- other packages -------------------------------------------------------------------------------------------------


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that brings two providers, of which one cannot be loaded."""
    (tmp_path / "candle.py").write_text(
        "class Candle:\n"
        "    def __init__(self, model, *, api_key=''):\n"
        "        self.name, self.api_key = 'candle:' + model, api_key\n"
        "    async def stream(self, request):\n"
        "        yield\n"
    )
    info = tmp_path / "candle-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: candle\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[wick.models]\ncandle = candle:Candle\nbroken = candle:Missing\n")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_other_packages_bring_models(plugin: Path) -> None:
    assert resolve("candle:wax:7b").name == "candle:wax:7b"
    model: Any = resolve({"provider": "candle", "model": "wax", "api_key": "k"})
    assert (model.name, model.api_key) == ("candle:wax", "k")


def test_other_packages_are_listed_with_their_errors(plugin: Path) -> None:
    with pytest.raises(ConfigError, match="candle:MODEL"):
        resolve("nonsense")
    with pytest.raises(
        ConfigError, match="the model provider 'broken' .candle:Missing of the package candle 1.0. cannot be loaded: "
    ):
        resolve("broken:x")
    with pytest.raises(ConfigError, match="there is no key 'base_url' for a model of candle"):
        resolve({"provider": "candle", "model": "wax", "base_url": "http://x"})
