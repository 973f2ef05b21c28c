/** The form of an agent, generated from the schema of its options and validated by the server. */

import { type FormEvent, useEffect, useId, useMemo, useRef, useState } from "react";

import { ApiError } from "../api/http";
import { agentSettings, type AgentForm } from "../api/settings";
import panel from "../panels/panels.module.css";
import { toSentence } from "../panels/States";
import { notify, tryRequest, useApp } from "../state/app";
import { refreshAgents } from "../state/lists";
import { useModels } from "../state/models";
import { chooseAgent, newThread } from "../state/threads";
import { type Fields, type Schema, withField } from "./form";
import { FormProblems, SchemaField } from "./SchemaField";
import styles from "./settings.module.css";

export interface Edited {
  key: string;
  id: string; // empty for a new agent
  revision: number;
  shared: boolean;
  options: Fields;
  refused?: string;
  enforced?: string[];
}

export function AgentEditor({
  form,
  edited,
  edit,
}: {
  form: AgentForm;
  edited: Edited;
  edit: (edited: Edited | null) => void;
}) {
  const operator = useApp((state) => state.me?.role !== "user");
  const known = useModels((state) => state.known);
  const [id, setId] = useState(edited.id);
  const [shared, setShared] = useState(edited.shared);
  const [options, setOptions] = useState(edited.options);
  const [refusal, setRefusal] = useState<ApiError | null>(null);
  const [broken, setBroken] = useState<Record<string, string>>({});
  const problems = useMemo(
    () => ({
      errors: { ...(refusal?.fields ?? {}), ...broken },
      report: (path: string, problem: string) =>
        setBroken((old) => withField(old, path, problem) as Record<string, string>),
    }),
    [refusal, broken],
  );
  const save = async (event: FormEvent) => {
    event.preventDefault();
    setRefusal(null);
    try {
      if (edited.id) await agentSettings.replace(edited.id, edited.revision, options);
      else await agentSettings.create(id.trim(), shared, options);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status === 401) {
        await tryRequest(() => Promise.reject(error as Error));
        return;
      }
      setRefusal(error);
      return;
    }
    await refreshAgents();
    notify(`The agent ${edited.id || id.trim()} is stored.`);
    if (!edited.id) {
      newThread();
      chooseAgent(id.trim());
    }
    edit(null);
  };
  const remove = async () => {
    if (!confirm(`Delete the agent ${edited.id}? Its threads stay.`)) return;
    const done = await tryRequest(() => agentSettings.remove(edited.id).then(() => true));
    if (!done) return;
    await refreshAgents();
    edit(null);
  };
  return (
    <form className={panel.panel} onSubmit={(event) => void save(event)} aria-label="Agent">
      <h3>{edited.id ? `Edit ${edited.id}` : "New agent"}</h3>
      {edited.refused && <p className={styles.note}>{toSentence(edited.refused)}</p>}
      {edited.enforced && edited.enforced.length > 0 && (
        <p className={styles.note}>The server enforces {edited.enforced.join(", ")}, whatever is set here.</p>
      )}
      {refusal && <Problems refusal={refusal} />}
      {!edited.id && <Identity id={id} setId={setId} shared={operator ? shared : null} setShared={setShared} />}
      <datalist id="known-models">
        {["auto", "demo", ...known.map((one) => one.name)].map((one) => (
          <option key={one} value={one} />
        ))}
      </datalist>
      <FormProblems value={problems}>
        <Groups form={form} options={options} change={setOptions} />
      </FormProblems>
      <div className={styles.bar}>
        <button
          className="main"
          disabled={Boolean(edited.refused) || !(edited.id || id.trim()) || Object.keys(broken).length > 0}
        >
          Save
        </button>
        <button type="button" onClick={() => edit(null)}>
          Cancel
        </button>
        {edited.id && !edited.refused && (
          <button type="button" className="no" onClick={() => void remove()}>
            Delete
          </button>
        )}
      </div>
    </form>
  );
}

function Problems({ refusal }: { refusal: ApiError }) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => place.current?.focus(), [refusal]); // it scrolls there, too
  const fields = Object.entries(refusal.fields);
  return (
    <div className={styles.problems} role="alert" tabIndex={-1} ref={place}>
      {fields.length ? "Nothing was stored. Correct these fields:" : toSentence(refusal.message)}
      {fields.length > 0 && (
        <ul>
          {fields.map(([path, message]) => (
            <li key={path}>
              <strong>{path}</strong>: {message}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

interface IdentityProps {
  id: string;
  setId: (id: string) => void;
  shared: boolean | null; // null: the user may not share
  setShared: (shared: boolean) => void;
}

function Identity({ id, setId, shared, setShared }: IdentityProps) {
  const name = useId();
  return (
    <>
      <div className={styles.field}>
        <label htmlFor={name}>id</label>
        <input
          id={name}
          required
          maxLength={64}
          autoComplete="off"
          value={id}
          onChange={(event) => setId(event.target.value)}
        />
        <small className={styles.hint}>Letters, digits, _, . and -; it cannot be changed later.</small>
      </div>
      {shared !== null && (
        <label>
          <input type="checkbox" checked={shared} onChange={(event) => setShared(event.target.checked)} /> for all users
        </label>
      )}
    </>
  );
}

/** The fields of the schema, in its groups. */
function Groups({ form, options, change }: { form: AgentForm; options: Fields; change: (options: Fields) => void }) {
  const properties = Object.entries((form.form as Schema).properties ?? {});
  const groups = [...new Set(properties.map(([, schema]) => schema["x-group"] ?? ""))];
  return groups.map((group) => (
    <section key={group} aria-label={group}>
      <h3>{group}</h3>
      {properties
        .filter(([, schema]) => (schema["x-group"] ?? "") === group)
        .map(([key, schema]) =>
          key === "tools" ? (
            <Tools
              key={key}
              known={form.tools}
              chosen={options[key]}
              change={(now) => change(withField(options, key, now))}
            />
          ) : (
            <SchemaField
              key={key}
              name={key}
              path={key}
              schema={schema}
              value={options[key]}
              change={(now) => change(withField(options, key, now))}
            />
          ),
        )}
    </section>
  ));
}

function Tools({ known, chosen, change }: { known: string[]; chosen: unknown; change: (chosen: string[]) => void }) {
  const names = Array.isArray(chosen) ? chosen.map(String) : [];
  const all = [...new Set([...known, ...names])];
  return (
    <fieldset className={styles.group}>
      <legend>tools</legend>
      <p className={styles.hint}>Tools of the server; files, skills and others come with their capabilities.</p>
      {all.map((name) => (
        <label key={name} className={styles.row}>
          <span>{name}</span>
          <input
            type="checkbox"
            checked={names.includes(name)}
            onChange={(event) => change(event.target.checked ? [...names, name] : names.filter((one) => one !== name))}
          />
        </label>
      ))}
    </fieldset>
  );
}
