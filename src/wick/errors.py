"""Every exception wick raises.

    WickError
    ├── ConfigError       a file or an argument is wrong; the message says which and how
    │   └── MissingExtra  an optional package is not installed; the message says how to get it
    ├── MessageError      a message or a chain of messages is not well formed
    ├── ToolError         raised inside a tool, to tell the model in a sentence what went wrong
    │   ├── InvalidArgs   the arguments do not fit the tool's schema
    │   └── Uncertain     a tool cannot say whether what it began took effect
    ├── HookError         a hook failed, or answered something its point does not allow
    │   └── Sealed        somebody tried to change an operation that can no longer change
    ├── ModelError        the model could not answer
    ├── BackendError      the workspace could not do what was asked
    ├── StoreError        a thread could not be loaded or saved
    └── RunCrashed        a run is not resumed, because its server ended too often while it ran

A tool that fails raises nothing: the model is told, as a `ToolResult` with an error.
`Paused` is not an error, and nobody's `except Exception` should swallow it.

This module also runs inside containers: the standard library only, Python 3.8.
"""

from __future__ import annotations


class WickError(Exception):
    """The base of every exception wick raises."""


class ConfigError(WickError):
    """A file or an argument is wrong."""


class MissingExtra(ConfigError):
    """An optional package is not installed."""

    def __init__(self, extra: str, package: str, need: str) -> None:
        super().__init__(f"{need} needs the package {package!r}; install it with: pip install 'wick-agent[{extra}]'")


class MessageError(WickError, ValueError):
    """A message or a chain of messages is not well formed."""


class ToolError(WickError):
    """Raised inside a tool, to tell the model in a sentence what went wrong."""


class InvalidArgs(ToolError):
    """The arguments do not fit the tool's schema."""


class Uncertain(ToolError):
    """A tool cannot say whether what it began took effect."""


class HookError(WickError):
    """A hook failed, or answered something its point does not allow."""


class Sealed(HookError):
    """Somebody tried to change an operation that can no longer change."""


class ModelError(WickError):
    """The model could not answer. `status` is what its server said; `retryable`, whether asking again may help."""

    def __init__(
        self, message: str, *, status: int | None = None, retryable: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.retryable, self.retry_after = status, retryable, retry_after


class BackendError(WickError):
    """The workspace could not do what was asked. `code` is a word for programs, such as `not_found`."""

    def __init__(self, message: str, code: str = "failed") -> None:
        super().__init__(message)
        self.code = code


TEMPORARY = ("full", "locked", "unavailable", "read_only")  # codes of a store that works again once that is resolved


class StoreError(WickError):
    """A thread could not be loaded or saved. `code` is a word for programs, such as `conflict`.

    `public` is the sentence for users of a server, without paths and addresses; the message, if none is given.
    """

    def __init__(self, message: str, code: str = "failed", public: str = "") -> None:
        super().__init__(message)
        self.code, self.public = code, public or message


class RunCrashed(WickError):
    """A run is not resumed, because its server ended too often while it ran."""


class Paused(BaseException):
    """The run waits for somebody; run its thread again to go on."""


def public_text(error: BaseException) -> str:
    """Return the sentence of an error that users of a server may see."""
    return getattr(error, "public", "") or str(error) or repr(error)


def clear_tracebacks(*errors: BaseException | None) -> None:
    """Drop where errors came from: all that a run can reach would stay in memory until Python looks for garbage."""
    left, known = [*errors], set[int]()
    while left:
        error = left.pop()
        if error is not None and id(error) not in known:
            known.add(id(error))
            error.__traceback__ = None
            left += [error.__cause__, error.__context__, *getattr(error, "exceptions", ())]
