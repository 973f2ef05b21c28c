"""What can be plugged in. Anything with these methods will do; nothing needs to be inherited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol

from wick.messages import Message, Part
from wick.tools import Tool
from wick.workspace.results import (
    CommandResult,
    EditResult,
    FileLines,
    FileStat,
    GlobResult,
    GrepResult,
    JobInfo,
    JobOutput,
    Listing,
    ReadResult,
    WriteResult,
)


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

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Usage:
        """What was counted; what this version of wick does not count is left out."""
        return cls(**{f.name: int(data[f.name]) for f in fields(cls) if f.name in data})


@dataclass(frozen=True, slots=True)
class Finish:
    """The model has finished, and why: `stop`, `tool_calls`, `length`, `content_filter`, …"""

    reason: str = "stop"


Delta = TextDelta | ReasoningDelta | CallStart | CallArgs | Usage | Finish


class Model(Protocol):
    """Something that answers: it yields deltas, a `Finish` among them, and nothing else.

    One whose replies can be held to the JSON Schema of the setting `response_format` may say so with an attribute
    `holds_schema`: "always", or "alone" if it cannot do so beside tools. One that cannot read every part of a message
    may have a method `refuses(part)`, which returns why not, or an empty text.
    """

    @property
    def name(self) -> str: ...

    def stream(self, request: Request) -> AsyncIterator[Delta]: ...


HoldsSchema = Literal["always", "alone"]


def holds_schema(model: Model, *, tools: bool) -> bool:
    """Whether a model says that its replies can be held to a JSON Schema, beside tools or without any."""
    said = getattr(model, "holds_schema", "")
    return said == "always" or (said == "alone" and not tools)


def refused_part(model: Model, messages: Iterable[Message]) -> str:
    """Return why a model cannot read a part of a user's messages, or an empty text."""
    refuses: Callable[[Part], str] | None = getattr(model, "refuses", None)
    if refuses is None:
        return ""
    parts = (part for message in messages if not isinstance(message.content, str) for part in message.content)
    return next(filter(None, map(refuses, parts)), "")


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
    its exit code says so. With `links=False` a path that leads over a symbolic link is refused (code `linked`), also
    if it becomes one while it is used.
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
    ) -> CommandResult:
        """Run a shell command to its end; cancelling ends it. What it started ends with it.

        `approved` says that the user agreed to exactly this command, which matters where `protection.asks`.
        """

    async def background(self, command: str, *, workdir: str = "", approved: bool = False) -> JobInfo:
        """Start a command that goes on by itself until it ends, is ended, or the backend stops."""

    async def jobs(self) -> Sequence[JobInfo]: ...

    async def job_output(self, id: str, *, offset: int = 0) -> JobOutput: ...

    async def end_job(self, id: str) -> JobInfo: ...

    async def terminal(self, *, rows: int = 24, columns: int = 80, approved: bool = False) -> Terminal: ...

    async def ls(self, path: str = ".", *, links: bool = True) -> Listing: ...

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> ReadResult:
        """Bytes of a file; without a limit as much as the cap allows."""

    async def lines(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> FileLines:
        """Lines of a text file, counted from 0, with their ends as they are."""

    async def write(self, path: str, content: str | bytes, *, links: bool = True) -> WriteResult:
        """Replace a file in one go, or make it, with the folders it needs."""

    async def edit(
        self,
        path: str,
        old: str,
        new: str,
        *,
        replace_all: bool = False,
        occurrence: Literal["only", "first"] = "only",
        links: bool = True,
    ) -> EditResult:
        """Replace a text that occurs once; line ends and the encoding stay as they are."""

    async def glob(self, pattern: str, path: str = ".", *, everything: bool = False, links: bool = True) -> GlobResult:
        """Files whose path matches; what is ignored or heavy is left out unless `everything`."""

    async def grep(
        self,
        pattern: str,
        path: str = ".",
        *,
        glob: str = "",
        ignore_case: bool = False,
        everything: bool = False,
        links: bool = True,
    ) -> GrepResult:
        """Lines that match a regular expression (RE2)."""

    async def mkdir(self, path: str) -> None: ...

    async def move(self, source: str, target: str) -> None: ...

    async def delete(self, path: str, *, recursive: bool = False) -> None: ...

    async def stat(self, path: str) -> FileStat: ...


@dataclass(frozen=True, slots=True)
class Summary:
    """What a store knows of a thread without reading it."""

    owner: str
    id: str
    title: str
    meta: Mapping[str, Any]
    created: float
    updated: float
    last: int = 0  # the number of its last entry
    run: str = ""  # the run that has begun and not ended
    asking: int = 0  # questions that nobody has answered
    queued: int = 0  # messages and answers that wait for whoever holds the thread
    leased: bool = False  # somebody holds it


@dataclass(frozen=True, slots=True)
class Page:
    """Some threads, and where the next ones begin; nowhere, if these were the last."""

    threads: tuple[Summary, ...]
    next: str = ""


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that was searched for."""

    thread: str
    title: str
    seq: int
    at: float
    text: str  # what stands around the first word


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write a thread until that time, by the store's clock. Who takes it later has a higher `fence`."""

    fence: int
    holder: str
    until: float


@dataclass(frozen=True, slots=True)
class Queued:
    """Something that was said to a thread, and is not in its log yet."""

    position: int
    kind: Literal["message", "answer"]
    data: Any
    at: float


@dataclass(frozen=True, slots=True)
class News:
    """How far a thread is: the number of its last entry, and the position of what was queued last."""

    last: int
    inbox: int


class Store(Protocol):
    """A place where threads are kept, as rows of JSON that `Entry.to_json` makes.

    What returns is on disk. What cannot be done is a StoreError, a sentence with a `code`. Somebody else's thread is
    not found. Only who holds the lease writes the log; everybody else queues messages and answers for them.
    """

    async def create(self, owner: str, id: str, *, title: str = "", meta: Mapping[str, Any] | None = None) -> Summary:
        """Make an empty thread; a `conflict` if there is one."""

    async def append(
        self,
        owner: str,
        id: str,
        entries: Sequence[Mapping[str, Any]],
        *,
        expect: int,
        fence: int,
        took: Sequence[int] = (),
    ) -> int:
        """Add all of these entries or none, and return the number of the last one.

        `expect` is the last number the writer knows, `fence` its lease's; `took` are the positions of what was queued
        and is among the entries. To append again exactly what was appended is no error, and changes nothing.
        """

    def read(
        self, owner: str, id: str, *, after: int = 0, limit: int | None = None
    ) -> AsyncIterator[Sequence[dict[str, Any]]]:
        """The entries after that number, in batches."""

    async def head(self, owner: str, id: str) -> Summary: ...

    async def list(
        self,
        owner: str,
        *,
        running: bool | None = None,
        asking: bool | None = None,
        queued: bool | None = None,
        order: Literal["updated", "created"] = "updated",
        oldest_first: bool = False,
        cursor: str = "",
        limit: int = 50,
    ) -> Page: ...

    async def unfinished(self, *, cursor: str = "", limit: int = 50) -> Page:
        """The threads of all owners with an open run or something queued: to take up after a crash what it left."""

    async def search(self, owner: str, text: str, *, limit: int = 20) -> Sequence[Hit]:
        """The messages that have every one of these words in them, whatever their case; the newest first."""

    async def delete(self, owner: str, id: str) -> None: ...

    async def expire(self, idle: float, *, owner: str = "", limit: int = 20) -> Sequence[tuple[str, str]]:
        """Delete idle threads, the longest idle first, and return their owners and ids.

        A thread is idle if nothing was written to it for `idle` seconds, it has no open run, question or queued
        message, and nobody holds its lease. That of a subagent is idle only once the one above it is gone. With `owner`
        only theirs are deleted. What is written meanwhile is not lost: the thread stays.
        """

    async def fork(
        self, owner: str, id: str, at: int, new_id: str, *, title: str = "", meta: Mapping[str, Any] | None = None
    ) -> Summary:
        """Make a thread that begins with a copy of the entries up to `at`."""

    async def lease(self, owner: str, id: str, holder: str, seconds: float) -> Lease:
        """Become the one who writes; a `conflict` while somebody else is."""

    async def renew(self, owner: str, id: str, fence: int, seconds: float) -> Lease:
        """Hold it for longer; `fenced` if somebody has taken it."""

    async def release(self, owner: str, id: str, fence: int) -> None:
        """Let go of it. Who no longer holds it has nothing to let go of, and that is no error."""

    async def describe(
        self, owner: str, id: str, *, title: str | None = None, meta: Mapping[str, Any] | None = None
    ) -> Summary:
        """Give a thread another title or other meta; what is None stays."""

    async def enqueue(self, owner: str, id: str, *messages: Mapping[str, Any], key: str = "") -> int:
        """Say something to a thread, whoever holds it: all of it or nothing; returns the position of the last message.

        What is said again under the same `key` is not queued again: the position is that of the first time.
        """

    async def answer(self, owner: str, id: str, question: str, data: Mapping[str, Any]) -> int:
        """Queue the answer to a question. The first one counts, a second is a `conflict`."""

    async def inbox(self, owner: str, id: str) -> Sequence[Queued]:
        """What was queued and not taken yet, in order. `append` takes it."""

    def watch(self, owner: str, id: str) -> AsyncIterator[News]:
        """How far the thread is now, and again whenever that changes, from whatever process; the newest only."""

    async def put_blob(self, owner: str, id: str, data: bytes) -> str:
        """Keep bytes with a thread, once; returns their SHA-256."""

    async def get_blob(self, owner: str, id: str, sha256: str) -> bytes: ...

    async def close(self) -> None:
        """Let go of files, threads and connections. What is asked later opens them again."""
