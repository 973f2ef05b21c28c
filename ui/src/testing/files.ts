/** The files of the agent `coder`, in memory, for tests. */

import { type Asked, serve } from "./serve";

/** Serve these files until `stop`; changes are visible in `files`. */
export function serveFiles(first: Record<string, string> = {}): { files: Map<string, string>; stop: () => void } {
  const files = new Map(Object.entries(first));
  const path = (asked: Asked) => new URLSearchParams(asked.path.split("?")[1] ?? "").get("path") ?? "";
  const said = (asked: Asked) => asked.body as Record<string, string>;
  const at = "/agents/coder/files";
  const { stop } = serve({
    [`GET ${at}/read`]: (asked) =>
      files.has(path(asked))
        ? {
            path: path(asked),
            content: files.get(path(asked)),
            encoding: "utf-8",
            size: 1,
            offset: 0,
            bytes: 1,
            truncated: false,
          }
        : missing(path(asked)),
    [`GET ${at}/list`]: (asked) => ({
      path: path(asked),
      entries: entries(files, path(asked) === "." ? "" : `${path(asked)}/`),
      truncated: false,
    }),
    [`PUT ${at}/write`]: (asked) => {
      files.set(said(asked)["path"]!, said(asked)["content"]!);
      return { path: said(asked)["path"], bytes_written: 1 };
    },
    [`POST ${at}/upload`]: (asked) => {
      files.set(path(asked), "uploaded");
      return { path: path(asked), bytes_written: 1 };
    },
    [`POST ${at}/move`]: (asked) => {
      const { source = "", target = "" } = said(asked);
      files.set(target, files.get(source) ?? "");
      files.delete(source);
      return { path: target };
    },
    [`DELETE ${at}`]: (asked) => {
      files.delete(path(asked));
      return new Response(null, { status: 204 });
    },
  });
  return { files, stop };
}

function missing(path: string): Response {
  return Response.json({ error: { code: "not_found", message: `there is no file ${path}` } }, { status: 404 });
}

function entries(files: Map<string, string>, folder: string) {
  const inside = [...files.keys()].filter((path) => path.startsWith(folder)).map((path) => path.slice(folder.length));
  const folders = new Set(inside.filter((path) => path.includes("/")).map((path) => path.split("/")[0]!));
  return [
    ...[...folders].map((name) => ({ name, type: "dir", size: 0 })),
    ...inside.filter((path) => !path.includes("/")).map((name) => ({ name, type: "file", size: 1 })),
  ];
}
