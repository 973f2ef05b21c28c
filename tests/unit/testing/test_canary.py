"""A canary finds results that a tool declares as trusted, although they have an untrusted text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wick import Agent, Scripted, Thread, ToolCall, tool, user
from wick.backends import Local
from wick.capabilities import Filesystem, InformationFlow, Todos
from wick.testing import Canary


def build_tool(body: str, **options: Any) -> Any:
    def read_mail(id: str) -> dict[str, str]:
        """Read a mail."""
        return {"id": id, "body": body}

    return tool(read_mail, **options)


@pytest.mark.parametrize("returns", ["trusted", "own", "id", {"body": "trusted"}])
async def test_a_wrong_declaration_is_found(returns: Any) -> None:
    canary = Canary()
    read_mail = build_tool(f"Hello {canary.plant('mail')}", effect="read", returns=returns)
    with pytest.raises(AssertionError, match="read_mail declares a result as .* contains the text of 'mail'"):
        await canary.check_tool(read_mail, id="m1")


@pytest.mark.parametrize("returns", ["untrusted", "directory", {"id": "id"}])
async def test_a_right_declaration_passes(returns: Any) -> None:
    canary = Canary()
    await canary.check_tool(build_tool(canary.plant("mail"), effect="read", returns=returns), id="m1")


async def test_an_error_is_checked_and_an_argument_may_be_repeated() -> None:
    canary = Canary()
    mark = canary.plant("page")

    @tool(effect="read", returns="own")
    def echo(text: str) -> str:
        """Repeat a text."""
        raise ValueError(f"{mark} cannot be repeated")

    await canary.check_tool(echo, text=mark)
    with pytest.raises(AssertionError, match="echo declares"):
        await canary.check_tool(echo, text="x")


async def test_a_thread_without_labels_is_refused() -> None:
    thread = Thread()
    await Agent(Scripted(ToolCall("1", "read_mail", {"id": "1"}), "Done."), tools=[build_tool("x")]).run(
        [user("Go.")], thread=thread
    )
    with pytest.raises(AssertionError, match="InformationFlow"):
        Canary().check(thread)


async def test_no_tool_of_wick_returns_untrusted_text_as_its_own(tmp_path: Path) -> None:
    canary, files, thread = Canary(), Local(tmp_path), Thread()
    path = f"{canary.plant('name')}.txt"
    (tmp_path / path).write_text(f"{canary.plant('content')}\nline")
    calls = [
        ("ls", {}),
        ("glob", {"pattern": "*"}),
        ("grep", {"pattern": "canary"}),
        ("grep", {"pattern": "line", "glob": "*.txt"}),
        ("read_file", {"path": path}),
        ("edit_file", {"path": path, "old_string": "line", "new_string": "row"}),
        ("edit_file", {"path": path, "old_string": "missing", "new_string": "row"}),
        ("write_file", {"path": path, "content": "x"}),
        ("write_todos", {"todos": [{"title": "a"}]}),
    ]
    steps = [ToolCall(str(number), name, args) for number, (name, args) in enumerate(calls)]
    hooks = [InformationFlow(), Filesystem(files), Todos(nudges=0)]
    await Agent(Scripted(*steps, "Done."), hooks=hooks, ask=lambda _: True).run("Go.", thread=thread)
    canary.check(thread)
