"""Self-description of an agent for its model: name, tools, hooks and limits."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import getdoc
from typing import Any

from wick._internal.prompt_text import to_one_line
from wick.capability import Capability
from wick.errors import ConfigError
from wick.hooks import Hook, before
from wick.operations import OPERATIONS, ModelCall, Run
from wick.tools import Tool, tool

LINE_CHARS = 200


class SelfDescription(Capability):
    """Describes the agent to its model: briefly in the system prompt, in full by the tool `describe_self`.

    `text` is your description; wick adds the name, the model and the limits.
    """

    def __init__(self, text: str = "", *, system: bool = True, tool: bool = True) -> None:
        if not isinstance(text, str):
            raise ConfigError(f"SelfDescription(text={text!r}): describe the agent in a text")
        if {type(system), type(tool)} != {bool} or not (system or tool):
            raise ConfigError("SelfDescription takes system= and tool=, true or false, and one of them is true")
        self.text, self.system, self.tool = text.strip(), system, tool

    def tools(self) -> list[Tool]:
        return super().tools() if self.tool else []

    @before(ModelCall)
    def add_description(self, call: ModelCall) -> None:
        """Add the description to the system prompt. It is built once per run, so that the prompt can be cached."""
        if call.purpose or not self.system:
            return
        if self not in call.run.scratch:
            limits = [f"{value} {name}" for name, value in _find_limits(_list_hooks(call.run)).items()]
            bounded = f"One answer may take {', '.join(limits)}." if limits else ""
            more = "Call describe_self for more about yourself." if self.tool else ""
            parts = (f"You are the agent {call.run.agent!r}.", self.text, bounded, more)
            call.run.scratch[self] = " ".join(filter(None, parts))
        call.system = "\n\n".join(filter(None, (call.system, call.run.scratch[self])))

    @tool(read_only=True, effect="read", returns="own")
    async def describe_self(self, run: Run) -> Any:
        """What you are: your name, model, tools, the hooks around you, and your limits."""
        hooks = list(_list_hooks(run))
        owners = {id(hook.owner): hook.owner for hook in hooks if isinstance(hook.owner, Capability)}
        return {
            "agent": run.agent,
            "description": self.text,
            "model": run.model.name,
            "tools": {tool.name: to_one_line(tool.description, LINE_CHARS) for tool in run.tools.values()},
            "capabilities": {
                owner.name: to_one_line(getdoc(type(owner)) or "", LINE_CHARS) for owner in owners.values()
            },
            "hooks": [f"{hook.name} at {hook.point}" for hook in hooks],
            "limits": _find_limits(hooks),
        }


def _list_hooks(run: Run) -> Iterator[Hook]:
    """Yield the hooks of a run in order, and the guards of its parent agents."""
    seen: dict[str, Hook] = {hook.name: hook for hook in run.loop.hooks}
    for operation in OPERATIONS:
        seen |= {guard.name: guard for guard in run.guards(operation)}
    yield from seen.values()


def _find_limits(hooks: Any) -> dict[str, str]:
    """Return the limits of the capability named `limits`."""
    owner = next((hook.owner for hook in hooks if getattr(hook.owner, "name", "") == "limits"), None)
    names = ("steps", "tokens", "seconds", "tool_calls", "cost")
    limits = {name.replace("_", " "): getattr(owner, name, None) for name in names}
    return {("dollars" if name == "cost" else name): f"{value}" for name, value in limits.items() if value is not None}
