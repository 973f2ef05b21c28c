"""Root file systems for the tests' images, made from this machine's own files: nothing is pulled.

build_root("python")    a tar; also plain (no Python), busybox, old (Python 3.8), searchless (neither ripgrep nor grep),
                        whole (a Python that can create environments, and libraries of packages), haproxy
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

PACKAGES = "docker.io iptables ripgrep busybox-static openssh-server openssh-client openssl"
USERS = ("reader", "toor")  # images with their own user: one with a name, and root by another name
WITH_PYTHON = ("python", "old", "searchless", "whole")  # the third has neither ripgrep nor grep

# Programs of the images beside Python: Debian's coreutils and similar, as far as tests use them.
PROGRAMS = """
    sh dash bash cat chmod chown cp cut date dd df echo env false find grep head id kill ln ls mkdir mkfifo mktemp mv
    nohup nproc od printf ps pwd readlink realpath rm rmdir sed seq setsid sha256sum sleep sort stat stty sync tail tee
    test timeout touch tr true truncate tty uname uniq wc xargs yes
""".split()


# Libraries that packages of the registry may be linked with: every image with a Python has them.
LIBRARIES = """
    libc.so.6 libdl.so.2 libgcc_s.so.1 libm.so.6 libnss_dns.so.2 libnss_files.so.2 libpthread.so.0 libresolv.so.2
    librt.so.1 libstdc++.so.6 libutil.so.1
""".split()


def require_programs(*programs: str) -> None:
    """Skip a test that cannot be without them."""
    if missing := [name for name in programs if not shutil.which(name)]:
        pytest.skip(f"there is no {', '.join(missing)} here; install them with: apt-get install {PACKAGES}")


def build_tar(files: dict[str, bytes]) -> bytes:
    """An archive, as the engine takes it."""
    buffer = io.BytesIO()
    with tarfile.TarFile(fileobj=buffer, mode="w") as made:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def image_digest(name: str) -> str:
    """Changes when an image would come out different."""
    python = _find_python(name) if name in WITH_PYTHON else None
    return f"4-{name}-{python.version if python else ''}"


@cache
def build_root(name: str) -> bytes:
    """A root file system as a tar."""
    tree = _Tree()
    if name == "busybox":
        tree.busybox()
    else:
        tree.programs(set(PROGRAMS) - ({"grep"} if name == "searchless" else set()))
    if name in WITH_PYTHON:
        tree.python(_find_python(name), whole=name == "whole")
    if name in ("python", "old"):
        tree.programs(["rg"])
    if name == "haproxy":
        tree.programs([name])
    return tree.tar()


class _Tree:
    """A root file system in the making; folders are /usr's, as Debian has it."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.TarFile(fileobj=self._buffer, mode="w")
        self._there: set[str] = set()
        for folder in ("usr/bin", "usr/lib", "usr/lib64", "usr/sbin", "etc", "root", "var", "proc", "sys", "dev"):
            self.folder(folder)
        for name in ("bin", "lib", "lib64", "sbin"):
            self.link(name, f"usr/{name}")
        self.folder("tmp", mode=0o1777)
        self.text("etc/passwd", "root:x:0:0::/root:/bin/sh\nreader:x:4242:4343::/tmp:/bin/sh\ntoor:x:0:0::/:/bin/sh\n")
        self.text("etc/group", "root:x:0:\nreader:x:4242:\n")

    def tar(self) -> bytes:
        self._tar.close()
        return self._buffer.getvalue()

    def programs(self, names: Iterable[str]) -> None:
        require_programs(*(set(names) & {"rg"}))
        found = [path for name in names if (path := shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin"))]
        for path in found:
            self.file(path, f"usr/bin/{Path(path).name}")
        self.libraries(found)

    def libraries(self, programs: Iterable[str | Path]) -> None:
        """Return the libraries that programs are linked with."""
        done = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False, timeout=60)
        for word in sorted({word for word in done.stdout.split() if word.startswith("/") and ".so" in word}):
            self.file(word.rstrip(":"))

    def busybox(self) -> None:
        require_programs("busybox")
        self.file(str(shutil.which("busybox")), "usr/bin/busybox")
        self.libraries([str(shutil.which("busybox"))])
        for name in subprocess.check_output(["busybox", "--list"], text=True, timeout=10).split():
            if name != "busybox":
                self.link(f"usr/bin/{name}", "busybox")

    def python(self, python: _Python, *, whole: bool = False) -> None:
        self.file(python.executable)
        if python.executable != "/usr/bin/python3":
            self.link("usr/bin/python3", python.executable)
        skipped = {"test", "tests", "site-packages", "dist-packages", "idlelib", "ensurepip", "lib2to3", "__pycache__"}
        skipped -= {"ensurepip"} if whole else set()
        modules = []
        for folder, folders, files in os.walk(python.library):
            folders[:] = [name for name in folders if name not in skipped and not name.startswith("config-")]
            for name in files:
                self.file(f"{folder}/{name}")
                modules += [f"{folder}/{name}"] if name.endswith(".so") else []
        self.libraries([python.executable, *modules])
        for path in (path for name in LIBRARIES for path in Path("/usr/lib").glob(f"*/{name}") if whole):
            self.file(path)

    def file(self, path: str | Path, at: str = "") -> None:
        name = _usr_path(at or str(path))
        if name in self._there or not os.path.isfile(path):
            return
        self.folder(os.path.dirname(name))
        info = tarfile.TarInfo(name)
        info.size, info.mode = os.path.getsize(path), 0o755 if os.access(path, os.X_OK) else 0o644
        with open(path, "rb") as file:
            self._add(info, file)

    def text(self, name: str, content: str) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(content), 0o644
        self._add(info, io.BytesIO(content.encode()))

    def folder(self, name: str, mode: int = 0o755) -> None:
        if name in self._there or not name:
            return
        self.folder(os.path.dirname(name))
        info = tarfile.TarInfo(name)
        info.type, info.mode = tarfile.DIRTYPE, mode
        self._add(info)

    def link(self, name: str, target: str) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = tarfile.SYMTYPE, target
        self._add(info)

    def _add(self, info: tarfile.TarInfo, content: Any = None) -> None:
        if info.name not in self._there:
            self._there.add(info.name)
            self._tar.addfile(info, content)


def _usr_path(path: str) -> str:
    """A path's place in the tar: /bin, /lib, /lib64 and /sbin are links to their namesakes in /usr."""
    parts = path.strip("/").split("/")
    return "/".join((["usr"] if parts[0] in ("bin", "lib", "lib64", "sbin") else []) + parts)


class _Python:
    """A Python of this machine that can be copied into an image."""

    def __init__(self, command: str) -> None:
        code = "import json, os, sys, sysconfig as s; print(json.dumps([os.path.realpath(sys.executable), "
        code += "s.get_path('stdlib', vars={'installed_base': sys.base_prefix}), sys.version.split()[0]]))"
        said = subprocess.check_output([command, "-I", "-c", code], text=True, timeout=30)
        self.executable, self.library, self.version = json.loads(said)


@cache
def _find_python(name: str) -> _Python:
    """The system's Python, or else the one that runs the tests; `old` is a 3.8, which not every machine has."""
    if name == "whole":
        return _Python(sys.executable)
    if name != "old":
        return _Python("/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable)
    return _Python(_find_old_pythons()[0])


def _find_old_pythons() -> list[str]:
    found = [*Path.home().glob(".pyenv/versions/3.8.*/bin/python3.8"), Path("/usr/bin/python3.8")]
    return [str(path) for path in found if path.exists()]


def python_images() -> list[str]:
    """The images with a Python that can be made here."""
    return ["python", *(["old"] if _find_old_pythons() else [])]
