"""The options that select a host: in groups of commands, and in hints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from wick.cli.commands import approvals
from wick.cli.host.open import HostOptions

SERVER = "https://a.example"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (["--server", SERVER, "--token-file", "t"], [], HostOptions(SERVER, "t")),
        (["--server", SERVER], ["--token-file", "t"], HostOptions(SERVER, "t")),
        (["--server", SERVER, "--token-file", "t"], ["--folder", "sub"], HostOptions(SERVER, "t", folder="sub")),
        (["--server", SERVER, "--folder", "sub"], ["--folder", "."], HostOptions(SERVER)),
        (["--server", "https://b.example"], ["--server", SERVER], HostOptions(SERVER)),
        ([], [], HostOptions("https://environment.example")),
    ],
)
@pytest.mark.parametrize("answer", ["allow", "deny"])
def test_options_before_and_after_an_answer_are_merged(
    answer: str,
    before: list[str],
    after: list[str],
    expected: HostOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = list[HostOptions]()

    async def send_answer(options: HostOptions, *_: Any) -> None:
        found.append(options)

    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(approvals, "_send_answer", send_answer)
    monkeypatch.setenv("WICK_SERVER", "https://environment.example")
    done = CliRunner().invoke(approvals.command, [*before, answer, *after, "ask_1"])
    assert done.exit_code == 0 and found == [expected], done.output


def test_hints_have_the_options_of_the_server() -> None:
    assert HostOptions(folder="sub").hint_options == ""
    assert HostOptions(SERVER, "my token").hint_options == f" --server {SERVER} --token-file 'my token'"
