"""The seccomp filter: its verdicts, interpreted as the kernel does, and its effect in the kernel."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wick.backends.containers.seccomp_profile import CONTAINED, profile
from wick.backends.sandbox import seccomp
from wick.backends.sandbox.seccomp import (
    ALLOW,
    ARCHITECTURES,
    DENIED,
    EAFNOSUPPORT,
    ENOSYS,
    EPERM,
    ERRNO,
    KILL,
    MISSING,
    MODES,
    NEWEST,
    SHARED,
    build_filter,
    build_filter_without_ipc,
)

MACHINES = list(ARCHITECTURES)
CALLS = {"clone": (56, 220), "ioctl": (16, 29), "socket": (41, 198), "personality": (135, 92), "read": (0, 63)}
HEADERS = [Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm-generic/unistd.h")]


def verdict(machine: str, number: int, *args: int, arch: int | None = None, code: bytes | None = None) -> int:
    """Return the verdict of the filter for a call."""
    told = struct.pack("=IIQ6Q", number, ARCHITECTURES[machine] if arch is None else arch, 0, *_six(args))
    code = build_filter(machine) if code is None else code
    assert code is not None and len(code) % 8 == 0
    at = word = 0
    while True:
        operation, true, false, value = struct.unpack_from("=HBBI", code, at * 8)
        at += 1
        if operation == 0x06:
            return int(value)
        if operation == 0x20:
            (word,) = struct.unpack_from("=I", told, value)
        elif operation == 0x05:
            at += value
        else:
            holds = {0x15: word == value, 0x25: word > value, 0x45: bool(word & value)}[operation]
            at += true if holds else false


def _six(args: tuple[int, ...]) -> list[int]:
    return [*args, *[0] * (6 - len(args))]


def number(machine: str, name: str) -> int | None:
    table: dict[str, tuple[int | None, ...]] = {**CALLS, **DENIED, **MISSING, **MODES}
    return table[name][MACHINES.index(machine)]


@pytest.mark.parametrize("machine", MACHINES)
def test_exactly_the_denied_calls_are_denied(machine: str) -> None:
    denied = {number(machine, name) for name in DENIED} - {None}
    missing = {number(machine, name) for name in MISSING}
    choosy = {number(machine, name) for name in [*CALLS, *MODES]} - {number(machine, "read")}
    for call in range(NEWEST + 1):
        if call not in choosy:
            expected = ERRNO | EPERM if call in denied else ERRNO | ENOSYS if call in missing else ALLOW
            assert verdict(machine, call) == expected, call


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("call", [NEWEST + 1, 512, 0x40000000, 0x40000000 + 16, 0xFFFFFFFF])
def test_unknown_calls_return_enosys(machine: str, call: int) -> None:
    assert verdict(machine, call) == ERRNO | ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("arch", [0x40000003, 0x40000028, 0, *ARCHITECTURES.values()])
def test_calls_of_another_architecture_end_the_process(machine: str, arch: int) -> None:
    for call in (0, 16, 165):
        answer = verdict(machine, call, arch=arch)
        assert (answer == KILL) is (arch != ARCHITECTURES[machine])


@pytest.mark.parametrize("machine", MACHINES)
@given(flags=st.integers(0, 2**64 - 1))
def test_a_process_may_not_be_put_into_a_new_namespace(machine: str, flags: int) -> None:
    clone = number(machine, "clone")
    assert clone is not None
    named = any(flags & bit for bit in (1 << 17, 1 << 25, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30))
    assert verdict(machine, clone, flags) == (ERRNO | EPERM if named else ALLOW)


@pytest.mark.parametrize("machine", MACHINES)
@given(family=st.integers(0, 50), protocol=st.sampled_from([0, 1, 9, 15, 16]), high=st.integers(0, 3))
def test_sockets_are_for_files_the_internet_and_routes(machine: str, family: int, protocol: int, high: int) -> None:
    call = number(machine, "socket")
    assert call is not None
    fine = family in (1, 2, 10) or (family == 16 and protocol == 0)
    answer = verdict(machine, call, family | high << 32, 3, protocol)
    assert answer == (ALLOW if fine else ERRNO | EAFNOSUPPORT)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", MODES)
@given(mode=st.integers(0, 2**32 - 1))
def test_no_file_gets_a_setuid_bit(machine: str, name: str, mode: int) -> None:
    call = number(machine, name)
    if call is not None:
        args = [0] * 6
        args[MODES[name][2]] = mode
        assert verdict(machine, call, *args) == (ERRNO | EPERM if mode & 0o6000 else ALLOW)


@pytest.mark.parametrize("machine", MACHINES)
def test_terminals_and_personalities(machine: str) -> None:
    ioctl, personality = number(machine, "ioctl"), number(machine, "personality")
    assert ioctl is not None and personality is not None
    assert verdict(machine, ioctl, 0, 0x5412) == verdict(machine, ioctl, 0, 0x541C | 1 << 32) == ERRNO | EPERM
    assert verdict(machine, ioctl, 0x5412, 0x5401) == ALLOW
    assert verdict(machine, personality, 0xFFFFFFFF) == verdict(machine, personality, 0) == ALLOW
    assert verdict(machine, personality, 0x40000) == ERRNO | EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_without_a_namespace_no_ipc_object_outlives_its_command(machine: str) -> None:
    code = build_filter_without_ipc(machine)
    denied = {numbers[MACHINES.index(machine)] for numbers in SHARED.values()}
    for call in range(NEWEST + 1):
        assert verdict(machine, call, code=code) == (ERRNO | EPERM if call in denied else ALLOW), call


def test_the_kernel_takes_that_filter() -> None:
    """It is installed beside the other one, by a process that shares the host's IPC namespace."""
    text = f"""
import ctypes
from wick.workspace.processes import _NO_NEW_PRIVS, _install_seccomp, prctl
prctl(_NO_NEW_PRIVS, 1)
_install_seccomp(bytes.fromhex({(build_filter_without_ipc(os.uname().machine) or b"").hex()!r}))
libc = ctypes.CDLL("librt.so.1", use_errno=True)
for result in (libc.shmget(0, 4096, 0o600), libc.semget(0, 1, 0o600), libc.msgget(0, 0o600),
               libc.mq_open(b"/wick-test", 0o102, 0o600, None)):
    print(result, ctypes.get_errno())
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"-1 {EPERM}"] * 4


def test_containers_may_make_no_call_that_is_denied_here() -> None:
    rules = json.loads(profile())["syscalls"]
    allowed = {name for rule in rules if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}
    assert allowed & {*DENIED, "clone3"} == CONTAINED
    refused = {name for rule in rules if rule["action"] == "SCMP_ACT_ERRNO" for name in rule["names"]}
    assert refused >= DENIED.keys() - CONTAINED and not refused & allowed
    assert "SCMP_ARCH_X32" not in profile()


def test_an_unknown_architecture_has_no_filter() -> None:
    assert build_filter("riscv64") is None


def test_a_filter_fits_the_kernel_limit() -> None:
    for machine in MACHINES:
        steps = seccomp.build_instructions(machine)
        assert len(steps) < 4096
        assert all(step.true < 256 and step.false < 256 for step in steps)


OF_THIS = [column for column, machine in enumerate(MACHINES) if column == 1 or machine == os.uname().machine]


@pytest.mark.parametrize("column", OF_THIS, ids=lambda column: MACHINES[column])  # ARM uses the generic headers
def test_the_numbers_are_those_of_the_kernel(column: int) -> None:
    if not HEADERS[column].exists():
        pytest.skip("the kernel's headers are not installed: apt-get install linux-libc-dev")
    text = HEADERS[column].read_text()
    known = {name: int(call) for name, call in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\b", text)}
    ours = {name: numbers[column] for name, numbers in {**CALLS, **DENIED, **MISSING, **MODES, **SHARED}.items()}
    for name, call in ours.items():
        if name in known:
            assert call == known[name], name
    newer = {"fchmodat2"}  # than the headers of a stable distribution
    assert {name for name, call in ours.items() if call is not None} - known.keys() <= newer


def test_this_machine_is_one_of_those() -> None:
    assert os.uname().machine in MACHINES, "write a filter for it, or say in the docs that it has none"
