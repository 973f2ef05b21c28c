"""Sandbox escape probes, each run in a process of its own. Runs inside the sandbox: standard library only.

argv[1] is JSON with the planted targets (see `Around` in faults/sandbox_probes.py). Prints the outcome of each probe as
JSON: "held: …" or "ESCAPED: …". A probe returns a value if it escaped; None or an exception if it did not.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import glob
import json
import mmap
import os
import re
import resource
import signal
import socket
import stat
import struct
import subprocess
import sys
import termios
import urllib.request
from collections.abc import Callable
from typing import Any

TOKEN = re.compile(rb"planted-[0-9a-f]{16}")
PROBES: dict[str, Callable[[], Any]] = {}
AROUND: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
libc = ctypes.CDLL(None, use_errno=True)


def probe(do: Callable[[], Any]) -> Callable[[], Any]:
    PROBES[do.__name__.replace("_", " ")] = do
    return do


def find_leaked(*paths: str) -> str:
    """The first of these paths that gives a planted secret away."""
    for path in paths:
        try:
            with open(path, "rb") as file:
                if TOKEN.search(file.read(1_000_000)):
                    return path
        except OSError:
            continue
    return ""


def opens(path: str, flags: int) -> str:
    os.close(os.open(path, flags))
    return path


def call(which: int | str, *args: Any) -> int:
    """A system call, by its number or its name; numbers are not the same on every kind of machine."""
    number = AROUND["numbers"][which] if isinstance(which, str) else which
    ctypes.set_errno(0)
    result: int = libc.syscall(ctypes.c_long(number), *args)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


# -- files of the host ----------------------------------------------------------------------------------------------


@probe
def read_a_file_in_the_home() -> str:
    return find_leaked(AROUND["home"])


@probe
def read_a_file_beside_the_workspace() -> str:
    return find_leaked(AROUND["beside"], "../" + os.path.basename(AROUND["beside"]))


@probe
def list_the_folder_above_the_workspace() -> list[str]:
    return [name for name in os.listdir("..") if name != os.path.basename(os.getcwd())]


@probe
def follow_a_link_out() -> str:
    os.symlink(AROUND["beside"], "link-out")
    return find_leaked("link-out")


@probe
def follow_a_chain_of_links_out() -> str:
    os.symlink("..", "up")
    os.symlink("up/" + os.path.basename(AROUND["beside"]), "chain-out")
    return find_leaked("chain-out")


@probe
def link_a_file_in() -> str:
    os.link(AROUND["beside"], "hard-link")
    return find_leaked("hard-link")


@probe
def the_root_of_another_process() -> str:
    return find_leaked(*(f"/proc/{pid}/root{AROUND['beside']}" for pid in (1, 2, os.getppid(), AROUND["pid"])))


@probe
def the_folder_of_another_process() -> str:
    return find_leaked(*(f"/proc/{pid}/cwd/{AROUND['beside']}" for pid in (1, 2, AROUND["pid"])))


def _open_now() -> list[str]:
    """Descriptors but the three of a command."""
    found = []
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        try:
            found.append(os.readlink(f"/proc/self/fd/{descriptor}") if descriptor > 2 else "/proc/")
        except OSError:
            continue
    return [target for target in found if not target.startswith("/proc/")]


LEFT_OPEN = _open_now()


@probe
def descriptors_that_were_left_open() -> list[str]:
    return LEFT_OPEN


@probe
def descriptors_of_the_first_process() -> list[str]:
    found = []
    for path in glob.glob("/proc/1/fd/*"):
        try:
            with open(path, "rb") as file:
                if TOKEN.search(os.read(file.fileno(), 100_000)):
                    found.append(path)
        except OSError:
            continue
    return found


@probe
def climb_out_of_a_folder_that_was_moved() -> str:
    os.makedirs("deep/er", exist_ok=True)
    folder = os.open("deep/er", os.O_RDONLY)
    os.rename("deep/er", "shallow")
    os.fchdir(folder)
    for _ in range(12):
        os.chdir("..")
    return find_leaked(AROUND["beside"].lstrip("/"))


@probe
def break_out_by_chroot() -> str:
    os.mkdir("jail")
    os.chroot("jail")
    for _ in range(12):
        os.chdir("..")
    os.chroot(".")
    return find_leaked(AROUND["beside"]) or "chroot worked"


@probe
def a_file_by_its_handle() -> int:
    handle = struct.pack("Ii", 8, 1) + struct.pack("II", 2, 0)
    return call("open_by_handle_at", os.open(".", os.O_RDONLY), handle, 0)


@probe
def the_hosts_users() -> str:
    with open("/etc/passwd") as file:
        return "" if "root" not in file.read() else "/etc/passwd"


@probe
def the_hosts_passwords_and_keys() -> list[str]:
    places = [
        "/etc/shadow",
        "/etc/ssh",
        "/etc/ssl/private",
        "/etc/sudoers",
        "/etc/machine-id",
        "/etc/hostname",
        "/root/.ssh",
    ]
    return [path for path in places if os.path.exists(path)]


@probe
def homes() -> list[str]:
    return [
        name
        for folder in ("/home", "/root", "/var", "/run", "/mnt", "/srv", "/sys")
        for name in glob.glob(folder + "/*")
    ]


@probe
def the_hosts_tmp() -> list[str]:
    own = AROUND["workspace"].split("/")
    return [name for name in os.listdir("/tmp") if name not in own]


@probe
def write_where_programs_are() -> list[str]:
    found = []
    for folder in ("/usr", "/usr/bin", "/usr/local/bin", "/etc", "/bin", "/lib", "/", "/dev", "/proc"):
        try:
            with open(f"{folder}/wick-probe", "w"):
                found.append(folder)
        except OSError:
            continue
    return found


@probe
def make_the_root_writable_again() -> int:
    return call("mount", None, b"/usr", None, ctypes.c_ulong(32 | 4096), None)


@probe
def take_a_mount_away() -> int:
    return call("umount2", os.fsencode(AROUND["workspace"] + "/.env"), ctypes.c_int(2))


# -- secrets in the workspace ---------------------------------------------------------------------------------------


@probe
def read_a_dot_env_file() -> str:
    return find_leaked(".env", "./.env", AROUND["workspace"] + "/.env", "/proc/self/cwd/.env", "sub/.env")


@probe
def link_to_a_dot_env_file() -> str:
    os.symlink(".env", "env-link")
    return find_leaked("env-link")


@probe
def link_a_dot_env_file() -> str:
    os.link(".env", "env-hard")
    return find_leaked("env-hard")


@probe
def move_a_dot_env_file() -> str:
    os.rename(".env", "env-moved")
    return find_leaked("env-moved")


@probe
def move_the_folder_of_a_dot_env_file() -> str:
    os.rename("sub", "sub-moved")
    return find_leaked("sub-moved/.env")


@probe
def delete_a_dot_env_file() -> str:
    os.unlink(".env")
    return "deleted"


@probe
def map_a_dot_env_file() -> str:
    done = subprocess.run(["dd", "if=.env", "bs=1k"], capture_output=True, check=False)
    return "dd" if TOKEN.search(done.stdout) else ""


@probe
def write_a_git_hook() -> str:
    with open(".git/hooks/post-commit", "w") as file:
        file.write("#!/bin/sh\n")
    return "written"


@probe
def change_a_git_hook() -> str:
    return opens(".git/hooks/pre-commit", os.O_WRONLY | os.O_APPEND)


@probe
def make_a_git_hook_executable() -> str:
    os.chmod(".git/hooks/pre-commit", 0o777)
    return "chmod"


@probe
def change_the_git_config() -> str:
    return opens(".git/config", os.O_RDWR)


@probe
def replace_the_git_config() -> str:
    with open("config-new", "w") as file:
        file.write("[core]\n\tfsmonitor = touch /tmp/x\n")
    os.rename("config-new", ".git/config")
    return "replaced"


@probe
def move_git_away() -> str:
    os.rename(".git", "git-moved")
    return "moved"


# -- processes ------------------------------------------------------------------------------------------------------


@probe
def the_environment_of_this_process() -> str:
    return find_leaked("/proc/self/environ") or ("environ" if TOKEN.search(repr(os.environ).encode()) else "")


@probe
def the_environment_of_other_processes() -> str:
    return find_leaked(*glob.glob("/proc/[0-9]*/environ"))


@probe
def the_memory_of_other_processes() -> str:
    return find_leaked(*(path for pid in ("1", str(AROUND["pid"])) for path in glob.glob(f"/proc/{pid}/mem")))


@probe
def see_processes_of_the_host() -> list[int]:
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if pid == AROUND["pid"] or len(pids) > 10]


@probe
def signal_wick() -> str:
    os.kill(AROUND["pid"], 0)
    return "it is there"


@probe
def signal_all_processes() -> str:
    """Signals reach only this sandbox; otherwise wick would be killed."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    os.kill(-1, 0)
    return "" if AROUND["pid"] not in [int(name) for name in os.listdir("/proc") if name.isdigit()] else "host"


@probe
def trace_the_first_process() -> int:
    return call("ptrace", ctypes.c_long(16), ctypes.c_long(1), None, None)


@probe
def become_root() -> str:
    os.setuid(0)
    return "uid 0"


@probe
def rights_that_are_left() -> str:
    with open("/proc/self/status") as file:
        rights = re.findall(r"Cap(?:Prm|Eff|Bnd|Amb):\s*([0-9a-f]+)", file.read())
    return "".join(right for right in rights if int(right, 16))


@probe
def rights_from_a_program() -> str:
    with open("/proc/self/status") as file:
        return "" if "NoNewPrivs:\t1" in file.read() else "a setuid program would get them"


@probe
def the_first_process_is_free() -> list[str]:
    with open("/proc/1/status") as file:
        status = dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)
    free = [name for name in ("CapEff", "CapPrm", "CapBnd") if int(status[name], 16)]
    return free + [name for name in ("Seccomp", "NoNewPrivs") if status[name].strip() == "0"]


@probe
def steer_the_first_process() -> str:
    return opens("/proc/1/mem", os.O_WRONLY)


@probe
def set_the_bit_of_root_on_a_program() -> str:
    with open("shell", "wb") as file:
        file.write(b"#!/bin/sh\n")
    os.chmod("shell", 0o4755)
    return "setuid"


@probe
def make_a_program_with_the_bit_of_root() -> str:
    os.umask(0)
    descriptor = os.open("shell-2", os.O_CREAT | os.O_WRONLY, 0o4755)
    return "setuid" if os.fstat(descriptor).st_mode & 0o4000 else ""


@probe
def make_a_device() -> str:
    os.mknod("disk", 0o600 | 0o060000, os.makedev(254, 0))
    return opens("disk", os.O_RDONLY)


@probe
def disks_and_memory() -> list[str]:
    return [
        path
        for pattern in ("vd*", "sd*", "nvme*", "mem", "kmem", "kvm", "fuse", "loop*", "mapper")
        for path in glob.glob(f"/dev/{pattern}")
    ]


@probe
def a_new_user_namespace() -> str:
    done = subprocess.run(["unshare", "-r", "true"], capture_output=True, check=False)
    return "unshare" if done.returncode == 0 else ""


@probe
def a_namespace_of_another_process() -> int:
    descriptor = os.open("/proc/1/ns/mnt", os.O_RDONLY)
    return call("setns", descriptor, 0)


@probe
def another_sandbox_inside() -> str:
    done = subprocess.run(["bwrap", "--ro-bind", "/", "/", "true"], capture_output=True, check=False)
    return "bwrap" if done.returncode == 0 else ""


@probe
def type_into_the_terminal() -> str:
    _, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSTI, b"x")
    return "typed"


# -- the kernel -----------------------------------------------------------------------------------------------------


@probe
def what_the_kernel_runs_on_a_crash() -> str:
    return opens("/proc/sys/kernel/core_pattern", os.O_WRONLY)


@probe
def settings_of_the_kernel() -> list[str]:
    found = []
    for path in glob.glob("/proc/sys/*/*"):
        try:
            found.append(opens(path, os.O_WRONLY))
        except OSError:
            continue
    return found


@probe
def the_keys_of_the_kernel() -> str:
    return opens("/proc/sysrq-trigger", os.O_WRONLY)


@probe
def the_memory_of_the_kernel() -> str:
    return opens("/proc/kcore", os.O_RDONLY)


@probe
def the_log_of_the_kernel() -> str:
    return opens("/proc/kmsg", os.O_RDONLY | os.O_NONBLOCK)


@probe
def the_filesystem_of_control_groups() -> list[str]:
    return glob.glob("/sys/fs/cgroup/*")


@probe
def the_score_by_which_the_kernel_kills() -> str:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("-1000")
    return "never killed"


# -- sockets and networks -------------------------------------------------------------------------------------------


@probe
def connect_to_the_host() -> str:
    socket.create_connection(("127.0.0.1", AROUND["port"]), timeout=2).close()
    return "connected"


@probe
def connect_to_the_metadata_of_a_cloud() -> str:
    socket.create_connection(("169.254.169.254", 80), timeout=2).close()
    return "connected"


@probe
def connect_to_the_internet() -> str:
    socket.create_connection(("1.1.1.1", 53), timeout=2).close()
    return "connected"


@probe
def send_a_datagram() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", ("1.1.1.1", 53))
    return "sent"


@probe
def fetch_a_page() -> str:
    urllib.request.urlopen(f"http://127.0.0.1:{AROUND['port']}/", timeout=2).close()
    return "fetched"


@probe
def look_up_a_name() -> str:
    return str(socket.getaddrinfo("example.com", 80))


@probe
def see_interfaces() -> list[str]:
    return [name for _, name in socket.if_nameindex() if name != "lo"]


@probe
def an_abstract_socket_of_the_host() -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + AROUND["abstract"])
    return "connected"


@probe
def a_socket_with_a_path() -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(AROUND["socket"])
    return "connected"


@probe
def sockets_of_services() -> list[str]:
    places = [
        "/var/run/docker.sock",
        "/run/docker.sock",
        "/run/containerd/containerd.sock",
        "/run/dbus/system_bus_socket",
    ]
    places += [
        "/run/user/*/bus",
        "/tmp/.X11-unix/*",
        "/tmp/ssh-*/agent*",
        "/run/systemd/private",
        "/run/podman/podman.sock",
    ]
    return [path for place in places for path in glob.glob(place)]


@probe
def addresses_of_services() -> list[str]:
    names = ("SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "XAUTHORITY", "DOCKER_HOST", "XDG_RUNTIME_DIR")
    return [name for name in names if name in os.environ]


@probe
def a_raw_socket() -> str:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
    return "raw"


# -- leftovers of other commands ------------------------------------------------------------------------------------


@probe
def memory_shared_with_the_host() -> list[str]:
    return os.listdir("/dev/shm")


@probe
def queues_and_segments_of_the_host() -> list[str]:
    found = []
    for name in ("shm", "msg", "sem"):
        with open(f"/proc/sysvipc/{name}") as file:
            found += file.read().splitlines()[1:]
    return found


@probe
def the_name_of_the_host() -> str:
    return "" if os.uname().nodename == "wick" else os.uname().nodename


# -- mounts and namespaces ------------------------------------------------------------------------------------------


def _succeeds(result: int) -> str:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "worked"


@probe
def mount_a_folder_in_memory() -> str:
    os.makedirs("mounted", exist_ok=True)
    return _succeeds(libc.mount(b"tmpfs", b"mounted", b"tmpfs", 0, None))


@probe
def mount_a_folder_of_the_host() -> str:
    os.makedirs("bound", exist_ok=True)
    _succeeds(libc.mount(os.fsencode(os.path.dirname(AROUND["beside"])), b"bound", None, 4096, None))
    return find_leaked("bound/" + os.path.basename(AROUND["beside"])) or "mounted"


@probe
def mount_the_processes_of_the_host() -> str:
    os.makedirs("processes", exist_ok=True)
    return _succeeds(libc.mount(b"proc", b"processes", b"proc", 0, None))


@probe
def take_the_processes_away_to_see_what_is_below() -> str:
    return _succeeds(libc.umount2(b"/proc", 2))


@probe
def another_root() -> str:
    return _succeeds(libc.syscall(ctypes.c_long(AROUND["numbers"]["pivot_root"]), b".", b"."))


def namespace(name: str, flag: int) -> None:
    """A namespace of one's own, in which one would be root."""

    def leave() -> str:
        return _succeeds(libc.unshare(flag))

    def begin() -> str:
        child = call("clone", ctypes.c_ulong(flag | signal.SIGCHLD), None, None, None, None)
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        return "worked"

    PROBES[f"unshare a namespace of {name}"] = leave
    PROBES[f"a child in a namespace of {name}"] = begin


for _name, _flag in {
    "mounts": 17,
    "groups": 25,
    "names": 26,
    "ipc": 27,
    "users": 28,
    "pids": 29,
    "networks": 30,
}.items():
    namespace(_name, 1 << _flag)


@probe
def every_namespace_of_the_first_process() -> list[str]:
    found = []
    for path in glob.glob("/proc/1/ns/*"):
        try:
            call("setns", os.open(path, os.O_RDONLY), 0)
            found.append(path)
        except OSError:
            continue
    return found


# -- wick, and other processes --------------------------------------------------------------------------------------


@probe
def trace_wick() -> int:
    return call("ptrace", ctypes.c_long(16), ctypes.c_long(AROUND["pid"]), None, None)


@probe
def trace_the_parent() -> int:
    return call("ptrace", ctypes.c_long(0x4206), ctypes.c_long(_find_outer_process()), None, None)


def _find_outer_process() -> int:
    """Return a parent process outside of the probes; process 1 if none is visible."""
    with open(f"/proc/{os.getppid()}/stat") as file:
        above = int(file.read().rpartition(")")[2].split()[1])
    return above or 1


@probe
def read_the_memory_of_wick() -> int:
    buffer = ctypes.create_string_buffer(16)
    there = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 16)
    return call("process_vm_readv", ctypes.c_long(AROUND["pid"]), there, 1, there, 1, 0)


@probe
def a_descriptor_of_wick() -> int:
    there = call(434, ctypes.c_long(AROUND["pid"]), 0)
    return call(438, there, ctypes.c_long(0), 0) + 1


@probe
def signal_wick_by_a_descriptor() -> str:
    return str(call(424, call(434, ctypes.c_long(AROUND["pid"]), 0), 0, None, 0) + 1)


@probe
def signal_the_group_of_wick() -> str:
    os.killpg(AROUND["group"], 0)
    return "it is there"


@probe
def signal_a_thread_of_wick() -> int:
    return call("tgkill", ctypes.c_long(AROUND["pid"]), ctypes.c_long(AROUND["pid"]), 0) + 1


@probe
def the_limits_of_wick() -> Any:
    return resource.prlimit(AROUND["pid"], resource.RLIMIT_NOFILE)


@probe
def the_program_of_wick() -> str:
    return os.readlink(f"/proc/{AROUND['pid']}/exe")


@probe
def the_descriptors_of_wick() -> list[str]:
    return os.listdir(f"/proc/{AROUND['pid']}/fd")


@probe
def what_wick_has_mapped() -> str:
    with open(f"/proc/{AROUND['pid']}/maps") as file:
        return file.readline()


@probe
def what_other_processes_were_started_with() -> str:
    return find_leaked(*glob.glob("/proc/[0-9]*/cmdline"))


@probe
def write_to_a_program_that_runs() -> str:
    return opens("/proc/self/exe", os.O_WRONLY)


@probe
def write_to_the_program_of_the_first_process() -> str:
    return opens("/proc/1/exe", os.O_WRONLY)


@probe
def a_folder_above_by_its_descriptor() -> list[str]:
    above = os.open("..", os.O_PATH)
    return [name for name in os.listdir(f"/proc/self/fd/{above}") if name != os.path.basename(os.getcwd())]


@probe
def the_root_by_its_descriptor() -> str:
    root = os.open("/", os.O_RDONLY)
    os.fchdir(root)
    return find_leaked(
        AROUND["beside"].lstrip("/"), f"/proc/self/cwd{AROUND['beside']}", f"/proc/self/root{AROUND['beside']}"
    )


# -- rights ---------------------------------------------------------------------------------------------------------


@probe
def become_the_group_of_root() -> str:
    os.setgid(0)
    return "gid 0"


@probe
def groups_of_root() -> str:
    os.setgroups([0])
    return "groups"


@probe
def all_rights_at_once() -> str:
    header, rights = struct.pack("=Ii", 0x20080522, 0), struct.pack("=6I", *[0xFFFFFFFF] * 3, *[0xFFFFFFFF] * 3)
    return _succeeds(libc.capset(header, rights))


@probe
def rights_that_stay() -> str:
    return _succeeds(libc.prctl(47, 2, 21, 0, 0))  # raise CAP_SYS_ADMIN among the ambient ones


@probe
def rights_of_a_file() -> str:
    with open("capable", "w"):
        pass
    os.setxattr("capable", "security.capability", struct.pack("<5I", 0x2000001, 1 << 21, 0, 0, 0))
    return "set"


@probe
def a_file_of_root() -> str:
    with open("owned", "w"):
        pass
    if os.stat("owned").st_uid == 0:
        return ""  # it was root's before: there is nothing to win
    os.chown("owned", 0, 0)
    return "owned"


@probe
def a_file_that_nobody_can_delete() -> str:
    descriptor = os.open("stuck", os.O_CREAT | os.O_RDWR)
    fcntl.ioctl(descriptor, 0x40086602, struct.pack("l", 0x10))
    return "immutable"


@probe
def the_bit_of_root_by_a_program() -> str:
    subprocess.run(["cp", "/bin/true", "copied"], check=True)
    subprocess.run(["chmod", "u+s,g+s", "copied"], capture_output=True, check=False)
    return "setuid" if os.stat("copied").st_mode & 0o6000 else ""


@probe
def a_device_of_memory() -> str:
    os.mknod("memory", 0o600 | 0o020000, os.makedev(1, 1))
    return opens("memory", os.O_RDONLY)


@probe
def programs_of_root() -> str:
    for program in ("su", "sudo", "mount", "newgrp", "pkexec"):
        done = subprocess.run(["sh", "-c", f"{program} -c id </dev/null"], capture_output=True, check=False, text=True)
        if "uid=0" in done.stdout:
            return program
    return ""


@probe
def a_filter_that_is_missing() -> str:
    with open("/proc/self/status") as file:
        return "" if "Seccomp:\t2" in file.read() else "no filter of system calls"


@probe
def memory_where_it_is_expected() -> str:
    return _succeeds(libc.personality(ctypes.c_ulong(0x40000)))


@probe
def typing_with_more_bits() -> int:
    _, slave = os.openpty()
    return call("ioctl", slave, ctypes.c_ulong(termios.TIOCSTI | 1 << 32), b"x") + 1


@probe
def typing_into_what_controls_this() -> str:
    fcntl.ioctl(os.open("/dev/tty", os.O_RDWR), termios.TIOCSTI, b"x")
    return "typed"


@probe
def pasting_into_a_console() -> int:
    _, slave = os.openpty()
    return call("ioctl", slave, ctypes.c_ulong(0x541C), b"\x03") + 1


# -- more of the kernel ---------------------------------------------------------------------------------------------


@probe
def keys_of_others() -> list[str]:
    with open("/proc/keys") as file:
        return [line for line in file.read().splitlines() if AROUND["key"] in line]


@probe
def read_a_key() -> int:
    return call("keyctl", ctypes.c_long(11), ctypes.c_long(AROUND["key_id"]), None, None) + 1


@probe
def addresses_of_the_kernel() -> str:
    with open("/proc/kallsyms") as file:
        first = file.readline()
    return first if int(first.split()[0], 16) else ""


@probe
def messages_of_the_kernel() -> str:
    return opens("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)


@probe
def programs_for_other_machines() -> str:
    return opens("/proc/sys/fs/binfmt_misc/register", os.O_WRONLY)


@probe
def what_the_kernel_runs_for_devices() -> str:
    return opens("/sys/kernel/uevent_helper", os.O_WRONLY)


@probe
def what_the_kernel_runs_for_modules() -> str:
    return opens("/proc/sys/kernel/modprobe", os.O_WRONLY)


@probe
def traces_of_the_kernel() -> list[str]:
    return [*glob.glob("/sys/kernel/tracing/*"), *glob.glob("/sys/kernel/debug/*"), *glob.glob("/sys/firmware/efi/*")]


@probe
def what_runs_when_a_control_group_ends() -> list[str]:
    found = []
    for path in [*glob.glob("/sys/fs/cgroup/release_agent"), *glob.glob("/sys/fs/cgroup/*/release_agent")]:
        found.append(opens(path, os.O_WRONLY))
    return found


@probe
def a_control_group_of_ones_own() -> str:
    os.mkdir("/sys/fs/cgroup/wick-probe")
    return "made"


@probe
def leave_the_control_group() -> str:
    for path in AROUND["cgroups"]:
        try:
            with open(path, "w") as file:
                file.write("0")
            return str(path)
        except OSError:
            continue
    return ""


@probe
def limits_of_the_control_group() -> list[str]:
    patterns = ("memory.max", "pids.max", "cpu.max", "*/memory.limit_in_bytes", "*/pids.max")
    found = []
    for path in (path for pattern in patterns for path in glob.glob(f"/sys/fs/cgroup/{pattern}")):
        try:
            found.append(opens(path, os.O_WRONLY))
        except OSError:
            continue
    return found


# -- more of sockets and memory -------------------------------------------------------------------------------------


@probe
def connect_to_the_host_by_its_other_address() -> str:
    socket.create_connection(("::1", AROUND["port6"]), timeout=2).close()
    return "connected"


@probe
def a_datagram_to_the_host() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"probe", ("127.0.0.1", AROUND["datagrams"]))
    return ""  # its arrival is checked outside


@probe
def an_abstract_datagram() -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.connect("\0" + AROUND["abstract"] + "-datagrams")
    return "connected"


@probe
def the_docker_socket() -> str:
    for path in ("/var/run/docker.sock", "/run/docker.sock", *AROUND["engines"]):
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(path)
                return path
            except OSError:
                continue
    return ""


@probe
def connections_of_the_host() -> list[str]:
    found = []
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(path) as file:
            found += [line for line in file if f":{AROUND['port']:04X} " in line or f":{AROUND['port6']:04X} " in line]
    return found


@probe
def names_of_the_sockets_of_the_host() -> list[str]:
    with open("/proc/net/unix") as file:
        return [line for line in file if AROUND["abstract"] in line]


@probe
def a_segment_of_the_host() -> str:
    libc.shmat.restype = ctypes.c_void_p
    there = libc.shmat(AROUND["segment"], None, 0o10000)
    if there in (None, ctypes.c_void_p(-1).value):
        return ""
    return "attached" if TOKEN.search(ctypes.string_at(there, 64)) else ""


@probe
def memory_with_a_name() -> str:
    return find_leaked(f"/dev/shm/{AROUND['shared']}")


@probe
def queues_with_a_name() -> list[str]:
    return os.listdir("/dev/mqueue")


@probe
def a_pipe_of_the_host() -> str:
    return opens(AROUND["pipe"], os.O_RDWR | os.O_NONBLOCK)


@probe
def the_configuration_of_wick() -> str:
    return find_leaked(AROUND["config"], os.path.join(os.path.dirname(AROUND["home"]), ".wick/server.yaml"))


# -- other ways to make a call (x86-64) -------------------------------------------------------------------------------

X32, MODIFY_LDT, MODIFY_LDT_32, IOPL_32, VM86OLD_32 = 0x40000000, 154, 123, 110, 113


def _call_of_32_bits(number: int) -> str:
    """Make a call by the gate of 32-bit programs, where calls have other numbers."""
    if os.uname().machine != "x86_64":
        return ""
    code = b"\x53\xb8" + struct.pack("<I", number) + b"\x31\xdb\x31\xc9\x31\xd2\xcd\x80\x48\x98\x5b\xc3"
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    do = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    answer = do()
    return "" if answer in (-errno.EPERM, -errno.ENOSYS) else f"call {number} of 32 bits answered {answer}"


@probe
def modify_ldt_of_32_bits() -> str:
    return _call_of_32_bits(MODIFY_LDT_32)


@probe
def iopl_of_32_bits() -> str:
    return _call_of_32_bits(IOPL_32)


@probe
def vm86_of_32_bits() -> str:
    return _call_of_32_bits(VM86OLD_32)


@probe
def modify_ldt_of_x32() -> str:
    if os.uname().machine != "x86_64":
        return ""
    return str(call(X32 + MODIFY_LDT, *[ctypes.c_long(0)] * 3))


# -- metadata of the host's files -------------------------------------------------------------------------------------

NODES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx")


def _changes_metadata(path: str) -> list[str]:
    """Change nothing, but by the calls that could: the same mode, owner and times, and an attribute."""
    found = os.stat(path)
    ways: dict[str, Callable[[], Any]] = {
        "chmod": lambda: os.chmod(path, found.st_mode & 0o7777),
        "chown": lambda: os.chown(path, found.st_uid, found.st_gid),
        "utime": lambda: os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns)),
        "setxattr": lambda: (os.setxattr(path, "user.wick", b"x"), os.removexattr(path, "user.wick")),
    }
    return [f"{way} {path}" for way, do in ways.items() if _is_allowed(do)]


def _is_allowed(do: Callable[[], Any]) -> bool:
    try:
        do()
    except OSError:
        return False
    return True


@probe
def the_mode_of_a_device() -> list[str]:
    """Nodes that are the host's: a terminal and its multiplexer are the sandbox's own."""
    host = [f"/dev/{name}" for name in NODES if not os.path.islink(f"/dev/{name}")]
    return [way for path in host if os.path.exists(path) for way in _changes_metadata(path)]


@probe
def the_mode_of_what_is_open() -> list[str]:
    """A standard stream may be a device of the host."""
    found = []
    for number in (0, 1, 2):
        about = os.fstat(number)
        if stat.S_ISCHR(about.st_mode) and _is_allowed(
            lambda about=about, n=number: os.fchmod(n, about.st_mode & 0o7777)
        ):
            found.append(f"fchmod {number}")
    return found


@probe
def the_mode_of_a_file_of_the_host() -> list[str]:
    paths = [AROUND["beside"], AROUND["home"], AROUND["config"], "/usr", "/usr/bin/env", "/etc", "/", "/proc", "/dev"]
    return [way for path in paths if os.path.exists(path) for way in _changes_metadata(path)]


# -- one by one -----------------------------------------------------------------------------------------------------


def system_call(name: str, number: int) -> None:
    """A denied call returns the error for any arguments."""

    def do() -> str:
        try:
            call(number, *[ctypes.c_long(0)] * 6)
        except OSError as error:
            return "" if error.errno in (errno.EPERM, errno.ENOSYS) else f"{name}: {error.strerror}"
        return f"{name} worked"

    PROBES[f"system call {name}"] = do


def family(number: int) -> None:
    """A family of sockets that commands have no use for."""

    def do() -> str:
        socket.socket(number, socket.SOCK_RAW if number == 17 else socket.SOCK_DGRAM).close()
        return f"a socket of family {number}"

    PROBES[f"socket family {number}"] = do


def try_all() -> dict[str, str]:
    for name, number in AROUND["calls"].items():
        system_call(name, number)
    for number in [*range(3, 10), *range(11, 16), *range(17, 46)]:
        family(number)
    return {name: outcome(do) for name, do in PROBES.items()}


def outcome(do: Callable[[], Any]) -> str:
    """Run a probe in a process of its own."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(2)
        try:
            found = do()
            said = f"ESCAPED: {found}" if found else "held: nothing found"
        except BaseException as error:
            said = f"held: {error}"
        os.write(writes, said.encode(errors="replace")[:2000])
        os._exit(0)
    os.close(writes)
    with open(reads, "rb") as file:
        said = file.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    return said or f"held: ended with status {status}"


if __name__ == "__main__":
    print(json.dumps(try_all()))
