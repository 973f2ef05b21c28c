"""The agent: a model, tools and hooks, ready to run."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypedDict, Unpack

from wick._internal.aliases import TOOL_KINDS, TOOL_NAMES
from wick._internal.familiar_words import (
    AGENT_ATTRIBUTES,
    AGENT_OPTIONS,
    RUN_OPTIONS,
    STREAM_ATTRIBUTES,
    explain_arguments,
    explain_attributes,
    explain_option,
    explain_options,
)
from wick._internal.frozen import thaw
from wick._internal.run_context import find_run
from wick._internal.tasks import cancel_and_wait
from wick._internal.worker_threads import run_in_thread
from wick.capabilities._defaults import choose_defaults
from wick.capabilities._model_names import NamedModels, model_label
from wick.capabilities.structured_output import StructuredOutput
from wick.capability import Capability, check_capability
from wick.decisions import Asker
from wick.errors import ConfigError, MessageError, ModelError, Paused, WickError
from wick.events import Emit, Event
from wick.hooks import ATTRIBUTES, Hook, Next, is_plain_name, parse_patterns
from wick.loop import Loop
from wick.messages import Message, Messages, user
from wick.models import check_model, resolve
from wick.models.message_dicts import read_message_dicts
from wick.onion import compose
from wick.operations import DepsType, Output, Result, Run, ToolUse, new_run_id
from wick.protocols import Model, check_settings, refused_part
from wick.resume import restore_run
from wick.run_events import announce_last_changes, announce_run
from wick.run_log import record_failure, record_run
from wick.threads import Thread
from wick.tools import Tool, tool

logger = logging.getLogger(__name__)

MAX_LOOPS = 16  # cached loops of an agent, one for each set of inherited hooks

MessageDict = Mapping[str, object]  # in the form of OpenAI's chat API, such as {"role": "user", "content": "…"}
Input = str | Message | MessageDict | Sequence[Message | MessageDict] | Messages | None  # None and "": no input
_INHERITED: Any = object()  # no deps or no user was given


class RunOptions(TypedDict, Generic[DepsType], total=False):
    """Options of a run."""

    deps: DepsType | None  # for parameters of type `Deps[T]` and `run.deps`; default: the deps of the parent run
    thread: Thread | str | None  # the conversation, or the id of a stored one; default: a new thread
    user: str  # the name of the user
    parent: Run | None  # the parent run: its guards apply, its user answers questions
    emit: Emit | None  # called with every event
    without: Iterable[str]  # guards that a resumed run may lack, by an operator's decision
    recipe: str  # name of a recipe for the instructions; the input fills it in


class AgentOptions(TypedDict, total=False):
    """Options of `Agent.with_options`."""

    model: Model | str | Mapping[str, Any]
    name: str
    system: str
    ask: Asker | None
    settings: Mapping[str, Any]


@explain_attributes(AGENT_ATTRIBUTES)
class Agent(Generic[DepsType, Output]):
    """A model, tools and hooks, ready to run. It is immutable; the `with_…` methods return copies.

    With `output_type`, `result.output` has this type; by default it is the text. With `deps_type`, runs get `deps` of
    this type: from the caller of `run`, or from `deps_factory`, which is called with the run.
    """

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
        output_type: type[Output] | StructuredOutput[Output] | None = None,
        deps_type: type[DepsType] | None = None,
        deps_factory: Callable[[Run[Any]], DepsType] | None = None,
    ) -> None:
        if ask is not None and not callable(ask):
            raise ConfigError(f"ask= takes a function that is called with each question, not {ask!r}")
        self.name, self.system, self.ask = name, system, ask
        self.settings = check_settings(settings or {})
        self._model = model
        self._given = (_as_tuple("tools", tools), _as_tuple("hooks", hooks))
        self._output, self.deps_type, self.deps_factory = _as_capability(output_type), deps_type, deps_factory
        parts = (*self._given[1], *([self._output] if self._output is not None else []))
        _check_parts(parts)
        tools = _collect_tools(self._given[0], parts)
        names = {part.name for part in parts}
        defaults = tuple(part for part in choose_defaults(tools) if part.name not in names)
        self._parts = (*defaults, *parts)
        self.hooks = _collect_hooks(self._parts)
        self.tools = _check_tools([*tools, *(item for part in defaults for item in part.tools())])
        _check_matches(self.hooks, self.tools, self._parts)
        of_tools = [(f"the tool {tool.name}", item) for tool in self.tools for item in tool.arguments.deps]
        of_hooks = [(f"the hook {hook.name}", item) for hook in self.hooks for item in hook.deps]
        self._deps_parameters = of_tools + of_hooks
        self._deps_types: set[type] = set()  # types of deps that fit all of them
        if deps_type is not None:
            self._check_deps_type(deps_type)
        named = [name for part in self._parts if isinstance(part, NamedModels) for name in part.list_models()]
        for spec in (model, *named):
            if isinstance(spec, str | Mapping):
                check_model(spec)
        self._session_capabilities = [
            part
            for part in self._parts
            if isinstance(part, Capability) and type(part).session is not Capability.session
        ]
        self._loops: dict[tuple[Hook, ...], Loop] = {}

    if not TYPE_CHECKING:  # type checkers report these mistakes themselves
        __init__ = explain_options("Agent()", AGENT_OPTIONS)(__init__)

        def __call__(self, *args: object, **options: object) -> NoReturn:
            raise TypeError(
                "an agent is not a function; write agent.run_sync(…), or `await agent.run(…)` in async code"
            )

        def __aenter__(self) -> NoReturn:
            raise TypeError("an agent needs no `async with`: its runs open what they need; write `await agent.run(…)`")

        def __aexit__(self, *error: object) -> None:
            """Exist, so that Python calls `__aenter__`."""

    @property
    def model(self) -> Model:
        """The model. A name is resolved on first use."""
        self._model = resolve(self._model)
        return self._model

    @property
    def model_spec(self) -> Model | str | Mapping[str, Any]:
        """The model as it was given: a name or options that are not resolved yet, or an object."""
        return self._model

    @property
    def model_name(self) -> str:
        """The name of the model. A model that is given by its name is not resolved for it."""
        return model_label(self._model)

    def _model_if_ready(self) -> Model | None:
        """Return the model, or None if resolving it would block the event loop: `auto` probes for an Ollama server."""
        model: Any = self._model
        spec = {"model": model} if isinstance(model, str) else model if isinstance(model, Mapping) else {}
        is_auto = "auto" in [str(spec.get(key, "")).strip() for key in ("provider", "model")]
        return None if is_auto and _in_event_loop() else self.model

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        """Its capabilities, including the default ones."""
        return tuple(part for part in self._parts if isinstance(part, Capability))

    def with_hooks(self, *hooks: Hook | Capability) -> Agent[DepsType, Output]:
        """Return a copy of this agent with more hooks, inside its own."""
        return self._copy(hooks=(*self._given[1], *hooks))

    def without_hooks(self, *names: str) -> Agent[DepsType, Output]:
        """Return a copy of this agent without the hooks and capabilities of these names."""
        known = [part.name for part in self._given[1]]
        for name in names:
            if name not in known:
                raise ConfigError(f"the agent {self.name} has no hook {name!r}; its hooks are {', '.join(known)}")
        return self._copy(hooks=tuple(part for part in self._given[1] if part.name not in names))

    def with_tools(self, *tools: Tool | Callable[..., object]) -> Agent[DepsType, Output]:
        """Return a copy of this agent with more tools."""
        return self._copy(tools=(*self._given[0], *tools))

    def with_options(self, **options: Unpack[AgentOptions]) -> Agent[DepsType, Output]:
        """Return a copy of this agent with another model, name, system prompt, `ask` or settings."""
        if unknown := options.keys() - AgentOptions.__annotations__.keys():
            raise ConfigError(
                f"with_options cannot change {', '.join(sorted(unknown))}; use with_hooks, without_hooks or with_tools "
                "for hooks and tools, and create another Agent for the rest"
            )
        return self._copy(**options)

    async def run(self, input: Input = "", **options: Unpack[RunOptions[DepsType]]) -> Result[Output]:
        """Answer a text or messages. Without input, resume the interrupted run of `thread`."""
        return self._type_result(await self._drive(self._create_run(input, **options)))

    def run_sync(self, input: Input = "", **options: Unpack[RunOptions[DepsType]]) -> Result[Output]:
        """Run to completion from synchronous code."""
        if _in_event_loop():
            raise ConfigError("run_sync cannot be used inside an event loop; use `await agent.run(…)` there")
        return asyncio.run(self.run(input, **options))

    def stream(self, input: Input = "", **options: Unpack[RunOptions[DepsType]]) -> Stream[Output]:
        """Return a stream of the run's events."""
        return Stream(self, self._create_run(input, **options))

    if not TYPE_CHECKING:  # type checkers report surplus arguments themselves
        run = explain_arguments("agent.run()", 'deps are deps=…: agent.run("…", deps=…)')(run)
        run_sync = explain_arguments("agent.run_sync()", 'deps are deps=…: agent.run_sync("…", deps=…)')(run_sync)
        stream = explain_arguments("agent.stream()", 'deps are deps=…: agent.stream("…", deps=…)')(stream)

    def _copy(self, **changes: Any) -> Agent[DepsType, Output]:
        options: dict[str, Any] = {
            "model": self._model,
            "name": self.name,
            "system": self.system,
            "tools": self._given[0],
            "hooks": self._given[1],
            "ask": self.ask,
            "settings": self.settings,
            "output_type": self._output,
            "deps_type": self.deps_type,
            "deps_factory": self.deps_factory,
        }
        return Agent(**options | changes)

    def _type_result(self, result: Result[Any]) -> Result[Output]:
        """Return a result whose `output` has the agent's type. Reading a missing output raises an error."""
        has_type = any(isinstance(part, StructuredOutput) for part in self._parts)
        return replace(result, needs_output=True) if has_type and result.value is None else result

    def _create_run(
        self,
        input: Input,
        *,
        thread: Thread | str | None = None,
        user: Any = _INHERITED,
        parent: Run | None = None,
        emit: Emit | None = None,
        without: Iterable[str] = (),
        recipe: str = "",
        deps: Any = _INHERITED,
        **unknown: object,
    ) -> Run[DepsType]:
        """Create a run. A child run asks the parent's user and obeys all of the parent's guards."""
        for name in unknown:
            raise TypeError(explain_option("a run", name, RunOptions.__annotations__, RUN_OPTIONS))
        if not isinstance(thread, Thread | str | None):
            raise ConfigError(f"thread= takes a Thread, or the id of a stored one, not {thread!r}")
        if thread == "":
            raise ConfigError('thread="" names no thread; give its id, or leave thread= out for a new one')
        if user is not _INHERITED and (not isinstance(user, str) or not user):
            raise ConfigError(f'user= takes the name of a user, not {user!r}; leave it out for the owner "local"')
        if isinstance(thread, str) and not self._session_capabilities:
            raise ConfigError(f"thread={thread!r} needs a store of threads: hooks=[Sessions(…)]")
        if recipe and not any(part.name == "recipes" for part in self._parts):
            raise ConfigError(f"recipe={recipe!r} needs a source of recipes: hooks=[Recipes()]")
        parent = _find_parent(parent, find_run())
        run = Run(
            agent=self.name,
            input=_as_messages(input),
            thread=thread if isinstance(thread, Thread) else Thread(thread or ""),  # "": a new id
            model=self._model_if_ready(),  # type: ignore[arg-type]  # `_resolve_model` sets it
            system=self.system,
            tools={tool.name: tool for tool in self.tools},
            settings=thaw(self.settings),
            user=parent.user if parent is not None else "" if user is _INHERITED else user,
            parent=parent,
            loop=self._loop_under(parent),
            emitter=emit if parent is None else _child_emitter(parent, emit),
            asker=parent.asker if parent is not None else self.ask,
            make=Agent,
            recipe=recipe,
        )
        object.__setattr__(run, "deps", self._select_deps(run, deps))  # once, before any hook has the run
        if why := refused_part(run.model, run.input):  # before anything is stored
            raise ModelError(why)
        run.progress.resumption.waived_guards = frozenset(without)
        if not self._session_capabilities:
            restore_run(run)
        elif not run.input and isinstance(thread, str):
            run.id = ""  # the thread, which is not loaded yet, may have an open run
        return run

    def _select_deps(self, run: Run[Any], given: Any) -> Any:
        """Return the deps of a new run: as given, else those of its parent, else those of the factory."""
        deps = given
        if deps is _INHERITED:
            deps = run.parent.deps if run.parent is not None else None
            if self.deps_factory is not None and (deps is None or self.find_deps_problem(deps)):
                deps = self.deps_factory(run)
            if inspect.iscoroutine(deps):
                deps.close()  # it would warn that it was never awaited
                raise ConfigError("a deps_factory is not async; open async resources before the run")
        if problem := self.find_deps_problem(deps):
            raise ConfigError(problem)
        return deps

    def find_deps_problem(self, deps: object = None) -> str:
        """Return why a run with these deps is refused, or an empty string."""
        if type(deps) in self._deps_types:
            return ""
        unfit = [
            f"{owner} needs deps of type {parameter.type_name} (parameter {parameter.name})"
            for owner, parameter in self._deps_parameters
            if not parameter.accepts(deps)
        ]
        if self.deps_type is not None and not isinstance(deps, self.deps_type):
            owner = "the agent" if self.name == "agent" else f"the agent {self.name}"
            unfit.append(f"{owner} needs deps of type {self.deps_type.__name__}")
        if unfit:
            given = "and the run has none" if deps is None else f"and the run has a {type(deps).__name__}"
            return f"{unfit[0]}, {given}; pass deps=… to the run, also to resume it, or give the agent a deps_factory"
        if deps is not None:
            self._check_deps_type(type(deps))
        self._deps_types.add(type(deps))
        return ""

    def _check_deps_type(self, deps_type: type) -> None:
        """Refuse a type of deps that a tool or hook cannot receive, or that a model would fill in."""
        if not isinstance(deps_type, type):
            raise ConfigError(f"deps_type= takes a class, not {deps_type!r}")
        for owner, parameter in self._deps_parameters:
            if not parameter.accepts_type(deps_type):
                raise ConfigError(
                    f"{owner} needs deps of type {parameter.type_name} (parameter {parameter.name}), "
                    f"but the deps are a {deps_type.__name__}; use one class with all that tools and hooks need"
                )
        for item in self.tools:
            if name := item.arguments.find_filled(deps_type):
                raise ConfigError(
                    f"the model would fill in the parameter {name!r} of the tool {item.name}, which has the type of "
                    f"the deps; write {name}: Deps[{deps_type.__name__}] to receive the deps"
                )

    def _loop_under(self, parent: Run | None) -> Loop:
        """Return the loop of a run: this agent's rings inside the inherited ones of its parent."""
        inherited = parent.loop.inherited if parent is not None else ()
        if inherited not in self._loops:
            if len(self._loops) >= MAX_LOOPS:
                self._loops.clear()
            self._loops[inherited] = Loop((*inherited, *self.hooks))
        return self._loops[inherited]

    async def _drive(self, run: Run) -> Result:
        """Perform a run. All runs go through here."""
        around = [announce_run, self._open_sessions, record_run, announce_last_changes, self._resolve_model]
        result: Result = await compose(around, run.loop.run)(run)
        return result

    async def _open_sessions(self, next: Next[Result], run: Run) -> Result:
        """Perform a run inside the sessions of its capabilities. Resume the open run of a thread that they load."""
        try:
            async with AsyncExitStack() as sessions:
                for part in self._session_capabilities:
                    await sessions.enter_async_context(part.session(run))
                if self._session_capabilities:
                    restore_run(run)
                    run.id = run.id or new_run_id()
                    if not run.input and not run.resumed and not run.thread.busy:
                        run.input = await run.progress.inbox.fetch_initial(run.thread)
                return await next(run)
        except Exception as error:
            record_failure(run, error)
            raise
        finally:
            run.id = run.id or new_run_id()  # its thread could not be opened

    async def _resolve_model(self, next: Next[Result], run: Run) -> Result:
        """Find the model of a run in a thread, if that would block the event loop."""
        if run.model is None:
            run.model = await run_in_thread(lambda: self.model, "finding a model")
        return await next(run)


@explain_attributes(STREAM_ATTRIBUTES)
class Stream(Generic[Output]):
    """The events of a run, an `AsyncIterable[Event]` to read once. Send messages to `run`; at the end read `result`.

    `run.id` of a run without input is empty until the first event, as the stored thread may have an open run to resume.
    """

    def __init__(self, agent: Agent[Any, Output], run: Run[Any]) -> None:
        self.run = run
        self._agent = agent
        self._above, self._events = run.emitter, _EventQueue(run.emitter)
        self._read = False
        run.emitter = self._events.put

    if not TYPE_CHECKING:

        def __iter__(self) -> NoReturn:
            raise TypeError("the events of a run arrive over time: write `async for event in agent.stream(…)`")

        def __await__(self) -> NoReturn:
            raise TypeError(
                "a stream is read, not awaited: write `async for event in agent.stream(…)`, without await; "
                "`await agent.run(…)` and `await stream.finish()` return the result"
            )

        def __aenter__(self) -> NoReturn:
            raise TypeError("a stream needs no `async with`: write `async for event in agent.stream(…)`")

        def __aexit__(self, *error: object) -> None:
            """Exist, so that Python calls `__aenter__`."""

    @property
    def result(self) -> Result[Output]:
        """The result of the run, whatever its outcome; an error until the stream has been read to its end."""
        result = self.run.progress.result
        if result is None:
            raise ConfigError(
                "the run has no result yet; read the stream to its end (`async for event in stream`), "
                "or execute the run with `await stream.finish()`"
            )
        return self._agent._type_result(result)

    async def finish(self) -> Result[Output]:
        """Execute the run without reading its events here. An `emit` callback still gets them."""
        if self._read:
            raise ConfigError("this stream is being read; its result is there when it has ended")
        self._read, self.run.emitter = True, self._above
        del self._events
        return self._agent._type_result(await self._agent._drive(self.run))

    async def __aiter__(self) -> AsyncIterator[Event]:
        if self._read:
            raise ConfigError("a stream can be read once; start another run, or read the thread")
        self._read, events = True, self._events
        task = asyncio.create_task(self._drive(), name=self.run.id or "run")
        task.add_done_callback(events.wake)  # in case no terminal event arrives
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
        except Paused:
            """The terminal event has reported it."""
        except Exception as error:  # the terminal event has its message, and only the log its traceback
            is_handled = self.run.parent is not None and isinstance(error, WickError)  # the parent's model reads it
            shown = None if is_handled else error
            logger.warning("run %s of the agent %s failed: %s", self.run.id, self._agent.name, error, exc_info=shown)


class _EventQueue:
    """A queue of unread events. It does not refer to the run, to avoid a reference cycle."""

    def __init__(self, above: Emit | None) -> None:
        self.waiting: deque[Event] = deque()
        self._parent_emit = above
        self._reader: asyncio.Future[None] | None = None  # set when an event arrives

    def put(self, event: Event) -> None:
        self.waiting.append(event)  # first, because the other callback may raise
        self.wake()
        if self._parent_emit is not None:
            self._parent_emit(event)

    def wake(self, *_: object) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def wait(self) -> None:
        self._reader = asyncio.get_running_loop().create_future()
        await self._reader


def _find_parent(given: Run | None, found: Run | None) -> Run | None:
    """Return the parent of a new run: the run whose tool starts it, or a descendant given as `parent=`.

    An agent started by a tool obeys the guards of the tool's run, with or without `parent=`.
    """
    if given is None or found is None:
        return given or found
    above: Run | None = given
    while above is not None and above.id != found.id:
        above = above.parent
    if above is None:
        raise ConfigError(f"an agent that a tool of run {found.id} starts is its child; leave out parent=")
    return given


def _as_capability(output_type: Any) -> StructuredOutput[Any] | None:
    """Return the capability that validates answers of a type, or None for texts."""
    if output_type is None or output_type is str:
        return None
    if isinstance(output_type, StructuredOutput):
        return output_type
    return StructuredOutput(output_type)


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _as_messages(input: Input) -> list[Message]:
    if input is None or isinstance(input, str):
        return [user(input)] if input else []
    if isinstance(input, Mapping) and "role" not in input and "messages" in input:
        raise MessageError('a run is given the list of messages itself, not a dict with them: run(state["messages"])')
    items = [input] if isinstance(input, Message | Mapping) else input
    if not isinstance(items, list | tuple | Messages):
        raise MessageError(f"a run is given a text, a message or a list of messages, not {input!r}")
    return [*Messages(items if isinstance(items, Messages) else read_message_dicts(items)).validate()]


def _as_tuple(name: str, given: Iterable[Any]) -> tuple[Any, ...]:
    if not isinstance(given, Iterable):
        raise ConfigError(f"{name}= takes a list, also of one: {name}=[{getattr(given, '__name__', '…')}]")
    return tuple(given)


def _check_not_plugin(group: str, item: object) -> None:
    """Raise a ConfigError that has the import, if an item is the name of a plugin's tool or hook."""
    if isinstance(item, str):
        from wick._internal.plugins import find_plugin  # imported late, as only a mistake needs it

        if (plugin := find_plugin(group, item)) is not None:
            module, _, name = plugin.entry.value.partition(":")
            raise ConfigError(f"{item!r} is a name for agents.yaml; in Python: from {module} import {name}")


def _check_parts(hooks: Iterable[Hook | Capability]) -> None:
    for item in hooks:
        if not isinstance(item, Hook | Capability):
            _check_not_plugin("wick.hooks", item)
            is_class = isinstance(item, type) and issubclass(item, Capability)
            hint = f", or give an instance: {item.__name__}()" if is_class else ""
            raise ConfigError(
                f"{item!r} is not a hook: decorate it with @before, @wrap, @after or @guard, "
                f"as in @guard(ToolUse){hint}"
            )
        if isinstance(item, Capability):
            check_capability(item)


def _collect_hooks(parts: Iterable[Hook | Capability]) -> tuple[Hook, ...]:
    hooks = [hook for part in parts for hook in ([part] if isinstance(part, Hook) else part.hooks())]
    _check_distinct("hooks", [part.name for part in parts])
    _check_distinct("hooks", [hook.name for hook in hooks])
    return tuple(hooks)


def _collect_tools(given: Iterable[Any], parts: Iterable[Hook | Capability]) -> list[Tool]:
    tools = list[Tool]()
    for item in given:
        if isinstance(item, Agent):
            raise ConfigError("an agent is not a tool; other agents are hooks=[Subagents(…)], from wick.capabilities")
        if isinstance(item, Hook | Capability) or (isinstance(item, type) and issubclass(item, Capability)):
            raise ConfigError(f"{getattr(item, 'name', item)} is not a tool; hooks and capabilities are hooks=[…]")
        _check_not_plugin("wick.tools", item)
        tools.append(item if isinstance(item, Tool) else tool(item))
        tools[-1].check_bound()
    return tools + [item for part in parts if isinstance(part, Capability) for item in part.tools()]


def _check_tools(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    _check_distinct("tools", [item.name for item in tools])
    described = [item.schema for item in tools]  # raises here, not during a run, if a signature is invalid
    return tuple(tools) if described else ()


def _check_distinct(what: str, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"two {what} are named {', '.join(map(repr, twice))}; give one of them another name=")


def _check_matches(hooks: Iterable[Hook], tools: Sequence[Tool], parts: Iterable[Hook | Capability]) -> None:
    """Refuse a `match` with a misspelt name, and a guard that matches no tool."""
    names = {name for tool in tools for name in tool.names}
    foreign = [name for part in parts for name in (part.tools if isinstance(part, Hook) else part.foreign_tools())]
    foreign += [name for hook in hooks for name in hook.tools]
    kinds = {*TOOL_KINDS, *(tool.kind for tool in tools if tool.kind)}
    for hook in hooks:
        wanted = parse_patterns(hook.match) if issubclass(ToolUse, hook.operation) else ()
        unmatched = [pattern for pattern in wanted if not _is_known_pattern(pattern, names, kinds, foreign)]
        invalid = [pattern for pattern in unmatched if not any(fnmatchcase(name, pattern) for name in TOOL_NAMES)]
        if hook.position == "guard" and unmatched and len(unmatched) == len(wanted):
            invalid = invalid or unmatched
        elif hook.position != "guard":  # other hooks may match no tool, unless the name is misspelt
            invalid = [
                pattern for pattern in invalid if hook.operation is ToolUse and _closest_names(pattern, names, kinds)
            ]
        if invalid:
            kind_of_hook = "guard" if hook.position == "guard" else f"{hook.position} hook"
            problem = _describe_unmatched(invalid, names, kinds, tools)
            raise ConfigError(f"the {kind_of_hook} {hook.name!r} is for {problem}")


def _is_known_pattern(pattern: str, names: set[str], kinds: set[str], foreign: Iterable[str]) -> bool:
    """Return True if a pattern of a match fits a tool of this agent, a kind of tools, or a declared dynamic tool."""
    if pattern.startswith("kind:"):
        return any(fnmatchcase(kind, pattern.removeprefix("kind:")) for kind in kinds)
    if pattern.partition(":")[0] in ATTRIBUTES:  # `effect` is checked already; private sources have any name
        return True
    if any(fnmatchcase(name, pattern) for name in names):
        return True
    if is_plain_name(pattern):
        return any(fnmatchcase(pattern, other) for other in foreign)
    start = _literal_prefix(pattern)
    return any(
        start.startswith(_literal_prefix(other)) or _literal_prefix(other).startswith(start) for other in foreign
    )


def _literal_prefix(pattern: str) -> str:
    """Return the part of a pattern before its first wildcard."""
    return re.split(r"[*?\[]", pattern, maxsplit=1)[0]


def _closest_names(pattern: str, names: set[str], kinds: set[str]) -> list[str]:
    """Return the name or kind that is most similar to a pattern."""
    return get_close_matches(pattern, [*sorted(names), *(f"kind:{kind}" for kind in sorted(kinds))], n=1)


def _describe_unmatched(patterns: Sequence[str], names: set[str], kinds: set[str], tools: Sequence[Tool]) -> str:
    if patterns[0].startswith("kind:"):
        known, problem = f"the kinds are {', '.join(sorted(kinds))}", "there is no such kind of tools"
    else:
        known = f"the tools are {', '.join(tool.name for tool in tools) or '(none)'}"
        problem = "there is no such tool" if is_plain_name(patterns[0]) else "no tool of this agent fits it"
    close = _closest_names(patterns[0], names, kinds)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"{' or '.join(map(repr, patterns))}, but {problem}; {known}{hint}"


def _child_emitter(parent: Run, emit: Emit | None) -> Emit | None:
    """Return the emitter of a child run: its parent's, without terminal events."""
    above = parent.emitter
    if emit is not None or above is None:
        return emit
    return lambda event: None if event.terminal else above(event)
