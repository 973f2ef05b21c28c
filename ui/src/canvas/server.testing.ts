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
  const body = (typeof init.body === "string" ? JSON.parse(init.body) : {}) as Record<string, string>;
  switch (action) {
    case "GET /files/read":
      return files.has(path) ? json({ path, content: files.get(path), encoding: "utf-8", size: 1, offset: 0, bytes: 1, truncated: false }) : refusal(404, `there is no file ${path}`);
    case "PUT /files/write":
      files.set(body["path"]!, body["content"]!);
      return json({ path: body["path"], bytes_written: body["content"]!.length });
    case "GET /files/list":
      return json({ path, entries: entries(files, path === "." ? "" : `${path}/`), truncated: false });
    case "POST /files/upload":
      files.set(path, "uploaded");
      return json({ path, bytes_written: 0 }, 201);
    case "POST /files/move":
      files.set(body["target"]!, files.get(body["source"]!) ?? "");
      files.delete(body["source"]!);
      return json({ path: body["target"] });
    case "DELETE /files":
      files.delete(path);
      return new Response(null, { status: 204 });
    default:
      return refusal(405, `nothing is known of ${action}`);
  }
}

function entries(files: Map<string, string>, folder: string) {
  const inside = [...files.keys()].filter((path) => path.startsWith(folder)).map((path) => path.slice(folder.length));
  const folders = new Set(inside.filter((path) => path.includes("/")).map((path) => path.split("/")[0]!));
  return [...[...folders].map((name) => ({ name, type: "dir", size: 0 })), ...inside.filter((path) => !path.includes("/")).map((name) => ({ name, type: "file", size: 1 }))];
}

const json = (value: unknown, status = 200): Response => new Response(JSON.stringify(value), { status });

const refusal = (status: number, message: string): Response => json({ error: { code: "error", message } }, status);
