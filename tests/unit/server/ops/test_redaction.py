"""Redaction of the server's secrets."""

from __future__ import annotations

import io
import logging
from itertools import cycle, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from uvicorn.logging import AccessFormatter, DefaultFormatter

from server_agents import user_message
from server_process import host_server, open_client, read_events
from wick import Agent, FunctionModel, Scripted, ToolCall, assistant, tool
from wick._internal.frozen import freeze
from wick.config.secrets import find_secrets
from wick.errors import ModelError
from wick.events import Event, ToolEnd, ToolStream
from wick.messages import ImagePart, TextPart, ToolResult
from wick.models.openai import OpenAI
from wick.server.ops.redaction import (
    RedactingEmitter,
    RedactingFormatter,
    Redaction,
    Secrets,
    known_secrets,
    named_secrets,
    redact_logs,
    weak_names,
)
from wick.server.settings import Settings

SECRET = "hush-0123456789abc"  # strong enough to be redacted where users see it
WEAK = "Hunter2!2023"


def test_secrets_are_those_of_the_settings_and_of_the_environment(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, token="of-the-settings", store="postgresql://u:p%40ssword1@h/d")
    environment = {"OPENAI_API_KEY": "sk-0123456789", "GH_TOKEN": " gh-0123456789\n", "HOME": "/home/somebody"}
    found = {*known_secrets(settings, "of-the-folder", environment)}
    assert found == {"of-the-settings", "of-the-folder", "p@ssword1", "sk-0123456789", "gh-0123456789"}


def test_longer_secrets_are_redacted_first() -> None:
    secrets = Secrets(["", "abc", SECRET, f"{SECRET}-and-more"])
    assert secrets.redact_text(f"abc {SECRET}-and-more, {SECRET}") == "abc [secret], [secret]"
    assert not Secrets() and Secrets().redact_text(SECRET) == SECRET
    assert SECRET not in repr(Secrets([SECRET]))


def test_nested_data_is_redacted() -> None:
    data = {"a": [SECRET, 1, None, {SECRET: f"x{SECRET}x"}]}
    assert Secrets([SECRET]).redact_json(data) == {"a": ["[secret]", 1, None, {"[secret]": "x[secret]x"}]}


@tool
def leak() -> ToolResult:
    """Say what must not be said."""
    return ToolResult(f"it is {SECRET}", data={"it": SECRET}, parts=(TextPart(f"it is {SECRET}"),))


@tool
def fail() -> str:
    """Fail, and say why."""
    raise ValueError(SECRET)


async def test_tool_output_is_redacted() -> None:
    calls = assistant("", ToolCall("1", "leak", {}), ToolCall("2", "fail", {}))
    agent = Agent(Scripted(calls, "Done."), tools=[leak, fail], hooks=[Redaction(Secrets([SECRET]))])
    result = await agent.run("go")
    log = str([entry.to_json() for entry in result.thread.entries])
    assert SECRET not in log and "it is [secret]" in log


async def test_server_responses_are_redacted(tmp_path: Path) -> None:
    def make(user: object) -> Agent:
        return Agent(Scripted(assistant("", ToolCall("1", "leak", {})), "Done."), tools=[leak])

    async with host_server(tmp_path, agents={"leaky": make}, token=SECRET) as here, here.client(SECRET) as owner:
        async with owner.post("/agents/leaky/stream", json={"messages": [{"content": "go"}]}) as answer:
            text = await answer.text()
            assert answer.status == 200 and "[secret]" in text and SECRET not in text
        async with owner.get(f"/agents/{SECRET}") as answer:
            assert answer.status == 404 and SECRET not in await answer.text()
        kept = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*.db*"))
        assert SECRET.encode() not in kept


def test_a_weak_secret_is_redacted_in_the_log_alone() -> None:
    """Visible redactions would let users find it with a word list."""
    secrets = Secrets([WEAK, SECRET, "a" * 40])
    assert secrets.redact_text(f"{WEAK} {'a' * 40} {SECRET}") == f"{WEAK} {'a' * 40} [secret]"
    assert secrets.redact_log(f"{WEAK} {SECRET}") == "[secret] [secret]"


def test_weak_secrets_are_named_without_values(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, token="of-the-settings", store="postgresql://u:p%40ssword1@h/d")
    environment = {"A_KEY": SECRET, "B_PASSWORD": WEAK, "C_KEY": "/run/secrets/key", "D_TOKEN": "", "HOME": "x"}
    assert weak_names(named_secrets(settings, environment)) == ["B_PASSWORD", "store", "token"]


def test_credentials_in_addresses_of_options_are_secrets() -> None:
    options = {
        "mcp": [{"url": "https://h/x?api_key=of-the-query-1234&page=2"}],
        "base_url": "http://u:p%40ss-1234567@h",
    }
    assert {*find_secrets(options)} == {"of-the-query-1234", "p%40ss-1234567", "p@ss-1234567"}
    assert [*find_secrets({"url": "http://[bad"})] == []


def test_a_secret_of_several_lines_or_of_many_characters_is_redacted_too() -> None:
    pem = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END PRIVATE KEY-----\n"
    long = "".join(f"{number:04x}" for number in range(700))
    for secret in (pem, long, "correct horse battery staple"):
        secrets, told = Secrets([secret]), list[Event]()
        emit = RedactingEmitter(secrets, told.append)
        for char in f"{secret}\n":
            emit(ToolStream("run_1", call_id="c1", delta=char))
        live = "".join(event.delta for event in told if isinstance(event, ToolStream))
        for text in (live, secrets.redact_text(f"it is {secret}\n")):
            assert "[secret]" in text and not any(piece in text for piece in ("MIIE", "AASC", "01ab", "0001", "horse"))
    assert Secrets([pem]).redact_text("-----BEGIN PRIVATE KEY-----") == "-----BEGIN PRIVATE KEY-----"


@given(
    text=st.text("hush-0123456789abcx \n\tü", max_size=60),
    guess=st.integers(0, len(SECRET) - 1).map(lambda size: SECRET[:size]),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
)
def test_streamed_text_is_cut_at_places_independent_of_secrets(text: str, guess: str, sizes: list[int]) -> None:
    """Otherwise a guess and its timing would reveal a secret, one character at a time."""
    said = text + guess + text
    assume(SECRET not in said)
    others = ("zzzzzzzz-yyyyyyyy-1234567", SECRET[::-1])
    seen = {tuple(_live(Secrets([secret]), said, sizes)) for secret in (SECRET, *others)}
    assert len(seen) == 1


def _live(secrets: Secrets, said: str, sizes: list[int]) -> list[str]:
    """Return the output for each piece, "" if there is none."""
    pieces, rest = list[str](), ""
    for size in islice(cycle(sizes), len(said)):
        piece, said = said[:size], said[size:]
        sent, rest = secrets.split_live(rest + piece)
        pieces.append(sent)
    return pieces


def test_a_cut_that_reveals_a_secret_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(self: Secrets, text: str) -> tuple[str, str]:
        known = next(iter(self._known))
        begun = next(size for size in range(len(known), -1, -1) if text.endswith(known[:size]))
        return text[: len(text) - begun], text[len(text) - begun :]

    monkeypatch.setattr(Secrets, "split_live", compare)
    with pytest.raises(AssertionError):
        test_streamed_text_is_cut_at_places_independent_of_secrets()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_streamed_pieces_are_redacted(size: int) -> None:
    said, told = f"hu hush hush-01 {SECRET} and {SECRET}{SECRET[:5]}, hush-012345678", list[Event]()
    emit = RedactingEmitter(Secrets([SECRET, "another-secret"]), told.append)
    for at in range(0, len(said), size):
        emit(ToolStream("run_1", call_id="c1", delta=said[at : at + size]))
        emit(ToolStream("run_1", call_id="c2", delta="hush"))  # another call's, in between
    emit(ToolEnd("run_1", call_id="c1", output="all of it"))
    pieces = [event.delta for event in told if isinstance(event, ToolStream) and event.call_id == "c1"]
    text = "".join(pieces)
    assert SECRET not in text and all(pieces)
    assert said.replace(SECRET, "[secret]").startswith(text) and text.rstrip().endswith("hush-,")
    assert isinstance(told[-1], ToolEnd)


async def test_live_command_output_is_redacted(tmp_path: Path) -> None:
    command = f"printf 'it is {SECRET[:6]}'; sleep 0.3; printf '{SECRET[6:]}, I think\\n'; sleep 0.3"
    model = Scripted(assistant("", ToolCall("1", "execute", {"command": command})), "Done.")
    made = {"runner": {"model": model, "backend": "local"}}
    async with (
        host_server(tmp_path, agents=made, token=SECRET) as here,
        here.client(SECRET) as owner,
        owner.post("/agents/runner/stream", json={"messages": [{"content": "go"}]}) as answer,
    ):
        seen = await read_events(answer)
    live = "".join(each["data"]["data"]["delta"] for each in seen if each["event"] == "on_tool_stream")
    assert SECRET not in live and "it is [secret], I think" in live


def test_logs_are_redacted() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(RedactingFormatter(logging.Formatter("%(message)s"), Secrets([SECRET])))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    try:
        raise ValueError(SECRET)
    except ValueError:
        logger.exception("it is %s", SECRET)
    assert "it is [secret]" in stream.getvalue() and "ValueError: [secret]" in stream.getvalue()
    assert SECRET not in stream.getvalue()


FORGED = "x\n2026-01-01 00:00:00,000 CRITICAL wick.server: forged \x1b[31m\r\x85\u2028\u202e"


def _logged(formatter: logging.Formatter, *args: object, error: BaseException | None = None) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logger = logging.Logger("test")
    logger.addHandler(handler)
    logger.warning(*args, exc_info=error)
    return stream.getvalue()


class _Own(logging.Formatter):
    """A formatter of an operator's own."""

    def format(self, record: logging.LogRecord) -> str:
        return f"own: {record.getMessage()} {record.exc_info or ''}"


def _first_lines(log: str) -> list[str]:
    return [line for line in log.removesuffix("\n").split("\n") if not line.startswith("  ")]


@pytest.mark.parametrize("inner", [logging.Formatter("%(message)s"), DefaultFormatter("%(message)s"), _Own()])
@pytest.mark.parametrize("text", ["%s", FORGED.replace("%", "%%")])
def test_a_record_is_one_line(inner: logging.Formatter, text: str) -> None:
    given = (ValueError(FORGED),) if "%s" in text else ()
    try:
        raise ValueError(FORGED) from KeyError(FORGED)
    except ValueError as error:
        log = _logged(RedactingFormatter(inner, Secrets()), text, *given, error=error)
    assert len(_first_lines(log)) == 1 and log.replace("\n", "").isprintable() and "forged" in log


def test_the_lines_of_an_access_log_are_escaped_too() -> None:
    inner = AccessFormatter('%(client_addr)s - "%(request_line)s" %(status_code)s', use_colors=False)
    text = '%s - "%s %s HTTP/%s" %d'
    log = _logged(
        RedactingFormatter(inner, Secrets([SECRET])), text, "1.2.3.4:5", "GET", f"/{FORGED}{SECRET}", "1.1", 200
    )
    assert len(_first_lines(log)) == 1 and SECRET not in log and "GET /x\\n2026" in log


def test_a_forged_line_is_detected() -> None:
    plain = logging.Formatter("%(message)s")
    assert len(_first_lines(_logged(plain, "%s", FORGED))) == 2


def test_handlers_of_every_logger_are_covered() -> None:
    logger, handler = logging.getLogger("somebody.elses"), logging.StreamHandler(io.StringIO())
    logger.addHandler(handler)
    others = [each for each in (*logging.getLogger().handlers, logging.lastResort) if each is not None]
    before = [each.formatter for each in others]
    try:
        redact_logs(Secrets([SECRET]))
        assert isinstance(handler.formatter, RedactingFormatter)
    finally:
        logger.removeHandler(handler)
        for each, formatter in zip(others, before, strict=True):
            each.setFormatter(formatter)


async def test_provider_errors_are_reported_without_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may repeat the refused key: in the stream, in the log, and in the record of the run."""
    monkeypatch.setenv("SOME_API_KEY", "sk-live-0123456789")

    def refuses(request: Any) -> str:
        raise ModelError("the key sk-live-0123456789 is not known here", status=401)

    made = {"refused": Agent(FunctionModel(refuses))}
    async with host_server(tmp_path, agents=made) as server, open_client(server) as client:
        async with client.post("/agents/refused/stream", json=user_message("Hello.", "th_1")) as response:
            told = await response.text()
        noted = await (await client.get(f"/runs/{response.headers['X-Run-Id']}")).text()
        log = await (await client.get("/threads/th_1/export")).text()
    for text in (told, noted, log):
        assert "sk-live" not in text and "the key [secret] is not known here" in text


# -- input ------------------------------------------------------------------------------------------------------------

PRIVATE = ("http://example.com/a.png", "https://127.0.0.1/a.png", "https://[::1]/a", "file:///etc/passwd")


async def test_addresses_that_no_model_may_fetch_are_refused_wherever_messages_enter(tmp_path: Path) -> None:
    model = Scripted("Hello.", "Hello.", spare=True)
    async with host_server(tmp_path, agents={"a": Agent(model)}) as server, open_client(server) as client:
        async with client.post("/agents/a/invoke", json=user_message("Hello.", "th_1")) as answer:
            assert answer.status == 200
        before = await (await client.get("/threads/th_1/export")).text()
        for url in PRIVATE:
            part = {"type": "image", "url": url}
            message = {"role": "user", "content": [{"type": "text", "text": "see"}, part]}
            chat = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
            for path, body in (
                ("/agents/a/invoke", {"messages": [message], "thread_id": "th_1"}),
                ("/agents/a/stream", {"messages": [message], "thread_id": "th_1"}),
                ("/agents/a/invoke", {"messages": [message], "thread_id": "th_new"}),
                ("/threads/th_1/messages", {"messages": [message]}),
                ("/v1/chat/completions", {"model": "a", "messages": [chat]}),
            ):
                async with client.post(path, json=body) as answer:
                    assert answer.status == 400, (path, url)
        assert await (await client.get("/threads/th_1/export")).text() == before
        assert (await client.get("/threads/th_new")).status == 404
    assert len(model.requests) == 1


async def test_a_part_that_the_model_cannot_read_is_refused_and_not_stored(tmp_path: Path) -> None:
    made = {"a": Agent(OpenAI("m", base_url="http://127.0.0.1:9/v1", api_key="k"))}
    part = {"type": "file", "url": "https://example.com/a.pdf", "media_type": "application/pdf"}
    body = {"messages": [{"role": "user", "content": [part]}], "thread_id": "th_1"}
    async with host_server(tmp_path, agents=made) as server, open_client(server) as client:
        async with client.post("/agents/a/invoke", json=body) as answer:
            assert answer.status == 400 and "takes files as data" in await answer.text()
        assert (await client.get("/threads/th_1")).status == 404


async def test_media_links_of_tools_are_not_fetched(tmp_path: Path) -> None:
    @tool
    def point() -> ToolResult:
        """Point to it."""
        return ToolResult(
            "see", parts=(ImagePart(url="http://169.254.169.254/x"), ImagePart(url="https://example.com/"))
        )

    model = Scripted(ToolCall("1", "point", {}), "Done.")
    async with (
        host_server(tmp_path, agents={"a": Agent(model, tools=[point])}) as server,
        open_client(server) as client,
    ):
        await client.post("/agents/a/invoke", json=user_message("Go."))
    _, note, kept = model.requests[-1].messages[-1].content
    assert isinstance(note, TextPart) and "left out" in note.text and isinstance(kept, ImagePart)


@pytest.mark.parametrize("id", [".", "..", "search"])
async def test_a_thread_that_no_address_leads_to_is_not_made(tmp_path: Path, id: str) -> None:
    model = Scripted(spare=True)
    async with host_server(tmp_path, agents={"a": Agent(model)}) as server, open_client(server) as client:
        for path in ("/agents/a/invoke", "/agents/a/stream"):
            async with client.post(path, json=user_message("Hello.", id)) as answer:
                assert answer.status == 400 and "cannot be named" in await answer.text()
    assert not model.requests


ODD_SECRETS = (
    'quo"te\\back/slash-9Zq',
    "tab\there-and-ümläut-77",
    "plain-secret-0123456789",
    "\ud800lone-surrogate-12",
)
PIECES = st.sampled_from([*ODD_SECRETS, "plain-secret", "x", '"', "\\", "\n", "0123456789", "\ud800"])
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.lists(PIECES, max_size=4).map("".join),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PIECES, inner, max_size=3),
)


@given(DATA)
def test_the_search_finds_every_secret_that_a_walk_finds(data: Any) -> None:
    secrets = Secrets(ODD_SECRETS)
    assert secrets.redact_json(data) == secrets._redact_parts(data)


def test_a_frozen_or_foreign_mapping_is_searched_too() -> None:
    secrets, hidden = Secrets([SECRET]), {"a": ["[secret]"]}
    for data in (freeze({"a": [SECRET]}), MappingProxyType({"a": (SECRET,)}), {"a": [SECRET], "n": 2**70}):
        assert {"a": secrets.redact_json(data)["a"]} == hidden
