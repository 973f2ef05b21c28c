"""Shared code of the programs of this folder: the work, its measurement, and the output.

    python with_agno.py SCENARIO URL N        the last line of the output is JSON

    import    import the framework (N is not used)
    ready     import it, create an agent and answer once, with one tool use (N is not used)
    step      one conversation with N tool uses before the answer
    many      N concurrent runs, with five tool uses each
    delta     one streamed reply of N words, each in its own delta
    agents    create N agents and hold references to them

CPU time is that of the whole process since its start, with all of its threads. This module imports only what a small
program would; running `contract.py` itself measures its own share.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Awaitable, Callable
from resource import RUSAGE_SELF, getrusage
from time import perf_counter
from typing import Any

SYSTEM = "You are an assistant for travellers. Look up what you do not know, and answer in short sentences. " * 4
RESULT = (
    "Sunny, 24 degrees." + " A light wind from the north-west, clear in the evening, no rain before the weekend." * 3
)
TOOL, DESCRIPTION = "forecast", "The weather forecast for a city."
STEPS_OF_MANY = 5
MOST_STEPS = 1_000  # the step limit of every framework

ENOUGH_CPU, MOST_REPEATS = 1.0, 5  # a short case is repeated, and its median taken


def words(count: int) -> list[str]:
    """Return the words of the answer. Consecutive words differ, because some frameworks reject repeated chunks."""
    return [(" sunny", " warm", " mild", " clear")[number % 4] for number in range(count)]


def question(steps: int, length: int = 1) -> str:
    """Return the question of the user. The provider reads the number of tool uses and the answer's length from it."""
    return f"What should I wear in Lisbon? Look at {steps} forecasts and answer in {length} words."


async def forecast(city: str, days: int) -> str:
    """The weather forecast for a city."""
    return f"Day {days}: {RESULT}"


# The same as JSON Schema, for programs that need one.
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
}


class Peer:
    """One framework. `agent` creates an agent; `run` and `stream` answer a question with it, and return the text."""

    packages: tuple[str, ...] = ()  # packages whose versions are reported
    fresh = False  # True if an agent stores its conversation, so that each run needs a new agent

    def __init__(self, url: str) -> None:
        """Create the model client that all agents share. The URL ends with /v1."""

    def agent(self) -> Any:
        return None

    async def run(self, agent: Any, question: str) -> str:
        raise NotImplementedError

    async def stream(self, agent: Any, question: str) -> str:
        raise NotImplementedError

    async def close(self) -> None:
        """Close open connections."""


# -- measuring ------------------------------------------------------------------------------------------------------


def cpu() -> float:
    used = getrusage(RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def rss() -> int:
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # no /proc on this system: the peak
        return getrusage(RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def so_far() -> dict[str, Any]:
    return {"cpu_ms": cpu() * 1e3, "rss_mb": rss() / 1e6}


def middle(samples: list[float]) -> float:
    return sorted(samples)[len(samples) // 2]


async def repeated(work: Callable[[], Awaitable[object]]) -> tuple[list[float], list[float]]:
    """Repeat some work, and return the CPU seconds and the wall seconds of each repetition."""
    spent: list[float] = []
    passed: list[float] = []
    while not spent or (sum(spent) < ENOUGH_CPU and len(spent) < MOST_REPEATS):
        gc.collect()
        start, begun = cpu(), perf_counter()
        await work()
        spent.append(cpu() - start)
        passed.append(perf_counter() - begun)
    return spent, passed


class Work:
    """The scenarios, run with one peer."""

    def __init__(self, peer: Peer) -> None:
        self.peer, self.shared = peer, None if peer.fresh else peer.agent()
        self.runs = 0

    async def answer(self, steps: int, length: int = 1, stream: bool = False) -> None:
        agent = self.peer.agent() if self.peer.fresh else self.shared
        text = await (self.peer.stream if stream else self.peer.run)(agent, question(steps, length))
        if text != "".join(words(length)):
            raise SystemExit(f"the answer is not the model's: {text[:200]!r}")

    async def ready(self, _: int) -> dict[str, Any]:
        await self.answer(1)
        return so_far()

    async def step(self, count: int) -> dict[str, Any]:
        await self.answer(2)  # warms up
        spent, _ = await repeated(lambda: self.answer(count))
        return {"us": middle(spent) * 1e6 / count, "runs": len(spent)}

    async def many(self, count: int) -> dict[str, Any]:
        import asyncio

        async def at_once() -> None:
            await asyncio.gather(*(self.answer(STEPS_OF_MANY) for _ in range(count)))

        await self.answer(2)
        spent, passed = await repeated(at_once)
        return {
            "per_second": count / middle(passed),
            "per_cpu_second": count / middle(spent),
            "runs": count * len(spent),
        }

    async def delta(self, count: int) -> dict[str, Any]:
        await self.answer(0, 2, stream=True)
        short, _ = await repeated(lambda: self.answer(0, 1, stream=True))
        long, _ = await repeated(lambda: self.answer(0, count, stream=True))
        return {"us": (middle(long) - middle(short)) * 1e6 / (count - 1), "runs": [len(short), len(long)]}

    async def agents(self, count: int) -> dict[str, Any]:
        warm = [self.peer.agent() for _ in range(20)]
        if warm[0] is None:
            return {}
        gc.collect()
        size, start = rss(), cpu()
        kept = [self.peer.agent() for _ in range(count)]
        spent = cpu() - start
        gc.collect()
        return {"us": spent * 1e6 / len(kept), "kb": (rss() - size) / 1e3 / len(kept)}


async def _do(kind: type[Peer], scenario: str, url: str, count: int) -> dict[str, Any]:
    peer = kind(url)
    try:
        return await getattr(Work(peer), scenario)(count)  # type: ignore[no-any-return]
    finally:
        await peer.close()


def main(kind: type[Peer]) -> None:
    """Run the scenario of the command line. All imports of the program are complete at this point."""
    imported = so_far()
    scenario, url, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if scenario == "import":
        found = imported | {"versions": _versions(kind.packages)}
    else:
        import asyncio

        found = asyncio.run(_do(kind, scenario, url, count))
    print(f"\n{json.dumps(found)}", flush=True)  # on its own line, also after output of a framework
    os._exit(0)  # skip exit handlers of frameworks, which are not part of the work


def _versions(packages: tuple[str, ...]) -> dict[str, str]:
    from importlib.metadata import version

    return {package: version(package) for package in packages}


if __name__ == "__main__":
    main(Peer)
