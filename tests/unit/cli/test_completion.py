"""Shell completion: it offers nothing for wrong input, and never raises."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from wick.cli.completion import BashCompletion
from wick.cli.root_command import wick


def list_commands(command: click.Command, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the words of a command and of all commands in it; the root command loads them one by one."""
    if not isinstance(command, click.Group):
        return [words]
    ctx = click.Context(command)
    inner = ((name, command.get_command(ctx, name)) for name in command.list_commands(ctx))
    return [words, *(found for name, one in inner if one for found in list_commands(one, (*words, name)))]


@pytest.mark.parametrize("wrong", ["suite.yaml", "suite.jsonl", "What is this?", "--nonsense", "\udcff", "["])
def test_no_line_raises(wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WICK_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    completion = BashCompletion(wick, {}, "wick", "_WICK_COMPLETE")
    commands = list_commands(wick)
    assert ("eval", "run") in commands
    for words in commands:
        for incomplete in ("", "-", wrong):
            completion.get_completions([*words, wrong], incomplete)
            completion.get_completions([*words], incomplete)
