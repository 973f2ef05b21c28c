"""The part of Python that programs may use. Everything else is refused before anything runs."""

from __future__ import annotations

import ast
from collections.abc import Iterable

_FORBIDDEN = frozenset(
    "__builtins__ __import__ breakpoint compile eval exec exit getattr globals hash help id input locals open quit "
    "setattr vars".split()
)
IMPORTS = tuple("asyncio collections copy dataclasses datetime functools itertools json math re typing".split())


def find_problem(tree: ast.AST, functions: Iterable[str]) -> str:
    """Return why a program cannot run; empty if it can."""
    names = frozenset(functions)
    for node in ast.walk(tree):
        modules = [node.module or "."] if isinstance(node, ast.ImportFrom) else []
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else modules
        problem = ""
        if wrong := [name for name in modules if name not in IMPORTS]:
            problem = f"{wrong[0]!r} cannot be imported; programs can import {', '.join(IMPORTS)}"
        elif isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            problem = "import names instead of *"
        elif isinstance(node, ast.Name) and node.id in _FORBIDDEN:
            problem = f"programs have no {node.id}"
        elif isinstance(node, ast.Attribute) and node.attr.startswith("__"):
            problem = f"programs have no attribute {node.attr}"
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Name) and called.id in names:
                problem = f"write `await {called.id}(…)`; without it, the function may not run"
        if problem:
            return f"line {getattr(node, 'lineno', 1)}: {problem}"
    return ""
