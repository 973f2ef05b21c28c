"""A hook can be a program: any executable file, in any language."""

import asyncio
import tempfile
from pathlib import Path

from wick import Agent, Scripted, ToolCall, assistant, tool
from wick.capabilities.executables import Executables

NO_FORCE = """#!/bin/sh
[ "$1" = hook ] && echo before_tool_call && exit            # which event it is for
grep -q -e --force && echo '{"blocked": true, "reason": "force is not allowed"}'
exit 0                                                      # no output: continue
"""


@tool(kind="shell")
def execute(command: str) -> str:
    """Run a command."""
    return f"ran {command}"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "no_force"
        program.write_text(NO_FORCE)
        program.chmod(0o755)

        hooks = Executables([folder])  # a directory that is named here is trusted
        for row in hooks.listed():
            print(f"{row.name} at {row.point}, fails {row.fail}")

        commands = ["git push --force", "git push"]
        wanted = [ToolCall(str(n), "execute", {"command": command}) for n, command in enumerate(commands)]
        agent = Agent(Scripted(assistant("", *wanted), "Done."), tools=[execute], hooks=[hooks])
        result = await agent.run("Push it.")
        print([message.text for message in result.messages.tool_messages()])

        program.write_text("#!/bin/sh\nexit 1\n")  # now it is broken, so it agrees to nothing
        agent = Agent(Scripted(assistant("", *wanted[:1]), "Done."), tools=[execute], hooks=[hooks])
        result = await agent.run("Push it.")
        print(result.messages.tool_messages()[0].text)
        await hooks.close()


asyncio.run(main())

# prints:
# no_force at before_tool_use, fails closed
# ['force is not allowed', 'ran git push']
# the hook program no_force ended with exit code 1, so it has not agreed
