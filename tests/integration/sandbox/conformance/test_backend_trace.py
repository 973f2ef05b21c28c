"""Files of a workspace are opened only beneath its descriptor, checked by a kernel trace.

The tests of files run under strace against Local. They reach into the workspace themselves, but by another name of it
(`backends.BESIDE`), so that what they do is told from what the backend does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.backends import BESIDE

HERE = Path(__file__).parent
CALL = re.compile(r"^(?P<name>\w+)\((?P<args>.*)\)\s+= (?P<result>-?\d+)(?:<(?P<opened>.*)>)?(?: .*)?$")
TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Call:
    """One system call with a path, as strace wrote it down."""

    name: str
    args: str
    opened: str  # the real path of the descriptor that it gave
    line: str

    @property
    def folders(self) -> list[str]:
        """The real paths of the descriptors it started from; the working directory is one if it is an absolute path."""
        return re.findall(r"(?:^|, )(?!AT_FDCWD)\d+<([^>]*)>", self.args)

    @property
    def paths(self) -> list[str]:
        found = TEXT.findall(self.args)
        return found[:1] if self.name.startswith("readlink") else found  # the second is the result


def calls(trace: Path) -> Iterator[Call]:
    """Every call of every thread."""
    for file in sorted(trace.glob("calls.*")):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            if found := CALL.match(line):
                yield Call(found["name"], found["args"], found["opened"] or "", line)


def within(path: str, root: Path) -> bool:
    return path == str(root) or path.startswith(f"{root}/")


def wrong(call: Call, root: Path) -> bool:
    """Return True if a path of the workspace was opened without its descriptor."""
    if any(BESIDE in path for path in call.paths):  # the tests themselves
        return False
    if any(path.startswith(f"{root}/") for path in call.paths):
        return True
    if call.name in ("chdir", "fchdir"):  # from there on, any name is a path of the workspace
        return any(within(path, root) for path in [*call.paths, *call.folders])
    from_inside = any(within(folder, root) for folder in call.folders)
    return call.opened.startswith(f"{root}/") and not from_inside


def strace(command: list[str], trace: Path, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command, and write down its calls, each with the real paths of its descriptors."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed: apt-get install strace")
    told = ["strace", "-ff", "--seccomp-bpf", "-y", "-s", "8192", "-e", "trace=%file,fchdir", "-e", "signal=none"]
    whole = [*told, "-o", str(trace / "calls"), *command]
    return subprocess.run(whole, capture_output=True, text=True, timeout=300, check=False, **options)  # type: ignore[call-overload, no-any-return]


WAYS = {  # a way to open a.txt, and True if it is detected
    "by its whole path": ("os.open(root + '/a.txt', os.O_RDONLY)", True),
    "from the working directory": ("os.chdir(root); os.open('a.txt', os.O_RDONLY)", True),
    "by the working directory of a process": ("os.chdir(root); os.open('/proc/self/cwd/a.txt', os.O_RDONLY)", True),
    "by a longer way": ("os.open(root + '/../' + os.path.basename(root) + '/a.txt', os.O_RDONLY)", True),
    "through a link": ("os.symlink(root, root + '-2'); os.open(root + '-2/a.txt', os.O_RDONLY)", True),
    "looking from the working directory": ("os.fchdir(os.open(root, os.O_RDONLY)); os.stat('a.txt')", True),
    "looking only": ("os.stat(root + '/a.txt')", True),
    "moving": ("os.rename(root + '/a.txt', root + '/b.txt')", True),
    "beneath a descriptor": ("os.open('a.txt', os.O_RDONLY, dir_fd=os.open(root, os.O_RDONLY))", False),
    "looking beneath a descriptor": ("os.stat('a.txt', dir_fd=os.open(root, os.O_RDONLY))", False),
    "elsewhere": ("os.open('/etc/passwd', os.O_RDONLY)", False),
}


@pytest.mark.parametrize("way", WAYS)
def test_unexpected_open_calls_are_detected(way: str, tmp_path: Path) -> None:
    code, found = WAYS[way]
    root, trace = (tmp_path / "root").resolve(), tmp_path / "trace"
    root.mkdir()
    trace.mkdir()
    (root / "a.txt").write_text("a")
    done = strace([sys.executable, "-I", "-S", "-c", f"import os, sys; root = sys.argv[1]; {code}", str(root)], trace)
    assert done.returncode == 0, done.stderr
    assert any(wrong(call, root) for call in calls(trace)) is found


def test_nothing_is_opened_except_beneath_the_descriptor(tmp_path: Path) -> None:
    trace, base = tmp_path / "trace", tmp_path / "base"
    trace.mkdir()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={base}"]
    tests = [str(HERE / "test_backend_files.py"), "-k", "local-unsandboxed"]
    done = strace([*command, *tests], trace, cwd=HERE.parents[3], env={**os.environ, "CI": "", "WICK_FULL": "1"})
    assert done.returncode == 0, done.stdout[-3000:]
    (root,) = {path.resolve() for path in base.glob("local-unsandboxed*/workspace")}
    seen = list(calls(trace))
    assert sum(call.opened.startswith(f"{root}/") for call in seen) > 500, "the trace shows what the tests do"
    assert [call.line for call in seen if wrong(call, root)] == []
