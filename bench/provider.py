"""A provider for the benchmarks: a separate process that returns ready-made bytes, so that its work is not counted.

    POST /{deltas}/{pace}/v1/chat/completions      OpenAI's wire format
    POST /{deltas}/{pace}/v1/messages              Anthropic's wire format

It prints its port, and exits at the end of its input. With the pace `burst`, a reply is written at once. With `live`,
a pause between events lets the client read each one. In both cases an event is one HTTP chunk, as with the real APIs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import cache
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread
from time import sleep
from typing import Any

PAUSE = 0.0005  # seconds between the events of a live reply
WORD = " weather"

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
_END = b"0\r\n\r\n"


@cache
def reply(path: str) -> list[bytes]:
    """Return the chunks of the reply to a path."""
    _, deltas, _, _, *kind = path.split("/")
    events = _chat(int(deltas)) if kind == ["chat", "completions"] else _messages(int(deltas))
    return [b"%x\r\n%s\r\n" % (len(event), event) for event in events] + [_END]


def _chat(deltas: int) -> Iterator[bytes]:
    def chunk(choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        head: dict[str, Any] = {"id": "chatcmpl-Bq2Wd0Yx3mZ5kT7uVh9eCjLfGaNsR", "object": "chat.completion.chunk"}
        head |= {"created": 1_750_000_000, "model": "gpt-4o-2024-08-06", "service_tier": "default"}
        return _event(head | {"system_fingerprint": "fp_07871e2ad8", "choices": choices, "usage": usage})

    def choice(delta: dict[str, str], finish: str | None = None) -> list[dict[str, Any]]:
        return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]

    yield chunk(choice({"role": "assistant", "content": ""}))
    yield from [chunk(choice({"content": WORD}))] * deltas
    yield chunk(choice({}, "stop"))
    details = {"prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0}}
    yield chunk([], {"prompt_tokens": 900, "completion_tokens": deltas, "total_tokens": 900 + deltas} | details)
    yield b"data: [DONE]\n\n"


def _messages(deltas: int) -> Iterator[bytes]:
    def event(type: str, **data: Any) -> bytes:
        return f"event: {type}\n".encode() + _event({"type": type, **data})

    message: dict[str, Any] = {"id": "msg_01EAZr8bSqvPkX7uTj2c", "type": "message", "role": "assistant"}
    message |= {"model": "claude-sonnet-4-5", "content": [], "stop_reason": None, "stop_sequence": None}
    yield event("message_start", message=message | {"usage": {"input_tokens": 900, "output_tokens": 1}})
    yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    yield from [event("content_block_delta", index=0, delta={"type": "text_delta", "text": WORD})] * deltas
    yield event("content_block_stop", index=0)
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    yield event("message_delta", delta=stop, usage={"output_tokens": deltas})
    yield event("message_stop")


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


class Connection(StreamRequestHandler):
    """One connection: requests and replies in turn, until the client closes it."""

    disable_nagle_algorithm = True

    def handle(self) -> None:
        while line := self.rfile.readline():
            path = line.split()[1].decode()
            self.rfile.read(self._length())
            chunks = reply(path)
            if "/burst/" in path:
                self.wfile.write(_HEAD + b"".join(chunks))
            else:
                self._live(chunks)

    def _length(self) -> int:
        length = 0
        while header := self.rfile.readline().strip():
            name, _, value = header.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return length

    def _live(self, chunks: list[bytes]) -> None:
        self.wfile.write(_HEAD)
        for chunk in chunks:
            self.wfile.write(chunk)
            sleep(PAUSE)


class Listener(ThreadingTCPServer):
    daemon_threads = True


if __name__ == "__main__":
    with Listener(("127.0.0.1", 0), Connection) as listener:
        Thread(target=listener.serve_forever, daemon=True).start()
        print(listener.server_address[1], flush=True)
        sys.stdin.read()
