"""The two places where commands find agents: this machine's data folder, and a server. Both know the same commands."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from cli.command import CommandResult
from cli.forked_command import ForkedWick
from server_process import TOKENS, ServerProcess
from wick.client import SyncClient
from wick.events import ApprovalRequest

AGENTS: dict[str, Any] = {
    "agents": {
        "default": {
            "name": "wick",
            "model": "demo",
            "backend": {"type": "local"},
            "skills": True,
            "permissions": {"allow": ["Read", "LS", "Glob", "Grep"]},
        },
        "other": {"model": "demo"},
    }
}


@dataclass
class HostCommand:
    """The command `wick` with a host."""

    wick: ForkedWick
    server: ServerProcess | None = None

    def __call__(self, *words: str, stdin: str = "", **environment: str) -> CommandResult:
        return self.wick(*words, stdin=stdin, **self.environment | environment)

    @property
    def environment(self) -> dict[str, str]:
        if self.server is None:
            return {}
        return {"WICK_SERVER": self.server.url, "WICK_TOKEN": TOKENS["ada"]}

    def json(self, *words: str) -> Any:
        done = self(*words, "--json")
        assert done.code == 0, done.err
        return json.loads(done.out)

    def say(self, words: str) -> str:
        """Send a message to an agent; return the thread."""
        if self.server is None:
            done = self("run", "--model", "demo", "--output", "json", words)
            assert done.code in (0, 4), done.err
            return str(json.loads(done.out)["thread"])
        with SyncClient(self.server.url, TOKENS["ada"]) as ada:
            stream = ada.stream("default", words)
            for event in stream:
                if isinstance(event, ApprovalRequest):
                    break
            return stream.thread_id
