"""The sources of a thread: the texts and values that the user or a trusted tool vouches for.

`Sources` is folded from the log, so a fork, a rewind and a resumed run have the sources of the entries they keep, and
a summary in place of messages changes nothing. Work per step is that of the new entries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wick._internal.tool_flow import UNDECLARED, ToolFlow
from wick.capabilities.information_flow.grants import GRANTS, CallGrant
from wick.capabilities.information_flow.labels import Label, list_leaves, list_values
from wick.capabilities.information_flow.spans import find_words, has_span, split_quoted
from wick.messages import Message, TextPart, ToolCall
from wick.threads import Thread
from wick.threads.state import Entry
from wick.tools import Tool

CHILD = "information_flow_child"  # in thread.values: a child that has read untrusted data
VOUCHING = frozenset(("trusted", "id", "directory"))  # authors whose values may be targets
_FOLDED = frozenset(("value", "intent", "run_end"))  # kinds of entries besides messages


@dataclass(slots=True)
class Passage:
    """An entry with text of others, to show where a value was taken from."""

    seq: int
    author: str
    text: str


@dataclass(slots=True)
class TrustedTexts:
    """Trusted texts, with an index of their words: only texts with the rarest word of a value are searched for it."""

    texts: list[tuple[int, str]] = field(default_factory=list)  # by entry
    places: dict[str, list[int]] = field(default_factory=dict)  # positions in `texts`, by word
    indexed: int = 0  # number of texts in the index

    def add(self, seq: int, text: str) -> None:
        self.texts.append((seq, text))

    def find_entry(self, value: str) -> int:
        """Return the first entry whose text has a value as a span; 0 if none has."""
        for place in range(self.indexed, len(self.texts)):
            for word in find_words(self.texts[place][1]):
                self.places.setdefault(word, []).append(place)
        self.indexed = len(self.texts)
        places = [self.places.get(word, ()) for word in find_words(value)]
        found = (self.texts[place] for place in min(places, key=len, default=()))
        return next((seq for seq, text in found if has_span(text, value)), 0)


@dataclass(slots=True)
class Sources:
    """The vouched values of one thread, and its first entry with untrusted text."""

    typed_by_user: bool = True  # False in the thread of a child: its prompt is a model's text
    texts: TrustedTexts = field(default_factory=TrustedTexts)
    values: dict[str, int] = field(default_factory=dict)  # ids and members of directories, by entry
    passages: list[Passage] = field(default_factory=list)
    grants: dict[str, CallGrant] = field(default_factory=dict)  # of the current run, by id
    tainted: int = 0  # the first entry with text of others; 0 without one
    private: dict[str, int] = field(default_factory=dict)  # private sources that were read, by entry
    recent: list[int] = field(default_factory=list)  # the last reply, and the messages after it
    calls: dict[str, ToolCall] = field(default_factory=dict)  # of the last reply
    folded: int = 0

    def update(self, thread: Thread, tools: Mapping[str, Tool]) -> None:
        """Fold the new entries of a thread. A rewind starts over with the entries that it keeps."""
        if self.folded == len(thread.entries):
            return
        entries = thread.entries[self.folded :]
        if any(entry.kind == "rewind" for entry in entries):
            self.__init__(self.typed_by_user)  # type: ignore[misc]
            entries = thread.effective_entries()
        for entry in entries:
            if entry.kind == "message":
                self._fold_message(entry, entry.data, tools)
            elif entry.kind in _FOLDED:
                self._fold(entry)
        self.folded = len(thread.entries)

    def find_voucher(self, value: Any) -> int:
        """Return the entry that vouches for a value of an argument; 0 if none does."""
        if isinstance(value, bool) or value is None:
            return 0
        text = str(value)
        if text in self.values:
            return self.values[text]
        return self.texts.find_entry(text)

    def find_passage(self, value: Any) -> Passage | None:
        """Return the first text of others that contains a value."""
        text = str(value)
        return next((passage for passage in self.passages if text and text in passage.text), None)

    @property
    def label(self) -> Label:
        """The label of a reply to these entries."""
        return Label(not self.tainted, tuple(self.private), None, tuple(self.recent))

    def _fold(self, entry: Entry) -> None:
        if entry.kind == "value" and entry.data["key"] == GRANTS and "item" in entry.data:
            self.grants[entry.data["item"]] = CallGrant.from_json(entry.data["value"])
        elif entry.kind == "value" and entry.data["key"] == CHILD:
            self._taint(entry.seq)
        elif entry.kind == "intent" and (call := self.calls.get(entry.data["call"])) is not None:
            changed = entry.data.get("args", {})
            self.calls[call.id] = ToolCall(call.id, call.name, {**call.args, **changed})
        elif entry.kind == "run_end" and entry.data["outcome"] != "interrupted":
            self.grants = {}

    def _fold_message(self, entry: Entry, message: Message, tools: Mapping[str, Tool]) -> None:
        if message.role == "assistant":
            self.recent, self.calls = [entry.seq], {call.id: call for call in message.tool_calls}
            return
        self.recent.append(entry.seq)
        if message.role == "tool":
            self._fold_result(entry, message, tools)
        elif message.role == "user" and not (entry.about and "hook" in entry.about):
            if message.name:
                self._taint(entry.seq, f"a message of {message.name}", message.text)
            elif self.typed_by_user:
                self._fold_typed(entry.seq, message)

    def _fold_typed(self, seq: int, message: Message) -> None:
        parts = (TextPart(message.content),) if isinstance(message.content, str) else message.content
        texts = [part.text for part in parts if isinstance(part, TextPart)]
        for typed, has_quotes in map(split_quoted, texts):
            self.texts.add(seq, typed)
            if has_quotes:
                self._taint(seq, "a text that the user quoted", message.text)
        if len(texts) < len(parts):
            self._taint(seq, "an attachment", message.text)

    def _fold_result(self, entry: Entry, message: Message, tools: Mapping[str, Tool]) -> None:
        stored = entry.about and entry.about.get("label")
        if stored:
            label = Label.from_json(stored)
        else:  # recorded without this capability
            label = Label.from_flow(message.name, get_flow(tools.get(message.name)), child_trusted=False)
        for source in label.private:
            self.private.setdefault(source, entry.seq)
        if not label.trusted:
            self._taint(entry.seq, message.name, message.text)
        if message.failed or label.returns is None:
            return
        if VOUCHING.isdisjoint(label.returns.values()):
            return
        echoes = {
            value if isinstance(value, str) else json.dumps(value)
            for call in self.calls.values()
            for value in list_values(call.args)
            if value and not self.find_voucher(value)
        }
        for author, value in list_leaves(message.text, label.returns):
            self._fold_value(entry.seq, author, value, echoes)

    def _fold_value(self, seq: int, author: str, value: Any, echoes: set[str]) -> None:
        """Add a value of a result, unless it only repeats an argument without a voucher."""
        text = str(value)
        if author == "directory" or (author == "id" and text not in echoes):
            self.values.setdefault(text, seq)
        elif author == "trusted" and isinstance(value, str):
            folded = text.casefold()
            if not any(echo.casefold() in folded for echo in echoes):
                self.texts.add(seq, text)
        elif author == "trusted" and not isinstance(value, bool) and text not in echoes:
            self.values.setdefault(text, seq)

    def _taint(self, seq: int, author: str = "", text: str = "") -> None:
        self.tainted = self.tainted or seq
        if text:
            self.passages.append(Passage(seq, author, text))


def get_flow(tool: Tool | None) -> ToolFlow:
    """Return the declaration of a tool; what is assumed of one without it."""
    return UNDECLARED if tool is None or tool.flow is None else tool.flow
