"""What a workspace answers, as JSON data: the same on the host, in a container and over the wire.

A path is what was asked for, or relative to the workspace. A name that is not UTF-8 comes as Python's
surrogate escapes and can be given back as it is.
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
    """What is in a folder, by name; `truncated` if there is more."""

    path: str
    entries: list[FolderEntry]
    truncated: bool


class ReadResult(TypedDict):
    """Bytes of a file: `content` is text, or base64 where `encoding` says so; `truncated` if the file goes on."""

    path: str
    content: str
    encoding: str  # "utf-8" or "base64"
    size: int  # of the whole file
    offset: int  # of the first byte
    bytes: int  # how many there are here
    truncated: bool


class FileLines(TypedDict):
    """Lines of a text file, from `offset` (the first is 0); `truncated` if the file goes on."""

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
    """The files that a pattern matches, by name."""

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
    """What a path is. `modified` is seconds since 1970."""

    path: str
    type: str
    size: int
    mode: int
    modified: float


class CommandResult(TypedDict):
    """How a command ended. `error` is a sentence where wick or a limit ended it; 124 is the time limit's exit code."""

    stdout: str
    stderr: str
    exit_code: int
    error: str
    truncated: bool  # the middle of an output was left out
    stdout_bytes: int  # how much there really was
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
    """What a background command has printed since `offset`; ask again from `next_offset`."""

    id: str
    output: str
    offset: int
    next_offset: int
    running: bool
    exit_code: int
