"""A conversation of three turns with tools, a file and a question, to be killed at any moment and run again.

    python three_turns.py <folder> [unclosed]

It resumes the conversation, and ends with the line `finished`, or when a run fails. A line `ack <number> <kind>`
reports that the entry with that number was announced. Every effect of a tool is a line in `effects` with the key of the
call, written immediately. With `unclosed` it exits after the last turn without closing the database.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from wick import Agent, Ask, FunctionModel, Message, Thread, ToolCall, ToolUse, assistant, guard, tool
from wick.capabilities.sessions import Sessions
from wick.errors import StoreError
from wick.events import Event, Failed, ToolEnd
from wick.protocols import Request
from wick.threads.state import Entry

FOLDER, UNCLOSED = Path(sys.argv[1]), sys.argv[2:] == ["unclosed"]
TURNS = ("count", "write", "pay")
ID = "th_1"


def effect(use: ToolUse) -> None:
    with (FOLDER / "effects").open("a") as file:
        file.write(f"{use.call.name} {use.key}\n")
        file.flush()
        os.fsync(file.fileno())


@tool
async def count(number: int, use: ToolUse) -> str:
    """Count; not to be done twice."""
    effect(use)
    return f"counted {number}"


@tool(idempotent=True)
async def write_file(text: str, use: ToolUse) -> str:
    """Write a file; as often as you like."""
    effect(use)
    (FOLDER / "file").write_text(text)
    return "written"


@tool
async def pay(amount: int, use: ToolUse) -> str:
    """Pay; not to be done twice, and not without being asked."""
    effect(use)
    return f"paid {amount}"


@guard(ToolUse, match="pay")
def confirm(use: ToolUse) -> Ask:
    return Ask(f"pay {use.args['amount']}?")


async def reply(request: Request) -> Message:
    last = request.messages[-1]
    calls = {
        "count": [ToolCall(f"count{n}", "count", {"number": n}) for n in (1, 2)],
        "write": [ToolCall("write1", "write_file", {"text": "hello"})],
        "pay": [ToolCall("pay1", "pay", {"amount": 5})],
    }
    return assistant("", *calls[last.text]) if last.role == "user" else assistant("that is that")


async def main() -> None:
    sessions = Sessions(FOLDER / "db", lease=1.0)
    agent = Agent(FunctionModel(reply), tools=[count, write_file, pay], hooks=[sessions, confirm])
    while True:
        thread = await _look(sessions)
        said = [message.text for message in thread.messages if message.role == "user"]
        words = "" if thread.open_run or said == [*TURNS] else TURNS[len(said)]
        if not words and not thread.open_run:
            break
        for question in await sessions.questions(ID) if thread.entries else ():
            await sessions.answer(ID, question["id"], "allow")
        stream = agent.stream(words, thread=ID)
        async for event in stream:
            _tell(event, stream.run.thread)
            if isinstance(event, Failed):
                return await sessions.close()
    print("finished", flush=True)
    if UNCLOSED:
        os._exit(0)
    await sessions.close()


async def _look(sessions: Sessions) -> Thread:
    try:
        return await sessions.load(ID)
    except StoreError as error:
        if error.code != "not_found":
            raise
        return Thread(ID)


def _tell(event: Event, thread: Thread) -> None:
    """Announce content and end after they were saved."""
    kinds = {
        "on_chat_model_end": "message",
        "on_tool_end": "message",
        "on_approval_request": "asked",
        "done": "run_end",
    }
    if wanted := kinds.get(event.event):
        call = event.call_id if isinstance(event, ToolEnd) else ""
        about = [entry.seq for entry in thread.entries if entry.kind == wanted and (not call or _answers(entry, call))]
        print("ack", about[-1], wanted, flush=True)


def _answers(entry: Entry, call: str) -> bool:
    """With several tools at once, a later result may be in the log that is not announced yet."""
    return bool(entry.data.tool_call_id == call)


if __name__ == "__main__":
    asyncio.run(main())
