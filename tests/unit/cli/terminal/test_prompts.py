"""The prompt for approvals: the answers to a question about missing files."""

from __future__ import annotations

from io import StringIO

import pytest

from wick.cli.terminal.follow_run import ApprovalReply
from wick.cli.terminal.prompts import ApprovalPrompt
from wick.events import ApprovalRequest


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("y", ApprovalReply("allow")),
        ("f", ApprovalReply("allow", args={"workspace": "start afresh"})),
        ("n", ApprovalReply("deny")),
    ],
)
async def test_a_run_without_its_files_starts_afresh_only_by_its_own_key(
    line: str, reply: ApprovalReply, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, about = StringIO(), {"files": "missing", "args": {"workspace": "try again"}}
    prompt = ApprovalPrompt(shown)

    async def read_line(*_: str) -> str:
        return line

    monkeypatch.setattr(prompt, "_read_line", read_line)
    request = ApprovalRequest("r1", id="ask_1", question="The files are missing.", about=about)
    assert await prompt._ask_permission(request) == reply
    assert "f start afresh, without the files" in shown.getvalue()


SOURCES = [{"thread": "t", "entry": 4, "author": "read_mail", "tool": "send", "target": "to"}]


@pytest.mark.parametrize(
    ("about", "lines", "reply", "problem"),
    [
        ({"sources": SOURCES}, ["t"], ApprovalReply("allow_source"), ""),
        ({}, ["t", "y"], ApprovalReply("allow"), "this question names no source"),
        ({"step": ["ask_2"]}, ["all"], ApprovalReply("allow_step"), ""),
        ({"step": ["ask_2"]}, ["none"], ApprovalReply("deny_step"), ""),
        ({}, ["all", "n"], ApprovalReply("deny"), "this is the only question of this step"),
        ({}, ["always", "y"], ApprovalReply("allow"), "this question is asked every time"),
        ({}, ["a Send(*)", "y"], ApprovalReply("allow"), "a rule would not apply"),
        ({"lasting": True}, ["a Send(*)"], ApprovalReply("allow", rule="Send(*)"), ""),
    ],
)
async def test_the_keys_for_a_source_and_for_a_step(
    about: dict[str, object], lines: list[str], reply: ApprovalReply, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, typed = StringIO(), iter(lines)
    prompt = ApprovalPrompt(shown)

    async def read_line(*_: str) -> str:
        return next(typed)

    monkeypatch.setattr(prompt, "_read_line", read_line)
    request = ApprovalRequest("r1", id="ask_1", question="Send it?", about={"args": {"to": "x"}, **about})
    assert await prompt._ask_permission(request) == reply
    assert problem in shown.getvalue() and next(typed, None) is None
    assert ("one of 2 questions of this step" in shown.getvalue()) is ("step" in about)
    assert ("t yes, and this source" in shown.getvalue()) is ("sources" in about)
