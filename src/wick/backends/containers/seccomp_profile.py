"""The seccomp profile of the containers that wick creates, in the engine's JSON form.

An allow-list by name, so that one profile holds on every architecture. Docker's default profile allows `modify_ldt` on
x86-64, which a sandboxed command may not call; this list leaves out every call that wick's own filter denies
(`wick.backends.sandbox.seccomp.DENIED`), except those that act within the container's own processes (`CONTAINED`).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from wick.backends.sandbox.seccomp import (
    AF_INET,
    AF_INET6,
    AF_NETLINK,
    AF_UNIX,
    DENIED,
    ENOSYS,
    EPERM,
    NEW_NAMESPACES,
    PERSONALITIES,
)

# Calls of DENIED that the container's PID namespace and its missing capabilities already confine.
CONTAINED = frozenset("ptrace process_vm_readv process_vm_writev adjtimex clock_adjtime".split())

# Calls that only 32-bit programs have, or that change where memory lies, and that no container needs.
REFUSED = (
    *"vm86 vm86old stime clock_settime64 umount mbind set_mempolicy get_mempolicy set_mempolicy_home_node".split(),
    "process_madvise",
)

# 32-bit programs run; the x32 calls of x86-64 are left out, as they repeat every call under another number.
ARCHITECTURES = [
    {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]},
    {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": ["SCMP_ARCH_ARM"]},
]

ALLOWED = """
_llseek _newselect accept accept4 access adjtimex alarm arch_prctl arm_fadvise64_64 arm_sync_file_range bind
breakpoint brk cacheflush cachestat capget capset chdir chmod chown chown32 clock_adjtime clock_adjtime64
clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep clock_nanosleep_time64 close
close_range connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old
epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit exit_group faccessat
faccessat2 fadvise64 fadvise64_64 fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat
fcntl fcntl64 fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstat64 fstatat fstatat64
fstatfs fstatfs64 fsync ftruncate ftruncate64 futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake
futimesat get_robust_list get_thread_area get_tls getcpu getcwd getdents getdents64 getegid getegid32 geteuid
geteuid32 getgid getgid32 getgroups getgroups32 getitimer getpeername getpgid getpgrp getpid getppid getpriority
getrandom getresgid getresgid32 getresuid getresuid32 getrlimit getrusage getsid getsockname getsockopt gettid
gettimeofday getuid getuid32 getxattr getxattrat inotify_add_watch inotify_init inotify_init1 inotify_rm_watch
io_cancel io_destroy io_getevents io_pgetevents io_pgetevents_time64 io_setup io_submit ioctl ioprio_get ioprio_set
ipc kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lchown32 lgetxattr link linkat
listen listmount listxattr listxattrat llistxattr llseek lremovexattr lseek lsetxattr lsm_get_self_attr
lsm_list_modules lstat lstat64 madvise membarrier memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat
mlock mlock2 mlockall mmap mmap2 mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64
mq_timedsend mq_timedsend_time64 mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync munlock munlockall munmap
name_to_handle_at nanosleep newfstatat nice oldfstat oldlstat oldstat olduname open openat openat2 pause pidfd_open
pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll ppoll_time64 prctl pread64 preadv preadv2
prlimit64 process_mrelease process_vm_readv process_vm_writev pselect6 pselect6_time64 ptrace pwrite64 pwritev
pwritev2 read readahead readdir readlink readlinkat readv recv recvfrom recvmmsg recvmmsg_time64 recvmsg
remap_file_pages removexattr removexattrat rename renameat renameat2 restart_syscall riscv_flush_icache rmdir rseq
rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
rt_sigtimedwait_time64 rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity
sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity
sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select semctl semget semop semtimedop
semtimedop_time64 send sendfile sendfile64 sendmmsg sendmsg sendto set_robust_list set_thread_area set_tid_address
set_tls setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups setgroups32 setitimer setpgid setpriority
setregid setregid32 setresgid setresgid32 setresuid setresuid32 setreuid setreuid32 setrlimit setsid setsockopt
setuid setuid32 setxattr setxattrat sgetmask shmat shmctl shmdt shmget shutdown sigaction sigaltstack signal
signalfd signalfd4 sigpending sigprocmask sigreturn sigsuspend socketcall socketpair splice ssetmask stat stat64
statfs statfs64 statmount statx symlink symlinkat sync sync_file_range sync_file_range2 syncfs sysinfo tee tgkill
time timer_create timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64
timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64 times tkill truncate truncate64
ugetrlimit umask uname unlink unlinkat uretprobe utime utimensat utimensat_time64 utimes vfork vmsplice wait4 waitid
waitpid write writev
""".split()


@cache
def profile() -> str:
    """Return the profile as the engine takes it in `SecurityOpt`."""
    no_namespaces = {"index": 0, "value": NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
    allowed = [_allow(ALLOWED), _allow(["clone"], no_namespaces)]
    allowed += [_allow(["personality"], _equal(0, value)) for value in PERSONALITIES]
    allowed += [_allow(["socket"], _equal(0, family)) for family in (AF_UNIX, AF_INET, AF_INET6)]
    allowed.append(_allow(["socket"], _equal(0, AF_NETLINK), _equal(2, 0)))
    refused = sorted({*DENIED, *REFUSED} - CONTAINED)
    return json.dumps(
        {
            "defaultAction": "SCMP_ACT_ERRNO",
            "defaultErrnoRet": ENOSYS,  # a program then takes an older call
            "archMap": ARCHITECTURES,
            "syscalls": [*allowed, _refuse(refused, EPERM), _refuse(["clone3"], ENOSYS)],
        }
    )


@contextmanager
def profile_option(*, is_local: bool) -> Iterator[list[str]]:
    """Yield the option for an engine that reads the profile from a file; a remote one keeps its own profile."""
    if not is_local:
        yield []
        return
    with tempfile.NamedTemporaryFile("w", prefix="wick-", suffix=".json") as file:
        file.write(profile())
        file.flush()
        yield [f"seccomp={file.name}"]


def _allow(names: list[str], *conditions: dict[str, Any]) -> dict[str, Any]:
    return {"names": names, "action": "SCMP_ACT_ALLOW", **({"args": [*conditions]} if conditions else {})}


def _refuse(names: list[str], errno: int) -> dict[str, Any]:
    return {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": errno}


def _equal(index: int, value: int) -> dict[str, Any]:
    return {"index": index, "value": value, "op": "SCMP_CMP_EQ"}
