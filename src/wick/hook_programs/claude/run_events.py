"""The events of Claude Code's settings for conversations, runs and user prompts."""

from __future__ import annotations

from collections.abc import Sequence

from wick.constants import MAX_CONTINUES
from wick.decisions import Block, Continue, Stop
from wick.hook_programs.agreements import has_agreed, record_agreement, screen_messages
from wick.hook_programs.claude.answers import find_stop, join_refusals, resolve_failures
from wick.hook_programs.claude.session import HookSession, permission_mode
from wick.hooks import Next
from wick.messages import Message, user
from wick.operations import ModelCall, Result, Run, Step

FINISHED = ("completed", "finish reason")
STARTED = "session_start"  # the log event with the id of the thread in which the session started


class RunEvents:
    """Hooks for SessionStart, UserPromptSubmit, SubagentStart, Stop, SubagentStop, PreCompact and PostCompact."""

    def __init__(self, session: HookSession) -> None:
        self.session = session

    async def wrap_run(self, run: Run, next: Next[Result]) -> Result:
        """Notify the user after the run, and remove its transcript and pending context."""
        work = self.session.run_state(run)
        try:
            result = await next(run)
            if run.parent is None and result.outcome == "completed":
                await self.session.notify(run, "idle_prompt", "The agent is waiting for your input")
            return result
        finally:
            self.session.conversation(run).deferred_context += [
                message for message in work.context if message.name == "SessionStart"
            ]
            work.context.clear()
            await work.transcript.remove()

    async def watch_compaction(self, run: Run) -> None:
        """Register for the compaction of the conversation."""
        compactions = run.progress.extensions.compactions
        if self.session.has_handlers("PreCompact", "PostCompact", "SessionStart") and self not in compactions:
            compactions.append(self)
        self.session.conversation(run).mode = permission_mode(run.root)
        await self.session.evict_oldest()

    async def deliver_context(self, call: ModelCall) -> None:
        """Append the context from programs to the conversation before the next model call."""
        run = call.run
        work = self.session.run_state(run)
        if call.purpose or run.thread.pending:
            return
        deferred: list[Message] = self.session.conversation(run).deferred_context if run.parent is None else []
        context = [*deferred, *work.context]
        deferred.clear()
        work.context.clear()
        if context:
            for message in context:
                run.thread.append("message", message, {"hook": message.name})
            call.messages.extend(context)

    async def start_session(self, run: Run) -> Stop | None:
        """Fire SessionStart at the first run of a conversation."""
        conversation = self.session.conversation(run)
        if run.parent is not None or conversation.started:
            return None
        conversation.started, thread = True, run.thread
        started = [
            entry.data["data"]["thread"]
            for entry in thread.entries
            if entry.kind == "event" and entry.data["name"] == STARTED
        ]
        source = "resume"
        if any(id != thread.id for id in started) and thread.id not in started:
            source = "fork"
        elif not thread.messages:
            source = "clear" if any(entry.kind == "rewind" for entry in thread.entries) else "startup"
        run.record(STARTED, thread=run.thread.id, source=source)
        return await self._fire_session_start(run, source)

    async def _fire_session_start(self, run: Run, source: str) -> Stop | None:
        results = await self.session.fire("SessionStart", run, [source], {"source": source})
        resolve_failures(run, results)
        await self.session.add_context(run, "SessionStart", (text for result in results for text in result.context))
        first = [text for result in results if (text := result.specific.initialUserMessage)]
        if first and source != "compact":
            run.input = [*map(user, first), *run.input]
        return find_stop(results)

    async def start_subagent(self, run: Run) -> Stop | None:
        if run.parent is None:
            return None
        results = await self.session.fire("SubagentStart", run, [run.agent], {})
        resolve_failures(run, results)
        await self.session.add_context(run, "SubagentStart", (text for result in results for text in result.context))
        return find_stop(results)

    # -- user prompts -------------------------------------------------------------------------------------------------

    async def check_prompt(self, run: Run) -> Block | Stop | None:
        """Fire UserPromptSubmit for the input, and screen messages that arrive during the run."""
        if run.parent is not None or has_agreed(run, self):
            return None

        async def screen(message: Message) -> Block | None:
            if message.role != "user" or message.name:
                return None
            verdict = await self._fire_prompt_submit(run, [message])
            if isinstance(verdict, Stop):
                run.halt(verdict)
            return Block(verdict.reason) if verdict is not None else None

        screen_messages(run, self, "UserPromptSubmit", screen)
        return await self._check_input(run)

    async def recheck_prompt(self, run: Run) -> Block | Stop | None:
        """Fire UserPromptSubmit at the gate if the input has changed since."""
        if run.parent is not None or has_agreed(run, self):
            return None
        return await self._check_input(run)

    async def _check_input(self, run: Run) -> Block | Stop | None:
        words = [message for message in run.input if message.role == "user" and not message.name]
        verdict = await self._fire_prompt_submit(run, words) if words else None
        if verdict is None:
            record_agreement(run, self)
        return verdict

    async def _fire_prompt_submit(self, run: Run, words: Sequence[Message]) -> Block | Stop | None:
        prompt = "\n\n".join(message.text for message in words)
        results = await self.session.fire("UserPromptSubmit", run, [], {"prompt": prompt})
        if (ended := find_stop(results)) is not None:
            return ended
        if (broken := resolve_failures(run, results)) is not None:
            return broken
        if reason := join_refusals(results):
            return Block(await self.session.shorten(run, "UserPromptSubmit", reason))
        await self.session.add_context(run, "UserPromptSubmit", (text for result in results for text in result.context))
        return None

    # -- the end of a run ---------------------------------------------------------------------------------------------

    async def check_stop(self, step: Step) -> Continue | Stop | None:
        return await self._check_stopping("Stop", step, []) if step.run.parent is None else None

    async def check_subagent_stop(self, step: Step) -> Continue | Stop | None:
        return (
            await self._check_stopping("SubagentStop", step, [step.run.agent]) if step.run.parent is not None else None
        )

    async def _check_stopping(self, event: str, step: Step, names: Sequence[str]) -> Continue | Stop | None:
        """Continue a run that would end if a program refuses, up to a limit."""
        run, work = step.run, self.session.run_state(step.run)
        over = isinstance(step.result, Stop) and step.result.kind in FINISHED and run.stopping is None
        if not over or run.progress.inbox:
            return None
        last = next((message.text for message in reversed(run.output) if message.role == "assistant"), "")
        more = {"stop_hook_active": work.stops > 0, "last_assistant_message": last}
        results = await self.session.fire(event, step, names, more)
        resolve_failures(run, results)
        if (ended := find_stop(results)) is not None:
            return ended
        context = [text for result in results for text in result.context]
        texts = [text for text in (join_refusals(results), *context) if text]
        if not texts:
            return None
        work.stops += 1
        if work.stops > MAX_CONTINUES:
            run.record("stop_hooks_ignored", times=MAX_CONTINUES)
            return None
        return Continue(await self.session.shorten(run, event, "\n\n".join(texts)))

    # -- compaction ---------------------------------------------------------------------------------------------------

    async def before_compaction(self, run: Run, trigger: str, instructions: str) -> str:
        """Fire PreCompact; return the reason if a program refuses the compaction."""
        more = {"trigger": trigger, "custom_instructions": instructions}
        results = await self.session.fire("PreCompact", run, [trigger], more)
        resolve_failures(run, results)
        if (ended := find_stop(results)) is not None:
            run.halt(ended)
            return ended.reason
        return join_refusals(results)

    async def after_compaction(self, run: Run, trigger: str, summary: str) -> None:
        """Fire PostCompact, then SessionStart again, as the compaction may have dropped its context."""
        more = {"trigger": trigger, "compact_summary": summary}
        results = await self.session.fire("PostCompact", run, [trigger], more)
        resolve_failures(run, results)
        ended = find_stop(results)
        if run.parent is None and self.session.has_handlers("SessionStart"):
            ended = await self._fire_session_start(run, "compact") or ended
        if ended is not None:
            run.halt(ended)
