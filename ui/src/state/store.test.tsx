import { act, render } from "@testing-library/react";
import { expect, it } from "vitest";

import { createStore, useStore } from "./store";

it("draws a component again only when what it reads has changed", () => {
  const store = createStore({ a: 1, b: 1 });
  let drawn = 0;
  function Part() {
    drawn += 1;
    return <b>{useStore(store, (state) => state.a)}</b>;
  }
  const { container, unmount } = render(<Part />);
  act(() => store.set((old) => ({ ...old, b: 2 })));
  expect(drawn).toBe(1);
  act(() => store.set((old) => ({ ...old, a: 5 })));
  expect(container.textContent).toBe("5");
  unmount();
  store.set((old) => ({ ...old, a: 6 }));
  expect(drawn).toBe(2);
});
