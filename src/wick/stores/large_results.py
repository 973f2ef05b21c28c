"""Truncation of large texts, and storage of the whole text with its thread.

shorter = truncate_text(text)                        its head and tail
await store_large_text(thread, run, path, text)      in blobs of the store, or in the log
await load_large_text(thread, path)                  the whole text
"""

from __future__ import annotations

from typing import Any

from wick import constants
from wick.errors import StoreError
from wick.stores.held_thread import HeldThread
from wick.threads import Thread

ENTRY = "large_result"  # the event with the text, or with the names of its blobs


def truncate_text(text: str) -> str:
    """Return the head and tail of a text, and the number of omitted characters."""
    head, tail = constants.CUT_HEAD_CHARS, constants.CUT_TAIL_CHARS
    return f"{text[:head]}\n\n... (truncated {len(text) - head - tail} characters) ...\n\n{text[-tail:]}"


async def store_large_text(thread: Thread, run: str, path: str, text: str) -> bool:
    """Store a text with a thread under a path; return True on success."""
    about: dict[str, Any] = {"path": path}
    if isinstance(held := thread.writer, HeldThread):
        data, size = text.encode(), constants.STATE_FILE_BYTES
        parts = [data[at : at + size] for at in range(0, len(data), size)]
        try:
            about["blobs"] = [await held.store.put_blob(held.owner, thread.id, part) for part in parts]
        except StoreError:
            return False
    elif len(text) <= constants.STATE_FILE_BYTES:
        about["text"] = text
    else:
        return False
    thread.append("event", {"run": run, "name": ENTRY, "data": about})
    return True


async def load_large_text(thread: Thread, path: str) -> str | None:
    """Load the latest text stored under a path, or return None."""
    events = (entry.data for entry in reversed(thread.entries) if entry.kind == "event")
    texts = (event["data"] for event in events if event["name"] == ENTRY)
    about = next((about for about in texts if about["path"] == path), None)
    if about is None:
        return None
    if "text" in about:
        return str(about["text"])
    if not isinstance(held := thread.writer, HeldThread):
        return None
    try:
        parts = [await held.store.get_blob(held.owner, thread.id, sha256) for sha256 in about["blobs"]]
    except StoreError:
        return None
    return b"".join(parts).decode()
