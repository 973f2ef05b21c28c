"""A pytest plugin, loaded automatically: recorded model replies, and a check for unused replies.

A test fails if it leaves replies of a `Scripted` model or of a `Cassette` unused. `pytest --wick-record` records
missing and changed replies.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

from wick.agent import Agent
from wick.errors import ConfigError, ModelError
from wick.models import scripted
from wick.protocols import Model
from wick.testing.cassettes import Cassette, session

pytest.register_assert_rewrite(*(f"wick.testing.{path.stem}" for path in Path(__file__).parent.glob("*_cases.py")))

_FOLDER = "cassettes"  # beside the test


class NewCassette(Protocol):
    """The type of the fixture `cassette`: call it with a model, and with `name=` and `replace=`, to get a Cassette."""

    def __call__(
        self,
        model: str | Mapping[str, Any] | Model | Agent[Any, Any],
        *,
        name: str = "",
        replace: Mapping[str, str] | None = None,
    ) -> Cassette: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("wick")
    group.addoption("--wick-record", action="store_true", help="record replies of models that are missing or changed")
    group.addoption("--wick-record-all", action="store_true", help="record all replies of models again")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "wick_needs(*abilities): what a backend or model needs for a case")
    session.record = "all" if config.getoption("--wick-record-all") else bool(config.getoption("--wick-record"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    scripted.watched, session.cassettes = [], []
    session.test = item.nodeid


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test with a sentence, without a traceback, if a reply is missing, unused, or an error of the model.

    The errors that a failed test has recorded are not stored, so that `--wick-record` calls the model again.
    """
    try:
        result = yield
    except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:  # those of pytest are BaseExceptions
        cassettes = session.cassettes or []
        for cassette in cassettes:
            cassette.drop_failures()
        problems = [*(problem for cassette in cassettes for problem in cassette.changed)]
        if isinstance(error, ModelError) and str(error) in problems:
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        for failure, remedy in (pair for cassette in cassettes for pair in cassette.failures):
            problems.append(f"{type(failure).__name__}: {failure}\n{remedy}")
            is_same = type(error) is type(failure) and str(error) == str(failure)
            if is_same and isinstance(error, ModelError | ConfigError):
                raise pytest.fail.Exception(problems[-1], pytrace=False) from None
        for problem in problems[:1]:
            error.add_note(problem)
        raise
    try:
        for model in (*(scripted.watched or ()), *(session.cassettes or ())):
            model.check()
    except AssertionError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None
    return result


def pytest_runtest_teardown(item: pytest.Item) -> None:
    scripted.watched = session.cassettes = None


@pytest.fixture
def cassette(request: pytest.FixtureRequest) -> NewCassette:
    """Return a function that creates the cassette of a model, in the folder `cassettes` beside the test.

    The file is named after the test. A test with several models gives each of them a name. The path of `tmp_path` is
    replaced in the file.
    """
    item: pytest.Item = request.node
    taken: set[Path] = set()

    def create(
        model: str | Mapping[str, Any] | Model | Agent[Any, Any],
        *,
        name: str = "",
        replace: Mapping[str, str] | None = None,
    ) -> Cassette:
        test = item.nodeid.partition("::")[2] or item.name
        words = re.sub(r"[^\w.-]+", "-", f"{item.path.stem}-{test}{'-' if name else ''}{name}").strip("-")
        path = item.path.parent / _FOLDER / f"{words}.yaml"
        if path in taken:
            raise pytest.UsageError(f"{path.name} is already in use in this test; give each cassette a name")
        taken.add(path)
        has_folder = "tmp_path" in request.fixturenames
        folders = {str(request.getfixturevalue("tmp_path")): "{tmp_path}"} if has_folder else {}
        try:
            return Cassette(path, model, replace={**folders, **(replace or {})})
        except ConfigError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None

    return create
