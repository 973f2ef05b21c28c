"""Tools for tests: recorded model replies, and test cases for stores, backends and models of your own.

The pytest plugin is `wick.testing.plugin`. pytest loads it automatically.
"""

from __future__ import annotations

from wick.testing.cassette import Cassette

__all__ = ["Cassette"]
