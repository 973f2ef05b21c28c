"""The exception of the client."""

from __future__ import annotations

from wick.errors import WickError


class ServerError(WickError):
    """A server refused a request or could not be reached; `status` is 0 without a response.

    `code` is a machine-readable word such as `not_found`. `retry_after` is the delay before a retry in seconds, if any.
    """

    def __init__(self, message: str, code: str = "error", status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code, self.status, self.retry_after = code, status, retry_after

    @property
    def passing(self) -> bool:
        """Return True if the same request may succeed later."""
        return self.status in (0, 429, 502, 503, 504) and self.code not in ("invalid", "too_large")
