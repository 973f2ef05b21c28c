"""The seccomp filter of sandboxed commands, in classic BPF.

    build_filter("x86_64")    the filter's bytes for bubblewrap's --seccomp; None for an unknown architecture

Most calls are denied with EPERM, like a missing permission. ENOSYS makes a program fall back to an older call:
for clone3 and openat2, whose flags are behind a pointer that no filter can read, and for calls newer than this list.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

EPERM, ENOSYS, EAFNOSUPPORT = 1, 38, 97

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NEWEST = 466  # the last reviewed call; the x32 calls of x86-64 have far larger numbers

# Denied by name; the number on x86-64 and on arm64, where it exists.
DENIED: dict[str, tuple[int | None, int | None]] = {
    # mounts and roots
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    # namespaces
    "setns": (308, 268),
    "unshare": (272, 97),
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    # files by handle, past every path
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    # large parts of the kernel that commands do not need
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    # the machine
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "create_module": (174, None),
    "query_module": (178, None),
    "get_kernel_syms": (177, None),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "ustat": (136, None),
    "sysfs": (139, None),
    "_sysctl": (156, None),
}
MISSING: dict[str, tuple[int | None, int | None]] = {"clone3": (435, 435), "openat2": (437, 437)}

# Queues, semaphores and memory of the IPC namespace: they outlive their process, so they need a namespace of their own.
SHARED: dict[str, tuple[int | None, int | None]] = {
    "shmget": (29, 194),
    "shmctl": (31, 195),
    "shmat": (30, 196),
    "semget": (64, 190),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "semop": (65, 193),
    "msgget": (68, 186),
    "msgctl": (71, 187),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
}

# Calls that are denied with some arguments.
CLONE, IOCTL, SOCKET, PERSONALITY = (56, 220), (16, 29), (41, 198), (135, 92)
NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
TIOCSTI, TIOCLINUX = 0x5412, 0x541C  # inject input into a terminal
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
PERSONALITIES = (0x0, 0x0008, 0x20000, 0x20008, 0xFFFFFFFF)  # plain Linux, 32 bits, uname 2.6, and the query
SETUID_OR_SETGID = 0o6000

# Calls that may not set these bits, and the index of their mode argument: where wick runs as root,
# such a file would be a setuid root program on the host.
MODES: dict[str, tuple[int | None, int | None, int]] = {
    "chmod": (90, None, 1),
    "fchmod": (91, 52, 1),
    "fchmodat": (268, 53, 2),
    "fchmodat2": (452, 452, 2),
    "creat": (85, None, 1),
    "open": (2, None, 2),
    "openat": (257, 56, 3),
    "mknod": (133, None, 1),
    "mknodat": (259, 33, 2),
}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One BPF instruction: an opcode, its jump offsets if true or false, and its constant."""

    code: int
    value: int
    true: int = 0
    false: int = 0

    def __bytes__(self) -> bytes:
        return struct.pack("=HBBI", self.code, self.true, self.false, self.value)


def load_word(offset: int) -> Instruction:
    return Instruction(0x20, offset)  # a 32-bit word of struct seccomp_data


def jump_if_equal(value: int, true: int = 0, false: int = 0) -> Instruction:
    return Instruction(0x15, value, true, false)


def jump_if_greater(value: int, true: int = 0, false: int = 0) -> Instruction:
    return Instruction(0x25, value, true, false)


def jump_if_bits(value: int, true: int = 0, false: int = 0) -> Instruction:
    return Instruction(0x45, value, true, false)


def return_action(value: int) -> Instruction:
    return Instruction(0x06, value)


def jump(count: int) -> Instruction:
    return Instruction(0x05, count)


def return_errno(errno: int) -> Instruction:
    return return_action(ERRNO | errno)


def load_argument(index: int) -> Instruction:
    """Load the lower half of an argument; the kernel ignores the upper half of those checked here."""
    return load_word(16 + 8 * index)


@cache
def build_filter(machine: str) -> bytes | None:
    """Return the filter for an architecture as in `os.uname().machine`, or None."""
    if machine not in ARCHITECTURES:
        return None
    return b"".join(map(bytes, build_instructions(machine)))


@cache
def build_filter_without_ipc(machine: str) -> bytes | None:
    """Return a filter that denies the calls of SHARED, for commands that share the host's IPC namespace."""
    if machine not in ARCHITECTURES:
        return None
    column = list(ARCHITECTURES).index(machine)
    denied = {numbers[column]: [return_errno(EPERM)] for numbers in SHARED.values()}
    cases = sorted((number, case) for number, case in denied.items() if number is not None)
    return b"".join(map(bytes, [load_word(0), *_dispatch_by_number(cases)]))


def build_instructions(machine: str) -> list[Instruction]:
    column = list(ARCHITECTURES).index(machine)
    cases = {  # for each filtered call, by its number
        **{numbers[column]: [return_errno(EPERM)] for numbers in DENIED.values()},
        **{numbers[column]: [return_errno(ENOSYS)] for numbers in MISSING.values()},
        **{numbers[column]: _deny_bits(numbers[2], SETUID_OR_SETGID) for numbers in MODES.values()},
        CLONE[column]: _deny_bits(0, NEW_NAMESPACES),
        IOCTL[column]: [
            load_argument(1),
            jump_if_equal(TIOCSTI, true=1),
            jump_if_equal(TIOCLINUX, false=1),
            return_errno(EPERM),
            return_action(ALLOW),
        ],
        PERSONALITY[column]: [
            load_argument(0),
            *(jump_if_equal(value, true=len(PERSONALITIES) - place) for place, value in enumerate(PERSONALITIES)),
            return_errno(EPERM),
            return_action(ALLOW),
        ],
        SOCKET[column]: _FAMILIES,
    }
    return [
        load_word(4),
        jump_if_equal(ARCHITECTURES[machine], true=1),
        return_action(KILL),
        load_word(0),
        jump_if_greater(NEWEST, false=1),
        return_errno(ENOSYS),
        *_dispatch_by_number(sorted((number, case) for number, case in cases.items() if number is not None)),
    ]


def _dispatch_by_number(cases: Sequence[tuple[int, list[Instruction]]]) -> list[Instruction]:
    """Return a binary search over call numbers: the kernel evaluates every number when it loads a filter."""
    if len(cases) <= 3:
        return [step for number, case in cases for step in (jump_if_equal(number, false=len(case)), *case)] + [
            return_action(ALLOW)
        ]
    middle = len(cases) // 2
    lower, upper = _dispatch_by_number(cases[:middle]), _dispatch_by_number(cases[middle:])
    return [jump_if_greater(cases[middle][0] - 1, false=1), jump(len(lower)), *lower, *upper]


def _deny_bits(index: int, bits: int) -> list[Instruction]:
    return [load_argument(index), jump_if_bits(bits, false=1), return_errno(EPERM), return_action(ALLOW)]


# Allowed are unix and internet sockets and route netlink; not vsock, packet, bluetooth, …
_FAMILIES = [
    load_argument(0),
    jump_if_equal(AF_UNIX, true=5),
    jump_if_equal(AF_INET, true=4),
    jump_if_equal(AF_INET6, true=3),
    jump_if_equal(AF_NETLINK, false=3),
    load_argument(2),
    jump_if_equal(0, false=1),
    return_action(ALLOW),
    return_errno(EAFNOSUPPORT),
]
