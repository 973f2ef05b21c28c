"""Selection of an agent by a text such as `agents.yaml:coder`, and rules added to its permissions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ALLOW_ALL_MODE = "bypassPermissions"  # without a matching rule, a tool use is allowed


def split_agent_spec(spec: str, folder: Path | None = None) -> tuple[Path, str]:
    """Split `agents.yaml:coder` into the path of the file, relative to a folder, and the id of the agent."""
    folder = folder or Path()
    path, colon, id = spec.rpartition(":")
    return (folder / path, id) if colon and path and not (folder / spec).exists() else (folder / spec, "")


def find_permissions(options: Mapping[str, Any]) -> Any:
    """Return the permissions of an agent's options. Those of settings files are added later, and keep their mode."""
    return options.get("permissions") or ({} if options.get("claude_settings") else None)


def add_rules(permissions: Any, **more: Sequence[Any]) -> dict[str, Any]:
    """Return permissions with added rules or grants. If there were none, everything else stays allowed."""
    if permissions is None or permissions is False:
        permissions = {"mode": ALLOW_ALL_MODE}
    current = {**permissions} if isinstance(permissions, Mapping) else {}
    return {**current, **{type: [*current.get(type, ()), *rules] for type, rules in more.items() if rules}}
