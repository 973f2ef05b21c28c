/** The files of the agent `coder`, in memory, for tests. */

import { type RecordedRequest, serve } from "./serve";

/** Serve these files until `stop`; changes are visible in `files`. */
export function serveFiles(first: Record<string, string> = {}): { files: Map<string, string>; stop: () => void } {
  const files = new Map(Object.entries(first));
  const path = (request: RecordedRequest) => new URLSearchParams(request.path.split("?")[1] ?? "").get("path") ?? "";
  const bodyOf = (request: RecordedRequest) => request.body as Record<string, string>;
  const at = "/agents/coder/files";
  const { stop } = serve({
    [`GET ${at}/read`]: (request) =>
      files.has(path(request))
        ? {
            path: path(request),
            content: files.get(path(request)),
            encoding: "utf-8",
            size: 1,
            offset: 0,
            bytes: 1,
            truncated: false,
          }
        : missing(path(request)),
    [`GET ${at}/list`]: (request) => ({
      path: path(request),
      entries: entries(files, path(request) === "." ? "" : `${path(request)}/`),
      truncated: false,
    }),
    [`PUT ${at}/write`]: (request) => {
      files.set(bodyOf(request)["path"]!, bodyOf(request)["content"]!);
      return { path: bodyOf(request)["path"], bytes_written: 1 };
    },
    [`POST ${at}/upload`]: (request) => {
      files.set(path(request), "uploaded");
      return { path: path(request), bytes_written: 1 };
    },
    [`POST ${at}/move`]: (request) => {
      const { source = "", target = "" } = bodyOf(request);
      files.set(target, files.get(source) ?? "");
      files.delete(source);
      return { path: target };
    },
    [`DELETE ${at}`]: (request) => {
      files.delete(path(request));
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
