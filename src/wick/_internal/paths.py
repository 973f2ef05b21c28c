"""The folder that everything is kept in where nobody names another: threads, the server's token, its settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def default_data_folder() -> Path:
    """Where data is kept if nobody says where."""
    root = os.environ.get("XDG_DATA_HOME", "")
    return (Path(root) if root.startswith("/") else Path.home() / ".local" / "share") / "wick"


def data_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where data is kept: in the folder that WICK_DATA names, or in the usual one."""
    named = (os.environ if environment is None else environment).get("WICK_DATA", "")
    return Path(named) if named else default_data_folder()
