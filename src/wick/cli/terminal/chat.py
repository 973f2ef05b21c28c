"""A conversation at a terminal: one thread at a time, and a run of it while the agent answers."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from wick._internal.prompt_text import one_line
from wick.capabilities.skills.catalog import slug
from wick.cli.host.protocol import AgentHost, AgentProfile, RunHandle, ThreadTranscript
from wick.cli.terminal.follow_run import ApprovalReply, follow_run
from wick.cli.terminal.output import strip_controls
from wick.cli.terminal.prompts import ApprovalPrompt
from wick.cli.terminal.screen import Screen
from wick.cli.terminal.typed_ahead import TypeAheadReader
from wick.errors import WickError
from wick.events import ApprovalRequest

HISTORY_MESSAGES = 4  # messages of a thread that is gone on with
RELEASE_SECONDS = 5.0  # for a program that has a thread and is about to end
SHOWN_CHARS = 60  # of what was said while the agent answers


class Chat:
    """A conversation with the agent of a desk. `thread` is empty until something was said."""

    def __init__(self, desk: AgentHost) -> None:
        self.desk, self.thread, self.over = desk, "", False
        self.console = Console(highlight=False)
        self.screen = Screen(self.console)
        desk.on_break = self.screen.lost
        self.skills: Mapping[str, str] = {}  # their names, by the word that calls them
        self.agent = AgentProfile("", "", "", [])
        self.warnings: list[str] = []
        self.later: list[str] = []  # commands that were typed while the agent answered
        self._terminal = ApprovalPrompt(sys.stdout)
        self._sending: list[asyncio.Task[None]] = []

    def tell(self, words: str, style: str = "dim") -> None:
        """Say something that the agent does not hear."""
        self.console.print(Text(strip_controls(words), style=style))

    async def prepare(self) -> None:
        """Find out what there is to talk to."""
        self.agent = await self.desk.agent()
        self.warnings = await self.desk.warnings()
        self.skills = {slug(skill.name).lower(): skill.name for skill in await self.desk.skills() if skill.enabled}

    async def open(self, thread: str) -> None:
        """Say what this is, and go on with a thread if one is named."""
        self.tell(f"{self.agent.name} · {self.agent.model} · {self.desk.name}", "bold")
        if self.agent.protection:
            self.tell(self.agent.protection)
        for sentence in self.warnings:
            self.tell(sentence, "yellow")
        self.tell("/help shows the commands; Ctrl-C stops the agent, Ctrl-D leaves")
        if thread:
            await self.go_on(thread)

    async def go_on(self, thread: str) -> None:
        """Go on with a thread: with what was said in it last, and with a run that was interrupted."""
        detail = await self.desk.thread(thread)
        self.thread = detail.id
        self.tell(f"going on with {detail.id}: {detail.title or '(untitled)'}")
        self.screen.said([row for row in detail.messages if row.get("content")][-HISTORY_MESSAGES:])
        if detail.run and (self.desk.remote or await self._is_let_go(detail)):
            await self._see(self.desk.take_up(detail.id))

    async def _is_let_go(self, detail: ThreadTranscript) -> bool:
        """Whether no other program works on a thread; one whose terminal was just closed takes a moment to end."""
        if detail.running:
            self.tell("another program works on this thread; waiting a moment, as it may be about to end")
        until = asyncio.get_running_loop().time() + RELEASE_SECONDS
        while detail.running and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.1)
            detail = await self.desk.thread(detail.id)
        if detail.running:
            self.tell("it goes on there, and so does what it asks")
        return bool(detail.run) and not detail.running

    async def say(self, words: str) -> None:
        """Say something to the agent, and see its answer."""
        await self._see(self.desk.talk(words, thread=self.thread))

    async def _see(self, talk: RunHandle) -> None:
        self.screen.begin()
        overhearing = TypeAheadReader(lambda words: self._steer(talk, words))

        async def ask(asked: ApprovalRequest) -> ApprovalReply:
            with overhearing.paused():
                return await self._terminal.ask(asked)

        seeing = asyncio.create_task(
            follow_run(self.desk, talk, lambda event: self.screen.show(event, mine=event.run_id == talk.run_id), ask),
            name="a run",
        )
        with _cancel_on_sigint(seeing), overhearing.unseen():
            await asyncio.wait((seeing,))
        self.thread = talk.thread_id or self.thread
        await self._tell_end(talk, seeing)
        await self._answer_the_rest(talk)

    # -- what is said while the agent answers -------------------------------------------------------------------------

    def _steer(self, talk: RunHandle, words: str) -> None:
        """Say something to a run that goes on; a command is for the time after it."""
        if words.startswith("/") or not talk.thread_id:
            self.later.append(words)
            return self.tell(f"{one_line(words, SHOWN_CHARS)}: when the agent is done")
        self._sending.append(asyncio.create_task(self._send(talk.thread_id, words), name="steering"))
        return None

    async def _send(self, thread: str, words: str) -> None:
        try:
            await self.desk.steer(thread, words)
            self.tell(f"{one_line(words, SHOWN_CHARS)}: heard at its next step")
        except (WickError, OSError) as error:
            self.tell(f"this was not heard: {words}\n{error}", "red")

    async def _answer_the_rest(self, talk: RunHandle) -> None:
        """What was said too late for a run is answered by the next one."""
        sending, self._sending = self._sending, []
        if not sending:
            return
        await asyncio.wait(sending)
        try:
            found = await self.desk.thread(self.thread)
        except (WickError, OSError) as error:
            return self.tell(str(error), "red")
        if found.queued or (self.desk.remote and found.run not in ("", talk.run_id)):
            await self._see(self.desk.take_up(self.thread))

    async def _tell_end(self, talk: RunHandle, seeing: asyncio.Task[bool]) -> None:
        try:
            if not seeing.cancelled():
                seeing.result()
            self.screen.end(await talk.came_to() if talk.run_id else None)
        except (WickError, OSError) as error:
            self.screen.end()
            self.tell(str(error), "red")
        if seeing.cancelled():
            self.tell("stopped; the thread stays, go on when you like", "yellow")


@contextmanager
def _cancel_on_sigint(task: asyncio.Task[bool]) -> Iterator[None]:
    """Ctrl-C ends a task, and nothing else."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
