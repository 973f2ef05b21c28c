"""The HTML report: escaped, self-contained, and the same bytes each time."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from eval_shop import LARGE, SMALL, run_cases
from wick.evals.html_report import render_html
from wick.evals.report import EvalReport

INJECTED = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'><b>&amp;"


class _Tags(HTMLParser):
    """Collects the tags and attributes of a document, and checks that they are balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.tags, self.attributes = list[str](), set[str](), set[str]()
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def inject_markup(value: Any) -> Any:
    """Return data with markup in place of every text that a user, a model or a tool wrote."""
    if isinstance(value, dict):
        return {
            key: inject_markup(item) if key not in ("decision", "against", "verdict") else item
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [inject_markup(item) for item in value]
    return INJECTED if isinstance(value, str) else value


async def make_report() -> EvalReport:
    variants = {"base": "eval_shop:agent", "unguarded": "eval_shop:unguarded"}
    return await run_cases({**SMALL, "thread": "th_1"}, LARGE, variants=variants)


async def test_markup_in_any_field_is_escaped() -> None:
    plain = await make_report()
    plain_tags = _Tags(render_html(plain))
    data = inject_markup(plain.model_dump())
    for row in data["cases"]:  # a name of a variant is a key
        row["results"] = {INJECTED: row["results"]["unguarded"]}
    for row in data["cases"]:
        for result in row["results"].values():
            for call in result["calls"]:
                call["args"] = {INJECTED: INJECTED}
    text = render_html(EvalReport.model_validate(data))
    tags = _Tags(text)
    assert tags.tags == plain_tags.tags and tags.attributes == plain_tags.attributes
    assert "<script" not in text and "<img" not in text and text.count("&lt;script&gt;") > 20


async def test_the_report_is_one_file_without_scripts() -> None:
    text = render_html(await make_report())
    tags = _Tags(text)
    assert not tags.tags & {"script", "link", "img", "iframe"} and not re.search(r"https?://|url\(", text)
    assert "default-src 'none'" in text and "prefers-color-scheme: dark" in text
    assert '<html lang="en">' in text and 'scope="row"' in text and "<caption>" in text
    assert 'href="#case-1"' in text and 'id="case-1"' in text and "From thread th_1" in text
    assert "unguarded" in text and "refund was not blocked" in text


async def test_the_same_suite_gives_the_same_html() -> None:
    assert render_html(await make_report()) == render_html(await make_report())


async def test_a_report_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    key, token, note = "sk-abcdefghijklmnopqrstuvwxyz012345", "opensesame-1234", "hunter2hunter2"
    monkeypatch.setenv("SHOP_TOKEN", token)
    call = {"calls": [{"tool": "lookup", "args": {"order": token, "password": note}}]}
    texts = {
        "input": f"My key is {key}, my password {note}.",
        "replies": [call, f"{key} {note}"],
        "expect": {"text": "Done"},
    }
    report = await run_cases({**SMALL, **texts})
    written = report.to_json() + render_html(report)
    assert [secret for secret in (key, token, note) if secret in written] == []
    assert report.cases[0].input == "My key is [secret], my password [secret]."


async def test_a_partial_report_says_so() -> None:
    report = (await make_report()).model_copy(update={"partial": True, "planned": 9})
    assert "This report is partial: the run was interrupted after 4 of 9 results." in render_html(report)


async def test_verdicts_are_shown() -> None:
    report = await make_report()
    results = [result for case in report.cases for result in case.results.values()]
    assert [result.verdict for result in results] == ["passed", "passed", "passed", "regressed"]
    for verdict, shown in (("regressed", "regressed"), ("known_failure", "known failure"), ("changed", "≠ changed")):
        results[-1].verdict = verdict  # type: ignore[assignment]
        assert f"{shown}</span>" in render_html(report)
    page = render_html(report)
    assert '≠ changed</span> <span class="muted">32 tokens' in page  # no score of recorded replies
    totals = page.partition("</table>")[0]
    assert (
        "<td>—</td><td>" in totals and "Variants with changed requests or incomplete recordings have no score" in page
    )
