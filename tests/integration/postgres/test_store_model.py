"""Postgres against a model: the same operations in any order have the same results."""

import pytest

from conformance.store_model import MODEL_SECONDS, check_store


@pytest.mark.timeout(MODEL_SECONDS)
def test_postgres_matches_the_model() -> None:
    check_store("postgres")
