"""What is said: messages, the tool calls they carry, and the chain they form."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal, NoReturn, TypeVar, get_args, overload

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from wick._internal.frozen import canonical_json, digest, freeze, thaw
from wick.constants import CHARS_PER_TOKEN, MEDIA_TOKENS
from wick.errors import MessageError

Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = get_args(Role)
USER_ROLES: tuple[Role, ...] = ("user", "system")

_T = TypeVar("_T")
_set = object.__setattr__  # how frozen data fills itself
_dumps = json.JSONEncoder(ensure_ascii=False).encode


class _Data:
    """Data with slots: its texts can be sent, its lists are tuples, and its JSON has no unknown keys."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]]  # what a dataclass is made of
    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        _tidy(self)

    def __reduce__(self) -> Any:
        return type(self), tuple(getattr(self, name) for name in self.__match_args__)


def _tidy(data: _Data) -> None:
    kind: Any = type(data)
    names, read = _fields(kind)
    values = read(data)
    for value in values:
        if type(value) is list or (type(value) is str and not value.isascii()):
            return _mend(data, names, values)


def _mend(data: _Data, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
    for name, value in zip(names, values, strict=True):
        if type(value) is str:
            _set(data, name, _legible(value))
        elif type(value) is list:
            _set(data, name, tuple(value))


@cache
def _fields(kind: Any) -> tuple[tuple[str, ...], Callable[[_Data], tuple[Any, ...]]]:
    """The fields of a kind of data, and what reads them all at once."""
    return kind.__match_args__, attrgetter(*kind.__match_args__)


def _legible(text: str) -> str:
    """The text as UTF-8 can say it: two halves of a character are joined, a lone half is replaced."""
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
        _tidy(self)
        if bool(self.url) == bool(self.data):
            raise MessageError(f"{type(self).__name__} needs a url or data (base64), one of them and not both")


@dataclass(frozen=True, slots=True)
class ImagePart(_Media):
    """A picture in a message: where it is, or its bytes in base64."""

    type: Literal["image"] = field(default="image", repr=False)


@dataclass(frozen=True, slots=True)
class FilePart(_Media):
    """A file in a message: where it is, or its bytes in base64."""

    name: str = ""
    type: Literal["file"] = field(default="file", repr=False)


Part = TextPart | ImagePart | FilePart
_Parts = tuple[Annotated[Part, Field(discriminator="type")], ...]


@dataclass(frozen=True, slots=True)
class Reasoning(_Data):
    """What a model thought, with its provider's opaque signature."""

    text: str = ""
    signature: str = ""
    provider: str = ""


def _filled(data: _Data) -> dict[str, Any]:
    """The JSON of a part or a reasoning: what is set, and the text of a text part even if it is empty."""
    names = sorted(data.__match_args__, key="type".__ne__)  # the type comes first
    return {name: value for name in names if (value := getattr(data, name)) or isinstance(data, TextPart)}


def _refuse_raw(value: object) -> NoReturn:
    raise ValueError("the raw arguments are kept beside the JSON, never in it")


@dataclass(frozen=True, slots=True)
class ToolCall(_Data):
    """The model asks for a tool. It is data; performing it is a `ToolUse`.

    `raw` holds the arguments as the model wrote them, `invalid` says why they could not be read.
    """

    id: str
    name: str
    args: dict[str, Any] = field(default_factory=dict, hash=False)
    raw: Annotated[str, BeforeValidator(_refuse_raw)] = field(default="", compare=False, repr=False)
    invalid: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.args, dict):
            raise MessageError(f"the arguments of the call to {self.name!r} are not a JSON object")
        _tidy(self)
        try:
            _set(self, "args", freeze(self.args))
        except (TypeError, ValueError) as problem:
            raise MessageError(f"the arguments of the call to {self.name!r} are not JSON: {problem}") from None

    @property
    def raw_args(self) -> str:
        """The arguments as JSON, in the model's own spelling where it is known."""
        return self.raw or _dumps(self.args)

    def to_json(self) -> dict[str, Any]:
        call = {"id": self.id, "name": self.name, "args": thaw(self.args)}
        return {**call, "invalid": self.invalid} if self.invalid else call

    @staticmethod
    def from_json(data: Any) -> ToolCall:
        return _read(ToolCall, "the tool call", data)


@dataclass(slots=True)
class ToolResult(_Data):
    """What a tool answered; `error` is set when it failed or was blocked, `exception` when it crashed."""

    output: str = ""
    error: str = ""
    data: Any = None
    parts: _Parts = ()
    tool_call_id: str = ""
    name: str = ""
    exception: Any = field(default=None, init=False, compare=False, repr=False)  # that the tool raised; never stored

    def __post_init__(self) -> None:
        self.parts = tuple(self.parts)

    @property
    def text(self) -> str:
        """What the model reads."""
        return self.error or self.output

    def to_json(self) -> dict[str, Any]:
        result = {"tool_call_id": self.tool_call_id, "name": self.name, "output": _legible(self.output)}
        error = {"error": _legible(self.error)} if self.error else {}
        data = {"data": thaw(self.data)} if self.data is not None else {}
        parts = {"parts": [_filled(part) for part in self.parts]} if self.parts else {}
        return {**result, **error, **data, **parts}

    @staticmethod
    def from_json(data: Any) -> ToolResult:
        return _read(ToolResult, "the tool result", data)


@dataclass(frozen=True, slots=True)
class Message(_Data):
    """One entry of a conversation.

    `name` says which tool a tool message comes from, or which hook put a message into the conversation;
    the user's own words have none. `failed` says that a tool message tells of an error. `cache` keeps what is derived
    from the message, such as its bytes on the wire.
    """

    role: Role
    content: str | _Parts = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""
    reasoning: tuple[Reasoning, ...] = ()
    failed: bool = field(default=False, repr=False)
    cache: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _tidy(self)
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
        """The text of the content, without pictures and files."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def digest(self) -> str:
        """The hash of the message's canonical JSON, computed once."""
        if "digest" not in self.cache:
            self.cache["digest"] = digest(canonical_json(self.to_json()))
        return str(self.cache["digest"])

    @property
    def tokens(self) -> int:
        """About what the message costs to send, computed once."""
        if "tokens" not in self.cache:
            texts = [self.text, *(call.raw_args for call in self.tool_calls)]
            media = 0 if isinstance(self.content, str) else sum(isinstance(part, _Media) for part in self.content)
            self.cache["tokens"] = sum(len(text) // CHARS_PER_TOKEN for text in texts) + MEDIA_TOKENS * media
        return int(self.cache["tokens"])

    def to_json(self) -> dict[str, Any]:
        content = self.content if isinstance(self.content, str) else [_filled(part) for part in self.content]
        rest = {
            "tool_calls": [call.to_json() for call in self.tool_calls],
            "tool_call_id": self.tool_call_id,
            "name": self.name,
            "reasoning": [_filled(thought) for thought in self.reasoning],
            "failed": self.failed,
        }
        return {"role": self.role, "content": content} | {key: value for key, value in rest.items() if value}

    @staticmethod
    def from_json(data: Any) -> Message:
        return _read(Message, "the message", data)


def _check_each(name: str, items: object, kind: Any) -> None:
    if not isinstance(items, tuple) or not all(isinstance(item, kind) for item in items):
        raise MessageError(f"the {name} of a message cannot be {items!r}")


def system(text: str) -> Message:
    """What the model is told to be."""
    return Message("system", text)


def user(content: str | Sequence[Part]) -> Message:
    """What the user says."""
    return Message("user", content if isinstance(content, str) else tuple(content))


def assistant(text: str = "", *calls: ToolCall, reasoning: Sequence[Reasoning] = ()) -> Message:
    """What the model says, and the tools it asks for."""
    return Message("assistant", text, calls, reasoning=tuple(reasoning))


def tool_message(call_id: str, name: str, output: str) -> Message:
    """What a tool call came to."""
    return Message("tool", output, tool_call_id=call_id, name=name)


def answer(call: ToolCall, result: ToolResult) -> Message:
    """The message that tells the model what its tool call came to."""
    text = [TextPart(result.text)] if result.text else []
    content = (*text, *result.parts) if result.parts else result.text
    return Message("tool", content, tool_call_id=call.id, name=call.name, failed=bool(result.error))


class Messages(Sequence[Message]):
    """A chain of messages. It never changes: what adds to it returns a new chain."""

    __slots__ = ("_items",)
    _items: list[Message]

    def __init__(self, items: Iterable[Message] = ()) -> None:
        self._items = list(items)
        for index, item in enumerate(self._items):
            if not isinstance(item, Message):
                raise MessageError(f"message {index} is not a Message but {item!r}")

    @classmethod
    def view(cls, items: list[Message]) -> Messages:
        """The chain that a list holds, now and later: the list is shared, not copied."""
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
        """This chain, if a model can be asked with it; a MessageError says which message is wrong and why."""
        for index, message in enumerate(self._items):
            if problem := _problem(message):
                raise MessageError(f"message {index} is not valid: {problem}")
        _check_answers(self._items)
        return self

    def validate_user_input(self) -> Messages:
        """This chain, if somebody outside may send it; a MessageError says which message is wrong and why."""
        if not self._items:
            raise MessageError("there is no message; send at least one")
        for index, message in enumerate(self._items):
            if problem := _input_problem(message):
                raise MessageError(f"message {index} is not accepted: {problem}")
        return self

    def estimate_tokens(self) -> int:
        return sum(message.tokens for message in self._items)

    def pretty(self) -> str:
        """The conversation as people read it."""
        return "\n\n".join(map(_pretty, self._items))

    def to_json(self) -> list[dict[str, Any]]:
        return [message.to_json() for message in self._items]

    @staticmethod
    def from_json(data: Any) -> Messages:
        if not isinstance(data, list):
            raise MessageError(f"messages are read from a list, not from {type(data).__name__}")
        return Messages.view([_read(Message, f"message {index}", item) for index, item in enumerate(data)])


def _problem(message: Message) -> str:
    if message.role == "tool":
        return "" if message.tool_call_id and message.name else "a tool message needs a tool_call_id and a name"
    if message.tool_call_id:
        return f"only a tool message has a tool_call_id, not a {message.role} message"
    if not all(call.id and call.name for call in message.tool_calls):
        return "every tool call needs an id and a name"
    if message.tool_calls or any(part.text if isinstance(part, TextPart) else part for part in message.content):
        return ""
    return "an assistant message needs content or tool calls" if message.role == "assistant" else "it needs content"


def _input_problem(message: Message) -> str:
    if message.role not in USER_ROLES:
        return f"its role is {message.role}; only {' and '.join(USER_ROLES)} messages can be sent"
    return "only tools and hooks give a name; leave it out" if message.name else _problem(message)


def _check_answers(messages: list[Message]) -> None:
    """Every tool call is answered once, before anything else is said; the last ones may still be waiting."""
    waiting: set[str] = set()
    for index, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                raise MessageError(
                    f"message {index} is not valid: no call {message.tool_call_id!r} waits for an answer"
                )
            waiting.remove(message.tool_call_id)
            continue
        if waiting:
            raise MessageError(f"message {index} is not valid: first answer the calls {', '.join(sorted(waiting))}")
        waiting = {call.id for call in message.tool_calls}
        if len(waiting) < len(message.tool_calls):
            raise MessageError(f"message {index} is not valid: two of its tool calls have the same id")


_TITLES = {"system": "System", "user": "Human", "assistant": "AI"}


def _pretty(message: Message) -> str:
    title = _TITLES.get(message.role) or f"Tool: {message.name} (call_id={message.tool_call_id})"
    said = [message.text] if message.text else []
    calls = [f"  → tool_call: {call.name}(id={call.id}, args={_dumps(call.args)})" for call in message.tool_calls]
    return "\n".join([f"[{title}]", *said, *calls])


_reader: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)  # built when JSON is first read, not at import


def _read(kind: type[_T], what: str, data: Any) -> _T:
    try:
        read: _T = _reader(kind).validate_python(data)
        return read
    except ValidationError as problem:
        # Of the errors of a union, the deepest is that of the branch that was meant.
        error = max(problem.errors(include_url=False), key=lambda error: len(error["loc"]))
    reason = _REASONS.get(error["type"]) or error["msg"].removeprefix("Value error, ").replace(
        "Input should", "it should"
    )
    raise MessageError(f"{what} cannot be read{_path(error['loc'])}: {reason}")


_REASONS = {
    "unexpected_keyword_argument": "there is no such key",
    "missing": "it is required",
    "dataclass_type": "it should be an object",
    "model_attributes_type": "it should be an object",
    "union_tag_invalid": "its type should be text, image or file",
    "union_tag_not_found": "its type should be text, image or file",
}


def _path(keys: tuple[int | str, ...]) -> str:
    if keys[:1] == ("content",):  # pydantic names the branches of a union between the keys
        keys = (*keys[:1], *keys[2:3], *keys[4:])
    elif keys[:1] == ("parts",):
        keys = (*keys[:2], *keys[3:])
    path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return path and f" at {path.removeprefix('.')}"
