"""The scripted model of all programs: it serves OpenAI's Chat Completions, follows the plan in the prompt, and records
its requests. Like the real API it refuses a conversation with an unanswered tool call."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from peer import REQUEST_TOKENS

LARGEST = 20_000_000  # longer requests are counted, not parsed
USAGE = {"prompt_tokens": REQUEST_TOKENS - 10, "completion_tokens": 10, "total_tokens": REQUEST_TOKENS}


@dataclass
class Asked:
    """One request: its time, its size, and its validity."""

    at: float
    size: int
    status: int = 200
    why: str = ""
    messages: Sequence[Mapping[str, Any]] = ()
    answered: bool = False


@dataclass
class Record:
    """The requests to one model."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return REQUEST_TOKENS * sum(one.status == 200 for one in self.asked)


@contextmanager
def run_model() -> Iterator[Record]:
    """Run a model on its own port."""
    record = Record()

    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def do_POST(self) -> None:
            size = int(self.headers["content-length"])
            asked = Asked(time.monotonic(), size)
            record.asked.append(asked)
            body = _read(self.rfile, size)
            with suppress(BrokenPipeError, ConnectionResetError):  # the client was killed
                self._answer(asked, json.loads(body) if body else None)

        def _answer(self, asked: Asked, request: dict[str, Any] | None) -> None:
            asked.messages = request["messages"] if request else ()
            asked.why = _fault(asked.messages)
            if asked.why:
                asked.status = 400
                error = {"message": asked.why, "type": "invalid_request_error", "param": "messages", "code": None}
                return self._send(400, "application/json", json.dumps({"error": error}).encode())
            message, seconds = _reply(request or {"messages": ()})
            time.sleep(seconds)
            if request and request.get("stream"):
                self._send(200, "text/event-stream", _events(message))
            else:
                choice = {"index": 0, "message": message, "finish_reason": _finish(message), "logprobs": None}
                self._send(
                    200,
                    "application/json",
                    json.dumps(_head("chat.completion") | {"choices": [choice], "usage": USAGE}).encode(),
                )
            asked.answered = True

        def _send(self, status: int, kind: str, data: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    server.daemon_threads = True
    record.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield record
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _read(stream: Any, size: int) -> bytes:
    if size <= LARGEST:
        return bytes(stream.read(size))
    while size > 0:
        size -= len(stream.read(min(size, 1 << 20)))
    return b""


# -- replies ----------------------------------------------------------------------------------------------------------


def _reply(request: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
    """Return the reply and its delay in seconds."""
    messages = request["messages"]
    where, found = -1, {"steps": [], "seconds": 0}
    for number, message in enumerate(messages):
        if message["role"] == "user" and (read := _plan(_text(message))):
            where, found = number, read
    done = sum(message["role"] == "assistant" for message in messages[where + 1 :])
    if done < len(found["steps"]):
        return _calling(found["steps"][done], len(messages)), found["seconds"]
    if any(one.get("function", {}).get("name") == "final_answer" for one in request.get("tools") or ()):
        return _calling([("final_answer", {"answer": "done"})], len(messages)), found["seconds"]
    return {"role": "assistant", "content": "done"}, found["seconds"]


def _plan(text: str) -> dict[str, Any] | None:
    _, mark, rest = text.partition("PLAN")
    if not mark or not rest.startswith("{"):
        return None
    found: dict[str, Any] = json.JSONDecoder().raw_decode(rest)[0]
    return found


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(str(part.get("text", "")) for part in content)


def _calling(calls: Sequence[Any], salt: int) -> dict[str, Any]:
    called = [
        {"id": f"call_{salt}_{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
        for number, (name, args) in enumerate(calls)
    ]
    return {"role": "assistant", "content": None, "tool_calls": called}


def _fault(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the error of the real API for an invalid conversation."""
    open_calls: list[str] = []
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            if message.get("tool_call_id") not in open_calls:
                return f"messages[{number}]: a message of the role 'tool' must follow a message with 'tool_calls'"
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            break
        open_calls += [one["id"] for one in message.get("tool_calls") or ()]
    if open_calls:
        return f"these tool_call_ids have no tool message after them: {', '.join(open_calls)}"
    return ""


def _events(message: Mapping[str, Any]) -> bytes:
    calls = [{"index": number, **one} for number, one in enumerate(message.get("tool_calls") or ())]
    deltas = [{"role": "assistant", "content": message["content"]}, *({"tool_calls": [one]} for one in calls), {}]
    last = len(deltas) - 1
    chunks = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": _finish(message) if number == last else None}]}
        for number, delta in enumerate(deltas)
    ]
    chunks.append({"choices": [], "usage": USAGE})
    said = [b"data: " + json.dumps(_head("chat.completion.chunk") | chunk).encode() for chunk in chunks]
    return b"\n\n".join([*said, b"data: [DONE]", b""])


def _finish(message: Mapping[str, Any]) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def _head(kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1_700_000_000, "model": "gpt-4o"}
