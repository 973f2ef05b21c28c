"""What a server refuses, or why it cannot be reached."""

from __future__ import annotations

from wick.errors import WickError


class ServerError(WickError):
    """A wick server refused something, or could not be reached; `status` is 0 if there was no answer at all.

    `code` is a word for programs, such as `not_found`; `retry_after` says in how many seconds to ask again, if at all.
    """

    def __init__(self, message: str, code: str = "error", status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code, self.status, self.retry_after = code, status, retry_after

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed a little later."""
        return self.status in (0, 429, 502, 503, 504) and self.code not in ("invalid", "too_large")
