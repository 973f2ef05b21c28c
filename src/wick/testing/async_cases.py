"""The base of test cases: async tests run without further configuration, and each has a time limit."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ClassVar

import pytest

AsyncTest = Callable[..., Coroutine[Any, Any, None]]


class AsyncCases:
    """A base of async test cases, for pytest-asyncio. A subclass with its own `pytestmark` replaces the mark."""

    case_seconds: ClassVar[float] = 60.0  # after which a case fails

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, function in [*vars(cls).items()]:
            if name.startswith("test_") and inspect.iscoroutinefunction(function):
                setattr(cls, name, limit_time(function))
        if "pytestmark" not in vars(cls) and not cls.__module__.startswith("wick.testing."):
            cls.pytestmark = [pytest.mark.asyncio]  # type: ignore[attr-defined]


def limit_time(case: AsyncTest) -> AsyncTest:
    """Return a test that fails after `case_seconds` of its class: a wrong implementation may wait forever."""

    @wraps(case)
    async def run(self: AsyncCases, *args: Any, **fixtures: Any) -> None:
        try:
            async with asyncio.timeout(self.case_seconds) as limit:
                await case(self, *args, **fixtures)
        except TimeoutError as error:
            if not limit.expired():
                raise
            sentence = f"the case has not ended after {self.case_seconds:g} s: a call of it waits forever"
            raise pytest.fail.Exception(f"{sentence}; the traceback above has its line") from error

    return run
