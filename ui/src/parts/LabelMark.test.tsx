import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";

import { LabelMark } from "./LabelMark";

afterEach(cleanup);

it("marks untrusted text and private data, with their sources", () => {
  render(<LabelMark label={{ trusted: false, private: ["mail", "drive"] }} source="read_mail" />);
  expect(screen.getByText("untrusted").title).toBe("Untrusted text from read_mail: not a trusted source");
  expect(screen.getByText("private: drive").title).toBe("Private data of drive was read");
});

it.each([null, undefined, { trusted: true }, { trusted: true, private: [] }])("marks nothing else: %j", (label) => {
  const { container } = render(<LabelMark label={label} />);
  expect(container.innerHTML).toBe("");
});
