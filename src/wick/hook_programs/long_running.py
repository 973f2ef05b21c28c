"""A program as hooks, whatever it speaks and however it is reached.

    hooks(found, Plain("before_tool_use"), ask, cwd="/srv/app", timeout=30)

`ask` takes what the program is told and gives its answer, or raises `Unfit` with the rest of a sentence about it. A
program that decides about a tool or a prompt stands twice: before it, where it may change it, and at the gate, where it
is asked again if what will be done is not what it has agreed to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from wick.decisions import Block, Continue, Decision, Stop
from wick.hook_programs import wick_protocol
from wick.hook_programs.agreements import agreed, exactly, remember, screen
from wick.hook_programs.answers import Unfit
from wick.hook_programs.failure_policy import decides, failed
from wick.hook_programs.registry import Found
from wick.hooks import Hook, Next, compile_match
from wick.messages import Message
from wick.operations import OPERATIONS, ModelCall, Operation, Run, ToolUse

Json = dict[str, Any]
Ask = Callable[[Json], Awaitable[Json]]

BY_NAME = {operation.name: operation for operation in OPERATIONS}
SPARE_SECONDS = 15.0  # beyond a program's own time limit, which ends it with a better sentence


class Language(Protocol):
    """What a program is told at one event, and what its answers mean."""

    @property
    def event(self) -> str:
        """The event, as the program calls it."""

    @property
    def point(self) -> str:
        """wick's name of the point where it stands."""

    def concerns(self, op: Operation[Any]) -> bool:
        """Whether this operation is such an event."""

    def tell(self, op: Operation[Any], cwd: str, phase: str = "") -> Json:
        """What the program is told."""

    def tell_message(self, run: Run, message: Message, cwd: str) -> Json:
        """What it is told of a message that comes while a run goes on."""

    def hear(self, answer: Json, op: Operation[Any]) -> Decision | None:
        """Its decision, with its changes made to the operation; `Unfit` if it is none."""


class Plain:
    """wick's own points, as `wick.hook_programs.wick_protocol` has them."""

    def __init__(self, point: str) -> None:
        self.event = self.point = point

    def concerns(self, op: Operation[Any]) -> bool:
        return True

    def tell(self, op: Operation[Any], cwd: str, phase: str = "") -> Json:
        return wick_protocol.payload(op, self.point, cwd=cwd, phase=phase)

    def tell_message(self, run: Run, message: Message, cwd: str) -> Json:
        return {**self.tell(run, cwd), "input": wick_protocol.spoken([message])}

    def hear(self, answer: Json, op: Operation[Any]) -> Decision | None:
        return wick_protocol.read(answer, self.point, op)


def hooks(found: Found, language: Language, ask: Ask, *, cwd: str, timeout: float) -> list[Hook]:
    """The hooks that a program is."""
    return Program(found, language, ask, cwd=cwd, timeout=timeout).hooks()


class Program:
    """A program at one event."""

    def __init__(self, found: Found, language: Language, ask: Ask, *, cwd: str, timeout: float) -> None:
        self.found, self.language, self._ask, self.cwd = found, language, ask, cwd
        self.timeout = timeout + SPARE_SECONDS
        self.key = f"{found.name}@{language.event}"  # what it says at one event it has not said at another
        self.position, _, name = language.point.partition("_")
        self.operation = BY_NAME[name]
        # A predicate: a program of the user's stands also in agents that do not have the tool it is for.
        self.match = compile_match(found.match) if found.match is not None else None
        self.deciding = decides(language.event) or decides(language.point)

    def hooks(self) -> list[Hook]:
        if self.position == "guard":
            return [*self._screening(), self._hook("guard", self.check)]
        if self.position == "before":
            twice = issubclass(self.operation, Run | ToolUse)
            return [self._hook("before", self.look), *([self._hook("guard", self.check)] if twice else [])]
        if self.position == "wrap":
            return [self._hook("wrap", self.around)]
        return [self._hook("after", self.review)]

    def _hook(self, position: Any, fn: Any) -> Hook:
        inherit = position in ("before", "after")
        streams = position == "after" and issubclass(self.operation, ModelCall | ToolUse)
        return Hook(
            fn,
            self.operation,
            position,
            name=self._name(position),
            match=self.match,
            timeout=self.timeout * 2 if position == "guard" else None,
            inherit=inherit,
            hold=streams and self.found.fail == "closed",  # who must have seen it sees it first
        )

    def _name(self, position: str) -> str:
        """`check@before_tool_use`; of a program with several events also which of them, where that is not the same."""
        point, event = f"{position}_{self.operation.name}", self.language.event
        several = len(self.found.points) > 1 and event != point
        return f"{self.found.name}@{point}{f'({event})' if several else ''}"

    def _screening(self) -> list[Hook]:
        """A guard of runs also looks at what is said while one goes on; it begins to when the run does."""
        if self.operation is not Run:
            return []
        return [Hook(self.listen, Run, "before", name=self._name("before"), match=self.match, inherit=True)]

    # -- asking -----------------------------------------------------------------------------------------------------

    async def ask(self, told: Json) -> Json:
        """The program's answer; what is wrong with it or its file is `Unfit`."""
        if problem := self.found.problem or self.found.check():
            raise Unfit(problem)
        answer = await self._ask(told)
        for name in ("event", "run", "conv_id", "call_id", "tool_user_id"):
            if name in answer and answer[name] != told.get(name):
                raise Unfit("answered for another call")
        return {name: value for name, value in answer.items() if name not in _ECHOES}

    async def _decision(self, op: Operation[Any], phase: str = "") -> Decision | None:
        return self.language.hear(await self.ask(self.language.tell(op, self.cwd, phase)), op)

    def _failed(self, op: Operation[Any], problem: Unfit) -> Block | None:
        return failed(op.run, self.found.name, str(problem), self.found.fail, self.deciding)

    # -- the hooks --------------------------------------------------------------------------------------------------

    async def look(self, op: Operation[Any]) -> Any:
        """Before: it may change the operation, or decide about it."""
        if isinstance(op, Run):
            self.listen(op)
        if not self.language.concerns(op):
            return None
        mark = op.snapshot()
        try:
            decision = await self._decision(op)
        except Unfit as problem:
            op.restore(mark)
            decision = self._failed(op, problem)
        if not isinstance(decision, Block | Stop):
            remember(op, self)
        return decision

    async def check(self, sealed: Operation[Any]) -> Any:
        """At the gate: it is asked about what will be done, unless it has agreed to exactly that."""
        if not self.language.concerns(sealed) or agreed(sealed, self):
            return None
        copy = sealed.fork()
        try:
            decision = await self._decision(copy)
        except Unfit as problem:
            decision = self._failed(sealed, problem)
        if isinstance(decision, Block | Stop) or exactly(copy) == exactly(sealed):
            return decision
        return Block(
            f"the hook program {self.found.name} wants to change what was changed after it had looked, "
            "so it has not agreed; let it stand further in"
        )

    async def review(self, op: Operation[Any]) -> Any:
        """After: it may change the result, or decide what it means."""
        if not self.language.concerns(op):
            return None
        try:
            return await self._decision(op)
        except Unfit as problem:
            return self._failed(op, problem)

    async def around(self, op: Operation[Any], next: Next[Any]) -> Any:
        """Around: asked before, where a result stands for the operation, and again after."""
        mark = op.snapshot()
        try:
            decision = await self._decision(op, "before")
        except Unfit as problem:
            op.restore(mark)
            decision = self._failed(op, problem)
        if decision is not None or op.result is not None:
            return op.result if decision is None else decision
        inner = op.fork()
        inner.result = await next(op)
        try:
            decision = await self._decision(inner, "after")
        except Unfit as problem:
            decision = self._failed(op, problem)
        return inner.result if decision is None or isinstance(decision, Continue) else decision

    def listen(self, run: Run) -> None:
        """Have what is said while the run goes on looked at as its input was."""
        screen(run, self, self.key, lambda message: self._welcomes(run, message))

    async def _welcomes(self, run: Run, message: Message) -> Block | None:
        copy = run.fork(input=[message])
        if not self.language.concerns(copy):
            return None
        try:
            answer = await self.ask(self.language.tell_message(run, message, self.cwd))
            decision = self.language.hear(answer, copy)
        except Unfit as problem:
            return self._failed(run, problem)
        if decision is not None:
            return Block(
                getattr(decision, "reason", "") or "it needs the user's agreement, and nobody can be asked here"
            )
        if exactly(copy) != exactly(run.fork(input=[message])):
            return Block("it wants to change what was said, which is not possible while a run goes on")
        return None


_ECHOES = frozenset(("run", "conv_id", "call_id", "tool_user_id", "event"))
