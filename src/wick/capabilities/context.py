"""Context that precedes the history in each request and is not stored in the thread."""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Iterable
from pathlib import Path
from stat import S_ISREG
from typing import Any

from wick._internal.prompt_text import defuse_tags, fence_text, to_one_line
from wick._internal.worker_threads import run_in_thread
from wick.capability import Capability
from wick.constants import CONTEXT_FILE_BYTES
from wick.errors import BackendError, ConfigError
from wick.hooks import before
from wick.messages import Message
from wick.operations import ModelCall, Run
from wick.protocols import Backend


class Context(Capability):
    """Inserts texts and files as a message before the history of each request; the thread does not store it.

    `files` are read when a run starts: on this machine, or in `backend`. For a file that is missing or unreadable the
    message states the reason.
    """

    def __init__(
        self, *texts: str, files: Iterable[str | os.PathLike[str]] = (), backend: Backend | None = None
    ) -> None:
        if isinstance(files, str | bytes | os.PathLike) or not isinstance(files, Iterable):
            raise ConfigError(f"Context(files=…) takes a list, also of one: files=[{files!r}]")
        text: Any  # the caller may not check types
        for text in texts:
            if not isinstance(text, str) or not text.strip():
                raise ConfigError(f"Context takes texts, not {text!r}; files are given as files=[…]")
        file: Any
        paths: list[str] = []
        for file in files:
            path = os.fspath(file) if isinstance(file, str | os.PathLike) else None
            if not isinstance(path, str) or not path:
                raise ConfigError(f"Context(files=…) takes paths, not {file!r}")
            paths.append(path)
        self.texts, self.files, self.backend = tuple(text.strip() for text in texts), tuple(paths), backend
        if not self.texts and not self.files:
            raise ConfigError("Context needs texts, or files=[…]")

    def instruction_paths(self) -> Iterable[str]:
        """Return the paths of its files: a text in them is an instruction to later runs."""
        return self.files

    @before(Run)
    async def read(self, run: Run) -> None:
        contents = [await self._read_content(path) for path in self.files]

        def build_message() -> Message:
            parts = [defuse_tags("file", text) for text in self.texts]
            for path, (text, problem) in zip(self.files, contents, strict=True):
                parts.append(f"{to_one_line(path, 500)}: {problem}" if problem else fence_text("file", text, path=path))
            return Message("user", fence_text("context", "\n\n".join(parts)), name=self.name)

        run.scratch[self] = await run_in_thread(build_message, "fencing the context")

    @before(ModelCall)
    def insert_message(self, call: ModelCall) -> None:
        message = call.run.scratch.get(self)
        if message is None or call.purpose:
            return
        front = next((n for n, other in enumerate(call.messages) if other.role != "system"), len(call.messages))
        call.messages.insert(front, message)

    async def _read_content(self, path: str) -> tuple[str, str]:
        """Return the content of a file and "", or "" and the reason why it cannot be read."""
        try:
            if self.backend is None:
                text, cut = await run_in_thread(lambda: _read_file(path), f"reading {path}")
            else:
                read = await self.backend.read(path, limit=CONTEXT_FILE_BYTES)
                is_utf8 = read["encoding"] == "utf-8"  # if not, the limit may have cut inside a character
                data = read["content"].encode() if is_utf8 else b64decode(read["content"])
                text, cut = _decode_text(data), read["truncated"]
        except (BackendError, OSError, ValueError, RuntimeError) as error:  # RuntimeError: `~` of an unknown user
            return "", f"this file could not be read: {getattr(error, 'strerror', None) or error}."
        return text + (f"\n… (the file continues; these are its first {CONTEXT_FILE_BYTES:,} bytes)" if cut else ""), ""


def _read_file(path: str) -> tuple[str, bool]:
    """Return the beginning of a text file. Refuse other file types: a FIFO or device may never end."""
    file = os.open(Path(path).expanduser(), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not S_ISREG(os.fstat(file).st_mode):
            raise ValueError("it is not a file")
        with os.fdopen(file, "rb", closefd=False) as opened:
            data = opened.read(CONTEXT_FILE_BYTES + 1)
    finally:
        os.close(file)
    return _decode_text(data[:CONTEXT_FILE_BYTES]), len(data) > CONTEXT_FILE_BYTES


def _decode_text(data: bytes) -> str:
    if b"\0" in data:
        raise ValueError("it is not a text file")
    return data.decode("utf-8", "replace")
