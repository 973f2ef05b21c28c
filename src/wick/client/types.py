"""What a server answers. Whatever a later server says beside this is left out."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Json = dict[str, Any]


class _Response(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class TokenUsage(_Response):
    """What was used of a model."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0


class ThreadMessage(_Response):
    """A message of a conversation; `seq` is its entry in the thread's log."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[Json]
    tool_calls: list[Json] = []
    tool_call_id: str = ""
    name: str = ""
    failed: bool = False
    seq: int | None = None

    @property
    def text(self) -> str:
        """The text of it, without pictures and files."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part["text"] for part in self.content if part.get("type") == "text")


class InvokeResult(_Response):
    """What a run came to: `response` is its last reply, `cost` is in dollars where prices are known."""

    thread_id: str
    run_id: str
    response: str
    outcome: str
    reason: str
    messages: list[ThreadMessage]
    todos: list[Json] = []
    files: dict[str, Any] = {}
    usage: TokenUsage = TokenUsage()
    cost: float | None = None


class RunState(_Response):
    """A run: `state` is queued, running, waiting, interrupted or ended."""

    id: str
    thread_id: str
    agent_id: str
    state: str
    outcome: str = ""
    reason: str = ""
    started: float
    ended: float | None = None
    usage: TokenUsage = TokenUsage()
    cost: float | None = None
    error: Json | None = None


class ThreadInfo(_Response):
    """A thread, without what was said in it."""

    id: str
    title: str
    agent_id: str
    meta: Json = {}
    created: float
    updated: float
    last: int
    run_id: str = ""
    running: bool = False
    asking: int = 0
    queued: int = 0


class ThreadDetail(ThreadInfo):
    """A thread, and what was said in it."""

    messages: list[ThreadMessage]
    todos: list[Json] = []
    files: dict[str, Any] = {}
    usage: TokenUsage = TokenUsage()


class ThreadPage(_Response):
    """Some threads; `next` is the cursor of the next ones, empty if these were the last."""

    threads: list[ThreadInfo]
    next: str = ""


class SearchHit(_Response):
    """A message that was searched for."""

    thread_id: str
    title: str
    seq: int
    at: float
    text: str


class QueuedMessage(_Response):
    """What was said to a thread is kept; `run_id` is the run that answers it."""

    thread_id: str
    run_id: str
    position: int


class Approval(_Response):
    """A question that waits for an answer, about exactly one thing that is to be done."""

    id: str
    thread_id: str
    agent_id: str
    title: str = ""
    run_id: str = ""
    question: str
    operation: str = ""
    tool: str = ""
    call_id: str = ""
    args: Json | None = None
    about: Json = {}
    expires: float | None = None


class AgentInfo(_Response):
    """An agent: `hooks` are the capabilities that are on."""

    agent_id: str
    name: str
    model: str
    origin: str
    shared: bool
    hooks: list[str]


class ToolInfo(_Response):
    """A tool of an agent."""

    name: str
    description: str
    kind: str = ""
    read_only: bool = False
    parameters: Json = {}


class AgentDetail(AgentInfo):
    """All that a user may know of an agent."""

    system_prompt: str
    context_window: int | None = None
    tools: list[ToolInfo]
    missing_tools: list[str] = []
    backend: Json | None = None


class FileEntry(_Response):
    """One entry of a folder: `type` is file, dir, link or other."""

    name: str
    type: str
    size: int


class UsageTotals(_Response):
    """An amount of use; `cost` is in dollars and leaves out `unpriced` questions."""

    runs: int
    questions: int
    unpriced: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    cache_write_tokens: int
    cost: float


class UsageRow(UsageTotals):
    """What one user used of one model through one agent on one day."""

    user_id: str
    user: str
    day: date
    agent: str
    model: str


class UsageReport(_Response):
    """The rows, and all of them together."""

    rows: list[UsageRow]
    total: UsageTotals


class HookVerdict(_Response):
    """What one hook said."""

    hook: str
    position: str
    verdict: str
    reason: str = ""
    ms: float = 0.0
    changed: Json | None = None
    shadow: bool = False


class TraceSpan(_Response):
    """One operation of a run: how long it took, and what hooks said about it."""

    name: str
    start: float
    ms: float | None = None
    cost: float | None = None
    attributes: Json = {}
    error: str = ""
    events: list[Json] = []
    why: list[HookVerdict] = []
    children: list[TraceSpan] = []


class RunTrace(_Response):
    """The spans of a run."""

    run: str
    thread_id: str
    agent: str
    spans: list[TraceSpan]
    left_out: int = 0


class CallReasons(_Response):
    """All that decided about one tool call; `result` is None while it waits."""

    thread_id: str
    run_id: str
    call_id: str
    tool: str
    args: Json
    seq: int
    invalid: str = ""
    verdicts: list[HookVerdict] = []
    questions: list[Json] = []
    attempts: list[Json] = []
    result: str | None = None


class CurrentUser(_Response):
    """Who asks."""

    id: str
    username: str
    role: str


class ThreadRun(_Response):
    """A run of a thread: its first entry in the log and its last, which is None while it goes on."""

    run_id: str
    first: int
    last: int | None = None
    started: float
    ended: float | None = None
    outcome: str = ""
    reason: str = ""
    traced: bool


class HookRing(_Response):
    """A hook where it stands; `match` are the tools that it is for."""

    hook: str
    capability: str | None
    source: str
    position: str
    point: str
    match: list[str] | None
    priority: float | None
    timeout: float | None
    inherit: bool
    shadow: bool
    fail: Literal["closed", "open"]


class OperationRings(_Response):
    """An operation, its rings outermost first, and the guards at its gate."""

    operation: str
    rings: list[HookRing]
    guards: list[HookRing]


class HookInfo(_Response):
    """A capability of an agent, by its key in agents.yaml."""

    name: str
    on: bool
    changed: bool
    options: Any
    points: list[str]
    tools: list[str]
    refused: str


class RuleInfo(_Response):
    """A permission rule as it was written."""

    type: Literal["deny", "ask", "allow"]
    rule: str
    message: str
    policy: str


class Grant(_Response):
    """A tool that may be used with exactly these arguments."""

    id: str
    tool: str
    args: Json


class PermissionsInfo(_Response):
    """What an agent may do; `mode` decides where no rule does."""

    agent_id: str
    mode: str | None
    rules: list[RuleInfo]
    grants: list[Grant]


class RunLimits(_Response):
    """What one run may take; None is no limit."""

    steps: int | None
    tokens: int | None
    seconds: float | None
    cost: float | None
    tool_calls: int | None


class BudgetInfo(_Response):
    """A sum for all runs of everyone who shares it, and what is left of it."""

    name: str
    tokens: int | None
    dollars: float | None
    spent_tokens: int
    spent_dollars: float
    reserved_tokens: int
    reserved_dollars: float


class LimitsInfo(_Response):
    """What a run of an agent may take; `limits` is None if nothing limits it."""

    agent_id: str
    limits: RunLimits | None
    budgets: list[BudgetInfo]


class SkillInfo(_Response):
    """Instructions for a particular task."""

    name: str
    description: str
    path: str
    enabled: bool


class ChangedVerdict(_Response):
    """A tool use about which something else would be said: the first one of its thread."""

    thread_id: str
    title: str
    seq: int
    call_id: str
    tool: str
    args: Json
    recorded: Literal["allow", "ask", "block"]
    now: Literal["allow", "ask", "block"]
    reason: str


class ReplayReport(_Response):
    """What came of a replay; `more` says that there are threads which were not looked at."""

    threads: int
    uses: int
    changes: list[ChangedVerdict]
    skipped: list[str]
    more: bool
