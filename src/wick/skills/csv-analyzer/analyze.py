#!/usr/bin/env python3
"""What is in a CSV file: its shape, its columns with real statistics, and what is wrong with it.

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
MOSTLY = 0.8  # a column of which this part are numbers is one of numbers, with odd values in it
SAMPLE = 50  # rows that are looked at to find the delimiter
NAMED = 5  # of the things that are wrong, how many are named
CORRELATED = 12  # columns at most


class Unreadable(Exception):
    """The file cannot be analyzed; the message says why."""


# -- reading --------------------------------------------------------------------------------------------------------


def encoding_of(path: str) -> str:
    """The encoding that a file is in, as far as its bytes say."""
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


def clean(lines: TextIO) -> Iterator[str]:
    """Lines without NULs, which older Pythons refuse."""
    return (line.replace("\0", "") for line in lines)


def delimiter_of(path: str, encoding: str) -> str:
    """The delimiter that cuts most of the first rows into the same number of fields, and the most."""
    best, most = ",", (0.0, 1)
    for delimiter in DELIMITERS:
        with open(path, encoding=encoding, errors="replace", newline="") as file:
            rows = [row for row in islice(csv.reader(clean(file), delimiter=delimiter), SAMPLE) if row]
        if not rows:
            continue
        width, same = Counter(map(len, rows)).most_common(1)[0]
        if width > 1 and (same / len(rows), width) > most:
            best, most = delimiter, (same / len(rows), width)
    return best


def number(text: str, european: bool) -> float | None:
    """A number as people write them: with a currency, a percent sign, or groups of thousands."""
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


def looks_like_header(first: Sequence[str], rows: Sequence[Sequence[str]], european: bool) -> bool:
    """The first row names columns if it has texts, each another one, and no numbers."""
    named = [cell.strip() for cell in first]
    if not all(named) or len(set(named)) < len(named):
        return bool(rows) and not any(number(cell, european) is not None for cell in named) and any(named)
    return not any(number(cell, european) is not None or is_date(cell) for cell in named)


class Table:
    """The rows of a file, all of the same length, and what had to be done to them."""

    def __init__(self, path: str, delimiter: str = "", header: bool | None = None) -> None:
        self.encoding = encoding_of(path)
        self.delimiter = delimiter or delimiter_of(path, self.encoding)
        self.blank = 0
        self.short: list[int] = []  # the lines of rows that had too few fields
        self.long: list[int] = []
        self.european = self.delimiter == ";"
        rows: list[tuple[int, list[str]]] = []
        with open(path, encoding=self.encoding, errors="replace", newline="") as file:
            reader = csv.reader(clean(file), delimiter=self.delimiter)
            for row in reader:
                if any(cell.strip() for cell in row):
                    rows.append((reader.line_num, row))
                else:
                    self.blank += 1
        if not rows:
            raise Unreadable(f"{path} is empty: there is nothing to analyze")
        first = rows[0][1]
        has = looks_like_header(first, [row for _, row in rows[1:SAMPLE]], self.european) if header is None else header
        self.header = has
        width = len(first) if has else Counter(len(row) for _, row in rows).most_common(1)[0][0]
        self.names = unique(first) if has else [f"column {place}" for place in range(1, width + 1)]
        self.rows = [self._fitted(line, row, width) for line, row in (rows[1:] if has else rows)]

    def _fitted(self, line: int, row: list[str], width: int) -> list[str]:
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


def unique(names: Sequence[str]) -> list[str]:
    """The names of the columns; one without a name, or with that of another, gets one of its own."""
    found: list[str] = []
    for place, name in enumerate(names, 1):
        own = " ".join(name.split()) or f"column {place}"
        found.append(own if own not in found else f"{own} ({place})")
    return found


# -- columns --------------------------------------------------------------------------------------------------------


def described(name: str, values: Sequence[str], european: bool, top: int) -> dict[str, Any]:
    """What a column holds."""
    there = [value for value in values if value.lower() not in MISSING]
    about: dict[str, Any] = {"name": name, "type": "empty", "count": len(there), "missing": len(values) - len(there)}
    if not there:
        return about
    about["distinct"] = len(set(there))
    parsed = [number(value, european) for value in there]
    numbers = [value for value in parsed if value is not None]
    if len(numbers) >= MOSTLY * len(there):
        odd = [value for value, read in zip(there, parsed) if read is None]
        return {**about, **of_numbers(numbers), **({"odd": len(odd), "odd_values": odd[:NAMED]} if odd else {})}
    if all(value.lower() in TRUE_FALSE for value in there):
        return {**about, "type": "boolean", "top": Counter(value.lower() for value in there).most_common(top)}
    if all(map(is_date, there)):
        return {**about, "type": "date", "first": min(there, key=moment), "last": max(there, key=moment)}
    lengths = [len(value) for value in there]
    about.update(type="text", shortest=min(lengths), longest=max(lengths), top=Counter(there).most_common(top))
    return about


def moment(text: str) -> datetime:
    for form in DATES:
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    return datetime.max


def of_numbers(numbers: Sequence[float]) -> dict[str, Any]:
    whole = all(value.is_integer() for value in numbers)
    low, high = quartiles(numbers)
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


def quartiles(numbers: Sequence[float]) -> tuple[float, float]:
    if len(numbers) < 2:
        return numbers[0], numbers[0]
    low, _, high = quantiles(numbers, n=4, method="inclusive")
    return low, high


def correlations(table: Table, columns: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """How strongly the columns of numbers go together, pair by pair, the strongest first."""
    places = [place for place, about in enumerate(columns) if about["type"] in ("integer", "number")][:CORRELATED]
    values = {place: [number(text, table.european) for text in table.column(place)] for place in places}
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


# -- telling --------------------------------------------------------------------------------------------------------


def analyzed(table: Table, top: int) -> dict[str, Any]:
    columns = [described(name, table.column(at), table.european, top) for at, name in enumerate(table.names)]
    return {
        "rows": len(table.rows),
        "columns": columns,
        "delimiter": table.delimiter,
        "encoding": table.encoding,
        "header": table.header,
        "correlations": correlations(table, columns),
        "problems": problems(table, columns),
    }


def problems(table: Table, columns: Sequence[dict[str, Any]]) -> list[str]:
    found = []
    if table.short:
        found.append(f"rows with too few fields: {lines(table.short)}; what lacks counts as missing")
    if table.long:
        found.append(f"rows with too many fields: {lines(table.long)}; what is over was left out")
    if table.blank:
        found.append(f"blank rows: {table.blank}; they were skipped")
    if table.duplicates:
        found.append(f"rows that are exact copies of others: {table.duplicates}; they were counted")
    for about in columns:
        if about.get("odd"):
            shown = ", ".join(map(repr, about["odd_values"]))
            found.append(f"values of {about['name']} that are no numbers: {about['odd']} ({shown}); they were left out")
    return found


def lines(numbers: Sequence[int]) -> str:
    more = ", …" if len(numbers) > NAMED else ""
    return f"{len(numbers)} (line {', '.join(map(str, numbers[:NAMED]))}{more})"


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"
    return str(value)


def report(path: str, found: dict[str, Any]) -> str:
    delimiter = {"\t": "tab"}.get(found["delimiter"], found["delimiter"])
    out = [f"# {path}", "", f"{found['rows']} rows, {len(found['columns'])} columns; delimiter `{delimiter}`, "]
    out[-1] += f"encoding {found['encoding']}, {'with' if found['header'] else 'without'} a header"
    out += ["", "## Problems", "", *(f"- {problem}" for problem in found["problems"] or ["none found"])]
    out += ["", "## Columns", ""]
    for about in found["columns"]:
        out.append(f"- **{about['name']}** ({about['type']}): {details(about)}")
    if found["correlations"]:
        out += ["", "## Correlations (Pearson)", ""]
        out += [
            f"- {' / '.join(row['columns'])}: {row['r']:.3f} over {row['rows']} rows" for row in found["correlations"]
        ]
    return "\n".join(out)


def details(about: dict[str, Any]) -> str:
    left = {"name", "type", "top", "odd", "odd_values"}
    parts = [f"{key} {shown(value)}" for key, value in about.items() if key not in left]
    if about.get("top"):
        parts.append("most frequent " + ", ".join(f"{value!r} ×{count}" for value, count in about["top"]))
    return ", ".join(parts)


# -- charts ---------------------------------------------------------------------------------------------------------


def bars(table: Table, name: str, top: int) -> list[tuple[str, int]]:
    """The bars of a column's chart: ranges of numbers, or the most frequent texts."""
    if name not in table.names:
        raise Unreadable(f"there is no column {name!r}; the columns are {', '.join(table.names)}")
    values = [value for value in table.column(table.names.index(name)) if value.lower() not in MISSING]
    numbers = [read for read in (number(value, table.european) for value in values) if read is not None]
    if not values:
        raise Unreadable(f"the column {name!r} is empty")
    if len(numbers) < MOSTLY * len(values):
        return Counter(values).most_common(max(top, 10))
    low, high = min(numbers), max(numbers)
    count = 1 if low == high else min(20, max(5, math.ceil(math.log2(len(numbers)) + 1)))
    width = (high - low) / count or 1.0
    heights = Counter(min(int((value - low) / width), count - 1) for value in numbers)
    return [(f"{low + at * width:.4g} – {low + (at + 1) * width:.4g}", heights[at]) for at in range(count)]


def chart(name: str, rows: Sequence[tuple[str, int]]) -> str:
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


def options(args: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What is in a CSV file.")
    parser.add_argument("file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--delimiter", default="", help="one character; \\t is a tab")
    parser.add_argument("--header", dest="header", action="store_true", default=None, help="the first row has names")
    parser.add_argument("--no-header", dest="header", action="store_false", help="the first row is data")
    parser.add_argument("--top", type=int, default=5, help="how many frequent values are shown")
    parser.add_argument("--chart", default="", metavar="COLUMN", help="draw this column instead")
    parser.add_argument("--output", default="chart.svg", help="the file of the chart")
    return parser.parse_args(args)


def main(args: Sequence[str] | None = None) -> int:
    given = options(args)
    csv.field_size_limit(10_000_000)
    delimiter = given.delimiter.replace("\\t", "\t")
    if len(delimiter) > 1:
        print("a delimiter is one character", file=sys.stderr)
        return 2
    try:
        table = Table(given.file, delimiter, given.header)
        if given.chart:
            drawn = chart(given.chart, bars(table, given.chart, given.top))
            with open(given.output, "w", encoding="utf-8") as file:
                file.write(drawn)
            print(f"wrote {given.output}")
            return 0
        found = analyzed(table, given.top)
    except (OSError, csv.Error, Unreadable) as error:
        print(f"{given.file} cannot be analyzed: {error}", file=sys.stderr)
        return 1
    print(json.dumps(found, ensure_ascii=False, indent=1) if given.json else report(given.file, found))
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    sys.exit(main())
