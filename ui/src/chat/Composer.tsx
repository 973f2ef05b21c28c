/** Where the user writes: text, files and pictures by drop or paste, and a slash for skills. */

import { useEffect, useRef, useState } from "react";

import * as api from "../api";
import { Icon } from "../shell/Icon";
import { app, openConversation, setAttached, setDraft, tryRequest, useApp } from "../state/app";
import { editLast } from "../state/edits";
import { sendMessage, stopRun } from "../state/talk";
import { continueWithAgent, otherAgent } from "../state/threads";
import { attachFiles, isPicture } from "./attach";
import { matchSkills, typedSlash, expandSkill } from "./slash";
import { ModelPicker } from "./ModelPicker";
import { exportThread, findMentions, type Mention, typedMention, writeMention } from "./mentions";
import { type Option, OptionList } from "./OptionList";
import { buildMessage, decodeText, PASTED } from "./placing";
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
  const [busy, setBusy] = useState(""); // what the message waits for
  const write = (words: string) => setDraft(thread, words);
  const ready = agent !== "" && !busy && Boolean(text.trim() || media.length);

  const submit = async () => {
    if (!ready) return;
    if (media.length) setBusy("Uploading the attachments…");
    const message = await tryRequest(() => buildMessage(agent, expandSkill(text, skills), media));
    const isFork = message && otherAgent(app.get());
    if (isFork) setBusy("Forking the thread…");
    const target = isFork ? await continueWithAgent() : thread; // another agent answers in a fork
    setBusy("");
    if (!message || target === undefined) return; // the draft and its attachments stay
    write("");
    setAttached(thread, []);
    void sendMessage(message, { thread: target, agent });
  };
  return (
    <form
      className={styles.composer}
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
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
        insert={(words) => write(text ? `${text}\n\n${words}` : words)}
      />
      <Field
        text={text}
        skills={skills}
        write={write}
        submit={() => void submit()}
        locked={Boolean(busy)}
        canEditLast={!media.length}
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
          {busy ||
            (asked
              ? "Enter sends this instead of an answer"
              : running
                ? "Enter sends it at the next step"
                : "Enter to send, Shift+Enter: new line")}
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

interface FieldProps {
  text: string;
  skills: api.Skill[];
  hint: string;
  locked: boolean;
  canEditLast: boolean;
  write: (text: string) => void;
  submit: () => void;
}

function Field({ text, skills, hint, locked, canEditLast, write, submit }: FieldProps) {
  const area = useRef<HTMLTextAreaElement>(null);
  const [at, setAt] = useState(0);
  const [closed, setClosed] = useState(""); // the text when the list was dismissed
  const [cursor, setCursor] = useState(0);
  const typed = typedSlash(text);
  const mention = typedMention(text, cursor);
  const mentions = useMentions(mention?.typed ?? null);
  const offered = typed === null ? mentions.map(mentionOption) : matchSkills(skills, typed).map(skillOption);
  const found = closed === text ? [] : offered;
  const chosen = Math.min(at, found.length - 1);
  useGrowing(area, text);
  /** Replace the text up to the cursor, from a place on. */
  const replace = (from: number, words: string) => {
    write(text.slice(0, from) + words + text.slice(cursor));
    area.current?.focus();
    setTimeout(() => area.current?.setSelectionRange(from + words.length, from + words.length));
    setCursor(from + words.length);
  };
  const take = (index: number) => {
    if (typed !== null) return replace(0, `${found[index]!.name} `);
    const one = mentions[index]!;
    replace(mention!.from, one.kind === "file" ? `${writeMention(one.path)} ` : "");
    if (one.kind === "thread") void tryRequest(async () => attachFiles([await exportThread(one)]));
  };
  const key = (event: React.KeyboardEvent) => {
    if (found.length && event.key === "Escape") return (event.stopPropagation(), setClosed(text));
    if (found.length && ["ArrowDown", "ArrowUp"].includes(event.key))
      return (
        event.preventDefault(),
        setAt((chosen + (event.key === "ArrowDown" ? 1 : found.length - 1)) % found.length)
      );
    if (found.length && (event.key === "Tab" || event.key === "Enter") && !event.shiftKey)
      return (event.preventDefault(), take(chosen));
    if (event.key === "ArrowUp" && !text && canEditLast && editLast()) return event.preventDefault();
    if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing)
      return (event.preventDefault(), submit());
  };
  return (
    <div className={styles.field}>
      {found.length > 0 && (
        <OptionList
          label={typed === null ? "Files and threads" : "Skills"}
          options={found}
          chosen={chosen}
          choose={setAt}
          take={take}
        />
      )}
      <label className="visually-hidden" htmlFor="message">
        Message
      </label>
      <textarea
        id="message"
        ref={area}
        rows={1}
        placeholder={hint}
        value={text}
        readOnly={locked}
        aria-autocomplete="list"
        aria-controls={found.length ? "slash" : undefined}
        aria-activedescendant={found.length ? `slash-${chosen}` : undefined}
        onChange={(event) => {
          write(event.target.value);
          setCursor(event.target.selectionStart);
          setAt(0);
        }}
        onSelect={(event) => setCursor(event.currentTarget.selectionStart)}
        onPaste={(event) => {
          const files = pastedFiles(event.clipboardData);
          if (files.length) {
            event.preventDefault();
            void attachFiles(files);
          }
        }}
        onKeyDown={key}
      />
    </div>
  );
}

const LONG_PASTE = 4_000; // characters; a longer text is attached as a file

function pastedFiles(data: DataTransfer): File[] {
  if (data.files.length) return [...data.files];
  const text = data.getData("text/plain");
  return text.length > LONG_PASTE ? [new File([text], PASTED, { type: "text/plain" })] : [];
}

const skillOption = ({ name, description }: api.Skill): Option => ({
  key: name,
  name: `/${name}`,
  detail: description,
});
const mentionOption = (one: Mention): Option =>
  one.kind === "file"
    ? { key: one.path, name: one.path, detail: "File" }
    : { key: one.id, name: one.title || "Untitled", detail: "Thread" };

const NO_MENTIONS: Mention[] = [];

/** Files and threads for the text after an `@`; null for none. */
function useMentions(typed: string | null): Mention[] {
  const [found, setFound] = useState(NO_MENTIONS);
  useEffect(() => {
    let late = false;
    if (typed === null) setFound(NO_MENTIONS);
    else void findMentions(typed).then((now) => !late && setFound(now));
    return () => void (late = true);
  }, [typed]);
  return found;
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

interface AttachedProps {
  media: api.Media[];
  remove: (at: number) => void;
  insert: (text: string) => void;
}

function Attached({ media, remove, insert }: AttachedProps) {
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
          {one.name === PASTED && (
            <button type="button" className="plain" onClick={() => (remove(at), insert(decodeText(one)))}>
              Insert as text
            </button>
          )}
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
