"""Bounded spans: does a value occur in a text as a whole, or only as a part of a longer word?

`bob@corp.com` is a part of `notbob@corp.com` and of `bob@corp.com.evil.org`, and is not a span of either. The
characters around a span are on a short list, so every other character, also one that is invisible, makes it a part of
a word. Values are compared as they are: another case, a look-alike letter or another notation of a number is another
value.
"""

from __future__ import annotations

import re

SHORTEST = 3  # letters and digits; shorter values occur in any text by chance

_QUOTES = "\"'`“”‘’«»*"
_OPENERS, _CLOSERS = "([{<" + _QUOTES, ")]}>" + _QUOTES
_ENDS = ".,;:!?"  # punctuation after a word, if no word follows at once
_LINK = re.compile(r"[a-z][a-z0-9+.-]*://[^\s<>\"'`)\]]+|www\.[^\s<>\"'`)\]]+|[\w.+-]+@[\w-]+\.[\w.-]+", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+")
_QUOTED_LINE = re.compile(r"^\s*>.*$", re.MULTILINE)
_FENCED_BLOCK = re.compile(r"^[ \t]*(```|~~~).*?(^[ \t]*\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)


def has_span(text: str, value: str) -> bool:
    """Return True if a value is a whole word, or several, of a text."""
    if value != value.strip() or sum(map(str.isalnum, value)) < SHORTEST:
        return False
    start = text.find(value)
    while start >= 0:
        end = start + len(value)
        if _starts_word(text, start) and _ends_word(text, end):
            return True
        start = text.find(value, start + 1)
    return False


def find_words(text: str) -> set[str]:
    """Return the longest runs of letters and digits. Those of a span are among those of its text."""
    return set(_WORD.findall(text))


def _starts_word(text: str, start: int) -> bool:
    before = text[:start][-2:]
    if not before or before[-1].isspace():
        return True
    if before[-1] == ",":
        return not text[start].isdigit()  # 1,000
    return before[-1] in _OPENERS and not (len(before) == 2 and before[0].isalnum())  # O'Brien


def _ends_word(text: str, end: int) -> bool:
    rest = text[end : end + 3]
    if not rest or rest[0].isspace():
        return True
    if rest[:2] in ("'s", "’s"):  # Alice's
        return len(rest) == 2 or not rest[2].isalnum()
    after = rest[1:2]
    if rest[0] in _ENDS and (not after or after.isspace() or after in _CLOSERS):
        return True
    return rest[0] in _CLOSERS and not after.isalnum()


def split_quoted(text: str) -> tuple[str, bool]:
    """Return the text that the user typed, without quoted lines and fenced blocks, and whether there were any."""
    if ">" not in text and "```" not in text and "~~~" not in text:
        return text, False
    typed = _QUOTED_LINE.sub("", _FENCED_BLOCK.sub("", text))
    return typed, typed != text


def find_links(text: str) -> list[str]:
    """Return the URLs and mail addresses in a text. They send its reader somewhere."""
    return [link.rstrip(".,;:!?") for link in _LINK.findall(text)]
