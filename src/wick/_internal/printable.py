"""Text for logs and terminals: control characters and other invisible ones are escaped."""

from __future__ import annotations


def escape_controls(text: str) -> str:
    """Return a text on one line, with unprintable characters escaped: line breaks, ESC, bidi controls."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\t" else ascii(char)[1:-1] for char in text)


def indent_lines(text: str, by: str = "  ") -> str:
    """Return a text with its line breaks, indented after the first line; other control characters are escaped."""
    return f"\n{by}".join(map(escape_controls, text.split("\n")))
