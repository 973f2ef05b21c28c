"""The response types of the HTTP API.

The server serializes them, and its OpenAPI document is generated from them. `wick.client` parses them: it ignores
unknown fields, and accepts unknown values of an `Open` field, so it can read the responses of a later server. The
hosts of the command line return them for agents of this process, too. Request bodies are defined beside their routes.
"""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetPydanticSchema,
    JsonValue,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

# For type checkers the values are Any, so that programs can read them without casts.
JsonObject = Annotated[
    dict[str, Any], GetPydanticSchema(lambda _, handler: handler.generate_schema(dict[str, JsonValue]))
]

Choice = Literal["allow", "deny", "allow_session", "allow_always", "allow_source", "allow_step", "deny_step"]
RunStatus = Literal["queued", "running", "waiting", "interrupted", "ended"]
UserRole = Literal["user", "operator", "admin"]
AgentOrigin = Literal["file", "code", "created"]
BackendStatus = Literal["idle", "launching", "launched", "error"]
GuardVerdict = Literal["allow", "ask", "block"]
PermissionMode = Literal["default", "plan", "acceptEdits", "bypassPermissions", "dontAsk"]


def _accept_unknown_string(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        if isinstance(value, str):
            return value
        raise


Open = WrapValidator(_accept_unknown_string)  # an enumeration that later servers may extend


class ResponseModel(BaseModel):
    """Base class of the types. Their validators are built on first use: it takes longer than the rest of an import."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class ErrorDetail(ResponseModel):
    """A code for programs and a message for people."""

    code: str
    message: str


class RequestError(ErrorDetail):
    """Why a request was refused."""

    fields: dict[str, str] = Field(
        default_factory=dict, description="messages by the path of a field of the request, such as `permissions.mode`"
    )


class ErrorBody(ResponseModel):
    """The body of every error response."""

    error: RequestError


# -- messages and threads ---------------------------------------------------------------------------------------------


class TokenUsage(ResponseModel):
    """Token counts of model calls."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0


class MessagePart(ResponseModel):
    """A part of a message: text, an image, audio or a file."""

    type: Literal["text", "image", "audio", "file"]
    text: str | None = None
    url: str | None = None
    data: str | None = None
    media_type: str | None = None
    name: str | None = None


class ProgramCall(ResponseModel):
    """A tool call that a program of the model made; `output` is null while it is pending."""

    id: str
    name: str
    args: JsonObject
    lines: list[int] = Field(description="the first and the last line of the call in the program")
    output: str | None = Field(None, description="its result, or the reason why it failed; null while it is pending")
    failed: bool = False
    ms: float | None = None
    denied_by: str = Field("", description="the hook or the user that denied it")


class MessageToolCall(ResponseModel):
    """A tool call of the model; `invalid` says why its arguments could not be parsed."""

    id: str
    name: str
    args: JsonObject
    invalid: str | None = None
    child: str = Field("", description="the thread of the subagent that ran for it")
    calls: list[ProgramCall] = Field([], description="the tool calls that its program made")


class MessageReasoning(ResponseModel):
    """Reasoning text of the model."""

    text: str = ""
    signature: str = ""
    provider: str = ""


class MessageLabel(ResponseModel):
    """The label of a message: its trust, its private sources, and the entries that it was made from."""

    trusted: bool = Field(description="without untrusted text")
    private: list[str] = Field([], description="the private sources that were read")
    sources: list[int] = Field([], description="the entries that the message was made from")


class ThreadMessage(ResponseModel):
    """A message of a conversation; `seq` is its entry in the thread's log, `at` the time in seconds since 1970.

    `run` is the run of the message. For the result of a tool, `failed` marks an error, `denied_by` is the hook or the
    user that denied the call, and `ms` is the duration. `cut` marks a reply whose run was cancelled before its end.
    `branches` has the entries of the messages that were sent in the place of this one, itself included, the earliest
    first; it is empty if there are no others. `label` is set by information flow.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[MessagePart]
    tool_calls: list[MessageToolCall] = []
    tool_call_id: str = ""
    name: str = ""
    reasoning: list[MessageReasoning] = []
    failed: bool = False
    denied_by: str = ""
    cut: bool = False
    seq: int | None = None
    at: float = 0.0
    run: str = ""
    ms: float | None = None
    branches: list[int] = []
    label: MessageLabel | None = Field(None, description="the label, if the agent has information flow")

    @property
    def text(self) -> str:
        """Return the text, without images and files."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text or "" for part in self.content if part.type == "text")


class RunEnd(ResponseModel):
    """The outcome of a run, and the entry that records it."""

    run: str
    seq: int
    at: float
    outcome: str
    reason: str
    error: ErrorDetail | None = None


class TodoItem(ResponseModel):
    """An item of a todo list."""

    id: str
    title: str
    status: Literal["pending", "in_progress", "done"]


class ThreadFile(ResponseModel):
    """A file of a thread that is binary, or too large for the log."""

    content: str | None = None
    encoding: str | None = None
    size: int | None = None


class ThreadContent(ResponseModel):
    """The messages and values of a thread."""

    messages: list[ThreadMessage]
    todos: list[TodoItem] = []
    files: dict[str, str | ThreadFile] = {}
    tasks: JsonObject = Field({}, description="results of background tasks, by task id")
    ends: list[RunEnd] = Field([], description="the outcome of each run, the earliest first")


class InvokeResult(ThreadContent):
    """The result of a run: `response` is its last reply, `cost` is in dollars, or null if prices are unknown.

    `outcome` is completed, stopped, cancelled, or interrupted while the run waits for an answer.
    """

    thread_id: str
    run_id: str
    response: str
    outcome: str
    reason: str
    usage: TokenUsage
    cost: float | None = None


class ThreadInfo(ResponseModel):
    """A thread, without its messages."""

    id: str
    title: str
    agent_id: str
    meta: JsonObject
    created: float
    updated: float
    last: int = Field(description="the number of its last entry")
    run_id: str = Field("", description="the run that has started and not ended")
    running: bool = Field(False, description="whether a process holds the lease of the thread")
    asking: int = Field(0, description="the number of pending questions")
    queued: int = Field(0, description="the number of queued messages")

    @property
    def agent(self) -> str:
        """Return the id of the agent, or its name if a command created the thread."""
        return self.agent_id or str(self.meta.get("agent_name", ""))

    @property
    def folder(self) -> str:
        """Return the working folder of the command that created the thread, or an empty string."""
        return str(self.meta.get("folder", ""))


class UnreadMessage(ResponseModel):
    """A queued message, which the run reads before its next step."""

    position: int
    message: ThreadMessage


class ThreadDetail(ThreadInfo, ThreadContent):
    """A thread with its messages."""

    usage: TokenUsage = TokenUsage()
    unheard: list[UnreadMessage] = Field([], description="queued messages, in their order")


class ThreadPage(ResponseModel):
    """A page of threads; `next` is the cursor of the next page, empty on the last."""

    threads: list[ThreadInfo]
    next: str = ""


class SearchHit(ResponseModel):
    """A message found by a search."""

    thread_id: str
    title: str
    seq: int
    at: float
    text: str


class SearchHits(ResponseModel):
    """The messages found by a search, the newest first."""

    hits: list[SearchHit]


class ShareInfo(ResponseModel):
    """A link to a thread."""

    id: str = Field(description="to revoke the link")
    created: float = Field(description="when it was created, in seconds since 1970")
    last: int = Field(description="the number of the last entry that it shows")


class NewShare(ShareInfo):
    """A new link to a thread. The secret is returned once."""

    secret: str = Field(description="the part of the link after `#share=`")
    path: str = Field(description="of the link, below the address of the server")


class ShareList(ResponseModel):
    """The links to a thread, the latest first."""

    shares: list[ShareInfo] = Field(description="the links, without their secrets")


class SharedThread(ResponseModel):
    """A thread as a link shows it, without reasoning, system prompts and messages of hooks."""

    title: str = Field(description="the title of the thread")
    created: float = Field(description="when the link was created; later messages are not shown")
    messages: list[ThreadMessage] = Field(description="the messages up to then")


class ThreadMatch(ResponseModel):
    """A message of a thread that contains a text. A tool result counts for the message with its call."""

    seq: int = Field(description="the number of its entry")
    role: str = Field(description="of the message with the text")
    text: str = Field(description="the text around the match")


class ThreadMatches(ResponseModel):
    """The messages of a thread that contain a text, in their order."""

    matches: list[ThreadMatch] = Field(description="at most 1,000 messages")
    more: bool = Field(False, description="whether there are further matches")


class QueuedMessage(ResponseModel):
    """A stored message of a thread; `run_id` is the run that answers it, `position` its position in the queue."""

    thread_id: str
    run_id: str
    position: int


class LogEntry(ResponseModel):
    """One entry of a log."""

    seq: int
    kind: str
    at: float
    data: JsonValue


class ThreadExport(ResponseModel):
    """The complete log of a thread."""

    model_config = ConfigDict(populate_by_name=True)
    version: int = Field(alias="schema")
    id: str
    entries: list[LogEntry]


# -- runs -------------------------------------------------------------------------------------------------------------


class RunState(ResponseModel):
    """A run: `state` is queued, running, waiting for an answer, interrupted until it is resumed, or ended."""

    id: str
    thread_id: str
    agent_id: str
    state: Annotated[RunStatus, Open]
    outcome: str = ""
    reason: str = ""
    started: float
    ended: float | None = None
    usage: TokenUsage = TokenUsage()
    cost: float | None = Field(None, description="in dollars; null if a price is not known")
    error: ErrorDetail | None = None


class ThreadRun(ResponseModel):
    """A run of a thread, with its first and last entry; `last` is null while it is running."""

    model_config = ConfigDict(frozen=False)  # completed as the log is read
    run_id: str
    first: int
    last: int | None = None
    started: float
    ended: float | None = None
    outcome: str = ""
    reason: str = ""
    traced: bool = Field(description="whether the run has a trace")


class ThreadRuns(ResponseModel):
    """The runs of a thread, the earliest first."""

    runs: list[ThreadRun]


class HookVerdict(ResponseModel):
    """The verdict of one hook. Verdicts that allow are known as long as the run's trace is stored."""

    hook: str
    position: str
    verdict: str
    reason: str = ""
    ms: float = 0.0
    changed: JsonObject | None = None
    shadow: bool = False


class SpanEvent(ResponseModel):
    """An event that was recorded during a span."""

    name: str
    attributes: JsonObject = {}


class TraceSpan(ResponseModel):
    """One operation of a run: `start` in seconds since 1970, its duration, and the verdicts of hooks."""

    model_config = ConfigDict(frozen=False)  # the cost is added later
    name: str
    start: float
    ms: float | None = None
    cost: float | None = Field(None, description="of a model call, in dollars; null if the price is not known")
    attributes: JsonObject = {}
    error: str = ""
    events: list[SpanEvent] = []
    why: list[HookVerdict] = []
    children: list[TraceSpan] = []


class RunTrace(ResponseModel):
    """The spans of a run; `left_out` counts those beyond the limit."""

    run: str
    thread_id: str
    agent: str
    spans: list[TraceSpan]
    left_out: int = 0


class CallMessage(ThreadMessage):
    """A message of a model request. `seq` is 0 if it is not in the thread: a hook has added or changed it."""

    is_new: bool = Field(True, description="whether the request before in this run did not have it")


class CallContent(ResponseModel):
    """The full request and reply of a model call."""

    thread_id: str = Field(description="the thread of the run, or of the child run")
    system: str = Field(description="the system prompt; empty if it is not stored")
    system_changed: bool = Field(description="whether it differs from the request before")
    settings: JsonObject = Field(description="the settings of the request, such as the temperature")
    tools: list[str] = Field(description="names of the tools that were offered")
    messages: list[CallMessage] = Field(description="the messages of the request, in their order")
    reply: CallMessage | None = Field(None, description="null if the call has failed")


class CallQuestion(ResponseModel):
    """A question to the user about a tool call, and the answer; `allowed` is null while it is pending."""

    model_config = ConfigDict(frozen=False)  # completed as the log is read
    id: str
    question: str
    args: JsonObject = Field({}, description="the sealed arguments, after all changes by hooks")
    at: float
    allowed: bool | None = None
    reason: str = ""
    scope: str = ""
    by: str = ""
    answered_at: float | None = None


class CallAttempt(ResponseModel):
    """One start of the tool, with exactly these arguments; `ended` is unknown until its end is logged."""

    model_config = ConfigDict(frozen=False)  # completed as the log is read
    number: int
    args: JsonObject
    hash: str
    at: float
    ended: str = "unknown"


class CallReasons(ResponseModel):
    """The verdicts, questions and attempts of one tool call. `args` are those of the model's call.

    `result` is null while the call is pending.
    """

    model_config = ConfigDict(frozen=False)  # completed as the log is read
    thread_id: str
    run_id: str
    call_id: str
    tool: str
    args: JsonObject
    seq: int
    invalid: str = ""
    verdicts: list[HookVerdict] = []
    questions: list[CallQuestion] = []
    attempts: list[CallAttempt] = []
    result: str | None = None
    result_seq: int | None = None


# -- approvals --------------------------------------------------------------------------------------------------------


class ShellCommands(ResponseModel):
    """The commands and files of a shell script; `opaque` names the parts that could not be parsed."""

    commands: list[str]
    reads: list[str]
    writes: list[str]
    opaque: list[str]


class Approval(ResponseModel):
    """A pending question about one operation; `hash` identifies the operation.

    For the tool `ask_user`, `about` has its `kind`, `options` and `default`.
    """

    id: str
    thread_id: str
    agent_id: str
    title: str
    run_id: str = ""
    question: str
    operation: str = ""
    tool: str = ""
    call_id: str = ""
    args: JsonObject | None = None
    shell: ShellCommands | None = Field(None, description="of a shell command, the commands that it would run")
    rules: list[str] = Field([], description="allow rules that an answer `allow_session` may include")
    about: JsonObject = Field({}, description="further fields of the question")
    hash: str = ""
    expires: float | None = Field(None, description="when it expires, in seconds since 1970")


class ApprovalList(ResponseModel):
    """The pending questions."""

    approvals: list[Approval]


class ApprovalReceipt(ResponseModel):
    """The question that was answered, and the choice."""

    id: str
    thread_id: str
    choice: str


# -- agents -----------------------------------------------------------------------------------------------------------


class AgentInfo(ResponseModel):
    """An agent. `origin` is the config `file`, `code`, or `created` over HTTP."""

    agent_id: str
    name: str
    model: str
    origin: Annotated[AgentOrigin, Open]
    shared: bool = Field(description="whether all users have it")
    hooks: list[str] = Field(description="the enabled capabilities, outermost first")


class AgentList(ResponseModel):
    """The agents of a user."""

    agents: list[AgentInfo]


class ModelChoice(ResponseModel):
    """A model that a run may use in place of the agent's own."""

    name: str
    source: Annotated[Literal["key", "environment", "config"], Open] = Field(
        description="why it is allowed: a stored `key`, a key in the `environment`, or the setting `models` (`config`)"
    )


class ModelChoices(ResponseModel):
    """The models that a run may use."""

    models: list[ModelChoice]


class ProviderInfo(ResponseModel):
    """A provider of models. Its key is never returned."""

    provider: str
    source: Annotated[Literal["stored", "environment", "none"], Open] = Field(
        description="where its key is: `stored` in the settings, in the `environment`, or `none`"
    )
    problem: str = Field(description="why a stored key cannot be used, or empty")
    base_url: str = Field(description="an address in place of the provider's own")
    models: list[str] = Field(description="the models that users may choose")
    example: str = Field(description="a model of the provider")
    by: str = Field(description="the admin who stored the key")
    at: float | None = Field(description="when the key was stored, in seconds since 1970")


class ProviderList(ResponseModel):
    """The providers, and why keys cannot be stored, if so."""

    providers: list[ProviderInfo]
    problem: str = Field(description="why no key can be stored on this server, or empty")


class ProviderTest(ResponseModel):
    """The outcome of a small request to a provider."""

    ok: bool
    model: str
    message: str = Field(description="the beginning of the reply, or why the request failed")
    seconds: float


class ToolInfo(ResponseModel):
    """A tool of an agent, as the model sees it."""

    name: str
    description: str
    kind: str
    read_only: bool
    source: str = Field(description="the capability that adds it, `builtin`, or `server` if it was registered there")
    parameters: JsonObject


class ProtectionInfo(ResponseModel):
    """The isolation of commands."""

    level: Annotated[Literal["strong", "weak", "none"], Open]
    by: str
    says: str
    asks: bool = Field(description="whether every command needs an approval")


class BackendInfo(ResponseModel):
    """The backend of an agent. `mode` is `remote` for a container, `sandbox_url` its engine if not the local one."""

    mode: Annotated[Literal["local", "remote"], Open]
    sandbox_url: str | None
    type: str
    workdir: str
    status: Annotated[BackendStatus, Open]
    reason: str
    protection: ProtectionInfo


class ContainerState(ResponseModel):
    """The state of an agent's container."""

    agent_id: str
    status: Annotated[BackendStatus, Open]
    reason: str


class AgentDetail(AgentInfo):
    """An agent with its prompt, tools and backend."""

    system_prompt: str
    context_window: int | None
    answering_model: str = Field(description="the name of the model that answers: with `auto`, the chosen one")
    is_demo: bool = Field(description="whether the offline demo model answers, as there is no key of a provider")
    examples: list[str] = Field(description="prompts to start with, from its config")
    tools: list[ToolInfo]
    missing_tools: list[str] = Field(description="tools that its config names and that are not registered")
    backend: BackendInfo | None


class AgentOptionsInfo(ResponseModel):
    """The options of an agent as in agents.yaml. Secrets are hidden as `•••`."""

    agent_id: str
    revision: int = Field(description="for `If-Match`; 0 if the agent was not created over HTTP")
    shared: bool = Field(description="whether all users have it")
    refused: str = Field(description="why you cannot change it, or empty")
    options: JsonObject = Field(description="the keys of agents.yaml; a hidden value that is sent back is kept")
    yaml: str = Field(description="the same as a file; secrets are variables in it")
    enforced: list[str] = Field(description="the keys that the server enforces, whatever the options say")


class AgentForm(ResponseModel):
    """The options of an agent that you may set, as a JSON Schema for forms."""

    form: JsonObject = Field(description="a JSON Schema; `x-role` is the role that may set a key")
    tools: list[str] = Field(description="the tools that `tools` may name")


class TokenInfo(ResponseModel):
    """A token of a user. The token itself is returned once, when it is created."""

    id: str = Field(description="empty for a token in server.yaml, which is removed there")
    role: Annotated[UserRole, Open]
    note: str = Field(description="what it is for")
    by: str = Field(description="the admin who created it")
    created: float | None


class UserInfo(ResponseModel):
    """A user who has signed in, or has a token."""

    id: str
    name: str
    provider: str = Field(description="`token`, `jwt` or `gateway`")
    tokens: list[TokenInfo]


class UserList(ResponseModel):
    """The users of the server."""

    users: list[UserInfo]


class NewToken(ResponseModel):
    """A new token. It is not stored, and cannot be shown again."""

    id: str
    token: str
    user: UserInfo


class HookRing(ResponseModel):
    """A hook of an operation."""

    hook: str
    capability: str | None
    source: str = Field(description="the key of a capability, the name of a program, or `code`")
    position: str
    point: str
    match: list[str] | None = Field(description="the tools that it applies to; null if a function decides")
    priority: float | None = Field(description="null for a hook that is always outermost")
    timeout: float | None
    inherit: bool
    shadow: bool
    fail: Literal["closed", "open"] = Field(description="whether its failure blocks the operation, or allows it")


class OperationRings(ResponseModel):
    """An operation, its rings outermost first, and the guards at its gate."""

    operation: str
    rings: list[HookRing]
    guards: list[HookRing]


class AgentOnion(ResponseModel):
    """The rings around each operation of an agent."""

    agent_id: str
    operations: list[OperationRings]


class HookInfo(ResponseModel):
    """A capability of an agent, by its key in agents.yaml."""

    name: str
    on: bool
    changed: bool = Field(description="whether it differs from the agent's configuration")
    options: JsonValue = Field(description="its options, without secrets")
    points: list[str] = Field(description="the points of its hooks, such as before_tool_use")
    tools: list[str]
    refused: str = Field(description="why you may not switch it; empty if you may")


class HookList(ResponseModel):
    """The capabilities, outermost first."""

    hooks: list[HookInfo]


class RuleInfo(ResponseModel):
    """A permission rule as it was written; `message` is shown when it decides, `policy` is its rule set."""

    type: Literal["deny", "ask", "allow"]
    rule: str
    message: str
    policy: str


class Grant(ResponseModel):
    """A permanent grant of one tool with exactly these arguments."""

    id: str
    tool: str
    args: JsonObject


class PermissionsInfo(ResponseModel):
    """The permissions of an agent; `mode` applies if no rule matches, and is null for an agent without permissions."""

    agent_id: str
    mode: Annotated[PermissionMode, Open] | None
    rules: list[RuleInfo]
    grants: list[Grant] = Field(description="your permanent grants")


class RunLimits(ResponseModel):
    """The limits of one run; null means unlimited. `cost` is in dollars."""

    steps: int | None
    tokens: int | None
    seconds: float | None
    cost: float | None
    tool_calls: int | None


class BudgetInfo(ResponseModel):
    """A budget shared by several runs. `reserved` amounts are set aside for model calls that are running."""

    name: str
    tokens: int | None
    dollars: float | None
    spent_tokens: int
    spent_dollars: float
    reserved_tokens: int
    reserved_dollars: float


class LimitsInfo(ResponseModel):
    """The limits and budgets of an agent."""

    agent_id: str
    limits: RunLimits | None = Field(description="null if runs are not limited")
    budgets: list[BudgetInfo]


class SkillInfo(ResponseModel):
    """A skill: instructions for a particular task."""

    name: str
    description: str
    path: str
    enabled: bool


class InvalidSkill(ResponseModel):
    """A skill file that cannot be used, and the reason."""

    path: str
    reason: str


class SkillList(ResponseModel):
    """The skills of an agent, and the files that are not valid skills."""

    skills: list[SkillInfo]
    problems: list[InvalidSkill] = Field(default_factory=list)


class AvailableTool(ResponseModel):
    """A tool that an agent's config may name. `kind` is `builtin`, `native` (of the program) or `http`."""

    name: str
    description: str
    kind: Annotated[Literal["builtin", "native", "http"], Open]
    parameters: JsonObject | None = None
    callback_url: str | None = Field(default=None, description="its URL; shown to operators only")
    agents: list[str] = Field(
        default_factory=list, description="the agents that have it without naming it; * means all"
    )
    shared: bool = True


class AvailableTools(ResponseModel):
    """The tools that an agent's config may name."""

    tools: list[AvailableTool]


class ChangedVerdict(ResponseModel):
    """The first tool use of a thread for which the verdict changes."""

    thread_id: str
    title: str
    seq: int
    call_id: str
    tool: str
    args: JsonObject
    recorded: GuardVerdict
    now: GuardVerdict
    reason: str


class ReplayReport(ResponseModel):
    """The result of a replay. `skipped` names tool uses that could not be evaluated.

    `more` is true if some threads were not replayed.
    """

    threads: int
    uses: int
    changes: list[ChangedVerdict]
    skipped: list[str]
    more: bool
    asked: int = Field(0, description="tool uses that the guards ask about now")


# -- files ------------------------------------------------------------------------------------------------------------


class FileEntry(ResponseModel):
    """One entry of a folder."""

    name: str
    type: Annotated[Literal["file", "dir", "link", "other"], Open]
    size: int


class FileListing(ResponseModel):
    """The entries of a folder; `truncated` if there are more."""

    path: str
    entries: list[FileEntry]
    truncated: bool


class FileContent(ResponseModel):
    """Bytes of a file, as text or in base64 (see `encoding`); `truncated` if the file is longer."""

    path: str
    content: str
    encoding: Literal["utf-8", "base64"]
    size: int
    offset: int
    bytes: int
    truncated: bool


class FileWritten(ResponseModel):
    """A file that was written."""

    path: str
    bytes_written: int


class FileMoved(ResponseModel):
    """The new path of a file."""

    path: str


# -- the server and its users -----------------------------------------------------------------------------------------


class CurrentUser(ResponseModel):
    """The user of the token."""

    id: str
    username: str
    role: Annotated[UserRole, Open]


class Ticket(ResponseModel):
    """A ticket for `?ticket=` of one request, and its lifetime in seconds."""

    ticket: str
    expires_in: float


class Health(ResponseModel):
    """The health report of the server."""

    status: Literal["ok"] = "ok"
    agents: int


class Liveness(ResponseModel):
    """The response of a process that serves requests."""

    status: Literal["live"] = "live"


class Readiness(ResponseModel):
    """The response of a server that is ready for requests."""

    status: Literal["ready"] = "ready"


class DrainStatus(ResponseModel):
    """The progress of draining: the runs that the server still performs."""

    status: Literal["draining", "drained"]
    runs: int


class ClusterServer(ResponseModel):
    """A server of a cluster, as its last heartbeat has described it."""

    id: str
    host: str
    version: str
    capacity: int
    running: int
    draining: bool
    heartbeat_age: float
    alive: bool
    address: str = ""
    problem: str = ""


class ClusterStatus(ResponseModel):
    """The servers of a cluster, and the live plane of the server that responds."""

    server_id: str
    live: str
    live_connected: bool
    servers: list[ClusterServer]

    @property
    def is_healthy(self) -> bool:
        """Return True if all servers are alive and in reach, and the live plane is connected."""
        return self.live_connected and all(server.alive and not server.problem for server in self.servers)


class UsageTotals(ResponseModel):
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
    """The usage of one user, model and agent on one day (UTC)."""

    user_id: str
    user: str
    day: date
    agent: str
    model: str


class UsageReport(ResponseModel):
    """Usage by row, the earliest day first, with the total."""

    rows: list[UsageRow]
    total: UsageTotals


class FileDiff(ResponseModel):
    """A change that an undo makes, with the changed lines as a unified diff."""

    path: str
    kind: Literal["created", "deleted", "changed", "mode"]
    diff: str


class OutsideToolUse(ResponseModel):
    """A tool use whose effects an undo does not revert, and the reason."""

    seq: int
    tool: str
    reason: str


class UndoPreview(ResponseModel):
    """The changes that restoring the files of a moment would make, and the tool uses that are not undone."""

    seq: int
    at: float
    changes: list[FileDiff]
    not_undone: list[OutsideToolUse]


class UndoReport(ResponseModel):
    """The paths that were restored, and those that were left as they are, with the reason."""

    seq: int
    entry: int
    restored: list[str]
    left: dict[str, str]
