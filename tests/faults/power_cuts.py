"""Power cuts, in two ways.

`recorded` reads what strace has seen a program write and sync; `left_over` makes the files that a disk may hold if the
power fails at some moment of that: what was synced, and of the rest whatever chance has it, also half a write.

`Disk` is a real ext4 file system in an image, which is shut down in the middle of everything: what the kernel had not
written is gone, as with the power. Only root can make one.
"""

from __future__ import annotations

import fcntl
import os
import random
import re
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SECTOR = 512
CALLS = "openat,write,pwrite64,fsync,fdatasync,ftruncate,?unlink,unlinkat"  # not every machine has the old one
SHUT_DOWN, WITHOUT_A_FLUSH = 0x8004587D, struct.pack("I", 2)  # EXT4_IOC_SHUTDOWN
ESCAPED = re.compile(r"(?:\\x[0-9a-f]{2})+")


@dataclass(frozen=True)
class Step:
    """Something that a program did. `sync` of "" is that of the folder."""

    what: str  # make, write, cut, sync, unlink; said: standard output; did: the file `effects`
    name: str = ""
    data: bytes = b""
    offset: int = 0


def recording(log: Path) -> list[str]:
    """The command under which everything that a program writes is recorded."""
    return ["strace", "-f", "-y", "-qq", "-xx", "-s1000000", f"-etrace={CALLS}", "-esignal=none", f"-o{log}"]


def recorded(log: Path, folder: Path) -> list[Step]:
    """Return the file operations of a program in a folder, with its output and effects, in order."""
    steps, begun = list[Step](), dict[str, str]()
    for line in log.read_text().splitlines():
        thread, _, call = line.partition(" ")
        call = call.lstrip()
        if call.endswith("<unfinished ...>"):
            begun[thread] = call.removesuffix("<unfinished ...>")
            continue  # it counts when it is over
        if call.startswith("<... "):
            call = begun.pop(thread, "") + call.partition(">")[2]
        if " = -1 " not in call[-60:]:
            steps += _steps(call, folder)
    return steps


def _steps(call: str, folder: Path) -> Iterator[Step]:
    name, _, rest = call.partition("(")
    texts = [bytes.fromhex(text.replace("\\x", "")) for text in ESCAPED.findall(rest)]
    if not texts:
        return
    path = Path(os.fsdecode(texts[1 if name.endswith("at") else 0]))
    data = texts[1] if len(texts) > 1 else b""
    if name == "write" and rest.startswith("1<"):
        yield Step("said", data=data)
    elif name == "write" and path == folder.parent / "effects":
        yield Step("did", data=data)
    elif path == folder and name in ("fsync", "fdatasync"):
        yield Step("sync")
    elif path.parent == folder and not path.name.endswith("-shm"):
        yield from _of_file(name, path.name, rest, data)


def _of_file(name: str, file: str, rest: str, data: bytes) -> Iterator[Step]:
    numbers = re.findall(r", (\d+)", rest)
    if name == "openat" and "O_CREAT" in rest:
        yield Step("make", file)
    elif name == "pwrite64":
        yield Step("write", file, data, int(numbers[-1]))
    elif name == "ftruncate":
        yield Step("cut", file, offset=int(numbers[-1]))
    elif name in ("fsync", "fdatasync"):
        yield Step("sync", file)
    elif name in ("unlink", "unlinkat"):
        yield Step("unlink", file)


# -- remaining files ------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _File:
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Step] = field(default_factory=list)

    def sync(self) -> None:
        for step in self.pending:
            _apply(self.durable, step)
        self.pending.clear()

    def after(self, chance: random.Random) -> bytes:
        """Return the content after a crash: unsynced writes are kept, lost or torn."""
        found = bytearray(self.durable)
        for step in self.pending:
            if chance.random() < 0.5:
                _apply(found, _torn(step, chance))
        return bytes(found)


def _torn(step: Step, chance: random.Random) -> Step:
    if step.what != "write" or len(step.data) <= SECTOR or chance.random() < 0.7:
        return step
    end = chance.randrange(SECTOR, len(step.data), SECTOR)
    return Step("write", step.name, step.data[:end], step.offset)


def _apply(content: bytearray, step: Step) -> None:
    if step.what == "cut":
        del content[step.offset :]
        content.extend(bytes(step.offset - len(content)))
        return
    end = step.offset + len(step.data)
    content.extend(bytes(max(0, end - len(content))))
    content[step.offset : end] = step.data


def left_over(steps: Sequence[Step], chance: random.Random) -> dict[str, bytes]:
    """The files of a folder, by name, when the power fails after these steps."""
    now, durable, pending = dict[str, _File](), dict[str, _File](), list[tuple[str, _File | None]]()
    for step in steps:
        if step.what == "make" and step.name not in now:
            now[step.name] = _File()
            pending.append((step.name, now[step.name]))
        elif step.what == "unlink":
            now.pop(step.name)
            pending.append((step.name, None))
        elif step.what == "sync" and not step.name:
            _rename(durable, pending)
            pending.clear()
        elif step.what == "sync":
            now[step.name].sync()
        elif step.what in ("write", "cut"):
            now[step.name].pending.append(step)
    _rename(durable, pending[: chance.randint(0, len(pending))])  # a file system keeps the order of names
    return {name: file.after(chance) for name, file in durable.items()}


def _rename(names: dict[str, _File], changes: Sequence[tuple[str, _File | None]]) -> None:
    for name, file in changes:
        if file is None:
            names.pop(name, None)
        else:
            names[name] = file


# -- a disk of its own ----------------------------------------------------------------------------------------------


@dataclass
class Disk:
    """An ext4 file system in an image, mounted at `folder`."""

    image: Path
    folder: Path

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self.image), str(self.folder))

    def unmount(self) -> None:
        """Unmount lazily, as sandboxes may hold the old mount for a while."""
        _run("umount", str(self.folder))
        left, self.image = self.image, self.image.with_name(f"{self.image.name}+")
        _run("cp", "--sparse=always", str(left), str(self.image))
        left.unlink()

    def cut(self) -> None:
        """Cut the power: nothing more reaches the disk, including unsynced writes."""
        place = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(place, SHUT_DOWN, WITHOUT_A_FLUSH)
        finally:
            os.close(place)


@contextmanager
def disk(folder: Path, megabytes: int = 64) -> Iterator[Disk]:
    """A new disk, under that folder."""
    made = Disk(folder / "image", folder / "disk")
    made.folder.mkdir(parents=True)
    with made.image.open("wb") as image:
        image.truncate(megabytes * 1_000_000)
    try:
        _run("mkfs.ext4", "-q", str(made.image))
        made.mount()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a disk needs root, loop devices and mkfs.ext4 (apt-get install e2fsprogs): {error}")
    try:
        yield made
    finally:
        subprocess.run(["umount", "-l", str(made.folder)], check=False, capture_output=True, timeout=30)
        made.image.unlink()


@contextmanager
def small(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A disk in memory that holds no more than this; see `grow`."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _run("mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small disk needs root: {error}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True, timeout=30)


def grow(folder: Path, kilobytes: int) -> None:
    """Enlarge a full disk."""
    _run("mount", "-o", f"remount,size={kilobytes}k", str(folder))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=100)
