/** Where the agent works: this machine, a container here, or one on an engine elsewhere. */

import { type FormEvent, useEffect, useState } from "react";

import * as api from "../../api";
import { tryRequest, notify, useApp } from "../../state/app";
import { joinClasses } from "../../parts/classes";
import panel from "../panels.module.css";
import styles from "./agent.module.css";

type Place = "local" | "docker" | "remote";
const PLACES: readonly (readonly [Place, string])[] = [
  ["local", "This machine"],
  ["docker", "Local Docker"],
  ["remote", "Remote Docker"],
];
const LEVELS: Record<string, string> = { strong: "good", weak: "warm", none: "bad" };
const STATES: Record<string, string> = { launched: "good", launching: "warm", error: "bad", idle: "" };

export function placeOf(backend: api.BackendInfo | null): Place | null {
  if (!backend) return null;
  if (backend.mode === "local") return "local";
  return backend.sandbox_url ? "remote" : "docker";
}

export function Backend({ agent, backend }: { agent: string; backend: api.BackendInfo | null }) {
  const [shown, setShown] = useState(backend);
  const [busy, setBusy] = useState("");
  useEffect(() => setShown(backend), [backend]);
  const act = async (what: string, work: () => Promise<api.BackendInfo | null | undefined>) => {
    setBusy(what);
    const now = (await tryRequest(work)) ?? (await tryRequest(() => api.agents.backend(agent))); // a failed request may have changed the backend
    if (now !== undefined) setShown(now);
    setBusy("");
  };
  const go = (mode: "local" | "remote", url: string | null) =>
    act("Switching…", async () => {
      const now = await api.agents.switchBackend(agent, { mode, sandbox_url: url });
      notify("The backend is used from the next run.");
      return now;
    });
  const control = (action: "stop" | "restart") =>
    act(action === "stop" ? "Stopping…" : "Starting…", async () => {
      await api.agents.container(agent, action);
      return api.agents.backend(agent);
    });
  return (
    <section aria-label="Backend">
      <h3>Backend</h3>
      <Places place={placeOf(shown)} busy={Boolean(busy)} go={go} />
      {shown ? (
        <Facts backend={shown} busy={busy} control={control} />
      ) : (
        <p className={panel.note}>This agent has no workspace for files and commands. Choose a backend to add one.</p>
      )}
    </section>
  );
}

function Places({
  place,
  busy,
  go,
}: {
  place: Place | null;
  busy: boolean;
  go: (mode: "local" | "remote", url: string | null) => Promise<void>;
}) {
  const operator = useApp((state) => state.me?.role !== "user");
  const [asking, setAsking] = useState(false);
  const choose = (wanted: Place) => {
    setAsking(wanted === "remote");
    if (wanted !== "remote" && wanted !== place) void go(wanted === "local" ? "local" : "remote", null);
  };
  return (
    <>
      <div className={panel.segments} role="group" aria-label="Backend type">
        {PLACES.map(([id, title]) => (
          <button
            key={id}
            aria-pressed={asking ? id === "remote" : id === place}
            disabled={busy || (id === "remote" && !operator)}
            title={id === "remote" && !operator ? "Only operators can choose a remote engine." : undefined}
            onClick={() => choose(id)}
          >
            {title}
          </button>
        ))}
      </div>
      {asking && (
        <Engine
          done={(url) => {
            setAsking(false);
            if (url) void go("remote", url);
          }}
        />
      )}
    </>
  );
}

function Engine({ done }: { done: (url: string) => void }) {
  const [url, setUrl] = useState("");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    done(url.trim());
  };
  return (
    <form className={joinClasses(panel.barOfTools, styles.engine)} onSubmit={submit}>
      <label className={panel.field}>
        Engine address{" "}
        <input autoFocus value={url} placeholder="tcp://host:2376" onChange={(event) => setUrl(event.target.value)} />
      </label>
      <button className="main" disabled={!url.trim()}>
        Connect
      </button>
      <button type="button" onClick={() => done("")}>
        Cancel
      </button>
    </form>
  );
}

function Facts({
  backend,
  busy,
  control,
}: {
  backend: api.BackendInfo;
  busy: string;
  control: (action: "stop" | "restart") => Promise<void>;
}) {
  const { protection, status } = backend;
  return (
    <>
      <dl className={panel.facts}>
        <dt>Status</dt>
        <dd>
          <span role="status" className={panel.chip} data-tone={busy ? "warm" : STATES[status]}>
            {busy || status}
          </span>{" "}
          {backend.reason}
        </dd>
        <dt>Folder</dt>
        <dd>
          <code>{backend.workdir}</code>
        </dd>
        {backend.sandbox_url && (
          <>
            <dt>Engine</dt>
            <dd>
              <code>{backend.sandbox_url}</code>
            </dd>
          </>
        )}
        <dt>Protection</dt>
        <dd>
          <span className={panel.chip} data-tone={LEVELS[protection.level]}>
            {protection.level}
          </span>{" "}
          {protection.says}
          {protection.asks ? " Each command needs your approval." : ""}
        </dd>
      </dl>
      <p className={panel.barOfTools}>
        <button disabled={Boolean(busy) || status === "idle"} onClick={() => void control("stop")}>
          Stop
        </button>
        <button disabled={Boolean(busy)} onClick={() => void control("restart")}>
          {status === "idle" ? "Start" : "Restart"}
        </button>
        <small className={panel.note}>Running commands are stopped; files are kept.</small>
      </p>
    </>
  );
}
