"""The cases of live planes, for one process; and the names of subjects."""

from __future__ import annotations

import pytest

from conformance.live_cases import *  # noqa: F403
from conformance.live_cases import Pair
from wick.server.live import subject_token
from wick.server.live.local import LocalLive


@pytest.fixture
async def pair() -> Pair:
    shared = LocalLive(is_shared=True)
    return shared, shared


def test_tokens_have_no_wildcards_and_stay_different() -> None:
    assert subject_token("run_0123") == "run_0123"
    strange = ["a.b", "*", ">", "", "a b", "ä", "x" * 101, "\ud800"]
    tokens = [subject_token(text) for text in strange]
    assert all(token.isalnum() for token in tokens) and len({*tokens}) == len(strange)
