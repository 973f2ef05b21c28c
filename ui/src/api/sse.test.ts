import { describe, expect, it } from "vitest";

import { FrameParser, readFrames } from "./sse";

const TEXT =
  'id: 3\nevent: on_tool_end\ndata: {"a":1}\n\n: heartbeat\n\nevent: on_chat_model_stream\r\ndata: one\r\ndata: two\r\n\r\n';

describe("frames", () => {
  it("are the same however the text is cut", () => {
    const whole = new FrameParser().feed(TEXT);
    expect(whole).toEqual([
      { id: "3", event: "on_tool_end", data: '{"a":1}' },
      { id: "", event: "on_chat_model_stream", data: "one\ntwo" },
    ]);
    for (let cut = 0; cut <= TEXT.length; cut++) {
      const parser = new FrameParser();
      expect([...parser.feed(TEXT.slice(0, cut)), ...parser.feed(TEXT.slice(cut))]).toEqual(whole);
    }
  });

  it("come from a body whose characters are cut in the middle", async () => {
    const bytes = new TextEncoder().encode("data: wéck ✓\n\n");
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        for (const byte of bytes) controller.enqueue(Uint8Array.of(byte));
        controller.close();
      },
    });
    const found: string[] = [];
    for await (const frame of readFrames(body)) found.push(frame.data);
    expect(found).toEqual(["wéck ✓"]);
  });

  it("that are not complete are not given", () => {
    expect(new FrameParser().feed("data: half")).toEqual([]);
  });
});

it("gives up on a connection that says nothing at all", async () => {
  const silent = new ReadableStream<Uint8Array>({ start: (to) => to.enqueue(new TextEncoder().encode("data: 1\n\n")) });
  const seen: string[] = [];
  const reading = (async () => {
    for await (const frame of readFrames(silent, 30)) seen.push(frame.data);
  })();
  await expect(reading).rejects.toThrow("silent");
  expect(seen).toEqual(["1"]);
});
