"""Environment variables of other programs."""

from __future__ import annotations

import os


def read_variable(name: str) -> str:
    """Return an environment variable without spaces around it, or an empty string."""
    return os.environ.get(name, "").strip()
