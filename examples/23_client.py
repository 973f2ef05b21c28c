"""A server and its client: the server runs in a thread here, for all clients with the token."""

import tempfile
from queue import SimpleQueue
from threading import Thread

from wick import Agent, Message, ToolCall, assistant, tool
from wick.client import SyncClient
from wick.events import ChatModelStream, ToolEnd
from wick.models.scripted import FunctionModel
from wick.protocols import Request
from wick.server import Server


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def answer(request: Request) -> str | Message:
    """Return the reply of a scripted model."""
    last = request.messages[-1]
    return f"It is {last.text}." if last.role == "tool" else assistant("", ToolCall("1", "add", {"a": 2, "b": 3}))


token = "a-secret-that-is-long-enough"
data = tempfile.TemporaryDirectory()
server = Server(port=0, data=data.name, token=token)
server.register_agent("sums", Agent(FunctionModel(answer), name="sums", tools=[add]))
said: SimpleQueue[str] = SimpleQueue()
serving = Thread(target=lambda: server.start(tell=said.put))
serving.start()
url = said.get().split()[-1]  # "wick serves http://127.0.0.1:…"

with SyncClient(url, token) as client:
    stream = client.stream("sums", "What is 2 + 3?")
    for event in stream:
        if isinstance(event, ToolEnd):
            print(f"{event.name} says {event.output}")
        elif isinstance(event, ChatModelStream) and event.kind == "text":
            print(event.delta, end="")
    print()
    print([message.role for message in client.thread(stream.thread_id).messages])
    print(client.why(stream.thread_id, "1").attempts[0].ended)

server.shutdown()
serving.join()
data.cleanup()

# prints:
# add says 5
# It is 5.
# ['user', 'assistant', 'tool', 'assistant']
# done
