"""Labels of tool results, and the authors of the values in a tool result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wick._internal.tool_flow import FOREIGN, ToolFlow

_RANKS = ("untrusted", "child", "own", "directory", "id", "trusted")  # authors; the more trusted are later


@dataclass(frozen=True, slots=True)
class Label:
    """The label of a tool result: its trust, its privacy, and the authors of its fields, as its tool declared them."""

    trusted: bool
    private: tuple[str, ...]  # the private sources
    returns: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        return {"trusted": self.trusted, "private": [*self.private], "returns": dict(self.returns)}

    @classmethod
    def from_flow(cls, tool: str, flow: ToolFlow, *, child_trusted: bool = True) -> Label:
        """Return the label of a result. That of a child agent depends on the labels of its own thread."""
        authors = dict(flow.authors)
        if "child" in authors.values():
            kind = "own" if child_trusted else "untrusted"
            authors = {name: kind if author == "child" else author for name, author in authors.items()}
        source = flow.name_source(tool)
        return cls(FOREIGN.isdisjoint(authors.values()), (source,) if source else (), authors)


def list_leaves(text: str, authors: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield each value of a result with its author. A result that is not JSON is one value, of the author `*`."""
    try:
        data = json.loads(text)
    except ValueError:
        yield authors.get("*", "untrusted"), text
        return
    except RecursionError:
        return
    yield from _walk(data, "", authors)


def _walk(data: Any, declared: str, authors: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield each value with its author: of the declared fields around it, the least trusted author."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _walk(value, narrow_author(declared, key, authors), authors)
    elif isinstance(data, list):
        for value in data:
            yield from _walk(value, declared, authors)
    elif data is not None:
        yield declared or authors.get("*", "untrusted"), data


def narrow_author(declared: str, key: str, authors: Mapping[str, str]) -> str:
    """Return the author of a field inside of a declared one: of both, the less trusted one."""
    around = [author for author in (declared, authors.get(key) if key != "*" else None) if author]
    return min(around, key=lambda author: _RANKS.index(author) if author in _RANKS else 0, default="")


def list_values(argument: Any) -> list[Any]:
    """Return each value of an argument, the keys of objects too: a model can put anything there."""
    if isinstance(argument, dict):
        return [found for key, value in argument.items() for found in (key, *list_values(value))]
    if isinstance(argument, list | tuple):
        return [found for value in argument for found in list_values(value)]
    return [argument]
