/** The agent panel: model, backend, tools, hooks, onion and permissions. */

import { useState } from "react";

import * as api from "../api";
import { Tabs } from "../parts/Tabs";
import { useApp } from "../state/app";
import { useAgentChanges } from "../state/useChanges";
import { Hooks } from "./agent/Hooks";
import { Overview } from "./agent/Overview";
import { Permissions } from "./agent/Permissions";
import { Rings } from "./agent/Rings";
import { Tools } from "./agent/Tools";
import { Show } from "./States";
import { useLoad } from "./useLoad";

const TABS = [
  ["overview", "Overview"],
  ["tools", "Tools and skills"],
  ["hooks", "Hooks"],
  ["onion", "Onion"],
  ["permissions", "Permissions"],
] as const;
type Tab = (typeof TABS)[number][0];

export default function Agent() {
  const agent = useApp((state) => state.agent);
  const [tab, choose] = useState<Tab>("overview");
  const [changes, setChanges] = useState(0);
  const detail = useLoad(() => api.agents.get(agent), [agent]);
  useAgentChanges(agent, () => {
    detail.reload();
    setChanges((old) => old + 1);
  });
  if (!agent) return <p className="empty">No agents. Define one in agents.yaml, or with the API.</p>;
  return (
    <Tabs label="Agent details" tabs={TABS} chosen={tab} choose={choose}>
      <Show of={detail} what="the agent">
        {(found) => <Page tab={tab} agent={found} changes={changes} />}
      </Show>
    </Tabs>
  );
}

function Page({ tab, agent, changes }: { tab: Tab; agent: api.AgentDetail; changes: number }) {
  if (tab === "tools") return <Tools agent={agent} changes={changes} />;
  if (tab === "hooks") return <Hooks agent={agent.agent_id} changes={changes} />;
  if (tab === "onion") return <Rings agent={agent.agent_id} changes={changes} />;
  if (tab === "permissions") return <Permissions agent={agent} changes={changes} />;
  return <Overview agent={agent} changes={changes} />;
}
