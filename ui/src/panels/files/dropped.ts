/** What is dropped from outside: files, and folders with everything that is in them. */

export interface Upload {
  path: string; // below the folder it goes to
  file: File;
}

export const chosen = (files: Iterable<File>): Upload[] => [...files].map((file) => ({ path: file.webkitRelativePath || file.name, file }));

/** Everything that was dropped. A browser tells of it only during the event, so this begins at once. */
export async function dropped(data: DataTransfer): Promise<Upload[]> {
  const entries = [...data.items].map((item) => item.webkitGetAsEntry?.() ?? null);
  if (!entries.some((entry) => entry?.isDirectory)) return chosen(data.files);
  const found = await Promise.all(entries.map((entry) => (entry ? inside(entry) : [])));
  return found.flat();
}

async function inside(entry: FileSystemEntry): Promise<Upload[]> {
  if (entry.isFile) {
    const file = await new Promise<File>((done, failed) => (entry as FileSystemFileEntry).file(done, failed));
    return [{ path: entry.fullPath.replace(/^\//, ""), file }];
  }
  const found = await listed((entry as FileSystemDirectoryEntry).createReader());
  return (await Promise.all(found.map(inside))).flat();
}

/** A reader gives some at a time, and none when there are no more. */
async function listed(reader: FileSystemDirectoryReader): Promise<FileSystemEntry[]> {
  const all: FileSystemEntry[] = [];
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((done, failed) => reader.readEntries(done, failed));
    if (!some.length) return all;
    all.push(...some);
  }
}
