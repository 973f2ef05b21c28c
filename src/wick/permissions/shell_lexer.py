"""The words of a plain shell command, read the way a shell reads them: one character after the other.

Plain means: words, quotes, `;` `&` `&&` `||` `|`, groups, `if` and `while`, redirections, here-documents and comments.
Everything else, expansions above all, raises `UnclearCommand`. Accepted commands mean the same to bash, dash and
POSIX's sh.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field


class UnclearCommand(Exception):
    """A command is not plain; the message says why, and begins with "it"."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command. Unless `fixed`, the shell expands it, perhaps to several words."""

    text: str
    fixed: bool = True
    glob: bool = False  # the shell expands it to file names only
    tail: str = ""  # the last part of its path, where that is certain although the rest is not


Words = tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirection of input or output."""

    sign: str
    target: Word

    @property
    def writes(self) -> bool:
        return ">" in self.sign

    @property
    def is_file(self) -> bool:
        """Return True if the target is a file, and not a descriptor, a text or /dev/null."""
        text = self.target.text
        if self.sign in (">&", "<&") and (text == "-" or text.removesuffix("-").isdecimal()):
            return False
        return self.sign not in ("<<", "<<-", "<<<") and text not in FREE


FREE = ("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr")


@dataclass(slots=True)
class LexResult:
    """The simple commands of a text and its redirections, in order."""

    commands: list[Words] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)


def lex(text: str) -> LexResult:
    """Read a plain command; raise UnclearCommand if it is not plain."""
    return _Lexer(text).run()


def make_word(*pieces: str | tuple[str]) -> Word:
    """Build a word from plain text that the shell expands, and from quoted text, given as tuples."""
    text = "".join(piece if isinstance(piece, str) else piece[0] for piece in pieces)
    bare = "".join(piece if isinstance(piece, str) else "\0" * len(piece[0]) for piece in pieces)
    braces = "{" in bare and ("," in bare or ".." in bare)
    if braces or bare[:1] in ("~", "=") or ":~" in bare or "=~" in bare:
        home = not braces and bare[:1] == "~" and not any(sign in bare for sign in "*?[=:")
        tail = text.rpartition("/")[2] if home and "/" in bare else ""
        return Word(text, fixed=False, tail="" if tail in (".", "..") else tail)
    globs = "*" in bare or "?" in bare or "]" in bare.partition("[")[2]
    return Word(text, fixed=not globs, glob=globs)


_SIGNS = "&>> <<< <<- && || |& &> >> >| >& <> <& << ; & | < > ( )".split()  # the longest first
_GO_ON = frozenset("if then elif else while until do ! {".split())
_CLOSE = frozenset("fi done }".split())
_OTHER = frozenset("for case esac select function coproc [[ ]] in".split())
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


class _Lexer:
    def __init__(self, text: str) -> None:
        for char in set(text):
            if char not in "\n\t" and not is_seen(char):
                raise UnclearCommand("it has characters that cannot be seen")
        self.text, self.at = text, 0
        self.done = LexResult()
        self.words: list[Word] = []
        self.closed = False  # behind `)`, `}`, `fi` or `done`
        self.sign = ""  # of a redirection whose target comes next
        self.ambiguous = False  # behind `&>`, which dash reads as the end of a command and `>`
        self.delimiters: list[tuple[str, bool, bool]] = []  # of here-documents that begin with the next line

    def run(self) -> LexResult:
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t":
                self.at += 1
            elif char == "\n":
                self._end_command()
                self.at += 1
                self._skip_documents()
            elif self.text.startswith("\\\n", self.at):
                # An escaped newline between two operators may join them to one.
                last, first = self.text[self.at - 1] if self.at else "", self.text[self.at + 2 : self.at + 3]
                if last and last in "<>&|();" and first not in (" ", "\t"):
                    raise UnclearCommand("it has an operator that continues on the next line")
                self.at += 2
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.at = end if end >= 0 else len(self.text)
            elif char in ";&|<>()":
                self._read_operator()
            else:
                self._read_word()
        self._end_command()
        if self.delimiters:
            raise UnclearCommand("it has a here-document without an end")
        return self.done

    def _read_operator(self) -> None:
        sign = next(sign for sign in _SIGNS if self.text.startswith(sign, self.at))
        self.at += len(sign)
        after = self.text[self.at : self.at + 1]
        if (sign in ";&|" and after in (";", "&", "|")) or (sign in "<>(" and after == "("):
            raise UnclearCommand("it has a command in place of a file, or signs that mean something else")
        if self.sign:
            raise UnclearCommand("it has a redirection without a target")
        if sign[0] in "<>" or sign in ("&>", "&>>"):
            self.sign = sign
            self.ambiguous = self.ambiguous or sign[0] == "&"
        elif sign == "(":
            if self.words or self.closed:
                raise UnclearCommand("it has brackets that mean something else")
        else:
            self._end_command()
            self.closed = sign == ")"

    def _end_command(self) -> None:
        if self.sign:
            raise UnclearCommand("it has a redirection without a target")
        if self.words:
            self.done.commands.append(tuple(self.words))
        self.words, self.closed, self.ambiguous = [], False, False

    def _read_word(self) -> None:
        start, pieces = self.at, list[str | tuple[str]]()
        while self.at < len(self.text) and self.text[self.at] not in " \t\n;&|<>()":
            self._read_piece(pieces)
        word, raw = make_word(*pieces), self.text[start : self.at]
        if self.sign:
            if self.sign in ("<<", "<<-"):
                if not word.text or not word.fixed or "\n" in word.text:
                    raise UnclearCommand("it has a here-document that is not plain")
                quoted = any(isinstance(piece, tuple) for piece in pieces)
                self.delimiters.append((word.text, quoted, self.sign == "<<-"))
            self.done.redirects.append(Redirect(self.sign, word))
            self.sign = ""
        elif raw.isdigit() and self.text[self.at : self.at + 1] in ("<", ">"):
            return  # the number of a descriptor
        elif raw.startswith("{") and self.text[self.at : self.at + 1] in ("<", ">"):
            raise UnclearCommand("it sets a variable")
        elif not self.words and raw in _OTHER:
            raise UnclearCommand("it compares, loops or defines something")
        elif not self.words and raw in _CLOSE:
            self.closed = True
        elif self.closed:
            raise UnclearCommand("it has words behind a group")
        elif self.ambiguous:
            raise UnclearCommand("it has a redirection that shells read in two ways")
        elif not self.words and is_assignment(raw):
            raise UnclearCommand("it sets a variable")
        elif self.words or raw not in _GO_ON:
            self.words.append(word)

    def _read_piece(self, pieces: list[str | tuple[str]]) -> None:
        char = self.text[self.at]
        if char in "$`":
            raise UnclearCommand("it uses a variable, or has a command inside of a word")
        if char == "'":
            end = self.text.find("'", self.at + 1)
            if end < 0:
                raise UnclearCommand("it has a quote that is left open")
            pieces.append((self.text[self.at + 1 : end],))
            self.at = end + 1
        elif char == '"':
            pieces.append((self._read_quoted(),))
        elif char == "\\":
            after = self.text[self.at + 1 : self.at + 2]
            if not after:
                raise UnclearCommand("it ends in a backslash")
            if after != "\n":
                pieces.append((after,))
            self.at += 2
        else:
            pieces.append(char)
            self.at += 1

    def _read_quoted(self) -> str:
        """Read a text in double quotes."""
        parts, at = list[str](), self.at + 1
        while at < len(self.text) and self.text[at] != '"':
            char, after = self.text[at], self.text[at + 1 : at + 2]
            if char in "$`":
                raise UnclearCommand("it uses a variable, or has a command inside of a word")
            if char == "\\" and after in ("$", "`", '"', "\\", "\n") and after:
                parts.append(after.strip("\n"))
                at += 2
            else:
                parts.append(char)
                at += 1
        if at >= len(self.text):
            raise UnclearCommand("it has a quote that is left open")
        self.at = at + 1
        return "".join(parts)

    def _skip_documents(self) -> None:
        """Skip the here-documents that begin with the next line."""
        for delimiter, quoted, tabs in self.delimiters:
            while True:
                if self.at >= len(self.text):
                    raise UnclearCommand("it has a here-document without an end")
                end = self.text.find("\n", self.at)
                end = end if end >= 0 else len(self.text)
                line, self.at = self.text[self.at : end], end + 1
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    break
                if not quoted and any(sign in line for sign in "$`\\"):
                    raise UnclearCommand("it uses a variable in a here-document, or has a command there")
        self.delimiters = []


def is_seen(char: str) -> bool:
    """Return True unless a character is a control character, an unusual blank or a surrogate."""
    return char == " " or not (ord(char) < 32 or ord(char) == 127 or char.isspace() or "\ud800" <= char <= "\udfff")


def is_assignment(raw: str) -> bool:
    """Return True if a word is NAME=…, NAME+=… or NAME[…]=…"""
    name, equals, _ = raw.partition("=")
    name = name.removesuffix("+").partition("[")[0]
    return bool(equals and name) and not name[0].isdigit() and set(name) <= _NAME


_ANSI = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)
_LETTERS = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))


def decode_ansi(text: str) -> str:
    """Decode the text inside of `$'…'` as bash does."""

    def char(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "xuU" and len(code) > 1:
            return chr(min(int(code[1:], 16), 0x10FFFF))
        if code[0] in "01234567":
            return chr(int(code, 8) & 0xFF)
        return chr(ord(code[1]) & 0x1F) if code[0] == "c" and len(code) > 1 else _LETTERS.get(code, code)

    return _ANSI.sub(char, text)
