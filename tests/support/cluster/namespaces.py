"""Private namespaces for a cluster, a bridge inside them, and CPU shares.

`run_in_private_namespaces` starts a program in its own PID, network, mount and UTS namespaces. When that program ends,
also by kill -9, the kernel ends every process in there, and the network disappears with them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

BRIDGE, NETWORK, GATEWAY = "wickbr", "10.77.0.0/24", "10.77.0.1"  # they exist in the private namespace only
END_FILE = "end"  # in the folder of the program inside: it is to end with what it has measured
INSIDE = "WICK_CLUSTER_FOLDER"  # set for the program inside
GROUP_PREFIX = "wick-cluster-"
PERIOD = 100_000  # microseconds
NAMESPACES = ("--net", "--pid", "--mount", "--uts", "--fork", "--kill-child", "--mount-proc")


class CannotIsolate(Exception):
    """This user or system cannot create namespaces."""


def check_privileges() -> None:
    """Raise CannotIsolate with a sentence if this process cannot create the namespaces."""
    missing = [name for name in ("unshare", "nsenter", "ip") if shutil.which(name) is None]
    if missing:
        raise CannotIsolate(f"{', '.join(missing)} missing; install util-linux and iproute2")
    if os.geteuid() != 0:
        raise CannotIsolate("namespaces, a bridge and CPU shares need root (CAP_SYS_ADMIN, CAP_NET_ADMIN); use sudo")
    tried = subprocess.run(["unshare", *NAMESPACES, "true"], capture_output=True, text=True, timeout=30, check=False)
    if tried.returncode:
        raise CannotIsolate(f"this system refuses namespaces: {tried.stderr.strip()}; run outside of a container")


def run_in_private_namespaces(command: Sequence[str], folder: Path, *, reports_early: bool = False) -> int:
    """Run a program in private namespaces, wait for it, and remove everything that it leaves; return its exit code.

    A signal kills it. If it `reports_early`, the first SIGTERM only creates a file in its folder.
    """
    remove_stale_groups()
    environment = {**os.environ, INSIDE: str(folder)}
    process = subprocess.Popen(["unshare", *NAMESPACES, *command], env=environment, process_group=0)

    def end(number: int, _: object) -> None:
        if reports_early and number == signal.SIGTERM and not (folder / END_FILE).exists():
            (folder / END_FILE).touch()
        else:
            process.send_signal(signal.SIGKILL)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        process.kill()
        process.wait()
        remove_group(group_name(os.getpid()))
        shutil.rmtree(folder, ignore_errors=True)


def create_bridge() -> None:
    """Create the bridge of the cluster in the namespace of this process."""
    run_ip("link set lo up", f"link add {BRIDGE} type bridge", f"addr add {GATEWAY}/24 dev {BRIDGE}")
    run_ip(f"link set {BRIDGE} up")


def run_ip(*commands: str, pid: int = 0) -> None:
    """Run `ip` commands, in the network namespace of a process if one is given."""
    prefix = ["nsenter", "-t", str(pid), "-n"] if pid else []
    subprocess.run([*prefix, "ip", "-batch", "-"], input="\n".join(commands), text=True, check=True, timeout=30)


def connect_namespace(pid: int, index: int, address: str) -> None:
    """Connect the network namespace of a process with the bridge."""
    link = f"wick{index}"
    # the link of a server that was killed a moment ago may still be there
    subprocess.run(["ip", "link", "del", link], capture_output=True, check=False, timeout=30)
    run_ip(f"link add {link} type veth peer name eth0 netns {pid}", f"link set {link} master {BRIDGE} up")
    run_ip("link set lo up", f"addr add {address}/24 dev eth0", "link set eth0 up", pid=pid)


def set_link(index: int, *, up: bool) -> None:
    """Cut a server off from the network, or connect it again."""
    run_ip(f"link set wick{index} {'up' if up else 'down'}")


# -- CPU shares -----------------------------------------------------------------------------------------------------


def cpu_controller() -> tuple[Path, str] | None:
    """Return the root of the CPU controller and its version, or None if it cannot be written."""
    for root in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        with suppress(OSError):
            if "cpu" in (root / "cgroup.subtree_control").read_text().split() and os.access(root, os.W_OK):
                return root, "v2"
    v1 = Path("/sys/fs/cgroup/cpu")
    return (v1, "v1") if (v1 / "cpu.cfs_quota_us").exists() and os.access(v1, os.W_OK) else None


def group_name(pid: int) -> str:
    return f"{GROUP_PREFIX}{pid}"


def limit_cpu(group: str, name: str, pid: int, share: float) -> bool:
    """Limit a process and its children to a share of one core; return False if the system does not allow it.

    The groups have the largest weight, so that each gets its share beside other programs of the machine.
    """
    found = cpu_controller()
    if found is None:
        return False
    root, version = found
    folder = root / group / name
    try:
        if version == "v2":
            (root / group).mkdir(exist_ok=True)
            (root / group / "cgroup.subtree_control").write_text("+cpu")
        folder.mkdir(parents=True, exist_ok=True)
        if version == "v2":
            (root / group / "cpu.weight").write_text("10000")
            (folder / "cpu.max").write_text(f"{int(share * PERIOD)} {PERIOD}")
        else:
            (root / group / "cpu.shares").write_text("262144")
            (folder / "cpu.cfs_quota_us").write_text(str(int(share * PERIOD)))
        (folder / "cgroup.procs").write_text(str(pid))
    except OSError:
        return False
    return True


def remove_group(group: str) -> None:
    """Remove the CPU groups of a cluster. Their processes have ended."""
    found = cpu_controller()
    if found is None:
        return
    top = found[0] / group
    for folder in [*top.glob("*/"), top]:
        with suppress(OSError):
            folder.rmdir()


def remove_stale_groups() -> None:
    """Remove the groups of clusters that were killed before they could do so."""
    found = cpu_controller()
    for top in found[0].glob(f"{GROUP_PREFIX}*") if found is not None else ():
        pid = top.name.removeprefix(GROUP_PREFIX)
        if not Path("/proc", pid).exists():
            remove_group(top.name)
