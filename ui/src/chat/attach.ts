/** Files that go along with a message. */

import type { Media } from "../api";
import { app, tryRequest, setAttached } from "../state/app";

export const MOST_BYTES = 5_500_000; // all files of a message; the server's limit in base64

/** Attach files to the draft of the open thread. */
export async function attachFiles(files: Iterable<File>): Promise<void> {
  const { thread } = app.get();
  const all = [...files]; // a list of the browser's may be emptied meanwhile
  const now = () => app.get().attached[thread] ?? [];
  const more = await tryRequest(() => readAttachments(all, now()));
  if (more) setAttached(thread, [...now(), ...more]);
}

export class TooLarge extends Error {}

/** Files as parts of a message; an error names oversized ones. */
export async function readAttachments(files: Iterable<File>, already: Media[]): Promise<Media[]> {
  let left = MOST_BYTES - already.reduce((sum, one) => sum + ((one.data?.length ?? 0) * 3) / 4, 0);
  const made: Media[] = [];
  for (const file of files) {
    left -= file.size;
    if (left < 0)
      throw new TooLarge(
        `${file.name} is too large: attachments are limited to 5.5 MB per message. Upload it in the Files panel.`,
      );
    made.push(await toPart(file));
  }
  return made;
}

export const isPicture = (type: string): boolean => /^image\/(png|jpeg|gif|webp)$/.test(type);

/** Pictures that models can see have no name there; all else is a file. */
async function toPart(file: File): Promise<Media> {
  const data = await readBase64(file);
  if (isPicture(file.type)) return { type: "image", data, media_type: file.type };
  return { type: "file", data, media_type: file.type || "application/octet-stream", name: file.name };
}

function readBase64(file: File): Promise<string> {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done((reader.result as string).replace(/^[^,]*,/, ""));
    reader.onerror = () => failed(reader.error ?? new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });
}
