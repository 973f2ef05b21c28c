"""A model's key: no error repeats it, for any response."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import pytest

from wick import Agent
from wick.capabilities.retry import Retry
from wick.errors import ConfigError, ModelError
from wick.models import _http
from wick.models._http import ModelServer
from wick.models.anthropic import Anthropic
from wick.models.bedrock import Bedrock
from wick.models.google import Google
from wick.models.openai import OpenAI
from wick.models.openai_responses import OpenAIResponses

KEY = 'sk-can"ary/1+2'
CLIENTS = (OpenAI, OpenAIResponses, Anthropic, Google, Bedrock)
ECHO = f"Incorrect API key provided: {KEY}; url-encoded {quote(KEY, safe='')}; upper {KEY.upper()}"


@asynccontextmanager
async def answering(data: bytes) -> AsyncIterator[str]:
    """A server that answers every request with these bytes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        await server.wait_closed()
        await _http.close()


def _head(status: int, kind: str) -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n".encode()


def _stream(event: Any) -> bytes:
    return _head(200, "text/event-stream") + f"data: {event if type(event) is str else json.dumps(event)}\n\n".encode()


ANSWERS = {
    **{
        f"{status} {kind}": _head(status, f"application/{kind}") + body
        for status in (400, 401, 403, 404, 429, 500)
        for kind, body in (("json", json.dumps({"error": {"message": ECHO}}).encode()), ("text", ECHO.encode()))
    },
    "a key where the text is cut": _head(400, "text/plain") + b"x" * 495 + KEY.encode(),
    "a detail": _head(422, "application/json") + json.dumps({"detail": [{"input": KEY}]}).encode(),
    "an error in the stream": _stream({"type": "error", "error": {"type": "x", "message": ECHO}}),
    "an error that is a text": _stream({"type": "error", "error": ECHO}),
    "an event that cannot be read": _stream("{" + KEY),
    "an event that is cut": _stream("{" + "x" * 90 + KEY),
    "not HTTP": ECHO.encode() + b"\r\n\r\n",
    "a strange head": f"HTTP/1.1 200 X\r\n{KEY}\r\n\r\n".encode(),
    "a compression": _head(200, "x")[:-2] + f"Content-Encoding: {KEY}\r\n\r\n".encode(),
}


def _error_text(error: BaseException) -> str:
    """Return all text of an error and its causes."""
    texts, left = [""], [error]
    while left:
        one = left.pop()
        texts += [str(one), repr(one), repr(vars(one)), "".join(traceback.format_exception(one))]
        left += [each for each in (one.__cause__, one.__context__) if each is not None]
    return "\n".join(texts)


def _leaks(text: str) -> bool:
    plain = text.lower().replace("\\\\", "\\").replace('\\"', '"')
    return any(form.lower()[:10] in plain for form in (KEY, quote(KEY, safe=""), json.dumps(KEY)[1:-1]))


@pytest.mark.parametrize("client", CLIENTS)
async def test_no_error_repeats_the_key(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for kind, data in ANSWERS.items():
        async with answering(data) as url:
            model = client("m", base_url=url, api_key=KEY)
            with pytest.raises(ModelError) as caught:
                await Agent(model, hooks=[Retry(attempts=1)]).run("Go.")
        assert not _leaks(_error_text(caught.value)), kind
        assert not _leaks(repr(model) + repr(model.server)), kind
    assert not _leaks(caplog.text)


async def test_a_repeated_key_is_detected(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr(ModelServer, "redact", lambda self, text, shortest=0: text)
    with pytest.raises(AssertionError):
        await test_no_error_repeats_the_key(OpenAI, caplog)


def test_credentials_of_other_headers_and_of_the_address_are_redacted_too() -> None:
    basic = b64encode(b"user:correct-horse").decode()
    headers = {"authorization": f"Basic {basic}", "X-Goog-Api-Key": "goog-12345678", "accept": "text/event-stream"}
    server = ModelServer("x", "https://h/v1?key=in-the-query&api-version=2024-02-01", headers)
    text = f"{basic} correct-horse goog-12345678 in-the-query 2024-02-01 text/event-stream"
    assert server.redact(text) == "[key] [key] [key] [key] 2024-02-01 text/event-stream"
    assert "in-the-query" not in repr(server) + server.where and server.where == "https://h/v1"


def test_a_short_key_is_redacted_only_on_its_own() -> None:
    server = ModelServer("x", "https://h/v1", {"authorization": "Bearer ollama"})
    assert server.redact("ollama says no") == "ollama says no" and server.redact("ollama", 4) == "[key]"


@pytest.mark.parametrize(
    "url", ["http://user:correct-horse@h:port/v1", "ftp://user:correct-horse@h/v1?key=correct-horse"]
)
def test_an_address_that_is_refused_is_shown_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAI("m", base_url=url)
    assert "correct-horse" not in str(caught.value)
