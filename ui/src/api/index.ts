/** Everything the UI asks of the server, with the types of its OpenAPI document. */

import { call, buildPath, buildQuery, request, serverUrl } from "./http";
import type { components } from "./schema";
import { type Frame, readFrames } from "./sse";

type Schemas = components["schemas"];
export type Me = Schemas["CurrentUser"];
export type AgentSummary = Schemas["AgentInfo"];
export type AgentDetail = Schemas["AgentDetail"];
export type Thread = Schemas["ThreadInfo"];
export type ThreadDetail = Schemas["ThreadDetail"];
export type Message = Schemas["ThreadMessage"];
export type ProgramCall = Schemas["ProgramCall"];
export type MessageLabel = Schemas["MessageLabel"];
export type MessageIn = Schemas["MessageIn"];
export type Part = Schemas["MessagePart"];
export type Media = Schemas["MediaIn"];
export type Skill = Schemas["SkillInfo"];
export type Run = Schemas["RunState"];
export type Approval = Schemas["Approval"];
export type Decision = Schemas["Decision"];
export type Hit = Schemas["SearchHit"];
export type Onion = Schemas["AgentOnion"];
export type HookInfo = Schemas["HookInfo"];
export type HookChange = Schemas["HookChange"];
export type BackendInfo = Schemas["BackendInfo"];
export type BackendChange = Schemas["BackendChange"];
export type SkillList = Schemas["SkillList"];
export type AvailableTool = Schemas["AvailableTool"];
export type Trace = Schemas["RunTrace"];
export type Reasons = Schemas["CallReasons"];
export type UndoPreview = Schemas["UndoPreview"];
export type UsageReport = Schemas["UsageReport"];
export type UsageRow = Schemas["UsageRow"];
export type Permissions = Schemas["PermissionsInfo"];
export type Limits = Schemas["LimitsInfo"];
export type Budget = Schemas["BudgetInfo"];
export type ThreadRun = Schemas["ThreadRun"];
export type ReplayRequest = Schemas["ReplayRequest"];
export type ReplayReport = Schemas["ReplayReport"];
export type EvalReportInfo = Schemas["EvalReportInfo"];
export type EvalReport = Schemas["EvalReport"];
export type EvalCaseRow = Schemas["EvalCaseRow"];
export type EvalCaseResult = Schemas["EvalCaseResult"];
export type EvalCall = Schemas["EvalCall"];
export type ClusterServer = Schemas["ClusterServer"];
export type ClusterStatus = Schemas["ClusterStatus"];
export type FileListing = Schemas["FileListing"];
export type FileContent = Schemas["FileContent"];

export const auth = {
  me: () => call<Me>("GET", "/auth/me"),
  signIn: (body: Schemas["SignIn"]) => call<Me>("POST", "/auth/session", { body }),
  signOut: () => call<void>("DELETE", "/auth/session"),
  ticket: () => call<Schemas["Ticket"]>("POST", "/auth/tickets"),
};

export const agents = {
  list: () => call<Schemas["AgentList"]>("GET", "/agents/"),
  get: (id: string) => call<AgentDetail>("GET", buildPath`/agents/${id}`),
  onion: (id: string) => call<Onion>("GET", buildPath`/agents/${id}/onion`),
  hooks: (id: string) => call<Schemas["HookList"]>("GET", buildPath`/agents/${id}/hooks`),
  changeHooks: (id: string, body: HookChange) =>
    call<Schemas["HookList"]>("PATCH", buildPath`/agents/${id}/hooks`, { body }),
  skills: (id: string) => call<SkillList>("GET", buildPath`/agents/${id}/skills`),
  switchSkill: (id: string, body: Schemas["SkillChange"]) =>
    call<SkillList>("PATCH", buildPath`/agents/${id}/skills`, { body }),
  switchBackend: (id: string, body: BackendChange) =>
    call<BackendInfo | null>("PATCH", buildPath`/agents/${id}/backend`, { body }),
  backend: (id: string) => call<BackendInfo | null>("GET", buildPath`/agents/${id}/backend`),
  container: (id: string, action: "stop" | "restart") =>
    call<Schemas["ContainerState"]>("POST", buildPath`/agents/${id}/container`, { body: { action } }),
  tools: () => call<Schemas["AvailableTools"]>("GET", "/agents/tools/available"),
  permissions: (id: string) => call<Permissions>("GET", buildPath`/agents/${id}/permissions`),
  revoke: (id: string, grant: string) => call<void>("DELETE", buildPath`/agents/${id}/permissions/grants/${grant}`),
  limits: (id: string) => call<Limits>("GET", buildPath`/agents/${id}/limits`),
};

export const threads = {
  list: (cursor = "", limit = 50) => call<Schemas["ThreadPage"]>("GET", `/threads${buildQuery({ cursor, limit })}`),
  search: (q: string) => call<Schemas["SearchHits"]>("GET", `/threads/search${buildQuery({ q })}`),
  get: (id: string) => call<ThreadDetail>("GET", buildPath`/threads/${id}`),
  find: (id: string, q: string, signal: AbortSignal) =>
    call<Schemas["ThreadMatches"]>("GET", buildPath`/threads/${id}/search` + buildQuery({ q }), { signal }),
  rename: (id: string, title: string) => call<Thread>("PATCH", buildPath`/threads/${id}`, { body: { title } }),
  remove: (id: string) => call<void>("DELETE", buildPath`/threads/${id}`),
  fork: (id: string, at?: number, agent = "") =>
    call<Thread>("POST", buildPath`/threads/${id}/fork`, {
      body: { ...(at === undefined ? {} : { at }), ...(agent ? { agent_id: agent } : {}) },
    }),
  rewind: (id: string, to: number) => call<ThreadDetail>("POST", buildPath`/threads/${id}/rewind`, { body: { to } }),
  switchBranch: (id: string, to: number) =>
    call<ThreadDetail>("POST", buildPath`/threads/${id}/switch`, { body: { to } }),
  fileChanges: (id: string, seq: number) =>
    call<UndoPreview>("GET", buildPath`/threads/${id}/files` + buildQuery({ seq })),
  restoreFiles: (id: string, seq: number, paths: string[]) =>
    call<Schemas["UndoReport"]>("POST", buildPath`/threads/${id}/files/restore`, { body: { seq, paths } }),
  say: (id: string, messages: MessageIn[], key: string) =>
    call<Schemas["QueuedMessage"]>("POST", buildPath`/threads/${id}/messages`, {
      body: { messages },
      headers: { "Idempotency-Key": key },
    }),
  why: (id: string, callId: string) => call<Reasons>("GET", buildPath`/threads/${id}/calls/${callId}/why`),
  runs: (id: string) => call<Schemas["ThreadRuns"]>("GET", buildPath`/threads/${id}/runs`),
  markdown: async (id: string) =>
    (await request("GET", buildPath`/threads/${id}/export` + buildQuery({ format: "markdown" }))).text(),
  exportUrl: (id: string, format: "json" | "markdown") =>
    serverUrl(buildPath`/threads/${id}/export` + buildQuery({ format })),
};

export const shares = {
  list: (thread: string) => call<Schemas["ShareList"]>("GET", buildPath`/threads/${thread}/shares`),
  create: (thread: string) => call<Schemas["NewShare"]>("POST", buildPath`/threads/${thread}/shares`),
  revoke: (thread: string, id: string) => call<void>("DELETE", buildPath`/threads/${thread}/shares/${id}`),
  read: (secret: string) => call<Schemas["SharedThread"]>("POST", "/shared", { body: { secret } }),
};

export const runs = {
  get: (id: string) => call<Run>("GET", buildPath`/runs/${id}`),
  cancel: (id: string) => call<Run>("POST", buildPath`/runs/${id}/cancel`),
  call: (id: string, span: string) => call<Schemas["CallContent"]>("GET", buildPath`/runs/${id}/spans/${span}`),
  trace: (id: string) => call<Trace>("GET", buildPath`/runs/${id}/trace`),
};

export const approvals = {
  list: (thread = "") => call<Schemas["ApprovalList"]>("GET", `/approvals${buildQuery({ thread_id: thread })}`),
  answer: (id: string, body: Decision) =>
    call<Schemas["ApprovalReceipt"]>("POST", buildPath`/approvals/${id}`, { body }),
};

/** `thread` selects the thread where files are data of a conversation. */
export const files = {
  list: (agent: string, at = ".", thread = "") =>
    call<FileListing>("GET", buildPath`/agents/${agent}/files/list` + buildQuery({ path: at, thread_id: thread })),
  read: (agent: string, at: string, thread = "") =>
    call<FileContent>("GET", buildPath`/agents/${agent}/files/read` + buildQuery({ path: at, thread_id: thread })),
  size: async (agent: string, at: string, thread = "") =>
    (
      await call<FileContent>(
        "GET",
        buildPath`/agents/${agent}/files/read` + buildQuery({ path: at, thread_id: thread, limit: 0 }),
      )
    ).size,
  bytes: async (agent: string, at: string, thread = "") =>
    (await request("GET", downloadPath(agent, at, thread))).blob(),
  write: (agent: string, body: Schemas["FileWrite"]) =>
    call<Schemas["FileWritten"]>("PUT", buildPath`/agents/${agent}/files/write`, { body }),
  upload: (agent: string, at: string, file: Blob) =>
    call<Schemas["FileWritten"]>("POST", buildPath`/agents/${agent}/files/upload` + buildQuery({ path: at }), {
      raw: file,
      headers: { "Content-Type": "application/octet-stream" },
    }),
  move: (agent: string, source: string, target: string) =>
    call<Schemas["FileMoved"]>("POST", buildPath`/agents/${agent}/files/move`, { body: { source, target } }),
  remove: (agent: string, at: string, recursive = false) =>
    call<void>("DELETE", buildPath`/agents/${agent}/files` + buildQuery({ path: at, recursive })),
  downloadUrl: (agent: string, at: string, thread = "") => serverUrl(downloadPath(agent, at, thread)),
};

const downloadPath = (agent: string, at: string, thread: string): string =>
  buildPath`/agents/${agent}/files/download` + buildQuery({ path: at, thread_id: thread });

export const slides = {
  /** A deck as PowerPoint; its pictures are looked for beside `path`. */
  export: async (agent: string, body: Schemas["SlidesExport"]) =>
    (await request("POST", buildPath`/agents/${agent}/slides/export`, { body })).blob(),
};

export const usage = {
  report: (fields: Record<string, string> = {}) => call<UsageReport>("GET", `/usage${buildQuery(fields)}`),
};

export const replay = (body: ReplayRequest) => call<ReplayReport>("POST", "/replay", { body });

export const evals = {
  list: () => call<Schemas["EvalReportList"]>("GET", "/evals"),
  get: (name: string) => call<EvalReport>("GET", buildPath`/evals/${name}`),
};

export const cluster = () => call<ClusterStatus>("GET", "/cluster");

/** Changes of threads, questions, files and agents, as events. */
export async function openEvents(signal: AbortSignal): Promise<AsyncGenerator<Frame>> {
  return readFrames((await request("GET", "/events", { signal })).body!);
}

export interface Stream {
  run: string;
  thread: string;
  frames: AsyncGenerator<Frame>;
}

export async function openRun(
  agent: string,
  messages: MessageIn[],
  thread: string,
  key: string,
  signal: AbortSignal,
  model = "",
): Promise<Stream> {
  const body = { messages, ...(thread ? { thread_id: thread } : {}), ...(model ? { model } : {}) };
  const response = await request("POST", buildPath`/agents/${agent}/stream`, {
    body,
    headers: { "Idempotency-Key": key },
    signal,
  });
  return toStream(response);
}

/** The events of a run after a frame; null when it is over and all of it has been seen. */
export async function watchRun(run: string, after: string, signal: AbortSignal): Promise<Stream | null> {
  const headers: Record<string, string> = after ? { "Last-Event-ID": after } : {};
  const response = await request("GET", buildPath`/runs/${run}/events`, { headers, signal });
  return response.status === 204 ? null : toStream(response);
}

function toStream(response: Response): Stream {
  return {
    run: response.headers.get("X-Run-Id") ?? "",
    thread: response.headers.get("X-Thread-Id") ?? "",
    frames: readFrames(response.body!),
  };
}
