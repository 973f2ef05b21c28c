/** A field of a form, as its JSON Schema describes it. */

import { createContext, useContext, useId, useState } from "react";

import {
  asFields, choicesOf, type Fields, fromLines, groupOf, isWhole, itemOf, kindOf, labelOf, type Schema, toLines, tryJson,
  type Value, variantsOf, withField, plainText,
} from "./form"; // prettier-ignore
import styles from "./settings.module.css";

interface Problems {
  errors: Record<string, string>; // by the path of a field
  report: (path: string, problem: string) => void; // something that cannot be sent
}

export const FormProblems = createContext<Problems>({ errors: {}, report: () => undefined });

interface Props {
  name: string;
  path: string;
  schema: Schema;
  value: Value;
  change: (value: Value) => void;
}

export function SchemaField(props: Props) {
  const kind = kindOf(props.schema);
  if (kind === "capability") return <Capability {...props} />;
  if (kind === "variants") return <Variants {...props} />;
  if (kind === "group") return <Nested {...props} />;
  if (kind === "map") return <MapField {...props} />;
  return <Plain {...props} />;
}

/** The attributes and texts of a control: label, explanation and error. */
function useLabels({ path, schema, name }: Props) {
  const id = useId();
  const error = useContext(FormProblems).errors[path] ?? "";
  const about = [schema.description, schema.default === undefined ? "" : `Default: ${JSON.stringify(schema.default)}`];
  const hint = plainText(about.filter(Boolean).join(" "));
  const described = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ");
  const control = {
    id,
    "aria-describedby": described || undefined,
    "aria-invalid": error ? true : undefined,
    "data-path": path,
  };
  const frame = (children: React.ReactNode) => (
    <div className={styles.field}>
      <label htmlFor={id}>{labelOf(name)}</label>
      {children}
      {hint && (
        <small id={`${id}-hint`} className={styles.hint}>
          {hint}
        </small>
      )}
      {error && (
        <small id={`${id}-error`} className={styles.error}>
          {error}
        </small>
      )}
    </div>
  );
  return { control, frame };
}

function Plain(props: Props) {
  const { schema, value, change, name } = props;
  const { control, frame } = useLabels(props);
  const kind = kindOf(schema);
  if (kind === "choice" || kind === "switch") {
    const choices = kind === "switch" ? ["true", "false"] : choicesOf(schema);
    const read = (text: string) => (text === "" ? undefined : kind === "switch" ? text === "true" : text);
    return frame(
      <select
        {...control}
        value={typeof value === "string" || typeof value === "boolean" ? String(value) : ""}
        onChange={(event) => change(read(event.target.value))}
      >
        <option value="">default</option>
        {choices.map((one) => (
          <option key={one} value={one}>
            {kind === "switch" ? (one === "true" ? "on" : "off") : one}
          </option>
        ))}
      </select>,
    );
  }
  if (kind === "number")
    return frame(
      <input
        {...control}
        type="number"
        step={isWhole(schema) ? 1 : "any"}
        value={typeof value === "number" || typeof value === "string" ? value : ""}
        onChange={(event) => change(event.target.value === "" ? undefined : event.target.valueAsNumber)}
      />,
    );
  if (kind === "lines")
    return frame(<Lines control={control} value={value} change={change} placeholder="one in each line" />);
  if (kind === "text" && (value === undefined || typeof value === "string"))
    return frame(
      name === "system_prompt" ? (
        <textarea {...control} rows={6} value={value ?? ""} onChange={(event) => change(event.target.value)} />
      ) : (
        <input
          {...control}
          autoComplete="off"
          list={name === "model" ? "known-models" : undefined}
          value={value ?? ""}
          onChange={(event) => change(event.target.value)}
        />
      ),
    );
  return frame(<JsonText {...props} control={control} />);
}

function Lines({
  control,
  value,
  change,
  placeholder,
}: Pick<Props, "value" | "change"> & { control: object; placeholder: string }) {
  const [text, setText] = useState(() => toLines(value)); // empty lines stay while the user types
  return (
    <textarea
      {...control}
      rows={Math.min(8, Math.max(2, text.split("\n").length))}
      placeholder={placeholder}
      value={text}
      onChange={(event) => {
        setText(event.target.value);
        change(fromLines(event.target.value));
      }}
    />
  );
}

function JsonText({ value, change, path, control }: Props & { control: object }) {
  const { report } = useContext(FormProblems);
  const [text, setText] = useState(() => (value === undefined ? "" : JSON.stringify(value, null, 2)));
  const write = (typed: string) => {
    setText(typed);
    const read = typed.trim() ? tryJson(typed) : undefined;
    const broken = typed.trim() !== "" && read === undefined;
    report(path, broken ? "this is not valid JSON; check quotes, commas and brackets" : "");
    if (!broken) change(read);
  };
  return (
    <textarea
      {...control}
      className={styles.code}
      rows={Math.min(12, Math.max(2, text.split("\n").length))}
      placeholder="JSON"
      spellCheck={false}
      value={text}
      onChange={(event) => write(event.target.value)}
    />
  );
}

function Group({ path, schema, value, change }: Omit<Props, "name">) {
  const fields = asFields(value);
  return Object.entries(schema.properties ?? {})
    .filter(([, one]) => one.const === undefined)
    .map(([key, one]) => (
      <SchemaField
        key={key}
        name={key}
        path={`${path}.${key}`}
        schema={one}
        value={fields[key]}
        change={(now) => change(withField(fields, key, now))}
      />
    ));
}

function Nested(props: Props) {
  const change = (fields: Value) => props.change(Object.keys(asFields(fields)).length ? fields : undefined);
  return (
    <fieldset className={styles.group}>
      <legend>{labelOf(props.name)}</legend>
      <Group path={props.path} schema={groupOf(props.schema)} value={props.value} change={change} />
    </fieldset>
  );
}

/** A capability: on, off or as by default; and its options. */
function Capability(props: Props) {
  const { name, path, schema, value, change } = props;
  const { control } = useLabels(props);
  const { errors } = useContext(FormProblems);
  const wrong = Object.keys(errors).some((one) => one === path || one.startsWith(`${path}.`));
  const state = value === undefined ? "default" : value === false ? "off" : "on";
  const options = groupOf(schema);
  return (
    <details className={styles.capability} open={wrong || undefined}>
      <summary>
        <strong>{labelOf(name)}</strong> <small>{state === "default" ? (schema["x-on"] ? "on" : "off") : state}</small>
      </summary>
      <p className={styles.hint}>{plainText(schema.description)}</p>
      {schema["x-note"] && <p className={styles.note}>{plainText(schema["x-note"])}</p>}
      {errors[path] && <p className={styles.error}>{errors[path]}</p>}
      <div className={styles.field}>
        <label htmlFor={control.id}>State of {labelOf(name)}</label>
        <select
          {...control}
          value={state}
          onChange={(event) =>
            change({ default: undefined, on: true, off: false }[event.target.value as "default" | "on" | "off"])
          }
        >
          <option value="default">default ({schema["x-on"] ? "on" : "off"})</option>
          <option value="on">on</option>
          <option value="off">off</option>
        </select>
      </div>
      {state === "on" && (
        <Group
          path={path}
          schema={options}
          value={value}
          change={(fields) => change(Object.keys(asFields(fields)).length ? fields : true)}
        />
      )}
    </details>
  );
}

/** A value with a type, such as a backend. */
function Variants(props: Props) {
  const { path, schema, value, change } = props;
  const { control, frame } = useLabels(props);
  const variants = variantsOf(schema);
  const fields: Fields = typeof value === "string" ? { type: value } : asFields(value);
  const type = typeof fields["type"] === "string" ? fields["type"] : "";
  return (
    <fieldset className={styles.group}>
      <legend>{labelOf(props.name)}</legend>
      {frame(
        <select
          {...control}
          value={type}
          onChange={(event) => change(event.target.value ? { type: event.target.value } : undefined)}
        >
          <option value="">none</option>
          {Object.keys(variants).map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>,
      )}
      {variants[type] && <Group path={path} schema={variants[type]} value={fields} change={change} />}
    </fieldset>
  );
}

/** Values by names that the user chooses, such as MCP servers. */
function MapField({ name, path, schema, value, change }: Props) {
  const [added, setAdded] = useState("");
  const id = useId();
  const fields = asFields(value);
  const item = itemOf(schema);
  const add = () => {
    if (!added.trim() || added in fields) return;
    change({ ...fields, [added.trim()]: item.type === "string" ? "" : {} });
    setAdded("");
  };
  return (
    <fieldset className={styles.group}>
      <legend>{labelOf(name)}</legend>
      {Object.entries(fields).map(([key, one]) => (
        <div key={key} className={styles.entry}>
          <div className={styles.grow}>
            {item.type === "string" ? (
              <SchemaField
                name={key}
                path={`${path}.${key}`}
                schema={item}
                value={one}
                change={(now) => change({ ...fields, [key]: now })}
              />
            ) : (
              <fieldset className={styles.group}>
                <legend>{key}</legend>
                <Group
                  path={`${path}.${key}`}
                  schema={item}
                  value={one}
                  change={(now) => change({ ...fields, [key]: now })}
                />
              </fieldset>
            )}
          </div>
          <button type="button" aria-label={`Remove ${key}`} onClick={() => change(withField(fields, key, undefined))}>
            Remove
          </button>
        </div>
      ))}
      <div className={styles.entry}>
        <label htmlFor={id} className="visually-hidden">
          New name in {labelOf(name)}
        </label>
        <input
          id={id}
          className={styles.grow}
          placeholder="name"
          value={added}
          onChange={(event) => setAdded(event.target.value)}
          onKeyDown={(event) => event.key === "Enter" && (event.preventDefault(), add())}
        />
        <button type="button" onClick={add} disabled={!added.trim()}>
          Add to {labelOf(name)}
        </button>
      </div>
    </fieldset>
  );
}
