/** Settings of the server: provider keys, models, agents, users and tokens. */

import { buildPath, call } from "./http";
import type { components } from "./schema";

type Schemas = components["schemas"];
export type Provider = Schemas["ProviderInfo"];
export type ProviderList = Schemas["ProviderList"];
export type ProviderTest = Schemas["ProviderTest"];
export type ModelChoice = Schemas["ModelChoice"];
export type AgentOptions = Schemas["AgentOptionsInfo"];
export type AgentForm = Schemas["AgentForm"];
export type User = Schemas["UserInfo"];
export type NewToken = Schemas["NewToken"];
export type Options = Record<string, unknown>;

export const models = () => call<Schemas["ModelChoices"]>("GET", "/models");

export const providers = {
  list: () => call<ProviderList>("GET", "/settings/providers"),
  put: (name: string, body: Partial<Schemas["ProviderChange"]>) =>
    call<Provider>("PUT", buildPath`/settings/providers/${name}`, { body }),
  remove: (name: string) => call<void>("DELETE", buildPath`/settings/providers/${name}`),
  test: (name: string, body: Partial<Schemas["ProviderTrial"]>) =>
    call<ProviderTest>("POST", buildPath`/settings/providers/${name}/test`, { body }),
};

export const agentSettings = {
  form: () => call<AgentForm>("GET", "/settings/agent-form"),
  config: (id: string) => call<AgentOptions>("GET", buildPath`/agents/${id}/config`),
  create: (id: string, shared: boolean, options: Options) =>
    call<unknown>("POST", "/agents/", { body: { ...options, agent_id: id, shared } }),
  replace: (id: string, revision: number, options: Options) =>
    call<unknown>("PUT", buildPath`/agents/${id}`, { body: options, headers: { "If-Match": `"${revision}"` } }),
  remove: (id: string) => call<void>("DELETE", buildPath`/agents/${id}`),
};

export const accounts = {
  users: () => call<Schemas["UserList"]>("GET", "/settings/users"),
  issue: (body: { name: string; role: User["tokens"][number]["role"]; note: string }) =>
    call<NewToken>("POST", "/settings/tokens", { body }),
  revoke: (id: string) => call<void>("DELETE", buildPath`/settings/tokens/${id}`),
};
