"""The hook programs that `--no-hooks` leaves out. They are listed from their files, and none is run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wick.errors import ConfigError
from wick.hook_programs.claude.sources import gather_settings, settings_files
from wick.hook_programs.discovery import default_directories, list_programs, parse_directories
from wick.hook_programs.trust import DEFAULT, Trust

HOME = "~/.wick"


def list_skipped_hooks(options: Mapping[str, Any], base: Path) -> list[str]:
    """Return the names of an agent's hook programs; `options` are those without `--no-hooks`."""
    given = options.get("executables") or {}
    programs: Mapping[str, Any] = {"folder": "."} if given is True else given
    directories = parse_directories(programs.get("dirs", ()), base)
    if folder := programs.get("folder"):
        directories += default_directories(base / folder, programs.get("home", HOME))
    files = [f"{directory.source}/{path.name}" for directory in directories for path in list_programs(directory)]
    place, hooks = base / programs.get("folder", "."), options.get("hooks")
    own = hooks if isinstance(hooks, Mapping) else programs.get("settings")
    try:
        trust = Trust(programs.get("trust", DEFAULT))
        settings = gather_settings(place, trust, hooks=own, claude=programs.get("claude", False))
        handlers = [f"{entry.event}: {entry.name}" for entry in settings.entries]
    except ConfigError:  # settings that cannot be read are named by their files
        handlers = [*map(str, settings_files(place))]
    return [*dict.fromkeys([*files, *handlers])]
