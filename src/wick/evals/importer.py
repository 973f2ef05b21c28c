"""Cases from stored threads: each finished run becomes a case with its input, replies, results and decisions.

async with open_store("./sessions") as store:
    found = await import_threads(store, ImportFilter(agent="support"))
Path("suite.yaml").write_text(format_suite(found.cases, ".yaml"))
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wick._internal.frozen import thaw
from wick._internal.safe_yaml import dump_yaml, load_yaml
from wick.capabilities.sessions import LOCAL
from wick.errors import ConfigError
from wick.evals.recordings import record_call, record_reasoning
from wick.evals.suite import EvalCase
from wick.evals.transcript import TranscriptCall, collect_calls, is_accepted_answer
from wick.messages import Message, ToolCall
from wick.protocols import Store, Summary
from wick.stores.held_thread import iter_threads, load
from wick.stores.registry import check_slashes, find_scheme, open_folder_or_address
from wick.stores.sqlite import Sqlite
from wick.testing.redaction import RecordingRedactor
from wick.threads import Thread
from wick.threads.state import Entry, ThreadState, fold, select_effective


@dataclass(frozen=True, slots=True)
class ImportFilter:
    """The threads to import. Empty values select all."""

    owner: str = LOCAL
    agent: str = ""
    threads: Sequence[str] = ()
    since: float = 0.0  # a timestamp
    limit: int = 1_000  # cases, from the latest threads
    inputs_only: bool = False  # leave out the replies, so that the model is called


@dataclass(slots=True)
class ImportedCases:
    """Cases from threads, and the runs that could not be imported, with reasons."""

    cases: list[EvalCase] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


@asynccontextmanager
async def open_store(place: str) -> AsyncIterator[Store]:
    """Open the store at a path, a URL of Postgres or an address of a plugin, and close it at the end."""
    store = _find_store(place)
    try:
        yield store
    finally:
        await store.close()


def _find_store(place: str) -> Store:
    check_slashes(place)
    if find_scheme(place):
        return open_folder_or_address(place)
    path = Path(place) / "threads.db" if Path(place).is_dir() else Path(place)
    if not path.is_file():
        raise ConfigError(f"there is no store of threads at {path}; give its folder, its file or its URL")
    return Sqlite(path)


async def import_threads(
    store: Store, wanted: ImportFilter, redactor: RecordingRedactor | None = None
) -> ImportedCases:
    """Return a case for each finished run of the selected threads, oldest thread first, with secrets redacted.

    The limit leaves out the threads that were updated the longest time ago.
    """
    redactor, parts, left = redactor or RecordingRedactor(), list[tuple[float, str, ImportedCases]](), wanted.limit
    heads = [
        head
        async for head in iter_threads(store, wanted.owner, wanted.threads or None)
        if wanted.threads or ("parent" not in head.meta and head.updated >= wanted.since)
    ]
    for head in sorted(heads, key=lambda head: (head.updated, head.created, head.id), reverse=True):
        part = _import_thread(await load(store, wanted.owner, head.id), head, wanted, redactor, left)
        parts.append((head.created, head.id, part))
        left -= len(part.cases)
        if left <= 0:
            break
    parts.sort(key=lambda part: part[:2])
    found = ImportedCases()
    for _, _, part in parts:
        found.cases += part.cases
        found.skipped += part.skipped
    if len(parts) < len(heads):
        older = f"{len(heads) - len(parts):,} of {len(heads):,} threads, the oldest"
        found.skipped.append(f"{older}: the limit of {wanted.limit:,} cases is reached")
    return found


def _import_thread(
    thread: Thread, head: Summary, wanted: ImportFilter, redactor: RecordingRedactor, limit: int
) -> ImportedCases:
    """Return the cases of the latest runs of a thread, at most as many as a limit, in the order of the runs."""
    found, log = ImportedCases(), select_effective(thread.entries, len(thread.entries))
    runs = dict[str, RecordedRun]()
    for number, run in enumerate(split_runs(log), 1):
        agents = (run.start.data.get("agent"), head.meta.get("agent"))
        if run.start.at < wanted.since or (wanted.agent and wanted.agent not in agents):
            continue
        if problem := _find_problem(run):
            found.skipped.append(f"{head.id}-{number}: {problem}")
        else:
            runs[f"{head.id}-{number}"] = run
    if (older := len(runs) - limit) > 0:
        found.skipped.append(
            f"{head.id}: {older:,} of {len(runs):,} runs, the oldest: the limit of {wanted.limit:,} cases is reached"
        )
    state, at = ThreadState(thread.id), 0
    for id, run in [*runs.items()][-limit:]:  # the log is folded once, up to the start of each run
        for entry in log[at : run.before]:
            fold(state, entry, log)
        at = run.before
        case = _describe_case(id, thread.id, [*state.messages], run)
        if wanted.inputs_only:
            del case["replies"]
        found.cases.append(EvalCase.model_validate(redactor.redact_case(case)))
    return found


# -- runs ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class RecordedRun:
    """The entries of one run in the log of a thread. `before` is the number of entries up to its first start."""

    start: Entry
    before: int
    entries: list[Entry] = field(default_factory=list)
    end: Entry | None = None


def split_runs(log: Sequence[Entry]) -> Iterator[RecordedRun]:
    """Yield the runs of the effective entries of a thread. A resumed run is one run."""
    run: RecordedRun | None = None
    for index, entry in enumerate(log):
        if entry.kind == "run_start" and (run is None or run.start.data["run"] != entry.data["run"]):
            if run is not None:
                yield run
            run = RecordedRun(entry, index)
        elif run is not None and run.end is None:
            run.entries.append(entry)
            if entry.kind == "run_end" and entry.data["outcome"] != "interrupted":
                run.end = entry
    if run is not None:
        yield run


def _find_problem(run: RecordedRun) -> str:
    """Return why a run cannot be a case, or an empty text."""
    if run.end is None:
        return "the run has not ended"
    if run.end.data["outcome"] in ("failed", "cancelled"):
        return f"the run ended as {run.end.data['outcome']}"
    messages = [entry.data for entry in run.entries if entry.kind == "message"]
    if any(message.role == "user" and not message.name for message in messages):
        return "the user sent messages during the run"
    if not any(message.role == "assistant" for message in messages):
        return "the model did not reply"
    return ""


# -- cases -----------------------------------------------------------------------------------------------------------


def _describe_case(id: str, thread: str, given: Sequence[Message], run: RecordedRun) -> dict[str, Any]:
    calls = collect_calls(run.entries)
    first = given[0] if len(given) == 1 else None
    is_text = first is not None and first.role == "user" and isinstance(first.content, str)
    case: dict[str, Any] = {"id": re.sub(r"[^\w.:-]", "-", id)}
    case |= {"input": first.text} if first and is_text else {"messages": [message.to_json() for message in given]}
    case["thread"] = thread
    case["replies"] = [_describe_reply(entry) for entry in _list_replies(run)]
    results = [
        {"tool": call.tool, "args": call.args, "error" if call.failed else "output": call.output}
        for call in calls
        if call.decision == "ran" and not call.is_answer
    ]
    case |= {"results": results} if results else {}
    if approvals := _collect_approvals(calls):
        case["approvals"] = approvals
    case["expect"] = _propose_expectations(run, calls)
    return case


def _collect_approvals(calls: Sequence[TranscriptCall]) -> dict[str, Any]:
    """Return the answers by tool; answers that differ or change arguments, by the arguments in each question."""
    found = dict[str, list[dict[str, Any]]]()
    for call in calls:
        for asked in call.questions:
            change = {} if asked.run_with is None else {"run_with": asked.run_with}
            row = {"args": asked.args, "answer": "allow" if asked.allowed else "deny", **change}
            found.setdefault(call.tool, []).append(row)
    return {
        tool: rows[0]["answer"]
        if all("run_with" not in row and row["answer"] == rows[0]["answer"] for row in rows)
        else rows
        for tool, rows in found.items()
    }


def _list_replies(run: RecordedRun) -> list[Entry]:
    """Return the replies of the model. After an accepted `final_answer` the last one is its text: no model wrote it."""
    messages = [entry for entry in run.entries if entry.kind == "message"]
    replies = [entry for entry in messages if entry.data.role == "assistant"]
    results = [entry.data for entry in messages if entry.data.role == "tool"]
    is_answered = bool(results) and is_accepted_answer(results[-1].name, results[-1].text)
    return replies[:-1] if is_answered and not replies[-1].data.tool_calls else replies


def _describe_reply(entry: Entry) -> dict[str, Any]:
    message: Message = entry.data
    calls = [_describe_call(call) for call in message.tool_calls]
    reasoning = [thought.model_dump(exclude_defaults=True) for thought in record_reasoning(message)]
    about: dict[str, Any] = thaw(entry.about) if entry.about is not None else {}
    usage = {name: count for name, count in about.get("usage", {}).items() if count}
    reply = {
        "text": message.text,
        "calls": calls,
        "reasoning": reasoning,
        "model": about.get("model", ""),
        "usage": usage,
    }
    return {key: value for key, value in reply.items() if value}


def _describe_call(call: ToolCall) -> dict[str, Any]:
    """Return a call of a stored reply. A thread does not store arguments that are not JSON; other ones replace them."""
    recorded = record_call(call)
    if call.invalid and not call.raw:
        recorded = recorded.model_copy(update={"raw": "{"})
    return recorded.model_dump(exclude_defaults=True)


def _propose_expectations(run: RecordedRun, calls: Sequence[TranscriptCall]) -> dict[str, Any]:
    """Return expectations that the recorded run meets: its calls, their order, and the decisions about them."""
    names = [call.tool for call in calls if not call.is_answer]
    expect: dict[str, Any] = {"calls": names}
    if len(names) > 1:
        expect["order"] = names
    expect["blocked"] = _distinct(call.tool for call in calls if call.decision == "blocked")
    expect["asked"] = _distinct(call.tool for call in calls if call.asked)
    if denied := _distinct(call.tool for call in calls if call.decision == "denied"):
        expect["denied"] = denied
    expect["invalid"] = _distinct(call.tool for call in calls if call.decision == "invalid")
    if run.end is not None and run.end.data["outcome"] != "completed":
        expect["outcome"] = run.end.data["outcome"]
    return expect


def _distinct(names: Iterator[str]) -> list[str]:
    return [*dict.fromkeys(names)]


# -- files -----------------------------------------------------------------------------------------------------------


def format_suite(cases: Sequence[EvalCase], suffix: str) -> str:
    """Return the text of a suite file with these cases, in YAML or JSONL; raise a ConfigError if YAML is too large."""
    rows = [case.model_dump(exclude_unset=True) for case in cases]
    if suffix == ".jsonl":
        return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    text = dump_yaml({"tools": "recorded", "cases": rows}, _choose_style, width=120, use_libyaml=True)
    try:
        load_yaml(text, "the suite")
    except ConfigError:
        raise ConfigError("the cases are too large for a YAML file; choose a name that ends with .jsonl") from None
    return text


_PLAIN = re.compile(r"[A-Za-z][\w ]*[\w.!?]")
_RESERVED = frozenset(("true", "false", "null", "yes", "no", "on", "off"))


def _choose_style(text: str) -> str | None:
    """Return the style of a text. One that a version of YAML reads as another type is quoted."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in _RESERVED
    return None if plain else "|" if "\n" in text and text.replace("\n", "").isprintable() else '"'
