#!/usr/bin/env python3
"""Analyze a CSV file: its shape, statistics of its columns, and its data problems.

    python3 analyze.py data.csv [--json] [--delimiter ';'] [--header | --no-header] [--top 5]
    python3 analyze.py data.csv --chart price --output price.svg

Python 3.8 and the standard library.
"""

from __future__ import annotations

import argparse
import codecs
import csv
import json
import math
import re
import sys
from collections import Counter
from datetime import datetime
from html import escape
from itertools import islice
from statistics import median, quantiles, stdev
from typing import Any, Iterator, Sequence, TextIO

DELIMITERS = ",;\t|"
MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "-", "?"))
TRUE_FALSE = frozenset(("true", "false", "yes", "no"))
DATES = ("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y")
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
GROUPED_EUROPEAN = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+),\d+")
MOSTLY = 0.8  # a column with this share of numbers is numeric; its other values are odd
SAMPLE = 50  # rows that are read to detect the delimiter
NAMED = 5  # problems of one kind that are listed
CORRELATED = 12  # columns at most


class Unreadable(Exception):
    """The file cannot be analyzed; the message is the reason."""


# -- reading --------------------------------------------------------------------------------------------------------


def detect_encoding(path: str) -> str:
    """Detect the encoding of a file: UTF-16 by its byte order mark, UTF-8, or else cp1252."""
    with open(path, "rb") as file:
        head = file.read(4)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        with open(path, encoding="utf-8") as text:
            while text.read(1_000_000):
                pass
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8-sig" if head.startswith(codecs.BOM_UTF8) else "utf-8"


def strip_nuls(lines: TextIO) -> Iterator[str]:
    """Return the lines without NUL characters, which the csv module of Python < 3.11 refuses."""
    return (line.replace("\0", "") for line in lines)


def detect_delimiter(path: str, encoding: str) -> str:
    """Return the delimiter that splits most of the first rows into the same number of fields."""
    best, most = ",", (0.0, 1)
    for delimiter in DELIMITERS:
        with open(path, encoding=encoding, errors="replace", newline="") as file:
            rows = [row for row in islice(csv.reader(strip_nuls(file), delimiter=delimiter), SAMPLE) if row]
        if not rows:
            continue
        width, same = Counter(map(len, rows)).most_common(1)[0]
        if width > 1 and (same / len(rows), width) > most:
            best, most = delimiter, (same / len(rows), width)
    return best


def parse_number(text: str, european: bool) -> float | None:
    """Parse a number, also with a currency, a percent sign or thousands separators."""
    text = text.strip().strip("$€£%").strip()
    if european and GROUPED_EUROPEAN.fullmatch(text):
        text = text.replace(".", "").replace(",", ".")
    elif GROUPED.fullmatch(text):
        text = text.replace(",", "")
    if not NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def is_date(text: str) -> bool:
    for form in DATES:
        try:
            datetime.strptime(text, form)
        except ValueError:
            continue
        return True
    return False


def is_header(first: Sequence[str], rows: Sequence[Sequence[str]], european: bool) -> bool:
    """Return True if the first row consists of distinct texts without numbers or dates."""
    named = [cell.strip() for cell in first]
    if not all(named) or len(set(named)) < len(named):
        return bool(rows) and not any(parse_number(cell, european) is not None for cell in named) and any(named)
    return not any(parse_number(cell, european) is not None or is_date(cell) for cell in named)


class Table:
    """The rows of a file, padded or cut to the same length, and the lines where that was necessary."""

    def __init__(self, path: str, delimiter: str = "", header: bool | None = None) -> None:
        self.encoding = detect_encoding(path)
        self.delimiter = delimiter or detect_delimiter(path, self.encoding)
        self.blank = 0
        self.short: list[int] = []  # line numbers of rows with too few fields
        self.long: list[int] = []
        self.european = self.delimiter == ";"
        rows: list[tuple[int, list[str]]] = []
        with open(path, encoding=self.encoding, errors="replace", newline="") as file:
            reader = csv.reader(strip_nuls(file), delimiter=self.delimiter)
            for row in reader:
                if any(cell.strip() for cell in row):
                    rows.append((reader.line_num, row))
                else:
                    self.blank += 1
        if not rows:
            raise Unreadable(f"{path} is empty: there is nothing to analyze")
        first = rows[0][1]
        has = is_header(first, [row for _, row in rows[1:SAMPLE]], self.european) if header is None else header
        self.header = has
        width = len(first) if has else Counter(len(row) for _, row in rows).most_common(1)[0][0]
        self.names = unique_names(first) if has else [f"column {place}" for place in range(1, width + 1)]
        self.rows = [self._fit_row(line, row, width) for line, row in (rows[1:] if has else rows)]

    def _fit_row(self, line: int, row: list[str], width: int) -> list[str]:
        if len(row) < width:
            self.short.append(line)
        elif len(row) > width:
            self.long.append(line)
        return [*row, *[""] * (width - len(row))][:width]

    def column(self, place: int) -> list[str]:
        return [row[place].strip() for row in self.rows]

    @property
    def duplicates(self) -> int:
        return len(self.rows) - len({tuple(row) for row in self.rows})


def unique_names(names: Sequence[str]) -> list[str]:
    """Return the column names without duplicates; a missing or repeated name gets a number."""
    found: list[str] = []
    for place, name in enumerate(names, 1):
        own = " ".join(name.split()) or f"column {place}"
        found.append(own if own not in found else f"{own} ({place})")
    return found


# -- columns --------------------------------------------------------------------------------------------------------


def describe_column(name: str, values: Sequence[str], european: bool, top: int) -> dict[str, Any]:
    """Return the type of a column and its statistics."""
    present = [value for value in values if value.lower() not in MISSING]
    about: dict[str, Any] = {
        "name": name,
        "type": "empty",
        "count": len(present),
        "missing": len(values) - len(present),
    }
    if not present:
        return about
    about["distinct"] = len(set(present))
    parsed = [parse_number(value, european) for value in present]
    numbers = [value for value in parsed if value is not None]
    if len(numbers) >= MOSTLY * len(present):
        odd = [value for value, read in zip(present, parsed) if read is None]
        return {**about, **compute_statistics(numbers), **({"odd": len(odd), "odd_values": odd[:NAMED]} if odd else {})}
    if all(value.lower() in TRUE_FALSE for value in present):
        return {**about, "type": "boolean", "top": Counter(value.lower() for value in present).most_common(top)}
    if all(map(is_date, present)):
        return {**about, "type": "date", "first": min(present, key=parse_date), "last": max(present, key=parse_date)}
    lengths = [len(value) for value in present]
    about.update(type="text", shortest=min(lengths), longest=max(lengths), top=Counter(present).most_common(top))
    return about


def parse_date(text: str) -> datetime:
    for form in DATES:
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    return datetime.max


def compute_statistics(numbers: Sequence[float]) -> dict[str, Any]:
    whole = all(value.is_integer() for value in numbers)
    low, high = compute_quartiles(numbers)
    reach = 1.5 * (high - low)
    return {
        "type": "integer" if whole else "number",
        "min": min(numbers),
        "max": max(numbers),
        "sum": math.fsum(numbers),
        "mean": math.fsum(numbers) / len(numbers),
        "median": median(numbers),
        "stdev": stdev(numbers) if len(numbers) > 1 else 0.0,
        "q1": low,
        "q3": high,
        "outliers": sum(not low - reach <= value <= high + reach for value in numbers),
    }


def compute_quartiles(numbers: Sequence[float]) -> tuple[float, float]:
    if len(numbers) < 2:
        return numbers[0], numbers[0]
    low, _, high = quantiles(numbers, n=4, method="inclusive")
    return low, high


def compute_correlations(table: Table, columns: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the Pearson correlations of all pairs of numeric columns, the strongest first."""
    places = [place for place, about in enumerate(columns) if about["type"] in ("integer", "number")][:CORRELATED]
    values = {place: [parse_number(text, table.european) for text in table.column(place)] for place in places}
    found = []
    for here in places:
        for there in places:
            pairs = [(x, y) for x, y in zip(values[here], values[there]) if x is not None and y is not None]
            r = pearson(pairs) if here < there else None
            if r is not None:
                found.append({"columns": [table.names[here], table.names[there]], "r": r, "rows": len(pairs)})
    return sorted(found, key=lambda row: -abs(row["r"]))


def pearson(pairs: Sequence[tuple[float, float]]) -> float | None:
    if len(pairs) < 3:
        return None
    mean_x, mean_y = (math.fsum(side) / len(pairs) for side in zip(*pairs))
    across = math.fsum((x - mean_x) * (y - mean_y) for x, y in pairs)
    spread = math.fsum((x - mean_x) ** 2 for x, _ in pairs) * math.fsum((y - mean_y) ** 2 for _, y in pairs)
    return across / math.sqrt(spread) if spread > 0 and math.isfinite(spread) else None


# -- report ---------------------------------------------------------------------------------------------------------


def analyze_table(table: Table, top: int) -> dict[str, Any]:
    columns = [describe_column(name, table.column(at), table.european, top) for at, name in enumerate(table.names)]
    return {
        "rows": len(table.rows),
        "columns": columns,
        "delimiter": table.delimiter,
        "encoding": table.encoding,
        "header": table.header,
        "correlations": compute_correlations(table, columns),
        "problems": find_problems(table, columns),
    }


def find_problems(table: Table, columns: Sequence[dict[str, Any]]) -> list[str]:
    found = []
    if table.short:
        found.append(f"rows with too few fields: {list_lines(table.short)}; absent fields count as missing")
    if table.long:
        found.append(f"rows with too many fields: {list_lines(table.long)}; extra fields were ignored")
    if table.blank:
        found.append(f"blank rows: {table.blank}; they were skipped")
    if table.duplicates:
        found.append(f"rows that are exact copies of others: {table.duplicates}; they were counted")
    for about in columns:
        if about.get("odd"):
            shown = ", ".join(map(repr, about["odd_values"]))
            found.append(f"values of {about['name']} that are not numbers: {about['odd']} ({shown}); they were ignored")
    return found


def list_lines(numbers: Sequence[int]) -> str:
    more = ", …" if len(numbers) > NAMED else ""
    return f"{len(numbers)} (line {', '.join(map(str, numbers[:NAMED]))}{more})"


def format_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"
    return str(value)


def format_report(path: str, found: dict[str, Any]) -> str:
    delimiter = {"\t": "tab"}.get(found["delimiter"], found["delimiter"])
    out = [f"# {path}", "", f"{found['rows']} rows, {len(found['columns'])} columns; delimiter `{delimiter}`, "]
    out[-1] += f"encoding {found['encoding']}, {'with' if found['header'] else 'without'} a header"
    out += ["", "## Problems", "", *(f"- {problem}" for problem in found["problems"] or ["none found"])]
    out += ["", "## Columns", ""]
    for about in found["columns"]:
        out.append(f"- **{about['name']}** ({about['type']}): {format_details(about)}")
    if found["correlations"]:
        out += ["", "## Correlations (Pearson)", ""]
        out += [
            f"- {' / '.join(row['columns'])}: {row['r']:.3f} over {row['rows']} rows" for row in found["correlations"]
        ]
    return "\n".join(out)


def format_details(about: dict[str, Any]) -> str:
    left = {"name", "type", "top", "odd", "odd_values"}
    parts = [f"{key} {format_value(value)}" for key, value in about.items() if key not in left]
    if about.get("top"):
        parts.append("most frequent " + ", ".join(f"{value!r} ×{count}" for value, count in about["top"]))
    return ", ".join(parts)


# -- charts ---------------------------------------------------------------------------------------------------------


def compute_bars(table: Table, name: str, top: int) -> list[tuple[str, int]]:
    """Return labels and counts for a chart: a histogram of numbers, or the most frequent texts."""
    if name not in table.names:
        raise Unreadable(f"there is no column {name!r}; the columns are {', '.join(table.names)}")
    values = [value for value in table.column(table.names.index(name)) if value.lower() not in MISSING]
    numbers = [read for read in (parse_number(value, table.european) for value in values) if read is not None]
    if not values:
        raise Unreadable(f"the column {name!r} is empty")
    if len(numbers) < MOSTLY * len(values):
        return Counter(values).most_common(max(top, 10))
    low, high = min(numbers), max(numbers)
    count = 1 if low == high else min(20, max(5, math.ceil(math.log2(len(numbers)) + 1)))
    width = (high - low) / count or 1.0
    heights = Counter(min(int((value - low) / width), count - 1) for value in numbers)
    return [(f"{low + at * width:.4g} – {low + (at + 1) * width:.4g}", heights[at]) for at in range(count)]


def draw_chart(name: str, rows: Sequence[tuple[str, int]]) -> str:
    most, out = max(count for _, count in rows), []
    for at, (label, count) in enumerate(rows):
        y, width = 50 + at * 26, 460 * count / most
        text = escape(label if len(label) <= 28 else label[:27] + "…")
        out.append(f'<text x="190" y="{y + 14}" text-anchor="end">{text}</text>')
        out.append(f'<rect x="200" y="{y}" width="{width:.1f}" height="20" fill="#4472c4"/>')
        out.append(f'<text x="{206 + width:.1f}" y="{y + 14}">{count}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{70 + 26 * len(rows)}" '
    head += 'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([head, f'<text x="20" y="28" font-size="16">{escape(name)}</text>', *out, "</svg>", ""])


# -- the command ----------------------------------------------------------------------------------------------------


def parse_options(args: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Analyze a CSV file.")
    parser.add_argument("file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--delimiter", default="", help="one character; \\t is a tab")
    parser.add_argument("--header", dest="header", action="store_true", default=None, help="the first row has names")
    parser.add_argument("--no-header", dest="header", action="store_false", help="the first row is data")
    parser.add_argument("--top", type=int, default=5, help="number of frequent values to print")
    parser.add_argument("--chart", default="", metavar="COLUMN", help="draw this column instead")
    parser.add_argument("--output", default="chart.svg", help="the file of the chart")
    return parser.parse_args(args)


def main(args: Sequence[str] | None = None) -> int:
    given = parse_options(args)
    csv.field_size_limit(10_000_000)
    delimiter = given.delimiter.replace("\\t", "\t")
    if len(delimiter) > 1:
        print("a delimiter is one character", file=sys.stderr)
        return 2
    try:
        table = Table(given.file, delimiter, given.header)
        if given.chart:
            drawn = draw_chart(given.chart, compute_bars(table, given.chart, given.top))
            with open(given.output, "w", encoding="utf-8") as file:
                file.write(drawn)
            print(f"wrote {given.output}")
            return 0
        found = analyze_table(table, given.top)
    except (OSError, csv.Error, Unreadable) as error:
        print(f"{given.file} cannot be analyzed: {error}", file=sys.stderr)
        return 1
    print(json.dumps(found, ensure_ascii=False, indent=1) if given.json else format_report(given.file, found))
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    sys.exit(main())
