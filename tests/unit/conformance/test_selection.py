"""The rule that selects kinds of backends: each row runs on two kinds, each case on every implementation."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import pytest

from conformance import backend_cases, command_cases, file_cases
from conformance.backends import DOCKER, KINDS, LOCAL, PRIMARY, find_row, select_kinds

MODULES = [file_cases, command_cases, backend_cases]
CASES = [(module, name) for module in MODULES for name in vars(module) if name.startswith("test_")]


def marks(module: ModuleType, case: FunctionType) -> dict[str, pytest.Mark]:
    """The marks of a case by name; those of the function come before those of its module."""
    given = [getattr(mark, "mark", mark) for mark in [*module.pytestmark, *getattr(case, "pytestmark", ())]]
    return {mark.name: mark for mark in given}


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
        given = marks(module, getattr(module, name))
        parametrize, needs, used = given.get("parametrize"), given.get("needs"), set[str]()
        for number, params in enumerate(rows(parametrize)):
            assert find_row(parametrize, params) == number, name
            kinds = select_kinds(given["kinds"], number, needs)
            assert len(kinds) >= 2 and kinds <= KINDS.keys(), (name, params, kinds)
            used |= kinds
        assert used & {*LOCAL} and used & {"docker-daemon", "docker-tcp-engine"}, name
        assert ("docker-exec" in used) is (needs is None), name  # it lacks the operations that are needed


def test_every_kind_runs_cases_of_every_family() -> None:
    assert {*LOCAL, *DOCKER, *PRIMARY} == KINDS.keys()
    for module in MODULES:
        used = set[str]()
        for name in (name for each, name in CASES if each is module):
            given = marks(module, getattr(module, name))
            for number, _ in enumerate(rows(given.get("parametrize"))):
                used |= select_kinds(given["kinds"], number, given.get("needs"))
        missing = KINDS.keys() - used
        assert missing == ({"state"} if module is command_cases else set()), module.__name__
