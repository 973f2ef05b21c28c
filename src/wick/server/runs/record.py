"""The server's record of a run: owner, thread, agent and outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from time import time
from typing import Any

from wick.errors import public_text
from wick.events import Done, Event, Failed
from wick.operations import Result
from wick.protocols import Summary
from wick.server.auth.identity import User

KIND = "run"  # kind of records


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run as it is stored in the server's records."""

    id: str
    owner: str
    thread: str
    agent: str
    begin: int = 0  # number of entries of its thread before the run
    started: float = 0.0
    ended: float = 0.0  # 0 if it has not ended
    outcome: str = ""
    reason: str = ""
    usage: Mapping[str, int] | None = None
    cost: float | None = None
    error: Mapping[str, str] | None = None
    name: str = ""  # login of the user; like `role`, used when the run is resumed
    role: str = "user"
    recipe: str = ""
    model: str = ""  # the model in place of the agent's own

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _JSON_FIELDS}

    @classmethod
    def from_json(cls, owner: str, id: str, data: Mapping[str, Any]) -> RunInfo:
        return cls(id=id, owner=owner, **{key: value for key, value in data.items() if key in _JSON_FIELDS})

    @property
    def user(self) -> User:
        """The user who started the run."""
        return User(self.owner, self.name, self.role)  # type: ignore[arg-type]

    def with_result(
        self, result: Result, cost: float | None, hide: Callable[[Any], Any] = lambda data: data
    ) -> RunInfo:
        """Return a copy with the outcome of a result; `hide` redacts secrets."""
        error = (
            None if result.error is None else {"code": error_code(result.error), "message": public_text(result.error)}
        )
        ended = time() if result.outcome != "interrupted" else 0.0
        usage = result.usage.to_json()
        about = {"reason": hide(result.reason), "error": hide(error)}
        return replace(self, ended=ended, outcome=result.outcome, usage=usage, cost=cost, **about)

    def terminal_event(self) -> Event:
        """Return the terminal event of a run whose log has no end."""
        if self.outcome == "failed":
            error = self.error or {"code": "error", "message": self.reason}
            return Failed(self.id, thread_id=self.thread, code=error["code"], message=error["message"])
        usage = dict(self.usage or {})
        return Done(self.id, thread_id=self.thread, outcome=self.outcome, reason=self.reason, usage=usage)


_JSON_FIELDS = tuple(field.name for field in fields(RunInfo) if field.name not in ("id", "owner"))


def error_code(error: Exception) -> str:
    """Return the code of an error in responses: `model_error` for ModelError."""
    name = getattr(error, "code", "") or type(error).__name__
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).strip("_")


def derive_run_id(head: Summary, position: int) -> str:
    """Return the id of the run that answers the message at a position, if no run is open.

    It is a hash, so that all servers compute the same id. The creation time distinguishes a recreated thread.
    """
    place = f"{head.owner}\0{head.id}\0{head.created!r}\0{position}"
    return f"run_{sha256(place.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
