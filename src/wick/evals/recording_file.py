"""The recordings file of a suite: replies in the format of a cassette, and results, by case and variant."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from wick._internal.frozen import canonical_json
from wick._internal.safe_yaml import read_text
from wick.constants import RECORDING_BYTES
from wick.errors import ConfigError, ModelError
from wick.evals.recordings import AnyRequest, record_reply, reply_deltas
from wick.evals.suite import (
    EvalCase,
    EvalReply,
    EvalSuite,
    RecordedRequest,
    RecordedResult,
    Replies,
    RequestFingerprint,
    StrictEvalModel,
)
from wick.models.reply import Reply
from wick.protocols import Usage
from wick.testing.cassette_format import (
    VERSION,
    Json,
    RecordedReply,
    compress_request,
    decode_events,
    dump_yaml,
    encode_deltas,
    load_yaml,
    read_reply,
)
from wick.testing.redaction import RecordingRedactor, redact_arguments

_HEADER = """\
# Model replies and tool results, recorded by wick. Record again with `wick eval run SUITE --record`.
"""


class Recording(StrictEvalModel):
    """The recordings of one case with one variant."""

    case: str
    variant: str
    replies: Replies = Field(default_factory=list)
    results: list[RecordedResult] = Field(default_factory=list)
    requests: list[AnyRequest] = Field(default_factory=list)  # of the replies that the case itself has
    judge: Replies = Field(default_factory=list)


Recordings = dict[tuple[str, str], Recording]


def recordings_path(suite: str | Path) -> Path:
    """Return the path of the recordings of a suite: `refunds.recordings.yaml` beside `refunds.yaml`."""
    suite = Path(suite)
    return suite.with_name(f"{suite.stem}.recordings.yaml")


def _old_path(path: Path) -> Path:
    """Return the path of recordings of earlier versions, which had one line of JSON for each case and variant."""
    return path.with_suffix(".jsonl")


# -- reading ---------------------------------------------------------------------------------------------------------


def read_recordings(path: Path) -> Recordings:
    """Return the recordings of a file, or of the file of an earlier version in its place; none without a file."""
    if path.exists():
        data = load_yaml(read_text(path, RECORDING_BYTES), str(path))
        rows = data.get("recordings") if isinstance(data, dict) and data.get("version") == VERSION else None
        if not isinstance(rows, list):
            raise ConfigError(f"{path} has no recordings of this version; record the suite again with --record")
        reader = _RecordingReader(str(data.get("name", "")), data.get("holds_schema", ""))
        found = [_parse_recording(f"{path}, recording {place}", reader.read, row) for place, row in enumerate(rows, 1)]
    elif (old := _old_path(path)).exists():
        lines = old.read_text(encoding="utf-8").split("\n")
        found = [
            _parse_recording(f"{old}, line {number}", Recording.model_validate_json, line)
            for number, line in enumerate(lines, 1)
            if line.strip()
        ]
    else:
        found = []
    return {(recording.case, recording.variant): recording for recording in found}


def _parse_recording(where: str, parse: Any, row: Any) -> Recording:
    try:
        recording: Recording = parse(row)
    except ValidationError as problem:
        error = problem.errors(include_url=False)[0]
        place = ".".join(map(str, error["loc"]))
        raise ConfigError(f"{where}: {place}: {error['msg']}; record the suite again with --record") from None
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}; correct it, or record the suite again with --record") from None
    except (ModelError, TypeError, KeyError, AttributeError):
        form = "a recording has a case, a variant, and replies with a request and a list of events"
        raise ConfigError(f"{where}: {form}; correct it, or record the suite again with --record") from None
    return recording


@dataclass(slots=True)
class _RecordingReader:
    """A reader of recordings in the order of the file. A request may refer to an earlier one, also of another case."""

    model: str  # of replies that do not name another one
    holds_schema: Any  # of that model
    earlier: dict[int, RecordedReply] = field(default_factory=dict)

    def read(self, row: Any) -> Recording:
        kinds = {"replies": self._read_reply, "requests": self._read_request, "judge": self._read_reply}
        read = {key: [parse(inner) for inner in row[key]] for key, parse in kinds.items() if key in row}
        return Recording.model_validate({**row, **read})

    def _read_request(self, row: Any) -> AnyRequest:
        if "fingerprint" in row:
            return RequestFingerprint.model_validate(row["fingerprint"])
        return _parse_request(read_reply({**row, "reply": []}, self.earlier))

    def _read_reply(self, row: Any) -> EvalReply:
        request: AnyRequest | None
        if "request" in row:
            recorded = read_reply(row, self.earlier)
            request, events = _parse_request(recorded), recorded.events
        else:
            hashes = row.get("fingerprint")
            request, events = hashes and RequestFingerprint.model_validate(hashes), row["reply"]
        reply = Reply()
        for delta in decode_events(events):
            reply.feed(delta)
        read = record_reply(reply, request, row.get("purpose", ""), row.get("model", self.model))
        schema = row.get("holds_schema", "") if "model" in row else self.holds_schema
        return EvalReply.model_validate({**dict(read), "holds_schema": schema})


def _parse_request(row: RecordedReply) -> RecordedRequest:
    """Return the request of a row. Earlier versions did not redact secret arguments."""
    return RecordedRequest.model_validate(redact_arguments(row.request))


# -- writing ---------------------------------------------------------------------------------------------------------


def write_recordings(
    path: Path, recordings: Recordings, suite: EvalSuite, redactor: RecordingRedactor | None = None
) -> None:
    """Write recordings with secrets redacted, in the order of the suite; those of other cases follow.

    The file is replaced as a whole, so that an interrupted write leaves the old one. The file of an earlier version,
    whose recordings are in the new one, is removed.
    """
    first = [(case.id, variant) for case in suite.cases for variant in suite.variants]
    keys = dict.fromkeys([*(key for key in first if key in recordings), *recordings])
    writer = _RecordingWriter(redactor or RecordingRedactor())
    rows = [writer.write(recordings[key]) for key in keys]
    temporary = path.with_name(f".{path.name}.tmp")
    about = {"name": writer.model, "holds_schema": writer.holds_schema}  # as in the head of a cassette
    head = {"version": VERSION, **{key: text for key, text in about.items() if text}}
    temporary.write_text(f"{_HEADER}{dump_yaml({**head, 'recordings': rows})}", encoding="utf-8")
    temporary.replace(path)
    _old_path(path).unlink(missing_ok=True)


@dataclass(slots=True)
class _RecordingWriter:
    """A writer of recordings in order, with requests that refer to earlier ones."""

    redactor: RecordingRedactor
    model: str = ""  # of the first reply
    holds_schema: str = ""  # of that model
    number: int = 0  # of the last row
    contexts: dict[bytes, RecordedReply] = field(default_factory=dict)  # the first row of each prompt and its tools

    def write(self, recording: Recording) -> Json:
        names = {"case": recording.case, "variant": recording.variant}  # not redacted: they find the recording again
        data = recording.model_dump(mode="json", exclude_defaults=True, exclude={"case", "variant"})
        clean = Recording.model_validate({**names, **self.redactor.redact_case(data)})
        earlier: list[RecordedReply] = []
        row: Json = {
            **names,
            "replies": [self._write_reply(reply, earlier) for reply in clean.replies],
            "requests": [self._write_row([], request, earlier) for request in clean.requests],
            "results": [result.model_dump(mode="json", exclude_defaults=True) for result in clean.results],
            "judge": [self._write_reply(reply, earlier) for reply in clean.judge],
        }
        return {key: value for key, value in row.items() if value}

    def _write_reply(self, reply: EvalReply, earlier: list[RecordedReply]) -> Json:
        if not self.model:
            self.model, self.holds_schema = reply.model, reply.holds_schema
        is_other = (reply.model, reply.holds_schema) != (self.model, self.holds_schema)
        events = [
            {key: value for key, value in event.items() if key != "chunks"}
            for event in encode_deltas(reply_deltas(reply, Usage.from_json(reply.usage)))
            if event != {"usage": {}}
        ]
        about = {
            "purpose": reply.purpose,
            "model": reply.model if is_other else "",
            "holds_schema": reply.holds_schema if is_other else "",
        }
        row = self._write_row(events, reply.request, earlier)
        return {**row, **{key: text for key, text in about.items() if text}, "reply": events}

    def _write_row(self, events: list[Json], request: AnyRequest | None, earlier: list[RecordedReply]) -> Json:
        """Return the number and the request of a row, and add it to the earlier rows of its case."""
        if not isinstance(request, RecordedRequest):
            return {} if request is None else {"fingerprint": request.model_dump(exclude_defaults=True)}
        self.number += 1
        data = {key: value for key, value in request.model_dump().items() if value or key == "messages"}
        row = RecordedReply(self.number, data, events)
        context = canonical_json({**data, "messages": []})
        known = [self.contexts[context]] if context in self.contexts else []
        shown = compress_request(row, [*known, *earlier])
        self.contexts.setdefault(context, row)
        earlier.append(row)
        return {"number": row.number, "request": shown}


def find_replies(case: EvalCase, recording: Recording | None) -> list[EvalReply]:
    """Return the replies for a case: its own, with the recorded requests, or those of the recording."""
    if not case.replies:
        return [] if recording is None else recording.replies
    known = [] if recording is None else recording.requests
    padded = [*known, *[None] * (len(case.replies) - len(known))]
    return [
        reply if reply.request is not None or request is None else reply.model_copy(update={"request": request})
        for reply, request in zip(case.replies, padded, strict=False)
    ]
