"""Search with an installed ripgrep or GNU grep; without either, the host fetches the files and searches them."""

from __future__ import annotations

import os
from typing import Any, Callable

from wick.errors import BackendError
from wick.workspace.grep import GrepParser, RipgrepParser, grep_command, ripgrep_command
from wick.workspace.processes import clean_environment, create_data_file, find_program
from wick.workspace.results import GrepResult
from wick.workspace.workspace import Workspace


def run_grep(
    workspace: Workspace,
    pattern: str,
    path: str = ".",
    *,
    ignore_case: bool = False,
    links: bool = True,
    **options: Any,
) -> GrepResult:
    """Return the matching lines. Runs in its own process, so it may change the working directory and be killed."""
    command: Callable[..., list[str]]
    parser: Any
    if _is_installed("rg"):
        command, parser = ripgrep_command, RipgrepParser
    elif _is_installed("grep") and _run_search(["grep", "-qP", "^$", os.devnull], -1, lambda data: True) == 1:
        command, parser = grep_command, GrepParser
    else:
        raise BackendError("there is neither ripgrep nor a grep that knows -P", "no_engine")
    keep = workspace.build_search_filter(path, links=links, **options)
    argv = command(pattern, workspace.resolve(path, links=links), ignore_case=ignore_case, **options)
    os.chdir(workspace.root)
    output = parser(keep)
    errors = create_data_file(b"")
    exit_code = _run_search(argv, errors, output.feed)
    os.lseek(errors, 0, os.SEEK_SET)
    result: GrepResult = output.result(exit_code, os.read(errors, 2_000).decode("utf-8", "replace"))
    return {**result, "matches": workspace.verify_matches(result["matches"])}


def _is_installed(program: str) -> bool:
    try:
        return bool(find_program(program, clean_environment()))
    except FileNotFoundError:
        return False


def _run_search(argv: list[str], errors: int, feed: Callable[[bytes], bool]) -> int:
    """Run a program, pass its output to `feed` until that returns False, and return the exit code."""
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
    os.close(reads)  # a program with more output ends by SIGPIPE
    status = os.waitpid(pid, 0)[1]
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0
