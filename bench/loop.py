"""Measure the cost of wick itself, in CPU time: per step, per ring, per streamed delta, per agent and per import.

Each figure has a floor, measured in the same rounds: a hand-written loop with plain dicts, no hooks and no checks,
which calls the same model and the same tool. See bench/README.md.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import cycle, product
from statistics import median
from time import process_time_ns
from typing import Any

from measure import Prepare, Row, Rows, Samples, by_length, compare, groups, main, measure, pick, share, table

from wick import (
    Agent,
    Capability,
    Hook,
    Message,
    ModelCall,
    Thread,
    ToolUse,
    after,
    assistant,
    before,
    guard,
    tool,
    user,
    wrap,
)
from wick.capabilities.information_flow import InformationFlow
from wick.hooks import Next
from wick.protocols import CallArgs, CallStart, Delta, Finish, TextDelta, Usage

LENGTHS = (20, 200, 2_000)  # messages in the thread when the run starts
STEPS = 10  # steps with a tool use, in one run
RINGS = 10  # of the same kind; the cost of one is a tenth of theirs
DELTAS = 2_000  # in one reply
AGENTS = 1_000

# Goals: microseconds beyond the floor.
STEP_GOAL, DELTA_GOAL, AGENT_GOAL, AGENT_BYTES_GOAL = 150.0, 5.0, 200.0, 20_000


# -- the workload ---------------------------------------------------------------------------------------------------


Replies = list[tuple[Delta, ...]]


class Prepared:
    """A model that cycles through ready-made replies. If `live`, it yields to the event loop before each delta."""

    name = "prepared"

    def __init__(self, replies: Replies, live: bool = False) -> None:
        self._replies = cycle(replies)
        self._live = live

    async def stream(self, request: object) -> AsyncIterator[Delta]:
        for delta in next(self._replies):
            if self._live:
                await asyncio.sleep(0)
            yield delta


_END: tuple[Delta, ...] = (Usage(100, 10), Finish())
_ANSWER: tuple[Delta, ...] = (TextDelta("It is sunny in Lisbon."), *_END)
_QUESTION = "What is the weather in Lisbon?"
_PLAN = '{"steps": [{"tool": "weather", "times": 100}]}'
_PLANNED: tuple[Delta, ...] = (CallStart(0, "plan", "plan"), CallArgs(0, _PLAN), Usage(100, 10), Finish("tool_calls"))


def _asks(number: int) -> tuple[Delta, ...]:
    call = (CallStart(0, f"call_{number}", "weather"), CallArgs(0, '{"city": "Lisbon", "days": 2}'))
    return (TextDelta("Let me look."), *call, Usage(100, 10), Finish("tool_calls"))


WORK: Replies = [*map(_asks, range(STEPS)), _ANSWER]
REST: Replies = [_ANSWER]
ESSAY: Replies = [(*[TextDelta("word ")] * DELTAS, *_END)]


async def forecast(city: str, days: int = 1) -> str:
    """The weather forecast for a city."""
    return "sunny"


weather = tool(forecast, name="weather")
DECLARED = {  # the result is untrusted text; a message needs a plan and a trusted recipient
    "a read": tool(forecast, name="weather", effect="read", returns="untrusted"),
    "a planned message": tool(forecast, name="weather", effect="send", targets=["city"], returns="untrusted"),
}


async def look(op: Any) -> None:
    """A hook that returns None."""


async def around(op: Any, next: Next[Any]) -> Any:
    return await next(op)


def look_now(op: Any) -> None:
    """A hook that is a plain function, not a coroutine."""


def _hooks(kind: str, operation: Any, count: int) -> list[Hook]:
    make: dict[str, Callable[[str], Hook]] = {
        "before": lambda name: before(operation, name=name)(look),
        "wrap": lambda name: wrap(operation, name=name)(around),
        "after": lambda name: after(operation, name=name)(look),
        "guard": lambda name: guard(operation, name=name)(look),
        "guard, not async": lambda name: guard(operation, name=name)(look_now),
    }
    return [make[kind](f"{kind} {operation.operation_name} {number}") for number in range(count)]


def _some_hooks(each: int) -> list[Hook]:
    kinds = [_hooks(kind, ToolUse, each) for kind in ("before", "wrap", "after", "guard")]
    return [hook for hooks in (*kinds, _hooks("before", ModelCall, each)) for hook in hooks]


CROWDS = {"no hooks": _some_hooks(0), "a few hooks": _some_hooks(1), "20 hooks": _some_hooks(4)}
KINDS = ("before", "wrap", "after", "guard", "guard, not async")


# -- the floor ------------------------------------------------------------------------------------------------------


async def bare_loop(model: Prepared, messages: list[dict[str, Any]], tools: dict[str, Any]) -> None:
    """Run the minimal loop of an agent."""
    while True:
        reply = await _bare_reply(model, messages)
        messages.append(reply)
        if not reply["tool_calls"]:
            return
        messages += await asyncio.gather(*(_bare_use(call, tools) for call in reply["tool_calls"]))


async def _bare_reply(model: Prepared, messages: list[dict[str, Any]]) -> dict[str, Any]:
    text: list[str] = []
    calls: dict[int, dict[str, Any]] = {}
    async for delta in model.stream([*messages]):
        if isinstance(delta, TextDelta):
            text.append(delta.text)
        elif isinstance(delta, CallStart):
            calls[delta.index] = {"id": delta.id, "name": delta.name, "args": ""}
        elif isinstance(delta, CallArgs):
            calls[delta.index]["args"] += delta.text
    return {"role": "assistant", "content": "".join(text), "tool_calls": [*calls.values()]}


async def _bare_use(call: dict[str, Any], tools: dict[str, Any]) -> dict[str, Any]:
    output = await tools[call["name"]](**json.loads(call["args"]))
    return {"role": "tool", "tool_call_id": call["id"], "content": output}


async def bare_stream(model: Prepared, messages: list[dict[str, Any]]) -> AsyncIterator[dict[str, str]]:
    """Yield the events of a reply with the minimal streaming loop."""
    text: list[str] = []
    async for delta in model.stream([*messages]):
        if isinstance(delta, TextDelta):
            text.append(delta.text)
            yield {"event": "text", "delta": delta.text}
    messages.append({"role": "assistant", "content": "".join(text)})


# -- the measured cases ---------------------------------------------------------------------------------------------


def _create_history(length: int) -> list[Message]:
    said = [(user(f"What about day {day}? " * 5), assistant(f"Sunny on day {day}. " * 5)) for day in range(length // 2)]
    return [message for pair in said for message in pair]


_PASTS = {length: _create_history(length) for length in (0, *LENGTHS)}


def _thread(length: int) -> Thread:
    thread = Thread()
    thread.add(*_PASTS[length])
    return thread


def _wick(hooks: Sequence[Hook | Capability], replies: Replies, length: int = 0, used: Any = weather) -> Prepare:
    agent = Agent(Prepared(replies), tools=[used], hooks=hooks)
    return lambda: agent.run(_QUESTION, thread=_thread(length))


def _bare(replies: Replies, length: int = 0) -> Prepare:
    model, tools = Prepared(replies), {"weather": forecast}
    past = [{"role": message.role, "content": message.content} for message in _PASTS[length]]
    return lambda: bare_loop(model, [*past, {"role": "user", "content": _QUESTION}], tools)


def _wick_stream(live: bool) -> Prepare:
    agent = Agent(Prepared(ESSAY, live))
    return lambda: _read(aiter(agent.stream(_QUESTION)))


def _bare_stream(live: bool) -> Prepare:
    model = Prepared(ESSAY, live)
    return lambda: _read(bare_stream(model, [{"role": "user", "content": _QUESTION}]))


async def _read(events: AsyncIterator[object]) -> None:
    async for _ in events:
        pass


# -- steps and rings ------------------------------------------------------------------------------------------------


async def steps(rounds: int) -> list[Row]:
    """Measure a step with none, a few and many hooks, and one more ring of each kind."""
    rings = {_ring(kind, op): _hooks(kind, op, RINGS) for op in (ToolUse, ModelCall) for kind in KINDS}
    cost = await _step_costs(CROWDS | rings, rounds)
    rows = []
    for name in CROWDS:
        own = [cost[name, length] for length in LENGTHS]
        floors = [cost["bare", length] for length in LENGTHS]
        rows += [
            compare("step", name, us, floor, messages=length, goal_us=_goal(name))
            for us, floor, length in zip(own, floors, LENGTHS, strict=True)
        ]
        rows.append(compare("growth", name, _growth(own), _growth(floors), floors[0]))
    for name, length in product(rings, LENGTHS):
        one = share(cost[name, length], cost["no hooks", length], RINGS)
        rows.append(compare("ring", name, one, cost["bare", length], messages=length))
    return rows


async def _step_costs(crowds: dict[str, list[Hook]], rounds: int) -> Samples[tuple[str, int]]:
    """Return the cost of a step for each set of hooks, and for the bare loop, at each length of the thread."""
    cases: dict[tuple[str, int, str], Prepare] = {}
    for length, (kind, replies) in product(LENGTHS, {"work": WORK, "rest": REST}.items()):
        cases["bare", length, kind] = _bare(replies, length)
        for name, hooks in crowds.items():
            cases[name, length, kind] = _wick(hooks, replies, length)
    spent = await measure(cases, rounds)
    each = product(("bare", *crowds), LENGTHS)
    return {(name, at): share(spent[name, at, "work"], spent[name, at, "rest"], STEPS) for name, at in each}


def _growth(costs: list[list[float]]) -> list[float]:
    """Return the cost that 1,000 more messages add to a step."""
    return share(costs[-1], costs[0], LENGTHS[-1] - LENGTHS[0], 1_000)


def _ring(kind: str, operation: Any) -> str:
    name, _, note = kind.partition(", ")
    return f"{name}({operation.__name__})" + (f", {note}" if note else "")


def _goal(crowd: str) -> float | None:
    return STEP_GOAL if crowd == "a few hooks" else None


# -- information flow -----------------------------------------------------------------------------------------------


async def flow(rounds: int) -> list[Row]:
    """Measure a step with `InformationFlow` after untrusted text was read, beside one without it."""
    flows = {"with": InformationFlow(), "without": InformationFlow(enabled=False)}
    first = [_PLANNED, _asks(-2), _asks(-1)]  # the second use indexes the thread, once
    replies = {"work": [*first, *WORK], "rest": [*first, *REST]}
    cases = {
        (name, case, length, kind): _wick([flows[name]], replies[kind], length, used)
        for name, (case, used), length, kind in product(flows, DECLARED.items(), LENGTHS, replies)
    }
    spent = await measure(cases, rounds)
    cost = {at: share(spent[(*at, "work")], spent[(*at, "rest")], STEPS) for at in product(flows, DECLARED, LENGTHS)}
    return [
        compare("flow", case, cost["with", case, n], cost["without", case, n], messages=n)
        for case, n in product(DECLARED, LENGTHS)
    ]


# -- deltas ---------------------------------------------------------------------------------------------------------


async def deltas(rounds: int) -> list[Row]:
    """Measure a delta of a reply: without a reader, read in one burst, and read one at a time."""
    cases = {
        "run()": (_wick((), ESSAY), _bare(ESSAY)),
        "stream(), in one burst": (_wick_stream(False), _bare_stream(False)),
        "stream(), one at a time": (_wick_stream(True), _bare_stream(True)),
    }
    every = {f"{name} {side}": case for name, pair in cases.items() for side, case in zip("wb", pair, strict=True)}
    samples = await measure(every | {"rest w": _wick((), REST), "rest b": _bare(REST)}, rounds)

    def each(name: str, side: str) -> list[float]:
        return share(samples[f"{name} {side}"], samples[f"rest {side}"], DELTAS)

    return [compare("delta", name, each(name, "w"), each(name, "b"), goal_us=DELTA_GOAL) for name in cases]


# -- agents ---------------------------------------------------------------------------------------------------------


async def lookup(query: str, limit: int = 5) -> str:
    """Look something up."""
    return query


async def remember(key: str, value: str) -> str:
    """Store a value for later."""
    return value


FUNCTIONS = (forecast, lookup, remember)
TOOLS = (weather, tool(lookup), tool(remember))
HOOKS = (*_hooks("before", ToolUse, 1), *_hooks("after", ToolUse, 1), *_hooks("guard", ToolUse, 1))


def _agent(tools: Sequence[Any]) -> Agent:
    return Agent(Prepared(REST), system="You are helpful.", tools=tools, hooks=HOOKS)


def _running_agent(tools: Sequence[Any]) -> Agent:
    agent = _agent(tools)
    agent._loop_under(None)
    return agent


MAKERS: dict[str, Callable[[], Agent]] = {
    "of tools": lambda: _agent(TOOLS),
    "of plain functions": lambda: _agent(FUNCTIONS),
    "of tools, and its rings": lambda: _running_agent(TOOLS),
}


def agents(count: int, rounds: int, bare_step: float) -> Rows:
    """Measure the CPU and memory of an agent with three tools and three hooks. Its rings come with the first run."""
    samples: Samples[str] = {name: [] for name in MAKERS}
    for _ in range(rounds):
        for name, make in MAKERS.items():
            gc.collect()
            start = process_time_ns()
            for _ in range(count):
                make()
            samples[name].append((process_time_ns() - start) / 1_000 / count)
    rows = [Row("agent", name, us := median(samples[name]), bare_step, us / bare_step) for name in MAKERS]
    goals = {"goal_us": AGENT_GOAL, "goal_bytes": AGENT_BYTES_GOAL}
    return [row.to_json() | {"bytes": _bytes(MAKERS[row.case], count)} | goals for row in rows]


def _bytes(make: Callable[[], Agent], count: int) -> int:
    make()
    gc.collect()
    tracemalloc.start()
    kept = [make() for _ in range(count)]
    gc.collect()
    size = tracemalloc.get_traced_memory()[0] // len(kept)
    tracemalloc.stop()
    return size


# -- imports --------------------------------------------------------------------------------------------------------

# `import pydantic` alone loads almost nothing: its names are imported on first use.
IMPORTS = {
    "import pydantic": "import pydantic",
    "pydantic, in use": "from pydantic import BaseModel, TypeAdapter",
    "import wick": "import wick",
}
_PROBE = """
import os, sys, time
def rss():
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # no /proc on this system: the peak
        import resource
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
size, start = rss(), time.process_time()
exec(sys.argv[1])
print((time.process_time() - start) * 1000, rss() - size)
"""


def imports(rounds: int) -> Rows:
    """Measure each import in a new process, beyond the bare interpreter."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in IMPORTS}
    for number in range(-1, rounds):
        for name, code in IMPORTS.items():
            cost = _measure_import(code)
            if number >= 0:  # the first round writes the bytecode
                found[name].append(cost)
    ms = {name: median(cost[0] for cost in costs) for name, costs in found.items()}
    size = {name: median(cost[1] for cost in costs) / 1e6 for name, costs in found.items()}
    floor = ms["pydantic, in use"]
    return [
        {"group": "import", "case": name, "ms": round(ms[name], 1), "rss_mb": round(size[name], 1),
         "ratio": round(ms[name] / floor, 2)}
        for name in IMPORTS
    ]  # fmt: skip


def _measure_import(code: str) -> tuple[float, float]:
    probe = subprocess.run([sys.executable, "-c", _PROBE, code], capture_output=True, text=True, check=True)
    ms, size = probe.stdout.split()
    return float(ms), float(size)


# -- reporting ------------------------------------------------------------------------------------------------------


def tell(rows: Rows) -> None:
    group = groups(rows)
    costs = ("us", "floor_us", "own_us", "ratio", "goal_us")
    heads = ("µs", "floor", "beyond it", "ratio", "goal, beyond it")
    table("a step: one reply, one tool use", ("", "messages", *heads), pick(group["step"], "messages", *costs))
    table("cost that 1,000 more messages add to a step", ("", *heads[:3]), pick(group["growth"], *costs[:3]))
    table("a step with information flow", ("", "messages", *heads[:4]), pick(group["flow"], "messages", *costs[:4]))
    lengths = [f"{length:,}" for length in LENGTHS]
    table(
        "one more ring, in µs, by messages; and as a share of a bare step",
        ("", *lengths, *lengths),
        ([case, *by_length(group["ring"], case, "us"), *by_length(group["ring"], case, "ratio")]
         for case in dict.fromkeys(row["case"] for row in group["ring"])),
    )  # fmt: skip
    table("a delta of a reply", ("", *heads), pick(group["delta"], *costs))
    table(
        "an agent with 3 tools and 3 hooks",
        ("", "µs", "goal", "bytes", "goal", "in bare steps"),
        pick(group["agent"], "us", "goal_us", "bytes", "goal_bytes", "ratio"),
    )
    table("an import, beyond Python itself", ("", "ms", "MB", "ratio"), pick(group["import"], "ms", "rss_mb", "ratio"))


# -- the program ----------------------------------------------------------------------------------------------------


def run(quick: bool) -> Rows:
    rounds = 5 if quick else 31
    with asyncio.Runner() as runner:
        found = runner.run(steps(rounds)) + runner.run(flow(rounds)) + runner.run(deltas(rounds))
    bare_step = next(row.floor_us for row in found if row.group == "step")
    rows = [row.to_json() for row in found]
    rows += agents(AGENTS // 10 if quick else AGENTS, min(rounds, 7), bare_step)
    return rows + imports(1 if quick else 7)


if __name__ == "__main__":
    main(__doc__, "loop", run, tell)
