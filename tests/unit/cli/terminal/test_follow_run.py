"""Following a run: answers that the host refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from wick.cli.terminal.follow_run import ApprovalReply, follow_run
from wick.errors import ConfigError
from wick.events import ApprovalRequest, ApprovalResponse, Event

REQUEST = ApprovalRequest("r1", id="ask_1", question="Use it?", about={"lasting": True})


class StubHost:
    """A host that refuses the rule `Bad(*)`, and the run that waits for its answer."""

    remote, run_id, thread_id = False, "r1", "t1"

    def __init__(self, *, answered_elsewhere: bool = False) -> None:
        self.answers: list[tuple[str, str]] = []
        self.rules: list[str] = []
        self.stopped = False
        self._answered_elsewhere = answered_elsewhere
        self._refused, self._answered = asyncio.Event(), asyncio.Event()

    async def add_allow_rule(self, rule: str) -> None:
        if rule == "Bad(*)":
            self._refused.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            raise ConfigError("the server refuses this rule")
        self.rules.append(rule)

    async def answer_approval(self, id: str, choice: str, **_: Any) -> None:
        self.answers.append((id, choice))
        self._answered.set()

    async def stop(self) -> None:
        self.stopped = True
        self._answered.set()

    async def __aiter__(self) -> AsyncIterator[Event]:
        yield REQUEST
        if self._answered_elsewhere:
            await self._refused.wait()
            yield ApprovalResponse("r1", id="ask_1")
            await asyncio.sleep(0.05)
            return
        await self._answered.wait()


@pytest.mark.parametrize("second", [ApprovalReply("allow", rule="Good(*)"), ApprovalReply("deny")])
async def test_a_question_is_asked_again_after_a_refused_rule(second: ApprovalReply) -> None:
    host: Any = StubHost()
    replies, problems = iter([ApprovalReply("allow", rule="Bad(*)"), second]), list[str]()

    async def ask(request: ApprovalRequest, problem: str) -> ApprovalReply:
        problems.append(problem)
        return next(replies)

    assert await follow_run(host, host, lambda event: None, ask)
    assert problems == ["", "the server refuses this rule"]
    assert host.answers == [("ask_1", second.choice)] and not host.stopped
    assert host.rules == [second.rule] * bool(second.rule)


async def test_a_question_that_was_answered_elsewhere_is_not_asked_again() -> None:
    host: Any = StubHost(answered_elsewhere=True)
    problems = list[str]()

    async def ask(request: ApprovalRequest, problem: str) -> ApprovalReply:
        problems.append(problem)
        return ApprovalReply("allow", rule="Bad(*)")

    assert await follow_run(host, host, lambda event: None, ask)
    assert problems == [""] and not host.answers and not host.stopped
