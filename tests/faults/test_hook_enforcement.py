"""S4: hooks are enforced. A failing hook denies, any deny wins, and the executed operation is the decided one.

Everything here is real: agents with a tool that leaves a trace when it runs and a model that counts its questions.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import permutations, product
from pathlib import Path
from typing import Any

import pytest

from faults.tally import FULL, Tally, Violated
from faults.thread_validity import valid
from kit import ScriptedUser, tool_call, tool_calls_reply
from programs import Programs
from wick import (
    Agent,
    Allow,
    Ask,
    Block,
    FunctionModel,
    Hook,
    Message,
    ModelCall,
    Run,
    Step,
    Stop,
    Thread,
    ToolResult,
    ToolUse,
    after,
    assistant,
    before,
    guard,
    onion,
    tool,
    wrap,
)
from wick.errors import Sealed
from wick.hook_checks import Position
from wick.operations import Operation
from wick.protocols import Request

SECRET = "the-secret-that-no-user-may-see"


@dataclass
class World:
    """Executed effects: each tool use with its arguments, each model request."""

    used: list[dict[str, Any]] = field(default_factory=list)
    asked: int = 0
    thread: Thread = field(default_factory=Thread)
    error: BaseException | None = None

    def agent(self, *hooks: Any, args: dict[str, Any] | None = None, **options: Any) -> Agent:
        """An agent that uses its tool once and ends."""

        @tool
        async def act(text: str, plan: dict[str, Any] | None = None, times: int = 1) -> str:
            """Do something that shows."""
            self.used.append(_plain({"text": text, "plan": plan, "times": times}))
            return SECRET

        def reply(request: Request) -> Message:
            self.asked += 1
            again = request.messages[-1].role == "tool"
            return assistant("bye") if again else tool_calls_reply(tool_call("act", **(args or {"text": "hi"})))

        return Agent(FunctionModel(reply), tools=[act], hooks=hooks, **options)

    async def go(self, *hooks: Any, **options: Any) -> World:
        try:
            async with asyncio.timeout(60) as limit:
                await self.agent(*hooks, **options).run("go", thread=self.thread)
        except Exception as error:
            if limit.expired():
                raise
            self.error = error
        return self

    @property
    def told(self) -> str:
        """Return all text that the model and the user received."""
        return " ".join(message.text for message in self.thread.messages)


def _plain(data: Any) -> Any:
    return json.loads(json.dumps(data, default=dict))


# -- a failing hook denies ------------------------------------------------------------------------------------------

OPERATIONS: tuple[type[Operation[Any]], ...] = (Run, Step, ModelCall, ToolUse)
GATES = [(position, operation) for position in ("before", "wrap", "guard") for operation in OPERATIONS]


class Unspeakable(Exception):
    """An error that cannot even be put into words."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def _raises(error: BaseException | type[BaseException]) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


def _recurse() -> Any:
    return _recurse()


async def _never() -> Any:
    await asyncio.Event().wait()


async def _stubborn() -> Any:
    """Does not take the hint that its time is over, at first."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.sleep(0.01)


async def _late_fault() -> Any:
    await asyncio.sleep(0.001)
    raise OSError("the disk is gone")


async def _coroutine_of_coroutine() -> Any:
    return _never


# Behaviour of a hook; no return value in here is a decision.
FAILURES: dict[str, Callable[[], Any]] = {
    "raises": _raises(RuntimeError("broken")),
    "misses a key": _raises(KeyError("table")),
    "asserts": _raises(AssertionError("no")),
    "stops iterating": _raises(StopIteration("x")),
    "stops iterating, asynchronously": _raises(StopAsyncIteration("x")),
    "times out by itself": _raises(TimeoutError("late")),
    "cannot connect": _raises(ConnectionRefusedError("policy server")),
    "lacks memory": _raises(MemoryError()),
    "lacks stack": _recurse,
    "has no words": _raises(Unspeakable()),
    "raises many": _raises(ExceptionGroup("both", [ValueError("a"), OSError("b")])),
    "cancels itself": _raises(asyncio.CancelledError()),
    "says it is half": _raises(EOFError()),
    "fails after a while": _late_fault,
    "never answers": _never,
    "never answers, and does not leave": _stubborn,
    "answers a text": lambda: "yes",
    "answers True": lambda: True,
    "answers False": lambda: False,
    "answers 0": lambda: 0,
    "answers a dict": lambda: {"decision": "allow"},
    "answers a list": list,
    "answers the class": lambda: Block,
    "answers an error": lambda: RuntimeError("not raised"),
    "answers an Allow": lambda: Allow(),
    "answers a function": _coroutine_of_coroutine,
}
HARD: dict[str, type[BaseException]] = {"exits": SystemExit, "is interrupted": KeyboardInterrupt}


def failing(position: Position, operation: type[Operation[Any]], failure: Callable[[], Any], **options: Any) -> Hook:
    """A hook there that fails so."""

    async def look(op):  # type: ignore[no-untyped-def]
        answer = failure()
        return await answer if asyncio.iscoroutine(answer) else answer

    async def around(op, next):  # type: ignore[no-untyped-def]
        return await look(op)

    given: dict[str, Any] = {"name": "the_hook", "timeout": 0.05} | options
    return Hook(around if position == "wrap" else look, operation, position, **given)


def closed(world: World, operation: type[Operation[Any]]) -> None:
    """Check that the operation was not executed."""
    assert not world.used, f"the tool ran with {world.used}"
    assert SECRET not in world.told
    if operation is not ToolUse:
        assert world.asked == 0, f"the model was asked {world.asked} times"
    if world.thread.messages:
        valid(world.thread)


async def fails_closed(chosen: Sequence[tuple[str, Position, type[Operation[Any]]]], planted: bool = False) -> None:
    with Tally("S4", "failure modes × gates", planted=planted) as tally:
        for name, position, operation in chosen:
            with tally.trying(f"{name} at {position} {operation.__name__}"):
                closed(await World().go(failing(position, operation, FAILURES[name])), operation)
        tally.note(modes=len({name for name, _, _ in chosen}), gates=len({case[1:] for case in chosen}))


def _every() -> list[tuple[str, Any, Any]]:
    """Every failure at every gate; a wrap may return a result of its own."""
    own = {"answers a text"}
    every = [(name, position, operation) for name in FAILURES for position, operation in GATES]
    return [case for case in every if not (case[1] == "wrap" and case[0] in own)]


async def test_every_failure_at_every_gate_fails_closed() -> None:
    await fails_closed(_every() if FULL else _every()[::2])


async def test_a_text_of_a_wrap_is_its_result_and_nothing_is_done() -> None:
    """A wrap may answer instead; that is a result, and no agreement."""
    for operation in (Run, ModelCall, ToolUse):
        closed(await World().go(failing("wrap", operation, FAILURES["answers a text"])), operation)


@pytest.mark.parametrize("error", HARD)
@pytest.mark.parametrize(("position", "operation"), [("before", ToolUse), ("guard", ToolUse), ("guard", ModelCall)])
def test_a_hook_that_exits_the_program_does_not_approve(error: str, position: Position, operation: Any) -> None:
    world = World()
    with pytest.raises(HARD[error]):
        asyncio.run(world.agent(failing(position, operation, _raises(HARD[error]))).run("go", thread=world.thread))
    assert not world.used


@pytest.mark.parametrize("position", ["before", "wrap", "guard"])
async def test_a_condition_that_fails_is_the_hooks_failure(position: Position) -> None:
    def broken(op: Any) -> bool:
        raise RuntimeError("which tool?")

    with Tally("S4", f"failing match conditions, {position}") as tally:
        for operation in OPERATIONS:
            with tally.trying(operation.__name__):
                hook = failing(position, operation, lambda: None, match=broken)
                closed(await World().go(hook), operation)


async def test_a_failing_after_hook_withholds_the_result() -> None:
    with Tally("S4", "failing after hooks that withhold a result") as tally:
        for name, failure in FAILURES.items():
            with tally.trying(name):
                world = await World().go(failing("after", ToolUse, failure))
                assert world.used and SECRET not in world.told


ANSWERS: dict[str, Any] = {
    "no": False,
    "a refusal": Block("no"),
    "a text": "yes",
    "a number": 1,
    "an error": RuntimeError("the line is dead"),
    "arguments that are not JSON": Allow({"text": object()}),  # type: ignore[dict-item]
    "arguments that do not fit": Allow({"text": ["no", "text"], "times": "many"}),
    "arguments too many": Allow({"text": "x", "surprise": 1}),
    "the question": lambda question: question,
    "the class": lambda question: Allow,
}


async def test_an_ask_without_approval_is_denied() -> None:
    with Tally("S4", "answers other than yes × position of the question") as tally:
        for (name, answer), position in product([*ANSWERS.items(), ("no user", None)], ("before", "wrap", "guard")):
            with tally.trying(f"{name} to a {position}"):
                asker = {} if name == "no user" else {"ask": ScriptedUser(answer)}
                hook = failing(position, ToolUse, lambda: Ask("sure?"))  # type: ignore[arg-type]
                closed(await World().go(hook, **asker), ToolUse)


# -- programs that fail ---------------------------------------------------------------------------------------------

READ = "cat >/dev/null\n"
PROGRAMS = {
    "crashes": f"{READ}exit 1",
    "exits with 2": f"{READ}exit 2",
    "is killed": "kill -9 $$",
    "prints garbage": f"{READ}echo no",
    "prints bytes": f"{READ}printf '\\377\\376'",
    "prints half": f"{READ}printf '{{\"blocked\": fal'",
    "answers twice": f"{READ}echo '{{}}'; echo '{{}}'",
    "hangs": "sleep 600",
    "prints without end": f"{READ}cat /dev/zero",
}
DECIDING = ("guard_tool_use", "before_tool_use", "before_tool_call", "guard_run", "user_message_send")


async def test_a_program_that_fails_has_not_agreed(tmp_path: Path) -> None:
    every = [*product(PROGRAMS, DECIDING)]
    with Tally("S4", "failing programs × gates") as tally:
        for number, (name, event) in enumerate(every if FULL else every[:: len(every) // 8]):
            with tally.trying(f"{name} at {event}"):
                programs = Programs(tmp_path / str(number))
                programs.sh("check", event, PROGRAMS[name])
                world = await World().go(programs.executables(timeout=0.5 if name == "hangs" else 20))
                closed(world, ToolUse if "tool" in event else Run)
                assert programs.remaining() == []


# -- any deny denies ------------------------------------------------------------------------------------------------


async def _heal(use: ToolUse, next: Any) -> Any:
    """Retry with other arguments, and finally report success."""
    for args in (None, {"text": "please"}):
        given = await next(use if args is None else use.fork(args=args))
        if not given.error:
            return given
    return ToolResult("all is well")


def _others() -> list[Hook]:
    """Hooks that allow, ask, observe, or override a denial."""
    return [
        guard(ToolUse, name="agrees")(lambda use: None),
        guard(ToolUse, name="asks")(lambda use: Ask("sure?")),
        wrap(ToolUse, name="heals")(_heal),
        after(ToolUse, name="praises")(_praise),
    ]


def _praise(use: ToolUse) -> None:
    use.result, use.error = ToolResult("done, all is well"), None


def _deniers() -> dict[str, Hook]:
    async def wrapped(use: ToolUse, next: Any) -> Any:
        return Block("no")

    return {
        "a before": before(ToolUse, name="denies")(lambda use: Block("no")),
        "a wrap": wrap(ToolUse, name="denies")(wrapped),
        "a guard": guard(ToolUse, name="denies")(lambda use: Block("no")),
        "a guard that stops": guard(ToolUse, name="denies")(lambda use: Stop("enough")),
        "a guard that fails": guard(ToolUse, name="denies")(_raises_for_use),
    }


def _raises_for_use(use: ToolUse) -> None:
    raise RuntimeError("broken")


def _orders() -> Iterator[tuple[str, list[Hook]]]:
    for name, denier in _deniers().items():
        for number, order in enumerate(permutations([denier, *_others()])):
            if FULL or number % 10 == 0:
                yield f"{name}: {', '.join(hook.name for hook in order)}", [*order]


async def any_deny_denies(planted: bool = False) -> None:
    with Tally("S4", "any deny in any order", planted=planted) as tally:
        for label, order in _orders():
            with tally.trying(label):
                world = await World().go(*order, ask=ScriptedUser(True))
                assert not world.used, f"the tool ran with {world.used}"
                valid(world.thread)


async def test_any_deny_wins_in_any_order() -> None:
    await any_deny_denies()


# -- the executed operation is the decided one ----------------------------------------------------------------------


class Meddlers:
    """Hooks that change arguments where they may, and try to where they may not."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.kept: list[dict[str, Any]] = []  # retained arguments
        self.decided: list[dict[str, Any]] = []  # as the last guard saw them

    def rewrite(self, args: dict[str, Any]) -> None:
        args["text"] = "".join(self.chance.choices("abc é\u2028'\"\\\n", k=self.chance.randrange(12)))
        args["plan"] = {"deep": [{"n": self.chance.randrange(5)}], "x" * self.chance.randrange(3): None}
        if self.chance.random() < 0.3:
            args["times"] = str(self.chance.randrange(9))  # is read as a number

    def change(self, use: ToolUse) -> None:
        self.rewrite(use.args)
        self.kept.append(use.args)

    async def copy(self, use: ToolUse, next: Any) -> Any:
        args = _plain(use.args)
        self.rewrite(args)
        self.kept.append(args)
        return await next(use.fork(args=args))

    def meddle(self, use: ToolUse) -> None:
        """A guard that writes past the seal and to retained references."""
        for args in [*self.kept, use.args]:
            with suppress(Sealed, TypeError, KeyError):  # it cannot be changed, as it should be
                args["plan"]["deep"][0]["n"] = 99
            with suppress(Sealed):
                args["text"] = "something else"
        if self.chance.random() < 0.1:
            dict.__setitem__(use.args, "text", "something else")  # past every lock

    def decide(self, use: ToolUse) -> None:
        self.decided.append(_plain({"plan": None, "times": 1} | _plain(use.args)))

    def ask(self, question: Any) -> Allow:
        if self.chance.random() < 0.5:
            return Allow()
        args: dict[str, Any] = {"text": "x"}
        self.rewrite(args)
        self.kept.append(args)
        return Allow(args)

    def hooks(self) -> list[Hook]:
        movable = [
            before(ToolUse, name="change")(self.change),
            wrap(ToolUse, name="copy")(self.copy),
            guard(ToolUse, name="meddle")(self.meddle),
        ]
        if self.chance.random() < 0.5:
            movable.append(guard(ToolUse, name="asks")(lambda use: Ask("sure?")))
        self.chance.shuffle(movable)
        return [*movable, guard(ToolUse, name="decide", priority=-1)(self.decide)]


async def done_is_decided(tries: int, planted: bool = False) -> None:
    with Tally("S4", "executed = decided", planted=planted) as tally:
        done = 0
        for number in range(tries):
            with tally.trying(f"try {number}"):
                meddlers = Meddlers(random.Random(number))
                world = await World().go(*meddlers.hooks(), ask=ScriptedUser(meddlers.ask))
                done += len(world.used)
                assert len(world.used) <= 1
                assert not world.used or world.used[0] == meddlers.decided[-1], f"{world.used} {meddlers.decided}"
        assert done > tries // 2, "next to nothing was done, so nothing was shown"
        tally.note(executed=done)


@pytest.mark.timeout(1800)
async def test_the_executed_operation_is_the_decided_one() -> None:
    await done_is_decided(5_000 if FULL else 150)


# -- planted faults -------------------------------------------------------------------------------------------------

Gate = Callable[[Hook, Operation[Any], Operation[Any]], Awaitable[Any]]


async def test_a_fail_open_gate_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Gate = onion._run_guard

    async def lenient(hook: Hook, sealed: Operation[Any], view: Operation[Any]) -> Any:
        verdict = await asked(hook, sealed, view)
        return None if isinstance(verdict, Block) and "has not agreed" in verdict.reason else verdict

    monkeypatch.setattr(onion, "_run_guard", lenient)
    with pytest.raises(Violated, match="the tool ran"):
        await fails_closed([(name, "guard", ToolUse) for name in ("raises", "never answers")], planted=True)
    with pytest.raises(Violated, match="a guard that fails"):
        await any_deny_denies(planted=True)


async def test_a_last_decision_wins_gate_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    async def last(guards: Sequence[Hook], sealed: Operation[Any]) -> Any:
        verdict = [await onion._run_guard(hook, sealed, sealed.view()) for hook in guards][-1]
        return (None, [verdict]) if isinstance(verdict, Ask) else (verdict, [])

    monkeypatch.setattr(onion, "consult_guards", last)
    with pytest.raises(Violated, match="the tool ran"):
        await any_deny_denies(planted=True)


async def test_a_mutable_seal_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Execute arguments that hooks can still change."""
    real = onion._gate

    async def unsealed(operation: Any, core: Any, op: Operation[Any]) -> Any:
        async def later(sealed: Any) -> Any:
            return await core(op.fork(args={**_plain(sealed.args), "text": "another"}).seal())

        return await real(operation, later if operation is ToolUse else core, op)

    monkeypatch.setattr(onion, "_gate", unsealed)
    with pytest.raises(Violated):
        await done_is_decided(20, planted=True)
