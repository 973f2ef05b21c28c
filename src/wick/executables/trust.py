"""Which files may run: a hash for each, in a file that only its owner reads.

    trust = Trust()                          ~/.wick/trust.json
    trust.standing(path)                     "trusted", "untrusted", or "changed" since it was trusted
    trust.trust([path])
    trust.forget([path])

What a program hooks is kept here, too: one that cannot say it any more still stands where it stood.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wick import caps
from wick.errors import ConfigError
from wick.executables.found import Standing
from wick.frozen import digest

Path_ = str | os.PathLike[str]
Row = dict[str, Any]

DEFAULT = "~/.wick/trust.json"
VERSION = 1


class Trust:
    """What the user has trusted."""

    def __init__(self, path: Path_ = DEFAULT) -> None:
        self.path = Path(os.path.expanduser(path))

    def standing(self, path: Path_) -> Standing:
        """Whether a file, as it is now, is what was trusted."""
        known = self._rows().get(_key(path), {}).get("hash")
        if not known:
            return "untrusted"
        return "trusted" if hashed(path) == known else "changed"

    def trusted(self, path: Path_, content: bytes | None = None) -> bool:
        """The same as yes or no; `content` is what was read of it, where somebody has already."""
        known = self._rows().get(_key(path), {}).get("hash")
        return bool(known) and (hashed(path) if content is None else digest(content)) == known

    def trust(self, files: Iterable[Path_]) -> list[Path]:
        """Trust files as they are now; gives those that were not trusted before."""
        with self._changing() as rows:
            new = []
            for path in map(_key, files):
                there = hashed(path)
                if not there:
                    raise ConfigError(f"{path} cannot be read, so it cannot be trusted")
                if rows.get(path, {}).get("hash") != there:
                    new.append(Path(path))
                rows[path] = {**rows.get(path, {}), "hash": there}
            return new

    def forget(self, files: Iterable[Path_]) -> list[Path]:
        """Trust files no more; gives those that were trusted."""
        with self._changing() as rows:
            return [Path(path) for path in map(_key, files) if rows.pop(path, {}).get("hash")]

    def files(self) -> dict[Path, str]:
        """Every file that was trusted, with its hash."""
        return {Path(path): row["hash"] for path, row in self._rows().items() if row.get("hash")}

    def hash_of(self, path: Path_) -> str:
        """The hash that a file was trusted with."""
        return str(self._rows().get(_key(path), {}).get("hash", ""))

    def type_of(self, path: Path_) -> Row | None:
        """What a program said last that it hooks."""
        known = self._rows().get(_key(path), {}).get("type")
        return known if isinstance(known, dict) else None

    def learn(self, types: Mapping[Path_, Row]) -> None:
        """Remember what programs hook; written only where that is new."""
        rows = self._rows()
        new = {_key(path): row for path, row in types.items() if rows.get(_key(path), {}).get("type") != row}
        if not new:
            return
        with self._changing() as rows:
            for path, row in new.items():
                rows[path] = {**rows.get(path, {}), "type": row}

    # -- the file ---------------------------------------------------------------------------------------------------

    def _rows(self) -> dict[str, Row]:
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(f"{self.path}, which says what is trusted, cannot be read: {error.strerror}") from None
        try:
            if len(text) > caps.TRUST_BYTES:
                raise ValueError("it is too long")
            return _read(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{self.path}, which says what is trusted, is damaged: {error}; remove it") from None

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Row]]:
        """Read, let somebody change, and write, while nobody else does."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(f"{self.path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            rows = self._rows()
            yield rows
            self._write(rows)
        finally:
            os.close(lock)

    def _write(self, rows: dict[str, Row]) -> None:
        text = json.dumps({"version": VERSION, "files": rows}, indent=1, sort_keys=True)
        new = f"{self.path}.new"
        descriptor = os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.path)


def _read(data: Any) -> dict[str, Row]:
    files = data.get("files") if isinstance(data, dict) else None
    if not isinstance(files, dict) or data.get("version") != VERSION:
        raise ValueError(f"it is none of version {VERSION}")
    if not all(isinstance(row, dict) for row in files.values()):
        raise ValueError("it has a file without a row")
    return files


def _key(path: Path_) -> str:
    """A file by its folder's real path and its own name: a link is trusted by what it leads to, under its own name."""
    folder, name = os.path.split(os.path.expanduser(path))
    return os.path.join(os.path.realpath(folder), name)


def hashed(path: Path_) -> str:
    """The hash of a file's content; nothing where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_size > caps.HOOK_FILE_BYTES:
        os.close(descriptor)
        return ""
    with os.fdopen(descriptor, "rb") as file:
        return digest(file.read())


def checking(path: Path_, known: str = "") -> Callable[[], str]:
    """What is wrong with a program's file now, asked before each call; with `known` it must still have that hash.

    A file is read again only when its place, size or times have changed.
    """
    seen: list[tuple[int, ...]] = []

    def check() -> str:
        try:
            about = os.stat(path)
        except OSError:
            return "stands no longer where it was"
        if not stat.S_ISREG(about.st_mode) or not os.access(path, os.X_OK):
            return "is not executable any more"
        now = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
        if known and now not in seen:
            if hashed(path) != known:
                return "was changed after it was trusted"
            seen[:] = [now]
        return ""

    return check
