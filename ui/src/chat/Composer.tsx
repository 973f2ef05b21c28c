/** Where the user writes: text, files and pictures by drop or paste, and a slash for skills. */

import { useEffect, useRef, useState } from "react";

import * as api from "../api";
import { Icon } from "../shell/Icon";
import { app, openConversation, setAttached, setDraft, useApp } from "../state/app";
import { sendMessage, spoken, stopRun } from "../state/talk";
import { continueWithAgent, otherAgent } from "../state/threads";
import { attachFiles, isPicture } from "./attach";
import { matchSkills, typedSlash, expandSkill } from "./slash";
import { ModelPicker } from "./ModelPicker";
import { SkillList } from "./SkillList";
import { joinClasses } from "../parts/classes";
import styles from "./chat.module.css";

const NOTHING: api.Media[] = [];

export function Composer() {
  const thread = useApp((state) => state.thread);
  const text = useApp((state) => state.drafts[state.thread] ?? "");
  const running = useApp((state) => Boolean(openConversation(state).run));
  const asked = useApp((state) => state.approvals.some((one) => one.thread_id === state.thread));
  const media = useApp((state) => state.attached[state.thread] ?? NOTHING);
  const agent = useApp((state) => state.agent);
  const skills = useSkills(agent, text.startsWith("/"));
  const write = (words: string) => setDraft(thread, words);
  const ready = agent !== "" && Boolean(text.trim() || media.length);

  const submit = () => {
    if (!ready) return;
    write("");
    setAttached(thread, []);
    void sendSpoken(spoken(expandSkill(text, skills), media), { thread, agent });
  };
  return (
    <form
      className={styles.composer}
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      <Attached
        media={media}
        remove={(at) =>
          setAttached(
            thread,
            media.filter((_, place) => place !== at),
          )
        }
      />
      <Field
        text={text}
        skills={skills}
        write={write}
        submit={submit}
        hint={
          asked ? "Answer above, or send a message" : running ? "Send a message to the running agent" : "Send a message"
        }
      />
      <div className={styles.composerRow}>
        <label className={joinClasses(styles.attach, "plain")} title="Attach files">
          <span className="visually-hidden">Attach files</span>
          <Icon name="clip" />
          <input
            type="file"
            multiple
            className="visually-hidden"
            onChange={(event) => {
              void attachFiles(event.target.files ?? []);
              event.target.value = "";
            }}
          />
        </label>
        <ModelPicker />
        <span className={styles.hint}>
          {asked
            ? "Enter sends this instead of an answer"
            : running
              ? "Enter sends it at the next step"
              : "Enter to send, Shift+Enter: new line"}
        </span>
        {running && (
          <button type="button" className={styles.stop} onClick={() => void stopRun()}>
            <Icon name="stop" /> Stop
          </button>
        )}
        <button className={joinClasses(styles.send, "main")} disabled={!ready}>
          <Icon name="send" /> {running && !asked ? "Steer" : "Send"}
        </button>
      </div>
    </form>
  );
}

/** Send a message; if another agent was chosen, to a fork of the thread. */
async function sendSpoken(message: api.MessageIn, at: { thread: string; agent: string }): Promise<void> {
  const thread = otherAgent(app.get()) ? await continueWithAgent() : at.thread;
  if (thread === undefined) setDraft(at.thread, typeof message.content === "string" ? message.content : "");
  else await sendMessage(message, { thread, agent: at.agent });
}

interface FieldProps {
  text: string;
  skills: api.Skill[];
  hint: string;
  write: (text: string) => void;
  submit: () => void;
}

function Field({ text, skills, hint, write, submit }: FieldProps) {
  const area = useRef<HTMLTextAreaElement>(null);
  const [at, setAt] = useState(0);
  const [closed, setClosed] = useState(""); // the text when the list was dismissed
  const typed = typedSlash(text);
  const found = typed === null || closed === text ? [] : matchSkills(skills, typed);
  const chosen = Math.min(at, found.length - 1);
  useGrowing(area, text);
  const take = (skill: api.Skill) => (write(`/${skill.name} `), area.current?.focus());
  const key = (event: React.KeyboardEvent) => {
    if (found.length && event.key === "Escape") return (event.stopPropagation(), setClosed(text));
    if (found.length && ["ArrowDown", "ArrowUp"].includes(event.key))
      return (
        event.preventDefault(),
        setAt((chosen + (event.key === "ArrowDown" ? 1 : found.length - 1)) % found.length)
      );
    if (found.length && (event.key === "Tab" || event.key === "Enter") && !event.shiftKey)
      return (event.preventDefault(), take(found[chosen]!));
    if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing)
      return (event.preventDefault(), submit());
  };
  return (
    <div className={styles.field}>
      {found.length > 0 && <SkillList skills={found} chosen={chosen} choose={setAt} take={take} />}
      <label className="visually-hidden" htmlFor="message">
        Message
      </label>
      <textarea
        id="message"
        ref={area}
        rows={1}
        placeholder={hint}
        value={text}
        aria-autocomplete="list"
        aria-controls={found.length ? "slash" : undefined}
        aria-activedescendant={found.length ? `slash-${chosen}` : undefined}
        onChange={(event) => {
          write(event.target.value);
          setAt(0);
        }}
        onPaste={(event) => {
          if (event.clipboardData.files.length) {
            event.preventDefault();
            void attachFiles(event.clipboardData.files);
          }
        }}
        onKeyDown={key}
      />
    </div>
  );
}

/** As high as its content, up to a limit. */
function useGrowing(area: React.RefObject<HTMLTextAreaElement | null>, text: string): void {
  useEffect(() => {
    const box = area.current!;
    box.style.height = "auto";
    box.style.height = `${Math.min(box.scrollHeight + 2, 240)}px`;
  }, [area, text]);
}

/** They are there before a slash is typed, since one may be pasted and sent at once; and are read again with each slash. */
function useSkills(agent: string, slash: boolean): api.Skill[] {
  const some = useApp((state) => state.agents.some((one) => one.agent_id === agent && one.hooks.includes("skills")));
  const [skills, setSkills] = useState<api.Skill[]>([]);
  useEffect(() => {
    if (!some) return setSkills([]);
    let late = false;
    void api.agents.skills(agent).then(
      (found) => !late && setSkills(found.skills),
      () => undefined,
    ); // keep the old list
    return () => void (late = true);
  }, [agent, some, slash]);
  return skills;
}

function Attached({ media, remove }: { media: api.Media[]; remove: (at: number) => void }) {
  if (!media.length) return null;
  return (
    <ul className={styles.attached} aria-label="Attached">
      {media.map((one, at) => (
        <li key={at} className={styles.chip}>
          {one.type === "image" && isPicture(one.media_type ?? "") ? (
            <img src={`data:${one.media_type};base64,${one.data}`} alt="" />
          ) : (
            <Icon name="file" />
          )}{" "}
          {one.name || "image"}
          <button
            type="button"
            className="plain"
            aria-label={`Remove ${one.name || "the image"}`}
            onClick={() => remove(at)}
          >
            <Icon name="close" />
          </button>
        </li>
      ))}
    </ul>
  );
}
