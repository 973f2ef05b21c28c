/** The conversation: drawn only where it is looked at, however long it is. */

import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef } from "react";

import { conversation, useApp } from "../state/app";
import type { Item } from "../state/fold";
import { Composer } from "./Composer";
import { EndedView, ReplyView, SaidView } from "./Items";
import { Todos } from "./Todos";

export function Chat() {
  const talk = useApp(conversation);
  return (
    <section className="chat" aria-label="Conversation">
      {talk.items.length ? <Items items={talk.items} running={Boolean(talk.run)} /> : <Welcome />}
      <Todos todos={talk.values["todos"]} />
      <Composer />
    </section>
  );
}

function Items({ items, running }: { items: Item[]; running: boolean }) {
  const place = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  const virtual = useVirtualizer({
    count: items.length,
    getScrollElement: () => place.current,
    estimateSize: () => 120,
    overscan: 6,
    getItemKey: (at) => items[at]!.key,
  });
  useEffect(() => {
    if (atEnd.current) place.current?.scrollTo({ top: place.current.scrollHeight });
  }, [items]);
  const look = () => {
    const { scrollTop, scrollHeight, clientHeight } = place.current!;
    atEnd.current = scrollHeight - scrollTop - clientHeight < 80;
  };
  return (
    <div className="items" ref={place} onScroll={look} tabIndex={0} role="log" aria-live="polite" aria-busy={running} aria-label="Messages">
      <div className="all" style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((row) => (
          <div key={row.key} className="item" data-index={row.index} ref={virtual.measureElement} style={{ transform: `translateY(${row.start}px)` }}>
            <Show item={items[row.index]!} />
          </div>
        ))}
      </div>
    </div>
  );
}

function Show({ item }: { item: Item }) {
  if (item.kind === "user") return <SaidView said={item} />;
  if (item.kind === "reply") return <ReplyView reply={item} />;
  return <EndedView ended={item} />;
}

function Welcome() {
  const agent = useApp((state) => state.agents.find((one) => one.agent_id === state.agent));
  return (
    <div className="welcome">
      <h1>{agent ? agent.name : "wick"}</h1>
      <p>Ask for something. Every tool it uses, and every hook that had a say in it, is shown here.</p>
    </div>
  );
}
