"""Tool search: hide tools from the request until the model finds them by name or query."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal

from wick._internal.aliases import resolve_tool_name
from wick._internal.prompt_text import to_one_line
from wick.capabilities._tool_ranking import QUERY_CHARS, rank_tools
from wick.capability import Capability
from wick.constants import TOOLS_LISTED, TOOLS_SHOWN
from wick.errors import ConfigError, ToolError
from wick.hooks import after, before
from wick.operations import ModelCall, Run, ToolUse
from wick.tools import Tool, tool

RESULTS = 5
LINE_CHARS = 120
INNER = -50.0  # after other hooks have added tools to the request
NAME = "tools"
SHOWN = "tools_shown"  # key of `thread.values`: the tools found so far

# Tools of other capabilities that the system prompt mentions.
ALWAYS = (
    *("ls", "read_file", "write_file", "edit_file", "glob", "grep", "execute"),
    *("write_todos", "update_todo", "load_skill", "ask_user"),
    *("task", "start_task", "check_task", "list_tasks", "update_task", "cancel_task", "await_tasks"),
)

SYSTEM = """\
Not all of your tools are shown here: there are {count} more. Find them with `tools`: action "search" with a query, \
"list" for the names of all, or "help" with a name. What you find there can be used from your next step on."""


class ToolSearch(Capability):
    """Hides tools when there are more than `threshold`, and adds a tool that finds them.

    Only the request is shortened: hidden tools stay callable, and guards see each use. A tool that was found or used is
    shown for the rest of the conversation. Tools named in `always` are never hidden.
    """

    def __init__(self, threshold: int = TOOLS_SHOWN, *, always: Iterable[str] = ALWAYS, results: int = RESULTS) -> None:
        for name, value, least in (("threshold", threshold, 0), ("results", results, 1)):
            if type(value) is not int or value < least:
                raise ConfigError(f"ToolSearch({name}={value!r}): give a whole number of at least {least}")
        if isinstance(always, str) or not isinstance(always, Iterable):
            raise ConfigError(f"ToolSearch(always=…) takes a list of names, also of one: always=[{always!r}]")
        names: list[Any] = [*always]
        if wrong := [name for name in names if not isinstance(name, str)]:
            raise ConfigError(f"ToolSearch(always=…) takes a list of names, and {wrong[0]!r} is not one")
        self.threshold, self.results, self.always = threshold, results, frozenset(map(resolve_tool_name, names))

    @before(ModelCall, priority=INNER)
    def hide(self, call: ModelCall) -> None:
        run = call.run
        if call.purpose:
            return
        hidden = {tool.name: tool for tool in self._list_hideable(run)}
        if not hidden:
            call.tools = [tool for tool in call.tools if tool is not run.tools.get(NAME)]
            return
        shown = dict.fromkeys([*run.thread.values.get(SHOWN, ()), call.settings.get("tool_choice")])
        visible = [tool for tool in call.tools if hidden.get(tool.name) is not tool]
        # Append new tools, so that the prompt prefix stays cached.
        call.tools = [*visible, *(hidden[name] for name in shown if name in hidden)]
        hint = SYSTEM.format(count=len(hidden))
        call.system = f"{call.system}\n\n{hint}" if call.system else hint

    @after(ToolUse)
    def remember(self, use: ToolUse) -> None:
        """Show a used tool from now on, even if the model only had its name from the list."""
        if use.tool is not None and use.tool in self._list_hideable(use.run):
            _mark_shown(use.run, [use.tool])

    @tool(name=NAME, read_only=True, effect="read", returns="own")
    async def find(self, run: Run, action: Literal["list", "help", "search"], name: str = "", query: str = "") -> str:
        """Find tools that are not shown: list their names, get help on one by its name, or search by a query."""
        tools = [item for item in run.tools.values() if item.name != NAME]
        if action == "list":
            lines = [f"{item.name}: {to_one_line(item.description, LINE_CHARS)}" for item in tools[:TOOLS_LISTED]]
            more = len(tools) - TOOLS_LISTED
            return "\n".join([*lines, f"… and {more} more; search for what you need"] if more > 0 else lines)
        wanted = name or query
        if action == "search":
            chosen = rank_tools(tools, query or name)[: self.results]
        else:
            chosen = [item for item in tools if item.name == wanted] or [item for item in tools if wanted in item.names]
            if not chosen:
                close = ", ".join(item.name for item in rank_tools(tools, wanted)[:3])
                hint = f"; did you mean {close}?" if close else '; see them all with action "list"'
                raise ToolError(f"there is no tool named {wanted[:QUERY_CHARS]!r}{hint}")
            chosen = chosen[:1]
        hideable = self._list_hideable(run)
        _mark_shown(run, [item for item in chosen if item in hideable])
        texts = [
            f"{item.name}: {item.description.strip()}\narguments: {json.dumps(item.parameters, ensure_ascii=False)}"
            for item in chosen
        ]
        return "\n\n".join(texts) or "No tool fits; try other words, or list all of them."

    def _list_hideable(self, run: Run) -> list[Tool]:
        """Return the tools that are hidden until found; [] up to `threshold` tools."""
        tools = [item for item in run.tools.values() if item.name != NAME]
        if len(tools) <= self.threshold:
            return []
        return [item for item in tools if self.always.isdisjoint(item.names)]


def _mark_shown(run: Run, tools: Iterable[Tool]) -> None:
    shown = run.thread.values.get(SHOWN, ())
    new = [item.name for item in tools if item.name not in shown]
    if new:
        run.thread.values[SHOWN] = [*shown, *new]
