"""Commands of a shell text by tree-sitter's bash grammar, which accepts everything and some things too readily."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from wick.constants import SHELL_DEPTH
from wick.errors import MissingExtra
from wick.permissions.shell_lexer import Redirect, UnclearCommand, Word, Words, decode_ansi, make_word

UNKNOWN = Word("…", fixed=False)  # any words at all


@lru_cache(maxsize=1)
def load_grammar() -> Any:
    """Return the grammar of bash; raise MissingExtra if its package is not installed."""
    try:
        import tree_sitter
        import tree_sitter_bash
    except ImportError:
        raise MissingExtra("permissions", "tree-sitter-bash", "reading shell commands") from None
    return tree_sitter.Language(tree_sitter_bash.language())


@dataclass(slots=True)
class GrammarCommand:
    """A simple command, with its start and end as byte offsets of the text."""

    start: int
    end: int
    words: Words


@dataclass(slots=True)
class GrammarScan:
    """The commands of a text. `hidden` are parts that may run anything: pairs of reason and source text."""

    found: list[GrammarCommand] = field(default_factory=list)
    trailing: list[tuple[int, list[Word]]] = field(default_factory=list)  # words after the target of a redirection
    named: list[Words] = field(default_factory=list)  # commands that are keywords of the grammar
    redirects: list[Redirect] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)  # texts on the stdin of commands
    opaque: list[str] = field(default_factory=list)
    hidden: list[tuple[str, str]] = field(default_factory=list)

    @property
    def commands(self) -> list[Words]:
        """The simple commands in the order of the text."""
        return [found.words for found in sorted(self.found, key=lambda found: found.start)]

    def attach_trailing_words(self) -> None:
        """Append the words after a redirection to the command that they belong to."""
        for start, words in self.trailing:
            owner = max((found for found in self.found if found.end <= start), key=lambda row: row.end, default=None)
            if owner is None:
                self.found.append(GrammarCommand(start, start, tuple(words)))
            else:
                owner.words = (*owner.words, *words)


def scan_text(text: str) -> GrammarScan:
    """Parse a text and collect the commands in it, also those inside of words."""
    import tree_sitter

    seen = GrammarScan()
    root = tree_sitter.Parser(load_grammar()).parse(text.encode("utf-8", "surrogatepass")).root_node
    if root.has_error:
        seen.hidden.append(("it is not well formed", "…"))
    _visit(root, seen)
    seen.attach_trailing_words()
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


def _visit(node: Any, seen: GrammarScan, depth: int = 0) -> None:
    if depth > SHELL_DEPTH:
        return seen.hidden.append(("it is too deep to be read", "…"))
    if node.type in _OPAQUE:
        seen.opaque.append(_OPAQUE[node.type])
        if node.type in _NAMED:
            seen.named.append((make_word(_node_text(node).split()[0]), UNKNOWN))
        if node.type in _CALCULATES and _can_run_code(node):
            seen.hidden.append(("it calculates with a text", _node_text(node)))
    elif node.is_missing:
        seen.hidden.append(("it is not well formed", "…"))
    elif node.type == "command":
        words = tuple(_node_word(child) for child in node.children if child.is_named and child.type in _WORDS)
        if words:
            seen.found.append(GrammarCommand(node.start_byte, node.end_byte, words))
    elif node.type == "file_redirect":
        sign = next((child.type for child in node.children if not child.is_named), "")
        targets = [child for child in node.children if child.is_named and child.type != "file_descriptor"]
        seen.redirects += [Redirect(sign, _node_word(target)) for target in targets[:1]]
        if targets[1:]:  # the grammar takes the words after a target for targets, too
            seen.trailing.append((node.start_byte, [_node_word(child) for child in targets[1:]]))
    elif node.type in ("heredoc_redirect", "herestring_redirect"):
        _record_input(node, seen)
    elif node.type == "word" and "\n" in _node_text(node):  # the grammar missed the end of the line
        seen.hidden.append(("it can be read in two ways", _node_text(node)))
    elif node.type == "compound_statement" and node.children[0].type == "((":
        seen.hidden.append(("it calculates", _node_text(node)))
    elif node.is_named and node.type not in _STRUCTURE:
        seen.opaque.append(f"it has {node.type.replace('_', ' ')}s")
    for child in node.children:
        _visit(child, seen, depth + 1)


def _record_input(node: Any, seen: GrammarScan) -> None:
    start = "".join(_node_text(child) for child in node.children if child.type == "heredoc_start")
    for child in node.children:
        if child.type == "heredoc_body":
            seen.inputs.append(_node_text(child))
            if "\\\n" in start or (not re.search(r"[\\'\"]", start) and re.search(r"[`\\]", _node_text(child))):
                seen.hidden.append(("it has a here-document that is not plain", "…"))
        elif node.type == "herestring_redirect" and child.is_named:
            seen.inputs.append(_node_word(child).text)


def _can_run_code(node: Any) -> bool:
    """Return True if arithmetic evaluation of a text may run a command: `a[$(rm x)]` does, also in quotes."""
    todo = [node]
    while todo:
        node = todo.pop()
        if node.children:
            todo += node.children
        elif node.type in ("@", "@P") or (node.is_named and re.search(r"`|\$\(", _node_text(node))):
            return True
    return False


_WORDS = frozenset(
    "command_name word number string raw_string ansi_c_string concatenation simple_expansion expansion"
    " command_substitution process_substitution arithmetic_expansion brace_expression translated_string"
    " extglob_pattern regex".split()
)


def _node_text(node: Any) -> str:
    return str(node.text.decode("utf-8", "replace"))


def _node_word(node: Any) -> Word:
    """Return a word as the command receives it."""
    try:
        return make_word(*_word_pieces(node))
    except UnclearCommand:
        return Word(_node_text(node), fixed=False)


def _word_pieces(node: Any) -> Iterator[str | tuple[str]]:
    """Yield the pieces of a word: plain text that the shell expands, and quoted text as a tuple."""
    text = _node_text(node)
    if node.type in ("command_name", "concatenation"):
        end = node.start_byte
        for child in node.children:
            if child.start_byte != end:
                raise UnclearCommand("a word is in pieces")
            yield from _word_pieces(child)
            end = child.end_byte
    elif node.type in ("word", "number"):
        yield from _unescape(text)
    elif node.type == "raw_string":
        yield (text[1:-1],)
    elif node.type == "string" and all(child.type in ('"', "string_content") for child in node.children):
        yield (re.sub(r'\\([$`"\\\n])', lambda match: match[1].strip("\n"), text[1:-1]),)
    elif node.type == "ansi_c_string":
        yield (decode_ansi(text[2:-1]),)
    else:
        raise UnclearCommand("a word is not plain")


def _unescape(text: str) -> Iterator[str | tuple[str]]:
    at = 0
    while at < len(text):
        if text[at] != "\\":
            yield text[at]
            at += 1
        else:
            if text[at + 1 : at + 2] != "\n":
                yield (text[at + 1 : at + 2],)
            at += 2
