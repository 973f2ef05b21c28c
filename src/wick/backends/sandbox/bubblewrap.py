"""The sandbox on Linux: bubblewrap, with a deny-by-default profile.

    sandbox = find_bubblewrap()         the tested bubblewrap of this system, or SandboxUnavailable with the reason
    sandbox.command(["sh", "-c", "ls"], view)

A command has its own namespaces (users, processes, IPC, host name, control groups, and the network unless it is
allowed), no capabilities, and a file system with only the system's programs, its workspace and a private /tmp.
`seccomp` denies the system calls of known sandbox escapes.

The profile is passed to bubblewrap through a descriptor, so that environment variables never appear in a process
list. bubblewrap itself starts with an empty environment, as LD_PRELOAD would otherwise run code outside.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from glob import glob

from wick.backends.sandbox import seccomp
from wick.backends.sandbox.base import SandboxedCommand, SandboxUnavailable, SandboxView, build_environment
from wick.backends.sandbox.protected_paths import Cover
from wick.protocols import Protection
from wick.workspace.processes import DEFAULT_PATH, create_data_file

TRIAL_SECONDS = 10.0
USER = 1000  # the uid of commands: never root, so that programs that refuse root work and `tar` sets no owners
HOME = "/tmp"

# The parts of /etc that programs need, without passwords, keys and tokens of package managers.
ETC = ("ld.so.cache", "alternatives")
ETC_WITH_NETWORK = (
    "resolv.conf",
    "hosts",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ca-certificates",
    "pki/tls",
    "pki/ca-trust",
)


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """A working bubblewrap, and its supported options."""

    program: str
    options: tuple[str, ...]  # the working ones of those that not every version has
    covers: bool = True
    scratch: bool = False
    hides_signals: bool = True

    def protection(self, network: bool, limits: str) -> Protection:
        reach = "the host's network, with what listens on it" if network else "no network"
        description = (
            f"commands run in bubblewrap: {reach}, no files but the workspace and the system's programs, {limits}"
        )
        if seccomp.build_filter(os.uname().machine) is None:
            description += f"; system calls are not filtered, as there is no filter for {os.uname().machine}"
        return Protection("strong", "bubblewrap", description)

    def command(self, argv: Sequence[str], view: SandboxView) -> SandboxedCommand:
        files = [("--file", [path], content) for path, content in GENERATED_FILES.items()]
        copies = [cover for cover in view.covers if cover.how == "copy"]
        files += [("--ro-bind-data", [f"{view.workspace}/{cover.path}"], cover.content) for cover in copies]
        if rules := seccomp.build_filter(os.uname().machine):
            files.append(("--seccomp", [], rules))
        size = ["--size", str(view.memory)] if view.memory and "--size" in self.options else []
        # /proc/keys lists the user's keys in every namespace.
        hide_keys = ["--ro-bind", "/dev/null", "/proc/keys"] if os.path.exists("/proc/keys") else []
        profile = [
            *("--unshare-all", "--unshare-user"),
            *(["--share-net"] if view.network else []),
            *(["--disable-userns"] if "--disable-userns" in self.options else []),
            *([] if view.terminal else ["--new-session"]),
            *("--die-with-parent", "--cap-drop", "ALL", "--hostname", "wick"),
            *("--uid", str(USER), "--gid", str(USER)),
            *_system_mounts(view.network),
            # Read-only: where wick is root, a command could otherwise write /proc/sys, which is root's everywhere.
            *("--proc", "/proc", *hide_keys, "--remount-ro", "/proc"),
            *("--dev", "/dev", *size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),
            *(*size, "--tmpfs", "/tmp"),
            *_bind_read_only(view.readable),
            *("--ro-bind" if view.read_only else "--bind", view.workspace, view.workspace),
            *(part for cover in view.covers for part in _cover_options(f"{view.workspace}/{cover.path}", cover)),
            *("--chdir", view.workdir),
        ]
        for name, value in {**build_environment(HOME), **view.env}.items():
            profile += ["--setenv", name, value]
        data = [b"\0".join(map(os.fsencode, profile)) + b"\0"]
        late = []  # options with a descriptor, which cannot be part of the profile
        for option, path, content in files:
            late += [option, f"%fd{len(data)}%", *path]
            data.append(content)
        return SandboxedCommand(
            [self.program, "--args", "%fd0%", *late, "--remount-ro", "/", "--", *argv], "/", {}, data
        )


# Generated files, so that the sandbox does not see the host's users and groups.
GENERATED_FILES = {
    "/etc/passwd": f"wick:x:{USER}:{USER}::{HOME}:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n".encode(),
    "/etc/group": f"wick:x:{USER}:\nnogroup:x:65534:\n".encode(),
}


@cache
def _system_mounts(network: bool) -> list[str]:
    """Return the mounts of the system's programs and libraries, and of the parts of /etc that they need."""
    found = ["--ro-bind", "/usr", "/usr"]
    for path in ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"):
        if os.path.islink(path):
            found += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            found += ["--ro-bind", path, path]
    names = [*ETC, *sorted(glob("java-*", root_dir="/etc")), *(ETC_WITH_NETWORK if network else ())]
    found += _bind_read_only([path for path in (f"/etc/{name}" for name in names) if os.path.exists(path)])
    if os.path.islink("/etc/localtime"):
        found += ["--symlink", os.readlink("/etc/localtime"), "/etc/localtime"]
    return found


def _bind_read_only(paths: Sequence[str]) -> list[str]:
    return [part for path in paths for part in ("--ro-bind", path, path)]


def _cover_options(path: str, cover: Cover) -> list[str]:
    if cover.how == "show":
        return ["--ro-bind", path, path]
    if cover.how == "keep":
        return ["--bind", path, path]
    if cover.how == "hide":
        return ["--tmpfs", path, "--remount-ro", path] if cover.folder else ["--ro-bind", "/dev/null", path]
    return []


# -- detection ------------------------------------------------------------------------------------------------------


@cache
def find_bubblewrap() -> Bubblewrap:
    """Return the bubblewrap of this system with the options that work here, detected by a trial run."""
    program = shutil.which("bwrap", path=DEFAULT_PATH) or shutil.which("bwrap")
    if program is None or not os.path.isabs(program):  # the current folder may be a workspace
        raise SandboxUnavailable(
            "bubblewrap is not installed; install it with: apt install bubblewrap (or dnf, pacman, apk)"
        )
    why = ""
    for options in (("--disable-userns", "--size"), ("--size",), ()):
        sandbox = Bubblewrap(program, options)
        why = _try_sandbox(sandbox)
        if not why:
            return sandbox
    raise SandboxUnavailable(f"bubblewrap is installed but cannot be used here: {why}")


def _try_sandbox(sandbox: Bubblewrap) -> str:
    """Run `true` in the sandbox; return the error if that fails."""
    command = sandbox.command(["true"], SandboxView("/tmp", "/tmp", memory=1_000_000))
    files = [create_data_file(data) for data in command.data]
    argv = command.argv
    for index, file in enumerate(files):
        argv = [str(file) if part == f"%fd{index}%" else part for part in argv]
    try:
        done = subprocess.run(
            argv,
            env={},
            pass_fds=files,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TRIAL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        for file in files:
            os.close(file)
    return (
        "" if done.returncode == 0 else done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
    )
