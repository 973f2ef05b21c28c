"""The agent loop: a skeleton of hook points.

    run                             before  wrap  after  guard
    └─ step, until one says Stop    before  wrap  after  guard
       ├─ model call                before  wrap  after  guard
       └─ tool uses, side by side   before  wrap  after  guard

Everything else an agent does is a hook: see `wick.capabilities`.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from wick import run_log
from wick._internal.frozen import thaw
from wick._internal.run_context import run_context
from wick._internal.tasks import ToolUseOrder, closing_stream, run_all
from wick.decisions import Continue, Stop
from wick.errors import InvalidArgs, Sealed
from wick.hooks import Hook
from wick.messages import Message, ToolCall, ToolResult
from wick.onion import guards, onion
from wick.operations import ModelCall, Result, Run, Step, ToolUse
from wick.reply import Reply
from wick.tools import find_tool, no_such_tool
from wick.tools import use as use_tool


class Loop:
    """Four operations, each in its rings of hooks."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self.hooks, self.guards = tuple(hooks), MappingProxyType(guards(hooks))
        self.inherited = tuple(hook for hook in hooks if hook.inherit)  # handed down to children
        self.run = onion(hooks, Run, _run)
        self.step = onion(hooks, Step, _step)
        self.call_model = onion(hooks, ModelCall, _call_model)
        self.use_tool = onion(hooks, ToolUse, _use_tool)

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(self, name):
            raise Sealed(f"the rings of a run cannot be changed, and {name!r} is one of them")
        object.__setattr__(self, name, value)


async def _run(sealed: Run) -> Result:
    run = sealed.run
    verdict = await run_log.start_run(run, sealed.input)
    number = max(run.thread.steps - bool(run.thread.pending), 0)
    while isinstance(verdict, Continue):
        number += 1
        await run_log.append_inbox(run)
        step = Step(run, number, run.thread.pending)
        verdict = await run_log.record_step_verdict(step, await run.loop.step(step))
    return run_log.conclude(run, verdict)


async def _step(step: Step) -> Stop | Continue:
    run = step.run
    # A run that was interrupted takes up where it left; what an earlier attempt has answered is not used again.
    calls: Sequence[ToolCall] = [call for call in step.pending if run.thread.awaits(call)]
    if run.stopping and not calls:
        return run.stopping  # a Stop stands, also when a wrap tries the step again
    if not calls:
        call = ModelCall(run, run.model, run.system, [*run.thread.messages], [*run.tools.values()], thaw(run.settings))
        run_log.model_started(call, step.number)
        reply = await run.loop.call_model(call)
        await run_log.model_replied(call, reply)
        if run.stopping or not reply.tool_calls:
            return run.stopping or _finished(call)
        calls = reply.tool_calls
    await _use_tools(run, calls)
    run.progress.continues = 0
    return run.stopping or Continue()


async def _use_tools(run: Run, calls: Sequence[ToolCall]) -> None:
    tools = [find_tool(call.name, run.tools) for call in calls]
    turns = ToolUseOrder([tool is not None and tool.alone for tool in tools])
    for tool, call in zip(tools, calls, strict=True):
        if tool is not None and tool.foreign is not None and not call.invalid:
            await tool.prepare(call.args)
    uses = [_tool_use(run, call, turns, number) for number, call in enumerate(calls)]
    failures = await run_all([_answer(use) for use in uses], [call.name for call in calls])
    if failures:  # what failed is worse than what waits
        raise next((failure for failure in failures if isinstance(failure, Exception)), failures[0])


async def _answer(use: ToolUse) -> None:
    """Use a tool and log what it came to, whatever becomes of the others."""
    try:
        run_log.tool_started(use)
        await run_log.tool_result(use, await use.run.loop.use_tool(use))
    except Exception as error:
        if use.call.id in use.run.thread.waiting:
            await run_log.record_hook_failure(use, error)
        raise
    finally:
        use.turns.mark_finished(use.number)


async def _call_model(call: ModelCall) -> Message:
    reply = Reply()
    run_log.retract_partial_reply(call)
    try:
        async with closing_stream(call.model.stream(call.request)) as deltas:
            async for delta in deltas:
                reply.feed(delta)
                run_log.model_streamed(call, delta)
    finally:
        call.trail.usage = reply.usage
        if reply.finish or reply.usage.total_tokens:  # a server that never began an answer has charged nothing
            call.charge(reply.usage)
    message = reply.message()
    if reply.withheld:
        call.run.record("tool_calls_withheld", finish=reply.finish, tools=[*reply.withheld])
    call.trail.reply, call.trail.finish = message, reply.finish
    return message


async def _use_tool(use: ToolUse) -> ToolResult:
    await use.turns.wait_turn(use.number)
    if refusal := await run_log.record_intent(use):
        return use.blocked(refusal)
    attempt = use.attempt
    with run_context(use.run):  # an agent that the tool runs is a child of this run
        result, fate = await use_tool(use.bound, use.values or {}, use, use.run)
    run_log.tool_finished(use, attempt, result, fate)
    said = use.coerce_result(result)
    if use.trail.holds:
        use.trail.reply = use.snapshot_result(said)[1]
    return said


def _finished(call: ModelCall) -> Stop:
    natural = call.trail.finish in ("", "stop", "end_turn", "tool_calls", "tool_use")
    return Stop("completed" if natural else f"finish reason: {call.trail.finish}")


def _tool_use(run: Run, call: ToolCall, turns: ToolUseOrder, number: int) -> ToolUse:
    """A call, ready for its hooks; one that cannot be made at all says why."""
    use = ToolUse(run, call, find_tool(call.name, run.tools), {**call.args}, turns, number)
    if use.tool is None:
        use.trail.invalid = no_such_tool(call.name, run.tools)
    elif call.invalid:
        use.trail.invalid = call.invalid
    else:
        try:
            use.validate()
        except InvalidArgs as error:
            use.trail.invalid = str(error)
    return use
