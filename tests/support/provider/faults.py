"""Faults of a response: a small language.

A fault is made of steps, each at one stage of an answer's way: the reply, its events, the bytes of the body, the
head, and the bytes on the wire. `crlf | trickle(1)` is both. A place is a number of bytes, or a part of the whole.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import Any, Literal

from provider.flow import CLOSE, RESET, STALL, Act, Flow, Head, pause
from provider.script import Call, Event, Reply, dumps

Stage = Literal["reply", "events", "body", "head", "wire"]
Items = Iterable[Event | Act]
Step = Callable[[Any, Any], Any]  # the old value and the vendor's format, into the new value


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault; `|` adds another."""

    steps: tuple[tuple[Stage, Step], ...] = ()

    def __or__(self, other: Fault) -> Fault:
        return Fault(self.steps + other.steps)

    def apply(self, stage: Stage, value: Any, wire: Any) -> Any:
        for at, step in self.steps:
            if at == stage:
                value = step(value, wire)
        return value


FINE = Fault()


def at(stage: Stage, step: Callable[[Any], Any]) -> Fault:
    return Fault(((stage, lambda value, wire: step(value)),))


# -- bytes ----------------------------------------------------------------------------------------------------------

Place = int | float


def cut(place: Place, on: Literal["body", "wire"] = "body") -> Fault:
    """The connection ends there."""
    return _until(place, on, CLOSE)


def reset(place: Place, on: Literal["body", "wire"] = "body") -> Fault:
    """The connection breaks there."""
    return _until(place, on, RESET)


def stall(place: Place, on: Literal["body", "wire"] = "body") -> Fault:
    """Send nothing more."""
    return _until(place, on, STALL)


def end(place: Place) -> Fault:
    """The answer ends there, as if it were whole."""
    return _until(place, "body")


def delay(place: Place, seconds: float, on: Literal["body", "wire"] = "body") -> Fault:
    def wait(flow: Flow) -> Iterator[bytes | Act]:
        before, after = _split(flow, place)
        return chain([before, pause(seconds)], after)

    return at(on, wait)


def trickle(size: int, seconds: float = 0.0) -> Fault:
    """So many bytes at a time."""

    def drip(flow: Flow) -> Iterator[bytes | Act]:
        for piece in flow:
            for start in range(0, len(piece) if isinstance(piece, bytes) else 0, size):
                yield piece[start : start + size]  # type: ignore[index]
                yield pause(seconds)
            if isinstance(piece, Act):
                yield piece

    return at("body", drip)


def corrupt(place: Place, byte: int = 0xFF) -> Fault:
    """Another byte is there."""

    def spoil(flow: Flow) -> Iterator[bytes | Act]:
        before, after = _split(flow, place)
        yield before
        rest = b"".join(piece for piece in after if isinstance(piece, bytes))
        yield bytes([byte]) + rest[1:]

    return at("body", spoil)


def insert(place: Place, data: bytes) -> Fault:
    def put(flow: Flow) -> Iterator[bytes | Act]:
        before, after = _split(flow, place)
        return chain([before, data], after)

    return at("body", put)


def instead(*pieces: bytes | Act, stage: Stage = "body") -> Fault:
    return at(stage, lambda flow: pieces)


def _until(place: Place, on: Stage, *acts: Act) -> Fault:
    return at(on, lambda flow: (_split(flow, place)[0], *acts))


def _split(flow: Flow, place: Place) -> tuple[bytes, Iterable[bytes | Act]]:
    """Return the bytes before a place as one piece, and the rest."""
    if isinstance(place, float):
        flow = [*flow]
        place = int(sum(len(piece) for piece in flow if isinstance(piece, bytes)) * place)
    before, pieces = b"", iter(flow)
    while len(before) < place:
        piece = next(pieces, None)
        if piece is None:
            return before, ()
        before += piece if isinstance(piece, bytes) else b""
    return before[:place], chain([before[place:]], pieces)


def whole(change: Callable[[bytes], bytes]) -> Fault:
    """The body, changed as one text."""
    return at("body", lambda flow: (change(b"".join(piece for piece in flow if isinstance(piece, bytes))),))


crlf = whole(lambda body: body.replace(b"\n", b"\r\n"))
cr = whole(lambda body: body.replace(b"\n", b"\r"))
no_space = whole(lambda body: body.replace(b"\ndata: ", b"\ndata:").replace(b"event: ", b"event:"))
no_names = whole(lambda body: b"".join(line for line in body.splitlines(True) if not line.startswith(b"event:")))
no_last_line = whole(lambda body: body.rstrip(b"\n"))
comments = whole(lambda body: body.replace(b"\n\n", b"\n\n: keep-alive\n\n:\n"))
fields = whole(lambda body: b"retry: 3000\n\n" + body.replace(b"\ndata:", b"\nid: 7\nfoo: bar\nnothing\ndata:"))
blank_lines = whole(lambda body: b"\n\n\n" + body.replace(b"\n\n", b"\n\n\n\n"))
split_data = whole(lambda body: body.replace(b',"', b',\ndata: "'))
zipped = whole(gzip.compress)


# -- the head -------------------------------------------------------------------------------------------------------


def headers(**more: str) -> Fault:
    given = {name.replace("_", "-"): value for name, value in more.items()}
    return at("head", lambda head: replace(head, headers={**head.headers, **given}))


def framed(framing: str, **more: Any) -> Fault:
    return at("head", lambda head: replace(head, framing=framing, **more))


def status(code: int, body: bytes | None = None, kind: str = "application/json", **more: str) -> Fault:
    """Not an answer but a status, with the vendor's error or another body."""
    given = {"Content-Type": kind} | {name.replace("_", "-"): value for name, value in more.items()}

    def say(flow: Flow, wire: Any) -> Flow:
        return [dumps(wire.error(code, f"the script says {code}")).encode() if body is None else body]

    return Fault((("body", say), ("head", lambda head, wire: Head(code, given, "length"))))


def bomb(size: int) -> Fault:
    """One line of so many bytes, in few."""

    def pack(flow: Flow) -> Iterator[bytes]:
        packer = zlib.compressobj(9, wbits=31)
        yield packer.compress(b"data: ")
        for _ in range(size // 100_000):
            yield packer.compress(b"x" * 100_000)
        yield packer.flush()

    return at("body", pack) | headers(Content_Encoding="gzip")


HTML = b"<html><head><title>502 Bad Gateway</title></head><body><h1>Bad Gateway</h1></body></html>"


# -- events ---------------------------------------------------------------------------------------------------------


def events(change: Callable[[list[Event]], Items]) -> Fault:
    return at("events", change)


def drop(tag: str) -> Fault:
    return events(lambda all: [event for event in all if event.tag != tag])


def drop_at(number: int) -> Fault:
    return events(lambda all: all[:number] + all[number + 1 :])


def twice_at(number: int) -> Fault:
    return events(lambda all: all[: number + 1] + all[number : number + 1] + all[number + 1 :])


def swap_at(number: int) -> Fault:
    """Swap that event and the next."""
    return events(lambda all: all[:number] + all[number : number + 2][::-1] + all[number + 2 :])


def twice(tag: str) -> Fault:
    return events(lambda all: [each for event in all for each in [event] * (2 if event.tag == tag else 1)])


def last(tag: str) -> Fault:
    """Move the events of that kind to the end."""
    return events(lambda all: sorted(all, key=lambda event: event.tag == tag))


def before(tag: str, *items: Event | Act) -> Fault:
    """Put something before the first event of a kind."""

    def put(all: list[Event]) -> list[Event | Act]:
        place = next((n for n, event in enumerate(all) if event.tag == tag), len(all))
        return [*all[:place], *items, *all[place:]]

    return events(put)


def raw(data: str | bytes) -> Event:
    return Event("raw", data)


def forget(tag: str, *keys: str) -> Fault:
    """Events of that kind lack those keys, however deep."""
    return edit(tag, lambda data: without(data, keys))


def setting(tag: str, **values: Any) -> Fault:
    """Events of that kind have other values there, however deep."""
    return edit(tag, lambda data: with_values(data, values))


def edit(tag: str, change: Callable[[Any], Any]) -> Fault:
    return events(
        lambda all: [replace(event, data=change(_copy(event.data))) if event.tag == tag else event for event in all]
    )


def endless(tag: str) -> Fault:
    """Repeat an event of that kind forever."""

    def go_on(all: list[Event]) -> Items:
        place = max((n for n, event in enumerate(all) if event.tag == tag), default=None)
        return all if place is None else chain(all[:place], repeat(all[place]))

    return events(go_on)


def error_before(tag: str, message: str = "the script breaks off") -> Fault:
    """The vendor's error object, in the middle of the stream."""
    return Fault((("events", lambda all, wire: before(tag, wire.error_event(message)).apply("events", all, wire)),))


def _copy(data: Any) -> Any:
    return json.loads(json.dumps(data)) if isinstance(data, dict | list) else data


def without(data: Any, keys: tuple[str, ...]) -> Any:
    if isinstance(data, dict):
        return {key: without(value, keys) for key, value in data.items() if key not in keys}
    return [without(item, keys) for item in data] if isinstance(data, list) else data


def with_values(data: Any, values: dict[str, Any]) -> Any:
    if isinstance(data, dict):
        return {key: values[key] if key in values else with_values(value, values) for key, value in data.items()}
    return [with_values(item, values) for item in data] if isinstance(data, list) else data


# -- the reply ------------------------------------------------------------------------------------------------------


def says(**changes: Any) -> Fault:
    return at("reply", lambda reply: replace(reply, **changes))


def args(text: str) -> Fault:
    """The first call has those arguments."""
    return each_call(lambda calls: (replace(calls[0], args=text), *calls[1:]))


def calling(**changes: Any) -> Fault:
    """The first call is another."""
    return each_call(lambda calls: (replace(calls[0], **changes), *calls[1:]))


def calls_again(**changes: Any) -> Fault:
    """The first call, and a second one that differs so."""
    return each_call(lambda calls: (calls[0], replace(calls[0], **changes)))


def each_call(change: Callable[[tuple[Call, ...]], tuple[Call, ...]]) -> Fault:
    def changed(reply: Reply) -> Reply:
        return replace(reply, calls=change(reply.calls), order=()) if reply.calls else reply

    return at("reply", changed)
