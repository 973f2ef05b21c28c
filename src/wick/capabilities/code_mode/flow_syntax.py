"""The part of Python that the analysis of data flow understands: syntax, builtins, functions of modules, and methods.

Everything is on a list. A program with anything else still runs, but then every result reaches every argument.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

_SYNTAX = (
    *(ast.Module, ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete, ast.Pass, ast.Global, ast.Nonlocal),
    *(ast.If, ast.For, ast.While, ast.Break, ast.Continue, ast.Return, ast.Raise, ast.Assert, ast.Try),
    *(ast.ExceptHandler, ast.Import, ast.ImportFrom, ast.alias, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda),
    *(ast.arguments, ast.arg, ast.keyword, ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Slice),
    *(ast.Starred, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
    *(ast.comprehension, ast.IfExp, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Await),
    *(ast.JoinedStr, ast.FormattedValue, ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop),
)
_TYPES = frozenset("bool bytes dict float frozenset int list set str tuple".split())
_BUILTINS = _TYPES | frozenset(
    """abs all any bin chr divmod format hex isinstance len max min oct ord pow print range repr round sorted sum
    type""".split()
)
_ERRORS = frozenset(
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
)
_MODULES = frozenset(("copy", "datetime", "json", "math", "re"))  # their functions change nothing
_COLLECTIONS = frozenset(
    f"collections.{name}" for name in ("Counter", "OrderedDict", "deque")
)  # no defaultdict: reading changes it
_ITERTOOLS = """accumulate batched chain chain.from_iterable combinations cycle islice pairwise permutations product
    repeat zip_longest"""
_LAZY = frozenset((  # functions that return an iterator
    *("enumerate", "filter", "iter", "map", "reversed", "zip", "re.finditer"),
    *(f"itertools.{name}" for name in _ITERTOOLS.split()),
))  # fmt: skip
_CONSUMERS = (  # functions that read an iterator, which is their first argument, to its end
    frozenset("all any dict frozenset list set sorted sum tuple".split()) | _COLLECTIONS
)
_AWAITED = frozenset(("asyncio.gather", "asyncio.sleep"))
_DATA = frozenset("args year month day hour minute second days seconds".split())  # attributes that are no methods

_PURE_METHODS = """
    capitalize casefold copy count date decode difference encode end endswith expandtabs find findall format
    fromkeys fullmatch get group groupdict groups index intersection isalnum isalpha isdecimal isdigit
    isdisjoint islower isnumeric isoformat isspace issubset issuperset istitle isupper items join keys ljust
    lower lstrip match most_common partition removeprefix removesuffix replace rfind rindex rjust rpartition
    rsplit rstrip search span split splitlines start startswith strftime strip sub symmetric_difference time
    timestamp title total total_seconds union upper values weekday zfill"""
_CHANGES = """
    add append appendleft clear difference_update discard extend extendleft insert intersection_update
    move_to_end pop popitem popleft remove reverse rotate setdefault sort subtract symmetric_difference_update
    update"""
_METHODS = {
    **dict.fromkeys(_PURE_METHODS.split(), "pure"),
    **dict.fromkeys(_CHANGES.split(), "change"),
    **dict.fromkeys(("elements", "finditer"), "lazy"),
}
_CONSUMING_METHODS = frozenset(("extend", "join", "update"))


class ProgramSyntax:
    """The names of a program, the kinds of its calls, and whether all of it is understood."""

    def __init__(self, tree: ast.Module, tools: Iterable[str]) -> None:
        nodes = [*ast.walk(tree)]
        self.tools = frozenset(tools)
        self._parents = {child: node for node in nodes for child in ast.iter_child_nodes(node)}
        functions = [node for node in nodes if isinstance(node, FunctionNode)]
        imports = [pair for node in nodes for pair in _list_imports(node)]
        self.functions = {node.name: node for node in functions}
        self._imports = dict(imports)
        self.variables = {name for node in nodes for name in _list_bound(node)}
        kinds = [self.variables, self.functions.keys(), self._imports.keys(), self.tools]
        is_unique = len(set().union(*kinds)) == sum(map(len, kinds))
        self._shares = any(self._is_change(node) for function in functions for node in ast.walk(function))
        self.is_understood = (
            is_unique
            and len(functions) == len(self.functions)
            and len({*imports}) == len(self._imports)
            and all(map(self._is_understood, nodes))
        )

    def qualify(self, node: ast.AST) -> str:
        """Return the full name of a builtin, or of something in a module; empty for anything else."""
        if isinstance(node, ast.Attribute):
            above = self.qualify(node.value)
            return f"{above}.{node.attr}" if above else ""
        if not isinstance(node, ast.Name) or node.id in self.variables | self.functions.keys() | self.tools:
            return ""
        return self._imports.get(node.id, node.id)

    def classify(self, call: ast.Call) -> str:
        """Return the kind of a call: tool, function, awaited, next, lazy, pure or change; empty if it is unknown."""
        if isinstance(call.func, ast.Name) and call.func.id in self.tools:
            return "tool"
        if isinstance(call.func, ast.Name) and call.func.id in self.functions:
            return "function"
        name = self.qualify(call.func)
        root, _, rest = name.partition(".")
        if name in _AWAITED or name == "next":
            return "awaited" if rest else name
        if name in _LAZY:
            return "lazy"
        if name in _BUILTINS | _ERRORS | _COLLECTIONS or (root in _MODULES and rest):
            return "pure"
        is_method = not name or root in _TYPES or name.rpartition(".")[0] in _COLLECTIONS
        return _METHODS.get(call.func.attr, "") if isinstance(call.func, ast.Attribute) and is_method else ""

    # -- what is understood -------------------------------------------------------------------------------------------

    def _is_understood(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Call):
            return self._is_call_understood(node)
        if isinstance(node, ast.Name):
            return self._is_name_understood(node)
        if isinstance(node, ast.Attribute):
            return self._is_attribute_understood(node)
        if isinstance(node, ast.Lambda):
            return self._is_lambda_understood(node)
        if isinstance(node, ast.GeneratorExp):
            return self._is_consumed(node) or self._is_gathered(node)
        if isinstance(node, ast.Await):
            return isinstance(node.value, ast.Call) and self.classify(node.value) in ("tool", "function", "awaited")
        if isinstance(node, ast.comprehension):
            return not node.is_async
        return isinstance(node, _SYNTAX) and not getattr(node, "decorator_list", ())

    def _is_call_understood(self, call: ast.Call) -> bool:
        kind, parent = self.classify(call), self._parents[call]
        if kind == "function" and isinstance(self.functions[call.func.id], ast.FunctionDef):  # type: ignore[attr-defined]
            return True
        if kind in ("tool", "function", "awaited"):
            is_alone = isinstance(parent, ast.Await)
            return is_alone or (self._is_gathered(call) and (kind == "tool" or self._is_independent(call)))
        if kind == "next":
            item = call.args[0] if call.args else None
            return isinstance(item, ast.GeneratorExp) or (isinstance(item, ast.Call) and self.classify(item) == "lazy")
        return self._is_consumed(call) if kind == "lazy" else kind != ""

    def _is_name_understood(self, node: ast.Name) -> bool:
        parent = self._parents[node]
        is_called = isinstance(parent, ast.Call) and parent.func is node
        if node.id in self.variables:
            return not is_called
        name = self.qualify(node)
        if is_called or not name:
            return is_called  # functions and tools are no values
        if isinstance(parent, ast.Attribute):
            return node.id in self._imports or name in _TYPES
        return name in _BUILTINS | _ERRORS or name.partition(".")[0] in {*_MODULES, "typing"}

    def _is_attribute_understood(self, node: ast.Attribute) -> bool:
        parent, name = self._parents[node], self.qualify(node)
        root = name.partition(".")[0]
        if isinstance(parent, ast.Call) and parent.func is node:
            return True  # as its call is
        if not isinstance(node.ctx, ast.Load) or not name:
            return isinstance(node.ctx, ast.Load) and node.attr in _DATA
        if root in _TYPES:
            return _METHODS.get(node.attr) == "pure"
        return root in _MODULES or root == "typing" or (isinstance(parent, ast.Attribute) and root in self._imports)

    def _is_lambda_understood(self, node: ast.Lambda) -> bool:
        """Return True for a function without effects that is called at once."""
        parent = self._parents[node]
        call = self._parents[parent] if isinstance(parent, ast.keyword) and parent.arg == "key" else parent
        if not isinstance(call, ast.Call):
            return False
        name = self.qualify(call.func)
        if call is parent:
            is_called = name in ("filter", "map") and call.args[0] is node
        else:
            is_called = name in ("max", "min", "sorted") or (
                not name and isinstance(call.func, ast.Attribute) and call.func.attr == "sort"
            )
        calls = [part for part in ast.walk(node.body) if isinstance(part, ast.Call)]
        return is_called and all(self.classify(part) == "pure" for part in calls)

    def _is_consumed(self, node: ast.expr) -> bool:
        """Return True if an iterator is read at once, so that no name refers to it: reading changes it."""
        parent = self._parents[node]
        if isinstance(parent, ast.For | ast.comprehension):
            return parent.iter is node
        if not isinstance(parent, ast.Call) or node not in parent.args:
            return isinstance(parent, ast.Starred)
        name, kind = self.qualify(parent.func), self.classify(parent)
        if name in ("max", "min"):
            return len(parent.args) == 1
        is_method = isinstance(parent.func, ast.Attribute) and not name and parent.func.attr in _CONSUMING_METHODS
        return kind == "lazy" or (parent.args[0] is node and (kind == "next" or name in _CONSUMERS or is_method))

    def _is_gathered(self, node: ast.expr) -> bool:
        """Return True for `node` in `await asyncio.gather(node, *[node for …])`: no name refers to its coroutine."""
        parent = self._parents[node]
        if isinstance(parent, ast.ListComp | ast.GeneratorExp) and parent.elt is node:
            node, parent = parent, self._parents[parent]
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            if not isinstance(parent, ast.Starred) or not isinstance(node.elt, ast.Call):
                return False
            node, parent = parent, self._parents[parent]
        is_gather = isinstance(parent, ast.Call) and self.qualify(parent.func) == "asyncio.gather"
        return is_gather and isinstance(self._parents[parent], ast.Await)

    def _is_independent(self, node: ast.AST) -> bool:
        """Return True if the order in which functions run at the same time has no effect on values."""
        while (above := self._parents.get(node)) is not None:
            node = above
            if isinstance(node, ast.Try | FunctionNode):
                return False
        return not self._shares

    def _is_change(self, node: ast.AST) -> bool:
        """Return True for a part of a function that may change what another one reads."""
        if isinstance(node, ast.Subscript):
            return not isinstance(node.ctx, ast.Load)
        is_change = isinstance(node, ast.Call) and self.classify(node) == "change"
        return is_change or isinstance(node, ast.Global | ast.Nonlocal | ast.AugAssign)


def _list_imports(node: ast.AST) -> list[tuple[str, str]]:
    """Return the names that an import binds, with what they refer to."""
    if isinstance(node, ast.ImportFrom):
        return [(alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names]
    if isinstance(node, ast.Import):
        return [(alias.asname or alias.name, alias.name) for alias in node.names]
    return []


def _list_bound(node: ast.AST) -> list[str]:
    """Return the variables that a node binds."""
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, ast.ExceptHandler):
        return [node.name] if node.name else []
    return [node.arg] if isinstance(node, ast.arg) else []
