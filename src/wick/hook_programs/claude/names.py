"""Tools as programs for Claude Code know them: other names, other names of arguments, and absolute paths. Both ways."""

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
class Place:
    """A tool, and the folder that its relative paths begin in."""

    tool: Tool
    workdir: str

    @classmethod
    def of(cls, use: ToolUse, cwd: str) -> Place:
        backend = getattr(getattr(use.bound.fn, "__self__", None), "backend", None)
        workdir = getattr(backend, "workdir", "")
        return cls(use.bound, workdir if isinstance(workdir, str) and workdir else cwd)

    @property
    def own(self) -> str:
        """wick's name of the tool, whatever it was renamed to."""
        return resolve_tool_name(self.tool.origin)

    @property
    def name(self) -> str:
        return NAMES.get(self.own, self.tool.name)

    @property
    def names(self) -> frozenset[str]:
        """What a matcher is compared with."""
        return self.tool.names | {self.name, self.own} | list_tool_aliases(self.own)

    def shown(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments as the program reads them; what is left out because it says nothing comes back as it was."""
        path = PATHS.get(self.own)
        needed = self.tool.parameters.get("required", ())
        told = {name: thaw(value) for name, value in args.items() if name in needed or value not in (None, "")}
        if path in told and isinstance(told[path], str):
            told[path] = self._absolute(told[path])
        return translate(self.own, convert(self.own, told, CLAUDE_VALUES), CLAUDE, self._properties)

    @property
    def _properties(self) -> Mapping[str, Any]:
        properties: Mapping[str, Any] = self.tool.parameters.get("properties", {})
        return properties

    def taken(self, given: Mapping[str, Any], args: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that a program's input stands for; a path that it left alone stays as the model wrote it."""
        taken = convert(self.own, restore(self.own, given, CLAUDE, self._properties), CLAUDE_VALUES, back=True)
        path = PATHS.get(self.own)
        if path in taken and isinstance(taken[path], str):
            was = args.get(path)
            kept = isinstance(was, str) and self._absolute(was) == taken[path]
            taken[path] = was if kept else self._relative(taken[path])
        return taken

    def _absolute(self, path: str) -> str:
        return os.path.normpath(os.path.join(self.workdir, path))

    def _relative(self, path: str) -> str:
        inside = path == self.workdir or path.startswith(f"{self.workdir.rstrip('/')}/")
        return os.path.relpath(path, self.workdir) if inside else path

    def response(self, args: Mapping[str, Any], result: ToolResult) -> Any:
        """What a tool came to, in the shape that programs look for."""
        data = thaw(result.data)
        if self.own == "execute" and isinstance(data, dict):
            return {"stdout": "", "stderr": "", "interrupted": False, "isImage": False, **data}
        if self.own in ("write_file", "edit_file") and isinstance(args.get("path"), str):
            more = data if isinstance(data, dict) else {}
            return {**more, "filePath": self._absolute(args["path"]), "success": not result.error}
        if self.own == "read_file" and isinstance(args.get("path"), str):
            file = {"filePath": self._absolute(args["path"]), "content": result.output}
            return {"type": "text", "file": file}
        return data if isinstance(data, dict | list) else result.output

    def suggestions(self, args: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The permission that a user might give for more than this once."""
        told = next((str(args[name]) for name in ("command", "path", "url") if args.get(name)), "")
        rule = {"toolName": self.name} | ({"ruleContent": told} if told else {})
        return [{"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "session"}]


def called(call: ToolCall) -> tuple[str, dict[str, Any]]:
    """The name and the arguments of a call in a transcript."""
    own = resolve_tool_name(call.name)
    return NAMES.get(own, call.name), translate(own, convert(own, thaw(call.args), CLAUDE_VALUES), CLAUDE, {})
