"""The table of requests that the demo model understands: a pattern for each, and the tool calls it stands for.

`understand` splits a message into clauses and looks up each clause. A quoted text is never split.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from wick.models.demo.documents import build_slug, capitalize, write_document, write_plan, write_slides, write_table

MOST_CHARS = 2_000  # of a message: some patterns take quadratic time
MOST_JOBS = 8
_MOST_LINKS = 40  # positions where a split is tried

ABILITIES = (
    "list files, read a file, write a file, edit a file, search files, run a command, make slides, make a table, "
    "make a document, plan with todos, ask for approval, ask you a question and hand a task to a subagent"
)
_READING_TOOLS = ("ls", "glob", "grep", "read_file")
_EXTENSIONS = {"python": "py", "markdown": "md", "text": "txt", "csv": "csv", "json": "json"}


@dataclass(frozen=True, slots=True)
class Act:
    """One tool call, with the names of wick's own tools."""

    tool: str
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """The tool calls for one request, and the sentence that reports success; without it the results are shown."""

    acts: tuple[Act, ...] = ()
    summary: str = ""

    @property
    def is_reading(self) -> bool:
        return all(act.tool in _READING_TOOLS for act in self.acts)

    @property
    def path(self) -> str:
        """The last file that is read or written."""
        return next((act.args["path"] for act in reversed(self.acts) if act.tool.endswith("_file")), "")


@dataclass(frozen=True, slots=True)
class Clause:
    """A matched request, and the file that was named before it."""

    groups: dict[str, str | None]
    last_path: str

    def get(self, name: str) -> str:
        """Return a group without its quotes."""
        text = (self.groups.get(name) or "").strip()
        return text[1:-1] if _QUOTED.fullmatch(text) else text

    @property
    def path(self) -> str:
        """The file of the request; "it" is the one before."""
        path = self.get("path")
        return self.last_path if path.lower() == "it" else path


_QUOTE = r"`[^`\n]+`|\"[^\"\n]+\"|“[^”\n]+”|(?<!\w)'[^'\n]+'(?!\w)"
_QUOTED = re.compile(_QUOTE)


def _call(tool: str, **args: Any) -> Job:
    return Job((Act(tool, args),))


# -- requests -------------------------------------------------------------------------------------------------------


def _list_files(clause: Clause) -> Job:
    return _call("ls", path=clause.path or ".")


def _read_file(clause: Clause) -> Job | None:
    if clause.path.endswith("/"):
        return _list_files(clause)
    limit = {"limit": int(clause.get("lines"))} if clause.get("lines") else {}
    return _call("read_file", path=clause.path, **limit) if clause.path else None


def _write_file(clause: Clause) -> Job:
    content = re.sub(r"\Athe (?:word|text) (?=\S)", "", clause.get("content"))
    return _call("write_file", path=clause.path, content=f"{content}\n")


def _edit_file(clause: Clause) -> Job | None:
    texts = {"old_text": clause.get("old"), "new_text": clause.get("new")}
    return _call("edit_file", path=clause.path, **texts) if clause.path else None


def _search_files(clause: Clause) -> Job:
    where = {"path": clause.path} if clause.path else {}
    return _call("grep", pattern=re.sub(r"([\\.^$*+?{}\[\]|()])", r"\\\1", clause.get("text")), **where)


def _find_files(clause: Clause) -> Job:
    pattern = clause.path or f"*.{_EXTENSIONS[clause.get('kind').lower()]}"
    return _call("glob", pattern=pattern if "/" in pattern else f"**/{pattern}")


def _run_command(clause: Clause) -> Job:
    return _call("execute", command=clause.get("command") or "echo approved")


def _ask_user(clause: Clause) -> Job:
    if options := clause.get("options"):
        choices = [option.strip() for option in re.split(r",| and | or ", options) if option.strip()]
        return _call("ask_user", question="Which one do you choose?", kind="select", options=choices)
    question = clause.get("question").rstrip("?.")
    return _call("ask_user", question=f"{capitalize(question)}?" if question else "What should I do next?")


def _make_document(clause: Clause) -> Job:
    kind, topic = clause.get("kind").lower(), clause.get("topic")
    if kind in ("table", "csv"):
        topic = topic or "sales"
        path = clause.path or f"{build_slug(topic)}.csv"
        columns = [name.strip() for name in re.split(r",(?: and )?| and ", clause.get("columns")) if name.strip()]
        content, summary = write_table(topic, columns), f"I made a table of {topic}. It is in `{path}`."
    elif kind in ("document", "letter", "report", "article", "summary"):
        topic = topic or "wick"
        path = clause.path or f"{build_slug(topic)}.md"
        content, summary = write_document(topic, kind), f"The {kind} about {topic} is in `{path}`."
    else:
        topic = topic or "wick"
        path = clause.path or f"{build_slug(topic)}-slides.md"
        content, summary = write_slides(topic), f"I made five slides about {topic}. They are in `{path}`."
    return Job((Act("write_file", {"path": path, "content": content}),), summary)


def _plan(clause: Clause) -> Job:
    """Write three todos and work on each."""
    topic = clause.get("topic") or "the work"
    path = f"plan-{build_slug(topic)}.md"
    steps = ["See what is there", f"Write the plan to {path}", "Read it again"]
    file = {"path": path, "content": write_plan(topic, steps)}
    work = [Act("ls", {"path": "."}), Act("write_file", file), Act("read_file", {"path": path})]
    acts = [act for number, step in enumerate(work) for act in (_write_todos(steps, number), step)]
    summary = f"The plan for “{topic}” had three todos, and all are done. It is in `{path}`."
    return Job((*acts, _write_todos(steps, len(steps))), summary)


def _write_todos(steps: list[str], done: int) -> Act:
    status = ["done"] * done + ["in_progress"] + ["pending"] * len(steps)
    todos = [{"id": str(at + 1), "title": step, "status": status[at]} for at, step in enumerate(steps)]
    return Act("write_todos", {"todos": todos})


def _delegate(clause: Clause) -> Job | None:
    agent, prompt = clause.get("agent").lower(), clause.get("prompt")
    if agent == "user":
        return None
    named = {} if agent in ("agent", "subagent") else {"agent": agent}
    prompt = "list the files" if prompt.lower() in ("a task", "work") else prompt
    return _call("task", **named, prompt=capitalize(prompt), description=prompt[:60])


# -- the table ------------------------------------------------------------------------------------------------------

_FILE = rf"{_QUOTE}|[^\s,;:'\"`]*[./*][^\s,;:'\"`]*"
_PATH = rf"(?P<path>{_FILE})"
_FOLDER = rf"(?P<path>{_QUOTE}|[\w./-]+)"
_TO = rf"(?: (?:to|in|into) {_PATH})?"
_MAKE = r"(?:make|create|write|draft|prepare|generate)(?: me)?(?: an?| some| the)?"
_ABOUT = r"(?: (?:about|on|of|for) (?P<topic>.+?))?"
_COLUMNS = r"(?:,? with (?:the )?columns (?P<columns>.+?))?"

_Build = Callable[[Clause], Job | None]  # None: the clause is not such a request


def _compile(*rows: tuple[_Build, str]) -> list[tuple[_Build, re.Pattern[str]]]:
    return [(build, re.compile(rf"{pattern}\Z", re.IGNORECASE | re.DOTALL)) for build, pattern in rows]


# A command or a content after a colon is the rest of the message, with its punctuation.
_VERBATIM = _compile(
    (_run_command, r"run (?:the |this )?command: (?P<command>.+)"),
    (_write_file, rf"write to {_PATH}: (?P<content>.+)"),
)
# These take the rest of the message, even after an "and".
_UNSPLIT = _compile(
    (_run_command, r"ask (?:me )?for (?:my |your )?(?:approval|permission)(?: to run (?P<command>.+))?"),
    (_ask_user, r"ask me to choose between (?P<options>.+)"),
    (_ask_user, r"ask me(?:,|:| a question:?)?(?: (?P<question>.+))?"),
    (_delegate, r"(?:ask|have|tell|let) the (?P<agent>[\w-]+)(?: agent)?(?: to)? (?P<prompt>.+)"),
    (_delegate, r"(?:delegate|hand|give) (?P<prompt>.+?) to (?:the|a) (?P<agent>[\w-]+)"),
)
# The first match counts, so special forms come before general ones.
_CLAUSES = _compile(
    (_plan, rf"(?:plan|{_MAKE} (?:plan|todo list) (?:for|to)) (?P<topic>.+)"),
    (_plan, rf"{_MAKE} (?:plan|todo list)"),
    (_make_document, rf"{_MAKE} (?P<kind>slides|slide deck|deck|presentation){_ABOUT}{_TO}"),
    (_make_document, rf"{_MAKE} (?P<kind>table|csv){_ABOUT}{_COLUMNS}{_TO}"),
    (_make_document, rf"{_MAKE} (?P<kind>document|letter|report|article|summary){_ABOUT}{_TO}"),
    (_edit_file, rf"(?:replace|change) (?P<old>.+?) (?:with|to) (?P<new>.+?) in (?P<path>it|{_FILE})"),
    (_write_file, rf"{_MAKE} (?:new )?file (?:called )?{_PATH} (?:that says|with|saying|containing) (?P<content>.+)"),
    (_write_file, rf"write (?P<content>.+?) (?:to|into|in) (?:the file )?{_PATH}"),
    (_find_files, rf"(?:find|list|show)(?: me)? (?:all )?(?:the )?(?P<kind>{'|'.join(_EXTENSIONS)}) files"),
    (_find_files, rf"(?:find|where is) (?:the file )?{_PATH}"),
    (_search_files, rf"(?:search|grep)(?: for)? (?P<text>.+?)(?: in (?:the folder )?{_FOLDER})?"),
    (_search_files, r"(?:which|what) files? (?:mentions?|contains?) (?P<text>.+)"),
    (_list_files, rf"(?:list|show)(?: me)?(?: all)?(?: the)? files(?: (?:in|of) (?:the )?(?:folder )?{_FOLDER})?"),
    (_list_files, r"what(?: is|'s) in this folder|what files are here|what files are there|ls"),
    (_list_files, rf"(?:what(?: is|'s) in the folder|ls) {_FOLDER}"),
    (_read_file, rf"(?:read|show|open|cat)(?: me)?(?: the)?(?: file| first (?P<lines>\d{{1,5}}) lines of)? {_PATH}"),
    (_read_file, r"(?:read|show|open) (?P<path>it)(?: again| back)?"),
    (_read_file, rf"what(?: is|'s) in {_PATH}"),
    (_run_command, rf"run (?:the command )?(?P<command>{_QUOTE})"),
)
_SMALL_TALK = re.compile(
    r"(?:(?:hi|hello|hey|thanks|thank you)\b.{0,20}|help|(?:who|what) are you|what can you do)?\Z", re.IGNORECASE
)

# -- reading a message ----------------------------------------------------------------------------------------------

# Possessive quantifiers and the lookbehind keep this linear.
_LINK = re.compile(
    rf"{_QUOTE}|(?<![\s.!?,])(?P<mark>[\s.!?,]++)(?P<word>(?:(?:and|then|finally)\b[\s,]++)*+)", re.IGNORECASE
)
_COURTESY = re.compile(
    r"\A(?:(?:please|hi|hello|hey|first|now|(?:can|could|would|will) you)\b[\s,!]*)+(?=\S)", re.IGNORECASE
)


def is_small_talk(text: str) -> bool:
    return len(text) <= MOST_CHARS and _SMALL_TALK.match(_trim_end(text)) is not None


def understand(text: str) -> list[Job]:
    """Return the jobs of a message in their order; an empty list if it has no known request."""
    if len(text) > MOST_CHARS:
        return [Job(summary=f"That is too long for me: I read {MOST_CHARS:,} characters at most.")]
    jobs: list[Job] = []
    path = ""
    for clause in _split(text):
        if len(jobs) == MOST_JOBS:
            return [*jobs, Job(summary=f"I do {MOST_JOBS} things at a time at most: ask me again for the rest.")]
        if job := _match(clause, path):
            jobs.append(job)
            path = job.path or path
    return jobs


def _split(text: str) -> Iterator[str]:
    """Yield the clauses. A message is split only where the clauses on both sides are requests."""
    links = [link for link in _LINK.finditer(text) if link["word"] or re.search(r"\n|[.!?,]\s", link["mark"] or "")]
    links = links[:_MOST_LINKS]
    ends = [link.start() for link in links[1:]] + [len(text)]
    start = 0
    for link, end in zip(links, ends, strict=False):
        if _match(text[start:], tables=2):
            break
        is_request = _match(text[link.end() :]) or _match(text[link.end() : end])
        if is_request and _match(text[start : link.start()]):
            yield text[start : link.start()]
            start = link.end()
    yield text[start:]


def _match(text: str, last_path: str = "it", tables: int = 3) -> Job | None:
    """Return the job of a clause, looked up in the first tables."""
    text = _COURTESY.sub("", text.strip(), count=1)
    sentence = _trim_end(text)
    for table, subject in ((_VERBATIM, text), (_UNSPLIT, sentence), (_CLAUSES, sentence))[:tables]:
        for build, pattern in table:
            if (match := pattern.match(subject)) and (job := build(Clause(match.groupdict(), last_path))):
                return job
    return None


def _trim_end(text: str) -> str:
    """Return a sentence without its final punctuation. A path or a command keeps its dots, as in `ls ..`."""
    text = text.strip(" \t\r\n,;")
    sentence = text.rstrip(".!?")
    is_word = sentence[-1:].isalnum() or sentence[-1:] in "`'\"”)_"
    text = sentence if is_word or text[len(sentence) - 1 :] == "/." else text
    return re.sub(r"[\s,]please\Z", "", text, flags=re.IGNORECASE).rstrip(" ,")
