"""Questions to the user: the value, the passage it was taken from, and the data that would leave."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wick._internal.visible_text import cut_visible
from wick.capabilities.information_flow.sources import Passage
from wick.decisions import Ask

VALUE_CHARS, PASSAGE_CHARS, SENT_CHARS = 200, 240, 300
MOST_QUOTED = 3  # values with the text around them; the others are named


@dataclass(frozen=True, slots=True)
class TargetValue:
    """A value without a trusted source, and the untrusted text that it was taken from."""

    target: str  # the name of the argument
    value: Any
    passage: Passage | None

    @property
    def shown(self) -> str:
        return cut_visible(self.value if isinstance(self.value, str) else json.dumps(self.value), VALUE_CHARS)

    @property
    def quoted(self) -> str:
        """The text around the value."""
        if self.passage is None:
            return ""
        at = self.passage.text.index(str(self.value))
        around = self.passage.text[max(at - PASSAGE_CHARS // 2, 0) : at + len(str(self.value)) + PASSAGE_CHARS // 2]
        return cut_visible(" ".join(around.split()), PASSAGE_CHARS + VALUE_CHARS)

    def describe(self) -> str:
        if self.passage is None:
            return f"{self.target} {self.shown!r} is neither in your messages nor in trusted data."
        source = f"{self.passage.author} (entry {self.passage.seq})"
        return f"{self.target} {self.shown!r} was taken from {source}: «{self.quoted}»."

    def to_json(self) -> dict[str, Any]:
        row = {"target": self.target, "value": self.shown}
        if self.passage is None:
            return row
        return {**row, "author": self.passage.author, "entry": self.passage.seq, "passage": self.quoted}


def ask_about_targets(
    tool: str, effect: str, values: Sequence[TargetValue], args: Mapping[str, Any], targets: Iterable[str], *,
    is_planned: bool,
) -> Ask:  # fmt: skip
    """Return the question about a call: each value, where the first ones were taken from, and what would leave."""
    quoted, others = values[:MOST_QUOTED], values[MOST_QUOTED:]
    sentences = [f"{tool} ({effect}):", "" if is_planned else "It was not planned before untrusted text was read."]
    sentences += [value.describe() for value in quoted]
    if others:
        sentences.append("Also: " + ", ".join(f"{value.target} {value.shown!r}" for value in others) + ".")
    sentences.append(describe_content(args, targets))
    details: dict[str, Any] = {"targets": [value.to_json() for value in values], "planned": is_planned}
    if sources := _list_sources(tool, values):
        details["sources"] = sources
    return Ask(" ".join(filter(None, sentences)), details=details)


def _list_sources(tool: str, values: Iterable[TargetValue]) -> list[dict[str, Any]]:
    """Return the entries that the user may endorse: one for each value, or none at all."""
    found = dict[tuple[Any, ...], dict[str, Any]]()
    for value in values:
        passage = value.passage
        if passage is None or not passage.is_whole:
            return []
        key = (passage.thread, passage.seq, value.target)
        names = ("thread", "entry", "target")
        found[key] = {"author": passage.author, "tool": tool, **dict(zip(names, key, strict=True))}
    return [*found.values()]


def describe_trusted_source(name: str, value: Any, seq: int) -> str:
    """Return a phrase about a value and the trusted entry that it comes from."""
    shown = cut_visible(value if isinstance(value, str) else json.dumps(value), VALUE_CHARS)
    return f"{name} {shown!r} comes from entry {seq}"


def describe_content(args: Mapping[str, Any], targets: Iterable[str]) -> str:
    """Return a sentence about the arguments that are not targets, which leave with the call."""
    content = {name: value for name, value in args.items() if name not in set(targets) and value not in (None, "", [])}
    if not content:
        return ""
    return f"It would pass on {cut_visible(json.dumps(content, ensure_ascii=False, default=str), SENT_CHARS)}."
