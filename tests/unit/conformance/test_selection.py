"""The rule that selects kinds of backends: each row runs on two kinds, each case on every implementation."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from conformance import backend_cases, command_cases, file_cases
from conformance.backends import CANNOT, DOCKER, KINDS, KINDS_BY_CASE, LOCAL, PRIMARY, find_row, select_kinds

MODULES = {
    file_cases: file_cases.TestFiles,
    command_cases: command_cases.TestCommands,
    backend_cases: backend_cases.TestLifecycle,
}
CASES = [
    (module, name)
    for module, group in MODULES.items()
    for name in (*vars(module), *dir(group))
    if name.startswith("test_")
]


def marks(module: ModuleType, name: str) -> dict[str, pytest.Mark]:
    """The marks of a case by name; those of the function come before those of its module."""
    case = getattr(module, name, None) or getattr(MODULES[module], name)
    own = [*getattr(case, "pytestmark", ()), *filter(None, [KINDS_BY_CASE.get(name)])]
    given = [getattr(mark, "mark", mark) for mark in [*module.pytestmark, *own]]
    return {mark.name: mark for mark in given}


def test_the_table_of_kinds_names_cases() -> None:
    assert KINDS_BY_CASE.keys() <= {name for _, name in CASES}


def rows(mark: pytest.Mark | None) -> Iterator[dict[str, Any]]:
    """The parameters of each row."""
    if mark is None:
        yield {}
        return
    names, values = mark.args
    for value in values:
        yield {names: value} if isinstance(names, str) else dict(zip(names, value, strict=True))


def test_a_case_runs_on_every_implementation() -> None:
    for module, name in CASES:
        given = marks(module, name)
        parametrize, needs, used = given.get("parametrize"), given.get("wick_needs"), set[str]()
        for number, params in enumerate(rows(parametrize)):
            assert find_row(parametrize, params) == number, name
            kinds = select_kinds(given["kinds"], number, needs)
            assert len(kinds) >= 2 and kinds <= KINDS.keys(), (name, params, kinds)
            used |= kinds
        assert used & {*LOCAL} and used & {"docker-daemon", "docker-tcp-engine"}, name
        lacks = needs is not None and bool({*needs.args} & CANNOT["docker-exec"].keys())
        assert ("docker-exec" in used) is not lacks, name


def test_every_kind_runs_cases_of_every_family() -> None:
    assert {*LOCAL, *DOCKER, *PRIMARY} == KINDS.keys()
    for module in MODULES:
        used = set[str]()
        for name in (name for each, name in CASES if each is module):
            given = marks(module, name)
            for number, _ in enumerate(rows(given.get("parametrize"))):
                used |= select_kinds(given["kinds"], number, given.get("wick_needs"))
        missing = KINDS.keys() - used
        assert missing == ({"state"} if module is command_cases else set()), module.__name__
