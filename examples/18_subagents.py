"""Subagents: one runs in the foreground, one in the background, with a question for the user."""

from wick import Agent, Ask, Scripted, ToolCall, ToolUse, guard, tool
from wick.capabilities.subagents import Subagent, Subagents
from wick.decisions import Question
from wick.events import Event


@tool(read_only=True)
def search(text: str) -> str:
    """Search the archive."""
    return f"3 letters about {text}"


@tool
def publish(text: str) -> str:
    """Publish a text."""
    return f"published: {text}"


@guard(ToolUse, match="publish")  # also applies to all subagents
def ask_first(use: ToolUse) -> Ask:
    return Ask(f"{use.run.agent} wants to publish {use.args['text']!r}. Agreed?")


def agree(question: Question) -> bool:
    print("asked:", question.question)
    return True


def show(event: Event) -> None:
    if event.event in ("on_subagent_start", "on_subagent_end"):
        print(event.event, event.name)


find = Scripted(ToolCall("1", "search", {"text": "comets"}), "There are three letters.")
write = Scripted(ToolCall("1", "publish", {"text": "On comets"}), "It is out.")
agents = [
    Subagent("librarian", "Finds letters.", "You search the archive.", tools=["search"], model=find),
    Subagent("editor", "Publishes.", "You write and publish.", tools=["publish"], model=write),
]
lead = Scripted(
    ToolCall("1", "task", {"agent": "librarian", "prompt": "What is there about comets?"}),
    ToolCall("2", "start_task", {"agent": "editor", "prompt": "Publish a note on comets."}),
    "I have asked the editor.",  # the run waits for its tasks, and the model reads their results
    "The note on the three letters is out.",
)
agent = Agent(lead, tools=[search, publish], hooks=[ask_first, Subagents(agents)], ask=agree)
print(agent.run_sync("Write about the comets.", emit=show).text)

# prints:
# on_subagent_start librarian
# on_subagent_end librarian
# on_subagent_start editor
# asked: editor wants to publish 'On comets'. Agreed?
# on_subagent_end editor
# The note on the three letters is out.
