"""Every exception wick raises.

    WickError
    ├── ConfigError       a file or an argument is invalid; the message says which and why
    │   ├── MissingExtra  an optional package is not installed; the message says how to install it
    │   └── WorkspaceError  a folder cannot be a workspace; the message says why
    ├── MessageError      a message or a chain of messages is not well formed
    ├── ToolError         raised inside a tool, to report an error to the model
    │   ├── InvalidArgs   the arguments do not fit the tool's schema
    │   └── Uncertain     it is unknown whether a tool took effect
    ├── HookError         a hook failed, or returned a value that its point does not allow
    │   └── Sealed        a hook tried to change a sealed operation
    ├── ModelError        the model could not answer
    ├── MissingOutput     a run ended without the output that its agent promises
    ├── BackendError      an operation of the workspace failed
    ├── StoreError        a thread could not be loaded or saved
    │   └── ThreadBusy    another run of the thread is in progress
    └── RunCrashed        a run is not resumed, because its server process crashed too often during the run

A tool that fails raises nothing: the model gets a `ToolResult` with an error.
`Paused` is not an error. It derives from BaseException, so that `except Exception` does not swallow it.

This module also runs inside containers: the standard library only, Python 3.8.
"""

from __future__ import annotations


class WickError(Exception):
    """Base class of all exceptions of wick."""


class ConfigError(WickError):
    """A file or an argument is invalid."""


class MissingExtra(ConfigError):
    """An optional package is not installed."""

    def __init__(self, extra: str, package: str, need: str) -> None:
        super().__init__(f"{need} needs the package {package!r}; install it with: pip install 'wick-agent[{extra}]'")


class WorkspaceError(ConfigError):
    """A folder cannot be a workspace."""


class MessageError(WickError, ValueError):
    """A message or a chain of messages is not well formed."""


class ToolError(WickError):
    """Raised inside a tool, to report an error to the model."""


class InvalidArgs(ToolError):
    """The arguments do not fit the tool's schema."""


class Uncertain(ToolError):
    """It is unknown whether a tool took effect."""


class HookError(WickError):
    """A hook failed, or returned a value that its point does not allow.

    `is_loggable` is True if the message quotes no data of the operation, so that it may be logged for any hook.
    """

    def __init__(self, message: str, *, is_loggable: bool = False) -> None:
        super().__init__(message)
        self.is_loggable = is_loggable


class Sealed(HookError):
    """A hook tried to change a sealed operation."""


class ModelError(WickError):
    """The model could not answer. `status` is the HTTP status; `retryable` is True if a retry may help."""

    def __init__(
        self, message: str, *, status: int | None = None, retryable: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.retryable, self.retry_after = status, retryable, retry_after


class MissingOutput(WickError):
    """A run ended without the output that its agent promises."""


class BackendError(WickError):
    """An operation of the workspace failed. `code` is machine-readable, such as `not_found`."""

    def __init__(self, message: str, code: str = "failed") -> None:
        super().__init__(message)
        self.code = code


TEMPORARY = ("full", "locked", "unavailable", "read_only")  # codes of store errors that an operator can resolve


class StoreError(WickError):
    """A thread could not be loaded or saved. `code` is machine-readable, such as `conflict`.

    `public` is the message for users of a server, without paths and addresses; by default the message itself.
    """

    def __init__(self, message: str, code: str = "failed", public: str = "") -> None:
        super().__init__(message)
        self.code, self.public = code, public or message


class ThreadBusy(StoreError):
    """Another run of the thread is in progress, in this process or in another one. Its code is `conflict`."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "conflict")


class RunCrashed(WickError):
    """A run is not resumed, because its server process crashed too often during the run."""


class Paused(BaseException):
    """The run waits for an answer. Run its thread again to resume it."""


def public_text(error: BaseException) -> str:
    """Return the message of an error for users of a server."""
    return getattr(error, "public", "") or str(error) or repr(error)


def clear_tracebacks(*errors: BaseException | None) -> None:
    """Clear the tracebacks of errors and of their causes.

    A traceback refers to the frames of a run. It would keep the run in memory until the next garbage collection.
    """
    left, known = [*errors], set[int]()
    while left:
        error = left.pop()
        if error is not None and id(error) not in known:
            known.add(id(error))
            error.__traceback__ = None
            left += [error.__cause__, error.__context__, *getattr(error, "exceptions", ())]
