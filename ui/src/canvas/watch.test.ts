import { expect, it, vi } from "vitest";

import { app, patchApp } from "../state/app";
import { type Conversation, EMPTY, foldFrame } from "../state/fold";
import { type Made, Seen, watchFiles } from "./watch";

const frame = (old: Conversation, id: string, event: string, data: object): Conversation =>
  foldFrame(old, id, { event, run_id: "r1", data: data as Record<string, unknown> });

const calling = (name: string, args: object, id = "c1") => ({
  message: { content: "", tool_calls: [{ id, name, args }] },
});

it("finds a file when its writing has ended, and once", () => {
  const seen = new Seen();
  let talk = frame(EMPTY, "1", "on_chat_model_end", calling("write_file", { path: "a.py", content: "x" }));
  expect(seen.take(talk).files).toEqual([]);
  talk = frame(talk, "2", "on_tool_end", { call_id: "c1", output: "{}" });
  expect(seen.take(talk).files.map((file) => file.path)).toEqual(["a.py"]);
  expect(seen.take(talk).files).toEqual([]);
});

it("leaves what failed, what only reads and what was loaded", () => {
  const seen = new Seen();
  let talk = frame(EMPTY, "1", "on_chat_model_end", calling("write_file", { path: "a.py" }));
  talk = frame(talk, "2", "on_tool_end", { call_id: "c1", error: "no room" });
  talk = frame(talk, "3", "on_chat_model_end", calling("read_file", { path: "b.py" }, "c2"));
  talk = frame(talk, "4", "on_tool_end", { call_id: "c2", output: "x" });
  expect(seen.take(talk).files).toEqual([]);
  const loaded = frame(
    frame(EMPTY, "1", "on_chat_model_end", calling("write_file", { path: "a.py" })),
    "2",
    "on_tool_end",
    { call_id: "c1", output: "" },
  );
  const other = new Seen();
  other.skip(loaded);
  expect(other.take(loaded).files).toEqual([]);
});

it("knows what a file was before: from the conversation, or else from the edit", () => {
  const seen = new Seen();
  let talk = frame(EMPTY, "1", "on_state", { files: { "a.py": "one" } });
  seen.skip(talk);
  talk = frame(talk, "2", "on_chat_model_end", calling("write_file", { path: "a.py", content: "two" }));
  talk = frame(talk, "3", "on_state", { files: { "a.py": "two" } });
  talk = frame(talk, "4", "on_tool_end", { call_id: "c1", output: "{}" });
  expect(seen.take(talk).files[0]!.before("two")).toBe("one");

  talk = frame(
    talk,
    "5",
    "on_chat_model_end",
    calling("edit_file", { path: "b.py", old_text: "x = 1", new_text: "x = 2" }, "c2"),
  );
  talk = frame(talk, "6", "on_tool_end", { call_id: "c2", output: "{}" });
  const [edited] = seen.take(talk).files;
  expect(edited!.before("# b\nx = 2\n")).toBe("# b\nx = 1\n");
  expect(edited!.before("x = 2\nx = 2\n")).toBeUndefined();
});

it("finds long pieces of an answer", () => {
  const seen = new Seen();
  const code = Array.from({ length: 20 }, (_, at) => `print(${at})`).join("\n");
  const talk = frame(EMPTY, "1", "on_chat_model_end", { message: { content: `So:\n\`\`\`python\n${code}\n\`\`\`` } });
  expect(seen.take(talk).texts).toEqual([{ word: "python", text: `${code}\n` }]);
});

it("opens what a run makes, not what was there when the thread was opened", () => {
  vi.stubGlobal("matchMedia", () => ({ matches: true }));
  const opened: [string[], boolean][] = [];
  const stop = watchFiles((made: Made, show) => {
    opened.push([made.files.map((file) => file.path), show]);
    return Promise.resolve();
  });
  const put = (thread: string, talk: Conversation) =>
    app.set((old) => ({ ...old, thread, conversations: { ...old.conversations, [thread]: talk } }));
  patchApp({ panel: null });
  const before = frame(
    frame(EMPTY, "1", "on_chat_model_end", calling("write_file", { path: "old.py" }, "c0")),
    "2",
    "on_tool_end",
    { call_id: "c0", output: "" },
  );
  put("t1", before);
  expect(opened).toEqual([]);
  const asked = frame(before, "3", "on_chat_model_end", calling("write_file", { path: "new.py" }, "c1"));
  put("t1", asked);
  put("t1", frame(asked, "4", "on_tool_end", { call_id: "c1", output: "" }));
  expect(opened).toEqual([[["new.py"], true]]);
  stop();
  vi.unstubAllGlobals();
});
