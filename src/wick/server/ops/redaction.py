"""Redaction of the server's secrets in results, events, errors, traces and logs.

`wick._internal.redaction` describes what redaction may reveal. Commands cannot reach a secret in the first place;
redaction is the second line of defense.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from wick._internal.printable import escape_controls, indent_lines
from wick._internal.redaction import Secrets as Secrets
from wick._internal.redaction import is_strong, named_variables
from wick.capabilities.recorder import VALUE as TRACES
from wick.capability import Capability
from wick.events import ChatModelEnd, ChatModelStream, Emit, Event, ToolEnd, ToolStream, UserMessage
from wick.hooks import after
from wick.messages import TextPart
from wick.operations import ModelCall, ToolUse
from wick.protocols import Store, Summary
from wick.run_events import Audience
from wick.server.media import safe_part
from wick.server.settings import Settings
from wick.stores.last_entries import can_append_on_release

_REDACTED_KINDS = frozenset(("decision", "done", "event", "result", "run_end"))  # kinds of log entries

NO_SECRETS = Secrets()


def redact_entry(secrets: Secrets, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a log entry, redacted if it holds a tool result, a hook decision or the end of a run."""
    kind, data = row["kind"], row["data"]
    is_output = kind in _REDACTED_KINDS or (kind == "message" and data["role"] == "tool")
    is_trace = kind == "value" and data["key"] == TRACES
    return {**row, "data": secrets.redact_json(data)} if is_output or is_trace else row


def known_secrets(settings: Settings, local: str, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield the secrets of the settings, and the environment variables that are named like one (`…_TOKEN`)."""
    yield local
    for _, value in named_secrets(settings, environment):
        yield value


def named_secrets(settings: Settings, environment: Mapping[str, str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield the secrets that an operator chose, each with the name of its setting or variable."""
    yield "token", settings.token
    if settings.cluster_secret:
        yield "cluster_secret", settings.cluster_secret
    if settings.encryption_key:
        yield "encryption_key", settings.encryption_key
    for name, address in (("store", settings.store), *(("live", url) for url in settings.live.split(","))):
        if "://" in address:
            parts = urlsplit(address.strip())
            yield name, unquote(parts.password or (parts.username or "" if name == "live" else ""))
    yield from named_variables(environment)


def weak_names(named: Iterable[tuple[str, str]]) -> list[str]:
    """Return the names of secrets that are too weak to be redacted for users. A path is not a secret."""
    return sorted({name for name, value in named if value and not value.startswith("/") and not is_strong(value)})


class Redaction(Capability):
    """Capability that redacts the server's secrets in tool results, and removes parts with private addresses."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    @after(ToolUse, inherit=True)
    def redact(self, use: ToolUse) -> None:
        """Redact a tool result. The hook is innermost, so that other hooks, traces and logs see no secret either."""
        result, hide = use.result, self._secrets
        if use.error is not None or not (hide or result.parts):  # a failed tool has no result
            return
        hidden = replace(
            result,
            output=hide.redact_text(result.output),
            error=hide.redact_text(result.error),
            data=hide.redact_json(result.data),
            parts=tuple(
                replace(part, text=hide.redact_text(part.text)) if isinstance(part, TextPart) else part
                for part in map(safe_part, result.parts)
            ),
        )
        if hidden != result:
            use.result = hidden

    @after(ModelCall, inherit=True)
    def redact_error(self, call: ModelCall) -> None:
        """Redact the error of a model call: a provider may repeat the API key in its message."""
        error = call.error
        if error is not None and (hidden := self._secrets.redact_text(str(error))) != str(error):
            call.error = copy(error)
            call.error.args = (hidden,)


class RedactingStore:
    """A store that redacts secrets in tool results, hook decisions and run ends before they are written."""

    def __init__(self, store: Store, secrets: Secrets) -> None:
        self._store, self._secrets = store, secrets

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(
        self, owner: str, id: str, entries: Sequence[Mapping[str, Any]], **options: Any
    ) -> Coroutine[Any, Any, int]:
        return self._store.append(owner, id, [redact_entry(self._secrets, entry) for entry in entries], **options)

    async def release(
        self, owner: str, id: str, fence: int, *, entries: Sequence[Mapping[str, Any]] = (), **options: Any
    ) -> Summary | None:
        if not entries:
            return await self._store.release(owner, id, fence)
        if not can_append_on_release(self._store):
            await self.append(owner, id, entries, fence=fence, **options)
            return await self._store.release(owner, id, fence)
        hidden = [redact_entry(self._secrets, entry) for entry in entries]
        return await self._store.release(owner, id, fence, entries=hidden, **options)


class RedactingEmitter:
    """Forwards events with redacted secrets: live output of tools, decisions of hooks, errors.

    Messages of the user and the model are not redacted.

    Live output is delayed to the end of its last word. The rest is part of the tool's result.
    """

    FIELDS = ("output", "error", "why", "reason", "message", "question")
    _fields: ClassVar[dict[type[Event], tuple[str, ...]]] = {}

    def __init__(self, secrets: Secrets, emit: Emit, audience: Audience | None = None) -> None:
        self._secrets, self._emit, self.audience = secrets, emit, audience
        self._pending: dict[tuple[str, str], str] = {}  # unsent ends of live output, by run and call

    def __call__(self, event: Event) -> None:
        if type(event) is ChatModelStream:  # most events are deltas, and the model's text is not redacted
            self._emit(event)
            return
        if isinstance(event, ToolStream):
            key = event.run_id, event.call_id
            event.delta, rest = self._secrets.split_live(self._pending.pop(key, "") + event.delta)
            if rest:
                self._pending[key] = rest
            if not event.delta:
                return
        elif isinstance(event, ToolEnd):  # it holds the whole output
            self._pending.pop((event.run_id, event.call_id), None)
        kind = type(event)
        if kind not in self._fields:  # the fields that events of this kind have
            told = issubclass(kind, UserMessage | ChatModelEnd)
            self._fields[kind] = (
                () if told else tuple(name for name in self.FIELDS if name in kind.__dataclass_fields__)
            )
        for name in self._fields[kind]:
            if value := getattr(event, name):
                setattr(event, name, self._secrets.redact_json(value))
        self._emit(event)


class RedactingFormatter(logging.Formatter):
    """Formats records as another formatter does, without secrets and without control characters.

    A record is one line, whatever a user wrote into it. The lines of a traceback follow, indented, so that none of
    them can pass for a record.
    """

    def __init__(self, formatter: logging.Formatter, secrets: Secrets) -> None:
        super().__init__()
        self._formatter, self._secrets = formatter, secrets
        self._splits = type(formatter).format is logging.Formatter.format  # else the whole output is one text

    def format(self, record: logging.LogRecord) -> str:
        if not self._splits:
            return indent_lines(self._secrets.redact_log(self._formatter.format(record)))
        bare = copy(record)
        bare.exc_info = bare.exc_text = bare.stack_info = None
        lines = [escape_controls(self._secrets.redact_log(self._formatter.format(bare)))]
        if record.exc_info and record.exc_info[0] is not None:
            lines.append(self._redact_traceback(self._formatter.formatException(record.exc_info)))
        if record.stack_info:
            lines.append(self._redact_traceback(self._formatter.formatStack(record.stack_info)))
        return "\n".join(lines)

    def _redact_traceback(self, text: str) -> str:
        return "  " + indent_lines(self._secrets.redact_log(text))


def redact_logs(secrets: Secrets) -> None:
    """Make every log handler redact secrets and escape control characters, including third-party loggers."""
    loggers = [logging.getLogger(), *map(logging.getLogger, [*logging.root.manager.loggerDict])]
    last = [logging.lastResort] if logging.lastResort is not None else []
    for handler in (*(handler for logger in loggers for handler in logger.handlers), *last):
        formatter = handler.formatter or logging.Formatter()
        if not isinstance(formatter, RedactingFormatter):
            handler.setFormatter(RedactingFormatter(formatter, secrets))
