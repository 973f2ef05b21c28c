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
            is_paused, is_failed = isinstance(error, Paused), isinstance(error, Exception)
            self._write_record(run, "interrupted" if is_paused else "failed" if is_failed else "cancelled", start)
            raise
        # Looking up prices blocks.
        await run_in_thread(lambda: self._write_record(run, result.outcome, start), "logging the usage")
        return result

    def _write_record(self, run: Run, outcome: str, start: float) -> None:
        try:
            seconds, usage, price = monotonic() - start, run.usage, run.price
            fields: dict[str, Any] = {
                "session_id": run.thread.id,
                "run_id": run.id,
                "agent": run.agent,
                "user": run.user,
                "outcome": outcome,
                **usage.to_json(),
                "price": None if price is None else f"{price:f}",
                "seconds": round(seconds, 3),
            }
            texts = {name: str(value) for name, value in fields.items()}
            plain = {name for name, text in texts.items() if text and text.isprintable() and " " not in text}
            words = " ".join(f"{name}={text if name in plain else json.dumps(text)}" for name, text in texts.items())
            self.logger.log(self.level, "generation complete: %s", words, extra=fields)
        except Exception as error:
            _logger.debug("the usage of run %s could not be logged: %s", run.id, error)
