"""What can be plugged in. Anything with these methods will do; nothing needs to be inherited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol

from wick.messages import Message
from wick.shapes import (
    Content,
    Edited,
    Executed,
    Found,
    Job,
    JobOutput,
    Lines,
    Listing,
    Matches,
    Stat,
    Written,
)
from wick.tools import Tool


@dataclass(frozen=True, slots=True)
class Request:
    """What a model is asked."""

    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[Tool, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the reply's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """The next piece of the model's reasoning; a signature closes it."""

    text: str = ""
    signature: str = ""
    provider: str = ""


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool call begins. `index` tells parallel calls apart, whatever order their pieces come in."""

    index: int
    id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class CallArgs:
    """The next piece of a tool call's arguments, as the raw JSON text."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens: what went in and what came out; and how much of it was read from a cache, reasoning, or cached anew."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
        )

    def to_json(self) -> dict[str, int]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True, slots=True)
class Finish:
    """The model has finished, and why: `stop`, `tool_calls`, `length`, `content_filter`, …"""

    reason: str = "stop"


Delta = TextDelta | ReasoningDelta | CallStart | CallArgs | Usage | Finish


class Model(Protocol):
    """Something that answers: it yields deltas, a `Finish` among them, and nothing else."""

    @property
    def name(self) -> str: ...

    def stream(self, request: Request) -> AsyncIterator[Delta]: ...


@dataclass(frozen=True, slots=True)
class Status:
    """How a backend is; `reason` says why, where that is not plain."""

    state: Literal["idle", "launching", "launched", "error"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Protection:
    """What really confines the commands of a backend, and what that leaves open."""

    level: Literal["strong", "weak", "none"]
    by: str  # bubblewrap, docker, landlock, sandbox-exec, …
    says: str  # a sentence for people
    asks: bool = False  # every command needs the user's yes


OnOutput = Callable[[Literal["stdout", "stderr"], bytes], None]


class Terminal(Protocol):
    """A shell that somebody types into."""

    async def read(self) -> bytes:
        """The next bytes; none at the end."""

    async def write(self, data: bytes) -> None: ...

    async def resize(self, rows: int, columns: int) -> None: ...

    async def close(self) -> None: ...


class Backend(Protocol):
    """A place where files are and commands run. Paths are relative to `workdir`, or begin with it.

    What cannot be done is a BackendError, a sentence with a `code`. A command that ends badly is no error:
    its exit code says so.
    """

    @property
    def name(self) -> str: ...

    @property
    def workdir(self) -> str: ...

    @property
    def status(self) -> Status: ...

    @property
    def protection(self) -> Protection: ...

    async def start(self) -> None:
        """Get ready; what needs it does so by itself. Starting twice is starting once."""

    async def stop(self) -> None:
        """End everything that was started here; it can be started again."""

    async def execute(
        self,
        command: str,
        *,
        stdin: bytes = b"",
        workdir: str = "",
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        on_output: OnOutput | None = None,
        approved: bool = False,
    ) -> Executed:
        """Run a shell command to its end; cancelling ends it. What it started ends with it.

        `approved` says that the user agreed to exactly this command, which matters where `protection.asks`.
        """

    async def background(self, command: str, *, workdir: str = "", approved: bool = False) -> Job:
        """Start a command that goes on by itself until it ends, is ended, or the backend stops."""

    async def jobs(self) -> Sequence[Job]: ...

    async def job_output(self, id: str, *, offset: int = 0) -> JobOutput: ...

    async def end_job(self, id: str) -> Job: ...

    async def terminal(self, *, rows: int = 24, columns: int = 80, approved: bool = False) -> Terminal: ...

    async def ls(self, path: str = ".") -> Listing: ...

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> Content:
        """Bytes of a file; without a limit as much as the cap allows."""

    async def lines(self, path: str, *, offset: int = 0, limit: int | None = None) -> Lines:
        """Lines of a text file, counted from 0, with their ends as they are."""

    async def write(self, path: str, content: str | bytes) -> Written:
        """Replace a file in one go, or make it, with the folders it needs."""

    async def edit(
        self, path: str, old: str, new: str, *, replace_all: bool = False, occurrence: Literal["only", "first"] = "only"
    ) -> Edited:
        """Replace a text that occurs once; line ends and the encoding stay as they are."""

    async def glob(self, pattern: str, path: str = ".", *, everything: bool = False) -> Found:
        """Files whose path matches; what is ignored or heavy is left out unless `everything`."""

    async def grep(
        self, pattern: str, path: str = ".", *, glob: str = "", ignore_case: bool = False, everything: bool = False
    ) -> Matches:
        """Lines that match a regular expression (RE2)."""

    async def mkdir(self, path: str) -> None: ...

    async def move(self, source: str, target: str) -> None: ...

    async def delete(self, path: str, *, recursive: bool = False) -> None: ...

    async def stat(self, path: str) -> Stat: ...
