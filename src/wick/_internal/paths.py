"""The default data folder for threads, the server's token and its settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def default_data_folder() -> Path:
    """Return the default data folder: `$XDG_DATA_HOME/wick`, or `~/.local/share/wick`."""
    root = os.environ.get("XDG_DATA_HOME", "")
    return (Path(root) if root.startswith("/") else Path.home() / ".local" / "share") / "wick"


def data_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the data folder: WICK_DATA if it is set, or else the default."""
    named = (os.environ if environment is None else environment).get("WICK_DATA", "")
    return Path(named) if named else default_data_folder()
