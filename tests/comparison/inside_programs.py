"""The scenarios of wick, with each tool call made by a program of code mode instead of by the model."""

from __future__ import annotations

import json
from typing import Any

import with_wick
from peer import call, main, plan

from wick import Agent
from wick.capabilities import CodeMode


class CodeAgent(Agent):
    """An agent whose model calls tools by programs only."""

    def __init__(self, *args: Any, hooks: Any = (), **options: Any) -> None:
        super().__init__(*args, hooks=[*hooks, CodeMode()], **options)


def plan_programs(*steps: list[tuple[str, dict[str, Any]]], seconds: float = 0) -> str:
    """Return a plan with a program for each step. Its text has no command that a hook could recognise."""
    return plan(*(call("run_code", code="\n".join(map(write_call, step))) for step in steps), seconds=seconds)


def write_call(step: tuple[str, dict[str, Any]]) -> str:
    name, args = step
    values = [f"{key}={json.dumps(value)}".replace("rm ", 'r" "m ') for key, value in args.items()]
    tried = f"    print(await {name}({', '.join(values)}))"
    return "\n".join(["try:", tried, "except Exception as error:", "    print(error)"])


with_wick.Agent = CodeAgent  # type: ignore[misc]
with_wick.plan = plan_programs

if __name__ == "__main__":
    main(with_wick.Wick)
