"""Redaction of secrets in recorded files: one rule for cassettes, recordings of evals and imported cases.

A recorded file must not depend on the machine that plays it. So a played request is redacted without the values of
environment variables, and `matches_redacted` compares it with the recorded one, whose `[secret]` matches any word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from wick._internal.redaction import KEY_FORMS, PLACEHOLDER, SECRET_NAMES, SECRET_WORDS, named_variables, split_secret
from wick.constants import SECRET_LOG_CHARS
from wick.errors import ConfigError

Json = dict[str, Any]

# The key of a mapping or of a row, and the token of a page, are not secrets.
_PLAIN_NAMES = re.compile(
    r"^key$|(?:page|next|continuation|cursor|sort|cache|primary|foreign|partition|public|idempotency)_?(?:key|token)$",
    re.IGNORECASE,
)
_NAMED_VALUE = re.compile(rf'("[^"\\]*(?:{SECRET_WORDS})"\s*:\s*")((?:[^"\\]|\\.)+)', re.IGNORECASE)
_TOOL_SUMMARY = re.compile(r"\([^\n]*\) [0-9a-f]{8}(?:\s.*)?", re.DOTALL)  # of a tool that is named like a secret
_PLAIN_WORD = re.compile(r"[A-Za-z]?[a-z]*")
_SHORT_CHARS = 4  # a shorter argument is redacted in its place only, not where it occurs in other texts


def is_secret_name(name: str) -> bool:
    """Return True if the value of an argument or of a setting with this name is a secret."""
    is_named = SECRET_NAMES.search(name) or name.lower() == "authorization"
    return bool(is_named) and not _PLAIN_NAMES.search(name)


def redact_arguments(value: Any, name: str = "") -> Any:
    """Return JSON data without the texts whose names are those of secrets."""
    if isinstance(value, Mapping):
        return {key: redact_arguments(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact_arguments(inner, name) for inner in value]
    return _hide_words(value) if isinstance(value, str) and _is_secret(name, value) else value


def _is_secret(name: str, text: str) -> bool:
    return bool(text) and is_secret_name(name) and not _TOOL_SUMMARY.fullmatch(text)


def find_secret_values(data: Any, name: str = "") -> Iterator[str]:
    """Yield the texts in JSON data whose names are those of secrets, and which are long enough to search for them."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from find_secret_values(value, str(key))
    elif isinstance(data, list | tuple):
        for value in data:
            yield from find_secret_values(value, name)
    elif isinstance(data, str) and name in ("raw", "args"):  # the arguments of a call, as the model wrote them
        yield from find_secret_values(_parse_arguments(data))
    elif isinstance(data, str) and _is_secret(name, data) and PLACEHOLDER not in data:
        is_word = len(data) < SECRET_LOG_CHARS and _PLAIN_WORD.fullmatch(data)
        if len(data) >= _SHORT_CHARS and not is_word:
            yield data


def _parse_arguments(text: str) -> Any:
    """Return the arguments of a call. If they are not JSON, return those that can be read."""
    try:
        return json.loads(text)
    except ValueError:
        return {match[1].partition('"')[2].partition('"')[0]: match[2] for match in _NAMED_VALUE.finditer(text)}


class RecordingRedactor:
    """A redactor of secrets in recorded requests, replies and results.

    Secrets are the values of arguments and settings with such names, also where they occur in other texts, the known
    forms of keys, the values of secret environment variables, and patterns of the user. `replace` maps texts that
    differ from run to run to placeholders; such a text is not a secret.
    """

    def __init__(
        self,
        patterns: Iterable[str] = (),
        environment: Mapping[str, str] | None = None,
        replace: Mapping[str, str] | None = None,
    ) -> None:
        patterns, self.replace, self.count = [*patterns], {**(replace or {})}, 0
        values = (value for _, value in named_variables(environment) if not value.startswith("/"))  # a path
        self._known = _compile_words({piece for value in values for piece in split_secret(value)})
        try:
            given = [f"(?:{pattern})" for pattern in patterns]
            self._forms = re.compile("|".join([*given, KEY_FORMS.pattern]), re.DOTALL)
        except re.error as error:
            raise ConfigError(f"--redact is not a regular expression: {error}") from None
        # The same rules on every machine: without the values of environment variables.
        self.portable = self if self._known is None else RecordingRedactor(patterns, {}, replace)

    def redact_text(self, text: str, values: re.Pattern[str] | None = None) -> str:
        """Return a text with every secret replaced, also the given values."""
        if not text.isascii():
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # as messages repair texts
        text = self._insert_placeholders(text)
        for pattern in (values, self._known):
            if pattern is not None:
                text, found = pattern.subn(lambda match: _hide_words(match[0]), text)
                self.count += found
        text, found = self._forms.subn(PLACEHOLDER, text)
        self.count += found
        return text

    def _insert_placeholders(self, text: str) -> str:
        for known in sorted(self.replace, key=len, reverse=True):
            text = text.replace(known, self.replace[known])
        return text

    def redact_json(self, data: Any, values: Iterable[str] = ()) -> Any:
        """Return JSON data with every secret in its texts and keys replaced, also where given values occur."""
        return self._redact(data, "", self._compile_values(values))

    def redact_texts(self, data: Any) -> Any:
        """Return JSON data with the secrets in its texts replaced, whatever the names of the texts."""
        if isinstance(data, Mapping):
            return {self.redact_text(str(key)): self.redact_texts(item) for key, item in data.items()}
        if isinstance(data, list | tuple):
            return [self.redact_texts(item) for item in data]
        return self.redact_text(data) if isinstance(data, str) else data

    def redact_case(self, data: Any) -> Any:
        """Return the JSON data of one case, also without its secret arguments in other texts."""
        return self.redact_json(data, find_secret_values(data))

    def _compile_values(self, values: Iterable[str]) -> re.Pattern[str] | None:
        return _compile_words({value for value in values if not any(known in value for known in self.replace)}, 0)

    def _redact(self, data: Any, name: str, values: re.Pattern[str] | None) -> Any:
        if isinstance(data, str):
            if name == "raw":
                return self._redact_arguments_text(data, values)
            if _is_secret(name, data):
                return self._redact_value(data)
            return self.redact_text(data, values)
        if isinstance(data, list | tuple):
            return [self._redact(item, name, values) for item in data]
        if isinstance(data, Mapping):
            return {self.redact_text(str(key)): self._redact(item, str(key), values) for key, item in data.items()}
        return data

    def _redact_value(self, text: str) -> str:
        """Return the placeholder of a secret: that of the user, if there is one."""
        shown = self._insert_placeholders(text)
        self.count += shown == text != PLACEHOLDER
        return _hide_words(text) if shown == text else self.redact_text(text)

    def _redact_arguments_text(self, text: str, values: re.Pattern[str] | None) -> str:
        """Return the arguments of a call as the model wrote them, without secrets."""
        try:
            data = json.loads(text)
        except ValueError:
            named = _NAMED_VALUE.sub(lambda match: self._redact_named(match), text)
            return self.redact_text(named, values)
        hidden = self._redact(data, "", values)
        is_same = hidden == data and self.redact_text(text, values) == text
        return text if is_same else json.dumps(hidden, ensure_ascii=False)

    def _redact_named(self, match: re.Match[str]) -> str:
        name = match[1].partition('"')[2].partition('"')[0]
        return f"{match[1]}{self._redact_value(match[2])}" if is_secret_name(name) else match[0]

    # -- the events of a cassette -----------------------------------------------------------------------------------

    def redact_events(self, events: Iterable[Json], values: Iterable[str] = ()) -> list[Json]:
        """Return the events of a reply without secrets. Arguments that were streamed in pieces are joined for this."""
        known = self._compile_values(values)
        arguments = {
            index: (text, self._redact_arguments_text(text, known)) for index, text in join_arguments(events).items()
        }
        redacted, done = list[Json](), set[int]()
        for index, event in _number_calls(events):
            if index is None or "args" not in event:
                redacted.append(self._redact_event(event, known))
                continue
            before, after = arguments[index]
            rest = {name: value for name, value in event.items() if name not in ("args", "chunks")}
            if before == after:
                redacted.append(self._redact_event({**event, "args": ""}, known) | {"args": event["args"]})
            elif index not in done:
                redacted.append(self._redact_event(rest, known) | {"args": after})
            elif "call" in event:
                redacted.append(self._redact_event(rest, known))
            done.add(index)
        return redacted

    def _redact_event(self, event: Json, values: re.Pattern[str] | None) -> Json:
        """Return an event without secrets in its texts. Its chunks do not fit a text that changed."""
        hidden: Json = {name: self._redact(text, name, values) for name, text in event.items()}
        changed = any(hidden.get(name) != event.get(name) for name in ("text", "reasoning"))
        return {name: text for name, text in hidden.items() if name != "chunks"} if changed else hidden

    def restore(self, value: Any, name: str = "") -> Any:
        """Return JSON data with the texts of this run in place of their placeholders."""
        if isinstance(value, str):
            restored = value
            for known, placeholder in self.replace.items():
                restored = restored.replace(placeholder, known)
            if restored == value or name != "args":
                return restored
            try:  # a text may need escapes inside of JSON
                return json.dumps(self.restore(json.loads(value)), ensure_ascii=False)
            except ValueError:
                return restored
        if isinstance(value, list):
            return [self.restore(inner) for inner in value]
        return {key: self.restore(inner, key) for key, inner in value.items()} if isinstance(value, dict) else value


def _hide_words(text: str) -> str:
    """Return a text with a placeholder for each word, as a placeholder in a text matches a word."""
    return re.sub(r"\S+", PLACEHOLDER, text)


def _number_calls(events: Iterable[Json]) -> Iterator[tuple[int | None, Json]]:
    """Yield each event with the index of its call; None for other events."""
    started = 0
    for event in events:
        index = event.get("index", started) if "call" in event else event.get("index") if "args" in event else None
        started += "call" in event
        yield index, event


def join_arguments(events: Iterable[Json]) -> dict[int, str]:
    """Return the arguments of each call of a reply, as the model wrote them."""
    joined = dict[int, str]()
    for index, event in _number_calls(events):
        if index is not None and "args" in event:
            joined[index] = joined.get(index, "") + str(event["args"])
    return joined


def _compile_words(values: Iterable[str], least: int = SECRET_LOG_CHARS) -> re.Pattern[str] | None:
    """Return a pattern of values. A short one counts as a whole word only."""
    longest_first = sorted({value for value in values if len(value) >= max(least, 1)}, key=len, reverse=True)
    texts = [
        re.escape(value) if len(value) >= SECRET_LOG_CHARS else rf"(?<!\w){re.escape(value)}(?!\w)"
        for value in longest_first
    ]
    return re.compile("|".join(texts)) if texts else None


# -- comparing --------------------------------------------------------------------------------------------------------


def matches_redacted(recorded: Any, sent: Any) -> bool:
    """Return True if JSON data is as recorded. A recorded `[secret]` matches any text, or any word inside of a text."""
    if recorded == sent:
        return True
    if isinstance(recorded, str) and isinstance(sent, str):
        return PLACEHOLDER in recorded and _matches_text(recorded, sent)
    if isinstance(recorded, list) and isinstance(sent, list):
        return len(recorded) == len(sent) and all(map(matches_redacted, recorded, sent))
    if isinstance(recorded, dict) and isinstance(sent, dict):
        if recorded.keys() == sent.keys():
            return all(matches_redacted(recorded[key], sent[key]) for key in recorded)
        has_secrets = any(PLACEHOLDER in key for key in recorded)  # such keys are compared in their order
        return has_secrets and matches_redacted(
            [[*pair] for pair in recorded.items()], [[*pair] for pair in sent.items()]
        )
    return False


def adopt_redacted(recorded: Any, sent: Any) -> Any:
    """Return JSON data with the recorded texts in place of those that match them, to show only what differs."""
    if matches_redacted(recorded, sent):
        return recorded
    if isinstance(recorded, dict) and isinstance(sent, dict):
        return {key: adopt_redacted(recorded[key], value) if key in recorded else value for key, value in sent.items()}
    if isinstance(recorded, list) and isinstance(sent, list):
        same = [adopt_redacted(old, new) for old, new in zip(recorded, sent, strict=False)]
        return [*same, *sent[len(same) :]]
    return sent


def _matches_text(recorded: str, sent: str) -> bool:
    """Return True if a text has words in the places of the placeholders.

    The first place of each part is the right one: a word has no blanks, so a later place leaves no more room.
    """
    if recorded == PLACEHOLDER:
        return True
    first, *middle, last = re.split(rf"(?:{re.escape(PLACEHOLDER)})+", recorded)
    if not sent.startswith(first) or not sent.endswith(last):
        return False
    at, end = len(first), len(sent) - len(last)
    for part in middle:
        place = sent.find(part, at + 1, end)
        if place < 0 or not _is_word(sent[at:place]):
            return False
        at = place + len(part)
    return at < end and _is_word(sent[at:end])


def _is_word(text: str) -> bool:
    return bool(text) and not re.search(r"\s", text)
