import { expect, it } from "vitest";

import { createCall, type Reply } from "../state/fold";
import { openDrafts, readDraft } from "./draftArgs";

const ARGS = JSON.stringify({ path: 'out/a "b".py', content: 'print("ä\u2028😀")\n\\end\t' });

it("reads a file from every beginning of its arguments", () => {
  let text = "";
  for (let end = 0; end <= ARGS.length; end++) {
    const draft = readDraft(ARGS.slice(0, end));
    if (!draft) continue;
    expect(draft.path).toBe('out/a "b".py');
    expect(draft.text.startsWith(text.replace(/[\ud800-\udbff]$/, ""))).toBe(true);
    text = draft.text;
  }
  expect(text).toBe('print("ä\u2028😀")\n\\end\t');
});

it.each([
  "",
  "{",
  '{"path": "a"',
  '{"command": "ls"}',
  '{"path": "a", "old_text": "x"}',
  '{"path": "a", "content": "\n',
])("%s is no file", (args) => expect(readDraft(args)).toBeNull());

it("shows a file until its call has ended", () => {
  const call = { ...createCall("c1", "write_file"), args: { path: "a.py", content: "x" } };
  const reply: Reply = { kind: "reply", key: "m1", seq: 1, run: "r", text: "", reasoning: "", calls: [call], open: false, cut: false }; // prettier-ignore
  expect(openDrafts([reply])).toEqual([{ path: "a.py", text: "x" }]);
  expect(openDrafts([{ ...reply, calls: [{ ...call, ended: 5 }] }])).toEqual([]);
  const open = { ...createCall("open-0", ""), argsText: '{"path": "b.py", "content": "y' };
  expect(openDrafts([{ ...reply, open: true, calls: [open] }])).toEqual([{ path: "b.py", text: "y" }]);
});
