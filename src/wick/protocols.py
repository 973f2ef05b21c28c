"""The protocols of models, backends and stores. Implement the methods; inheritance is not needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, runtime_checkable

from wick._internal.familiar_words import REQUEST_ATTRIBUTES, USAGE_ATTRIBUTES, explain_attributes, refuse_item
from wick._internal.frozen import freeze
from wick.errors import ConfigError
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

SETTINGS = (
    "temperature",
    "max_tokens",
    "top_p",
    "stop",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "extra",
)


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return model settings, frozen. Raise a ConfigError for an unknown one, or one that is not JSON data."""
    for key in settings:
        if key not in SETTINGS:
            raise ConfigError(f"there is no setting {key!r}; the settings are {', '.join(SETTINGS)}")
    try:
        return freeze(dict(settings))  # type: ignore[no-any-return]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the settings must be JSON data: {error}") from None


@explain_attributes(REQUEST_ATTRIBUTES)
@dataclass(frozen=True, slots=True)
class Request:
    """A request to a model."""

    messages: tuple[Message, ...]  # the conversation
    system: str = ""  # the system prompt
    tools: tuple[Tool, ...] = ()  # the tools that the model may call
    settings: Mapping[str, Any] = field(default_factory=dict)  # temperature, max_tokens and others

    @property
    def text(self) -> str:
        """The text of the last message: the user's input, or the result of a tool."""
        return self.messages[-1].text if self.messages else ""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the reply's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's reasoning. A signature closes a block."""

    text: str = ""
    signature: str = ""
    provider: str = ""


@dataclass(frozen=True, slots=True)
class CallStart:
    """The start of a tool call. `index` identifies it among parallel calls."""

    index: int
    id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class CallArgs:
    """A piece of a tool call's arguments, as raw JSON text."""

    index: int
    text: str


@explain_attributes(USAGE_ATTRIBUTES)
@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts: input and output, and how many of them were cached, reasoning, or written to the cache."""

    input_tokens: int = 0  # tokens of the request
    output_tokens: int = 0  # tokens of the reply
    cached_tokens: int = 0  # input tokens read from a cache
    reasoning_tokens: int = 0  # output tokens of reasoning
    cache_write_tokens: int = 0  # input tokens written to a cache

    if not TYPE_CHECKING:
        __getitem__ = refuse_item("usage.total_tokens or usage.to_json()")

        def __call__(self) -> NoReturn:
            raise TypeError("the usage is an attribute, not a method: write result.usage.total_tokens")

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
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cached_tokens": self.cached_tokens,
            "reasoning_tokens": self.reasoning_tokens,
            "cache_write_tokens": self.cache_write_tokens,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Usage:
        """Load counts from JSON. Unknown keys are ignored."""
        return cls(**{name: int(data[name]) for name in _USAGE_FIELDS if name in data})


_USAGE_FIELDS = tuple(field.name for field in fields(Usage))


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of the reply, with its reason: `stop`, `tool_calls`, `length`, `content_filter`, …

    `response_id` and `response_model` are the provider's id of the reply and the model that wrote it, if known.
    """

    reason: str = "stop"
    response_id: str = field(default="", compare=False)
    response_model: str = field(default="", compare=False)


Delta = TextDelta | ReasoningDelta | CallStart | CallArgs | Usage | Finish


@runtime_checkable
class Model(Protocol):
    """A language model. It yields deltas, including one `Finish`.

    Optional attribute `holds_schema`: "always" if replies can be constrained to the JSON Schema of the setting
    `response_format`, or "alone" if that is possible only without tools. Optional method
    `unsupported_reason(part)`: returns why the model cannot read a part of a message, or an empty text.
    """

    @property
    def name(self) -> str: ...

    def stream(self, request: Request) -> AsyncIterator[Delta]: ...


HoldsSchema = Literal["always", "alone"]


def holds_schema(model: Model, *, tools: bool) -> bool:
    """Return True if a model can constrain its replies to a JSON Schema, with or without tools."""
    support = getattr(model, "holds_schema", "")
    return support == "always" or (support == "alone" and not tools)


def refused_part(model: Model, messages: Iterable[Message]) -> str:
    """Return why a model cannot read a part of a user's messages, or an empty text."""
    find_reason: Callable[[Part], str] | None = getattr(model, "unsupported_reason", None)
    if find_reason is None:
        return ""
    parts = (part for message in messages if not isinstance(message.content, str) for part in message.content)
    return next(filter(None, map(find_reason, parts)), "")


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a backend, with a reason for errors."""

    state: Literal["idle", "launching", "launched", "error"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Protection:
    """The effective sandbox of a backend's commands, and its gaps."""

    level: Literal["strong", "weak", "none"]
    by: str  # bubblewrap, docker, landlock, sandbox-exec, …
    says: str  # a sentence for users
    asks: bool = False  # every command needs the user's approval


OnOutput = Callable[[Literal["stdout", "stderr"], bytes], None]


class Terminal(Protocol):
    """An interactive shell."""

    async def read(self) -> bytes:
        """Return the next bytes; empty at the end."""

    async def write(self, data: bytes) -> None: ...

    async def resize(self, rows: int, columns: int) -> None: ...

    async def close(self) -> None: ...


@runtime_checkable
class Backend(Protocol):
    """A workspace with files and commands. Paths are relative to `workdir`, or start with it.

    Methods raise a BackendError with a `code`. A command that fails is not an error: check its exit code.
    With `links=False`, a path through a symbolic link is refused with the code `linked`, also if the link is
    created during the operation.
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
        """Start the backend. Other methods start it if necessary; starting twice has no effect."""

    async def stop(self) -> None:
        """Stop all commands and jobs. The backend can be started again."""

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
        """Run a shell command to its end, and terminate its child processes. Cancelling terminates it.

        `approved` means that the user agreed to exactly this command; required if `protection.asks`.
        """

    async def background(self, command: str, *, workdir: str = "", approved: bool = False) -> JobInfo:
        """Start a background command. It runs until it ends, is ended, or the backend stops."""

    async def jobs(self) -> Sequence[JobInfo]: ...

    async def job_output(self, id: str, *, offset: int = 0) -> JobOutput: ...

    async def end_job(self, id: str) -> JobInfo: ...

    async def terminal(self, *, rows: int = 24, columns: int = 80, approved: bool = False) -> Terminal: ...

    async def ls(self, path: str = ".", *, links: bool = True) -> Listing: ...

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> ReadResult:
        """Read bytes of a file, by default up to the cap."""

    async def lines(self, path: str, *, offset: int = 0, limit: int | None = None, links: bool = True) -> FileLines:
        """Read lines of a text file, counted from 0, with their line endings."""

    async def write(self, path: str, content: str | bytes, *, links: bool = True) -> WriteResult:
        """Create or replace a file atomically. Create missing folders."""

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
        """Replace a text that occurs once. Line endings and encoding are preserved."""

    async def glob(self, pattern: str, path: str = ".", *, everything: bool = False, links: bool = True) -> GlobResult:
        """Find files by path pattern. Ignored and large folders are skipped unless `everything`."""

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
        """Find lines that match a regular expression (RE2)."""

    async def mkdir(self, path: str) -> None: ...

    async def move(self, source: str, target: str) -> None: ...

    async def delete(self, path: str, *, recursive: bool = False) -> None: ...

    async def stat(self, path: str) -> FileStat: ...


@dataclass(frozen=True, slots=True)
class Summary:
    """The metadata of a thread, available without reading its log."""

    owner: str
    id: str
    title: str
    meta: Mapping[str, Any]
    created: float
    updated: float
    last: int = 0  # sequence number of its last entry
    run: str = ""  # the run that has started and not ended
    asking: int = 0  # open questions that have not expired
    queued: int = 0  # messages and answers in the inbox
    leased: bool = False  # a process holds its lease


@dataclass(frozen=True, slots=True)
class Page:
    """A page of threads. `next` is the cursor of the next page, or empty."""

    threads: tuple[Summary, ...]
    next: str = ""


@dataclass(frozen=True, slots=True)
class Hit:
    """A message found by a search."""

    thread: str
    title: str
    seq: int
    at: float
    text: str  # the text around the first match


@dataclass(frozen=True, slots=True)
class NewThread:
    """A thread to be created: its metadata, and the messages in its inbox."""

    meta: Mapping[str, Any]
    messages: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write a thread until a time of the store's clock. Each new lease has a higher `fence`.

    A store may return the thread as it was when the lease was acquired, to save its holder the same reads.
    """

    fence: int
    holder: str
    until: float
    head: Summary | None = field(default=None, compare=False, repr=False)
    inbox: Sequence[Queued] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Queued:
    """A message or an answer in the inbox of a thread, not yet in its log."""

    position: int
    kind: Literal["message", "answer"]
    data: Any
    at: float


@dataclass(frozen=True, slots=True)
class News:
    """The position of a thread: its last entry, and its last inbox item."""

    last: int
    inbox: int


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A server of a cluster, as its last heartbeat has described it."""

    id: str
    host: str  # machine and process
    version: str
    capacity: int  # runs at once; 0 for no limit
    running: int
    draining: bool  # it claims no runs
    started: float
    age: float  # seconds since its last heartbeat
    alive: bool  # its last heartbeat is recent
    place: str = ""  # the folder of its workspaces; servers with the same place share them
    address: str = ""  # where other servers reach it


@dataclass(frozen=True, slots=True)
class WorkspaceHome:
    """The record of a workspace in a cluster: the place that has its files, and the server there."""

    place: str  # a folder of workspaces; servers with the same place share them
    snapshot: str = ""  # the last snapshot that was recorded; empty without one
    changed: bool = False  # files may have been changed
    in_use: bool = False  # a live server there takes runs, or still performs one in this workspace
    host: str = ""  # machine of the server there that was seen last
    address: str = ""  # where other servers reach it
    alive: bool = False  # its last heartbeat is recent
    draining: bool = False  # it takes no runs


@runtime_checkable
class Store(Protocol):
    """A store of threads. The log of a thread is a list of JSON rows from `Entry.to_json`.

    A change is durable when its method returns. Methods raise a StoreError with a `code`. Threads of other owners
    are not found. Only the lease holder writes the log; other processes queue messages and answers in the inbox.
    """

    async def create(self, owner: str, id: str, *, title: str = "", meta: Mapping[str, Any] | None = None) -> Summary:
        """Create an empty thread; raise a `conflict` if it exists, and `invalid` if its owner or id is not a name."""

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
        """Append entries in one transaction, and return the number of the last one.

        `expect` is the number of the last entry the writer knows, `fence` that of its lease. `took` are the positions
        of the inbox items in these entries. Repeating the same append has no effect.

        Another `expect` than the last entry is a `conflict`; one that is not an integer from 0 on, such as -1, is
        `invalid`. So are entries that are not JSON or not numbered from `expect + 1` on.
        """

    def read(
        self, owner: str, id: str, *, after: int = 0, limit: int | None = None
    ) -> AsyncIterator[Sequence[dict[str, Any]]]:
        """Yield the entries after a number, in batches."""

    async def head(self, owner: str, id: str) -> Summary: ...

    async def list(
        self,
        owner: str,
        *,
        running: bool | None = None,
        asking: bool | None = None,
        queued: bool | None = None,
        prefix: str = "",
        order: Literal["updated", "created"] = "updated",
        oldest_first: bool = False,
        cursor: str = "",
        limit: int = 50,
    ) -> Page:
        """List threads of an owner, newest first. With `prefix`, only threads whose id starts with it.

        `asking` selects threads with open questions that have not expired.
        """

    async def count(self, owner: str) -> int:
        """Return the number of threads of an owner."""

    async def unfinished(self, *, cursor: str = "", limit: int = 50, skip_holder: str = "") -> Page:
        """List threads of all owners with an open run or inbox items, to resume them after a crash.

        With `skip_holder`, threads are left out while their lease belongs to a holder whose name starts with it.
        """

    async def search(self, owner: str, text: str, *, limit: int = 20) -> Sequence[Hit]:
        """Find the messages that contain all words of a text, ignoring case; newest first."""

    async def delete(self, owner: str, id: str) -> None: ...

    async def expire(self, idle: float, *, owner: str = "", limit: int = 20) -> Sequence[tuple[str, str]]:
        """Delete idle threads, the longest idle first, and return their owners and ids.

        A thread is idle if it was not written for `idle` seconds, has no open run, question or inbox item, and is
        not leased. The thread of a subagent is idle only after its parent is deleted. With `owner`, only threads of
        that owner are deleted. A thread that is written meanwhile is not deleted.
        """

    async def fork(
        self, owner: str, id: str, at: int, new_id: str, *, title: str = "", meta: Mapping[str, Any] | None = None
    ) -> Summary:
        """Create a thread with a copy of the entries up to `at`, and of the blobs.

        Without `title` and `meta` it has those of the original. It has the run and the questions that are open at `at`,
        an empty inbox and no lease. `at` is an integer from 0 to the last entry; another one is `invalid`.
        """

    async def lease(self, owner: str, id: str, holder: str, seconds: float, *, new: NewThread | None = None) -> Lease:
        """Acquire the write lease; raise a `conflict` while another process holds it.

        With `new`, create the thread in the same transaction; raise a `conflict` if it exists.
        """

    async def renew(self, owner: str, id: str, fence: int, seconds: float) -> Lease:
        """Extend the lease; raise `fenced` if another process has acquired it."""

    async def renew_all(self, leases: Sequence[tuple[str, str, int]], seconds: float) -> Sequence[Lease | None]:
        """Extend several leases in one transaction, each given by owner, id and fence.

        Return None for a lease that was not extended, for example because its thread is locked: `renew` finds out.
        """

    async def release(
        self,
        owner: str,
        id: str,
        fence: int,
        *,
        entries: Sequence[Mapping[str, Any]] = (),
        expect: int = 0,
        took: Sequence[int] = (),
    ) -> Summary | None:
        """Release the lease, and return the thread as it is then. Releasing a lost lease is not an error.

        With entries, append them in the same transaction, as `append` does. Repeating that has no effect.
        """

    async def describe(
        self, owner: str, id: str, *, title: str | None = None, meta: Mapping[str, Any] | None = None
    ) -> Summary:
        """Change the title or meta of a thread. None leaves a value unchanged."""

    async def enqueue(self, owner: str, id: str, *messages: Mapping[str, Any], key: str = "") -> int:
        """Queue messages in the inbox, in one transaction, and return the position of the last one.

        A repeated `key` queues nothing and returns the first position.
        """

    async def answer(self, owner: str, id: str, question: str, data: Mapping[str, Any]) -> int:
        """Queue the answer to an open question. A second answer, or one to a closed question, raises a `conflict`.

        A question is open from `asked` to its answer, or to the next `run_end` that is not `interrupted`, reply of the
        assistant or `rewind` in the log. One that was never asked is `not_found`.
        """

    async def inbox(self, owner: str, id: str) -> Sequence[Queued]:
        """Return the inbox in order. `append` removes items from it."""

    def watch(self, owner: str, id: str) -> AsyncIterator[News]:
        """Yield the position of the thread, and again after each change by any process; only the latest.

        The iterator ends when the store is closed, and raises `not_found` when the thread is deleted.
        """

    async def put_blob(self, owner: str, id: str, data: bytes) -> str:
        """Store bytes with a thread, deduplicated, and return their SHA-256."""

    async def get_blob(self, owner: str, id: str, sha256: str) -> bytes: ...

    async def close(self) -> None:
        """Release files, worker threads and connections, and end all watchers. Later calls open them again."""


@runtime_checkable
class ClaimingStore(Store, Protocol):
    """A store from which servers claim the threads that they resume. For another store, wick lists and leases them."""

    async def claim(
        self, holder: str, capacity: int, *, seconds: float = 30.0, skip: Sequence[Summary] = ()
    ) -> Sequence[Lease]:
        """Acquire the leases of at most `capacity` threads that can be resumed, the oldest first.

        Such a thread has an `agent` and no `parent` in its meta, an open run or inbox items, and no live lease. If it
        has open questions, one has expired, or an answer is in the inbox. Threads that have not changed since the
        summaries in `skip` are left out. Each lease has the thread in `head`. Two servers never claim the same thread.
        """
