"""Measure a cluster of wick servers on this machine, under faults: the goals G1 to G8.

    sudo .venv/bin/python bench/cluster.py g1 --short

Each server has its own UTS, PID and network namespace, and a `cpu.max` share if cgroups can be written. Everything runs
inside a private namespace with addresses that exist only there. It needs root. Nothing is left behind, also after
Ctrl-C. After SIGTERM, g1 ends with the kills that it has measured; its file of figures is written after each kill.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / "support"), str(Path(__file__).parents[1] / "tests")]

from cluster import failover, goals  # noqa: E402  # of tests/support, not this file
from cluster.namespaces import INSIDE, CannotIsolate, check_privileges, run_in_private_namespaces  # noqa: E402

# Per goal: runs, rounds and seconds of the full form and of the short one.
SIZES = {
    "g1": ((200, 300, 0.0), (12, 2, 0.0)),
    "g2-nats": ((60, 0, 10.0), (9, 0, 3.0)),
    "g2-postgres": ((60, 0, 10.0), (9, 0, 3.0)),
    "g3": ((0, 0, 20.0), (0, 0, 5.0)),
    "g5": ((200, 0, 0.0), (40, 0, 0.0)),
    "g6-nats": ((200, 0, 30.0), (9, 0, 3.0)),
    "g6-postgres": ((200, 0, 30.0), (9, 0, 3.0)),
    "g6-cut": ((200, 0, 45.0), (9, 0, 6.0)),
    "g7": ((60, 3, 0.0), (9, 1, 0.0)),
    "g8": ((0, 30, 0.0), (0, 4, 0.0)),
    "upgrade": ((60, 9, 0.0), (9, 2, 0.0)),
    "all": ((60, 3, 10.0), (9, 2, 3.0)),  # G1, G6 and G7 in one cluster
}
USES_NATS = {"live": "{nats}"}
SETTINGS = {  # of the servers, unless --settings has others
    "g1": USES_NATS,
    "g2-nats": USES_NATS,
    "g2-postgres": {"live": "postgres"},
    "g6-nats": USES_NATS,
    "all": USES_NATS,
}
FAULTS = {"g6-nats": goals.stop_nats, "g6-postgres": goals.stop_postgres, "g6-cut": goals.cut_off_server}
OLDER = "48179f7a"  # the commit that `upgrade` starts with
RESULTS = Path(__file__).parent / "results"
SHARE = 0.2  # of a core for each server in G3, so that four servers, Postgres and the clients fit on two cores


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("goal", choices=[*SIZES])
    parser.add_argument("--short", action="store_true", help="a few runs and rounds, for a first impression")
    parser.add_argument("--runs", type=int, help="open runs")
    parser.add_argument("--rounds", type=int, help="kills, or restarts of all servers")
    parser.add_argument("--seconds", type=float, help="seconds of an outage, or of a measurement")
    parser.add_argument("--share", type=float, help="the share of a core of each server")
    parser.add_argument("--servers", type=int, help="G3: only this number of servers")
    parser.add_argument("--source", type=Path, default=goals.ROOT, help="the checkout whose wick is measured")
    parser.add_argument("--older", default=OLDER, help="upgrade: the older version, a checkout or a commit")
    parser.add_argument(
        "--settings", type=json.loads, default={}, help="more of server.yaml as JSON; {nats} is the address of NATS"
    )
    parser.add_argument("--budget", type=json.loads, default={}, help="G5: more options of the budget, as JSON")
    parser.add_argument("--json", type=Path, help="write the figures to this file, not to bench/results")
    arguments = parser.parse_args()
    arguments.json = (arguments.json or RESULTS / f"cluster-{arguments.goal}.json").absolute()
    return arguments


async def measure(arguments: argparse.Namespace, folder: Path) -> list[goals.Figure]:
    """Measure one goal inside the private namespace."""
    size = SIZES[arguments.goal][1 if arguments.short else 0]
    runs, rounds, seconds = (
        given if given is not None else usual
        for given, usual in zip((arguments.runs, arguments.rounds, arguments.seconds), size, strict=True)
    )
    options = goals.Options(
        folder,
        arguments.source.absolute(),
        runs,
        rounds,
        seconds,
        arguments.share or (SHARE if arguments.goal == "g3" else 0.0),
        SETTINGS.get(arguments.goal, {}) | arguments.settings,
        arguments.budget,
        arguments.older,
        lambda figures: write_figures(arguments, figures, is_partial=True),
    )
    if arguments.goal == "g1":
        return await failover.measure_failover(options)
    if arguments.goal in ("g2-nats", "g2-postgres"):
        return await goals.measure_deltas(options)
    if arguments.goal == "g3":
        figures = await goals.measure_scaling(options, arguments.servers)
        return [goals.Figure(name, value) for name, value in figures.items()]
    if arguments.goal == "g5":
        return await goals.measure_budget(options)
    if arguments.goal == "all":
        return await goals.measure_all_faults(options)
    if arguments.goal == "g8":
        return await goals.measure_moved_files(options)
    if arguments.goal == "upgrade":
        return await goals.measure_upgrade(options)
    if arguments.goal == "g7":
        return await goals.measure_rolling_restart(options)
    return await goals.measure_outage(options, FAULTS[arguments.goal](options.seconds))


def print_table(goal: str, figures: list[goals.Figure]) -> None:
    """Print each figure beside its goal."""
    print(f"\n{goal}")
    for figure in figures:
        verdict = {None: "", True: "met", False: "NOT MET"}[figure.is_met]
        print(f"  {figure.name:<45} {figure.value:>12,.2f}   {figure.goal:<8} {verdict}")


def start_inside(arguments: list[str], *, reports_early: bool = False) -> int:
    """Run this program in private namespaces of its own."""
    folder = Path(tempfile.mkdtemp(prefix="wick-cluster-", dir="/tmp"))  # TMPDIR may be private; Postgres has its user
    os.environ["WICK_CLUSTER_PID"] = str(os.getpid())
    return run_in_private_namespaces([sys.executable, __file__, *arguments], folder, reports_early=reports_early)


def measure_scaling(arguments: argparse.Namespace) -> int:
    """Measure G3: a cluster of each size in turn, each in a namespace of its own."""
    measured = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in (1, 2, 4):
            file = Path(folder) / "figures.json"
            given = [*sys.argv[1:], "--servers", str(count), "--json", str(file)]
            if code := start_inside(given):
                return code
            measured[count] = {row["name"]: row["value"] for row in json.loads(file.read_text())["figures"]}
    return report(arguments, goals.scaling_figures(measured))


def report(arguments: argparse.Namespace, figures: list[goals.Figure]) -> int:
    """Print the figures and write them; return 1 if a goal is not met."""
    print_table(arguments.goal, figures)
    write_figures(arguments, figures)
    return int(any(figure.is_met is False for figure in figures))


def write_figures(arguments: argparse.Namespace, figures: list[goals.Figure], *, is_partial: bool = False) -> None:
    """Write the figures to their file. Those of a measurement that continues are partial."""
    row = {"goal": arguments.goal, "at": time.time(), "partial": is_partial}
    row["figures"] = [asdict(figure) for figure in figures]
    arguments.json.parent.mkdir(exist_ok=True)
    arguments.json.write_text(json.dumps(row, indent=1))


def main() -> int:
    arguments = parse_arguments()
    if inside := os.environ.get(INSIDE):
        os.environ["TMPDIR"] = tempfile.tempdir = inside
        return report(arguments, asyncio.run(measure(arguments, Path(inside))))
    try:
        check_privileges()
    except CannotIsolate as error:
        print(f"the cluster cannot be started: {error}", file=sys.stderr)
        return 2
    if arguments.goal == "g3" and not arguments.servers:
        return measure_scaling(arguments)
    return start_inside(sys.argv[1:], reports_early=arguments.goal == "g1")


if __name__ == "__main__":
    sys.exit(main())
