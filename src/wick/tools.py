"""What can be done: a tool is a function that the model can read about and ask for.

    @tool(timeout=10, read_only=True)
    async def weather(city: str, days: Annotated[int, "how far to look ahead"] = 1) -> str:
        \"\"\"The weather forecast for a city.\"\"\"

The model sees `weather.schema`. What it asks for is checked by `validate`, and hooks look at it. `bind` runs the
validators once and returns the values with their JSON form, which guards look at. `use` calls the function with exactly
those values and makes a `ToolResult` of its answer.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property, partial
from typing import Any, Literal, TypedDict, Unpack, overload
from urllib.parse import quote, urlsplit

from pydantic_core import to_jsonable_python

from wick import constants
from wick._internal.aliases import ARGUMENTS, list_tool_aliases
from wick._internal.frozen import freeze, thaw
from wick._internal.http_requests import post_json
from wick._internal.tasks import run_with_timeout
from wick._internal.tool_schema import (
    BoundArguments,
    ForeignArguments,
    FunctionArguments,
    encode_arguments,
    inspect_arguments,
    parse_docstring,
)
from wick._internal.tool_schema import Injected as Injected
from wick._internal.worker_threads import run_in_thread
from wick.errors import ConfigError, InvalidArgs, ToolError, Uncertain
from wick.messages import Part, TextPart, ToolResult

logger = logging.getLogger(__name__)

Ended = Literal["done", "failed", "unknown"]
"""How a use of a tool ended: `unknown` means that nobody can say whether it took effect."""


@dataclass(frozen=True, eq=False)
class Tool:
    """A function with a name, a description and a schema. `tool` makes one."""

    name: str
    description: str
    fn: Callable[..., Any] = field(repr=False)
    foreign: Mapping[str, Any] | None = field(default=None, repr=False)  # a JSON Schema in place of the signature
    timeout: float | None = None
    idempotent: bool = False  # doing it twice is the same as doing it once
    read_only: bool = False
    alone: bool = False  # never beside another tool
    max_output: int | None = None
    kind: str = ""  # shell, read, write, network, …
    origin: str = ""  # the name it was born with
    aliases: tuple[str, ...] = ()
    renames: Mapping[str, str] = field(default_factory=dict, repr=False)  # other names of arguments, and the right ones

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("a tool needs a name")
        if (self.timeout is not None and self.timeout <= 0) or (self.max_output is not None and self.max_output <= 0):
            raise ConfigError(f"the timeout and the max_output of {self.name} must be more than 0, or left out")
        if not self.origin:
            object.__setattr__(self, "origin", self.name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as if it were no tool."""
        return self.fn(*args, **kwargs)

    def __get__(self, owner: object | None, kind: type | None = None) -> Tool:
        """A tool that is a method is bound to its object, as methods are."""
        bind = getattr(self.fn, "__get__", None)
        return self if owner is None or bind is None else replace(self, fn=bind(owner, kind))

    def renamed(self, name: str) -> Tool:
        """The same tool under another name; it keeps its origin, so that what guards it still does."""
        return replace(self, name=name)

    def copy(self) -> Tool:
        """Return a copy that no other code refers to."""
        new, _ = object.__new__(type(self)), (self.names, self.is_async, self.arguments)  # cached, and copied below
        new.__dict__.update(self.__dict__)
        return new

    def is_same(self, other: Tool) -> bool:
        """Return True if two tools have the same names and call the same function."""
        mine, theirs = self.__dict__, other.__dict__
        return all(mine[name] is theirs[name] for name in _IDENTITY) and mine.get("names") == theirs.get("names")

    @cached_property
    def names(self) -> frozenset[str]:
        """Every name that a hook's match may know this tool by."""
        return frozenset((self.name, self.origin, *self.aliases))

    @cached_property
    def arguments(self) -> FunctionArguments | ForeignArguments:
        return inspect_arguments(self.fn) if self.foreign is None else ForeignArguments(self.foreign, self.fn)

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        return self.arguments.schema

    @cached_property
    def schema(self) -> dict[str, Any]:
        """What a model is told about this tool."""
        return freeze({"name": self.name, "description": self.description, "parameters": self.parameters})  # type: ignore[no-any-return]

    @cached_property
    def is_async(self) -> bool:
        return any(map(inspect.iscoroutinefunction, (self.fn, type(self.fn).__call__)))

    def validate(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as plain JSON: renamed, coerced, complete. InvalidArgs says in a sentence what is wrong.

        Validators are run to check the arguments, and not applied: they may change what they are given.
        """
        return self.arguments.validate(self.name, self._named(args))

    def bind(self, args: Mapping[str, Any], checked: bytes = b"") -> BoundArguments:
        """Run the validators on the arguments, once, and return the values with their JSON form.

        `checked` are the bytes of arguments that `validate` has returned, if there are any: a JSON Schema is not
        checked twice against the same data.
        """
        args = self._named(args)
        data = encode_arguments(self.name, self.arguments.fill_defaults(args))
        return self.arguments.bind(self.name, data, args, checked=data == checked)

    def _named(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        if not isinstance(args, Mapping):
            raise InvalidArgs(f"{self.name}: the arguments must be a JSON object")
        return self._rename(dict(args)) if self.renames else args

    async def prepare(self, args: Mapping[str, Any]) -> None:
        """Check arguments in a thread if that takes long, so that `validate` does not block the event loop."""
        if self.foreign is None or not isinstance(self.arguments, ForeignArguments):
            return
        with suppress(InvalidArgs):  # `validate` raises it
            renamed = self._rename(dict(args)) if self.renames else args
            if work := self.arguments.defer_costly_check(self.name, renamed):
                await run_in_thread(work, f"{self.name} arguments")

    def _rename(self, args: dict[str, Any]) -> dict[str, Any]:
        known = self.parameters.get("properties", {})
        for alias in self.renames.keys() & args.keys():
            name = self.renames[alias]
            if alias in known or name not in known:  # this tool means something else by it
                continue
            if name in args:
                raise InvalidArgs(f"{self.name}: {name} and {alias} are the same argument; give it once, as {name}")
            args[name] = args.pop(alias)
        return args

    async def call(self, values: Mapping[str, Any], *context: object) -> Any:
        """Call the function with bound values, and with what it wants of the context."""
        values = {**values}
        for name, kinds in self.arguments.injected.items():
            found = [item for item in context if isinstance(item, kinds)]
            if found:
                values[name] = found[0]
            elif inspect.signature(self.fn).parameters[name].default is inspect.Parameter.empty:
                raise ToolError(f"{self.name} needs a {kinds[0].__name__}, and is used where there is none")
        positional = [values.pop(name) for name in self.arguments.positional if name in values]
        if self.is_async:
            return await self.fn(*positional, **values)
        answer = await run_in_thread(partial(self.fn, *positional, **values), self.name)
        return await answer if inspect.isawaitable(answer) else answer


_IDENTITY = ("name", "origin", "aliases", "kind", "fn", "foreign", "idempotent", "read_only", "timeout")


class Options(TypedDict, total=False):
    """What `tool` can be told about a function beyond the function itself."""

    name: str
    description: str
    parameters: Mapping[str, Any]  # a JSON Schema in place of the signature
    timeout: float | None
    idempotent: bool
    read_only: bool
    alone: bool
    max_output: int | None
    kind: str
    aliases: Iterable[str]
    renames: Mapping[str, str]


@overload
def tool(fn: Callable[..., Any], /, **options: Unpack[Options]) -> Tool: ...
@overload
def tool(**options: Unpack[Options]) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(fn: Callable[..., Any] | None = None, /, **options: Any) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function: its name, docstring and type hints describe it."""
    return partial(_make, **options) if fn is None else _make(fn, **options)


def _make(
    fn: Callable[..., Any],
    *,
    name: str = "",
    description: str = "",
    parameters: Mapping[str, Any] | None = None,
    aliases: Iterable[str] | None = None,
    renames: Mapping[str, str] | None = None,
    **options: Any,
) -> Tool:
    if not callable(fn):
        raise ConfigError(f"a tool is a function, not {fn!r}")
    name = name or getattr(fn, "__name__", "")
    if not name or name == "<lambda>":
        raise ConfigError(f"{fn!r} has no name that a model could use; give it one with tool(fn, name=…)")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise ConfigError(f"the tool {name} yields its answer in pieces; return it as a whole")
    return Tool(
        name,
        description or parse_docstring(fn)[0],
        fn,
        foreign=parameters,
        aliases=tuple(sorted(list_tool_aliases(name)) if aliases is None else aliases),
        renames=ARGUMENTS.get(name, {}) if renames is None else renames,
        **options,
    )


def HttpTool(
    name: str,
    description: str,
    parameters: Mapping[str, Any],
    callback_url: str,
    *,
    private: bool = True,
    timeout: float = constants.CALLBACK_SECONDS,
    headers: Mapping[str, str] | None = None,
    kind: str = "network",
    **options: Any,
) -> Tool:
    """A tool that lives behind HTTP: `POST {callback_url}/tools/{name}` uses it.

    It is sent `{"name", "args"}` and answers `{"result"}` or `{"error"}`. `private` addresses are for tools that
    an operator registered; a tool that somebody else registered must not reach them.
    """
    callback = _Callback(name, _tools_url(callback_url, name), private, timeout, dict(headers or {}))
    return tool(
        callback.post, name=name, description=description, parameters=parameters, timeout=timeout, kind=kind, **options
    )


def _tools_url(callback_url: str, name: str) -> str:
    try:
        parts = urlsplit(callback_url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except (ValueError, AttributeError):  # a port that is no number, a bracket that is not closed, no text at all
        usable = False
    if not usable or parts.query or parts.fragment:
        raise ConfigError(f"the callback URL of {name} must be like http://host:port/path, not {callback_url!r}")
    return f"{callback_url.rstrip('/')}/tools/{quote(name, safe='')}"


@dataclass(frozen=True, slots=True)
class _Callback:
    name: str
    url: str
    private: bool
    seconds: float
    headers: Mapping[str, str] = field(repr=False)

    async def post(self, /, **args: Any) -> Any:
        answer = await post_json(
            self.url,
            {"name": self.name, "args": args},
            private=self.private,
            seconds=self.seconds + constants.CANCEL_GRACE_SECONDS,  # `use` ends first, and says the outcome is unknown
            most_bytes=constants.CALLBACK_BYTES,
            headers=self.headers,
        )
        match answer:
            case {"error": error} if error:
                raise ToolError(error if isinstance(error, str) else json.dumps(error))
            case {"result": result}:
                return result
        raise ToolError(f'{self.name} answered neither {{"result": …}} nor {{"error": …}}')


def find_tool(name: str, tools: Mapping[str, Tool]) -> Tool | None:
    """Return the tool that a model asks for: by its name, or by an alias that no other tool has (`bash`, `Read`)."""
    if (found := tools.get(name)) is not None:
        return found
    known = [tool for tool in tools.values() if name in tool.aliases]
    return known[0] if len(known) == 1 else None


def no_such_tool(name: str, tools: Iterable[str]) -> str:
    """What the model is told when it asks for a tool that is not there."""
    name, names = name[:100], list(tools)
    if not names:
        return f"there is no tool named {name!r}; this agent has no tools"
    close = get_close_matches(name, names, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"there is no tool named {name!r}; the tools are {', '.join(names)}{hint}"


# -- using a tool ---------------------------------------------------------------------------------------------------


async def use(tool: Tool, values: Mapping[str, Any], *context: object) -> tuple[ToolResult, Ended]:
    """Use a tool within its time limit. Whatever it does, there is a result, and the model can read it."""
    work = _outcome(tool, values, context)
    if tool.timeout is None:
        return await work
    try:
        outcome: tuple[ToolResult, Ended] = await run_with_timeout(tool.timeout, work, tool.name)
    except TimeoutError as late:
        return ToolResult(error=f"{late}; whether it took effect is unknown"), "unknown"
    return outcome


async def _outcome(tool: Tool, values: Mapping[str, Any], context: tuple[object, ...]) -> tuple[ToolResult, Ended]:
    cancelled = _cancellations()
    try:
        answer = await tool.call(values, *context)
    except Uncertain as error:
        return ToolResult(error=_message(error)), "unknown"
    except ToolError as error:
        return _failed(tool, _message(error) or f"{tool.name} failed")
    except asyncio.CancelledError:
        if _cancellations() > cancelled:
            raise
        return _failed(tool, f"{tool.name} was cancelled from within")
    except (Exception, SystemExit) as error:  # a tool that exits ends itself, not the agent
        result, ended = _failed(tool, ": ".join(filter(None, (tool.name, type(error).__name__, _message(error)))))
        result.exception = error
        return result, ended
    return _result(tool, answer), "failed" if isinstance(answer, ToolResult) and answer.error else "done"


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0


def _failed(tool: Tool, sentence: str) -> tuple[ToolResult, Ended]:
    return ToolResult(error=_legible(_cut(sentence, tool.max_output))), "failed"


def _legible(text: str) -> str:
    return text.encode(errors="replace").decode()


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "its message cannot be read"


def _result(tool: Tool, answer: Any) -> ToolResult:
    try:
        output, data, parts = _told(answer)
        error = answer.error if isinstance(answer, ToolResult) else ""
        short, error = _cut(output, tool.max_output), _legible(_cut(error, tool.max_output))
        short.encode()
    except Exception:  # too deep, NaN, half a character, or an object that fails when it is read
        what = f"{tool.name} returned a {type(answer).__name__}, which is not JSON data"
        return ToolResult(error=f"{what}; return text, JSON data or a ToolResult")
    data = data if short is output else None
    if isinstance(answer, ToolResult):
        return replace(answer, output=short, error=error, data=data)
    return ToolResult(short, data=data, parts=parts)


def _told(answer: Any) -> tuple[str, Any, tuple[Part, ...]]:
    """The text that an answer comes to, and the data and parts that go with it."""
    if isinstance(answer, str) or answer is None:
        return answer or "", None, ()
    if isinstance(answer, ToolResult):
        return answer.output, thaw(freeze(answer.data)), _parts(answer.parts)
    parts = answer if isinstance(answer, list | tuple) else (answer,)
    if parts and isinstance(parts[0], Part):
        texts = "\n".join(part.text for part in _parts(parts) if isinstance(part, TextPart))
        return texts, None, tuple(part for part in parts if not isinstance(part, TextPart))
    if isinstance(answer, Iterator):  # it may never end
        raise TypeError("an iterator is not JSON data")
    data = to_jsonable_python(answer)
    freeze(data)  # for its check of the depth
    if isinstance(data, str):
        return data, None, ()
    return json.dumps(data, ensure_ascii=False, allow_nan=False), data, ()


def _parts(parts: Iterable[Any]) -> tuple[Part, ...]:
    if not all(isinstance(part, Part) for part in parts):
        raise TypeError("parts go with parts alone")
    return tuple(parts)


def _cut(text: str, most: int | None) -> str:
    """A text that is too long, reduced to its head and its tail."""
    most = constants.TOOL_OUTPUT_CHARS if most is None else most
    if len(text) <= most:
        return text
    room = most - len(_GAP.format(len(text)))
    if room < 0:
        return text[:most]
    head, tail = min(constants.CUT_HEAD_CHARS, room - room // 2), min(constants.CUT_TAIL_CHARS, room // 2)
    return text[:head] + _GAP.format(len(text) - head - tail) + text[len(text) - tail :]


_GAP = "\n\n... (truncated {} characters) ...\n\n"
