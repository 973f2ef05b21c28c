"""Assemble a reply from deltas. Arguments are parsed strictly, once, at the end of the stream."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from wick._internal.frozen import freeze
from wick._internal.strict_json import decode_strict
from wick.constants import ARGS_BYTES, REPLY_CALLS, REPLY_CHARS
from wick.errors import ModelError
from wick.messages import Message, Reasoning, ToolCall
from wick.protocols import CallArgs, CallStart, Delta, Finish, ReasoningDelta, TextDelta, Usage

_NO_USAGE = Usage()
UNNAMED = "the call does not name a tool"
_CUT_OFF = ("length", "max_tokens")

# Finish reasons of replies that the provider or the model refused. Their tool calls must not run.
_WITHHELD = frozenset((
    "content_filter", "refusal", "safety", "recitation", "blocklist", "prohibited_content", "spii", "image_safety",
    "guardrail_intervened", "content_filtered",
))  # fmt: skip


class Reply:
    """A reply that is still streaming. Feed it deltas, then get the message."""

    __slots__ = ("_args", "_reasoning", "_size", "_starts", "_text", "end", "finish", "usage")

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[ReasoningDelta] = []
        self._starts: dict[int, CallStart] = {}
        self._args: dict[int, list[str]] = {}
        self._size = 0
        self.usage = _NO_USAGE
        self.finish = ""
        self.end = Finish("")  # the last delta

    def feed(self, delta: Delta) -> None:
        kind = type(delta)
        if kind is TextDelta:  # most deltas
            text: str = delta.text  # type: ignore[union-attr]
            self._text.append(text)
            self._size += len(text) or 1
            if self._size > REPLY_CHARS:
                raise _too_long_error()
        elif isinstance(delta, CallArgs):
            if delta.index not in self._args:
                problem = f"gave arguments to a tool call, number {delta.index}, that it never started"
                raise ModelError(f"the model {problem}")
            self._args[delta.index].append(delta.text)
            self._count_chars(delta.text)
        elif kind is ReasoningDelta:
            self._reasoning.append(delta)  # type: ignore[arg-type]
            self._count_chars(delta.text + delta.signature)  # type: ignore[union-attr]
        elif isinstance(delta, CallStart):
            if delta.index in self._starts:
                raise ModelError(f"the model started its tool call number {delta.index} twice")
            if len(self._starts) == REPLY_CALLS:
                raise ModelError(f"the model asked for more than {REPLY_CALLS} tools at once")
            self._starts[delta.index] = delta
            self._args[delta.index] = []
        elif kind is Usage:
            self.usage = delta  # type: ignore[assignment]
        elif kind is Finish:
            self.finish = delta.reason or "stop"  # type: ignore[union-attr]
            self.end = delta  # type: ignore[assignment]
        else:
            raise ModelError(f"a model yielded {delta!r}, which is not a delta")

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._text)

    @property
    def withheld(self) -> tuple[str, ...]:
        """The names of the dropped tool calls of a reply that was refused or filtered."""
        if self.finish.lower() not in _WITHHELD:
            return ()
        return tuple(start.name or "unnamed" for _, start in sorted(self._starts.items()))

    def message(self) -> Message:
        """Return the complete reply. Raise a ModelError if the stream broke off.

        A reply that was refused or filtered has no tool calls: none of them may run.
        """
        if not self.finish:
            raise ModelError(
                "the model's stream broke off before it had finished; a model of your own ends its reply with "
                '`yield Finish("stop")`',
                retryable=True,
            )
        calls = () if self.withheld else tuple(self._build_call(index) for index in sorted(self._starts))
        if len({call.id for call in calls}) < len(calls):
            raise ModelError("the model gave two tool calls the same id")
        thoughts, text = list[Reasoning](), ""
        for piece in self._reasoning:
            text += piece.text
            if piece.signature:  # it closes a block
                thoughts.append(Reasoning(text, piece.signature, piece.provider))
                text = ""
        if text:
            thoughts.append(Reasoning(text, provider=self._reasoning[-1].provider))
        return Message("assistant", self.text, calls, reasoning=tuple(thoughts))

    def _count_chars(self, text: str) -> None:
        self._size += len(text) or 1  # an endless stream of empty deltas must end, too
        if self._size > REPLY_CHARS:
            raise _too_long_error()

    def _build_call(self, index: int) -> ToolCall:
        start, raw = self._starts[index], "".join(self._args[index])
        args, invalid = parse_args(raw)
        if not start.name:
            invalid = UNNAMED
        elif self.finish in _CUT_OFF and not raw.strip():
            invalid = "the reply was cut off before the arguments came"
        return ToolCall(start.id or f"call_{uuid4().hex[:12]}", start.name or "unnamed", args, raw, invalid)


def _too_long_error() -> ModelError:
    return ModelError(f"the model's reply is longer than {REPLY_CHARS:,} characters")


def parse_args(raw: str) -> tuple[dict[str, Any], str]:
    """Parse the arguments of a call. Return the data and an empty string, or an empty dict and the error."""
    if not raw.strip():
        return {}, ""  # models often send no arguments to a tool without parameters
    if len(raw) > ARGS_BYTES:
        return {}, f"the arguments are longer than {ARGS_BYTES:,} characters"
    try:
        args = freeze(decode_strict(raw))
    except RecursionError:
        return {}, "the arguments are nested too deep"
    except (TypeError, ValueError) as error:
        return {}, f"the arguments are not valid JSON: {error}"
    return (args, "") if isinstance(args, dict) else ({}, f"the arguments must be a JSON object, not {raw[:50]}")
