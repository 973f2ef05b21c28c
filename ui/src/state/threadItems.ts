/** Convert a thread of the server to a conversation. */

import type { Message, ProgramCall, ThreadDetail } from "../api";
import { formatValue } from "../api/values";
import {
  type Call,
  type Child,
  type Conversation,
  EMPTY,
  type Ended,
  createCall,
  FORKED,
  type Item,
  type Reply,
  toUserItem,
  type UserMessage,
} from "./fold";

export function toConversation(thread: ThreadDetail): Conversation {
  const items: Item[] = [];
  for (const message of thread.messages) add(items, message, Boolean(thread.run_id));
  return {
    ...EMPTY,
    agent: thread.agent_id,
    pending: (thread.unheard ?? []).map((one) => toUserItem(0, one.message.content, "", `q${one.position}`)),
    items: withEnds(items, ends(thread)),
    last: thread.last,
    part: Infinity,
    run: thread.run_id ?? "",
    values: { todos: thread.todos ?? [], files: thread.files ?? {}, tasks: thread.tasks ?? {} },
  };
}

/** Merge a loaded thread with details known only from events: durations and subagents. */
export function mergeThread(old: Conversation, thread: ThreadDetail): Conversation {
  if (thread.last < old.last) return old; // more has come since it was asked for
  const now = toConversation(thread);
  const seen = new Map(old.items.map((item) => [item.key, item]));
  const items = now.items.map((item) => restoreDetails(item, seen.get(item.key)));
  const known = new Set(items.map((item) => item.key));
  const told = thread.messages.some((message) => message.role === "assistant" && (message.seq ?? 0) > old.last); // then it is not open any more
  const open = told
    ? []
    : old.items.filter((item) => item.kind === "reply" && item.open && now.run && item.run === now.run);
  const rewound = old.items.some((item) => item.kind !== "ended" && item.seq > 0 && !known.has(item.key));
  const over = old.items.filter(
    (item): item is Ended => item.kind === "ended" && !rewound && !known.has(item.key) && item.run !== now.run,
  );
  const arrived = [
    ...now.pending,
    ...now.items.filter((item): item is UserMessage => item.kind === "user" && item.seq > old.last),
  ];
  return {
    ...now,
    items: [...withEnds(items, over), ...open],
    pending: [...now.pending, ...pendingMessages(old.pending, arrived)],
    tasks: old.tasks,
  };
}

/** Sent messages that have not arrived yet. */
function pendingMessages(pending: UserMessage[], arrived: UserMessage[]): UserMessage[] {
  const there = arrived.map((one) => one.text);
  return pending.filter((one) => {
    if (!one.key.startsWith("sent-")) return false; // the server has it, with its position
    const at = there.indexOf(one.text);
    if (at >= 0) there.splice(at, 1);
    return at < 0;
  });
}

function restoreDetails(item: Item, old: Item | undefined): Item {
  if (item.kind !== "reply" || old?.kind !== "reply") return item;
  const calls = item.calls.map((call) => {
    const before = old.calls.find((one) => one.id === call.id);
    return before
      ? {
          ...call,
          live: before.live,
          why: before.why,
          began: before.began,
          ended: before.ended,
          child: before.child ?? call.child,
          calls: call.calls.map((one) => ({ ...one, why: before.calls.find((old) => old.id === one.id)?.why ?? [] })),
        }
      : call;
  });
  const born = old.born === undefined ? {} : { born: old.born };
  return { ...item, ...born, run: item.run || old.run, reasoning: item.reasoning || old.reasoning, calls };
}

function add(items: Item[], message: Message, running: boolean): void {
  const seq = message.seq ?? 0;
  const branches = message.branches?.length ? { branches: message.branches } : {};
  const label = message.label ? { label: message.label } : {};
  if (message.role === "user") items.push({ ...toUserItem(seq, message.content, message.name), ...label, ...branches });
  else if (message.role === "assistant") items.push({ ...reply(message, seq, running), ...branches });
  else if (message.role === "tool") answer(items, message);
}

export function messageText(message: Pick<Message, "content">): string {
  if (typeof message.content === "string") return message.content;
  return message.content
    .map((part) => (part.type === "text" ? (part.text ?? "") : `[${part.type}${part.name ? `: ${part.name}` : ""}]`))
    .join("\n");
}

function reply(message: Message, seq: number, running: boolean): Reply {
  const calls: Call[] = (message.tool_calls ?? []).map((call) => ({
    ...createCall(call.id, call.name),
    args: call.args,
    state: running ? "running" : "waiting",
    error: call.invalid ?? "",
    child: call.child ? storedChild(call.child, call.args) : null,
    calls: (call.calls ?? []).map((one) => programCall(one, running)),
  }));
  const reasoning = (message.reasoning ?? []).map((part) => part.text ?? "").join("\n\n");
  return {
    kind: "reply",
    key: `m${seq}`,
    seq,
    run: message.run ?? "",
    text: messageText(message),
    reasoning,
    calls,
    open: false,
    cut: message.cut ?? false,
    ...(message.label ? { label: message.label } : {}),
  };
}

/** A call that a program made. */
function programCall(call: ProgramCall, running: boolean): Call {
  const over = typeof call.output === "string";
  return {
    ...createCall(call.id, call.name),
    args: call.args,
    lines: call.lines,
    state: !over ? (running ? "running" : "waiting") : call.failed ? "failed" : "done",
    output: call.failed ? "" : (call.output ?? ""),
    error: call.failed ? (call.output ?? "") : "",
    deniedBy: call.denied_by ?? "",
    ms: call.ms ?? 0,
  };
}

/** A subagent with its own thread, which is read on demand. */
function storedChild(thread: string, args: Record<string, unknown>): Child {
  return {
    run: "",
    thread,
    agent: formatValue(args["agent"], "subagent"),
    prompt: formatValue(args["prompt"]),
    items: [],
    outcome: "",
    text: "",
  };
}

/** The result of a call belongs to the nearest call before it with that id. */
function answer(items: Item[], message: Message): void {
  for (let at = items.length - 1; at >= 0; at--) {
    const item = items[at]!;
    const call = item.kind === "reply" ? item.calls.find((one) => one.id === message.tool_call_id) : undefined;
    if (!call) continue;
    call.state = message.failed ? "failed" : "done";
    call.ms = message.ms ?? 0;
    call.deniedBy = message.denied_by ?? "";
    if (message.label) call.label = message.label;
    if (message.failed) call.error = messageText(message);
    else call.output = messageText(message);
    return;
  }
}

function ends(thread: ThreadDetail): Ended[] {
  const told = (thread.ends ?? []).filter(
    (end) => end.outcome !== "completed" && end.reason !== FORKED && end.run !== thread.run_id,
  );
  return told.map((end) => ({
    kind: "ended",
    key: `e${end.seq}`,
    seq: end.seq,
    run: end.run,
    outcome: end.outcome,
    reason: end.reason,
    error: end.error?.message ?? "",
  }));
}

/** Ends of runs, each after its messages. */
function withEnds(items: Item[], ends: Ended[]): Item[] {
  const all = [...items];
  for (const end of ends) {
    const after = all.findIndex((item) => item.seq > end.seq);
    all.splice(after < 0 ? all.length : after, 0, end);
  }
  return all;
}
