/** Attachments as files of the workspace, where tools can read them; the message names their paths. */

import * as api from "../api";
import { ApiError } from "../api/http";
import { app } from "../state/app";
import { spoken } from "../state/talk";
import { fence } from "../parts/fence";

const FOLDER = "attachments";
const SEEN_BY_MODELS = /^(image\/|audio\/|application\/pdf$)/; // these are also part of the message
export const PASTED = "pasted-text.txt";

/** A message with its attachments: in the workspace of the agent if it has one, else as parts. */
export async function buildMessage(agent: string, words: string, media: api.Media[]): Promise<api.MessageIn> {
  const hasFiles = app.get().agents.some((one) => one.agent_id === agent && one.hooks.includes("filesystem"));
  if (!media.length || !hasFiles) return spokenInline(words, media);
  try {
    const paths = await placeFiles(agent, media);
    const links = paths.map((path) => `[${path.slice(FOLDER.length + 1)}](${path})`);
    const text = [words.trimEnd(), `Attached: ${links.join(", ")}`].filter(Boolean).join("\n\n");
    return spoken(text, media.filter((one) => SEEN_BY_MODELS.test(one.media_type ?? ""))); // prettier-ignore
  } catch (error) {
    if (error instanceof ApiError && error.status === 409) return spokenInline(words, media); // files are data of threads
    throw error;
  }
}

/** Without a workspace, pasted text is a part of the text again. */
function spokenInline(words: string, media: api.Media[]): api.MessageIn {
  const isPasted = (one: api.Media) => one.name === PASTED;
  const blocks = media.filter(isPasted).map((one) => fence(decodeText(one)));
  return spoken([words, ...blocks].filter(Boolean).join("\n\n"), media.filter((one) => !isPasted(one))); // prettier-ignore
}

async function placeFiles(agent: string, media: api.Media[]): Promise<string[]> {
  const listing = await api.files.list(agent, FOLDER).catch(() => null); // the folder does not exist yet
  const taken = new Set(listing?.entries.map((one) => one.name));
  const paths: string[] = [];
  for (const one of media) {
    const name = freeName(safeName(one), taken);
    taken.add(name);
    await api.files.upload(agent, `${FOLDER}/${name}`, new Blob([decodeBytes(one)]));
    paths.push(`${FOLDER}/${name}`);
  }
  return paths;
}

/** A name that is the same in a path, in a link and in a shell. */
function safeName({ name, media_type }: api.Media): string {
  const given = name || `image.${(media_type ?? "").split("/")[1]?.replace("jpeg", "jpg") || "bin"}`;
  return given.replace(/[^\p{L}\p{N}._-]+/gu, "_").replace(/^[.-]+/, "").slice(-100) || "file"; // prettier-ignore
}

/** `a.csv`, or `a-2.csv` if there is one already. */
export function freeName(name: string, taken: Set<string>): string {
  const dot = name.lastIndexOf(".") > 0 ? name.lastIndexOf(".") : name.length;
  let free = name;
  for (let number = 2; taken.has(free); number++) free = `${name.slice(0, dot)}-${number}${name.slice(dot)}`;
  return free;
}

const decodeBytes = ({ data = "" }: api.Media): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(atob(data ?? ""), (char) => char.charCodeAt(0));

export const decodeText = (media: api.Media): string => new TextDecoder().decode(decodeBytes(media));
