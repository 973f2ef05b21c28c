"""A guard runs after all other hooks, and checks exactly what is executed."""

from wick import Agent, Block, Scripted, ToolCall, ToolUse, assistant, before, guard, tool

done: list[str] = []


@tool(kind="shell")
def execute(command: str) -> str:
    """Run a command."""
    done.append(command)  # a real tool would run it
    return f"ran {command}"


@guard(ToolUse, match="execute")
def no_deletes(use: ToolUse) -> Block | None:
    print(f"the guard looks at: {use.args['command']}")
    return Block("deleting is not allowed here") if "rm " in use.args["command"] else None


@before(ToolUse, match="execute")
def expand(use: ToolUse) -> None:
    """An innocent hook further in, which turns a harmless command into another one."""
    use.args["command"] = use.args["command"].replace("cleanup", "rm -rf build")


def ask_for(command: str) -> Agent:
    model = Scripted(assistant("", ToolCall("1", "execute", {"command": command})), "Fine.")
    return Agent(model, tools=[execute], hooks=[no_deletes, expand])


for command in ("ls", "cleanup"):
    result = ask_for(command).run_sync("Go on.")
    print(f"the model reads:    {result.messages[2].text}\n")
print("what was done:", done)

# prints:
# the guard looks at: ls
# the model reads:    ran ls
#
# the guard looks at: rm -rf build
# the model reads:    deleting is not allowed here
#
# what was done: ['ls']
