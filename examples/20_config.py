"""Agents from a file: shared defaults, agents, and the error for a mistake."""

import tempfile
from pathlib import Path

from wick import Scripted, ToolCall, assistant
from wick.config import load
from wick.errors import ConfigError

config = load(Path(__file__).with_name("agents.yaml"))
for id in config.agents:
    agent = config.agent(id)
    print(f"{id}: {', '.join(tool.name for tool in agent.tools if tool.name.endswith('_file')) or 'no files'}")

model = Scripted(
    assistant("", ToolCall("1", "write_file", {"path": "plan.md", "content": "# Plan"})),
    assistant("", ToolCall("2", "write_file", {"path": "secret/key", "content": "…"})),
    "The plan is written.",
)
result = config.agents["writer"].agent(model=model).run_sync("Write a plan.")
for message in result.messages.tool_messages():
    print(f"  {message.text}")
print(f"  {result.text}")

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "agents.yaml")
    path.write_text("model: demo\nbackend:\n  type: local\n  sandbx: auto\n")
    try:
        load(path)
    except ConfigError as error:
        print(str(error).removeprefix(f"{folder}/"))

# prints:
# writer: read_file, write_file, edit_file
# talker: no files
#   {"path":"plan.md","bytes_written":6}
#   Hands off.
#   The plan is written.
# agents.yaml, line 4: there is no key 'sandbx' in backend; did you mean 'sandbox'?
