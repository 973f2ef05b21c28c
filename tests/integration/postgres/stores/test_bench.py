"""The benchmark of the stores runs, and its report has the figures it promises. How good they are is for people."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[4] / "bench" / "threads.py"


@pytest.mark.long
def test_every_figure_is_there(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCH), "--quick", "--json", str(tmp_path / "threads.json")]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "threads.json").read_text(encoding="utf-8"))["rows"]
    assert Counter(row["group"] for row in rows) == {"append": 6, "load": 6, "writers": 4, "conversation": 1}
    assert all(row["us"] > 0 and row["ratio"] > 0 for row in rows if row["group"] in ("append", "load"))
    assert all(row["per_second"] > 0 for row in rows if row["group"] == "writers")
    assert {row["ratio"] for row in rows if row.get("case") == "bare sqlite3"} == {1.0}
    for row in rows:
        assert any(line.strip().startswith(row["case"]) for line in done.stdout.splitlines()), row
