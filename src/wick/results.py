"""Results: the outcome of a run, and the rules for what a hook may do with the result of each operation.

    operation    result            a hook may answer with
    Run          Result            a Result, or a text
    Step         Stop | Continue   a Stop
    ModelCall    Message           an assistant's Message, or a text
    ToolUse      ToolResult        a ToolResult, or a text

`op.result_rules` are the rules of an operation. The dispatcher in `wick.onion` knows only `ResultRules`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, NoReturn

from typing_extensions import TypeVar  # a dependency of pydantic

from wick._internal.familiar_words import RESULT_ATTRIBUTES, explain_attributes, refuse_changes
from wick._internal.frozen import thaw
from wick.constants import MAX_CONTINUES
from wick.decisions import Block, Continue, Decision, Stop
from wick.errors import HookError, MissingOutput
from wick.messages import Message, Messages, ToolResult
from wick.prices import Charge, total_price
from wick.protocols import Usage
from wick.threads import Thread

if TYPE_CHECKING:
    from wick.operations import ModelCall, Operation, Run, Step, ToolUse

R = TypeVar("R")
Output = TypeVar("Output", default=Any)

Outcome = Literal["completed", "stopped", "cancelled", "interrupted", "failed"]


@explain_attributes(RESULT_ATTRIBUTES)
@dataclass(frozen=True, slots=True)
class Result(Generic[Output]):
    """The outcome of a run: its final text, messages, usage and error. `Result[T]` has an output of type T."""

    text: str = ""  # the last text of the model
    reason: str = "completed"  # why the run ended
    outcome: Outcome = "completed"  # completed, stopped, cancelled, interrupted or failed
    usage: Usage = field(default_factory=Usage)  # tokens, including children
    messages: Messages = field(default_factory=Messages, repr=False)  # the messages of this run, including its input
    error: Exception | None = None  # the error of a failed run
    thread: Thread = field(default_factory=Thread, repr=False, compare=False)  # the conversation
    charges: tuple[Charge, ...] = field(default=(), repr=False)  # each model call with its tokens and its price
    value: Output | None = None  # the answer as a value, if a capability sets one
    crashes: tuple[BaseException, ...] = field(default=(), repr=False, compare=False)  # raised by tools, the last ones
    needs_output: bool = field(default=False, repr=False, compare=False)  # the agent validates its answers

    if not TYPE_CHECKING:  # type checkers report these mistakes themselves

        def __getitem__(self, key: object) -> NoReturn:
            raise TypeError(
                f"a Result is not a dict: write result.text, result.output or result.messages, not [{key!r}]"
            )

    @property
    def output(self) -> Output:
        """The answer: a value of the agent's output type, or the text of an agent without one.

        Reading a missing value raises `MissingOutput`.
        """
        if self.value is None and self.needs_output:
            raise MissingOutput(
                f"the run ended as {self.outcome} ({self.reason}), without an output; "
                "check result.outcome before you read result.output"
            )
        return self.text if self.value is None else self.value  # type: ignore[return-value]  # the type is Any or str

    @property
    def price(self) -> Decimal | None:
        """The price of the run and its children in dollars, or `None` if one of their `charges` has no known price."""
        return total_price(self.charges)


if not TYPE_CHECKING:
    Result.__setattr__ = refuse_changes('assign another one: run.result = dataclasses.replace(run.result, text="…")')


class ResultSnapshot(NamedTuple, Generic[R]):
    """A result and a copy of it, so that changes in place can be detected."""

    result: R | None = None
    copy: R | None = None


class ResultRules(Generic[R]):
    """The rules for the result of one operation.

    - A `wrap` returns the result of `next`, a result of its own, or a decision. An `after` sets `op.result` or
      `op.error`, or returns a decision.
    - A hook's own result is converted to the type of the operation. Another type is an error of the hook.
    - A result is compared with its snapshot after each hook, so that `why` shows the hooks that changed it.
    - If an `after` fails, the result is withheld: the hook may be a redactor.
    - Block replaces the result with the reason. Except for a tool use, it also ends the run.
    """

    __slots__ = ("op",)

    def __init__(self, op: Operation[R]) -> None:
        self.op = op

    def blocked(self, reason: str) -> R:
        """Return the result of an operation that is not performed."""
        raise NotImplementedError

    def coerce(self, answer: object) -> R:
        """Return a hook's own result in the type of the operation, or raise a HookError."""
        raise NotImplementedError

    def prevent(self, decision: Block | Stop) -> R:
        """Return the result of not performing the operation. For a Run, Step or ModelCall, also end the run."""
        self.op.state.prevented = decision
        self.op.run.halt(decision if isinstance(decision, Stop) else Stop(f"blocked: {decision.reason}"))
        return self.blocked(decision.reason)

    def snapshot(self, result: R | None) -> ResultSnapshot[R]:
        """Return a result and a copy of it. An immutable result needs no copy."""
        return ResultSnapshot(result, result)

    def has_changed(self, snapshot: ResultSnapshot[R]) -> bool:
        """Return True if the result of the operation has changed since the snapshot."""
        return self.op.result is not snapshot.copy

    def reconcile(self, snapshot: ResultSnapshot[R], answer: object) -> R:
        """Return the result that a hook returned or changed in place, in the right type."""
        if snapshot.result is not None and answer is snapshot.result:
            return snapshot.result
        return self.coerce(answer)

    def take_decision(self, result: R | None) -> Decision | None:
        """Return the decision that a hook made by replacing `result`, and set `op.result` back. Only a step has one."""
        return None

    def withhold(self, reason: str) -> None:
        """Replace the result with an error."""
        op, error = self.op, HookError(f"the result was withheld: {reason}")
        op.result, op.error = None, error  # type: ignore[assignment]

    def apply_verdict(self, verdict: Decision | None, hook: str) -> None:
        """Apply the decision of an `after` hook."""
        if isinstance(verdict, Block):
            self.op.result, self.op.error = self.prevent(verdict), None
        elif isinstance(verdict, Stop):
            self.op.run.halt(verdict)


class RunResults(ResultRules[Result]):
    """The rules for the `Result` of a run.

    - A hook may return another Result, or a text, which becomes the text of a completed run.
    - Block gives an empty text; the reason is that of the Stop that ended the run.
    - The result is never withheld: a failed `after` does not discard a whole run. Its error is in the log.
    """

    __slots__ = ()
    op: Run

    def blocked(self, reason: str) -> Result:
        return self._build("", (self.op.stopping or _STOP).reason, "stopped", Messages())

    def coerce(self, answer: object) -> Result:
        if isinstance(answer, str):
            return self._build(answer, "completed", "completed", self.op.output)
        return _require_type(answer, Result, "a Result or a text")

    def _build(self, text: str, reason: str, outcome: Outcome, messages: Messages) -> Result:
        run = self.op
        return Result(text, reason, outcome, run.usage, messages, None, run.thread, run.charges, crashes=run.crashes)

    def withhold(self, reason: str) -> None:
        """Keep the result."""


class StepResults(ResultRules[Stop | Continue]):
    """The rules for the `Stop` or `Continue` of a step.

    - A hook may return a Stop. A Continue comes from `next`, or is the decision of an `after`.
    - To set `step.result` is the same as to return a decision. A Stop also clears an error.
    - A Stop by a hook is final. Continue overrides only the end of the model's turn.
    - Continue is limited in a row, not counting steps with tool calls. Its message carries the hook's name.
    """

    __slots__ = ()
    op: Step

    def blocked(self, reason: str) -> Stop:
        return self.op.run.stopping or _STOP

    def coerce(self, answer: object) -> Stop:
        if isinstance(answer, Stop):
            return answer
        problem = f"a step's result is the result of `next`, or a decision, not {name_type(answer)}"
        raise HookError(problem, is_loggable=True)

    def take_decision(self, result: Stop | Continue | None) -> Stop | Continue | None:
        step, replaced = self.op, self.op.result
        step.result = result  # type: ignore[assignment]
        if isinstance(replaced, Stop) and step.error is not None:
            step.result, step.error = replaced, None
        return None if replaced is result else replaced

    def apply_verdict(self, verdict: Decision | None, hook: str) -> None:
        ResultRules.apply_verdict(self, verdict, hook)
        step, run = self.op, self.op.run
        if isinstance(verdict, Continue) and self._can_continue():
            step.state.follow_ups += [Message("user", verdict.message, name=hook)] if verdict.message else []
            step.result, step.error = verdict, None
        if run.stopping is not None and step.error is None:
            step.result = run.stopping

    def _can_continue(self) -> bool:
        """Return True if a hook may continue a finished run, and count it."""
        if isinstance(self.op.result, Continue):
            return True
        self.op.run.progress.continues += 1
        return self.op.run.progress.continues <= MAX_CONTINUES


class ModelCallResults(ResultRules[Message]):
    """The rules for the `Message` of a model call.

    - A hook may return another message of the assistant, or a text.
    - A reply in place of the streamed one retracts its deltas.
    - Block gives a message with the reason. It ends the run, and the message is not stored.
    """

    __slots__ = ()
    op: ModelCall

    def blocked(self, reason: str) -> Message:
        return Message("assistant", reason)

    def coerce(self, answer: object) -> Message:
        if isinstance(answer, str):
            return Message("assistant", answer)
        if isinstance(answer, Message) and answer.role != "assistant":
            problem = f"a model call's result is an assistant's message, not one of the {answer.role}"
            raise HookError(problem, is_loggable=True)
        return _require_type(answer, Message, "a message or a text")


class ToolUseResults(ResultRules[ToolResult]):
    """The rules for the `ToolResult` of a tool use.

    - A hook may return another ToolResult, or a text, or change the result in place.
    - The result belongs to the call, whatever call id and name a hook's own result has.
    - A hook that changes only the output drops data and parts: they may contain the old output.
    - Block and a failed `after` give an error result, which the model reads. The run continues.
    """

    __slots__ = ()
    op: ToolUse

    def blocked(self, reason: str) -> ToolResult:
        return ToolResult(error=reason, tool_call_id=self.op.call.id, name=self.op.call.name)

    def coerce(self, answer: object) -> ToolResult:
        given, call = ToolResult(answer) if isinstance(answer, str) else answer, self.op.call
        result = _require_type(given, ToolResult, "a ToolResult or a text")
        if result.tool_call_id == call.id and result.name == call.name:
            return result
        return self._copy(result, result.data)

    def prevent(self, decision: Block | Stop) -> ToolResult:
        self.op.state.prevented = decision
        if isinstance(decision, Stop):
            self.op.run.halt(decision)
        return self.blocked(decision.reason)

    def snapshot(self, result: ToolResult | None) -> ResultSnapshot[ToolResult]:
        return ResultSnapshot(result, None if result is None else self._copy(result, thaw(result.data)))

    def _copy(self, result: ToolResult, data: Any) -> ToolResult:
        copy = ToolResult(result.output, result.error, data, result.parts, self.op.call.id, self.op.call.name)
        copy.exception = result.exception
        return copy

    def has_changed(self, snapshot: ResultSnapshot[ToolResult]) -> bool:
        return self.op.result != snapshot.copy

    def reconcile(self, snapshot: ResultSnapshot[ToolResult], answer: object) -> ToolResult:
        new, old = self.coerce(answer), snapshot.copy
        if old is not None and new.output != old.output:
            new.data = None if new.data == old.data else new.data
            new.parts = () if new.parts == old.parts else new.parts
        return new

    def withhold(self, reason: str) -> None:
        self.op.result, self.op.error = self.blocked(f"the result was withheld: {reason}"), None


_STOP = Stop("stop requested")


def _require_type(answer: object, kind: type[R], words: str) -> R:
    if not isinstance(answer, kind):
        raise HookError(f"the result must be {words}, not {name_type(answer)}", is_loggable=True)
    return answer


def name_type(value: object) -> str:
    """Return the type of a value for a message that may be logged: the value itself may be private."""
    return f"a value of type {type(value).__name__}"
