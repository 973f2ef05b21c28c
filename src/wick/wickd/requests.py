"""Typed and validated access to the fields of a request."""

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
_OWN = frozenset(("id", "op", "root", "protect", "timeout"))  # fields of a file operation that are not arguments


class DaemonRequest:
    """A request. Each method returns a field, or raises BackendError if it is invalid."""

    def __init__(self, request: Json) -> None:
        self._request = request

    def _get_field(self, name: str, kinds: Any, default: Any, what: str) -> Any:
        value = self._request.get(name)
        if value is None:
            return default
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            raise BackendError(f"{name!r} is {what}", "invalid")
        return value

    def get_text(self, name: str, default: str = "") -> str:
        value: str = self._get_field(name, str, default, "a text")
        if "\0" in value:
            raise BackendError(f"{name!r} has a NUL in it", "invalid")
        return value

    def get_flag(self, name: str) -> bool:
        return bool(self._get_field(name, bool, False, "true or false"))

    def get_int(self, name: str, default: int, least: int = 0, most: int = 2**62) -> int:
        value: int = self._get_field(name, int, default, "a whole number")
        if not least <= value <= most:
            raise BackendError(f"{name!r} is between {least} and {most}", "invalid")
        return value

    def get_texts(self, name: str) -> list[str]:
        value: list[Any] = self._get_field(name, list, [], "a list of texts")
        if not all(isinstance(one, str) and "\0" not in one for one in value):
            raise BackendError(f"{name!r} is a list of texts without NUL", "invalid")
        return value

    def get_bytes(self, name: str) -> bytes:
        return decode_base64(name, self.get_text(name))

    def get_timeout(self, default: float = constants.COMMAND_SECONDS) -> float:
        value = self._get_field("timeout", (int, float), default, "a number of seconds")
        if not (isfinite(value) and 0 < value <= DAY):
            raise BackendError("'timeout' is a number of seconds above 0, at most a day", "invalid")
        return float(value)

    def get_output_limits(self) -> tuple[int, int]:
        """Return the bytes to keep of the head and the tail of an output."""
        most = constants.OUTPUT_KEEP_BYTES
        return (
            self.get_int("head", constants.OUTPUT_HEAD_BYTES, 0, most),
            self.get_int("tail", constants.OUTPUT_TAIL_BYTES, 0, most),
        )

    def get_stdin(self) -> bytes:
        if "stdin64" in self._request:
            return self.get_bytes("stdin64")
        value: str = self._get_field("stdin", str, "", "a text")
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise BackendError("'stdin' has half a character in it; send 'stdin64'", "invalid") from None

    def get_data(self) -> list[bytes]:
        if len(self.get_texts("data")) > 64:
            raise BackendError("'data' has at most 64 entries", "invalid")
        return [decode_base64("data", one) for one in self.get_texts("data")]

    def get_spec(self) -> Json:
        """Return the command specification for the supervisor."""
        cmd, argv = self.get_text("cmd"), self.get_texts("argv")
        if bool(cmd) == bool(argv):
            raise BackendError(
                "a command needs either 'cmd', a shell command, or 'argv', a program's arguments", "invalid"
            )
        disk = self._get_field("disk", dict, None, "an object with paths and numbers")
        if disk is not None:
            inner = DaemonRequest(disk)
            numbers = {name: inner.get_int(name, 0, 0, 2**62) for name in ("quota", "used", "reserve")}
            disk = {"paths": inner.get_texts("paths"), **numbers}
        landlock = self._get_field("landlock", dict, None, "an object with lists of paths")
        if landlock is not None:
            inner, network = DaemonRequest(landlock), landlock.get("network", True) is True
            paths = {name: inner.get_texts(name) for name in ("read", "write", "pinned", "fixed")}
            filters = {name: inner.get_bytes(name).hex() for name in ("filter", "filter_shared")}
            landlock = {**paths, "network": network, **filters}
        return {
            "argv": argv or [SHELL, "-c", cmd],
            "workdir": self.get_text("workdir") or os.getcwd(),
            "env": self._get_env(),
            "limits": self._get_limits(),
            "cgroup": self.get_texts("cgroup"),
            "landlock": landlock,
            "terminal": False,
            "disk": disk,
        }

    def _get_env(self) -> dict[str, str]:
        env = self._get_field("env", dict, None, "an object of texts")
        if env is None:
            return dict(_own_environment())
        for name, value in env.items():
            if not name or "=" in name or not isinstance(value, str) or "\0" in name + value:
                raise BackendError(
                    f"the environment variable {name!r} has a name or a value that none can have", "invalid"
                )
        return dict(env)

    def _get_limits(self) -> dict[str, float]:
        limits: dict[str, Any] = self._get_field("limits", dict, {}, "an object of numbers")
        for name, value in limits.items():
            if name not in LIMITS:
                raise BackendError(f"there is no limit {name!r}; there are {', '.join(LIMITS)}", "invalid")
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**62:
                raise BackendError(f"the limit {name!r} is a number, 0 or more", "invalid")
        return limits

    def get_file_call(self) -> Json:
        """Return a file operation: its name, workspace and arguments."""
        protect = self.get_texts("protect") if self._request.get("protect") is not None else None
        args = {name: value for name, value in self._request.items() if name not in _OWN}
        return {"op": self.get_text("op"), "root": self.get_text("root"), "protect": protect, "args": args}


_own_environment = lru_cache(maxsize=1)(clean_environment)


def decode_base64(name: str, value: str) -> bytes:
    """Decode a base64 field; raise BackendError if it is invalid."""
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise BackendError(f"{name!r} is base64; this is not", "invalid") from None
