"""Stored reports: JSON files in the folder `evals` of a data folder, which the web interface shows."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ValidationError

from wick.constants import EVAL_REPORT_BYTES, EVAL_REPORTS
from wick.errors import ConfigError, StoreError
from wick.evals.report import EvalReport, EvalVariantSummary

FOLDER = "evals"
_NAME = re.compile(r"\w[\w.-]{0,99}")


class EvalReportInfo(BaseModel):
    """A stored report, without its cases."""

    name: str
    suite: str
    updated: float
    partial: bool
    cases: int
    regressions: int
    variants: list[EvalVariantSummary]


def store_report(data: Path, name: str, report: EvalReport) -> Path:
    """Store a report under a name in a data folder, and return the path of its file.

    Raise a ConfigError if it is too long to be listed.
    """
    path, content = _report_path(data, name), report.to_json().encode()
    if len(content) > EVAL_REPORT_BYTES:
        limit = f"{len(content):,} bytes, more than {EVAL_REPORT_BYTES:,}"
        raise ConfigError(f"the report has {limit}; split the suite, or write the report with --output")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(content)
    temporary.replace(path)
    return path


def check_report_name(name: str) -> str:
    """Return the name of a report; raise a ConfigError if it is not one."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not a name; use letters, digits, `_`, `.` and `-`")
    return name


def _report_path(data: Path, name: str) -> Path:
    return data / FOLDER / f"{check_report_name(name)}.json"


def list_reports(data: Path) -> list[EvalReportInfo]:
    """Return the reports of a data folder, the latest first. Files that are not reports are left out."""
    found, reports = list[tuple[int, str, Path, int]](), list[EvalReportInfo]()
    for path in (data / FOLDER).glob("*.json"):
        with suppress(OSError):  # removed meanwhile
            stat = path.stat()
            found.append((-stat.st_mtime_ns, path.stem, path, stat.st_size))
    for changed, name, path, size in sorted(found):
        if len(reports) == EVAL_REPORTS:  # older files are not read
            break
        with suppress(OSError):  # removed meanwhile, or not readable
            if _NAME.fullmatch(name) and (info := _describe_file(path, -changed, size)) is not None:
                reports.append(info)
    return reports


@lru_cache(maxsize=2 * EVAL_REPORTS)  # listed reports, and files among them that are not reports
def _describe_file(path: Path, changed_ns: int, size: int) -> EvalReportInfo | None:
    """Return the summary of a report file in its current version; None if it is not a report."""
    if size > EVAL_REPORT_BYTES:
        return None
    try:
        report = EvalReport.model_validate_json(path.read_bytes())
    except ValidationError:
        return None
    return EvalReportInfo(
        name=path.stem,
        suite=report.suite,
        updated=changed_ns / 1e9,
        partial=report.partial,
        cases=len(report.cases),
        regressions=len(report.regressions),
        variants=report.variants,
    )


def load_report(data: Path, name: str) -> EvalReport:
    """Return a stored report; raise a StoreError for an unknown name."""
    missing = StoreError(f"there is no eval report {name!r}", "not_found")
    if not _NAME.fullmatch(name):
        raise missing
    path = _report_path(data, name)
    try:
        if path.stat().st_size > EVAL_REPORT_BYTES:
            raise missing
        return EvalReport.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        raise missing from None
