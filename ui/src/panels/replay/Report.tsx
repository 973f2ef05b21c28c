/** What other guards would have said: of each thread the first use of a tool about which it is something else. */

import type { ReplayReport } from "../../api";
import { AboutCall } from "../../chat/AboutCall";
import { plural } from "../../parts/amounts";

const PAST = { allow: "was allowed", ask: "was asked about", block: "was blocked" };
const NOW = { allow: "would be allowed", ask: "would be asked about", block: "would be blocked" };
const COLOURS = { allow: "good", ask: "warm", block: "bad" };

export function Report({ report, open }: { report: ReplayReport; open: (thread: string) => void }) {
  const looked = `${plural(report.uses, "tool use")} in ${plural(report.threads, "thread")}`;
  return (
    <section aria-label="What came of it" aria-live="polite">
      <h3>{report.changes.length ? `Something else in ${plural(report.changes.length, "thread")}` : "Nothing would have been different"}</h3>
      <p className="note">{report.threads ? `Looked at ${looked}. After the first use that differs a thread would have gone another way, so the rest of it is not judged.` : "There is no thread to look at. Talk to this agent first, or choose another one."}{report.more ? " There are more threads; only the latest were looked at." : ""}</p>
      <ul className="rows">{report.changes.map((change) => <One key={`${change.thread_id} ${change.seq}`} change={change} open={() => open(change.thread_id)} />)}</ul>
      {report.skipped.length > 0 && <details><summary>Of {plural(report.skipped.length, "use")} nothing can be said</summary><ul className="note">{report.skipped.map((text) => <li key={text}>{text}</li>)}</ul></details>}
    </section>
  );
}

function One({ change, open }: { change: ReplayReport["changes"][number]; open: () => void }) {
  return (
    <li className="changed">
      <div className="line">
        <b>{change.tool}</b>
        <span>{PAST[change.recorded]}, <span className={`chip ${COLOURS[change.now]}`}>{NOW[change.now]}</span></span>
        <button className="plain" onClick={open}>Open the thread</button>
      </div>
      {change.reason && <p className="note">{change.reason}</p>}
      <details><summary>In “{change.title || "a thread without a title"}”, entry {change.seq}</summary><AboutCall tool={change.tool} args={change.args} /></details>
    </li>
  );
}
