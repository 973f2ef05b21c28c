"""Recipes: prompts in Markdown files, with hooks that name handlers of the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from inspect import isawaitable
from pathlib import Path
from typing import Any

from wick._internal.frozen import thaw
from wick._internal.worker_threads import run_in_thread
from wick.capabilities._child_agents.runs import OWN_ANSWER
from wick.capabilities.recipes.files import EVENTS, Recipe, RecipeHook, find_recipe
from wick.capability import Capability
from wick.decisions import Block, Continue, Decision
from wick.errors import ConfigError, HookError
from wick.hook_programs import kodelet
from wick.hook_programs.agreements import has_agreed, record_agreement, screen_messages
from wick.hooks import after, before, guard
from wick.messages import Message, TextPart, user
from wick.operations import ModelCall, Operation, Run, Step, ToolUse
from wick.tools import Tool

DIRS = (".wick/recipes",)
KEY = "recipe"  # of `thread.values`: the recipe of the current or interrupted run
FIRST = 90.0  # outside of hook programs: they see the rendered input
LAST_IN = -90.0  # handlers run after hook programs: inside on the way in, outside on the way out
LAST_OUT = 90.0
_TURNS = object()  # key of `run.scratch`: the answers of the run so far


class Recipes(Capability):
    """Starts runs from a recipe: `agent.run("…", recipe="review")` sends the text of `review.md`.

    The first of `dirs` with the file wins. `handlers` can be named by hooks of a recipe, in addition to `swap_context`.
    A handler is an object with a method per event, a map of events to functions, or one function for all events. It
    gets the event's payload and the run. A file can only name handlers, not define them.
    """

    def __init__(
        self, dirs: str | Path | Sequence[str | Path] = DIRS, *, handlers: Mapping[str, Any] | None = None
    ) -> None:
        given = [dirs] if isinstance(dirs, str | Path) else [*dirs]
        self.dirs = tuple(Path(folder).expanduser().absolute() for folder in given)
        self.handlers = {"swap_context": SwapContext(), **(handlers or {})}
        for name, handler in self.handlers.items():
            if not any(_find_function(handler, event) for event in EVENTS):
                raise ConfigError(f"Recipes: the handler {name!r} has no method for any of {', '.join(EVENTS)}")

    def instruction_paths(self) -> Sequence[str]:
        """Return its folders: a text in them is sent as a message of the user."""
        return [str(folder) for folder in self.dirs]

    # -- the text --

    @before(Run, priority=FIRST)
    async def fill(self, run: Run) -> None:
        """Render the recipe into the input. A resumed run keeps the recipe that it started with."""
        stored = run.thread.values.get(KEY, "")
        if run.resumed and run.recipe not in ("", stored):
            raise ConfigError(f"run {run.id} was started with the recipe {stored!r}; resume it without recipe=")
        name = stored if run.resumed else run.recipe
        if name:
            recipe = await run_in_thread(lambda: find_recipe(name, self.dirs), "recipe")
            for event, watcher in recipe.hooks.items():
                self._check_handler(recipe, event, watcher)
            run.scratch[self], run.scratch[kodelet.RECIPE] = recipe, name
            if run.input or not run.resumed:  # a resumed run has the text already, unless it never started
                earlier, last = [*run.input], user("")
                if run.input and run.input[-1].role == "user":
                    last = earlier.pop()
                text, content = recipe.render(last.text), last.content
                media = () if isinstance(content, str) else tuple(p for p in content if not isinstance(p, TextPart))
                run.input = [*earlier, replace(last, content=(TextPart(text), *media) if media else text)]
        if name != stored and not run.thread.busy:
            run.thread.values[KEY] = name

    # -- compaction --

    @before(ModelCall, priority=FIRST)
    def shorten(self, call: ModelCall) -> None:
        """Replace compacted messages of the request by their summary, unless other hooks changed them."""
        thread = call.run.thread
        if call.purpose or thread.compacted is None:
            return
        count = thread.compacted["replaces"]
        compacted = call.messages[:count]
        if [id(message) for message in compacted] != [id(message) for message in thread.messages[:count]]:
            return
        system = [message for message in compacted if message.role == "system"]
        call.messages = [*system, Message.from_json(thaw(thread.compacted["summary"])), *call.messages[count:]]

    # -- the tools --

    @before(ModelCall, priority=LAST_IN, inherit=True)
    def offer_allowed(self, call: ModelCall) -> None:
        """Remove tools from the request that the recipe does not allow."""
        if (allowed := self._find_allowed_tools(call)) is not None:
            call.tools = [tool for tool in call.tools if _is_allowed(tool, allowed)]

    @guard(ToolUse)
    def use_allowed(self, use: ToolUse) -> Block | None:
        """Block a tool that the recipe of the root run does not allow; this includes children."""
        allowed = self._find_allowed_tools(use)
        if allowed is None or (use.tool is not None and _is_allowed(use.tool, allowed)):
            return None
        names = ", ".join(sorted(allowed)) or "none"
        return Block(f"the recipe {use.run.root.scratch[self].name!r} allows no {use.call.name}; its tools are {names}")

    def _find_allowed_tools(self, op: Operation[Any]) -> frozenset[str] | None:
        recipe = op.run.root.scratch.get(self)
        return None if recipe is None or recipe.tools is None else frozenset(recipe.tools)

    # -- the five events --

    @before(Run, priority=LAST_IN)
    async def user_message_send(self, run: Run) -> Block | None:
        if self._find_hook(run, "user_message_send") is None:
            return None
        screen_messages(  # for messages that arrive during the run
            run, self, self.name, lambda message: self._decide(run.fork(input=[message]), "user_message_send")
        )
        verdict = await self._decide(run, "user_message_send")
        if verdict is None:
            record_agreement(run, self)
        return verdict

    @guard(Run)
    async def user_message_send_again(self, run: Run) -> Block | None:
        """Call the handler again if the input changed after it."""
        if self._find_hook(run, "user_message_send") is None or has_agreed(run, self):
            return None
        return await self._decide(run, "user_message_send")

    @before(ToolUse, priority=LAST_IN, inherit=True)
    async def before_tool_call(self, use: ToolUse) -> Block | None:
        verdict = await self._decide(use, "before_tool_call")
        if verdict is None and self._find_hook(use, "before_tool_call") is not None:
            record_agreement(use, self)
        return verdict

    @guard(ToolUse)
    async def before_tool_call_again(self, use: ToolUse) -> Block | None:
        """Call the handler again if the call changed after it."""
        if self._find_hook(use, "before_tool_call") is None or has_agreed(use, self):
            return None
        copy = use.fork()
        verdict = await self._decide(copy, "before_tool_call")
        if verdict is None and copy.args != use.args:
            return Block("a handler of the recipe wants to change a call that other hooks have changed after it")
        return verdict

    @after(ToolUse, priority=LAST_OUT, inherit=True, on_error="log")
    async def after_tool_call(self, use: ToolUse) -> None:
        await self._call_handler(use, "after_tool_call")

    @after(Step, priority=LAST_OUT, on_error="log")
    async def turn_end(self, step: Step) -> None:
        await self._call_handler(step, "turn_end")

    @after(Step, priority=LAST_OUT + 1, on_error="log")
    async def agent_stop(self, step: Step) -> Continue | None:
        verdict = await self._call_handler(step, "agent_stop")
        return verdict if isinstance(verdict, Continue) else None

    # -- handlers --

    async def _decide(self, op: Operation[Any], event: str) -> Block | None:
        """Return the handler's Block; a failing handler also blocks."""
        try:
            verdict = await self._call_handler(op, event)
        except Exception as error:
            return Block(f"a handler of the recipe failed, so it has not agreed: {type(error).__name__}: {error}")
        return verdict if isinstance(verdict, Block) else None

    async def _call_handler(self, op: Operation[Any], event: str) -> Decision | None:
        """Call the handler of an event, and apply its answer."""
        watcher, language = self._find_hook(op, event), kodelet.KodeletEvent(event)
        if watcher is None or not language.matches(op):
            return None
        function = _find_function(self.handlers[watcher.handler], event)
        assert function is not None  # `_check_handler` has refused such a recipe
        answer = function(language.build_payload(op, str(Path.cwd())), op.run)
        answer = await answer if isawaitable(answer) else answer
        if answer is not None and not isinstance(answer, Mapping):
            raise HookError(f"the handler {watcher.handler} answers a dict or nothing, not {answer!r}")
        return language.apply_answer(dict(answer or {}), op)

    def _find_hook(self, op: Operation[Any], event: str) -> RecipeHook | None:
        """Return the recipe's hook for an event on this turn, or None; tool events of children are included."""
        recipe = (op.run.root if isinstance(op, ToolUse) else op.run).scratch.get(self)
        watcher = recipe.hooks.get(event) if recipe is not None else None
        run, thread = op.run.root, op.run.root.thread
        has_started = thread.open_run is not None and thread.open_run["run"] == run.id
        if watcher is None or not watcher.once or not has_started:
            return watcher
        turns: _TurnCounter = run.scratch.setdefault(_TURNS, _TurnCounter(thread.output_from))
        answer = turns.count(thread.messages) + (0 if isinstance(op, Step) else 1)  # counted from 1
        return watcher if answer <= 1 else None

    def _check_handler(self, recipe: Recipe, event: str, watcher: RecipeHook) -> None:
        """Raise a ConfigError if the handler is unknown or does not support this event."""
        name = watcher.handler
        if name not in self.handlers:
            close = get_close_matches(name, self.handlers, n=1)
            hint = f"did you mean {close[0]}?" if close else f"the handlers are {', '.join(self.handlers)}"
            raise ConfigError(f"the recipe {recipe.name!r} names the handler {name!r}, which is not there; {hint}")
        if _find_function(self.handlers[name], event) is None:
            raise ConfigError(f"the recipe {recipe.name!r} names {name!r} for {event}, which it is not for")


class SwapContext:
    """The handler `swap_context`: compacts the conversation to the model's last reply."""

    def turn_end(self, payload: Mapping[str, Any], run: Run) -> None:
        thread = run.thread
        text = f"What came of the conversation so far, in place of its messages:\n\n{payload['response']}"
        since = 0 if thread.compacted is None else thread.compacted["replaces"]
        entry = {"replaces": len(thread.messages), "from": since, "run": run.id}
        thread.append("compaction", {**entry, "summary": Message("user", text, name=Recipes.name).to_json()})
        run.record("swapped", messages=len(thread.messages) - since)


def _find_function(handler: Any, event: str) -> Callable[..., Any] | None:
    """Return the handler's function for an event, or None."""
    if isinstance(handler, Mapping):
        return handler.get(event)
    method = getattr(handler, event, None)
    return method if callable(method) else handler if callable(handler) else None


def _is_allowed(tool: Tool, allowed: frozenset[str]) -> bool:
    """Return True if a recipe allows a tool; tools that accept the final answer are always allowed."""
    return tool.kind == OWN_ANSWER or not allowed.isdisjoint(tool.names)


@dataclass(slots=True)
class _TurnCounter:
    """An incremental count of the answers of one run."""

    read: int
    answers: int = 0

    def count(self, messages: Sequence[Message]) -> int:
        new = (messages[index] for index in range(self.read, len(messages)))
        self.answers += sum(m.role == "assistant" and bool(m.text) and not m.tool_calls for m in new)
        self.read = max(self.read, len(messages))
        return self.answers
