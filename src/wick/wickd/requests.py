"""Validation of requests to wickd, field by field."""

from __future__ import annotations

import binascii
import os
from base64 import b64decode
from functools import lru_cache
from math import isfinite
from typing import Any

from wick import constants
from wick.errors import BackendError
from wick.workspace.processes import LIMITS, clean_environment
from wick.workspace.results import Json

SHELL = "/bin/sh"
DAY = 86_400.0
_OWN = frozenset(("id", "op", "root", "protect", "timeout"))  # fields of a file operation that are no arguments


class Wanted:
    """One request; each method reads a field or says in a sentence what is wrong with it."""

    def __init__(self, request: Json) -> None:
        self._request = request

    def _field(self, name: str, kinds: Any, default: Any, what: str) -> Any:
        value = self._request.get(name)
        if value is None:
            return default
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            raise BackendError(f"{name!r} is {what}", "invalid")
        return value

    def text(self, name: str, default: str = "") -> str:
        value: str = self._field(name, str, default, "a text")
        if "\0" in value:
            raise BackendError(f"{name!r} has a NUL in it", "invalid")
        return value

    def flag(self, name: str) -> bool:
        return bool(self._field(name, bool, False, "true or false"))

    def whole(self, name: str, default: int, least: int = 0, most: int = 2**62) -> int:
        value: int = self._field(name, int, default, "a whole number")
        if not least <= value <= most:
            raise BackendError(f"{name!r} is between {least} and {most}", "invalid")
        return value

    def texts(self, name: str) -> list[str]:
        value: list[Any] = self._field(name, list, [], "a list of texts")
        if not all(isinstance(one, str) and "\0" not in one for one in value):
            raise BackendError(f"{name!r} is a list of texts without NUL", "invalid")
        return value

    def bytes64(self, name: str) -> bytes:
        return decoded(name, self.text(name))

    def timeout(self, default: float = constants.COMMAND_SECONDS) -> float:
        value = self._field("timeout", (int, float), default, "a number of seconds")
        if not (isfinite(value) and 0 < value <= DAY):
            raise BackendError("'timeout' is a number of seconds above 0, at most a day", "invalid")
        return float(value)

    def kept(self) -> tuple[int, int]:
        """How much of the head and the tail of an output."""
        most = constants.OUTPUT_KEEP_BYTES
        return (
            self.whole("head", constants.OUTPUT_HEAD_BYTES, 0, most),
            self.whole("tail", constants.OUTPUT_TAIL_BYTES, 0, most),
        )

    def stdin(self) -> bytes:
        if "stdin64" in self._request:
            return self.bytes64("stdin64")
        value: str = self._field("stdin", str, "", "a text")
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise BackendError("'stdin' has half a character in it; send 'stdin64'", "invalid") from None

    def data(self) -> list[bytes]:
        if len(self.texts("data")) > 64:
            raise BackendError("'data' has at most 64 entries", "invalid")
        return [decoded("data", one) for one in self.texts("data")]

    def spec(self) -> Json:
        """The command as its process is told."""
        return {
            "argv": self._argv(),
            "workdir": self.text("workdir") or os.getcwd(),
            "env": self._env(),
            "limits": self._limits(),
            "cgroup": self.texts("cgroup"),
            "landlock": self._landlock(),
            "terminal": False,
            "disk": self._disk(),
        }

    def _disk(self) -> Any:
        limits = self._field("disk", dict, None, "an object with paths and numbers")
        if limits is None:
            return None
        inner = Wanted(limits)
        numbers = {name: inner.whole(name, 0, 0, 2**62) for name in ("quota", "used", "reserve")}
        return {"paths": inner.texts("paths"), **numbers}

    def _argv(self) -> list[str]:
        cmd, argv = self.text("cmd"), self.texts("argv")
        if bool(cmd) == bool(argv):
            raise BackendError(
                "a command needs either 'cmd', a shell command, or 'argv', a program's arguments", "invalid"
            )
        return argv or [SHELL, "-c", cmd]

    def _env(self) -> dict[str, str]:
        env = self._field("env", dict, None, "an object of texts")
        if env is None:
            return dict(_own_environment())
        for name, value in env.items():
            if not name or "=" in name or not isinstance(value, str) or "\0" in name + value:
                raise BackendError(
                    f"the environment variable {name!r} has a name or a value that none can have", "invalid"
                )
        return dict(env)

    def _limits(self) -> dict[str, float]:
        limits: dict[str, Any] = self._field("limits", dict, {}, "an object of numbers")
        for name, value in limits.items():
            if name not in LIMITS:
                raise BackendError(f"there is no limit {name!r}; there are {', '.join(LIMITS)}", "invalid")
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**62:
                raise BackendError(f"the limit {name!r} is a number, 0 or more", "invalid")
        return limits

    def _landlock(self) -> Any:
        allowed = self._field("landlock", dict, None, "an object with lists of paths")
        if allowed is None:
            return None
        inner = Wanted(allowed)
        network = allowed.get("network", True) is True
        paths = {name: inner.texts(name) for name in ("read", "write", "pinned", "fixed")}
        filters = {name: inner.bytes64(name).hex() for name in ("filter", "filter_shared")}
        return {**paths, "network": network, **filters}

    def file_call(self) -> Json:
        """A file operation: its name, where, and its arguments."""
        protect = self.texts("protect") if self._request.get("protect") is not None else None
        args = {name: value for name, value in self._request.items() if name not in _OWN}
        return {"op": self.text("op"), "root": self.text("root"), "protect": protect, "args": args}


@lru_cache(maxsize=1)
def _own_environment() -> dict[str, str]:
    return clean_environment()


def decoded(name: str, value: str) -> bytes:
    """What a base64 text says."""
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise BackendError(f"{name!r} is base64; this is not", "invalid") from None
