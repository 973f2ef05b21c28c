/** A change that the agent proposes, as a diff to accept or reject. */

import { acceptChange, type Proposal, rejectChange } from "./changes";
import { Difference } from "./Compare";
import type { Tab } from "./tabs";
import styles from "./change.module.css";

export default function ProposalView({ tab, proposal }: { tab: Tab; proposal: Proposal }) {
  return (
    <div className={styles.proposal}>
      <div className={styles.bar} role="group" aria-label="Proposed change">
        <span role="status">
          {proposal.written ? "The agent has changed the file." : "The agent proposes this change."}
        </span>
        <span className="grow" />
        <button onClick={() => void rejectChange(tab.id, proposal)}>Reject</button>
        <button className="main" onClick={() => void acceptChange(tab.id, proposal)}>
          Accept
        </button>
      </div>
      <Difference name={tab.name} old={proposal.before} now={proposal.after ?? proposal.before} />
    </div>
  );
}
