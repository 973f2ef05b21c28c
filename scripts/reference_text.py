"""How the pages of the reference are written: signatures, docstrings and tables as Markdown."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def signature(name: str, value: Any) -> str:
    """How a class or a function is called, as a block of code."""
    try:
        own = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    if getattr(value, "_is_protocol", False) or typing.get_origin(value):  # no constructor to describe
        return ""
    empty = inspect.Parameter.empty
    taken = [
        one.replace(
            annotation=one.annotation if one.annotation is empty else _Shown(type_(one.annotation)),
            default=one.default if one.default is empty else _Shown(_short(repr(one.default))),
        )
        for one in own.parameters.values()
    ]
    given = own.return_annotation
    given = empty if isinstance(value, type) or given is empty else _Shown(type_(given))
    kind = "class" if isinstance(value, type) else "async def" if inspect.iscoroutinefunction(value) else "def"
    whole = own.replace(parameters=taken, return_annotation=given)
    return f"```python\n{_folded(f'{kind} {name}{whole}')}\n```\n"


class _Shown:
    """A text that stands in a signature as it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def type_(hint: Any) -> str:
    """A type in short."""
    return _short(hint if isinstance(hint, str) else inspect.formatannotation(hint))


def _short(text: str) -> str:
    """Without modules and addresses."""
    return re.sub(r"<[^>]*>", "…", re.sub(r"(?:[a-z_]+\.)+(?=[A-Z])", "", text))


def _folded(line: str) -> str:
    """A long signature, an argument a line."""
    if len(line) <= 100 or "(" not in line:
        return line
    head, rest = line.split("(", 1)
    args, depth, found = [""], 0, 0
    for found, sign in enumerate(rest):  # noqa: B007  # where it ended is used below
        if sign in ")" and depth == 0:
            break
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and depth == 0:
            args.append("")
        else:
            args[-1] += sign
    return "\n".join([f"{head}(", *(f"    {arg.strip()}," for arg in args), f"){rest[found + 1 :]}"])


def doc(value: Any) -> str:
    """What something says about itself."""
    said = inspect.getdoc(value) or ""
    if dataclasses.is_dataclass(value) and said.startswith(f"{getattr(value, '__name__', '')}("):
        return ""  # what a data class says if nobody wrote anything
    return _indented(said) + "\n"


def _indented(doc: str) -> str:
    """A docstring as Markdown; what is indented by four is a block of code there, too."""
    parts = re.split(r"(\n\n(?: {4}[^\n]*\n?|\n)+)", f"\n\n{doc}\n")
    blocks = [
        f"\n\n```text\n{textwrap.dedent(part).strip()}\n```\n\n" if part[:6] == "\n\n    " else part for part in parts
    ]
    return "".join(blocks).strip()


def first(value: Any) -> str:
    """The first line of what something says about itself."""
    return (inspect.getdoc(value) or "").partition("\n")[0]


def explained(key: str) -> str:
    """Where the guide explains a capability: its list of them says so."""
    guide = (ROOT / "docs" / "guide" / "capabilities.md").read_text("utf-8")
    found = re.search(rf"^\| \[`(\w+)`\]\(([^)]+)\) \| `{key}` \|", guide, re.MULTILINE)
    return f"[The guide](../guide/{found[2]}) explains it.\n" if found else ""


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table; nothing if it has no rows."""
    lines = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in (head, *rows)]
    drawn = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([drawn[0], "|---" * len(lines[0]) + "|", *drawn[1:]]) + "\n" if len(drawn) > 1 else ""
