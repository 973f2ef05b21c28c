"""The flow of data in a Python program: which results of calls may have reached an argument of a call.

The analysis reads the syntax tree before the program runs. It builds a graph from names to everything that is assigned
to them anywhere, and to the conditions of the assignment, so its answer holds for every order of execution:

- A name that may refer to the same object as another one is changed with it.
- Conditions are tests, loops, comprehensions, and each statement of a `try`. If a `return`, `break`, `continue`,
  `raise` or `assert` has conditions, all calls have them, too.
- In a program with `class`, `match`, `with` or `:=`, or with functions that are used as values, everything may reach
  everything.

An error that ends the program is not covered: it can only prevent later calls.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping
from typing import Any

Span = tuple[int, int]  # the bytes of a call in the program
Atoms = frozenset[str | Span]  # names, and calls

CONTROL = ""  # stands for the conditions of a call, beside the names of its arguments
_NOTHING: Atoms = frozenset()
_EXITS = "conditions of exits"
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_OPAQUE = (ast.ClassDef, ast.Match, ast.With, ast.AsyncWith, ast.NamedExpr, ast.AsyncFor)
_BRANCHES = (ast.IfExp, ast.BoolOp, ast.Compare, ast.comprehension)
_EXITING = (ast.Return, ast.Break, ast.Continue, ast.Raise, ast.Assert)


class DataFlow:
    """The graph of one program: what may have reached each argument of each call."""

    def __init__(self, code: str, tree: ast.Module, functions: Iterable[str]) -> None:
        self._starts = [0]
        for line in code.encode().splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._edges: dict[str, set[str | Span]] = {}
        self._changes: list[tuple[str, Atoms]] = []  # names whose objects are changed in place
        self._groups: dict[str, str] = {}  # names that may refer to the same object, each with another one
        self._calls: dict[Span, dict[str | int, Atoms]] = {}
        self._atoms: dict[ast.AST, Atoms] = {}  # of the parts that were read
        self._resolved: dict[Atoms, frozenset[Span]] = {}
        self._modules = {
            (alias.asname or alias.name).partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
        self._modules -= {node.id for node in names if not isinstance(node.ctx, ast.Load)}
        self._functions = {node.name: node for node in ast.walk(tree) if isinstance(node, _Function)}
        self._values = self._functions.keys() | set(functions)  # names that are called, and are no values
        self._call_names = {f"calls of {name}" for name in self._functions}
        self.is_known = not any(
            self._is_opaque(node, parent) for parent in ast.walk(tree) for node in ast.iter_child_nodes(parent)
        )
        if self.is_known:
            self._visit_all(tree.body, frozenset((_EXITS,)))
            self._apply_changes()

    def list_clean(self, span: Span, places: Mapping[str, int], tainted: Collection[Span]) -> list[str]:
        """Return the arguments of a call that no result of tainted calls can have reached, by name.

        `places` has the positions of the arguments. CONTROL is among the names if none reached its conditions.
        """
        call = self._calls.get(span) if self.is_known else None
        if call is None:
            return [] if tainted else [*places, CONTROL]
        atoms = {name: call.get(name, call.get(at, _NOTHING)) | call.get("*", _NOTHING) for name, at in places.items()}
        atoms[CONTROL] = call[CONTROL]
        return [name for name, found in atoms.items() if self._resolve(found).isdisjoint(tainted)]

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

    def _is_opaque(self, node: ast.AST, parent: ast.AST) -> bool:
        """Return True for code whose calls cannot be followed: classes, and functions that are used as values."""
        is_called = isinstance(parent, ast.Call) and parent.func is node
        if isinstance(node, ast.Name) and node.id in self._values:
            return not is_called
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and not is_called:
            return bool(self._list_names(node.value))  # it may be a method, as in `map(items.append, values)`
        if isinstance(node, ast.Lambda):
            inline = isinstance(parent, ast.Call | ast.keyword)
            return not inline or any(isinstance(part, ast.Call) for part in ast.walk(node.body))
        if isinstance(node, _Function):
            return bool(node.decorator_list) or self._functions[node.name] is not node
        return isinstance(node, _OPAQUE)

    # -- statements ---------------------------------------------------------------------------------------------------

    def _visit_all(self, nodes: Iterable[ast.AST], under: Atoms) -> None:
        for node in nodes:
            self._visit(node, under)

    def _visit(self, node: Any, under: Atoms) -> None:
        """Add the edges of a statement that runs under conditions."""
        inner = under
        if isinstance(node, _Function):
            self._visit_function(node, under)
            return
        if isinstance(node, ast.If | ast.While):
            inner |= self._read(node.test, under)
        elif isinstance(node, ast.For):
            inner |= self._read(node.iter, under)
            self._assign(node.target, node.iter, under)
        elif isinstance(node, ast.Try | ast.TryStar):
            inner |= self._find_atoms(node)
        else:
            self._visit_simple(node, under)
            return
        for handler in getattr(node, "handlers", ()):
            self._join(handler.name or "", inner, None)
            self._visit_all(handler.body, inner)
        for block in ("body", "orelse", "finalbody"):
            self._visit_all(getattr(node, block, ()), inner)

    def _visit_simple(self, node: Any, under: Atoms) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value, under)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign) and node.value is not None:
            self._assign(node.target, node.value, under)
            if isinstance(node, ast.AugAssign):
                self._change(node.target, self._find_atoms(node.value) | under)
        else:
            read = self._read(node, under)
            if isinstance(node, ast.Delete):
                self._change(node, under)
            if isinstance(node, _EXITING):
                raises = isinstance(node, ast.Raise | ast.Assert)  # others leave a block of their own function only
                kept = under if raises else {atom for atom in under if atom not in self._call_names}
                self._edges.setdefault(_EXITS, set()).update(kept, read if isinstance(node, ast.Assert) else ())

    def _visit_function(self, node: _Function, under: Atoms) -> None:
        """Let the name of a function stand for everything in it, and for the conditions of its calls."""
        calls = f"calls of {node.name}"
        parts = ast.Module([*node.body], [])
        self._join(node.name, under | {calls} | self._find_atoms(parts), parts)
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            for name in _list_parameters(node):
                self._join(name, self._read(default, under), default)
        self._visit_all(node.body, frozenset((_EXITS, calls)))

    def _assign(self, target: Any, value: ast.AST, under: Atoms) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            values = value.elts if isinstance(value, ast.Tuple | ast.List) else ()
            starred = any(isinstance(item, ast.Starred) for item in (*target.elts, *values))
            pairs = zip(target.elts, values, strict=True) if len(values) == len(target.elts) and not starred else None
            for one, item in pairs or ((one, value) for one in target.elts):
                self._assign(one, item, under)
            return
        atoms = self._read(value, under) | under
        if isinstance(target, ast.Name):
            self._join(target.id, atoms, value)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, value, under)
        elif target is not None:  # an item or an attribute
            self._change(target, atoms | self._read(target, under))
            self._alias(target, value)

    def _join(self, name: str, atoms: Iterable[str | Span], value: ast.AST | None) -> None:
        self._edges.setdefault(name, set()).update(atoms)
        if value is not None:
            self._alias(ast.Name(name), value)

    # -- objects ------------------------------------------------------------------------------------------------------

    def _find_group(self, name: str) -> str:
        while (above := self._groups.get(name, name)) != name:
            name = above
        return name

    def _alias(self, one: ast.AST, two: ast.AST) -> None:
        """Note that the names in two expressions may refer to the same object."""
        names = [*self._list_names(one), *self._list_names(two)]
        for name in names:
            self._groups.setdefault(name, name)
            self._groups[self._find_group(name)] = self._find_group(names[0])

    def _change(self, node: ast.AST, atoms: Atoms) -> None:
        self._changes += [(name, atoms) for name in self._list_names(node)]

    def _apply_changes(self) -> None:
        """Let all names that may refer to a changed object depend on the changes."""
        for name, atoms in self._changes:
            self._edges.setdefault(f"objects of {self._find_group(name)}", set()).update(atoms)
        for name in {*self._groups, *(name for name, _ in self._changes)}:
            self._edges.setdefault(name, set()).add(f"objects of {self._find_group(name)}")

    def _list_names(self, node: ast.AST) -> list[str]:
        found = (part.id for part in ast.walk(node) if isinstance(part, ast.Name))
        return [name for name in found if name not in self._modules]

    # -- expressions --------------------------------------------------------------------------------------------------

    def _find_atoms(self, node: ast.AST | None) -> Atoms:
        """Return every name and every call in a part of the program."""
        if node is None:
            return _NOTHING
        if node not in self._atoms:
            own: set[str | Span] = {self._span(node)} if isinstance(node, ast.Call) else set()
            own |= {node.id} if isinstance(node, ast.Name) else set()
            self._atoms[node] = frozenset(own.union(*map(self._find_atoms, ast.iter_child_nodes(node))))
        return self._atoms[node]

    def _read(self, node: ast.AST | None, under: Atoms) -> Atoms:
        """Add the edges of an expression. Return what its value depends on."""
        atoms = self._find_atoms(node)
        parts = [*ast.walk(node)] if node is not None else []
        if any(isinstance(part, _BRANCHES) for part in parts):
            under |= atoms  # a call in it may depend on any other part
        for part in parts:
            if isinstance(part, ast.Call):
                self._read_call(part, under)
            elif isinstance(part, ast.comprehension):
                for name in self._list_names(part.target):
                    self._join(name, atoms | under, part.iter)
        return atoms

    def _read_call(self, call: ast.Call, under: Atoms) -> None:
        """Note what reaches the arguments of a call, and what it changes."""
        found: dict[str | int, Atoms] = {CONTROL: under | self._find_atoms(call.func)}
        for position, argument in enumerate(call.args):
            spread = any(isinstance(one, ast.Starred) for one in call.args[: position + 1])
            key: str | int = "*" if spread else position
            found[key] = found.get(key, _NOTHING) | self._find_atoms(argument)
        for keyword in call.keywords:
            key = keyword.arg or "*"
            found[key] = found.get(key, _NOTHING) | self._find_atoms(keyword.value)
        before = self._calls.setdefault(self._span(call), {})
        for key, atoms in found.items():
            before[key] = before.get(key, _NOTHING) | atoms
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        given = _NOTHING.union(*(self._find_atoms(value) for value in values)) | under
        everything = ast.Tuple([*values], ast.Load())
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        if isinstance(receiver, ast.Attribute) or (receiver is not None and self._list_names(receiver)):
            changed = ast.Tuple([receiver, *values], ast.Load())  # `list.append(items, value)` is a method, too
            self._alias(changed, changed)
            self._change(changed, given)
        if isinstance(call.func, ast.Name) and (function := self._functions.get(call.func.id)) is not None:
            self._join(f"calls of {function.name}", under, None)
            for name in _list_parameters(function):
                self._join(name, given, everything)

    def _span(self, call: ast.Call) -> Span:
        end_line, end_column = call.end_lineno or call.lineno, call.end_col_offset or 0
        return self._starts[call.lineno - 1] + call.col_offset, self._starts[end_line - 1] + end_column


def _list_parameters(node: _Function) -> list[str]:
    args = node.args
    found = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    return [parameter.arg for parameter in found if parameter is not None]
