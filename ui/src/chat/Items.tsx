/** What is said: by the user, by the agent, and how a run ended. */

import { memo, useState } from "react";

import { Markdown } from "../parts/Markdown";
import { forkAt, patch, retry } from "../state/app";
import type { Call, Ended, Reply, Said } from "../state/fold";
import { CallCard } from "./CallCard";

export const SaidView = memo(function SaidView({ said }: { said: Said }) {
  const [editing, setEditing] = useState(false);
  if (editing) return <Edit said={said} done={() => setEditing(false)} />;
  return (
    <article className={said.by ? "said hook" : "said"} aria-label={said.by ? `Said by ${said.by}` : "You"}>
      {said.by && <small>{said.by}</small>}
      <Markdown text={said.text} />
      <Actions>
        <button className="plain" onClick={() => setEditing(true)}>Edit</button>
        <button className="plain" onClick={() => void retry(said.seq, said.text)}>Retry</button>
        <button className="plain" onClick={() => void forkAt(said.seq)}>Fork</button>
      </Actions>
    </article>
  );
});

function Edit({ said, done }: { said: Said; done: () => void }) {
  const [words, setWords] = useState(said.text);
  return (
    <form className="said" onSubmit={(event) => { event.preventDefault(); done(); void retry(said.seq, words); }}>
      <textarea aria-label="Your message" autoFocus value={words} onChange={(event) => setWords(event.target.value)} onKeyDown={(event) => event.key === "Escape" && done()} />
      <button className="main" disabled={!words.trim()}>Say this instead</button> <button type="button" onClick={done}>Leave it</button>
    </form>
  );
}

export const ReplyView = memo(function ReplyView({ reply }: { reply: Reply }) {
  return (
    <article className="reply" aria-label="Agent" aria-busy={reply.open}>
      {reply.reasoning && (
        <details className="reasoning">
          <summary>{reply.open && !reply.text ? "Thinking…" : "Reasoning"}</summary>
          <Markdown text={reply.reasoning} />
        </details>
      )}
      {reply.text && <Markdown text={reply.text} />}
      {reply.open && !reply.text && !reply.reasoning && !reply.calls.length && <p className="waiting">…</p>}
      <Calls calls={reply.calls} />
      {!reply.open && reply.seq > 0 && (
        <Actions>
          <button className="plain" onClick={() => void navigator.clipboard.writeText(reply.text)}>Copy</button>
          <button className="plain" onClick={() => void forkAt(reply.seq)}>Fork</button>
          {reply.run && <button className="plain" onClick={() => patch({ panel: "trace", run: reply.run })}>Trace</button>}
        </Actions>
      )}
    </article>
  );
});

/** Calls that were made together stand side by side. */
function Calls({ calls }: { calls: Call[] }) {
  if (!calls.length) return null;
  return <div className={calls.length > 1 ? "calls several" : "calls"}>{calls.map((call) => <CallCard key={call.id} call={call} />)}</div>;
}

function Actions({ children }: { children: React.ReactNode }) {
  return <div className="actions">{children}</div>;
}

export function EndedView({ ended }: { ended: Ended }) {
  if (ended.error) return <p className="ended failed" role="alert">The run failed: {ended.error}</p>;
  if (ended.outcome === "interrupted") return <p className="ended">The run waits: {ended.reason}</p>;
  return <p className="ended">The run was {ended.outcome}: {ended.reason}</p>;
}
