"""A parser for the streamed replies of Bedrock's Converse API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wick.errors import ModelError
from wick.models import openai_common
from wick.models.block_replies import BlockReply
from wick.models.openai_common import require_text
from wick.protocols import CallArgs, CallStart, Delta, Usage

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


class ConverseReply(BlockReply):
    """A parser for the events of a reply."""

    __slots__ = ()

    def _read_event(self, event: dict[str, Any]) -> Sequence[Delta]:
        return [delta for kind, body in event.items() for delta in self._read(kind, body)]

    def _read(self, kind: str, body: Any) -> Sequence[Delta]:
        if kind == "contentBlockDelta":
            return self._read_delta(_require_number(body["contentBlockIndex"]), body["delta"])
        if kind == "contentBlockStart":
            index = _require_number(body["contentBlockIndex"])
            if "toolUse" in body["start"]:
                use = body["start"]["toolUse"]
                self._calls.add(index)
                return (CallStart(index, require_text(use["toolUseId"]), require_text(use["name"])),)
        elif kind == "messageStop":
            if (reason := require_text(body["stopReason"])) in _MALFORMED:
                problem = "it wrote what cannot be read; ask again"
                raise ModelError(f"{self._server.name} broke off its answer: {problem}", retryable=True)
            self.finish = _REASONS.get(reason, reason)
        elif kind == "metadata":  # the last event; the API counts cached tokens apart from the input
            self.done = bool(self.finish)
            count, usage = openai_common.count_tokens, body.get("usage") or {}
            read, written = count(usage, "cacheReadInputTokens"), count(usage, "cacheWriteInputTokens")
            sent = count(usage, "inputTokens") + read + written
            return (Usage(sent, count(usage, "outputTokens"), read, 0, written),)
        elif kind == "error":
            self.finish, self.done = "", False
            details = body if isinstance(body, dict) else {"type": body, "message": body}
            error = str(details.get("type") or "")
            reason = str(details.get("message") or error or "no reason was given")
            raise openai_common.broken_off_error(self._server, reason, _STATUS.get(error[:1].lower() + error[1:]))
        return ()  # others, such as messageStart, are ignored

    def _read_delta(self, index: int, delta: dict[str, Any]) -> Sequence[Delta]:
        if "text" in delta:
            return self._read_text(delta["text"])
        if "toolUse" in delta:
            text = require_text(delta["toolUse"]["input"])
            return (CallArgs(index, text),) if text else ()
        if "reasoningContent" in delta:
            thought = delta["reasoningContent"]
            if hidden := thought.get("redactedContent"):
                return self._read_thought("bedrock-redacted", thought.get("text") or "", hidden)
            return self._read_thought("bedrock", thought.get("text") or "", thought.get("signature") or "")
        return ()


def _require_number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("not a number")
    return value
