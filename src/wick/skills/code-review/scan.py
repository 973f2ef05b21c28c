#!/usr/bin/env python3
"""Point to places in code that a review should look at. Nothing of the code is run.

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
LONG_FUNCTION, DEEP, MANY = 60, 5, 7  # lines, blocks in blocks, parameters

LINES = [
    ("note", re.compile(r"\b(TODO|FIXME|XXX|HACK)\b"), "something is left to do here"),
    (
        "secret",
        re.compile(r"(?i)(password|passwd|secret|api_?key|token)\w*[\"']?\s*[:=]\s*[\"'][^\"'\s]{8,}[\"']"),
        "this looks like a secret in the code",
    ),
    ("secret", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"), "a private key is in the code"),
    ("conflict", re.compile(r"^(<{7}|>{7}) "), "a merge conflict was not resolved"),
]
OTHER_LINES = [
    ("injection", re.compile(r"\beval\s*\("), "eval runs whatever it is given"),
    ("injection", re.compile(r"\.innerHTML\s*=|dangerouslySetInnerHTML"), "text becomes HTML; is it escaped?"),
    (
        "injection",
        re.compile(r"(?i)[\"'`]\s*(select|insert|update|delete)\b[^\"'`]*[\"'`]\s*\+"),
        "SQL is put together",
    ),
    ("error", re.compile(r"\bcatch\s*(\([^)]*\))?\s*\{\s*\}"), "an error is swallowed"),
]
CALLS = {
    "eval": "eval runs whatever it is given",
    "exec": "exec runs whatever it is given",
    "os.system": "a shell runs this; what is in it?",
    "pickle.loads": "pickle runs code that is in the data",
    "pickle.load": "pickle runs code that is in the data",
    "yaml.load": "yaml.load builds objects unless it has a safe loader",
    "tempfile.mktemp": "somebody else may make that file first",
}


class Finding(NamedTuple):
    """Somewhere worth a look."""

    file: str
    line: int
    kind: str
    what: str


def files(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if name not in SKIPPED)
            yield from (os.path.join(folder, name) for name in sorted(names) if os.path.splitext(name)[1] in SOURCES)


def scanned(path: str) -> list[Finding]:
    if not os.path.isfile(path):
        return [Finding(path, 0, "unread", "there is no such file")]
    if os.path.getsize(path) > FILE_BYTES:
        return [Finding(path, 0, "unread", f"it has more than {FILE_BYTES:,} bytes")]
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    python = path.endswith(".py")
    found = list(by_line(path, text, LINES if python else LINES + OTHER_LINES))
    if python:
        found += by_tree(path, text)
    return sorted(found, key=lambda place: place.line)


def by_line(path: str, text: str, rules: Sequence[tuple]) -> Iterator[Finding]:  # type: ignore[type-arg]
    for number, line in enumerate(text.splitlines(), 1):
        for kind, pattern, what in rules:
            if pattern.search(line[:1_000]):
                yield Finding(path, number, kind, what)


def by_tree(path: str, text: str) -> list[Finding]:
    try:
        nodes = ast.walk(ast.parse(text))
        return [Finding(path, line, kind, what) for node in nodes for line, kind, what in looked_at(node)]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return [Finding(path, getattr(error, "lineno", None) or 1, "syntax", f"Python cannot read this: {error}")]


def looked_at(node: ast.AST) -> Iterator[tuple]:  # type: ignore[type-arg]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield from of_function(node)
    elif isinstance(node, ast.ExceptHandler):
        yield from of_handler(node)
    elif isinstance(node, ast.Call):
        yield from of_call(node)
    elif isinstance(node, ast.Compare):
        yield from of_comparison(node)
    elif isinstance(node, ast.Assert) and isinstance(node.test, ast.Tuple) and node.test.elts:
        yield node.lineno, "bug", "this assertion is a tuple, and always true"


def of_function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple]:  # type: ignore[type-arg]
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    if length > LONG_FUNCTION:
        yield node.lineno, "size", f"{node.name} has {length} lines"
    if depth(node) > DEEP:
        yield node.lineno, "size", f"{node.name} has blocks {depth(node)} deep in blocks"
    count = len(node.args.args) + len(node.args.kwonlyargs)
    if count > MANY:
        yield node.lineno, "size", f"{node.name} has {count} parameters"
    for default in [*node.args.defaults, *node.args.kw_defaults]:
        if isinstance(default, (ast.List, ast.Dict, ast.Set)):
            yield default.lineno, "bug", f"the default of a parameter of {node.name} is shared by all calls"


def depth(node: ast.AST) -> int:
    blocks = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try)
    inner = (depth(child) for child in ast.iter_child_nodes(node))
    return max(inner, default=0) + isinstance(node, blocks)


def of_handler(node: ast.ExceptHandler) -> Iterator[tuple]:  # type: ignore[type-arg]
    if node.type is None:
        yield node.lineno, "error", "a bare except also catches KeyboardInterrupt and SystemExit"
    if all(isinstance(line, ast.Pass) for line in node.body):
        yield node.lineno, "error", "an error is swallowed"


def of_call(node: ast.Call) -> Iterator[tuple]:  # type: ignore[type-arg]
    name = dotted(node.func)
    safe = any("Safe" in dotted(word.value) for word in node.keywords)
    if name in CALLS and not (name == "yaml.load" and safe):
        yield node.lineno, "injection", CALLS[name]
    for word in node.keywords:
        if word.arg == "shell" and isinstance(word.value, ast.Constant) and word.value.value is True:
            yield node.lineno, "injection", "a shell runs this; what is in it?"
        if word.arg == "verify" and isinstance(word.value, ast.Constant) and word.value.value is False:
            yield node.lineno, "security", "the server's certificate is not checked"
    if name.endswith(".execute") and node.args and put_together(node.args[0]):
        yield node.lineno, "injection", "SQL is put together; give the values as parameters"


def put_together(node: ast.AST) -> bool:
    formatted = isinstance(node, ast.Call) and dotted(node.func).endswith(".format")
    return isinstance(node, (ast.JoinedStr, ast.BinOp)) or formatted


def of_comparison(node: ast.Compare) -> Iterator[tuple]:  # type: ignore[type-arg]
    for operator, other in zip(node.ops, node.comparators):
        if not isinstance(other, ast.Constant):
            continue
        if isinstance(operator, (ast.Is, ast.IsNot)) and type(other.value) in (str, int, bytes):
            yield node.lineno, "bug", "`is` compares identity; this wants =="
        if isinstance(operator, (ast.Eq, ast.NotEq)) and other.value is None:
            yield node.lineno, "style", "compare with None by `is`"


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Point to places in code that a review should look at.")
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(args)
    read = [path for _, path in zip(range(FILES), files(given.paths))]
    found = [place for path in read for place in scanned(path)]
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
