"""From what the user said to jobs: the text is cut into clauses, and each is looked up in the table of intents."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wick.models.demo.intents import INTENTS, OPENING, SMALL_TALK, Intent
from wick.models.demo.jobs import Job
from wick.models.demo.words import Words, listen

MOST_JOBS = 8
_MOST_LINKS = 40  # places where a text might be cut that are tried

_LINK = re.compile(
    r"(?:\s*[.!?\n]+\s*|\s*,\s*|\s+)(?:(?:and|then|also|next|finally|afterwards|after that)\b[\s,]+)+"
    r"|\s*(?:[.!?]+\s+|\n\s*)",
    re.IGNORECASE,
)


def understand(said: str, before: str = "") -> list[Job]:
    """The jobs that a text asks for, in its order; none, if it asks for nothing that is known.

    `before` is the file that was spoken of last, should the text only say "it".
    """
    jobs: list[Job] = []
    words = listen(said)
    for clause in _clauses(words):
        if found := _find(clause, before):
            jobs.append(found[1])
            before = found[1].path or before
    if not jobs and words.tail:  # "do this for me: …"
        return understand(words.open(words.tail), before)
    return jobs


def is_small_talk(said: str) -> bool:
    return SMALL_TALK.match(listen(said).text) is not None


def _find(clause: Words, before: str = "it") -> tuple[Intent, Job] | None:
    found = ((intent, intent.understand(clause, before)) for intent in INTENTS)
    return next(((intent, job) for intent, job in found if job), None)


def _clauses(words: Words) -> Iterator[Words]:
    """The parts of a text that each ask for something: it is cut only before what is understood by itself."""
    start, count = 0, 1
    for link in list(_LINK.finditer(words.text))[:_MOST_LINKS]:
        rest = words.part(link.end(), len(words.text), words.tail)
        if not OPENING.match(rest.text) or not _find(rest):
            continue
        left = words.part(start, link.start())
        found = _find(left)
        if count == MOST_JOBS or (found and found[0].takes_rest):
            break
        if found is None or found[1].acts:  # else it needs what follows
            yield left
            start, count = link.end(), count + 1
    yield words.part(start, len(words.text), words.tail)
