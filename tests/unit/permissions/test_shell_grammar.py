"""The bash grammar: its findings, and the error without its package."""

from __future__ import annotations

import sys

import pytest

from wick.errors import MissingExtra
from wick.permissions.shell_grammar import load_grammar, scan_text


def scan_words(text: str) -> list[list[str]]:
    return [[word.text for word in words] for words in scan_text(text).commands]


@pytest.mark.parametrize(
    ("word", "text"),
    [
        *(("a", "a"), ("'a b'", "a b"), ('"a b"', "a b"), ("a\\ b", "a b")),
        *(("a''b\"c\"", "abc"), ('"\\$a \\\\ \\x"', "$a \\ \\x")),
        *(("$'a\\x62\\143\\u0064'", "abcd"), ("$'\\t\\n\\e\\\\\\''", "\t\n\x1b\\'")),
        *(("$'\\cA'", "\x01"), ("$'\\U00000041'", "A")),
    ],
)  # fmt: skip
def test_unquoted_words(word: str, text: str) -> None:
    assert scan_words(f"echo {word}") == [["echo", text]]


def test_commands_in_the_order_of_the_text() -> None:
    assert scan_words("a $(b `c`) <(d) | e") == [["a", "$(b `c`)", "<(d)"], ["b", "`c`"], ["c"], ["d"], ["e"]]


def test_recorded_features_beside_commands() -> None:
    found = scan_text("export A=1; cat <<EOF > out\ntext\nEOF\nsort <<< words")
    assert [words[0].text for words in found.named] == ["export"]
    assert found.inputs == ["text\n", "words"]
    assert [(redirect.sign, redirect.target.text) for redirect in found.redirects] == [(">", "out")]
    assert "it sets a variable" in found.opaque


@pytest.mark.parametrize(
    "text",
    ["a 'b", "echo ${x@P}", "((1))", "echo $((a['$(b)']))", "cat <<E\n`a`\nE", "a\n\\b", "(" * 300 + "a" + ")" * 300],
)
def test_commands_that_run_anything(text: str) -> None:
    assert scan_text(text).hidden


def test_without_the_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tree_sitter_bash", None)
    load_grammar.cache_clear()
    with pytest.raises(MissingExtra, match=r"pip install 'wick-agent\[permissions\]'"):
        load_grammar()
