"""What a request comes to: one function for each thing that can be asked for, from a clause to the use of tools."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wick.models.demo import documents
from wick.models.demo.instance import LABEL
from wick.models.demo.text_patterns import ASIDE, Words

MOST_FILES = 8  # that one sentence can have read

KINDS = {
    "python": "py",
    "markdown": "md",
    "text": "txt",
    "csv": "csv",
    "json": "json",
    "yaml": "yaml",
    "toml": "toml",
    "javascript": "js",
    "typescript": "ts",
    "html": "html",
    "css": "css",
    "log": "log",
}
_LOOKING = ("ls", "glob", "grep", "read_file")
_I = re.IGNORECASE


@dataclass(frozen=True, slots=True)
class Act:
    """One use of a tool, with wick's names for it and its arguments."""

    tool: str
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """What one request comes to: acts, one after the other, and what to say when all went well."""

    acts: tuple[Act, ...] = ()
    summary: str = ""

    @property
    def only_looks(self) -> bool:
        return all(act.tool in _LOOKING for act in self.acts)

    @property
    def path(self) -> str:
        """The file that it is about."""
        return next((act.args["path"] for act in reversed(self.acts) if "path" in act.args), "")


@dataclass(frozen=True, slots=True)
class Clause:
    """One request: its words, how they matched, and the file that was spoken of before."""

    words: Words
    found: re.Match[str]
    before: str = ""

    def raw(self, name: str) -> str:
        return (self.found.groupdict().get(name) or "").strip()

    def get(self, name: str) -> str:
        """A part of the match as the user wrote it."""
        return self.words.open(self.raw(name))

    @property
    def tail(self) -> str:
        return self.words.open(self.words.tail)

    def says(self, pattern: str) -> re.Match[str] | None:
        return re.search(pattern, self.words.text, _I)


def _one(tool: str, **args: Any) -> Job:
    return Job((Act(tool, args),))


# -- files ----------------------------------------------------------------------------------------------------------

_NO_NAME = frozenset(
    "the this that these my your our a an it here there current working project root all any file files folder folders"
    " directory directories contents workspace everything everywhere disk code".split()
)
_PLACE = (
    r"(?:in|inside|of|under|within|from|folder|directory|called|named) (?:(?:the|this|that|my|your|our) )?"
    rf"({ASIDE}|[\w-]+)(?: folder| directory)?\Z"
)
_LITERALLY = re.compile(
    r"(?:(?:the|any|all|every|each|a|an) )*"
    r"(?:(?:words?|texts?|phrases?|sentences?|strings?|terms?|typos?|patterns?|functions?|mentions|occurrences|references"
    r"|uses|places|lines?|files?|documents?)(?: (?:of|to|with|where|that|which|containing|contains?|saying|says?"
    r"|mentioning|mentions?|matching))* )(?=\S)",
    _I,
)


def _literally(clause: Clause, raw: str) -> str:
    """A text that is meant as it is, without "the word" before it."""
    return clause.words.open(_LITERALLY.sub("", raw, count=1))


def _named(name: str) -> str:
    return "" if name.lower() in _NO_NAME else name


def list_files(clause: Clause) -> Job | None:
    rest = clause.raw("rest")
    place = re.search(_PLACE, rest, _I) or re.match(rf"({ASIDE}|[\w-]+) (?:folder|directory)\b", rest, _I)
    name = _named(clause.words.open(place[1]) if place else clause.get("path"))
    return None if "*" in name else _one("ls", path=name or ".")


def read_files(clause: Clause) -> Job | None:
    words = clause.words
    paths = words.paths(words.text) or [quote.text for quote in words.quotations(clause.raw("path"))]
    if clause.says(r"\b(?:files|folder|directory)\b") and not any("." in path for path in paths):
        return None
    paths = paths or [name for name in (_named(clause.raw("bare")), clause.before if clause.raw("it") else "") if name]
    if not paths or any("*" in path for path in paths):
        return None
    lines = clause.says(r"\bfirst (\d{1,5}) lines\b")
    limit = {"limit": int(lines[1])} if lines else {}
    return Job(tuple(_look(path, limit) for path in dict.fromkeys(paths[:MOST_FILES])))


def _look(path: str, limit: dict[str, int]) -> Act:
    return Act("ls", {"path": path}) if path.endswith(("/", "..")) else Act("read_file", {"path": path, **limit})


_POINTS_ON = re.compile(r"|this|that|it|them|(?:the )?following(?: \w+)?|(?:the )?(?:contents?|text)", _I)


def write_file(clause: Clause) -> Job | None:
    content, path = clause.raw("content"), clause.get("path") or clause.raw("bare") or "note.txt"
    if _POINTS_ON.fullmatch(content) and (content or clause.words.tail):
        return _one("write_file", path=path, content=_ended(clause.tail)) if clause.words.tail else None
    content = re.sub(r" (?:in|into|to|inside) (?:it|there)\Z", "", content, flags=_I)
    if content:
        return _one("write_file", path=path, content=_ended(_literally(clause, content)))
    if not clause.says(r"\bfile\b|^(?:creat|mak|touch)"):
        return None
    is_empty = clause.says(r"\b(?:empty|blank)\b|^touch")
    return _one("write_file", path=path, content="" if is_empty else f"Written by the {LABEL}.\n")


def _ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def edit_file(clause: Clause) -> Job | None:
    path, old = clause.get("path") or clause.before, _literally(clause, clause.raw("old"))
    return _one("edit_file", path=path, old_text=old, new_text=clause.get("new")) if path and old else None


def ask_for_edit(clause: Clause) -> Job:
    return Job(summary="Tell me which text to replace, as in: replace 'draft' with 'final' in notes.txt.")


def search_files(clause: Clause) -> Job | None:
    text, where = _literally(clause, clause.raw("text")), clause.raw("where")
    if text.lower() in ("", "it", "that", "this", "something", "anything", "files", "the files"):
        return None
    names = [quote.text for quote in clause.words.quotations(where)]
    bare = re.search(r"\b(?!documents|notes)([\w-]+)(?: folder| directory)?\Z", where, _I)
    names = names or [name for name in (_named(bare[1]) if bare else "",) if name]
    pattern = re.sub(r"([\\.^$*+?{}\[\]|()])", r"\\\1", text)
    return _one("grep", pattern=pattern, path=names[0]) if names else _one("grep", pattern=pattern)


def find_files(clause: Clause) -> Job | None:
    if kind := clause.raw("kind").lower():
        return _one("glob", pattern=f"**/*.{KINDS[kind]}")
    name, is_path = clause.get("name"), bool(clause.words.paths(clause.raw("name")))
    if is_path and clause.raw("files"):
        name = f"*{name}" if name.startswith(".") else name
    elif not (is_path and clause.raw("find")) and not clause.raw("called"):
        return None
    return _one("glob", pattern=name if "/" in name else f"**/{name}")


# -- commands, approvals, questions ---------------------------------------------------------------------------------


def run(clause: Clause) -> Job:
    command = clause.get("command") or clause.tail
    if not command or re.match(r"(?:the|a|an|my|your|some|all|it|this|that|these|something|away|for)\b", command, _I):
        return Job(summary="Tell me the exact command, as in: run `ls -la`.")
    return _one("execute", command=command)


def run_quoted(clause: Clause) -> Job | None:
    """Run what stands in backticks, unless that is the name of something."""
    quoted = clause.words.aside(clause.raw("command"))
    is_name = quoted is None or quoted.is_path or clause.says(r"\b(?:file|folder|directory)\b")
    return None if is_name or not quoted or not quoted.whole.startswith("`") else _one("execute", command=quoted.text)


def ask_for_approval(clause: Clause) -> Job:
    quoted = [quote.text for quote in clause.words.quotations(clause.words.text) if quote.whole.startswith("`")]
    return _one("execute", command=quoted[0] if quoted else clause.tail or "echo approved")


def ask_user(clause: Clause) -> Job:
    said = re.sub(r"\A(?:(?:a )?questions?|something|about)\b[\s,]*", "", clause.get("question"), flags=_I)
    said = said or clause.tail
    if between := re.search(r"\bbetween (.+)", said, _I):
        options = [option.strip() for option in re.split(r",| and | or ", between[1]) if option.strip()]
        return _one("ask_user", question="Which one do you choose?", kind="select", options=options)
    return _one("ask_user", question=documents.title(said).rstrip("?.") + "?" if said else "What should I do next?")


# -- papers ---------------------------------------------------------------------------------------------------------

_GOES_TO = (
    r"[\s,]*(?:and (?:save|put|store|write) (?:it|them) )?"
    rf"\b(?:to|in|into|as|at|called|named) (?:the |a )?(?:file )?({ASIDE})"
)
_ABOUT = r"(?:about|on|for|of|regarding|covering|titled|describing|explaining|comparing|showing|with|to)"


def _subject(clause: Clause, otherwise: str = "") -> tuple[str, str]:
    """What a paper is about, and the file it goes to, if that was said."""
    rest = clause.raw("rest")
    place = re.search(_GOES_TO, rest, _I)
    rest = rest[: place.start()] + rest[place.end() :] if place else rest
    about = re.search(rf"(?:^|\s){_ABOUT}\s+(.+)", rest, _I | re.DOTALL)
    topic = clause.words.open(about[1].strip(" .,")) if about else clause.tail
    topic = re.sub(r" (?:with|in|on) (?:\d+|\w+) (?:slides|pages|steps)\b", "", topic, flags=_I)
    return " ".join(topic.split())[:200] or otherwise, clause.words.open(place[1]) if place else ""


def make_slides(clause: Clause) -> Job:
    topic, path = _subject(clause, "wick")
    path = path or f"{documents.slug(topic)}-slides.md"
    act = Act("write_file", {"path": path, "content": documents.slides(topic)})
    return Job((act,), f"I made five slides about {topic}. They are in `{path}`.")


def make_table(clause: Clause) -> Job:
    topic, path = _subject(clause)
    topic = re.split(r"\s*\b(?:with |and )*(?:the )?(?:\d+ )?(?:columns?|rows?)\b", topic, flags=_I)[0] or "sales"
    rows = clause.says(r"\b(\d{1,4}) rows?\b")
    path = path or f"{documents.slug(topic)}.csv"
    content = documents.table(topic, _columns(clause), int(rows[1]) if rows else 0)
    act = Act("write_file", {"path": path, "content": content})
    return Job((act,), f"I made a table of {topic}. It is in `{path}`.")


def _columns(clause: Clause) -> list[str]:
    text = re.sub(_GOES_TO, "", clause.words.joined.text, flags=_I)
    named = re.search(r"\bcolumns?\b(?: called| named)?\s+(.+)", text, _I)
    words = re.sub(r"\s+(?:and|with) \d+ rows?\Z", "", clause.words.open(named[1]), flags=_I) if named else ""
    return [column.strip(" .'\"`") for column in re.split(r",\s*(?:and\s+)?|\s+and\s+", words) if column.strip()][:20]


def make_document(clause: Clause) -> Job:
    topic, path = _subject(clause, "wick")
    kind, path = clause.raw("noun").lower(), path or f"{documents.slug(topic)}.md"
    act = Act("write_file", {"path": path, "content": documents.document(topic, kind)})
    return Job((act,), f"The {kind} about {topic} is in `{path}`.")


def plan(clause: Clause) -> Job:
    """Three todos, each of which is really worked on."""
    topic, path = _subject(clause)
    topic = re.sub(r"\A(?:to|for) ", "", clause.get("topic") or topic, flags=_I)
    topic = re.sub(r"[\s,]*\b(?:with|using|as|in) (?:a |some )?(?:todos?|to-dos?|steps)\b.*", "", topic, flags=_I)
    topic = topic.strip(" ,.") or "the work"
    path = path or f"plan-{documents.slug(topic)}.md"
    steps = ["See what is there", f"Write the plan to {path}", "Read it again"]
    file = {"path": path, "content": documents.plan(topic, steps)}
    work = [Act("ls", {"path": "."}), Act("write_file", file), Act("read_file", {"path": path})]
    acts = [act for number, step in enumerate(work) for act in (_todos(steps, number), step)]
    summary = f"The plan for “{topic}” had three todos, and all are done. It is in `{path}`."
    return Job((*acts, _todos(steps, len(steps))), summary)


def _todos(steps: Sequence[str], done: int) -> Act:
    """The todos while the one after the first `done` is worked on."""
    status = ["done"] * done + ["in_progress"] + ["pending"] * len(steps)
    todos = [{"id": str(at + 1), "title": step, "status": status[at]} for at, step in enumerate(steps)]
    return Act("write_todos", {"todos": todos})


# -- subagents ------------------------------------------------------------------------------------------------------


def delegate(clause: Clause) -> Job | None:
    agent = re.sub(r"\s*\b(?:sub-?)?agents?\b", "", clause.get("agent"), flags=_I).strip(" -").lower()
    if agent in ("me", "us", "user", "question"):
        return None
    prompt = ": ".join(filter(None, (clause.get("prompt").strip(" ,"), clause.tail)))
    if clause.raw("that"):  # "that lists the files": the subagent is told to list them
        prompt = re.sub(r"\A(\w+?)(?:(?<=[cs]h)es|s)\b", r"\1", prompt)
    if re.fullmatch(r"|something|anything|it|this|that|work|(?:a|the|some)(?: small)? (?:task|job|work)", prompt, _I):
        prompt = "list the files"
    named = {"agent": agent} if agent not in ("", "another", "one") else {}
    return _one("task", **named, prompt=documents.title(prompt), description=prompt[:60])
