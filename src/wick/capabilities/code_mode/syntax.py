"""The part of Python that programs may use. Everything else is refused before anything runs."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

_FORBIDDEN = frozenset(
    "__builtins__ __import__ breakpoint compile eval exec exit getattr globals hash help id input locals open quit "
    "setattr vars".split()
)
IMPORTS = tuple("asyncio collections copy dataclasses datetime functools itertools json math re typing".split())


def find_problem(tree: ast.AST, functions: Iterable[str]) -> str:
    """Return why a program cannot run; empty if it can."""
    nodes = [*ast.walk(tree)]
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    calls = {*functions, *(node.name for node in nodes if isinstance(node, ast.AsyncFunctionDef))} - own
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in _FORBIDDEN - bound:
            return f"line {node.lineno}: programs have no {node.id}"
        if problem := _find_problem(node) or _find_lost_call(node, calls, read):
            return f"line {getattr(node, 'lineno', 1)}: {problem}"
    return ""


def _find_problem(node: ast.AST) -> str:
    modules = [node.module or "."] if isinstance(node, ast.ImportFrom) else []
    modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else modules
    if wrong := [name for name in modules if name not in IMPORTS]:
        return f"{wrong[0]!r} cannot be imported; programs can import {', '.join(IMPORTS)}"
    if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
        return "import names instead of *"
    if isinstance(node, ast.Attribute) and node.attr.startswith("__"):
        return f"programs have no attribute {node.attr}"
    return ""


def _find_lost_call(node: ast.AST, calls: Collection[str], read: Collection[str]) -> str:
    """Return a sentence about a call that cannot be awaited: nothing reads its coroutine."""
    if not isinstance(node, ast.Expr | ast.Assign) or not isinstance(node.value, ast.Call):
        return ""
    targets = node.targets if isinstance(node, ast.Assign) else []
    if any(not isinstance(target, ast.Name) or target.id in read for target in targets):
        return ""
    called = ast.unparse(node.value.func)
    return (
        f"write `await {called}(…)`; without it, the function may not run"
        if called in {*calls, "asyncio.gather"}
        else ""
    )
