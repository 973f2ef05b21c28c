"""A verdict holds for exactly what it was about, in every copy of an operation and for nothing else."""

from __future__ import annotations

from kit import call, echo, execute
from wick import Run, Step, ToolUse, user
from wick.executables.exact import agreed, exactly, remember


def use(**args: str) -> ToolUse:
    made = ToolUse(Run(), call("execute", **args), execute, dict(args))
    made.validate()
    return made


def test_what_was_agreed_to_is_agreed_to_in_every_copy() -> None:
    op = use(command="ls")
    remember(op, "check")
    assert agreed(op, "check") and agreed(op.fork(), "check") and agreed(op.seal(), "check")


def test_what_is_otherwise_is_not() -> None:
    op = use(command="ls")
    remember(op, "check")
    assert not agreed(op, "other") and not agreed(op.fork(args={"command": "rm"}), "check")
    assert not agreed(op.fork(tool=echo), "check") and not agreed(use(command="ls"), "check")


def test_both_of_two_agreements_hold() -> None:
    op = use(command="ls")
    remember(op, "check")
    changed = op.fork(args={"command": "pwd"})
    remember(changed, "check")
    assert agreed(op, "check") and agreed(changed, "check")


def test_a_run_is_what_it_is_to_answer() -> None:
    run = Run(input=[user("hello")])
    remember(run, "filter")
    assert agreed(run.seal(), "filter") and not agreed(run.fork(input=[user("other")]), "filter")
    assert exactly(run) == exactly(run.fork(system="Be kind."))


def test_other_operations_are_what_they_say_of_themselves() -> None:
    run = Run()
    step = Step(run, 1)
    assert exactly(step) == step.hash != exactly(Step(run, 2))
