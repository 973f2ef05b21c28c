"""The surroundings of a workspace, for probes that try to escape from it (tests/support/backends/escapes.py)."""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import engines
from local_sandbox import PYTHON
from wick.backends.sandbox.seccomp import ARCHITECTURES, CLONE, DENIED, IOCTL, MISSING

ESCAPES = Path(__file__).parents[1] / "support" / "backends" / "escapes.py"
TGKILL = (234, 131)
IPC_PRIVATE, IPC_RMID, SESSION_KEYRING, KEY_REVOKE = 0, 0, -3, 3


@dataclass
class Around:
    """Targets planted around a sandbox."""

    workspace: str
    home: str
    beside: str
    config: str
    pipe: str
    socket: str
    shared: str
    abstract: str = field(default_factory=lambda: f"wick-{os.getpid()}")
    pid: int = field(default_factory=os.getpid)
    group: int = field(default_factory=os.getpgrp)
    port: int = 0
    port6: int = 0
    datagrams: int = 0
    segment: int = -1
    key: str = ""
    key_id: int = 0
    calls: dict[str, int] = field(default_factory=dict)  # that are denied
    numbers: dict[str, int] = field(default_factory=dict)  # of all calls that probes make by name
    cgroups: list[str] = field(default_factory=list)
    engines: list[str] = field(default_factory=lambda: [engines.SOCKET])


PLANTED = (
    *("home/.netrc", "home/.wick/server.yaml", "beside.txt", "server.yaml", "workspace/.env", "workspace/sub/.env"),
    "workspace/.git/hooks/pre-commit",
)


@contextmanager
def surroundings(folder: Path, token: str) -> Iterator[tuple[Around, socket.socket]]:
    """Secrets and open doors, all of them outside the workspace, or protected in it; and where datagrams would come."""
    for path in PLANTED:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"# {token}\n")
    (folder / "workspace/.git/config").write_text("[core]\n\tbare = false\n")
    os.mkfifo(folder / "pipe")
    door = f"wick-{os.getpid()}"
    around = Around(
        str(folder / "workspace"),
        *(str(folder / name) for name in ("home/.netrc", "beside.txt", "server.yaml", "pipe")),
        f"/tmp/{door}.sock",  # a path as short as sockets need it
        door,
        calls=_numbers({**DENIED, **MISSING}),
        numbers=_numbers({**DENIED, **MISSING, "clone": CLONE, "ioctl": IOCTL, "tgkill": TGKILL}),
        cgroups=_control_groups(),
    )
    with ExitStack() as stack:
        arrived = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        arrived.bind(("127.0.0.1", 0))
        arrived.setblocking(False)
        yield replace(around, datagrams=arrived.getsockname()[1], **_doors(stack, around, token)), arrived


def _numbers(table: dict[str, Any]) -> dict[str, int]:
    column = list(ARCHITECTURES).index(os.uname().machine)
    return {name: numbers[column] for name, numbers in table.items() if numbers[column] is not None}


def _control_groups() -> list[str]:
    found = [*Path("/sys/fs/cgroup").glob("cgroup.procs"), *Path("/sys/fs/cgroup").glob("*/cgroup.procs")]
    return [str(path) for path in found]


def _doors(stack: ExitStack, around: Around, token: str) -> dict[str, Any]:
    """Sockets that listen, memory that is shared, and a key."""
    tcp, tcp6 = (
        stack.enter_context(socket.create_server((host, 0), family=kind))
        for host, kind in (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6))
    )
    for address in (f"\0{around.abstract}", around.socket):
        stack.enter_context(_bound(address, socket.SOCK_STREAM)).listen()
    stack.enter_context(_bound(f"\0{around.abstract}-datagrams", socket.SOCK_DGRAM))
    stack.callback(os.unlink, around.socket)
    Path(f"/dev/shm/{around.shared}").write_text(token)
    stack.callback(os.unlink, f"/dev/shm/{around.shared}")
    key, key_id = _key(stack, around, token)
    ports = {"port": tcp.getsockname()[1], "port6": tcp6.getsockname()[1]}
    return {**ports, "segment": _segment(stack, token), "key": key, "key_id": key_id}


def _bound(address: str, kind: int) -> socket.socket:
    door = socket.socket(socket.AF_UNIX, kind)
    door.bind(address)
    return door


def _segment(stack: ExitStack, token: str) -> int:
    """Create a shared memory segment that all users may attach."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    id: int = libc.shmget(IPC_PRIVATE, 4096, 0o1666)
    ctypes.memmove(libc.shmat(id, None, 0), token.encode(), len(token))
    stack.callback(libc.shmctl, id, IPC_RMID, None)
    return id


def _key(stack: ExitStack, around: Around, token: str) -> tuple[str, int]:
    """A key in the kernel, which this user's processes may read; none where the machine forbids keys."""
    libc, name = ctypes.CDLL(None, use_errno=True), f"{around.abstract}-key"
    numbers = around.numbers
    args = (b"user", name.encode(), token.encode(), ctypes.c_size_t(len(token)), ctypes.c_long(SESSION_KEYRING))
    id: int = libc.syscall(ctypes.c_long(numbers["add_key"]), *args)
    if id > 0:
        stack.callback(libc.syscall, ctypes.c_long(numbers["keyctl"]), ctypes.c_long(KEY_REVOKE), ctypes.c_long(id))
    return name, id


# Probes that a sandbox does not promise to hold, by its name: a container owns everything inside, and
# Landlock calls itself weak. All other probes must hold.
_WORKSPACE = (
    "read a dot env file, link to a dot env file, link a dot env file, move a dot env file, "
    "move the folder of a dot env file, delete a dot env file, map a dot env file, write a git hook, "
    "change a git hook, make a git hook executable, change the git config, replace the git config, move git away"
)
_CONTAINERS_OWN = (
    "list the folder above the workspace, a folder above by its descriptor, the hosts users, the name of the host, "
    "the hosts passwords and keys, homes, steer the first process, the filesystem of control groups, "
    "set the bit of root on a program, make a program with the bit of root, the bit of root by a program, "
    "system call ptrace, system call process_vm_readv, system call process_vm_writev, "
    "system call adjtimex, system call clock_adjtime, system call openat2"
)
_WEAK = (
    "the hosts users, the hosts passwords and keys, see processes of the host, signal all processes, become root, "
    "become the group of root, the first process is free, disks and memory, send a datagram, a datagram to the host, "
    "see interfaces, a socket with a path, sockets of services, the docker socket, queues and segments of the host, "
    "the name of the host, the limits of wick, the descriptors of wick, the program of wick, keys of others, "
    "connections of the host, names of the sockets of the host, a file of root"
)
NOT_PROMISED = {
    "bubblewrap": frozenset[str](),
    "docker": frozenset(f"{_WORKSPACE}, {_CONTAINERS_OWN}".split(", ")),
    "landlock": frozenset(f"{_WORKSPACE}, {_WEAK}".split(", ")),
}


def source(only: tuple[str, ...] = ()) -> str:
    """The program with all probes, or with some."""
    text = ESCAPES.read_text()
    return text.replace("PROBES.items()}", f"PROBES.items() if name in {only!r}}}") if only else text


async def probed(backend: Any, around: Around, only: tuple[str, ...] = ()) -> dict[str, str]:
    """Run all (or some) probes in a sandbox; return outcomes by name."""
    command = f"{PYTHON} -I - {shlex.quote(json.dumps(asdict(around)))}"
    result = await backend.execute(command, stdin=source(only).encode(), timeout=600)
    assert result["exit_code"] == 0 and not result["error"], result
    outcomes: dict[str, str] = json.loads(result["stdout"])
    return outcomes
