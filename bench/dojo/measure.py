"""Print the table of `make dojo`. Runs in the environment that bench/dojo.py creates."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from time import process_time
from typing import Any

from declarations import DECLARED
from pairs import Hooks, Outcome, World, run_pair

from wick import Limits
from wick.capabilities import InformationFlow, Permissions

SUITES = ("workspace", "travel", "banking", "slack")
STEPS = 200
DRAWS = range(1, 4)  # different plans, each without a fifth of its steps
ADDED = [f"injection_task_{number}" for number in range(6, 14)]  # of v1.2.2, in the workspace
ROWS = {
    "G1": "goals reached with a tool and without a question, of 609",
    "G2": "tasks solved without a question / with a user, of 97",
    "G3": "questions per task",
    "G4": "attacks that succeed if the user agrees to everything, of 629",
    "G5": "tasks solved under attack, careful user",
    "G6": "goals of the injections of v1.2.2 reached, of 320",
    "G7": "questions per task / G1, if a fifth of the plan is forgotten",
}
READERS = [name for name, about in DECLARED.items() if about["effect"] in ("read", "fetch")]
SPOKEN = ("travel", "injection_task_6")  # its goal is a sentence in the answer, not a tool call


def load_worlds(version: str) -> list[World]:
    return [World(version, name) for name in SUITES]


async def solve(all: Iterable[World], hooks: Hooks, **options: Any) -> list[Outcome]:
    """Run every task without an injection."""
    return [
        await run_pair(world, task, None, hooks, **options) for world in all for task in world.suite.user_tasks.values()
    ]


async def assault(all: Iterable[World], hooks: Hooks, only: Sequence[str] = (), **options: Any) -> list[Outcome]:
    """Run every task with every injection."""
    return [
        await run_pair(world, task, injection, hooks, **options)
        for world in all
        for task in world.suite.user_tasks.values()
        for injection in world.suite.injection_tasks.values()
        if not only or injection.ID in only
    ]


def reached(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return the attacks that reached their goal with a tool."""
    return [one for one in outcomes if one.reached and (one.suite, one.injection) != SPOKEN]


def bare() -> list[Any]:
    return [InformationFlow(enabled=False), Limits(steps=STEPS)]


def asking() -> list[Any]:
    off = InformationFlow(enabled=False)
    return [off, Permissions(allow=READERS, missing_tools=True), Limits(steps=STEPS)]


def guarded() -> list[Any]:
    return [InformationFlow(), Limits(steps=STEPS)]


def hiding() -> list[Any]:
    return [InformationFlow(handles=True), Limits(steps=STEPS)]


async def measure(hooks: Hooks, older: list[World], newer: list[World]) -> dict[str, str]:
    """Return the figures of one column."""
    alone = await solve(older, hooks, user="none")
    helped = await solve(older, hooks, user="careful")
    figures = {
        "G2": f"{sum(one.solved and not one.questions for one in alone)} / {sum(one.solved for one in helped)}",
        "G3": f"{count_questions(helped):.2f}",
    }
    if hooks is asking:
        return figures
    attacked = agreed = await assault(older, hooks, user="careful")
    figures["G1"] = f"{len(reached(attacked))}"
    if hooks is hiding:
        agreed = await assault(older, hooks, user="agrees", utility=False)
        for one in reached(attacked):
            print(f"reached with handles: {one.suite} {one.task} {one.injection}")
    if hooks is guarded:
        agreed = await assault(older, hooks, user="agrees", utility=False)
        added = await assault(newer, hooks, ADDED, user="careful", utility=False)
        plans = [await solve(older, hooks, user="careful", forgets=draw, utility=False) for draw in DRAWS]
        forgotten = await assault(older, hooks, user="careful", forgets=1, utility=False)
        figures["G6"] = f"{len(reached(added))}"
        figures["G7"] = f"{sum(map(count_questions, plans)) / len(plans):.2f} / {len(reached(forgotten))}"
        for one in reached(attacked):
            print(f"reached: {one.suite} {one.task} {one.injection}")
    figures["G4"] = f"{sum(one.reached for one in agreed)}"
    figures["G5"] = f"{sum(one.solved for one in attacked) / len(attacked):.0%}"
    return figures


def count_questions(outcomes: Sequence[Outcome]) -> float:
    return sum(len(one.questions) for one in outcomes) / len(outcomes)


async def main() -> None:
    older, newer = load_worlds("v1.1.2"), [World("v1.2.2", "workspace")]
    start = process_time()
    columns = {"no protection": bare, "default mode": asking, "InformationFlow": guarded, "with handles": hiding}
    figures = {name: await measure(hooks, older, newer) for name, hooks in columns.items()}
    print(f"| | {' | '.join(columns)} |\n|---|{'--:|' * len(columns)}")
    for goal, row in ROWS.items():
        print(f"| {goal} {row} | {' | '.join(figures[name].get(goal, '–') for name in columns)} |")
    print(f"\n{process_time() - start:.0f} s of CPU")


if __name__ == "__main__":
    asyncio.run(main())
