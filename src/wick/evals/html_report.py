"""The report as one HTML file: no scripts, no external resources, light and dark."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape

from wick.evals.report import (
    NO_SCORE,
    UNKNOWN_COST,
    EvalCaseResult,
    EvalCaseRow,
    EvalReport,
    EvalVerdict,
    describe_check,
    format_cost,
    format_spending,
    list_unscored_variants,
)

STYLE = """\
:root { color-scheme: light dark; --line: #d0d5dd; --muted: #52596a; --pass: #0a6b2d; --fail: #b3201a; --bg: #fff;
  --text: #1b1f27; --shade: #f4f5f7; }
@media (prefers-color-scheme: dark) { :root { --line: #3a414e; --muted: #a9b1bf; --pass: #5fd38a; --fail: #ff8f87;
  --bg: #14171c; --text: #e8eaee; --shade: #1d2129; } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1.5rem; max-width: 75rem; background: var(--bg); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif }
h1 { font-size: 1.5rem } h2 { font-size: 1.2rem; margin-top: 2rem } h3 { font-size: 1rem; margin: 1rem 0 .25rem }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100% }
caption { text-align: left; color: var(--muted); padding: .25rem 0 }
th, td { border: 1px solid var(--line); padding: .4rem .6rem; text-align: left; vertical-align: top }
th { background: var(--shade) }
a { color: inherit } a:focus-visible, summary:focus-visible, .scroll:focus-visible { outline: 3px solid #e8590c }
.pass { color: var(--pass); font-weight: 600 } .fail { color: var(--fail); font-weight: 600 }
.muted { color: var(--muted) }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--shade); padding: .5rem; margin: .25rem 0 }
details { border: 1px solid var(--line); margin: .5rem 0; padding: .25rem .75rem } summary { cursor: pointer }
.notice { border: 2px solid var(--fail); padding: .5rem .75rem }
"""


def render_html(report: EvalReport) -> str:
    """Return a report as a self-contained HTML document. All text of the report is escaped."""
    title = f"Eval report: {report.suite}"
    body = [f"<h1>{escape(title)}</h1>"]
    if report.partial:
        done = f"{report.finished:,} of {report.planned:,} results"
        body.append(f'<p class="notice">This report is partial: the run was interrupted after {done}.</p>')
    body += [
        _render_totals(report),
        *_render_regressions(report),
        _render_cases(report),
        "<h2>What was done</h2>",
        *(_render_details(report, number, case) for number, case in enumerate(report.cases, 1)),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def _render_table(caption: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table. The cells are HTML; the first cell of a row is its header."""
    columns = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    lines = list[str]()
    for row in rows:
        first, *rest = row
        lines.append(f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>')
    label = escape(caption, quote=True)
    table = f"<table><caption>{escape(caption)}</caption><thead><tr>{columns}</tr></thead><tbody>"
    region = f'<div class="scroll" role="region" aria-label="{label}" tabindex="0">'
    return f"{region}{table}{''.join(lines)}</tbody></table></div>"


def _render_totals(report: EvalReport) -> str:
    unscored = list_unscored_variants(report)
    rows = [
        (
            escape(one.name),
            escape(one.agent),
            f'<span class="{"fail" if one.failed else "pass"}">{one.passed} of {one.passed + one.failed}</span>',
            "—" if one.name in unscored else f"{one.score:.2f}",
            f"{one.tokens:,}",
            "—" if one.cost is None else format_cost(one.cost),
        )
        for one in report.variants
    ]
    table = _render_table("Variants", ("Variant", "Agent", "Passed", "Score", "Tokens", "Cost"), rows)
    notes = [UNKNOWN_COST] if any(one.cost is None for one in report.variants) else []
    notes += [NO_SCORE] if unscored else []
    return table + "".join(f'<p class="muted">{escape(note)}</p>' for note in notes)


def _render_regressions(report: EvalReport) -> Iterable[str]:
    if not report.regressions:
        return
    yield "<h2>Regressions</h2>"
    rows = [
        (escape(one.case), escape(one.variant), escape(f"{one.against} {one.reference}"), escape(one.detail))
        for one in report.regressions
    ]
    yield _render_table("Cases that pass elsewhere", ("Case", "Variant", "Compared with", "What failed"), rows)


def _render_cases(report: EvalReport) -> str:
    names = [variant.name for variant in report.variants]
    rows = [
        (
            f'<a href="#case-{number}">{escape(case.id)}</a>',
            *(_render_cell(case.results.get(name)) for name in names),
        )
        for number, case in enumerate(report.cases, 1)
    ]
    return "<h2>Cases</h2>\n" + _render_table("Cases by variant", ("Case", *map(escape, names)), rows)


def _render_cell(result: EvalCaseResult | None) -> str:
    if result is None:
        return '<span class="muted">not run</span>'
    score = [] if result.verdict == "changed" else result.replay_failures or [f"{result.score:.2f}"]
    figures = " · ".join([*score, *format_spending(result)])
    return f'{_render_verdict(result.verdict)} <span class="muted">{figures}</span>'


_MARKS: dict[EvalVerdict, tuple[str, str]] = {  # class and text
    "passed": ("pass", "✓ pass"),
    "changed": ("fail", "≠ changed"),
    "failed": ("fail", "✗ fail"),
    "regressed": ("fail", "✗ regressed"),
    "known_failure": ("muted", "✗ known failure"),
}


def _render_verdict(verdict: EvalVerdict) -> str:
    style, text = _MARKS[verdict]
    return f'<span class="{style}">{text}</span>'


def _render_passed(passed: bool) -> str:
    return _render_verdict("passed" if passed else "failed")


def _render_details(report: EvalReport, number: int, case: EvalCaseRow) -> str:
    failed = any(not result.passed for result in case.results.values())
    parts = [f"<h3>Input</h3><pre>{escape(case.input)}</pre>"]
    if case.thread:
        parts.append(f'<p class="muted">From thread {escape(case.thread)}</p>')
    for variant in report.variants:
        if (result := case.results.get(variant.name)) is not None:
            parts.append(_render_result(variant.name, result))
    verdict = _render_passed(not failed) if case.results else '<span class="muted">not run</span>'
    return (
        f'<details id="case-{number}"{" open" if failed else ""}><summary>{escape(case.id)} {verdict}</summary>'
        + "".join(parts)
        + "</details>"
    )


def _render_result(name: str, result: EvalCaseResult) -> str:
    checks = "".join(
        f"<li>{_render_passed(check.passed)} {escape(describe_check(check))}</li>" for check in result.checks
    )
    calls = ""
    for call in result.calls:
        args = escape(json.dumps(call.args, ensure_ascii=False, sort_keys=True))
        by = f" by {call.hook}" if call.hook else ""
        reason = f": {call.reason}" if call.reason else ""
        decided = escape(f"{'asked, ' if call.asked else ''}{call.decision}{by}{reason}")
        calls += f"<li><code>{escape(call.tool)} {args}</code> {decided}<pre>{escape(call.output)}</pre></li>"
    outcome = escape(f"{result.outcome}{f' ({result.reason})' if result.reason != result.outcome else ''}")
    figures = ", ".join([outcome, f"{result.steps} steps", *format_spending(result)])
    return (
        f"<h3>{escape(name)}: {_render_verdict(result.verdict)}</h3>"
        f'<p class="muted">{figures}</p>'
        f"<ul>{checks}</ul>" + (f"<ol>{calls}</ol>" if calls else "") + f"<pre>{escape(result.text)}</pre>"
    )
