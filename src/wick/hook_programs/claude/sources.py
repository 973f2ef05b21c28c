"""Settings files of Claude Code, and their trust.

    ~/.claude/settings.json              the user's own
    .claude/settings.json                of the folder, when they are trusted
    .claude/settings.local.json

Trust includes the files that commands name: a script of the folder runs only with its trusted content.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from wick.errors import ConfigError
from wick.hook_programs.claude.handlers import PROJECT
from wick.hook_programs.claude.settings import (
    EVENTS,
    HookHandler,
    HookSettings,
    merge_settings,
    parse_settings,
    parse_settings_bytes,
    read_settings,
)
from wick.hook_programs.failure_policy import DECIDING
from wick.hook_programs.trust import Trust, expand_home, is_independent, list_code_files, watch_hash

logger = logging.getLogger(__name__)

FOLDERS = (".claude", ".wick")
SCRIPTS = (".sh", ".bash", ".zsh", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".go")
CHANGED = "was changed after it was trusted; look at it, and trust it again with `wick hooks trust`"
GONE = "was trusted and is gone; if that is meant, forget it with `wick hooks trust --forget`"
UNTRUSTED = "names a file of this folder that is not trusted; look at it, and trust it with `wick hooks trust`"


def load_settings(
    folder: str | Path, trust: Trust, *, home: str | Path = "~/.claude", paths: Sequence[str | Path] = ()
) -> HookSettings:
    """Load the settings of the user and of a folder, or those of `paths`, which need no trust."""
    if paths:
        named: list[HookSettings] = []
        for path in paths:
            file = Path(folder) / os.path.expanduser(path)
            if not file.is_file():
                raise ConfigError(f"there are no settings at {file}")
            named.append(read_settings(file))
        return merge_settings(*named)
    where = expand_home(home)
    own = HookSettings() if where is None else read_settings(where / "settings.json")
    own = replace(own, entries=tuple(_watch_handler(entry, [], Path(folder), trust) for entry in own.entries))
    return merge_settings(
        own, *(_read_folder_settings(path, Path(folder), trust) for path in _settings_paths(folder, home))
    )


def gather_settings(
    folder: str | Path,
    trust: Trust,
    *,
    hooks: Any = None,
    claude: bool | str | Path | Sequence[str | Path] = False,
    home: str | Path = "~/.claude",
) -> HookSettings:
    """Load the settings of wick's own config; with `claude` also the default or the given files."""
    own = parse_settings(hooks) if hooks else HookSettings()
    if not claude:
        return own
    paths = () if claude is True else [claude] if isinstance(claude, str | Path) else claude
    return merge_settings(load_settings(folder, trust, home=home, paths=paths), own)


def settings_files(folder: str | Path) -> list[Path]:
    """Return the existing settings files of a folder."""
    return [path for path in _settings_paths(folder) if path.is_file()]


def _settings_paths(folder: str | Path, home: str | Path = "~/.claude") -> list[Path]:
    """Return the settings files of a folder. In the home folder, settings.json is the user's own."""
    own = expand_home(home)
    paths = [Path(folder) / ".claude" / name for name in ("settings.json", "settings.local.json")]
    return [path for path in paths if own is None or os.path.realpath(path) != os.path.realpath(own / "settings.json")]


def list_trustable(folder: str | Path) -> list[Path]:
    """Return the settings files of a folder, and the files of the folder that their commands name."""
    files: list[Path] = []
    for path in settings_files(folder):
        files.append(path)
        for entry in read_settings(path).entries:
            files += named_files(entry, Path(folder))
    return list(dict.fromkeys(files))


def _read_folder_settings(path: Path, folder: Path, trust: Trust) -> HookSettings:
    """Read the settings of a folder: inactive while untrusted, denying once they were changed."""
    if trust.trust_state(path) == "untrusted":
        try:  # they are only shown in lists, so an error in them is not fatal
            return HookSettings(tuple(replace(entry, trust="untrusted") for entry in read_settings(path).entries))
        except ConfigError as error:
            logger.warning("%s; they are not trusted, and not used", error)
            return HookSettings()
    if not path.is_file():
        return _deny_all(path, trust, GONE)
    content = path.read_bytes()
    if not trust.is_trusted(path, content):
        return _deny_all(path, trust, CHANGED)
    settings = parse_settings_bytes(content, str(path))
    trust.record_types({path: {"events": sorted({entry.event for entry in settings.entries})}})
    return replace(settings, entries=tuple(_watch_handler(entry, [path], folder, trust) for entry in settings.entries))


def _deny_all(path: Path, trust: Trust, problem: str) -> HookSettings:
    """Return failing handlers for changed settings, so that their events are denied."""
    known = (trust.last_type(path) or {}).get("events")
    events = known if isinstance(known, list) else DECIDING
    return HookSettings(
        tuple(
            HookHandler(event, command=str(path), source=str(path), trust="changed", problem=problem)
            for event in EVENTS
            if event in events
        )
    )


def _watch_handler(entry: HookHandler, files: Iterable[Path], folder: Path, trust: Trust) -> HookHandler:
    """Return the handler with a check of the trust of its settings and of the files that it names."""
    checks = [_make_check(path, trust) for path in files]
    seen: dict[Path, Callable[[], str]] = {}

    def check() -> str:
        own, beside = _split_files(entry, folder)
        named = [seen.setdefault(path, _make_check(path, trust)) for path in own]
        if problem := next((problem for look in (*checks, *named) if (problem := look())), ""):
            return problem
        trusted = [path for path in (*own, *beside) if trust.hash_of(path)]
        for path in beside:
            problem = seen.setdefault(path, _make_check(path, trust))()
            if problem and not is_independent(path, path.parent, trusted):
                return problem
        return ""

    return replace(entry, check=check)


def _make_check(path: Path, trust: Trust) -> Callable[[], str]:
    """Return a check of a trusted file."""
    known = trust.hash_of(path)
    same = watch_hash(path, known)

    def check() -> str:
        if not known:
            return UNTRUSTED
        if same():
            return ""
        return CHANGED if path.exists() else f"needs {path}, which no longer exists"

    return check


def named_files(entry: HookHandler, folder: Path) -> list[Path]:
    """Return the programs and scripts of a folder that a command names.

    In settings folders the files beside them are included, as one may load another.
    """
    own, beside = _split_files(entry, folder)
    return list(dict.fromkeys((*own, *beside)))


def _split_files(entry: HookHandler, folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the files that a command names, and the files beside them in a settings folder."""
    if entry.type != "command":
        return [], []
    base = Path(os.path.realpath(folder))
    own: list[Path] = []
    beside: list[Path] = []
    # The words of the command, including words in quotes and words of invalid commands.
    words = re.split(r"[\s\"'|;&<>()`=]+", entry.command)
    with suppress(ValueError):
        lexer = shlex.shlex(entry.command, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = [*(part for word in lexer for part in (word, *word.split("="))), *words]
    for word in (*words, *entry.args):
        for name in (f"${{{PROJECT}}}", f"${PROJECT}"):
            word = word.replace(name, str(base))
        named, others = _resolve_files(base / os.path.expanduser(word), base)
        own, beside = [*own, *named], [*beside, *others]
    real = {os.path.realpath(path) for path in own}
    return [*dict.fromkeys(own)], [path for path in dict.fromkeys(beside) if os.path.realpath(path) not in real]


def _resolve_files(path: Path, base: Path) -> tuple[list[Path], list[Path]]:
    try:
        real = Path(os.path.realpath(path))
        if base not in real.parents:
            return [], []
        if real.relative_to(base).parts[0] in FOLDERS:
            if real.is_dir():
                return list_code_files(real), []  # a command that names a folder may run any file in it
            return ([path] if real.is_file() else []), list_code_files(real.parent)
        is_script = real.is_file() and (real.suffix in SCRIPTS or os.access(real, os.X_OK))
        return ([path] if is_script else []), []
    except (OSError, ValueError):
        return [], []
