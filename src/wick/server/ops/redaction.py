"""Redaction of the server's secrets in results, events, errors, traces and logs.

A user can print a guess and observe whether it is redacted. So redaction must reveal no more than whether a whole guess
equals a whole secret, and only for secrets that cannot be guessed (see `is_strong`). Live text is delayed up to the end
of a word, never by a comparison with a secret. Commands cannot reach a secret in the first place; redaction is the
second line of defense.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import orjson

from wick._internal.printable import escape_controls, indent_lines
from wick.capabilities.recorder import VALUE as TRACES
from wick.capability import Capability
from wick.constants import SECRET_CHARS, SECRET_DISTINCT, SECRET_LIVE_CHARS, SECRET_LOG_CHARS
from wick.events import ChatModelEnd, Emit, Event, ToolEnd, ToolStream, UserMessage
from wick.hooks import after
from wick.messages import TextPart
from wick.operations import ModelCall, ToolUse
from wick.protocols import Store
from wick.server.media import safe_part
from wick.server.settings import Settings

PLACEHOLDER = "[secret]"
_SECRET_NAMES = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_REDACTED_KINDS = frozenset(("decision", "done", "event", "run_end"))  # kinds of log entries
_WORD_CHARS = "".join(map(chr, range(0x21, 0x7F)))  # printable ASCII without the space
_BANNER = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]+-----")  # the lines of a PEM file that are not secret


def is_strong(secret: str) -> bool:
    """Return True if a secret is too long to be guessed, so that redacting it does not help to guess it."""
    return len(secret) >= SECRET_CHARS and len({*secret}) >= SECRET_DISTINCT


class Secrets:
    """The secrets of a server, and their redaction.

    `redact_text` is for text that users see: it redacts strong secrets only. `redact_log` is for the operator's log and
    redacts all of them.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known: frozenset[str] = frozenset()
        self._strong: re.Pattern[str] | None = None
        self._all: re.Pattern[str] | None = None
        self._in_json: re.Pattern[bytes] | None = None
        self._in_words = True  # no strong secret contains a space or another character that ends a word
        self.learn(known)

    def learn(self, known: Iterable[str]) -> None:
        """Add secrets to be redacted."""
        pieces = {piece for text in known for piece in _split_secret(text) if len(piece) >= SECRET_LOG_CHARS}
        if pieces <= self._known:
            return
        self._known |= pieces
        strong = [*filter(is_strong, self._known)]
        self._all, self._strong = _compile_any(self._known), _compile_any(strong)
        # JSON escapes character by character, so a text that contains a secret contains its escaped form as JSON.
        self._in_json = re.compile(b"|".join(re.escape(_encode_text(piece)) for piece in strong)) if strong else None
        self._in_words = not any(piece.strip(_WORD_CHARS) for piece in strong)

    def __repr__(self) -> str:
        return "Secrets()"

    def __bool__(self) -> bool:
        return self._strong is not None

    def redact_text(self, text: str) -> str:
        """Return a text for users, with every strong secret replaced."""
        return text if self._strong is None else self._strong.sub(PLACEHOLDER, text)

    def redact_log(self, text: str) -> str:
        """Return a text for the operator's log, with every secret replaced."""
        return text if self._all is None else self._all.sub(PLACEHOLDER, text)

    def split_live(self, text: str) -> tuple[str, str]:
        """Return the part of a live text that can be sent, redacted, and the open end that must wait.

        A secret never spans the end of a word, so complete words are sent at once. The last word is held back, with the
        blanks before it. The cut depends on blanks and on a constant only. It must not depend on a secret, since a
        client can observe what is held back.
        """
        if self._strong is None:
            return text, ""
        closed = text.rstrip(_WORD_CHARS) if self._in_words else text[: max(text.rfind("\n"), text.rfind("\r")) + 1]
        at = len(closed) if len(closed) == len(text) else len(closed.rstrip())
        if len(text) - at <= SECRET_LIVE_CHARS:
            return self.redact_text(text[:at]), text[at:]
        text = self.redact_text(text)  # no whole secret is left, so the start of one is shorter than the part held back
        return text[:-SECRET_LIVE_CHARS], text[-SECRET_LIVE_CHARS:]

    def redact_json(self, data: Any) -> Any:
        """Return JSON data with every strong secret in its texts replaced; data without one is not copied."""
        if self._in_json is None:
            return data
        try:  # one search instead of a walk through the data
            if self._in_json.search(orjson.dumps(data, default=dict, option=orjson.OPT_NON_STR_KEYS)) is None:
                return data
        except TypeError:  # an integer over 64 bits, a lone surrogate, or an object that is not JSON
            pass
        return self._redact_parts(data)

    def _redact_parts(self, data: Any) -> Any:
        if isinstance(data, str):
            return self.redact_text(data)
        if isinstance(data, list | tuple):
            return [self._redact_parts(item) for item in data]
        if isinstance(data, Mapping):
            return {self.redact_text(str(key)): self._redact_parts(value) for key, value in data.items()}
        return data

    def redact_entry(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a log entry, redacted if it holds a tool result, a hook decision or the end of a run."""
        kind, data = row["kind"], row["data"]
        is_output = kind in _REDACTED_KINDS or (kind == "message" and data["role"] == "tool")
        is_trace = kind == "value" and data["key"] == TRACES
        return {**row, "data": self.redact_json(data)} if is_output or is_trace else row


def _split_secret(secret: str) -> Iterator[str]:
    """Yield the search texts of a secret: each line, and a long line in equal parts that live text can hold back."""
    for line in map(str.strip, secret.splitlines()):
        if line and not _BANNER.fullmatch(line):
            parts = -(-len(line) // SECRET_LIVE_CHARS)
            size = -(-len(line) // parts)
            yield from (line[at : at + size] for at in range(0, len(line), size))


def _encode_text(text: str) -> bytes:
    """Return a text as it is inside of a JSON text."""
    try:
        return orjson.dumps(text)[1:-1]
    except TypeError:  # a lone surrogate: JSON data that contains it cannot be encoded either
        return text.encode("utf-8", "surrogatepass")


def _compile_any(texts: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


NO_SECRETS = Secrets()


def known_secrets(settings: Settings, local: str, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield the secrets of the settings, and the environment variables that are named like one (`…_TOKEN`)."""
    yield local
    for _, value in named_secrets(settings, environment):
        yield value


def named_secrets(settings: Settings, environment: Mapping[str, str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield the secrets that an operator chose, each with the name of its setting or variable."""
    yield "token", settings.token
    if settings.on_postgres and "://" in settings.store:
        yield "store", unquote(urlsplit(settings.store).password or "")
    for name, value in (os.environ if environment is None else environment).items():
        if _SECRET_NAMES.search(name):
            yield name, value.strip()


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
        return self._store.append(owner, id, [self._secrets.redact_entry(entry) for entry in entries], **options)


class RedactingEmitter:
    """Forwards events with redacted secrets: live output of tools, decisions of hooks, errors.

    Messages of the user and the model are not redacted.

    Live output is delayed to the end of its last word. The rest is part of the tool's result.
    """

    FIELDS = ("output", "error", "why", "reason", "message", "question")
    _fields: ClassVar[dict[type[Event], tuple[str, ...]]] = {}

    def __init__(self, secrets: Secrets, emit: Emit) -> None:
        self._secrets, self._emit = secrets, emit
        self._pending: dict[tuple[str, str], str] = {}  # unsent ends of live output, by run and call

    def __call__(self, event: Event) -> None:
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
