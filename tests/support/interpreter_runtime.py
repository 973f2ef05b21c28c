"""The runtime and the launcher of the interpreter of programs. Tests create them beforehand: one per process."""

from __future__ import annotations

from functools import cache

import pydantic_monty

from wick.capabilities.code_mode.interpreter import find_launcher


@cache
def start_runtime() -> None:
    """Start the runtime, if it is not running."""
    with (
        pydantic_monty.Monty(binary_path=find_launcher(), min_processes=1, max_processes=1) as pool,
        pool.checkout() as session,
    ):
        assert session.feed_run("1 + 1") == 2
