/** A subagent below its call. */

import { Suspense, useState } from "react";

import * as api from "../api";
import { lazyPart } from "../parts/lazyPart";
import { tryRequest } from "../state/app";
import type { Child, Item } from "../state/fold";
import { toConversation } from "../state/threadItems";
import styles from "./chat.module.css";

const Nested = lazyPart(() => import("./Nested"));

export function Subagent({ child }: { child: Child }) {
  const [read, setRead] = useState<Item[] | null>(null);
  const items = child.items.length ? child.items : read;
  const load = () =>
    void tryRequest(() => api.threads.get(child.thread)).then(
      (found) => found && setRead(toConversation(found).items.slice(1)),
    ); // the first is its task
  return (
    <div className={styles.child} role="group" aria-label={`Subagent ${child.agent}`}>
      <b>
        {child.agent} <small>{child.outcome || (child.run ? "working" : "")}</small>
      </b>
      <p className={styles.prompt}>{child.prompt}</p>
      {items ? (
        <Suspense
          fallback={
            <p className="waiting" role="status">
              Loading…
            </p>
          }
        >
          <Nested items={items} />
        </Suspense>
      ) : (
        child.thread && (
          <button className="plain" onClick={load}>
            Show its messages
          </button>
        )
      )}
    </div>
  );
}
