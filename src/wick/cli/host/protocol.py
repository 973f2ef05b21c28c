"""Where a command finds agents and threads: in this process (`Embedded`), or at a server (`Remote`).

    async with opened(place) as host:
        async for event in (talk := host.start_run("What is in this folder?")):
            ...
        outcome = await run.get_outcome()

Commands know this protocol alone, so each of them works with both. What cannot be done is a WickError, a sentence.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from wick.events import Event
from wick.hooks import Hook

Choice = Literal["allow", "deny", "allow_session", "allow_always"]
Verdict = Literal["allow", "ask", "block"]


# -- what it tells --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AgentRow:
    """An agent: `hooks` are its capabilities."""

    id: str
    name: str
    model: str
    hooks: list[str]


@dataclass(frozen=True, slots=True)
class ToolRow:
    """A tool of an agent."""

    name: str
    description: str
    kind: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class AgentProfile(AgentRow):
    """All about an agent; `protection` says what confines its commands."""

    system_prompt: str = ""
    tools: list[ToolRow] = field(default_factory=list)
    protection: str = ""


@dataclass(frozen=True, slots=True)
class RingRow:
    """A hook where it stands, the outermost first; guards stand innermost. `source` is where it is from."""

    operation: str
    position: str
    hook: str
    source: str
    fail: Literal["closed", "open"]


@dataclass(frozen=True, slots=True)
class SkillRow:
    """Instructions for a particular task; what looks like such, and is none, has a `problem` and is not enabled."""

    name: str
    description: str
    path: str
    enabled: bool
    problem: str = ""


def make_broken_skill(path: str, problem: str) -> SkillRow:
    """What should be a skill, by the name of its folder."""
    return SkillRow(path.rpartition("/")[0].rpartition("/")[2] or path, "", path, False, problem)


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """A thread. `agent` is whose it is, `folder` the folder that a command was called in, where one made it."""

    id: str
    title: str
    agent: str
    folder: str
    created: float
    updated: float
    last: int
    run: str = ""
    running: bool = False
    asking: int = 0
    queued: int = 0


@dataclass(frozen=True, slots=True)
class ThreadTranscript(ThreadRow):
    """A thread, and what was said in it; messages are as `Message.to_json` has them, with their `seq`."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    todos: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """A question that waits for an answer. One of `ask_user` has its `kind`, `options` and `default` in `about`."""

    id: str
    thread: str
    agent: str
    title: str
    run: str
    question: str
    operation: str = ""
    tool: str = ""
    call_id: str = ""
    args: dict[str, Any] | None = None
    about: dict[str, Any] = field(default_factory=dict)
    expires: float | None = None


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What a run came to: `outcome` as in `Result`; `cost` is in dollars, where that is known."""

    run: str
    thread: str
    outcome: str
    reason: str
    text: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    cost: float | None = None
    error: str = ""
    code: str = ""  # of the error, such as config_error


@dataclass(frozen=True, slots=True)
class ReplayChange:
    """A tool use about which other guards say something else: the first one of its thread."""

    thread: str
    title: str
    seq: int
    call_id: str
    tool: str
    args: dict[str, Any]
    recorded: Verdict
    now: Verdict
    reason: str


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What came of a replay; `more` says that there are threads which were not looked at."""

    threads: int
    uses: int
    changes: list[ReplayChange]
    skipped: list[str]
    more: bool = False


# -- what can be done there -----------------------------------------------------------------------------------------


class RunHandle(Protocol):
    """A run that is being read: its events, once, to its end. `run_id` and `thread_id` are known from the first on."""

    @property
    def run_id(self) -> str: ...

    @property
    def thread_id(self) -> str: ...

    def __aiter__(self) -> AsyncIterator[Event]: ...

    async def stop(self) -> None:
        """End the run; its last event comes yet. The thread stays, and can be gone on with."""

    async def get_outcome(self) -> RunOutcome:
        """What it came to, once its events were read."""


class AgentHost(Protocol):
    """A place where agents live, for one user, with the agent that was chosen."""

    @property
    def name(self) -> str:
        """What this place is called: the folder, or the server's address."""

    @property
    def remote(self) -> bool: ...

    on_break: Callable[[Exception], None] | None  # told when the connection to a server is lost, and is tried again

    async def open(self) -> None:
        """See whether this place can be used."""

    async def close(self) -> None: ...

    # agents: that which was chosen, if none is named

    async def list_agents(self) -> list[AgentRow]: ...

    async def get_agent(self, id: str = "") -> AgentProfile: ...

    async def list_rings(self, id: str = "") -> list[RingRow]: ...

    async def list_skills(self, id: str = "") -> list[SkillRow]: ...

    async def list_warnings(self, thread: str = "") -> list[str]:
        """Return a sentence for each thing that the user should know before the first run (of this thread)."""

    async def use_model(self, model: str) -> str:
        """Ask another model from the next run on; says its name."""

    # talking

    def start_run(self, words: str, *, thread: str = "", recipe: str = "") -> RunHandle:
        """Say something, in a new thread or in that one."""

    def resume_run(self, thread: str) -> RunHandle:
        """Go on with the run of a thread that was interrupted, or see the one that goes on."""

    async def steer(self, thread: str, words: str) -> None:
        """Say something to a run that goes on; it hears it at its next step."""

    # threads, the latest first

    async def list_threads(
        self, *, limit: int = 50, folder: str = "", asking: bool | None = None
    ) -> list[ThreadRow]: ...

    async def get_thread(self, id: str) -> ThreadTranscript: ...

    async def fork_thread(self, id: str, at: int | None = None, *, title: str = "") -> ThreadRow: ...

    async def rename_thread(self, id: str, title: str) -> ThreadRow: ...

    async def export_thread(self, id: str, format: Literal["json", "markdown"] = "json") -> str: ...

    async def delete_thread(self, id: str) -> None: ...

    # questions

    async def list_approvals(self, thread: str = "") -> list[PendingApproval]: ...

    async def answer_approval(
        self, id: str, choice: Choice, *, words: str = "", args: Mapping[str, Any] | None = None, thread: str = ""
    ) -> str:
        """Answer a question; says the thread. At a server its run goes on; here, that of whoever holds the thread."""

    async def add_allow_rule(self, rule: str) -> None:
        """Allow what a permission rule is for, such as `Bash(git *)`, from the next run on."""

    # what other guards would have said

    async def replay(
        self,
        threads: Sequence[str] | None = None,
        *,
        rules: Mapping[Literal["deny", "ask", "allow"], Sequence[str]] | None = None,
        guards: Sequence[Hook] = (),
    ) -> ReplayResult:
        """Put recorded tool uses before the agent's guards, with more rules and more guards."""
