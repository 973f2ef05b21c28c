"""Responses of text are compressed for clients that accept it; streams, files and small bodies are not."""

from __future__ import annotations

import gzip
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wick.server.http.compression import SMALL_BYTES, CompressionMiddleware, accepts_gzip

JSON = [(b"content-type", b"application/json")]
TEXT = b'{"words": "' + b"word " * 1_000 + b'"}'


async def respond(
    *pieces: bytes, headers: list[tuple[bytes, bytes]] = JSON, accept: bytes = b"br, gzip"
) -> tuple[dict[bytes, bytes], list[bytes]]:
    """Return the headers and the body of a response that is sent in pieces."""
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        length = (b"content-length", str(sum(map(len, pieces))).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [*headers, length]})
        for number, piece in enumerate(pieces, 1):
            await send({"type": "http.response.body", "body": piece, "more_body": number < len(pieces)})

    async def send(message: Any) -> None:
        sent.append(dict(message))

    scope = {"type": "http", "headers": [(b"accept-encoding", accept)]}
    await CompressionMiddleware(app)(scope, None, send)  # type: ignore[arg-type]
    start, *rest = sent
    assert [message.get("more_body", False) for message in rest][-1:] == [False]
    return dict(start["headers"]), [message["body"] for message in rest]


async def test_text_is_compressed_for_clients_that_accept_it() -> None:
    headers, body = await respond(TEXT)
    assert headers[b"content-encoding"] == b"gzip" and b"content-length" not in headers
    assert headers[b"vary"] == b"Accept-Encoding"
    assert gzip.decompress(b"".join(body)) == TEXT and len(b"".join(body)) < 200
    headers, body = await respond(TEXT, accept=b"br")
    assert b"content-encoding" not in headers and body == [TEXT] and headers[b"vary"] == b"Accept-Encoding"


async def test_a_response_in_pieces_is_one_gzip_stream() -> None:
    pieces = [os.urandom(20_000).hex().encode() for _ in range(5)]
    headers, body = await respond(*pieces)
    assert headers[b"content-encoding"] == b"gzip"
    assert gzip.decompress(b"".join(body)) == b"".join(pieces)


@pytest.mark.parametrize(
    "headers",
    [
        [(b"content-type", b"text/event-stream; charset=utf-8")],
        [(b"content-type", b"application/octet-stream")],
        [(b"content-type", b"image/png")],
        [*JSON, (b"content-encoding", b"gzip")],
        [],
    ],
)
async def test_streams_files_and_compressed_responses_are_unchanged(headers: list[tuple[bytes, bytes]]) -> None:
    sent, body = await respond(b"data: a\n\n" * 500, b"data: b\n\n", headers=headers)
    assert body == [b"data: a\n\n" * 500, b"data: b\n\n"]
    assert sent.get(b"content-encoding") == dict(headers).get(b"content-encoding") and b"vary" not in sent


async def test_a_small_response_is_not_compressed() -> None:
    headers, body = await respond(b"x" * (SMALL_BYTES - 1))
    assert b"content-encoding" not in headers and body == [b"x" * (SMALL_BYTES - 1)]


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        *[("gzip", True), ("GZIP", True), ("br;q=1, gzip;q=0.5", True), ("gzip; q=0", False), ("gzip;q=0.0", False)],
        *[("", False), ("br", False), ("identity", False), ("xgzip", False)],
    ],
)
def test_the_header_of_a_client(header: str, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted


@given(st.lists(st.binary(max_size=40_000), min_size=1, max_size=5))
async def test_any_body_arrives_as_it_was(pieces: list[bytes]) -> None:
    headers, body = await respond(*pieces)
    whole = b"".join(body)
    assert (gzip.decompress(whole) if b"content-encoding" in headers else whole) == b"".join(pieces)
