"""A command that no deny rule matches runs nothing denied: generated commands, in real shells."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from denied_commands import WAYS, Shells, fill_template, generate_commands
from ordinary_commands import ORDINARY
from wick.capabilities.permissions import Permissions
from wick.constants import SHELL_COMMANDS, SHELL_TOKENS
from wick.permissions import shell, shell_grammar, shell_programs, shell_syntax, specifiers
from wick.permissions.shell import parse_script
from wick.permissions.shell_lexer import Word
from wick.permissions.shell_syntax import ParseBudget, parse

FULL = bool(os.environ.get("WICK_FULL"))
COUNT = 20_000 if FULL else 150
REAL = ("/bin/sh", "/bin/bash")
DENY = Permissions(deny=["Bash(evil push *)"], mode="bypassPermissions")
POLICY = Permissions(policy="shell", mode="bypassPermissions")


@pytest.fixture
def shells(tmp_path: Path) -> Shells:
    for path in REAL:
        if not os.path.exists(path):
            pytest.skip(f"install {path}")
    return Shells(tmp_path)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    parse_script.cache_clear()
    yield
    parse_script.cache_clear()


def find_missed(commands: Iterable[str], shells: Shells) -> list[str]:
    """Return allowed commands that run a denied program."""
    allowed = [command for command in commands if DENY.explain("Bash", {"command": command}).decision == "allow"]
    return [command for command in allowed if any(shells.runs(command, path) for path in REAL)]


def test_no_generated_command_gets_past_a_deny_rule(shells: Shells) -> None:
    assert find_missed(generate_commands(COUNT, trial=19), shells) == []


def test_no_way_through_options_programs_and_files_gets_past_a_deny_rule(shells: Shells) -> None:
    assert find_missed(WAYS, shells) == []


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("names_program", "install -s --strip-program=evil /bin/true push"),
        ("_runs_code", "env -u A sh -c true; prlimit -n -- sh -c 'e$()vil push'"),
        ("_name_parts", "printf 'ev%s push' il | dd of=x; sh x"),
    ],
)
def test_a_reopened_bypass_is_detected(
    name: str, command: str, shells: Shells, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert DENY.explain("Bash", {"command": command}).decision != "allow"
    parse_script.cache_clear()
    monkeypatch.setattr(shell, name, lambda *words: ())
    if name == "_runs_code":
        monkeypatch.setattr(shell, "is_opener", lambda name: False)
    assert DENY.explain("Bash", {"command": command}).decision == "allow"


def test_generated_commands_run_the_denied_program(shells: Shells) -> None:
    """Or the test above would be content with commands that do nothing."""
    every = [*dict.fromkeys(generate_commands(0, trial=19))]
    sample = every if FULL else every[:: len(every) // 20]
    ran = [command for command in sample if any(shells.runs(command, path) for path in REAL)]
    assert len(ran) > len(sample) * 0.8


def _nothing(*args: Any, **more: Any) -> None:
    return None


def _no(*args: Any, **more: Any) -> bool:
    return False


def _yes(*args: Any, **more: Any) -> bool:
    return True


def _read_as_bash_alone(self: Any, nested: bool, real: Any = shell_syntax._Parser._read_operator) -> bool:
    result = real(self, nested)
    self.dash = None
    return bool(result)


def _target_takes_all(self: Any, word: Word, quoted: bool, real: Any = shell_syntax._Parser._add_redirect) -> None:
    """Take the words behind the target of a redirection for more targets, as tree-sitter does."""
    real(self, word, quoted)
    if self.row.words:
        while self.text[self.at : self.at + 1] == " " and self.text[self.at + 1 : self.at + 2].isalpha():
            self.at += 1
            self._read_word()


def _name_by_prefix(pattern: str, word: Word) -> bool:
    return not word.glob or specifiers._can_glob_match(pattern, word.text)


FAULTS: dict[str, tuple[list[tuple[Any, str, Any]], str]] = {
    "words behind a redirection": (
        [(shell_syntax._Parser, "_add_redirect", _target_takes_all), (shell._Reader, "_compare", _nothing)],
        "evil >/dev/null push; echo $HOME",
    ),
    "`&>` as bash reads it": (
        [(shell_syntax._Parser, "_read_operator", _read_as_bash_alone)],
        "true &>/dev/null evil push",
    ),
    "a path that is a pattern": ([(specifiers, "_can_be_named", _name_by_prefix)], "bin/ev[i]l push"),
    "a stream as a script": ([(shell, "_is_stream", _no)], "echo e''vil push | sed s/x/y/ | sh /dev/stdin"),
    "a shell of another name": (
        [
            (shell, "is_shell", lambda name: name in ("sh", "bash", "dash")),
            (shell, "_mentioned_names", lambda *a: frozenset()),
        ],
        "rbash -c 'evil push'",
    ),
    "options of a wrapper": (
        [(shell._Reader, "_add_candidates", _nothing), (shell._Reader, "hide", _nothing)],
        "env -Sevil push",
    ),
    "an interpreter": (
        [(shell, "find_interpreter", lambda name: None)],
        'python3 -c \'import os; os.system("ev"+"il push")\'',
    ),
    "awk": ([(shell, "is_plain_awk", _yes)], 'awk \'BEGIN { system("e" "vil push") }\''),
    "sed": ([(shell, "is_plain_sed", _yes)], "echo evil push | sed 's/x/y/;s/^/ /e'"),
    "git": ([(shell, "explain_git", lambda words: "")], "git -c alias.z='!e''vil push' z"),
    "tar": (
        [(shell, "can_tar_run", _no)],
        "tar cf /dev/null --checkpoint=1 --checkpoint-action=exec=\"e''vil push\" bin",
    ),
    "a program about which nothing is known": (
        [(shell, "_mentioned_names", lambda *a: frozenset()), (shell, "is_opener", _no)],
        "flock x evil push",
    ),
    "a file that is written and run": ([(shell._Reader, "check_written_files", _nothing)], "ln -s evil bin/z; z push"),
    "a variable that programs run": ([(shell, "can_run", _no)], "GIT_SSH_COMMAND='evil push' git ls-remote ssh://x/y"),
    "what the parser gives up on": ([(shell._Reader, "hide", _nothing)], "echo $'\\'; evil push #'"),
    "a calculation": (
        [(shell._Reader, "hide", _nothing)],
        "a='b[$(evil push)]'; echo $((a))",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_detected(name: str, shells: Shells, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without each fixed part, a command that runs a denied program passes."""
    faults, command = FAULTS[name]
    assert find_missed([command], shells) == []
    parse_script.cache_clear()
    for owner, attribute, fault in faults:
        monkeypatch.setattr(owner, attribute, fault)
    assert find_missed([command], shells) == [command]


# -- the policy for shells ------------------------------------------------------------------------------------------

FOLDERS = (
    *("//usr", "/usr/.", "/./usr", "/usr//", "/tmp/../usr", "/usr/../usr", "/USR", "/us[r]", "/u*"),
    *("/proc/self/root/usr", "../../../usr", "/proc/self/cwd/usr", "$X/usr", '"/usr"', "/'usr'", "/usr/x/.."),
)
PROGRAMS = (
    "rm -rf {}",
    "/bin/rm -rf {}",
    "/bin/r[m] -rf {}",
    "env rm -r {}",
    "echo $HOME; rm -rf >/dev/null {}",
    "sh -c 'rm -rf {}'",
)
MOVED = (
    *(
        "cd / && rm -rf usr",
        "cd /; rm -rf .",
        "cd /usr/..; rm -rf usr",
        "(cd / && rm -rf ./usr)",
        "cd $X && rm -rf usr",
    ),
    *(
        "cd /; rm -rf *",
        "cd .. && rm -rf usr",
        "pushd / && rm -rf usr",
        "cd && rm -rf etc",
        "ln -s / x && rm -rf x/usr",
    ),
    *(
        "find / -maxdepth 0 -execdir rm -rf usr \\;",
        "cd /tmp/.. && rm -rf u*",
        "env -C / rm -rf usr",
        "dd if=x of=//dev/sda",
    ),
    *("env -Ssudo id", "bash -c 'cd / && rm -rf usr'", "chmod -R 0 //", "mv /. /x", "dd of=/tmp/../dev/sda", "SUDO id"),
)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_policy_recognizes_a_folder_by_any_path(program: str, folder: str) -> None:
    if "'" in program and "'" in folder:
        return
    assert POLICY.explain("Bash", {"command": program.format(folder)}).decision != "allow"


@pytest.mark.parametrize("command", MOVED)
def test_the_policy_follows_to_another_folder(command: str) -> None:
    assert POLICY.explain("Bash", {"command": command}).decision != "allow"


def test_the_policy_uses_the_start_folder_of_a_command() -> None:
    for name in ("workdir", "cwd"):
        assert POLICY.explain("Bash", {"command": "rm -rf usr", name: "/"}).decision != "allow"
        assert POLICY.explain("Bash", {"command": "rm -rf usr", name: "/tmp"}).decision == "allow"


def test_unnormalized_paths_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner in (shell, specifiers):
        monkeypatch.setattr(owner, "simplify", lambda path: path)
    planted = Permissions(policy="shell", mode="bypassPermissions")
    assert planted.explain("Bash", {"command": "rm -rf //usr"}).decision == "allow"


# -- few questions about ordinary commands --------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [DENY, POLICY], ids=["deny", "policy"])
def test_ordinary_commands_are_not_asked_about(rules: Permissions) -> None:
    asked = [command for command in ORDINARY if rules.explain("Bash", {"command": command}).decision != "allow"]
    assert len(asked) <= len(ORDINARY) * 0.02, asked


# -- the cost of reading --------------------------------------------------------------------------------------------

UNITS = (
    *(
        "[[ watch ",
        "watch ",
        "a|<<-E\n{",
        "<<-E\na;",
        "a;",
        "nice ",
        "a&&",
        "a|",
        "rm ",
        "rm $a ",
        "rm * ",
        "cd /a;",
        "$(",
    ),
    *(
        "`",
        "${x:-",
        '"$(',
        "(",
        "{ ",
        "if a;then ",
        "a <<E\nx\nE\n",
        "sh -c '",
        "eval ",
        "env A=1 ",
        "su 'a b' ",
        "a=(b ",
    ),
    *(
        "find . -exec a ; ",
        "xargs ",
        "[a]* ",
        "a=1 ",
        "$((1+",
        "$((1))",
        "a>f ",
        "a &>f b;",
        "'a'",
        '"a"',
        "\\a",
        "{a,b}",
    ),
    *(
        "a\\\n",
        "# a\n",
        "\n",
        "a()",
        "function a ",
        "trap 'a' ",
        "watch 'a' ",
        "sh -c a;",
        "PS4=a ",
        "CC='a b' ",
        "$'a'",
    ),
)


class Counted(ParseBudget):
    """A budget that counts its use."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def spend(self, tokens: int = 1) -> None:
        self.steps += 1
        super().spend(tokens)


@pytest.mark.parametrize("length", [1_990, 20_000, 49_999])
def test_reading_is_bounded_by_work(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any repetition: few steps, few commands, and only bounded text is given to the grammar."""
    given = list[str]()
    real: Callable[[str], shell_grammar.GrammarScan] = shell.scan_text
    monkeypatch.setattr(shell, "scan_text", lambda text: given.append(text) or real(text))
    for unit in UNITS:
        text, budget = (unit * length)[:length], Counted()
        parsed = parse(text, budget)
        assert budget.steps <= 2 * SHELL_TOKENS + 1, unit
        assert len(parsed.commands) <= SHELL_COMMANDS + 1, unit
        given.clear()
        script = parse_script(text)
        assert len(script.commands) <= 3 * SHELL_COMMANDS, unit
        assert all(not parse(text).problem for text in given), unit
        assert not parsed.problem or POLICY.explain("Bash", {"command": text}).decision != "allow", unit


def test_a_parser_without_bounds_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ParseBudget, "spend", _nothing)
    monkeypatch.setattr(shell_syntax, "SHELL_WORDS", 10**9)
    budget = Counted()
    parse("watch " * 8_000, budget)
    assert budget.steps > 2 * SHELL_TOKENS


def test_a_carrier_is_filled() -> None:
    assert fill_template("sh -c {q}", "evil push") == "sh -c 'evil push'"
    assert shell_programs.find_interpreter("python3.12") is not None
