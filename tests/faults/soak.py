"""Soak test: many users for a long time, with a fault every other second.

    python tests/faults/soak.py                        # 60 minutes
    python tests/faults/soak.py --minutes 3 --users 20
    python tests/faults/soak.py --store postgres --keep

It shows a live table, and ends with a report. `--keep` writes that to bench/results/soak.json, and its
picture to docs/images/soak.svg. The exit code is 1 if anything was lost, duplicated, invalid, leaked or refused.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from pathlib import Path
from shutil import rmtree
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "support"), str(HERE.parents[1] / "src")]

import uvloop  # noqa: E402

from soak_test.chart import picture  # noqa: E402
from soak_test.live_table import Showing  # noqa: E402
from soak_test.report import text, violated  # noqa: E402
from soak_test.soak import Plan, Soak  # noqa: E402

RESULT = HERE.parents[1] / "bench" / "results" / "soak.json"
PICTURE = HERE.parents[1] / "docs" / "images" / "soak.svg"
ROWS = 240  # samples stored in the file


def soak(plan: Plan, *, quiet: bool = False, log: Path | None = None) -> dict[str, Any]:
    """Run the soak and return its report."""
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        with Showing(plan.seconds, quiet) as showing, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            run = Soak(plan, folder)
            for number in (signal.SIGINT, signal.SIGTERM):
                runner.get_loop().add_signal_handler(number, run.end)
            return runner.run(run.run(showing.tell))
    finally:
        if (folder / "serve.log").exists() and log is not None:
            log.write_bytes((folder / "serve.log").read_bytes())
        rmtree(folder, ignore_errors=True)


def keep(report: dict[str, Any]) -> None:
    """Write the report and its picture into the repository."""
    PICTURE.write_text(picture(report))
    step = max(1, len(report["samples"]) // ROWS)
    RESULT.write_text(json.dumps(report | {"samples": report["samples"][::step]}, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two faults")
    parser.add_argument("--chance", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="write the report and its picture into the repository")
    parser.add_argument("--log", type=Path, help="where to put what the server said")
    said = parser.parse_args()
    plan = Plan(said.minutes * 60, said.users, every=said.every, store=said.store, chance=said.chance)
    report = soak(plan, log=said.log)
    print(text(report))
    if said.keep:
        keep(report)
    return 1 if violated(report) else 0


if __name__ == "__main__":
    sys.exit(main())
