"""Secrets in agent options: finding them, and refusing workspaces that expose the file with them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from wick.constants import SECRET_LOG_CHARS
from wick.errors import ConfigError

_OPTIONS = re.compile(
    r"(^|[_-])(api_?key|key|token|password|passwd|secret|authorization|cookie|dsn|credentials?)$", re.IGNORECASE
)


def find_secrets(options: Any, name: str = "") -> Iterator[str]:
    """Yield the values of options with secret names, at any depth, and credentials in URLs."""
    if isinstance(options, Mapping):
        for key, value in options.items():
            yield from find_secrets(value, str(key))
    elif isinstance(options, list | tuple):
        for number, value in enumerate(options):
            is_password = name == "cert" and number == 2  # of a client certificate: certificate, key, password
            yield from find_secrets(value, "password" if is_password else name)
    elif isinstance(options, str) and _OPTIONS.search(name):
        yield from {options.strip(), *options.split()[-1:]}  # also the token of `Bearer …`
    elif isinstance(options, str) and "://" in options:
        with suppress(ValueError):  # not a valid URL
            parts = urlsplit(options)
            if parts.password:
                yield from {parts.password, unquote(parts.password)}
            yield from (value for key, value in parse_qsl(parts.query) if _OPTIONS.search(key))


def check_exposure(path: Path, agents: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Raise a ConfigError if a workspace contains this file and the file contains a key that commands could read.

    A key from an environment variable is not in the file.
    """
    known = [*agents]
    own_paths = {path.absolute(), path.resolve()}
    exposed = [
        id
        for id, options in known
        for folder in _list_visible_folders(path, options)
        for root in (folder.resolve(), folder.absolute())
        if any(own_path.is_relative_to(root) for own_path in own_paths)
    ]
    if not exposed or not path.is_file():  # an agent of a request or a command line has no file
        return
    text = path.read_text(errors="replace")
    if any(
        len(secret) >= SECRET_LOG_CHARS and secret in text for _, options in known for secret in find_secrets(options)
    ):
        raise ConfigError(
            f"{path} holds a key and lies in the workspace of the agent {exposed[0]!r}, where commands can read it; "
            f'take the key from a variable, as in api_key: "${{NAME}}", or set `workdir` to another folder'
        )


def _list_visible_folders(path: Path, options: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the folders of this machine that an agent's commands can read, except system folders."""
    backend = options.get("backend")
    if not isinstance(backend, Mapping):
        return
    volumes = backend.get("volumes")
    named = [backend.get("workdir")] if backend.get("type") == "local" else []
    for folder in (*named, *(backend.get("readable") or ()), *(volumes if isinstance(volumes, Mapping) else ())):
        if isinstance(folder, str):
            yield path.absolute().parent / Path(folder).expanduser()
