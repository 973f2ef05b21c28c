/** The tools of an agent by where they are from, and its skills, each on or off. */

import * as api from "../../api";
import { Switch } from "../../parts/Switch";
import { tryRequest } from "../../state/app";
import { Show } from "../States";
import { type Loaded, useLoad } from "../useLoad";
import panel from "../panels.module.css";

type Tool = api.AgentDetail["tools"][number];

export function bySource(tools: readonly Tool[]): [string, Tool[]][] {
  const found = new Map<string, Tool[]>();
  for (const tool of tools) found.set(tool.source, [...(found.get(tool.source) ?? []), tool]);
  return [...found];
}

const SOURCES: Record<string, string> = { builtin: "built in", server: "registered with the server" };

export function Tools({ agent, changes }: { agent: api.AgentDetail; changes: number }) {
  return (
    <div className={panel.panel}>
      <Skills agent={agent.agent_id} changes={changes} />
      <section aria-label="Tools">
        <h3>
          Tools <small className={panel.chip}>{agent.tools.length}</small>
        </h3>
        {!agent.tools.length && <p className="empty">No tools. Enable a hook that adds tools.</p>}
        {bySource(agent.tools).map(([source, tools]) => (
          <div key={source}>
            <h4>{SOURCES[source] ?? source}</h4>
            <ul className={panel.rows}>
              {tools.map((tool) => (
                <OneTool key={tool.name} tool={tool} />
              ))}
            </ul>
          </div>
        ))}
        {agent.missing_tools.length > 0 && (
          <p className={panel.note}>Not registered, and skipped: {agent.missing_tools.join(", ")}.</p>
        )}
      </section>
    </div>
  );
}

function OneTool({ tool }: { tool: Tool }) {
  const [first = "", ...more] = tool.description.split("\n");
  return (
    <li>
      <details>
        <summary>
          <code>{tool.name}</code> {tool.read_only && <span className={panel.chip}>read-only</span>}{" "}
          {tool.kind && <span className={panel.chip}>{tool.kind}</span>} <small>{first}</small>
        </summary>
        {more.join("").trim() && <p className={panel.note}>{more.join("\n").trim()}</p>}
        <pre tabIndex={0} aria-label={`Arguments of ${tool.name}`}>
          {JSON.stringify(tool.parameters, null, 2)}
        </pre>
      </details>
    </li>
  );
}

function Skills({ agent, changes }: { agent: string; changes: number }) {
  const skills = useLoad(() => api.agents.skills(agent).catch(ignoreMissing), [agent], changes);
  return (
    <section aria-label="Skills">
      <h3>Skills</h3>
      <Show of={skills} what="its skills">
        {(found) =>
          found ? (
            <SkillList agent={agent} found={found} skills={skills} />
          ) : (
            <p className={panel.note}>Skills are off. Enable the hook “skills”.</p>
          )
        }
      </Show>
    </section>
  );
}

/** An agent with the hook `skills` off has none, which is no error. */
function ignoreMissing(error: unknown): null {
  if (error instanceof Error && "status" in error && error.status === 409) return null;
  throw error;
}

function SkillList({
  agent,
  found,
  skills,
}: {
  agent: string;
  found: api.SkillList;
  skills: Loaded<api.SkillList | null>;
}) {
  const change = (name: string, on: boolean) =>
    tryRequest(() => api.agents.switchSkill(agent, on ? { enable: [name] } : { disable: [name] })).then(
      (now) => now && skills.put(now),
    );
  if (!found.skills.length)
    return <p className={panel.note}>No skills. Add a folder with a SKILL.md to the workspace.</p>;
  return (
    <ul className={panel.rows}>
      {found.skills.map((skill) => (
        <li key={skill.name} className={panel.line}>
          <Switch label={`Skill ${skill.name}`} on={skill.enabled} change={(on) => void change(skill.name, on)} />
          <span>
            <b>{skill.name}</b>
            <br />
            <small>{skill.description}</small>
          </span>
        </li>
      ))}
      {(found.problems ?? []).map((one) => (
        <li key={one.path} className={panel.note}>
          <code>{one.path}</code>: {one.reason}
        </li>
      ))}
    </ul>
  );
}
