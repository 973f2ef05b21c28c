"""Unknown commands and options: the error names the closest one, and the exit code is 2."""

from __future__ import annotations

import shlex

import pytest
from click.testing import CliRunner

from wick.cli.command_group import suggest_word
from wick.cli.root_command import WRONG, wick


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("srve", "there is no command 'srve'; did you mean serve?"),
        ("RUN", "there is no command 'RUN'; did you mean run?"),
        ("help", "there is no command 'help'; did you mean --help?"),
        ("version", "there is no command 'version'; did you mean --version?"),
        ("threads lst", "there is no command 'lst'; did you mean list?"),
        ("approvals alow", "there is no command 'alow'; did you mean allow?"),
        ("agents agents.yaml", "there is no command 'agents.yaml'; did you mean wick agents check agents.yaml?"),
        ("'What is this?'", "to send a prompt, use: wick run 'What is this?'"),
        ('"What\'s $HOME?"', "use: wick run 'What'\"'\"'s $HOME?'"),
        ("xyzzy", "there is no command 'xyzzy'; the commands are agents, approvals, chat"),
        ("run --modle demo hi", "there is no option '--modle'; did you mean --model?"),
        ("run --fold . hi", "there is no option '--fold'; did you mean --folder?"),
        ("serve --prt 1", "there is no option '--prt'; did you mean --port?"),
        ("threads show --jsn x", "there is no option '--jsn'; did you mean --json?"),
        ("eval rn", "there is no command 'rn'; did you mean run?"),
        ("eval record suite.yaml", "there is no command 'record'; use: wick eval run SUITE --record"),
        ("eval run suite.yaml --report x.html", "there is no option '--report'; did you mean --html?"),
        ("eval import ./threads -o x.yaml", "name the store of the threads: --from-threads ./threads; or"),
        ("eval import -o x.yaml", "name the store of the threads: --from-threads ./threads; or"),
        ("new plugin acme-tools", "for a plugin, write: wick new --plugin acme-tools"),
        ("run --zzz", "there is no option '--zzz'; wick run --help lists them"),
        ("--hlp", "there is no option '--hlp'; did you mean --help?"),
        ("--model demo run hi", "options follow the command, as in: wick run --model demo"),
    ],
)
def test_a_wrong_word_gets_a_suggestion(line: str, sentence: str) -> None:
    done = CliRunner().invoke(wick, shlex.split(line), prog_name="wick")
    assert done.exit_code == WRONG
    assert sentence in done.stderr.splitlines()[-1]


def test_a_suggestion_prefers_the_word_that_starts_alike() -> None:
    assert suggest_word("--max", ["--model", "--max-steps"]) == "did you mean --max-steps?"
    assert suggest_word("-x", ["-m", "-h"]) == ""
