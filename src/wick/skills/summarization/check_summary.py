#!/usr/bin/env python3
"""Compare a summary with its source: its length, and figures and names that the source does not have.

    python3 check_summary.py source.md summary.md [--words 200] [--json]

The exit code is 0 without problems, 1 with problems, 2 if a file cannot be read. Python 3.8 and the standard library.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import Any, Sequence

WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
FIGURE = re.compile(r"\d+(?:[.,:]\d+)*")
MARKER = re.compile(r"^\s*\d{1,3}[.)]\s", re.MULTILINE)  # the number of a list item
SENTENCE = re.compile(r"(?<=[.!?])\s+")
COPIED = 12  # consecutive words that are the same in the source


def split_words(text: str) -> list[str]:
    return WORD.findall(text)


def find_figures(text: str) -> dict[str, str]:
    """Return the figures of a text as written, by their value: 1,200 and 1200 are the same."""
    found = FIGURE.findall(MARKER.sub("", text))
    return {re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", figure): figure for figure in found}


def find_names(text: str) -> set[str]:
    """Return the capitalized words that do not begin a sentence, a line or a quotation."""
    found = set()
    for line in text.splitlines():
        line = re.sub(r"^[\s#>*\-\d.)]+", "", line)
        for sentence in SENTENCE.split(line):
            for before, word in zip(split_words(sentence), split_words(sentence)[1:]):
                if word[0].isupper() and len(word) > 1 and before:
                    found.add(word)
    return found


def normalize_word(word: str) -> str:
    return re.sub(r"['’]s$", "", word.lower())


def find_copied(source: str, summary: str) -> list[str]:
    """Return long runs of words that were copied from the source."""
    theirs, ours = ([normalize_word(word) for word in split_words(text)] for text in (source, summary))
    known = {tuple(theirs[at : at + COPIED]) for at in range(len(theirs) - COPIED + 1)}
    found, at = [], 0
    while at + COPIED <= len(ours):
        if tuple(ours[at : at + COPIED]) in known:
            found.append(" ".join(ours[at : at + COPIED]))
            at += COPIED
        else:
            at += 1
    return found


def compare_texts(source: str, summary: str, most: int) -> dict[str, Any]:
    known_words = {normalize_word(word) for word in split_words(source)}
    known = find_figures(source)
    count, whole = len(split_words(summary)), len(split_words(source))
    return {
        "words": count,
        "source_words": whole,
        "ratio": round(count / whole, 3) if whole else None,
        "too_long": bool(most and count > most),
        "no_shorter": count >= whole,
        "unknown_figures": [written for key, written in find_figures(summary).items() if key not in known],
        "unknown_names": sorted(name for name in find_names(summary) if normalize_word(name) not in known_words),
        "copied": find_copied(source, summary),
    }


def list_problems(found: dict[str, Any], most: int) -> list[str]:
    wrong = []
    if not found["words"]:
        wrong.append("the summary is empty")
    if found["too_long"]:
        wrong.append(f"the summary has {found['words']} words; the limit is {most}")
    if found["no_shorter"]:
        wrong.append("the summary is not shorter than its source")
    if found["unknown_figures"]:
        wrong.append(f"figures that the source does not have: {', '.join(found['unknown_figures'])}")
    if found["unknown_names"]:
        wrong.append(f"names that the source does not have: {', '.join(found['unknown_names'])}")
    wrong += [f"copied word for word: “{run} …”" for run in found["copied"]]
    return wrong


def read_text(path: str) -> str:
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        return file.read()


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compare a summary with its source.")
    parser.add_argument("source")
    parser.add_argument("summary")
    parser.add_argument("--words", type=int, default=0, help="maximum number of words")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(args)
    try:
        found = compare_texts(read_text(given.source), read_text(given.summary), given.words)
    except OSError as error:
        print(f"cannot read a file: {error}", file=sys.stderr)
        return 2
    wrong = list_problems(found, given.words)
    if given.json:
        print(json.dumps({**found, "problems": wrong}, ensure_ascii=False, indent=1))
        return 1 if wrong else 0
    for sentence in wrong:
        print(f"- {sentence}")
    print(f"{found['words']} words for {found['source_words']}, {len(wrong)} problem{'' if len(wrong) == 1 else 's'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    sys.exit(main())
