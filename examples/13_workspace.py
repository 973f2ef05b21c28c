"""A workspace: the model writes a program and runs it in a sandbox."""

import os
import tempfile

from wick import Agent, Scripted, Tool, ToolCall, assistant, tool
from wick.backends.local import Local

GREET = 'echo "hello $1"\necho "my key is ${API_KEY:-not here}"\n'
os.environ["API_KEY"] = "sk-secret"  # ours, not the command's


def tools(workspace: Local) -> list[Tool]:
    @tool(kind="write")
    async def write_file(path: str, content: str) -> str:
        """Write a file."""
        return f"{(await workspace.write(path, content))['bytes_written']} bytes"

    @tool(kind="shell")
    async def execute(command: str) -> str:
        """Run a shell command."""
        done = await workspace.execute(command, timeout=20)
        return f"{done['stdout'].strip()} (exit code {done['exit_code']})"

    return [write_file, execute]


model = Scripted(
    assistant("", ToolCall("1", "write_file", {"path": "bin/greet.sh", "content": GREET})),
    assistant("", ToolCall("2", "execute", {"command": "sh bin/greet.sh world"})),
    "The program works.",
)

with tempfile.TemporaryDirectory() as folder:
    result = Agent(model, tools=tools(Local(folder))).run_sync("Write a program that greets, and run it.")

for message in result.messages.tool_messages():
    print(f"{message.name}: {message.text}")
print(result.text)

# prints:
# write_file: 54 bytes
# execute: hello world
# my key is not here (exit code 0)
# The program works.
