"""Commands are found, also inside of other commands; others are reported as opaque."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shell_stubs import COMMANDS
from wick.constants import SHELL_CHARS, SHELL_COMMANDS, SHELL_WORDS
from wick.permissions import shell_programs
from wick.permissions.shell import parse_script, split_plain


def commands(text: str) -> list[str]:
    """Return every command found; those that wrap another are in brackets."""
    return [str(command) if command.needs_rule else f"[{command}]" for command in parse_script(text).commands]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("git status", ["git status"]),
        ("a && b | c; d & e", ["a", "b", "c", "d", "e"]),
        ("(a; { b; }) || ! c", ["a", "b", "c"]),
        ("if a; then b; else c; fi; while d; do e; done", ["a", "b", "c", "d", "e"]),
        ("r''m \\x \"y z\"", ["rm x y z"]),
        ("cat <<'EOF' | wc\nrm $x\nEOF\nls", ["cat", "wc", "ls"]),
        ("a # b", ["a"]),
        ("git >f status", ["git status"]),
        ("nohup timeout 5 nice -n 3 rm x", [
            "[nohup timeout 5 nice -n 3 rm x]", "[timeout 5 nice -n 3 rm x]", "[nice -n 3 rm x]", "rm x",
        ]),
        ("timeout --signal=KILL --foreground 5 rm x", ["[timeout --signal=KILL --foreground 5 rm x]", "rm x"]),
        ("timeout --signal KILL 5 rm x", ["[timeout --signal KILL 5 rm x]", "rm x"]),
        ("env -u A -i -- rm x", ["[env -u A -i -- rm x]", "rm x"]),
        ("env - rm x", ["[env - rm x]", "rm x"]),
        ("stdbuf -oL rm x", ["[stdbuf -oL rm x]", "rm x"]),
        ("sudo -u bob rm x", ["sudo -u bob rm x", "rm x"]),
        ("busybox rm x", ["busybox rm x", "rm x"]),
        ("/usr/bin/env rm x", ["/usr/bin/env rm x", "rm x"]),
        ("command -v rm", ["command -v rm"]),
        ("ls | xargs -0 -n1 rm -f", ["ls", "[xargs -0 -n1 rm -f]", "rm -f …"]),
        ("ls | xargs", ["ls", "[xargs]"]),
        ("xargs -I{} mv {} x", ["[xargs -I{} mv {} x]", "mv {} x …"]),
        ("find . -exec a + b \\;", ["find . -exec a + b ;", "a + b"]),
        ("find . -name x -exec rm -f {} + -execdir mv {} y \\;", [
            "find . -name x -exec rm -f {} + -execdir mv {} y ;", "rm -f ./*", "mv ./* y",
        ]),
        ("bash -c 'a; b'", ["[bash -c a; b]", "a", "b"]),
        ("sh -ec \"bash -c 'rm x'\" arg", ["[sh -ec bash -c 'rm x' arg]", "[bash -c rm x]", "rm x"]),
        ("bash build.sh", ["bash build.sh", "[build.sh]"]),
        ("", []),
    ],
)  # fmt: skip
def test_plain_commands(text: str, seen: list[str]) -> None:
    assert commands(text) == seen
    assert parse_script(text).opaque == ()


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("echo $(rm x)", "rm x"),
        ("echo `rm x`", "rm x"),
        ('echo "$(rm x)"', "rm x"),
        ("cat <(rm x)", "rm x"),
        ("A=$(rm x)", "rm x"),
        ("export A=$(rm x)", "rm x"),
        ("f() { rm x; }; f", "rm x"),
        ("for i in 1; do rm x; done", "rm x"),
        ("case a in a) rm x;; esac", "rm x"),
        ("[ -f a ] && rm x", "rm x"),
        ("A=1 rm x", "rm x"),
        ("env A=1 rm x", "rm x"),
        ("sudo A=1 rm x", "rm x"),
        ("eval 'rm x'", "rm x"),
        ("eval rm x", "rm x"),
        ("trap 'rm x' EXIT", "rm x"),
        ("$'r\\x6d' x", "rm x"),
        ("$'\\162\\u006d' x", "rm x"),
        ("r\\\nm x", "rm x"),
        ("ok\\\n#a; rm x", "rm x"),
        ("time { rm x; }", "rm x"),
        ("strace -f rm x", "rm x"),
        ("watch 'rm x'", "rm x"),
        ("su -c 'rm x' bob", "rm x"),
        ("env -S 'rm x'", "rm x"),
        ("env --split-string='rm x'", "rm x"),
        ("timeout --odd 5 rm x", "rm x"),
        ("bash -O extglob -c 'rm x'", "rm x"),
        ("bash -lc 'rm x'", "rm x"),
        ("zsh -c 'rm x'", "rm x"),
        ("bash <<EOF\nrm x\nEOF", "rm x"),
        ("bash <<< 'rm x'", "rm x"),
        ("cat <<EOF\n$(rm x)\nEOF", "rm x"),
        ("find . -exec rm x", "rm x"),
        ("coproc rm x", "rm x"),
        ("ls; rm x 'y", "ls"),
    ],
)
def test_commands_found_in_opaque_ones(text: str, seen: str) -> None:
    assert seen in commands(text)
    assert parse_script(text).opaque


@pytest.mark.parametrize(
    "text",
    [
        *("$X y", "/bin/r? x", "{rm,x}", "eval $x", ". ./file", "source file", "curl x | sh", "bash"),
        *("bash -c $x", "sh -s"),
        *("let 'a[$(rm x)]=1'", "test -v 'a[$(rm x)]'", "[[ 'a[$(rm)]' -eq 1 ]]", "(( a['$(rm)'] ))", "echo ${x@P}"),
        *("echo ${x:-`rm`}", "hash -p ./rm ls", "alias ls=rm", "printf -v 'a[$(rm)]' x", "xargs sh", "bash *"),
        *("echo 'a", "if a; then", "a" * (SHELL_CHARS + 1)),
        *("nohup " * (SHELL_COMMANDS + 5) + "a", "(" * 400 + "a" + ")" * 400),
        "su " + "a " * SHELL_COMMANDS,
        *("a;" * (SHELL_COMMANDS + 5), "a " * (SHELL_WORDS + 5), "a|" * 20_000, "${" * 20_000),
        *("a=(" * 10_000, "<" * 40_000),
    ],
)  # fmt: skip
def test_commands_that_run_anything(text: str) -> None:
    """One of its commands has an unknown name."""
    script = parse_script(text)
    assert script.opaque
    assert any(not command.words[0].fixed for command in script.commands)


@pytest.mark.parametrize(
    "text",
    [
        *("ls $x", "ls ~+ $?", "echo $((1))", "A=1", "export A", "unset A", "read x", "printf -v A x"),
        *("printf %n A", "wait -p A"),
        *("set -e", "shopt -s x", "[ a ]", "[[ a ]]", "find *", "find . -name $x"),
        *("echo x > /dev/tcp/host/80", "a\x0cb"),
        *("cd x && ./run", "cd x; ls > out", "pushd x && bin/a", "nice -5 ls", "time -o f ls", "exec -a x ls"),
        *("nice -n * ls", "timeout ? ls", "xargs -0I x ls"),
    ],
)  # fmt: skip
def test_commands_that_no_rule_can_allow(text: str) -> None:
    assert parse_script(text).opaque


def test_a_path_means_something_else_in_another_folder() -> None:
    assert parse_script("cd x && /bin/run > /tmp/out").opaque == ()
    assert parse_script("./run > out").opaque == ()
    assert parse_script("./run", moved=True).opaque
    assert parse_script("run > out", moved=True).opaque
    assert parse_script("run", moved=True).opaque == ()


@given(COMMANDS | st.text(max_size=40))
def test_any_text_can_be_parsed(text: str) -> None:
    script = parse_script(text)
    assert all(command.words for command in script.commands)
    assert all(reason and reason == reason.strip() for reason in script.opaque)


PROGRAMS = sorted({
    *(name for group in vars(shell_programs).values() if isinstance(group, frozenset | dict) for name in group),
    *("echo", "sh", "bash", "python3", "perl", "node", "xargs", "-c", "-exec", "-", "--", "..", "a/../b", "/proc/1"),
})  # fmt: skip
PLAIN_WORDS = st.sampled_from(PROGRAMS) | st.text("abcm019_./-", min_size=1, max_size=8)


@given(st.lists(PLAIN_WORDS, min_size=1, max_size=6).map(" ".join), st.booleans())
def test_a_plain_command_is_the_same_to_all_parsers(text: str, moved: bool) -> None:
    """A line break changes nothing, but only the parsers read it."""
    assert split_plain(f"{text}\n") is None
    if split_plain(text) is not None:
        assert parse_script(text, moved) == parse_script(f"{text}\n", moved)


def test_only_plain_commands_are_split() -> None:
    assert [word.text for word in split_plain("echo hi") or ()] == ["echo", "hi"]
    for text in ("", " a", "a  b", "a b ", "a;b", "a $b", "a *", "a=b", "if a", "a ~", "time a", "a 2>b", "a\tb", "é"):
        assert split_plain(text) is None, text
    assert split_plain("a " * 200 + "a") is None
