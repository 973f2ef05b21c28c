"""Tools: functions that the model can call.

    @tool(timeout=10, read_only=True)
    async def weather(city: str, days: Annotated[int, "how far to look ahead"] = 1) -> str:
        \"\"\"The weather forecast for a city.\"\"\"

The model sees `weather.schema`. `validate` checks the arguments of a call, and hooks see them. `bind` runs the
validators once and returns the values with their JSON form for the guards. `run_tool` calls the function with
exactly those values and converts its return value to a `ToolResult`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property, partial
from operator import is_, itemgetter
from time import monotonic
from types import coroutine
from typing import Any, Concatenate, Generic, Literal, TypedDict, Unpack, overload
from urllib.parse import quote, urlsplit

from pydantic_core import to_jsonable_python
from typing_extensions import ParamSpec, TypeVar  # a dependency of pydantic

from wick import constants
from wick._internal.aliases import ARGUMENTS, list_tool_aliases
from wick._internal.dependencies import Deps as Deps
from wick._internal.familiar_words import TOOL_OPTIONS, explain_option
from wick._internal.frozen import freeze, thaw
from wick._internal.http_requests import post_json
from wick._internal.tasks import run_with_timeout
from wick._internal.tool_flow import UNDECLARED, Author, Effect, ToolFlow, declare_flow
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

P = ParamSpec("P", default=...)
Bound = ParamSpec("Bound")  # the parameters of a method without `self`
R = TypeVar("R", default=Any)

ToolOutcome = Literal["done", "failed", "unknown"]
"""How a tool ended. `unknown` means that it may or may not have taken effect."""


@dataclass(frozen=True, eq=False)
class Tool(Generic[P, R]):
    """A function with a name, a description and a schema. Create one with `tool`.

    `Tool[P, R]` has the parameters and the return type of the function, so that type checkers check direct calls.
    """

    name: str  # the name that the model calls
    description: str  # by default the docstring of the function
    fn: Callable[P, R] = field(repr=False)  # the function
    foreign: Mapping[str, Any] | None = field(default=None, repr=False)  # a JSON Schema in place of the signature
    timeout: float | None = None  # in seconds
    idempotent: bool = False  # running it twice has the same effect as once
    read_only: bool = False  # it changes nothing, so it may be retried
    alone: bool = False  # never runs in parallel with another tool
    max_output: int | None = None  # in characters; a longer output is reduced to its head and tail
    kind: str = ""  # shell, read, write, network, …
    origin: str = ""  # the original name
    aliases: tuple[str, ...] = ()  # other names for a hook's `match`
    renames: Mapping[str, str] = field(default_factory=dict, repr=False)  # argument aliases and names
    flow: ToolFlow | None = field(default=None, repr=False)  # declared effect, targets and authors of results

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("a tool needs a name")
        if (self.timeout is not None and self.timeout <= 0) or (self.max_output is not None and self.max_output <= 0):
            raise ConfigError(f"the timeout and the max_output of {self.name} must be more than 0, or left out")
        if not self.origin:
            object.__setattr__(self, "origin", self.name)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the plain function."""
        return self.fn(*args, **kwargs)

    @overload
    def __get__(self, owner: None, kind: type | None = None) -> Tool[P, R]: ...
    @overload
    def __get__(self: Tool[Concatenate[Any, Bound], R], owner: object, kind: type | None = None) -> Tool[Bound, R]: ...
    def __get__(self, owner: object | None, kind: type | None = None) -> Tool[..., Any]:
        """Bind a tool that is a method to its object, as Python binds methods."""
        bind = getattr(self.fn, "__get__", None)
        return self if owner is None or bind is None else replace(self, fn=bind(owner, kind))

    def renamed(self, name: str) -> Tool[P, R]:
        """Return this tool under another name. Guards still match its original name."""
        return replace(self, name=name)

    def copy(self) -> Tool[P, R]:
        """Return a copy that no other code refers to."""
        new, _ = (
            object.__new__(type(self)),
            (self.names, self.is_async, self.arguments, self.effect, self.private),
        )  # compute the cached properties before copying
        new.__dict__.update(self.__dict__)
        return new

    def is_same(self, other: Tool) -> bool:
        """Return True if two tools have the same names and call the same function."""
        mine, theirs = self.__dict__, other.__dict__
        return all(map(is_, _identify(mine), _identify(theirs))) and mine.get("names") == theirs.get("names")

    @cached_property
    def names(self) -> frozenset[str]:
        """The names that a hook's `match` is compared with."""
        return frozenset((self.name, self.origin, *self.aliases))

    @cached_property
    def effect(self) -> str:
        """The declared effect: read, send, pay, …; a tool without a declaration changes something."""
        return (self.flow or UNDECLARED).effect

    @cached_property
    def private(self) -> str:
        """The name of the private source that it reads; empty without one."""
        return (self.flow or UNDECLARED).name_source(self.name)

    @cached_property
    def arguments(self) -> FunctionArguments | ForeignArguments:
        return inspect_arguments(self.fn) if self.foreign is None else ForeignArguments(self.foreign, self.fn)

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        return self.arguments.schema

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The definition of this tool for a model."""
        return freeze({"name": self.name, "description": self.description, "parameters": self.parameters})  # type: ignore[no-any-return]

    @cached_property
    def is_async(self) -> bool:
        return any(map(inspect.iscoroutinefunction, (self.fn, type(self.fn).__call__)))

    def validate(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as plain JSON: renamed, coerced, with defaults. Raise InvalidArgs if they do not fit.

        Validators only check the arguments here. Their changes are discarded.
        """
        try:
            return self.arguments.validate(self.name, self._apply_renames(args))
        except InvalidArgs:
            self.check_bound()
            raise

    def check_bound(self) -> None:
        """Raise a ConfigError if this tool is a method that was taken from its class instead of from an object."""
        if inspect.isfunction(self.fn) and next(iter(inspect.signature(self.fn).parameters), "") == "self":
            owner, _, method = self.fn.__qualname__.rpartition(".")
            kind = owner.rpartition(".")[2]
            raise ConfigError(f"the tool {self.name} is a method; take it from an object, as in {kind}(…).{method}")

    def bind(self, args: Mapping[str, Any], checked: bytes = b"") -> BoundArguments:
        """Run the validators on the arguments, once, and return the values with their JSON form.

        `checked` are the bytes of arguments that `validate` has returned. Equal data is not checked against a
        JSON Schema again.
        """
        args = self._apply_renames(args)
        data = encode_arguments(self.name, self.arguments.fill_defaults(args))
        return self.arguments.bind(self.name, data, args, checked=data == checked)

    def _apply_renames(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        if not isinstance(args, Mapping):
            raise InvalidArgs(f"{self.name}: the arguments must be a JSON object")
        return self._rename(dict(args)) if self.renames else args

    async def prepare(self, args: Mapping[str, Any]) -> None:
        """Check large arguments in a thread, so that `validate` does not block the event loop."""
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
            if alias in known or name not in known:  # a parameter of this tool has that name
                continue
            if name in args:
                raise InvalidArgs(f"{self.name}: {name} and {alias} are the same argument; give it once, as {name}")
            args[name] = args.pop(alias)
        return args

    async def call(self, values: Mapping[str, Any], *context: object) -> Any:
        """Call the function with bound values, and the context objects and deps that its signature asks for."""
        values = {**values}
        for name, kinds in self.arguments.injected.items():
            found = [item for item in context if isinstance(item, kinds)]
            self._inject(values, name, found, kinds[0].__name__)
        for parameter in self.arguments.deps:
            if parameter.is_injected:
                deps = next((item.deps for item in context if hasattr(item, "deps")), None)
                found = [deps] if parameter.wants(deps) else []
                self._inject(values, parameter.name, found, f"{parameter.type_name} (deps of the run)")
        positional = [values.pop(name) for name in self.arguments.positional if name in values]
        fn: Callable[..., Any] = self.fn
        if self.is_async:
            return await fn(*positional, **values)
        answer = await run_in_thread(partial(fn, *positional, **values), self.name)
        return await answer if inspect.isawaitable(answer) else answer

    def _inject(self, values: dict[str, Any], name: str, found: list[Any], kind: str) -> None:
        """Set an injected value. A value of the model for this name is never used."""
        values.pop(name, None)
        if found:
            values[name] = found[0]
        elif inspect.signature(self.fn).parameters[name].default is inspect.Parameter.empty:
            raise ToolError(f"{self.name} needs a {kind}, and is used where there is none")


_identify = itemgetter(
    "name", "origin", "aliases", "kind", "fn", "foreign", "idempotent", "read_only", "timeout", "flow"
)


class ToolOptions(TypedDict, total=False):
    """Options of `tool`."""

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
    effect: Effect  # read, fetch, write, change, delete, send, pay or account
    returns: Author | Mapping[str, Author]  # the author of the result, or of each field
    private: bool | str  # the result is private to the user; a text names its source
    targets: Sequence[str]  # the arguments that name a recipient or an object


@overload
def tool(fn: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(fn: Callable[..., Any] | None = None, /, **options: Any) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Create a tool from a function. Its name, docstring and type hints describe it to the model."""
    for option in options.keys() - Tool.__dataclass_fields__.keys() - ToolOptions.__annotations__.keys():
        raise TypeError(explain_option("tool()", option, ToolOptions.__annotations__, TOOL_OPTIONS))
    return partial(_make_tool, **options) if fn is None else _make_tool(fn, **options)


def _make_tool(
    fn: Callable[..., Any],
    *,
    name: str = "",
    description: str = "",
    parameters: Mapping[str, Any] | None = None,
    aliases: Iterable[str] | None = None,
    renames: Mapping[str, str] | None = None,
    effect: Effect | None = None,
    returns: Author | Mapping[str, Author] | None = None,
    private: bool | str | None = None,
    targets: Sequence[str] | None = None,
    **options: Any,
) -> Tool:
    if isinstance(fn, str):
        raise ConfigError(f"a tool is a function, not {fn!r}; to name one, write @tool(name={fn!r}) above it")
    if not callable(fn):
        raise ConfigError(f"a tool is a function, not {fn!r}")
    name = name or getattr(fn, "__name__", "")
    if not name or name == "<lambda>":
        raise ConfigError(f"{fn!r} has no name that a model could use; give it one with tool(fn, name=…)")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise ConfigError(f"the tool {name} yields its answer in pieces; return it as a whole")
    description = description or parse_docstring(fn)[0]
    if parameters is None:
        _warn_undescribed(name, description, fn)
    return Tool(
        name,
        description,
        fn,
        foreign=parameters,
        aliases=tuple(sorted(list_tool_aliases(name)) if aliases is None else aliases),
        renames=ARGUMENTS.get(name, {}) if renames is None else renames,
        flow=declare_flow(effect, returns, private, targets),
        **options,
    )


def _warn_undescribed(name: str, description: str, fn: Callable[..., Any]) -> None:
    """Log what the model would have to guess about a tool."""
    if not description:
        logger.warning("the tool %s has no docstring: write one, so that the model knows when to use it", name)
    try:
        parameters = [*inspect.signature(fn).parameters.values()]
    except (TypeError, ValueError):  # the schema reports it
        parameters = []
    for p in parameters:
        if p.annotation is p.empty and p.kind is not p.VAR_KEYWORD and p.name not in ("self", "cls"):
            logger.warning(
                "the parameter %s of the tool %s has no type: annotate it, as in `%s: str`, so that the model knows "
                "which values it takes",
                p.name, name, p.name,
            )  # fmt: skip


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
    """Create a tool that is called over HTTP, with `POST {callback_url}/tools/{name}`.

    The request body is `{"name", "args"}`, the response `{"result"}` or `{"error"}`. Allow `private` addresses only
    for tools that an operator registered.
    """
    callback = _Callback(name, _tools_url(callback_url, name), private, timeout, dict(headers or {}))
    return tool(
        callback.post, name=name, description=description, parameters=parameters, timeout=timeout, kind=kind, **options
    )


def _tools_url(callback_url: str, name: str) -> str:
    try:
        parts = urlsplit(callback_url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except (ValueError, AttributeError):  # invalid port, unclosed bracket, not a text
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
            seconds=self.seconds + constants.CANCEL_GRACE_SECONDS,  # `run_tool` times out first: outcome unknown
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
    """Return the tool with this name, or the only tool with this alias (`bash`, `Read`); else None."""
    if (found := tools.get(name)) is not None:
        return found
    known = [tool for tool in tools.values() if name in tool.aliases]
    return known[0] if len(known) == 1 else None


def unknown_tool_error(name: str, tools: Iterable[str]) -> str:
    """Return the error for a call to an unknown tool."""
    name, names = name[:100], list(tools)
    if not names:
        return f"there is no tool named {name!r}; this agent has no tools"
    close = get_close_matches(name, names, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"there is no tool named {name!r}; the tools are {', '.join(names)}{hint}"


# -- using a tool ---------------------------------------------------------------------------------------------------


async def run_tool(tool: Tool, values: Mapping[str, Any], *context: object) -> tuple[ToolResult, ToolOutcome]:
    """Run a tool within its time limit. Errors of the tool become a result that the model can read."""
    work = _call_tool(tool, values, context)
    if tool.timeout is None:
        return await work
    try:
        outcome: tuple[ToolResult, ToolOutcome] = await run_with_timeout(tool.timeout, work, tool.name)
    except TimeoutError as late:
        return ToolResult(error=f"{late}; whether it took effect is unknown"), "unknown"
    return outcome


async def _call_tool(
    tool: Tool, values: Mapping[str, Any], context: tuple[object, ...]
) -> tuple[ToolResult, ToolOutcome]:
    cancelled = _count_cancellations()
    try:
        answer = await _watch_steps(tool.name, tool.call(values, *context))
    except Uncertain as error:
        return ToolResult(error=_error_text(error)), "unknown"
    except ToolError as error:
        return _failure(tool, _error_text(error) or f"{tool.name} failed")
    except asyncio.CancelledError:
        if _count_cancellations() > cancelled:
            raise
        return _failure(tool, f"{tool.name} was cancelled from within")
    except (Exception, SystemExit) as error:  # sys.exit in a tool must not end the process
        result, ended = _failure(tool, ": ".join(filter(None, (tool.name, type(error).__name__, _error_text(error)))))
        result.exception = error
        return result, ended
    return _build_result(tool, answer), "failed" if isinstance(answer, ToolResult) and answer.error else "done"


@coroutine
def _watch_steps(name: str, call: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Run a tool's coroutine, and log a warning if it blocks the event loop between two awaits."""
    step: Callable[[Any], Any] = call.send
    value, longest = None, 0.0
    try:
        while True:
            started = monotonic()
            try:
                waiting = step(value)
            except StopIteration as done:
                return done.value
            finally:
                value, longest = None, max(longest, monotonic() - started)
            try:
                step, value = call.send, (yield waiting)
            except GeneratorExit:
                call.close()
                raise
            except BaseException as error:
                step, value = call.throw, error
    finally:
        if longest > constants.BLOCKED_SECONDS:
            logger.warning(
                "the tool %s blocked the event loop for %.1f s, and other runs waited: in `async def` use "
                "`await asyncio.sleep(…)`, or write `def` instead of `async def`, and wick runs it in a thread",
                name, longest,
            )  # fmt: skip


def _count_cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0


def _failure(tool: Tool, sentence: str) -> tuple[ToolResult, ToolOutcome]:
    return ToolResult(error=_replace_surrogates(_truncate(sentence, tool.max_output))), "failed"


def _replace_surrogates(text: str) -> str:
    return text.encode(errors="replace").decode()


def _error_text(error: BaseException) -> str:
    """Return the message of an error; of a group, as of `asyncio.TaskGroup`, those of the errors in it."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(f"{type(inner).__name__}: {_error_text(inner)}" for inner in error.exceptions)
    try:
        return str(error)
    except Exception:
        return "its message cannot be read"


def _build_result(tool: Tool, answer: Any) -> ToolResult:
    try:
        output, data, parts = _convert_answer(answer)
        error = answer.error if isinstance(answer, ToolResult) else ""
        short, error = _truncate(output, tool.max_output), _replace_surrogates(_truncate(error, tool.max_output))
        short.encode()
    except Exception:  # too deep, NaN, lone surrogate, or a property that raises
        what = f"{tool.name} returned a {type(answer).__name__}, which is not JSON data"
        return ToolResult(error=f"{what}; return text, JSON data or a ToolResult")
    data = data if short is output else None
    if isinstance(answer, ToolResult):
        return replace(answer, output=short, error=error, data=data)
    return ToolResult(short, data=data, parts=parts)


def _convert_answer(answer: Any) -> tuple[str, Any, tuple[Part, ...]]:
    """Convert a return value to text, data and parts."""
    if isinstance(answer, str) or answer is None:
        return answer or "", None, ()
    if isinstance(answer, ToolResult):
        return answer.output, thaw(freeze(answer.data)), _check_parts(answer.parts)
    parts = answer if isinstance(answer, list | tuple) else (answer,)
    if parts and isinstance(parts[0], Part):
        texts = "\n".join(part.text for part in _check_parts(parts) if isinstance(part, TextPart))
        return texts, None, tuple(part for part in parts if not isinstance(part, TextPart))
    if isinstance(answer, Iterator):  # may be endless
        raise TypeError("an iterator is not JSON data")
    data = to_jsonable_python(answer)
    freeze(data)  # checks the depth
    if isinstance(data, str):
        return data, None, ()
    return json.dumps(data, ensure_ascii=False, allow_nan=False), data, ()


def _check_parts(parts: Iterable[Any]) -> tuple[Part, ...]:
    if not all(isinstance(part, Part) for part in parts):
        raise TypeError("parts go with parts alone")
    return tuple(parts)


def _truncate(text: str, most: int | None) -> str:
    """Return a text, cut to its head and tail if it is too long."""
    most = constants.TOOL_OUTPUT_CHARS if most is None else most
    if len(text) <= most:
        return text
    room = most - len(_GAP.format(len(text)))
    if room < 0:
        return text[:most]
    head, tail = min(constants.CUT_HEAD_CHARS, room - room // 2), min(constants.CUT_TAIL_CHARS, room // 2)
    return text[:head] + _GAP.format(len(text) - head - tail) + text[len(text) - tail :]


_GAP = "\n\n... (truncated {} characters) ...\n\n"
