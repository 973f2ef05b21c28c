"""Large answers that wait on disk: they come whole, in pieces, and from memory where there is no disk for them."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest
from starlette.responses import Response

from wick.server.http import spooling
from wick.server.http.spooling import LARGE_BYTES, PIECE_BYTES, SpoolingMiddleware

LARGE = os.urandom(LARGE_BYTES + 1)


async def send_response(body: bytes, **more: Any) -> list[dict[str, Any]]:
    """Return the sent messages; the producer had finished before the first one."""
    sent: list[dict[str, Any]] = []
    done: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body, **more})
        done.append(len(sent))

    async def send(message: Any) -> None:
        sent.append(dict(message))

    await SpoolingMiddleware(app)({"type": "http"}, None, send)  # type: ignore[arg-type]
    assert sent.pop(0)["type"] == "http.response.start"
    assert b"".join(message["body"] for message in sent) == body
    assert done == [1 if len(sent) > 1 else 2]
    return sent


async def test_a_small_response_is_sent_directly() -> None:
    assert await send_response(b"x" * LARGE_BYTES) == [{"type": "http.response.body", "body": b"x" * LARGE_BYTES}]


async def test_a_large_response_is_spooled_after_its_producer_ended() -> None:
    sent = await send_response(LARGE)
    assert max(len(message["body"]) for message in sent) == PIECE_BYTES
    assert [message["more_body"] for message in sent] == [True] * (len(sent) - 1) + [False]


async def test_a_stream_is_sent_unbuffered() -> None:
    assert await send_response(LARGE, more_body=True) == [
        {"type": "http.response.body", "body": LARGE, "more_body": True}
    ]


async def test_without_a_disk_an_answer_is_sent_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**options: Any) -> Any:
        raise OSError(errno.ENOSPC, "the disk is full")

    monkeypatch.setattr(spooling, "TemporaryFile", full)
    assert await send_response(LARGE) == [{"type": "http.response.body", "body": LARGE}]


async def test_an_answer_that_is_put_by_is_the_same() -> None:
    made = Response(LARGE, 201, {"X-Of": "it"}, "text/plain")
    kept = await spooling.spool_response(made)
    assert kept is not made and not kept.body
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await kept({"type": "http"}, None, send)  # type: ignore[arg-type]
    assert sent[0] == {"type": "http.response.start", "status": 201, "headers": made.raw_headers}
    assert b"".join(message["body"] for message in sent[1:]) == LARGE
    assert [message["more_body"] for message in sent[1:]] == [True] * (len(sent) - 2) + [False]


async def test_a_small_answer_is_not_put_by() -> None:
    small = Response(b"x" * LARGE_BYTES)
    assert await spooling.spool_response(small) is small
