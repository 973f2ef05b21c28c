"""Specifiers in the brackets of a rule, pattern by pattern."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wick.errors import ConfigError
from wick.permissions.shell import ShellCommand, parse_script
from wick.permissions.shell_lexer import Word
from wick.permissions.specifiers import (
    CommandPattern,
    FilePattern,
    HostPattern,
    MatchResult,
    ToolPath,
    strictest,
    wildcard_match,
)


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        *(("a", "a", True), ("a", "ab", False), ("*", "", True), ("*", "any thing", True), ("a*", "a", True)),
        *(
            ("*a", "ba", True),
            ("*a", "ab", False),
            ("a*a", "a", False),
            ("a*b*c", "a-b-c", True),
            ("a*b*c", "acb", False),
        ),
        *(("a**b", "ab", True), ("", "", True), ("", "a", False), ("[a]?", "[a]?", True), ("[a]", "a", False)),
    ],
)
def test_a_star_in_a_word(pattern: str, text: str, fits: bool) -> None:
    assert wildcard_match(pattern, text) is fits


@given(st.lists(st.text("ab*", max_size=3), max_size=4), st.text("ab", max_size=6))
def test_stars_are_those_of_a_reference(pieces: list[str], text: str) -> None:
    pattern = "".join(pieces)

    def reference(pattern: str, text: str) -> bool:
        if not pattern:
            return not text
        if pattern[0] == "*":
            return any(reference(pattern[1:], text[at:]) for at in range(len(text) + 1))
        return text[:1] == pattern[0] and reference(pattern[1:], text[1:])

    assert wildcard_match(pattern, text) is reference(pattern, text)


@given(st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=5), st.lists(st.sampled_from("ab"), max_size=5))
def test_words_are_those_of_a_reference(pattern: list[str], words: list[str]) -> None:
    """A star matches words as it matches characters; words with expansions match only maybe."""
    whole = CommandPattern(" ".join(["x", *pattern]))
    plain = tuple(map(Word, ["x", *words]))
    fits = wildcard_match("".join(pattern), "".join(words))
    assert whole.covers(ShellCommand(plain)) is fits
    unknown = Word("$y", fixed=False)
    for at in range(1, len(plain) + 1):
        loose = ShellCommand((*plain[:at], unknown, *plain[at:]))
        assert not fits or whole._match_command(loose) != "no"  # it may be nothing


def test_anchored_and_relative_file_patterns() -> None:
    assert FilePattern("/a/b").matches(ToolPath("b", "/a"), one_file=True) == "yes"
    assert FilePattern("b").matches(ToolPath("/a/b", "/a"), one_file=True) == "yes"
    assert FilePattern("b").matches(ToolPath("/c/d", "/a"), one_file=True) == "no"
    assert not FilePattern("**").covers(ToolPath(".", "/a"), folder=False)
    assert FilePattern("**").covers(ToolPath(".", "/a"), folder=True)


@given(st.lists(st.sampled_from(["a", "b", ".", "..", "", "A"]), min_size=1, max_size=6).map("/".join))
def test_a_covering_pattern_matches_its_path(path: str) -> None:
    for text in ("a/**", "a/*", "*", "/w/a/**", "b"):
        files = FilePattern(text)
        for folder in (True, False):
            if files.covers(ToolPath(path, "/w"), folder):
                assert files.matches(ToolPath(path, "/w"), one_file=not folder) == "yes"
                assert ".." not in path.split("/")


@pytest.mark.parametrize(
    ("domain", "url", "allowed", "denied"),
    [
        ("example.com", "https://example.com/x", True, "yes"),
        ("example.com", "http://EXAMPLE.com.:8080", True, "yes"),
        ("example.com", "https://a.b.example.com", True, "yes"),
        ("Example.COM.", "https://example.com", True, "yes"),
        ("*.example.com", "https://a.example.com", True, "yes"),
        ("*.example.com", "https://example.com", False, "no"),
        ("example.com", "https://notexample.com", False, "no"),
        ("example.com", "https://example.com.evil.org", False, "no"),
        ("example.com", "https://evil.org/example.com", False, "no"),
        ("example.com", "https://evil.org?example.com", False, "no"),
        ("example.com", "https://evil.org#@example.com", False, "no"),
        ("example.com", "https://example.com@evil.org", False, "maybe"),
        ("example.com", "https://user:pass@example.com", False, "yes"),
        ("example.com", "https://evil.org\\@example.com", False, "yes"),
        ("example.com", "https://example.com\\.evil.org", False, "maybe"),
        ("example.com", "https://evil.org\t.example.com", False, "yes"),
        ("example.com", "https://exam%70le.com", False, "maybe"),
        ("example.com", "ftp://example.com", False, "yes"),
        ("example.com", "example.com", False, "maybe"),
        ("example.com", "https://", False, "maybe"),
        ("example.com", "https://[::1", False, "maybe"),
        ("example.com", "https://example.com:port", False, "maybe"),
        ("bücher.de", "https://BÜCHER.de", True, "yes"),
        ("bücher.de", "https://xn--bcher-kva.de", True, "yes"),
        ("fass.de", "https://faß.de", False, "maybe"),
        ("example.com", "https://example。com", True, "yes"),
        ("127.0.0.1", "http://127.0.0.1:80", True, "yes"),
        ("[::1]", "http://[::1]:80", True, "yes"),
        ("*", "https://anything.org", True, "yes"),
        ("*", "https://a@b", False, "yes"),
    ],
)
def test_hosts(domain: str, url: str, allowed: bool, denied: MatchResult) -> None:
    assert HostPattern(domain).covers(url) is allowed
    assert HostPattern(domain).matches(url) == denied


@given(st.text("ab.:/@\\\\ \t%#?[]1", max_size=20))
def test_any_url_can_be_parsed(text: str) -> None:
    for url in (text, f"http://{text}"):
        assert HostPattern("a.b").matches(url) in ("yes", "maybe", "no")
        assert not HostPattern("a.b").covers(url) or HostPattern("a.b").matches(url) == "yes"


@pytest.mark.parametrize("text", ["", ".", "a b", "a/b", "ß", "*a", "a..b", "http://a", "*.*", "a:80"])
def test_invalid_hosts(text: str) -> None:
    with pytest.raises(ConfigError, match="should name a host"):
        HostPattern(text)


def test_the_strictest_decision() -> None:
    assert strictest([]) == "no"
    assert strictest(["no", "maybe"]) == "maybe"
    assert strictest(["maybe", "yes", "no"]) == "yes"


def test_a_star_is_every_command() -> None:
    assert CommandPattern("*").matches(parse_script("")) == "yes"
