"""Plain commands are read as a shell reads them, and everything else is refused."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wick.permissions.shell_lexer import UnclearCommand, Word, lex, make_word


def words(text: str) -> list[list[str]]:
    return [[word.text for word in command] for command in lex(text).commands]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git status", [["git", "status"]]),
        ("  git\tstatus  ", [["git", "status"]]),
        ("", []),
        ("# nothing", []),
        ("a;b&c&&d||e|f\ng", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"], ["g"]]),
        ("(a; b) | { c; }", [["a"], ["b"], ["c"]]),
        ("! a", [["a"]]),
        ("if a; then b; elif c; then d; else e; fi", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("while a; do b; done", [["a"], ["b"]]),
        ("echo if then } {", [["echo", "if", "then", "}", "{"]]),
        ("'if' x", [["if", "x"]]),
        ("r''m \\x 'a b' \"c d\"", [["rm", "x", "a b", "c d"]]),
        ('a "\\$x \\" \\\\ \\n"', [["a", '$x " \\ \\n']]),
        ("a '' \"\"", [["a", "", ""]]),
        ("a x#y # z; b\nc", [["a", "x#y"], ["c"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("a\\\nb", [["ab"]]),
        ("a\\\n#b; c", [["a#b"], ["c"]]),
        ('"a\\\nb"', [["ab"]]),
        ("a 2>&1 >f b", [["a", "b"]]),
        ("a <<EOF b\nx; y\nEOF\nc", [["a", "b"], ["c"]]),
        ("a <<'E F' | b\n$x\nE F\nc", [["a"], ["b"], ["c"]]),
        ("a <<-X\n\t\tX\nb", [["a"], ["b"]]),
        ("a <<X <<Y\n1\nX\n2\nY\nb", [["a"], ["b"]]),
        ("é ü", [["é", "ü"]]),
    ],
)
def test_plain_commands(text: str, expected: list[list[str]]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("echo $x", 'echo "$x"', "echo `a`", 'echo "`a`"', "echo $(a)", "$'a'", "cat <(a)", "a >(b)", "((1))"),
        *("A=1 b", "A+=1", "a[1]=2", "f() { a; }", "function f { a; }"),
        *("for x in a; do b; done", "case a in b) c;; esac"),
        *("[[ a ]]", "coproc a", "select x in a; do b; done", "a=(b)", "ls !(a)", "{x}>f a", "(a) b", "{ a; } b"),
        *("echo 'a", 'echo "a', "a \\", "a >", "a > ; b", "a <<EOF\nx", "a <<EOF\n$x\nEOF", "a <<EOF\n`x`\nEOF"),
        *("a <<EOF\nEO\\\nF\nb\nEOF", "a <<*\nx\n*", "a;;b", "a <\\\n(b)", "(\\\n(a))", "a &\\\n& b", "a << ''\nx\n\n"),
        *("a\r", "a\x00b", "a\x0cb", "a\x0bb", "a\u00a0b", "a\u2028b", "a\u3000b", "a\x1bb", "a\x7fb", "a\x85b"),
    ],
)  # fmt: skip
def test_non_plain_words(text: str) -> None:
    with pytest.raises(UnclearCommand, match="^it "):
        lex(text)


def test_redirections() -> None:
    found = lex("a <in >out 2>>err &>all >|over <>both 3>&1 2>&- >/dev/null <<<text >&file").redirects
    assert [(row.sign, row.target.text) for row in found if row.is_file] == [
        *(("<", "in"), (">", "out"), (">>", "err"), ("&>", "all"), (">|", "over"), ("<>", "both"), (">&", "file"))
    ]
    assert [row.writes for row in found if row.is_file] == [False, True, True, True, True, True, True]


@pytest.mark.parametrize(
    ("pieces", "word"),
    [
        (("a",), Word("a")),
        (("*.py",), Word("*.py", fixed=False, glob=True)),
        ((("*",), ".py"), Word("*.py")),
        (("a?",), Word("a?", fixed=False, glob=True)),
        (("[ab]",), Word("[ab]", fixed=False, glob=True)),
        (("[",), Word("[")),
        (("{}",), Word("{}")),
        (("{a,b}",), Word("{a,b}", fixed=False)),
        (("{1..3}",), Word("{1..3}", fixed=False)),
        (("{a", (",",), "b}"), Word("{a,b}")),
        (("~/x",), Word("~/x", fixed=False, tail="x")),
        ((("~",), "/x"), Word("~/x")),
        (("--x=~/y",), Word("--x=~/y", fixed=False)),
    ],
)
def test_shell_expansions(pieces: tuple[str | tuple[str]], word: Word) -> None:
    assert make_word(*pieces) == word


@pytest.mark.parametrize("shell", ["bash", "sh"])
@given(text=st.text("ab '\"\\\n#-", max_size=12))
@example("a\\\n#b")
@example("'a'\\''b'")
@example('"a\\\\" b')
def test_quotes_are_those_of_a_real_shell(shell: str, text: str) -> None:
    """A real shell gets the parsed words as arguments, word for word."""
    if shutil.which(shell) is None:
        pytest.skip(f"install {shell}")
    try:
        commands = lex(f"set -- {text}").commands
    except UnclearCommand:
        return
    first, *others = commands
    if others:
        return  # the text has more lines, each with its own command
    code = f"set -- {text}\nfor word; do printf '%s\\036' \"$word\"; done"
    done = subprocess.run([shell, "-c", code], capture_output=True, text=True, timeout=10, check=False)
    assert done.stdout.split("\036")[:-1] == [word.text for word in first[2:]]
