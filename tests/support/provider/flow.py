"""A response on the wire: bytes, and actions between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Literal


@dataclass(frozen=True, slots=True)
class Act:
    """Something that is done instead of sending bytes."""

    do: Literal["pause", "stall", "close", "reset"]
    seconds: float = 0.0


CLOSE = Act("close")
RESET = Act("reset")  # the other side sees ECONNRESET, not an end
STALL = Act("stall")  # nothing more, until the client leaves

Flow = Iterable[bytes | Act]


@dataclass(frozen=True, slots=True)
class Head:
    """The head of an HTTP response, and the framing of its body."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "text/event-stream; charset=utf-8"})
    framing: Literal["chunked", "length", "close", "none"] = "chunked"
    lie: int = 0  # is added to the content's length
    version: str = "HTTP/1.1"


def pause(seconds: float) -> Act:
    return Act("pause", seconds)


def frame(head: Head, body: Flow) -> Iterator[bytes | Act]:
    """An HTTP answer."""
    if head.framing == "length":
        body = [*body]
        length = sum(len(piece) for piece in body if isinstance(piece, bytes))
        yield _head(head, {"Content-Length": str(max(0, length + head.lie))})
    elif head.framing == "chunked":
        yield _head(head, {"Transfer-Encoding": "chunked"})
    else:
        yield _head(head, {"Connection": "close"} if head.framing == "close" else {})
    for piece in body:
        chunked = head.framing == "chunked" and isinstance(piece, bytes)
        yield _chunk(piece) if chunked else piece  # type: ignore[arg-type]
    if head.framing == "chunked":
        yield b"0\r\n\r\n"
    elif head.framing == "close" or head.lie:
        yield CLOSE


def _head(head: Head, more: dict[str, str]) -> bytes:
    try:
        phrase = HTTPStatus(head.status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"{name}: {value}" for name, value in {**head.headers, **more}.items()]
    return "\r\n".join([f"{head.version} {head.status} {phrase}", *lines, "", ""]).encode("latin-1")


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(piece), piece) if piece else b""
