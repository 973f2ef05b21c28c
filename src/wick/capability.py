"""Capabilities: classes that group related hooks and tools."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TypeVar

from wick.hooks import Hook
from wick.operations import Run
from wick.tools import Tool

T = TypeVar("T", Hook, Tool)


class Capability:
    """Base class of capabilities: hooks and tools that belong together.

    Subclass it and decorate methods with `@before`, `@wrap`, `@after`, `@guard` and `@tool`. Pass an instance to an
    agent. Several runs share it, so do not change it after construction: store state of one run in
    `run.scratch[self]`, and persistent state in `run.thread.values`.
    """

    name: str = "capability"

    def __init_subclass__(cls) -> None:
        if "name" not in vars(cls):
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    def hooks(self) -> list[Hook]:
        """Return its hooks as bound methods."""
        return _find_decorated(self, Hook)

    def tools(self) -> list[Tool]:
        """Return its tools as bound methods."""
        return _find_decorated(self, Tool)

    def foreign_tools(self) -> Iterable[str]:
        """Return names or patterns of tools that it adds at run time, or that its subagents have.

        A guard may match them, although the agent does not have them at construction.
        """
        return ()

    def session(self, run: Run) -> AbstractAsyncContextManager[None]:
        """Return a context manager for a run, from before its start until its end is logged. It may open the thread."""
        return nullcontext()


def _find_decorated(capability: Capability, kind: type[T]) -> list[T]:
    """Return the decorated members of its class and base classes, in source order. Overrides replace them in place."""
    names = [
        name
        for cls in reversed(type(capability).__mro__)
        for name, value in vars(cls).items()
        if isinstance(value, kind)
    ]
    found = [getattr(capability, name) for name in dict.fromkeys(names)]
    return [item for item in found if isinstance(item, kind)]
