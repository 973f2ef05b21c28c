/** The pending operation in readable form: a diff for an edit, a command and its parts, else data. */

import { useEffect, useState } from "react";

import * as api from "../api";
import { showControls } from "../parts/visible";
import { diff, type Line } from "./diff";
import styles from "./chat.module.css";

type Args = Record<string, unknown>;

interface Place {
  agent: string;
  thread: string;
}

/** `of` selects the files that an edit is compared with. */
export function AboutCall({
  tool,
  args,
  shell,
  of,
}: {
  tool: string;
  args: Args;
  shell?: api.Approval["shell"];
  of?: Place;
}) {
  if (tool === "edit_file")
    return (
      <Diff
        path={textArgument(args, "path")}
        lines={diff(textArgument(args, "old_text"), textArgument(args, "new_text"))}
      />
    );
  if (tool === "write_file")
    return <Written of={of ?? null} path={textArgument(args, "path")} content={textArgument(args, "content")} />;
  if (typeof args["command"] === "string") return <Command args={args} shell={shell ?? null} />;
  return (
    <pre className={styles.args} tabIndex={0} aria-label="Arguments">
      {showControls(JSON.stringify(args, null, 2))}
    </pre>
  );
}

const textArgument = (args: Args, name: string): string => (typeof args[name] === "string" ? args[name] : "");

function Command({ args, shell }: { args: Args; shell: api.Approval["shell"] }) {
  const { command, ...rest } = args;
  const more = Object.entries(rest).filter(([, value]) => value !== null && value !== false && value !== "");
  return (
    <div>
      <pre className={styles.command} tabIndex={0} aria-label="Command">
        <span aria-hidden="true">$ </span>
        {showControls(String(command))}
      </pre>
      {shell && <Parts shell={shell} />}
      {more.length > 0 && (
        <p className={styles.with}>
          {showControls(more.map(([name, value]) => `${name}: ${JSON.stringify(value)}`).join(", "))}
        </p>
      )}
    </div>
  );
}

/** The parsed parts of a command. */
function Parts({ shell }: { shell: NonNullable<api.Approval["shell"]> }) {
  const rows: [string, string[]][] = [
    ["runs", shell.commands ?? []],
    ["writes", shell.writes ?? []],
    ["reads", shell.reads ?? []],
    ["unresolved", shell.opaque ?? []],
  ];
  return (
    <dl className={styles.parsed} aria-label="Command analysis">
      {rows
        .filter(([, found]) => found.length)
        .map(([name, found]) => (
          <div key={name} className={name === "unresolved" ? styles.opaque : undefined}>
            <dt>{name}</dt>
            <dd>
              {found.map((one, at) => (
                <code key={at}>{showControls(one)}</code>
              ))}
            </dd>
          </div>
        ))}
    </dl>
  );
}

/** The new content of a file, compared with the current one. */
function Written({ of, path, content }: { of: Place | null; path: string; content: string }) {
  const [old, setOld] = useState("");
  const [agent, thread] = [of?.agent, of?.thread];
  useEffect(() => {
    let late = false;
    if (agent !== undefined)
      api.files.read(agent, path, thread).then(
        (file) => !late && file.encoding !== "base64" && setOld(file.content),
        () => undefined,
      ); // one that is not there is new
    return () => void (late = true);
  }, [agent, thread, path]);
  return <Diff path={path} lines={diff(old, content)} />;
}

export function Diff({ path, lines }: { path: string; lines: Line[] }) {
  const count = (kind: Line["kind"]) => lines.filter((line) => line.kind === kind).length;
  return (
    <figure className={styles.diff}>
      <figcaption>
        <code>{showControls(path)}</code>{" "}
        {lines.length > 0 && (
          <small>
            <span className={styles.plus}>+{count("new")}</span> <span className={styles.minus}>−{count("gone")}</span>
          </small>
        )}
      </figcaption>
      {lines.length > 0 && (
        <pre tabIndex={0} aria-label={`Changes in ${path}`}>
          {lines.map((line, at) => (
            <Shown key={at} line={line} />
          ))}
        </pre>
      )}
    </figure>
  );
}

function Shown({ line: { kind, text } }: { line: Line }) {
  const line = { kind, text: showControls(text) };
  if (line.kind === "gone")
    return (
      <del>
        - {line.text}
        {"\n"}
      </del>
    );
  if (line.kind === "new")
    return (
      <ins>
        + {line.text}
        {"\n"}
      </ins>
    );
  if (line.kind === "skipped")
    return (
      <span className={styles.skipped}>
        … {line.text} {line.text === "1" ? "line" : "lines"} unchanged{"\n"}
      </span>
    );
  return (
    <span>
      {"  "}
      {line.text}
      {"\n"}
    </span>
  );
}
