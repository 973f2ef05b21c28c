"""The agent that is there when nobody has set up another: it works out of the box, in a sandbox of each user's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PROMPT = """\
You are wick, a capable assistant with a workspace of your own: files that you can read and write, and a shell.
Do what is asked, check what you did, and say plainly what you found. When something cannot be done, say so."""

# As in agents.yaml.
EMBEDDED: Mapping[str, Mapping[str, Any]] = {
    "default": {
        "name": "wick",
        "model": "auto",
        "system_prompt": PROMPT,
        "backend": {"type": "local"},
        "skills": {"shipped": True},
        "memory": {"paths": ["AGENTS.md"]},
        "builtins": {"tools": ["calculate", "datetime"]},
        "ask_user": True,
        # The sandbox confines commands, and where there is none each of them is asked about. Beside that: what would
        # destroy a machine is denied, and what runs code from elsewhere is asked about.
        "permissions": {"policy": "shell", "mode": "bypassPermissions"},
        "recorder": True,
    }
}
