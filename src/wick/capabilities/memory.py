"""Memory across conversations: files that are added to each request and that the agent may edit."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from wick._internal.prompt_text import fence_text
from wick._internal.worker_threads import run_in_thread
from wick.backends.files import FileBackend, HostFolder, files_for_thread, read_bytes
from wick.capability import Capability
from wick.constants import MEMORY_BYTES, MEMORY_FILE_BYTES
from wick.errors import BackendError, ConfigError
from wick.hooks import before
from wick.operations import ModelCall, Run
from wick.protocols import Backend

SEPARATOR = "\n\n---\n\n"
GUIDELINES = """\
Guidelines for agent memory:
- This memory persists across conversations
- You can update it by using edit_file on the AGENTS.md file
- Use it to track important context, decisions, and patterns
- Keep entries concise and organized"""


class Memory(Capability):
    """Adds the current content of AGENTS.md files to the system prompt of each request.

    Paths are in the `backend`, so that the agent can edit the files; without a backend, on this machine. Missing files
    are skipped. Unreadable files are skipped too, and recorded in the thread with the reason. File content is only text
    for the model.
    """

    def __init__(self, paths: str | Sequence[str] = ("AGENTS.md",), backend: Backend | None = None) -> None:
        given: Any = paths  # a configuration file may contain anything
        names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Sequence) else ()
        if not names or not all(isinstance(name, str) and name.strip() and "\0" not in name for name in names):
            raise ConfigError(f"Memory(paths={paths!r}): name one file or several, such as AGENTS.md")
        if backend is not None and (isinstance(backend, type) or not callable(getattr(backend, "read", None))):
            raise ConfigError(f"Memory(backend={backend!r}): give a backend, such as Local('./workspace'), or None")
        self.paths, self.backend = names, backend

    def instruction_paths(self) -> Sequence[str]:
        """Return the paths of its files: a text in them is an instruction to later runs."""
        return self.paths

    @before(ModelCall)
    async def recall(self, call: ModelCall) -> None:
        if call.purpose:
            return
        state = call.run.scratch.setdefault(self, _MemoryState())
        texts = await asyncio.gather(*(self._read_text(call.run, path, state) for path in self.paths))
        fitted, room = [], MEMORY_BYTES
        for text in filter(None, texts):
            more = f"\n\n... (truncated {len(text) - room} characters) ..." if len(text) > room else ""
            fitted.append(text[:room] + more)
            room = max(room - len(text), 0)
        content = SEPARATOR.join(fitted)
        if content != state.content:
            state.block = await run_in_thread(lambda: fence_text("agent_memory", content), "memory")
            state.content = content
        if content:
            call.system = "\n\n".join(filter(None, (call.system, state.block, GUIDELINES)))

    async def _read_text(self, run: Run, path: str, state: _MemoryState) -> str:
        try:
            data, size = await read_bytes(*self._locate_file(run, path), MEMORY_FILE_BYTES)
            if b"\0" in data:
                raise BackendError(f"{path} is not a text", "not_text")
        except BackendError as error:
            if error.code != "not_found" and path not in state.skipped:
                state.skipped.add(path)
                run.record("memory_skipped", path=path, reason=str(error))
            return ""
        text = data.decode(errors="replace").removeprefix("\ufeff").rstrip("\ufffd" if size > len(data) else "").strip()
        return f"{text}\n\n... (truncated {size - len(data)} bytes) ..." if size > len(data) else text

    def _locate_file(self, run: Run, path: str) -> tuple[FileBackend, str]:
        if self.backend is not None:
            return files_for_thread(self.backend, run.thread), path
        folder, name = os.path.split(os.path.realpath(os.path.expanduser(path)))
        return HostFolder(folder), name


@dataclass(slots=True)
class _MemoryState:
    """The memory of one run: the current text, and the paths that were skipped."""

    content: str = ""
    block: str = ""
    skipped: set[str] = field(default_factory=set)
