import { cleanup, render, screen, within } from "@testing-library/react";
import { afterEach, beforeEach, expect, it } from "vitest";

import type { ClusterServer, ClusterStatus } from "../../api";
import { patchApp } from "../../state/app";
import { serve } from "../../testing/serve";
import Cluster from "../Cluster";

const server = (id: string, more: Partial<ClusterServer> = {}): ClusterServer => ({
  id,
  host: `node-${id}`,
  version: "0.1.0",
  capacity: 50,
  running: 3,
  draining: false,
  heartbeat_age: 0.4,
  alive: true,
  ...more,
});

let status: ClusterStatus;
let served: ReturnType<typeof serve>;

beforeEach(() => {
  patchApp({ me: { id: "1", username: "root", role: "admin" } });
  status = { server_id: "a", live: "nats", live_connected: true, servers: [server("a"), server("b")] };
  served = serve({ "GET /cluster": () => status });
});
afterEach(() => {
  cleanup();
  served.stop();
});

it("lists the servers with their states, and marks the one that responds", async () => {
  status.servers = [
    server("a", { capacity: 0 }),
    server("b", { draining: true }),
    server("c", { alive: false, heartbeat_age: 254 }),
    server("d", { problem: "http://d refuses forwarded requests" }),
  ];
  render(<Cluster />);
  const rows = within(await screen.findByRole("table")).getAllByRole("row");
  expect(rows.slice(1).map((row) => [...row.children].map((cell) => cell.textContent).join("|"))).toEqual([
    "a (this)|alive|node-a|0.1.0|3|no limit|0 s ago",
    "b|draining|node-b|0.1.0|3|50|0 s ago",
    "c|dead|node-c|0.1.0|3|50|4 min ago",
    "d|unreachable|node-d|0.1.0|3|50|0 s ago",
  ]);
  expect(screen.getByText("3 alive, 1 dead")).toBeTruthy();
  expect(screen.getByText("9 runs in progress")).toBeTruthy(); // those of a dead server are resumed elsewhere
  expect(screen.getByText(/listed for a day/)).toBeTruthy();
  expect(screen.getByText(/requests for its files fail here/).textContent).toContain("refuses forwarded requests");
});

it("reports a disconnected live plane", async () => {
  status.live_connected = false;
  render(<Cluster />);
  expect((await screen.findByText("disconnected")).getAttribute("data-tone")).toBe("bad");
  expect(screen.queryByText(/listed for a day/)).toBeNull();
});

it("has a table that can be scrolled with the keyboard", async () => {
  render(<Cluster />);
  expect((await screen.findByRole("region", { name: "Table of servers" })).tabIndex).toBe(0);
});

it("has a sentence for a cluster without servers", async () => {
  status.servers = [];
  render(<Cluster />);
  expect(await screen.findByText(/^No servers\./)).toBeTruthy();
  expect(screen.queryByRole("table")).toBeNull();
});

it("requests nothing for users who are not admins", () => {
  patchApp({ me: { id: "2", username: "olga", role: "operator" } });
  render(<Cluster />);
  expect(screen.getByText(/Only admins/)).toBeTruthy();
  expect(served.asked).toEqual([]);
});
