"""Markdown of the reference pages: signatures, docstrings and tables."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
import tokenize
import typing
from collections.abc import Container, Iterable, Iterator
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "docs" / "guide"


def signature(name: str, value: Any, hidden: Container[str] = ()) -> str:
    """Return the signature of a class or a function as a block of code. Parameters in `hidden` are left out."""
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
            default=one.default if one.default is empty else _Shown(_default(one.default)),
        )
        for one in own.parameters.values()
        if one.name not in hidden
    ]
    given = own.return_annotation
    given = empty if isinstance(value, type) or given is empty else _Shown(type_(given))
    kind = "class" if isinstance(value, type) else "async def" if inspect.iscoroutinefunction(value) else "def"
    whole = own.replace(parameters=taken, return_annotation=given)
    return f"```python\n{_folded(f'{kind} {name}{whole}')}\n```\n"


def _default(value: Any) -> str:
    """A default value in short: a long one is left out."""
    shown = _short(repr(value))
    return shown if len(shown) <= 60 else "…"


class _Shown:
    """A text that stands in a signature as it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def type_(hint: Any) -> str:
    """A type in short."""
    if isinstance(hint, typing.ForwardRef):
        hint = hint.__forward_arg__
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
    """Return the docstring of an object as Markdown."""
    said = inspect.getdoc(value) or ""
    if dataclasses.is_dataclass(value) and said.startswith(f"{getattr(value, '__name__', '')}("):
        return ""  # the generated docstring of a data class
    return _indented(said) + "\n"


def _indented(doc: str) -> str:
    """A docstring as Markdown; what is indented by four is a block of code there, too."""
    parts = re.split(r"(\n\n(?: {4}[^\n]*\n?|\n)+)", f"\n\n{doc}\n")
    blocks = [
        f"\n\n```text\n{textwrap.dedent(part).strip()}\n```\n\n" if part[:6] == "\n\n    " else part for part in parts
    ]
    return "".join(blocks).strip()


def field_comments(kind: type) -> dict[str, str]:
    """Return the comments at the fields of a class and its bases: at the end of the line, or on the lines before."""
    found = dict[str, str]()
    for cls in reversed(kind.__mro__ if hasattr(kind, "__mro__") else (kind,)):
        if cls.__module__.startswith("wick"):
            found |= dict(_comments(cls))
    return found


@cache
def _comments(cls: type) -> list[tuple[str, str]]:
    return list(_read_comments(textwrap.dedent(inspect.getsource(cls))))


def _read_comments(source: str) -> Iterator[tuple[str, str]]:
    tokens = tokenize.generate_tokens(StringIO(source).readline)
    comments = [token for token in tokens if token.type == tokenize.COMMENT]
    words = {token.start[0]: _words(token.string) for token in comments}
    whole_lines = {token.start[0] for token in comments if token.line.lstrip().startswith("#")}
    (body,) = ast.parse(source).body
    for node in getattr(body, "body", ()):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            start = node.lineno
            while start - 1 in whole_lines:
                start -= 1
            lines = range(start, (node.end_lineno or node.lineno) + 1)
            yield node.target.id, " ".join(words[line] for line in lines if words.get(line))


def _words(comment: str) -> str:
    """A comment without its mark and without notes for tools."""
    return re.sub(r"^# ?|(?:type: ignore\S*|noqa\S*|fmt: \w+)(?:\s+# )?", "", comment).strip()


def first(value: Any) -> str:
    """The first line of what something says about itself."""
    return (inspect.getdoc(value) or "").partition("\n")[0]


def guide_options(*pages: str, heading: str = "") -> dict[str, str]:
    """Return the options in tables of the guide with their descriptions: of pages, or of sections with a heading."""
    found = dict[str, str]()
    for page in [GUIDE / name for name in pages] or sorted(GUIDE.glob("*.md")):
        text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        part = re.search(rf"^(#+) {re.escape(heading)}$(.*?)(?=^(?!\1#)#+ |\Z)", text, re.MULTILINE | re.DOTALL)
        for option, words in _option_rows(text if not heading else part[2] if part else ""):
            linked = re.sub(r"\]\((?=#)", f"]({page.name}", words)
            found.setdefault(option, re.sub(r"\]\((?!http)(?=\w)", "](../guide/", linked))
    return found


def _option_rows(text: str) -> Iterator[tuple[str, str]]:
    """The options of the tables of a text that have a column of descriptions."""
    column = -1
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] if line.startswith("|") else []
        if not cells:
            column = -1
        elif column < 0:
            column = next((place for place, cell in enumerate(cells) if cell in ("Description", "Limits", "means")), 99)
        elif column < len(cells):
            yield from ((option, cells[column]) for option in re.findall(r"`(\w+)`", cells[0]))


def explained(key: str) -> str:
    """Return a link to the guide page of a capability, from the list in the guide."""
    guide = (GUIDE / "capabilities.md").read_text("utf-8")
    found = re.search(rf"^\| \[`(\w+)`\]\(([^)]+)\) \| `{key}` \|", guide, re.MULTILINE)
    return f"[The guide](../guide/{found[2]}) explains it.\n" if found else ""


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table; nothing if it has no rows."""
    lines = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in (head, *rows)]
    drawn = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([drawn[0], "|---" * len(lines[0]) + "|", *drawn[1:]]) + "\n" if len(drawn) > 1 else ""
