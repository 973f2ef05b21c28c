/** Items of a conversation: user messages, replies, and ends of runs. */

import { memo, useEffect, useRef, useState } from "react";

import type { Part } from "../api";
import { LabelMark } from "../parts/LabelMark";
import { Markdown } from "../parts/Markdown";
import { Icon, type IconName } from "../shell/Icon";
import { app, openConversation, patchApp, useApp, useDraft } from "../state/app";
import type { Call, Ended, Reply, UserMessage } from "../state/fold";
import { startEdit, takeFocus } from "../state/edits";
import { askAndRetry, askedBefore, copyText, retryRun, runAfter, switchBranch } from "../state/talk";
import { forkAt } from "../state/threads";
import { isPicture } from "./attach";
import { Branches, branchOfKey } from "./Branches";
import { CallCard } from "./CallCard";
import { UndoFiles } from "./UndoFiles";
import { joinClasses } from "../parts/classes";
import styles from "./chat.module.css";

export const UserMessageView = memo(function UserMessageView({
  message,
  nested = false,
}: {
  message: UserMessage;
  nested?: boolean;
}) {
  const thread = useApp((state) => state.thread);
  const [draft, setDraft] = useDraft("edit", `${thread} ${message.seq}`);
  if (draft !== undefined && message.seq > 0 && !nested)
    return <Edit message={message} words={draft} write={setDraft} />;
  return (
    <article
      className={joinClasses(styles.said, message.by && styles.hook)}
      aria-label={message.by ? `From ${message.by}` : "You"}
      tabIndex={-1}
      onKeyDown={(event) => switchByKey(event, message)}
    >
      {message.by && <small>{message.by}</small>}
      {message.text && <Markdown text={message.text} />}
      {message.parts.length > 0 && <Parts parts={message.parts} />}
      <LabelMark label={message.label} source={message.by || "attachments, quoted lines or code blocks"} />
      {message.branches && !nested && <Branches seq={message.seq} branches={message.branches} />}
      {message.seq > 0 && !nested && !message.by && <UserMessageActions message={message} />}
    </article>
  );
});

/** Left and right on a message show its other versions. */
function switchByKey(event: React.KeyboardEvent, { seq, branches = [] }: UserMessage | Reply): void {
  const to = branchOfKey(event, { seq, branches });
  if (to !== undefined && !openConversation(app.get()).run) void switchBranch(to);
}

function UserMessageActions({ message }: { message: UserMessage }) {
  const running = useApp((state) => Boolean(openConversation(state).run));
  const thread = useApp((state) => state.thread);
  const hasSnapshots = useApp((state) =>
    Boolean(state.agents.find((one) => one.agent_id === state.agent)?.hooks.includes("snapshots")),
  );
  const [undoing, setUndoing] = useState(false);
  return (
    <>
      <div className={styles.actions}>
        <Action icon="pen" name="Edit" off={running} act={() => startEdit(message)} />
        <Action icon="again" name="Retry" off={running} act={() => void askAndRetry(message)} />
        <Action icon="fork" name="Fork" act={() => void forkAt(message.seq)} />
        {hasSnapshots && <Action icon="undo" name="Undo files" off={running} act={() => setUndoing(true)} />}
        <Action icon="copy" name="Copy" act={() => void copyText(message.text)} />
        <Action icon="trace" name="Trace" act={() => patchApp({ panel: "trace", run: runAfter(message.seq) })} />
      </div>
      {undoing && <UndoFiles thread={thread} seq={message.seq} close={() => setUndoing(false)} />}
    </>
  );
}

function Action({ icon, name, act, off = false }: { icon: IconName; name: string; act: () => void; off?: boolean }) {
  return (
    <button className="plain" onClick={act} disabled={off} title={off ? `${name} (after the run)` : name}>
      <Icon name={icon} /> <span>{name}</span>
    </button>
  );
}

/** Show images if their data is present; name other files. */
function Parts({ parts }: { parts: Part[] }) {
  return (
    <ul className={styles.sentParts} aria-label="Attached">
      {parts.map((part, at) => (
        <li key={at}>
          {part.type === "image" && part.data && isPicture(part.media_type ?? "") ? (
            <img src={`data:${part.media_type};base64,${part.data}`} alt={part.name || "image"} />
          ) : (
            <span className={styles.chip}>
              <Icon name="file" /> {part.name || part.url || part.type}
            </span>
          )}
        </li>
      ))}
    </ul>
  );
}

/** A draft is stored until it is sent, also when it is scrolled out of view. */
function Edit({
  message,
  words,
  write,
}: {
  message: UserMessage;
  words: string;
  write: (words: string | null) => void;
}) {
  const running = useApp((state) => Boolean(openConversation(state).run));
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    if (takeFocus(app.get().thread, message.seq)) area.current?.focus(); // not one that is scrolled back to
  }, [message.seq]);
  const submit = (event: React.SyntheticEvent) => {
    event.preventDefault();
    if (!running) void retryRun(message, words).then((sent) => sent && write(null));
  };
  const key = (event: React.KeyboardEvent) => {
    if (event.key === "Escape") {
      event.preventDefault();
      write(null);
      document.getElementById("message")?.focus();
    } else if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing && words.trim())
      submit(event);
  };
  return (
    <form className={joinClasses(styles.said, styles.edit)} onSubmit={submit}>
      <textarea
        aria-label="Your message"
        ref={area}
        rows={Math.min(10, words.split("\n").length + 1)}
        value={words}
        onChange={(event) => write(event.target.value)}
        onKeyDown={key}
      />
      <p className={styles.hint}>Later messages stay in the old version.</p>
      <div className="choices">
        <button
          className="main"
          disabled={running || !words.trim()}
          title={running ? "Available after the run" : undefined}
        >
          Resend
        </button>
        <button type="button" onClick={() => write(null)}>
          Cancel
        </button>
      </div>
    </form>
  );
}

export const ReplyView = memo(function ReplyView({ reply, nested = false }: { reply: Reply; nested?: boolean }) {
  const empty = reply.open && !reply.text && !reply.reasoning && !reply.calls.length;
  return (
    <article
      className={styles.reply}
      aria-label="Agent"
      aria-busy={reply.open}
      tabIndex={-1}
      onKeyDown={(event) => switchByKey(event, reply)}
    >
      {reply.reasoning && <Reasoning reply={reply} />}
      {reply.text && <Markdown text={reply.text} grows={reply.open} />}
      {empty && (
        <p className={styles.dots} role="status" aria-label="The agent is thinking">
          <i />
          <i />
          <i />
        </p>
      )}
      {reply.cut && <p className={styles.cut}>The reply was cut off here.</p>}
      <Calls calls={reply.calls} />
      {reply.branches && !nested && <Branches seq={reply.seq} branches={reply.branches} />}
      {reply.text && <LabelMark label={reply.label} source="what the model has read" />}
      {!reply.open && reply.seq > 0 && !nested && <ReplyActions reply={reply} />}
    </article>
  );
});

function Reasoning({ reply }: { reply: Reply }) {
  return (
    <details className={styles.reasoning}>
      <summary>{reply.open && !reply.text ? "Thinking…" : "Reasoning"}</summary>
      <Markdown text={reply.reasoning} grows={reply.open} />
    </details>
  );
}

/** Show parallel calls side by side. */
function Calls({ calls }: { calls: Call[] }) {
  if (!calls.length) return null;
  return (
    <div
      className={joinClasses(styles.calls, calls.length > 1 && styles.several)}
      role={calls.length > 1 ? "group" : undefined}
      aria-label={calls.length > 1 ? `${calls.length} parallel tool calls` : undefined}
    >
      {calls.map((call) => (
        <CallCard key={call.id} call={call} />
      ))}
    </div>
  );
}

function ReplyActions({ reply }: { reply: Reply }) {
  const running = useApp((state) => Boolean(openConversation(state).run));
  const again = () => {
    const asked = askedBefore(reply.seq);
    if (asked) void askAndRetry(asked);
  };
  return (
    <div className={styles.actions}>
      {reply.text && <Action icon="copy" name="Copy" act={() => void copyText(reply.text)} />}
      <Action icon="again" name="Retry" off={running} act={again} />
      <Action icon="fork" name="Fork" act={() => void forkAt(reply.seq)} />
      {reply.run && <Action icon="trace" name="Trace" act={() => patchApp({ panel: "trace", run: reply.run })} />}
    </div>
  );
}

/** The end of an incomplete run; the last one can be retried. */
export function EndedView({ ended }: { ended: Ended }) {
  const last = useApp((state) => openConversation(state).items.at(-1) === ended);
  const asked = last && ended.outcome !== "interrupted" ? askedBefore(ended.seq || Infinity) : undefined;
  const again = asked && (
    <button className="plain" onClick={() => void retryRun(asked)}>
      Try again
    </button>
  );
  const trace = ended.run && (
    <button className="plain" onClick={() => patchApp({ panel: "trace", run: ended.run })}>
      Trace
    </button>
  );
  if (ended.error)
    return (
      <p className={joinClasses(styles.ended, styles.failed)} role="alert">
        <span>The run failed: {ended.error}</span> {again} {trace}
      </p>
    );
  const how = ended.outcome === "interrupted" ? "The run is waiting" : `The run was ${ended.outcome}`;
  return (
    <p className={styles.ended}>
      <span>
        {how}
        {ended.reason && ended.reason !== ended.outcome ? `: ${ended.reason}` : ""}
      </span>{" "}
      {again} {trace}
    </p>
  );
}
