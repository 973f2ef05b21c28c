"""Plugins: models, tools, hooks, backends, stores and commands that installed packages provide by entry points.

Packages are searched when a name is not one of wick's own, or when plugins are listed. Their modules are imported when
a name is used. A name of wick is never looked up here, so a plugin cannot replace it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, distributions
from typing import Any

from wick._internal.import_path import load_module
from wick.errors import ConfigError

logger = logging.getLogger(__name__)

KINDS = {  # group of entry points: what its objects are
    "wick.models": "model provider",
    "wick.tools": "tool",
    "wick.hooks": "hook",
    "wick.backends": "backend",
    "wick.stores": "store",
    "wick.commands": "command",
}


@dataclass(frozen=True, slots=True)
class Plugin:
    """An object of an installed package: its group, its name and its distribution."""

    entry: EntryPoint
    distribution: str

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def kind(self) -> str:
        return KINDS[self.entry.group]

    def load(self) -> Any:
        """Import and return the object; raise a ConfigError that names the distribution if this fails."""
        try:
            return load_module(self.entry.load)
        except (Exception, SystemExit) as error:  # importing a module may raise anything
            raise self.build_error(f"cannot be loaded: {type(error).__name__}: {error}") from error

    def build_error(self, problem: str) -> ConfigError:
        """Return an error about this plugin, with its distribution and a remedy."""
        source = f"{self.entry.value} of the package {self.distribution}"
        return ConfigError(f"the {self.kind} {self.name!r} ({source}) {problem}; update or uninstall that package")


def find_plugins(group: str) -> tuple[Plugin, ...]:
    """Return the plugins of a group, sorted by name. A package with broken metadata has none."""
    seen, found = set[str](), dict[tuple[str, str], Plugin]()
    for distribution in distributions():
        try:
            # A name from the path if possible: to parse the metadata of all packages is slow.
            key = getattr(distribution, "_normalized_name", None) or distribution.metadata["Name"]
            entries = [] if key in seen else [one for one in distribution.entry_points if one.group == group]
            seen.add(key)  # the first one on the path is active
            for entry in entries:
                plugin = Plugin(entry, f"{distribution.metadata['Name']} {distribution.version}")
                found[plugin.name, plugin.distribution] = plugin
        except Exception as error:  # the metadata of one package must not break the others
            _report_broken(str(getattr(distribution, "_path", "a package")), f"{type(error).__name__}: {error}")
    return tuple(found[key] for key in sorted(found))


@cache  # one warning per package
def _report_broken(path: str, reason: str) -> None:
    logger.warning("the plugins of %s are not used: its metadata cannot be read (%s); reinstall it", path, reason)


def find_plugin(group: str, name: str) -> Plugin | None:
    """Return the plugin of a name; raise a ConfigError if several packages provide it."""
    found = [plugin for plugin in find_plugins(group) if plugin.name == name]
    if len(found) > 1:
        packages = " and ".join(plugin.distribution for plugin in found)
        raise ConfigError(f"the {KINDS[group]} {name!r} is in the packages {packages}; uninstall one of them")
    return found[0] if found else None
