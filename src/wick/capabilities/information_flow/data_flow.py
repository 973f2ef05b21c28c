"""The flow of data in a program of code mode: which results of calls may have reached an argument of a call.

The analysis reads the syntax tree before the program runs. It builds a graph from each name to everything that is
assigned to it anywhere, and to the conditions of the assignment, so its answer holds for every order of execution:

- A variable is one node, in all functions. Names that may refer to the same object are changed together.
- Conditions are tests, loops, comprehensions, and everything in a `try`. If a `return`, `break`, `continue`, `raise`
  or `assert` has conditions, all calls and assignments have them, too.
- In a program that is not all understood (see `program_syntax`), everything reaches everything.

An error that ends the program is not covered: it can only prevent later calls.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import accumulate
from typing import Any

from wick._internal.tool_flow import CONTROL
from wick.capabilities.information_flow.program_syntax import FunctionNode, ProgramSyntax, list_bound

Span = tuple[int, int]  # the bytes of a call in the program
Atoms = frozenset[str | Span]  # names, and calls of tools

_NOTHING: Atoms = frozenset()
_EXITS, _RAISED = "conditions of exits", "objects in errors"
_BRANCHES = (ast.IfExp, ast.BoolOp, ast.comprehension, ast.Lambda, ast.Assert)


class DataFlow:
    """The graph of one program: what may have reached each argument of each call."""

    def __init__(self, code: str, tree: ast.Module, tools: Iterable[str]) -> None:
        self._starts = [0, *accumulate(len(line) for line in code.encode().splitlines(keepends=True))]
        self._edges = defaultdict[str | Span, set[str | Span]](set)
        self._calls: dict[Span, dict[str | int, Atoms]] = {}
        self._syntax = ProgramSyntax(tree, tools)
        self._call_names = {f"calls of {name}" for name in self._syntax.functions}
        texts = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
        self._in_texts = {part for node in texts for part in ast.walk(node)}
        self._unread = {node for node in ast.walk(tree) if isinstance(node, ast.Call)}
        if self._syntax.is_understood:
            for node in tree.body:
                self._visit(node, frozenset((_EXITS,)))
        if self._unread:  # in a program that is not understood, or in a part that is not visited
            self._calls.clear()

    def list_clean(self, span: Span, places: Mapping[str, int], tainted: Collection[Span]) -> list[str]:
        """Return the arguments of a call that no result of tainted calls can have reached, by name.

        `places` has the positions of the arguments. CONTROL is among the names if none reached its conditions. Nothing
        is clean if the place of a call is unknown.
        """
        if not tainted:
            return [*places, CONTROL]
        call = self._calls.get(span)
        if call is None or not self._calls.keys() >= {*tainted}:
            return []
        parts = {name: [call[key] for key in (name, at, "*") if key in call] for name, at in places.items()}
        parts[CONTROL] = [call[CONTROL], *parts.get(CONTROL, ())]  # an argument may have this name
        return [name for name, found in parts.items() if found and self._reach(found).isdisjoint(tainted)]

    def _reach(self, parts: Iterable[Atoms]) -> set[str | Span]:
        """Return everything that some names and calls depend on."""
        seen, left = set[str | Span](), [*_NOTHING.union(*parts)]
        while left:
            if (atom := left.pop()) not in seen:
                seen.add(atom)
                left += self._edges.get(atom, ())
        return seen

    # -- statements ---------------------------------------------------------------------------------------------------

    def _visit(self, node: Any, under: Atoms) -> None:
        """Add the edges of a statement that runs under conditions."""
        parts = [*ast.iter_child_nodes(node)]
        blocks = [part for part in parts if isinstance(part, ast.stmt | ast.ExceptHandler)]
        if not blocks:
            self._read(node, under)
            return
        heads: list[ast.AST] = [part for part in parts if part not in blocks]
        if isinstance(node, ast.For):
            heads = [ast.Assign([node.target], node.iter)]
        elif isinstance(node, ast.ExceptHandler) and node.name:
            heads.append(ast.Assign([ast.Name(node.name, ast.Store())], ast.Name(_RAISED, ast.Load())))
        elif isinstance(node, FunctionNode):  # its name stands for everything in it
            calls = frozenset((f"calls of {node.name}",))
            self._edges[node.name] |= under | calls | self._find_atoms(node)
            self._alias([f"objects of {node.name}", *self._list_objects(node)])
            under |= calls
        inner = under.union(*map(self._find_atoms, [node] if isinstance(node, ast.Try) else heads))
        for part in heads:
            self._read(part, inner)
        for part in blocks:
            self._visit(part, inner)

    def _read(self, node: ast.AST, under: Atoms) -> None:
        """Add the edges of a simple statement, or of an expression in the head of a block."""
        parts, atoms = [*ast.walk(node)], self._find_atoms(node)
        if isinstance(node, ast.Raise | ast.Assert):
            self._edges[_EXITS] |= under | atoms
            self._alias([f"objects of {_RAISED}", *self._list_objects(node)])
        elif isinstance(node, ast.Return | ast.Break | ast.Continue):  # they leave a block of their own function only
            self._edges[_EXITS] |= under - self._call_names
        if any(isinstance(part, _BRANCHES) or len(getattr(part, "ops", ())) > 1 for part in parts):
            under |= atoms  # a call in it may depend on any other part
        for part in parts:
            if isinstance(part, ast.Call):
                self._read_call(part, under)
            elif part is node or isinstance(part, ast.comprehension | ast.Lambda):
                self._bind(part, atoms | under)

    def _bind(self, node: ast.AST, atoms: Atoms) -> None:
        """Let all names that a node binds depend on some atoms, and refer to all objects in the node."""
        bound = [name for part in ast.walk(node) for name in list_bound(part)]
        for name in bound:
            self._edges[name] |= atoms
        stored = [part for part in ast.walk(node) if isinstance(part, ast.Subscript) and self._syntax.is_change(part)]
        if bound:
            self._alias(self._list_objects(node))
        if stored or isinstance(node, ast.AugAssign | ast.Delete):
            self._change(node, atoms)

    # -- calls --------------------------------------------------------------------------------------------------------

    def _read_call(self, call: ast.Call, under: Atoms) -> None:
        """Note what reaches the arguments of a call, and what it changes."""
        self._unread.discard(call)
        kind = self._syntax.classify(call)
        if kind == "tool" and call not in self._in_texts:  # where Python 3.11 has wrong places
            self._read_tool_call(call, under)
        elif kind == "change":
            self._change(call, self._find_atoms(call) | under)
        elif kind == "function":
            function = self._syntax.functions[call.func.id]  # type: ignore[attr-defined]
            self._edges[f"calls of {function.name}"] |= under
            passed = ast.Tuple([*call.args, *call.keywords, function.args])  # type: ignore[list-item]
            self._bind(passed, self._find_atoms(passed) | under)

    def _read_tool_call(self, call: ast.Call, under: Atoms) -> None:
        """Note the parts of each argument. Those after a `*`, or in a `**`, belong to any argument."""
        found = self._calls.setdefault(self._find_span(call), {CONTROL: _NOTHING})
        found[CONTROL] |= under
        starred = [isinstance(argument, ast.Starred) for argument in call.args]
        placed: list[tuple[str | int, ast.expr]] = [
            ("*" if any(starred[: at + 1]) else at, argument) for at, argument in enumerate(call.args)
        ]
        for key, argument in [*placed, *((keyword.arg or "*", keyword.value) for keyword in call.keywords)]:
            found[key] = found.get(key, _NOTHING) | self._find_atoms(argument)

    def _find_span(self, call: ast.Call) -> Span:
        end_line, end_column = call.end_lineno or call.lineno, call.end_col_offset or 0
        return self._starts[call.lineno - 1] + call.col_offset, self._starts[end_line - 1] + end_column

    def _find_atoms(self, node: ast.AST) -> Atoms:
        """Return every name and every call of a tool in a part of the program."""
        parts = [*ast.walk(node)]
        names = [part.id for part in parts if isinstance(part, ast.Name)]
        calls = [part for part in parts if isinstance(part, ast.Call) and self._syntax.classify(part) == "tool"]
        return frozenset((*names, *map(self._find_span, calls)))

    # -- objects ------------------------------------------------------------------------------------------------------

    def _list_objects(self, node: ast.AST) -> list[str]:
        """Return the atoms of all objects that a value may have. A text and the result of a tool are new objects."""
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Call) and self._syntax.classify(node) == "tool"):
            return []
        parts = [node.value] if isinstance(node, ast.Subscript) else [*ast.iter_child_nodes(node)]
        found = [name for part in parts for name in self._list_objects(part)]
        name = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else ""
        if name in self._syntax.own_names or name == _RAISED:
            self._edges[name].add(f"objects of {name}")
            found.append(f"objects of {name}")
        return found

    def _alias(self, objects: list[str]) -> None:
        """Note that some names may refer to the same object."""
        for one in objects:
            self._edges[objects[0]].add(one)
            self._edges[one].add(objects[0])

    def _change(self, node: ast.AST, atoms: Atoms) -> None:
        """Let all objects in a node depend on a change of them."""
        objects = self._list_objects(node)
        self._alias(objects)
        for one in objects:
            self._edges[one] |= atoms
