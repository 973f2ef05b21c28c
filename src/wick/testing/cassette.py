"""A cassette: a model that records the replies of another model to a file, and plays them back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from difflib import unified_diff
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from wick._internal.redaction import KEY_FORMS, PLACEHOLDER, SECRET_NAMES, Secrets, named_variables
from wick.constants import RECORDING_BYTES
from wick.errors import ConfigError, ModelError
from wick.messages import Part
from wick.models import resolve, scripted
from wick.protocols import Delta, Finish, Model, Request
from wick.testing.cassette_format import (
    VERSION,
    Json,
    RecordedReply,
    decode_events,
    dump_yaml,
    encode_deltas,
    encode_error,
    list_rows,
    load_yaml,
    read_reply,
    shorten_request,
    summarize_request,
)

Recording = bool | Literal["all"]

_DIFF_LINES, _DIFF_CHARS = 24, 160
_HEADER = """\
# Model replies, recorded by wick. Texts can be edited: `chunks` counts only while it fits its text.
# Record missing and changed replies with `pytest --wick-record`, all of them with `pytest --wick-record-all`.
"""


@dataclass(slots=True)
class CassetteSession:
    """The options of a test runner for cassettes. `cassettes` collects those of one test."""

    record: Recording = False
    test: str = ""  # the id of the current test
    cassettes: list[Cassette] | None = None

    def command(self, option: str = "--wick-record") -> str:
        """Return the command that records the cassettes of the current test."""
        return f"pytest {option} '{self.test}'" if self.test else f"pytest {option}"


session = CassetteSession()


@dataclass(slots=True)
class _Placeholders:
    """Texts that differ from run to run, and secrets. Both are replaced in the file."""

    replace: Mapping[str, str]
    secrets: Secrets = field(  # a path is not a secret
        default_factory=lambda: Secrets(value for _, value in named_variables() if value and not value.startswith("/"))
    )

    def hide(self, value: Any, key: str = "") -> Any:
        """Return JSON data with placeholders in its texts, and without values whose key is named like a secret."""
        if isinstance(value, str):
            if SECRET_NAMES.search(key) or key.lower() == "authorization":
                return PLACEHOLDER
            value = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # as messages repair texts
            for text in sorted(self.replace, key=len, reverse=True):
                value = value.replace(text, self.replace[text])
            return KEY_FORMS.sub(PLACEHOLDER, self.secrets.redact_log(value))  # weak secrets too: a file is committed
        if isinstance(value, list):
            return [self.hide(inner, key) for inner in value]
        if isinstance(value, dict):
            return {self.hide(name): self.hide(inner, name) for name, inner in value.items()}
        return value

    def hide_event(self, event: Json) -> Json:
        """Return an event with placeholders in its texts. Its chunks do not fit a text that changed."""
        hidden: Json = {name: self.hide(text) for name, text in event.items()}
        changed = any(hidden.get(name) != event.get(name) for name in ("text", "reasoning", "args"))
        return {name: text for name, text in hidden.items() if name != "chunks"} if changed else hidden

    def restore(self, value: Any) -> Any:
        """Return JSON data with the texts of this run in place of their placeholders."""
        if isinstance(value, str):
            for text, placeholder in self.replace.items():
                value = value.replace(placeholder, text)
            return value
        if isinstance(value, list):
            return [self.restore(inner) for inner in value]
        return {name: self.restore(inner) for name, inner in value.items()} if isinstance(value, dict) else value


class Cassette:
    """A model that records the replies of another model to a YAML file, and plays them back without a network.

    `record=True` records replies that are missing or whose request changed, `record="all"` all of them. Otherwise a
    request without a recorded reply raises a ModelError that shows what changed, and a test that leaves replies unused
    fails. Without a model it only plays. `replace` maps texts that differ from run to run, such as the path of a
    temporary folder, to placeholders for the file. The recordings of `wick eval run --record` have the same format,
    and can be played, too.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        model: str | Mapping[str, Any] | Model | None = None,
        record: Recording = False,
        *,
        replace: Mapping[str, str] | None = None,
    ) -> None:
        self.path = Path(path)
        self.requests: list[Request] = []
        self.changed: list[str] = []  # why requests had no recorded reply
        self._record = record or (model is not None and session.record)
        self._spec, self._asked = model, _name_spec(model)
        self._model: Model | None = None if isinstance(model, str | Mapping) else model
        self._texts = _Placeholders(replace or {})
        self._head: Json = {"version": VERSION}
        self._replies: list[RecordedReply] = []
        self._used: set[int] = set()
        self._last = 0  # the highest number of a reply
        self._rows: dict[int, str] = {}  # replies as YAML, by number
        if self._record and model is None:
            raise ConfigError("to record replies, a cassette needs a model: Cassette(path, 'anthropic:…', record=True)")
        if self._record != "all" and (self._record is False or self.path.exists()):
            self._load()
        if session.cassettes is not None:
            session.cassettes.append(self)
        if scripted.watched is not None:  # a replay requests nothing from it; `check` reports unused replies
            scripted.watched = [other for other in scripted.watched if other is not model]

    def __repr__(self) -> str:
        return f"<Cassette {self.path}>"

    @property
    def name(self) -> str:
        """The name of the recorded model."""
        return str(self._head.get("name", "")) or self._open_model().name

    @property
    def holds_schema(self) -> str:
        if self._record:
            return getattr(self._open_model(), "holds_schema", "")
        return str(self._head.get("holds_schema", ""))

    def unsupported_reason(self, part: Part) -> str:
        """Return why the model cannot read a part of a message, or an empty text, also if there is no model."""
        model = self._open_model() if self._record else self._model
        find_reason: Callable[[Part], str] | None = getattr(model, "unsupported_reason", None)
        return find_reason(part) if find_reason else ""

    @property
    def unused(self) -> list[RecordedReply]:
        """The recorded replies that were not requested."""
        return [reply for reply in self._replies if reply.number not in self._used]

    def check(self) -> None:
        """Raise AssertionError if a request had no reply or replies are unused; drop those when recording."""
        if self.changed:
            raise AssertionError(self.changed[0])
        if self._record:
            if self.unused or not self.path.exists():  # a test without requests has an empty cassette
                self._drop_unused()
            return
        if not self.unused:
            return
        last = [str(reply.request["messages"][-1:])[:_DIFF_CHARS] for reply in self.unused[:1]]
        raise AssertionError(
            f"{len(self.unused)} of the {len(self._replies)} replies in {self.path} were not used; the first answers "
            f"{''.join(last)}; record again with: {session.command()}"
        )

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Yield the deltas of the recorded reply, or those of the model while they are recorded."""
        self.requests.append(request)
        reply = RecordedReply(0, self._texts.hide(summarize_request(request)), [])
        found = next((other for other in self.unused if other.key == reply.key), None)
        if found is None and self._record:
            self._last = reply.number = self._last + 1
            async with aclosing(self._record_reply(request, reply)) as deltas:
                async for delta in deltas:
                    yield delta
            return
        if found is None:
            problem = self._describe_change(reply)
            self.changed.append(problem)
            raise ModelError(problem)
        self._used.add(found.number)
        is_complete = False
        try:
            for number, delta in enumerate(decode_events(self._texts.restore(found.events))):
                if number % scripted.TURN == 0:
                    await asyncio.sleep(0)  # yield to other tasks
                is_complete = is_complete or isinstance(delta, Finish)
                yield delta
            is_complete = True
        except Exception:
            is_complete = True
            raise
        finally:
            if not is_complete:  # a reply that is cancelled is not stored either
                self._used.discard(found.number)

    async def _record_reply(self, request: Request, reply: RecordedReply) -> AsyncGenerator[Delta, None]:
        """Yield the deltas of the model, and store them when the reply is complete or has failed."""
        deltas: list[Delta] = []
        failure: list[Json] = []
        is_complete = False
        await asyncio.sleep(0)  # a cancelled request ends here, as it does when it is played
        try:
            async for delta in self._open_model().stream(request):
                deltas.append(delta)
                is_complete = is_complete or isinstance(delta, Finish)
                yield delta
            is_complete = True
        except Exception as error:
            failure = [encode_error(error)]
            raise
        finally:  # a reply that was cancelled is not stored
            if is_complete or failure:
                reply.events = [self._texts.hide_event(event) for event in (*encode_deltas(deltas), *failure)]
                self._used.add(reply.number)
                self._replies = sorted((*self._replies, reply), key=lambda other: other.number)
                self._save()

    def _open_model(self) -> Model:
        if self._model is None:
            if self._spec is None:
                raise ConfigError(f"{self.path} does not name its model; add a line such as `name: anthropic:…`")
            self._model = resolve(self._spec)
        return self._model

    # -- the file ---------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        """Load the recorded replies; raise ConfigError if there are none, or if another model made them."""
        try:
            if self.path.stat().st_size > RECORDING_BYTES:
                raise ConfigError(f"the cassette {self.path} is longer than {RECORDING_BYTES:,} bytes; split the test")
            data = load_yaml(self.path.read_text(encoding="utf-8"), str(self.path))
        except FileNotFoundError:
            raise ConfigError(f"there is no cassette {self.path}; record it with: {session.command()}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the cassette {self.path} cannot be read: {error}") from None
        if (rows := list_rows(data)) is None:
            again = session.command("--wick-record-all")
            raise ConfigError(f"{self.path} is not a cassette of this version; record it with: {again}")
        if "recordings" in data and self._record:
            raise ConfigError(f"{self.path} has the recordings of a suite; record them with: wick eval run --record")
        known = {data.get("model"), data.get("name")}
        if self._asked and self._asked not in known:
            if self._record:
                return  # all replies are recorded again, with the new model
            recorded = data.get("model") or data.get("name")
            raise ConfigError(
                f"{self.path} was recorded with the model {recorded}, not with {self._asked}; "
                f"record it again with: {session.command()}"
            )
        self._head = {key: value for key, value in data.items() if key not in ("replies", "recordings")}
        self._replies = sorted(self._read_replies(rows, "recordings" in data), key=lambda reply: reply.number)
        self._last = max((reply.number for reply in self._replies), default=0)

    def _read_replies(self, rows: Iterable[Any], of_suite: bool) -> Iterable[RecordedReply]:
        earlier: dict[int, RecordedReply] = {}
        for place, row in enumerate(rows, 1):
            try:
                if of_suite and "reply" not in row:  # a case of the suite has the reply
                    read_reply({**row, "reply": []}, earlier)
                else:
                    yield read_reply(row, earlier)
            except ConfigError as error:
                again = f"correct it, or record it again with: {session.command('--wick-record-all')}"
                raise ConfigError(f"{self.path}, reply {place}: {error}; {again}") from None

    def _save(self) -> None:
        """Write the file as a whole, and replace the old one at once."""
        model = self._open_model()
        schema = getattr(model, "holds_schema", "")
        self._head = {
            "version": VERSION,
            **({"model": self._asked} if self._asked != model.name else {}),
            "name": model.name,
            **({"holds_schema": schema} if schema else {}),
        }
        rows = [self._rows.get(reply.number) or self._write_reply(place) for place, reply in enumerate(self._replies)]
        body = f"replies:\n{''.join(rows)}" if rows else "replies: []\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        fresh.write_text(f"{_HEADER}{dump_yaml(self._head)}{body}", encoding="utf-8")
        fresh.replace(self.path)

    def _write_reply(self, place: int) -> str:
        reply = self._replies[place]
        request = shorten_request(reply, self._replies[:place])
        text = self._rows[reply.number] = dump_yaml(
            [{"number": reply.number, "request": request, "reply": reply.events}]
        )
        return text

    def _drop_unused(self) -> None:
        """Write the file without the replies that were not requested, and number the others again."""
        self._replies = [reply for reply in self._replies if reply.number in self._used]
        for number, reply in enumerate(self._replies, 1):
            reply.number = number
        self._last, self._used, self._rows = len(self._replies), {reply.number for reply in self._replies}, {}
        self._save()

    # -- changes ----------------------------------------------------------------------------------------------------

    def _describe_change(self, reply: RecordedReply) -> str:
        """Return the sentence for a request without a reply, with a short diff to the closest recorded request."""
        again = f"record again with: {session.command()}"
        count = sum(other.key == reply.key for other in self._replies)
        if count:
            times = "once" if count == 1 else f"{count} times"
            return f"a request that is recorded {times} in {self.path} was sent once more; {again}"
        if not self._replies:
            return f"{self.path} has no replies; {again}"
        closest = max(self.unused or self._replies, key=lambda other: _likeness(reply.request, other.request))
        recorded, sent = (dump_yaml(request).splitlines() for request in (closest.request, reply.request))
        lines = [line for line in [*unified_diff(recorded, sent, n=1, lineterm="")][2:] if not line.startswith("@@")]
        shown = [
            line[:_DIFF_CHARS] for line, next in pairwise([*lines, ""]) if line[0] != " " or _is_parent(line, next)
        ]
        rest = [f"… and {len(shown) - _DIFF_LINES} more lines"] if len(shown) > _DIFF_LINES else []
        diff = "\n".join(["- recorded", "+ sent now", *shown[:_DIFF_LINES], *rest])
        return (
            f"request {len(self.requests)} has no recorded reply in {self.path}; it differs from request "
            f"{closest.number} there:\n{diff}\nIf the change is intended, {again}"
        )


def _name_spec(model: str | Mapping[str, Any] | Model | None) -> str:
    """Return the name of a model for a cassette's file, without its options."""
    if isinstance(model, Mapping):
        return ":".join(str(model[key]) for key in ("provider", "model") if model.get(key))
    return model if isinstance(model, str) else model.name if model is not None else ""


def _is_parent(line: str, next: str) -> bool:
    """Return True if an unchanged line of a YAML diff has the changed line below it as a field or item."""
    indents = [len(text) - len(text[1:].lstrip()) for text in (line, next)]
    return next[:1] in ("+", "-") and indents[0] < indents[1]


def _likeness(request: Json, other: Json) -> tuple[int, int]:
    """Return how many first messages, and how many other fields, two requests have in common."""
    equal = 0
    for one, two in zip(request["messages"], other["messages"], strict=False):
        if one != two:
            break
        equal += 1
    return equal, sum(request.get(key) == other.get(key) for key in ("system", "tools", "settings"))
