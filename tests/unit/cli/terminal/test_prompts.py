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
