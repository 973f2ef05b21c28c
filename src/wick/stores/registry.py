"""Stores by address: `memory`, `postgresql://…`, the scheme of a plugin, or the folder of a SQLite file."""

from __future__ import annotations

import re
from pathlib import Path

from wick._internal.plugins import Plugin, find_plugin, find_plugins
from wick.errors import ConfigError
from wick.protocols import Store

MEMORY = "memory"
POSTGRES = ("postgres", "postgresql")
FILE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def create_store(address: str) -> Store:
    """Return the store of a name or an address: `memory`, the address of a database, or a folder."""
    if address == MEMORY:
        from wick.stores.in_memory import InMemory

        return InMemory()
    return open_folder_or_address(address)


def open_folder_or_address(address: str | Path) -> Store:
    """Return the store at the address of a database, or in a SQLite file of a folder."""
    check_slashes(str(address))
    scheme = find_scheme(str(address))
    if scheme in POSTGRES:
        from wick.stores.postgres import Postgres

        return Postgres(str(address))
    if scheme:
        return open_plugin_store(str(address))
    from wick.stores.sqlite import Sqlite

    folder = Path(address)
    if folder.suffix in FILE_SUFFIXES and not folder.is_dir():
        raise ConfigError(
            f"{address} is the name of a file; give a folder, such as './data', in which threads.db is created, "
            f"or the store Sqlite({str(address)!r}), from wick.stores"
        )
    return Sqlite(folder / "threads.db")


def find_scheme(address: str) -> str:
    """Return the scheme of an address, or an empty text."""
    found = _SCHEME.match(address)
    return found[1].lower() if found else ""


def check_slashes(address: str) -> None:
    """Raise a ConfigError for a known scheme without `//`, which would be the path of a folder."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):(?!//)", address)
    scheme = found[1].lower() if found else ""
    if scheme and (scheme in POSTGRES or find_plugin("wick.stores", scheme) is not None):
        raise ConfigError(f"the address {scheme}:… of a store has no // after the colon; write {scheme}://…")


def find_store_plugin(address: str) -> Plugin:
    """Return the plugin for the scheme of an address; raise a ConfigError for an unknown scheme."""
    scheme = find_scheme(address)
    if (plugin := find_plugin("wick.stores", scheme)) is not None:
        return plugin
    known = [*(name for name in POSTGRES), *(plugin.name for plugin in find_plugins("wick.stores"))]
    folder = "; SQLite is the path of a folder, such as './data'" if scheme.startswith("sqlite") else ""
    raise ConfigError(f"there is no store for {scheme}://; the schemes are {', '.join(known)}{folder}")


def open_plugin_store(address: str) -> Store:
    """Return the store of a plugin: its factory gets the whole address."""
    plugin = find_store_plugin(address)
    try:
        store = plugin.load()(address)
    except TypeError as error:
        raise plugin.build_error(f"cannot be opened: {error}") from error
    if not isinstance(store, Store):
        raise plugin.build_error(f"is not a store: {type(store).__name__} does not have all methods of a Store")
    return store
