"""What the grammar of bash sees in a command: tree-sitter's, which reads everything, and some things too lightly."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from wick.constants import SHELL_DEPTH
from wick.errors import MissingExtra
from wick.permissions.shell_lexer import Redirect, Unclear, Word, Words, decode_ansi, made

UNKNOWN = Word("…", fixed=False)  # any words at all


@lru_cache(maxsize=1)
def grammar() -> Any:
    """The grammar of bash; MissingExtra if its package is not installed."""
    try:
        import tree_sitter
        import tree_sitter_bash
    except ImportError:
        raise MissingExtra("permissions", "tree-sitter-bash", "reading shell commands") from None
    return tree_sitter.Language(tree_sitter_bash.language())


@dataclass(slots=True)
class Found:
    """A simple command, with the bytes of the text that it begins and ends at."""

    start: int
    end: int
    words: Words


@dataclass(slots=True)
class Seen:
    """What is in a text. `hidden` are parts that may run anything, each with a reason and how it is written."""

    found: list[Found] = field(default_factory=list)
    behind: list[tuple[int, list[Word]]] = field(default_factory=list)  # words behind the target of a redirection
    named: list[Words] = field(default_factory=list)  # commands that the grammar has a word of its own for
    redirects: list[Redirect] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)  # texts that commands are fed with
    opaque: list[str] = field(default_factory=list)
    hidden: list[tuple[str, str]] = field(default_factory=list)

    @property
    def commands(self) -> list[Words]:
        """The simple commands in the order of the text."""
        return [found.words for found in sorted(self.found, key=lambda found: found.start)]

    def join(self) -> None:
        """Give the words behind a redirection to the command that they belong to."""
        for start, words in self.behind:
            owner = max((found for found in self.found if found.end <= start), key=lambda row: row.end, default=None)
            if owner is None:
                self.found.append(Found(start, start, tuple(words)))
            else:
                owner.words = (*owner.words, *words)


def look(text: str) -> Seen:
    """Look at a whole text, and into every word of it."""
    import tree_sitter

    seen = Seen()
    root = tree_sitter.Parser(grammar()).parse(text.encode("utf-8", "surrogatepass")).root_node
    if root.has_error:
        seen.hidden.append(("it is not well formed", "…"))
    _visit(root, seen)
    seen.join()
    return seen


_STRUCTURE = frozenset(
    "program list pipeline subshell compound_statement negated_command redirected_statement if_statement elif_clause"
    " else_clause while_statement do_group comment word number string raw_string string_content concatenation"
    " command_name file_descriptor heredoc_start heredoc_body heredoc_end heredoc_content variable_name"
    " special_variable_name".split()
)
_OPAQUE = {
    "ERROR": "it is not well formed",
    "ansi_c_string": "it has a text in escapes",
    "arithmetic_expansion": "it calculates",
    "c_style_for_statement": "it sets a variable",
    "case_statement": "it compares patterns",
    "command_substitution": "it has a command inside of a word",
    "declaration_command": "it sets a variable",
    "expansion": "it uses a variable",
    "for_statement": "it sets a variable",
    "function_definition": "it defines a function",
    "process_substitution": "it has a command in place of a file",
    "simple_expansion": "it uses a variable",
    "test_command": "it has a test that may calculate",
    "translated_string": "it has a text that is translated",
    "unset_command": "it sets a variable",
    "variable_assignment": "it sets a variable",
}
_NAMED = {"declaration_command", "unset_command", "test_command"}
_CALCULATES = _NAMED | {"arithmetic_expansion", "expansion", "translated_string", "variable_assignment"}


def _visit(node: Any, seen: Seen, depth: int = 0) -> None:
    if depth > SHELL_DEPTH:
        return seen.hidden.append(("it is too deep to be read", "…"))
    if node.type in _OPAQUE:
        _note(node, seen)
    elif node.is_missing:
        seen.hidden.append(("it is not well formed", "…"))
    elif node.type == "command":
        _command(node, seen)
    elif node.type == "file_redirect":
        _redirect(node, seen)
    elif node.type in ("heredoc_redirect", "herestring_redirect"):
        _input(node, seen)
    elif node.type == "word" and "\n" in _text(node):  # the line has ended, and the grammar did not notice
        seen.hidden.append(("it can be read in two ways", _text(node)))
    elif node.type == "compound_statement" and node.children[0].type == "((":
        seen.hidden.append(("it calculates", _text(node)))
    elif node.is_named and node.type not in _STRUCTURE:
        seen.opaque.append(f"it has {node.type.replace('_', ' ')}s")
    for child in node.children:
        _visit(child, seen, depth + 1)


def _note(node: Any, seen: Seen) -> None:
    seen.opaque.append(_OPAQUE[node.type])
    text = _text(node)
    if node.type in _NAMED:
        seen.named.append((made(text.split()[0]), UNKNOWN))
    if node.type in _CALCULATES and any(map(_runs, _leaves(node))):
        seen.hidden.append(("it calculates with a text", text))


def _command(node: Any, seen: Seen) -> None:
    words = tuple(_word(child) for child in node.children if child.is_named and child.type in _WORDS)
    if words:
        seen.found.append(Found(node.start_byte, node.end_byte, words))


def _redirect(node: Any, seen: Seen) -> None:
    sign = next((child.type for child in node.children if not child.is_named), "")
    named = [child for child in node.children if child.is_named and child.type != "file_descriptor"]
    for target in named[:1]:
        seen.redirects.append(Redirect(sign, _word(target)))
    if named[1:]:  # the grammar takes the words behind a target for targets; they belong to the command
        seen.behind.append((node.start_byte, [_word(child) for child in named[1:]]))


def _input(node: Any, seen: Seen) -> None:
    start = "".join(_text(child) for child in node.children if child.type == "heredoc_start")
    for child in node.children:
        if child.type == "heredoc_body":
            seen.inputs.append(_text(child))
            if "\\\n" in start or (not re.search(r"[\\'\"]", start) and re.search(r"[`\\]", _text(child))):
                seen.hidden.append(("it has a here-document that is not plain", "…"))
        elif node.type == "herestring_redirect" and child.is_named:
            seen.inputs.append(_word(child).text)


def _leaves(node: Any) -> Iterator[Any]:
    todo = [node]
    while todo:
        found = todo.pop()
        todo += found.children
        if not found.children:
            yield found


def _runs(leaf: Any) -> bool:
    """Whether a text may run something when it is calculated with: `a[$(rm x)]` does, whatever the quotes."""
    return (leaf.is_named and re.search(r"`|\$\(", _text(leaf)) is not None) or leaf.type in ("@", "@P")


_WORDS = frozenset(
    "command_name word number string raw_string ansi_c_string concatenation simple_expansion expansion"
    " command_substitution process_substitution arithmetic_expansion brace_expression translated_string"
    " extglob_pattern regex".split()
)


def _text(node: Any) -> str:
    return str(node.text.decode("utf-8", "replace"))


def _word(node: Any) -> Word:
    """A word as the command gets it."""
    try:
        return made(*_pieces(node))
    except Unclear:
        return Word(_text(node), fixed=False)


def _pieces(node: Any) -> Iterator[str | tuple[str]]:
    """The characters of a word: texts that the shell looks at, and texts in quotes, each in a tuple."""
    text = _text(node)
    if node.type in ("command_name", "concatenation"):
        end = node.start_byte
        for child in node.children:
            if child.start_byte != end:
                raise Unclear("a word is in pieces")
            yield from _pieces(child)
            end = child.end_byte
    elif node.type in ("word", "number"):
        yield from _escaped(text)
    elif node.type == "raw_string":
        yield (text[1:-1],)
    elif node.type == "string" and all(child.type in ('"', "string_content") for child in node.children):
        yield (re.sub(r'\\([$`"\\\n])', lambda found: found[1].strip("\n"), text[1:-1]),)
    elif node.type == "ansi_c_string":
        yield (decode_ansi(text[2:-1]),)
    else:
        raise Unclear("a word is not plain")


def _escaped(text: str) -> Iterator[str | tuple[str]]:
    at = 0
    while at < len(text):
        if text[at] != "\\":
            yield text[at]
            at += 1
        else:
            if text[at + 1 : at + 2] != "\n":
                yield (text[at + 1 : at + 2],)
            at += 2
