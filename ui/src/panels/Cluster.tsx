/** The servers of the cluster, with their runs and heartbeats; for admins. */

import * as api from "../api";
import { formatCount, formatPlural, formatSeconds } from "../parts/amounts";
import { useApp } from "../state/app";
import { Show } from "./States";
import { useEvery, useLoad } from "./useLoad";
import panel from "./panels.module.css";

const LOOK_MS = 2_000; // between two polls; servers send a heartbeat each second

export default function Cluster() {
  const admin = useApp((state) => state.me?.role === "admin");
  return (
    <div className={panel.panel}>
      {admin ? <Status /> : <p className="empty">Only admins can see the servers. Sign in as an admin.</p>}
    </div>
  );
}

function Status() {
  const status = useLoad(() => api.cluster(), [], useEvery(LOOK_MS));
  return (
    <Show of={status} what="servers">
      {(found) => (
        <>
          <Summary status={found} />
          {found.servers.length ? (
            <Servers status={found} />
          ) : (
            <p className="empty">No servers. This one is starting or stopping.</p>
          )}
        </>
      )}
    </Show>
  );
}

function Summary({ status }: { status: api.ClusterStatus }) {
  const alive = status.servers.filter((one) => one.alive);
  const dead = status.servers.length - alive.length;
  return (
    <dl className={panel.facts} aria-label="Summary">
      <dt>Servers</dt>
      <dd>
        {formatCount(alive.length)} alive{dead > 0 && `, ${formatCount(dead)} dead`}
      </dd>
      <dt>Runs</dt>
      <dd>{formatPlural(sumRuns(alive), "run")} in progress</dd>
      <dt>Live plane</dt>
      <dd>
        {status.live}{" "}
        <span className={panel.chip} data-tone={status.live_connected ? "good" : "bad"}>
          {status.live_connected ? "connected" : "disconnected"}
        </span>
      </dd>
    </dl>
  );
}

const sumRuns = (servers: api.ClusterServer[]): number => servers.reduce((sum, one) => sum + one.running, 0);

function Servers({ status }: { status: api.ClusterStatus }) {
  return (
    <section aria-label="Servers">
      <h3>Servers</h3>
      <div className={panel.wide} role="region" aria-label="Table of servers" tabIndex={0}>
        <table className={panel.stacked}>
          <thead>
            <tr>
              <th scope="col">server</th>
              <th scope="col">state</th>
              <th scope="col">host</th>
              <th scope="col">version</th>
              <th scope="col" className={panel.number}>
                runs
              </th>
              <th scope="col" className={panel.number}>
                capacity
              </th>
              <th scope="col" className={panel.number}>
                heartbeat
              </th>
            </tr>
          </thead>
          <tbody>
            {status.servers.map((one) => (
              <Server key={one.id} server={one} isThis={one.id === status.server_id} />
            ))}
          </tbody>
        </table>
      </div>
      {status.servers.map(
        (one) =>
          one.problem && (
            <p key={one.id} className={panel.note}>
              <b>{one.id}</b>: requests for its files fail here: {one.problem}.
            </p>
          ),
      )}
      {status.servers.some((one) => !one.alive) && (
        <p className={panel.note}>
          Other servers resume the runs of a dead one and restore its files. It is listed for a day.
        </p>
      )}
    </section>
  );
}

function Server({ server, isThis }: { server: api.ClusterServer; isThis: boolean }) {
  const [state, tone] = describeState(server);
  return (
    <tr>
      <th scope="row">
        {server.id}
        {isThis && " (this)"}
      </th>
      <td data-label="state">
        <span className={panel.chip} data-tone={tone}>
          {state}
        </span>
      </td>
      <td data-label="host">{server.host}</td>
      <td data-label="version">{server.version}</td>
      <td className={panel.number} data-label="runs">
        {formatCount(server.running)}
      </td>
      <td className={panel.number} data-label="capacity">
        {server.capacity ? formatCount(server.capacity) : "no limit"}
      </td>
      <td className={panel.number} data-label="heartbeat">
        {formatSeconds(server.heartbeat_age)} ago
      </td>
    </tr>
  );
}

function describeState(server: api.ClusterServer): [string, "good" | "warm" | "bad"] {
  if (!server.alive) return ["dead", "bad"];
  if (server.problem) return ["unreachable", "bad"];
  return server.draining ? ["draining", "warm"] : ["alive", "good"];
}
