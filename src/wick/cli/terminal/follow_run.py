"""Following a run in the terminal: show its events, and ask the user its questions one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wick._internal.tasks import cancel_and_wait
from wick.api.types import Choice
from wick.cli.host.protocol import AgentHost, RunHandle
from wick.errors import WickError
from wick.events import ApprovalRequest, ApprovalResponse, Event


@dataclass(frozen=True, slots=True)
class ApprovalReply:
    """The user's answer to a question; `rule` is a permission rule to add to `allow`."""

    choice: Choice
    words: str = ""
    rule: str = ""
    args: Mapping[str, Any] | None = None


class Interrupted(Exception):
    """Raised when the user presses Ctrl-C at a question; it stops the run."""


Asker = Callable[[ApprovalRequest, str], Awaitable[ApprovalReply]]  # the text is the problem of the last answer
Show = Callable[[Event], None]


async def follow_run(host: AgentHost, run: RunHandle, show: Show, ask: Asker | None = None) -> bool:
    """Read a run to its end; return False if it waits on a server for an answer that `ask` cannot give.

    Cancellation stops the run. The thread can be continued.
    """
    questions = _QuestionQueue(host, run, ask)
    try:
        async for event in run:
            show(event)
            if isinstance(event, ApprovalRequest):
                if ask is None and host.remote:
                    return False  # the run waits on the server, and continues once answered
                questions.put(event)
            elif isinstance(event, ApprovalResponse):
                questions.discard(event.id)
        if questions.error is not None:
            raise questions.error
        return True
    except asyncio.CancelledError:
        await run.stop()
        raise
    finally:
        await questions.close()


class _QuestionQueue:
    """A queue of the questions of a run, asked one at a time. Answers given elsewhere remove a question."""

    def __init__(self, host: AgentHost, run: RunHandle, ask: Asker | None) -> None:
        self._host, self._run, self._ask = host, run, ask
        self._waiting: dict[str, ApprovalRequest] = {}
        self._asking: asyncio.Task[None] | None = None
        self._current = ""
        self._discarded = set[str]()
        self.error: Exception | None = None  # raised while asking

    def put(self, request: ApprovalRequest) -> None:
        if self._ask is None:
            return
        self._waiting[request.id] = request
        self._ask_next()

    def discard(self, id: str) -> None:
        self._waiting.pop(id, None)
        self._discarded.add(id)
        if id == self._current and self._asking is not None:
            self._asking.cancel()

    def _ask_next(self, *_: object) -> None:
        if self._waiting and (self._asking is None or self._asking.done()):
            self._current = next(iter(self._waiting))
            request = self._waiting.pop(self._current)
            self._asking = asyncio.create_task(self._ask_and_answer(request), name=f"asking {request.id}")
            self._asking.add_done_callback(self._ask_next)

    async def _ask_and_answer(self, request: ApprovalRequest) -> None:
        """Ask a question, and send the answer to the host. Stop the run on Ctrl-C and on an error.

        If the host refuses a rule, ask again, unless the question was answered elsewhere.
        """
        assert self._ask is not None
        try:
            reply = await self._ask(request, "")
            self._current = ""  # answered: a response event must not cancel this task
            while reply.rule:
                try:
                    await self._host.add_allow_rule(reply.rule)
                    break
                except (WickError, OSError) as error:
                    if request.id in self._discarded:
                        return
                    self._current = request.id
                    reply = await self._ask(request, str(error))
                    self._current = ""
            try:
                await self._host.answer_approval(
                    request.id, reply.choice, words=reply.words, args=reply.args, thread=self._run.thread_id
                )
            except WickError as error:
                if getattr(error, "code", "") not in ("conflict", "not_found"):  # answered elsewhere first
                    raise
        except Interrupted:
            await self._run.stop()
        except Exception as error:
            self.error = error
            await self._run.stop()

    async def close(self) -> None:
        self._waiting.clear()
        if self._asking is not None and not self._asking.done():
            await cancel_and_wait((self._asking,))
