"""Stream a run: text, a tool's live output, and a redactor that holds text back."""

import asyncio
from dataclasses import replace

from wick import Agent, ModelCall, Scripted, ToolCall, ToolUse, after, assistant, tool
from wick.events import ChatModelRestart, ChatModelStream, Done, ToolEnd, ToolStream


@tool
async def count(to: int, use: ToolUse) -> str:
    """Count, and show it while counting."""
    for number in range(1, to + 1):
        use.stream(f"{number}… ")
    return f"counted to {to}"


@after(ModelCall, hold=True)
def redact(call: ModelCall) -> None:
    if call.error is None and "hunter2" in call.result.text:
        call.result = replace(call.result, content=call.result.text.replace("hunter2", "•••"))


async def watch(agent: Agent, question: str) -> None:
    stream = agent.stream(question)
    async for event in stream:
        match event:
            case ChatModelStream(kind="text", delta=delta):
                print(f"text     {delta!r}")
            case ChatModelRestart(content=content):
                print(f"instead  {content!r}")
            case ToolStream(name=name, delta=delta):
                print(f"{name}    {delta!r}")
            case ToolEnd(name=name, output=output):
                print(f"{name}    is done: {output}")
            case Done(outcome=outcome):
                print(f"done     {outcome}\n")


script = (assistant("", ToolCall("1", "count", {"to": 2})), "One and two.", "The password is hunter2.")
agent = Agent(Scripted(*script), tools=[count], hooks=[redact])
asyncio.run(watch(agent, "Count to two."))
asyncio.run(watch(agent, "What is the password?"))

# prints:
# count    '1… '
# count    '2… '
# count    is done: counted to 2
# text     'One'
# text     ' and'
# text     ' two.'
# done     completed
#
# instead  'The password is •••.'
# done     completed
