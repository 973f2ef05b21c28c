"""The model of the programs of this folder: it implements OpenAI's Chat Completions, and records its requests.

    POST /{record}/v1/chat/completions    a reply, streamed or in one piece
    GET  /{record}                        the distinct requests of a record with their counts; deletes the record

The question contains the number of tool calls, and the number of words of the answer. Requests are not parsed while
programs are measured: the model searches the bytes for the question and counts the tool results. Recorded requests are
compared afterwards. The program prints its port, and exits at the end of its input.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from collections import Counter
from functools import lru_cache
from itertools import pairwise
from typing import Any

from contract import RESULT, SYSTEM, TOOL, words

_ASKED = re.compile(rb"Look at (\d+) forecasts and answer in (\d+) words")
_STREAM = re.compile(rb'"stream": ?true')
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_MARK = RESULT[:18].encode()
_ENDING = b"final_answer"  # a framework with a tool of this name expects its answer as a call of it

_SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_USAGE = {"prompt_tokens": 900, "completion_tokens": 20, "total_tokens": 920} | {
    "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0}
}  # fmt: skip


# -- replies --------------------------------------------------------------------------------------------------------


def answer(body: bytes) -> bytes:
    """Return the complete response to a request."""
    found = _ASKED.search(body)
    if found is None:
        raise ValueError("the question of the benchmark is not in the request")
    steps, length = int(found[1]), int(found[2])
    done = body.count(_MARK)
    make = streamed if _STREAM.search(body) else whole
    return make(done if done < steps else None, length, done >= steps and _ENDING in body)


@lru_cache(1024)
def whole(number: int | None, length: int, as_call: bool) -> bytes:
    """Return a reply in one piece: a tool call, or the answer."""
    message: dict[str, Any] = {"role": "assistant", "content": None if number is not None else "".join(words(length))}
    message["refusal"] = None
    if call := _call(number, length, as_call):
        message |= {"content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls" if call else "stop"}
    data = json.dumps(_head("chat.completion") | {"choices": [choice], "usage": _USAGE}).encode()
    return _JSON % len(data) + data


@lru_cache(1024)
def streamed(number: int | None, length: int, as_call: bool) -> bytes:
    """Return the same reply as events, each an HTTP chunk, in one write."""
    call = _call(number, length, as_call)
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None if call else "", "refusal": None}]
    if number is None:
        deltas += [{"content": word} for word in words(length)]
    if call:
        function = {"name": call["function"]["name"], "arguments": ""}
        deltas.append({"tool_calls": [{"index": 0, **call, "function": function}]})
        deltas.append({"tool_calls": [{"index": 0, "function": {"arguments": call["function"]["arguments"]}}]})
    events = [_chunk([_choice(delta)]) for delta in deltas]
    events += [_chunk([_choice({}, "tool_calls" if call else "stop")]), _chunk([], _USAGE), b"data: [DONE]\n\n"]
    return _SSE + b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in events) + b"0\r\n\r\n"


def _call(number: int | None, length: int, as_call: bool) -> dict[str, Any] | None:
    if number is not None:
        name, arguments = TOOL, {"city": "Lisbon", "days": number + 1}
    elif as_call:
        name, arguments = "final_answer", {"answer": "".join(words(length))}
    else:
        return None
    function = {"name": name, "arguments": json.dumps(arguments, separators=(",", ":"))}
    return {"id": f"call_{number}", "type": "function", "function": function}


def _choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _chunk(choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
    data = _head("chat.completion.chunk") | {"choices": choices, "usage": usage}
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


def _head(kind: str) -> dict[str, Any]:
    head = {"id": "chatcmpl-Bq2Wd0Yx3mZ5kT7uVh9eCjLfGaNsR", "object": kind, "created": 1_750_000_000}
    return head | {"model": "gpt-4o-2024-08-06", "service_tier": "default", "system_fingerprint": "fp_07871e2ad8"}


# -- recorded requests ----------------------------------------------------------------------------------------------


def transcript(bodies: list[bytes]) -> dict[str, Any]:
    """Return the number of requests, and the last request of each conversation with its count.

    A request that is the beginning of a longer one is not a conversation of its own. Requests that do not continue each
    other are listed separately.
    """
    counts: Counter[str] = Counter()
    for body, count in Counter(bodies).items():
        counts[json.dumps(_normal(json.loads(body)))] += count
    requests = [(json.loads(text), count) for text, count in counts.items()]
    requests.sort(key=lambda one: (json.dumps(one[0]["messages"][:2]), len(one[0]["messages"])))
    rest = [one for one, longer in pairwise([*requests, None]) if longer is None or not _begins(one, longer)]
    return {"requests": len(bodies), "conversations": rest}


def _begins(one: tuple[Any, int], longer: tuple[Any, int]) -> bool:
    """Return True if a request is the beginning of another, with the same count and one step less."""
    short, long = one[0]["messages"], longer[0]["messages"]
    return one[1] == longer[1] and long[: len(short)] == short and len(long) == len(short) + 2


def _normal(body: dict[str, Any]) -> dict[str, Any]:
    """Return a request in a form that does not depend on the notation of the client."""
    ids: dict[str, int] = {}
    messages = [_message(message, ids) for message in body["messages"]]
    return {"messages": messages, "tools": sorted(tool["function"]["name"] for tool in body.get("tools") or ())}


def _message(message: dict[str, Any], ids: dict[str, int]) -> list[Any]:
    role = "system" if message["role"] == "developer" else message["role"]
    calls = []
    for call in message.get("tool_calls") or ():
        calls.append([call["function"]["name"], json.loads(call["function"]["arguments"])])
        ids[call["id"]] = len(ids)
    answers = ids.get(message.get("tool_call_id") or "")
    return [role, _text(message.get("content")), calls, answers]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content).strip()
    return (content or "").strip()


# -- HTTP -----------------------------------------------------------------------------------------------------------


class Connection(asyncio.Protocol):
    """One connection: requests and responses in turn."""

    def __init__(self, records: dict[str, list[bytes]]) -> None:
        self.records = records
        self.pieces: list[bytes] = []
        self.missing = 0  # bytes until the request is complete; 0 while its head is not
        self.have = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)
        self.missing -= len(data)
        if self.missing > 0:
            return
        whole = b"".join(self.pieces)
        head, _, body = whole.partition(b"\r\n\r\n")
        if not _:
            return
        length = _LENGTH.search(head)
        self.missing = (int(length[1]) if length else 0) - len(body)
        self.pieces = [whole]
        if self.missing <= 0:
            self.pieces, self.missing = [], 0
            self.transport.write(self._respond(head, body))

    def _respond(self, head: bytes, body: bytes) -> bytes:
        method, path, *_ = head.split(b" ", 2)
        record = path.decode().split("/")[1]
        if method == b"GET":
            data = json.dumps(transcript(self.records.pop(record, []))).encode()
            return _JSON % len(data) + data
        self.records.setdefault(record, []).append(body)
        try:
            return answer(body)
        except ValueError as error:
            data = json.dumps({"error": {"message": str(error), "type": "invalid_request_error"}}).encode()
            return (_JSON % len(data)).replace(b"200 OK", b"400 Bad Request") + data


async def serve() -> None:
    records: dict[str, list[bytes]] = {}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(records), "127.0.0.1", 0, backlog=1024)
    async with server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    assert _MARK.decode() not in SYSTEM
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())
