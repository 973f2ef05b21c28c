"""Subagents that share a budget with their parent: every model call counts."""

from wick import Agent, FunctionModel, Scripted, ToolCall
from wick.capabilities.budget import Budget
from wick.capabilities.subagents import Subagent, Subagents
from wick.protocols import Request

budget = Budget(tokens=4_000, reserve=2_000)


def verse(request: Request) -> str:
    return "Roses are red, and so on, for quite a while. " * 30


agents = [Subagent(name, f"Writes {name}.", model=FunctionModel(verse)) for name in ("odes", "songs", "hymns")]
tasks = [ToolCall(str(n), "task", {"agent": agent.name, "prompt": "Write."}) for n, agent in enumerate(agents)]
lead = Scripted(*tasks, "All are written.", spare=True)  # the run ends before this reply

agent = Agent(lead, hooks=[budget, Subagents(agents)])  # its hooks are inherited: children need no budget of their own
result = agent.run_sync("Write three texts.")

for message in result.messages.tool_messages():
    print(f"{message.tool_call_id}: {message.text[:60]}")
print(result.outcome, "-", result.reason.partition(":")[0])
print("one sum for all:", budget.spent.tokens == result.usage.total_tokens <= 4_000)

# prints:
# 0: Roses are red, and so on, for quite a while. Roses are red,
# 1: Roses are red, and so on, for quite a while. Roses are red,
# stopped - budget
# one sum for all: True
