"""From what the user said to jobs: the text is cut into clauses, and each is looked up in the table of intents."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wick.models.demo.actions import Job
from wick.models.demo.intents import INTENTS, OPENING, SMALL_TALK, Intent
from wick.models.demo.text_patterns import Words, listen

MOST_JOBS = 8
_MOST_CHARS = 100_000
_MOST_COLONS = 3
_MOST_LINKS = 40  # places where a text might be cut that are tried

_LINK = re.compile(
    r"(?:\s*[.!?\n]+\s*|\s*,\s*|\s+)(?:(?:and|then|also|next|finally|afterwards|after that)\b[\s,]+)+"
    r"|\s*(?:[.!?,]+\s+|\n\s*)",
    re.IGNORECASE,
)


def understand(said: str, before: str = "") -> list[Job]:
    """The jobs that a text asks for, in its order; none, if it asks for nothing that is known.

    `before` is the file that was spoken of last, should the text only say "it".
    """
    if len(said) > _MOST_CHARS:
        return [Job(summary="That is too long for me: I read a hundred thousand characters at most.")]
    for _ in range(_MOST_COLONS):
        words = listen(said)
        if words.is_long:
            return [Job(summary="That is too long for me: put long texts into quotes or after a colon.")]
        if jobs := _jobs(words, before):
            return jobs
        said = words.open(words.tail)  # "do this for me: …"
    return []


def _jobs(words: Words, before: str) -> list[Job]:
    jobs: list[Job] = []
    for clause in _clauses(words):
        if len(jobs) == MOST_JOBS:
            return [*jobs, Job(summary=f"I do {MOST_JOBS} things at a time at most: ask me again for the rest.")]
        if found := _find(clause, before):
            jobs.append(found[1])
            before = found[1].path or before
    return jobs


def is_small_talk(said: str) -> bool:
    return len(said) <= _MOST_CHARS and SMALL_TALK.match(listen(said).text) is not None


def _find(clause: Words, before: str = "it") -> tuple[Intent, Job] | None:
    found = ((intent, intent.understand(clause, before)) for intent in INTENTS)
    return next(((intent, job) for intent, job in found if job), None)


def _clauses(words: Words) -> Iterator[Words]:
    """The parts of a text that each ask for something: it is cut only before what is understood by itself."""
    links = list(_LINK.finditer(words.text))[:_MOST_LINKS]
    ends = [link.start() for link in links[1:]] + [len(words.text)]
    start, rest = 0, words.part(0, len(words.text), words.tail)
    for link, end in zip(links, ends, strict=False):
        found = _find(rest)
        if found and found[0].takes_rest:
            break
        left, right = words.part(start, link.start()), words.part(link.end(), len(words.text), words.tail)
        begins = OPENING.match(right.text) and (_find(right) or _find(words.part(link.end(), end)))
        if begins and _stands_alone(left):
            yield left
            start, rest = link.end(), right
    yield rest


def _stands_alone(left: Words) -> bool:
    """Whether a text can be cut after this: not after "in notes.txt, …" or "edit notes.txt and …"."""
    found = _find(left)
    return found is None or (bool(found[1].acts) and OPENING.match(left.text) is not None)
