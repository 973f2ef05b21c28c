"""Wrap an operation: retry, fall back to another model, or recover from an error."""

from dataclasses import replace

from wick import Agent, Message, ModelCall, Scripted, after, wrap
from wick.errors import ModelError
from wick.hooks import Next

backup = Scripted("The small model is here.", name="small")


@wrap(ModelCall, match="large")
async def fall_back(call: ModelCall, next: Next[Message]) -> Message:
    try:
        reply: Message = await next(call)
    except ModelError as error:
        print(f"{call.model.name} failed ({error}), so ask {backup.name}")
        reply = await next(replace(call, model=backup))  # a changed copy, for the rings further in
    return reply


@wrap(ModelCall)
async def retry(call: ModelCall, next: Next[Message]) -> Message:
    try:
        reply: Message = await next(call)
    except ModelError as error:
        print(f"{call.model.name} failed ({error}), so ask again")
        reply = await next(call)
    return reply


@after(ModelCall)
def apologise(call: ModelCall) -> None:
    if call.error is not None:  # setting a result heals it
        call.result = Message("assistant", "I cannot think right now; please come back later.")


down = ModelError("overloaded")
for replies in ([down, "Here I am."], [down, down], [down, down]):
    agent = Agent(Scripted(*replies, name="large"), hooks=[apologise, fall_back, retry])
    result = agent.run_sync("Are you there?")
    print(f"{result.text} [{result.outcome}]\n")

# prints:
# large failed (overloaded), so ask again
# Here I am. [completed]
#
# large failed (overloaded), so ask again
# large failed (overloaded), so ask small
# The small model is here. [completed]
#
# large failed (overloaded), so ask again
# large failed (overloaded), so ask small
# small failed (the script has 1 reply, and this is question 2; a FunctionModel answers them all), so ask again
# I cannot think right now; please come back later. [completed]
