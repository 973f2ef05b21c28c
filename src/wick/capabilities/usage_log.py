"""A log line with the usage of each run."""

from __future__ import annotations

import json
import logging
from time import monotonic
from typing import Any

from wick._internal.worker_threads import run_in_thread
from wick.capability import Capability
from wick.errors import ConfigError, Paused
from wick.hooks import Next, wrap
from wick.operations import Result, Run

OUTERMOST = 100.0  # so that the usage of other hooks is included

_logger = logging.getLogger(__name__)


class UsageLog(Capability):
    """Logs one line at the end of each run: session, outcome, tokens and price, including children.

    `logger` is a logger or its name. Each field is also an attribute of the log record, for JSON formatters. Errors of
    the logger do not affect the run.
    """

    def __init__(self, logger: logging.Logger | str = "wick.usage", *, level: int | str = "INFO") -> None:
        if not isinstance(logger, str) and not callable(getattr(logger, "log", None)):
            raise ConfigError(f"UsageLog(logger=…) takes a logger or the name of one, not {logger!r}")
        number = logging.getLevelNamesMapping().get(level.upper()) if isinstance(level, str) else level
        if type(number) is not int:
            raise ConfigError(f"UsageLog(level={level!r}): there is no such level; take DEBUG, INFO, WARNING or ERROR")
        self.logger = logging.getLogger(logger) if isinstance(logger, str) else logger
        self.level = number

    @wrap(Run, priority=OUTERMOST)
    async def log(self, run: Run, next: Next[Result]) -> Result:
        start = monotonic()
        try:
            result = await next(run)
        except BaseException as error:
            self._write_record(run, _classify_error(error), start)
            raise
        await run_in_thread(
            lambda: self._write_record(run, result.outcome, start), "logging the usage"
        )  # looking up prices blocks
        return result

    def _write_record(self, run: Run, outcome: str, start: float) -> None:
        try:
            fields = _collect_fields(run, outcome, monotonic() - start)
            words = " ".join(f"{name}={_format_value(value)}" for name, value in fields.items())
            self.logger.log(self.level, "generation complete: %s", words, extra=fields)
        except Exception as error:
            _logger.debug("the usage of run %s could not be logged: %s", run.id, error)


def _format_value(value: object) -> str:
    """Return a value as one word; quote it if it has spaces or unprintable characters."""
    text = str(value)
    return text if text.isprintable() and " " not in text and text else json.dumps(text)


def _classify_error(error: BaseException) -> str:
    if isinstance(error, Paused):
        return "interrupted"
    return "failed" if isinstance(error, Exception) else "cancelled"


def _collect_fields(run: Run, outcome: str, seconds: float) -> dict[str, Any]:
    usage, price = run.usage, run.price
    return {
        "session_id": run.thread.id,
        "run_id": run.id,
        "agent": run.agent,
        "user": run.user,
        "outcome": outcome,
        **usage.to_json(),
        "price": None if price is None else f"{price:f}",
        "seconds": round(seconds, 3),
    }
