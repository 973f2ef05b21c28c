"""What an agent can do beyond talking: a capability is hooks and tools that belong together."""

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
    """Subclass it, decorate methods with `@before`, `@wrap`, `@after`, `@guard` and `@tool`, and give it to an agent.

    A capability is not written to after construction: several runs share it. What it keeps for one
    run goes into `run.scratch[self]`, what it keeps for good into `run.thread.values`.
    """

    name: str = "capability"

    def __init_subclass__(cls) -> None:
        if "name" not in vars(cls):
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    def hooks(self) -> list[Hook]:
        """Its hooks, bound to it."""
        return _find_decorated(self, Hook)

    def tools(self) -> list[Tool]:
        """Its tools, bound to it."""
        return _find_decorated(self, Tool)

    def foreign_tools(self) -> Iterable[str]:
        """Names, or patterns, of tools that it brings at run time or that its subagents have.

        A guard may name them although the agent does not have them when it is made.
        """
        return ()

    def session(self, run: Run) -> AbstractAsyncContextManager[None]:
        """Stands around a run from before it begins until its end is written, for what opens the run's thread."""
        return nullcontext()


def _find_decorated(capability: Capability, kind: type[T]) -> list[T]:
    """What its class and those above it decorated, in the order of the source; an override takes its place."""
    names = [
        name
        for cls in reversed(type(capability).__mro__)
        for name, value in vars(cls).items()
        if isinstance(value, kind)
    ]
    found = [getattr(capability, name) for name in dict.fromkeys(names)]
    return [item for item in found if isinstance(item, kind)]
