"""A program as hooks, independent of its protocol and its transport.

    build_hooks(found, WickLanguage("before_tool_use"), ask, cwd="/srv/app", timeout=30)

`ask` sends a payload and returns the answer, or raises `InvalidAnswer`. A program that decides about a tool or a
prompt has two hooks: one before the operation, where it may change it, and a guard at the gate. The guard asks again
if the sealed operation is not the one that the program has agreed to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from wick.decisions import Block, Continue, Decision, Stop
from wick.hook_programs import wick_protocol
from wick.hook_programs.agreements import fingerprint, has_agreed, record_agreement, screen_messages
from wick.hook_programs.answers import InvalidAnswer
from wick.hook_programs.failure_policy import decides, handle_failure
from wick.hook_programs.registry import HookProgram
from wick.hooks import Hook, Next, compile_match
from wick.messages import Message
from wick.operations import OPERATIONS, ModelCall, Operation, Run, ToolUse

Json = dict[str, Any]
Ask = Callable[[Json], Awaitable[Json]]

BY_NAME = {operation.operation_name: operation for operation in OPERATIONS}
SPARE_SECONDS = 15.0  # added to the program's own time limit, which has a better error message


class Language(Protocol):
    """Payloads and answers of one event."""

    @property
    def event(self) -> str:
        """The program's name of the event."""

    @property
    def point(self) -> str:
        """wick's name of the hook point."""

    def matches(self, op: Operation[Any]) -> bool:
        """Whether this operation is such an event."""

    def build_payload(self, op: Operation[Any], cwd: str, phase: str = "") -> Json:
        """Return the payload for an operation."""

    def build_message_payload(self, run: Run, message: Message, cwd: str) -> Json:
        """Return the payload for a message that arrives during a run."""

    def apply_answer(self, answer: Json, op: Operation[Any]) -> Decision | None:
        """Apply the changes of an answer and return its decision; raise `InvalidAnswer` if it is invalid."""


class WickLanguage:
    """wick's own points, as `wick.hook_programs.wick_protocol` defines them."""

    def __init__(self, point: str) -> None:
        self.event = self.point = point

    def matches(self, op: Operation[Any]) -> bool:
        return True

    def build_payload(self, op: Operation[Any], cwd: str, phase: str = "") -> Json:
        return wick_protocol.build_payload(op, self.point, cwd=cwd, phase=phase)

    def build_message_payload(self, run: Run, message: Message, cwd: str) -> Json:
        return {**self.build_payload(run, cwd), "input": wick_protocol.format_messages([message])}

    def apply_answer(self, answer: Json, op: Operation[Any]) -> Decision | None:
        return wick_protocol.apply_answer(answer, self.point, op)


def build_hooks(program: HookProgram, language: Language, ask: Ask, *, cwd: str, timeout: float) -> list[Hook]:
    """Return the hooks of a program at one event."""
    return HookedProgram(program, language, ask, cwd=cwd, timeout=timeout).hooks()


class HookedProgram:
    """A program at one event."""

    def __init__(self, program: HookProgram, language: Language, ask: Ask, *, cwd: str, timeout: float) -> None:
        self.program, self.language, self._ask, self.cwd = program, language, ask, cwd
        self.timeout = timeout + SPARE_SECONDS
        self.key = f"{program.name}@{language.event}"  # agreements are per event
        self.position, _, name = language.point.partition("_")
        self.operation = BY_NAME[name]
        # A predicate, since a program of the user runs also in agents without the tool that it matches.
        self.match = compile_match(program.match) if program.match is not None else None
        self.deciding = decides(language.event) or decides(language.point)

    def hooks(self) -> list[Hook]:
        if self.position == "guard":
            guard = self._hook("guard", self.run_guard)
            if self.operation is not Run:
                return [guard]
            name = self._hook_name("before")
            screen = Hook(self.screen_inbox, Run, "before", name=name, match=self.match, inherit=True)
            return [screen, guard]
        if self.position == "before":
            twice = issubclass(self.operation, Run | ToolUse)
            return [self._hook("before", self.run_before), *([self._hook("guard", self.run_guard)] if twice else [])]
        if self.position == "wrap":
            return [self._hook("wrap", self.run_wrap)]
        return [self._hook("after", self.run_after)]

    def _hook(self, position: Any, fn: Any) -> Hook:
        inherit = position in ("before", "after")
        streams = position == "after" and issubclass(self.operation, ModelCall | ToolUse)
        return Hook(
            fn,
            self.operation,
            position,
            name=self._hook_name(position),
            match=self.match,
            timeout=self.timeout * 2 if position == "guard" else None,
            inherit=inherit,
            hold=streams and self.program.fail == "closed",  # the result must pass the program before it is streamed
        )

    def _hook_name(self, position: str) -> str:
        """Return a name such as `check@before_tool_use`, with the event if a program has several."""
        point, event = f"{position}_{self.operation.operation_name}", self.language.event
        several = len(self.program.points) > 1 and event != point
        return f"{self.program.name}@{point}{f'({event})' if several else ''}"

    # -- asking -----------------------------------------------------------------------------------------------------

    async def ask(self, payload: Json) -> Json:
        """Return the program's answer; raise `InvalidAnswer` for a problem of the answer or the file."""
        if problem := self.program.problem or self.program.check():
            raise InvalidAnswer(problem)
        answer = await self._ask(payload)
        for name in ("event", "run", "conv_id", "call_id", "tool_user_id"):
            if name in answer and answer[name] != payload.get(name):
                raise InvalidAnswer("answered for another call")
        return {name: value for name, value in answer.items() if name not in _ECHOES}

    async def _request_decision(self, op: Operation[Any], phase: str = "") -> Decision | None:
        return self.language.apply_answer(await self.ask(self.language.build_payload(op, self.cwd, phase)), op)

    def _handle_failure(self, op: Operation[Any], problem: InvalidAnswer) -> Block | None:
        return handle_failure(op.run, self.program.name, str(problem), self.program.fail, self.deciding)

    # -- the hooks --------------------------------------------------------------------------------------------------

    async def run_before(self, op: Operation[Any]) -> Any:
        """Run the program before the operation, which it may change or decide about."""
        if isinstance(op, Run):
            self.screen_inbox(op)
        if not self.language.matches(op):
            return None
        mark = op.snapshot()
        try:
            decision = await self._request_decision(op)
        except InvalidAnswer as problem:
            op.restore(mark)
            decision = self._handle_failure(op, problem)
        if not isinstance(decision, Block | Stop):
            record_agreement(op, self)
        return decision

    async def run_guard(self, sealed: Operation[Any]) -> Any:
        """Run the program at the gate, unless it has agreed to exactly the sealed operation."""
        if not self.language.matches(sealed) or has_agreed(sealed, self):
            return None
        copy = sealed.fork()
        try:
            decision = await self._request_decision(copy)
        except InvalidAnswer as problem:
            decision = self._handle_failure(sealed, problem)
        if isinstance(decision, Block | Stop) or fingerprint(copy) == fingerprint(sealed):
            return decision
        return Block(
            f"the hook program {self.program.name} wants to change what was changed after it had looked, "
            "so it has not agreed; let it stand further in"
        )

    async def run_after(self, op: Operation[Any]) -> Any:
        """Run the program after the operation, whose result it may change."""
        if not self.language.matches(op):
            return None
        try:
            return await self._request_decision(op)
        except InvalidAnswer as problem:
            return self._handle_failure(op, problem)

    async def run_wrap(self, op: Operation[Any], next: Next[Any]) -> Any:
        """Run the program before and after the operation. A result given before replaces the operation."""
        mark = op.snapshot()
        try:
            decision = await self._request_decision(op, "before")
        except InvalidAnswer as problem:
            op.restore(mark)
            decision = self._handle_failure(op, problem)
        if decision is not None or op.result is not None:
            return op.result if decision is None else decision
        inner = op.fork()
        inner.result = await next(op)
        try:
            decision = await self._request_decision(inner, "after")
        except InvalidAnswer as problem:
            decision = self._handle_failure(op, problem)
        return inner.result if decision is None or isinstance(decision, Continue) else decision

    def screen_inbox(self, run: Run) -> None:
        """Screen the messages that arrive during the run like its input."""

        async def screen(message: Message) -> Block | None:
            copy = run.fork(input=[message])
            if not self.language.matches(copy):
                return None
            try:
                answer = await self.ask(self.language.build_message_payload(run, message, self.cwd))
                decision = self.language.apply_answer(answer, copy)
            except InvalidAnswer as problem:
                return self._handle_failure(run, problem)
            if decision is not None:
                reason = getattr(decision, "reason", "")
                return Block(reason or "it needs the user's agreement, which cannot be requested here")
            if fingerprint(copy) != fingerprint(run.fork(input=[message])):
                return Block("it wants to change a message, which is not possible during a run")
            return None

        screen_messages(run, self, self.key, screen)


_ECHOES = frozenset(("run", "conv_id", "call_id", "tool_user_id", "event"))
