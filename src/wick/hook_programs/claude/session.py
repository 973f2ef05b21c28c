"""Sessions of Claude Code's settings: selection of handlers, payloads, results and conversation state.

The handlers of an event are called concurrently; results are in the order of the settings. Context from handlers is
queued here until the next model call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from wick import constants
from wick._internal.aliases import POINTS
from wick._internal.prompt_text import fence_text
from wick.errors import ConfigError
from wick.hook_programs.answers import encode_payload
from wick.hook_programs.claude import handlers
from wick.hook_programs.claude.answers import HandlerResult, find_stop, resolve_failures
from wick.hook_programs.claude.names import ToolView
from wick.hook_programs.claude.settings import HookHandler, HookSettings
from wick.hook_programs.claude.transcript import Transcript
from wick.hook_programs.failure_policy import describe_failure
from wick.hook_programs.registry import HookRow
from wick.hook_programs.runner import Runner
from wick.messages import Message
from wick.operations import Operation, Run, ToolUse
from wick.permissions.rules import RuleSubject, match_rule
from wick.stores.large_results import store_large_text
from wick.threads import Thread

logger = logging.getLogger(__name__)

Json = dict[str, Any]


@dataclass(eq=False, slots=True)
class HookRunState:
    """The state of one run."""

    transcript: Transcript
    context: list[Message] = field(default_factory=list)  # for the next model call
    stops: int = 0  # how often a Stop hook continued it
    stored_texts: int = 0  # number of long texts stored as files


@dataclass(eq=False, slots=True)
class ConversationState:
    """The state of one thread, until SessionEnd was sent."""

    thread: Thread | None  # None without handlers for SessionEnd
    own: bool = True  # False for the thread of a subagent
    mode: str = "default"
    started: bool = False  # SessionStart was sent
    used: dict[str, str] = field(default_factory=dict)  # handlers with `once`, and the call that they ran for
    deferred_context: list[Message] = field(default_factory=list)  # context after the last model call of its run


class HookSession:
    """The handlers of settings, with the state of their conversations."""

    def __init__(self, settings: HookSettings, runner: Runner) -> None:
        self.settings, self.runner = settings, runner
        self.conversations: dict[str, ConversationState] = {}

    @property
    def is_live(self) -> bool:
        """Return True if any handler can run."""
        return any(self.settings.for_event(entry.event) for entry in self.settings.entries)

    def has_handlers(self, *events: str) -> bool:
        return any(self.settings.for_event(event) for event in events)

    def run_state(self, run: Run) -> HookRunState:
        work: HookRunState | None = run.scratch.get(self)
        if work is None:
            work = run.scratch[self] = HookRunState(Transcript(self.top_run(run).thread, self.runner.cwd))
        return work

    def top_run(self, run: Run) -> Run:
        """Return the topmost parent run that has these settings."""
        while run.parent is not None and (self in run.parent.scratch):
            run = run.parent
        return run

    def conversation(self, run: Run) -> ConversationState:
        """Return the conversation of a run and mark it as the most recent."""
        top, own = self.top_run(run), self.conversations
        state = own.pop(top.thread.id, None)
        if state is None:
            state = ConversationState(top.thread if self.has_handlers("SessionEnd") else None, top.parent is None)
        own[top.thread.id] = state
        return state

    # -- events -------------------------------------------------------------------------------------------------------

    def find_handlers(self, event: str, names: Iterable[str], use: ToolUse | None = None) -> list[HookHandler]:
        """Return the handlers that match an event, without duplicates."""
        names = frozenset(names)
        matching: list[HookHandler] = []
        for entry in self.settings.for_event(event):
            is_match = bool(entry.problem) or entry.test(names)
            if is_match and use is not None and entry.rule is not None and not entry.problem:
                workdir = ToolView.from_use(use, self.runner.cwd).workdir
                with suppress(ConfigError):  # the handler runs unless its rule certainly does not match
                    subject = RuleSubject.from_use(use.bound, use.args, use.names, workdir=workdir)
                    is_match = match_rule(entry.rule, subject) != "no"
            if is_match:
                matching.append(entry)
        return list({entry.key: entry for entry in reversed(matching)}.values())[::-1]

    async def fire(
        self,
        event: str,
        op: Operation[Any],
        names: Iterable[str],
        more: Json,
        *,
        entries: Sequence[HookHandler] | None = None,
    ) -> list[HandlerResult]:
        """Call the handlers of an event concurrently, and record their messages for the user."""
        matching = self.find_handlers(event, names) if entries is None else entries
        entries = [entry for entry in matching if self._claim_turn(entry, op)]
        if not entries:
            return []
        run, top = op.run, self.top_run(op.run)
        fields = {"session_id": top.thread.id, "transcript_path": await self.run_state(top).transcript.path()}
        fields |= {"cwd": self.runner.cwd, "permission_mode": permission_mode(run), "hook_event_name": event}
        fields |= {"agent_id": run.id, "agent_type": run.agent} if run.parent is not None else {}
        payload = encode_payload({**fields, **more})
        results = await asyncio.gather(*(handlers.call_handler(entry, payload, self.runner, run) for entry in entries))
        for result in results:
            if result.problem:  # a failed handler with `once` may run again
                self.conversation(run).used.pop(result.entry.key, None)
            hook, answer = result.entry.name, result.answer
            if answer.systemMessage:
                text = await self.shorten(run, event, answer.systemMessage)
                run.record("system_message", hook=hook, event=event, message=text)
            if result.refuses and event in ("SessionStart", "SubagentStart"):
                text = await self.shorten(run, event, result.reason)
                run.record("system_message", hook=hook, event=event, message=text)
            if result.printed and not answer.suppressOutput:
                run.record("hook_output", hook=hook, event=event, output=result.printed)
        return results

    def _claim_turn(self, entry: HookHandler, op: Operation[Any]) -> bool:
        """Return True if a handler may run. One with `once` runs again only for the same call."""
        if not entry.once:
            return True
        used, call = self.conversation(op.run).used, f"{op.run.id} {op.call.id}" if isinstance(op, ToolUse) else ""
        if entry.key in used:
            return bool(call) and used[entry.key] == call
        used[entry.key] = call
        return True

    async def notify(self, run: Run, kind: str, message: str) -> None:
        """Fire Notification, as user input is needed."""
        more = {"message": message, "title": "wick", "notification_type": kind}
        results = await self.fire("Notification", run, [kind], more)
        resolve_failures(run, results)
        if (ended := find_stop(results)) is not None:
            run.halt(ended)

    # -- context for the model --------------------------------------------------------------------------------------

    async def add_context(self, run: Run, event: str, texts: Iterable[str]) -> None:
        """Queue texts for the context of the next model call."""
        for text in texts:
            fenced = fence_text("hook", await self.shorten(run, event, text), event=event)
            self.run_state(run).context.append(Message("user", fenced, name=event))

    async def shorten(self, run: Run, event: str, text: str) -> str:
        """Return a text, or its beginning and the path of the stored text if it is too long."""
        if len(text) <= constants.HOOK_TEXT_CHARS:
            return text
        work = self.run_state(run)
        work.stored_texts += 1
        path = f".results/hook-{event}-{run.id}-{work.stored_texts}.txt"
        stored = await store_large_text(run.thread, run.id, path, text)
        where = f"the whole text is in {path}; read it with read_file" if stored else "the rest could not be stored"
        return f"{text[: constants.HOOK_PREVIEW_CHARS]}\n\n... ({where}) ..."

    # -- the end of conversations -----------------------------------------------------------------------------------

    async def evict_oldest(self) -> None:
        """End the oldest conversations if there are too many."""
        while len(self.conversations) > constants.HOOK_SESSIONS:
            await self.end_conversation(next(iter(self.conversations)))

    async def end_conversation(self, thread: str) -> None:
        """Send SessionEnd for a conversation and forget it."""
        conversation = self.conversations.pop(thread)
        entries = self.find_handlers("SessionEnd", ["other"])
        if not entries or not conversation.own or conversation.thread is None:
            return
        transcript = Transcript(conversation.thread, self.runner.cwd)
        fields = {"session_id": thread, "transcript_path": await transcript.path(), "cwd": self.runner.cwd}
        fields |= {"permission_mode": conversation.mode, "hook_event_name": "SessionEnd", "reason": "other"}
        try:
            payload = encode_payload(fields)
            calls = [handlers.call_handler(entry, payload, self.runner, None) for entry in entries]
            results = await asyncio.gather(*calls)
        finally:
            await transcript.remove()
        for result in results:
            if result.problem:
                logger.warning(
                    "the hook program %s %s; the conversation has ended anyway", result.entry.name, result.problem
                )

    async def close(self) -> None:
        """Send SessionEnd for every conversation."""
        for thread in [*self.conversations]:
            await self.end_conversation(thread)

    def list_handlers(self, ring: int) -> list[HookRow]:
        """Return a row for each handler, in the order of the settings."""
        return [
            HookRow(
                entry.name,
                entry.source,
                entry.trust,
                POINTS.get(entry.event, ""),
                entry.event,
                number,
                fail=describe_failure(entry.event, entry.fail),
                problem="all hooks are disabled" if self.settings.disabled else entry.problem,
            )
            for number, entry in enumerate(self.settings.entries, ring)
        ]


def permission_mode(run: Run) -> str:
    """Return the permission mode of a run."""
    for guard in run.guards(ToolUse):
        if getattr(guard.owner, "name", "") == "permissions":
            return str(getattr(guard.owner, "mode", "default"))
    return "default"
