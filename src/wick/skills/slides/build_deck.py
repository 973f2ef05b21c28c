#!/usr/bin/env python3
"""Convert a Markdown file to slides: one self-contained HTML file, or a PowerPoint file.

    python3 build_deck.py deck.md --output deck.html
    python3 build_deck.py deck.md --output deck.pptx      (needs the package python-pptx)

Python 3.8 and the standard library.
"""

from __future__ import annotations

import argparse
import base64
import math
import os
import re
import sys
from dataclasses import dataclass, field
from html import escape
from io import BytesIO
from typing import IO, Any, Callable, Sequence

PICTURES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
PICTURE_BYTES = 5_000_000
MANY_LINES, MANY_WORDS = 8, 90

UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]"
)  # characters that XML does not allow
NEWLINE = re.compile(r"\r\n?|\n")
FIGURE = re.compile(r"[-−+]?[0-9., '_]*[0-9]")
CHARTS = ("bar", "line", "area", "pie")
LAYOUTS = ("title", "section", "center", "plain")
FENCE = re.compile(r"^\s{0,3}(`{3,}|~{3,})")
COMMENT = re.compile(r"`[^`]+`|(?P<opens><!--)")  # inside inline code it is text
META = re.compile(r"(\w[\w -]*):\s*(.*)")
HEADING = re.compile(r" {0,3}#{1,6}\s+\S")
ITEM = re.compile(r"(\s*)(?:[-*+]|([0-9]{1,9})[.)])(?:\s+(.*))?")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
INLINE = re.compile(
    r"`(?P<code>[^`]+)`|\*\*(?P<bold>[^*]+)\*\*|\*(?P<em>[^*\s][^*]*)\*|\[(?P<text>[^\]]+)\]\((?P<link>[^)\s]+)\)"
)


@dataclass
class SlideBlock:
    """A part of a slide: kind is heading, items, text, quote, code, table, chart, picture or columns.

    The lines of columns are lists of blocks, one for each column.
    """

    kind: str
    level: int = 0
    lines: list[Any] = field(default_factory=list)


@dataclass
class Slide:
    blocks: list[SlideBlock] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    requested_layout: str = ""  # the first line `Layout: …`

    @property
    def all_blocks(self) -> list[SlideBlock]:
        """All blocks, also those inside columns."""
        inside = [block for one in self.blocks if one.kind == "columns" for column in one.lines for block in column]
        return [block for block in self.blocks if block.kind != "columns"] + inside

    @property
    def layout(self) -> str:
        """One of LAYOUTS: the requested layout, or else one that fits the blocks."""
        if self.requested_layout in LAYOUTS:
            return self.requested_layout
        first = self.first_heading
        kinds = [block.kind for block in self.blocks if block is not first]
        if first is None:
            is_text = kinds and all(kind in ("text", "quote") for kind in kinds)
            return "center" if is_text or kinds == ["picture"] else "plain"
        if first.level == 1 and all(kind in ("text", "heading") for kind in kinds):
            return "title"
        return "plain" if kinds else "section"

    @property
    def first_heading(self) -> SlideBlock | None:
        return next((block for block in self.blocks if block.kind == "heading"), None)

    @property
    def heading(self) -> str:
        return self.first_heading.lines[0] if self.first_heading else ""


@dataclass
class Chart:
    """The data of a chart: kind is bar, line, area or pie; each row of `figures` belongs to a name of `series`."""

    kind: str
    title: str
    labels: list[str]
    series: list[str]
    figures: list[list[float | None]]


# -- reading --------------------------------------------------------------------------------------------------------


def parse_deck(text: str) -> tuple[dict[str, str], list[Slide]]:
    """Return the front matter of a deck, and its slides."""
    meta, rest = split_front_matter(NEWLINE.split(UNPRINTABLE.sub("", text.lstrip("\ufeff"))))
    return meta, [parse_slide(part) for part in split_lines(strip_comments(rest)) if any(line.strip() for line in part)]


def split_front_matter(lines: list[str]) -> tuple[dict[str, str], list[str]]:
    if not lines or lines[0].strip() != "---":
        return {}, lines
    end = next((at for at, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    found = [META.fullmatch(line.strip()) for line in lines[1:end]] if end else []
    if end is None or not all(found):  # the first slide, not front matter
        return {}, lines
    return {match[1].lower(): match[2].strip("\"' ") for match in found if match}, lines[end + 1 :]


def strip_comments(lines: Sequence[str]) -> list[str]:
    """Return the lines without HTML comments. Comments in code and unclosed comments stay."""
    result: list[str] = []
    fence, inside = "", False
    last = max((at for at, line in enumerate(lines) if "-->" in line), default=-1)
    for at, line in enumerate(lines):
        mark = "" if inside else next(iter(FENCE.findall(line)), "")
        if fence or mark:
            result.append(line)
            fence = "" if fence and mark.startswith(fence) else fence or mark
            continue
        rest, inside = strip_line_comments(line, inside, at < last)
        if rest == line or rest.strip():
            result.append(rest if rest == line else rest.rstrip())
    return result


def strip_line_comments(line: str, inside: bool, closes_later: bool) -> tuple[str, bool]:
    """Return a line without comments, and True if a comment continues on the next line."""
    rest, at = "", 0
    while True:
        if inside:
            end = line.find("-->", at)
            if end < 0:
                return rest, True
            inside, at = False, end + 3
        opens = next((found for found in COMMENT.finditer(line, at) if found["opens"]), None)
        if opens is None:
            return rest + line[at:], False
        end = line.find("-->", opens.start() + 2)
        if end < 0 and not closes_later:
            return rest + line[at:], False
        rest += line[at : opens.start()]
        at, inside = (end + 3, False) if end >= 0 else (len(line), True)


def mark_code_lines(lines: Sequence[str]) -> list[str]:
    """Return a mark for each line: "opens" a code block, "inside" one (also its last line), or empty."""
    found, fence = [], ""
    for line in lines:
        mark = next(iter(FENCE.findall(line)), "")
        found.append("inside" if fence else "opens" if mark else "")
        if mark and (not fence or mark.startswith(fence)):
            fence = "" if fence else mark
    return found


def split_lines(lines: Sequence[str], mark: str = "---") -> list[list[str]]:
    """Split the lines at each mark outside code."""
    parts: list[list[str]] = [[]]
    for line, code in zip(lines, mark_code_lines(lines)):
        if line.strip() == mark and not code:
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def parse_slide(lines: Sequence[str]) -> Slide:
    code = mark_code_lines(lines)
    note = next((at for at, line in enumerate(lines) if not code[at] and line.startswith("Note:")), len(lines))
    body, notes = list(lines[:note]), [line.strip() for line in lines[note:]]
    first = next((at for at, line in enumerate(body) if line.strip()), 0)
    layout = body.pop(first)[7:].strip().lower() if body and body[first].startswith("Layout:") else ""
    return Slide(parse_blocks(body), [notes[0][5:].strip(), *notes[1:]] if notes else [], layout)


def parse_blocks(lines: Sequence[str]) -> list[SlideBlock]:
    found: list[SlideBlock] = []
    code, at = mark_code_lines(lines), 0
    while at < len(lines):
        block, taken = parse_code(lines, code, at) if code[at] else parse_block(lines, code, at)
        if block is not None:
            found.append(block)
        at += taken
    return found


def parse_code(lines: Sequence[str], code: Sequence[str], at: int) -> tuple[SlideBlock, int]:
    """Return the code or chart that begins with a line, and the number of its lines."""
    end = next((to for to in range(at + 1, len(lines)) if code[to] != "inside"), len(lines))
    fence, last = (next(iter(FENCE.findall(lines[place])), "") for place in (at, end - 1))
    is_closed = end - 1 > at and bool(fence) and last.startswith(fence)
    inside = list(lines[at + 1 : end - 1 if is_closed else end])
    kind, *which = lines[at].strip("`~ \t").split() or [""]
    if kind == "chart":
        return SlideBlock("chart", lines=[which[0] if which else "bar", *inside]), end - at
    return SlideBlock("code", lines=inside), end - at


def parse_block(lines: Sequence[str], code: Sequence[str], at: int) -> tuple[SlideBlock | None, int]:
    """Return the block that begins with a line, and the number of its lines."""
    line = lines[at].strip()
    if not line:
        return None, 1
    if line == "::: columns":
        end = next((to for to in range(at, len(lines)) if lines[to].strip() == ":::" and not code[to]), len(lines))
        return SlideBlock("columns", lines=parse_columns(lines[at + 1 : end])), end - at + 1
    if HEADING.match(lines[at]):
        level = len(line) - len(line.lstrip("#"))
        return SlideBlock("heading", level, [line.lstrip("#").strip()]), 1
    picture = PICTURE.fullmatch(line)
    if picture:
        return SlideBlock("picture", lines=[picture[1], picture[2]]), 1
    if line[0] in "|>":
        taken = count_matching(lines, at, lambda text: text.strip().startswith(line[0]))
        return SlideBlock(
            "table" if line[0] == "|" else "quote", lines=[text.strip() for text in lines[at : at + taken]]
        ), taken
    if ITEM.fullmatch(lines[at]):
        taken = count_matching(lines, at, lambda text: bool(ITEM.fullmatch(text)))
        return SlideBlock("items", lines=[parse_item(text) for text in lines[at : at + taken]]), taken
    taken = max(1, count_matching(lines, at, lambda text: bool(text.strip()) and not starts_block(text)))
    return SlideBlock("text", lines=[" ".join(text.strip() for text in lines[at : at + taken])]), taken


def parse_columns(lines: Sequence[str]) -> list[list[SlideBlock]]:
    """Return the blocks of each column. A line ||| separates two columns."""
    return [parse_blocks(part) for part in split_lines(lines, "|||")]


def count_matching(lines: Sequence[str], at: int, fits: Any) -> int:
    end = at
    while end < len(lines) and fits(lines[end]):
        end += 1
    return end - at


def starts_block(line: str) -> bool:
    text = line.strip()
    begins = text.startswith(("|", ">")) or text == "::: columns" or bool(HEADING.match(line) or FENCE.match(line))
    return begins or bool(ITEM.fullmatch(line)) or bool(PICTURE.fullmatch(text))


def parse_item(line: str) -> tuple[int, bool, str]:
    """Return the level of a list item, True if it is numbered, and its text."""
    match = ITEM.fullmatch(line)
    assert match
    return min(len(match[1].replace("\t", "  ")) // 2, 3), bool(match[2]), match[3] or ""


def split_cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.sub(r"^\||\|$", "", line.strip()).split("|")]


def parse_table(lines: Sequence[str]) -> list[list[str]]:
    rows = [split_cells(line) for line in lines]
    return [row for row in rows if not all(re.fullmatch(":?-+:?", cell) for cell in row)]


def parse_chart(lines: Sequence[str]) -> Chart | None:
    """Parse a chart: a kind, an optional title and a table whose first column has labels. None without figures."""
    kind, rest = lines[0], [line.strip() for line in lines[1:]]
    rows = parse_table([line for line in rest if line.startswith("|")])
    if kind not in CHARTS or len(rows) < 2 or len(rows[0]) < 2:
        return None
    columns = len(rows[0]) - 1
    figures = [[parse_number(row[at + 1]) if at + 1 < len(row) else None for row in rows[1:]] for at in range(columns)]
    if not any(value is not None for row in figures for value in row):
        return None
    title = " ".join(line for line in rest if line and not line.startswith("|"))
    return Chart(
        kind,
        strip_markup(title),
        [strip_markup(row[0]) for row in rows[1:]],
        [strip_markup(name) for name in rows[0][1:]],
        figures,
    )


def parse_number(text: str) -> float | None:
    """Return the number in a cell such as `1,200 t`, `−3.5` or `12 %`, or None."""
    found = FIGURE.search(strip_markup(text))
    if not found:
        return None
    digits = re.sub(r"[ '_]", "", found[0].replace("−", "-"))
    digits = (
        digits.replace(",", "") if "." in digits or re.fullmatch(r"[-+]?[0-9]{1,3}(,[0-9]{3})+", digits) else digits
    )
    try:
        value = float(digits.replace(",", "."))
    except ValueError:
        return None
    return value if abs(value) < 1e300 else None


# -- checking -------------------------------------------------------------------------------------------------------


def find_warnings(slides: Sequence[Slide], folder: str) -> list[str]:
    found = []
    for number, one in enumerate(slides, 1):
        if one.requested_layout and one.requested_layout not in LAYOUTS:
            found.append(
                f"slide {number}: there is no layout {one.requested_layout}; the layouts are {', '.join(LAYOUTS)}"
            )
        if not one.heading and one.requested_layout != "center":
            found.append(f"slide {number} has no heading")
        blocks = one.all_blocks
        lines = sum(len(block.lines) for block in blocks if block.kind in ("items", "text", "code", "quote"))
        words = len(re.findall(r"\w+", " ".join(block_text(block) for block in blocks if block.kind != "code")))
        if lines > MANY_LINES or words > MANY_WORDS:
            found.append(f"slide {number} is too full: {lines} lines, {words} words")
        for block in blocks:
            if block.kind == "picture" and read_picture(block.lines[1], folder) is None:
                found.append(
                    f"slide {number}: there is no supported picture {block.lines[1]} in the folder of the deck"
                )
            if block.kind == "chart" and parse_chart(block.lines) is None:
                kinds = ", ".join(CHARTS)
                found.append(f"slide {number}: a chart needs a kind ({kinds}) and a table with figures")
    return found


def block_text(block: SlideBlock) -> str:
    return " ".join(line[2] if isinstance(line, tuple) else line for line in block.lines)


def read_picture(name: str, folder: str) -> tuple[str, bytes] | None:
    """Return the type and the bytes of a picture in the folder of the deck, or None."""
    kind, root = PICTURES.get(os.path.splitext(name)[1].lower()), os.path.realpath(folder or ".")
    path = os.path.realpath(os.path.join(root, name))
    inside = path.startswith(root.rstrip(os.sep) + os.sep)
    if kind is None or not inside or not os.path.isfile(path) or os.path.getsize(path) > PICTURE_BYTES:
        return None
    with open(path, "rb") as file:
        return kind, file.read()


# -- HTML -----------------------------------------------------------------------------------------------------------

THEMES = {
    "plain": {"ground": "#ffffff", "ink": "#1a1a1a", "head": "#1a1a1a", "mark": "#4472c4", "soft": "#f3f3f3"},
    "ink": {"ground": "#17191d", "ink": "#dcdad5", "head": "#ffffff", "mark": "#f0a35e", "soft": "#24272d"},
    "flame": {"ground": "#fff7ee", "ink": "#46321f", "head": "#8c3b00", "mark": "#d9660f", "soft": "#fde6cf"},
    "sea": {"ground": "#f2f8fb", "ink": "#23404f", "head": "#0c4a6b", "mark": "#16789f", "soft": "#dcedf5"},
    "forest": {"ground": "#f4f8f2", "ink": "#2c3d2d", "head": "#1f4d2b", "mark": "#3f7d4e", "soft": "#e0ecdc"},
}


def theme_colors(meta: dict[str, str]) -> dict[str, str]:
    return THEMES.get(meta.get("theme", "").lower(), THEMES["plain"])


STYLE = """
*{box-sizing:border-box}
body{margin:0;background:#222;font:28px/1.4 system-ui,sans-serif;color:#1a1a1a}
section{display:none;width:100vw;height:100vh;padding:5vh 7vw;background:var(--ground);color:var(--ink);overflow:auto}
section.on{display:flex;flex-direction:column;justify-content:center}
h1,h2,h3{color:var(--head)}
h1{font-size:2.2em;margin:.2em 0}
h2{font-size:1.5em;margin:.2em 0 .6em}
.section{background:var(--mark)}
.section *{color:var(--ground)}
.center{text-align:center;align-items:center}
.center blockquote{border:0;font-size:1.3em}
.columns{display:grid;grid-auto-flow:column;grid-auto-columns:minmax(0,1fr);gap:3vw}
ul,ol{margin:.2em 0}
li{margin:.25em 0}
table{border-collapse:collapse;margin:.5em 0}
td,th{border-bottom:1px solid #bbb;padding:.3em .8em;text-align:left}
pre{background:var(--soft);padding:.8em;font-size:.7em;overflow:auto}
blockquote{border-left:4px solid var(--mark);margin:.5em 0;padding-left:1em}
svg{width:100%;max-height:60vh;fill:var(--ink)}
img{max-width:100%;max-height:55vh;align-self:center}
aside{display:none;background:#fff8dc;padding:.6em;font-size:.6em}
body.notes aside{display:block}
footer{position:fixed;right:1em;bottom:.5em;font-size:.5em;color:#888}
@media print{section{display:flex!important;flex-direction:column;page-break-after:always}footer{display:none}}
"""
SCRIPT = """
const all=[...document.querySelectorAll('section')];let at=0;
function show(n){at=Math.max(0,Math.min(all.length-1,n));all.forEach((s,i)=>s.classList.toggle('on',i===at));
document.querySelector('footer').textContent=(at+1)+' / '+all.length;}
addEventListener('keydown',e=>{if(['ArrowRight','PageDown',' '].includes(e.key))show(at+1);
else if(['ArrowLeft','PageUp'].includes(e.key))show(at-1);else if(e.key==='Home')show(0);
else if(e.key==='End')show(all.length-1);else if(e.key==='n')document.body.classList.toggle('notes');});
addEventListener('click',e=>{if(!e.target.closest('a'))show(at+1);});show(0);
"""


def render_inline(text: str) -> str:
    """Return the text as HTML with emphasis, code and links; everything else is escaped."""
    out, end = [], 0
    for match in INLINE.finditer(text):
        out.append(escape(text[end : match.start()]))
        end = match.end()
        if match["code"]:
            out.append(f"<code>{escape(match['code'])}</code>")
        elif match["bold"] or match["em"]:
            tag = "strong" if match["bold"] else "em"
            out.append(f"<{tag}>{escape(match['bold'] or match['em'])}</{tag}>")
        elif re.match(r"https?://|mailto:", match["link"]):
            out.append(f'<a href="{escape(match["link"])}" rel="noreferrer">{escape(match["text"])}</a>')
        else:
            out.append(escape(match["text"]))
    return "".join([*out, escape(text[end:])])


def render_items(items: Sequence[tuple[int, bool, str]]) -> str:
    out: list[str] = []
    open_tags: list[str] = []
    for level, numbered, text in items:
        while len(open_tags) > level + 1:
            out.append(f"</{open_tags.pop()}>")
        while len(open_tags) < level + 1:
            open_tags.append("ol" if numbered else "ul")
            out.append(f"<{open_tags[-1]}>")
        out.append(f"<li>{render_inline(text)}</li>")
    return "".join(out + [f"</{tag}>" for tag in reversed(open_tags)])


def render_table(rows: Sequence[Sequence[str]]) -> str:
    out = []
    for number, row in enumerate(rows):
        tag = "th" if number == 0 else "td"
        out.append("<tr>" + "".join(f"<{tag}>{render_inline(cell)}</{tag}>" for cell in row) + "</tr>")
    return f"<table>{''.join(out)}</table>"


def render_block(block: SlideBlock, folder: str) -> str:
    if block.kind == "heading":
        level = min(block.level, 3)
        return f"<h{level}>{render_inline(block.lines[0])}</h{level}>"
    if block.kind == "items":
        return render_items(block.lines)
    if block.kind == "table":
        return render_table(parse_table(block.lines))
    if block.kind == "chart":
        drawn = parse_chart(block.lines)
        return render_table(parse_table(block.lines[1:])) if drawn is None else render_chart(drawn)
    if block.kind == "code":
        return f"<pre>{escape(chr(10).join(block.lines))}</pre>"
    if block.kind == "quote":
        return f"<blockquote>{render_inline(' '.join(line.lstrip('> ') for line in block.lines))}</blockquote>"
    if block.kind == "picture":
        return render_picture(block.lines[0], read_picture(block.lines[1], folder))
    if block.kind == "columns":
        inside = "".join(f"<div>{''.join(render_block(one, folder) for one in column)}</div>" for column in block.lines)
        return f'<div class="columns">{inside}</div>'
    return f"<p>{render_inline(block.lines[0])}</p>"


def render_picture(words: str, found: tuple[str, bytes] | None) -> str:
    if found is None:
        return f"<p><em>{escape(words)}</em></p>"
    kind, data = found
    return f'<img alt="{escape(words)}" src="data:{kind};base64,{base64.b64encode(data).decode()}">'


COLORS = ("#4472c4", "#ed7d31", "#70ad47", "#ffc000", "#5b9bd5", "#a5a5a5")
WIDE, HIGH = 800, 340  # size of the plot area


def render_chart(drawn: Chart) -> str:
    """Return a chart as SVG."""
    shapes = render_slices(drawn) if drawn.kind == "pie" else render_plot(drawn)
    names = drawn.labels if drawn.kind == "pie" else drawn.series
    for at, name in enumerate(names if len(names) > 1 else ()):
        x, y = at % 4 * 200, HIGH + 60 + at // 4 * 24
        shapes.append(f'<rect x="{x}" y="{y - 12}" width="12" height="12" fill="{COLORS[at % 6]}"></rect>')
        shapes.append(render_label(x + 18, y, name, "start"))
    title = render_label(WIDE / 2, -12, drawn.title)
    box = f"-60 -40 {WIDE + 80} {HIGH + 110 + len(names) // 4 * 24}"
    return f'<svg viewBox="{box}" role="img" aria-label="{escape(drawn.title)}">{title}{"".join(shapes)}</svg>'


def render_label(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="16">{escape(text)}</text>'


def render_plot(drawn: Chart) -> list[str]:
    """Return the shapes of a bar, line or area chart, with axis labels."""
    known = [value for row in drawn.figures for value in row if value is not None]
    low, high = min(0.0, *known), max(0.0, *known)
    step = WIDE / len(drawn.labels)

    def y(value: float) -> float:
        return HIGH - (value - low) / ((high - low) or 1.0) * HIGH

    shapes = [render_label(-8, y(value) + 5, f"{value:g}", "end") for value in sorted({low, high})]
    shapes.append(f'<rect x="0" y="{y(0):.1f}" width="{WIDE}" height="1" fill="#888"></rect>')
    shapes += [render_label((at + 0.5) * step, HIGH + 24, label) for at, label in enumerate(drawn.labels)]
    for number, row in enumerate(drawn.figures):
        points = [(at, y(value)) for at, value in enumerate(row) if value is not None]
        width = step * 0.8 / len(drawn.figures)
        if drawn.kind == "bar":
            shapes += render_bars(
                [(at * step + 0.1 * step + number * width, to) for at, to in points], width, y(0), number
            )
        elif points:
            shapes += render_line([((at + 0.5) * step, to) for at, to in points], y(0), number, drawn.kind == "area")
    return shapes


def render_bars(places: Sequence[tuple[float, float]], width: float, ground: float, number: int) -> list[str]:
    return [
        f'<rect x="{x:.1f}" y="{min(top, ground):.1f}" width="{width:.1f}" height="{abs(top - ground):.1f}" '
        f'fill="{COLORS[number % 6]}"></rect>'
        for x, top in places
    ]


def render_line(places: Sequence[tuple[float, float]], ground: float, number: int, filled: bool) -> list[str]:
    color, points = COLORS[number % 6], " ".join(f"{x:.1f},{top:.1f}" for x, top in places)
    drawn = [f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="3"></polyline>']
    if filled:
        ends = f"{places[-1][0]:.1f},{ground:.1f} {places[0][0]:.1f},{ground:.1f}"
        drawn.append(f'<polygon points="{points} {ends}" fill="{color}" opacity="0.3"></polygon>')
    return drawn


def render_slices(drawn: Chart) -> list[str]:
    """Return the slices of a pie chart of the first series."""
    values = [max(value or 0.0, 0.0) for value in drawn.figures[0]]
    total, radius, begin = sum(values) or 1.0, HIGH / 2, 0.0
    shapes = []
    for at, value in enumerate(values):
        end = begin + value / total
        around = [begin + (end - begin) * part / 40 for part in range(41)]
        places = [
            (WIDE / 2 + radius * math.sin(a * math.tau), radius - radius * math.cos(a * math.tau)) for a in around
        ]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in [(WIDE / 2, radius), *places])
        shapes.append(f'<polygon points="{points}" fill="{COLORS[at % 6]}"></polygon>')
        begin = end
    return shapes


def render_html(meta: dict[str, str], slides: Sequence[Slide], folder: str) -> str:
    title = meta.get("title") or slides[0].heading or "Slides"
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    out = ["<!doctype html>", '<html lang="en"><head><meta charset="utf-8">', f"<title>{escape(title)}</title>"]
    out.append(f'<meta http-equiv="Content-Security-Policy" content="{policy}">')
    colors = ";".join(f"--{name}:{value}" for name, value in theme_colors(meta).items())
    style = f":root{{{colors}}}{STYLE}"
    out.append(f'<meta name="author" content="{escape(meta.get("author", ""))}"><style>{style}</style></head><body>')
    for one in slides:
        body = "".join(render_block(block, folder) for block in one.blocks)
        notes = " ".join(filter(None, one.notes))
        aside = f"<aside>{render_inline(notes)}</aside>" if notes else ""
        out.append(f'<section class="{one.layout}">{body}{aside}</section>')
    return "\n".join([*out, f"<footer></footer><script>{SCRIPT}</script></body></html>", ""])


# -- PowerPoint -----------------------------------------------------------------------------------------------------


def strip_markup(text: str) -> str:
    return INLINE.sub(lambda match: match["code"] or match["bold"] or match["em"] or match["text"], text)


Pictures = Callable[[str], "tuple[str, bytes] | None"]


def write_powerpoint(
    slides: Sequence[Slide], pictures: Pictures, target: str | IO[bytes], theme: str = "plain"
) -> None:
    """Write a PowerPoint file with editable tables and charts."""
    from pptx import Presentation

    deck = Presentation()
    places = {"title": 0, "section": 2, "center": 1, "plain": 1}
    for one in slides:
        fits = one.layout in ("center", "plain") or all(block.kind in ("heading", "text") for block in one.blocks)
        page = deck.slides.add_slide(deck.slide_layouts[places[one.layout] if fits else 1])
        if page.shapes.title is not None:
            page.shapes.title.text = strip_markup(one.heading)
        fill_page(page, one, pictures)
        if theme in THEMES and theme != "plain":
            apply_theme(page, one.layout == "section", THEMES[theme])
        if one.notes:
            page.notes_slide.notes_text_frame.text = " ".join(filter(None, one.notes))
    deck.save(target)


def fill_page(page: Any, one: Slide, pictures: Pictures) -> None:
    """Fill a page with the text of a slide, and its pictures, tables and charts beside it."""
    from pptx.util import Inches

    heading = next((block for block in one.blocks if block.kind == "heading"), None)
    rest = [block for block in one.blocks if block is not heading]
    shapes = [block for block in rest if block.kind in SHAPES and is_drawable(block, pictures)]
    words = [
        line for block in rest if block not in shapes and block.kind != "columns" for line in block_paragraphs(block)
    ]
    across = [column for block in rest if block.kind == "columns" for column in block.lines]
    body = page.placeholders[1]
    write_paragraphs(body.text_frame, words)
    left, width = (5.1, 4.4) if words else (0.5, 9.0)
    stack_shapes(page.shapes, shapes, pictures, (left, 1.8, width, 5.2))
    for at, column in enumerate(across):
        wide = 9.0 / len(across)
        top = 3.0 if words or shapes else 1.8
        put_column(page.shapes, column, pictures, (0.5 + at * wide, top, wide - 0.2, 7.0 - top))
    if (shapes or across) and words:
        high = 1.1 if across else 5.0
        body.left, body.top, body.width, body.height = [Inches(n) for n in (0.5, 1.8, 4.4 if shapes else 9.0, high)]
    elif shapes or across:
        body._element.getparent().remove(body._element)


def write_paragraphs(frame: Any, words: Sequence[tuple[int, str]]) -> None:
    for at, (level, text) in enumerate(words):
        line = frame.paragraphs[0] if at == 0 else frame.add_paragraph()
        line.text, line.level = text, level


def stack_shapes(shapes: Any, blocks: Sequence[SlideBlock], pictures: Pictures, place: Sequence[float]) -> None:
    """Place pictures, tables and charts below each other; a place is left, top, width and height in inches."""
    from pptx.util import Inches

    left, top, width, height = place
    for at, block in enumerate(blocks):
        high = height / len(blocks)
        inches = (left, top + at * high, width, high - 0.2)
        SHAPES[block.kind](shapes, block, pictures, [Inches(n) for n in inches])


def put_column(shapes: Any, blocks: Sequence[SlideBlock], pictures: Pictures, place: Sequence[float]) -> None:
    """Place the text of a column at the top, its pictures, tables and charts below."""
    from pptx.util import Inches, Pt

    left, top, width, height = place
    below = [block for block in blocks if block.kind in SHAPES and is_drawable(block, pictures)]
    words = [line for block in blocks if block not in below for line in block_paragraphs(block)]
    high = min(height, 0.45 * len(words) + 0.2) if below else height
    if words:
        frame = shapes.add_textbox(*[Inches(n) for n in (left, top, width, high)]).text_frame
        frame.word_wrap = True
        write_paragraphs(frame, words)
        for line in frame.paragraphs:
            line.font.size = Pt(20)
    used = high if words else 0.0
    stack_shapes(shapes, below, pictures, (left, top + used, width, max(height - used, 1.0)))


def apply_theme(page: Any, is_section: bool, colors: dict[str, str]) -> None:
    """Apply the colors of a theme to a page."""
    from pptx.dml.color import RGBColor

    untyped: Any = RGBColor

    def rgb(name: str) -> Any:
        return untyped.from_string(colors[name][1:].upper())

    page.background.fill.solid()
    page.background.fill.fore_color.rgb = rgb("mark" if is_section else "ground")
    for shape in page.shapes:
        if getattr(shape, "has_chart", False):
            shape.chart.font.color.rgb = rgb("ink")
        if shape.has_text_frame:
            name = "ground" if is_section else "head" if shape == page.shapes.title else "ink"
            for line in shape.text_frame.paragraphs:
                line.font.color.rgb = rgb(name)


def is_drawable(block: SlideBlock, pictures: Pictures) -> bool:
    if block.kind == "chart":
        return parse_chart(block.lines) is not None
    if block.kind == "picture":
        found = pictures(block.lines[1])
        return found is not None and is_supported_image(found[1])
    return bool(parse_table(block.lines))


def is_supported_image(data: bytes) -> bool:
    """Return True if PowerPoint supports the format of a picture."""
    from pptx.parts.image import Image

    try:
        return bool(Image.from_blob(data).ext)
    except Exception:  # any invalid picture: its alternative text is shown instead
        return False


def put_picture(shapes: Any, block: SlideBlock, pictures: Pictures, place: Sequence[int]) -> None:
    found = pictures(block.lines[1])
    assert found
    left, top, width, height = place
    picture = shapes.add_picture(BytesIO(found[1]), left, top)
    scale = min(width / picture.width, height / picture.height)
    picture.width, picture.height = int(picture.width * scale), int(picture.height * scale)


def put_table(shapes: Any, block: SlideBlock, pictures: Pictures, place: Sequence[int]) -> None:
    rows = parse_table(block.lines)
    columns = max(map(len, rows))
    drawn = shapes.add_table(len(rows), columns, *place).table
    for row, texts in zip(drawn.rows, rows):
        for cell, text in zip(row.cells, texts):
            cell.text = strip_markup(text)


def put_chart(shapes: Any, block: SlideBlock, pictures: Pictures, place: Sequence[int]) -> None:
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE

    kinds = {"bar": "COLUMN_CLUSTERED", "line": "LINE_MARKERS", "area": "AREA", "pie": "PIE"}
    untyped: Any = CategoryChartData
    drawn, data = parse_chart(block.lines), untyped()
    assert drawn
    data.categories = drawn.labels
    for name, figures in zip(drawn.series, drawn.figures):
        data.add_series(name, figures)
    graph = shapes.add_chart(getattr(XL_CHART_TYPE, kinds[drawn.kind]), *place, data).chart
    graph.has_title, graph.has_legend = bool(drawn.title), len(drawn.series) > 1 or drawn.kind == "pie"
    if drawn.title:
        graph.chart_title.text_frame.text = drawn.title


SHAPES = {"picture": put_picture, "table": put_table, "chart": put_chart}


def block_paragraphs(block: SlideBlock) -> list[tuple[int, str]]:
    if block.kind == "items":
        return [(level, strip_markup(text)) for level, _, text in block.lines]
    if block.kind == "picture":
        return [(0, block.lines[0])]
    if block.kind == "chart":
        return [(0, strip_markup(line)) for line in block.lines[1:]]
    return [(0, strip_markup(line.lstrip("> ")) if block.kind != "code" else line) for line in block.lines]


# -- the command ----------------------------------------------------------------------------------------------------


def build_deck(given: argparse.Namespace) -> str:
    with open(given.file, encoding="utf-8-sig", errors="replace") as file:
        meta, slides = parse_deck(file.read())
    if not slides:
        raise ValueError("the file has no slides; write Markdown with a line --- between two slides")
    folder = os.path.dirname(given.file)
    if given.output.lower().endswith(".pptx"):
        theme = meta.get("theme", "").lower()
        write_powerpoint(slides, lambda name: read_picture(name, folder), given.output, theme)
    else:
        with open(given.output, "w", encoding="utf-8") as file:
            file.write(render_html(meta, slides, folder))
    messages = [f"warning: {warning}" for warning in find_warnings(slides, folder)]
    if meta.get("theme", "plain").lower() not in THEMES:
        messages.insert(0, f"warning: there is no theme {meta['theme']}; the themes are {', '.join(THEMES)}")
    return "\n".join([*messages, f"wrote {given.output}: {len(slides)} slides"])


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Convert a Markdown file to slides.")
    parser.add_argument("file")
    parser.add_argument("--output", default="deck.html", help="a file that ends with .html or .pptx")
    given = parser.parse_args(args)
    try:
        print(build_deck(given))
    except ImportError:
        print("a .pptx needs the package python-pptx; run pip install python-pptx, or build deck.html", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"{given.file} cannot be built: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    sys.exit(main())
