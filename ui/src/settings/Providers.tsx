/** Keys of model providers: stored encrypted, tested, and never shown again. */

import { type FormEvent, useId, useState } from "react";

import { ApiError } from "../api/http";
import { type Provider, providers, type ProviderTest } from "../api/settings";
import panel from "../panels/panels.module.css";
import { Show, toSentence } from "../panels/States";
import { useLoad } from "../panels/useLoad";
import { formatAgo } from "../shell/ago";
import { notify, tryRequest } from "../state/app";
import { refreshAgents } from "../state/lists";
import { refreshModels } from "../state/models";
import styles from "./settings.module.css";

export function Providers() {
  const loaded = useLoad(() => providers.list(), []);
  const changed = () => {
    loaded.reload();
    void refreshModels();
    void refreshAgents();
  };
  return (
    <div className={panel.panel}>
      <p className={panel.note}>
        A key is stored encrypted on the server and cannot be shown again. Agents use it from their next run on.
      </p>
      <Show of={loaded} what="the providers">
        {(found) => (
          <>
            {found.problem && <p className={styles.note}>{toSentence(found.problem)}</p>}
            {found.providers.map((one) => (
              <ProviderRow key={one.provider} provider={one} changed={changed} blocked={found.problem !== ""} />
            ))}
          </>
        )}
      </Show>
    </div>
  );
}

const TONES = { stored: "good", environment: "warm", none: undefined } as const;

interface RowProps {
  provider: Provider;
  changed: () => void;
  blocked: boolean;
}

function ProviderRow({ provider, changed, blocked }: RowProps) {
  const remove = async () => {
    if (!confirm(`Delete the stored key of ${provider.provider}? Agents that use it stop working.`)) return;
    await tryRequest(() => providers.remove(provider.provider));
    changed();
  };
  return (
    <details className={styles.capability}>
      <summary>
        <strong>{provider.provider}</strong>{" "}
        <span className={panel.chip} data-tone={TONES[provider.source as "none"]}>
          {provider.source === "none" ? "no key" : provider.source}
        </span>
      </summary>
      {provider.problem && <p className={styles.error}>{toSentence(provider.problem)}</p>}
      {provider.source === "environment" && (
        <p className={styles.hint}>A variable of the server has its key. A key that you store here is used instead.</p>
      )}
      {provider.source === "stored" && (
        <p className={styles.row}>
          <span className={styles.hint}>
            Stored by {provider.by}, {formatAgo(provider.at ?? 0)}
          </span>
          <button type="button" className="no" onClick={() => void remove()}>
            Delete the key
          </button>
        </p>
      )}
      <KeyForm provider={provider} changed={changed} blocked={blocked} />
    </details>
  );
}

/** A key, its address and its models. The page discards the key once it is stored. */
function KeyForm({ provider, changed, blocked }: RowProps) {
  const id = useId();
  const [key, setKey] = useState("");
  const [address, setAddress] = useState(provider.base_url);
  const [models, setModels] = useState(provider.models.join("\n"));
  const [errors, setErrors] = useState<Record<string, string>>({});
  const [tested, setTested] = useState<ProviderTest | "busy" | null>(null);
  const names = models.split("\n").map((one) => one.trim()).filter(Boolean); // prettier-ignore
  const attempt = async <T,>(work: () => Promise<T>): Promise<T | undefined> => {
    setErrors({});
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof ApiError) || error.status === 401) return tryRequest(() => Promise.reject(error as Error));
      const fields = Object.keys(error.fields).length ? error.fields : { api_key: error.message };
      setErrors(fields);
      return undefined;
    }
  };
  const test = async () => {
    setTested("busy");
    const body = { api_key: key, base_url: address, ...(names[0] ? { model: names[0] } : {}) };
    setTested((await attempt(() => providers.test(provider.provider, body))) ?? null);
  };
  const save = async (event: FormEvent) => {
    event.preventDefault();
    const body = { api_key: key, base_url: address, models: names };
    if (!(await attempt(() => providers.put(provider.provider, body)))) return;
    setKey("");
    setTested(null);
    notify(`The key of ${provider.provider} is stored.`);
    changed();
  };
  return (
    <form onSubmit={(event) => void save(event)} autoComplete="off">
      <Field id={`${id}-key`} label={`Key of ${provider.provider}`} error={errors["api_key"]}>
        <input
          id={`${id}-key`}
          type="password"
          autoComplete="new-password"
          aria-invalid={Boolean(errors["api_key"])}
          placeholder={provider.source === "stored" ? "stored; enter another one to replace it" : ""}
          value={key}
          onChange={(event) => setKey(event.target.value)}
        />
      </Field>
      <Field
        id={`${id}-models`}
        label="Models that users may choose, one in each line"
        error={errors["models"] ?? errors["model"]}
      >
        <textarea
          id={`${id}-models`}
          rows={2}
          placeholder={provider.example}
          value={models}
          onChange={(event) => setModels(event.target.value)}
        />
      </Field>
      <Field id={`${id}-address`} label="Address, if it is not the provider's own" error={errors["base_url"]}>
        <input
          id={`${id}-address`}
          inputMode="url"
          placeholder="https://llm.example.com/v1"
          value={address}
          onChange={(event) => setAddress(event.target.value)}
        />
      </Field>
      <Tested result={tested} />
      <div className="choices">
        <button className="main" disabled={blocked || (!key && provider.source !== "stored")}>
          Save
        </button>
        <button
          type="button"
          onClick={() => void test()}
          disabled={tested === "busy" || (!key && provider.source === "none")}
        >
          Test
        </button>
      </div>
    </form>
  );
}

function Field(props: { id: string; label: string; error: string | undefined; children: React.ReactNode }) {
  return (
    <div className={styles.field}>
      <label htmlFor={props.id}>{props.label}</label>
      {props.children}
      {props.error && (
        <small className={styles.error} role="alert">
          {toSentence(props.error)}
        </small>
      )}
    </div>
  );
}

function Tested({ result }: { result: ProviderTest | "busy" | null }) {
  if (!result) return null;
  if (result === "busy")
    return (
      <p className={styles.hint} role="status">
        Sending a small request…
      </p>
    );
  return (
    <p className={result.ok ? styles.good : styles.error} role="status">
      {result.ok
        ? `${result.model} replied in ${result.seconds.toFixed(1)} s: ${result.message || "an empty text"}`
        : toSentence(`${result.model} did not reply: ${result.message}`)}
    </p>
  );
}
