"""The sources of a thread: the texts and values of the user and of trusted tools.

`Sources` is folded from the log, so a fork, a rewind and a resumed run have the sources of the entries they keep, and
a summary in place of messages changes nothing. Work per step is that of the new entries.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from wick._internal.frozen import FrozenDict, FrozenList
from wick._internal.tool_flow import UNDECLARED, ToolFlow
from wick.approvals import SOURCE
from wick.capabilities.information_flow.grants import GRANTS, CallGrant
from wick.capabilities.information_flow.handles import HANDLES, LOOK
from wick.capabilities.information_flow.labels import Label, list_leaves, list_values
from wick.capabilities.information_flow.spans import find_words, has_span, split_quoted
from wick.messages import Message, TextPart, ToolCall
from wick.threads import Thread
from wick.threads.state import Entry
from wick.tools import Tool

CHILD = "information_flow_child"  # in thread.values: a child that has read untrusted data
SOURCE_AUTHORS = frozenset(("trusted", "id", "directory"))  # authors whose values may be targets
_FOLDED = frozenset(("value", "run_end", "asked", "answered", "call"))


Endorsed = tuple[str, int, str, str]  # the thread, the entry, the tool, and its argument
_SOURCE_KEYS = ("thread", "entry", "tool", "target")


def contains_value(text: str, value: Any) -> bool:
    """Return True if a text, or a value of its JSON data, has a value as a whole word."""
    leaves = (leaf for _, leaf in list_leaves(text, {}))
    return any(str(leaf) == str(value) or has_span(str(leaf), str(value)) for leaf in leaves)


def is_typed(message: Message) -> bool:
    """Return True if a message is the user's own: nothing in it is quoted, attached, or of another author."""
    content = message.content
    texts = [content] if isinstance(content, str) else [part.text for part in content if isinstance(part, TextPart)]
    has_others = bool(message.name) or (not isinstance(content, str) and len(texts) < len(content))
    return not has_others and not any(split_quoted(text)[1] for text in texts)


@dataclass(slots=True)
class Passage:
    """An entry with untrusted text, to show where a value was taken from."""

    thread: str
    seq: int
    author: str
    text: str
    is_whole: bool = False  # it has the value as a whole word


@dataclass(slots=True)
class TrustedTexts:
    """Trusted texts, with an index of their words: only texts with the rarest word of a value are searched for it."""

    texts: list[tuple[int, str]] = field(default_factory=list)  # by entry
    places: dict[str, list[int]] = field(default_factory=dict)  # positions in `texts`, by word
    indexed: int = 0  # number of texts in the index
    found: dict[str, int] = field(default_factory=dict)  # the first entry of each value that was found

    def add(self, seq: int, text: str) -> None:
        self.texts.append((seq, text))

    def find_entry(self, value: str) -> int:
        """Return the first entry whose text has a value as a span; 0 if none has."""
        if value in self.found:
            return self.found[value]
        for place in range(self.indexed, len(self.texts)):
            for word in find_words(self.texts[place][1]):
                self.places.setdefault(word, []).append(place)
        self.indexed = len(self.texts)
        places = [self.places.get(word, ()) for word in find_words(value)]
        for seq, text in (self.texts[place] for place in min(places, key=len, default=())):
            if has_span(text, value):
                self.found[value] = seq
                return seq
        return 0


# The entry, the text and the authors of a result, with the calls of its reply and their changed arguments
QueuedResult = tuple[int, str, Mapping[str, str], tuple[ToolCall, ...], Mapping[str, Any]]


@dataclass(slots=True)
class TrustedValues:
    """The texts and values of a thread that come from the user or from a trusted tool.

    Results are queued, and read when a value is looked up: most steps look up none.
    """

    texts: TrustedTexts = field(default_factory=TrustedTexts)
    exact: dict[str, int] = field(default_factory=dict)  # ids and members of directories, by entry
    queued: list[QueuedResult] = field(default_factory=list)

    def find_trusted_source(self, value: Any) -> int:
        """Return the trusted entry that has a value of an argument; 0 if none has it."""
        if isinstance(value, bool) or value is None:
            return 0
        if self.queued:
            queued, self.queued = self.queued, []
            for result in queued:
                self._fold_result(*result)
        return self._find(str(value))

    def _find(self, text: str) -> int:
        return self.exact.get(text) or self.texts.find_entry(text)

    def _fold_result(
        self, seq: int, text: str, authors: Mapping[str, str], calls: Iterable[ToolCall], sealed: Mapping[str, Any]
    ) -> None:
        """Add the values of a result, unless they repeat arguments without a trusted source."""
        echoes = {
            value if isinstance(value, str) else json.dumps(value)
            for call in calls
            for value in list_values({**call.args, **sealed.get(call.id, {})})
            if value and not self._find(str(value))
        }
        for author, value in list_leaves(text, authors):
            self._fold_value(seq, author, value, echoes)

    def _fold_value(self, seq: int, author: str, value: Any, echoes: set[str]) -> None:
        text = str(value)
        if author in ("directory", "id") and text not in echoes:
            self.exact.setdefault(text, seq)
        elif author == "trusted" and isinstance(value, str):
            folded = text.casefold()
            if not any(echo.casefold() in folded for echo in echoes):
                self.texts.add(seq, text)
        elif author == "trusted" and not isinstance(value, bool) and text not in echoes:
            self.exact.setdefault(text, seq)


@dataclass(slots=True)
class Sources:
    """The trusted values of one thread, its untrusted texts, its grants, and the private sources that it has read."""

    typed_by_user: bool = True  # False in the thread of a child: its prompt is a model's text
    hides: bool = False  # untrusted results are hidden from the model
    trusted: TrustedValues = field(default_factory=TrustedValues)
    passages: list[tuple[str, int, str]] = field(default_factory=list)  # author, entry and untrusted text
    grants: dict[str, CallGrant] = field(default_factory=dict)  # of the current run, by id
    tainted: int = 0  # the first entry with untrusted text; 0 without one
    program_tainted: int = 0  # with handles: the first untrusted result of the program that is running
    private: dict[str, int] = field(default_factory=dict)  # private sources that were read, by entry
    recent: list[int] = field(default_factory=list)  # the last reply, and the messages after it
    calls: tuple[ToolCall, ...] = ()  # of the last reply
    sealed: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # their arguments that hooks changed, by call
    programs: dict[str, tuple[frozenset[str], int]] = field(default_factory=dict)
    # for each call in a program: the arguments that no untrusted text reached, and the entry that has the program
    offered: dict[str, frozenset[Endorsed]] = field(default_factory=dict)  # sources of the questions, by id
    endorsed: frozenset[Endorsed] = frozenset()  # by the user, for the current run
    last_label: Any = None  # of a result
    has_values: bool = False  # results with this label have values that may be targets
    assumed: bool = False  # a result had no label
    folded: int = 0

    def update(self, thread: Thread, tools: Mapping[str, Tool]) -> None:
        """Fold the new entries of a thread. A rewind starts over with the entries that it keeps."""
        for entry in thread.entries[self.folded :]:
            if entry.kind == "message":
                message: Message = entry.data
                if message.role == "assistant":
                    self.recent, self.calls, self.sealed = [entry.seq], message.tool_calls, _NOTHING
                    if self.hides and entry.about and not entry.about.get("label", _TRUSTED)["trusted"]:
                        self.tainted = self.tainted or entry.seq  # an answer with the data of references
                elif message.role == "tool":
                    self.recent.append(entry.seq)
                    self.program_tainted = 0  # a program runs alone, so this is its output
                    self._fold_result(entry.seq, message, entry.about and entry.about.get("label"), tools)
                elif message.role == "user":
                    self.recent.append(entry.seq)
                    self._fold_user(entry, message)
            elif entry.kind == "intent":
                if "args" in entry.data:
                    self.sealed = {**self.sealed, entry.data["call"]: entry.data["args"]}
            elif entry.kind == "result":  # of a call in a program
                row = entry.data
                text, failed = row.get("error") or row["output"], "error" in row
                message = Message("tool", text, name=row["name"], tool_call_id=row["call"], failed=failed)
                before = self.tainted
                self._fold_result(entry.seq, message, row.get("label"), tools)
                if self.hides and self.tainted != before:  # the model gets a handle of the program's output
                    self.tainted, self.program_tainted = before, self.program_tainted or entry.seq
            elif entry.kind == "rewind":
                return self._start_over(thread, tools)
            elif entry.kind in _FOLDED:
                self._fold(entry)
        self.folded = len(thread.entries)

    def _start_over(self, thread: Thread, tools: Mapping[str, Tool]) -> None:
        """Fold the entries that a rewind keeps."""
        kept = Thread()
        kept.entries = thread.effective_entries()
        self.__init__(self.typed_by_user, self.hides)  # type: ignore[misc]
        self.update(kept, tools)
        self.folded = len(thread.entries)

    @property
    def is_tainted(self) -> bool:
        """True if the thread, or the program that is running, has read untrusted text."""
        return bool(self.tainted or self.program_tainted)

    def find_trusted_source(self, value: Any) -> int:
        """Return the trusted entry that has a value of an argument; 0 if none has it."""
        return self.trusted.find_trusted_source(value)

    def find_clean(self, call: str) -> frozenset[str]:
        """Return the arguments of a call in a program that come from the program itself or from trusted results.

        The program must have been written before untrusted text was read. "" stands for the conditions of the call.
        """
        clean, written = self.programs.get(call, (frozenset(), 0))
        return clean if written and (not self.tainted or written < self.tainted) else frozenset()

    def find_passage(self, value: Any, thread: str) -> Passage | None:
        """Return the first untrusted text that contains a value, if possible as a whole word."""
        text, first = str(value), None
        for author, seq, body in self.passages:
            if not text or text not in body:
                continue
            if contains_value(body, value):
                return Passage(thread, seq, author, body, is_whole=True)
            first = first or Passage(thread, seq, author, body)
        return first

    def is_quoted(self, value: Any) -> bool:
        """Return True if a value is a whole word of an untrusted text, and not of an answer of `look` alone."""
        return any(author != LOOK and contains_value(text, value) for author, _, text in self.passages)

    def label_reply(self, above: Iterable[Sources] = (), *, is_trusted: bool = True) -> FrozenDict:
        """Return the label of a reply to these entries, as JSON data. `above` are the sources of parent runs.

        A reply that is not `is_trusted` has untrusted text of another source.
        """
        trusted, private = is_trusted and not self.tainted, self.private
        for other in above:
            trusted, private = trusted and not other.is_tainted, {**private, **other.private}
        names = FrozenList(private) if private else _NO_NAMES
        return FrozenDict({"trusted": trusted, "private": names, "from": FrozenList(self.recent)})

    def _fold(self, entry: Entry) -> None:
        data = entry.data
        if entry.kind == "run_end":
            if data["outcome"] != "interrupted":
                self.grants, self.offered, self.endorsed = {}, {}, frozenset()
        elif entry.kind == "asked":
            if data.get("sources"):
                self.offered[data["id"]] = frozenset(map(itemgetter(*_SOURCE_KEYS), data["sources"]))
        elif entry.kind == "answered":
            if data["allowed"] and data.get("scope") == SOURCE:
                self.endorsed |= self.offered.get(data["id"], frozenset())
        elif entry.kind == "call":  # in a program
            self.calls += (ToolCall(data["call"], data["name"], data["args"]),)
            self.programs[data["call"]] = frozenset(data.get("clean", ())), self.recent[0]
        elif data["key"] == GRANTS and "item" in data:
            self.grants[data["item"]] = CallGrant.from_json(data["value"])
        elif data["key"] == HANDLES and "item" in data:
            row = data["value"]  # the model has only a reference: a source, also of quotes, that does not taint the run
            self.passages.append((row["tool"], entry.seq, row["text"]))
            if not SOURCE_AUTHORS.isdisjoint(row["authors"].values()):
                self.trusted.queued.append((entry.seq, row["text"], row["authors"], self.calls, self.sealed))
        elif data["key"] == CHILD and not self.hides:
            self.tainted = self.tainted or entry.seq

    def _fold_user(self, entry: Entry, message: Message) -> None:
        if entry.about and "hook" in entry.about:
            return
        if message.name:
            self._taint(entry, f"a message of {message.name}")
        elif self.typed_by_user:
            self._fold_typed(entry, message.content)

    def _fold_typed(self, entry: Entry, content: str | Sequence[Any]) -> None:
        texts = [content] if isinstance(content, str) else [part.text for part in content if isinstance(part, TextPart)]
        for text in texts:
            typed, has_quotes = split_quoted(text)
            self.trusted.texts.add(entry.seq, typed)
            if has_quotes:
                self._taint(entry, "a text that the user quoted")
        if not isinstance(content, str) and len(texts) < len(content):
            self._taint(entry, "an attachment")

    def _fold_result(self, seq: int, message: Message, label: Any, tools: Mapping[str, Tool]) -> None:
        if not label:  # recorded without this capability
            self.assumed = True
            label = Label.from_flow(message.name, get_flow(tools.get(message.name)), child_trusted=False).to_json()
        for source in label["private"]:
            self.private.setdefault(source, seq)
        if label["trusted"] is not True:
            self.tainted = self.tainted or seq
            self.passages.append((message.name, seq, message.text))
        if label is not self.last_label:  # those of the same tool are mostly one object
            authors = label.get("returns") or _NOTHING
            self.last_label, self.has_values = label, not SOURCE_AUTHORS.isdisjoint(authors.values())
        if self.has_values and not message.failed:
            self.trusted.queued.append((seq, message.text, label["returns"], self.calls, self.sealed))

    def _taint(self, entry: Entry, author: str) -> None:
        self.tainted = self.tainted or entry.seq
        self.passages.append((author, entry.seq, entry.data.text))


_TRUSTED = {"trusted": True}
_NOTHING: dict[str, Any] = {}  # never changed
_NO_NAMES = FrozenList()


def find_sources(thread: Thread, *, typed_by_user: bool, hides: bool = False) -> Sources:
    """Return the sources of a thread, with the entries that earlier runs of it have folded in this process."""
    sources = thread.folds.get((Sources, typed_by_user, hides))
    if sources is None or sources.assumed:  # assumptions depend on the tools of a run
        sources = thread.folds[Sources, typed_by_user, hides] = Sources(typed_by_user, hides)
    return sources


def get_flow(tool: Tool | None) -> ToolFlow:
    """Return the declaration of a tool; what is assumed of one without it."""
    return UNDECLARED if tool is None or tool.flow is None else tool.flow
