"""Result types of workspace operations as JSON data: the same on the host, in containers and over the wire.

A path is the requested one, or relative to the workspace. A name that is not UTF-8 is decoded with Python's
surrogate escapes and can be passed back unchanged.
"""

from __future__ import annotations

from typing import Any, Dict, TypedDict

Json = Dict[str, Any]


class FolderEntry(TypedDict):
    """One entry of a folder. `type` is `file`, `dir`, `link` or `other`."""

    name: str
    type: str
    size: int


class Listing(TypedDict):
    """The entries of a folder, sorted by name; `truncated` if there are more."""

    path: str
    entries: list[FolderEntry]
    truncated: bool


class ReadResult(TypedDict):
    """Bytes of a file: `content` is text or base64, as in `encoding`; `truncated` if the file is longer."""

    path: str
    content: str
    encoding: str  # "utf-8" or "base64"
    size: int  # of the whole file
    offset: int  # of the first byte
    bytes: int  # number of bytes in `content`
    truncated: bool


class FileLines(TypedDict):
    """Lines of a text file, from `offset` (the first is 0); `truncated` if the file is longer."""

    path: str
    content: str
    offset: int
    lines: int
    truncated: bool


class WriteResult(TypedDict):
    path: str
    bytes_written: int


class EditResult(TypedDict):
    path: str
    replacements: int
    bytes_written: int


class GlobResult(TypedDict):
    """The files that match a pattern, sorted by name."""

    files: list[str]
    truncated: bool


class GrepMatch(TypedDict):
    file: str
    line: int
    text: str


class GrepResult(TypedDict):
    matches: list[GrepMatch]
    truncated: bool


class FileStat(TypedDict):
    """Type, size and mode of a path. `modified` is seconds since 1970."""

    path: str
    type: str
    size: int
    mode: int
    modified: float


class CommandResult(TypedDict):
    """The result of a command. `error` is set if wick or a limit ended it; exit code 124 is the time limit."""

    stdout: str
    stderr: str
    exit_code: int
    error: str
    truncated: bool  # the middle of an output was omitted
    stdout_bytes: int  # size of the whole output
    stderr_bytes: int
    seconds: float
    moved: list[str]  # protected paths that appeared meanwhile and were moved aside


class JobInfo(TypedDict):
    """A command that runs in the background."""

    id: str
    command: str
    running: bool
    exit_code: int  # -1 while it runs
    error: str
    started: float


class JobOutput(TypedDict):
    """Output of a background command from `offset`; continue at `next_offset`."""

    id: str
    output: str
    offset: int
    next_offset: int
    running: bool
    exit_code: int
