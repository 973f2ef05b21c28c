"""What every sandbox of the local backend has: it says what it confines, and how to run a program inside.

    command = sandbox.command(["sh", "-c", "make"], view)

A sandbox that cannot be used here raises `SandboxUnavailable` when it is looked for, with a sentence that says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from wick.backends.sandbox.protected_paths import Cover
from wick.protocols import Protection
from wick.workspace.processes import DEFAULT_PATH, clean_environment


class SandboxUnavailable(Exception):
    """A sandbox cannot be used; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class SandboxView:
    """What one command gets to see."""

    workspace: str
    workdir: str
    env: Mapping[str, str] = field(default_factory=dict)
    network: bool = False
    readable: Sequence[str] = ()
    covers: Sequence[Cover] = ()
    scratch: str = ""  # a folder for its temporary files, where it has no /tmp of its own
    memory: int = 0
    terminal: bool = False
    read_only: bool = False
    pinned: Sequence[str] = ()  # paths in the workspace that stay as they are
    fixed: Sequence[str] = ()  # folders in the workspace that stay where they are


@dataclass(frozen=True, slots=True)
class SandboxedCommand:
    """What wickd runs; `data` is what the descriptors lead to that `argv` speaks of."""

    argv: list[str]
    workdir: str
    env: Mapping[str, str]
    data: list[bytes] = field(default_factory=list)
    landlock: Mapping[str, Any] | None = None


class Sandbox(Protocol):
    """A way to confine commands."""

    @property
    def covers(self) -> bool:
        """Whether it covers protected paths."""

    @property
    def scratch(self) -> bool:
        """Whether commands need a folder for their temporary files."""

    @property
    def hides_signals(self) -> bool:
        """Whether a signal that ended the command comes as an exit code."""

    def protection(self, network: bool, limits: str) -> Protection: ...

    def command(self, argv: Sequence[str], view: SandboxView) -> SandboxedCommand: ...


def build_environment(home: str) -> dict[str, str]:
    """What a confined command finds in its environment: nothing of wick's own."""
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
    """No sandbox: commands run as the user who runs wick. `asks` unless somebody said that this is wanted."""

    asks: bool
    why: str = ""
    covers: bool = False
    scratch: bool = False
    hides_signals: bool = False

    def protection(self, network: bool, limits: str) -> Protection:
        says = f"nothing confines commands: they can do what the user who runs wick can do; they have {limits}"
        if self.asks:
            says += f"; so each command needs the user's yes ({self.why})"
        return Protection("none", "nothing", says, asks=self.asks)

    def command(self, argv: Sequence[str], view: SandboxView) -> SandboxedCommand:
        return SandboxedCommand([*argv], view.workdir, {**clean_environment(), **view.env})
