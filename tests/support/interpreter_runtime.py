"""The runtime of the interpreter of programs. A process has one that is never closed, so tests start it beforehand."""

from __future__ import annotations

from functools import cache

import pydantic_monty


@cache
def start_runtime() -> None:
    """Start the runtime, if it is not running."""
    with pydantic_monty.Monty(min_processes=1, max_processes=1) as pool, pool.checkout() as session:
        assert session.feed_run("1 + 1") == 2
