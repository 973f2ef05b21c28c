"""What can be plugged in. Anything with these methods will do; nothing needs to be inherited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from wick.messages import Message
from wick.tools import Tool


@dataclass(frozen=True, slots=True)
class Request:
    """What a model is asked."""

    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[Tool, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the reply's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """The next piece of the model's reasoning; a signature closes it."""

    text: str = ""
    signature: str = ""
    provider: str = ""


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool call begins. `index` tells parallel calls apart, whatever order their pieces come in."""

    index: int
    id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class CallArgs:
    """The next piece of a tool call's arguments, as the raw JSON text."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens: what went in, what came out, and how much of it was cached or reasoning."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )

    def to_json(self) -> dict[str, int]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True, slots=True)
class Finish:
    """The model has finished, and why: `stop`, `tool_calls`, `length`, `content_filter`, …"""

    reason: str = "stop"


Delta = TextDelta | ReasoningDelta | CallStart | CallArgs | Usage | Finish


class Model(Protocol):
    """Something that answers: it yields deltas, a `Finish` among them, and nothing else."""

    @property
    def name(self) -> str: ...

    def stream(self, request: Request) -> AsyncIterator[Delta]: ...
