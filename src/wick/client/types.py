"""Typed responses of the server. Unknown fields of later servers are ignored."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Json = dict[str, Any]


class _Response(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class TokenUsage(_Response):
    """Token counts of model calls."""

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
        """Return the text, without images and files."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part["text"] for part in self.content if part.get("type") == "text")


class InvokeResult(_Response):
    """The result of a run: `response` is its last reply, `cost` is in dollars, or None if prices are unknown."""

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
    """A thread, without its messages."""

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
    """A thread with its messages."""

    messages: list[ThreadMessage]
    todos: list[Json] = []
    files: dict[str, Any] = {}
    usage: TokenUsage = TokenUsage()


class ThreadPage(_Response):
    """A page of threads; `next` is the cursor of the next page, empty on the last."""

    threads: list[ThreadInfo]
    next: str = ""


class SearchHit(_Response):
    """A message found by a search."""

    thread_id: str
    title: str
    seq: int
    at: float
    text: str


class QueuedMessage(_Response):
    """A stored message of a thread; `run_id` is the run that answers it."""

    thread_id: str
    run_id: str
    position: int


class Approval(_Response):
    """A pending question about one operation."""

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
    """An agent: `hooks` are its enabled capabilities."""

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
    """An agent with its prompt, tools and backend."""

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
    """Sums of usage; `questions` counts model calls, and `cost` in dollars omits `unpriced` ones."""

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
    """The usage of one user, model and agent on one day."""

    user_id: str
    user: str
    day: date
    agent: str
    model: str


class UsageReport(_Response):
    """Usage by row, with the total."""

    rows: list[UsageRow]
    total: UsageTotals


class HookVerdict(_Response):
    """The verdict of one hook."""

    hook: str
    position: str
    verdict: str
    reason: str = ""
    ms: float = 0.0
    changed: Json | None = None
    shadow: bool = False


class TraceSpan(_Response):
    """One operation of a run, with its duration and the verdicts of hooks."""

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
    """The verdicts and questions that decided one tool call; `result` is None while it is pending."""

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
    """The user of the token."""

    id: str
    username: str
    role: str


class ThreadRun(_Response):
    """A run of a thread, with its first and last entry; `last` is None while it is running."""

    run_id: str
    first: int
    last: int | None = None
    started: float
    ended: float | None = None
    outcome: str = ""
    reason: str = ""
    traced: bool


class HookRing(_Response):
    """A hook of an operation; `match` are the tools that it applies to."""

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
    """A permanent grant of one tool with exactly these arguments."""

    id: str
    tool: str
    args: Json


class PermissionsInfo(_Response):
    """The permissions of an agent; `mode` applies if no rule matches."""

    agent_id: str
    mode: str | None
    rules: list[RuleInfo]
    grants: list[Grant]


class RunLimits(_Response):
    """The limits of one run; None means unlimited."""

    steps: int | None
    tokens: int | None
    seconds: float | None
    cost: float | None
    tool_calls: int | None


class BudgetInfo(_Response):
    """A budget shared by several runs, with the amounts spent and reserved."""

    name: str
    tokens: int | None
    dollars: float | None
    spent_tokens: int
    spent_dollars: float
    reserved_tokens: int
    reserved_dollars: float


class LimitsInfo(_Response):
    """The limits and budgets of an agent; `limits` is None if it has none."""

    agent_id: str
    limits: RunLimits | None
    budgets: list[BudgetInfo]


class SkillInfo(_Response):
    """A skill: instructions for a particular task."""

    name: str
    description: str
    path: str
    enabled: bool


class ChangedVerdict(_Response):
    """The first tool use of a thread for which the verdict changes."""

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
    """The result of a replay; `more` is True if some threads were not replayed."""

    threads: int
    uses: int
    changes: list[ChangedVerdict]
    skipped: list[str]
    more: bool
