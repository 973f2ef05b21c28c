"""The types of the server's responses; they are defined in `wick.api.types`, which the server uses, too."""

from __future__ import annotations

from wick.api.types import *  # noqa: F403
