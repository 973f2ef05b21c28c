/** A subagent's own conversation. It is loaded when there is one, since it is drawn with the parts that draw it. */

import type { Item } from "../state/fold";
import { EndedView, ReplyView, UserMessageView } from "./Items";

export default function Nested({ items }: { items: Item[] }) {
  return (
    <>
      {items.map((item) => (
        <One key={item.key} item={item} />
      ))}
    </>
  );
}

function One({ item }: { item: Item }) {
  if (item.kind === "user") return <UserMessageView message={item} nested />;
  if (item.kind === "reply") return <ReplyView reply={item} nested />;
  return <EndedView ended={item} />;
}
