"""Programs of the other skills: their results, and errors for invalid input."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_sandbox import fill_folder
from shipped_skills import DATA, PROGRAMS, load_program
from wick._internal import front_matter
from wick.capabilities.skills import SHIPPED

query, scan, citations = load_program("data-analysis"), load_program("code-review"), load_program("research")
deck, summary = load_program("slides"), load_program("summarization")


# -- all of them ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("skill", PROGRAMS)
def test_a_program_needs_only_the_standard_library_and_python_3_8(skill: str) -> None:
    tree = ast.parse((SHIPPED / skill / PROGRAMS[skill]).read_text("utf-8"), feature_version=(3, 8))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in imports if isinstance(node, ast.ImportFrom)}
    others = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names)
    assert others == ({"pptx"} if skill == "slides" else set())


@pytest.mark.parametrize("skill", PROGRAMS)
def test_the_instructions_name_the_program_and_the_answer(skill: str) -> None:
    meta, body = front_matter.split((SHIPPED / skill / "SKILL.md").read_text("utf-8"))
    assert meta["name"] == skill and 60 < len(meta["description"]) < 300
    assert f"python3 FOLDER/{PROGRAMS[skill]}" in body and "## Steps" in body and "## Answer" in body


@pytest.mark.parametrize("skill", PROGRAMS)
def test_options_in_the_instructions_are_there(skill: str) -> None:
    body = (SHIPPED / skill / "SKILL.md").read_text("utf-8")
    source = (SHIPPED / skill / PROGRAMS[skill]).read_text("utf-8")
    assert {option for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", body) if f'"{option}"' not in source} <= {
        "--stat"
    }


@pytest.mark.parametrize("skill", PROGRAMS)
def test_a_program_is_run_by_name(skill: str) -> None:
    path = SHIPPED / skill / PROGRAMS[skill]
    done = subprocess.run([sys.executable, "-I", str(path)], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2 and done.stderr and "Traceback" not in done.stderr


# -- data-analysis --------------------------------------------------------------------------------------------------


def run_query(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    assert query.main([*args]) == code
    said = capsys.readouterr()
    return said.err if code else said.out


def test_a_query_over_two_files(capsys: pytest.CaptureFixture[str]) -> None:
    files = (str(DATA / "planets.csv"), str(DATA / "kinds.json"))
    sql = "SELECT k.kind, MAX(diameter_km) AS most FROM planets p JOIN kinds k ON k.id = p.kind GROUP BY 1 ORDER BY 2"
    assert run_query(capsys, *files, sql).splitlines() == [
        "| kind | most |",
        "| --- | --- |",
        "| terrestrial | 12756 |",
        "| ice giant | 51118 |",
        "| gas giant | 142984 |",
    ]


def test_odd_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill_folder(
        tmp_path,
        {
            "2024 sales.csv": "\ufeffid;Name;name;zip\n1;a;;00123\n2;b\n",
            "lines.jsonl": '{"a": 1, "b": [1]}\n\n{"a": true, "c": null}\n',
            "wrapped.json": '{"rows": [{"x": 1.5}]}',
            "t.tsv": "a\tb\n1\t\n",
        },
    )
    rows = run_query(capsys, str(tmp_path / "2024 sales.csv"), "SELECT * FROM t_2024_sales", "--json")
    assert json.loads(rows) == [
        {"id": 1, "Name": "a", "name_3": None, "zip": "00123"}, {"id": 2, "Name": "b", "name_3": None, "zip": None},
    ]  # fmt: skip
    rows = run_query(capsys, str(tmp_path / "lines.jsonl"), "SELECT * FROM lines", "--json")
    assert json.loads(rows) == [{"a": 1, "b": "[1]", "c": None}, {"a": 1, "b": None, "c": None}]
    assert "| 1.5 |" in run_query(capsys, str(tmp_path / "wrapped.json"), "SELECT x FROM wrapped")
    assert "- b (null)" in run_query(capsys, str(tmp_path / "t.tsv"), "--tables")


def test_a_result_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.txt"
    said = run_query(
        capsys, str(DATA / "planets.csv"), "SELECT planet FROM planets WHERE moons > 90", "--csv", str(out)
    )
    assert said == f"wrote 2 rows to {out}\n" and out.read_text() == "planet\nJupiter\nSaturn\n"


def test_a_long_result_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    said = run_query(capsys, str(DATA / "planets.csv"), "SELECT a.planet FROM planets a, planets b, planets c")
    assert said.count("\n| ") == 101 and "… and 412 more rows; --csv writes all of them" in said


@pytest.mark.parametrize(
    ("name", "text", "sql", "sentence"),
    [
        ("a.csv", "", "SELECT 1", "is empty"),
        ("a.json", "{", "SELECT 1", "is not JSON"),
        ("a.json", "[1]", "SELECT 1", "is not a list of objects"),
        ("a.json", "[]", "SELECT 1", "is not a list of objects"),
        ("a.json", '[{"a": 99999999999999999999}]', "SELECT 1", "query failed"),
        ("a.csv", "x\n1\n", "SELEC x", "syntax error"),
        ("a.csv", "x\n1\n", "DROP TABLE a", "readonly"),
        ("a.csv", "x\n1\n", "SELECT 1; SELECT 2", "one statement at a time"),
        ("a.txt", "x", "SELECT 1", "pass one or more files and one query"),
    ],
)
def test_invalid_questions_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, sql: str, sentence: str
) -> None:
    (tmp_path / name).write_text(text)
    assert sentence in run_query(capsys, str(tmp_path / name), sql, code=1)


def test_two_files_of_one_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill_folder(tmp_path, {"a.csv": "x\n1\n", "b/A.csv": "x\n1\n"})
    assert "two files have the table name A" in run_query(
        capsys, str(tmp_path / "a.csv"), str(tmp_path / "b" / "A.csv"), "--tables", code=1
    )


# -- code-review ----------------------------------------------------------------------------------------------------


def kinds(tmp_path: Path, name: str, text: str) -> list[tuple[int, str]]:
    (tmp_path / name).write_text(text)
    return [(place.line, place.kind) for place in scan.scan_file(str(tmp_path / name))]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("eval(x)", "injection"), ("os.system(x)", "injection"), ("subprocess.run(x, shell=True)", "injection"),
        ("pickle.loads(x)", "injection"), ("yaml.load(x)", "injection"), ("db.execute(f'select {x}')", "injection"),
        ("db.execute('select ' + x)", "injection"), ("db.execute('{}'.format(x))", "injection"),
        ("get(x, verify=False)", "security"), ("x is 'a'", "bug"), ("x == None", "style"), ("assert (x, 'y')", "bug"),
        ("def f(a={}): ...", "bug"), ("def f(*, a=[]): ...", "bug"), ("password = 'hunter2hunter2'", "secret"),
        ("# TODO: this", "note"), ("<<<<<<< HEAD", "conflict"),
    ],
)  # fmt: skip
def test_places_worth_a_look(tmp_path: Path, line: str, kind: str) -> None:
    assert (1, kind) in kinds(tmp_path, "a.py", f"{line}\n")


@pytest.mark.parametrize(
    "line",
    ["yaml.load(x, Loader=yaml.SafeLoader)", "x is None", "x is True", "run(x, shell=False)", "db.execute('select', y)",
     "assert x, 'y'", "def f(a=()): ...", "password = os.environ['PASSWORD']", "evaluate(x)"],
)  # fmt: skip
def test_places_that_are_fine(tmp_path: Path, line: str) -> None:
    assert kinds(tmp_path, "a.py", f"{line}\n") == []


def test_large_and_deep_functions(tmp_path: Path) -> None:
    deep = "def f(a, b, c, d, e, g, h, i):\n" + "".join(f"{' ' * n}if a:\n" for n in range(1, 7)) + " " * 8 + "pass\n"
    text = deep + "def g():\n" + "    x = 1\n" * 70
    assert kinds(tmp_path, "a.py", text) == [(1, "size"), (1, "size"), (9, "size")]


def test_other_languages_and_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill_folder(
        tmp_path,
        {
            "a.js": "x.innerHTML = y\ntry { f() } catch (e) {}\n",
            "b/c.ts": 'q("SELECT * FROM t WHERE a=" + a)\n',
            "node_modules/x.js": "eval(x)\n",
            "notes.txt": "TODO",
        },
    )
    assert scan.main([str(tmp_path)]) == 0
    said = capsys.readouterr().out.replace(f"{tmp_path}/", "").splitlines()
    assert [line.split(": ")[0] for line in said[:-1]] == ["a.js:1", "a.js:2", "b/c.ts:1"]
    assert said[-1] == "3 places in 2 files"


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    assert kinds(tmp_path, "a.py", "def f(:\n") == [(1, "syntax")]
    assert kinds(tmp_path, "b.py", "x = " + "(" * 500 + ")" * 500) == [(1, "syntax")]
    assert kinds(tmp_path, "c.py", "x = " + " + ".join("a" * 5_000))[:1] in ([], [(1, "syntax")])
    assert [place.kind for place in scan.scan_file(str(tmp_path / "no.py"))] == ["unread"]
    (tmp_path / "big.py").write_text("#" * 2_000_001)
    assert [place.kind for place in scan.scan_file(str(tmp_path / "big.py"))] == ["unread"]
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\0")
    assert scan.scan_file(str(tmp_path / "bytes.py"))[0].kind == "syntax"


# -- research -------------------------------------------------------------------------------------------------------

SOURCES = "\n## Sources\n\n[1] A: B. https://example.org/b\n- [2] notes.md\n"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (f"It is 5 [1, 2].{SOURCES}", []),
        (f"It is 5 [1-2].{SOURCES}", []),
        (f"It is so [1]. And so [2](notes.md) [2].{SOURCES}", []),
        (f"It is 5 [1].{SOURCES}", ["source [2] is never cited"]),
        (f"It is 5 [1][2][7].{SOURCES}", ["[7] is cited, but is not in the list of sources"]),
        (f"It is so [1][2].\n\nAnd 17 more.{SOURCES}", ["a paragraph has figures and no citation: And 17 more."]),
        (f"# 2024\n\nIt is so [1][2]. `[9]`\n\n```\n[8] 42\n```\n{SOURCES}", []),
        (f"It is so [1][2].{SOURCES}[2] again, notes.md\n", ["there are two sources [2]"]),
        (f"It is so [1][2][3].{SOURCES}[3] somebody said\n", ["source [3] has no address and no file: somebody said"]),
        (
            f"It is so [1][2][3].{SOURCES}[3] docs/gone.md\n",
            ["source [3] names a missing file: docs/gone.md"],
        ),
        (f"It is so [1][2][3].{SOURCES}[3]\n", ["source [3] is empty"]),
        ("It is so.", ["there is no list of sources: a heading `## Sources`, and lines such as `[1] …`"]),
        ("", ["there is no list of sources: a heading `## Sources`, and lines such as `[1] …`"]),
    ],
)
def test_citations(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, wrong: list[str]) -> None:
    fill_folder(tmp_path, {"report.md": text, "notes.md": "x"})
    assert citations.main([str(tmp_path / "report.md")]) == bool(wrong)
    *said, last = capsys.readouterr().out.splitlines()
    assert said == [f"- {sentence}" for sentence in wrong] and last.endswith(f", {formatted_problems(wrong)}")


def formatted_problems(wrong: list[str]) -> str:
    return "1 problem" if len(wrong) == 1 else f"{len(wrong)} problems"


def test_a_report_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert citations.main(["/no/report.md"]) == 2
    assert "cannot be read" in capsys.readouterr().err


# -- summarization --------------------------------------------------------------------------------------------------

SOURCE = (
    "Ada Lovelace met Charles Babbage in 1833. They spoke of 1,200 wheels, of 3.5 tons of brass, and of more things "
    "than anybody could have counted on the fingers of both hands within a single day of work in London's fog."
)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("In 1833 Lovelace and Babbage spoke of 1200 wheels and 3.5 tons, in London.", []),
        ("In 1834 they met.", ["figures that the source does not have: 1834"]),
        ("They met Boole and Charles.", ["names that the source does not have: Boole"]),
        ("", ["the summary is empty"]),
        ("# Meeting\n\n- Wheels. Brass.\n1. Fog", []),
        ("word " * 30, ["the summary has 30 words; the limit is 20"]),
        (SOURCE, ["the limit is 20", "the summary is not shorter", *["copied word for word"] * 3]),
    ],
)
def test_summaries(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, wrong: list[str]) -> None:
    fill_folder(tmp_path, {"source.md": SOURCE, "summary.md": text})
    args = [str(tmp_path / "source.md"), str(tmp_path / "summary.md"), "--words", "20", "--json"]
    assert summary.main(args) == bool(wrong)
    found = json.loads(capsys.readouterr().out)["problems"]
    assert len(found) == len(wrong) and all(part in said for part, said in zip(wrong, found, strict=True))


def test_a_summary_describes_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill_folder(tmp_path, {"source.md": SOURCE, "summary.md": "They met."})
    assert summary.main([str(tmp_path / "source.md"), str(tmp_path / "summary.md")]) == 0
    assert capsys.readouterr().out == "2 words for 43, 0 problems\n"
    assert summary.main([str(tmp_path / "no.md"), str(tmp_path / "summary.md")]) == 2


@given(st.text(max_size=200), st.text(max_size=100))
def test_any_two_texts_can_be_compared(source: str, text: str) -> None:
    found = summary.compare_texts(source, text, 10)
    assert json.dumps(found) and isinstance(summary.list_problems(found, 10), list)
    assert (
        summary.compare_texts(text, text, 0)["unknown_figures"]
        == summary.compare_texts(text, text, 0)["unknown_names"]
        == []
    )


# -- slides ---------------------------------------------------------------------------------------------------------


def built(tmp_path: Path, text: str, name: str = "deck.html") -> tuple[int, str]:
    (tmp_path / "deck.md").write_text(text, encoding="utf-8")
    code = deck.main([str(tmp_path / "deck.md"), "--output", str(tmp_path / name)])
    target = tmp_path / name
    return code, target.read_text(encoding="utf-8") if code == 0 and name.endswith("html") else ""


def body(html: str) -> list[str]:
    return re.findall(r'<section class="\w+">(.*?)</section>', html, re.DOTALL)


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("# T\n\nOne\ntwo", "<h1>T</h1><p>One two</p>"),
        ("## T\n- a\n  - b\n- c", "<h2>T</h2><ul><li>a</li><ul><li>b</li></ul><li>c</li></ul>"),
        ("1. a\n2) b", "<ol><li>a</li><li>b</li></ol>"),
        ("> a\n> b", "<blockquote>a b</blockquote>"),
        ("```py\na < b\n---\n# no\n```", "<pre>a &lt; b\n---\n# no</pre>"),
        ("```\nnever ends", "<pre>never ends</pre>"),
        ("| a | b |\n|---|:-:|\n| 1 | **2** |",
         "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td><strong>2</strong></td></tr></table>"),
        ("*e* **b** `c<d`", "<p><em>e</em> <strong>b</strong> <code>c&lt;d</code></p>"),
        ("[t](https://e.org/?a=1&b=2)", '<p><a href="https://e.org/?a=1&amp;b=2" rel="noreferrer">t</a></p>'),
        ("[x](javascript:alert(1)) y", "<p>x) y</p>"),
        ("<script>alert(1)</script>", "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>"),
        ("text\nNote: say <b>\nthis", "<p>text</p><aside>say &lt;b&gt; this</aside>"),
        ("![a\"b](http://e.org/x.png)", "<p><em>a&quot;b</em></p>"),
        ("2 * 3 * 4", "<p>2 * 3 * 4</p>"),
    ],
)  # fmt: skip
def test_markdown_becomes_html(tmp_path: Path, text: str, html: str) -> None:
    assert body(built(tmp_path, text)[1]) == [html]


def test_slides_and_their_notes(tmp_path: Path) -> None:
    code, html = built(
        tmp_path, '---\ntitle: "A <b>"\nauthor: Ada\n---\n# One\n---\n\n---\n## Two\n\n---\nNote: only this\n'
    )
    assert code == 0 and len(body(html)) == 3
    assert "<title>A &lt;b&gt;</title>" in html and '<meta name="author" content="Ada">' in html
    assert "default-src 'none'" in html and "http://" not in html and "https://" not in html


def test_dashes_at_the_top_that_are_no_front_matter(tmp_path: Path) -> None:
    assert len(body(built(tmp_path, "---\n# One\n---\n# Two\n")[1])) == 2


COMMENTED = """---
theme: sea
---
<!-- Made by a program. -->
Layout: center
# Harvest <!-- 2024 -->
<!--
A note to the author
---
```
-->
by Ada
---
<!-- only a comment -->
---
## Code
In a line `<!-- stays -->`, and <!--> this goes.

```html
<!-- stays -->
```
- one <!-- gone --> and two <!-- gone too -->
- never closed <!-- stays
"""


def test_comments_are_no_text_of_a_slide() -> None:
    _, (first, second) = deck.parse_deck(COMMENTED)
    assert [(block.kind, block.lines[0]) for block in first.blocks] == [("heading", "Harvest"), ("text", "by Ada")]
    assert first.layout == "center"
    told = [(block.kind, "\n".join(map(str, block.lines))) for block in second.blocks]
    assert ("text", "In a line `<!-- stays -->`, and  this goes.") in told
    assert ("code", "<!-- stays -->") in told
    items = next(text for kind, text in told if kind == "items")
    assert "one  and two" in items and "never closed <!-- stays" in items and "gone" not in items


def test_comments_in_text_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deck, "strip_comments", lambda lines: [*lines])
    assert deck.parse_deck(COMMENTED)[1][0].heading != "Harvest"


@given(st.lists(st.sampled_from(["<!--", "-->", "`", "```", "---", "word", " ", "<!-->", "~~~", "\n"]), max_size=40))
def test_non_comments_are_unchanged(parts: list[str]) -> None:
    lines = "".join(parts).split("\n")
    left = iter("".join(lines))
    assert all(character in left for character in "".join(deck.strip_comments(lines)))  # nothing is added or moved
    plain = [line for line in lines if "<!--" not in line]
    assert deck.strip_comments(plain) == plain


def test_images_are_loaded_only_from_the_deck_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    inside = tmp_path / "in"
    inside.mkdir()
    (inside / "a.png").write_bytes(b"\x89PNG")
    (inside / "link.png").symlink_to("../secret.png")
    names = ["a.png", "../secret.png", "link.png", str(tmp_path / "secret.png"), "no.png", "a.svg"]
    _, html = built(inside, "# T\n" + "\n\n".join(f"![p]({name})" for name in names))
    assert html.count("<img ") == 1 and "data:image/png;base64,iVBORw==" in html


def test_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built(tmp_path, "text\n---\n# T\n" + "- word word\n" * 9 + "\n![x](no.png)\n")
    assert capsys.readouterr().out.splitlines()[:-1] == [
        "warning: slide 1 has no heading",
        "warning: slide 2 is too full: 9 lines, 22 words",
        "warning: slide 2: there is no supported picture no.png in the folder of the deck",
    ]


COLUMNS = """---
theme: sea
---
# Harvest
by Ada
---
## What now
---
## Both
::: columns
- left
|||
| a | b |
|---|---|
| 1 | 2 |
:::
---
Layout: center
## Said
- so
"""


def test_columns_layouts_and_a_theme_in_html(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    html = built(tmp_path, COLUMNS)[1]
    assert re.findall(r'<section class="(\w+)">', html) == ["title", "section", "plain", "center"]
    assert '<div class="columns"><div><ul><li>left</li></ul></div><div><table>' in html and "--ground:#f2f8fb" in html
    assert "Layout" not in html and ":::" not in html and "warning" not in capsys.readouterr().out


def test_columns_and_a_theme_in_powerpoint(tmp_path: Path) -> None:
    pptx = pytest.importorskip("pptx", reason="python-pptx is not installed: pip install 'wick-agent[slides]'")
    assert built(tmp_path, COLUMNS, "deck.pptx")[0] == 0
    first, section, both, _ = pptx.Presentation(str(tmp_path / "deck.pptx")).slides
    assert [str(page.background.fill.fore_color.rgb) for page in (first, section)] == ["F2F8FB", "16789F"]
    (text,) = [shape for shape in both.shapes if shape.has_text_frame and shape.text_frame.text == "left"]
    (table,) = [shape for shape in both.shapes if shape.has_table]
    assert text.left + text.width <= table.left and table.table.cell(1, 1).text == "2"


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("---\ntheme: pink\n---\n# T", "there is no theme pink; the themes are plain, ink, flame, sea, forest"),
        ("Layout: wide\n# T", "slide 1: there is no layout wide; the layouts are title, section, center, plain"),
    ],
)
def test_an_unknown_theme_or_layout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, warning: str
) -> None:
    assert built(tmp_path, text)[0] == 0
    assert f"warning: {warning}" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "\n\n", "---\n---\n---\n", "---\ntitle: x\n---\n"])
def test_no_slides(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert built(tmp_path, text)[0] == 1
    assert "the file has no slides" in capsys.readouterr().err


@given(st.text("#-*`|>![]()\n ab1.:\t<&", max_size=120))
def test_any_text_becomes_slides_without_foreign_tags(text: str) -> None:
    meta, slides = deck.parse_deck(text)
    if slides:
        html = "".join(body(deck.render_html(meta, slides, "/nowhere")))
        tags = {tag.strip("</>").split()[0] for tag in re.findall(r"<[^>]*>", html)}
        assert tags <= set("h1 h2 h3 p ul ol li table tr td th pre code strong em a blockquote aside".split())


def test_powerpoint(tmp_path: Path) -> None:
    pptx = pytest.importorskip("pptx", reason="python-pptx is not installed: pip install 'wick-agent[slides]'")
    text = "# Title\nby Ada\n---\n## Two\n- **a**\n  - b\n\n| x | y |\n|---|---|\n| 1 | 2 |\n\nNote: say it\n"
    assert built(tmp_path, text, "deck.pptx")[0] == 0
    first, second = pptx.Presentation(str(tmp_path / "deck.pptx")).slides
    assert (first.shapes.title.text, first.placeholders[1].text) == ("Title", "by Ada")
    assert second.placeholders[1].text.splitlines() == ["a", "b"]
    assert [line.level for line in second.placeholders[1].text_frame.paragraphs] == [0, 1]
    (drawn,) = [shape.table for shape in second.shapes if shape.has_table]
    assert [[cell.text for cell in row.cells] for row in drawn.rows] == [["x", "y"], ["1", "2"]]
    assert second.notes_slide.notes_text_frame.text == "say it"


CHART = (
    "## T\n```chart {kind}\nIn tonnes\n| fruit | 2023 | 2024 |\n|---|---|---|\n"
    "| apples | 1,200 t | −80.5 |\n| pears | 7 | |\n```\n"
)


@pytest.mark.parametrize("kind", ["bar", "line", "area", "pie"])
def test_a_chart_is_drawn_in_html(tmp_path: Path, kind: str) -> None:
    code, html = built(tmp_path, CHART.format(kind=kind))
    (page,) = body(html)
    shape = {"bar": "<rect", "line": "<polyline", "area": "<polygon", "pie": "<polygon"}[kind]
    assert code == 0 and 'aria-label="In tonnes"' in page and shape in page and ">apples</text>" in page
    assert "nan" not in page and "<table" not in page


@pytest.mark.parametrize(
    ("kind", "plot"), [("bar", "barChart"), ("line", "lineChart"), ("area", "areaChart"), ("pie", "pieChart")]
)
def test_a_chart_is_a_chart_in_powerpoint(tmp_path: Path, kind: str, plot: str) -> None:
    pptx = pytest.importorskip("pptx", reason="python-pptx is not installed: pip install 'wick-agent[slides]'")
    assert built(tmp_path, CHART.format(kind=kind), "deck.pptx")[0] == 0
    (page,) = pptx.Presentation(str(tmp_path / "deck.pptx")).slides
    (made,) = [shape.chart for shape in page.shapes if shape.has_chart]
    assert plot in made._chartSpace.xml and made.chart_title.text_frame.text == "In tonnes"
    assert [*made.plots[0].categories] == ["apples", "pears"]
    assert next((one.name, [*one.values]) for one in made.plots[0].series) == ("2023", [1200.0, 7.0])
    assert [shape.name for shape in page.placeholders] == ["Title 1"], "no empty frame for text is left"


@pytest.mark.parametrize(
    "text", ["```chart bar\n| a | b |\n|---|---|\n| x | y |\n```", "```chart radar\n| a | b |\n| x | 1 |\n```"]
)
def test_undrawable_data_is_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    _, html = built(tmp_path, f"# T\n{text}")
    assert "<table>" in html and "<svg" not in html
    assert "slide 1: a chart needs a kind (bar, line, area, pie) and a table with figures" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "number"),
    [("12 %", 12), ("1,200 t", 1200), ("1'200", 1200), ("−3.5", -3.5), ("3,5", 3.5), ("**7**", 7),
     ("1.2.3", None), ("no", None), ("", None), ("9" * 400, None)],
)  # fmt: skip
def test_the_figure_of_a_cell(text: str, number: float | None) -> None:
    assert deck.parse_number(text) == number


def test_pictures_that_cannot_be_shown_are_words(tmp_path: Path) -> None:
    pptx = pytest.importorskip("pptx", reason="python-pptx is not installed: pip install 'wick-agent[slides]'")
    (tmp_path / "bad.png").write_bytes(b"no picture")
    assert built(tmp_path, "# T\n\n![what it would show](bad.png)\n\n- a\x0bb\x01\n", "deck.pptx")[0] == 0
    (page,) = pptx.Presentation(str(tmp_path / "deck.pptx")).slides
    assert page.placeholders[1].text.splitlines()[0] == "what it would show"


def test_powerpoint_without_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pptx", None)
    assert built(tmp_path, "# T", "deck.pptx")[0] == 1
    assert "a .pptx needs the package python-pptx" in capsys.readouterr().err
