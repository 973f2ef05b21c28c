"""A todo list that the model maintains, with reminders while items are open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from wick._internal.aliases import resolve_status as known_status
from wick._internal.frozen import thaw
from wick._internal.prompt_text import fence_text, to_one_line
from wick.capability import Capability
from wick.constants import TODO_ID_CHARS, TODO_TITLE_CHARS, TODOS
from wick.decisions import Block, Continue, Stop
from wick.errors import ConfigError, ToolError
from wick.hooks import after, before
from wick.messages import Message
from wick.operations import ModelCall, Run, Step, ToolUse
from wick.tools import tool

KEY = "todos"  # in thread.values
NUDGES = 2
WRITES = ("write_todos", "update_todo")


def _coerce_text(value: Any) -> Any:
    return str(value) if type(value) is int else value.strip() if isinstance(value, str) else value


Status = Annotated[
    Literal["pending", "in_progress", "done"],
    BeforeValidator(lambda value: known_status(value) if isinstance(value, str) else value),
]
Id = Annotated[
    str,
    Field(min_length=1, max_length=TODO_ID_CHARS, description="a short name, such as 1"),
    BeforeValidator(_coerce_text),
]
Title = Annotated[str, Field(min_length=1, max_length=TODO_TITLE_CHARS), BeforeValidator(_coerce_text)]


class Todo(BaseModel):
    """One item of the todo list."""

    model_config = ConfigDict(extra="ignore")

    id: Id
    title: Title
    status: Status = "pending"


def _normalize_list(value: Any) -> Any:
    """Return the list in our form; also accept other tools' form, with `content` for the title and no ids."""
    if not isinstance(value, list):
        return value
    todos = []
    for number, todo in enumerate(value, 1):
        if isinstance(todo, dict) and "content" in todo:
            todos.append({"id": number, "title": todo["content"], **todo})
        else:
            todos.append({"id": number, **todo} if isinstance(todo, dict) and "title" in todo else todo)
    return todos


class Todos(Capability):
    """Adds the tools `write_todos` and `update_todo`, and shows the model the list while items are open.

    The list is stored in `thread.values["todos"]`. A model that finishes with open items is reminded, at most `nudges`
    times per run, and only if it has used a tool in that run.
    """

    def __init__(self, nudges: int = NUDGES) -> None:
        if type(nudges) is not int or nudges < 0:
            raise ConfigError(f"Todos(nudges={nudges!r}): give the number of reminders in a run; 0 for none")
        self.nudges = nudges

    @tool(
        read_only=True, idempotent=True, effect="write", returns="own", targets=[]
    )  # it changes nothing but the agent's own notes
    async def write_todos(
        self,
        todos: Annotated[
            list[Todo],
            Field(max_length=TODOS, description="the whole list, in order"),
            BeforeValidator(_normalize_list),
        ],
        run: Run,
    ) -> str:
        """Write down what is to be done, for work that takes several steps. This replaces the whole list.

        Mark one as in_progress before you begin with it, and as done as soon as it is done.
        """
        ids = [todo.id for todo in todos]
        if twice := sorted({id for id in ids if ids.count(id) > 1}):
            raise ToolError(f"two todos have the id {', '.join(twice)}; give each its own")
        run.thread.values[KEY] = [todo.model_dump() for todo in todos]
        return _format_counts(run)

    @tool(
        read_only=True, idempotent=True, effect="write", returns="own", targets=[]
    )  # it changes nothing but the agent's own notes
    async def update_todo(self, id: Id, run: Run, status: Status | None = None, title: Title | None = None) -> str:
        """Change the status or the title of one todo, and leave the others as they are."""
        todos = thaw(run.thread.values.get(KEY, []))
        changed = next((todo for todo in todos if todo["id"] == id), None)
        if changed is None:
            known = ", ".join(todo["id"] for todo in todos) or "none; write_todos makes some"
            raise ToolError(f"there is no todo {id!r}; the ids are {known}")
        if status is None and title is None:
            raise ToolError("give a new status, a new title or both")
        changed |= {key: value for key, value in (("status", status), ("title", title)) if value is not None}
        run.thread.values[KEY] = todos
        return _format_counts(run)

    @before(ToolUse, match=WRITES)
    def refuse_conflicts(self, use: ToolUse) -> Block | None:
        """Block conflicting writes of one step: its calls run concurrently, so the last write would win."""
        messages = use.run.thread.messages
        reply = next((message for message in reversed(messages) if message.role == "assistant"), None)
        calls = [call for call in (reply.tool_calls if reply else ()) if call.id != use.call.id]
        named = [(call, use.run.tools.get(call.name)) for call in calls]
        others = [_find_subject(tool.origin, call.args) for call, tool in named if tool and tool.origin in WRITES]
        mine = _find_subject(use.tool.origin if use.tool else use.call.name, use.args)
        if not any(mine is None or other is None or mine == other for other in others):
            return None
        return Block("the list was to be changed twice in one step; nothing was changed: do it in one call")

    @before(ModelCall)
    def show(self, call: ModelCall) -> None:
        """Append the open list at the end of the request, where it does not invalidate the prompt cache."""
        todos = call.run.thread.values.get(KEY, ())
        if not call.purpose and _list_open(todos):
            text = (
                f"{fence_text('todos', _format_todos(todos))}\n"
                "This is your own list, shown by the system; the user did not write it. Keep it current with "
                "update_todo or write_todos while you work."
            )
            call.messages.append(Message("user", text, name=self.name))

    @after(Step)
    def nudge(self, step: Step) -> Continue | None:
        if step.error is not None or step.result != Stop("completed"):
            return None
        left = _list_open(step.run.thread.values.get(KEY, ()))
        output = step.run.output
        nudged = sum(message.name == f"{self.name}.nudge" for message in output if message.role == "user")
        if not left or nudged >= self.nudges or not output.tool_messages():
            return None
        return Continue(
            f"You stopped before all of your todos were done. Open are:\n{fence_text('todos', _format_todos(left))}\n"
            "Continue with them. If they are done, or no longer wanted, say so with write_todos; if you need something "
            "from the user first, ask for it. Then give your whole answer."
        )


def _list_open(todos: Sequence[Any]) -> list[Any]:
    return [todo for todo in todos if todo["status"] != "done"]


def _find_subject(origin: str, args: Any) -> str | None:
    """Return the id of the todo that a call changes, or None for the whole list."""
    return str(args.get("id", "")).strip() if origin == "update_todo" else None


def _format_todos(todos: Sequence[Any]) -> str:
    lines = (f"{todo['id']}. [{todo['status']}] {todo['title']}" for todo in todos)
    return "\n".join(to_one_line(line, TODO_ID_CHARS + TODO_TITLE_CHARS + 20) for line in lines)


def _format_counts(run: Run) -> str:
    todos = run.thread.values[KEY]
    counts = [f"{sum(todo['status'] == kind for todo in todos)} {kind}" for kind in ("done", "in_progress", "pending")]
    return f"The list has {len(todos)} todo{'' if len(todos) == 1 else 's'}: {', '.join(counts)}."
