import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { app, NOBODYS, patchApp } from "../state/app";
import { serve } from "../testing/serve";
import { UndoFiles } from "./UndoFiles";

const PREVIEW = {
  seq: 3,
  at: 0,
  changes: [
    { path: "a.txt", kind: "changed", diff: "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-eggs\n+milk\n" },
    { path: "new", kind: "deleted", diff: "" },
  ],
  not_undone: [{ seq: 9, tool: "post", reason: "it uses the network" }],
};

let server: ReturnType<typeof serve>;
let preview: unknown;
beforeEach(() => {
  preview = PREVIEW;
  patchApp({ ...NOBODYS, thread: "th_1" });
  HTMLDialogElement.prototype.showModal = vi.fn();
  server = serve({
    "GET /threads/th_1/files": () => preview,
    "POST /threads/th_1/files/restore": () => ({ seq: 3, entry: 12, restored: ["a.txt"], left: {} }),
  });
});
afterEach(() => (cleanup(), server.stop()));

const show = (close = () => undefined) => render(<UndoFiles thread="th_1" seq={3} close={close} />);
const restore = () => screen.getByText<HTMLButtonElement>("Restore", { selector: "button" });

it("shows the changes and what is not undone, and restores all paths", async () => {
  const close = vi.fn();
  show(close);
  await screen.findByText(/milk/);
  expect(screen.getByText(/it uses the network/)).toBeTruthy();
  expect(server.asked[0]!.path).toBe("/threads/th_1/files?seq=3");
  fireEvent.click(restore());
  await waitFor(() => expect(close).toHaveBeenCalled());
  expect(server.asked[1]!.body).toEqual({ seq: 3, paths: [] });
  expect(app.get().notices.at(-1)!.text).toBe("Restored 1 path.");
});

it("restores one path", async () => {
  show();
  await screen.findByText(/milk/);
  fireEvent.change(screen.getByLabelText(/Restore/), { target: { value: "new" } });
  expect(screen.queryByText(/milk/)).toBeNull();
  fireEvent.click(restore());
  await waitFor(() => expect(server.asked[1]?.body).toEqual({ seq: 3, paths: ["new"] }));
});

it("shows the error of the server", async () => {
  preview = Response.json({ error: { code: "not_found", message: "nothing to undo" } }, { status: 404 });
  show();
  expect((await screen.findByRole("alert", { hidden: true })).textContent).toBe("nothing to undo");
  expect(restore().disabled).toBe(true);
});
