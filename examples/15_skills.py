"""A shipped skill: the model reads how to analyze a CSV file, and runs the program of the skill."""

import json
import tempfile
from pathlib import Path

from wick import Agent, Scripted, ToolCall
from wick.backends.local import Local
from wick.capabilities.filesystem import Filesystem
from wick.capabilities.memory import Memory
from wick.capabilities.skills import Skills
from wick.capabilities.todos import Todos

PLAN = [{"id": "1", "title": "Read how"}, {"id": "2", "title": "Analyze sales.csv"}]
ANALYZE = "python3 .skills/csv-analyzer/analyze.py sales.csv --json"
model = Scripted(
    ToolCall("1", "write_todos", {"todos": PLAN}),
    (
        ToolCall("2", "load_skill", {"name": "csv-analyzer"}),
        ToolCall("3", "update_todo", {"id": "1", "status": "done"}),
    ),
    ToolCall("4", "execute", {"command": ANALYZE}),
    ToolCall("5", "update_todo", {"id": "2", "status": "done"}),
    "Sales were 40 on average; one row has no amount.",
)

with tempfile.TemporaryDirectory() as folder:
    Path(folder, "sales.csv").write_text("day;amount\nMon;30\nTue;\nWed;50\n")
    Path(folder, "AGENTS.md").write_text("Amounts are in euros.")
    workspace = Local(folder)
    hooks = [
        Filesystem(workspace),
        Memory("AGENTS.md", workspace),
        Skills(backend=workspace, shipped=True, enabled=["csv-analyzer", "slides"]),
        Todos(),
    ]
    result = Agent(model, hooks=hooks).run_sync("What is in sales.csv?")

print(next(line for line in model.requests[0].system.splitlines() if line.startswith("["))[:56] + "…")
print(model.requests[3].messages[-1].text.partition("\nThis")[0])
executed = next(message for message in result.messages.tool_messages() if message.name == "execute")
amount = json.loads(json.loads(executed.text)["stdout"])["columns"][1]
print({key: amount[key] for key in ("name", "count", "missing", "mean")})
print(result.text)

# prints:
# [csv-analyzer] Analyze CSV files and generate charts. Us…
# <todos>
# 1. [done] Read how
# 2. [pending] Analyze sales.csv
# </todos>
# {'name': 'amount', 'count': 2, 'missing': 1, 'mean': 40.0}
# Sales were 40 on average; one row has no amount.
