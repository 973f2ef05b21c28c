import { afterEach, expect, it, vi } from "vitest";

import { type News, subscribe } from "./agentNews";

function stream(...texts: string[]): Response {
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const text of texts) controller.enqueue(new TextEncoder().encode(text));
    },
  });
  return new Response(body, { status: 200 });
}

afterEach(() => vi.unstubAllGlobals());

it("has one connection for all who listen, and ends it with the last", async () => {
  const signals: AbortSignal[] = [];
  vi.stubGlobal("fetch", (_: string, init: RequestInit) => {
    signals.push(init.signal!);
    return Promise.resolve(stream('event: hooks_changed\ndata: {"event":"hooks_changed","data":{"agent_id":"a"}}\n\n'));
  });
  const heard: News[] = [];
  const leave = subscribe((news) => heard.push(news));
  const leaveToo = subscribe((news) => heard.push(news));
  await vi.waitFor(() => expect(heard).toHaveLength(2));
  expect(heard[0]).toEqual({ event: "hooks_changed", data: { agent_id: "a" } });
  expect(signals).toHaveLength(1);
  leave();
  expect(signals[0]!.aborted).toBe(false);
  leaveToo();
  expect(signals[0]!.aborted).toBe(true);
});
