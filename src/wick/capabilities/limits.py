"""Stop a run that has gone on for too long."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from decimal import Decimal
from time import monotonic

from wick.capability import Capability
from wick.constants import MAX_STEPS
from wick.decisions import Stop
from wick.errors import ConfigError
from wick.hooks import Hook, before
from wick.operations import Run, Step, ToolUse

logger = logging.getLogger(__name__)


class Limits(Capability):
    """Steps, tokens, seconds, dollars and tool calls that one run may take. None is no limit.

    They are checked before each step, `tool_calls` before each use of a tool. A question whose price is not known
    does not count towards `cost`; that this is so is logged.
    """

    def __init__(
        self,
        steps: int | None = MAX_STEPS,
        tokens: int | None = None,
        seconds: float | None = None,
        *,
        cost: float | Decimal | None = None,
        tool_calls: int | None = None,
    ) -> None:
        given = {"steps": steps, "tokens": tokens, "seconds": seconds, "cost": cost, "tool_calls": tool_calls}
        for name, value in given.items():
            number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
            if value is not None and not (number and value > 0):
                raise ConfigError(f"Limits({name}={value!r}): a limit is a number above 0, or None for no limit")
        self.steps, self.tokens, self.seconds, self.tool_calls = steps, tokens, seconds, tool_calls
        self.cost = None if cost is None else Decimal(str(cost))

    @classmethod
    def strict(cls) -> Limits:
        """20 steps, 32,768 tokens, 300 seconds."""
        return cls(20, 32_768, 300)

    def hooks(self) -> list[Hook]:
        """Its hooks; who does not limit tool calls does not look at them."""
        return [hook for hook in super().hooks() if self.tool_calls is not None or hook.operation is not ToolUse]

    @before(Run)
    def start(self, run: Run) -> None:
        run.scratch[self] = _RunUsage(monotonic())

    @before(Step)
    def check(self, step: Step) -> Stop | None:
        run, taken = step.run, step.run.scratch[self]
        if self.cost is not None and taken.add_charges(run) >= self.cost:
            return Stop(f"budget: the run may cost ${self.cost:f}, and has cost ${taken.dollars:f}")
        if self.steps is not None and step.number > self.steps:
            return Stop("step limit")
        if self.tokens is not None and run.usage.total_tokens >= self.tokens:
            return Stop("token limit")
        if self.seconds is not None and monotonic() - taken.started >= self.seconds:
            return Stop("time limit")
        return None

    @before(ToolUse)
    def count(self, use: ToolUse) -> Stop | None:
        if self.tool_calls is None or use.run.scratch[self].count_call(use.run) <= self.tool_calls:
            return None
        return Stop(f"step limit: {self.tool_calls} tool calls")


@dataclass(slots=True)
class _RunUsage:
    """What a run has taken so far, as far as the run itself does not know."""

    started: float
    dollars: Decimal = Decimal(0)
    priced: int = 0  # of the run's charges
    unpriced: set[str] = field(default_factory=set)  # models whose price is not known
    calls: int | None = None

    def add_charges(self, run: Run) -> Decimal:
        """What the run has cost so far, as far as that is known."""
        new = run.charges[self.priced :]
        self.priced += len(new)
        for charge in new:
            if (price := charge.price) is None:
                self._warn_unpriced(run, charge.model)
            else:
                self.dollars += price
        return self.dollars

    def _warn_unpriced(self, run: Run, model: str) -> None:
        if model not in self.unpriced:
            self.unpriced.add(model)
            logger.warning("nobody knows what %s costs; it does not count towards the run's cost", model or "a part")
            run.record("unknown_price", model=model)

    def count_call(self, run: Run) -> int:
        """How many tools the run has used, this one included; one that was taken up goes on counting."""
        if self.calls is None:
            self.calls = len(run.output.tool_messages()) if run.resumed else 0
        self.calls += 1
        return self.calls
