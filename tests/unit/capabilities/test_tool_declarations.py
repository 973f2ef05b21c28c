"""Each tool of wick declares its effect, its targets and what it returns, so that nothing is assumed about it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import wick
from wick import capabilities
from wick.tools import Tool

SOURCE = Path(wick.__file__).parent
CONVERSIONS = frozenset((  # `tool(function)` of a function that a user has given
    "agent.py", "capabilities/_child_agents/definitions.py", "server/agents/http_tools.py",
    "server/agents/templates.py", "server/server.py",
))  # fmt: skip
ELSEWHERE = ("testing", "skills", "evals")  # tools of tests, and programs that do not run in an agent
NO_TOOLS_OF_AN_AGENT = {
    "capabilities/information_flow/__init__.py": 1,  # checks an answer of `look` against a schema
}


def list_modules() -> list[Path]:
    return [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] not in ELSEWHERE]


def find_decorations(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield each use of `tool` as a decorator or a function, if the module imports it from `wick.tools`."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "wick.tools"]
    names = {alias.asname or alias.name for node in imports for alias in node.names if alias.name == "tool"}
    for node in ast.walk(tree):
        decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else []
        yield from (one for one in decorators if isinstance(one, ast.Name) and one.id in names)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            yield node


def is_conversion(path: Path, use: ast.expr) -> bool:
    is_plain = isinstance(use, ast.Call) and len(use.args) == 1 and not use.keywords
    return is_plain and str(path.relative_to(SOURCE)) in CONVERSIONS


def find_missing(decoration: ast.expr) -> list[str]:
    """Return the declarations that a use of `tool` lacks. A tool that only reads has no targets."""
    options = {one.arg: one.value for one in decoration.keywords} if isinstance(decoration, ast.Call) else {}
    if None in options:  # `**options`
        return []
    effect = options.get("effect")
    reads = isinstance(effect, ast.Constant) and effect.value == "read"
    return [name for name in ("effect", "returns", *(() if reads else ("targets",))) if name not in options]


def test_each_tool_in_the_source_declares_its_effect_targets_and_results() -> None:
    found = {path: [*find_decorations(ast.parse(path.read_text()))] for path in list_modules()}
    lacking = {
        f"{path.relative_to(SOURCE)}:{one.lineno}": missing
        for path, decorations in found.items()
        for one in decorations
        if not is_conversion(path, one) and (missing := find_missing(one))
    }
    assert lacking == {}
    assert sum(map(len, found.values())) > 25


def test_tools_that_are_built_without_the_decorator_have_a_declaration() -> None:
    """They get `flow=`; the others are listed here with the reason."""
    built = dict[str, int]()
    for path in list_modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("Tool", "_ModelTool")
            ):
                declared = any(one.arg in ("flow", None) for one in node.keywords)
                name = str(path.relative_to(SOURCE))
                built[name] = built.get(name, 0) + (not declared)
    assert {name: count for name, count in built.items() if count} == NO_TOOLS_OF_AN_AGENT


@pytest.mark.parametrize("name", sorted(capabilities.__all__))
def test_each_tool_of_a_capability_declares(name: str) -> None:
    cls = getattr(capabilities, name)
    tools = [one for base in inspect.getmro(cls) for one in vars(base).values() if isinstance(one, Tool)]
    module = import_module(cls.__module__)
    tools += [one for one in vars(module).values() if isinstance(one, Tool)]
    assert [one.name for one in tools if one.flow is None or not one.flow.declared] == []
