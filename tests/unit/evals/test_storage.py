"""Stored reports: listed, loaded, and names that lead nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eval_shop import run_cases
from wick.errors import ConfigError, StoreError
from wick.evals.storage import list_reports, load_report, store_report


async def test_reports_are_listed_the_latest_first(tmp_path: Path) -> None:
    assert list_reports(tmp_path) == []
    report = await run_cases(variants={"base": "eval_shop:agent", "unguarded": "eval_shop:unguarded"})
    for name, at in (("old", 100), ("new", 200)):
        os.utime(store_report(tmp_path, name, report), (at, at))
    (tmp_path / "evals" / "broken.json").write_text("{")
    (tmp_path / "evals" / "not a name.json").write_text(report.to_json())
    found = list_reports(tmp_path)
    assert [(info.name, info.updated, info.cases, info.regressions) for info in found] == [
        ("new", 200.0, 2, 1),
        ("old", 100.0, 2, 1),
    ]
    assert [one.failed for one in found[0].variants] == [0, 1]
    assert load_report(tmp_path, "new") == report


async def test_a_changed_report_is_read_again(tmp_path: Path) -> None:
    report = await run_cases()
    store_report(tmp_path, "nightly", report)
    assert not list_reports(tmp_path)[0].partial
    store_report(tmp_path, "nightly", report.model_copy(update={"partial": True}))
    assert list_reports(tmp_path)[0].partial


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "none", ".hidden", "a" * 101])
async def test_a_name_leads_to_a_report_only(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.json").write_text((await run_cases()).to_json())
    with pytest.raises(StoreError, match="there is no eval report"):
        load_report(tmp_path, name)
    if name != "none":
        with pytest.raises(ConfigError, match="is not a name"):
            store_report(tmp_path, name, await run_cases())
