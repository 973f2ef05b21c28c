"""Protocols: a model is any object with a name that streams deltas."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import FrozenInstanceError

import pytest

from wick.agent import Agent
from wick.protocols import Delta, Finish, Request, TextDelta, Usage


def test_usage_adds_up() -> None:
    usage = Usage(10, 5, 2, 1) + Usage(1, 2, 3, 4)
    assert usage == Usage(11, 7, 5, 5)
    assert usage.total_tokens == 18
    counts = {"input_tokens": 11, "output_tokens": 7, "cached_tokens": 5, "reasoning_tokens": 5}
    assert usage.to_json() == counts | {"cache_write_tokens": 0}


def test_no_usage_is_zero() -> None:
    assert Usage() + Usage() == Usage(0, 0, 0, 0)
    assert Usage().total_tokens == 0


@pytest.mark.parametrize("value", [Request(()), TextDelta("x"), Usage(), Finish()])
def test_model_requests_and_replies_are_read_only(value: object) -> None:
    with pytest.raises((FrozenInstanceError, TypeError)):
        value.text = "other"  # type: ignore[attr-defined]


async def test_anything_that_streams_is_a_model() -> None:
    class Parrot:
        name = "parrot"

        async def stream(self, request: Request) -> AsyncIterator[Delta]:
            yield TextDelta(request.messages[-1].text)
            yield Finish()

    assert (await Agent(Parrot()).run("hello")).text == "hello"
