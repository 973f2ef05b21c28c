"""The part of Python that the analysis of data flow understands: syntax, builtins, functions of modules, and methods.

Everything is on a list. A program with anything else still runs, but then every result reaches every argument.
"""

from __future__ import annotations

import ast
import builtins
import collections
import datetime
import re
from collections.abc import Iterable

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

_SYNTAX = (
    *(ast.Module, ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete, ast.Pass, ast.Global, ast.Nonlocal),
    *(ast.If, ast.For, ast.While, ast.Break, ast.Continue, ast.Return, ast.Raise, ast.Assert, ast.Try),
    *(ast.ExceptHandler, ast.Import, ast.ImportFrom, ast.alias, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda),
    *(ast.arguments, ast.arg, ast.keyword, ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Slice, ast.Call),
    *(ast.Starred, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
    *(ast.comprehension, ast.IfExp, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Await, ast.JoinedStr),
    *(ast.FormattedValue, ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop),
)
_BUILTINS = """abs all any bin bool bytes chr dict divmod float format frozenset hex int isinstance len list max min oct
    ord pow print range repr round set sorted str sum tuple type""".split()
_ERRORS = [name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, Exception)]
_LAZY = """enumerate filter iter map reversed zip re.finditer .finditer .elements itertools.chain itertools.islice
    itertools.chain.from_iterable itertools.combinations itertools.pairwise itertools.product itertools.zip_longest"""
_MODULES = frozenset(("copy", "datetime", "json", "math", "re", "typing"))  # their functions change nothing
_MUTABLE = (list, dict, set, collections.deque, collections.OrderedDict, collections.Counter)  # no defaultdict
_READS = "get items keys values fromkeys most_common total".split()  # methods of mutable types that change nothing
_IMMUTABLE = (str, bytes, tuple, frozenset, int, float, re.Match, re.Pattern, datetime.datetime, datetime.timedelta)
_CONSUMERS = frozenset("all any dict frozenset list max min next set sorted sum tuple .extend .join .update".split())
_KEYED = frozenset("max min sorted .sort".split())
_DATA = frozenset("args year month day hour minute second days seconds".split())  # attributes that are no methods


def _list_kinds() -> dict[str, str]:
    """Return the kinds of calls, by the names of functions and types, and of methods with a dot before them."""
    kinds = {f".{name}": "change" for kind in _MUTABLE for name in dir(kind) if name[0] != "_"}
    kinds |= {f".{name}": "pure" for kind in _IMMUTABLE for name in dir(kind) if name[0] != "_"}
    kinds |= {f".{name}": "pure" for name in _READS}
    types = {kind.__name__ for kind in (*_MUTABLE, *_IMMUTABLE)} & {*_BUILTINS}
    kinds |= {f"{kind}{name}": effect for kind in types for name, effect in kinds.items()}
    known = [*_BUILTINS, *_ERRORS, "next", "collections.Counter", "collections.OrderedDict", "collections.deque"]
    kinds |= dict.fromkeys(known, "pure") | dict.fromkeys(_LAZY.split(), "lazy")
    return kinds | {"asyncio.gather": "coroutine", "asyncio.sleep": "coroutine"}


_KINDS = _list_kinds()


class ProgramSyntax:
    """The names of a program, the kinds of its calls, and whether all of it is understood."""

    def __init__(self, tree: ast.Module, tools: Iterable[str]) -> None:
        nodes = [*ast.walk(tree)]
        functions, imports = [node for node in nodes if isinstance(node, FunctionNode)], _list_imports(*nodes)
        self.functions = {node.name: node for node in functions}
        variables = {name for node in nodes for name in list_bound(node)}
        self._tools, self._imports, self.own_names = frozenset(tools), dict(imports), variables | self.functions.keys()
        groups = [variables, self.functions.keys(), self._imports.keys(), self._tools]
        is_unique = len(set().union(*groups)) == sum(map(len, groups))
        is_unique &= len(functions) == len(self.functions) and len({*imports}) == len(self._imports)
        self._is_shared = any(self.is_change(part) for node in functions for part in ast.walk(node))
        blocks = [node for node in nodes if isinstance(node, ast.Try | FunctionNode)]
        self._in_blocks = {part for node in blocks for part in ast.walk(node)}
        self._awaited, self._consumed, self._keys, self._called = (set[ast.AST]() for _ in range(4))
        for node in nodes:
            self._note_places(node)
        self.is_understood = is_unique and all(map(self._is_understood, nodes))

    def _note_places(self, node: ast.AST) -> None:
        """Note the parts of a node that are awaited, read to their end, used as a key, or called."""
        if isinstance(node, ast.Await):
            self._awaited.add(node.value)
        elif isinstance(node, ast.For | ast.comprehension):
            self._consumed.add(node.iter)
        elif isinstance(node, ast.Starred):
            self._consumed.add(node.value)
        elif isinstance(node, ast.Call):
            name, args = self._qualify(node.func), node.args
            self._called |= {node.func} if name.startswith(".") else {*ast.walk(node.func)}
            if _KINDS.get(name) == "lazy":
                self._consumed.update(args)
                self._keys.update(args[:1] if name in ("filter", "map") else ())
            elif name in _CONSUMERS and (len(args) == 1 or name in ("next", "sum")):
                self._consumed.update(args[:1])
            elif name == "asyncio.gather":
                self._awaited.update(call for call in map(_find_gathered, args) if self._is_independent(call))
            self._keys.update(keyword.value for keyword in node.keywords if keyword.arg == "key" and name in _KEYED)

    def _qualify(self, node: ast.AST) -> str:
        """Return the full name of a builtin or of something in a module; for anything else the name after a dot."""
        if isinstance(node, ast.Attribute):
            above = self._qualify(node.value)
            return f"{'' if above.startswith('.') else above}.{node.attr}"
        if not isinstance(node, ast.Name) or node.id in self.own_names | self._tools:
            return ""
        return self._imports.get(node.id, node.id)

    def _find_kind(self, node: ast.AST) -> str:
        """Return the kind of a builtin or of a function of a module; empty if it is unknown."""
        name = self._qualify(node)
        return _KINDS.get(name) or ("pure" if name.partition(".")[0] in _MODULES else "")

    def classify(self, call: ast.Call) -> str:
        """Return the kind of a call: tool, function, coroutine, lazy, pure or change; empty if it is unknown."""
        if isinstance(call.func, ast.Name) and call.func.id in self._tools:
            return "tool"
        if isinstance(call.func, ast.Name) and call.func.id in self.functions:
            return "function"
        return self._find_kind(call.func)

    def is_change(self, node: ast.AST) -> bool:
        """Return True for a part of a program that may change an object or the variable of another function."""
        if isinstance(node, ast.Subscript):
            return not isinstance(node.ctx, ast.Load)
        is_change = isinstance(node, ast.Call) and self.classify(node) == "change"
        return is_change or isinstance(node, ast.Global | ast.Nonlocal | ast.AugAssign | ast.Delete)

    def _is_independent(self, call: ast.AST) -> bool:
        """Return True if the order in which calls run at the same time has no effect on values."""
        if not isinstance(call, ast.Call):
            return False
        return self.classify(call) == "tool" or not (self._is_shared or call in self._in_blocks)

    def _is_understood(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Call):
            kind, name = self.classify(node), getattr(node.func, "id", "")
            if kind in ("tool", "coroutine") or isinstance(self.functions.get(name), ast.AsyncFunctionDef):
                return node in self._awaited
            return node in self._consumed if kind == "lazy" else kind != ""
        if isinstance(node, ast.Name | ast.Attribute):
            return self._is_value_understood(node)
        if isinstance(node, ast.Lambda):  # a function without effects that is called at once
            calls = [part for part in ast.walk(node.body) if isinstance(part, ast.Call)]
            return node in self._keys and all(self.classify(part) == "pure" for part in calls)
        if isinstance(node, ast.GeneratorExp):  # if a name referred to it, reading it would change what it refers to
            return node in self._consumed
        if isinstance(node, ast.Await):
            return isinstance(node.value, ast.Call)
        return isinstance(node, _SYNTAX) and not (getattr(node, "decorator_list", ()) or getattr(node, "is_async", 0))

    def _is_value_understood(self, node: ast.Name | ast.Attribute) -> bool:
        """Return True if a name or an attribute is called, or is no function that may be called elsewhere."""
        if isinstance(node, ast.Name) and node.id in self.own_names - self.functions.keys():
            return True
        if node in self._called or self._find_kind(node) == "pure":
            return isinstance(node.ctx, ast.Load)
        return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr in _DATA


def _find_gathered(argument: ast.expr) -> ast.expr:
    """Return `f(…)` of an argument `f(…)`, `*[f(…) for …]` or `*(f(…) for …)`."""
    each = argument.value if isinstance(argument, ast.Starred) else argument
    return each.elt if isinstance(each, ast.ListComp | ast.GeneratorExp) else each


def _list_imports(*nodes: ast.AST) -> list[tuple[str, str]]:
    """Return the names that imports bind, with what they refer to."""
    plain = [alias for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    froms = [(node.module, alias) for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names]
    return [
        *((alias.asname or alias.name, alias.name) for alias in plain),
        *((alias.asname or alias.name, f"{module or ''}.{alias.name}") for module, alias in froms),
    ]


def list_bound(node: ast.AST) -> list[str]:
    """Return the variables that a node binds."""
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, ast.ExceptHandler):
        return [node.name] if node.name else []
    return [node.arg] if isinstance(node, ast.arg) else []
