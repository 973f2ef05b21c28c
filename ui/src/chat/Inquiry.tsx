/** A question of the agent: yes or no, one or several choices, or a text. */

import { useId, useState } from "react";

import type { Approval, Decision } from "../api";
import { formatValue } from "../api/values";
import { answerQuestion } from "../state/talk";
import { answerKey, KeyHint, QuestionCard } from "./QuestionCard";
import styles from "./chat.module.css";

type Value = boolean | string | string[];

interface About {
  kind: string;
  options: string[];
  preset: unknown;
}

export function Inquiry({ asked, title }: { asked: Approval; title: string }) {
  const { kind, options, preset } = inquiryOf(asked);
  const [busy, setBusy] = useState(false);
  const say = async (decision: Decision) => {
    setBusy(true);
    await answerQuestion(asked, decision);
    setBusy(false);
  };
  const give = (value: Value) => void say({ choice: "allow", args: { answer: value } });
  return (
    <QuestionCard>
      <h2 id={title}>{asked.question}</h2>
      {kind === "confirm" && <Confirm preset={preset} busy={busy} give={give} />}
      {(kind === "select" || kind === "multiselect") && (
        <Choose several={kind === "multiselect"} options={options} preset={preset} busy={busy} give={give} />
      )}
      {kind === "input" && <Write preset={preset} busy={busy} give={give} />}
      {kind !== "confirm" && (
        <button
          className="plain"
          disabled={busy}
          onClick={() => void say({ choice: "deny", words: "the user declined to answer" })}
        >
          Decline to answer
        </button>
      )}
    </QuestionCard>
  );
}

function inquiryOf(asked: Approval): About {
  const { kind, options, default: preset } = (asked.about ?? {}) as Record<string, unknown>;
  return { kind: formatValue(kind, "input"), options: Array.isArray(options) ? options.map(String) : [], preset };
}

interface Part {
  preset: unknown;
  busy: boolean;
  give: (value: Value) => void;
}

function Confirm({ preset, busy, give }: Part) {
  return (
    <div className="choices">
      <button
        className={preset === false ? undefined : "main"}
        {...answerKey("y")}
        disabled={busy}
        onClick={() => give(true)}
      >
        Yes <KeyHint of="y" />
      </button>
      <button
        className={preset === false ? "main" : undefined}
        {...answerKey("n")}
        disabled={busy}
        onClick={() => give(false)}
      >
        No <KeyHint of="n" />
      </button>
    </div>
  );
}

function Choose({ several, options, preset, busy, give }: Part & { several: boolean; options: string[] }) {
  const name = useId();
  const [chosen, setChosen] = useState<string[]>(
    Array.isArray(preset) ? preset.map(String) : typeof preset === "string" ? [preset] : [],
  );
  const flip = (option: string) =>
    setChosen((old) =>
      !several ? [option] : old.includes(option) ? old.filter((one) => one !== option) : [...old, option],
    );
  const submit = (event: React.FormEvent) => {
    event.preventDefault();
    if (several) give(chosen);
    else if (chosen[0] !== undefined) give(chosen[0]);
  };
  return (
    <form className={styles.options} onSubmit={submit}>
      <fieldset disabled={busy}>
        <legend className="visually-hidden">{several ? "Choose any number" : "Choose one"}</legend>
        {options.map((option) => (
          <label key={option}>
            <input
              type={several ? "checkbox" : "radio"}
              name={name}
              checked={chosen.includes(option)}
              onChange={() => flip(option)}
            />{" "}
            {option}
          </label>
        ))}
      </fieldset>
      <button className="main" disabled={busy || (!several && !chosen.length)}>
        Answer
      </button>
    </form>
  );
}

function Write({ preset, busy, give }: Part) {
  const field = useId();
  const [text, setText] = useState(typeof preset === "string" ? preset : "");
  return (
    <form
      className={styles.deny}
      onSubmit={(event) => {
        event.preventDefault();
        give(text);
      }}
    >
      <label className="visually-hidden" htmlFor={field}>
        Your answer
      </label>
      <input
        id={field}
        maxLength={10_000}
        placeholder="Your answer"
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <button className="main" disabled={busy || !text.trim()}>
        Answer
      </button>
    </form>
  );
}
