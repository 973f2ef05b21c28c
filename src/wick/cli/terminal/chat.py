"""The interactive session of `wick chat`: one thread at a time, and its current run."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from wick._internal.prompt_text import to_one_line
from wick.api.types import AgentDetail, ThreadDetail
from wick.capabilities.skills.catalog import slugify
from wick.cli.host.protocol import AgentHost, RunHandle
from wick.cli.terminal.follow_run import ApprovalReply, follow_run
from wick.cli.terminal.output import strip_controls
from wick.cli.terminal.prompts import ApprovalPrompt
from wick.cli.terminal.screen import Screen
from wick.cli.terminal.typed_ahead import TypeAheadReader
from wick.errors import WickError
from wick.events import ApprovalRequest

HISTORY_MESSAGES = 4  # shown when a thread is resumed
RELEASE_SECONDS = 5.0  # for another process to release the lease of a thread
SHOWN_CHARS = 60  # of a message sent while the agent answers


class Chat:
    """A conversation with the agent of a host. `thread` is empty until the first message."""

    def __init__(self, host: AgentHost) -> None:
        self.host, self.thread, self.is_over = host, "", False
        self.console = Console(highlight=False)
        self.screen = Screen(self.console)
        host.on_break = self.screen.show_disconnect
        self.skills: Mapping[str, str] = {}  # name by slash command
        self.agent: AgentDetail  # set by `prepare`
        self.warnings: list[str] = []
        self.queued_lines: list[str] = []  # slash commands typed while the agent answered
        self._prompt = ApprovalPrompt(sys.stdout)
        self._sending: list[asyncio.Task[None]] = []

    def print_notice(self, words: str, style: str = "dim") -> None:
        """Print a line that is not part of the conversation."""
        self.console.print(Text(strip_controls(words), style=style))

    async def prepare(self) -> None:
        """Load the agent, its warnings and its skills."""
        self.agent = await self.host.get_agent()
        self.warnings = await self.host.list_warnings()
        self.skills = {
            slugify(skill.name).lower(): skill.name for skill in (await self.host.list_skills()).skills if skill.enabled
        }

    async def open(self, thread: str) -> None:
        """Print the header, and resume a thread if one is given."""
        self.print_notice(f"{self.agent.name} · {self.agent.model} · {self.host.name}", "bold")
        if self.agent.backend is not None and self.agent.backend.protection.says:
            self.print_notice(self.agent.backend.protection.says)
        for sentence in self.warnings:
            self.print_notice(sentence, "yellow")
        self.print_notice("/help lists the commands; Ctrl-C stops the agent, Ctrl-D quits")
        if thread:
            await self.resume_thread(thread)

    async def resume_thread(self, thread: str) -> None:
        """Switch to a thread: print its last messages, and resume an interrupted run."""
        detail = await self.host.get_thread(thread)
        self.thread = detail.id
        self.print_notice(f"resuming {detail.id}: {detail.title or '(untitled)'}")
        shown = [message for message in detail.messages if message.content][-HISTORY_MESSAGES:]
        self.screen.print_messages([message.model_dump() for message in shown])
        if detail.run_id and (self.host.remote or await self._wait_for_release(detail)):
            await self._follow(self.host.resume_run(detail.id))

    async def _wait_for_release(self, detail: ThreadDetail) -> bool:
        """Wait until another process releases a thread; return True if its run can be resumed here.

        A process whose terminal was just closed needs a moment to end.
        """
        if detail.running:
            self.print_notice("another process is using this thread; waiting for it to finish")
        until = asyncio.get_running_loop().time() + RELEASE_SECONDS
        while detail.running and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.1)
            detail = await self.host.get_thread(detail.id)
        if detail.running:
            self.print_notice("the run continues in the other process, which also asks its questions")
        return bool(detail.run_id) and not detail.running

    async def send_prompt(self, words: str) -> None:
        """Send a prompt to the agent, and show the run."""
        await self._follow(self.host.start_run(words, thread=self.thread))

    async def _follow(self, run: RunHandle) -> None:
        self.screen.show_thinking()
        type_ahead = TypeAheadReader(lambda words: self._steer(run, words))

        async def ask(request: ApprovalRequest, problem: str) -> ApprovalReply:
            with type_ahead.pause():
                return await self._prompt.ask(request, problem)

        following = asyncio.create_task(
            follow_run(
                self.host, run, lambda event: self.screen.show(event, is_main_run=event.run_id == run.run_id), ask
            ),
            name="a run",
        )
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, following.cancel)  # Ctrl-C stops the run, not the process
        try:
            with type_ahead.capture():
                await asyncio.wait((following,))
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        self.thread = run.thread_id or self.thread
        await self._print_end(run, following)
        await self._run_queued(run)

    # -- messages during a run ----------------------------------------------------------------------------------------

    def _steer(self, run: RunHandle, words: str) -> None:
        """Send a message to the current run; queue a slash command until it ends."""
        if words.startswith("/") or not run.thread_id:
            self.queued_lines.append(words)
            return self.print_notice(f"{to_one_line(words, SHOWN_CHARS)}: queued until the agent is done")

        async def send(thread: str) -> None:
            try:
                await self.host.steer(thread, words)
                self.print_notice(f"{to_one_line(words, SHOWN_CHARS)}: sent; the agent reads it at its next step")
            except (WickError, OSError) as error:
                self.print_notice(f"not sent: {words}\n{error}", "red")

        self._sending.append(asyncio.create_task(send(run.thread_id), name="steering"))
        return None

    async def _run_queued(self, run: RunHandle) -> None:
        """Start another run if messages arrived too late for this one."""
        sending, self._sending = self._sending, []
        if not sending:
            return
        await asyncio.wait(sending)
        try:
            thread = await self.host.get_thread(self.thread)
        except (WickError, OSError) as error:
            return self.print_notice(str(error), "red")
        if thread.queued or (self.host.remote and thread.run_id not in ("", run.run_id)):
            await self._follow(self.host.resume_run(self.thread))

    async def _print_end(self, run: RunHandle, following: asyncio.Task[bool]) -> None:
        try:
            if not following.cancelled():
                following.result()
            self.screen.finish(await run.get_outcome() if run.run_id else None)
        except (WickError, OSError) as error:
            self.screen.finish()
            self.print_notice(str(error), "red")
        if following.cancelled():
            self.print_notice("stopped; send a message to continue", "yellow")
