"""docs/guide/cli.md has every command, option, exit code and environment variable, and nothing that is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from cli.command import ROOT
from wick.cli import root_command

PAGE = (ROOT / "docs" / "guide" / "cli.md").read_text(encoding="utf-8")
CODE = "\n".join(
    [*re.findall(r"`([^`\n]+)`", PAGE), *re.findall(r"^```\w*\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)]
)


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command with its whole name."""
    context = click.Context(root_command.wick)
    for name in root_command.COMMANDS:
        found = root_command.wick.get_command(context, name)
        assert found is not None
        yield f"wick {name}", found
        if isinstance(found, click.Group):
            yield from ((f"wick {name} {inner}", command) for inner, command in found.commands.items())


ALL = dict(commands())


def section(name: str) -> str:
    """Return the documentation of a command and of the common options."""
    found = re.search(rf"^## {re.escape(name)}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/guide/cli.md has no heading `{name}`"
    return found[1]


@pytest.mark.parametrize("name", ALL)
def test_a_command_and_its_options_are_in_the_page(name: str) -> None:
    own = section(" ".join(name.split()[:2]))
    if len(name.split()) > 2:
        assert re.search(rf"`{re.escape(name)}\b", own), f"the page does not speak of `{name}`"
    told = own + section("Common options")
    shown = [one for one in ALL[name].params if isinstance(one, click.Option) and not one.hidden]
    options = [opt for one in shown for opt in one.opts]
    missing = [option for option in options if not re.search(rf"`[^`\n]*(?<![\w-]){re.escape(option)}(?![\w-])", told)]
    assert not missing, f"the page says nothing of {', '.join(missing)} of `{name}`"


def test_no_option_is_made_up() -> None:
    real = {opt for command in ALL.values() for one in command.params for opt in one.opts if opt.startswith("--")}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", CODE)) - {"--version", "--help"}
    assert named <= real, f"there is no {', '.join(named - real)}"


@pytest.mark.parametrize("name", ALL)
def test_a_command_has_a_one_sentence_help(name: str) -> None:
    sentence = (ALL[name].help or "").split("\n\n")[0]
    assert sentence.endswith(".") and len(sentence) < 120
    if len(name.split()) == 2 and isinstance(ALL[name], click.Group):
        assert sentence == root_command.COMMANDS[name.split()[1]]


def test_the_exit_codes_are_those_of_the_frame() -> None:
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", section("Exit codes"), re.MULTILINE)}
    names = ("DONE", "FAILED", "WRONG", "STOPPED", "WAITING", "INTERRUPTED")
    assert codes == {getattr(root_command, name) for name in names}
    assert all(re.search(rf"^{code}\b", root_command.__doc__ or "", re.MULTILINE) for code in codes)
