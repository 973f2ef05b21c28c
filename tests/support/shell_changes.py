"""Generated shell commands that change a workspace, an independent reading of its files, and the check of rewinds.

python -m tests.support.shell_changes FOLDER COMMANDS NUMBER [USER]       prints `tried N, violated M`
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

from wick.workspace.snapshots.history import SnapshotHistory

NAMES = ["a", "b", "c.txt", "long name", "-n", "ümlaut", "x\ny", "$'q\\xff'", "deep", ".hidden", "src", "lib"]
PATHS = ["{}", "{}/{}", "{}/{}/{}"]
FIXED_TIME = "2001-01-01T00:00:00"
GIT = "git -c user.name=a -c user.email=a@b.c -c commit.gpgsign=false"
ENV = {"PATH": os.defpath + ":/usr/local/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C.UTF-8"}

COMMANDS = [
    "mkdir -p {p}",
    "rm -rf {p}",
    "mv {p} {q}",
    "mv -f {p} {q}",
    "ln -f {p} {q}",
    "ln -sfn {p} {q}",
    "ln -sfn /nonexistent/outside {p}",  # later commands write through links: the target must not exist
    "chmod {mode} {p}",
    "chmod -R u+rwX {p}",
    "truncate -s {n} {p}",
    "echo {n} >> {p}",
    "echo {n} > {p}",
    "cp -a {p} {q}",
    "sed -i s/1/{n}/ {p}",
    "dd if=/dev/urandom of={p} bs={n} count=1",
    "dd if=/dev/zero of={p} bs=1 count=3 seek={n} conv=notrunc",
    "touch -d {time} {p}",
    "touch {p}",
    "printf %s {n} > {p} && touch -d {time} {p}",  # the same size and modification time as another such command
    "mkfifo {p}.pipe",  # a name that no other command opens, which would block
    "rmdir {p}",
    "cp --sparse=always {p} {q}",
    "find . -type f -name '*a*' -delete",
    "install -m {mode} {p} {q}",
    "(cd {p} && mkdir -p deep/deep/deep && echo {n} > deep/deep/deep/end)",
    "tar cf {p} src; rm -rf src; tar xf {p}",
    f"{GIT} init -q {{p}}",
    f"{GIT} init -q .; {GIT} add -A .; {GIT} commit -qm {{n}}",
    f"{GIT} stash -qu; {GIT} gc -q",
    f"{GIT} checkout -q -b branch{{n}}; echo {{n}} > {{p}}; {GIT} add -A; {GIT} commit -qm x; {GIT} checkout -q -",
    "node_modules=1; mkdir -p node_modules; echo {n} > node_modules/{n}",
]


def quote(path: str) -> str:
    return path if path.startswith("$'") else "'" + path + "'"


def generate_path(random: Random) -> str:
    names = [random.choice(NAMES) for _ in range(3)]
    return "./" + "/".join(map(quote, names[: random.choice([1, 1, 2, 2, 3])]))


def generate_command(random: Random) -> str:
    command = random.choice(COMMANDS)
    return command.format(
        p=generate_path(random),
        q=generate_path(random),
        n=random.choice([0, 1, 7, 111, 1000, 4096]),
        mode=random.choice(["644", "600", "755", "000", "444", "4755", "1777", "555", "070"]),
        time=FIXED_TIME,
    )


def run_commands(folder: Path, commands: list[str]) -> None:
    """Run commands in a folder, in one shell. Commands may fail."""
    script = "\n".join(f"({command})" for command in commands)
    subprocess.run(
        ["bash", "-c", script], cwd=folder, env=ENV, capture_output=True, stdin=subprocess.DEVNULL, timeout=60
    )


def read_state(folder: Path) -> dict[bytes, Any]:
    """Read all files of a folder without wick: types, modes, contents, link targets, and groups of hard links."""
    found, groups = dict[bytes, Any](), defaultdict[tuple[int, int], list[bytes]](list)
    root = os.fsencode(folder)
    closed = list[tuple[bytes, int]]()

    def visit(path: bytes, inside: bytes) -> None:
        info = os.lstat(path)
        mode = stat.S_IMODE(info.st_mode)
        if stat.S_ISLNK(info.st_mode):
            found[inside] = ("link", os.readlink(path))
        elif stat.S_ISDIR(info.st_mode):
            found[inside] = ("folder", mode)
            if mode & 0o500 != 0o500 and os.geteuid():
                os.chmod(path, mode | 0o700)
                closed.append((path, mode))
            for name in sorted(os.listdir(path)):
                if name != b"node_modules":
                    visit(path + b"/" + name, inside + b"/" + name)
        elif stat.S_ISREG(info.st_mode):
            if mode & 0o400 == 0 and os.geteuid():
                os.chmod(path, mode | 0o400)
                closed.append((path, mode))
            found[inside] = ("file", mode, Path(os.fsdecode(path)).read_bytes())
            groups[info.st_dev, info.st_ino].append(inside)

    visit(root, b"")
    for path, mode in reversed(closed):
        os.chmod(path, mode)
    linked = sorted(tuple(sorted(paths)) for paths in groups.values() if len(paths) > 1)
    return {**found, b"links": linked}


def count_violations(folder: Path, commands: int, number: int, most: int = 8) -> tuple[int, list[str]]:
    """Run generated commands, rewind to earlier snapshots, and return the number of rewinds and the violations."""
    random, workspace = Random(number), folder / "workspace"
    workspace.mkdir()
    history = SnapshotHistory(folder / "snapshots", workspace)
    taken = list[tuple[str, dict[bytes, Any]]]()
    tried, violations, done = 0, list[str](), 0
    while done < commands:
        taken = [*taken[-5:], (history.take().id, read_state(workspace))]
        batch = [generate_command(random) for _ in range(random.randint(1, most))]
        run_commands(workspace, batch)
        done += len(batch)
        id, state = random.choice(taken)
        _, report = history.restore(id)
        found = read_state(workspace)
        tried += 1
        if found != state:
            different = sorted(path for path in {*found, *state} if found.get(path) != state.get(path))
            violations.append(f"after {batch}: {different[:5]} differ; {report.left}")
            history.restore(id)
    return tried, violations


if __name__ == "__main__":
    if sys.argv[4:]:  # not earlier, since the user may not be able to read the modules
        os.setgroups([])
        os.setresgid(*[int(sys.argv[4])] * 3)
        os.setresuid(*[int(sys.argv[4])] * 3)
    tried, violations = count_violations(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    for violation in violations[:10]:
        print(violation)
    print(f"tried {tried}, violated {len(violations)}")
    sys.exit(bool(violations))
