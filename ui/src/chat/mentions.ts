/** `@` in a message: files of the workspace, and other threads. */

import * as api from "../api";
import { app } from "../state/app";

export type Mention = { kind: "file"; path: string } | { kind: "thread"; id: string; title: string };

/** The text after an `@` before the cursor, and the place of the `@`; or null. */
export function typedMention(text: string, cursor: number): { from: number; typed: string } | null {
  const found = /(?:^|[\s(])@([^\s@]{0,100})$/.exec(text.slice(0, cursor));
  return found ? { from: cursor - found[1]!.length - 1, typed: found[1]! } : null;
}

const [MOST_FOLDERS, MOST_SHOWN, FRESH_MS] = [60, 10, 10_000];
const SKIPPED = /^(\..*|node_modules|__pycache__)$/;

let known = { key: "", at: 0, paths: Promise.resolve<string[]>([]) };

/** The paths of a workspace, those of the upper folders first. Large workspaces are listed in part. */
function listPaths(agent: string, thread: string): Promise<string[]> {
  const key = `${agent} ${thread}`;
  if (known.key !== key || Date.now() - known.at > FRESH_MS)
    known = { key, at: Date.now(), paths: walkFolders(agent, thread) };
  return known.paths;
}

async function walkFolders(agent: string, thread: string): Promise<string[]> {
  const [folders, paths] = [["."], [] as string[]];
  for (let at = 0; at < Math.min(folders.length, MOST_FOLDERS); at++) {
    const folder = folders[at]!;
    const listing = await api.files.list(agent, folder, thread).catch(() => null);
    for (const { name, type } of listing?.entries ?? []) {
      const path = folder === "." ? name : `${folder}/${name}`;
      if (type === "file") paths.push(path);
      else if (type === "dir" && !SKIPPED.test(name)) folders.push(path);
    }
  }
  return paths;
}

/** Files and threads with a text in their name: files first, and names that begin with it before others. */
export async function findMentions(typed: string): Promise<Mention[]> {
  const { agent, agents, thread, threads } = app.get();
  const hasFiles = agents.some((one) => one.agent_id === agent && one.hooks.includes("filesystem"));
  const paths = hasFiles ? await listPaths(agent, thread) : [];
  const [name, lower] = [(path: string) => path.split("/").at(-1)!.toLowerCase(), typed.toLowerCase()];
  const files = paths
    .filter((path) => path.toLowerCase().includes(lower))
    .sort((a, b) => Number(name(b).startsWith(lower)) - Number(name(a).startsWith(lower)));
  const others = threads.filter((one) => one.id !== thread && one.title.toLowerCase().includes(lower));
  const shownThreads = Math.min(others.length, Math.max(4, MOST_SHOWN - files.length));
  return [
    ...files.slice(0, MOST_SHOWN - shownThreads).map((path) => ({ kind: "file" as const, path })),
    ...others.slice(0, shownThreads).map(({ id, title }) => ({ kind: "thread" as const, id, title })),
  ];
}

/** A path as it is written in a message. */
export const writeMention = (path: string): string => (/\s/.test(path) ? `@"${path}"` : `@${path}`);

/** A thread as a file to attach: its messages as Markdown. */
export async function exportThread({ id, title }: { id: string; title: string }): Promise<File> {
  const text = await api.threads.markdown(id);
  const name = title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 60); // prettier-ignore
  return new File([text], `thread-${name || id}.md`, { type: "text/markdown" });
}
