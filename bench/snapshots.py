"""Measure snapshots of a workspace: of 10,000 new, unchanged and changed files, and a restore.

python bench/snapshots.py [FILES]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from wick.workspace.snapshots.history import SnapshotHistory

REPEATS = 50


def measure(
    name: str, work: Callable[[], object], repeats: int = REPEATS, prepare: Callable[[], object] | None = None
) -> None:
    """Print the median and the range of the time that work takes, and the median of its CPU time."""
    walls, cpus = list[float](), list[float]()
    for _ in range(repeats):
        if prepare is not None:
            prepare()
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        walls.append((time.perf_counter() - wall) * 1000)
        cpus.append((time.process_time() - cpu) * 1000)
    median, cpu = statistics.median(walls), statistics.median(cpus)
    print(f"{name:36} p50 {median:8.1f} ms   min {min(walls):8.1f}   max {max(walls):8.1f}   CPU {cpu:8.1f}")


def main() -> None:
    count = int(sys.argv[1]) if sys.argv[1:] else 10_000
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "workspace")
        for index in range(count):
            path = root / f"{index // 1000}" / f"{index // 100}"
            path.mkdir(parents=True, exist_ok=True)
            (path / f"file-{index}.txt").write_text(f"content {index} " * 20)
        time.sleep(0.2)
        history = SnapshotHistory(Path(folder, "snapshots"), root)
        print(f"{count:,} files, load {os.getloadavg()[0]:.1f}")
        measure("first snapshot", history.take, 1)
        measure("unchanged", history.take)
        changed = root / "0" / "0" / "file-0.txt"
        numbers = iter(range(10**6))
        measure("one file changed", history.take, prepare=lambda: changed.write_text(f"{next(numbers)}"))
        before = history.take()
        measure(
            "restore one file",
            lambda: history.restore(before.id),
            prepare=lambda: changed.write_text(f"{next(numbers)}"),
        )
        history.save_index()
        measure("unchanged, in a new process", lambda: SnapshotHistory(history.folder, root).take(), 5)


if __name__ == "__main__":
    main()
