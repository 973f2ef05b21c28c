"""What the tests of hook programs share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from programs import Programs


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Programs of which nothing is left in the end."""
    made = Programs(tmp_path)
    yield made
    assert made.left() == []
