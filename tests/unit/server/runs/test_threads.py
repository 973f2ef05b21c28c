"""Titles of forked threads."""

from __future__ import annotations

import pytest

from wick.server.runs.threads import name_fork
from wick.stores.rows import TITLE_CHARS


@pytest.mark.parametrize(
    ("title", "fork"),
    [
        ("tea", "tea (fork)"),
        ("tea (fork)", "tea (fork 2)"),
        ("tea (fork 9)", "tea (fork 10)"),
        ("tea (forked)", "tea (forked) (fork)"),
        ("", ""),
    ],
)
def test_a_fork_has_a_title_of_its_own(title: str, fork: str) -> None:
    assert name_fork(title) == fork


def test_the_title_of_a_fork_fits() -> None:
    long = name_fork("x" * TITLE_CHARS)
    assert len(long) == TITLE_CHARS and long.endswith("x (fork)")
    assert name_fork(long).endswith("x (fork 2)") and len(name_fork(long)) == TITLE_CHARS
