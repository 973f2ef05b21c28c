"""Permanent grants that a user gave in the terminal, per agent and folder.

They are stored in the data folder, never in the working folder, so that a cloned repository cannot grant itself
permissions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FILE = "grants.jsonl"


class Grants:
    """The grants of a data folder, one JSON line each. Appends of several processes do not conflict."""

    def __init__(self, data: Path) -> None:
        self.path = data / FILE

    def list_tool_uses(self, folder: str, agent: str) -> list[dict[str, Any]]:
        """Return the tool uses that are always allowed."""
        return [row["rule"] for row in self._read_rows(dict) if (row["folder"], row["agent"]) == (folder, agent)]

    def list_rules(self, folder: str, agent: str) -> list[str]:
        """Return the permission rules that were added to `allow`."""
        return [row["rule"] for row in self._read_rows(str) if (row["folder"], row["agent"]) == (folder, agent)]

    def add(self, folder: str, agent: str, rule: Mapping[str, Any] | str) -> None:
        """Store a tool use or a rule for an agent in a folder."""
        value = rule if isinstance(rule, str) else dict(rule)
        row = json.dumps({"folder": folder, "agent": agent, "rule": value}, ensure_ascii=False)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, f"{row}\n".encode())
        finally:
            os.close(handle)

    def _read_rows(self, kind: type) -> Iterator[dict[str, Any]]:
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                row = json.loads(line)
                rule = row["rule"]
                whole = isinstance(rule, str) or (isinstance(rule["tool"], str) and isinstance(rule["args"], dict))
                whole = whole and {"folder", "agent"} <= row.keys()
            except (ValueError, LookupError, TypeError, AttributeError):
                continue  # an invalid or truncated line
            if whole and isinstance(rule, kind):
                yield row
