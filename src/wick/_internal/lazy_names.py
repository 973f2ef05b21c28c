"""Packages whose names are imported on first use, and that answer a wrong name with the right import."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn

from wick._internal.familiar_words import PACKAGE_NAMES, SUBPACKAGE_NAMES


def lazy_names(
    package: str, modules: Mapping[str, str], words: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package: `modules` has the submodule of each of its names."""

    def find_name(name: str) -> Any:
        if name not in modules:
            _refuse_name(package, name, modules, (words, PACKAGE_NAMES))
        value = getattr(import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return find_name, lambda: sorted({*vars(sys.modules[package]), *modules})


def suggest_names(
    package: str, names: Iterable[str], words: Mapping[str, str], subpackages: Iterable[str]
) -> Callable[[str], NoReturn]:
    """Return the `__getattr__` of a package that has all of its names: it suggests an import for other names.

    A name without a sentence in `words`, and in none of the subpackages, may have the sentence of a subpackage.
    """

    def refuse_name(name: str) -> NoReturn:
        found = list[str]()
        for subpackage in subpackages if name[:1].isupper() and name not in words else ():
            module = import_module(f"{package}.{subpackage}")
            own = getattr(vars(module).get(name), "__module__", "")  # of a union of types, it is `types`
            if name in getattr(module, "__all__", ()) or own in (module.__name__, "types"):
                found.append(f"`from {package}.{subpackage} import {name}`")
        if found:
            raise ImportError(f"there is no {name} in {package}; write {' or '.join(found)}", name=package)
        _refuse_name(package, name, names, (words, *SUBPACKAGE_NAMES))

    return refuse_name


def _refuse_name(package: str, name: str, names: Iterable[str], tables: Iterable[Mapping[str, str]]) -> NoReturn:
    """Raise an ImportError with a suggestion, or an AttributeError without one.

    In `from package import name`, Python replaces the text of an AttributeError by its own.
    """
    hint = next((words[name] for words in tables if name in words), "")
    if not hint and name[:1].isupper():
        lower = {known.lower(): known for known in names}
        close = get_close_matches(name.lower(), lower, n=1, cutoff=0.75)
        hint = f"did you mean `from {package} import {lower[close[0]]}`?" if close else ""
    if hint:
        raise ImportError(f"there is no {name} in {package}; {hint}", name=package)
    raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
