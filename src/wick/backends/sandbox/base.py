"""The interface of the local backend's sandboxes.

    command = sandbox.command(["sh", "-c", "make"], view)

Detecting a sandbox that cannot be used here raises `SandboxUnavailable` with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from wick.backends.sandbox.protected_paths import Cover
from wick.protocols import Protection
from wick.workspace.processes import DEFAULT_PATH, clean_environment


class SandboxUnavailable(Exception):
    """Raised if a sandbox cannot be used; the message has the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class SandboxView:
    """The files, network and limits that one command gets."""

    workspace: str
    workdir: str
    env: Mapping[str, str] = field(default_factory=dict)
    network: bool = False
    readable: Sequence[str] = ()
    covers: Sequence[Cover] = ()
    scratch: str = ""  # a folder for temporary files, if it has no private /tmp
    memory: int = 0
    terminal: bool = False
    read_only: bool = False
    pinned: Sequence[str] = ()  # read-only paths in the workspace
    fixed: Sequence[str] = ()  # folders in the workspace that cannot be moved or removed


@dataclass(frozen=True, slots=True)
class SandboxedCommand:
    """A command as wickd runs it; `data` is the content of the descriptors that `argv` names."""

    argv: list[str]
    workdir: str
    env: Mapping[str, str]
    data: list[bytes] = field(default_factory=list)
    landlock: Mapping[str, Any] | None = None


class Sandbox(Protocol):
    """A mechanism that confines commands."""

    @property
    def covers(self) -> bool:
        """True if it mounts over protected paths."""

    @property
    def scratch(self) -> bool:
        """True if commands need a folder for temporary files."""

    @property
    def hides_signals(self) -> bool:
        """True if a fatal signal is reported as an exit code."""

    def protection(self, network: bool, limits: str) -> Protection: ...

    def command(self, argv: Sequence[str], view: SandboxView) -> SandboxedCommand: ...


def build_environment(home: str) -> dict[str, str]:
    """Return the environment of a confined command, without wick's own variables."""
    return {
        "PATH": DEFAULT_PATH,
        "HOME": home,
        "TMPDIR": home,
        "LANG": "C.UTF-8",
        "USER": "wick",
        "SHELL": "/bin/sh",
    }


@dataclass(frozen=True, slots=True)
class Unconfined:
    """No sandbox: commands run as wick's user. `asks` unless it was chosen explicitly."""

    asks: bool
    why: str = ""
    covers: bool = False
    scratch: bool = False
    hides_signals: bool = False

    def protection(self, network: bool, limits: str) -> Protection:
        description = f"nothing confines commands: they can do what the user who runs wick can do; they have {limits}"
        if self.asks:
            description += f"; so each command needs the user's yes ({self.why})"
        return Protection("none", "nothing", description, asks=self.asks)

    def command(self, argv: Sequence[str], view: SandboxView) -> SandboxedCommand:
        return SandboxedCommand([*argv], view.workdir, {**clean_environment(), **view.env})
