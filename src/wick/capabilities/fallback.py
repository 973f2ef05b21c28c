"""Ask another model when one cannot answer."""

from __future__ import annotations

from dataclasses import replace

from wick.capability import Capability
from wick.errors import ConfigError, ModelError
from wick.hooks import Next, wrap
from wick.messages import Message
from wick.operations import ModelCall
from wick.protocols import Model

OUR_FAULT = (400, 413, 422)  # another model would refuse the same question


class Fallback(Capability):
    """Tries the given models, in order, when the agent's own model fails. Each is guarded as what it is.

    Put it outside of `Retry`, which every agent has, and each model is retried before the next one is asked.
    """

    def __init__(self, *models: Model) -> None:
        if not models or any(isinstance(model, type) or not hasattr(model, "stream") for model in models):
            raise ConfigError("Fallback(model, …) takes models; make one of a name with wick.models.resolve(name)")
        self.models = models

    @wrap(ModelCall, priority=1)
    async def ask_another(self, call: ModelCall, next: Next[Message]) -> Message:
        attempts = [call, *(replace(call, model=model) for model in self.models)]
        for attempt in attempts[:-1]:
            try:
                return await next(attempt)
            except ModelError as error:
                if error.status in OUR_FAULT:
                    raise
                call.run.record("fallback", model=attempt.model.name, error=str(error))
        return await next(attempts[-1])
