"""Generated agents do what the rules say: `reference.py` computes it, and wick must agree.

A failure shows the smallest agent that does something else, written so that it can be pasted into a test.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given

from described import Spec
from generated import expect, observe, specs


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    """Thousands of hooks fail here, and nobody wants to read about it."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@given(specs)
def test_an_agent_does_what_the_rules_say(spec: Spec) -> None:
    reference, expected = expect(spec)
    observed, outcome = asyncio.run(observe(spec))
    assert {key: rows for key, rows in observed.trace.items() if rows} == dict(reference.trace)
    assert observed.messages == [row for row in reference.messages if len(row) == 3]
    assert outcome == expected
    assert observed.why == {key: rows for key, rows in reference.why.items() if key in observed.why}
