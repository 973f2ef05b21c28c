"""A canary: marks in untrusted text that detect tool results with a wrong trust declaration."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

from wick._internal.frozen import thaw
from wick._internal.tool_flow import FOREIGN
from wick.agent import Agent
from wick.capabilities.information_flow import InformationFlow
from wick.capabilities.information_flow.labels import list_leaves, list_values
from wick.messages import Message, ToolCall
from wick.models import Scripted
from wick.threads import Thread
from wick.tools import Tool


class Canary:
    """A generator of marks for untrusted text, and a check that no result declared as trusted contains one.

        canary = Canary()
        mailbox.add(body=canary.plant("mail"))
        await canary.check_tool(delete_mail, id="m1")

    A result may contain the marks in the arguments of its call.
    """

    def __init__(self) -> None:
        self.marks: dict[str, str] = {}  # sources, by mark

    def plant(self, source: str) -> str:
        """Return a new mark for a source, such as a mail or a page."""
        mark = f"canary{uuid4().hex[:12]}"
        self.marks[mark] = source
        return mark

    async def check_tool(self, used: Tool, /, **args: object) -> None:
        """Use a tool, and check its result."""
        model = Scripted(ToolCall("canary", used.name, dict(args)), "Done.")
        agent = Agent(model, tools=[used], hooks=[InformationFlow()], ask=lambda _: True)
        self.check((await agent.run("Use the tool.")).thread)

    def check(self, thread: Thread) -> None:
        """Check the tool results of a thread, whose agent has the capability `InformationFlow`."""
        if leaks := [*self._find_leaks(thread)]:
            raise AssertionError("; ".join(leaks))

    def _find_leaks(self, thread: Thread) -> Iterator[str]:
        calls = dict[str, ToolCall]()
        for entry in thread.entries:
            if entry.kind != "message":
                continue
            message: Message = entry.data
            calls |= {call.id: call for call in message.tool_calls}
            if message.role != "tool":
                continue
            label = entry.about.get("label") if entry.about else None
            if label is None:
                raise AssertionError(f"the result of {message.name} has no label; give the agent InformationFlow()")
            given = " ".join(map(str, list_values(thaw(calls[message.tool_call_id].args))))
            for author, value in list_leaves(message.text, label.get("returns", {})):
                for mark, source in self.marks.items():
                    if author not in FOREIGN and mark in str(value) and mark not in given:
                        yield f"{message.name} declares a result as {author!r}, but it contains the text of {source!r}"
