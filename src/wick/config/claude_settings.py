"""The settings files of Claude Code as options and capabilities of an agent: permissions, hooks and environment.

    settings = ClaudeSettings.load("project")
    Agent(model, hooks=settings.capabilities())

The files are `~/.claude/settings.json` of the user, then `.claude/settings.json` and `.claude/settings.local.json` of
the project, which must be trusted, then the managed settings of the machine. Rules of all files count; of other values
the last one does.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from wick import constants
from wick.capabilities.executables import Executables
from wick.capabilities.permissions import Mode, Permissions
from wick.capability import Capability
from wick.errors import ConfigError
from wick.hook_programs.trust import DEFAULT, Trust, expand_home, format_trust_command
from wick.permissions.claude_rules import translate_rule
from wick.permissions.rules import RuleSpec, RuleType
from wick.protocols import Backend

logger = logging.getLogger(__name__)

USER_FILE = "~/.claude/settings.json"
PROJECT_FILES = (".claude/settings.json", ".claude/settings.local.json")
# The folder of the administrator's settings, which have precedence over all others.
MANAGED_FOLDER = {"darwin": "/Library/Application Support/ClaudeCode", "win32": "C:/Program Files/ClaudeCode"}.get(
    sys.platform, "/etc/claude-code"
)
BYPASS: Mode = "bypassPermissions"
# Tools that Claude Code does not ask about. The file tools reach only the workspace.
DEFAULT_ALLOWED_TOOLS = ("Read", "LS", "Glob", "Grep", "TodoWrite", "AskUserQuestion")

_RULE_TYPES: tuple[RuleType, ...] = ("deny", "ask", "allow")
_USED = ("permissions", "env", "hooks", "disableAllHooks", "$schema")
_PERMISSIONS = (*_RULE_TYPES, "defaultMode", "additionalDirectories", "disableBypassPermissionsMode", "disableAutoMode")


@dataclass(slots=True)
class ClaudeSettings:
    """The merged settings of Claude Code. `warnings` are sentences about parts that are not used.

    `paths` are files that the caller named, in place of the default ones. `directories` are the additional ones.
    """

    folder: Path
    trust: Trust
    paths: tuple[Path, ...] = ()
    rules: dict[RuleType, list[RuleSpec]] = field(default_factory=lambda: {type: [] for type in _RULE_TYPES})
    mode: Mode = "default"
    has_bypass: bool = True  # False: a file disables the mode bypassPermissions
    directories: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def load(
        cls,
        folder: str | Path = ".",
        *,
        paths: Sequence[str | Path] = (),
        trust: Trust | str | Path | None = None,
        allow_bypass: bool = False,
    ) -> ClaudeSettings:
        """Load the settings of the user and of a project folder, or those of `paths`, which need no trust.

        The managed settings of the machine are always added.

        The mode `bypassPermissions` is used only with `allow_bypass`. Raise ConfigError for settings that wick would
        apply less strictly than they are written, and for files that were changed after they were trusted.
        """
        root = Path(folder).absolute()
        store = trust if isinstance(trust, Trust) else Trust(trust or DEFAULT)
        named = tuple(root / os.path.expanduser(path) for path in paths)
        settings = cls(root, store, named)
        for path in named:
            if not path.is_file():
                raise ConfigError(f"there are no settings at {path}")
        files = [(path, _read_bytes(path)) for path in named] if named else settings._read_default_files()
        for path, data in files:
            settings._add_file(path, data)
        for path in list_managed_files():
            data = _read_bytes(path)
            given = _parse_object(path, data)
            for key in ("hooks", "allowManagedHooksOnly", "allowManagedPermissionRulesOnly", "disableAllHooks"):
                if given.get(key):  # it restricts in a way that wick does not have
                    raise ConfigError(
                        f"wick does not apply {key} of the managed settings {path}; ask your administrator"
                    )
            settings._add_file(path, data)
        if settings.mode == BYPASS and not (allow_bypass and settings.has_bypass):
            settings.mode = "default"
            how = "allow it with allow_bypass" if settings.has_bypass else "disableBypassPermissionsMode is set"
            settings._warn(f"the mode {BYPASS} of the settings is not used; {how}")
        return settings

    def capabilities(self, backend: Backend | None = None) -> list[Capability]:
        """Return the hook programs and the permissions for an agent with this backend."""
        programs = Executables(cwd=self.folder, trust=self.trust, env=self.env, claude=list(self.paths) or True)
        return [programs, Permissions(**self._permissions(), backend=backend)]

    def apply_to(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of an agent of `agents.yaml` with these settings. Its own options have precedence."""
        changed, own = dict(options), options.get("permissions")
        changed["permissions"] = _merge(self._permissions(), own if isinstance(own, Mapping) else {})
        if options.get("executables") is not False:
            programs = options.get("executables")
            programs = {"folder": str(self.folder)} if programs is True else programs if programs is not None else {}
            claude = [str(path) for path in self.paths] or True
            ours = {"claude": claude, "env": self.env, "cwd": str(self.folder)}
            changed["executables"] = _merge(ours, programs if isinstance(programs, Mapping) else {"dirs": programs})
        backend = options.get("backend", False)
        backend = {"type": backend} if isinstance(backend, str) else backend
        if isinstance(backend, Mapping) and backend.get("type") in ("local", "docker"):
            readable = {"readable": self.directories} if backend["type"] == "local" else {}
            changed["backend"] = _merge({"env": self.env, **readable}, backend)
        return changed

    def _permissions(self) -> dict[str, Any]:
        harmless = DEFAULT_ALLOWED_TOOLS if self.mode != "dontAsk" else ()
        deny, ask, allow = (self.rules[type] for type in _RULE_TYPES)
        rules = {"deny": deny, "ask": ask, "allow": [*harmless, *allow]}
        return {**rules, "mode": self.mode, "missing_tools": True}

    # -- files --

    def _read_default_files(self) -> Iterator[tuple[Path, bytes]]:
        """Yield the files of the user and the trusted ones of the project; raise ConfigError for a changed one."""
        user = expand_home(USER_FILE)
        if user is not None and user.is_file():
            yield user, _read_bytes(user)
        for path in (self.folder / name for name in PROJECT_FILES):
            trusting, forgetting = format_trust_command(self.folder), format_trust_command(self.folder, "--forget")
            if not self.trust.hash_of(path):
                if path.is_file():
                    self._warn(f"untrusted settings are not used: {path}; review them, then run: {trusting}")
                continue
            if not path.is_file():
                raise ConfigError(f"{path} was trusted and is gone; restore it, or run: {forgetting}")
            if not self.trust.is_trusted(path, data := _read_bytes(path)):
                raise ConfigError(f"{path} was changed after it was trusted; review it, then run: {trusting}")
            yield path, data

    def _add_file(self, path: Path, data: bytes) -> None:
        given = _parse_object(path, data)
        if unused := [str(key) for key in given if key not in _USED]:
            self._warn(f"wick does not use {', '.join(unused)} in {path}")
        self._add_permissions(_check_map(given.get("permissions"), f"permissions in {path}"), path)
        env = _check_map(given.get("env"), f"env in {path}")
        for name, value in env.items():
            if not isinstance(value, str):
                raise ConfigError(f"env in {path} is a mapping of strings, and {name} is {value!r}; write it in quotes")
        self.env |= env

    def _add_permissions(self, given: Mapping[str, Any], path: Path) -> None:
        for key in given:
            if key not in _PERMISSIONS:  # it may be a restriction
                raise ConfigError(f"wick does not know permissions.{key} in {path}; it knows {', '.join(_PERMISSIONS)}")
        for type in _RULE_TYPES:
            for rule in _check_list(given.get(type), f"permissions.{type} in {path}"):
                self._add_rule(type, rule, path)
        mode = given.get("defaultMode", self.mode)
        if mode not in (modes := get_args(Mode)):
            raise ConfigError(
                f"wick has no permission mode {mode!r}, the defaultMode in {path}; its modes are {', '.join(modes)}"
            )
        self.mode = mode
        self.has_bypass = self.has_bypass and "disableBypassPermissionsMode" not in given
        for name in _check_list(given.get("additionalDirectories"), f"permissions.additionalDirectories in {path}"):
            directory = self.folder / os.path.expanduser(str(name))
            if directory.is_dir():
                self.directories.append(str(directory))
            else:
                self._warn(f"the additional directory {name} in {path} does not exist")

    def _add_rule(self, type: RuleType, rule: Any, path: Path) -> None:
        try:
            translated = translate_rule(type, rule)
        except ConfigError as error:
            raise ConfigError(f"permissions.{type} in {path}: {error}") from None
        if translated.note:
            self._warn(f"permissions.{type} in {path}: {translated.note}")
        message = {"message": f"the permission rule {rule} denies this"} if type == "deny" else {}
        added: list[RuleSpec] = [{"rule": text, **message} for text in translated.rules]
        self.rules[type] += [spec for spec in added if spec not in self.rules[type]]

    def _warn(self, sentence: str) -> None:
        self.warnings.append(sentence)
        logger.warning("%s", sentence)


def list_managed_files() -> list[Path]:
    """Return the managed settings of this machine: the file, then those of the folder `managed-settings.d` by name."""
    folder = Path(MANAGED_FOLDER)
    paths = [folder / "managed-settings.json", *sorted((folder / "managed-settings.d").glob("*.json"))]
    return [path for path in paths if path.exists()]


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(constants.CONFIG_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"the settings {path} cannot be read: {error.strerror or error}") from None


def _parse_object(path: Path, data: bytes) -> dict[str, Any]:
    try:
        given = json.loads(data.decode()) if data.strip() else {}
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the settings {path} are not JSON: {error}") from None
    if len(data) > constants.CONFIG_BYTES or not isinstance(given, dict):
        raise ConfigError(f"the settings {path} are a JSON object of at most {constants.CONFIG_BYTES:,} bytes")
    return given


def _check_map(given: Any, where: str) -> dict[str, Any]:
    if given is not None and not isinstance(given, dict):
        raise ConfigError(f"{where} is a mapping, not {given!r}")
    return given or {}


def _check_list(given: Any, where: str) -> list[Any]:
    if given is not None and not isinstance(given, list):
        raise ConfigError(f"{where} is a list, also of one, not {given!r}")
    return given or []


def _merge(ours: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with those of an agent over the settings'. Lists are joined, and mappings are merged."""
    merged = {**ours, **own}
    for key in ours.keys() & own.keys():
        if isinstance(ours[key], Mapping) and isinstance(own[key], Mapping):
            merged[key] = {**ours[key], **own[key]}
        elif isinstance(ours[key], list) and isinstance(own[key], list | tuple):
            merged[key] = [*ours[key], *own[key]]
    return merged
