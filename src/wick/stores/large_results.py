"""Texts that are too large to be shown: what is shown instead, and where the whole is kept if no workspace has it.

shorter = cut(text)                          its beginning and its end
await keep(thread, run, path, text)          with the thread: in its store, or in its log
await kept(thread, path)                     the whole, again
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wick import constants
from wick.errors import StoreError
from wick.stores.held_thread import HeldThread
from wick.threads import Thread

ENTRY = "large_result"  # the event that has such a text, or says in which blobs it is


def truncate_text(text: str) -> str:
    """The beginning and the end of a text, and how much is missing between them."""
    head, tail = constants.CUT_HEAD_CHARS, constants.CUT_TAIL_CHARS
    return f"{text[:head]}\n\n... (truncated {len(text) - head - tail} characters) ...\n\n{text[-tail:]}"


async def store_large_text(thread: Thread, run: str, path: str, text: str) -> bool:
    """Keep a text with a thread, under a path; says whether that went well."""
    about: dict[str, Any] = {"path": path}
    if isinstance(keeper := thread.keeper, HeldThread):
        try:
            about["blobs"] = [
                await keeper.store.put_blob(keeper.owner, thread.id, part) for part in _split_into_blobs(text)
            ]
        except StoreError:
            return False
    elif len(text) <= constants.STATE_FILE_BYTES:
        about["text"] = text
    else:
        return False
    thread.append("event", {"run": run, "name": ENTRY, "data": about})
    return True


async def load_large_text(thread: Thread, path: str) -> str | None:
    """A text that is kept with a thread, the latest of that path."""
    for entry in reversed(thread.entries):
        if entry.kind == "event" and entry.data["name"] == ENTRY and entry.data["data"]["path"] == path:
            return await _load_parts(thread, entry.data["data"])
    return None


async def _load_parts(thread: Thread, about: Mapping[str, Any]) -> str | None:
    if "text" in about:
        return str(about["text"])
    if not isinstance(keeper := thread.keeper, HeldThread):
        return None
    try:
        parts = [await keeper.store.get_blob(keeper.owner, thread.id, sha256) for sha256 in about["blobs"]]
    except StoreError:
        return None
    return b"".join(parts).decode()


def _split_into_blobs(text: str) -> list[bytes]:
    """A text in pieces that a store takes."""
    data, most = text.encode(), constants.STATE_FILE_BYTES
    return [data[at : at + most] for at in range(0, len(data), most)]
