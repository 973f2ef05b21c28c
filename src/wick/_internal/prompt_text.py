"""Fencing of untrusted text in prompts, so that the text cannot close its own fence.

    fence_text("agent_memory", text)     <agent_memory> … </agent_memory>, with no such tag in between
    to_one_line(text, 200)               the text on one line, truncated

A model recognizes a tag in any spelling: `</AGENT_MEMORY>`, `< / agent_memory >`, with invisible characters, in
full-width or look-alike Cyrillic letters. So texts are compared by their skeleton, which drops these differences.
"""

from __future__ import annotations

import re
import unicodedata

# Signs that look like those of a tag, and letters that look like Latin ones.
_LOOKALIKES = str.maketrans(
    "‹〈⟨˂ᐸ❮❬⧼‚⁄∕⧸╱аеоуіѕгтмсрхкпһոαορτνκη",
    "<<<<<<<<,////aeoyisrtmcpxknhnaoptvkn",
)
_IGNORED = frozenset(("Cc", "Cf", "Cn", "Co", "Mn", "Me", "Zs", "Zl", "Zp", "Pc", "Pd", "Sk"))
_FILLERS = frozenset("\u115f\u1160\u3164\uffa0\u2800")  # letters and signs that are blank


def fence_text(tag: str, text: str, **attributes: str) -> str:
    """Wrap a text in an opening and a closing tag, and defuse such tags inside."""
    head = tag
    for name, value in attributes.items():
        escaped = to_one_line(value, 500).replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
        head += f' {name}="{escaped}"'
    return f"<{head}>\n{defuse_tags(tag, text)}\n</{tag}>"


def defuse_tags(tag: str, text: str) -> str:
    """Replace `<` by `&lt;` at the start of each tag of that name, in any spelling."""
    opens = re.compile(rf"<[/\\]*(?={re.escape(tag.translate(_SKELETON))})")
    if not opens.search(text.translate(_SKELETON)):
        return text
    left = [(place, sign) for place, character in enumerate(text) for sign in character.translate(_SKELETON)]
    pieces, end = [], 0
    for found in opens.finditer("".join(sign for _, sign in left)):
        place = left[found.start()][0]
        pieces += [text[end:place], "&lt;"]
        end = place + 1
    return "".join([*pieces, text[end:]])


def to_one_line(text: str, most: int) -> str:
    """Return a text on one line, truncated to `most` characters, without control and format characters."""
    seen = "".join(" " if unicodedata.category(character)[0] in "CZ" else character for character in text[: most * 4])
    line = " ".join(seen.split())
    return line if len(line) <= most and len(text) <= most * 4 else f"{line[: most - 1]}…"


class _Skeleton(dict[int, str]):
    """Translation table from characters to their skeleton, which is often empty. Entries are cached."""

    def __missing__(self, code: int) -> str:
        plain = unicodedata.normalize("NFKD", chr(code)).casefold().translate(_LOOKALIKES)
        left = "".join(c for c in plain if unicodedata.category(c) not in _IGNORED and c not in _FILLERS)
        if len(self) < _REMEMBERED:
            self[code] = left
        return left


_REMEMBERED = 5_000
_SKELETON = _Skeleton()
