"""A failing server, a missing model, and the streamed output."""

import asyncio
from collections.abc import AsyncIterator

from wick import Agent, Scripted
from wick.capabilities.fallback import Fallback
from wick.capabilities.retry import Retry
from wick.errors import ModelError
from wick.events import ChatModelRestart, ChatModelStream
from wick.protocols import Delta, Finish, Request, TextDelta


class Shaky:
    """Is overloaded, then breaks off in the middle of its reply, then answers; and then it is gone."""

    name, asked = "shaky", 0

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        self.asked += 1
        if self.asked == 1:
            raise ModelError("shaky answered 529: overloaded", status=529, retryable=True, retry_after=0.01)
        if self.asked > 3:
            raise ModelError("shaky answered 404: there is no such model", status=404)
        yield TextDelta("The answer ")
        if self.asked == 2:
            raise ModelError("the connection to shaky broke off", retryable=True)
        yield TextDelta("is 42.")
        yield Finish("stop")


async def watch(agent: Agent) -> None:
    stream = agent.stream("What is the answer?")
    async for event in stream:
        match event:
            case ChatModelStream(name=model, delta=delta):
                print(f"{model:8}{delta!r}")
            case ChatModelRestart(content=content):
                print(f"        begins again: {content!r}")
    for entry in stream.run.thread.entries:  # retries and fallbacks are logged
        if entry.kind == "event":
            print(f"        ({entry.data['name']}: {entry.data['data']['error']})")


agent = Agent(Shaky(), hooks=[Retry(base=0.01), Fallback(Scripted("42.", name="steady"))])
asyncio.run(watch(agent))
asyncio.run(watch(agent))

# prints:
# shaky   'The answer '
#         begins again: ''
# shaky   'The answer '
# shaky   'is 42.'
#         (retry: shaky answered 529: overloaded)
#         (retry: the connection to shaky broke off)
# steady  '42.'
#         (fallback: shaky answered 404: there is no such model)
