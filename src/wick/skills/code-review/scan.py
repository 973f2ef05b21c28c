#!/usr/bin/env python3
"""Report lines of code that a review should check. The code is not executed.

    python3 scan.py src/ app.js [--json]

Python files are read as syntax trees, others line by line. Python 3.8 and the standard library.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import sys
from typing import Iterator, NamedTuple, Sequence

SOURCES = frozenset(
    ".py .js .jsx .ts .tsx .go .rs .java .kt .c .h .cc .cpp .cs .rb .php .sh .sql .swift .scala .lua .pl".split()
)
SKIPPED = frozenset(".git .hg .venv venv node_modules __pycache__ dist build target vendor .mypy_cache".split())
FILE_BYTES, FILES = 2_000_000, 5_000
LONG_FUNCTION, DEEP, MANY = 60, 5, 7  # lines, nested blocks, parameters

LINES = [
    ("note", re.compile(r"\b(TODO|FIXME|XXX|HACK)\b"), "unfinished work is marked here"),
    (
        "secret",
        re.compile(r"(?i)(password|passwd|secret|api_?key|token)\w*[\"']?\s*[:=]\s*[\"'][^\"'\s]{8,}[\"']"),
        "this looks like a secret in the code",
    ),
    ("secret", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"), "a private key is in the code"),
    ("conflict", re.compile(r"^(<{7}|>{7}) "), "unresolved merge conflict"),
]
OTHER_LINES = [
    ("injection", re.compile(r"\beval\s*\("), "eval executes its argument as code"),
    (
        "injection",
        re.compile(r"\.innerHTML\s*=|dangerouslySetInnerHTML"),
        "text becomes HTML; check that it is escaped",
    ),
    (
        "injection",
        re.compile(r"(?i)[\"'`]\s*(select|insert|update|delete)\b[^\"'`]*[\"'`]\s*\+"),
        "SQL is built by concatenation",
    ),
    ("error", re.compile(r"\bcatch\s*(\([^)]*\))?\s*\{\s*\}"), "the error is ignored"),
]
CALLS = {
    "eval": "eval executes its argument as code",
    "exec": "exec executes its argument as code",
    "os.system": "runs in a shell; check its arguments for injection",
    "pickle.loads": "pickle executes code in the data",
    "pickle.load": "pickle executes code in the data",
    "yaml.load": "yaml.load creates arbitrary objects without a safe loader",
    "tempfile.mktemp": "race condition: another process can create the file first; use mkstemp",
}


class Finding(NamedTuple):
    """A line of code that a review should check."""

    file: str
    line: int
    kind: str
    what: str


def find_files(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if name not in SKIPPED)
            yield from (os.path.join(folder, name) for name in sorted(names) if os.path.splitext(name)[1] in SOURCES)


def scan_file(path: str) -> list[Finding]:
    if not os.path.isfile(path):
        return [Finding(path, 0, "unread", "no such file")]
    if os.path.getsize(path) > FILE_BYTES:
        return [Finding(path, 0, "unread", f"larger than {FILE_BYTES:,} bytes")]
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    python = path.endswith(".py")
    found = list(scan_lines(path, text, LINES if python else LINES + OTHER_LINES))
    if python:
        found += scan_tree(path, text)
    return sorted(found, key=lambda place: place.line)


def scan_lines(path: str, text: str, rules: Sequence[tuple]) -> Iterator[Finding]:  # type: ignore[type-arg]
    for number, line in enumerate(text.splitlines(), 1):
        for kind, pattern, what in rules:
            if pattern.search(line[:1_000]):
                yield Finding(path, number, kind, what)


def scan_tree(path: str, text: str) -> list[Finding]:
    try:
        nodes = ast.walk(ast.parse(text))
        return [Finding(path, line, kind, what) for node in nodes for line, kind, what in check_node(node)]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return [Finding(path, getattr(error, "lineno", None) or 1, "syntax", f"Python cannot parse this: {error}")]


def check_node(node: ast.AST) -> Iterator[tuple]:  # type: ignore[type-arg]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield from check_function(node)
    elif isinstance(node, ast.ExceptHandler):
        yield from check_handler(node)
    elif isinstance(node, ast.Call):
        yield from check_call(node)
    elif isinstance(node, ast.Compare):
        yield from check_comparison(node)
    elif isinstance(node, ast.Assert) and isinstance(node.test, ast.Tuple) and node.test.elts:
        yield node.lineno, "bug", "the assertion is a tuple, which is always true"


def check_function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple]:  # type: ignore[type-arg]
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    if length > LONG_FUNCTION:
        yield node.lineno, "size", f"{node.name} has {length} lines"
    if nesting_depth(node) > DEEP:
        yield node.lineno, "size", f"{node.name} has blocks nested {nesting_depth(node)} deep"
    count = len(node.args.args) + len(node.args.kwonlyargs)
    if count > MANY:
        yield node.lineno, "size", f"{node.name} has {count} parameters"
    for default in [*node.args.defaults, *node.args.kw_defaults]:
        if isinstance(default, (ast.List, ast.Dict, ast.Set)):
            yield default.lineno, "bug", f"the default of a parameter of {node.name} is mutable and shared by all calls"


def nesting_depth(node: ast.AST) -> int:
    blocks = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try)
    inner = (nesting_depth(child) for child in ast.iter_child_nodes(node))
    return max(inner, default=0) + isinstance(node, blocks)


def check_handler(node: ast.ExceptHandler) -> Iterator[tuple]:  # type: ignore[type-arg]
    if node.type is None:
        yield node.lineno, "error", "a bare except also catches KeyboardInterrupt and SystemExit"
    if all(isinstance(line, ast.Pass) for line in node.body):
        yield node.lineno, "error", "the error is ignored"


def check_call(node: ast.Call) -> Iterator[tuple]:  # type: ignore[type-arg]
    name = dotted_name(node.func)
    safe = any("Safe" in dotted_name(word.value) for word in node.keywords)
    if name in CALLS and not (name == "yaml.load" and safe):
        yield node.lineno, "injection", CALLS[name]
    for word in node.keywords:
        if word.arg == "shell" and isinstance(word.value, ast.Constant) and word.value.value is True:
            yield node.lineno, "injection", "runs in a shell; check its arguments for injection"
        if word.arg == "verify" and isinstance(word.value, ast.Constant) and word.value.value is False:
            yield node.lineno, "security", "the server's certificate is not verified"
    if name.endswith(".execute") and node.args and is_built_string(node.args[0]):
        yield node.lineno, "injection", "SQL is built from strings; pass the values as parameters"


def is_built_string(node: ast.AST) -> bool:
    formatted = isinstance(node, ast.Call) and dotted_name(node.func).endswith(".format")
    return isinstance(node, (ast.JoinedStr, ast.BinOp)) or formatted


def check_comparison(node: ast.Compare) -> Iterator[tuple]:  # type: ignore[type-arg]
    for operator, other in zip(node.ops, node.comparators):
        if not isinstance(other, ast.Constant):
            continue
        if isinstance(operator, (ast.Is, ast.IsNot)) and type(other.value) in (str, int, bytes):
            yield node.lineno, "bug", "`is` compares identity; use =="
        if isinstance(operator, (ast.Eq, ast.NotEq)) and other.value is None:
            yield node.lineno, "style", "compare with None using `is`"


def dotted_name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted_name(node.value)}.{node.attr}"
    return ""


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Report lines of code that a review should check.")
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(args)
    read = [path for _, path in zip(range(FILES), find_files(given.paths))]
    found = [place for path in read for place in scan_file(path)]
    if given.json:
        print(json.dumps([place._asdict() for place in found], ensure_ascii=False, indent=1))
        return 0
    for place in found:
        print(f"{place.file}:{place.line}: {place.kind}: {place.what}")
    print(f"{len(found)} places in {len(read)} files")
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    sys.exit(main())
