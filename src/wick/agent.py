"""The agent: a model, tools and hooks, ready to run."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, TypedDict, Unpack

from wick import run_log
from wick._internal.aliases import TOOL_KINDS, TOOL_NAMES
from wick._internal.frozen import freeze, thaw
from wick._internal.run_context import find_run
from wick._internal.tasks import cancel_and_wait
from wick._internal.worker_threads import run_in_thread
from wick.capabilities._defaults import DEFAULTS
from wick.capability import Capability
from wick.decisions import Asker, Stop
from wick.errors import ConfigError, MessageError, ModelError, Paused, StoreError
from wick.events import Emit, Event
from wick.hooks import Hook, literal, patterns
from wick.loop import Loop
from wick.messages import Message, Messages, user
from wick.models import check_model, resolve
from wick.operations import Result, Run, ToolUse
from wick.prices import Charge
from wick.protocols import Model, Usage, refused_part
from wick.threads import Thread
from wick.tools import Tool, tool

SETTINGS = (
    "temperature",
    "max_tokens",
    "top_p",
    "stop",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "extra",
)

MOST_LOOPS = 16  # sets of rings kept for different parents

Input = str | Message | Sequence[Message] | Messages


class RunOptions(TypedDict, total=False):
    """What a run can be given beside its input."""

    thread: Thread | str | None  # the conversation it belongs to, or its id where threads are kept; else a new one
    user: str  # who asks
    parent: Run | None  # the run that it is a part of: its guards hold, its user is asked
    emit: Emit | None  # gets every event
    without: Iterable[str]  # guards that a resumed run may go on without: an operator agrees
    recipe: str  # the name of a recipe that says what is to be done; the input goes into it


class Agent:
    """A model, tools and hooks, ready to run. It is not changed after construction; `with_…` makes a copy."""

    def __init__(
        self,
        model: Model | str | Mapping[str, Any],
        *,
        name: str = "agent",
        system: str = "",
        tools: Iterable[Tool | Callable[..., object]] = (),
        hooks: Iterable[Hook | Capability] = (),
        ask: Asker | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.name, self.system, self.ask = name, system, ask
        self.settings = _settings(settings or {})
        self._model = model
        self._given = (_listed("tools", tools), _listed("hooks", hooks))
        self._parts = _parts(self._given[1])
        self.hooks = _hooks(self._parts)
        self.tools = _tools(self._given[0], self._parts)
        _check_matches(self.hooks, self.tools, self._parts)
        if isinstance(model, str | Mapping):
            check_model(model)
        self._holders = [part for part in self._parts if isinstance(part, Capability) and _holds(part)]
        self._loops: dict[tuple[Hook, ...], Loop] = {}

    @property
    def model(self) -> Model:
        """The model; a name is looked up when it is first needed."""
        self._model = resolve(self._model)
        return self._model

    def _at_hand(self) -> Model | None:
        """The model, unless finding it would hold up an event loop: `auto` waits for an Ollama that may not answer."""
        return None if _is_auto(self._model) and _in_event_loop() else self.model

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        """Its capabilities, those that every agent has among them."""
        return tuple(part for part in self._parts if isinstance(part, Capability))

    def with_hooks(self, *hooks: Hook | Capability) -> Agent:
        """A copy of this agent with more hooks, inside those it has."""
        return self._copy(self._given[0], (*self._given[1], *hooks))

    def with_tools(self, *tools: Tool | Callable[..., object]) -> Agent:
        """A copy of this agent with more tools."""
        return self._copy((*self._given[0], *tools), self._given[1])

    async def run(self, input: Input = "", **options: Unpack[RunOptions]) -> Result:
        """Answer a text or messages; without any, take up `thread` where it was interrupted."""
        return await self._drive(self._start(input, **options))

    def run_sync(self, input: Input = "", **options: Unpack[RunOptions]) -> Result:
        """Answer, in a program that is not async."""
        if _in_event_loop():
            raise ConfigError("run_sync cannot be used inside an event loop; use `await agent.run(…)` there")
        return asyncio.run(self.run(input, **options))

    def stream(self, input: Input = "", **options: Unpack[RunOptions]) -> Stream:
        """Answer, and see every event of the run as it happens."""
        return Stream(self, self._start(input, **options))

    def _copy(self, tools: tuple[Any, ...], hooks: tuple[Any, ...]) -> Agent:
        return Agent(
            self._model,
            name=self.name,
            system=self.system,
            tools=tools,
            hooks=hooks,
            ask=self.ask,
            settings=self.settings,
        )

    def _start(
        self,
        input: Input,
        *,
        thread: Thread | str | None = None,
        user: str = "",
        parent: Run | None = None,
        emit: Emit | None = None,
        without: Iterable[str] = (),
        recipe: str = "",
    ) -> Run:
        """A run, ready to go. Under a parent it asks the parent's user and is under all of its guards."""
        if not isinstance(thread, Thread | str | None):
            raise ConfigError(f"thread= takes a Thread, or the id of one that is kept, not {thread!r}")
        if isinstance(thread, str) and not self._holders:
            raise ConfigError(f"thread={thread!r} needs a place where threads are kept: hooks=[Sessions(…)]")
        if recipe and not any(part.name == "recipes" for part in self._parts):
            raise ConfigError(f"recipe={recipe!r} needs a place where recipes are: hooks=[Recipes()]")
        parent = _parent(parent, find_run())
        run = Run(
            agent=self.name,
            input=_messages(input),
            thread=thread if isinstance(thread, Thread) else Thread(thread or ""),
            model=self._at_hand(),  # type: ignore[arg-type]  # found before anything is done with it
            system=self.system,
            tools={tool.name: tool for tool in self.tools},
            settings=thaw(self.settings),
            user=parent.user if parent is not None else user,
            parent=parent,
            loop=self._loop(parent),
            emitter=emit if parent is None else _child_emitter(parent, emit),
            asker=parent.asker if parent is not None else self.ask,
            make=Agent,
            recipe=recipe,
        )
        if why := refused_part(run.model, run.input):  # before anything is stored
            raise ModelError(why)
        run.progress.without = frozenset(without)
        if not self._holders:
            _resume(run)
        return run

    def _loop(self, parent: Run | None) -> Loop:
        """The rings of a run: this agent's, inside those that its parent hands down."""
        inherited = parent.loop.inherited if parent is not None else ()
        if inherited not in self._loops:
            if len(self._loops) >= MOST_LOOPS:
                self._loops.clear()
            self._loops[inherited] = Loop((*inherited, *self.hooks))
        return self._loops[inherited]

    async def _drive(self, run: Run) -> Result:
        """The one way a run goes, and the one place where it ends."""
        try:
            async with AsyncExitStack() as held:
                for part in self._holders:
                    await held.enter_async_context(part.session(run))
                if self._holders:
                    _resume(run)
                    await run_log.fetch_initial_input(run)
                return await self._run_loop(run)
        except Exception as error:
            run_log.record_failure(run, error)
            raise
        finally:
            run_log.emit_terminal_event(run)

    async def _run_loop(self, run: Run) -> Result:
        words = [*run.input]
        try:
            if run.model is None:
                run.model = await run_in_thread(lambda: self.model, "finding a model")
            result = await run.loop.run(run)
        except Paused as pause:
            result = await run_log.pause_run(run, f"paused: {pause}", words)
            if run.parent is not None:
                raise  # a question to a child waits for the user of the root run
            return result
        except Exception as error:
            await run_log.close_run(run, "failed", "error", error)
            raise
        except BaseException:
            await run_log.record_cancelled(run)
            raise
        return await run_log.end_run(run, result)


class Stream:
    """The events of a run, as they happen, once. `run` can be sent messages; `result` is what it came to."""

    def __init__(self, agent: Agent, run: Run) -> None:
        self.run = run
        self._agent = agent
        self._above, self._events = run.emitter, _Events(run.emitter)
        self._read = False
        run.emitter = self._events.take

    @property
    def result(self) -> Result | None:
        """What the run came to, however it ended; None while it goes on."""
        return self.run.progress.result

    async def finish(self) -> Result:
        """See the run through without reading its events here; who was given as `emit` gets them."""
        if self._read:
            raise ConfigError("this stream is being read; its result is there when it has ended")
        self._read, self.run.emitter = True, self._above
        return await self._agent._drive(self.run)

    async def __aiter__(self) -> AsyncIterator[Event]:
        if self._read:
            raise ConfigError("a stream can be read once; start another run, or read the thread")
        self._read, events = True, self._events
        task = asyncio.create_task(self._drive(), name=self.run.id)
        task.add_done_callback(events.wake)  # a hook may have taken the last event away
        try:
            while events.waiting or not task.done():
                while events.waiting:
                    event = events.waiting.popleft()
                    yield event
                    if event.terminal:
                        return
                await events.wait()
        finally:
            await cancel_and_wait((task,)) if not task.done() else None

    async def _drive(self) -> None:
        try:
            await self._agent._drive(self.run)
        except (Exception, Paused):
            """The stream's last event has told of it."""


class _Events:
    """What a run has said and nobody has read yet. It knows nothing of the run, so that neither keeps the other."""

    def __init__(self, above: Emit | None) -> None:
        self.waiting: deque[Event] = deque()
        self._above = above
        self._reader: asyncio.Future[None] | None = None  # waits for news

    def take(self, event: Event) -> None:
        self.waiting.append(event)  # first, for whoever else watches may fail
        self.wake()
        if self._above is not None:
            self._above(event)

    def wake(self, *_: object) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def wait(self) -> None:
        self._reader = asyncio.get_running_loop().create_future()
        await self._reader


def _parent(given: Run | None, found: Run | None) -> Run | None:
    """Return the run that a new one is a child of: the one whose tool starts it, or one below that.

    An agent that a tool runs is under the guards of that run, whether the tool passes `parent=` or not.
    """
    if given is None or found is None:
        return given or found
    above: Run | None = given
    while above is not None and above.id != found.id:
        above = above.parent
    if above is None:
        raise ConfigError(f"an agent that a tool of run {found.id} starts is its child; leave out parent=")
    return given


def _holds(part: Capability) -> bool:
    """Whether a capability opens the threads of runs."""
    return type(part).session is not Capability.session


def _is_auto(model: Any) -> bool:
    spec = {"model": model} if isinstance(model, str) else model if isinstance(model, Mapping) else {}
    return "auto" in [str(spec.get(key, "")).strip() for key in ("provider", "model")]


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    for key in settings:
        if key not in SETTINGS:
            raise ConfigError(f"there is no setting {key!r}; the settings are {', '.join(SETTINGS)}")
    try:
        return freeze(dict(settings))  # type: ignore[no-any-return]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the settings must be JSON data: {error}") from None


def _messages(input: Input) -> list[Message]:
    if isinstance(input, str):
        return [user(input)] if input else []
    if isinstance(input, Message):
        input = [input]
    if not isinstance(input, list | tuple | Messages):
        raise MessageError(f"a run is given a text, a Message or a list of them, not {input!r}")
    return [*Messages(input).validate()]


def _listed(what: str, given: Iterable[Any]) -> tuple[Any, ...]:
    if not isinstance(given, Iterable):
        raise ConfigError(f"{what}= takes a list, also of one: {what}=[{getattr(given, '__name__', '…')}]")
    return tuple(given)


def _parts(hooks: Iterable[Hook | Capability]) -> tuple[Hook | Capability, ...]:
    """The hooks an agent was given, inside those every agent has, unless it was given one of the same name."""
    for item in hooks:
        if not isinstance(item, Hook | Capability):
            raise ConfigError(
                f"{item!r} is not a hook: decorate it with @before, @wrap, @after or @guard, "
                f"as in @guard(ToolUse){_instance(item)}"
            )
    names = {item.name for item in hooks}
    return (*(item for item in DEFAULTS if item.name not in names), *hooks)


def _instance(item: object) -> str:
    return (
        f", or give an instance: {item.__name__}()" if isinstance(item, type) and issubclass(item, Capability) else ""
    )


def _hooks(parts: Iterable[Hook | Capability]) -> tuple[Hook, ...]:
    hooks = [hook for part in parts for hook in ([part] if isinstance(part, Hook) else part.hooks())]
    _distinct("hooks", [part.name for part in parts])
    _distinct("hooks", [hook.name for hook in hooks])
    return tuple(hooks)


def _tools(given: Iterable[Any], parts: Iterable[Hook | Capability]) -> tuple[Tool, ...]:
    tools = [item if isinstance(item, Tool) else tool(item) for item in given]
    tools += [item for part in parts if isinstance(part, Capability) for item in part.tools()]
    _distinct("tools", [item.name for item in tools])
    described = [item.schema for item in tools]  # what cannot be described is an error here, not in the middle of a run
    return tuple(tools) if described else ()


def _distinct(what: str, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"two {what} are named {', '.join(map(repr, twice))}; give one of them another name=")


def _check_matches(hooks: Iterable[Hook], tools: Sequence[Tool], parts: Iterable[Hook | Capability]) -> None:
    """Refuse a `match` with a misspelt name, and a guard that no tool is matched by: it would guard nothing."""
    names = {name for tool in tools for name in tool.names}
    foreign = [name for part in parts for name in (part.tools if isinstance(part, Hook) else part.foreign_tools())]
    foreign += [name for hook in hooks for name in hook.tools]
    kinds = {*TOOL_KINDS, *(tool.kind for tool in tools if tool.kind)}
    for hook in hooks:
        wanted = patterns(hook.match) if issubclass(ToolUse, hook.operation) else ()
        lost = [pattern for pattern in wanted if not _is_here(pattern, names, kinds, foreign)]
        strange = [pattern for pattern in lost if not any(fnmatchcase(name, pattern) for name in TOOL_NAMES)]
        if hook.position == "guard" and lost and len(lost) == len(wanted):
            strange = strange or lost
        elif hook.position != "guard":  # one that never matches does no harm, unless it is a typing error
            strange = [pattern for pattern in strange if hook.operation is ToolUse and _close(pattern, names, kinds)]
        if strange:
            what = "guard" if hook.position == "guard" else f"{hook.position} hook"
            raise ConfigError(f"the {what} {hook.name!r} is for {_lost(strange, names, kinds, tools)}")


def _is_here(pattern: str, names: set[str], kinds: set[str], foreign: Iterable[str]) -> bool:
    """Return True if a pattern of a match fits a tool of this agent, a kind of tools, or a declared dynamic tool."""
    if pattern.startswith("kind:"):
        return any(fnmatchcase(kind, pattern.removeprefix("kind:")) for kind in kinds)
    if any(fnmatchcase(name, pattern) for name in names):
        return True
    if literal(pattern):
        return any(fnmatchcase(pattern, other) for other in foreign)
    start = _head(pattern)
    return any(start.startswith(_head(other)) or _head(other).startswith(start) for other in foreign)


def _head(pattern: str) -> str:
    """Return what a pattern begins with, up to its first wildcard."""
    return re.split(r"[*?\[]", pattern, maxsplit=1)[0]


def _close(pattern: str, names: set[str], kinds: set[str]) -> list[str]:
    """Return the name or kind that was probably meant."""
    return get_close_matches(pattern, [*sorted(names), *(f"kind:{kind}" for kind in sorted(kinds))], n=1)


def _lost(patterns: Sequence[str], names: set[str], kinds: set[str], tools: Sequence[Tool]) -> str:
    if patterns[0].startswith("kind:"):
        there, what = f"the kinds are {', '.join(sorted(kinds))}", "there is no such kind of tools"
    else:
        there = f"the tools are {', '.join(tool.name for tool in tools) or '(none)'}"
        what = "there is no such tool" if literal(patterns[0]) else "no tool of this agent fits it"
    close = _close(patterns[0], names, kinds)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"{' or '.join(map(repr, patterns))}, but {what}; {there}{hint}"


def _resume(run: Run) -> None:
    """A run without input takes up the one that was interrupted, under its id and all of its guards."""
    opened = run.thread.open_run
    if run.input or opened is None or run.thread.busy:
        return
    here = {guard.name for kind in run.loop.guards for guard in run.guards(kind)}
    missing = sorted({*opened["guards"]} - here - run.progress.without)
    if missing:
        raise ConfigError(
            f"run {opened['run']} was begun under the guards {', '.join(missing)}, which are missing now; "
            f"resume it with them, or with without={missing!r} to go on without"
        )
    run.id, run.progress.resumed = opened["run"], True
    _count_again(run, opened)
    if "stopping" in opened:
        run.halt(Stop(opened["stopping"]))
    run.input = [Message.from_json(message) for message in opened.get("shelved", ())]


def _count_again(run: Run, opened: Mapping[str, Any]) -> None:
    """What a run had used before it was interrupted; of one that was killed, nobody knows all of it."""
    ends = [
        entry.data
        for entry in run.thread.effective_entries()
        if entry.kind == "run_end" and entry.data["run"] == run.id
    ]
    try:
        charges = [Charge.from_json(row) for end in ends for row in end.get("charges", ())]
        counted = sum((charge.usage for charge in charges), Usage())
        usage = Usage.from_json(opened["usage"]) if "usage" in opened else counted
    except (LookupError, TypeError, ValueError) as error:
        raise StoreError(f"what run {run.id} of thread {run.thread.id} has used cannot be read: {error}") from None
    run.progress.usage, run.progress.restored = usage, len(charges)
    lost = [] if "usage" in opened and usage == counted else [Charge("", Usage())]  # it has no price, nor has the run
    run.progress.charges = charges + lost


def _child_emitter(parent: Run, emit: Emit | None) -> Emit | None:
    """A child's events go to whoever watches its parent; that it has ended is not the parent's end."""
    above = parent.emitter
    if emit is not None or above is None:
        return emit
    return lambda event: None if event.terminal else above(event)
