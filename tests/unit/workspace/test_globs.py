"""Patterns over names and paths, and the rules of ignore files."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wick.errors import BackendError
from wick.workspace.globs import Glob, compile_name, parse_ignore_file

# -- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "fits", "not_"),
    [
        ("a.py", ["a.py"], ["b.py", "a.pyc", "xa.py"]),
        ("*", ["a", "", ".hidden"], []),
        ("*.py", ["a.py", ".py"], ["a.pyc"]),
        ("a*", ["a", "abc"], ["ba"]),
        ("a*b*c", ["abc", "a-b-c", "abbbcc"], ["ab", "acb"]),
        ("?", ["a", "é", "\udcff"], ["", "ab"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "x"]),
        ("[!a-c]", ["d"], ["a", ""]),
        ("[^a-c]", ["d"], ["a"]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[a-]", ["a", "-"], ["b"]),
        ("[z-a]", [], ["a", "z", "m"]),
        ("[[:digit:]x]", ["0", "9", "x"], ["a", ":"]),
        ("[\\]]", ["]"], ["\\"]),
        ("\\*", ["*"], ["a"]),
        ("a\\b", ["ab"], ["a\\b"]),
        ("**", ["anything"], []),
    ],
)
def test_a_name_fits(pattern: str, fits: list[str], not_: list[str]) -> None:
    test = compile_name(pattern)
    assert test is not None
    assert [name for name in [*fits, *not_] if test(name)] == fits


@pytest.mark.parametrize("pattern", ["[", "[a", "a\\", "[]", "[[:nonsense:]]", "[a-"])
def test_an_unclosed_bracket_is_not_a_pattern(pattern: str) -> None:
    assert compile_name(pattern) is None


@given(st.text("ab*?", max_size=12), st.text("ab", max_size=12))
def test_a_name_matches_like_its_regular_expression(pattern: str, name: str) -> None:
    test = compile_name(pattern)
    assert test is not None
    said = "".join({"*": ".*", "?": "."}.get(char, char) for char in pattern)
    assert test(name) == bool(re.fullmatch(said, name))


def test_no_pattern_takes_long() -> None:
    test = compile_name("*a" * 60 + "b")
    assert test is not None and not test("a" * 255)
    assert not Glob("/".join(["**"] * 200) + "/b").matches("/".join(["a"] * 1_000))


# -- globs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "fits", "not_"),
    [
        ("*.py", ["a.py", "src/a.py", "a/b/c/.py"], ["a.pyc"]),
        ("a.py", ["a.py", "x/a.py"], ["ba.py"]),
        ("src/*.py", ["src/a.py"], ["a.py", "src/x/a.py", "x/src/a.py"]),
        ("./*.py", ["a.py"], ["src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/x/y/a.py"], ["a.py", "x/src/a.py"]),
        ("**/test/*", ["test/a", "x/y/test/a"], ["test", "test/a/b"]),
        ("src/**", ["src/a", "src/a/b"], ["src", "x/src/a"]),
        ("src/", ["src/a", "src/a/b"], ["src"]),
        ("**", ["a", "a/b"], []),
        ("a/**/b/**/c", ["a/b/c", "a/x/b/y/z/c"], ["a/c", "b/c"]),
        ("*.{py,md}", ["a.py", "x/a.md"], ["a.txt"]),
        ("{src,tests}/**/*.py", ["src/a.py", "tests/x/a.py"], ["a.py", "docs/a.py"]),
        ("{a,b{c,d}}", ["a", "bc", "x/bd"], ["b", "c"]),
        ("x{,y}", ["x", "xy"], ["y"]),
        ("{a}", ["a"], ["{a}"]),
        ("{a", ["{a"], ["a"]),
        ("a}", ["a}"], ["a"]),
        ("\\{a,b\\}", ["{a,b}"], ["a", "b"]),
        ("[", ["[", "x/["], ["a"]),
        ("a**b", ["ab", "axb"], ["a/b"]),
        ("ünï?*", ["ünïcode"], ["unicode"]),
    ],
)
def test_a_path_fits(pattern: str, fits: list[str], not_: list[str]) -> None:
    glob = Glob(pattern)
    assert [path for path in [*fits, *not_] if glob.matches(path)] == fits


@pytest.mark.parametrize("pattern", ["", "a\0b", "x" * 5_000, "../*.py", "a/../b", "/", "./", "{a,b}" * 10])
def test_invalid_globs_are_refused(pattern: str) -> None:
    with pytest.raises(BackendError) as caught:
        Glob(pattern)
    assert caught.value.code == "invalid"


# -- ignore files ---------------------------------------------------------------------------------------------------


def test_an_ignore_file_may_be_enormous() -> None:
    many = parse_ignore_file("", "\n".join(f"name{number}" for number in range(100_000)))
    assert many is not None
    assert many.is_ignored("name1", "name1", False)
    assert not many.is_ignored("name99999", "name99999", False)  # rules beyond the cap do not count
