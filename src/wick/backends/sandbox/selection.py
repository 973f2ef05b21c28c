"""Selection of a sandbox, from the strongest to the weakest."""

from __future__ import annotations

from collections.abc import Callable

from wick.backends.sandbox import bubblewrap, landlock, seatbelt
from wick.backends.sandbox.base import Sandbox, SandboxUnavailable, Unconfined
from wick.errors import ConfigError

SANDBOXES: dict[str, Callable[[], Sandbox]] = {
    "bubblewrap": bubblewrap.find_bubblewrap,
    "sandbox-exec": seatbelt.find_sandbox_exec,
    "landlock": landlock.find_landlock,
}


def choose_sandbox(name: str) -> Sandbox:
    """Return a sandbox by its name, or with `auto` the strongest that works here."""
    if name == "none":
        return Unconfined(asks=False)
    if name == "auto":
        reasons = []
        for find in SANDBOXES.values():
            try:
                return find()
            except SandboxUnavailable as error:
                reasons.append(str(error))
        return Unconfined(asks=True, why="; ".join(reasons))
    if name not in SANDBOXES:
        raise ConfigError(f"there is no sandbox {name!r}; give one of auto, {', '.join(SANDBOXES)}, none")
    try:
        return SANDBOXES[name]()
    except SandboxUnavailable as error:
        raise ConfigError(f"the sandbox {name!r} cannot be used: {error}") from None


def explain_unavailable(name: str) -> str:
    """Return why a sandbox cannot be used here, or an empty string if it can."""
    try:
        SANDBOXES[name]()
    except SandboxUnavailable as error:
        return str(error)
    return ""
