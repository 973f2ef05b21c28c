interface Todo {
  id: string;
  title: string;
  status: "pending" | "in_progress" | "done";
}

const MARKS = { pending: "☐", in_progress: "◐", done: "☑" };

export function Todos({ todos }: { todos: unknown }) {
  const list = Array.isArray(todos) ? (todos as Todo[]) : [];
  if (!list.length) return null;
  const done = list.filter((one) => one.status === "done").length;
  return (
    <details className="todos" open={done < list.length}>
      <summary>To do: {done} of {list.length} done</summary>
      <ul>{list.map((one) => <li key={one.id} className={one.status}><span role="img" aria-label={one.status.replace("_", " ")}>{MARKS[one.status] ?? "☐"}</span> {one.title}</li>)}</ul>
    </details>
  );
}
