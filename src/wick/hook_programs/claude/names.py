"""Conversion of tools to and from Claude Code's form: tool names, argument names and absolute paths."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wick._internal.aliases import TOOLS, list_tool_aliases, resolve_tool_name
from wick._internal.frozen import thaw
from wick.hook_programs.tool_fields import CLAUDE, CLAUDE_VALUES, convert, restore, translate
from wick.messages import ToolCall, ToolResult
from wick.operations import ToolUse
from wick.tools import Tool

NAMES = {own: name for name, own in TOOLS.items() if name[0].isupper()}
PATHS = dict.fromkeys(("ls", "read_file", "write_file", "edit_file", "glob", "grep"), "path")


@dataclass(frozen=True, slots=True)
class ToolView:
    """A tool in Claude Code's form, with the base folder of its relative paths."""

    tool: Tool
    workdir: str

    @classmethod
    def from_use(cls, use: ToolUse, cwd: str) -> ToolView:
        backend = getattr(getattr(use.bound.fn, "__self__", None), "backend", None)
        workdir = getattr(backend, "workdir", "")
        return cls(use.bound, workdir if isinstance(workdir, str) and workdir else cwd)

    @property
    def wick_name(self) -> str:
        """wick's original name of the tool."""
        return resolve_tool_name(self.tool.origin)

    @property
    def name(self) -> str:
        return NAMES.get(self.wick_name, self.tool.name)

    @property
    def names(self) -> frozenset[str]:
        """The names that a matcher is compared with."""
        return self.tool.names | {self.name, self.wick_name} | list_tool_aliases(self.wick_name)

    def to_claude_args(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments in Claude Code's form, without optional empty values."""
        path = PATHS.get(self.wick_name)
        needed = self.tool.parameters.get("required", ())
        filled = {name: thaw(value) for name, value in args.items() if name in needed or value not in (None, "")}
        if path in filled and isinstance(filled[path], str):
            filled[path] = self._absolute(filled[path])
        return translate(self.wick_name, convert(self.wick_name, filled, CLAUDE_VALUES), CLAUDE, self._properties)

    @property
    def _properties(self) -> Mapping[str, Any]:
        properties: Mapping[str, Any] = self.tool.parameters.get("properties", {})
        return properties

    def from_claude_args(self, given: Mapping[str, Any], args: Mapping[str, Any]) -> dict[str, Any]:
        """Return a program's input as arguments of the tool. An unchanged path stays as the model wrote it."""
        taken = convert(
            self.wick_name, restore(self.wick_name, given, CLAUDE, self._properties), CLAUDE_VALUES, back=True
        )
        path = PATHS.get(self.wick_name)
        if path in taken and isinstance(taken[path], str):
            original = args.get(path)
            if isinstance(original, str) and self._absolute(original) == taken[path]:
                taken[path] = original
            elif taken[path] == self.workdir or taken[path].startswith(f"{self.workdir.rstrip('/')}/"):
                taken[path] = os.path.relpath(taken[path], self.workdir)
        return taken

    def _absolute(self, path: str) -> str:
        return os.path.normpath(os.path.join(self.workdir, path))

    def to_claude_response(self, args: Mapping[str, Any], result: ToolResult) -> Any:
        """Return a tool result in Claude Code's form."""
        data = thaw(result.data)
        if self.wick_name == "execute" and isinstance(data, dict):
            return {"stdout": "", "stderr": "", "interrupted": False, "isImage": False, **data}
        if self.wick_name in ("write_file", "edit_file") and isinstance(args.get("path"), str):
            more = data if isinstance(data, dict) else {}
            return {**more, "filePath": self._absolute(args["path"]), "success": not result.error}
        if self.wick_name == "read_file" and isinstance(args.get("path"), str):
            file = {"filePath": self._absolute(args["path"]), "content": result.output}
            return {"type": "text", "file": file}
        return data if isinstance(data, dict | list) else result.output

    def suggest_rules(self, args: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the permission rule that a user could add for this call."""
        content = next((str(args[name]) for name in ("command", "path", "url") if args.get(name)), "")
        rule = {"toolName": self.name} | ({"ruleContent": content} if content else {})
        return [{"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "session"}]


def describe_call(call: ToolCall) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of a call for a transcript."""
    own = resolve_tool_name(call.name)
    return NAMES.get(own, call.name), translate(own, convert(own, thaw(call.args), CLAUDE_VALUES), CLAUDE, {})
