"""Generated ways to plant code that git runs in a workspace: how a git directory gets there, and its content.

A plant is judged by git itself: `git status` is run outside of the sandbox, and must not run the planted program.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wick.backends.docker import Docker
from wick.backends.local import Local
from wick.workspace.protected import PROTECTED

# Shell commands that put a git directory with a bad config at $P; $BAD appends a program to a config.
PLACED = {
    "copied": "mkdir -p $P; cp -r .git $P/.git; $BAD $P/.git/config",
    "made by git": "mkdir -p $P; git -C $P init -q; $BAD $P/.git/config",
    "moved into its place": "cp -r .git evil; $BAD evil/config; mkdir -p $P; mv evil $P/.git",
    "moved with its parent": (
        "mkdir -p t/x; cp -r .git t/x/.git; $BAD t/x/.git/config; mkdir -p $P; rmdir $P; mv t/x $P"
    ),
    "exchanged": (
        "mkdir -p $P; cp -r .git $P/.git; cp -r .git evil; rm evil/HEAD; $BAD evil/config; "
        '/usr/bin/python3 -c \'import ctypes, os; ctypes.CDLL(None).renameat2(-100, b"evil", -100, '
        'os.fsencode(os.environ["P"]) + b"/.git", 2)\'; cp .git/HEAD $P/.git/HEAD'
    ),
    "a link": "cp -r .git evil; $BAD evil/config; mkdir -p $P; ln -s $PWD/evil $P/.git",
    "a file": "cp -r .git evil; $BAD evil/config; mkdir -p $P; echo gitdir: $PWD/evil > $P/.git",
    "a file that leads into objects": (
        "cp -r .git evil; $BAD evil/config; mv evil .git/objects/e; mkdir -p $P; "
        "echo gitdir: $PWD/.git/objects/e > $P/.git"
    ),
    "a separate git directory": "git init -q --separate-git-dir=apart $P; $BAD apart/config",
    "a common directory": (
        "cp -r .git evil; $BAD evil/config; rm evil/HEAD; mkdir -p $P; cp -r .git $P/.git; "
        "echo $PWD/evil > $P/.git/commondir"
    ),
    "a worktree": (
        "cp -r .git evil; $BAD evil/config; rm evil/HEAD; git worktree add -q $P; "
        "for w in .git/worktrees/*; do echo ../../../evil > $w/commondir; done"
    ),
    "a config for worktrees": (
        "git init -q $P; git -C $P config extensions.worktreeConfig true; $BAD $P/.git/config.worktree"
    ),
    "a bare repository": "mkdir -p $P; cp -r .git/* $P/; $BAD $P/config; printf '\\tworktree = .\\n' >> $P/config",
    "a submodule": (
        "mkdir -p $P .git/modules; cp -r .git/. .git/modules/m 2>/dev/null || (cp -r .git m; mv m .git/modules/m); "
        "$BAD .git/modules/m/config; echo gitdir: $PWD/.git/modules/m > $P/.git"
    ),
    "unpacked": (
        "mkdir -p t/x; cp -r .git t/x/.git; $BAD t/x/.git/config; tar cf x.tar -C t/x .git; mkdir -p $P; "
        "tar xf x.tar -C $P"
    ),
    "a hard link": "mkdir -p $P; cp -r .git $P/.git; cp .git/config e; $BAD e; ln -f e $P/.git/config",
    "a hard link that is written later": "mkdir -p $P; cp -r .git $P/.git; ln $P/.git/config e; sleep 0.05; $BAD e",
    "read-only": "mkdir -p $P; cp -r .git $P/.git; $BAD $P/.git/config; chmod 555 $P/.git",
    "unreadable for a while": (
        "mkdir -p $P; chmod 0 $P; sleep 0.05; chmod 755 $P; cp -r .git $P/.git; $BAD $P/.git/config"
    ),
    "renamed often": (
        "mkdir -p $P; cp -r .git $P/.git; for i in $(seq 1 40); do mv $P q; mkdir q2; mv q2 q3; rmdir q3; mv q $P; "
        "done; $BAD $P/.git/config"
    ),
}
PLACES = ["sub", "a/b/c/d/e/f/g/h", "node_modules/x", "'with blank'", "-dash", ".hidden/x", "HEADS/objects"]
# The content that $BAD appends; git touches MARK if it runs it.
CONTENTS = {
    "fsmonitor": '[core]\\n\\tfsmonitor = "touch MARK; false"\\n',
    "in one line": '[core] fsmonitor = "touch MARK; false"\\n',
    "by an include": "[include]\\n\\tpath = INCLUDED\\n",
    "with other line ends": '[core]\\r\\n\\tfsmonitor = "touch MARK; false"\\r\\n',
    "after a continued line": '[user]\\n\\tname = a \\\\\\n\\n[CORE]\\n\\tFsMonitor = "touch MARK; false"\\n',
}


@dataclass(frozen=True)
class Plant:
    """One way to plant a program."""

    placed: str
    place: str
    content: str

    def command(self, mark: Path) -> str:
        text = CONTENTS[self.content].replace("MARK", str(mark)).replace("INCLUDED", "$PWD/included")
        included = f'printf "[core]\\n\\tfsmonitor = \\"touch {mark}; false\\"\\n" > included'
        bad = f'bad() {{ printf \'{text}\' | sed "s#\\$PWD#$PWD#" >> "$1"; }}'
        place = self.place.strip("'")
        done = PLACED[self.placed].replace("$BAD", "bad").replace("$P/", '"$P"/').replace("$P;", '"$P";')
        return f'export P="./{place}"; {included}; {bad}; {done}'


def plants(first: int) -> Iterator[Plant]:
    """Return all plants in random order; every way and every content appears early."""
    chance = random.Random(first)
    everything = [Plant(placed, place, content) for placed in PLACED for place in PLACES for content in CONTENTS]
    chance.shuffle(everything)
    seen: set[str] = set()
    early = [one for one in everything if one.placed not in seen and not seen.add(one.placed)]  # type: ignore[func-returns-value]
    yield from early
    yield from (one for one in everything if one not in early)


class Ground:
    """A repository of the user, and a program that must not run."""

    def __init__(self, folder: Path, protect: tuple[str, ...] = PROTECTED) -> None:
        self.workspace, self.mark, self._protect = folder / "workspace", folder / "mark", protect
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
        self.workspace.mkdir(parents=True)
        subprocess.run(["git", "init", "-q", self.workspace], check=True)
        subprocess.run([*git, "-C", self.workspace, "commit", "-q", "--allow-empty", "-m", "x"], check=True)

    def runs(self, place: str) -> bool:
        """Return True if git runs the planted program."""
        for folder in (self.workspace, self.workspace / place.strip("'")):
            if folder.is_dir():
                subprocess.run(["git", "status"], cwd=folder, capture_output=True, check=False, timeout=60)
        return self.mark.exists()

    def open(self) -> Local | Docker:
        """Return a backend with the repository as its workspace."""
        return Local(self.workspace, protect=self._protect)

    async def close(self, backend: Local | Docker) -> None:
        """Stop the processes of one plant."""
        await backend.stop()

    @property
    def _program(self) -> str:
        """The code of a program that runs a command in the workspace."""
        return (
            "import asyncio, sys; from wick.backends.local import Local; "
            f"asyncio.run(Local(sys.argv[1], protect={self._protect!r}).execute(sys.argv[2]))"
        )

    async def by_command(self, plant: Plant) -> bool:
        backend = self.open()
        await backend.execute(plant.command(self.mark))
        found = self.runs(plant.place)
        await self.close(backend)
        return found

    async def by_job(self, plant: Plant, seconds: float = 30.0) -> bool:
        """The job runs while git is run."""
        backend = self.open()
        await backend.background(f"{plant.command(self.mark)}; touch done; sleep 300")
        until = time.monotonic() + seconds
        while not (self.workspace / "done").exists() and time.monotonic() < until:
            await asyncio.sleep(0.01)
        await backend.execute("true")  # the notices so far are settled
        found = self.runs(plant.place)
        await self.close(backend)
        return found

    async def by_a_program_that_is_killed(self, plant: Plant, seconds: float = 30.0) -> bool:
        """The program dies while the command runs, which plants until it dies too."""
        again = 'bad "$P"/.git/config'
        command = f"{plant.command(self.mark)}; touch done; while :; do {again}; done 2>/dev/null"
        argv = [sys.executable, "-c", self._program, str(self.workspace), command]
        program = subprocess.Popen(argv, start_new_session=True)  # noqa: ASYNC220
        until = time.monotonic() + seconds
        while not (self.workspace / "done").exists() and time.monotonic() < until:
            await asyncio.sleep(0.01)
        os.kill(program.pid, signal.SIGKILL)
        program.wait()
        while is_watched(self.workspace) and time.monotonic() < until:
            await asyncio.sleep(0.01)
        return self.runs(plant.place)


def is_watched(workspace: Path) -> bool:
    """Return True if a process has the workspace in its arguments or is in it."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        try:
            links = ["cwd", *(f"fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd"))]
        except OSError:
            continue
        for link in links:
            with suppress(OSError):  # a descriptor that was closed meanwhile is skipped
                found = os.readlink(f"/proc/{pid}/{link}")
                if found == str(workspace) or (link == "cwd" and found.startswith(str(workspace))):
                    return True
    return False
