"""A tool is a function that the model can call: any behaviour gives a result."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import socket
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from dataclasses import FrozenInstanceError, dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from wick import Agent, constants, tools
from wick._internal import tasks
from wick._internal.frozen import canonical_json, freeze
from wick._internal.tool_schema import inspect_arguments
from wick._internal.worker_threads import list_abandoned
from wick.errors import ConfigError, InvalidArgs, Paused, ToolError
from wick.messages import FilePart, ImagePart, TextPart, ToolResult
from wick.tools import HttpTool, Injected, Tool, ToolOptions, run_tool, tool, unknown_tool_error


class Run(Injected):
    """An injected run."""


class ToolUse(Injected):
    """An injected tool use."""


async def outcome(item: Tool, /, *context: object, **args: Any) -> tuple[ToolResult, tools.ToolOutcome]:
    """Validate, seal and use, as the loop does."""
    return await run_tool(item, item.bind(args).values, *context)


async def output(item: Tool, /, *context: object, **args: Any) -> str:
    result, ended = await outcome(item, *context, **args)
    assert (result.error, ended) == ("", "done")
    return result.output


async def failure(item: Tool, /, *context: object, **args: Any) -> str:
    result, ended = await outcome(item, *context, **args)
    assert ended == "failed" and not result.output and result.error
    return result.error


# -- making tools ---------------------------------------------------------------------------------------------------


def test_a_function_describes_itself() -> None:
    @tool
    def add(a: int, b: int = 1) -> int:
        """Add two numbers.

        Args:
            a: the first
        """
        return a + b

    assert (add.name, add.origin, add.description) == ("add", "add", "Add two numbers.")
    assert add.schema == {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "the first"},
                "b": {"type": "integer", "default": 1},
            },
            "required": ["a"],
            "additionalProperties": False,
        },
    }
    assert add.schema is add.schema and add.parameters == add.schema["parameters"]
    assert add(2, 3) == 5


def test_tool_options() -> None:
    @tool(
        name="sum", description="Sums.", timeout=5, idempotent=True, read_only=True, alone=True, max_output=9, kind="x"
    )
    async def add(a: int) -> int:
        """Not this."""
        return a

    assert (add.name, add.description, add.timeout, add.max_output, add.kind) == ("sum", "Sums.", 5, 9, "x")
    assert add.idempotent and add.read_only and add.alone
    assert tool(len, name="size", parameters={}).name == "size"


def test_a_tool_cannot_change() -> None:
    item = tool(lambda: None, name="x")
    with pytest.raises(FrozenInstanceError):
        item.name = "y"  # type: ignore[misc]


def test_decorating_does_no_work_that_can_wait() -> None:
    @tool
    def later(x: DefinedLater) -> None:  # type: ignore[name-defined]  # noqa: F821
        """It is read when it is needed."""

    with pytest.raises(ConfigError, match="DefinedLater"):
        _ = later.schema


def test_a_function_is_read_once_for_many_tools_and_then_forgotten() -> None:
    def add(a: int) -> int:
        return a

    first = tool(add)
    assert all(tool(add).arguments is first.arguments for _ in range(1000))
    assert first.renamed("b").arguments is first.arguments
    seen = weakref.ref(add)
    del add, first
    gc.collect()
    assert seen() is None


def test_a_renamed_tool_has_its_origin_and_aliases() -> None:
    @tool
    def execute(command: str) -> str:
        return command

    other = execute.renamed("box_execute").renamed("shell")
    assert (other.name, other.origin) == ("shell", "execute")
    assert other.names == {"shell", "execute", "Bash", "bash"}
    assert other.schema["name"] == "shell"
    with pytest.raises(InvalidArgs, match="^shell: "):
        other.validate({})


def test_an_invalid_tool_is_refused() -> None:
    def pieces() -> Iterator[str]:
        yield "a"

    async def async_pieces() -> AsyncIterator[str]:
        yield "a"

    for fn in (pieces, async_pieces):
        with pytest.raises(ConfigError, match="yields its answer in pieces; return it as a whole"):
            tool(fn)
    with pytest.raises(ConfigError, match="give it one with"):
        tool(lambda: None)
    for options in (
        ToolOptions(name="x", timeout=0),
        ToolOptions(name="x", timeout=-1.0),
        ToolOptions(name="x", max_output=0),
    ):
        with pytest.raises(ConfigError, match="must be more than 0"):
            tool(len, **options)
    with pytest.raises(TypeError):
        tool(len, name="x", timeot=5)  # type: ignore[call-overload]


class Box:
    """An object with tools."""

    def __init__(self, *items: str) -> None:
        self.items = list(items)

    @tool
    def put(self, item: str) -> str:
        """Put something in."""
        self.items.append(item)
        return f"{len(self.items)} things"

    @tool
    async def look(self, run: Run) -> list[str]:
        return self.items


async def test_methods_are_bound() -> None:
    one, two = Box(), Box("x")
    assert await output(one.put, item="a") == "1 things"
    assert await output(two.put, item="b") == "2 things"
    assert (await outcome(two.look, Run()))[0].data == ["x", "b"]
    assert list(one.put.parameters["properties"]) == ["item"]
    assert one.put.arguments is two.put.arguments
    assert one.put.name == "put"


# -- arguments ------------------------------------------------------------------------------------------------------


@tool
async def edit_file(path: str, old_text: str = "", new_text: str = "") -> str:
    return f"{path}:{old_text}:{new_text}"


def test_other_names_of_arguments_are_renamed() -> None:
    own = {"path": "a", "old_text": "b", "new_text": "c"}
    assert edit_file.validate({"file_path": "a", "old_string": "b", "new_string": "c"}) == own
    assert edit_file.validate(freeze({"file_path": "a", "old_text": "b", "new_string": "c"})) == own
    with pytest.raises(InvalidArgs, match="path and file_path are the same argument; give it once, as path"):
        edit_file.validate({"path": "a", "file_path": "a"})


def test_names_follow_the_function() -> None:
    @tool(name="edit_file")
    def mine(file_path: str, path: int = 0) -> None: ...

    assert mine.validate({"file_path": "a"}) == {"file_path": "a", "path": 0}

    @tool(renames={"n": "count"}, aliases=["times"])
    def repeat(count: int) -> None: ...

    assert repeat.validate({"n": 3}) == {"count": 3}
    assert repeat.names == {"repeat", "times"}


@pytest.mark.parametrize("args", [None, [], "x", 5, [("path", "a")]])
def test_arguments_are_an_object(args: Any) -> None:
    with pytest.raises(InvalidArgs, match="edit_file: the arguments must be a JSON object"):
        edit_file.validate(args)


def test_arguments_are_not_changed_by_validation() -> None:
    args = {"file_path": "a"}
    edit_file.validate(args)
    assert args == {"file_path": "a"}


class Point(BaseModel):
    x: int
    y: float = 0.0


@tool
async def typed(
    text: str,
    number: int = 3,
    share: float | None = None,
    flag: bool = False,
    mode: Literal["fast", "slow", 1] = "fast",
    when: date | None = None,
    price: Decimal = Decimal("1.0"),
    points: list[Point] | dict[str, Point] = [],  # noqa: B006
    tags: set[int | str] = set(),  # noqa: B006
    pair: tuple[int, str] | None = None,
    small: Annotated[int, Field(ge=0, le=9)] = 0,
    either: int | str | float | None = None,
    anything: Any = None,
) -> str:
    return "ok"


TYPED_NAMES = list(typed.parameters["properties"])
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.text(st.characters(), max_size=4),
    st.sampled_from(["fast", "1", "2024-01-02", "nan", "1e400", "true", " 7 ", "P1D", "\ud800", 10**20, -0.0, 2**70]),
)  # fmt: skip
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["x", "y", "z"]) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=8,
)
arguments = st.dictionaries(st.sampled_from([*TYPED_NAMES, "other"]), values, max_size=5)


@given(arguments, st.booleans())
def test_arguments_are_refused_or_passed_as_validated(args: dict[str, Any], with_text: bool) -> None:
    if with_text:
        args = {"text": "x", **args}
    try:
        data = typed.validate(args)
    except InvalidArgs as error:
        assert "\n" not in str(error) and len(str(error)) < 3_000
        return
    assert list(data) == TYPED_NAMES
    sealed = canonical_json(freeze(data))
    assert canonical_json(typed.validate(data)) == sealed
    received = typed.arguments.to_values("typed", sealed)
    assert received == typed.arguments.to_values("typed", canonical_json(typed.validate(freeze(data))))
    assert type(received["number"]) is int and isinstance(received["tags"], set)
    assert received["share"] is None or math.isfinite(received["share"])
    again = {name: value for name, value in received.items() if name in ("text", "number", "flag", "anything", "small")}
    assert again == {name: data[name] for name in again}


@given(st.dictionaries(st.text(max_size=5), values, max_size=4))
def test_foreign_arguments_are_refused_or_passed_as_validated(args: dict[str, Any]) -> None:
    item = tool(dict, name="foreign", parameters={"type": "object", "properties": {"x": {"type": "integer"}}})
    try:
        data = item.validate(args)
    except InvalidArgs:
        return
    assert item.arguments.to_values("foreign", canonical_json(data)) == data == item.validate(data)


# -- calling --------------------------------------------------------------------------------------------------------


async def test_the_function_gets_typed_values_built_from_the_bytes() -> None:
    seen: list[Any] = []

    @tool
    async def plan(when: date, points: list[Point], tags: set[str] = frozenset("a")) -> None:  # type: ignore[assignment]
        seen.extend((when, points, tags))

    await plan.call(plan.bind({"points": [{"x": 1}], "tags": ["a"], "when": "2024-01-02"}).values)
    assert seen == [date(2024, 1, 2), [Point(x=1)], {"a"}]
    with pytest.raises(InvalidArgs, match="^plan: when"):
        plan.bind({"points": [], "when": "soon"})


async def test_sync_functions_run_in_a_thread_with_the_callers_context() -> None:
    colour: ContextVar[str] = ContextVar("colour")
    colour.set("red")

    @tool
    def where() -> list[Any]:
        return [threading.get_ident(), colour.get()]

    result, _ = await outcome(where)
    assert result.data[0] != threading.get_ident() and result.data[1] == "red"


async def test_a_sync_function_may_return_something_to_await() -> None:
    async def later() -> str:
        return "later"

    assert await output(tool(lambda: later(), name="x")) == "later"


async def test_callable_objects_are_tools_too() -> None:
    class Adder:
        async def __call__(self, a: int, b: int = 2) -> int:
            return a + b

    assert await output(tool(Adder(), name="add"), a=1) == "3"


async def test_positional_and_keyword_arguments_are_passed() -> None:
    @tool
    async def mix(a: int, run: Run, /, b: int, *, c: int = 3, **rest: Any) -> list[Any]:
        return [a, type(run).__name__, b, c, rest]

    result, _ = await outcome(mix, Run(), a=1, b=2, d=4)
    assert result.data == [1, "Run", 2, 3, {"d": 4}]


async def test_injected_parameters_are_taken_from_the_context() -> None:
    run, tool_use = Run(), ToolUse()
    seen: list[Any] = []

    @tool
    async def look(use: ToolUse, run: Run, more: Run | None = None) -> None:
        seen.extend((use, run, more))

    await output(look, run, tool_use)
    assert seen == [tool_use, run, run]
    assert await failure(look, run) == "look needs a ToolUse, and is used where there is none"

    @tool
    async def alone(run: Run | None = None) -> str:
        return str(run)

    assert await output(alone) == "None"


async def test_a_function_with_a_foreign_schema_gets_valid_arguments() -> None:
    @tool(parameters={"type": "object", "properties": {"class": {"type": "string"}}, "required": ["class"]})
    async def find(run: Run, **args: Any) -> dict[str, Any]:
        return args

    result, _ = await outcome(find, Run(), **{"class": "x", "other": 1})
    assert result.data == {"class": "x", "other": 1}
    with pytest.raises(InvalidArgs, match="find: class is missing"):
        find.validate({})


# -- results --------------------------------------------------------------------------------------------------------


@dataclass
class Size:
    width: int
    made: date


PICTURE = ImagePart(url="https://example.com/a.png")
PAPER = FilePart(data="QQ==", media_type="text/plain")


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ("text", ToolResult("text")),
        ("", ToolResult("")),
        (None, ToolResult("")),
        (5, ToolResult("5", data=5)),
        (1.5, ToolResult("1.5", data=1.5)),
        (False, ToolResult("false", data=False)),
        ({"é": [1, None]}, ToolResult('{"é": [1, null]}', data={"é": [1, None]})),
        ([], ToolResult("[]", data=[])),
        ((1, 2), ToolResult("[1, 2]", data=[1, 2])),
        ({1: date(2024, 1, 2)}, ToolResult('{"1": "2024-01-02"}', data={"1": "2024-01-02"})),
        (date(2024, 1, 2), ToolResult("2024-01-02")),
        (Point(x=1), ToolResult('{"x": 1, "y": 0.0}', data={"x": 1, "y": 0.0})),
        (Size(1, date(2024, 1, 2)), ToolResult(
            '{"width": 1, "made": "2024-01-02"}', data={"width": 1, "made": "2024-01-02"})),
        (PICTURE, ToolResult("", parts=(PICTURE,))),
        ([TextPart("a"), PICTURE, TextPart("b"), PAPER], ToolResult("a\nb", parts=(PICTURE, PAPER))),
        (ToolResult("x", data={"a": 1}, parts=(PICTURE,), name="n"),
         ToolResult("x", data={"a": 1}, parts=(PICTURE,), name="n")),
    ],
)  # fmt: skip
async def test_valid_return_values(answer: Any, result: ToolResult) -> None:
    async def give() -> Any:
        return answer

    assert await outcome(tool(give)) == (result, "done")


class Nasty:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def circle() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else 1


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (float("nan"), "float"),
        ([float("inf")], "list"),
        (object(), "object"),
        ({"a": Nasty()}, "dict"),
        ("half \ud800", "str"),
        ({"a": "\udfff"}, "dict"),
        (b"\xff", "bytes"),
        (circle(), "list"),
        (deep(constants.JSON_DEPTH + 1), "list"),
        (deep(900), "list"),
        (iter([1]), "list_iterator"),
        (lambda: 1, "function"),
        ([PICTURE, "text"], "list"),
        (ToolResult("x", data=object()), "ToolResult"),
        (ToolResult(5), "ToolResult"),  # type: ignore[arg-type]
        (ToolResult(error=None), "ToolResult"),  # type: ignore[arg-type]
        (ToolResult(parts=("x",)), "ToolResult"),  # type: ignore[arg-type]
    ],
)
async def test_a_non_json_result_is_an_error_after_execution(answer: Any, kind: str) -> None:
    async def give() -> Any:
        return answer

    result, ended = await outcome(tool(give))
    assert result == ToolResult(
        error=f"give returned a {kind}, which is not JSON data; return text, JSON data or a ToolResult"
    )
    assert ended == "done"


async def test_a_socket_is_not_json() -> None:
    with socket.socket() as mine:
        result, _ = await outcome(tool(lambda: mine, name="connect"))
    assert result.error.startswith("connect returned a socket, which is not JSON data")


async def test_an_error_that_is_returned_is_a_failure() -> None:
    async def give() -> ToolResult:
        return ToolResult(error="there is no such file")

    assert await failure(tool(give)) == "there is no such file"


@pytest.mark.parametrize("most", [None, 5_000, 200, 60, 45, 30, 1])
async def test_a_long_output_is_cut_to_its_head_and_tail(most: int | None) -> None:
    text = "".join(chr(97 + index % 26) for index in range(constants.TOOL_OUTPUT_CHARS + 1))
    limit = constants.TOOL_OUTPUT_CHARS if most is None else most
    item = Tool("long", "", lambda: text, max_output=most)
    short = await output(item)
    assert len(short) <= limit
    head, gap, rest = short.partition("\n\n... (truncated ")
    if limit <= 40:
        assert short == text[:limit]
        return
    number, _, tail = rest.partition(" characters) ...\n\n")
    assert gap and text.startswith(head) and text.endswith(tail)
    assert int(number) == len(text) - len(head) - len(tail)
    if limit >= 5_000:
        assert (len(head), len(tail)) == (constants.CUT_HEAD_CHARS, constants.CUT_TAIL_CHARS)
    else:
        assert len(short) >= limit - 1 or not head


async def test_an_output_at_the_limit_is_complete() -> None:
    item = tool(lambda: ["x" * 96], name="x", max_output=100)
    assert (await outcome(item))[0].data == ["x" * 96]
    item = tool(lambda: ["x" * 97], name="x", max_output=100)
    assert (await outcome(item))[0].data is None
    item = tool(lambda: ToolResult("x" * 101, data=1, parts=(PICTURE,)), name="x", max_output=100)
    result = (await outcome(item))[0]
    assert len(result.output) <= 100 and result.data is None and result.parts == (PICTURE,)


# -- failing --------------------------------------------------------------------------------------------------------


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("in_thread", [True, False])
@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ToolError("the file is gone"), "the file is gone"),
        (ToolError(), "fail failed"),
        (ValueError("bad value"), "fail: ValueError: bad value"),
        (ValueError(), "fail: ValueError"),
        (KeyError("x"), "fail: KeyError: 'x'"),
        (Unreadable(), "fail: Unreadable: its message cannot be read"),
        (TimeoutError("theirs"), "fail: TimeoutError: theirs"),
        (SystemExit(1), "fail: SystemExit: 1"),
        (RecursionError("deep"), "fail: RecursionError: deep"),
        (asyncio.CancelledError(), "fail was cancelled from within"),
        (
            ExceptionGroup("two", [ValueError("a"), ExceptionGroup("", [KeyError("b")])]),
            "fail: ExceptionGroup: ValueError: a; ExceptionGroup: KeyError: 'b'",
        ),
        (ValueError("half \ud800"), "fail: ValueError: half ?"),
    ],
)
@pytest.mark.parametrize("timeout", [None, 20.0])
async def test_a_tool_that_raises_has_failed(
    error: BaseException, sentence: str, in_thread: bool, timeout: float | None
) -> None:
    def fail() -> None:
        raise error

    async def fail_async() -> None:
        raise error

    item = Tool("fail", "", fail if in_thread else fail_async, timeout=timeout)
    assert await failure(item) == sentence


async def test_a_stop_iteration_is_a_failure() -> None:
    assert "StopIteration" in await failure(tool(lambda: next(iter(())), name="x"))


async def test_a_long_error_is_cut() -> None:
    def fail() -> None:
        raise ValueError("x" * 10_000)

    assert len(await failure(tool(fail, max_output=500))) <= 500


@pytest.mark.parametrize("timeout", [None, 20.0])
@pytest.mark.parametrize("in_thread", [True, False])
async def test_a_pause_passes_through(timeout: float | None, in_thread: bool) -> None:
    def wait() -> None:
        raise Paused("for the user")

    async def wait_async() -> None:
        raise Paused("for the user")

    with pytest.raises(Paused, match="for the user"):
        await outcome(Tool("wait", "", wait if in_thread else wait_async, timeout=timeout))


async def test_awaiting_a_cancelled_task_is_a_failure() -> None:
    @tool
    async def wait() -> None:
        other = asyncio.create_task(asyncio.sleep(60))
        other.cancel()
        await other

    assert await failure(wait) == "wait was cancelled from within"


# -- time limits and cancelling -------------------------------------------------------------------------------------


async def test_a_time_limit_leaves_the_outcome_unknown() -> None:
    ended = asyncio.Event()

    @tool(timeout=0.02)
    async def execute() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    result, how = await outcome(execute)
    assert result.error == "execute did not finish within 0.02 s; whether it took effect is unknown"
    assert how == "unknown" and ended.is_set()


async def test_a_tool_within_its_time_limit_is_done() -> None:
    @tool(timeout=20)
    async def quick() -> str:
        await asyncio.sleep(0)
        return "ok"

    assert await output(quick) == "ok"


async def test_a_thread_past_its_time_limit_is_abandoned() -> None:
    while list_abandoned():  # by tests before this one
        await asyncio.sleep(0.005)
    go = threading.Event()
    item = tool(lambda: go.wait(20), name="hangs", timeout=0.05)
    _, how = await outcome(item)
    assert how == "unknown" and list_abandoned() == ["hangs"]
    go.set()
    while list_abandoned():
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("cancel", [True, False])
async def test_a_tool_that_suppresses_cancellation_blocks_no_other(
    cancel: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(constants, "CANCEL_GRACE_SECONDS", 0.02)
    begun, go = asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        begun.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        raise ValueError("not reported")

    item = Tool("stubborn", "", stubborn, timeout=60 if cancel else 0.02)
    task = asyncio.create_task(outcome(item))
    await begun.wait()
    with caplog.at_level(logging.WARNING, "wick"):
        if cancel:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            assert (await task)[1] == "unknown"
    assert "stubborn was cancelled and did not end within 0.02 s" in caplog.text
    assert len(tasks._leftover) == 1
    go.set()
    while tasks._leftover:
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("timeout", [None, 60.0])
@pytest.mark.parametrize("in_thread", [True, False])
async def test_cancelling_the_use_cancels_the_tool(timeout: float | None, in_thread: bool) -> None:
    while list_abandoned():  # by tests before this one
        await asyncio.sleep(0.005)
    begun, go = threading.Event(), threading.Event()
    ended: list[str] = []

    def wait() -> None:
        begun.set()
        go.wait(20)

    async def wait_async() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("yes")

    task = asyncio.create_task(outcome(Tool("wait", "", wait if in_thread else wait_async, timeout=timeout)))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list_abandoned() == ["wait"] if in_thread else ended == ["yes"]
    go.set()
    while list_abandoned():
        await asyncio.sleep(0.005)


async def test_a_limit_around_the_use_works() -> None:
    @tool
    async def sleep() -> None:
        await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await outcome(sleep)


# -- over HTTP ------------------------------------------------------------------------------------------------------

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Callbacks:
    """A server of HTTP tools with the responses of the test."""

    url: str
    answer: Any
    status = 200

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any, str | None]] = []
        self.hold: asyncio.Event | None = None

    async def handle(self, request: web.Request) -> web.Response:
        self.seen.append((request.raw_path, await request.json(), request.headers.get("Authorization")))
        if self.hold:
            await self.hold.wait()
        return web.json_response(self.answer, status=self.status)


@pytest.fixture
async def callbacks() -> AsyncIterator[Callbacks]:
    callbacks = Callbacks()
    app = web.Application()
    app.router.add_post("/{rest:.*}", callbacks.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    callbacks.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield callbacks
    await runner.cleanup()


async def test_an_http_tool_posts_to_its_callback(callbacks: Callbacks) -> None:
    callbacks.answer = {"result": "sunny"}
    item = HttpTool("weather", "The weather.", WEATHER, callbacks.url + "/", headers={"Authorization": "Bearer t"})
    assert item.parameters == WEATHER and item.kind == "network" and [type(item)] == [Tool]
    assert item.timeout == constants.CALLBACK_SECONDS and "Bearer" not in repr(item)
    assert await output(item, city="Oslo") == "sunny"
    assert callbacks.seen == [("/tools/weather", {"name": "weather", "args": {"city": "Oslo"}}, "Bearer t")]
    with pytest.raises(InvalidArgs, match="weather: city is missing"):
        item.validate({})
    await output(item, city="Oslo", self=1, args=2)
    assert callbacks.seen[1][1]["args"] == {"city": "Oslo", "self": 1, "args": 2}


async def test_a_renamed_http_tool_is_still_called_by_its_own_name(callbacks: Callbacks) -> None:
    callbacks.answer = {"result": None}
    item = HttpTool("a/b c", "", {}, callbacks.url + "/base").renamed("x")
    assert await output(item) == ""
    assert callbacks.seen == [("/base/tools/a%2Fb%20c", {"name": "a/b c", "args": {}}, None)]


@pytest.mark.parametrize(
    ("answer", "status", "sentence"),
    [
        ({"error": "no such city"}, 200, "no such city"),
        ({"error": {"code": 5}}, 200, '{"code": 5}'),
        ({"error": "both", "result": "x"}, 200, "both"),
        ({}, 200, 'weather answered neither {"result": …} nor {"error": …}'),
        ([], 200, 'weather answered neither {"result": …} nor {"error": …}'),
        ("sunny", 200, 'weather answered neither {"result": …} nor {"error": …}'),
        ({"result": "x"}, 500, None),
        ({"result": "x"}, 302, None),
        ({"result": "x" * constants.CALLBACK_BYTES}, 200, None),
    ],
)
async def test_a_failing_http_tool_reports_it(
    callbacks: Callbacks, answer: Any, status: int, sentence: str | None
) -> None:
    callbacks.answer, callbacks.status = answer, status
    said = await failure(HttpTool("weather", "", WEATHER, callbacks.url), city="Oslo")
    assert said == sentence or (sentence is None and said.startswith(callbacks.url))


async def test_json_from_an_http_tool_is_data(callbacks: Callbacks) -> None:
    callbacks.answer = {"error": None, "result": {"degrees": 5}}
    result, _ = await outcome(HttpTool("weather", "", WEATHER, callbacks.url), city="Oslo")
    assert result == ToolResult('{"degrees": 5}', data={"degrees": 5})


async def test_an_http_tool_that_does_not_answer_is_unknown(callbacks: Callbacks) -> None:
    callbacks.answer, callbacks.hold = {}, asyncio.Event()
    result, ended = await outcome(HttpTool("weather", "", WEATHER, callbacks.url, timeout=0.05), city="Oslo")
    assert result.error.startswith("weather did not finish within 0.05 s") and ended == "unknown"
    callbacks.hold.set()


async def test_an_http_tool_of_strangers_reaches_no_private_address(callbacks: Callbacks) -> None:
    item = HttpTool("weather", "", WEATHER, callbacks.url, private=False)
    assert "not a public address" in await failure(item, city="Oslo")
    assert not callbacks.seen


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "localhost:80", "http://h:x", "http://[", "http://h?a=b", 5])
def test_a_callback_url_must_be_one(url: Any) -> None:
    with pytest.raises(ConfigError, match="the callback URL of weather must be like http://host:port/path"):
        HttpTool("weather", "", WEATHER, url)


# -- no such tool ---------------------------------------------------------------------------------------------------


def test_an_unknown_tool_gets_the_list() -> None:
    assert unknown_tool_error("rm", ["ls", "read_file"]) == "there is no tool named 'rm'; the tools are ls, read_file"
    assert unknown_tool_error("rm", []) == "there is no tool named 'rm'; this agent has no tools"
    assert unknown_tool_error("readfile", {"ls": 1, "read_file": 2}).endswith("; did you mean read_file?")


def test_an_unknown_name_may_be_long() -> None:
    assert len(unknown_tool_error("x" * 100_000, ["ls"])) < 300


def test_arguments_are_shared_with_the_function() -> None:
    assert edit_file.arguments is inspect_arguments(edit_file.fn)


class Shop:
    @tool
    def lookup(self, order: int) -> str:
        """Look up an order."""
        return f"order {order}"


def test_a_tool_of_a_class_names_the_object_that_it_needs() -> None:
    for use in (lambda: Shop.lookup.validate({"order": 1}), lambda: Agent("demo", tools=[Shop.lookup])):
        with pytest.raises(ConfigError, match=r"the tool lookup is a method; .* as in Shop\(…\).lookup"):
            use()
    with pytest.raises(InvalidArgs, match="order is missing"):
        Shop().lookup.validate({})
    assert Agent("demo", tools=[Shop().lookup]).tools[0].validate({"order": "1"}) == {"order": 1}
