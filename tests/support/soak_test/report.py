"""The report of a soak as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

SHOWN = 10
BAD = ("lost", "duplicated", "invalid", "leaked", "refused")


def violated(report: Mapping[str, Any]) -> int:
    """Return the number of violations."""
    return sum(report[kind] for kind in BAD)


def text(report: Mapping[str, Any]) -> str:
    return "\n".join(_lines(report))


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    tried = report["turns"]
    yield f"R5 soak: tried {tried}, violated {violated(report)}"
    yield (
        f"  {report['minutes']:g} minutes, {report['users']} users, up to {report['most_streams']} streams "
        f"(median {report['streams_median']}), {report['tool_calls_per_second']} tool calls/s, {report['store']}"
    )
    yield f"  faults: {_listed(report['faults'])}"
    yield f"  turns nothing was done to: {_listed(report['untouched'])}: {report['share']:.3%} completed"
    yield f"  turns something was done to: {_listed(report['touched'])}"
    yield f"  turns through a kill of the server: {_listed(report['through_kills'])}"
    yield (
        f"  checked: {report['checked_runs']} runs frame by frame, {report['checked_threads']} threads, "
        f"{report['effects']} effects of commands; {report['reconnects']} reconnects, {report['answers']} answers, "
        f"{report['terminal_lines']} terminal lines"
    )
    yield "  " + ", ".join(f"{kind} {report[kind]}" for kind in BAD)
    yield f"  restart to ready: p50 {report['ready_p50_ms']} ms, p99 {report['ready_p99_ms']} ms"
    yield (
        f"  /health p50 {report['health_p50_ms']} ms, p99 {report['health_p99_ms']} ms; "
        f"event loop lag p99 {report['lag_p99_ms']} ms"
    )
    yield (
        f"  memory: at most {report['memory_mb_most']} MB, {report['memory_slope_mb_per_minute']} MB a minute over the "
        f"longest life ({report['longest_life_minutes']} minutes); descriptors at most {report['files_most']}, "
        f"{report['files_idle']} at rest before and {report['files_after']} after"
    )
    yield f"  descriptors at rest after: {_listed(report['files_by_kind'])}"
    for gap in report["not_shown"]:
        yield f"  not shown: {gap}"
    for kind, sentences in report["wrong"].items():
        yield f"  {kind}:"
        yield from (f"    {sentence}" for sentence in sentences[:SHOWN])


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"
