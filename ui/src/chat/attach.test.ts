import { expect, it } from "vitest";

import { readAttachments, MOST_BYTES, TooLarge } from "./attach";

it("takes pictures and files as they are", async () => {
  const made = await readAttachments(
    [
      new File(["hi"], "a.txt", { type: "text/plain" }),
      new File(["x"], "b.png", { type: "image/png" }),
      new File(["?"], "c"),
    ],
    [],
  );
  expect(made).toEqual([
    { type: "file", data: btoa("hi"), media_type: "text/plain", name: "a.txt" },
    { type: "image", data: btoa("x"), media_type: "image/png" },
    { type: "file", data: btoa("?"), media_type: "application/octet-stream", name: "c" },
  ]);
});

it("refuses more than the server takes, counting what is there already", async () => {
  const half = new File([new Uint8Array(MOST_BYTES / 2 + 1)], "half.bin");
  const first = await readAttachments([half], []);
  await expect(readAttachments([half], first)).rejects.toThrow(TooLarge);
});
