"""Hooks: change input and output, and see which hook did what."""

from wick import Agent, ModelCall, Scripted, ToolCall, ToolUse, after, assistant, before, tool


@tool(read_only=True)
def read_note(path: str) -> str:
    """Read a note."""
    return f"{path} says: the token is hunter2"


@before(ModelCall)
def tell_the_team(call: ModelCall) -> None:
    call.system += " You work for the docs team."  # this question only; the agent stays as it is


@before(ToolUse, match="read_note")
def tidy_path(use: ToolUse) -> None:
    use.args["path"] = use.args["path"].strip().removeprefix("./")


@after(ToolUse)
def redact(use: ToolUse) -> None:
    use.result.output = use.result.output.replace("hunter2", "•••")


@after(ToolUse)
def report(use: ToolUse) -> None:
    for row in use.why:
        print(f"{row.position:6} {row.hook:10} {row.verdict:5} {row.changed or ''}")


model = Scripted(assistant("", ToolCall("1", "read_note", {"path": " ./todo.md "})), "It names a token.")
agent = Agent(model, system="Be brief.", tools=[read_note], hooks=[report, tell_the_team, tidy_path, redact])
result = agent.run_sync("What is in my note?")

print()
print("the model was told:", model.requests[0].system)
print("the model has read:", model.requests[1].messages[-1].text)

# prints:
# before tidy_path  pass  {'path': [' ./todo.md ', 'todo.md']}
# after  redact     pass  {'result': 'changed'}
#
# the model was told: Be brief. You work for the docs team.
# the model has read: todo.md says: the token is •••
