"""A child agent is under every guard of its parents; its questions reach the user of the root run."""

from wick import Agent, Ask, Block, Capability, Run, Scripted, ToolCall, ToolUse, assistant, guard, tool
from wick.decisions import Question


@tool
def execute(command: str) -> str:
    """Run a command."""
    return f"ran {command}"


class Delegation(Capability):
    """Lets the model hand a task to another agent."""

    def __init__(self, child: Agent) -> None:
        self.child = child

    @tool
    async def delegate(self, task: str, run: Run) -> str:
        """Hand a task to the other agent."""
        return (await self.child.run(task, parent=run)).text

    def foreign_tools(self) -> list[str]:
        return [tool.name for tool in self.child.tools]  # so that guards here may name the child's tools


@guard(ToolUse, match="execute")
def careful(use: ToolUse) -> Ask | Block | None:
    if "deploy" in use.args["command"]:
        return Ask(f"{use.run.agent} wants to run {use.args['command']!r}. Agreed?")
    return Block("no deletes, also by subagents") if "rm " in use.args["command"] else None


async def agree(question: Question) -> bool:
    print("asked:", question.question)
    return True


commands = ["rm -rf build", "deploy"]
calls = [assistant("", ToolCall(f"c{n}", "execute", {"command": command})) for n, command in enumerate(commands)]
child_model = Scripted(*calls, "deployed, nothing deleted")
child = Agent(child_model, name="builder", tools=[execute])  # it has no guard of its own

model = Scripted(assistant("", ToolCall("1", "delegate", {"task": "ship it"})), "The builder has shipped it.")
agent = Agent(model, name="lead", hooks=[careful, Delegation(child)], ask=agree)

print(agent.run_sync("Ship it.").text)
for message in child_model.requests[-1].messages:
    if message.role == "tool":
        print("the child reads:", message.text)

# prints:
# asked: builder wants to run 'deploy'. Agreed?
# The builder has shipped it.
# the child reads: no deletes, also by subagents
# the child reads: ran deploy
