/** A conversation as it is shown, folded from the frames of its runs. Folding a frame twice changes nothing. */

import type { MessageLabel, Part } from "../api";
import { formatValue } from "../api/values";

export interface Why {
  hook: string;
  position: string;
  verdict: string;
  reason?: string;
  ms?: number;
  changed?: Record<string, string> | null;
  shadow?: boolean; // a guard that only records its verdict
}

export interface Call {
  id: string;
  name: string;
  args: Record<string, unknown>;
  argsText: string; // while they are still being written
  live: string; // its output so far
  state: "waiting" | "running" | "asking" | "done" | "failed";
  output: string;
  error: string;
  deniedBy: string; // the hook or the user that denied it
  why: Why[];
  began: number; // as it was seen here; 0 if it was not
  ended: number;
  ms: number; // duration from the server; 0 if unknown
  child: Child | null;
  calls: Call[]; // of its program
  lines: number[]; // the first and the last line in the program that makes it; empty for a call of the model
  label?: MessageLabel; // of its result, if the agent has information flow
}

export interface Child {
  run: string;
  thread: string; // the thread of its work
  agent: string;
  prompt: string;
  items: Item[];
  outcome: string;
  text: string;
}

export interface UserMessage {
  kind: "user";
  key: string;
  seq: number;
  text: string;
  parts: Part[]; // attached images and files
  by: string; // the hook that sent it, if not the user
  label?: MessageLabel; // untrusted if it has attachments or quoted text
  branches?: number[]; // entries of all messages in its place, if there are others
}

export interface Reply {
  kind: "reply";
  key: string;
  seq: number;
  run: string;
  text: string;
  reasoning: string;
  calls: Call[];
  open: boolean;
  cut: boolean; // the run was cancelled before the end of the reply
  label?: MessageLabel;
  branches?: number[];
  born?: string; // its key while it was written: the list keeps it, and so what is drawn
}

export interface Ended {
  kind: "ended";
  key: string;
  seq: number;
  run: string;
  outcome: string;
  reason: string;
  error: string;
}

export type Item = UserMessage | Reply | Ended;

export interface Task {
  id: string;
  agent: string;
  prompt: string;
  status: string;
  text: string;
}

export interface Conversation {
  agent: string; // the agent of the conversation
  items: Item[];
  pending: UserMessage[]; // sent messages that are not delivered yet
  last: number; // the number of the last durable entry that is in here
  part: number; // and how much of an entry that makes several frames
  run: string; // the active run, if any
  tasks: Task[];
  values: Record<string, unknown>; // todos, files and other values of capabilities
}

export interface Event {
  event: string;
  name?: string;
  run_id?: string;
  thread_id?: string;
  data?: Record<string, unknown>;
}

export const EMPTY: Conversation = {
  agent: "",
  items: [],
  pending: [],
  last: 0,
  part: 0,
  run: "",
  tasks: [],
  values: {},
};

/** The conversation with one more frame; one that is in it already is left out. */
export function foldFrame(old: Conversation, id: string, event: Event, now = Date.now()): Conversation {
  const place = id ? parsePosition(id) : null;
  if (place && before(place, old)) return old;
  const step = STEPS[event.event];
  const known = place ? ofThisThread(old, event) : old;
  const next = step ? step(known, event, place?.seq ?? 0, now) : known;
  return place ? { ...next, last: place.seq, part: place.part } : next;
}

export function parsePosition(id: string): { seq: number; part: number } {
  const [seq = "0", part] = id.split(".");
  return { seq: Number(seq), part: part === undefined ? Infinity : Number(part) };
}

function before(place: { seq: number; part: number }, old: Conversation): boolean {
  return place.seq < old.last || (place.seq === old.last && place.part <= old.part);
}

/** Entries of the thread's log belong to its own run; a question may be of a subagent. */
function ofThisThread(old: Conversation, event: Event): Conversation {
  const run = event.run_id ?? "";
  if (!run || run === old.run || event.event.startsWith("on_approval")) return old;
  return { ...old, run };
}

type Step = (old: Conversation, event: Event, seq: number, now: number) => Conversation;

const STEPS: Record<string, Step> = {
  on_chat_model_start: (old, event) =>
    updateItems(old, event, (items) => [...closed(items), open(event, items.length)]),
  on_chat_model_stream: (old, event) =>
    updateItems(old, event, (items) => onReply(items, event, (reply) => appendDelta(reply, event))),
  on_chat_model_restart: (old, event) =>
    updateItems(old, event, (items) =>
      onReply(items, event, (reply) => ({ ...reply, text: text(event, "content"), reasoning: "", calls: [] })),
    ),
  on_chat_model_end: (old, event, seq) =>
    updateItems(old, event, (items) => onReply(items, event, (reply) => completeReply(reply, event, seq))),
  on_tool_start: (old, event, _, now) =>
    updateItems(old, event, (items) =>
      onCall(withNested(items, event), event, (call) => ({
        ...call,
        args: record(event, "args") ?? call.args,
        state: "running",
        began: now,
      })),
    ),
  on_tool_stream: (old, event) =>
    updateItems(old, event, (items) =>
      onCall(items, event, (call) => ({ ...call, live: call.live + text(event, "delta") })),
    ),
  on_tool_end: (old, event, _, now) =>
    updateItems(old, event, (items) => onCall(items, event, (call) => completeCall(call, event, now))),
  on_user_message: (old, event, seq) => applyUserMessage(old, event, seq),
  on_subagent_start: (old, event) => ({
    ...old,
    items: onAnyCall(old.items, event, (call) => ({ ...call, child: startChild(call, event) })),
  }),
  on_subagent_end: (old, event) => ({ ...old, items: onAnyCall(old.items, event, (call) => endChild(call, event)) }),
  on_state: (old, event) => ({ ...old, values: Object.entries(event.data ?? {}).reduce(mergeValue, old.values) }),
  resync: (old) => ({ ...old, items: old.items.filter((item) => !(item.kind === "reply" && item.open)) }),
  on_task_start: (old, event) => ({
    ...old,
    tasks: [...old.tasks.filter((one) => one.id !== text(event, "task_id")), toTask(event)],
  }),
  on_task_update: (old, event) => ({ ...old, tasks: old.tasks.map((one) => updateTask(one, event)) }),
  on_task_end: (old, event) => ({ ...old, tasks: old.tasks.map((one) => updateTask(one, event)) }),
  done: (old, event, seq) => endRun(old, event, seq, text(event, "outcome"), text(event, "reason"), ""),
  error: (old, event, seq) => {
    const error = record(event, "error");
    return endRun(old, event, seq, "failed", "error", formatValue(error?.["message"], "the run failed"));
  },
};

/** Update the items of an event: those of the conversation, or of a subagent's run. */
function updateItems(old: Conversation, event: Event, change: (items: Item[]) => Item[]): Conversation {
  const run = event.run_id ?? "";
  const inside = run ? inRun(old.items, run, change) : old.items;
  if (inside !== old.items) return { ...old, items: inside };
  if (run && old.run && run !== old.run && isWorking(old.items)) return old; // a subagent whose start was not seen here
  const going = run || old.run;
  return {
    ...old,
    run: going,
    items: change(
      old.items.filter((item) => !(item.kind === "ended" && item.outcome === "interrupted" && item.run === going)),
    ),
  };
}

const isWorking = (items: Item[]): boolean =>
  items.slice(-3).some((item) => item.kind === "reply" && item.calls.some((call) => call.state === "running"));

/** Return the items with those of one subagent's run changed, at any depth; the same items without such a run. */
function inRun(items: Item[], run: string, change: (items: Item[]) => Item[]): Item[] {
  return eachCall(items, (call) => {
    if (!call.child) return call;
    const inner = call.child.run === run ? change(call.child.items) : inRun(call.child.items, run, change);
    return inner === call.child.items ? call : { ...call, child: { ...call.child, items: inner } };
  });
}

/** Update calls; unchanged items keep their identity to avoid a redraw. */
function eachCall(items: Item[], change: (call: Call) => Call): Item[] {
  let changed = false;
  const next = items.map((item) => {
    if (item.kind !== "reply" || !item.calls.length) return item;
    const calls = item.calls.map(change);
    if (calls.every((call, at) => call === item.calls[at])) return item;
    changed = true;
    return { ...item, calls };
  });
  return changed ? next : items;
}

function open(event: Event, at: number): Reply {
  return {
    kind: "reply",
    key: `open-${event.run_id ?? ""}-${at}`,
    seq: 0,
    run: event.run_id ?? "",
    text: "",
    reasoning: "",
    calls: [],
    open: true,
    cut: false,
  };
}

function closed(items: Item[]): Item[] {
  return items.filter((item) => !(item.kind === "reply" && item.open && !item.text && !item.calls.length));
}

function onReply(items: Item[], event: Event, change: (reply: Reply) => Reply): Item[] {
  const last = items.at(-1);
  if (last?.kind === "reply" && last.open) return [...items.slice(0, -1), change(last)];
  return [...items, change(open(event, items.length))];
}

function appendDelta(reply: Reply, event: Event): Reply {
  const delta = text(event, "delta");
  switch (text(event, "kind")) {
    case "reasoning":
      return { ...reply, reasoning: reply.reasoning + delta };
    case "tool_args": {
      const index = Number(event.data?.["index"] ?? 0);
      const calls = [...reply.calls];
      for (let at = calls.length; at <= index; at++) calls.push(createCall(`open-${at}`, ""));
      calls[index] = { ...calls[index]!, argsText: calls[index]!.argsText + delta };
      return { ...reply, calls };
    }
    default:
      return { ...reply, text: reply.text + delta };
  }
}

interface Message {
  content?: string | Part[];
  reasoning?: { text?: string }[];
  tool_calls?: { id: string; name: string; args?: Record<string, unknown> }[];
}

function completeReply(reply: Reply, event: Event, seq: number): Reply {
  const message = (record(event, "message") ?? {}) as Message;
  const calls = (message.tool_calls ?? []).map((call) => ({
    ...createCall(call.id, call.name),
    args: call.args ?? {},
  }));
  const words = message.content === undefined ? reply.text : toUserItem(seq, message.content).text;
  const thought = (message.reasoning ?? []).map((part) => part.text ?? "").join("\n\n");
  return {
    ...reply,
    key: `m${seq}`,
    born: reply.key,
    seq,
    run: event.run_id ?? reply.run,
    text: words,
    reasoning: thought || reply.reasoning,
    calls,
    open: false,
    cut: event.data?.["cut"] === true,
  };
}

export function createCall(id: string, name: string): Call {
  return {
    id, name, args: {}, argsText: "", live: "", state: "waiting", output: "", error: "", deniedBy: "", why: [], began: 0, ended: 0, ms: 0, child: null, calls: [], lines: [],
  }; // prettier-ignore
}

function onCall(items: Item[], event: Event, change: (call: Call) => Call): Item[] {
  const id = text(event, "call_id");
  return eachCall(items, (call) => {
    if (call.id === id) return change(call);
    const at = call.calls.findIndex((one) => one.id === id);
    return at < 0 ? call : { ...call, calls: call.calls.with(at, change(call.calls[at]!)) };
  });
}

/** Add the call of a program when it starts; a resumed program starts it again. */
function withNested(items: Item[], event: Event): Item[] {
  const program = text(event, "program");
  const lines = (event.data?.["lines"] ?? []) as number[];
  if (!program) return items;
  return eachCall(items, (call) => {
    if (call.id !== program || call.calls.some((one) => one.id === text(event, "call_id"))) return call;
    return { ...call, calls: [...call.calls, { ...createCall(text(event, "call_id"), event.name ?? ""), lines }] };
  });
}

/** The same, in subagents' work too. */
function onAnyCall(items: Item[], event: Event, change: (call: Call) => Call): Item[] {
  const here = onCall(items, event, change);
  if (here !== items) return here;
  return eachCall(items, (call) => {
    const inner = call.child ? onAnyCall(call.child.items, event, change) : [];
    return call.child && inner !== call.child.items ? { ...call, child: { ...call.child, items: inner } } : call;
  });
}

function completeCall(call: Call, event: Event, now: number): Call {
  const error = text(event, "error");
  const why = (event.data?.["why"] ?? []) as Why[];
  return {
    ...call,
    state: error ? "failed" : "done",
    output: text(event, "output"),
    error,
    deniedBy: error ? whoDenied(why) : "",
    why,
    ended: now,
  };
}

/** The hook or the user that denied a call; the user answers after the hooks. */
function whoDenied(why: Why[]): string {
  const denials = why.filter((one) => ["block", "stop", "refused"].includes(one.verdict) && !one.shadow);
  return (denials.find((one) => one.verdict === "refused") ?? denials[0])?.hook ?? "";
}

/** Replace the sent message that is delivered now. */
function applyUserMessage(old: Conversation, event: Event, seq: number): Conversation {
  const message = (record(event, "message") ?? {}) as { content?: string | Part[]; name?: string };
  const now = toUserItem(seq, message.content ?? "", message.name ?? "");
  const same = (one: Item) => one.kind === "user" && one.seq === 0 && one.text === now.text;
  const sent = old.pending.find(same);
  const early = sent ? undefined : old.items.find(same);
  const pending = sent ? old.pending.filter((one) => one !== sent) : old.pending;
  return { ...old, pending, items: [...closed(old.items).filter((one) => one !== early), now] };
}

/** Merge a value by item; null deletes an item. */
function mergeValue(values: Record<string, unknown>, [key, value]: [string, unknown]): Record<string, unknown> {
  const old = values[key];
  if (!isMap(value) || !isMap(old)) return { ...values, [key]: isMap(value) ? present(value) : value };
  return { ...values, [key]: present({ ...old, ...value }) };
}

const isMap = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const present = (map: Record<string, unknown>) =>
  Object.fromEntries(Object.entries(map).filter(([, value]) => value !== null));

function startChild(call: Call, event: Event): Child {
  const again = event.data?.["resumed"] === true && call.child;
  return again ? { ...call.child!, run: event.run_id ?? "", outcome: "" } : child(event);
}

function child(event: Event): Child {
  return {
    run: event.run_id ?? "",
    thread: text(event, "thread_id"),
    agent: event.name ?? "",
    prompt: text(event, "prompt"),
    items: [],
    outcome: "",
    text: "",
  };
}

function endChild(call: Call, event: Event): Call {
  const ended = call.child ?? child(event);
  return { ...call, child: { ...ended, outcome: text(event, "outcome"), text: text(event, "text") } };
}

export function toUserItem(seq: number, content: string | Part[], by = "", key = `m${seq}`): UserMessage {
  const parts = typeof content === "string" ? [{ type: "text" as const, text: content }] : content;
  const words = parts.flatMap((part) => (part.type === "text" ? [part.text ?? ""] : [])).join("\n");
  return { kind: "user", key, seq, text: words, parts: parts.filter((part) => part.type !== "text"), by };
}

function toTask(event: Event): Task {
  return {
    id: text(event, "task_id"),
    agent: event.name ?? "",
    prompt: text(event, "prompt"),
    status: "running",
    text: "",
  };
}

function updateTask(one: Task, event: Event): Task {
  if (one.id !== text(event, "task_id")) return one;
  return {
    ...one,
    status: text(event, "status") || one.status,
    text: text(event, "text") || text(event, "message") || one.text,
  };
}

/** The reason of a run that continues in the original thread. */
export const FORKED = "the thread was forked";

function endRun(
  old: Conversation,
  event: Event,
  seq: number,
  outcome: string,
  reason: string,
  error: string,
): Conversation {
  const run = event.run_id ?? old.run;
  const items = closed(old.items).map((item) => (item.kind === "reply" && item.open ? { ...item, open: false } : item));
  const end: Ended = { kind: "ended", key: `e${seq || run}`, seq, run, outcome, reason, error };
  const plain = outcome === "completed" || reason === FORKED;
  return { ...old, run: "", items: plain ? items : [...items, end] };
}

function text(event: Event, field: string): string {
  const value = event.data?.[field];
  return typeof value === "string" ? value : "";
}

function record(event: Event, field: string): Record<string, unknown> | null {
  const value = event.data?.[field];
  return value && typeof value === "object" && !Array.isArray(value) ? (value as Record<string, unknown>) : null;
}
