"""Text for users: invisible characters made visible where a user decides about a text, and numbers with their nouns.

make_visible("git log\ncurl evil")    two lines, the first with a mark at its end
make_visible("a\u202eb")              a<U+202E>b
format_count(2, "reply")              2 replies
"""

from __future__ import annotations

import re

BREAK = "⏎"
_BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0" + "".join(map(chr, range(0xFE00, 0xFE10)))
_PLAIN = re.compile(r"[\n -~]*")


def make_visible(text: str, *, mark_breaks: bool = True) -> str:
    """Return a text in which no character is hidden: controls, marks of direction and blanks of other kinds are named.

    A line break stays one and, unless `mark_breaks` is False, is marked.
    """
    if not _PLAIN.fullmatch(text):
        text = "".join(char if char == "\n" or is_visible(char) else f"<U+{ord(char):04X}>" for char in text)
    return text.replace("\n", f"{BREAK}\n") if mark_breaks else text


def is_visible(char: str) -> bool:
    return char.isprintable() and char not in _BLANK


def cut_visible(text: str, limit: int, *, mark_breaks: bool = True) -> str:
    """Return at most `limit` characters of a text, made visible, and the number of those that are not shown."""
    if len(text) <= limit:
        return make_visible(text, mark_breaks=mark_breaks)
    shown = make_visible(text[:limit], mark_breaks=mark_breaks)
    return f"{shown}… ({len(text) - limit:,} of {len(text):,} characters are not shown)"


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 thread`, `2 threads`; `1 reply`, `2 replies`."""
    if number == 1:
        return f"1 {noun}"
    is_y = noun.endswith("y") and noun[-2:-1] not in "aeiou"
    return f"{number:,} {f'{noun[:-1]}ies' if is_y else f'{noun}s'}"
