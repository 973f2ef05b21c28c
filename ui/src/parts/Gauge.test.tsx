import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";

import { formatCount } from "./amounts";
import { Gauge } from "./Gauge";

it("says how much is gone, and does not draw more than there is", () => {
  const { container, rerender } = render(
    <Gauge label="Tokens" used={250} reserved={100} most={1000} show={formatCount} />,
  );
  const meter = screen.getByRole("meter", { name: "Tokens" });
  expect(meter.getAttribute("aria-valuenow")).toBe("250");
  expect(meter.getAttribute("aria-valuetext")).toBe("250 of 1,000, 100 reserved");
  expect(container.querySelector<HTMLElement>(".controls-used")!.style.width).toBe("25%");
  expect(meter.classList.contains("controls-near")).toBe(false);
  rerender(<Gauge label="Tokens" used={1500} reserved={100} most={1000} show={formatCount} />);
  expect(meter.getAttribute("aria-valuenow")).toBe("1000");
  expect(container.querySelector<HTMLElement>(".controls-reserved")!.style.width).toBe("0%");
  expect(meter.classList.contains("controls-near")).toBe(true);
});
