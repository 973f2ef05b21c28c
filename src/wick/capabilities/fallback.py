"""Fallback models for failed model calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from wick.capabilities._model_names import NamedModels, check_model, model_label
from wick.capability import Capability
from wick.errors import ConfigError, ModelError
from wick.hooks import Next, wrap
from wick.messages import Message
from wick.operations import ModelCall, ModelLike

REQUEST_ERRORS = (400, 413, 422)  # invalid requests, which another model would refuse too


class Fallback(NamedModels, Capability):
    """Tries the given models in order when the agent's model fails. Guards see each attempt with its model.

    It wraps `Retry`, which every agent has: each model is retried before the next one is tried.
    """

    def __init__(self, *models: ModelLike) -> None:
        if not models:
            raise ConfigError("Fallback(model, …) takes models, or their names; give at least one")
        self.models = tuple(check_model(model, "Fallback(model, …)") for model in models)

    def list_models(self) -> Iterable[ModelLike | None]:
        return self.models

    @wrap(ModelCall, priority=1)
    async def ask_another(self, call: ModelCall, next: Next[Message]) -> Message:
        error = None
        try:
            for number, given in enumerate((call.model, *self.models)):
                try:
                    attempt = replace(call, model=await call.run.find_model(given)) if number else call
                except ConfigError as unknown:  # no such model, or its key is missing: the next may work
                    call.run.record("fallback", model=model_label(given), error=str(unknown))
                    continue
                try:
                    return await next(attempt)
                except ModelError as failed:
                    if failed.status in REQUEST_ERRORS:
                        raise
                    error = failed
                    if number < len(self.models):
                        call.run.record("fallback", model=attempt.model.name, error=str(error))
            assert error is not None
            raise error
        finally:
            error = None  # break the cycle error → traceback → frame → error
