"""Define the commands that an agent may run, must ask for, and may never run."""

from wick import Agent, Block, Scripted, ToolCall, tool
from wick.capabilities.permissions import Permissions
from wick.decisions import Question


@tool(kind="shell")
def execute(command: str) -> str:
    """Run a command."""
    return "done"


@tool(kind="write")
def write_file(path: str, content: str) -> str:
    """Write a file."""
    return "written"


permissions = Permissions(
    policy="shell",  # denies destructive commands
    deny=[{"rule": "Write(.github/**)", "message": "The pipeline is not yours to change."}],
    ask=["Bash(git push *)"],
    allow=["Bash(git *)", "Bash(pytest *)", "Write(src/**)"],
)


def agree(question: Question) -> bool | Block:
    print("  asked:", question.question)
    return "push" in question.question or Block("Not now.")


def use(name: str, **args: str) -> None:
    print(f"{name}: {args.get('command') or args['path']!r}")
    model = Scripted(ToolCall("1", name, args), "I see.")
    result = Agent(model, tools=[execute, write_file], hooks=[permissions], ask=agree).run_sync("Go on.")
    print("  told: ", result.messages.tool_messages()[0].text)


use("execute", command="git diff | git apply --check && timeout 60 pytest -q")
use("execute", command="git push origin main")
use("execute", command="git log; bash -c 'sudo reboot'")
use("execute", command="git log $(cat commits)")
use("write_file", path="src/../.github/ci.yml", content="…")

# prints:
# execute: 'git diff | git apply --check && timeout 60 pytest -q'
#   told:  done
# execute: 'git push origin main'
#   asked: May execute be used: git push origin main
#   told:  done
# execute: "git log; bash -c 'sudo reboot'"
#   told:  Command blocked by policy
# execute: 'git log $(cat commits)'
#   asked: May execute be used: git log $(cat commits) (it has a command inside of a word, so no rule can allow it)
#   told:  Not now.
# write_file: 'src/../.github/ci.yml'
#   told:  The pipeline is not yours to change.
