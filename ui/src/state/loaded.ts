/** A conversation from a thread as the server keeps it. */

import type { Message, ThreadDetail } from "../api";
import { type Call, type Conversation, EMPTY, type Item, type Reply, said } from "./fold";

export function loaded(thread: ThreadDetail): Conversation {
  const items: Item[] = [];
  for (const message of thread.messages) add(items, message);
  return {
    ...EMPTY,
    items,
    last: thread.last,
    part: Infinity,
    run: thread.run_id ?? "",
    values: { todos: thread.todos ?? [], files: thread.files ?? {} },
  };
}

function add(items: Item[], message: Message): void {
  const seq = message.seq ?? 0;
  if (message.role === "user") items.push(said(seq, words(message), message.name));
  else if (message.role === "assistant") items.push(reply(message, seq));
  else if (message.role === "tool") answer(items, message);
}

export function words(message: Pick<Message, "content">): string {
  if (typeof message.content === "string") return message.content;
  return message.content.map((part) => (part.type === "text" ? (part.text ?? "") : `[${part.type}${part.name ? `: ${part.name}` : ""}]`)).join("\n");
}

function reply(message: Message, seq: number): Reply {
  const calls: Call[] = (message.tool_calls ?? []).map((call) => ({
    id: call.id, name: call.name, args: call.args, argsText: "", live: "", state: "waiting", output: "", error: call.invalid ?? "", why: [], began: 0, ended: 0, child: null,
  })); // prettier-ignore
  const reasoning = (message.reasoning ?? []).map((part) => part.text ?? "").join("\n\n");
  return { kind: "reply", key: `m${seq}`, seq, run: "", text: words(message), reasoning, calls, open: false };
}

function answer(items: Item[], message: Message): void {
  for (const item of items) {
    const call = item.kind === "reply" ? item.calls.find((one) => one.id === message.tool_call_id) : undefined;
    if (!call) continue;
    call.state = message.failed ? "failed" : "done";
    if (message.failed) call.error = words(message);
    else call.output = words(message);
  }
}
