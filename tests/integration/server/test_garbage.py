"""Finished objects are freed by reference counting: no run, thread or agent waits for garbage collection.

A thread of many entries would not only hold memory. A full collection takes time in proportion to the number of
objects, and blocks the event loop meanwhile.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kit import echo, echo_agent, hook_at, tool_agent, tool_call, tool_calls_reply, tool_results
from server_process import host_server, open_client
from wick import (
    Agent,
    Ask,
    Block,
    FunctionModel,
    ModelCall,
    Run,
    Scripted,
    Step,
    Stop,
    Thread,
    ToolCall,
    ToolUse,
    after,
    before,
    guard,
    tool,
    wrap,
)
from wick.capabilities._child_agents.definitions import Subagent
from wick.capabilities.fallback import Fallback
from wick.capabilities.recorder import Recorder
from wick.capabilities.sessions import Sessions
from wick.capabilities.subagents import Subagents
from wick.errors import ModelError
from wick.hooks import Next
from wick.protocols import Request
from wick.stores.in_memory import InMemory

Work = Callable[[], Awaitable[object]]


@tool
async def nap(text: str) -> str:
    """Sleep for long."""
    await asyncio.sleep(60)
    return text


@tool
async def fails(text: str) -> str:
    """Fail."""
    raise ValueError(text)


@before(ToolUse)
async def looks(use: ToolUse) -> None:
    use.notes["seen"] = True


@wrap(ModelCall)
async def passes_on(call: ModelCall, next: Next[Any]) -> Any:
    return await next(call)


@wrap(ToolUse)
async def tries_twice(use: ToolUse, next: Next[Any]) -> Any:
    await next(use)
    return await next(use)


@after(Run)
async def reads(run: Run) -> None:
    assert run.result is not None


@guard(ToolUse)
async def agrees(use: ToolUse) -> None:
    assert use.args


@after(ModelCall)
async def later(call: ModelCall) -> None:
    """Observes the reply or the error."""


HOOKS = (looks, passes_on, tries_twice, reads, agrees)


async def streamed() -> None:
    async for _ in echo_agent(*HOOKS).stream("go"):
        """All of it."""


async def streamed_in_part() -> None:
    async for _ in echo_agent(*HOOKS).stream("go"):
        break


async def cancelled() -> None:
    task = asyncio.create_task(tool_agent(nap, *HOOKS).run("go"))
    await asyncio.sleep(0.1)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def run_stored() -> None:
    agent = Agent(Scripted(tool_calls_reply(tool_call()), "done"), tools=[echo], hooks=[Sessions(InMemory())])
    await agent.run("go", thread=Thread())


async def handed_on() -> None:
    work = ToolCall("c1", "task", {"agent": "helper", "prompt": "help"})
    agent = Agent(Scripted(tool_calls_reply(work), "helped", "done"), hooks=[Subagents([Subagent("helper", "Helps.")])])
    assert (await agent.run("go")).text == "done"


def moody() -> FunctionModel:
    """It fails when it is asked for the first time."""
    asked: list[Request] = []

    def answer(request: Request) -> str:
        asked.append(request)
        if len(asked) == 1:
            raise ModelError("busy", status=503, retryable=True, retry_after=0.001)
        return "yes"

    return FunctionModel(answer)


def failing(request: Request) -> str:
    raise ModelError("no model today")


async def answered_by_another() -> None:
    agent = Agent(FunctionModel(failing), hooks=[later, Fallback(FunctionModel(lambda request: "yes"))])
    assert (await agent.run("go")).text == "yes"


async def tried_again() -> None:
    assert (await Agent(moody(), hooks=[later]).run("go")).text == "yes"


async def handed_on_in_vain() -> None:
    def answer(request: Request) -> Any:
        if request.messages[0].text == "help":
            raise ModelError("no model today")
        return (
            tool_calls_reply(ToolCall("c1", "task", {"agent": "helper", "prompt": "help"}))
            if request.messages[1:] == ()
            else "so"
        )

    result = await Agent(FunctionModel(answer), hooks=[Subagents([Subagent("helper", "Helps.")])]).run("go")
    assert (result.text, "no model today" in tool_results(result)[0]) == ("so", True)


WORKS: dict[str, Work] = {
    "a run": lambda: echo_agent().run("go"),
    "with hooks": lambda: echo_agent(*HOOKS).run("go"),
    "streamed": streamed,
    "streamed in part": streamed_in_part,
    "side by side": lambda: Agent(
        Scripted(tool_calls_reply(tool_call(id="a"), tool_call(id="b")), "done"), tools=[echo]
    ).run("go"),
    "a tool that fails": lambda: tool_agent(fails, *HOOKS).run("go"),
    "a hook that fails": lambda: echo_agent(hook_at("after", ToolUse, "nonsense")).run("go"),
    "refused": lambda: echo_agent(hook_at("guard", ToolUse, Block("no"))).run("go"),
    "stopped": lambda: echo_agent(hook_at("before", Step, Stop("enough"))).run("go"),
    "paused": lambda: echo_agent(hook_at("guard", ToolUse, Ask("may I?"))).run("go"),
    "cancelled": cancelled,
    "kept in a store": run_stored,
    "handed on": handed_on,
    "handed on in vain": handed_on_in_vain,
    "a model that is asked again": tried_again,
    "another model that answers": answered_by_another,
    "recorded": lambda: echo_agent(*HOOKS, Recorder()).run("go"),
}


async def garbage(work: Work) -> Counter[str]:
    """Return wick objects that some work leaves for garbage collection, in each of several runs."""
    await work()  # objects created once are not part of this work
    gc.collect()
    gc.freeze()  # only new objects are examined
    gc.disable()
    try:
        return min([await _garbage(work) for _ in range(2)], key=Counter.total)
    finally:
        gc.enable()
        gc.unfreeze()


async def _garbage(work: Work) -> Counter[str]:
    await work()
    await asyncio.sleep(0.1)  # for objects that end with it
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return Counter(type(found).__name__ for found in gc.garbage if type(found).__module__.startswith("wick"))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.collect()  # this time it is freed


@pytest.mark.parametrize("name", WORKS)
async def test_finished_runs_are_released(name: str) -> None:
    assert not await garbage(WORKS[name])


async def test_a_reference_cycle_is_detected() -> None:
    async def work() -> None:
        thread = Thread()
        thread.changed_values["itself"] = thread  # type: ignore[assignment]

    assert (await garbage(work))["Thread"] == 1


def _answer(request: Request) -> Any:
    last = request.messages[-1]
    if last.text == "fail":
        raise ModelError("no model today")
    return tool_calls_reply(ToolCall("c1", last.text, {"text": "x"})) if last.role == "user" else "done"


@pytest.mark.parametrize("said", ["echo", "fails", "fail"])
@pytest.mark.parametrize("how", ["invoke", "stream"])
async def test_finished_runs_are_released_by_a_server(tmp_path: Path, said: str, how: str) -> None:
    agents = {"a": {"model": FunctionModel(_answer), "tools": [echo, fails], "backend": {"type": "local"}}}
    async with host_server(tmp_path, agents=agents) as server, open_client(server) as client:

        async def work() -> None:
            async with client.post(f"/agents/a/{how}", json={"messages": [{"content": said}]}) as answer:
                await answer.read()
            while server.service.runs.executor.running:
                await asyncio.sleep(0.01)

        found = await garbage(work)
        assert not found
