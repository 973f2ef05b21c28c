"""Ranking of tools by the words of a query."""

from __future__ import annotations

import re
from collections.abc import Iterable

from wick.tools import Tool

QUERY_CHARS = 500
PART_CHARS = 3  # minimum length of a matching prefix
SMALL = frozenset("a an and at by for from in is it of on or that the this to with".split())

_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def rank_tools(tools: Iterable[Tool], query: str) -> list[Tool]:
    """Return the tools that match a word of the query, the best first, ties by name."""
    wanted = _split_words(query[:QUERY_CHARS])
    scores = [(_score_tool(item, wanted), item) for item in tools]
    return [item for score, item in sorted(scores, key=lambda row: (-row[0], row[1].name)) if score]


def _score_tool(item: Tool, wanted: set[str]) -> int:
    """Return the score of a tool: matches in its name count most, a prefix, as with file and files, counts half."""
    arguments = item.parameters.get("properties", {})
    score = 0
    for weight, text in ((4, " ".join(item.names)), (1, " ".join(arguments)), (1, item.description)):
        there = _split_words(text)
        for word in wanted:
            prefixes = (other for other in there if min(len(word), len(other)) >= PART_CHARS)
            if word in there:
                score += 2 * weight
            elif any(word.startswith(other) or other.startswith(word) for other in prefixes):
                score += weight
    return score


def _split_words(text: str) -> set[str]:
    return {*_WORD.findall(_HUMP.sub(" ", text).lower())} - SMALL
