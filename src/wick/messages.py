"""Messages, their parts and tool calls, and the immutable chain `Messages`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NoReturn, TypeVar, get_args, overload

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from wick._internal.familiar_words import (
    MESSAGE_ATTRIBUTES,
    TOOL_CALL_OPTIONS,
    TOOL_RESULT_ATTRIBUTES,
    explain_attributes,
    explain_options,
    refuse_changes,
    refuse_item,
)
from wick._internal.frozen import canonical_json, digest, freeze, thaw
from wick.constants import CHARS_PER_TOKEN, MEDIA_TOKENS
from wick.errors import MessageError

Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = get_args(Role)
USER_ROLES: tuple[Role, ...] = ("user", "system")

_T = TypeVar("_T")
_set = object.__setattr__  # sets fields of frozen dataclasses
_dumps = json.JSONEncoder(ensure_ascii=False).encode


class _Data:
    """Base of the message dataclasses: texts are valid UTF-8, lists become tuples, unknown JSON keys are refused."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]]  # the field names of the dataclass
    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        _normalize(self)

    def __reduce__(self) -> Any:
        return type(self), tuple(getattr(self, name) for name in self.__match_args__)


def _normalize(data: _Data) -> None:
    kind: Any = type(data)
    names, read = _fields(kind)
    values = read(data)
    for value in values:
        if type(value) is list or (type(value) is str and not value.isascii()):
            break
    else:
        return
    for name, value in zip(names, values, strict=True):
        if type(value) is str:
            _set(data, name, _repair_surrogates(value))
        elif type(value) is list:
            _set(data, name, tuple(value))


@cache
def _fields(kind: Any) -> tuple[tuple[str, ...], Callable[[_Data], tuple[Any, ...]]]:
    """Return the field names of a class, and a function that reads all of them."""
    return kind.__match_args__, attrgetter(*kind.__match_args__)


def _repair_surrogates(text: str) -> str:
    """Return a text that UTF-8 can encode: surrogate pairs are joined, lone surrogates replaced."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass(frozen=True, slots=True)
class TextPart(_Data):
    """A piece of text in a message."""

    text: str
    type: Literal["text"] = field(default="text", repr=False)


@dataclass(frozen=True, slots=True)
class _Media(_Data):
    url: str = ""
    data: str = field(default="", repr=False)
    media_type: str = ""

    def __post_init__(self) -> None:
        _normalize(self)
        if bool(self.url) == bool(self.data):
            raise MessageError(f"{type(self).__name__} needs a url or data (base64), one of them and not both")


@dataclass(frozen=True, slots=True)
class ImagePart(_Media):
    """An image in a message: a URL, or its bytes in base64."""

    type: Literal["image"] = field(default="image", repr=False)


@dataclass(frozen=True, slots=True)
class AudioPart(_Media):
    """A recording in a message: a URL, or its bytes in base64."""

    type: Literal["audio"] = field(default="audio", repr=False)


@dataclass(frozen=True, slots=True)
class FilePart(_Media):
    """A file in a message: a URL, or its bytes in base64."""

    name: str = ""
    type: Literal["file"] = field(default="file", repr=False)


MediaPart = ImagePart | AudioPart | FilePart
Part = TextPart | MediaPart
_Parts = tuple[Annotated[Part, Field(discriminator="type")], ...]


@dataclass(frozen=True, slots=True)
class Reasoning(_Data):
    """The reasoning of a model, with the provider's opaque signature."""

    text: str = ""
    signature: str = ""
    provider: str = ""


def _part_to_json(data: _Data) -> dict[str, Any]:
    """Return a part or reasoning as JSON, without empty fields, except the text of a text part."""
    names = sorted(data.__match_args__, key="type".__ne__)  # the type comes first
    return {name: value for name in names if (value := getattr(data, name)) or isinstance(data, TextPart)}


def _refuse_raw(value: object) -> NoReturn:
    raise ValueError("the raw arguments are not part of the JSON")


@dataclass(frozen=True, slots=True)
class ToolCall(_Data):
    """A model's request to use a tool. A `ToolUse` performs it.

    `raw` has the arguments as the model wrote them. `invalid` says why they could not be parsed.
    """

    id: str  # the id that the result refers to
    name: str  # the tool
    args: dict[str, Any] = field(default_factory=dict, hash=False)  # the arguments as JSON data
    # as the model wrote them
    raw: Annotated[str, BeforeValidator(_refuse_raw)] = field(default="", compare=False, repr=False)
    invalid: str = ""  # why the arguments could not be parsed

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise MessageError(f"ToolCall() has the name {self.name!r}; {TOOL_CALL_OPTIONS['name']}")
        if not isinstance(self.args, dict):
            raise MessageError(f"the arguments of the call to {self.name!r} are not a JSON object")
        _normalize(self)
        try:
            _set(self, "args", freeze(self.args))
        except (TypeError, ValueError) as problem:
            raise MessageError(f"the arguments of the call to {self.name!r} are not JSON: {problem}") from None

    @property
    def raw_args(self) -> str:
        """The arguments as JSON text, as the model wrote them if known."""
        return self.raw or _dumps(self.args)

    def to_json(self) -> dict[str, Any]:
        call = {"id": self.id, "name": self.name, "args": thaw(self.args)}
        return {**call, "invalid": self.invalid} if self.invalid else call

    @staticmethod
    def from_json(data: Any) -> ToolCall:
        return _parse(ToolCall, "the tool call", data)


@explain_attributes(TOOL_RESULT_ATTRIBUTES)
@dataclass(slots=True)
class ToolResult(_Data):
    """The result of a tool. `error` is set if it failed or was blocked, `exception` if it crashed."""

    output: str = ""  # the text for the model
    error: str = ""  # the message if it failed or was blocked
    data: Any = None  # the returned value as JSON data, for programs
    parts: _Parts = ()  # images and files for the model
    tool_call_id: str = ""  # the call that it answers
    name: str = ""  # the tool
    exception: Any = field(default=None, init=False, compare=False, repr=False)  # raised by the tool; never stored

    def __post_init__(self) -> None:
        self.parts = tuple(self.parts)

    @property
    def text(self) -> str:
        """The text for the model."""
        return self.error or self.output

    if not TYPE_CHECKING:  # type checkers report these mistakes themselves

        @text.setter
        def text(self, text: str) -> NoReturn:
            raise AttributeError("the text of a ToolResult is its error, or else its output; set result.output instead")

    def to_json(self) -> dict[str, Any]:
        result = {"tool_call_id": self.tool_call_id, "name": self.name, "output": _repair_surrogates(self.output)}
        error = {"error": _repair_surrogates(self.error)} if self.error else {}
        data = {"data": thaw(self.data)} if self.data is not None else {}
        parts = {"parts": [_part_to_json(part) for part in self.parts]} if self.parts else {}
        return {**result, **error, **data, **parts}

    @staticmethod
    def from_json(data: Any) -> ToolResult:
        return _parse(ToolResult, "the tool result", data)


@explain_attributes(MESSAGE_ATTRIBUTES)
@dataclass(frozen=True, slots=True)
class Message(_Data):
    """One message of a conversation.

    `name` is the tool of a tool message, or the hook that added a message. Messages of the user have none.
    `failed` marks a tool message that reports an error. `cache` has data derived from the message, such as
    its bytes on the wire.
    """

    role: Role  # user, assistant, tool or system
    content: str | _Parts = ""  # the text, or parts: texts, images and files
    tool_calls: tuple[ToolCall, ...] = ()  # the tool calls of the model's reply
    tool_call_id: str = ""  # the call that a tool message answers
    name: str = ""  # the tool of a tool message, or the hook that added the message
    reasoning: tuple[Reasoning, ...] = ()  # the reasoning of the model, with the signatures of its provider
    failed: bool = field(default=False, repr=False)  # a tool message that reports an error
    cache: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _normalize(self)
        if self.role not in ROLES:
            raise MessageError(f"there is no role {self.role!r}; the roles are {', '.join(ROLES)}")
        if not isinstance(self.content, str):
            _check_each("content", self.content, Part)
        if self.tool_calls or self.reasoning:
            _check_each("tool_calls", self.tool_calls, ToolCall)
            _check_each("reasoning", self.reasoning, Reasoning)
            if self.role != "assistant":
                raise MessageError(f"only an assistant message has tool calls or reasoning, not a {self.role} message")

    @property
    def text(self) -> str:
        """The text of the content, without images, audio and files."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if isinstance(part, TextPart))

    if not TYPE_CHECKING:
        __getitem__ = refuse_item("message.role, message.text or message.to_json()")

    @property
    def digest(self) -> str:
        """The hash of the message's canonical JSON, computed once."""
        if "digest" not in self.cache:
            self.cache["digest"] = digest(canonical_json(self.to_json()))
        return str(self.cache["digest"])

    @property
    def tokens(self) -> int:
        """The estimated number of tokens, computed once."""
        if "tokens" not in self.cache:
            texts = [self.text, *(call.raw_args for call in self.tool_calls)]
            media = 0 if isinstance(self.content, str) else sum(isinstance(part, _Media) for part in self.content)
            self.cache["tokens"] = sum(len(text) // CHARS_PER_TOKEN for text in texts) + MEDIA_TOKENS * media
        return int(self.cache["tokens"])

    def to_json(self) -> dict[str, Any]:
        content = self.content if isinstance(self.content, str) else [_part_to_json(part) for part in self.content]
        row: dict[str, Any] = {"role": self.role, "content": content}
        if self.tool_calls:
            row["tool_calls"] = [call.to_json() for call in self.tool_calls]
        if self.tool_call_id:
            row["tool_call_id"] = self.tool_call_id
        if self.name:
            row["name"] = self.name
        if self.reasoning:
            row["reasoning"] = [_part_to_json(thought) for thought in self.reasoning]
        if self.failed:
            row["failed"] = True
        return row

    @staticmethod
    def from_json(data: Any) -> Message:
        return _parse(Message, "the message", data)


if not TYPE_CHECKING:
    ToolCall.__init__ = explain_options("ToolCall()", TOOL_CALL_OPTIONS)(ToolCall.__init__)
    Message.__setattr__ = refuse_changes('assign another one, as in call.result = "…" or call.messages[-1] = user("…")')


def _check_each(name: str, items: object, kind: Any) -> None:
    if not isinstance(items, tuple) or not all(isinstance(item, kind) for item in items):
        raise MessageError(f"the {name} of a message cannot be {items!r}")


def system(text: str) -> Message:
    """Return a system message."""
    return Message("system", text)


def user(content: str | Sequence[Part]) -> Message:
    """Return a user message."""
    return Message("user", content if isinstance(content, str) else tuple(content))


def assistant(text: str = "", *calls: ToolCall, reasoning: Sequence[Reasoning] = ()) -> Message:
    """Return an assistant message with optional tool calls."""
    return Message("assistant", text, calls, reasoning=tuple(reasoning))


def tool_message(call_id: str, name: str, output: str) -> Message:
    """Return the message with the output of a tool call."""
    return Message("tool", output, tool_call_id=call_id, name=name)


def result_message(call: ToolCall, result: ToolResult) -> Message:
    """Return the message with the result of a tool call, for the model."""
    text = [TextPart(result.text)] if result.text else []
    content = (*text, *result.parts) if result.parts else result.text
    return Message("tool", content, tool_call_id=call.id, name=call.name, failed=bool(result.error))


class Messages(Sequence[Message]):
    """An immutable chain of messages. Methods that add messages return a new chain."""

    __slots__ = ("_items",)
    _items: list[Message]

    def __init__(self, items: Iterable[Message] = ()) -> None:
        self._items = list(items)
        for index, item in enumerate(self._items):
            if not isinstance(item, Message):
                raise MessageError(f"message {index} is not a Message but {item!r}")

    @classmethod
    def view(cls, items: list[Message]) -> Messages:
        """Return a live view of a list of messages, without a copy."""
        chain = cls.__new__(cls)
        chain._items = items
        return chain

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._items)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Messages: ...
    def __getitem__(self, index: int | slice) -> Message | Messages:
        return Messages.view(self._items[index]) if isinstance(index, slice) else self._items[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Messages):
            return self._items == other._items
        return self._items == list(other) if isinstance(other, (list, tuple)) else NotImplemented

    def __add__(self, other: Iterable[Message]) -> Messages:
        return self.add(*other)

    def __repr__(self) -> str:
        return f"Messages({self._items!r})"

    def add(self, *messages: Message) -> Messages:
        return Messages.view(self._items + Messages(messages)._items)

    def system(self, text: str) -> Messages:
        return self.add(system(text))

    def user(self, content: str | Sequence[Part]) -> Messages:
        return self.add(user(content))

    def assistant(self, text: str = "", *calls: ToolCall, reasoning: Sequence[Reasoning] = ()) -> Messages:
        return self.add(assistant(text, *calls, reasoning=reasoning))

    def tool(self, call_id: str, name: str, output: str) -> Messages:
        return self.add(tool_message(call_id, name, output))

    def by_role(self, role: str) -> Messages:
        return Messages.view([message for message in self._items if message.role == role])

    def system_messages(self) -> Messages:
        return self.by_role("system")

    def user_messages(self) -> Messages:
        return self.by_role("user")

    def assistant_messages(self) -> Messages:
        return self.by_role("assistant")

    def tool_messages(self) -> Messages:
        return self.by_role("tool")

    @property
    def last(self) -> Message | None:
        return self._items[-1] if self._items else None

    @property
    def last_content(self) -> str:
        return self._items[-1].text if self._items else ""

    def validate(self) -> Messages:
        """Return this chain if it is a valid conversation; else raise a MessageError."""
        for index, message in enumerate(self._items):
            if problem := _find_problem(message):
                raise MessageError(f"message {index} is not valid: {problem}")
        waiting: set[str] = set()  # each call has one result before the next message; the last calls may be pending
        for index, message in enumerate(self._items):
            problem = ""
            if message.role == "tool":
                if message.tool_call_id not in waiting:
                    problem = f"no call {message.tool_call_id!r} waits for an answer"
                waiting.discard(message.tool_call_id)
            elif waiting:
                problem = f"first answer the calls {', '.join(sorted(waiting))}"
            else:
                waiting = {call.id for call in message.tool_calls}
                problem = "two of its tool calls have the same id" if len(waiting) < len(message.tool_calls) else ""
            if problem:
                raise MessageError(f"message {index} is not valid: {problem}")
        return self

    def validate_user_input(self) -> Messages:
        """Return this chain if a client may send it; else raise a MessageError."""
        if not self._items:
            raise MessageError("there is no message; send at least one")
        for index, message in enumerate(self._items):
            if message.role not in USER_ROLES:
                problem = f"its role is {message.role}; only {' and '.join(USER_ROLES)} messages can be sent"
            else:
                problem = "only tools and hooks give a name; leave it out" if message.name else _find_problem(message)
            if problem:
                raise MessageError(f"message {index} is not accepted: {problem}")
        return self

    def estimate_tokens(self) -> int:
        return sum(message.tokens for message in self._items)

    def pretty(self) -> str:
        """Return the conversation as readable text."""
        shown = []
        for message in self._items:
            title = _TITLES.get(message.role) or f"Tool: {message.name} (call_id={message.tool_call_id})"
            text = [message.text] if message.text else []
            calls = [
                f"  → tool_call: {call.name}(id={call.id}, args={_dumps(call.args)})" for call in message.tool_calls
            ]
            shown.append("\n".join([f"[{title}]", *text, *calls]))
        return "\n\n".join(shown)

    def to_json(self) -> list[dict[str, Any]]:
        return [message.to_json() for message in self._items]

    @staticmethod
    def from_json(data: Any) -> Messages:
        if not isinstance(data, list):
            raise MessageError(f"messages are read from a list, not from {type(data).__name__}")
        return Messages.view([_parse(Message, f"message {index}", item) for index, item in enumerate(data)])


def _find_problem(message: Message) -> str:
    if message.role == "tool":
        return "" if message.tool_call_id and message.name else "a tool message needs a tool_call_id and a name"
    if message.tool_call_id:
        return f"only a tool message has a tool_call_id, not a {message.role} message"
    if not all(call.id and call.name for call in message.tool_calls):
        return "every tool call needs an id and a name"
    if message.tool_calls or any(part.text if isinstance(part, TextPart) else part for part in message.content):
        return ""
    return "an assistant message needs content or tool calls" if message.role == "assistant" else "it needs content"


_TITLES = {"system": "System", "user": "Human", "assistant": "AI"}


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)  # built on first use, not at import


def _parse(kind: type[_T], what: str, data: Any) -> _T:
    try:
        read: _T = _adapter(kind).validate_python(data)
        return read
    except ValidationError as problem:
        # Report the deepest error of a union: it belongs to the intended branch.
        error = max(problem.errors(include_url=False), key=lambda error: len(error["loc"]))
    reason = _REASONS.get(error["type"]) or error["msg"].removeprefix("Value error, ").replace(
        "Input should", "it should"
    )
    keys = error["loc"]
    if keys[:1] == ("content",):  # drop the union branches that pydantic adds to the path
        keys = (*keys[:1], *keys[2:3], *keys[4:])
    elif keys[:1] == ("parts",):
        keys = (*keys[:2], *keys[3:])
    path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")
    raise MessageError(f"{what} cannot be read{f' at {path}' if path else ''}: {reason}")


_REASONS = {
    "unexpected_keyword_argument": "there is no such key",
    "missing": "it is required",
    "dataclass_type": "it should be an object",
    "model_attributes_type": "it should be an object",
    "union_tag_invalid": "its type should be text, image, audio or file",
    "union_tag_not_found": "its type should be text, image, audio or file",
}
