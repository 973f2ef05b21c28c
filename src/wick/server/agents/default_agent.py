"""The default agent of a server without a config. Each user's instance works in its own sandbox."""

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
        # The sandbox confines commands; without one, every command needs approval. In addition, the policy denies
        # destructive commands and asks before code from the network is run.
        "permissions": {"policy": "shell", "mode": "bypassPermissions"},
        "recorder": True,
    }
}
