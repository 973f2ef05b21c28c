"""Where Claude Code's settings come from, and whether they may be used.

    ~/.claude/settings.json              the user's own
    .claude/settings.json                of the folder, when they are trusted
    .claude/settings.local.json

What a command names counts with the settings that it stands in: a script of the folder runs only as it was trusted.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wick.errors import ConfigError
from wick.hook_programs.claude.handlers import PROJECT
from wick.hook_programs.claude.settings import EVENTS, Entry, Settings, from_bytes, merge, parse, read
from wick.hook_programs.failure_policy import DECIDING
from wick.hook_programs.trust import Trust, at_home, is_apart, parts, watching

logger = logging.getLogger(__name__)

FOLDERS = (".claude", ".wick")
SCRIPTS = (".sh", ".bash", ".zsh", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".go")
CHANGED = "was changed after it was trusted; look at it, and trust it again with `wick hooks trust`"
GONE = "was trusted and is gone; if that is meant, forget it with `wick hooks trust --forget`"
UNTRUSTED = "names a file of this folder that is not trusted; look at it, and trust it with `wick hooks trust`"


def load(
    folder: str | Path, trust: Trust, *, home: str | Path = "~/.claude", paths: Sequence[str | Path] = ()
) -> Settings:
    """The settings of the user and of a folder, or of the files that somebody names; these are trusted by that."""
    if paths:
        return merge(*(_named(Path(folder) / os.path.expanduser(path)) for path in paths))
    where = at_home(home)
    own = Settings() if where is None else read(where / "settings.json")
    own = replace(own, entries=tuple(_watched(entry, [], Path(folder), trust) for entry in own.entries))
    return merge(own, *(_of_folder(path, Path(folder), trust) for path in _usual(folder)))


def gathered(
    folder: str | Path,
    trust: Trust,
    *,
    hooks: Any = None,
    claude: bool | str | Path | Sequence[str | Path] = False,
    home: str | Path = "~/.claude",
) -> Settings:
    """The settings in wick's own config, and with `claude` those of files: the usual ones, or these."""
    own = parse(hooks) if hooks else Settings()
    if not claude:
        return own
    paths = () if claude is True else [claude] if isinstance(claude, str | Path) else claude
    return merge(load(folder, trust, home=home, paths=paths), own)


def settings_files(folder: str | Path) -> list[Path]:
    """The settings that a folder has."""
    return [path for path in _usual(folder) if path.is_file()]


def _usual(folder: str | Path) -> list[Path]:
    return [Path(folder) / ".claude" / name for name in ("settings.json", "settings.local.json")]


def trustable(folder: str | Path) -> list[Path]:
    """The settings of a folder, and the files of it that their commands name: what is to be trusted together."""
    found: list[Path] = []
    for path in settings_files(folder):
        found.append(path)
        for entry in read(path).entries:
            found += named_files(entry, Path(folder))
    return list(dict.fromkeys(found))


def _named(path: Path) -> Settings:
    if not path.is_file():
        raise ConfigError(f"there are no settings at {path}")
    return read(path)


def _of_folder(path: Path, folder: Path, trust: Trust) -> Settings:
    """What a folder's settings stand for: nothing while they are not trusted, and no agreement once they changed."""
    standing = trust.standing(path)
    if standing == "untrusted":
        return _untrusted(path)
    if not path.is_file():
        return _denying(path, trust, GONE)
    content = path.read_bytes()
    if not trust.trusted(path, content):
        return _denying(path, trust, CHANGED)
    settings = from_bytes(content, str(path))
    trust.learn({path: {"events": sorted({entry.event for entry in settings.entries})}})
    return replace(settings, entries=tuple(_watched(entry, [path], folder, trust) for entry in settings.entries))


def _untrusted(path: Path) -> Settings:
    """Settings that nobody has trusted: they are listed, and nothing that is wrong with them matters."""
    try:
        return Settings(tuple(replace(entry, trust="untrusted") for entry in read(path).entries))
    except ConfigError as error:
        logger.warning("%s; they are not trusted, and not used", error)
        return Settings()


def _denying(path: Path, trust: Trust, problem: str) -> Settings:
    """Settings that are not what was trusted: none of them is used, and what they decided is denied."""
    known = (trust.type_of(path) or {}).get("events")
    events = known if isinstance(known, list) else DECIDING
    return Settings(
        tuple(
            Entry(event, command=str(path), source=str(path), trust="changed", problem=problem)
            for event in EVENTS
            if event in events
        )
    )


def _watched(entry: Entry, files: Iterable[Path], folder: Path, trust: Trust) -> Entry:
    """A handler that is not called once its settings, or a file of the folder that it names, are not as trusted."""
    checks = [_unchanged(path, trust) for path in files]
    seen: dict[Path, Callable[[], str]] = {}

    def check() -> str:
        own, beside = _files_of(entry, folder)
        named = [seen.setdefault(path, _unchanged(path, trust)) for path in own]
        if problem := next((problem for look in (*checks, *named) if (problem := look())), ""):
            return problem
        trusted = [path for path in (*own, *beside) if trust.hash_of(path)]
        for path in beside:
            problem = seen.setdefault(path, _unchanged(path, trust))()
            if problem and not is_apart(path, path.parent, trusted):
                return problem
        return ""

    return replace(entry, check=check)


def _unchanged(path: Path, trust: Trust) -> Callable[[], str]:
    """What is wrong with a file now."""
    known = trust.hash_of(path)
    same = watching(path, known)

    def check() -> str:
        if not known:
            return UNTRUSTED
        if same():
            return ""
        return CHANGED if path.exists() else f"needs {path}, which stands no longer where it was"

    return check


def named_files(entry: Entry, folder: Path) -> list[Path]:
    """The files of a folder that a command names, if they are programs or scripts.

    In its own settings folders, all that lies beside them counts, too: one may be a part of another.
    """
    own, beside = _files_of(entry, folder)
    return list(dict.fromkeys((*own, *beside)))


def _files_of(entry: Entry, folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the files that a command names, and those that lie beside them in the folder of settings."""
    if entry.type != "command":
        return [], []
    base = Path(os.path.realpath(folder))
    own: list[Path] = []
    beside: list[Path] = []
    for word in (*_words(entry.command), *entry.args):
        for name in (f"${{{PROJECT}}}", f"${PROJECT}"):
            word = word.replace(name, str(base))
        named, others = _meant(base / os.path.expanduser(word), base)
        own, beside = [*own, *named], [*beside, *others]
    real = {os.path.realpath(path) for path in own}
    return [*dict.fromkeys(own)], [path for path in dict.fromkeys(beside) if os.path.realpath(path) not in real]


def _meant(path: Path, base: Path) -> tuple[list[Path], list[Path]]:
    try:
        real = Path(os.path.realpath(path))
        if base not in real.parents:
            return [], []
        if real.relative_to(base).parts[0] in FOLDERS:
            if real.is_dir():
                return parts(real), []  # a command that names a folder may run all that is in it
            return ([path] if real.is_file() else []), parts(real.parent)
        return ([path] if _is_script(real) else []), []
    except (OSError, ValueError):
        return [], []


def _is_script(path: Path) -> bool:
    return path.is_file() and (path.suffix in SCRIPTS or os.access(path, os.X_OK))


def _words(command: str) -> list[str]:
    """The words of a command, also of those inside of quotes, and of one that no shell would take."""
    inside = re.split(r"[\s\"'|;&<>()`=]+", command)
    try:
        words = shlex.shlex(command, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        return [*(part for word in words for part in (word, *word.split("="))), *inside]
    except ValueError:
        return inside
