"""The agent loop: four nested operations, each wrapped in rings of hooks.

    run                             before  wrap  after  guard
    └─ step, until the first Stop   before  wrap  after  guard
       ├─ model call                before  wrap  after  guard
       └─ tool uses, in parallel    before  wrap  after  guard

Everything else an agent does is a hook; see `wick.capabilities`. Around the hooks of each operation are two rings
of wick's own: the recorder saves the result (`wick.run_log`), and the announcer emits it (`wick.run_events`).
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Sequence
from types import MappingProxyType

from wick._internal.frozen import thaw
from wick._internal.run_context import run_context
from wick._internal.tasks import ToolUseOrder, closing_stream, run_all
from wick.decisions import Continue, Stop
from wick.errors import InvalidArgs, Sealed
from wick.hooks import Hook
from wick.messages import Message, ToolCall, ToolResult
from wick.models.reply import Reply
from wick.onion import build_rings, collect_guards, compose
from wick.operations import ModelCall, Result, Run, Step, ToolUse
from wick.resume import count_finished_steps, find_pending_calls
from wick.run_events import announce_model_call, announce_step, announce_tool_use, open_delta_stream
from wick.run_log import (
    append_inbox,
    prompt_after_reply,
    record_intent,
    record_model_call,
    record_step,
    record_tool_end,
    record_tool_use,
    release_effect,
    result_from_stop,
    start_run,
)
from wick.tools import find_tool, run_tool, unknown_tool_error


class Loop:
    """The four operations of an agent, each wrapped in its rings. `Agent._drive` has more rings around a run."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self.hooks, self.guards = tuple(hooks), MappingProxyType(collect_guards(hooks))
        self.inherited = tuple(hook for hook in hooks if hook.inherit)  # child runs get these too
        # The first ring is the outermost. `build_rings` returns those of the hooks, and the gate.
        self.run = compose(build_rings(hooks, Run), _run)
        self.step = compose([announce_step, record_step, *build_rings(hooks, Step)], _step)
        self.call_model = compose([announce_model_call, record_model_call, *build_rings(hooks, ModelCall)], _call_model)
        self.use_tool = compose([announce_tool_use, record_tool_use, *build_rings(hooks, ToolUse)], _use_tool)

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(self, name):
            raise Sealed(f"the rings of a run cannot be changed: {name!r} is already set")
        object.__setattr__(self, name, value)


async def _run(sealed: Run) -> Result:
    """Take steps until one returns a Stop, and return the result."""
    run, progress = sealed.run, sealed.progress  # the open run, which has the sealed values
    verdict = await start_run(run, sealed.input)
    progress.step = count_finished_steps(run.thread)
    while isinstance(verdict, Continue):
        progress.step += 1
        await append_inbox(run)
        verdict = await run.loop.step(Step(run, progress.step, run.thread.pending))
    return result_from_stop(run, verdict)


async def _step(step: Step) -> Stop | Continue:
    """Call the model, then use the tools that it asks for. Without tool calls, the model has finished."""
    run = step.run
    calls: Sequence[ToolCall] = find_pending_calls(step)  # of a resumed run
    if run.stopping and not calls:  # a Stop ends the run after the current step, so pending calls are answered first
        return run.stopping  # it is final, also if a wrap retries the step
    if not calls:
        prompt_after_reply(run)
        call = ModelCall(run, run.model, run.system, [*run.thread.messages], [*run.tools.values()], thaw(run.settings))
        reply = await run.loop.call_model(call)
        if run.stopping or not reply.tool_calls:
            natural = call.finish in ("", "stop", "end_turn", "tool_calls", "tool_use")
            return run.stopping or Stop("completed" if natural else f"finish reason: {call.finish}")
        calls = reply.tool_calls
    await _use_tools(run, calls)
    run.progress.continues = 0
    return run.stopping or Continue()


async def _use_tools(run: Run, calls: Sequence[ToolCall]) -> None:
    """Use tools in parallel, except those that run alone. Raise an error only after all of them have ended."""
    uses = await create_tool_uses(run, calls)
    failures = await run_all([answer_call(use) for use in uses], [call.name for call in calls])
    if failures:  # an error takes precedence over a pause
        raise next((failure for failure in failures if isinstance(failure, Exception)), failures[0])


async def create_tool_uses(run: Run, calls: Sequence[ToolCall]) -> list[ToolUse]:
    """Create the tool uses of some calls that the model or a program makes at once."""
    tools = [find_tool(call.name, run.tools) for call in calls]
    turns = ToolUseOrder([tool is not None and tool.alone for tool in tools])
    for tool, call in zip(tools, calls, strict=True):
        if tool is not None and tool.foreign is not None and not call.invalid:
            await tool.prepare(call.args)  # in a thread, before `_create_tool_use` validates them here
    return [_create_tool_use(run, call, turns, number) for number, call in enumerate(calls)]


async def answer_call(use: ToolUse) -> None:
    """Use a tool, independently of the parallel calls."""
    try:
        await use.run.loop.use_tool(use)
    finally:
        use.turns.mark_finished(use.number)


async def _call_model(call: ModelCall) -> Message:
    """Stream one reply of the model, and count its tokens."""
    reply, emit = Reply(), open_delta_stream(call)
    try:
        async with closing_stream(call.model.stream(call.request)) as deltas:
            async for delta in deltas:
                reply.feed(delta)
                if emit is not None:
                    emit(delta)
    except CancelledError:
        if reply.text and not reply.usage.total_tokens:  # the provider charges for it all the same
            call.charge(call.estimate_usage(reply.text), estimated=True)
        raise
    finally:
        call.state.stream.usage = reply.usage
        if reply.finish or reply.usage.total_tokens:  # without a reply there is nothing to pay for
            call.charge(reply.usage)
    message = reply.message()
    if reply.withheld:
        call.run.record("tool_calls_withheld", finish=reply.finish, tools=[*reply.withheld])
    call.state.stream.reply, call.state.stream.finish, call.state.stream.end = message, reply.finish, reply.end
    return message


async def _use_tool(use: ToolUse) -> ToolResult:
    """Run a tool once its intent is saved, so that a crash never runs it twice unnoticed."""
    await use.turns.wait_turn(use.number)
    try:
        if refusal := await record_intent(use):
            return use.result_rules.blocked(refusal)
        attempt = use.attempt
        with run_context(use.run):  # an agent started by the tool becomes a child of this run
            result, outcome = await run_tool(use.bound, use.values or {}, use, use.run)
        await record_tool_end(use, attempt, result, outcome)
    finally:
        await release_effect(use)
    answer = use.result_rules.coerce(result)
    if use.state.stream.holds:
        use.state.stream.reply = use.result_rules.snapshot(answer).copy
    return answer


def _create_tool_use(run: Run, call: ToolCall, turns: ToolUseOrder, number: int) -> ToolUse:
    """Create the tool use of a call.

    `state.invalid` says why a call cannot run. Such a call skips `before` and `wrap` hooks, and the gate returns an
    error result. `after` hooks get that result.
    """
    use = ToolUse(run, call, find_tool(call.name, run.tools), {**call.args}, turns, number)
    if use.tool is None:
        use.state.invalid = unknown_tool_error(call.name, run.tools)
    elif call.invalid:
        use.state.invalid = call.invalid
    else:
        try:
            for resolve in run.progress.extensions.resolvers:
                use.args = resolve(run, call)
            use.validate()
        except InvalidArgs as error:
            use.state.invalid = str(error)
    return use
