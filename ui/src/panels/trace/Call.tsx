/** The full request and reply of a model call, folded to what is new since the call before. */

import * as api from "../../api";
import { formatPlural } from "../../parts/amounts";
import { joinClasses } from "../../parts/classes";
import { forkAndEdit } from "../../state/threads";
import { messageText } from "../../state/threadItems";
import { Show } from "../States";
import { useLoad } from "../useLoad";
import styles from "./trace.module.css";

type Content = Awaited<ReturnType<typeof api.runs.call>>;
type CallMessage = Content["messages"][number];

export function Call({ run, span }: { run: string; span: string }) {
  const content = useLoad(() => api.runs.call(run, span), [run, span]);
  return (
    <Show of={content} what="the request">
      {(found) => <Request content={found} />}
    </Show>
  );
}

function Request({ content }: { content: Content }) {
  const { messages, settings, tools, reply } = content;
  const earlier = messages.filter((one) => !one.is_new);
  const last = messages.findLast((one) => (one.seq ?? 0) > 0);
  return (
    <div className={styles.call}>
      {content.system && (
        <details>
          <summary>System prompt{content.system_changed ? "" : " (unchanged)"}</summary>
          <pre tabIndex={0}>{content.system}</pre>
        </details>
      )}
      {(tools.length > 0 || Object.keys(settings).length > 0) && (
        <details>
          <summary>{formatPlural(tools.length, "tool")} and settings</summary>
          <pre tabIndex={0}>{[tools.join(", "), JSON.stringify(settings, null, 2)].join("\n\n")}</pre>
        </details>
      )}
      {earlier.length > 0 && (
        <details>
          <summary>{formatPlural(earlier.length, "earlier message")}</summary>
          <Messages messages={earlier} />
        </details>
      )}
      <h3>New in this request</h3>
      <Messages messages={messages.filter((one) => one.is_new)} />
      <h3>Reply</h3>
      {reply ? <Messages messages={[{ ...reply, seq: 1 }]} /> : <p className={styles.failed}>The call has no reply.</p>}
      {last && (
        <div>
          <button title="Opens a fork of the thread as it was before this call" onClick={() => tryAgain(content, last)}>
            Try again from here
          </button>
        </div>
      )}
    </div>
  );
}

/** The last message of the user is edited and sent again; after a tool result, the agent continues. */
function tryAgain({ thread_id }: Content, last: CallMessage): void {
  const isUser = last.role === "user";
  void forkAndEdit(thread_id, isUser ? (last.seq ?? 1) - 1 : (last.seq ?? 0), isUser ? messageText(last) : "Continue.");
}

function Messages({ messages }: { messages: CallMessage[] }) {
  return messages.map((one, at) => (
    <div key={at} className={styles.message}>
      <small>
        {one.role}
        {one.name ? ` · ${one.name}` : ""}
        {one.seq ? "" : " · added by a hook"}
      </small>
      {(one.reasoning ?? []).map((part, place) => part.text && <pre key={place}>{part.text}</pre>)}
      {messageText(one) && (
        <pre className={joinClasses(one.failed && styles.failed)} tabIndex={0}>
          {messageText(one)}
        </pre>
      )}
      {(one.tool_calls ?? []).map((call) => (
        <pre key={call.id} tabIndex={0}>
          {call.name} {JSON.stringify(call.args, null, 2)}
        </pre>
      ))}
    </div>
  ));
}
