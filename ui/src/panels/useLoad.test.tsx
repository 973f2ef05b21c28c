import { act, cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";

import { ApiError } from "../api/http";
import { app, patchApp } from "../state/app";
import { Show } from "./States";
import { useEvery, useLoad } from "./useLoad";

afterEach(cleanup);

function Shown({ load, of, again = 0 }: { load: (of: string) => Promise<string>; of: string; again?: number }) {
  // eslint-disable-next-line react-hooks/exhaustive-deps -- a new function does not load again
  const loaded = useLoad(() => load(of), [of], again);
  return (
    <Show of={loaded} what="it">
      {(text) => <p>{text}</p>}
    </Show>
  );
}

it("says that it reads, what went wrong, and tries again", async () => {
  let times = 0;
  render(
    <Shown of="a" load={() => (times++ ? Promise.resolve("here") : Promise.reject(new Error("the server is away")))} />,
  );
  expect(screen.getByRole("status").textContent).toBe("Loading it…");
  expect((await screen.findByRole("alert")).textContent).toContain("The server is away.");
  fireEvent.click(screen.getByRole("button", { name: "Try again" }));
  expect(await screen.findByText("here")).toBeTruthy();
});

it("shows nothing of what was asked for before, however late it comes", async () => {
  const answers: Record<string, (text: string) => void> = {};
  const load = (of: string) =>
    new Promise<string>((done) => {
      answers[of] = done;
    });
  const { rerender } = render(<Shown of="old" load={load} />);
  rerender(<Shown of="new" load={load} />);
  answers["new"]!("the new one");
  expect(await screen.findByText("the new one")).toBeTruthy();
  answers["old"]!("the old one");
  await Promise.resolve();
  expect(screen.queryByText("the old one")).toBeNull();
});

it("keeps what it knows while it reads again", async () => {
  const answers: ((text: string) => void)[] = [];
  const load = () =>
    new Promise<string>((done) => {
      answers.push(done);
    });
  const { rerender } = render(<Shown of="a" load={load} />);
  answers[0]!("before");
  expect(await screen.findByText("before")).toBeTruthy();
  rerender(<Shown of="a" load={load} again={1} />);
  expect(answers).toHaveLength(2);
  expect(screen.getByText("before")).toBeTruthy();
  answers[1]!("after");
  expect(await screen.findByText("after")).toBeTruthy();
});

it("keeps what it knows when reading again fails, and says so", async () => {
  const load = vi.fn(() => Promise.resolve("before"));
  const { rerender } = render(<Shown of="a" load={load} />);
  expect(await screen.findByText("before")).toBeTruthy();
  load.mockReturnValue(Promise.reject(new Error("the server did not answer")));
  rerender(<Shown of="a" load={load} again={1} />);
  expect((await screen.findByRole("alert")).textContent).toContain("The server did not answer.");
  expect(screen.getByText("before")).toBeTruthy();
});

it("asks who is signed out to sign in", async () => {
  patchApp({ me: { id: "1", username: "ada", role: "user" } });
  render(<Shown of="a" load={() => Promise.reject(new ApiError(401, "unauthorized", "sign in first"))} />);
  await screen.findByRole("alert");
  expect(app.get().me).toBeNull();
});

it("reloads periodically while the page is visible", () => {
  vi.useFakeTimers();
  const Times = () => <p>{useEvery(1_000)} times</p>;
  const { unmount } = render(<Times />);
  act(() => void vi.advanceTimersByTime(2_500));
  expect(screen.getByText("2 times")).toBeTruthy();
  const hidden = vi.spyOn(document, "visibilityState", "get").mockReturnValue("hidden");
  act(() => void vi.advanceTimersByTime(2_500));
  expect(screen.getByText("2 times")).toBeTruthy();
  unmount();
  expect(vi.getTimerCount()).toBe(0);
  hidden.mockRestore();
  vi.useRealTimers();
});
