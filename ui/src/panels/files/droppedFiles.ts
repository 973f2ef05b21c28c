/** Dropped files, and folders with all their files. */

export interface Upload {
  path: string; // below the target folder
  file: File;
}

export const readChosen = (files: Iterable<File>): Upload[] =>
  [...files].map((file) => ({ path: file.webkitRelativePath || file.name, file }));

/** Read everything dropped. The data is available only during the event, so reading starts at once. */
export async function readDropped(data: DataTransfer): Promise<Upload[]> {
  const entries = [...data.items].map((item) => item.webkitGetAsEntry?.() ?? null);
  if (!entries.some((entry) => entry?.isDirectory)) return readChosen(data.files);
  const found = await Promise.all(entries.filter((entry) => entry !== null).map(readEntry));
  return found.flat();
}

async function readEntry(entry: FileSystemEntry): Promise<Upload[]> {
  if (entry.isFile) {
    const file = await new Promise<File>((done, failed) => (entry as FileSystemFileEntry).file(done, failed));
    return [{ path: entry.fullPath.replace(/^\//, ""), file }];
  }
  const found = await readDirectory((entry as FileSystemDirectoryEntry).createReader());
  return (await Promise.all(found.map(readEntry))).flat();
}

/** A reader gives some at a time, and none when there are no more. */
async function readDirectory(reader: FileSystemDirectoryReader): Promise<FileSystemEntry[]> {
  const all: FileSystemEntry[] = [];
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((done, failed) => reader.readEntries(done, failed));
    if (!some.length) return all;
    all.push(...some);
  }
}
