"""The sandbox on macOS: `sandbox-exec`, with a deny-by-default profile.

It confines files and the network. Processes of the same user stay visible, and there are no control groups. Apple
has deprecated the program, but still uses it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from wick.backends.sandbox.base import SandboxedCommand, SandboxUnavailable, SandboxView, build_environment
from wick.protocols import Protection

PROGRAM = "/usr/bin/sandbox-exec"

READABLE = (
    *("/usr", "/bin", "/sbin", "/System", "/Library/Developer", "/Library/Apple", "/opt/homebrew", "/private/etc/ssl"),
    *("/private/var/db/timezone", "/private/var/select", "/private/var/db/dyld", "/dev/urandom", "/dev/random"),
)
WRITABLE = ("/dev/null", "/dev/zero", "/dev/tty", "/dev/ptmx", "/dev/fd")

RULES = """\
(version 1)
(deny default)
(allow process-exec process-fork)
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow file-read-metadata)
(allow file-read* (literal "/"))
(allow file-ioctl (regex #"^/dev/tty"))
(allow file-read* file-write* (regex #"^/dev/ttys[0-9]+$"))
(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))
"""
NETWORK = """\
(allow network*)
(allow system-socket)
(allow mach-lookup (global-name "com.apple.SystemConfiguration.configd") (global-name "com.apple.dnssd.service"))
(allow file-read* (literal "/private/etc/resolv.conf") (literal "/private/etc/hosts"))
"""


@dataclass(frozen=True, slots=True)
class Seatbelt:
    """The `sandbox-exec` program."""

    program: str = PROGRAM
    covers: bool = True  # by rules instead of mounts
    scratch: bool = True
    hides_signals: bool = False

    def protection(self, network: bool, limits: str) -> Protection:
        reach = "the host's network" if network else "no network"
        description = (
            f"commands run in sandbox-exec, which is weak: {reach}, no files but the workspace and the "
            f"system's programs, {limits}; they see other processes"
        )
        return Protection("weak", "sandbox-exec", description)

    def command(self, argv: Sequence[str], view: SandboxView) -> SandboxedCommand:
        wrapped = [self.program, "-p", build_profile(view), *argv]
        return SandboxedCommand(wrapped, view.workdir, {**build_environment(view.scratch), **view.env})


def build_profile(view: SandboxView) -> str:
    """Return the rules for one command; later rules take precedence."""
    rules = [
        RULES,
        _allow_rule("file-read*", [*READABLE, *view.readable]),
        _allow_rule("file-read* file-write*", [*WRITABLE, view.workspace, view.scratch]),
        NETWORK if view.network else "",
    ]
    for cover in view.covers:
        if cover.how not in ("keep", "leave"):
            denied = "file-read* file-write*" if cover.how == "hide" else "file-write*"
            rules.append(f"(deny {denied} (subpath {_quote_path(f'{view.workspace}/{cover.path}')}))\n")
    return "".join(rules)


def _allow_rule(what: str, paths: Sequence[str]) -> str:
    return f"(allow {what} {' '.join(f'(subpath {_quote_path(path)})' for path in paths if path)})\n"


def _quote_path(path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def find_sandbox_exec() -> Seatbelt:
    """Return the `sandbox-exec` sandbox; raise SandboxUnavailable on other systems."""
    if sys.platform != "darwin" or not os.access(PROGRAM, os.X_OK):
        raise SandboxUnavailable("sandbox-exec is part of macOS, and this is another system")
    return Seatbelt()
