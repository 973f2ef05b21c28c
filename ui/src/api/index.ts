/** Everything the UI asks of the server, with the types of its OpenAPI document. */

import { call, path, query, request } from "./http";
import type { components } from "./schema";
import { type Frame, frames } from "./sse";

type Schemas = components["schemas"];
export type Me = Schemas["CurrentUser"];
export type AgentSummary = Schemas["AgentInfo"];
export type AgentDetail = Schemas["AgentDetail"];
export type Thread = Schemas["ThreadInfo"];
export type ThreadDetail = Schemas["ThreadDetail"];
export type Message = Schemas["ThreadMessage"];
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
export type UsageReport = Schemas["UsageReport"];
export type UsageRow = Schemas["UsageRow"];
export type Permissions = Schemas["PermissionsInfo"];
export type Limits = Schemas["LimitsInfo"];
export type Budget = Schemas["BudgetInfo"];
export type ThreadRun = Schemas["ThreadRun"];
export type ReplayRequest = Schemas["ReplayRequest"];
export type ReplayReport = Schemas["ReplayReport"];
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
  get: (id: string) => call<AgentDetail>("GET", path`/agents/${id}`),
  onion: (id: string) => call<Onion>("GET", path`/agents/${id}/onion`),
  hooks: (id: string) => call<Schemas["HookList"]>("GET", path`/agents/${id}/hooks`),
  changeHooks: (id: string, body: HookChange) => call<Schemas["HookList"]>("PATCH", path`/agents/${id}/hooks`, { body }),
  skills: (id: string) => call<SkillList>("GET", path`/agents/${id}/skills`),
  switchSkill: (id: string, body: Schemas["SkillChange"]) => call<SkillList>("PATCH", path`/agents/${id}/skills`, { body }),
  switchBackend: (id: string, body: BackendChange) => call<BackendInfo | null>("PATCH", path`/agents/${id}/backend`, { body }),
  backend: (id: string) => call<BackendInfo | null>("GET", path`/agents/${id}/backend`),
  container: (id: string, action: "stop" | "restart") => call<Schemas["ContainerState"]>("POST", path`/agents/${id}/container`, { body: { action } }),
  tools: () => call<Schemas["AvailableTools"]>("GET", "/agents/tools/available"),
  permissions: (id: string) => call<Permissions>("GET", path`/agents/${id}/permissions`),
  revoke: (id: string, grant: string) => call<void>("DELETE", path`/agents/${id}/permissions/grants/${grant}`),
  limits: (id: string) => call<Limits>("GET", path`/agents/${id}/limits`),
};

export const threads = {
  list: (cursor = "", limit = 50) => call<Schemas["ThreadPage"]>("GET", `/threads${query({ cursor, limit })}`),
  search: (q: string) => call<Schemas["SearchHits"]>("GET", `/threads/search${query({ q })}`),
  get: (id: string) => call<ThreadDetail>("GET", path`/threads/${id}`),
  rename: (id: string, title: string) => call<Thread>("PATCH", path`/threads/${id}`, { body: { title } }),
  remove: (id: string) => call<void>("DELETE", path`/threads/${id}`),
  fork: (id: string, at?: number) => call<Thread>("POST", path`/threads/${id}/fork`, { body: at === undefined ? {} : { at } }),
  rewind: (id: string, to: number) => call<ThreadDetail>("POST", path`/threads/${id}/rewind`, { body: { to } }),
  say: (id: string, messages: MessageIn[], key: string) =>
    call<Schemas["QueuedMessage"]>("POST", path`/threads/${id}/messages`, { body: { messages }, headers: { "Idempotency-Key": key } }),
  why: (id: string, callId: string) => call<Reasons>("GET", path`/threads/${id}/calls/${callId}/why`),
  runs: (id: string) => call<Schemas["ThreadRuns"]>("GET", path`/threads/${id}/runs`),
  exportUrl: (id: string, format: "json" | "markdown") => path`/threads/${id}/export` + query({ format }),
};

export const runs = {
  get: (id: string) => call<Run>("GET", path`/runs/${id}`),
  cancel: (id: string) => call<Run>("POST", path`/runs/${id}/cancel`),
  trace: (id: string) => call<Trace>("GET", path`/runs/${id}/trace`),
};

export const approvals = {
  list: (thread = "") => call<Schemas["ApprovalList"]>("GET", `/approvals${query({ thread_id: thread })}`),
  answer: (id: string, body: Decision) => call<Schemas["ApprovalReceipt"]>("POST", path`/approvals/${id}`, { body }),
};

/** `thread` says whose files are meant where files are data of a conversation. */
export const files = {
  list: (agent: string, at = ".", thread = "") => call<FileListing>("GET", path`/agents/${agent}/files/list` + query({ path: at, thread_id: thread })),
  read: (agent: string, at: string, thread = "") => call<FileContent>("GET", path`/agents/${agent}/files/read` + query({ path: at, thread_id: thread })),
  size: async (agent: string, at: string, thread = "") => (await call<FileContent>("GET", path`/agents/${agent}/files/read` + query({ path: at, thread_id: thread, limit: 0 }))).size,
  bytes: async (agent: string, at: string, thread = "") => (await request("GET", files.downloadUrl(agent, at, thread))).blob(),
  write: (agent: string, body: Schemas["FileWrite"]) => call<Schemas["FileWritten"]>("PUT", path`/agents/${agent}/files/write`, { body }),
  upload: (agent: string, at: string, file: Blob) => call<Schemas["FileWritten"]>("POST", path`/agents/${agent}/files/upload` + query({ path: at }), { raw: file, headers: { "Content-Type": "application/octet-stream" } }),
  move: (agent: string, source: string, target: string) => call<Schemas["FileMoved"]>("POST", path`/agents/${agent}/files/move`, { body: { source, target } }),
  remove: (agent: string, at: string, recursive = false) => call<void>("DELETE", path`/agents/${agent}/files` + query({ path: at, recursive })),
  downloadUrl: (agent: string, at: string, thread = "") => path`/agents/${agent}/files/download` + query({ path: at, thread_id: thread }),
};

export const slides = {
  /** A deck as PowerPoint; its pictures are looked for beside `path`. */
  export: async (agent: string, body: Schemas["SlidesExport"]) => (await request("POST", path`/agents/${agent}/slides/export`, { body })).blob(),
};

export const usage = {
  report: (fields: Record<string, string> = {}) => call<UsageReport>("GET", `/usage${query(fields)}`),
};

export const replay = (body: ReplayRequest) => call<ReplayReport>("POST", "/replay", { body });

/** What changes about the agents, as it happens. */
export async function news(signal: AbortSignal): Promise<AsyncGenerator<Frame>> {
  return frames((await request("GET", "/agents/events", { signal })).body!);
}

export interface Stream {
  run: string;
  thread: string;
  frames: AsyncGenerator<Frame>;
}

export async function ask(agent: string, messages: MessageIn[], thread: string, key: string, signal: AbortSignal): Promise<Stream> {
  const body = { messages, ...(thread ? { thread_id: thread } : {}) };
  const response = await request("POST", path`/agents/${agent}/stream`, { body, headers: { "Idempotency-Key": key }, signal });
  return stream(response);
}

/** The events of a run after a frame; null when it is over and all of it has been seen. */
export async function watch(run: string, after: string, signal: AbortSignal): Promise<Stream | null> {
  const headers: Record<string, string> = after ? { "Last-Event-ID": after } : {};
  const response = await request("GET", path`/runs/${run}/events`, { headers, signal });
  return response.status === 204 ? null : stream(response);
}

function stream(response: Response): Stream {
  return { run: response.headers.get("X-Run-Id") ?? "", thread: response.headers.get("X-Thread-Id") ?? "", frames: frames(response.body!) };
}
