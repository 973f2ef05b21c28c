"""Transcripts of conversations as JSONL files for Claude Code programs, created on demand and removed later."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from uuid import NAMESPACE_URL, uuid5
from weakref import finalize

from wick._internal.worker_threads import run_in_thread
from wick.hook_programs.claude.names import describe_call
from wick.messages import Message
from wick.threads import Thread
from wick.threads.state import Entry

VERSION = "wick"


class Transcript:
    """The transcript file of one thread. `path` updates it first."""

    def __init__(self, thread: Thread, cwd: str) -> None:
        self._thread, self._cwd = thread, cwd
        self._folder = ""
        self._end: Callable[[], Any] = lambda: None  # removes the folder, also when this object is garbage collected
        self._seen = 0  # number of entries in the file
        self._last: str | None = None  # id of the last line
        self._one_by_one = asyncio.Lock()

    async def path(self) -> str:
        """Append new entries to the file and return its path."""
        async with self._one_by_one:
            new = self._thread.entries[self._seen :]
            if self._folder and not new:
                return self._file
            if not self._seen or any(entry.kind == "rewind" for entry in new):
                new, self._last, mode = self._thread.effective_entries(), None, "w"
            else:
                mode = "a"
            self._seen = len(self._thread.entries)
            lines = list(self._format_lines(new))

            def write() -> None:
                if not self._folder:
                    self._folder = mkdtemp(prefix="wick-hooks-")
                    self._end = finalize(self, rmtree, self._folder, ignore_errors=True)
                with Path(self._file).open(mode, encoding="utf-8", errors="replace") as file:
                    file.writelines(f"{line}\n" for line in lines)

            await run_in_thread(write, "writing a transcript")
            return self._file

    async def remove(self) -> None:
        async with self._one_by_one:
            self._folder, self._seen = "", 0
            await run_in_thread(self._end, "removing a transcript")

    @property
    def _file(self) -> str:
        return os.path.join(self._folder, "transcript.jsonl")

    def _format_lines(self, entries: list[Entry]) -> Iterator[str]:
        for entry in entries:
            if entry.kind != "message" or entry.data.role == "system":
                continue
            own = str(uuid5(NAMESPACE_URL, f"{self._thread.id}:{entry.seq}"))
            moment = datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            line = {
                "parentUuid": self._last,
                "isSidechain": False,
                "userType": "external",
                "cwd": self._cwd,
                "sessionId": self._thread.id,
                "version": VERSION,
                "type": "assistant" if entry.data.role == "assistant" else "user",
                "message": _format_message(entry.data, own),
                "uuid": own,
                "timestamp": moment,
            }
            yield json.dumps(line, ensure_ascii=False)
            self._last = own


def _format_message(message: Message, own: str) -> dict[str, Any]:
    if message.role == "assistant":
        content: list[dict[str, Any]] = [{"type": "text", "text": message.text}] if message.text else []
        for call in message.tool_calls:
            name, args = describe_call(call)
            content.append({"type": "tool_use", "id": call.id, "name": name, "input": args})
        return {"id": own, "type": "message", "role": "assistant", "content": content}
    if message.role == "tool":
        result = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": message.text}
        return {"role": "user", "content": [result]}
    return {"role": "user", "content": message.text}
