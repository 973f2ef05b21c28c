/** A file with a diagram. */

import Diagram from "../parts/Diagram";
import { CodeFrame } from "../parts/CodeBlock";
import type { Tab } from "./tabs";
import styles from "./canvas.module.css";

export default function DiagramFile({ tab }: { tab: Tab }) {
  if (!tab.text.trim()) return <p className="empty">This diagram is empty. Switch to Code to write it.</p>;
  return (
    <div className={styles.document}>
      <Diagram source={tab.text}>
        <CodeFrame word="mermaid" text={tab.text.trimEnd()} />
      </Diagram>
    </div>
  );
}
