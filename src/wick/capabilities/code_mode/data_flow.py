"""The flow of data in a program: which results of calls may have reached an argument of a call.

The analysis reads the syntax tree before the program runs. It builds a graph from names to everything that is assigned
to them anywhere, and to the conditions of the assignment, so its answer holds for every order of execution:

- A variable is one node, in all functions. Names that may refer to the same object are changed together.
- Conditions are tests, loops, comprehensions, and each statement of a `try`. If a `return`, `break`, `continue`,
  `raise` or `assert` has conditions, all calls and assignments have them, too.
- In a program that is not all understood (see `flow_syntax`), everything reaches everything.

An error that ends the program is not covered: it can only prevent later calls.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from wick._internal.tool_flow import CONTROL
from wick.capabilities.code_mode.flow_syntax import FunctionNode, ProgramSyntax

Span = tuple[int, int]  # the bytes of a call in the program
Atoms = frozenset[str | Span]  # names, and calls of tools

_NOTHING: Atoms = frozenset()
_EXITS, _RAISED = "conditions of exits", "objects in errors"
_BRANCHES = (ast.IfExp, ast.BoolOp, ast.comprehension, ast.Lambda, ast.Assert)
_EXITING = (ast.Return, ast.Break, ast.Continue, ast.Raise, ast.Assert)


class DataFlow:
    """The graph of one program: what may have reached each argument of each call."""

    def __init__(self, code: str, tree: ast.Module, tools: Iterable[str]) -> None:
        self._code, self._starts = code.encode(), [0]
        for line in self._code.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._edges: dict[str, set[str | Span]] = {}
        self._changes: list[tuple[str, Atoms]] = []  # names whose objects are changed in place
        self._groups: dict[str, str] = {}  # names that may refer to the same object, each with another one
        self._calls: dict[Span, dict[str | int, Atoms]] = {}
        self._atoms: dict[ast.AST, Atoms] = {}  # of the parts that were read
        self._resolved: dict[Atoms, frozenset[Span]] = {}
        self._syntax = ProgramSyntax(tree, tools)
        self._names = self._syntax.variables | self._syntax.functions.keys() | {_RAISED}
        self._call_names = {f"calls of {name}" for name in self._syntax.functions}
        self._read_calls = set[ast.Call]()
        if self._syntax.is_understood:
            self._visit_all(tree.body, frozenset((_EXITS,)))
            self._apply_changes()
        if any(isinstance(node, ast.Call) and node not in self._read_calls for node in ast.walk(tree)):
            self._calls.clear()  # a part of the program was not visited, so nothing is clean

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
        found = {name: [call[key] for key in (name, at, "*") if key in call] for name, at in places.items()}
        found[CONTROL] = [call[CONTROL], *found.get(CONTROL, ())]  # an argument may have this name
        calls = {name: self._resolve(_NOTHING.union(*parts)) for name, parts in found.items() if parts}
        return [name for name, depends in calls.items() if depends.isdisjoint(tainted)]

    def _resolve(self, atoms: Atoms) -> frozenset[Span]:
        """Return the calls that names and calls depend on."""
        if (known := self._resolved.get(atoms)) is not None:
            return known
        seen, left = set(atoms), [*atoms]
        while left:
            atom = left.pop()
            new = self._edges.get(atom, set()) - seen if isinstance(atom, str) else set()
            seen |= new
            left += new
        found = self._resolved[atoms] = frozenset(atom for atom in seen if not isinstance(atom, str))
        return found

    # -- statements ---------------------------------------------------------------------------------------------------

    def _visit_all(self, nodes: Iterable[ast.AST], under: Atoms) -> None:
        for node in nodes:
            self._visit(node, under)

    def _visit(self, node: Any, under: Atoms) -> None:
        """Add the edges of a statement that runs under conditions."""
        if isinstance(node, FunctionNode):
            self._visit_function(node, under)
            return
        inner = under
        if isinstance(node, ast.If):
            inner |= self._read(node.test, under)
        elif isinstance(node, ast.While):
            inner |= self._read(node.test, under | self._find_atoms(node.test))  # it runs again if it is true
        elif isinstance(node, ast.For):
            inner |= self._bind(node.target, node.iter, under)
        elif isinstance(node, ast.Try):
            inner |= self._find_atoms(node)
        else:
            self._visit_simple(node, under)
            return
        for handler in getattr(node, "handlers", ()):
            if handler.type is not None:
                self._read(handler.type, inner)
            if handler.name:
                self._bind_names(ast.Name(handler.name), ast.Name(_RAISED), inner)
            self._visit_all(handler.body, inner)
        for block in ("body", "orelse", "finalbody"):
            self._visit_all(getattr(node, block, ()), inner)

    def _visit_simple(self, node: Any, under: Atoms) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value, under)
            if len(node.targets) > 1:
                self._alias(*node.targets)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign) and node.value is not None:
            self._bind(node.target, node.value, under)
            if isinstance(node, ast.AugAssign):
                self._change(node.target, self._find_atoms(node) | under)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                self._join(alias.asname or alias.name, under)
        else:
            read = self._read(node, under)
            if isinstance(node, ast.Delete):
                self._change(node, read | under)
            if isinstance(node, _EXITING):
                raises = isinstance(node, ast.Raise | ast.Assert)  # others leave a block of their own function only
                self._join(_EXITS, under if raises else under - self._call_names)
                self._join(_EXITS, read if isinstance(node, ast.Assert) else ())
                self._alias(ast.Name(_RAISED), *([node] if raises else []))

    def _visit_function(self, node: FunctionNode, under: Atoms) -> None:
        """Let the name of a function stand for everything in it, and for the conditions of its calls."""
        calls, parts = f"calls of {node.name}", ast.Module([*node.body], [])
        self._read(node.args, under)
        self._join(node.name, under | {calls} | self._find_atoms(parts))
        self._alias(ast.Name(node.name), parts)
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self._bind_parameters(node, [default], under)
        self._visit_all(node.body, frozenset((_EXITS, calls)))

    def _assign(self, target: Any, value: ast.AST, under: Atoms) -> None:
        """Bind a target, item by item if target and value have the same items."""
        if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            starred = any(isinstance(item, ast.Starred) for item in (*target.elts, *value.elts))
            if len(value.elts) == len(target.elts) and not starred:
                for one, item in zip(target.elts, value.elts, strict=True):
                    self._assign(one, item, under)
                return
        self._bind(target, value, under)

    def _bind(self, target: ast.AST, value: ast.AST, under: Atoms) -> Atoms:
        """Let all names in a target depend on, and refer to, all of a value. Return what the value depends on."""
        atoms = self._read(value, under)
        self._bind_names(target, value, atoms | under | self._read(target, under))
        return atoms

    def _bind_names(self, target: ast.AST, value: ast.AST, atoms: Atoms) -> None:
        for name in self._list_names(target):
            self._join(name, atoms)
        if any(isinstance(part, ast.Subscript) for part in ast.walk(target)):
            self._change(target, atoms)
        self._alias(target, value)

    def _join(self, name: str, atoms: Iterable[str | Span]) -> None:
        self._edges.setdefault(name, set()).update(atoms)

    # -- objects ------------------------------------------------------------------------------------------------------

    def _find_group(self, name: str) -> str:
        while (above := self._groups.get(name, name)) != name:
            name = above
        return name

    def _alias(self, *nodes: ast.AST) -> None:
        """Note that the names in some parts of the program may refer to the same object."""
        names = [name for node in nodes for name in self._list_names(node)]
        for name in names:
            self._groups.setdefault(name, name)
            self._groups[self._find_group(name)] = self._find_group(names[0])

    def _change(self, node: ast.AST, atoms: Atoms) -> None:
        self._changes += [(name, atoms) for name in self._list_names(node)]

    def _apply_changes(self) -> None:
        """Let all names that may refer to a changed object depend on the changes."""
        for name, atoms in self._changes:
            self._join(f"objects of {self._find_group(name)}", atoms)
        for name in {*self._groups, *(name for name, _ in self._changes)}:
            self._join(name, {f"objects of {self._find_group(name)}"})

    def _list_names(self, node: ast.AST) -> list[str]:
        return [part.id for part in ast.walk(node) if isinstance(part, ast.Name) and part.id in self._names]

    # -- expressions --------------------------------------------------------------------------------------------------

    def _find_atoms(self, node: ast.AST) -> Atoms:
        """Return every name and every call of a tool in a part of the program."""
        if node not in self._atoms:
            own: set[str | Span] = {node.id} if isinstance(node, ast.Name) else set()
            if isinstance(node, ast.Call) and self._syntax.classify(node) == "tool":
                own.add(self._span(node))
            self._atoms[node] = frozenset(own.union(*map(self._find_atoms, ast.iter_child_nodes(node))))
        return self._atoms[node]

    def _read(self, node: ast.AST, under: Atoms) -> Atoms:
        """Add the edges of an expression. Return what its value depends on."""
        atoms, parts = self._find_atoms(node), [*ast.walk(node)]
        if any(isinstance(part, _BRANCHES) or len(getattr(part, "ops", ())) > 1 for part in parts):
            under |= atoms  # a call in it may depend on any other part
        for part in parts:
            if isinstance(part, ast.Call):
                self._read_call(part, under)
            elif isinstance(part, ast.Lambda):
                for name in _list_parameters(part.args):
                    self._bind_names(ast.Name(name), ast.Pass(), atoms | under)
            elif isinstance(part, ast.comprehension):
                self._bind_names(part.target, part.iter, atoms | under)
        return atoms

    def _read_call(self, call: ast.Call, under: Atoms) -> None:
        """Note what reaches the arguments of a call, and what it changes."""
        self._read_calls.add(call)
        kind, values = self._syntax.classify(call), [*call.args, *(keyword.value for keyword in call.keywords)]
        given = under.union(*map(self._find_atoms, values))
        if kind == "tool":
            self._read_tool_call(call, under)
        elif kind == "function":
            function = self._syntax.functions[call.func.id]  # type: ignore[attr-defined]
            self._join(f"calls of {function.name}", under)
            self._bind_parameters(function, values, under)
        elif kind == "change":
            changed = ast.Tuple([call.func, *values], ast.Load())  # also in `list.append(items, value)`
            self._alias(changed)
            self._change(changed, given | self._find_atoms(call.func))

    def _bind_parameters(self, function: FunctionNode, values: Iterable[ast.expr], under: Atoms) -> None:
        """Let all parameters of a function depend on, and refer to, all values that are passed to it."""
        names = ast.Tuple([ast.Name(name) for name in _list_parameters(function.args)])
        passed = ast.Tuple([*values])
        self._bind_names(names, passed, under | self._find_atoms(passed))

    def _read_tool_call(self, call: ast.Call, under: Atoms) -> None:
        """Note the parts of each argument. Those after a `*`, or in a `**`, belong to any argument."""
        if not self._is_placed(call):
            return
        found = self._calls.setdefault(self._span(call), {CONTROL: _NOTHING})
        found[CONTROL] |= under
        spread = False
        for position, argument in enumerate(call.args):
            spread |= isinstance(argument, ast.Starred)
            key: str | int = "*" if spread else position
            found[key] = found.get(key, _NOTHING) | self._find_atoms(argument)
        for keyword in call.keywords:
            key = keyword.arg or "*"
            found[key] = found.get(key, _NOTHING) | self._find_atoms(keyword.value)

    def _span(self, call: ast.Call) -> Span:
        end_line, end_column = call.end_lineno or call.lineno, call.end_col_offset or 0
        return self._starts[call.lineno - 1] + call.col_offset, self._starts[end_line - 1] + end_column

    def _is_placed(self, call: ast.Call) -> bool:
        """Return True if the place of a call is right. In f-strings of Python 3.11 it may not be."""
        try:
            found = ast.parse(self._code[slice(*self._span(call))], mode="eval")
        except (SyntaxError, ValueError):
            return False
        return ast.dump(found.body) == ast.dump(call)


def _list_parameters(args: ast.arguments) -> list[str]:
    found = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    return [parameter.arg for parameter in found if parameter is not None]
