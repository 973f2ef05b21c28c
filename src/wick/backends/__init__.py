"""Backends: files and commands on this machine, in a container, or files in the thread itself.

A name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick._internal.familiar_words import BACKEND_NAMES
from wick._internal.lazy_names import lazy_names

if TYPE_CHECKING:
    from wick.backends.docker import Docker
    from wick.backends.local import Local
    from wick.backends.state import State

__all__ = ["Docker", "Local", "State"]

_MODULES = {"Docker": "docker", "Local": "local", "State": "state"}

if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__, __dir__ = lazy_names(__name__, _MODULES, BACKEND_NAMES)
