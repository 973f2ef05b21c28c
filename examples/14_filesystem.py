"""Seven file tools: the model writes a test, sees it fail, edits the file, and gets a very large output."""

import tempfile
from pathlib import Path

from wick import Agent, Scripted, ToolCall, assistant
from wick.backends.local import Local
from wick.capabilities.filesystem import Filesystem

ADD = "add() { echo $(($1 - $2)); }\n"
TEST = '. ./add.sh\n[ "$(add 2 3)" = 5 ] && echo passed || { echo failed; exit 1; }\n'

model = Scripted(
    assistant("", ToolCall("1", "write_file", {"path": "add.sh", "content": ADD})),
    assistant("", ToolCall("2", "write_file", {"path": "test.sh", "content": TEST})),
    assistant("", ToolCall("3", "execute", {"command": "sh test.sh"})),
    assistant("", ToolCall("4", "edit_file", {"path": "add.sh", "old_text": "$1 - $2", "new_text": "$1 + $2"})),
    assistant("", ToolCall("5", "execute", {"command": "sh test.sh"})),
    assistant("", ToolCall("6", "grep", {"pattern": r"add\(\)"})),
    assistant("", ToolCall("7", "execute", {"command": "seq 1 100000"})),
    assistant("", ToolCall("8", "read_file", {"path": ".results/7.txt", "offset": 49_999, "limit": 2})),
    "add.sh adds now.",
)

with tempfile.TemporaryDirectory() as folder:
    agent = Agent(model, hooks=[Filesystem(Local(Path(folder) / "project"))])
    result = agent.run_sync("Write add.sh and a test, and make the test pass.")

for message in result.messages.tool_messages():
    text = message.text if len(message.text) < 200 else f"… {message.text[-60:]}"
    print(f"{message.name}: {text.strip()}")
files = result.thread.values["files"]
print(sorted(files), repr(files["add.sh"]))

# prints:
# write_file: {"path":"add.sh","bytes_written":29}
# write_file: {"path":"test.sh","bytes_written":75}
# execute: {"stdout":"failed\n","stderr":"","exit_code":1}
# edit_file: {"path":"add.sh","replacements":1,"bytes_written":29}
# execute: {"stdout":"passed\n","stderr":"","exit_code":0}
# grep: {"matches":[{"file":"add.sh","line":1,"text":"add() { echo $(($1 + $2)); }"}],"truncated":false}
# execute: … t with read_file, offset and limit, or search it with grep"}
# read_file: 50000
# 50001
# ['add.sh', 'test.sh'] 'add() { echo $(($1 + $2)); }\n'
