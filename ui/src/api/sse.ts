/** Server-sent events, read from the body of a fetch, frame by frame. */

export interface Frame {
  id: string; // empty for a frame that may be dropped
  event: string;
  data: string;
}

/** Takes text in any pieces and gives back the frames that are complete. */
export class FrameParser {
  private rest = "";

  feed(text: string): Frame[] {
    this.rest += text;
    const frames: Frame[] = [];
    for (let end = this.boundary(); end; end = this.boundary()) {
      const frame = parseFrame(this.rest.slice(0, end.at));
      this.rest = this.rest.slice(end.at + end.length);
      if (frame) frames.push(frame);
    }
    return frames;
  }

  private boundary(): { at: number; length: number } | null {
    const found = /\r?\n\r?\n/.exec(this.rest);
    return found ? { at: found.index, length: found[0].length } : null;
  }
}

function parseFrame(block: string): Frame | null {
  const frame: Frame = { id: "", event: "message", data: "" };
  const data: string[] = [];
  for (const line of block.split(/\r?\n/)) {
    if (line.startsWith(":")) continue; // a heartbeat
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "id") frame.id = value;
    else if (field === "event") frame.event = value;
    else if (field === "data") data.push(value);
  }
  if (!data.length) return null;
  frame.data = data.join("\n");
  return frame;
}

const SILENCE_MS = 50_000; // the server sends a keep-alive every 15 seconds; after this silence the connection is dead

export async function* readFrames(body: ReadableStream<Uint8Array>, silence = SILENCE_MS): AsyncGenerator<Frame> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const parser = new FrameParser();
  try {
    for (;;) {
      const { done, value } = await withTimeout(silence, reader.read());
      if (done) return;
      yield* parser.feed(decoder.decode(value, { stream: true }));
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}

function withTimeout<T>(ms: number, work: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>(
    (_, failed) => (timer = setTimeout(() => failed(new Error("the connection is silent")), ms)),
  );
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}
