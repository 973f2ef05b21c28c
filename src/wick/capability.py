"""Capabilities: classes that group related hooks and tools."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TypeVar

from wick._internal.familiar_words import CAPABILITY_OPTIONS, explain_options
from wick.errors import ConfigError
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
        for reserved in _RESERVED:
            if reserved in vars(cls):
                _check_reserved(f"{cls.__name__}.{reserved}", reserved, vars(cls)[reserved])
        if "name" not in vars(cls):
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        if cls.__module__.startswith("wick.") and "__init__" in vars(cls):
            explain = explain_options(f"{cls.__name__}()", CAPABILITY_OPTIONS.get(cls.__name__, {}))
            cls.__init__ = explain(cls.__init__)  # type: ignore[method-assign]

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

    def instruction_paths(self) -> Iterable[str]:
        """Return the paths of files and folders whose text it adds to requests as instructions."""
        return ()

    def session(self, run: Run) -> AbstractAsyncContextManager[None]:
        """Return a context manager for a run, from before its start until its end is logged. It may open the thread."""
        return nullcontext()


_RESERVED = ("name", "hooks", "tools", "foreign_tools", "instruction_paths", "session")


def check_capability(capability: Capability) -> None:
    """Refuse attributes of an instance that replace a reserved one, as in `self.tools = […]`."""
    for reserved in _RESERVED:
        if reserved in getattr(capability, "__dict__", ()):
            _check_reserved(f"self.{reserved} of {type(capability).__name__}", reserved, vars(capability)[reserved])


def _check_reserved(where: str, reserved: str, value: object) -> None:
    """Refuse a hook, a tool or data in place of a reserved attribute."""
    if isinstance(value, Hook | Tool):
        kind = "a hook" if isinstance(value, Hook) else "a tool"
        raise ConfigError(f"{where} is {kind}, but {reserved!r} is reserved in a Capability; give it another name")
    if reserved == "name":
        if not isinstance(value, str | property) or not value:
            raise ConfigError(f"{where} is {value!r}, but 'name' is reserved for the name of a Capability, a text")
    elif not callable(value) and not isinstance(value, property | staticmethod | classmethod):
        raise ConfigError(
            f"{where} is {value!r}, but {reserved!r} is reserved for a method of Capability; "
            f"give the data another name, or override `def {reserved}(self)`"
        )


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
