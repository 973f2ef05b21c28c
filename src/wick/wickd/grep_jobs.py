"""Searching with what is there: ripgrep, or GNU grep; where neither is, the host fetches the files and searches."""

from __future__ import annotations

import os
from typing import Any, Callable

from wick.errors import BackendError
from wick.workspace.grep import Grep, Ripgrep, gnu_grep, ripgrep
from wick.workspace.processes import clean_environment, data_file, find_program
from wick.workspace.results import Matches
from wick.workspace.workspace import Workspace


def grep(
    workspace: Workspace,
    pattern: str,
    path: str = ".",
    *,
    ignore_case: bool = False,
    links: bool = True,
    **options: Any,
) -> Matches:
    """The lines that match. This process may change its working directory and be ended: it is one of its own."""
    command, reader = _engine()
    keep = workspace.keeps(path, links=links, **options)
    argv = command(pattern, workspace.real(path, links=links), ignore_case=ignore_case, **options)
    os.chdir(workspace.root)
    reading = reader(keep)
    errors = data_file(b"")
    exit_code = _feed(argv, errors, reading.feed)
    os.lseek(errors, 0, os.SEEK_SET)
    found: Matches = reading.result(exit_code, os.read(errors, 2_000).decode("utf-8", "replace"))
    return {**found, "matches": workspace.standing(found["matches"])}


def _engine() -> tuple[Callable[..., list[str]], Any]:
    if _is_there("rg"):
        return ripgrep, Ripgrep
    if _is_there("grep") and _feed(["grep", "-qP", "^$", os.devnull], -1, lambda data: True) == 1:
        return gnu_grep, Grep
    raise BackendError("there is neither ripgrep nor a grep that knows -P", "no_engine")


def _is_there(program: str) -> bool:
    try:
        return bool(find_program(program, clean_environment()))
    except FileNotFoundError:
        return False


def _feed(argv: list[str], errors: int, feed: Callable[[bytes], bool]) -> int:
    """Run a program and pass on what it prints, until that is enough; gives its exit code."""
    reads, writes = os.pipe()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    moves = [
        (os.POSIX_SPAWN_DUP2, end, number) for number, end in enumerate((null, writes, null if errors < 0 else errors))
    ]
    env = clean_environment()
    pid = os.posix_spawn(find_program(argv[0], env), argv, env, file_actions=moves)
    os.close(writes)
    os.close(null)
    enough = False
    while not enough:
        data = os.read(reads, 65_536)
        enough = not data or not feed(data)
    os.close(reads)  # one that has more to say ends by that
    status = os.waitpid(pid, 0)[1]
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0
