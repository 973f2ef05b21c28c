"""A linear parser for shell commands: every simple command of a text, also inside substitutions.

    parsed = parse("x=$(git log) && make > log")
    parsed.commands      git log · make, each with its words, assignments and input
    parsed.problem       the reason why the rest was not parsed; empty if all of it was

The parser accepts what bash and dash read alike. Where the two disagree, it returns both readings or gives up with a
`problem`. Each character is read once per nesting level, and `ParseBudget` bounds tokens and commands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from wick.constants import SHELL_ASSIGNMENTS, SHELL_COMMANDS, SHELL_NESTED, SHELL_REDIRECTS, SHELL_TOKENS, SHELL_WORDS
from wick.permissions.shell_lexer import (
    Redirect,
    UnclearCommand,
    Word,
    Words,
    decode_ansi,
    is_assignment,
    is_seen,
    make_word,
)

Piece = str | tuple[str]


@dataclass(slots=True)
class SimpleCommand:
    """One simple command. `extra` marks a reading that only one of the shells has."""

    start: int
    words: list[Word] = field(default_factory=list)
    assigned: list[tuple[str, Word]] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    inputs: list[Word] = field(default_factory=list)  # here-documents and here-strings
    extra: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.words or self.assigned or self.redirects)


@dataclass(slots=True)
class ParseBudget:
    """The work that one text may take, with all that is nested in it."""

    tokens: int = SHELL_TOKENS
    commands: int = SHELL_COMMANDS

    def spend(self, tokens: int = 1) -> None:
        self.tokens -= tokens
        if self.tokens < 0:
            raise UnclearCommand("it is too long or too deep to be read")


@dataclass(slots=True)
class ParsedScript:
    """The result of parsing a text."""

    commands: list[SimpleCommand] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)  # reasons why something may run that is not in `commands`
    functions: list[str] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)  # variables that loops set
    arithmetic: bool = False
    literal_code: bool = False  # quoted text contains a substitution, which arithmetic would run
    problem: str = ""

    @property
    def simple(self) -> list[Words]:
        """The words of the commands that every shell sees, in the order of the text."""
        return [tuple(row.words) for row in self.commands if row.words and not row.extra]


def parse(text: str, budget: ParseBudget | None = None) -> ParsedScript:
    """Parse a text; commands before a `problem` are returned as well."""
    parser = _Parser(text, ParsedScript(), budget or ParseBudget())
    try:
        parser.run()
    except UnclearCommand as unclear:
        parser.flush()
        parser.parsed.problem = str(unclear)
    parser.parsed.commands.sort(key=lambda row: row.start)
    return parser.parsed


_OPERATORS = "&>> <<< <<- ;;& && || |& ;; ;& &> >> >| >& <> <& << ; & | < > ( )".split()  # the longest first
_META = frozenset(" \t\n;&|<>()")
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_OPENERS = {"if": "if", "while": "loop", "until": "loop", "{": "{"}
_CLOSERS = {"fi": "if", "done": "loop", "}": "{"}
_INNER = {"then": "if", "elif": "if", "else": "if", "do": "loop"}
_BARE = re.compile(r"""[^ \t\n;&|<>()$`'"\\]+""")
_QUOTED = re.compile(r"""[^$`"\\]+""")
_BACKQUOTED = re.compile(r"""[^`\\]+""")
_COMPOUND = frozenset("{ ( if while until for case select [[ ! function".split())


class _Parser:
    """A machine over tokens. The stack holds open compounds; nested substitutions are parsed by recursion."""

    def __init__(
        self, text: str, parsed: ParsedScript, budget: ParseBudget, at: int = 0, depth: int = 0, base: int = 0
    ) -> None:
        if depth > SHELL_NESTED:
            raise UnclearCommand("it is too long or too deep to be read")
        self.text, self.at, self.depth, self.base = text, at, depth, base
        self.parsed, self.budget = parsed, budget
        self.stack: list[str] = []
        self.row = SimpleCommand(base + at)
        self.closed = False  # behind `)`, `}`, `fi`, `done` or `esac`
        self.sign = ""  # of a redirection whose target is next
        self.dash: list[Word] | None = None  # the words behind `&>`, a command of their own in dash
        self.documents: list[tuple[str, bool, bool, SimpleCommand]] = []
        self.mode = ""  # "for", "case", "in", "pattern" or "test"

    def run(self, nested: bool = False) -> None:
        """Parse to the end of the text, or of the substitution that begins here."""
        if not nested and any(char not in "\n\t" and not is_seen(char) for char in set(self.text)):
            raise UnclearCommand("it has characters that cannot be seen")
        while self.at < len(self.text):
            if self._read_token(nested):
                return
        self._end()
        if nested or self.stack or self.mode or self.documents:
            raise UnclearCommand("it is not well formed")

    def flush(self) -> None:
        """Record the command that was being read when parsing stopped."""
        if not self.row.is_empty:
            self.parsed.commands.append(self.row)

    # -- tokens -----------------------------------------------------------------------------------------------------

    def _read_token(self, nested: bool) -> bool:
        """Read one token; return True at the end of a substitution."""
        char = self.text[self.at]
        if char in " \t":
            self.at += 1
            return False
        self.budget.spend()
        if char == "\n":
            self.at += 1
            # Inside of `[[` and of the patterns of `case`, a line break is a blank.
            if self.mode not in ("case", "in", "pattern", "test") or self.documents:
                self._end()
                self._read_documents()
        elif self.text.startswith("\\\n", self.at):
            last, first = self.text[self.at - 1] if self.at else "", self.text[self.at + 2 : self.at + 3]
            if last and last in "<>&|();" and first not in (" ", "\t"):
                raise UnclearCommand("it has an operator that continues on the next line")
            self.at += 2
        elif char == "#":
            end = self.text.find("\n", self.at)
            self.at = end if end >= 0 else len(self.text)
        elif char in ";&|<>()" and not self._is_at_process():
            return self._read_operator(nested)
        else:
            self._parse_word()
        return False

    def _is_at_process(self) -> bool:
        return self.text[self.at] in "<>" and self.text.startswith("(", self.at + 1)

    def _read_operator(self, nested: bool) -> bool:
        sign = next(sign for sign in _OPERATORS if self.text.startswith(sign, self.at))
        if self.sign:
            raise UnclearCommand("it has a redirection without a target")
        if self.mode == "test":
            # In dash `[[` is a command, and an operator inside of it starts another one.
            self.at += len(sign)
            if "<" in sign or ">" in sign or sign == ";":
                raise UnclearCommand("it has a test that can be read in two ways")
            self._end_row()
            self.row.extra = True
        elif self.mode == "pattern":
            if sign not in "(|)":
                raise UnclearCommand("it has a pattern that is not plain")
            self.at += 1
            if sign == ")":
                self.mode = ""
        elif sign[0] in "<>" or sign in ("&>", "&>>"):
            self.at += len(sign)
            self.sign = sign
            if sign[0] == "&":
                self.dash = []
        elif sign == "(":
            self._open()
        elif sign == ")":
            return self._close(nested)
        else:
            self.at += len(sign)
            self._separate(sign)
        return False

    def _separate(self, sign: str) -> None:
        """End a command at `;`, `&` or `|`, or a branch of `case` at `;;`."""
        if sign[0] == ";" and sign != ";":
            if self.stack[-1:] != ["case"]:
                raise UnclearCommand("it has signs that mean something else")
            self._end()
            self.mode = "pattern"
            return
        if self.row.is_empty and not self.closed and self.mode != "for":
            raise UnclearCommand("it is not well formed")
        self._end()

    def _open(self) -> None:
        if self.closed or self.mode:
            raise UnclearCommand("it has brackets that mean something else")
        if self.row.words:  # `name ()`; the body follows as commands of its own
            end = self.at + 1
            while self.text[end : end + 1] in (" ", "\t"):
                end += 1
            plain = len(self.row.words) == 1 and self.row.words[0].fixed and not self.row.assigned
            if not plain or self.row.redirects or self.text[end : end + 1] != ")":
                raise UnclearCommand("it has brackets that mean something else")
            self.at = end + 1
            self.parsed.functions.append(self.row.words[0].text)
            self.budget.commands -= 1
            return self._start_row()
        if not self.row.is_empty:
            raise UnclearCommand("it has brackets that mean something else")
        if self.text.startswith("((", self.at):
            raise UnclearCommand("it calculates")
        self.at += 1
        self.stack.append("(")

    def _close(self, nested: bool) -> bool:
        if self.stack[-1:] == ["("]:
            self._end()
            self.stack.pop()
            self.at += 1
            self.closed = True
            return False
        if not nested or self.stack or self.mode or self.documents:
            raise UnclearCommand("it is not well formed")
        self._end()
        self.at += 1
        return True

    # -- simple commands --------------------------------------------------------------------------------------------

    def _end(self) -> None:
        if self.sign or self.mode in ("case", "in", "pattern", "test"):
            raise UnclearCommand("it is not well formed")
        if self.mode == "for":
            if len(self.row.words) < 2:
                raise UnclearCommand("it is not well formed")
            self.mode = ""
            self._start_row()
            return
        self._end_row()
        self.closed = False

    def _end_row(self) -> None:
        if self.dash:
            self._add(SimpleCommand(self.row.start, self.dash, extra=True))
        if not self.row.is_empty:
            self._add(self.row)
        self._start_row()

    def _start_row(self) -> None:
        self.dash = None
        self.row = SimpleCommand(self.base + self.at)

    def _add(self, row: SimpleCommand) -> None:
        self.budget.commands -= 1
        if self.budget.commands < 0 or len(row.words) > SHELL_WORDS:
            raise UnclearCommand("it has too many commands or words")
        self.parsed.commands.append(row)

    def _parse_word(self) -> None:
        start = self.at
        word, quoted = self._read_word()
        raw, after = self.text[start : self.at], self.text[self.at : self.at + 1]
        if self.sign:
            self._add_redirect(word, quoted)
        elif self.mode == "case":  # the word that is compared
            self.mode = "in"
        elif self.mode == "in":
            if raw != "in":
                raise UnclearCommand("it is not well formed")
            self.mode = "pattern"
        elif self.mode == "pattern":
            if raw == "esac":
                self.mode = ""
                self.stack.pop()
                self.closed = True
        elif after in ("<", ">") and not self._is_at_process() and raw.isdigit():
            if len(raw) > 1:
                raise UnclearCommand("it has a descriptor that shells read in two ways")
        elif after in ("<", ">") and raw.startswith("{"):
            raise UnclearCommand("it sets a variable")
        else:
            self._add_word(word, raw, start)

    def _add_word(self, word: Word, raw: str, start: int) -> None:
        row = self.row
        if row.is_empty:
            row.start = self.base + start
        if self.mode == "test":
            row.words.append(word)
            if len(row.words) > SHELL_WORDS:
                raise UnclearCommand("it has too many commands or words")
            if raw == "]]":
                self.mode = ""
                self._end_row()
                self.closed = True
        elif self.mode == "for":
            self._read_for_word(word, raw)
        elif row.is_empty and self._handle_reserved(raw, start):
            return
        elif self.closed:
            raise UnclearCommand("it has words behind a group")
        elif not row.words and is_assignment(raw):
            self._assign(raw, word)
        else:
            row.words.append(word)
            if len(row.words) > SHELL_WORDS:
                raise UnclearCommand("it has too many commands or words")
            if self.dash is not None:
                self.dash.append(word)

    def _assign(self, raw: str, word: Word) -> None:
        self.budget.spend(SHELL_TOKENS // SHELL_ASSIGNMENTS)
        name, _, value = raw.partition("=")
        if not value and self.text.startswith("(", self.at):
            self._read_array()
            word = Word(word.text, fixed=False)
        self.row.assigned.append(
            (name.removesuffix("+").partition("[")[0], Word(word.text.partition("=")[2], word.fixed))
        )

    def _read_array(self) -> None:
        """Read the elements of an array; their substitutions are commands."""
        self.at += 1
        while self.at < len(self.text):
            self.budget.spend()
            if self.text[self.at] == ")":
                self.at += 1
                return
            if self.text[self.at] in " \t\n":
                self.at += 1
            elif self.text[self.at] in ";&|<>(" and not self._is_at_process():
                break
            else:
                self._read_word()
        raise UnclearCommand("it is not well formed")

    def _handle_reserved(self, raw: str, start: int) -> bool:
        """Handle a word that has a meaning of its own at the start of a command; return True if it was one."""
        if raw in _OPENERS:
            self._not_closed()
            self.stack.append(_OPENERS[raw])
        elif raw in _CLOSERS:
            if self.stack[-1:] != [_CLOSERS[raw]]:
                raise UnclearCommand("it is not well formed")
            self.stack.pop()
            self.closed = True
        elif raw in _INNER:
            if self.stack[-1:] != [_INNER[raw]]:
                raise UnclearCommand("it is not well formed")
            self.closed = False
        elif raw == "esac":
            if self.stack[-1:] != ["case"]:
                raise UnclearCommand("it is not well formed")
            self.stack.pop()
            self.closed = True
        elif raw == "!" or (raw == "time" and self._peek() in _COMPOUND):
            self._not_closed()
        elif raw in ("for", "select", "case"):
            self._not_closed()
            self.stack.append("case" if raw == "case" else "loop")
            self.mode = "case" if raw == "case" else "for"
        elif raw == "function":
            self._not_closed()
            self._read_function()
        elif raw == "[[":
            self._not_closed()
            self.mode = "test"
            self.row.words.append(Word(raw))
        else:
            return False
        return True

    def _not_closed(self) -> None:
        if self.closed:
            raise UnclearCommand("it has words behind a group")

    def _peek(self) -> str:
        """Return the next unquoted word or bracket on this line."""
        at = self.at
        while self.text[at : at + 1] in (" ", "\t"):
            at += 1
        if self.text[at : at + 1] == "(":
            return "("
        end = at
        while end < len(self.text) and end < at + 10 and self.text[end] not in _META:
            end += 1
        return self.text[at:end]

    def _read_function(self) -> None:
        while self.text[self.at : self.at + 1] in (" ", "\t"):
            self.at += 1
        name, _ = self._read_word()
        if not name.text or not name.fixed:
            raise UnclearCommand("it is not well formed")
        self.parsed.functions.append(name.text)
        self.budget.commands -= 1
        if self.budget.commands < 0 or self._peek() == "function":
            raise UnclearCommand("it has too many commands or words")
        while self.text[self.at : self.at + 1] in (" ", "\t"):
            self.at += 1
        if self.text.startswith("()", self.at):
            self.at += 2
        self._start_row()

    def _read_for_word(self, word: Word, raw: str) -> None:
        words = self.row.words
        if len(words) == 1 and raw == "do":
            self.mode = ""
            self._start_row()
            return
        if (not words and not (word.fixed and set(raw) <= _NAME)) or (len(words) == 1 and raw != "in"):
            raise UnclearCommand("it is not well formed")
        words.append(word)
        if len(words) == 1:
            self.parsed.loops.append(raw)
            if self._peek() == "" and self.text[self.at :].lstrip(" \t")[:1] in (";", "\n"):
                words.append(word)  # `for name;` and `for name` at the end of a line, over the arguments

    # -- redirections -----------------------------------------------------------------------------------------------

    def _add_redirect(self, word: Word, quoted: bool) -> None:
        row, sign, self.sign = self.row, self.sign, ""
        self.budget.spend(SHELL_TOKENS // SHELL_REDIRECTS)
        if sign in ("<<", "<<-"):
            if not word.text or not word.fixed or "\n" in word.text:
                raise UnclearCommand("it has a here-document that is not plain")
            self.documents.append((word.text, quoted, sign == "<<-", row))
        elif sign == "<<<":
            row.inputs.append(word)
        row.redirects.append(Redirect(sign, word))

    def _read_documents(self) -> None:
        for delimiter, quoted, tabs, row in self.documents:
            start, lines = self.at, list[str]()
            while True:
                if self.at >= len(self.text):
                    raise UnclearCommand("it has a here-document without an end")
                end = self.text.find("\n", self.at)
                end = end if end >= 0 else len(self.text)
                line, self.at = self.text[self.at : end], end + 1
                line = line.lstrip("\t") if tabs else line
                if line == delimiter:
                    break
                lines.append(line)
                if not len(lines) % 4:
                    self.budget.spend()
            body = "".join(f"{line}\n" for line in lines)
            has_expansions = not quoted and any(sign in body for sign in "$`\\")
            if has_expansions:
                if "\\\n" in body:
                    raise UnclearCommand("it has a here-document that is not plain")
                inner = _Parser(body, self.parsed, self.budget, depth=self.depth + 1, base=self.base + start)
                inner._read_double_quoted(end="")
            row.inputs.append(Word(body, fixed=not has_expansions))
            self._note_literal(body if quoted else "")
        self.documents = []

    # -- words ------------------------------------------------------------------------------------------------------

    def _read_word(self) -> tuple[Word, bool]:
        """Return the word that begins here, and whether a part of it is quoted."""
        start, pieces, dynamic = self.at, list[Piece](), False
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in _META and not self._is_at_process():
                break
            if char == "$" or char == "`" or char in "<>":
                piece = self._expand()
            elif char == '"':
                self.at += 1
                piece = self._read_double_quoted('"')
            else:
                piece = self._read_literal(char)
            dynamic = dynamic or piece is None
            pieces.append(piece or "")
        text = self.text[start : self.at]
        if self.at == start:
            raise UnclearCommand("it is not well formed")
        quoted = any(isinstance(piece, tuple) for piece in pieces) or dynamic
        return Word(text, fixed=False, tail=_certain_tail(text)) if dynamic else make_word(*pieces), quoted

    def _read_literal(self, char: str) -> Piece:
        at = self.at
        if char == "'":
            end = self.text.find("'", at + 1)
            if end < 0:
                raise UnclearCommand("it has a quote that is left open")
            self.budget.spend(1 + (end - at) // 8)
            self.at = end + 1
            self._note_literal(self.text[at + 1 : end])
            return (self.text[at + 1 : end],)
        if char == "\\":
            after = self.text[at + 1 : at + 2]
            if not after:
                raise UnclearCommand("it ends in a backslash")
            self.budget.spend()
            self.at += 2
            self._note_literal(after if after in "$`" else "")
            return "" if after == "\n" else (after,)
        bare = _BARE.match(self.text, at + 1)
        end = bare.end() if bare else at + 1
        self.budget.spend((end - at) // 4)
        self.at = end
        return self.text[at:end]

    def _note_literal(self, text: str) -> None:
        if "$" in text or "`" in text:
            self.parsed.literal_code = True

    def _read_double_quoted(self, end: str) -> Piece | None:
        """Read to the closing quote, or to the end of a here-document; None if it has expansions."""
        parts, dynamic = list[str](), False
        escaped = '$`"\\\n' if end else "$`\\\n"
        while self.at < len(self.text):
            char = self.text[self.at]
            if end and char == end:
                self.budget.spend(1 + sum(map(len, parts)) // 8)
                self.at += 1
                return None if dynamic else ("".join(parts),)
            if char == "$" or char == "`":
                piece = self._expand(quoted=bool(end), inside=True)
                dynamic = dynamic or piece is None
                parts.append(piece if isinstance(piece, str) else "")
            elif char == "\\" and self.text[self.at + 1 : self.at + 2] in escaped and self.at + 1 < len(self.text):
                after = self.text[self.at + 1]
                self.budget.spend()
                self._note_literal(after)
                parts.append(after.strip("\n"))
                self.at += 2
            else:
                rest = _QUOTED.match(self.text, self.at + 1)
                stop = rest.end() if rest else self.at + 1
                parts.append(self.text[self.at : stop])
                self.at = stop
        if end:
            raise UnclearCommand("it has a quote that is left open")
        return None

    def _expand(self, quoted: bool = False, inside: bool = False) -> Piece | None:
        """Read an expansion; None unless it is text after all."""
        self.budget.spend()
        self.depth += 1
        if self.depth > SHELL_NESTED:
            raise UnclearCommand("it is too long or too deep to be read")
        piece = self._read_expansion(quoted, inside)
        self.depth -= 1
        return piece

    def _read_expansion(self, quoted: bool, inside: bool) -> Piece | None:
        text, at = self.text, self.at
        char, after = text[at], text[at + 1 : at + 2]
        if char == "`":
            self._read_backquoted(quoted)
        elif char in "<>":
            self.at += 2
            self._read_substitution()
        elif after == "(":
            if text.startswith("((", at + 1):
                self.at += 3
                self._read_arithmetic()
            else:
                self.at += 2
                self._read_substitution()
        elif after == "{":
            self.at += 2
            self._read_parameter(inside)
        elif after == "'" and not inside:
            return self._read_ansi()
        elif after == '"' and not inside:
            self.at += 2
            self._read_double_quoted('"')
        elif after == "[":
            raise UnclearCommand("it calculates")
        elif after and (after in _NAME or after in "?#@*!$-"):
            self.at += 2
            while not after.isdigit() and after in _NAME and self.text[self.at : self.at + 1] in _NAME_OR_NOTHING:
                if self.at >= len(self.text):
                    break
                self.at += 1
        else:
            self.at += 1
            return "$"
        return None

    def _read_ansi(self) -> Piece:
        """Read `$'…'`. Dash ends it at the first quote, bash at the first that is not escaped."""
        at = self.at + 2
        end = at
        while end < len(self.text) and self.text[end] != "'":
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            raise UnclearCommand("it has a quote that is left open")
        if "'" in self.text[at:end]:
            raise UnclearCommand("it has a quote that shells read in two ways")
        self.at = end + 1
        self.parsed.literal_code = True
        return (decode_ansi(self.text[at:end]),)

    def _read_substitution(self) -> None:
        inner = _Parser(self.text, self.parsed, self.budget, self.at, self.depth, self.base)
        try:
            inner.run(nested=True)
        except UnclearCommand:
            inner.flush()
            raise
        self.at = inner.at

    def _read_backquoted(self, quoted: bool) -> None:
        start, parts = self.at + 1, list[str]()
        at = start
        while at < len(self.text) and self.text[at] != "`":
            char, after = self.text[at], self.text[at + 1 : at + 2]
            if char == "\\" and after and after in ('$`\\"' if quoted else "$`\\"):
                parts.append(after)
                at += 2
            else:
                rest = _BACKQUOTED.match(self.text, at + 1)
                stop = rest.end() if rest else at + 1
                parts.append(self.text[at:stop])
                at = stop
        if at >= len(self.text):
            raise UnclearCommand("it has a quote that is left open")
        self.at = at + 1
        code = "".join(parts)
        self.budget.spend(1 + len(code) // 8)  # it is read once more, at each level
        inner = _Parser(code, self.parsed, self.budget, depth=self.depth + 1, base=self.base + start)
        try:
            inner.run()
        except UnclearCommand:
            inner.flush()
            raise

    def _read_parameter(self, inside: bool) -> None:
        """Read `${…}`."""
        start = self.at
        if self.text[self.at : self.at + 1] in (" ", "\t", "\n", "|", ""):
            raise UnclearCommand("it has an expansion that is not plain")
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "}":
                content = self.text[start : self.at]
                self.at += 1
                if "@" in content[1:] and content[-1:] in "PAaEKkQULu":
                    self.parsed.hidden.append("it runs a text that is not plain")
                if "[" in content or ":" in content:
                    self.parsed.arithmetic = True
                return
            if char == "$" or char == "`":
                self._expand(quoted=inside, inside=inside)
            elif char == '"':
                self.at += 1
                self._read_double_quoted('"')
            elif char == "'" and inside:
                raise UnclearCommand("it has a quote that shells read in two ways")
            elif char in "'\\":
                self._read_literal(char)
            elif char in "<>" and self._is_at_process():
                raise UnclearCommand("it has an expansion that is not plain")
            else:
                self.at += 1
        raise UnclearCommand("it is not well formed")

    def _read_arithmetic(self) -> None:
        """Read `$((…))`."""
        self.parsed.arithmetic = True
        depth = 0
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == ")" and not depth:
                if not self.text.startswith("))", self.at):
                    break
                self.at += 2
                return
            self.budget.spend()
            if char == "$" or char == "`":
                self._expand(quoted=True, inside=True)
                continue
            if char in "'\";{}\\" or (char in "<>" and self._is_at_process()):
                break
            depth += (char == "(") - (char == ")")
            self.at += 1
        raise UnclearCommand("it calculates, or runs a command in a word")


_NAME_OR_NOTHING = _NAME | {""}


def _certain_tail(text: str) -> str:
    """Return the last part of a path that is certain although the rest is not, as in `"$HOME/bin/make"`."""
    if text.startswith('"') and text.endswith('"') and text.count('"') == 2:
        head, slash, tail = text[1:-1].rpartition("/")
        inner = head
    else:
        quoted, slash, tail = text.rpartition("/")
        inner = quoted[1:-1] if quoted.startswith('"') and quoted.endswith('"') and quoted.count('"') == 2 else " "
    plain = bool(inner) and "`" not in inner and "(" not in inner and "@" not in inner and "*" not in inner
    closed = inner.count("{") == inner.count("}") and " " not in inner
    is_name = bool(tail) and all(char.isalnum() or char in "._-+" for char in tail) and tail not in (".", "..")
    return tail if slash and plain and closed and is_name else ""
