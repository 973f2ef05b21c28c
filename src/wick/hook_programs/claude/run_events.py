"""The events of Claude Code's settings that are about conversations, runs and what the user says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wick.constants import MAX_CONTINUES
from wick.decisions import Block, Continue, Stop
from wick.hook_programs.agreements import agreed, remember, screen
from wick.hook_programs.claude.answers import failure, refusal, stop
from wick.hook_programs.claude.session import Session, mode
from wick.hooks import Next
from wick.messages import Message, user
from wick.operations import ModelCall, Result, Run, Step

FINISHED = ("completed", "finish reason")
STARTED = "session_start"  # the event in a thread that says which thread it was when it was begun


class RunEvents:
    """SessionStart, UserPromptSubmit, SubagentStart, Stop, SubagentStop, PreCompact, PostCompact."""

    def __init__(self, session: Session) -> None:
        self.session = session

    async def attend(self, run: Run, next: Next[Result]) -> Result:
        """What is made for a run is gone after it; the user is notified that it is their turn."""
        work = self.session.work(run)
        try:
            result = await next(run)
            if run.parent is None and result.outcome == "completed":
                await self.session.notify(run, "idle_prompt", "The agent is waiting for your input")
            return result
        finally:
            self.session.conversation(run).later += [told for told in work.context if told.name == "SessionStart"]
            work.context.clear()
            await work.transcript.remove()

    async def begin(self, run: Run) -> None:
        """Be there when the conversation is summed up."""
        compactions = run.progress.compactions
        if self.session.has("PreCompact", "PostCompact", "SessionStart") and self not in compactions:
            compactions.append(self)
        self.session.conversation(run).mode = mode(run.root)
        await self.session.make_room()

    async def tell(self, call: ModelCall) -> None:
        """What programs want the model to know joins the conversation before its next question."""
        run = call.run
        work = self.session.work(run)
        if call.purpose or run.thread.waiting:
            return
        later: list[Message] = self.session.conversation(run).later if run.parent is None else []
        told = [*later, *work.context]
        later.clear()
        work.context.clear()
        if told:
            run.thread.add(*told)
            call.messages.extend(told)

    async def start(self, run: Run) -> Stop | None:
        """SessionStart: on the first run of a conversation."""
        conversation = self.session.conversation(run)
        if run.parent is not None or conversation.started:
            return None
        conversation.started, source = True, _source(run)
        run.record(STARTED, thread=run.thread.id, source=source)
        return await self._start(run, source)

    async def _start(self, run: Run, source: str) -> Stop | None:
        said = await self.session.fire("SessionStart", run, [source], {"source": source})
        failure(run, said)
        await self.session.add_context(run, "SessionStart", (text for one in said for text in one.context))
        first = [text for one in said if (text := one.specific.initialUserMessage)]
        if first and source != "compact":
            run.input = [*map(user, first), *run.input]
        return stop(said)

    async def start_subagent(self, run: Run) -> Stop | None:
        if run.parent is None:
            return None
        said = await self.session.fire("SubagentStart", run, [run.agent], {})
        failure(run, said)
        await self.session.add_context(run, "SubagentStart", (text for one in said for text in one.context))
        return stop(said)

    # -- what the user says -------------------------------------------------------------------------------------------

    async def hear(self, run: Run) -> Block | Stop | None:
        """UserPromptSubmit: what the user says, also while the run goes on."""
        if run.parent is not None or agreed(run, self):
            return None
        screen(run, self, "UserPromptSubmit", lambda message: self._welcomes(run, message))
        return await self._prompted(run)

    async def hear_again(self, run: Run) -> Block | Stop | None:
        """At the gate: what was changed since is looked at again."""
        if run.parent is not None or agreed(run, self):
            return None
        return await self._prompted(run)

    async def _prompted(self, run: Run) -> Block | Stop | None:
        words = [message for message in run.input if message.role == "user" and not message.name]
        verdict = await self._submitted(run, words) if words else None
        if verdict is None:
            remember(run, self)
        return verdict

    async def _submitted(self, run: Run, words: Sequence[Message]) -> Block | Stop | None:
        prompt = "\n\n".join(message.text for message in words)
        said = await self.session.fire("UserPromptSubmit", run, [], {"prompt": prompt})
        if (ended := stop(said)) is not None:
            return ended
        if (broken := failure(run, said)) is not None:
            return broken
        if reason := refusal(said):
            return Block(await self.session.short(run, "UserPromptSubmit", reason))
        await self.session.add_context(run, "UserPromptSubmit", (text for one in said for text in one.context))
        return None

    async def _welcomes(self, run: Run, message: Message) -> Block | None:
        if message.role != "user" or message.name:
            return None
        verdict = await self._submitted(run, [message])
        if isinstance(verdict, Stop):
            run.halt(verdict)
        return Block(verdict.reason) if verdict is not None else None

    # -- the end of a run ---------------------------------------------------------------------------------------------

    async def stop(self, step: Step) -> Continue | Stop | None:
        return await self._stopping("Stop", step, []) if step.run.parent is None else None

    async def stop_subagent(self, step: Step) -> Continue | Stop | None:
        return await self._stopping("SubagentStop", step, [step.run.agent]) if step.run.parent is not None else None

    async def _stopping(self, event: str, step: Step, names: Sequence[str]) -> Continue | Stop | None:
        """Send a run back that would end, with a reason; after some times it may end all the same."""
        run, work = step.run, self.session.work(step.run)
        over = isinstance(step.result, Stop) and step.result.kind in FINISHED and run.stopping is None
        if not over or run.progress.inbox or run.progress.screened:
            return None
        last = next((message.text for message in reversed(run.output) if message.role == "assistant"), "")
        more = {"stop_hook_active": work.stops > 0, "last_assistant_message": last}
        said = await self.session.fire(event, step, names, more)
        failure(run, said)
        if (ended := stop(said)) is not None:
            return ended
        told = [text for text in (refusal(said), *(text for one in said for text in one.context)) if text]
        if not told:
            return None
        work.stops += 1
        if work.stops > MAX_CONTINUES:
            run.record("stop_hooks_ignored", times=MAX_CONTINUES)
            return None
        return Continue(await self.session.short(run, event, "\n\n".join(told)))

    # -- summing up ---------------------------------------------------------------------------------------------------

    async def before_compaction(self, run: Run, trigger: str, instructions: str) -> str:
        """PreCompact: why the conversation is not to be summed up, if it is not."""
        more = {"trigger": trigger, "custom_instructions": instructions}
        said = await self.session.fire("PreCompact", run, [trigger], more)
        failure(run, said)
        if (ended := stop(said)) is not None:
            run.halt(ended)
            return ended.reason
        return refusal(said)

    async def after_compaction(self, run: Run, trigger: str, summary: str) -> None:
        """PostCompact, and SessionStart again: what a conversation began with may be what was summed up."""
        said = await self.session.fire("PostCompact", run, [trigger], {"trigger": trigger, "compact_summary": summary})
        failure(run, said)
        ended = stop(said)
        if run.parent is None and self.session.has("SessionStart"):
            ended = await self._start(run, "compact") or ended
        if ended is not None:
            run.halt(ended)


def _source(run: Run) -> str:
    """How a conversation comes to be here."""
    thread = run.thread
    begun = [entry.data["data"]["thread"] for entry in thread.entries if _is_start(entry)]
    if any(id != thread.id for id in begun) and thread.id not in begun:
        return "fork"
    if not thread.messages:
        return "clear" if any(entry.kind == "rewind" for entry in thread.entries) else "startup"
    return "resume"


def _is_start(entry: Any) -> bool:
    return bool(entry.kind == "event" and entry.data["name"] == STARTED)
