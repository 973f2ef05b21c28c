"""A parser for the streamed replies of Bedrock's Converse API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from wick.errors import ModelError
from wick.models import _http, openai_common
from wick.models._http import ModelServer
from wick.protocols import CallArgs, CallStart, Delta, Finish, ReasoningDelta, TextDelta, Usage

_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "content_filtered": "content_filter",
}
_MALFORMED = ("malformed_model_output", "malformed_tool_use")
_STATUS = {
    "validationException": 400,
    "accessDeniedException": 403,
    "resourceNotFoundException": 404,
    "modelTimeoutException": 408,
    "throttlingException": 429,
    "internalServerException": 500,
    "modelStreamErrorException": 500,
    "serviceUnavailableException": 503,
}


class ConverseReply:
    """A parser for the events of a reply."""

    __slots__ = ("_calls", "_chars", "_server", "done", "finish")

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._chars = 0  # characters of text so far
        self._calls: set[int] = set()  # the blocks that are calls
        self.finish = ""
        self.done = False  # the last event came

    def deltas(self, events: list[bytes]) -> Iterator[Delta]:
        for data in events:
            if self.done:
                return
            try:
                event = orjson.loads(data)
                deltas = [delta for kind, body in event.items() for delta in self._read(kind, body)]
            except (AttributeError, KeyError, TypeError, ValueError):
                raise openai_common.unreadable_error(self._server, data) from None
            yield from deltas

    def end(self) -> Finish:
        if not self.finish:
            raise openai_common.truncated_error(self._server)
        return Finish(self.finish)

    def _read(self, kind: str, body: Any) -> Sequence[Delta]:
        if kind == "contentBlockDelta":
            return self._read_delta(_number(body["contentBlockIndex"]), body["delta"])
        if kind == "contentBlockStart":
            return self._start_block(_number(body["contentBlockIndex"]), body["start"])
        if kind == "messageStop":
            self._stop(_string(body["stopReason"]))
        elif kind == "metadata":
            self.done = bool(self.finish)
            return self._count(body.get("usage") or {})
        elif kind == "error":
            raise self._describe_error(body)
        return ()  # others, such as messageStart, are ignored

    def _read_delta(self, index: int, delta: dict[str, Any]) -> Sequence[Delta]:
        if "text" in delta:
            text = _string(delta["text"])
            self._chars += len(text)
            return (TextDelta(text),) if text else ()
        if "toolUse" in delta:
            text = _string(delta["toolUse"]["input"])
            return (CallArgs(index, text),) if text else ()
        if "reasoningContent" in delta:
            thought = delta["reasoningContent"]
            hidden = _string(thought.get("redactedContent") or "")
            signature, kind = _string(thought.get("signature") or ""), "bedrock"
            if hidden:
                signature, kind = hidden, "bedrock-redacted"
            if signature and (self._chars or self._calls):
                kind = f"{kind}@{self._chars}+{len(self._calls)}"  # its place in the reply
            return (ReasoningDelta(_string(thought.get("text") or ""), signature, kind),)
        return ()

    def _start_block(self, index: int, start: dict[str, Any]) -> Sequence[Delta]:
        if "toolUse" not in start:
            return ()
        self._calls.add(index)
        use = start["toolUse"]
        return (CallStart(index, _string(use["toolUseId"]), _string(use["name"])),)

    def _stop(self, reason: str) -> None:
        if reason in _MALFORMED:
            raise ModelError(
                f"{self._server.name} broke off its answer: it wrote what cannot be read; ask again", retryable=True
            )
        self.finish = _REASONS.get(reason, reason)

    def _count(self, usage: dict[str, Any]) -> Sequence[Delta]:
        """Return the usage. The API counts cached tokens apart from the input."""
        count = openai_common.count_tokens
        read, written = count(usage, "cacheReadInputTokens"), count(usage, "cacheWriteInputTokens")
        return (Usage(count(usage, "inputTokens") + read + written, count(usage, "outputTokens"), read, 0, written),)

    def _describe_error(self, error: Any) -> ModelError:
        self.finish, self.done = "", False
        details = error if isinstance(error, dict) else {"type": error, "message": error}
        kind = str(details.get("type") or "")
        status = _STATUS.get(kind[:1].lower() + kind[1:])
        reason = " ".join(self._server.redact(str(details.get("message") or kind or "no reason was given")).split())
        text = f"{self._server.name} broke off its answer: {reason[:500]}"
        return ModelError(text, status=status, retryable=status in _http.RETRYABLE)


def _string(value: Any) -> str:
    if type(value) is not str:
        raise TypeError("not a text")
    return value


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("not a number")
    return value
