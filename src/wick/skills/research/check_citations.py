#!/usr/bin/env python3
"""Check that the citations of a report and its list of sources fit together.

    python3 check_citations.py report.md

Citations are numbers in brackets, such as [1] or [2, 3]; sources are lines `[1] …` under the heading Sources. The exit
code is 0 if all is well, 1 if something is wrong. Python 3.8 and the standard library.
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


def parts(text: str) -> tuple[str, list[str]]:
    """What the report says, and the lines of its list of sources."""
    body: list[str] = []
    listed: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("#"):
            inside = bool(HEADING.fullmatch(line.strip()))
        (listed if inside else body).append(line)
    return "\n".join(body), listed


def sources(lines: Sequence[str]) -> tuple[dict[int, str], list[str]]:
    found: dict[int, str] = {}
    wrong = []
    for line in lines:
        match = SOURCE.fullmatch(line.strip())
        if match and int(match[1]) in found:
            wrong.append(f"there are two sources [{match[1]}]")
        elif match:
            found[int(match[1])] = match[2].strip()
    return found, wrong


def cited(text: str) -> list[int]:
    """The numbers that a text cites; a range stands for all in it."""
    numbers: list[int] = []
    for match in CITATION.finditer(text):
        for piece in match[1].split(","):
            ends = [int(end) for end in re.split(r"[–-]", piece)]
            numbers += range(ends[0], min(ends[-1], ends[0] + 100) + 1)
    return numbers


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def wrong_with_source(number: int, said: str, folders: Sequence[str]) -> list[str]:
    if not said:
        return [f"source [{number}] says nothing"]
    if ADDRESS.search(said):
        return []
    named = FILE.findall(said)
    if not named:
        return [f"source [{number}] has no address and no file: {said[:80]}"]
    if not any(os.path.exists(os.path.join(folder, name)) for folder in folders for name in named):
        return [f"source [{number}] names a file that is not there: {', '.join(named)}"]
    return []


def paragraphs_without(body: str) -> list[str]:
    """Paragraphs with figures and no citation; headings have none."""
    found = []
    for paragraph in re.split(r"\n\s*\n", body):
        words = " ".join(line for line in paragraph.splitlines() if not line.startswith("#")).strip()
        if FIGURE.search(words) and not cited(words):
            found.append(f"a paragraph has figures and no citation: {words[:80]}")
    return found


def checked(path: str) -> tuple[list[str], dict[int, str], list[int]]:
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        body, listed = parts(without_code(file.read()))
    known, wrong = sources(listed)
    numbers = cited(body)
    if not known:
        wrong.append("there is no list of sources: a heading `## Sources`, and lines such as `[1] …`")
    wrong += [f"[{number}] is cited and is no source" for number in sorted(set(numbers) - set(known)) if known]
    wrong += [f"source [{number}] is never cited" for number in sorted(set(known) - set(numbers))]
    folders = ["", os.path.dirname(path)]
    for number, said in sorted(known.items()):
        wrong += wrong_with_source(number, said, folders)
    return wrong + paragraphs_without(body), known, numbers


def main(args: Sequence[str]) -> int:
    if len(args) != 1:
        print("say which report: python3 check_citations.py report.md", file=sys.stderr)
        return 2
    try:
        wrong, known, numbers = checked(args[0])
    except OSError as error:
        print(f"{args[0]} cannot be read: {error}", file=sys.stderr)
        return 2
    for sentence in wrong:
        print(f"- {sentence}")
    print(f"{len(known)} sources, {len(numbers)} citations, {len(wrong)} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    sys.exit(main(sys.argv[1:]))
