/** A server of files in memory, for tests: what is asked of it goes through the page's own requests. */

import { vi } from "vitest";

export interface Files {
  files: Map<string, string>;
  asked: string[];
}

export function serveFiles(first: Record<string, string> = {}): Files {
  const here: Files = { files: new Map(Object.entries(first)), asked: [] };
  vi.stubGlobal("fetch", (address: string, init: RequestInit) => Promise.resolve(answer(here, new URL(address, "http://127.0.0.1"), init)));
  return here;
}

function answer({ files, asked }: Files, url: URL, init: RequestInit): Response {
  const action = `${init.method ?? "GET"} ${url.pathname.replace(/^\/agents\/[^/]+/, "")}`;
  asked.push(action);
  const path = url.searchParams.get("path") ?? "";
  const body = typeof init.body === "string" ? (JSON.parse(init.body) as { path: string; content: string }) : { path: "", content: "" };
  switch (action) {
    case "GET /files/read":
      return files.has(path) ? json({ path, content: files.get(path), encoding: "utf-8", size: 1, offset: 0, bytes: 1, truncated: false }) : refusal(404, `there is no file ${path}`);
    case "PUT /files/write":
      files.set(body.path, body.content);
      return json({ path: body.path, bytes_written: body.content.length });
    default:
      return refusal(405, `nothing is known of ${action}`);
  }
}

const json = (value: unknown, status = 200): Response => new Response(JSON.stringify(value), { status });

const refusal = (status: number, message: string): Response => json({ error: { code: "error", message } }, status);
