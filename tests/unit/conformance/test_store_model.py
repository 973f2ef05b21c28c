"""Stores in memory and in SQLite against a model: the same operations in any order have the same results."""

import pytest

from conformance.store_model import MODEL_SECONDS, check_store


@pytest.mark.timeout(MODEL_SECONDS)
@pytest.mark.parametrize("kind", ["in_memory", "sqlite"])
def test_a_store_matches_the_model(kind: str) -> None:
    check_store(kind)
