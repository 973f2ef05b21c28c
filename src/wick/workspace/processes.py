"""Process control for wickd: start commands with limits and sandboxing, and kill whole process trees.

On Linux a process can adopt the orphans among its descendants (a "subreaper"), so that none escapes: see
`ProcessTree.kill_all`. Elsewhere descendants are found by parent and process group, so a process that deliberately
leaves both escapes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import struct
import sys
import termios
import time
from typing import Any, Callable, Iterable, NoReturn, Sequence

from wick.workspace.namespaces import hold_files
from wick.workspace.results import Json

with contextlib.suppress(ImportError):  # without ctypes there are no direct system calls
    import ctypes

LINUX = sys.platform.startswith("linux")
if not LINUX:  # every imported module adds to the memory that a fork copies
    import subprocess
    import tempfile
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PASSED_ON = frozenset("PATH HOME LANG TERM TMPDIR TZ USER SHELL".split())  # and LC_*
CANNOT_EXECUTE, NOT_FOUND = 126, 127  # a shell's exit codes

# Errors of commands that require complete output (`whole`), or complete reading of their input (`read`).
HELD = "the command ended, and something that it started still had its output open"
UNREAD = "the command ended without having read its input to the end"

Perform = Callable[[Json], bytes]


# -- system calls ---------------------------------------------------------------------------------------------------

_libc: Any = ctypes.CDLL(None, use_errno=True) if LINUX and "ctypes" in sys.modules else None
PDEATHSIG, _DUMPABLE, _SECCOMP, _SUBREAPER, _NO_NEW_PRIVS = 1, 4, 22, 36, 38


def prctl(option: int, value: int) -> bool:
    return _libc is not None and _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) == 0


_adopts = False


def adopt_orphans() -> bool:
    """Become the subreaper of all descendants; return True if the system supports this."""
    global _adopts
    _adopts = prctl(_SUBREAPER, 1)
    return _adopts


def hide_memory() -> None:
    """Prevent other processes of the same user from reading or tracing this one."""
    prctl(_DUMPABLE, 0)


_KEYCTL, _JOIN_SESSION_KEYRING = {"x86_64": 250, "aarch64": 219}, 1


def drop_session_keys() -> None:
    """Join a new session keyring, so that child processes cannot use the kernel keys of this session."""
    number = _KEYCTL.get(os.uname().machine)
    if _libc is not None and number is not None:
        _libc.syscall(number, _JOIN_SESSION_KEYRING, None)


def close_from(first: int) -> None:
    """Close every descriptor from `first` on."""
    if _libc is not None and _libc.syscall(436, first, ctypes.c_uint(0xFFFFFFFF), 0) == 0:  # close_range
        return
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            descriptors = [int(name) for name in os.listdir(folder)]
        except OSError:
            continue
        for descriptor in descriptors:
            if descriptor >= first:
                call_quietly(os.close, descriptor)
        return
    os.closerange(first, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 65_536))


def call_quietly(do: Callable[..., Any], *args: Any) -> None:
    with contextlib.suppress(OSError):
        do(*args)


# -- finding and ending descendants ---------------------------------------------------------------------------------


def _list_children(pid: int) -> list[int]:
    """Return the children of a process from /proc, where Linux lists them per thread."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                found += map(int, file.read().split())
        except OSError:
            continue
    return found


def _list_parents() -> dict[int, tuple[int, int]]:
    """Return parent and process group of every process."""
    found: dict[int, tuple[int, int]] = {}
    if LINUX:
        for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
            try:
                with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            found[int(name)] = int(fields[1]), int(fields[2])
        return found
    listed = subprocess.run(["ps", "-axo", "pid=,ppid=,pgid="], stdout=subprocess.PIPE, timeout=5, check=False).stdout
    for line in listed.splitlines():
        pid, parent, group = map(int, line.split())
        found[pid] = parent, group
    return found


def list_descendants(pid: int, group: int = 0) -> list[int]:
    """Return the current descendants of `pid`, parents first; without /proc also the members of `group`."""
    if _lists_children():
        found = _list_children(pid)
        for one in found:  # grows while it is walked
            found += _list_children(one)
        return found
    table, found = _list_parents(), [pid]
    for above in found:
        found += [one for one, (parent, _) in table.items() if parent == above and one not in found]
    return found[1:] + [one for one, (_, other) in table.items() if group and other == group and one not in found]


def _lists_children() -> bool:
    return LINUX and os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children")


class ProcessTree:
    """The child of a supervisor and all its descendants."""

    def __init__(self, child: int) -> None:
        self.child = child
        self.status: int | None = None  # exit status of the child
        self.memory = 0  # peak memory of the child, in bytes

    def reap(self) -> bool:
        """Reap exited processes; return True if any are left."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.child:
                self.status, self.memory = status, used.ru_maxrss * (1024 if LINUX else 1)

    def holds_open(self, files: set[tuple[int, int]], seconds: float = 0.1) -> bool:
        """Return True if a remaining process keeps one of these files open, as far as /proc shows."""
        until = time.monotonic() + seconds  # a process that just started may be about to close it
        while self.reap() and any(
            map(files.intersection, map(_list_open_files, list_descendants(os.getpid(), self.child)))
        ):
            if time.monotonic() > until:
                return True
            time.sleep(0.005)
        return False

    def send_signal(self, number: int) -> None:
        below = list_descendants(os.getpid(), self.child)
        if self.status is None and self.child and self.child not in below:  # no process list is available
            below.append(self.child)
        if not self.child:  # deepest first: if this process is killed meanwhile, living supervisors clean up below them
            below.reverse()
        for one in below:  # one signal each: a command may handle SIGTERM
            call_quietly(os.kill, one, number)

    def kill_all(self, seconds: float) -> bool:
        """Kill and reap until no process is left; return False on timeout."""
        until, pause = time.monotonic() + seconds, 0.0002
        if not _adopts:
            self.send_signal(signal.SIGKILL)  # without a subreaper, orphans are not children of this process
        # SIGSTOP first: killing a fork bomb only makes room for its next fork.
        stopped: set[int] = set()
        stopping = bool(self.child) and self.reap()
        while stopping and time.monotonic() < until:
            running = set(list_descendants(os.getpid(), self.child)) - stopped
            for one in running:
                call_quietly(os.kill, one, signal.SIGSTOP)
            stopped |= running
            stopping = bool(running)
        while self.reap():
            self.send_signal(signal.SIGKILL)
            if not self.reap():
                break
            if time.monotonic() > until:
                return False
            time.sleep(pause)
            pause = min(pause * 1.2, 0.02)
        return True


def _list_open_files(pid: int) -> set[tuple[int, int]]:
    """Return the files that a process has open, as device and inode."""
    found: set[tuple[int, int]] = set()
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return found
    for name in names:
        with contextlib.suppress(OSError):
            about = os.stat(f"{folder}/{name}")
            found.add((about.st_dev, about.st_ino))
    return found


def identify_file(descriptor: int) -> tuple[int, int]:
    about = os.fstat(descriptor)
    return about.st_dev, about.st_ino


def kill_unknown_children(known: Iterable[int]) -> bool:
    """Kill and reap unknown children of this process with their descendants; return True if there were any."""
    me, family = os.getpid(), set(known)
    children = (
        _list_children(me) if _lists_children() else [pid for pid, (above, _) in _list_parents().items() if above == me]
    )
    strangers = [child for child in children if child not in family]
    for pid in strangers + [below for stranger in strangers for below in list_descendants(stranger)]:
        call_quietly(os.kill, pid, signal.SIGKILL)
    for stranger in strangers:
        call_quietly(os.waitpid, stranger, os.WNOHANG)
    return bool(strangers)


# -- starting a command ---------------------------------------------------------------------------------------------

_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)  # by Python
_CAUGHT = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # by wickd and its supervisors


FAILED = 3  # index of a command's descriptor for the reason of a failed start


class CommandNotStarted(Exception):
    """Raised if a command cannot be started; the text is the reason."""

    def __init__(self, sentence: str, exit_code: int = CANNOT_EXECUTE) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code

    def write_to(self, descriptor: int) -> None:
        call_quietly(_write_all, descriptor, str(self).encode("utf-8", "surrogateescape"))


def start_command(spec: Json, descriptors: list[int], perform: Perform) -> int:
    """Start a command and return its pid. Its descriptors are stdin, stdout, stderr, FAILED, and those of its data.

    posix_spawn takes half the time of a fork, because the process is not copied. Limits and Landlock need a fork.
    """
    try:
        if "call" in spec or spec["terminal"] or spec["limits"] or spec["landlock"] is not None:
            return _fork_command(spec, descriptors, perform)
        if not all(map(_is_below_home, spec["cgroup"])):
            return _fork_command(spec, descriptors, perform)
        try:
            return _spawn_command(spec, descriptors)
        except NotImplementedError:  # posix_spawn without support for setsid
            return _fork_command(spec, descriptors, perform)
        finally:
            os.chdir("/")
    except (OSError, ValueError) as error:
        raise _explain_failure(spec, error) from None


def _spawn_command(spec: Json, descriptors: list[int]) -> int:
    """Spawn in control groups: this process joins them, spawns a child there, and returns to its own group."""
    data = descriptors[FAILED + 1 :]
    entered: list[str] = []
    try:
        for path in spec["cgroup"]:
            _attempt_setup("the control group {!r} cannot be joined", _join_cgroup, path)
            entered.append(path)
        _attempt_setup("the folder {!r} cannot be entered", os.chdir, spec["workdir"])
        for descriptor in data:
            os.set_inheritable(descriptor, True)
        return os.posix_spawn(
            find_program(spec["argv"][0], spec["env"]),
            _insert_descriptors(spec["argv"], data),
            spec["env"],
            file_actions=[(os.POSIX_SPAWN_DUP2, descriptors[number], number) for number in (0, 1, 2)],
            setsid=True,
            setsigmask=(),
            setsigdef=_IGNORED,
        )
    finally:
        for path in entered:
            _join_cgroup(_home_tasks_file(path))


_homes: dict[str, bool] = {}  # cached: True for groups of this process


def _home_tasks_file(path: str) -> str:
    return os.path.join(os.path.dirname(os.path.dirname(path)), "tasks")


def _is_below_home(path: str) -> bool:
    """Return True if a group is a direct child of this process's group, which a single thread can join quickly."""
    if os.path.basename(path) != "tasks":
        return False
    home = _home_tasks_file(path)
    if home not in _homes:
        try:
            with open(home, "rb") as file:
                _homes[home] = str(os.getpid()).encode() in file.read().split()
        except OSError:
            return False
    return _homes[home]


def find_program(program: str, env: dict[str, str]) -> str:
    """Return the path of a program, found by the PATH of the command."""
    if "/" in program:
        return program
    for folder in env.get("PATH", DEFAULT_PATH).split(":"):
        path = os.path.join(folder or ".", program)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    raise FileNotFoundError(program)


def _fork_command(spec: Json, descriptors: list[int], perform: Perform) -> int:
    supervisor = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = CANNOT_EXECUTE
    try:
        signal.set_wakeup_fd(-1)
        for number in _CAUGHT + _IGNORED:
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        prctl(PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:  # the supervisor died before prctl
            os._exit(code)
        for standard in (0, 1, 2):
            os.dup2(descriptors[standard], standard)
        try:
            if "call" in spec:
                _write_all(1, perform(spec["call"]))
                os._exit(0)
            if spec["terminal"]:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            _exec_command(spec, descriptors[FAILED + 1 :])
        except (OSError, ValueError, CommandNotStarted) as error:
            not_started = _explain_failure(spec, error)
            not_started.write_to(descriptors[FAILED])
            code = not_started.exit_code
    finally:
        os._exit(code)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _explain_failure(spec: Json, error: Exception) -> CommandNotStarted:
    if isinstance(error, CommandNotStarted):
        return error
    program = spec["argv"][0] if "argv" in spec else "the operation"
    if isinstance(error, FileNotFoundError):
        return CommandNotStarted(f"there is no program {program!r}; check its name, or install it", NOT_FOUND)
    return CommandNotStarted(f"{program!r} could not be started: {getattr(error, 'strerror', None) or error}")


def _exec_command(spec: Json, data: Sequence[int]) -> NoReturn:
    _attempt_setup("the folder {!r} cannot be entered", os.chdir, spec["workdir"])
    for path in spec["cgroup"]:
        _attempt_setup("the control group {!r} cannot be joined", _join_cgroup, path)
    for name, value in spec["limits"].items():
        _attempt_setup(f"the limit of {name} cannot be set to {{!r}}", _set_limit, value, name)
    for descriptor in data:
        os.set_inheritable(descriptor, True)
    if spec["landlock"] is not None:
        pinned, fixed = spec["landlock"]["pinned"], spec["landlock"]["fixed"]
        alone = hold_files([path for path in spec["landlock"]["write"] if not path.startswith("/dev/")], pinned, fixed)
        if (pinned or fixed) and not alone:
            raise CommandNotStarted(
                f"{[*pinned, *fixed][0]} cannot be protected without namespaces; move it out of the workspace"
            )
        _attempt_setup("the folder {!r} cannot be entered", os.chdir, spec["workdir"])
        _apply_landlock(spec["landlock"], alone)
    os.execve(find_program(spec["argv"][0], spec["env"]), _insert_descriptors(spec["argv"], data), spec["env"])


def _attempt_setup(sentence: str, do: Callable[..., None], value: Any, *args: Any) -> None:
    try:
        do(value, *args)
    except OSError as error:
        raise CommandNotStarted(f"{sentence.format(value)}: {error.strerror}") from None


def _insert_descriptors(argv: list[str], data: Sequence[int]) -> list[str]:
    """Replace the placeholders `%fd0%`, `%fd1%` … in argv by descriptor numbers; each is a whole argument."""
    argv = list(argv)
    for index, descriptor in enumerate(data):
        place = f"%fd{index}%"
        if place in argv:
            argv[argv.index(place)] = str(descriptor)
    return argv


def _join_cgroup(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    os.write(descriptor, b"0")
    os.close(descriptor)


# RLIMIT_DATA counts writable memory per process, so programs that only reserve address space still work.
# RLIMIT_NPROC counts all processes of the user.
LIMITS = {
    "memory": resource.RLIMIT_DATA if LINUX else resource.RLIMIT_AS,
    "pids": resource.RLIMIT_NPROC,
    "cpu": resource.RLIMIT_CPU,
    "files": resource.RLIMIT_NOFILE,
    "file_size": resource.RLIMIT_FSIZE,
}


def _set_limit(value: float, name: str) -> None:
    most, number = resource.getrlimit(LIMITS[name])[1], int(value)
    soft = number if most == resource.RLIM_INFINITY else min(number, most)
    hard = soft + 1 if name == "cpu" and soft != most else soft  # the second is for SIGXCPU, before SIGKILL
    resource.setrlimit(LIMITS[name], (soft, hard))


# -- Landlock -------------------------------------------------------------------------------------------------------

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_READS = 0b1101  # execute, read a file, read a folder
_FILE_ACCESS = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # execute, write, read, truncate, ioctl


def landlock_version() -> int:
    """Return the kernel's Landlock version, or 0."""
    if _libc is None:
        return 0
    version: int = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    return max(version, 0)


def _apply_landlock(allowed: Json, alone: bool = True) -> None:
    """Restrict this process to reading and executing below some paths, and writing below others.

    Without its own namespaces (`alone`), a second seccomp filter denies objects that would outlive the command.
    """
    version = landlock_version()
    if not version:
        raise CommandNotStarted("the kernel has no Landlock; use another sandbox, or none")
    files = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    offline = not allowed.get("network", True)
    net = 0b11 if offline and version >= 4 else 0  # bind and connect, TCP
    scoped = (0b11 if offline else 0b10) if version >= 6 else 0  # abstract sockets, and signals to others
    fields = [files, net, scoped][: 1 if version < 4 else 2 if version < 6 else 3]
    ruleset = _call_landlock(_CREATE_RULESET, struct.pack(f"={len(fields)}Q", *fields), 8 * len(fields), 0)
    for path in allowed["read"]:
        _allow_path(ruleset, path, files & _READS)
    for path in allowed["write"]:
        _allow_path(ruleset, path, files)
    prctl(_NO_NEW_PRIVS, 1)
    _call_landlock(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
    _install_seccomp(bytes.fromhex("" if alone else allowed.get("filter_shared", "")))
    _install_seccomp(bytes.fromhex(allowed.get("filter", "")))


def _install_seccomp(program: bytes) -> None:
    """Install a seccomp filter for all further system calls; do nothing for an empty program."""
    if program:
        steps = ctypes.create_string_buffer(program, len(program))
        header = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(steps)))
        if _libc.prctl(_SECCOMP, ctypes.c_ulong(2), header, 0, 0) != 0:
            raise CommandNotStarted(f"the filter of system calls was refused: {os.strerror(ctypes.get_errno())}")


def _allow_path(ruleset: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # a missing path needs no rule
    if not os.path.isdir(f"/proc/self/fd/{descriptor}"):
        access &= _FILE_ACCESS
    _call_landlock(_ADD_RULE, ruleset, 1, struct.pack("=Qi", access, descriptor), 0)
    os.close(descriptor)


def _call_landlock(call: int, *args: Any) -> int:
    result: int = _libc.syscall(call, *(arg if isinstance(arg, bytes) else ctypes.c_size_t(arg) for arg in args))
    if result < 0:
        raise CommandNotStarted(f"Landlock refused: {os.strerror(ctypes.get_errno())}")
    return result


# -- input data, environment and exit status of commands --------------------------------------------------------------


def create_data_file(data: bytes) -> int:
    """Return a descriptor of an anonymous file with `data`."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("wick", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    _write_all(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def clean_environment(env: Any = os.environ) -> dict[str, str]:
    """Return the default environment of commands: an allow-list without secrets."""
    passed_on = {name: value for name, value in env.items() if name in PASSED_ON or name.startswith("LC_")}
    return {"PATH": DEFAULT_PATH, **passed_on}


def describe_exit(status: int) -> tuple[int, str]:
    """Return the exit code of a wait status, and a sentence if a signal ended the command."""
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status), ""
    number = os.WTERMSIG(status)
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return 128 + number, _SIGNAL_SENTENCES.get(name, f"the command was ended by {name}")


_SIGNAL_SENTENCES = {
    "SIGXCPU": "the command used all the processor time it may have and was ended",
    "SIGXFSZ": "the command wrote a file larger than it may and was ended",
}
