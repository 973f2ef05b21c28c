"""The protocol between commands and agents. Its data types are those of the HTTP API.

    async with open_host(options) as host:
        async for event in (run := host.start_run("What is in this folder?")):
            ...
        outcome = await run.get_outcome()

`LocalHost` runs agents in this process, `RemoteHost` uses a server. Commands use only this protocol, so each of them
works with both. Failures are raised as WickError with a message for the user.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from wick.api.types import (
    AgentDetail,
    AgentInfo,
    Approval,
    Choice,
    OperationRings,
    ReplayReport,
    SkillList,
    ThreadDetail,
    ThreadInfo,
    UndoPreview,
    UndoReport,
)
from wick.events import Event
from wick.hooks import Hook


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The result of a run: `outcome` as in `Result`; `cost` is in dollars, or None if prices are unknown."""

    run: str
    thread: str
    outcome: str
    reason: str
    text: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    cost: float | None = None
    error: str = ""
    code: str = ""  # of the error, such as config_error


class RunHandle(Protocol):
    """A run as an iterator of its events. `run_id` and `thread_id` are set once the first event is read."""

    @property
    def run_id(self) -> str: ...

    @property
    def thread_id(self) -> str: ...

    def __aiter__(self) -> AsyncIterator[Event]: ...

    async def stop(self) -> None:
        """Cancel the run. The iterator still yields its last event, and the thread can be continued."""

    async def get_outcome(self) -> RunOutcome:
        """Return the result of the run; call it after the last event."""


class AgentHost(Protocol):
    """The agents and threads that one user can reach, with one agent selected."""

    @property
    def name(self) -> str:
        """Return the folder, or the URL of the server."""

    @property
    def remote(self) -> bool: ...

    on_break: Callable[[Exception], None] | None  # called before each attempt to reconnect to a server
    hint_options: str  # the options that select this host, to append to a command in a hint

    async def open(self) -> None:
        """Check that the host can be used."""

    async def close(self) -> None: ...

    # agents; the selected one by default

    async def list_agents(self) -> list[AgentInfo]: ...

    async def get_agent(self, id: str = "") -> AgentDetail: ...

    async def list_rings(self, id: str = "") -> list[OperationRings]: ...

    async def list_skills(self, id: str = "") -> SkillList: ...

    async def list_warnings(self, thread: str = "") -> list[str]:
        """Return the warnings to print before the first run (of this thread)."""

    async def use_model(self, model: str) -> str:
        """Use another model from the next run on, and return its name."""

    # runs

    def start_run(self, words: str, *, thread: str = "", recipe: str = "") -> RunHandle:
        """Send a prompt to a new or an existing thread. The run starts with the first iteration."""

    def resume_run(self, thread: str) -> RunHandle:
        """Resume the interrupted run of a thread, or follow the current one."""

    async def steer(self, thread: str, words: str) -> None:
        """Queue a message for the current run, which reads it before its next step."""

    # threads, the latest first

    async def list_threads(
        self, *, limit: int = 50, folder: str = "", asking: bool | None = None
    ) -> list[ThreadInfo]: ...

    async def list_thread_ids(self, prefix: str) -> list[str]:
        """Return the ids that begin with a prefix, also those of subagents."""

    async def get_thread(self, id: str) -> ThreadDetail: ...

    async def fork_thread(self, id: str, at: int | None = None, *, title: str = "") -> ThreadInfo: ...

    async def rename_thread(self, id: str, title: str) -> ThreadInfo: ...

    async def export_thread(self, id: str, format: Literal["json", "markdown"] = "json") -> str: ...

    async def delete_thread(self, id: str) -> None: ...

    async def preview_undo(self, id: str, seq: int | None = None, paths: Sequence[str] = ()) -> UndoPreview:
        """Return the changes of an undo to the moment after an entry; before the last turn by default."""

    async def undo_files(self, id: str, seq: int | None = None, paths: Sequence[str] = ()) -> UndoReport:
        """Restore the files of that moment."""

    # questions

    async def list_approvals(self, thread: str = "") -> list[Approval]: ...

    async def count_hidden_approvals(self) -> int:
        """Return the number of pending questions of programs with other owners, which this host does not list."""

    async def answer_approval(
        self, id: str, choice: Choice, *, words: str = "", args: Mapping[str, Any] | None = None, thread: str = ""
    ) -> str:
        """Answer a question and return its thread. The run continues in the process that holds the thread's lease."""

    async def add_allow_rule(self, rule: str) -> None:
        """Add a permission rule such as `Bash(git *)` to `allow`, from the next run on."""

    # replay

    async def replay(
        self,
        threads: Sequence[str] | None = None,
        *,
        rules: Mapping[Literal["deny", "ask", "allow"], Sequence[str]] | None = None,
        guards: Sequence[Hook] = (),
    ) -> ReplayReport:
        """Pass recorded tool uses to the agent's guards, with additional rules and guards."""
