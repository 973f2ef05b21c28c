"""Trusted files: a hash for each, in a file that only its owner can read.

    trust = Trust()                          ~/.wick/trust.json
    trust.trust_state(path)                  "trusted", "untrusted", or "changed" since it was trusted
    trust.trust([path])
    trust.forget([path])

The last known type of each program is stored here, too, so that a broken program keeps its hook points.

Trust is per file: a new or changed program does not run, while its neighbours do. A file that a neighbour could load
is different. A module or a library runs inside of its loader, and Python searches the folder of a program first. Such
a file revokes the trust of all programs in its folder. `is_independent` distinguishes the two cases.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import shlex
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from wick import constants
from wick._internal.frozen import digest
from wick.errors import ConfigError
from wick.hook_programs.registry import TrustState

Path_ = str | os.PathLike[str]
Row = dict[str, Any]

logger = logging.getLogger(__name__)

DEFAULT = "~/.wick/trust.json"
VERSION = 1
LOCK_SECONDS = 10.0  # time to wait for the lock of another process
SETTLED_SECONDS = 0.1  # a file changed more recently may change again within the resolution of its timestamps
MODULES = (".py", ".pyc", ".pyo", ".so")  # files that Python loads from the folder of a program
CUSTOMIZE = ("sitecustomize", "usercustomize", "__main__", "__init__")
NO_CODE = (".csv", ".db", ".disable", ".DS_Store", ".json", ".jsonl", ".lock", ".log", ".md", ".sqlite", ".tmp", ".txt")

NOT_TRUSTED = "is not trusted"
CHANGED = "was changed after it was trusted"


class Trust:
    """The trust file of the user. It is empty if the home folder is unknown."""

    def __init__(self, path: Path_ = DEFAULT) -> None:
        self.path = expand_home(path)

    def trust_state(self, path: Path_) -> TrustState:
        """Return the trust state of a file by its present content."""
        known = self._rows().get(_file_key(path), {}).get("hash")
        if not known:
            return "untrusted"
        return "trusted" if hash_file(path) == known else "changed"

    def is_trusted(self, path: Path_, content: bytes | None = None) -> bool:
        """Return True if a file is trusted. `content` is its content, if it was read already."""
        known = self._rows().get(_file_key(path), {}).get("hash")
        return bool(known) and (hash_file(path) if content is None else digest(content)) == known

    def trust(self, files: Iterable[Path_]) -> list[Path]:
        """Trust files with their present content; return those that were not trusted before."""
        with self._update_rows() as rows:
            new = []
            for path in map(_file_key, files):
                there = hash_file(path)
                if not there:
                    raise ConfigError(f"{path} cannot be read, so it cannot be trusted")
                if rows.get(path, {}).get("hash") != there:
                    new.append(Path(path))
                rows[path] = {**rows.get(path, {}), "hash": there}
            return new

    def forget(self, files: Iterable[Path_]) -> list[Path]:
        """Revoke the trust of files; return those that were trusted."""
        with self._update_rows() as rows:
            return [Path(path) for path in map(_file_key, files) if rows.pop(path, {}).get("hash")]

    def files(self) -> dict[Path, str]:
        """Return every trusted file with its hash."""
        return {Path(path): row["hash"] for path, row in self._rows().items() if row.get("hash")}

    def hash_of(self, path: Path_) -> str:
        """Return the trusted hash of a file, or an empty text."""
        return str(self._rows().get(_file_key(path), {}).get("hash", ""))

    def last_type(self, path: Path_) -> Row | None:
        """Return the last known type of a program."""
        known = self._rows().get(_file_key(path), {}).get("type")
        return known if isinstance(known, dict) else None

    def record_types(self, types: Mapping[Path_, Row]) -> None:
        """Store the types of programs. Write only changes, and log a file that cannot be written."""
        rows = self._rows()
        new = {_file_key(path): row for path, row in types.items() if rows.get(_file_key(path), {}).get("type") != row}
        if not new:
            return
        try:
            with self._update_rows() as rows:
                for path in [path for path in rows if "hash" not in rows[path] and not os.path.exists(path)]:
                    del rows[path]  # else rows of deleted programs would accumulate
                for path, row in new.items():
                    rows[path] = {**rows.get(path, {}), "type": row}
        except (OSError, ConfigError) as error:
            logger.warning("the types of hook programs cannot be stored: %s", error)

    # -- the file ---------------------------------------------------------------------------------------------------

    def _rows(self) -> dict[str, Row]:
        if self.path is None:
            return {}
        try:
            with self.path.open("rb") as file:
                about, text = os.fstat(file.fileno()), file.read(constants.TRUST_BYTES + 1)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(f"{self.path}, the list of trusted programs, cannot be read: {error.strerror}") from None
        if about.st_uid not in (0, os.geteuid()) or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigError(
                f"{self.path}, the list of trusted programs, can be written by others; look at it, and make it yours "
                "alone: chmod 600"
            )
        try:
            if len(text) > constants.TRUST_BYTES:
                raise ValueError("it is too long")
            data = json.loads(text)
            files = data.get("files") if isinstance(data, dict) else None
            if not isinstance(files, dict) or data.get("version") != VERSION:
                raise ValueError(f"it is not of version {VERSION}")
            if not all(isinstance(row, dict) for row in files.values()):
                raise ValueError("it has a file without a row")
            return files
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{self.path}, the list of trusted programs, is damaged: {error}; remove it") from None

    @contextmanager
    def _update_rows(self) -> Iterator[dict[str, Row]]:
        """Read the rows under the lock, yield them for changes, and write them."""
        if self.path is None:
            raise ConfigError("nothing can be trusted without a home folder; set HOME to an absolute path")
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(f"{self.path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            _lock_file(lock, self.path)
            rows = self._rows()
            yield rows
            text = json.dumps({"version": VERSION, "files": rows}, indent=1, sort_keys=True)
            new = f"{self.path}.new"
            flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            with os.fdopen(os.open(new, flags, 0o600), "w") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, self.path)
        finally:
            os.close(lock)


def _lock_file(lock: int, path: Path) -> None:
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise ConfigError(f"another process has locked {path} for {LOCK_SECONDS:g} s; try again") from None
            time.sleep(0.01)


def _file_key(path: Path_) -> str:
    """Return the real path of the folder with the name of the file, so that a link keeps its own name."""
    folder, name = os.path.split(os.path.expanduser(path))
    return os.path.join(os.path.realpath(folder), name)


def hash_file(path: Path_) -> str:
    """Return the hash of a file's content, or an empty text if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_size > constants.HOOK_FILE_BYTES:
        os.close(descriptor)
        return ""
    with os.fdopen(descriptor, "rb") as file:
        return digest(file.read())


def expand_home(path: Path_) -> Path | None:
    """Expand a leading `~`; return None if the home folder is unknown.

    An unexpanded `~` would be a folder of that name, which a workspace may contain.
    """
    whole = os.path.expanduser(path)
    return Path(whole) if os.path.isabs(whole) or not os.fspath(path).startswith("~") else None


def list_code_files(folder: Path_) -> list[Path]:
    """Return every file below a folder that may be code, without data files and disabled programs."""
    files: list[Path] = []
    folders, seen = [os.fspath(folder)], set[str]()
    while folders:
        above = folders.pop()
        if (real := os.path.realpath(above)) in seen:
            continue
        seen.add(real)
        try:
            entries = [*os.scandir(above)]
        except OSError:
            entries = []
        for entry in entries:
            if entry.is_dir():
                folders.append(entry.path)
            elif entry.is_file() and (entry.name == "package.json" or not entry.name.endswith(NO_CODE)):
                files.append(Path(entry.path))
        if len(files) > constants.HOOK_FILES or len(seen) > constants.HOOK_FILES:
            raise ConfigError(
                f"{folder} has more than {constants.HOOK_FILES} files; give a directory of hook programs only"
            )
    return sorted(files)


def watch_hash(path: Path_, known: str) -> Callable[[], bool]:
    """Return a check for this hash, which reads the file again only if its inode, size or times changed."""
    seen: list[tuple[int, ...]] = []

    def same() -> bool:
        try:
            about = os.stat(path)
        except OSError:
            return False
        now = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
        if now in seen:
            return True
        if not known or hash_file(path) != known:
            return False
        if time.time() - about.st_ctime > SETTLED_SECONDS:
            seen[:] = [now]
        return True

    return same


def make_check(path: Path_, known: str = "", folder: Callable[[], str] = lambda: "") -> Callable[[], str]:
    """Return a check of a program's file, for use before each call. With `known` the file must have that hash.

    `folder` is the check of the files beside it.
    """
    same = watch_hash(path, known)

    def check() -> str:
        try:
            about = os.stat(path)
        except OSError:
            return "no longer exists"
        if not stat.S_ISREG(about.st_mode) or not os.access(path, os.X_OK):
            return "is not executable any more"
        if known and not same():
            return CHANGED
        return folder()

    return check


def is_independent(path: Path, folder: Path_, trusted: Iterable[Path]) -> bool:
    """Return True if a file of a folder of programs is a program that no trusted neighbour loads.

    It has to be executable and in the folder itself, no neighbour may name it, and it may not have the name of a module
    that Python would find elsewhere: a new json.py would be loaded in place of the standard library's.
    """
    if path.parent != Path(folder) or not os.access(path, os.X_OK) or path.name == "package.json":
        return False
    module = path.name.partition(".")[0]
    if path.suffix in MODULES and module.isidentifier() and _is_module(module):
        return False
    # The ways in which a program names a file that it loads. They rather match too much.
    whole, stem = re.escape(path.name), re.escape(module)
    quoted = rf"(?:[/\"'`]|(?:^|[\s;&|])(?:source|\.)\s+)(?:{whole}|{stem})(?![\w-])"
    imported = rf"\bimport\b.*\b{stem}\b|\bfrom\s+\.*{stem}\b"
    bare = rf"|(?<![\w.-]){whole}(?![\w-])" if path.name != module else ""
    mention = re.compile(f"{quoted}|{imported}{bare}", re.MULTILINE)
    return not any(mention.search(_read_text(other)) for other in trusted if other != path)


def _is_module(name: str) -> bool:
    if name in sys.stdlib_module_names or name in CUSTOMIZE:
        return True
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return True


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(constants.HOOK_FILE_BYTES).decode(errors="replace")
    except OSError:
        return ""


def make_folder_check(folder: Path_, known: Mapping[Path, str]) -> Callable[[], str]:
    """Return a check of the files beside a program, which gives the rest of a sentence; `known` has their hashes."""
    watched: dict[Path, Callable[[], bool]] = {}
    apart: dict[Path, bool] = {}  # cached, as the content of trusted files does not change

    def check() -> str:
        try:
            there = list_code_files(folder)
        except ConfigError as error:
            return f"cannot be trusted: {error}"
        for path in there:
            hash = known.get(Path(_file_key(path)), "")
            if watched.setdefault(path, watch_hash(path, hash))():
                continue
            if path not in apart:
                apart[path] = is_independent(
                    path, folder, [other for other in there if Path(_file_key(other)) in known]
                )
            if not apart[path] or not os.access(path, os.X_OK):
                return f"is beside {os.path.relpath(path, folder)}, which {CHANGED if hash else NOT_TRUSTED}"
        return ""

    return check


def format_trust_command(folder: Path, *options: str) -> str:
    """Return the command that changes the trust of a folder's hook programs and settings."""
    place = ("--folder", str(folder)) if folder.resolve() != Path.cwd() else ()
    return shlex.join(["wick", "hooks", "trust", *options, *place])
