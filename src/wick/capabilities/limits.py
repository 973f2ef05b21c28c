"""Limits on steps, tokens, time, cost and tool calls of a run."""

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
from wick.operations import ANSWERED, Run, Step, ToolUse

logger = logging.getLogger(__name__)


class Limits(Capability):
    """Limits the steps, tokens, seconds, dollars and tool calls of one run. None means no limit.

    Limits are checked before each step, except the one that only reports an accepted structured answer. `tool_calls`
    is checked before each tool use. A model call with an unknown price does not count towards `cost`; a warning is
    logged.
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
        """Return limits of 20 steps, 32,768 tokens and 300 seconds."""
        return cls(20, 32_768, 300)

    def hooks(self) -> list[Hook]:
        """Return the hooks, without the one for tool uses if `tool_calls` is not limited."""
        return [hook for hook in super().hooks() if self.tool_calls is not None or hook.operation is not ToolUse]

    @before(Run)
    def start(self, run: Run) -> None:
        run.scratch[self] = _RunUsage(monotonic())

    @before(Step)
    def check(self, step: Step) -> Stop | None:
        run, taken = step.run, step.run.scratch[self]
        if ANSWERED in step.notes:
            return None
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
    """Counters of one run that the run itself does not track."""

    started: float
    dollars: Decimal = Decimal(0)
    priced: int = 0  # number of the run's charges already added
    unpriced: set[str] = field(default_factory=set)  # models without a known price
    calls: int | None = None

    def add_charges(self, run: Run) -> Decimal:
        """Add new charges and return the known cost of the run."""
        new = run.charges[self.priced :]
        self.priced += len(new)
        for charge in new:
            if (price := charge.price) is not None:
                self.dollars += price
            elif (model := charge.model) not in self.unpriced:
                self.unpriced.add(model)
                logger.warning(
                    "the price of %s is not known; it does not count towards the run's cost", model or "a part"
                )
                run.record("unknown_price", model=model)
        return self.dollars

    def count_call(self, run: Run) -> int:
        """Count this tool use and return the total; a resumed run continues its count."""
        if self.calls is None:
            self.calls = len(run.output.tool_messages()) if run.resumed else 0
        self.calls += 1
        return self.calls
