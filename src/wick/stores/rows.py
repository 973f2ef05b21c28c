"""Encoding, validation and errors that all stores share.

A store does not replay a thread. It only tracks the columns that `list` filters by and that prevent expiry: the open
run, and the questions without an answer.
"""

from __future__ import annotations

import base64
import json
import struct
import sys
import zlib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, Literal

import orjson

from wick._internal.frozen import FrozenDict, digest, freeze
from wick.errors import StoreError
from wick.protocols import NewThread, Page, Queued, Summary
from wick.stores.process_identity import has_ended

BATCH_ROWS, BATCH_BYTES = 500, 128_000  # of one read
PAGE_ROWS = 500  # maximum of threads or messages per page
BLOB_BYTES, BLOBS_BYTES = 1_000_000, 10_000_000  # of one blob, and of all of a thread
NAME_CHARS = 200
LEASE_SECONDS = 30.0  # after which the lease of a crashed process expires
TITLE_CHARS = 80
EXCERPT_CHARS = 160
INT64 = 2**63
# SQL condition: a question that is asked again reopens, unless its answer is queued
UNANSWERED = (
    "NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.thread = questions.thread AND inbox.position = questions.position)"
)

Row = tuple[int, str, float, bytes, int]  # seq, kind, at, data, check


@dataclass(slots=True)
class PreparedAppend:
    """Encoded entries, and the thread columns that they change."""

    rows: list[Row] = field(default_factory=list)
    last: int = 0
    run: str | None = None  # the open run after them; None if unchanged
    title: str = ""
    questions: list[tuple[Literal["asked", "answered", "over"], str]] = field(default_factory=list)
    expires: dict[str, float] = field(default_factory=dict)  # when the questions that are asked expire


def prepare_append(id: str, entries: Sequence[Mapping[str, Any]], expect: int) -> PreparedAppend:
    """Validate and encode entries that follow the entry `expect`."""
    if not entries:
        raise StoreError(f"thread {id}: there is nothing to append", "invalid")
    prepared = PreparedAppend(last=expect + len(entries))
    for seq, entry in enumerate(entries, expect + 1):
        try:
            kind, at, data = entry["kind"], float(entry["at"]), entry["data"]
            if entry["seq"] != seq:
                raise ValueError(f"its number is {entry['seq']!r}")
            if not is_valid_name(kind) or not isfinite(at):
                raise ValueError(f"its kind is {kind!r} and its time {at!r}")
            body = encode_json(data)
            prepared.rows.append((seq, kind, at, body, checksum(seq, kind, at, body)))
            note_entry(prepared, kind, data)
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise StoreError(f"thread {id}: entry {seq} cannot be stored: {error}", "invalid") from error
    return prepared


def note_entry(prepared: PreparedAppend, kind: str, data: Any) -> None:
    """Apply an entry to the thread columns of an append."""
    if kind == "message":
        if data["role"] == "assistant":  # a new reply closes the questions about earlier ones
            prepared.questions.append(("over", ""))
        elif data["role"] == "user" and not prepared.title:
            prepared.title = shorten_title(message_text(data))
    elif kind == "asked" or kind == "answered":
        prepared.questions.append((kind, _check_entry_name(data["id"])))  # type: ignore[arg-type]
        if kind == "asked":
            prepared.expires[data["id"]] = question_expiry(data)
    elif kind == "run_start":
        prepared.run = _check_entry_name(data["run"])
    elif kind == "rewind" or (kind == "run_end" and data["outcome"] != "interrupted"):
        prepared.run = ""
        prepared.questions.append(("over", ""))


def _check_entry_name(value: Any) -> str:
    if not isinstance(value, str) or not is_valid_name(value):
        raise ValueError(f"{value!r} is not the name of a run or a question")
    return value


def question_expiry(asked: Mapping[str, Any]) -> float:
    """Return when a question expires; infinity if it does not."""
    expires = asked.get("expires", inf)
    return float(expires) if type(expires) in (int, float) and abs(expires) < INT64 else inf


def find_open_questions(steps: Iterable[tuple[str, str]]) -> list[str]:
    """Return the questions that are open after these steps."""
    found: dict[str, None] = {}
    for step, question in steps:
        if step == "asked":
            found[question] = None
        elif step == "answered":
            found.pop(question, None)
        else:
            found.clear()
    return [*found]


# -- JSON -----------------------------------------------------------------------------------------------------------


def encode_json(data: Any) -> bytes:
    """Encode a value as JSON; raise TypeError or ValueError if it is not JSON data."""
    value = data if isinstance(data, FrozenDict) else freeze(data)
    try:
        return orjson.dumps(value)
    except TypeError:  # beyond 64 bits; the leading space makes `decode_json` parse it exactly
        return b" " + json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def decode_json(body: bytes) -> Any:
    return json.loads(body) if body[:1] == b" " else orjson.loads(body)


_pack_position = struct.Struct("<qd").pack


def checksum(seq: int, kind: str, at: float, body: bytes) -> int:
    """Return the checksum of a row, by which a damaged row is detected when it is read."""
    return zlib.crc32(body, zlib.crc32(_pack_position(seq, at) + kind.encode()))


def entry_from_row(id: str, expected: int, row: Sequence[Any]) -> dict[str, Any]:
    """Return the entry of a row; raise a StoreError if it is damaged or missing."""
    try:
        seq, kind, at, body, sum = row
        if seq == expected and checksum(seq, kind, at, body) == sum:
            return {"seq": seq, "kind": kind, "at": at, "data": decode_json(body)}
        problem = f"entry {seq} is in its place" if seq != expected else "its checksum is wrong"
    except (TypeError, ValueError, AttributeError, struct.error) as error:
        problem = str(error)
    raise corrupt_error(id, expected, problem)


def inbox_checksum(kind: str, body: bytes) -> int:
    return checksum(0, kind, 0.0, body)


def inbox_item_from_row(id: str, row: Sequence[Any]) -> Queued:
    position, kind, at, body, sum = row
    try:
        if inbox_checksum(kind, body) == sum:
            return Queued(position, kind, decode_json(body), at)
        problem = "its checksum is wrong"
    except (TypeError, ValueError, AttributeError, struct.error) as error:
        problem = str(error)
    raise StoreError(f"thread {id}: the queued message at {position} is damaged: {problem}", "corrupt")


def verify_blob(id: str, sha256: str, data: Any) -> bytes:
    if not isinstance(data, bytes) or digest(data) != sha256:
        raise StoreError(f"thread {id}: the bytes {sha256} are damaged; restore the store from a backup", "corrupt")
    return data


def check_blob_size(id: str, data: bytes, stored: int) -> None:
    if len(data) > BLOB_BYTES:
        raise StoreError(f"thread {id}: {len(data):,} bytes are more than the {BLOB_BYTES:,} kept at once", "full")
    if stored + len(data) > BLOBS_BYTES:
        raise StoreError(f"thread {id}: its files would take more than the {BLOBS_BYTES:,} bytes that are kept", "full")


# -- texts ----------------------------------------------------------------------------------------------------------


def message_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text")


def fold_text(text: str) -> str:
    """Return a text in case-folded form for searches, without NUL, which Postgres rejects."""
    return text.replace("\0", " ").casefold()


def split_words(text: str) -> list[str]:
    found = fold_text(text).split()
    if not found:
        raise StoreError("give at least one word to search for", "invalid")
    return found[:20]


def make_excerpt(text: str, word: str) -> str:
    """Return the text around a word."""
    place = max(0, fold_text(text).find(word) - EXCERPT_CHARS // 4)
    cut = text[place : place + EXCERPT_CHARS]
    return f"{'…' if place else ''}{cut}{'…' if place + len(cut) < len(text) else ''}"


def shorten_title(text: str) -> str:
    line = " ".join(text[: 10 * TITLE_CHARS].replace("\0", " ").split())
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1] + "…"


# -- names, pages ---------------------------------------------------------------------------------------------------


def are_valid_names(*names: Any) -> bool:
    """Return True if all values can be names in a store."""
    for name in names:
        is_plain = type(name) is str and name.isascii() and 0 < len(name) <= NAME_CHARS and "\0" not in name
        if not is_plain and not is_valid_name(name):
            return False
    return True


def is_valid_name(name: Any) -> bool:
    """Return True if a value can be a name in a store."""
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS or "\0" in name:
        return False
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)


def check_names(owner: Any, id: Any) -> None:
    """Raise a `not_found` if a thread cannot have this owner and id."""
    if not are_valid_names(owner, id):
        raise not_found_error(str(id)[:NAME_CHARS])


def check_name(what: str, name: Any) -> str:
    if is_valid_name(name):
        return str(name)
    raise StoreError(f"{what} is a text of 1 to {NAME_CHARS} characters, not {name!r}"[:400], "invalid")


RESERVED = (".", "..", "search")  # no address of a server leads to a thread of this name


def check_thread_id(id: Any) -> str:
    """Return the id of a new thread; a `StoreError` if it cannot be one. Threads that exist keep their ids."""
    if id in RESERVED:
        raise StoreError(
            f"a thread cannot be named {id!r}, which has another meaning in URLs; choose another id", "invalid"
        )
    return check_name("the id of a thread", id)


def encode_meta(meta: Mapping[str, Any] | None) -> str:
    try:
        return encode_json(dict(meta or {})).decode()
    except (TypeError, ValueError) as error:
        raise StoreError(f"the meta of a thread is JSON data: {error}", "invalid") from error


def encode_inbox_item(what: str, data: Any, **more: str) -> bytes:
    try:
        return encode_json(dict(data) | more)
    except (TypeError, ValueError) as error:
        raise StoreError(f"{what} is JSON data: {error}", "invalid") from error


def encode_messages(messages: Sequence[Any], key: str) -> list[bytes]:
    """Validate and encode inbox messages and their idempotency key."""
    if not messages:
        raise StoreError("there is nothing to send; give at least one message", "invalid")
    if key:
        check_name("the key of a message", key)
    return [encode_inbox_item("a message", message) for message in messages]


def encode_new_thread(owner: str, id: str, new: NewThread | None) -> tuple[str, list[bytes]]:
    """Validate a thread to be created; return its encoded metadata and messages."""
    if new is None:
        return "", []
    check_name("an owner", owner)
    check_thread_id(id)
    return encode_meta(new.meta), encode_messages(new.messages, "") if new.messages else []


def check_lease_seconds(seconds: float) -> float:
    if type(seconds) in (int, float) and isfinite(seconds) and seconds > 0:
        return float(seconds)
    raise StoreError(f"the seconds of a lease are a number above 0, not {seconds!r}", "invalid")


def check_claim(holder: str, capacity: int, seconds: float) -> float:
    """Validate a claim, and return the seconds of its leases."""
    check_name("a holder", holder)
    check_number("a capacity", capacity)
    return check_lease_seconds(seconds)


def unchanged_states(skip: Sequence[Summary]) -> set[tuple[str, str, int, int]]:
    """Return the states in which threads are not claimed."""
    return {(head.owner, head.id, head.last, head.queued) for head in skip}


def can_claim(head: Summary, unchanged: Container[tuple[str, str, int, int]]) -> bool:
    """Return True if a server can resume a thread: it has an agent, is not one of a subagent, and is not skipped."""
    is_servers = "agent" in head.meta and "parent" not in head.meta
    return is_servers and (head.owner, head.id, head.last, head.queued) not in unchanged


def check_idle_seconds(seconds: float) -> float:
    if type(seconds) in (int, float) and isfinite(seconds) and seconds >= 0:
        return float(seconds)
    raise StoreError(f"the seconds of an idle thread are a number of at least 0, not {seconds!r}", "invalid")


def clamp_limit(limit: int) -> int:
    if type(limit) is int and limit > 0:
        return min(limit, PAGE_ROWS)
    raise StoreError(f"a limit is at least 1, not {limit!r}", "invalid")


def check_number(what: str, number: Any) -> int:
    if type(number) is int and 0 <= number < INT64:
        return number
    raise StoreError(f"{what} is a number from 0 on, not {number!r}", "invalid")


def check_positions(took: Sequence[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(check_number("a position", position) for position in took))


ORDERS = ("updated", "created")
PageMark = tuple[float, int]  # end of a page: its sort time and the thread's key


def encode_cursor(order: str, oldest_first: bool, mark: PageMark) -> str:
    data = json.dumps([order, oldest_first, *mark]).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decode_cursor(cursor: str, order: str, oldest_first: bool) -> PageMark | None:
    """Decode a cursor; raise `invalid` if it belongs to another order."""
    if order not in ORDERS:
        raise StoreError(f"threads are ordered by {' or '.join(ORDERS)}, not by {order!r}", "invalid")
    if not cursor:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        its_order, its_way, at, key = json.loads(base64.urlsafe_b64decode(padded))
        if (its_order, its_way) == (order, oldest_first) and type(key) is int and isfinite(at):
            return float(at), check_number("a key", key)
    except (TypeError, ValueError, StoreError):
        pass
    raise StoreError("this cursor belongs to another list or order; request the first page without a cursor", "invalid")


def is_valid_prefix(prefix: str) -> bool:
    """Return True if the id of a thread can start with this text."""
    return not prefix or is_valid_name(prefix)


def build_list_filter(
    owner: str,
    prefix: str,
    running: bool | None,
    asking: bool | None,
    queued: bool | None,
    sign: str,
    unlapsed: tuple[str, tuple[Any, ...]],
) -> tuple[list[str], tuple[Any, ...]]:
    """Return the conditions of a list of threads and their values. Partial indexes use the same conditions.

    `unlapsed` is the condition that a question of a thread has not expired, with its values.
    """
    where, values = [f"owner = {sign}"], list[Any]([owner])
    if prefix:  # a range, so that the unique index on owner and id serves it
        where.append(f"id >= {sign} AND id <= {sign}")
        values += [prefix, prefix + chr(sys.maxunicode) * NAME_CHARS]
    flags = (
        (running, "run <> ''", ()),
        (asking, f"asking > 0 AND {unlapsed[0]}", unlapsed[1]),
        (queued, "queued > 0", ()),
    )
    for want, condition, given in flags:
        if want is not None:
            where.append(condition if want else f"NOT ({condition})")
            values += given
    return where, tuple(values)


def build_page_query(
    columns: str, where: Sequence[str], order: str, oldest_first: bool, mark: PageMark | None, sign: str
) -> str:
    """Return the SQL for a page of threads plus one more row; `sign` is the placeholder of a parameter."""
    way, then = ("ASC", ">") if oldest_first else ("DESC", "<")
    after = [f"({order}, key) {then} ({sign}, {sign})"] if mark else []
    return (
        f"SELECT {columns}, {order}, key FROM threads WHERE {' AND '.join([*where, *after])} "
        f"ORDER BY {order} {way}, key {way} LIMIT {sign}"
    )


def build_page(
    found: Sequence[Sequence[Any]],
    limit: int,
    order: str,
    oldest_first: bool,
    make_summary: Callable[[Sequence[Any]], Summary],
) -> Page:
    """Build a page from the rows of a page query."""
    more = (
        encode_cursor(order, oldest_first, (found[limit - 1][-2], found[limit - 1][-1])) if len(found) > limit else ""
    )
    return Page(tuple(make_summary(row[:-2]) for row in found[:limit]), more)


def is_live_holder(holder: str) -> bool:
    """Return True if the holder of an unexpired lease may still run."""
    return bool(holder) and not has_ended(holder)


# -- errors ---------------------------------------------------------------------------------------------------------


def not_found_error(id: str) -> StoreError:
    return StoreError(f"there is no thread {id!r}", "not_found")


def exists_error(id: str) -> StoreError:
    return StoreError(f"there is a thread {id!r} already", "conflict")


def corrupt_error(id: str, seq: int, problem: str) -> StoreError:
    return StoreError(
        f"thread {id}: entry {seq} is damaged: {problem}; restore the store from a backup, or fork it before that",
        "corrupt",
    )


def fenced_error(id: str) -> StoreError:
    return StoreError(f"thread {id} cannot be written: its lease has expired or was taken over", "fenced")


def conflict_error(id: str, expect: int, last: int) -> StoreError:
    return StoreError(
        f"thread {id} is at entry {last}, not at {expect}; read the new ones and append again", "conflict"
    )


def held_error(id: str, holder: str, seconds: float) -> StoreError:
    return StoreError(f"thread {id} is held by {holder} for another {max(seconds, 0):.1f} s", "conflict")


def answered_error(id: str, question: str) -> StoreError:
    return StoreError(f"thread {id}: the question {question} has been answered, or is no longer asked", "conflict")


def no_question_error(id: str, question: str) -> StoreError:
    return StoreError(f"thread {id} has no question {question!r}", "not_found")


def not_queued_error(id: str, position: int) -> StoreError:
    return StoreError(f"thread {id}: nothing is queued at {position}; it has been taken before", "conflict")


def no_entry_error(id: str, at: Any, last: int) -> StoreError:
    return StoreError(f"thread {id} has no entry {at!r}; they go from 1 to {last}", "invalid")


def no_blob_error(id: str, sha256: str) -> StoreError:
    return StoreError(f"thread {id} keeps no bytes {sha256!r}", "not_found")
