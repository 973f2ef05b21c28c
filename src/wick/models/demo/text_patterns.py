"""What the user said, made easy to look at: quotations and file names are set aside, courtesies are taken off.

`Words("Could you read 'my notes.txt', please?")` has the text `read ◆`, where ◆ stands for the quotation. So a
pattern never stumbles over what stands inside quotes or names, and every pattern has a short text to look at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

CHARS = 2_000  # how much is looked at, quotations and what follows a colon not counted

ASIDE = "[\ue000-\uf8ff]"  # a character that stands for what was set aside
_FIRST, _MOST = 0xE000, 6_400
_NAME_CHARS = 300

_QUOTED = re.compile(  # or a character of the user's that would be taken for one of ours
    r"([\ue000-\uf8ff])|```[\w+-]*\n(.*?)\n?```|`([^`\n]+)`|\"([^\"\n]+)\"|“([^”\n]+)”|‘([^’\n]+)’|(?<!\w)'([^'\n]+)'(?!\w)",
    re.DOTALL,
)
_TOKEN = re.compile(r"[^\s,;()<>\ue000-\uf8ff]+")
_PATH = re.compile(
    r"(?:[~.\w*?@+\[\]{}-]*/)+[.\w*?@+\[\]{}-]*"  # src/main.py, ./notes, docs/
    r"|[\w*?@+-][\w.*?@+-]*\.[A-Za-z][A-Za-z0-9]{0,9}"  # notes.txt, *.py
    r"|\.[A-Za-z][\w.-]*|\.\."  # .env
    r"|README|LICENSE|CHANGELOG|Makefile|Dockerfile"
)
_NO_PATH = frozenset("and/or either/or yes/no true/false on/off input/output he/she i/o w/o n/a e.g i.e / ?".split())


@dataclass(frozen=True, slots=True)
class Aside:
    """What was set aside: as it stood there, and what it means."""

    whole: str
    text: str
    is_path: bool = False


@dataclass(frozen=True, slots=True)
class Words:
    """A request, or a part of one. `tail` is what follows its first colon."""

    text: str
    tail: str = ""
    is_long: bool = False  # too long to be understood
    asides: tuple[Aside, ...] = field(default=(), repr=False)

    def part(self, start: int, end: int, tail: str = "") -> Words:
        return replace(self, text=trimmed(self.text[start:end]), tail=tail)

    @property
    def joined(self) -> Words:
        """The same with what follows the colon as part of the text."""
        if not self.tail or len(self.tail) > CHARS:
            return self
        return replace(self, text=f"{self.text} {trimmed(self.tail)}", tail="")

    def open(self, text: str) -> str:
        """Words of the user's as they were; a quotation alone means what stands inside its quotes."""
        text = text.strip()
        if len(text) == 1 and (found := self.aside(text)):
            return found.text
        return re.sub(ASIDE, lambda match: self._whole(match[0]), text)

    def _whole(self, char: str) -> str:
        found = self.aside(char)
        return found.whole if found else ""

    def aside(self, char: str) -> Aside | None:
        number = ord(char) - _FIRST
        return self.asides[number] if 0 <= number < len(self.asides) else None

    def quotations(self, text: str) -> list[Aside]:
        return [found for char in re.findall(ASIDE, text) if (found := self.aside(char))]

    def paths(self, text: str) -> list[str]:
        """The names of files that stand in a text, in their order."""
        return [found.text for found in self.quotations(text) if found.is_path]


def listen(said: str) -> Words:
    """What the user said, with quotations and names set aside and the colon found."""
    asides: list[Aside] = []
    text = _QUOTED.sub(lambda match: _put(asides, match[0], _inside(match)), said)
    text = _TOKEN.sub(lambda match: _name(asides, match[0]), text)
    colon = re.search(r":(?=\s|$|[\ue000-\uf8ff])", text)
    head, tail = (text[: colon.start()], text[colon.end() :]) if colon else (text, "")
    head = re.sub(r"[^\S\n]+", " ", re.sub(r", (?:please|kindly)\b,?", ",", head, flags=re.IGNORECASE))
    return Words(trimmed(head[:CHARS]), tail.strip(), len(head) > CHARS, tuple(asides))


def _inside(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group is not None)


def _put(asides: list[Aside], whole: str, text: str) -> str:
    if len(asides) == _MOST:
        return whole
    asides.append(Aside(whole, text, len(text) <= _NAME_CHARS and _PATH.fullmatch(text) is not None))
    return chr(_FIRST + len(asides) - 1)


def _name(asides: list[Aside], token: str) -> str:
    name = token.rstrip(".!?:'’").removesuffix("'s").removesuffix("’s") or token
    if name.lower() == "readme":
        return _put(asides, name, "README.md") + token[len(name) :]
    if len(name) > _NAME_CHARS or "://" in name or name.lower() in _NO_PATH or not _PATH.fullmatch(name):
        return token
    return _put(asides, name, name) + token[len(name) :]


# -- courtesies -----------------------------------------------------------------------------------------------------

_WHO = r"(?:you|i|we|u)"
_BEFORE = re.compile(
    r"\A(?:(?:please|kindly|pls|hi|hello|hey|there|dear|demo|model|wick|ok|okay|well|so|now|just|then|also|and"
    r"|next|first(?! \d)|finally|quickly|again|maybe|perhaps|alright|great|sure|thanks|to"
    r"|good (?:morning|afternoon|evening|day)"
    rf"|(?:can|could|would|will|may|might|shall|should|must) {_WHO}(?: like you to| mind| have| get)?"
    r"|(?:would|is|will) it be possible to|is it possible to|are you able to|do you (?:have|see|know)"
    rf"|{_WHO}(?:['’]d| would| really| also| now)* (?:need|want|like|love|wish)(?: you)?(?: to (?:have|get|know))?"
    rf"|{_WHO} (?:should|must|can|could)|your (?:task|job) is|i['’]?m curious|i am curious"
    r"|let['’]?s|let us|go ahead and|go and|try and|try|help me|help us|let me (?:see|know|have)|let me"
    r"|(?:show|tell|give|get|fetch|bring) (?:me|us)|for me)\b[\s,.!]*)+",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"(?:[\s,.!?]+(?:please|pls|thanks|thank you|for me|for us|now|if you can|would you|will you|okay?|right now"
    r"|and (?:then )?(?:save|show|tell|report|give|print|display|let)(?: (?:it|me|us|that))?"
    r"(?: (?:the )?(?:file|results?|output|know|what (?:you (?:find|found)|comes out|it (?:says|prints))))?))+"
    r"[\s.!?]*$",
    re.IGNORECASE,
)


def trimmed(text: str) -> str:
    """A request without what only makes it polite."""
    text = _BEFORE.sub("", text.strip(_EDGES), count=1)
    text = re.sub(r"(?<=[\w)\ue000-\uf8ff])[\s.!?,;]+$", "", text)
    return _AFTER.sub("", text).strip(_EDGES)


_EDGES = " \t\r\n,;!?"
