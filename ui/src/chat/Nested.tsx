/** What a subagent says and does, below the call that it works for. */

import type { Item } from "../state/fold";
import { EndedView, ReplyView, SaidView } from "./Items";

export default function Nested({ items }: { items: Item[] }) {
  return (
    <>
      {items.map((item) =>
        item.kind === "user" ? <SaidView key={item.key} said={item} /> : item.kind === "reply" ? <ReplyView key={item.key} reply={item} /> : <EndedView key={item.key} ended={item} />,
      )}
    </>
  );
}
