"""A parser for the streamed replies of Gemini."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from wick._internal.fast_json import encode_json
from wick._internal.strict_json import decode_strict
from wick.errors import ModelError
from wick.models import openai_common
from wick.models._http import ModelServer
from wick.models.openai_common import require_text
from wick.protocols import CallArgs, CallStart, Delta, Finish, ReasoningDelta, TextDelta, Usage

_REASONS = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(
        ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "LANGUAGE"),
        "content_filter",
    ),
}
_BROKEN = {  # finish reasons of replies that cannot be used; the model may do better the next time
    "MALFORMED_FUNCTION_CALL": "it wrote a tool call that cannot be read",
    "UNEXPECTED_TOOL_CALL": "it called a tool although there is none",
    "TOO_MANY_TOOL_CALLS": "it called too many tools",
    "MALFORMED_RESPONSE": "it wrote a reply that cannot be read",
}


class GeminiReply:
    """A parser for the chunks of a reply."""

    __slots__ = ("_calls", "_chars", "_reply", "_server", "done", "finish")

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._chars = self._calls = 0  # so far
        self._reply: dict[str, Any] = {}  # the id of the reply, and its model
        self.finish = ""
        self.done = False  # the API has no end marker

    def deltas(self, events: list[bytes]) -> Iterator[Delta]:
        for data in events:
            try:
                # A check of arguments and their use must read the same values, so calls are decoded strictly.
                chunk = decode_strict(data.decode()) if b"functionCall" in data else orjson.loads(data)
                deltas = [*self._read_chunk(chunk)]
            except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
                raise openai_common.unreadable_error(self._server, data) from None
            yield from deltas

    def end(self) -> Finish:
        if not self.finish:
            raise openai_common.truncated_error(self._server)
        reason = "tool_calls" if self.finish == "stop" and self._calls else self.finish
        return openai_common.build_finish(reason, self._reply)

    def _read_chunk(self, chunk: dict[str, Any]) -> Iterator[Delta]:
        if error := chunk.get("error"):
            self.finish = ""
            raise openai_common.refusal_error(self._server, error)
        self._reply = self._reply or {"id": chunk.get("responseId"), "model": chunk.get("modelVersion")}
        feedback = chunk.get("promptFeedback") or {}
        if reason := feedback.get("blockReason"):
            why = str(feedback.get("blockReasonMessage") or reason)[:300]
            raise ModelError(f"{self._server.name} refused the conversation: {why}", status=400)
        for candidate in (chunk.get("candidates") or ())[:1]:  # only one was requested
            for part in (candidate.get("content") or {}).get("parts") or ():
                yield from self._read_part(part)
            if reason := candidate.get("finishReason"):
                self._finish(str(reason), candidate.get("finishMessage"))
        if usage := chunk.get("usageMetadata"):
            count = openai_common.count_tokens
            thought = count(usage, "thoughtsTokenCount")
            yield Usage(
                count(usage, "promptTokenCount") + count(usage, "toolUsePromptTokenCount"),
                count(usage, "candidatesTokenCount") + thought,
                count(usage, "cachedContentTokenCount"),
                thought,
            )

    def _read_part(self, part: dict[str, Any]) -> Iterator[Delta]:
        signature, text = require_text(part.get("thoughtSignature") or ""), require_text(part.get("text") or "")
        place = provider = self._server.name
        if call := part.get("functionCall"):
            number, place = self._calls, f"{provider}+{self._calls}"
            self._calls += 1
            yield CallStart(number, require_text(call.get("id") or ""), require_text(call["name"]))
            if (args := call.get("args")) is not None:
                yield CallArgs(number, encode_json(args).decode())
        elif part.get("thought"):
            yield ReasoningDelta(text, provider=place)
        elif "text" in part:
            start = self._chars
            self._chars += len(text)
            place = f"{provider}@{start}-{self._chars}"
            if text:
                yield TextDelta(text)
        if signature:
            yield ReasoningDelta("", signature, place)

    def _finish(self, reason: str, message: Any) -> None:
        if reason in _BROKEN:
            why = " ".join(self._server.redact(str(message or _BROKEN[reason])).split())[:300]
            raise ModelError(f"{self._server.name} broke off its answer: {why}; ask again", retryable=True)
        self.finish = _REASONS.get(reason, reason.lower())
