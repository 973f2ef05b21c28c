"""Secrets that the server knows, so that they can be kept out of logs, errors and results."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any
from urllib.parse import unquote, urlsplit

from wick.capabilities.recorder import VALUE as TRACES
from wick.capability import Capability
from wick.events import ChatModelEnd, Emit, Event, ToolEnd, ToolStream, UserMessage
from wick.hooks import after
from wick.messages import Part, TextPart
from wick.operations import ModelCall, ToolUse
from wick.protocols import Store
from wick.server.settings import Settings

SHORTEST = 8  # what is shorter would be found everywhere
INSTEAD = "[secret]"
_NAMES = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_TOLD = frozenset(("decision", "done", "event", "run_end"))  # kinds of entries
_OPTIONS = re.compile(
    r"(^|[_-])(api_?key|key|token|password|passwd|secret|authorization|dsn|credentials?)$", re.IGNORECASE
)


class Secrets:
    """Texts that nobody is to see, and what is said in their place."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known: list[str] = []
        self._pattern: re.Pattern[str] | None = None
        self.learn(known)

    def learn(self, known: Iterable[str]) -> None:
        """Know more of them, from here on."""
        new = {text for text in known if len(text) >= SHORTEST} - {*self._known}
        if new:
            self._known = sorted({*self._known, *new}, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, self._known)))

    def __repr__(self) -> str:
        return "Secrets()"

    def __bool__(self) -> bool:
        return self._pattern is not None

    def without(self, text: str) -> str:
        """A text with no secret in it."""
        return text if self._pattern is None else self._pattern.sub(INSTEAD, text)

    def so_far(self, text: str) -> tuple[str, str]:
        """What can be said of a text that goes on, and its end that is to wait, as a secret may begin there."""
        text = self.without(text)
        begun = max((_overlap(text, secret) for secret in self._known), default=0)
        return text[: len(text) - begun], text[len(text) - begun :]

    def without_any(self, data: Any) -> Any:
        """JSON data with no secret in its texts."""
        if isinstance(data, str):
            return self.without(data)
        if isinstance(data, list | tuple):
            return [self.without_any(item) for item in data]
        if isinstance(data, Mapping):
            return {self.without(str(key)): self.without_any(value) for key, value in data.items()}
        return data

    def without_entry(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """An entry of a log, with none in what tools answered, what hooks said, and how a run ended."""
        kind, data = row["kind"], row["data"]
        told = kind in _TOLD or (kind == "message" and data["role"] == "tool")
        traced = kind == "value" and data["key"] == TRACES
        return {**row, "data": self.without_any(data)} if self and (told or traced) else row


def _overlap(text: str, secret: str) -> int:
    """How much of a secret a text ends with the beginning of."""
    return next((size for size in range(len(secret) - 1, 0, -1) if text.endswith(secret[:size])), 0)


NO_SECRETS = Secrets()


def known_secrets(settings: Settings, local: str, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """The tokens and passwords of the settings, and what the environment has under a name that says so."""
    yield from (settings.token, local)
    if settings.on_postgres and "://" in settings.store:
        yield unquote(urlsplit(settings.store).password or "")
    for name, value in (os.environ if environment is None else environment).items():
        if _NAMES.search(name):
            yield value.strip()


def secrets_in(options: Any, name: str = "") -> Iterator[str]:
    """What options of an agent have under a name that says so, at any depth; of `Bearer …` also what comes after it."""
    if isinstance(options, Mapping):
        for key, value in options.items():
            yield from secrets_in(value, str(key))
    elif isinstance(options, list | tuple):
        for value in options:
            yield from secrets_in(value, name)
    elif isinstance(options, str) and _OPTIONS.search(name):
        yield from {options.strip(), *options.split()[-1:]}


class Redaction(Capability):
    """Takes secrets of the server out of what tools answer, before anybody else sees it."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    @after(ToolUse, inherit=True)
    def redact(self, use: ToolUse) -> None:
        """Innermost, so that no hook, trace or log has it either."""
        result, hide = use.result, self._secrets
        if use.error is not None or not hide:  # what broke down has no result
            return
        hidden = replace(
            result,
            output=hide.without(result.output),
            error=hide.without(result.error),
            data=hide.without_any(result.data),
            parts=tuple(self._part(part) for part in result.parts),
        )
        if hidden != result:
            use.result = hidden

    @after(ModelCall, inherit=True)
    def redact_error(self, call: ModelCall) -> None:
        """What a model's server says went wrong may have the key in it that it was asked with."""
        error = call.error
        if error is not None and (hidden := self._secrets.without(str(error))) != str(error):
            call.error = copy(error)
            call.error.args = (hidden,)

    def _part(self, part: Part) -> Part:
        return replace(part, text=self._secrets.without(part.text)) if isinstance(part, TextPart) else part


class Unwritten:
    """A store that no secret is written to: in what tools answered, what hooks said, and how a run ended."""

    def __init__(self, store: Store, secrets: Secrets) -> None:
        self._store, self._secrets = store, secrets

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, owner: str, id: str, entries: Sequence[Mapping[str, Any]], **options: Any) -> int:
        return await self._store.append(owner, id, [self._secrets.without_entry(entry) for entry in entries], **options)


class Unsaid:
    """Passes events on, without secrets in what tools say while they run, though it comes in pieces.

    Nor are there any in what hooks said, and in what went wrong.
    """

    FIELDS = ("output", "error", "why", "reason", "message", "question")

    def __init__(self, secrets: Secrets, emit: Emit) -> None:
        self._secrets, self._emit = secrets, emit
        self._begun: dict[tuple[str, str], str] = {}  # ends of what was said, by the run and its call

    def __call__(self, event: Event) -> None:
        if isinstance(event, ToolStream):
            key = event.run_id, event.call_id
            event.delta, rest = self._secrets.so_far(self._begun.pop(key, "") + event.delta)
            if rest:
                self._begun[key] = rest
            if not event.delta:
                return
        elif isinstance(event, ToolEnd):  # it has all of what was said
            self._begun.pop((event.run_id, event.call_id), None)
        if self._secrets and not isinstance(event, UserMessage | ChatModelEnd):  # these are what somebody said
            self._hide(event)
        self._emit(event)

    def _hide(self, event: Event) -> None:
        for name in self.FIELDS:
            if said := getattr(event, name, None):
                setattr(event, name, self._secrets.without_any(said))


class Redacting(logging.Formatter):
    """Formats as another does, and leaves secrets out."""

    def __init__(self, formatter: logging.Formatter, secrets: Secrets) -> None:
        super().__init__()
        self._formatter, self._secrets = formatter, secrets

    def format(self, record: logging.LogRecord) -> str:
        return self._secrets.without(self._formatter.format(record))


def keep_out_of_logs(secrets: Secrets) -> None:
    """Have whatever handles logs now leave secrets out; and what does where nothing else is set up."""
    last = [logging.lastResort] if logging.lastResort is not None else []
    for handler in (*logging.getLogger().handlers, *last):
        formatter = handler.formatter or logging.Formatter()
        if not isinstance(formatter, Redacting):
            handler.setFormatter(Redacting(formatter, secrets))
