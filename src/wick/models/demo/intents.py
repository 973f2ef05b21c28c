"""What the demo model understands: a table of what can be asked for, how people say it, and what is then done."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from wick.models.demo import papers
from wick.models.demo.instance import LABEL
from wick.models.demo.words import ASIDE, Words, listen

MOST_JOBS = 8
MOST_FILES = 8


@dataclass(frozen=True, slots=True)
class Act:
    """One use of a tool, with wick's names for the arguments. An optional one is left out where the tool is missing."""

    tool: str
    args: dict[str, Any] = field(default_factory=dict)
    optional: bool = False

    @property
    def only_looks(self) -> bool:
        return self.tool in ("ls", "glob", "grep", "read_file")


@dataclass(frozen=True, slots=True)
class Job:
    """What one request comes to: acts, one after the other, and what to say when all went well."""

    acts: tuple[Act, ...] = ()
    summary: str = ""

    @property
    def only_looks(self) -> bool:
        return all(act.only_looks for act in self.acts)


@dataclass(frozen=True, slots=True)
class Clause:
    """One request of the user's: its words, how it matched, and the file that was spoken of before."""

    words: Words
    found: re.Match[str]
    path: str = ""

    def get(self, name: str) -> str:
        """A part of the match in the user's own words."""
        return self.words.open(self.found.groupdict().get(name) or "")

    def raw(self, name: str) -> str:
        return self.found.groupdict().get(name) or ""


@dataclass(frozen=True, slots=True)
class Intent:
    """Something that can be asked for. `whole`: what follows a colon is part of the sentence; `last`: it takes the rest."""

    does: str
    job: Callable[[Clause], Job | None]
    forms: tuple[re.Pattern[str], ...]
    whole: bool = False
    last: bool = False

    def understand(self, words: Words, path: str) -> Job | None:
        words = words.joined if self.whole else words
        for form in self.forms:
            if (found := form.match(words.text)) and (job := self.job(Clause(words, found, path))):
                return job
        return None


def understand(said: str, path: str = "") -> list[Job]:
    """The jobs that a text asks for, in its order; none, if it asks for nothing that is known."""
    jobs: list[Job] = []
    for words in _clauses(listen(said)):
        found = _find(words, _path(jobs) or path)
        if found:
            jobs.append(found[1])
    words = listen(said)
    if not jobs and words.tail:  # "do this for me: …"
        return understand(words.open(words.tail), path)
    return jobs[:MOST_JOBS]


def _find(words: Words, path: str = "") -> tuple[Intent, Job] | None:
    for intent in INTENTS:
        if job := intent.understand(words, path):
            return intent, job
    return None


def _path(jobs: list[Job]) -> str:
    """The file that was spoken of last."""
    return next((act.args["path"] for job in reversed(jobs) for act in job.acts if "path" in act.args), "")


_LINKS = re.compile(
    r"(?:\s*[.!?\n]+\s*|\s*,\s*|\s+)(?:(?:and|then|also|next|finally|afterwards|after that)\b[\s,]+)+|\s*[.!?\n]+\s+",
    re.IGNORECASE,
)


def _clauses(words: Words) -> Iterator[Words]:
    """The parts of a text that each ask for something. A text is cut only before what is understood by itself."""
    start = 0
    for link in _LINKS.finditer(words.text):
        rest = words.part(link.end(), len(words.text), words.tail)
        if _VERB.match(rest.text) and _find(rest, "it"):
            left = words.part(start, link.start())
            found = _find(left, "it")
            if found and found[0].last:
                break
            yield left
            start = link.end()
    yield words.part(start, len(words.text), words.tail)


# -- pieces of patterns ---------------------------------------------------------------------------------------------

_A = r"(?:(?:a|an|the|this|that|my|your|our|some|any|all|every|new|short|small|simple|little|nice|quick|brief|following) )*"
_NAMED = r"(?:(?:file|folder|directory|document) )?(?:(?:called|named) )?"
_FILE = rf"{_A}{_NAMED}(?P<path>{ASIDE})"
_IN = r"(?:in|inside|within|under|from|of|at|across|through|throughout|among)"
_TO = r"(?:to|in|into|as|inside|at|called|named|under)"
_MAKE = (
    r"(?:mak(?:e|ing)|creat(?:e|ing)|writ(?:e|ing)|draft(?:ing)?|prepar(?:e|ing)|produc(?:e|ing)|build(?:ing)?|generat(?:e|ing)"
    r"|compos(?:e|ing)|design(?:ing)?|put(?:ting)? together|do|set up|come up with|show|have|need|add|start)"
)
_LOOK = (
    r"(?:read(?:ing)?|open(?:ing)?|show(?:ing)?|display(?:ing)?|print(?:ing)?|cat|view(?:ing)?|see|inspect(?:ing)?|check"
    r"|(?:have |take )?(?:a )?look(?:ing)? (?:at|in|into|inside)|peek (?:at|into)|output|quote|summari[sz](?:e|ing)|less|head"
    r"|load(?:ing)?|get|go through)"
)
_WRITE = (
    r"(?:writ(?:e|ing)|sav(?:e|ing)|creat(?:e|ing)|put(?:ting)?|stor(?:e|ing)|mak(?:e|ing)|generat(?:e|ing)|jot(?: down)?|touch)"
)
_SAYING = (
    r"(?:with(?: just)?(?: the)?(?: following)? (?:contents?|text|lines?|words?)|with|containing|contains|saying|reading"
    r"|(?:that|which) (?:says|contains|reads|has|holds)|and (?:put|write)|holding)"
)
_REPLACE = (
    r"(?:replac(?:e|ing)|chang(?:e|ing)|swap(?:ping)?|turn(?:ing)?|substitut(?:e|ing)|updat(?:e|ing)|fix(?:ing)?"
    r"|correct(?:ing)?|edit(?:ing)?|modify(?:ing)?|renam(?:e|ing))"
)
_BY = r"(?:with|by|to|into|for|→|->|=>)"
_AGENT = (
    r"(?P<agent>(?:[\w-]+ )?(?:sub-?agents?|agents?)|researcher|writer|reviewer|analyst|critic|editor|coder|planner"
    r"|assistant|expert|colleague|tester|summari[sz]er|designer|translator|explorer|worker|helper)\b"
)
_ABOUT = r"(?:about|on|for|of|regarding|covering|titled|describing|explaining|with|showing|from|to)"
_KINDS = {
    "python": "py",
    "markdown": "md",
    "text": "txt",
    "csv": "csv",
    "json": "json",
    "yaml": "yaml",
    "javascript": "js",
    "typescript": "ts",
    "html": "html",
    "css": "css",
    "log": "log",
    "toml": "toml",
}


def _forms(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(rf"{pattern}\Z", re.IGNORECASE | re.DOTALL) for pattern in patterns)


# -- files ----------------------------------------------------------------------------------------------------------

_NO_NAME = frozenset(
    "the this that my your our a an it here there current working project root all any files file folder folders directory"
    " directories workspace everything disk in of".split()
)
_EMPTY = re.compile(r"\b(?:empty|blank)\b|^touch\b", re.IGNORECASE)


def _list(clause: Clause) -> Job | None:
    place = clause.raw("rest") + " " + clause.raw("place")
    if (found := re.search(rf"{_IN} {_A}{_NAMED}({ASIDE}|[\w-]+)(?= folder| directory|[ .?!]*$)", place, re.IGNORECASE)) or (found := re.search(rf"(?:folder|directory) {_NAMED}({ASIDE}|[\w-]+)[ .?!]*$", place, re.IGNORECASE)):
        name = clause.words.open(found[1])
    else:
        name = clause.get("path")
    if name.startswith("*") or (found and found[1] in clause.words.paths(place) and "." in name.strip("./")):
        return None
    return Job((Act("ls", {"path": "." if name.lower() in _NO_NAME or not name else name}),))


def _read(clause: Clause) -> Job | None:
    words = clause.words
    paths = words.paths(clause.found[0]) or [quote.text for quote in words.quotations(clause.raw("path"))]
    paths = paths or [name for name in (clause.raw("bare"),) if name and name.lower() not in _NO_NAME]
    if clause.raw("it") and clause.path:
        paths = [clause.path]
    if not paths or any("*" in path for path in paths):
        return None
    lines = re.search(r"\bfirst (\d{1,5}) lines\b", words.text, re.IGNORECASE)
    limit = {"limit": int(lines[1])} if lines else {}
    return Job(tuple(_look(path, limit) for path in dict.fromkeys(paths[:MOST_FILES])))


def _look(path: str, limit: dict[str, int]) -> Act:
    return Act("ls", {"path": path}) if path.endswith(("/", "..")) else Act("read_file", {"path": path, **limit})


def _write(clause: Clause) -> Job | None:
    given = clause.raw("content") or clause.words.tail
    path = clause.get("path") or clause.get("bare") or (clause.path if clause.raw("it") else "") or "note.txt"
    if not given and not re.search(r"\bfile\b|^(?:create|make|touch)", clause.words.text, re.IGNORECASE):
        return None
    content = "" if not given and _EMPTY.search(clause.words.text) else given or f"Hello from the {LABEL}."
    content = clause.words.open(re.sub(rf"^{_SAYING} (?=\S)", "", content.strip(), flags=re.IGNORECASE))
    return Job((Act("write_file", {"path": path, "content": f"{content}\n" if content else ""}),))


def _edit(clause: Clause) -> Job | None:
    path = clause.get("path") or clause.path
    old, new = (_bare(clause, name) for name in ("old", "new"))
    if not path or not old:
        return None
    return Job((Act("edit_file", {"path": path, "old_text": old, "new_text": new}),))


def _edit_what(clause: Clause) -> Job:
    return Job(summary="Tell me which text to replace, as in: replace 'draft' with 'final' in notes.txt.")


_PREFIX = re.compile(
    r"(?:(?:the|any|all|every|each|a|an|of|to) |(?:words?|texts?|phrases?|strings?|terms?|typos?|patterns?|names?"
    r"|functions?|class(?:es)?|mentions|occurrences|references|uses|usages|places|lines?|files?|documents?)"
    r"(?: (?:of|to|with|where|that|which|containing|contains?|saying|says?|mentioning|mentions?|matching))* )+"
    r"(?=\S)(?!$)",
    re.IGNORECASE,
)


def _bare(clause: Clause, name: str) -> str:
    """A text that was meant literally, without "the word" before it."""
    raw = clause.raw(name).strip()
    return clause.words.open(_PREFIX.sub("", raw, count=1) if _PREFIX.match(raw) else raw)


def _search(clause: Clause) -> Job | None:
    text, where = _bare(clause, "text"), clause.raw("where")
    if not text or text.lower() in ("it", "that", "something", "anything", "files", "the files"):
        return None
    names = [quote.text for quote in clause.words.quotations(where)]
    bare = re.search(r"(?:(?:folder|directory) )?([\w-]+)(?: folder| directory)?[ .?!]*$", where)
    if not names and bare and bare[1].lower() not in _NO_NAME and not re.search(r"code|documents?|notes", where):
        names = [bare[1]]
    pattern = re.sub(r"([\\.^$*+?{}\[\]|()])", r"\\\1", text)
    return Job((Act("grep", {"pattern": pattern} | ({"path": names[0]} if names else {})),))


def _glob(clause: Clause) -> Job | None:
    kind, name = clause.raw("kind").lower(), clause.get("name")
    if kind:
        return Job((Act("glob", {"pattern": f"**/*.{_KINDS[kind]}"}),))
    quoted = clause.words.quotations(clause.raw("name"))
    if not quoted or not (quoted[0].is_path or clause.raw("called")) or name.endswith("/"):
        return None
    if re.fullmatch(r"\*?\.\w+", name) and clause.raw("files"):
        name = f"**/*.{name.rpartition('.')[2]}"
    return Job((Act("glob", {"pattern": name if "*" in name or "/" in name else f"**/{name}"}),))


# -- commands, approvals, questions ---------------------------------------------------------------------------------

_NO_COMMAND = re.compile(r"(?:the|a|an|my|your|some|all|it|this|that|these|something|command|commands|away|out|for)\b", re.I)


def _run(clause: Clause) -> Job | None:
    command = clause.get("command") or clause.words.open(clause.words.tail)
    if not command or (_NO_COMMAND.match(command) and not clause.words.quotations(clause.raw("command"))):
        return Job(summary="Tell me the exact command, as in: run `ls -la`.")
    return Job((Act("execute", {"command": command}),))


def _run_quoted(clause: Clause) -> Job | None:
    quoted = clause.words.aside(clause.raw("command"))
    return None if quoted is None or quoted.is_path or not quoted.whole.startswith("`") else _run(clause)


def _approve(clause: Clause) -> Job:
    quoted = [quote.text for quote in clause.words.quotations(clause.words.text) if quote.whole.startswith("`")]
    command = quoted[0] if quoted else clause.words.open(clause.words.tail) or "echo approved"
    return Job((Act("execute", {"command": command}),))


def _ask(clause: Clause) -> Job:
    said = clause.get("question") or clause.words.open(clause.words.tail)
    said = re.sub(r"^(?:(?:a )?questions?|something|about|:|to choose|to pick)\b[\s,:]*", "", said, flags=re.IGNORECASE)
    between = re.search(r"\bbetween (.+)", said, re.IGNORECASE)
    options = [part for part in re.split(r",| and | or ", between[1]) if part.strip()] if between else []
    question = "Which one?" if options else papers.title(said).rstrip("?.") + "?" if said else "What should I do next?"
    args = {"question": question, "options": [option.strip() for option in options]}
    return Job((Act("ask_user", args if options else {"question": question}),))


# -- papers ---------------------------------------------------------------------------------------------------------


def _topic(clause: Clause, otherwise: str) -> tuple[str, str]:
    """What a paper is about, and the file it goes to, if that was said."""
    rest = clause.raw("rest")
    place = re.search(rf"(?:^|[\s,]+)(?:and (?:save|put|store|write) (?:it|them) )?{_TO} {_FILE}", rest, re.IGNORECASE)
    path = clause.words.open(place["path"]) if place else ""
    rest = rest[: place.start()] + rest[place.end() :] if place else rest
    about = re.search(rf"(?:^|\s){_ABOUT}\b\s*(.+)", rest, re.IGNORECASE | re.DOTALL)
    topic = clause.words.open(about[1].strip(" .,")) if about else clause.words.open(clause.words.tail)
    return " ".join(topic.split())[:200] or otherwise, path


def _slides(clause: Clause) -> Job:
    topic, path = _topic(clause, "wick")
    path = path or f"{papers.slug(topic)}-slides.md"
    act = Act("write_file", {"path": path, "content": papers.slides(topic)})
    return Job((act,), f"I made five slides about {topic}: `{path}`.")


def _table(clause: Clause) -> Job:
    topic, path = _topic(clause, "sales")
    rest = clause.words.open(clause.raw("rest"))
    named = re.search(r"\bcolumns?\b(?: called| named|:)?\s+(.+)", rest, re.IGNORECASE)
    rows = re.search(r"\b(\d{1,4}) rows?\b", clause.words.text, re.IGNORECASE)
    words = re.sub(rf"\s(?:{_TO} \S+|and \d+ rows?|with \d+ rows?)\s*$", "", named[1]) if named else ""
    columns = [column.strip(" .'\"`") for column in re.split(r",\s*(?:and\s+)?|\s+and\s+", words) if column.strip()][:20]
    topic = re.sub(r"\s*\b(?:with|and)?\s*(?:the )?(?:columns?\b.*|\d+ rows?\b.*)", "", topic, flags=re.IGNORECASE) or "sales"
    path = path or f"{papers.slug(topic)}.csv"
    content = papers.table(topic, columns, int(rows[1]) if rows else 0)
    act = Act("write_file", {"path": path, "content": content})
    return Job((act,), f"I made a table of {topic} with {content.count(chr(10)) - 1} rows: `{path}`.")


def _document(clause: Clause) -> Job:
    topic, path = _topic(clause, "wick")
    kind = clause.raw("noun").lower()
    path = path or f"{papers.slug(topic)}.md"
    act = Act("write_file", {"path": path, "content": papers.document(topic, kind)})
    return Job((act,), f"I wrote a {kind} about {topic}: `{path}`.")


def _plan(clause: Clause) -> Job:
    topic, path = _topic(clause, "")
    topic = clause.get("topic") or topic or clause.get("rest") or "the work"
    topic = re.sub(rf"^(?:{_ABOUT}|with todos|how to)\s+", "", topic, flags=re.IGNORECASE)
    topic = re.sub(r"[\s,]*\b(?:(?:with|using|as|in) (?:a )?(?:todos?|to-dos?|todo list|steps))\b.*", "", topic) or "the work"
    path = path or f"plan-{papers.slug(topic)}.md"
    steps = ["See what is there", f"Write the plan to {path}", "Read it again"]
    work = [Act("ls", {"path": "."}, True), _plan_file(path, topic, steps), Act("read_file", {"path": path}, True)]
    acts = [act for number, work_act in enumerate(work) for act in (_todos(steps, number), work_act)]
    return Job((*acts, _todos(steps, 3)), f"I planned {topic} in three todos, did them all, and wrote the plan to `{path}`.")


def _plan_file(path: str, topic: str, steps: list[str]) -> Act:
    return Act("write_file", {"path": path, "content": papers.plan(topic, steps)}, True)


def _todos(steps: Iterable[str], done: int) -> Act:
    """The todos while the one after the first `done` is worked on."""
    status = ["done"] * done + ["in_progress"] + ["pending"] * 3
    todos = [{"id": str(number + 1), "title": step, "status": status[number]} for number, step in enumerate(steps)]
    return Act("write_todos", {"todos": todos})


# -- subagents ------------------------------------------------------------------------------------------------------

_VAGUE = re.compile(r"(?:something|anything|it|this|that|work|a task|a job|some work|the task|a small task|)\Z", re.IGNORECASE)


def _delegate(clause: Clause) -> Job | None:
    agent = re.sub(r"\s*\b(?:sub-?)?agents?\b", "", clause.get("agent"), flags=re.IGNORECASE).strip().lower()
    if agent in ("me", "us", "user", "for", "question"):
        return None
    tail = clause.words.open(clause.words.tail)
    prompt = ": ".join(filter(None, (clause.get("prompt").strip(" ,"), tail)))
    prompt = "List the files." if _VAGUE.match(prompt) else papers.title(prompt)
    args = {"prompt": prompt, "description": prompt[:60]}
    return Job((Act("task", {"agent": agent, **args} if agent not in ("", "sub", "another", "one") else args),))


# -- the table ------------------------------------------------------------------------------------------------------

_SLIDES = r"(?:slides?|slide ?decks?|slide ?shows?|decks?|presentations?|powerpoints?|pptx)"
_TABLE = r"(?:tables?|spreadsheets?|csv(?: files?)?|data ?sets?|data ?sheets?|excel(?: sheets?| files?)?)"
_DOCUMENT = (
    r"(?P<noun>documents?|docs?|reports?|letters?|essays?|articles?|memos?|summary|blog posts?|markdown(?: files?| documents?)?"
    r"|one-pagers?|proposals?|stor(?:y|ies)|pages?|guides?|introductions?|poems?|notes?)"
)
_TODOS = r"(?:plans?|todos?|to-?dos?|todo lists?|to-do lists?|task lists?|check ?lists?|steps)"
_AFTER_NOUN = r"(?P<rest>(?:[\s,].*)?)"
_OF_MAKING = rf"(?:{_MAKE} (?:me |us )?)?(?:(?!about\b|on\b|for\b|of\b|to\b|with\b)[\w-]+ ){{0,4}}?"

# The first that understands a request has it, so what is special comes before what is general.
INTENTS = (
    Intent(
        "hand a task to a subagent",
        _delegate,
        _forms(
            rf"(?:delegat(?:e|ing)|hand(?:ing)?(?: over| off)?|giv(?:e|ing)|assign(?:ing)?|outsourc(?:e|ing)|leav(?:e|ing)|send)"
            rf" (?:(?:it|this|a task|something|work|the following|the task) )?(?:over )?to {_A}{_AGENT}"
            r"(?:[\s,]+(?:to |that |and )?(?P<prompt>.+))?",
            rf"(?:delegat(?:e|ing)|hand(?:ing)?(?: over| off)?|giv(?:e|ing)|assign(?:ing)?|outsourc(?:e|ing)|leav(?:e|ing)|send)"
            rf" (?P<prompt>.+?) (?:over |on |off )?to {_A}{_AGENT}",
            rf"(?:ask|tell|get|have|let|make|instruct|use|using|start|spawn|launch|send|call|create|employ|want|with)"
            rf" {_A}{_AGENT}(?:[\s,]+(?:to |that |which |for |and (?:have|let) it )?(?P<prompt>.+))?",
            r"ask (?:a|an|the|your|my) (?P<agent>[\w-]+) (?:to|about) (?P<prompt>.+)",
            rf"(?P<prompt>.+?)[\s,]+(?:using|with(?: the help of)?|via|through|by) (?:a|an|the|your|one) {_AGENT}",
            r"@(?P<agent>[\w-]+)[\s,]+(?P<prompt>.+)",
            r"delegat(?:e|ing|ion)(?: (?P<prompt>.+))?",
        ),
        last=True,
    ),
    Intent(
        "ask for approval",
        _approve,
        _forms(
            r"(?:ask|request|get|seek|require|obtain|wait|need|trigger|show|test|demonstrate|do|perform|run|execute|start|simulate"
            r"|use|see|make)\b.{0,80}?\b(?:approv(?:al|als|e|ed|es)|permission|confirm|confirmation|consent|go-ahead|sign-off)\b.*",
            r"(?:ask|check with) (?:me|us|the user) (?:first|before)\b.*",
            r"before .{0,80}?\bask (?:me|us|the user)\b.*",
            rf"{_A}(?:approv(?:e|al|ing)|confirmation)\b(?! of).*",
        ),
        last=True,
    ),
    Intent("ask you a question", _ask, _forms(r"ask (?:me|us|the user)\b(?P<question>.*)"), last=True),
    Intent(
        "plan with todos",
        _plan,
        _forms(
            r"(?:break|split|divide)(?:ing)? (?P<topic>.+?) (?:down |up )?into (?:\w+ )?(?:todos?|to-dos?|steps|tasks)",
            r"(?:plan|planning|organi[sz](?:e|ing))\b(?P<rest>.*)",
            rf"(?:what are the |use |using |track |keep |work out |turn )?{_OF_MAKING}{_TODOS}\b{_AFTER_NOUN}",
        ),
        last=True,
    ),
    Intent(
        "write a file",
        _write,
        _forms(
            rf"{_WRITE} (?:.{{0,80}}? )??(?P<path>{ASIDE}),? {_SAYING} (?P<content>.+)",
            rf"{_WRITE} .{{0,40}}?\bfile (?:called|named) (?P<bare>[\w-]+),? {_SAYING} (?P<content>.+)",
        ),
    ),
    Intent("make slides", _slides, _forms(rf"{_OF_MAKING}{_SLIDES}\b{_AFTER_NOUN}")),
    Intent("make a table", _table, _forms(rf"{_OF_MAKING}{_TABLE}\b{_AFTER_NOUN}")),
    Intent("make a document", _document, _forms(rf"{_OF_MAKING}{_DOCUMENT}\b{_AFTER_NOUN}")),
    Intent(
        "edit a file",
        _edit,
        _forms(
            rf"{_REPLACE} (?P<old>.+?) {_IN} {_FILE},? {_BY} (?P<new>.+)",
            rf"substitut(?:e|ing) (?P<new>.+?) for (?P<old>.+?) {_IN} {_FILE}",
            rf"{_REPLACE} (?P<old>.+?) {_BY} (?P<new>.+?) (?:{_IN}) {_FILE}",
            rf"(?:{_REPLACE}|open|in|go to) {_FILE}[\s,]*(?:(?:and|by|to|so that) )?{_REPLACE} (?P<old>.+?) {_BY} (?P<new>.+)",
            rf"(?:{_REPLACE}|make) {_FILE} so (?:that )?(?P<old>.+?) (?:becomes|is|reads|turns into) (?P<new>.+)",
            rf"make {_FILE} say (?P<new>.+?) instead of (?P<old>.+)",
            rf"{_REPLACE} (?P<old>.+?) {_BY} (?P<new>.+?)(?: (?:in|inside) (?:it|there|that file|the file))?",
        ),
        whole=True,
    ),
    Intent("edit a file", _edit_what, _forms(rf"edit(?:ing)? {_FILE}", r"edit(?:ing)? (?:a|the|this|that) file")),
    Intent(
        "write a file",
        _write,
        _forms(
            rf"{_WRITE} (?P<content>(?!(?:a|an|the) (?:new )?file\b).+?) (?:to|in|into|as|inside|on) {_FILE}",
            rf"{_WRITE} (?:.{{0,80}}? )?(?P<path>{ASIDE})",
            rf"{_WRITE} .{{0,40}}?\bfile (?:called|named) (?P<bare>[\w-]+)",
            rf"{_WRITE} (?P<content>(?!(?:a|an|the) (?:new )?file\b).+?) (?:to|in|into) (?:a|the) (?:new )?file",
            rf"{_WRITE} (?:a|the) (?:new |empty |blank )?file(?: {_SAYING} (?P<content>.+))?",
        ),
    ),
    Intent(
        "search files",
        _glob,
        _forms(
            rf"(?:find|locate|search for|look for|list|show|which|what|are there|is there|where (?:is|are)|where)\b ?{_A}"
            rf"(?P<kind>{'|'.join(_KINDS)}) files?\b.*",
            rf"(?:find|locate|search for|look for|list|show|which|what|are there|is there|where (?:is|are)|where|glob) {_A}"
            rf"(?P<called>files? (?:called|named|matching|like|ending in|ending with) )?(?:file )?(?P<name>{ASIDE})"
            r"(?P<files> files?\b.*)?(?: is| are)?",
        ),
        whole=True,
    ),
    Intent(
        "search files",
        _search,
        _forms(
            rf"(?:search(?:ing)?|grep|look|scan|check|hunt|go)(?: {_IN})? (?P<where>{_A}(?:files?|folders?|director(?:y|ies)|code|project"
            rf"|workspace|documents|notes|everything|everywhere|{ASIDE}|[\w-]+ (?:folder|directory))(?: {_IN} .+?)?) for (?P<text>.+)",
            rf"(?:(?:do|run|perform|start) )?(?:a )?(?:search(?:ing)?|grep(?:ping)?|rg|ripgrep|look(?:ing)?(?= for)|hunt(?:ing)?(?= for)"
            rf"|scan(?:ning)?(?= for))(?: for)? (?P<text>.+?)(?: {_IN} (?P<where>.+))?",
            rf"(?:find|locate) (?P<text>.+?)(?: {_IN} (?P<where>.+))?",
            r"(?:which|what|any|are there(?: any)?|is there(?: a| any)?|does any|do any)(?: of (?:the|my|your))? (?:files?|documents?|lines?)"
            r"(?: (?:that|which))? (?:contains?|containing|mentions?|mentioning|has|have|says?|uses?|using|includes?|including|with"
            r"|talks? about|refers? to) (?P<text>.+)",
            r"where (?:is|are|does|do|did|was|can i find) (?P<text>.+?)(?: (?:mentioned|used|defined|written|found|appears?|occurs?"
            r"|shows? up|comes? up))?(?: in (?:the|my|these) \w+)?",
            r"where (?P<text>.+?) (?:is|are|was) (?:mentioned|used|defined|written|found)",
        ),
        whole=True,
    ),
    Intent(
        "run a command",
        _run,
        _forms(
            r"[$!>]\s*(?P<command>.+)",
            r"(?:run(?:ning)?|execut(?:e|ing)|exec|launch|invoke)(?: (?:the|this|a|following|shell|bash|terminal))*"
            r"(?: (?:command|cmd|command line|script))?(?: (?P<command>.+?))?(?: (?:in|on) (?:the|a|my|your) (?:shell|terminal|bash|console"
            r"|command line))?",
            r"(?:use|using|in|with|from|on|via|open) (?:the|a|your|my) (?:shell|terminal|bash|command line|console)[\s,]*(?:to |and )?"
            r"(?:run|execute|do|type|try)? ?(?P<command>.+)",
        ),
    ),
    Intent(
        "run a command",
        _run_quoted,
        _forms(
            rf"(?:type|enter|do|start|call|perform)?(?: ?(?:the|a) )?(?: ?command )?(?P<command>{ASIDE})",
            rf"(?:what|how)\b.*?(?P<command>{ASIDE}).*",
            rf"(?:the )?(?:output|result) of (?:the command )?(?P<command>{ASIDE})",
        ),
    ),
    Intent(
        "read a file",
        _read,
        _forms(
            rf"{_LOOK}\b.*?(?P<path>{ASIDE}).*",
            rf"(?:what|how|which)\b.*?(?P<path>{ASIDE}).*",
            rf"{_A}(?:(?:contents?|text|beginning|(?:first )?\d* ?lines?|file) )?(?:of |in |from )?{_A}(?:file )?(?P<path>{ASIDE})"
            rf"(?:(?:,| and|, and) {ASIDE})*",
            rf"{_LOOK} (?:the )?(?P<it>it|that|this|them|(?:the|that|this) file)(?: back| again| out| aloud| to me)*",
            rf"{_LOOK} (?:the )?file (?:called |named )?(?P<bare>[\w-]+)",
        ),
        whole=True,
    ),
    Intent(
        "list files",
        _list,
        _forms(
            rf"(?:ls|dir|ll)(?: -\w+)*(?: (?P<path>{ASIDE}|[\w-]+))?",
            rf"(?:{_LOOK}|list(?:ing)?|enumerat(?:e|ing)|browse|explore|name|find|count) (?:(?:me|us|out|all|any|every|the|of|my|your|our|these"
            r"|this|a|list|names?|contents?|current|available|existing|there|each|working|project) )*"
            rf"(?P<rest>(?:(?:files?|folders?|director(?:y|ies)|contents?|documents?|entries|everything|workspace|project)\b"
            rf"|(?:{ASIDE}|[\w-]+) (?:folder|directory)\b).*)",
            r"list(?:ing)?(?: (?:out|up))?",
            rf"(?:list(?:ing)?|browse|explore) (?P<path>{ASIDE})",
            r"(?:what|which)(?:['’]s| is| are)?\b(?P<rest>.*?\b(?:files?|folders?|director(?:y|ies)|documents|entries|workspace|here)\b.*)",
            r"(?:(?:the|any|all|a|list of|my|your|names of|every|each) )*(?P<rest>(?:files?|folders?|director(?:y|ies)|contents?)"
            r"(?: (?:in|of|under|inside|here|there|within|available|you|we|i|do|are|that|from)\b.*)?)",
            rf"(?:what|which)(?:['’]s| is| are)? (?P<rest>(?:in|inside|under) (?:the )?(?P<path>{ASIDE}))",
        ),
        whole=True,
    ),
)

_VERB = re.compile(
    rf"(?:{_MAKE}|{_LOOK}|{_WRITE}|{_REPLACE}|list(?:ing)?|ls|find|locate|search|grep|look|scan|run|execute|plan|delegate|hand|ask|tell"
    r"|have|let|use|what|which|where|request)\b",
    re.IGNORECASE,
)

_ORDER = (
    "list files, read a file, write a file, edit a file, search files, run a command, make slides, make a table, "
    "make a document, plan with todos, ask for approval, ask you a question"
)
ABILITIES = f"{_ORDER} and hand a task to a subagent"

_SMALL_TALK = re.compile(
    r"(?:|thanks?|thank you|bye|who are you|what are you|what (?:can|do) you do|help|how are you|what is this|introduce yourself"
    r"|what (?:can|could|may) i (?:do|ask|say)(?: here)?|how does this work|test|yo)\Z",
    re.IGNORECASE,
)


def is_small_talk(said: str) -> bool:
    return bool(_SMALL_TALK.match(listen(said).text))
