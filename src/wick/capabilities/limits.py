"""Stop a run that has gone on for too long."""

from __future__ import annotations

from time import monotonic

from wick.capability import Capability
from wick.caps import MAX_STEPS
from wick.decisions import Stop
from wick.errors import ConfigError
from wick.hooks import before
from wick.operations import Run, Step


class Limits(Capability):
    """Steps, tokens and seconds that one run may take; checked before each step. None is no limit."""

    def __init__(self, steps: int | None = MAX_STEPS, tokens: int | None = None, seconds: float | None = None) -> None:
        for name, value in {"steps": steps, "tokens": tokens, "seconds": seconds}.items():
            if value is not None and value <= 0:
                raise ConfigError(f"Limits({name}={value!r}): a limit is a number above 0, or None for no limit")
        self.steps, self.tokens, self.seconds = steps, tokens, seconds

    @classmethod
    def strict(cls) -> Limits:
        """20 steps, 32,768 tokens, 300 seconds."""
        return cls(20, 32_768, 300)

    @before(Run)
    def start(self, run: Run) -> None:
        run.scratch[self] = monotonic()

    @before(Step)
    def check(self, step: Step) -> Stop | None:
        if self.steps is not None and step.number > self.steps:
            return Stop("step limit")
        if self.tokens is not None and step.run.usage.total_tokens >= self.tokens:
            return Stop("token limit")
        if self.seconds is not None and monotonic() - step.run.scratch[self] >= self.seconds:
            return Stop("time limit")
        return None
