"""Hello: a model, a tool and one question."""

from wick import Agent, Scripted, ToolCall, assistant, tool


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# A scripted model, so that the output is always the same, with no key and no network.
# A real one is named in its place: Agent("anthropic:claude-sonnet-4-5", …); 11_models.py shows how.
model = Scripted(assistant("", ToolCall("1", "add", {"a": 2, "b": 3})), "2 + 3 is 5.")

agent = Agent(model, system="You are good at sums.", tools=[add])
result = agent.run_sync("What is 2 + 3?")

print(result.text)
print(f"[{result.outcome} after {len(model.requests)} questions to the model]")
print()
print(result.messages.pretty())

# prints:
# 2 + 3 is 5.
# [completed after 2 questions to the model]
#
# [Human]
# What is 2 + 3?
#
# [AI]
#   → tool_call: add(id=1, args={"a": 2, "b": 3})
#
# [Tool: add (call_id=1)]
# 5
#
# [AI]
# 2 + 3 is 5.
