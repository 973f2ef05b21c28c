"""How people ask: a table of what the demo model does, and of the forms in which that is asked for.

A form is a pattern of the whole clause, without its courtesies; ASIDE stands for a quotation or the name of a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from wick.models.demo import actions
from wick.models.demo.actions import Clause, Job
from wick.models.demo.text_patterns import ASIDE, Words


@dataclass(frozen=True, slots=True)
class Intent:
    """Something that can be asked for, in some forms."""

    job: Callable[[Clause], Job | None]  # None: it was something else after all
    forms: tuple[re.Pattern[str], ...]
    takes_colon: bool = False  # what follows a colon belongs to the sentence
    takes_rest: bool = False  # what follows an "and" belongs to it, too

    def understand(self, words: Words, before: str) -> Job | None:
        words = words.joined if self.takes_colon else words
        for form in self.forms:
            if (found := form.match(words.text)) and (job := self.job(Clause(words, found, before))):
                return job
        return None


def _intent(job: Callable[[Clause], Job | None], *forms: str, **takes: bool) -> Intent:
    return Intent(job, tuple(re.compile(rf"{form}\Z", re.IGNORECASE | re.DOTALL) for form in forms), **takes)


# -- words that forms are made of -----------------------------------------------------------------------------------


def _verbs(words: str) -> str:
    """Any of these verbs: list, listing; make, making; put, putting."""
    return "(?:" + "|".join(_verb(word) for word in words.split(",")) + ")"


def _verb(words: str) -> str:
    first, _, rest = words.strip().partition(" ")
    stem = rf"{first[:-1]}(?:e|ing)" if first.endswith("e") else rf"{first}(?:{first[-1]}?ing)?"
    return f"{stem} {rest}" if rest else stem


_A = r"(?:(?:a|an|the|this|that|my|your|our|some|any|all|every|new|short|small|simple|nice|quick|brief|following) )*"
_FILE = rf"{_A}(?:file |folder |directory |document )?(?:called |named )?(?P<path>{ASIDE})"
_IN = r"(?:in|inside|within|under|across|through|throughout|among)"
_BY = r"(?:with|by|to|into|for|→|->|=>)"
_SAYING = (
    r"(?:with(?: just)?(?: the)?(?: following)? (?:contents?|text|lines?|words?)|with|containing|saying|holding"
    r"|(?:that|which) (?:says|contains|reads|has|holds)|and (?:put|write))"
)
_MAKE = _verbs("make,create,write,draft,prepare,produce,build,generate,compose,design,put together,do,come up with")
_WRITE = _verbs("write,save,create,put,store,make,generate,jot down,touch")
_LOOK = _verbs(
    "read,open,show,display,print,cat,view,see,check,inspect,output,quote,summarize,summarise,load,look at,look in"
    ",look into,look inside,have a look at,take a look at,peek at,peek into,go through,get,fetch"
)
_SEEK = _verbs("search,grep,look,scan,hunt")
_REPLACE = _verbs("replace,change,swap,turn,substitute,update,fix,correct,edit,modify,rename")
_HAND = _verbs("delegate,hand,hand over,hand off,give,assign,outsource,leave,send,pass")
_RUN = _verbs("run,execute,exec,launch,invoke")

_AGENT = (
    r"(?P<agent>(?:[\w-]+ )?(?:sub-?agents?|agents?)|researcher|writer|reviewer|analyst|critic|editor|coder|planner"
    r"|tester|assistant|expert|colleague|summari[sz]er|designer|translator|explorer|worker|helper)\b"
)
_APPROVAL = r"(?:approv(?:al|als|e|ed|es)|permission|my ok|my okay|confirm|confirmation|consent|go-ahead|sign-off)"
_SHELL = r"(?:the|a|your|my) (?:shell|terminal|bash|console|command line)"
_FILES = r"(?:files?|folders?|director(?:y|ies)|documents|entries|workspace)"
_TODOS = r"(?:plans?|todos?|to-dos?|(?:todo|to-do|task) lists?|check ?lists?|steps)"
_SLIDES = r"(?:slides?|slide ?(?:decks?|shows?)|decks?|presentations?|powerpoints?)"
_TABLE = r"(?:tables?|spreadsheets?|csv(?: files?)?|data ?(?:sets?|sheets?)|excel(?: sheets?| files?)?)"
_DOCUMENT = (
    r"(?P<noun>document|documentation|doc|report|letter|essay|article|memo|summary|blog post|one-pager"
    r"|markdown(?: file| document)?|proposal|story|page|guide|introduction|poem)"
)
# Nothing but articles, or a verb and up to four words that tell what kind of thing is to be made.
_NEW = rf"(?:{_MAKE} (?:me |us )?(?:(?!(?:about|on|for|of|to|with)\b)[\w-]+ ){{0,4}}?|{_A}(?:\d+ )?)"
_REST = r"\b(?P<rest>.*)"

# -- the table ------------------------------------------------------------------------------------------------------

# The first that understands a clause has it: what is special comes before what is general.
INTENTS = (
    _intent(
        actions.delegate,
        rf"{_HAND} (?:(?:it|this|a task|something|work|the following|the task) )?(?:over )?to {_A}{_AGENT}"
        r"(?:[\s,]+(?:to |and )?(?P<prompt>.+))?",
        rf"{_HAND} (?P<prompt>.+?) (?:over |on |off )?to {_A}{_AGENT}",
        rf"(?:(?:ask|tell|get|have|let|make|instruct|use|using|start|spawn|launch|send|call|create|with) )?{_A}{_AGENT}"
        r"(?:[\s,]+(?:to |for |and (?:have|let) it |(?P<that>(?:that|which|who) ))?(?P<prompt>.+))?",
        r"ask (?:a|an|the|your|my) (?P<agent>[\w-]+) (?:to|about) (?P<prompt>.+)",
        rf"(?P<prompt>.+?)[\s,]+(?:using|with(?: the help of)?|via|through|by) (?:a|an|the|your|one) {_AGENT}",
        r"@(?P<agent>[\w-]+)[\s,]+(?P<prompt>.+)",
        r"delegate(?: (?P<prompt>.+))?",
        takes_rest=True,
    ),
    _intent(
        actions.ask_for_approval,
        rf"(?:ask|request|get|seek|require|wait|need|trigger|show|test|demonstrate|see)\b.{{0,80}}?\b{_APPROVAL}\b.*",
        r"(?:do|perform|run|execute|start)\b.{0,80}?\b(?:ask|need|requir|get|wait|with my|after my)\w*\b.{0,40}?"
        rf"\b{_APPROVAL}\b.*",
        r"(?:ask|check with) (?:me|us|the user) (?:first|before)\b.*",
        r"before .{0,80}?\bask (?:me|us|the user)\b.*",
        r"(?:(?:a|an|the|my) )?(?:approv(?:e|al|ing)|confirmation)\b.*",
        takes_rest=True,
    ),
    _intent(actions.ask_user, r"ask (?:me|us|the user)\b(?P<question>.*)", takes_rest=True),
    _intent(
        actions.plan,
        r"(?:break|split|divide)(?:ing)? (?P<topic>.+?) (?:down |up )?into (?:\w+ )?(?:todos?|to-dos?|steps|tasks)",
        rf"(?:plan|planning|organi[sz](?:e|ing)|(?:what are|use|using|track|work out) {_A}{_TODOS})\b"
        r"(?: to (?:plan|organi[sz]e))?"
        rf"(?P<topic>(?: .+?)??)(?P<rest>(?: (?:to|in|into|as) (?:a )?(?:file )?{ASIDE})?)",
        rf"{_NEW}{_TODOS}{_REST}",
        takes_rest=True,
    ),
    _intent(
        actions.write_file,
        rf"{_WRITE} (?:.{{0,80}}? )??(?P<path>{ASIDE}),? {_SAYING}(?: (?P<content>.+))?",
        rf"{_WRITE} .{{0,40}}?\bfile (?:called|named) (?P<bare>[\w-]+),? {_SAYING} (?P<content>.+)",
    ),
    _intent(actions.make_slides, rf"{_NEW}{_SLIDES}{_REST}"),
    _intent(actions.make_table, rf"{_NEW}{_TABLE}{_REST}"),
    _intent(actions.make_document, rf"{_NEW}{_DOCUMENT}{_REST}"),
    _intent(
        actions.edit_file,
        rf"{_REPLACE} (?P<old>.+?) (?:{_IN}|of|from) {_FILE},? {_BY} (?P<new>.+)",
        rf"substitute (?P<new>.+?) for (?P<old>.+?) {_IN} {_FILE}",
        rf"{_REPLACE} (?P<old>.+?) {_BY} (?P<new>.+?) (?:{_IN}|of|from) {_FILE}",
        rf"(?:{_REPLACE}|open|in|go to) {_FILE}[\s,]*(?:(?:and|by|to) )?{_REPLACE} (?P<old>.+?) {_BY} (?P<new>.+)",
        rf"(?:{_REPLACE}|make) {_FILE} so (?:that )?(?P<old>.+?) (?:becomes|is|reads|turns into) (?P<new>.+)",
        rf"make {_FILE} say (?P<new>.+?) instead of (?P<old>.+)",
        rf"{_REPLACE} (?P<old>.+?) {_BY} (?P<new>.+?)(?: (?:in|inside) (?:it|there|that file|the file))?",
        takes_colon=True,
    ),
    _intent(actions.ask_for_edit, rf"{_REPLACE} {_FILE}", r"edit (?:a|the|this|that) file"),
    _intent(
        actions.write_file,
        rf"{_WRITE} (?P<content>(?!(?:a|an|the) (?:new )?file\b).+?) (?:to|in|into|as|inside|on) {_FILE}",
        rf"{_WRITE} (?:.{{0,80}}? )?(?P<path>{ASIDE})",
        rf"{_WRITE} .{{0,40}}?\bfile (?:called|named) (?P<bare>[\w-]+)",
        rf"{_WRITE} (?P<content>(?!(?:a|an|the) (?:new )?file\b).+?) (?:to|in|into) (?:a|the) (?:new )?file",
        rf"{_WRITE} (?:a|the) (?:new |empty |blank )*file(?: {_SAYING} (?P<content>.+))?",
    ),
    _intent(
        actions.find_files,
        rf"(?:find|locate|(?:search|look) for|list|show|which|what|(?:are|is) there|where(?: is| are)?) {_A}"
        rf"(?P<kind>{'|'.join(actions.KINDS)}) files?\b.*",
        rf"(?:(?P<find>find|locate|(?:search|look) for|where(?: is| are)?|glob)|list|show|which|what|(?:are|is) there)"
        rf" {_A}(?P<called>files? (?:called|named|matching|like|ending (?:in|with)) )?(?:file )?(?P<name>{ASIDE})"
        r"(?P<files> files?\b.*)?(?: is| are)?",
        takes_colon=True,
    ),
    _intent(
        actions.search_files,
        rf"(?:{_SEEK}|check|go)(?: {_IN})? (?P<where>{_A}(?:{_FILES}|(?:folder |directory )?{ASIDE}"
        rf"|[\w-]+(?: folder| directory)?)(?: {_IN} .+?)?) for (?P<text>.+)",
        rf"(?:(?:do|run|perform|start) )?(?:a )?(?:{_SEEK} for|search|grep|rg|look up) (?P<text>.+?)"
        rf"(?: {_IN} (?P<where>.+))?",
        rf"(?:find|locate) (?!where\b)(?P<text>.+?)(?: {_IN} (?P<where>.+))?",
        r"(?:which|what|any|are there(?: any)?|is there(?: a| any)?|does any|do any)(?: of (?:the|my|your))?"
        r" (?:files?|documents?|lines?)(?: (?:that|which))? (?:contains?|containing|mentions?|mentioning|has|have|says?"
        r"|uses?|using|includes?|including|with|talks? about|refers? to) (?P<text>.+)",
        r"where (?:is|are|does|do|did|was|can i find) (?P<text>.+?)"
        r"(?: (?:mentioned|used|defined|written|found|appears?|occurs?|shows? up))?(?: in (?:the|my|these) \w+)?",
        r"(?:find )?where (?P<text>.+?) (?:is|are|was) (?:mentioned|used|defined|written|found)",
        takes_colon=True,
    ),
    _intent(
        actions.run,
        r"[$!>]\s*(?P<command>.+)",
        rf"{_RUN}(?: (?:(?:the|this|a|following|shell|bash|terminal) )*(?:command|cmd|command line|following))?"
        rf"(?: (?P<command>.+?))?(?: (?:in|on) {_SHELL})?",
        rf"(?:use|using|in|with|from|on|via|open) {_SHELL}[\s,]*(?:to |and )?(?:{_RUN}|do|type|try)? ?(?P<command>.+)",
    ),
    _intent(
        actions.run_quoted,
        rf"(?:(?:type|enter|do|start|call|perform) )?(?:the |a )?(?:command )?(?P<command>{ASIDE})",
        rf"(?:what|how)\b.*?(?P<command>{ASIDE}).*",
        rf"(?:the )?(?:output|result) of (?:the command )?(?P<command>{ASIDE})",
    ),
    _intent(
        actions.read_files,
        rf"{_LOOK}\b.*?(?P<path>{ASIDE}).*",
        rf"(?:what|how|which)\b.*?(?P<path>{ASIDE}).*",
        rf"{_A}(?:(?:contents?|text|beginning|(?:first )?\d* ?lines?|file) )?(?:of |in |from )?{_FILE}"
        rf"(?:(?:,| and|, and) {ASIDE})*",
        rf"{_LOOK} (?P<it>it|that|this|them|(?:the|that|this) file)(?: back| again| out| aloud| to me)*",
        rf"{_LOOK} (?:the )?file (?:called |named )?(?P<bare>[\w-]+)",
        takes_colon=True,
    ),
    _intent(
        actions.list_files,
        rf"(?:ls|dir|ll)(?: -\w+)*(?: (?P<path>{ASIDE}|[\w-]+))?",
        rf"(?:{_LOOK}|list(?:ing)?|enumerate|browse|explore|name|find) (?:(?:me|us|out|all|any|every|the|of|my|your"
        r"|our|these|this|a|list|names?|current|available|existing|there|each|working) )*"
        rf"(?P<rest>(?:(?:{_FILES}|contents?|everything|project)\b|(?:{ASIDE}|[\w-]+) (?:folder|directory)\b).*)",
        rf"(?:list(?:ing)?|browse|explore)(?: (?P<path>{ASIDE}))?",
        rf"(?:check )?(?:what|which)\b(?P<rest>.*?\b(?:{_FILES}|project|here)\b.*)",
        rf"(?:(?:the|any|all|a|an|list of|overview of|my|your|names of|every|each) )*(?P<rest>(?:{_FILES}|contents?)"
        r"(?: (?:in|of|under|inside|here|there|within|available|you|we|i|do|are|that|from)\b.*)?)",
        takes_colon=True,
    ),
)

# A text is cut in two only before one of these.
OPENING = re.compile(
    rf"(?:{_MAKE}|{_LOOK}|{_WRITE}|{_REPLACE}|{_HAND}|{_RUN}|{_SEEK}|list(?:ing)?|ls|find|locate|plan|ask|tell|have|let"
    r"|use|what|which|where|request)\b",
    re.IGNORECASE,
)
SMALL_TALK = re.compile(
    r"(?:thanks?|thank you|bye|(?:who|what) are you|what (?:can|do) you do|help|how are you|what is this|test|yo"
    r"|introduce yourself|what (?:can|could|may) i (?:do|ask|say)(?: here)?|how does this work)?\Z",
    re.IGNORECASE,
)
ABILITIES = (
    "list files, read a file, write a file, edit a file, search files, run a command, make slides, make a table, "
    "make a document, plan with todos, ask for approval, ask you a question and hand a task to a subagent"
)
