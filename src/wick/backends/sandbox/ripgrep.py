"""A search of the local backend: by ripgrep in the sandbox where there is one, else by RE2 in a thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from wick.errors import BackendError, MissingExtra
from wick.workspace.grep import LineSearch, RipgrepParser, ripgrep_command
from wick.workspace.results import CommandResult, GrepResult
from wick.workspace.workspace import Workspace

OUTPUT_BYTES = 32_000_000  # that ripgrep prints before it is stopped
TIME_LIMIT = 124  # exit code


@dataclass(frozen=True, slots=True)
class Asked:
    """What is searched for, and where."""

    pattern: str
    path: str
    glob: str
    ignore_case: bool
    everything: bool
    links: bool = True

    def walk(self, files: Workspace) -> GrepResult:
        return files.grep(
            self.pattern,
            self.path,
            glob=self.glob,
            ignore_case=self.ignore_case,
            everything=self.everything,
            links=self.links,
        )

    def by_ripgrep(self, files: Workspace) -> tuple[list[str], Reading] | None:
        """The command, and who reads what it prints; None for a single file, which needs no ripgrep.

        A pattern that RE2 does not know is refused in the same words.
        """
        with suppress(MissingExtra):  # then ripgrep's own word counts
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
        return argv, Reading(RipgrepParser(keep))


class _Enough(Exception):
    """There is more than anybody reads."""


class Reading:
    """What ripgrep prints. It is kept as it comes, and taken apart in a thread: that looks at files again."""

    def __init__(self, reader: RipgrepParser) -> None:
        self._reader = reader
        self._printed = bytearray()

    def take(self, name: str, data: bytes) -> None:
        if name == "stdout":
            self._printed += data
        if len(self._printed) > OUTPUT_BYTES:
            raise _Enough

    async def enough_of(self, run: Callable[[], Awaitable[CommandResult]]) -> CommandResult | None:
        """How ripgrep ended; None if it had more to say than is read."""
        try:
            return await run()
        except _Enough:
            return None

    def result(self, executed: CommandResult | None) -> GrepResult | None:
        """The matches; None if ripgrep does not know the pattern."""
        self._reader.feed(bytes(self._printed))
        if executed is None or executed["exit_code"] == TIME_LIMIT:
            return {**self._reader.result(), "truncated": True}
        try:
            return self._reader.result(executed["exit_code"], executed["stderr"])
        except BackendError:
            return None
