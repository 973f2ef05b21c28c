"""Ask the user, pause the run, and resume it later in another process."""

import json

from wick import Agent, Allow, Ask, Paused, Scripted, Thread, ToolCall, ToolUse, assistant, guard, tool
from wick.decisions import Question


@tool
def send(to: str, text: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


@guard(ToolUse, match="send")
def confirm(use: ToolUse) -> Ask:
    return Ask(f"Send {use.args['text']!r} to {use.args['to']}?")


async def pause_run(question: Question) -> Allow:
    raise Paused("waiting for Ada")  # not an error: the run is interrupted


async def ada_says(question: Question) -> Allow:
    print("asked:  ", question.question)
    return Allow({"to": "team@example.org", "text": "We ship on Friday."})  # yes, with other arguments


call = ToolCall("1", "send", {"to": "all@example.org", "text": "We ship!"})
thread = Thread()
agent = Agent(Scripted(assistant("", call)), tools=[send], hooks=[confirm], ask=pause_run)
result = agent.run_sync("Tell the others that we ship.", thread=thread)
print("outcome:", result.outcome, "-", result.reason)

saved = json.dumps(thread.to_json())  # a file, a database, another machine

thread = Thread.from_json(json.loads(saved))
agent = Agent(Scripted("Done."), tools=[send], hooks=[confirm], ask=ada_says)
result = agent.run_sync(thread=thread)  # no input: resume the interrupted run
print("outcome:", result.outcome, "-", result.text)
print("result: ", result.messages.tool_messages()[0].text)

try:  # a resumed run needs its guards
    Agent(Scripted(), tools=[send]).run_sync(thread=Thread.from_json(json.loads(saved)))
except Exception as error:
    print("refused:", "started under the guards confirm" in str(error))

# prints:
# outcome: interrupted - paused: waiting for Ada
# asked:   Send 'We ship!' to all@example.org?
# outcome: completed - Done.
# result:  sent to team@example.org
# refused: True
