"""A capability: a class with hooks and tools, with state in the run and in the thread."""

from wick import (
    Agent,
    Block,
    Capability,
    ModelCall,
    Run,
    Scripted,
    Thread,
    ToolCall,
    ToolUse,
    assistant,
    before,
    guard,
    tool,
)


class Notes(Capability):
    """Remembers things over runs, and at most `most` of them a run."""

    def __init__(self, most: int = 2) -> None:
        self.most = most  # set once; several runs share the capability, so nothing is written to it later

    @before(Run)
    def start(self, run: Run) -> None:
        run.scratch[self] = 0  # for this run

    @tool
    def remember(self, text: str, run: Run) -> str:
        """Remember something for later."""
        run.thread.values["notes"] = [*run.thread.values.get("notes", []), text]  # for good
        run.scratch[self] += 1
        return "remembered"

    @guard(ToolUse, match="remember")
    def enough(self, use: ToolUse) -> Block | None:
        return Block("that is enough for one run") if use.run.scratch[self] >= self.most else None

    @before(ModelCall)
    def show(self, call: ModelCall) -> None:
        call.system += f" Notes: {', '.join(call.run.thread.values.get('notes', [])) or 'none'}."


texts = ["tea, no milk", "window seat", "allergic to cats"]
script = [assistant("", ToolCall(f"c{n}", "remember", {"text": text})) for n, text in enumerate(texts)]
model, thread = Scripted(*script, "Noted.", "Tea, by the window."), Thread()
agent = Agent(model, system="You are a host.", hooks=[Notes()])

result = agent.run_sync("Here is what I like.", thread=thread)
print([message.text for message in result.messages.tool_messages()])
print(agent.run_sync("What would I like?", thread=thread).text)
print(model.requests[-1].system)

# prints:
# ['remembered', 'remembered', 'that is enough for one run']
# Tea, by the window.
# You are a host. Notes: tea, no milk, window seat.
