"""G1: servers are killed in turn while runs are open. How soon does each run continue, and where?

A kill begins when the servers share the runs evenly, and ends when all runs of the killed server have continued. Then
that server is started again. New runs start at the server with the fewest connections, as behind a load balancer, so
that a restarted server holds its share again soon.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field

from cluster.goals import (
    RESUME_SECONDS,
    Figure,
    Options,
    at_most,
    finish_load,
    loaded_cluster,
    percentile,
    runs_of,
    show_progress,
    wait_resumed,
)
from cluster.load import Load, RunScript
from cluster.machines import Cluster, Machine

EVEN_PERCENT = 15.0  # difference of the servers' runs at which the next one is killed
EVEN_SECONDS = 30.0  # after which it is killed nevertheless
POLL_SECONDS = 0.05
SCRIPT = RunScript(steps=1, deltas=4, pause=0.8)


@dataclass(frozen=True)
class Kill:
    """One kill: its figures, and the seconds of its phases."""

    server: str
    moved: list[int]  # runs that each survivor has taken
    held: list[int]  # runs that each survivor has then
    delays: list[float]  # of each moved run, until another server calls the model
    restart: float  # until the server is ready again
    refill: float  # until the servers share the runs evenly

    @property
    def line(self) -> str:
        return (
            f"{self.server}: {len(self.delays)} runs moved, {self.moved}, now {self.held}; "
            f"resumed after {max(self.delays, default=0.0):.1f} s, restarted {self.restart:.1f} s, "
            f"even {self.refill:.1f} s"
        )


@dataclass
class Failover:
    """Kills of a loaded cluster."""

    cluster: Cluster
    load: Load
    kills: list[Kill] = field(default_factory=list)

    async def kill_next(self) -> Kill:
        """Kill a server, wait for its runs, start it, and wait until it has its share of the runs."""
        machines = self.cluster.machines
        victim = machines[len(self.kills) % len(machines)]
        survivors = [machine for machine in machines if machine is not victim]
        affected = runs_of(self.cluster, self.load, victim)
        killed = time.time()
        victim.kill()
        resumed = await wait_resumed(self.cluster, affected, victim, killed)
        taken = Counter(server for _, server in resumed.values() if server)
        held = self.count_held(survivors)
        delays = [resumed[run.name][0] if run.name in resumed else RESUME_SECONDS for run in affected]
        began = time.monotonic()
        victim.start()
        await victim.wait_ready()
        restart = time.monotonic() - began
        self.cluster.limit_cpus()
        refill = await self.wait_even()
        kill = Kill(victim.name, [taken[one.address] for one in survivors], held, delays, restart, refill)
        self.kills.append(kill)
        return kill

    def count_held(self, machines: list[Machine]) -> list[int]:
        """Return the number of open runs that each machine performs."""
        last = self.cluster.find_servers()
        held = Counter(last.get(run.name) for run in self.load.open_runs)
        return [held[machine.address] for machine in machines]

    async def wait_even(self) -> float:
        """Wait until the machines perform about as many runs each; return the seconds."""
        began = time.monotonic()
        while difference(self.count_held(self.cluster.machines)) > EVEN_PERCENT:
            if time.monotonic() > began + EVEN_SECONDS:
                break
            await asyncio.sleep(POLL_SECONDS)
        return time.monotonic() - began

    def figures(self) -> list[Figure]:
        delays = [delay for kill in self.kills for delay in kill.delays]
        held, moved = ([difference(getattr(kill, name)) for kill in self.kills] for name in ("held", "moved"))
        return [
            Figure("kills", len(self.kills)),
            Figure("runs moved", len(delays)),
            Figure("runs moved by a kill, mean", mean([float(len(kill.delays)) for kill in self.kills])),
            Figure("resume p50 s", percentile(delays, 0.5)),
            at_most("resume p99 s", percentile(delays, 0.99), 5),
            Figure("resume s, largest", max(delays, default=0.0)),
            at_most("difference of the survivors' runs %, mean", mean(held), 20),
            Figure("difference of the survivors' runs %, largest", max(held, default=0.0)),
            at_most("difference of the moved runs %, mean", mean(moved), 20),
            Figure("difference of the moved runs %, largest", max(moved, default=0.0)),
            Figure("all runs of a kill resumed s, mean", mean([max(kill.delays, default=0.0) for kill in self.kills])),
            Figure("restart s, mean", mean([kill.restart for kill in self.kills])),
            Figure("share regained s, mean", mean([kill.refill for kill in self.kills])),
        ]


def difference(counts: list[int]) -> float:
    """Return by how many percent the smallest number is below the largest."""
    return 100 * (max(counts) - min(counts)) / max(1, *counts)


def mean(values: list[float]) -> float:
    return sum(values) / max(1, len(values))


async def measure_failover(options: Options) -> list[Figure]:
    """Kill servers until there were enough kills, or until the measurement is to end. Each kill is saved."""
    async with loaded_cluster(options, 3, SCRIPT, least_connections=True, forks=True) as (cluster, load):
        load.start(options.runs)
        failover = Failover(cluster, load)
        await asyncio.sleep(5)
        await failover.wait_even()
        while len(failover.kills) < options.rounds and not options.is_ended():
            try:
                kill = await failover.kill_next()
            except RuntimeError as error:  # a server did not start again: report the kills before it
                show_progress(str(error))
                break
            figures = failover.figures()
            options.save(figures)
            p99 = next(figure.value for figure in figures if figure.name == "resume p99 s")
            show_progress(f"{len(failover.kills)}: {kill.line}; p99 {p99:.1f} s")
        return [*failover.figures(), *await finish_load(cluster, load)]
