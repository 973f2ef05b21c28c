"""A conversation that exceeds the context window: the oldest part is summarized, and the thread keeps every message."""

from wick import Agent, ModelCall, Scripted, Thread, assistant, before, user
from wick.capabilities.summarization import Summarization

thread = Thread()
for day in range(1, 21):
    thread.add(user(f"Day {day}: " + "it rained all day, and the cellar is full. " * 5), assistant("Noted. " * 40))


@before(ModelCall)
def show(call: ModelCall) -> None:
    """Print the purpose and the size of each model call. Calls of capabilities have a purpose."""
    print(f"{call.purpose or 'the answer'}: {len(call.messages)} messages, the first: {call.messages[0].text[:38]!r}")


model = Scripted("It rained for twenty days; the cellar is full.", "On twenty, and the cellar is full.")
agent = Agent(model, hooks=[show, Summarization(4_000, threshold=2_000)])
result = agent.run_sync("On how many days did it rain?", thread=thread)
print(result.text)

compactions = [entry.data for entry in thread.entries if entry.kind == "compaction"]
print(f"{len(thread.messages)} messages are in the thread, {compactions[0]['replaces']} of them are summed up")

# prints:
# summary: 1 messages, the first: '<conversation>\n[Human]\nDay 1: it raine'
# the answer: 6 messages, the first: 'Summary of the conversation so far, in'
# On twenty, and the cellar is full.
# 42 messages are in the thread, 36 of them are summed up
