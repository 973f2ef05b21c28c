#!/usr/bin/env python3
"""Check that the citations of a report match its list of sources.

    python3 check_citations.py report.md

Citations are numbers in brackets, such as [1] or [2, 3]; sources are lines `[1] …` under the heading Sources. The exit
code is 0 without problems, 1 with problems, 2 if the report cannot be read. Python 3.8 and the standard library.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Sequence

HEADING = re.compile(r"#{1,6}\s+(sources|references|quellen)\s*", re.IGNORECASE)
SOURCE = re.compile(r"(?:[-*]\s+)?\[(\d{1,4})\]:?\s*(.*)")
CITATION = re.compile(r"\[(\d{1,4}(?:\s*[,–-]\s*\d{1,4})*)\](?!\()")
FIGURE = re.compile(r"\d")
ADDRESS = re.compile(r"https?://[^\s)>\]]+")
ENDINGS = "md|txt|rst|csv|tsv|json|jsonl|yaml|yml|toml|log|pdf|html|xml|py|js|ts|go|rs|java|c|h|sql"
FILE = re.compile(rf"(?<![\w/:.])(?:[\w.\-]+(?:/[\w.\-]+)+|[\w\-]+\.(?:{ENDINGS})\b)")


def split_report(text: str) -> tuple[str, list[str]]:
    """Return the body of the report, and the lines of its list of sources."""
    body: list[str] = []
    listed: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("#"):
            inside = bool(HEADING.fullmatch(line.strip()))
        (listed if inside else body).append(line)
    return "\n".join(body), listed


def parse_sources(lines: Sequence[str]) -> tuple[dict[int, str], list[str]]:
    found: dict[int, str] = {}
    wrong = []
    for line in lines:
        match = SOURCE.fullmatch(line.strip())
        if match and int(match[1]) in found:
            wrong.append(f"there are two sources [{match[1]}]")
        elif match:
            found[int(match[1])] = match[2].strip()
    return found, wrong


def find_citations(text: str) -> list[int]:
    """Return the numbers that a text cites; a range is expanded."""
    numbers: list[int] = []
    for match in CITATION.finditer(text):
        for piece in match[1].split(","):
            ends = [int(end) for end in re.split(r"[–-]", piece)]
            numbers += range(ends[0], min(ends[-1], ends[0] + 100) + 1)
    return numbers


def strip_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def check_source(number: int, entry: str, folders: Sequence[str]) -> list[str]:
    if not entry:
        return [f"source [{number}] is empty"]
    if ADDRESS.search(entry):
        return []
    named = FILE.findall(entry)
    if not named:
        return [f"source [{number}] has no address and no file: {entry[:80]}"]
    if not any(os.path.exists(os.path.join(folder, name)) for folder in folders for name in named):
        return [f"source [{number}] names a missing file: {', '.join(named)}"]
    return []


def find_uncited_paragraphs(body: str) -> list[str]:
    """Return problems for paragraphs with figures and without a citation, except headings."""
    found = []
    for paragraph in re.split(r"\n\s*\n", body):
        words = " ".join(line for line in paragraph.splitlines() if not line.startswith("#")).strip()
        if FIGURE.search(words) and not find_citations(words):
            found.append(f"a paragraph has figures and no citation: {words[:80]}")
    return found


def check_report(path: str) -> tuple[list[str], dict[int, str], list[int]]:
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        body, listed = split_report(strip_code(file.read()))
    known, wrong = parse_sources(listed)
    numbers = find_citations(body)
    if not known:
        wrong.append("there is no list of sources: a heading `## Sources`, and lines such as `[1] …`")
    wrong += [
        f"[{number}] is cited, but is not in the list of sources"
        for number in sorted(set(numbers) - set(known))
        if known
    ]
    wrong += [f"source [{number}] is never cited" for number in sorted(set(known) - set(numbers))]
    folders = ["", os.path.dirname(path)]
    for number, entry in sorted(known.items()):
        wrong += check_source(number, entry, folders)
    return wrong + find_uncited_paragraphs(body), known, numbers


def main(args: Sequence[str]) -> int:
    if len(args) != 1:
        print("usage: python3 check_citations.py report.md", file=sys.stderr)
        return 2
    try:
        wrong, known, numbers = check_report(args[0])
    except OSError as error:
        print(f"{args[0]} cannot be read: {error}", file=sys.stderr)
        return 2
    for sentence in wrong:
        print(f"- {sentence}")
    counts = {"source": len(known), "citation": len(numbers), "problem": len(wrong)}
    print(", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items()))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    sys.exit(main(sys.argv[1:]))
