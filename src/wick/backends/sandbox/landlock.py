"""The Landlock sandbox, for kernels with Landlock where bubblewrap cannot be used. It confines mainly files.

A command can list files and processes. It cannot open files outside the workspace, inspect other processes, or (on
newer kernels) connect by TCP. UDP, unix sockets and the protected paths of the workspace stay accessible, so this
sandbox is weak. Landlock does not restrict root's capabilities, such as creating device nodes; `setpriv` drops them.
`seccomp` denies the same system calls as in bubblewrap.
"""

from __future__ import annotations

import os
import shutil
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from wick.backends.sandbox import seccomp
from wick.backends.sandbox.base import SandboxedCommand, SandboxUnavailable, SandboxView, build_environment
from wick.protocols import Protection
from wick.workspace.processes import DEFAULT_PATH, landlock_version

TCP, SCOPES = 4, 6  # the ABI versions with rules for TCP, and for abstract sockets and signals

READABLE = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/dev/urandom", "/dev/random"),
    *(f"/etc/{name}" for name in ("ld.so.cache", "alternatives", "passwd", "group", "nsswitch.conf", "localtime")),
)
READABLE_WITH_NETWORK = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls")
WRITABLE = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/pts")


@dataclass(frozen=True, slots=True)
class Landlock:
    """The kernel's Landlock."""

    version: int
    without_rights: tuple[str, ...] = ()  # argv prefix that drops root's capabilities
    covers: bool = False
    scratch: bool = True
    hides_signals: bool = False

    def protection(self, network: bool, limits: str) -> Protection:
        reach = "the host's network" if network or self.version < TCP else "no TCP (but UDP, and sockets with a path)"
        description = (
            f"commands run under Landlock, which is weak: no files but the workspace and the system's programs, "
            f"{reach}, {limits}; they see other processes, and can change what is protected in the workspace"
        )
        return Protection("weak", "landlock", description)

    def command(self, argv: Sequence[str], view: SandboxView) -> SandboxedCommand:
        readable = [*READABLE, *(READABLE_WITH_NETWORK if view.network else ()), *view.readable]
        writable = [*WRITABLE, view.workspace, view.scratch]
        pinned = [f"{view.workspace}/{path}" for path in view.pinned]
        fixed = [f"{view.workspace}/{path}" for path in view.fixed]
        machine = os.uname().machine
        filters = {"filter": seccomp.build_filter(machine), "filter_shared": seccomp.build_filter_without_ipc(machine)}
        calls = {name: b64encode(program or b"").decode() for name, program in filters.items()}
        rules = {
            "read": readable,
            "write": writable,
            "network": view.network,
            "pinned": pinned,
            "fixed": fixed,
            **calls,
        }
        return SandboxedCommand(
            [*self.without_rights, *argv], view.workdir, {**build_environment(view.scratch), **view.env}, landlock=rules
        )


def find_landlock() -> Landlock:
    """Return the Landlock sandbox; raise SandboxUnavailable if the kernel has none."""
    version = landlock_version()
    if not version:
        raise SandboxUnavailable("the kernel has no Landlock; install bubblewrap with: apt install bubblewrap")
    if os.geteuid() != 0:
        return Landlock(version)
    setpriv = shutil.which("setpriv", path=DEFAULT_PATH)
    if setpriv is None:
        raise SandboxUnavailable(
            "Landlock does not hold root without setpriv; install it (util-linux), or run wick as another user"
        )
    return Landlock(version, (setpriv, "--bounding-set=-all", "--inh-caps=-all", "--"))
