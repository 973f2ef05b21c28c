/** What will be done, as people read it: a diff for an edit, a command as a command, all else as data. */

export function AboutCall({ tool, args }: { tool: string; args: Record<string, unknown> }) {
  if (tool === "edit_file") return <Diff path={String(args["path"] ?? "")} old={String(args["old_text"] ?? "")} now={String(args["new_text"] ?? "")} />;
  if (tool === "write_file") return <Diff path={String(args["path"] ?? "")} old="" now={String(args["content"] ?? "")} />;
  if (typeof args["command"] === "string") return <pre className="command"><span aria-hidden="true">$ </span>{args["command"]}</pre>;
  return <pre className="args">{JSON.stringify(args, null, 2)}</pre>;
}

function Diff({ path, old, now }: { path: string; old: string; now: string }) {
  return (
    <figure className="diff">
      <figcaption>{path}</figcaption>
      <pre>
        {lines(old).map((line, at) => <del key={`-${at}`}>- {line}{"\n"}</del>)}
        {lines(now).map((line, at) => <ins key={`+${at}`}>+ {line}{"\n"}</ins>)}
      </pre>
    </figure>
  );
}

const lines = (text: string) => (text ? text.replace(/\n$/, "").split("\n") : []);
