"""The specification of a container: a validated config, and the engine's request body for it.

This module alone decides the confinement of a container. Its user is not root, and it has no capabilities and cannot
gain any. Its memory, processes and CPUs are limited. It has no network unless configured, and an engine's socket is
never mounted. It has wick's own seccomp profile; the engine's AppArmor profile stays on.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wick import constants
from wick.backends.containers.seccomp_profile import profile
from wick.errors import ConfigError

UID = 1000  # of commands, if the image has no user
DAEMON_FOLDER = "/.wickd"  # of wickd in the container; writable by root only
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PORT = 9090  # of the daemon with the tcp transport
NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}")
SOCKETS = ("docker.sock", "podman/podman.sock", "containerd/containerd.sock", "crio/crio.sock")
NO_NEW_PRIVILEGES = "no-new-privileges"
IDLE_COMMAND = ("sh", "-c", "while :; do sleep 86400; done")  # the main process of the container
CPU_PERIOD = 100_000  # microseconds; the quota is a multiple of it
TMPFS_OPTIONS = "rw,exec,nosuid,nodev,size="  # of a tmpfs
UNITS = {"": 1, "b": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """The limits of a container: bytes of memory, processes, CPUs, and bytes of /tmp (a tmpfs)."""

    memory: int = constants.CONTAINER_MEMORY
    pids: int = constants.CONTAINER_PIDS
    cpus: float = constants.CONTAINER_CPUS
    tmp: int = constants.CONTAINER_TMP_BYTES

    @classmethod
    def parse(cls, given: Mapping[str, float | str] | ContainerLimits | None) -> ContainerLimits:
        """Parse the limits of a config: `{"memory": "512m", "pids": 100}`."""
        if isinstance(given, ContainerLimits):
            return given
        known = {"memory": _parse_bytes, "tmp": _parse_bytes, "pids": int, "cpus": float}
        if unknown := set(given or {}) - known.keys():
            raise ConfigError(f"there is no limit named {sorted(unknown)[0]!r}; the limits are {', '.join(known)}")
        try:
            return cls(**{name: known[name](value) for name, value in (given or {}).items()})  # type: ignore[operator]
        except (TypeError, ValueError) as error:
            raise ConfigError(f"a limit is a number above 0, or a size such as '512m': {error}") from None

    def __post_init__(self) -> None:
        if min(self.memory, self.pids, self.cpus, self.tmp) <= 0:
            raise ConfigError("a limit is a number above 0, or a size such as '512m'")


def _parse_bytes(value: float | str) -> int:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([bkmg]?)(?:i?b)?\s*", str(value).lower())
    if not found:
        raise ValueError(f"{value!r} is not a size")
    return int(float(found[1]) * UNITS[found[2]])


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """The specification of a container."""

    id: str
    image: str
    workdir: str = "/workspace"
    owner: str = ""
    server: str = ""
    user: str = ""
    network: str = "none"
    limits: ContainerLimits = field(default_factory=ContainerLimits)
    env: Mapping[str, str] = field(default_factory=dict)
    binds: tuple[str, ...] = ()  # source:target[:ro]
    read_only: bool = False
    publish: bool = False  # the daemon's port, on loopback
    shared: str = ""  # a folder of this machine, mounted as the container's /tmp

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.id):
            raise ConfigError(f"{self.id!r} is not an id; use 1 to 63 letters, digits, dots, dashes and underscores")
        if not self.image or self.image.startswith("-") or "\0" in self.image:
            raise ConfigError("Docker needs the name of an image, such as python:3.12-slim")
        if not self.workdir.startswith("/") or posixpath.normpath(self.workdir) != self.workdir:
            raise ConfigError(f"workdir is an absolute path inside the container; this is {self.workdir!r}")
        if self.workdir == "/" or _is_within(self.workdir, "/tmp") or _is_within(self.workdir, DAEMON_FOLDER):
            raise ConfigError(f"workdir cannot be {self.workdir!r}; choose a folder such as /workspace")
        if self.network == "host" or self.network.startswith(("container:", "ns:")) or not self.network:
            raise ConfigError(f"network {self.network!r} is not confined; use 'none', 'own', or the name of a network")
        if self.publish and self.network == "none":
            raise ConfigError("a daemon that listens on a port needs a network: set network='own', or daemon='stdio'")

    @property
    def name(self) -> str:
        return f"wick-{self.id}"

    @property
    def is_host_folder(self) -> bool:
        """True if the workspace is a folder of the engine's machine, whose owner and mode must not change."""
        return any(mount.startswith("/") and _is_within(self.workdir, mount.split(":")[1]) for mount in self.binds)

    @property
    def is_mounted(self) -> bool:
        """True if the workspace is mounted and outlives the container."""
        return any(_is_within(self.workdir, mount.split(":")[1]) for mount in self.binds)

    def shared_folders(self) -> list[tuple[str, str]]:
        """Return the folders of the engine's machine that commands may write as part of the workspace.

        Each is a pair of its path there and its path in the container.
        """
        found = [(source, target) for source, target, *mode in (mount.split(":") for mount in self.binds) if not mode]
        return [
            (source, target)
            for source, target in found
            if source.startswith("/") and (_is_within(self.workdir, target) or _is_within(target, self.workdir))
        ]

    def describe(self) -> str:
        """Describe the confinement of the container for the user."""
        network = {"none": "no network", "own": "a network of its own"}.get(self.network, f"the network {self.network}")
        who = "as root inside" if self.user.partition(":")[0] in ("0", "root") else "not as root"
        memory = f"{self.limits.memory / 1_000_000:g} MB of memory"
        folders = [mount.partition(":")[0] for mount in self.binds if mount.startswith("/")]
        sharing = f"; it shares {', '.join(folders)} with the engine's machine" if folders else ""
        return (
            f"commands run in a container of {self.image}, {who}, without capabilities, with {network}, {memory} "
            f"and {self.limits.pids} processes{sharing}"
        )

    def resolve_user(self, image: Mapping[str, Any]) -> str:
        """Return the user of commands: the configured one, or the image's user unless that is root, or 1000."""
        own = str((image.get("Config") or {}).get("User") or "")
        root = own.partition(":")[0] in ("", "0", "root")
        return self.user or (f"{UID}:{UID}" if root else own)

    def create_body(self, image: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of the engine's create request."""
        user = self.resolve_user(image)
        image_env = dict(line.partition("=")[::2] for line in (image.get("Config") or {}).get("Env") or [])
        env = {"PATH": PATH, "HOME": "/tmp", "LANG": "C.UTF-8"} | image_env | {k: str(v) for k, v in self.env.items()}
        body: dict[str, Any] = {
            "Image": self.image,
            "User": user,
            "WorkingDir": self.workdir,
            "Env": [f"{name}={value}" for name, value in sorted(env.items())],
            "Entrypoint": list(IDLE_COMMAND),
            "Cmd": [],
            "StopSignal": "SIGTERM",
            "Healthcheck": {"Test": ["NONE"]},  # that of the image would check the image's own program
            "HostConfig": self._host_config(user),
        }
        if self.publish:
            body["ExposedPorts"] = {f"{PORT}/tcp": {}}
        if self.read_only:
            body["Volumes"] = {DAEMON_FOLDER: {}}  # removed with the container; the only writable place
        return body

    def _host_config(self, user: str) -> dict[str, Any]:
        host: dict[str, Any] = {
            "Init": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": [NO_NEW_PRIVILEGES, f"seccomp={profile()}"],
            "Privileged": False,
            "IpcMode": "private",
            "NetworkMode": self.name if self.network == "own" else self.network,
            "Memory": self.limits.memory,
            "MemorySwap": self.limits.memory,  # no swap
            "PidsLimit": self.limits.pids,
            "CpuPeriod": CPU_PERIOD,
            "CpuQuota": int(self.limits.cpus * CPU_PERIOD),
            "ReadonlyRootfs": self.read_only,
            "Binds": [*self.binds, *([f"{self.shared}:/tmp"] if self.shared else [])],
            "RestartPolicy": {"Name": "no"},
        }
        host["Tmpfs"] = {} if self.shared else {"/tmp": f"mode=1777,{TMPFS_OPTIONS}{self.limits.tmp}"}
        if self.read_only and not self.is_mounted:
            uid, _, gid = user.partition(":")
            gid = gid or uid
            if not uid.isdigit() or not gid.isdigit():
                raise ConfigError(
                    f"a read-only container needs its user as numbers, as in user='1000:1000'; not {user!r}"
                )
            host["Tmpfs"][self.workdir] = f"uid={int(uid)},gid={int(gid)},{TMPFS_OPTIONS}{self.limits.tmp}"
        if self.publish:
            host["PortBindings"] = {f"{PORT}/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}]}
        return host


def build_mounts(volumes: Mapping[str, str] | None, *, local: bool) -> tuple[str, ...]:
    """Return volumes as bind strings; raise if one contains an engine's socket."""
    sockets = [f"{folder}/{name}" for folder in ("/var/run", "/run") for name in SOCKETS]
    sockets += [os.path.realpath(path) for path in sockets] if local else []
    mounts = []
    for source, target in (volumes or {}).items():
        if not NAME.fullmatch(source):
            if not local and not source.startswith("/"):
                raise ConfigError(
                    f"volume {source!r} is on the engine's machine, so it is an absolute path there or a name"
                )
            source = os.path.realpath(source) if local else posixpath.normpath(source)
            if any(_is_within(path, source) for path in sockets):
                raise ConfigError(
                    f"volume {source!r} holds an engine's socket, and with it the whole machine; mount less"
                )
        inside, _, mode = target.partition(":")
        is_valid = inside.startswith("/") and mode in ("", "ro", "rw") and ":" not in source
        if not is_valid or _is_within(DAEMON_FOLDER, inside):
            raise ConfigError(
                f"volume {source!r} goes to an absolute path inside, with :ro if you like; not to {target!r}"
            )
        mounts.append(f"{source}:{posixpath.normpath(inside)}" + (":ro" if mode == "ro" else ""))
    return tuple(mounts)


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
