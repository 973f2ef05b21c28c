"""The end of each `--help`: examples that can be typed, and the section of the documentation."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli.command import ROOT
from wick.cli.command_help import DOCS_PAGE, EXAMPLES
from wick.cli.root_command import COMMANDS, wick


def _find_command(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command that words name, and the words that remain for it."""
    command: click.Command = wick
    while (
        isinstance(command, click.Group) and words and (found := command.get_command(click.Context(command), words[0]))
    ):
        command, words = found, words[1:]
    return command, words


def _command_names() -> list[str]:
    found = [""]
    for name in COMMANDS:
        command, _ = _find_command([name])
        found += [name, *(f"{name} {inner}" for inner in getattr(command, "commands", {}))]
    return found


@pytest.mark.parametrize("name", _command_names())
def test_the_help_ends_with_examples_and_a_page(name: str) -> None:
    assert EXAMPLES.get(name), f"add examples of `wick {name}` to EXAMPLES"
    done = CliRunner().invoke(wick, [*name.split(), "--help"], prog_name="wick", terminal_width=200)
    assert done.exit_code == 0
    for example in EXAMPLES[name]:
        assert f"\n    {example}\n" in done.output
        assert f"wick {name}".strip() in example or not name
    section = name.partition(" ")[0]
    assert done.output.endswith(f"  Documentation: {DOCS_PAGE}{f'#wick-{section}' if section else ''}\n")
    page = (ROOT / DOCS_PAGE).read_text(encoding="utf-8")
    assert not section or re.search(rf"^## wick {section}$", page, re.MULTILINE)


@pytest.mark.parametrize("example", [example for name in _command_names() for example in EXAMPLES.get(name, ())])
def test_an_example_can_be_typed(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "event.json").touch()
    command, rest = _find_command(shlex.split(example.rpartition("| ")[2])[1:])
    command.make_context("wick", rest).close()
