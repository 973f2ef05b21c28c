import { afterEach, expect, it } from "vitest";

import { NOBODYS, patchApp } from "../state/app";
import { serve } from "../testing/serve";
import { findMentions, typedMention, writeMention } from "./mentions";
import { buildMessage, freeName, PASTED } from "./placing";

const agentWith = (...hooks: string[]) =>
  ({ agent_id: "a", name: "a", model: "demo", origin: "code", shared: true, hooks }) as const;
let stop = () => {};
afterEach(() => (stop(), patchApp(NOBODYS)));

it.each([
  ["@", 1, { from: 0, typed: "" }],
  ["see @da", 7, { from: 4, typed: "da" }],
  ["see @data/x.csv now", 9, { from: 4, typed: "data" }],
  ["mail@example.com", 16, null],
  ["@done ", 6, null],
])("finds what is typed after an @ in %s", (text, cursor, found) => {
  expect(typedMention(text, cursor)).toEqual(found);
});

it("offers files in folders and other threads", async () => {
  const entry = (name: string, type = "file") => ({ name, type, size: 1 });
  ({ stop } = serve({
    "GET /agents/a/files/list?path=.": () => ({
      entries: [entry("notes.md"), entry("data", "dir"), entry(".git", "dir")],
    }),
    "GET /agents/a/files/list?path=data": () => ({ entries: [entry("my notes.csv")] }),
  }));
  const thread = { id: "th_1", title: "Notes on tea", agent_id: "a" } as never;
  patchApp({ agent: "a", agents: [{ ...agentWith("filesystem"), hooks: ["filesystem"] }], threads: [thread] });
  expect(await findMentions("NOTES")).toEqual([
    { kind: "file", path: "notes.md" },
    { kind: "file", path: "data/my notes.csv" },
    { kind: "thread", id: "th_1", title: "Notes on tea" },
  ]);
  expect(writeMention("data/my notes.csv")).toBe('@"data/my notes.csv"');
});

const file = (name: string, text: string, media_type = "text/csv") =>
  ({ type: "file", name, data: btoa(text), media_type }) as const;

it("puts attachments into the workspace, each under a free name", async () => {
  const server = serve({
    "GET /agents/a/files/list": () => ({ entries: [{ name: "a.csv", type: "file", size: 1 }] }),
    "POST /agents/a/files/upload": () => ({}),
  });
  stop = server.stop;
  patchApp({ agents: [{ ...agentWith("filesystem"), hooks: ["filesystem"] }] });
  const picture = { type: "image", data: btoa("x"), media_type: "image/png" } as const;
  expect(await buildMessage("a", "look", [file("a.csv", "1"), file("../(b)]", "2"), picture])).toEqual({
    role: "user",
    content: [
      {
        type: "text",
        text: "look\n\nAttached: [a-2.csv](attachments/a-2.csv), [_b_](attachments/_b_), [image.png](attachments/image.png)",
      },
      picture,
    ],
  });
  expect(freeName("Makefile", new Set(["Makefile", "Makefile-2"]))).toBe("Makefile-3");
});

it("sends parts where there is no workspace, and a paste as text", async () => {
  const conflict = () => Response.json({ error: { code: "conflict", message: "in threads" } }, { status: 409 });
  ({ stop } = serve({ "POST /agents/a/files/upload": conflict }));
  for (const hooks of [[], ["filesystem"]]) {
    patchApp({ agents: [{ ...agentWith(), hooks }] });
    const table = file("a.csv", "1");
    expect(await buildMessage("a", "look", [table, file(PASTED, "long", "text/plain")])).toEqual({
      role: "user",
      content: [{ type: "text", text: "look\n\n```\nlong\n```" }, table],
    });
  }
});
