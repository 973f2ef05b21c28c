"""Retries of failed model calls."""

from __future__ import annotations

import asyncio
import logging
import random

from wick.capability import Capability
from wick.errors import ConfigError, ModelError
from wick.hooks import Next, wrap
from wick.messages import Message
from wick.operations import ModelCall

logger = logging.getLogger(__name__)


class Retry(Capability):
    """Retries after a timeout, a dropped connection, 408, 409, 429, 5xx or 529; never after a 400, 401 or 403.

    The wait is the server's `Retry-After`, or exponential backoff with jitter. A partially streamed reply is retracted
    by the event `on_chat_model_restart`; with `visible=False` such a reply is not retried.
    """

    def __init__(
        self,
        attempts: int = 4,
        *,
        base: float = 0.5,
        longest: float = 30.0,
        patience: float = 120.0,
        visible: bool = True,
    ) -> None:
        if type(attempts) is not int or attempts < 1 or not min(base, longest, patience) >= 0:
            raise ConfigError(
                f"Retry(attempts={attempts}): there is at least one attempt, and no wait is below 0 seconds"
            )
        self.attempts, self.base, self.longest, self.patience, self.visible = attempts, base, longest, patience, visible

    @wrap(ModelCall)
    async def ask_again(self, call: ModelCall, next: Next[Message]) -> Message:
        for attempt in range(1, self.attempts):
            try:
                return await next(call)
            except ModelError as error:
                backoff = min(self.longest, self.base * 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.0)
                wait = backoff if error.retry_after is None else error.retry_after
                is_too_long = error.retry_after is not None and not wait <= self.patience
                if not error.retryable or is_too_long or (call.shown and not self.visible):
                    raise
                # A string: a log record with the error would keep error → traceback → frame → run alive.
                why = str(error)
                logger.warning("retrying %s in %.1f s: %s", call.model.name, wait, why)
                call.run.record("retry", attempt=attempt, seconds=round(wait, 3), error=why)
            await asyncio.sleep(wait)
        return await next(call)
