"""What stands behind the hooks of Claude Code's settings: which handlers are meant, what they are told, what they say.

The handlers of an event are called side by side, and their answers stand in the order of the settings. What they want
the model to know waits here until its next question.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from wick import constants
from wick._internal.aliases import POINTS
from wick._internal.prompt_text import fence_text
from wick.errors import ConfigError
from wick.hook_programs.answers import encoded
from wick.hook_programs.claude import handlers
from wick.hook_programs.claude.answers import Said, failure, stop
from wick.hook_programs.claude.names import Place
from wick.hook_programs.claude.settings import Entry, Settings
from wick.hook_programs.claude.transcript import Transcript
from wick.hook_programs.failure_policy import shown
from wick.hook_programs.registry import Listed
from wick.hook_programs.runner import Runner
from wick.messages import Message
from wick.operations import Operation, Run, ToolUse
from wick.permissions.rules import Subject, met
from wick.stores.large_results import store_large_text
from wick.threads import Thread

logger = logging.getLogger(__name__)

Json = dict[str, Any]


@dataclass(eq=False, slots=True)
class Work:
    """What is kept for one run."""

    transcript: Transcript
    context: list[Message] = field(default_factory=list)  # for the model's next question
    stops: int = 0  # how often it was sent back when it wanted to stop
    kept: int = 0  # texts that were too long


@dataclass(eq=False, slots=True)
class Conversation:
    """What is kept for one thread, until the programs are told that it has ended."""

    thread: Thread | None  # where programs are told of its end
    own: bool = True  # and not that of an agent that works for another
    mode: str = "default"
    started: bool = False  # programs have been told
    used: dict[str, str] = field(default_factory=dict)  # handlers that run once, and the call they ran for
    later: list[Message] = field(default_factory=list)  # context that came too late for its run


class Session:
    """The handlers of some settings, and all that is remembered about their conversations."""

    def __init__(self, settings: Settings, runner: Runner) -> None:
        self.settings, self.runner = settings, runner
        self.conversations: dict[str, Conversation] = {}

    @property
    def live(self) -> bool:
        """Whether any handler may ever run."""
        return any(self.settings.of(entry.event) for entry in self.settings.entries)

    def has(self, *events: str) -> bool:
        return any(self.settings.of(event) for event in events)

    def work(self, run: Run) -> Work:
        work: Work | None = run.scratch.get(self)
        if work is None:
            work = run.scratch[self] = Work(Transcript(self.top(run).thread, self.runner.cwd))
        return work

    def top(self, run: Run) -> Run:
        """The run at the top of those that these settings are for."""
        while run.parent is not None and (self in run.parent.scratch):
            run = run.parent
        return run

    def conversation(self, run: Run) -> Conversation:
        """The conversation of a run, the latest of all now."""
        top, own = self.top(run), self.conversations
        kept = own.pop(top.thread.id, None)
        if kept is None:
            kept = Conversation(top.thread if self.has("SessionEnd") else None, top.parent is None)
        own[top.thread.id] = kept
        return kept

    # -- asking -------------------------------------------------------------------------------------------------------

    def matching(self, event: str, names: Iterable[str], use: ToolUse | None = None) -> list[Entry]:
        """The handlers that an event is for, each once."""
        names = frozenset(names)
        found = [entry for entry in self.settings.of(event) if entry.problem or entry.test(names)]
        if use is not None:
            found = [entry for entry in found if self._applies(entry, use)]
        return list({entry.key: entry for entry in reversed(found)}.values())[::-1]

    def _applies(self, entry: Entry, use: ToolUse) -> bool:
        """Whether its rule may be about this use; what it cannot tell, the handler is asked about."""
        if entry.rule is None or entry.problem:
            return True
        place = Place.of(use, self.runner.cwd)
        try:
            return met(entry.rule, Subject.of(use.bound, use.args, use.names, workdir=place.workdir)) != "no"
        except ConfigError:
            return True

    async def fire(
        self,
        event: str,
        op: Operation[Any],
        names: Iterable[str],
        more: Json,
        *,
        entries: Sequence[Entry] | None = None,
    ) -> list[Said]:
        """Call every handler of an event, side by side, and tell the user what they have for the user."""
        found = self.matching(event, names) if entries is None else entries
        found = [entry for entry in found if self._turn(entry, op)]
        if not found:
            return []
        payload = encoded(await self._told(event, op.run, more))
        said = await asyncio.gather(*(handlers.call(entry, payload, self.runner, op.run) for entry in found))
        for one in said:
            if one.problem:  # who could not look has not had its turn
                self.conversation(op.run).used.pop(one.entry.key, None)
            await self._tell(op.run, one)
        return said

    def _turn(self, entry: Entry, op: Operation[Any]) -> bool:
        """Whether a handler may run: one that runs once has had its turn, unless it is asked again about the same."""
        if not entry.once:
            return True
        used, call = self.conversation(op.run).used, f"{op.run.id} {op.call.id}" if isinstance(op, ToolUse) else ""
        if entry.key in used:
            return bool(call) and used[entry.key] == call
        used[entry.key] = call
        return True

    async def _told(self, event: str, run: Run, more: Json) -> Json:
        top = self.top(run)
        told = {"session_id": top.thread.id, "transcript_path": await self.work(top).transcript.path()}
        told |= {"cwd": self.runner.cwd, "permission_mode": mode(run), "hook_event_name": event}
        inside = {"agent_id": run.id, "agent_type": run.agent} if run.parent is not None else {}
        return {**told, **inside, **more}

    async def _tell(self, run: Run, said: Said) -> None:
        """Write down what is for the user to see."""
        hook, event = said.entry.name, said.entry.event
        if said.answer.systemMessage:
            text = await self.short(run, event, said.answer.systemMessage)
            run.record("system_message", hook=hook, event=event, message=text)
        if said.refuses and event in ("SessionStart", "SubagentStart"):
            run.record("system_message", hook=hook, event=event, message=await self.short(run, event, said.reason))
        if said.printed and not said.answer.suppressOutput:
            run.record("hook_output", hook=hook, event=event, output=said.printed)

    async def notify(self, run: Run, kind: str, message: str) -> None:
        """Notification: the user is wanted."""
        more = {"message": message, "title": "wick", "notification_type": kind}
        said = await self.fire("Notification", run, [kind], more)
        failure(run, said)
        if (ended := stop(said)) is not None:
            run.halt(ended)

    # -- what the model is to know ----------------------------------------------------------------------------------

    async def add_context(self, run: Run, event: str, texts: Iterable[str]) -> None:
        """Have the model told something with its next question."""
        for text in texts:
            told = fence_text("hook", await self.short(run, event, text), event=event)
            self.work(run).context.append(Message("user", told, name=event))

    async def short(self, run: Run, event: str, text: str) -> str:
        """A text, or the beginning of it and where the whole is kept."""
        if len(text) <= constants.HOOK_TEXT_CHARS:
            return text
        work = self.work(run)
        work.kept += 1
        path = f".results/hook-{event}-{run.id}-{work.kept}.txt"
        kept = await store_large_text(run.thread, run.id, path, text)
        where = f"the whole text is kept as {path}; read it with read_file" if kept else "the rest could not be kept"
        return f"{text[: constants.HOOK_PREVIEW_CHARS]}\n\n... ({where}) ..."

    # -- the end of conversations -----------------------------------------------------------------------------------

    async def make_room(self) -> None:
        """Of very many conversations the oldest is taken to have ended."""
        while len(self.conversations) > constants.HOOK_SESSIONS:
            await self.end(next(iter(self.conversations)))

    async def end(self, thread: str) -> None:
        """Tell the programs that a conversation has ended."""
        conversation = self.conversations.pop(thread)
        entries = self.matching("SessionEnd", ["other"])
        if not entries or not conversation.own or conversation.thread is None:
            return
        transcript = Transcript(conversation.thread, self.runner.cwd)
        told = {"session_id": thread, "transcript_path": await transcript.path(), "cwd": self.runner.cwd}
        told |= {"permission_mode": conversation.mode, "hook_event_name": "SessionEnd", "reason": "other"}
        try:
            asked = [handlers.call(entry, encoded(told), self.runner, None) for entry in entries]
            said = await asyncio.gather(*asked)
        finally:
            await transcript.remove()
        for one in said:
            if one.problem:
                logger.warning(
                    "the hook program %s %s; the conversation has ended all the same", one.entry.name, one.problem
                )

    async def close(self) -> None:
        """Tell the programs that every conversation has ended."""
        for thread in [*self.conversations]:
            await self.end(thread)

    def listed(self, ring: int) -> list[Listed]:
        """A row for each handler; all of an event are called side by side, and stand there in this order."""
        return [
            Listed(
                entry.name,
                entry.source,
                entry.trust,
                POINTS.get(entry.event, ""),
                entry.event,
                number,
                fail=shown(entry.event, entry.fail),
                problem="all hooks are disabled" if self.settings.disabled else entry.problem,
            )
            for number, entry in enumerate(self.settings.entries, ring)
        ]


def mode(run: Run) -> str:
    """The mode of the permissions that a run is under."""
    for guard in run.guards(ToolUse):
        if getattr(guard.owner, "name", "") == "permissions":
            return str(getattr(guard.owner, "mode", "default"))
    return "default"
