"""Grep of the local backend: by ripgrep in the sandbox if available, else by RE2 in a worker thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from wick.errors import BackendError, MissingExtra
from wick.workspace.grep import LineSearch, RipgrepParser, ripgrep_command
from wick.workspace.results import CommandResult, GrepResult
from wick.workspace.workspace import Workspace

OUTPUT_BYTES = 32_000_000  # of output, after which ripgrep is stopped
TIME_LIMIT = 124  # exit code


@dataclass(frozen=True, slots=True)
class GrepRequest:
    """The arguments of a grep."""

    pattern: str
    path: str
    glob: str
    ignore_case: bool
    everything: bool
    links: bool = True

    def search_files(self, files: Workspace) -> GrepResult:
        return files.grep(
            self.pattern,
            self.path,
            glob=self.glob,
            ignore_case=self.ignore_case,
            everything=self.everything,
            links=self.links,
        )

    def build_ripgrep(self, files: Workspace) -> tuple[list[str], RipgrepOutput] | None:
        """Return the ripgrep command and its output parser; None for a single file, which needs no ripgrep.

        A pattern that RE2 rejects raises the same error as without ripgrep.
        """
        with suppress(MissingExtra):  # without RE2, ripgrep validates the pattern
            LineSearch(self.pattern, ignore_case=self.ignore_case)
        folder = files.resolve(self.path, links=self.links)
        if files.stat(folder)["type"] != "dir":
            return None
        keep = files.build_search_filter(self.path, glob=self.glob, everything=self.everything, links=self.links)
        argv = ripgrep_command(
            self.pattern,
            folder,
            glob=self.glob,
            ignore_case=self.ignore_case,
            everything=self.everything,
        )
        return argv, RipgrepOutput(RipgrepParser(keep))


class _OutputLimitReached(Exception):
    """Raised if the output exceeds its limit."""


class RipgrepOutput:
    """The buffered output of ripgrep. It is parsed in a worker thread, as that accesses files."""

    def __init__(self, reader: RipgrepParser) -> None:
        self._reader = reader
        self._printed = bytearray()

    def receive(self, name: str, data: bytes) -> None:
        if name == "stdout":
            self._printed += data
        if len(self._printed) > OUTPUT_BYTES:
            raise _OutputLimitReached

    async def run_limited(self, run: Callable[[], Awaitable[CommandResult]]) -> CommandResult | None:
        """Run ripgrep; return None if the output limit was reached."""
        try:
            return await run()
        except _OutputLimitReached:
            return None

    def parse_matches(self, executed: CommandResult | None) -> GrepResult | None:
        """Return the matches; None if ripgrep rejects the pattern."""
        self._reader.feed(bytes(self._printed))
        if executed is None or executed["exit_code"] == TIME_LIMIT:
            return {**self._reader.result(), "truncated": True}
        try:
            return self._reader.result(executed["exit_code"], executed["stderr"])
        except BackendError:
            return None
