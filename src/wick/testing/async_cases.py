"""The base of test cases: async tests run without further configuration."""

from __future__ import annotations

from typing import Any

import pytest


class AsyncCases:
    """A base of async test cases, for pytest-asyncio. A subclass with its own `pytestmark` replaces the mark."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "pytestmark" not in vars(cls) and not cls.__module__.startswith("wick.testing."):
            cls.pytestmark = [pytest.mark.asyncio]  # type: ignore[attr-defined]
