"""A cassette: a model that records the replies of another model in a file, and replays them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from difflib import unified_diff
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from wick.agent import Agent
from wick.constants import RECORDING_BYTES
from wick.errors import ConfigError, ModelError
from wick.messages import Part
from wick.models import resolve, scripted
from wick.protocols import Delta, Finish, Model, Request
from wick.testing.cassette_format import (
    VERSION,
    Json,
    RecordedReply,
    compress_request,
    decode_events,
    dump_yaml,
    encode_deltas,
    encode_error,
    list_rows,
    list_unseen_changes,
    load_yaml,
    matches_request,
    read_reply,
    summarize_request,
)
from wick.testing.redaction import RecordingRedactor, adopt_redacted, find_secret_values, join_arguments

RecordMode = bool | Literal["all"]

_DIFF_LINES, _DIFF_CHARS = 24, 160
_SHOWN_UNUSED = 3
_HEADER = """\
# Model replies, recorded by wick. Texts can be edited: `chunks` counts only while it fits its text.
# Record missing and changed replies with `pytest --wick-record`, all of them with `pytest --wick-record-all`.
"""


@dataclass(slots=True)
class CassetteSession:
    """The options of a test runner for cassettes. `cassettes` collects those of one test."""

    record: RecordMode = False
    test: str = ""  # the id of the current test
    cassettes: list[Cassette] | None = None

    def command(self, option: str = "--wick-record") -> str:
        """Return the command that records the cassettes of the current test."""
        return f"pytest {option} '{self.test}'" if self.test else f"pytest {option}"


session = CassetteSession()


class Cassette:
    """A model that records the replies of another model in a YAML file, and replays them without a network.

    `record=True` records replies that are missing or whose request changed, `record="all"` all of them. Otherwise a
    request without a recorded reply raises a ModelError that shows what changed, and a test that leaves replies unused
    fails. Without a model it only replays. An agent in place of the model stands for its model. `replace` maps texts
    that differ from run to run, such as the path of a temporary folder, to placeholders for the file. The recordings
    of `wick eval run --record` have the same format, and can be replayed, too.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        model: str | Mapping[str, Any] | Model | Agent[Any, Any] | None = None,
        record: RecordMode = False,
        *,
        replace: Mapping[str, str] | None = None,
    ) -> None:
        self.path = Path(path)
        if record not in (False, True, "all"):
            raise ConfigError(f"record={record!r}: use False to play, True to record what is missing, or 'all'")
        if isinstance(model, Agent):
            model = model.model_spec
        if not isinstance(model, str | Mapping | Model | None):
            hint = "; give FunctionModel(…) for a function" if callable(model) else ""
            raise ConfigError(f"a cassette records a model or the name of one, not {model!r}{hint}")
        self.requests: list[Request] = []
        self.changed: list[str] = []  # why requests had no recorded reply
        self.failures: list[tuple[Exception, str]] = []  # errors of the model, recorded or played, with the remedy
        self._record = record or (model is not None and session.record)
        self._spec, self._asked = model, _name_spec(model)
        self._model: Model | None = None if isinstance(model, str | Mapping) else model
        self._redactor = RecordingRedactor(replace=replace)
        self._secrets: set[str] = set()  # values of secret arguments, which are redacted in all recorded texts
        self._head: Json = {"version": VERSION}
        self._replies: list[RecordedReply] = []
        self._used: set[int] = set()
        self._recorded: set[int] = set()  # numbers of the replies that were recorded now
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
        shown = [f"reply {reply.number}, to {_describe_last(reply.request)}" for reply in self.unused[:_SHOWN_UNUSED]]
        more = [f"{len(self.unused) - len(shown)} more"] if len(self.unused) > len(shown) else []
        raise AssertionError(
            f"{len(self.unused)} of the {len(self._replies)} replies in {self.path} were not used: "
            f"{'; '.join([*shown, *more])}. The test sent fewer requests than when they were recorded. "
            f"If that is intended, record again with: {session.command()}"
        )

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Yield the deltas of the recorded reply, or those of the model while they are recorded."""
        self.requests.append(request)
        summary = summarize_request(request)
        found = self._find_reply(self._redactor.portable.redact_json(summary))
        reply = RecordedReply(0, self._redactor.redact_json(summary, self._secrets), []) if found is None else found
        if found is None and self._record:
            self._last = reply.number = self._last + 1
            self._learn_secrets(summary)
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
            for number, delta in enumerate(decode_events(self._redactor.restore(found.events))):
                if number % scripted.TURN == 0:
                    await asyncio.sleep(0)  # yield to other tasks
                is_complete = is_complete or isinstance(delta, Finish)
                yield delta
            is_complete = True
        except Exception as error:
            is_complete = True
            again = session.command("--wick-record-all")
            remedy = (
                f"this error is reply {found.number} of {self.path}, as the model failed; record again with: {again}"
            )
            self.failures.append((error, remedy))
            raise error from ModelError(remedy)  # the error itself is equal to the recorded one
        finally:
            if not is_complete:  # a reply that is cancelled is not stored either
                self._used.discard(found.number)

    def _find_reply(self, sent: Json) -> RecordedReply | None:
        """Return the first unused reply to a request: to an equal one, or to one whose secrets are redacted."""
        key = RecordedReply(0, sent, []).key
        equal = next((other for other in self.unused if other.key == key), None)
        return equal or next((other for other in self.unused if matches_request(other.request, sent)), None)

    def _learn_secrets(self, data: Any) -> None:
        """Redact the secret arguments of a request or a reply in the texts of all replies."""
        values = {*find_secret_values(data)} - self._secrets
        if not values:
            return
        self._secrets |= values
        self._rows.clear()
        self._replies = [self._redact_reply(reply) for reply in self._replies]

    def _redact_reply(self, reply: RecordedReply) -> RecordedReply:
        request = self._redactor.redact_json(reply.request, self._secrets)
        return RecordedReply(reply.number, request, self._redactor.redact_events(reply.events, self._secrets))

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
            self.failures.append((error, self._describe_failure()))
            raise
        finally:  # a reply that was cancelled is not stored
            if is_complete or failure:
                reply.events = [*encode_deltas(deltas), *failure]
                self._learn_secrets([{"args": text} for text in join_arguments(reply.events).values()])
                reply = self._redact_reply(reply)
                self._used.add(reply.number)
                self._recorded.add(reply.number)
                self._replies = sorted((*self._replies, reply), key=lambda other: other.number)
                self._save()

    def drop_failures(self) -> None:
        """Remove the errors that were recorded, because their test failed: the model is called again next time."""
        failed = {reply.number for reply in self._replies if reply.number in self._recorded and reply.has_error}
        if not failed:
            return
        self._replies = [reply for reply in self._replies if reply.number not in failed]
        self._used -= failed
        self._rows.clear()  # another reply may refer to one of them
        if self._replies:
            self._save()
        else:
            self.path.unlink(missing_ok=True)

    def _open_model(self) -> Model:
        if self._model is None:
            if self._spec is None:
                raise ConfigError(f"{self.path} does not name its model; add a line such as `name: anthropic:…`")
            try:
                self._model = resolve(self._spec)
            except ConfigError as error:  # such as a missing key
                self.failures.append((error, self._describe_failure()))
                raise
        return self._model

    def _describe_failure(self) -> str:
        return f"the model failed while {self.path} was recorded; when it works, record with: {session.command()}"

    # -- the file ---------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        """Load the recorded replies; raise ConfigError if there are none, or if they are of another model."""
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
        request = compress_request(reply, self._replies[:place])
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
        count = sum(matches_request(other.request, reply.request) for other in self._replies)
        if count:
            times = "once" if count == 1 else f"{count} times"
            return f"a request that is recorded {times} in {self.path} was sent once more; {again}"
        if not self._replies:
            return f"{self.path} has no replies; {again}"
        closest = max(self.unused or self._replies, key=lambda other: _likeness(reply.request, other.request))
        shown_now = adopt_redacted(closest.request, reply.request)
        recorded, sent = (dump_yaml(request).splitlines() for request in (closest.request, shown_now))
        lines = [line for line in [*unified_diff(recorded, sent, n=1, lineterm="")][2:] if not line.startswith("@@")]
        shown = [
            line[:_DIFF_CHARS] for line, next in pairwise([*lines, ""]) if line[0] != " " or _is_parent(line, next)
        ]
        rest = [f"… and {len(shown) - _DIFF_LINES} more lines"] if len(shown) > _DIFF_LINES else []
        unseen = list_unseen_changes(closest.request, reply.request)
        diff = "\n".join(["- recorded", "+ sent now", *shown[:_DIFF_LINES], *rest, *unseen])
        return (
            f"request {len(self.requests)} has no recorded reply in {self.path}; it differs from request "
            f"{closest.number} there:\n{diff}\nIf the change is intended, {again}"
        )


def _describe_last(request: Json) -> str:
    """Return the last message of a request in a few words."""
    last = request["messages"][-1] if request["messages"] else {"an empty request": ""}
    if "tool" in last:
        return f"the result of {last['tool']}, {str(last.get('result', ''))[:_DIFF_CHARS]!r}"
    (role, text), *_ = last.items()
    return f"{role}: {str(text)[:_DIFF_CHARS]!r}"


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
    """Return the number of equal first messages, and of other equal fields, of two requests."""
    equal = 0
    for one, two in zip(request["messages"], other["messages"], strict=False):
        if one != two:
            break
        equal += 1
    return equal, sum(request.get(key) == other.get(key) for key in ("system", "tools", "settings"))
