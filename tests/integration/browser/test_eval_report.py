"""The HTML report of evals in a browser: accessible in light and dark, narrow enough for a phone, and inert."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from browser_pages import find_violations
from wick.evals.html_report import render_html
from wick.evals.report import (
    EvalCall,
    EvalCaseResult,
    EvalCaseRow,
    EvalCheck,
    EvalReport,
    find_regressions,
    summarize_variant,
)

BAIT = "<script>document.title = 'caught'</script><img src=x onerror=\"document.title = 'caught'\">"


def make_report(words: str) -> EvalReport:
    call = EvalCall(tool="refund", args={"note": words}, decision="blocked", hook="no_large_sums", reason=words)
    results = {
        name: EvalCaseResult(
            passed=passed,
            score=float(passed),
            checks=[EvalCheck(name="blocked", passed=passed, score=float(passed), detail=words)],
            outcome="completed",
            text=words * 20,
            calls=[call],
        )
        for name, passed in (("guarded", True), ("unguarded", False))
    }
    cases = [EvalCaseRow(id="large-refund", input=words, results=results)]
    variants = [summarize_variant(name, "shop:agent", cases) for name in results]
    report = EvalReport(suite=words[:80], partial=True, planned=4, variants=variants, cases=cases)
    return report.model_copy(update={"regressions": find_regressions(report)})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_is_accessible_and_fits_a_phone(browser: Browser, tmp_path: Path, scheme: str) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_html(make_report("A refund of 2,000 dollars.")), encoding="utf-8")
    context = browser.new_context(color_scheme=scheme, viewport={"width": 390, "height": 844}, bypass_csp=True)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert find_violations(page) == []
    page.get_by_role("link", name="large-refund").focus()
    page.keyboard.press("Enter")
    expect(page.locator("details#case-1")).to_contain_text("unguarded")
    context.close()


def test_markup_in_a_report_runs_nothing(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_html(make_report(BAIT)), encoding="utf-8")
    context = browser.new_context(bypass_csp=True)  # so that escaping alone protects the page
    page = context.new_page()
    page.goto(path.as_uri())
    expect(page.locator("details#case-1")).to_contain_text("document.title")
    assert page.title().startswith("Eval report: <script>") and page.locator("img, script").count() == 0
    context.close()
