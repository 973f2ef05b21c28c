"""The part of Python that programs may use. Everything else is refused before anything runs."""

from __future__ import annotations

import ast
from collections.abc import Iterable

IMPORTS = tuple("asyncio collections copy dataclasses datetime functools itertools json math re typing".split())
_FORBIDDEN = frozenset(
    "__builtins__ __import__ breakpoint compile delattr eval exec exit getattr globals hash help id input locals open "
    "quit setattr vars".split()
)


def find_problem(tree: ast.AST, functions: Iterable[str]) -> str:
    """Return why a program cannot run; empty if it can."""
    nodes = [*ast.walk(tree)]
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    plain = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    own = {node.name for node in nodes if isinstance(node, ast.AsyncFunctionDef)}
    coroutines = {*functions, *own, "asyncio.gather"} - plain
    for node in nodes:
        problem, names = "", [alias.name for alias in getattr(node, "names", ()) if isinstance(alias, ast.alias)]
        modules = [node.module or "."] if isinstance(node, ast.ImportFrom) else names
        if wrong := [name for name in modules if name not in IMPORTS]:
            problem = f"{wrong[0]!r} cannot be imported; programs can import {', '.join(IMPORTS)}"
        elif "*" in names:
            problem = "import names instead of *"
        elif isinstance(node, ast.Name) and node.id in _FORBIDDEN - bound:
            problem = f"programs have no {node.id}"
        elif isinstance(node, ast.Attribute) and node.attr.startswith("__"):
            problem = f"programs have no attribute {node.attr}"
        elif isinstance(node, ast.Expr | ast.Assign) and isinstance(node.value, ast.Call):
            called, targets = ast.unparse(node.value.func), getattr(node, "targets", ())
            if called in coroutines and all(isinstance(item, ast.Name) and item.id not in read for item in targets):
                problem = f"write `await {called}(…)`; without it, the function may not run"
        if problem:
            return f"line {getattr(node, 'lineno', 1)}: {problem}"
    return ""
