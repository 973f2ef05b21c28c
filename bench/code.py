"""Measure code mode: a task of dependent tool calls, made by the model one by one, and by a program.

    python bench/code.py            # half a minute
    python bench/code.py --quick    # a few seconds

CPU times are those of wick's process. The process of the interpreter is counted apart. The cost of one call is the
difference of two tasks, so that the start of a run and of the interpreter is not in it.
"""

from __future__ import annotations

import asyncio
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from time import perf_counter, process_time
from typing import Any

from measure import Rows, main, table

from wick import Agent, Ask, Scripted, ToolCall, ToolUse, assistant, guard, tool
from wick.capabilities import CodeMode, Sessions
from wick.stores import InMemory

CALLS = 20  # of the task
FEW, MORE = 4, 120  # of a shorter and a longer task, for the cost of one call
paid: list[float] = []  # when the approved calls began
MODEL_CALLS_GOAL, CPU_GOAL, RESUME_GOAL = 3, 1.5, 5.0


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def pay(amount: int) -> str:
    """Pay."""
    paid.append(perf_counter())
    return f"paid {amount}"


@guard(ToolUse, match="pay")
def ask(use: ToolUse) -> Ask:
    return Ask("pay?")


def plain_agent(calls: int) -> Agent:
    """Return an agent whose model makes each call itself, as each needs the result of the one before."""
    replies = [assistant("", ToolCall(f"c{number}", "add", {"a": number, "b": number})) for number in range(calls)]
    return Agent(Scripted(*replies, "done"), tools=[add])


def program_agent(calls: int) -> Agent:
    code = f"x = 0\nfor number in range({calls}):\n    x = await add(a=x, b=number)\nx"
    return Agent(Scripted(write(code), "done"), tools=[add], hooks=[CodeMode()])


def write(code: str) -> Any:
    return assistant("", ToolCall("p", "run_code", {"code": code}))


async def run_task(agent: Agent) -> dict[str, float]:
    children, cpu = _children_cpu(), process_time()
    result = await agent.run("go")
    assert result.outcome == "completed", result.reason
    used = (process_time() - cpu) * 1e6
    await asyncio.sleep(0.02)  # until the process of the interpreter is reaped, which counts it
    return {
        "us": used,
        "interpreter_us": (_children_cpu() - children) * 1e6,
        "model_calls": sum(message.role == "assistant" for message in result.thread.messages),
    }


def _children_cpu() -> float:
    usage = getrusage(RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


async def measure_tasks(rounds: int) -> Rows:
    """Measure both ways in the same rounds, as other work on the machine slows both."""
    cases = {"plain calls": (plain_agent, FEW, CALLS), "a program": (program_agent, CALLS, MORE)}
    taken: dict[tuple[str, int], list[dict[str, float]]] = {}
    for _ in range(rounds):
        for case, (make, *sizes) in cases.items():
            for size in sizes:
                taken.setdefault((case, size), []).append(await run_task(make(size)))
    rows: Rows = []
    for case, (_, less, more) in cases.items():
        task = taken[case, CALLS]
        row: dict[str, Any] = {"group": "task", "case": case, "model_calls": task[0]["model_calls"]}
        for key in ("us", "interpreter_us"):
            found = {size: median(one[key] for one in taken[case, size]) for size in (less, more)}
            row |= {key: found[CALLS], f"{key}_per_call": (found[more] - found[less]) / (more - less)}
        rows.append(row)
    return rows


async def measure_resume(rounds: int) -> dict[str, Any]:
    """Measure the time from a resumed run, whose question is answered, to the approved call, and to the end of the run.

    Memory holds the log. The call is made while the interpreter starts, and the run ends after another model call.
    """
    calls, ends = list[float](), list[float]()
    for _ in range(rounds):
        sessions = Sessions(InMemory(), patience=0)
        model = Scripted(write("print(await pay(amount=3))"), "done")
        agent = Agent(model, tools=[pay], hooks=[CodeMode(), ask, sessions])
        await agent.run("go", thread="th_1")
        (question,) = await sessions.questions("th_1")
        await sessions.answer("th_1", question["id"], "allow")
        begun = perf_counter()
        await agent.run(thread="th_1")
        ends.append((perf_counter() - begun) * 1000)
        calls.append((paid[-1] - begun) * 1000)
        await sessions.close()
    figures = {"p50_ms": median(calls), "best_ms": min(calls), "end_p50_ms": median(ends), "end_best_ms": min(ends)}
    return {"group": "resume", "case": "an answered question", **figures}


def tell(rows: Rows) -> None:
    plain, program = (row for row in rows if row["group"] == "task")
    table(
        f"A task of {CALLS} dependent tool calls",
        ["", "model calls", "CPU µs", "µs per call", "interpreter µs per call"],
        [
            [
                row["case"],
                row["model_calls"],
                *(round(row[key]) for key in ("us", "us_per_call", "interpreter_us_per_call")),
            ]
            for row in (plain, program)
        ],
    )
    ratio = program["us_per_call"] / plain["us_per_call"]
    print(f"\na call in a program: {ratio:.2f} times a plain one (goal: {CPU_GOAL})")
    print(f"model calls: {plain['model_calls']} and {program['model_calls']} (goal: {MODEL_CALLS_GOAL})")
    for what, prefix in ((f"to the approved call (goal: {RESUME_GOAL:g} ms)", ""), ("to the end of the run", "end_")):
        p50, best = rows[-1][f"{prefix}p50_ms"], rows[-1][f"{prefix}best_ms"]
        print(f"from a resumed run {what}: p50 {p50:.1f} ms, best {best:.1f} ms")


def run(quick: bool) -> Rows:
    async def measure_all() -> Rows:
        rounds = 5 if quick else 25
        return [*await measure_tasks(rounds), await measure_resume(rounds)]

    return asyncio.run(measure_all())


if __name__ == "__main__":
    main(__doc__, "code", run, tell)
