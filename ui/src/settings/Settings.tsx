/** Settings: agents of the user; for admins also keys of providers, users and tokens. */

import { useState } from "react";

import { Tabs } from "../parts/Tabs";
import { useApp } from "../state/app";
import { AgentList } from "./AgentList";
import { Providers } from "./Providers";
import { Users } from "./Users";

type Page = "agents" | "keys" | "users";
const AGENTS = ["agents", "Agents"] as const;
const FOR_ADMINS = [["keys", "Models and keys"], AGENTS, ["users", "Users and tokens"]] as const;
const FOR_OTHERS = [AGENTS] as const;

export default function Settings() {
  const admin = useApp((state) => state.me?.role === "admin");
  const [page, choose] = useState<Page>(admin ? "keys" : "agents");
  return (
    <Tabs label="Settings" tabs={admin ? FOR_ADMINS : FOR_OTHERS} chosen={page} choose={choose}>
      {page === "agents" ? <AgentList /> : page === "keys" ? <Providers /> : <Users />}
    </Tabs>
  );
}
