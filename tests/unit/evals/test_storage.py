"""Stored reports: listed, loaded, and names that lead nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eval_shop import run_cases
from wick.constants import EVAL_REPORTS
from wick.errors import ConfigError, StoreError
from wick.evals import storage
from wick.evals.report import EvalReport
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


async def test_a_report_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "EVAL_REPORT_BYTES", 1_000)
    with pytest.raises(ConfigError, match="bytes, more than 1,000; split the suite, or write the report with --output"):
        store_report(tmp_path, "long", await run_cases())
    assert list_reports(tmp_path) == []


def test_many_reports_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "evals").mkdir()
    text = EvalReport(suite="shop").to_json()
    for number in range(EVAL_REPORTS + 20):
        path = tmp_path / "evals" / f"r{number}.json"
        path.write_text(text)
        os.utime(path, (number, number))
    found = list_reports(tmp_path)
    assert len(found) == EVAL_REPORTS and found[0].name == f"r{EVAL_REPORTS + 19}" and found[-1].name == "r20"
    read = storage._describe_file.cache_info().misses
    assert list_reports(tmp_path) == found
    assert storage._describe_file.cache_info().misses == read


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "none", ".hidden", "a" * 101])
async def test_a_name_leads_to_a_report_only(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.json").write_text((await run_cases()).to_json())
    with pytest.raises(StoreError, match="there is no eval report"):
        load_report(tmp_path, name)
    if name != "none":
        with pytest.raises(ConfigError, match="is not a name"):
            store_report(tmp_path, name, await run_cases())
