"""An argument that is clean does not change when the result of the tainted call changes."""

from __future__ import annotations

import ast
import asyncio
from collections import defaultdict
from typing import Any

import pytest

from generated_programs import CALLS, FUNCTIONS, Generator, TooManyCalls
from wick._internal.data_flow import CONTROL, DataFlow, Span
from wick.errors import ToolError


def spans_of(tree: ast.AST, flow: DataFlow, name: str) -> list[Span]:
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
    return [flow._span(node) for node in nodes if node.func.id == name]  # type: ignore[attr-defined]


def clean(code: str, *, tainted: str = "read", call: str = "send", places: Any = (("to", 0), ("body", 1))) -> set[str]:
    """Return the clean arguments of the last `send`, with the results of `read` tainted."""
    tree = ast.parse(code)
    flow = DataFlow(code, tree, ("read", "send", "other"))
    return set(flow.list_clean(spans_of(tree, flow, call)[-1], dict(places), spans_of(tree, flow, tainted)))


ALL = {"to", "body", CONTROL}


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("await send('bob', 'hi')", ALL),
        ("x = await read()\nawait send('bob', x)", ALL - {"body"}),
        ("x = await read()\nawait send(to='bob', body=f'{x}')", ALL - {"body"}),
        ("x = await read()\nawait send(**{'to': x})", {CONTROL}),
        ("x = await read()\nawait send(*[x])", {CONTROL}),
        ("x = await read()\nif x:\n    await send('bob', 'hi')", {"to", "body"}),
        ("x = await read()\nif x:\n    y = 'a'\nelse:\n    y = 'b'\nawait send(y, 'hi')", ALL - {"to"}),
        ("x = await read()\nwhile x:\n    x = ''\nawait send('bob', 'hi')", ALL),
        ("x = await read()\nwhile True:\n    if x:\n        break\nawait send('bob', 'hi')", {"to", "body"}),
        ("x = await read()\nfor y in x:\n    pass\nawait send(y, 'hi')", ALL - {"to"}),
        ("x = await read()\nawait send(['bob', x][0], 'hi')", ALL - {"to"}),  # it may be the other item
        ("x = await read()\na, b = x, 'bob'\nawait send(b, a)", ALL - {"body"}),
        ("x = await read()\na, b = x\nawait send(b, 'hi')", ALL - {"to"}),
        ("x = await read()\na = []\nb = a\nb.append(x)\nawait send(a[0], 'hi')", ALL - {"to"}),
        ("x = await read()\na = {}\na['k'] = x\nawait send(a['j'], 'hi')", ALL - {"to"}),
        ("x = await read()\na = [[]]\nfor b in a:\n    b.append(x)\nawait send(a[0][0], 'hi')", ALL - {"to"}),
        ("x = await read()\na = []\nlist.append(a, x)\nawait send(a[0], 'hi')", ALL - {"to"}),
        ("import collections\nx = await read()\na = collections.deque()\ncollections.deque.append(a, x)\n"
         "await send(a[0], 'hi')", ALL - {"to"}),
        ("import json\nx = await read()\njson.dumps(x)\nawait send(json.dumps('bob'), 'hi')", ALL),
        ("import json\nx = await read()\njson = []\ny = json\njson.append(x)\nawait send(y[0], 'hi')", ALL - {"to"}),
        ("x = await read()\ndef f(a):\n    return a\nawait send(f('bob'), f(x))", {CONTROL}),  # one function, one label
        ("x = await read()\ndef f(a):\n    return 'bob'\nawait send(f('a'), x)", ALL - {"body"}),
        ("x = await read()\nout = []\ndef f(a):\n    out.append(a)\nf(x)\nawait send(out[0], 'hi')", ALL - {"to"}),
        ("x = await read()\nasync def f():\n    await send('bob', 'hi')\nif x:\n    await f()", {"to", "body"}),
        ("x = await read()\ny = 'bob'\ntry:\n    int(x)\n    y = 'eve'\nexcept ValueError:\n    pass\n"
         "await send(y, 'hi')", ALL - {"to"}),
        ("x = await read()\nawait send('bob' if x else 'eve', 'hi')", set()),  # all of the expression has the condition
        ("x = await read()\nx and await send('bob', 'hi')", set()),
        ("x = await read()\n[await send('bob', 'hi') for y in x]", set()),
        ("x = await read()\nassert x\nawait send('bob', 'hi')", {"to", "body"}),
        ("x = await read()\ny = sorted(x, key=lambda one: one[0])\nawait send('bob', y)", ALL - {"body"}),
        ("x = await read()\na = []\nlist(map(a.append, x))\nawait send(a[0], 'hi')", set()),
        ("x = await read()\ng = send\nawait send('bob', 'hi')", set()),
        ("x = await read()\nclass A:\n    pass\nawait send('bob', 'hi')", set()),
        ("x = await read()\nif (y := x):\n    pass\nawait send(y, 'hi')", set()),
        ("x = await other()\nawait send(x, 'hi')", ALL),
        ("c = read()\nx = await c\nawait send('bob', x)", ALL - {"body"}),
        ("x = 'bob'\nawait send(x, 'hi')\nx = await read()", ALL - {"to"}),  # the order of statements does not count
    ],
)  # fmt: skip
def test_sources_of_arguments(code: str, found: set[str]) -> None:
    got = clean(code)
    assert got == found or (not found and not got & {CONTROL}), got


class AliasGenerator(Generator):
    """Generates programs with objects that have several names, and with few conditions."""

    def write(self) -> str:
        self.depth = self.random.choice((1, 3, 3))  # at 3 there are no blocks
        self.names += [f"v{number}" for number in range(5)]
        self.lines += [f"v{number} = {number}" for number in range(5)]
        self.lines += ["other = [7]", "box = {'k': [8]}"]
        for number in range(self.random.choice((0, 0, 1, 2))):
            self._write_function(number)
        for _ in range(self.random.randint(5, 12)):
            self._write_statement("")
        return "\n".join(self.lines) + "\n"

    def _write_function(self, number: int) -> None:
        bodies = (
            "return await add(n, 1)",
            "items.append(n)\n    return 2",
            "other.append(await double(n=n))\n    return 3",
        )
        self.lines += [f"async def f{number}(n: int) -> int:", f"    {self.random.choice(bodies)}"]
        self.functions.append(f"f{number}")

    def _write_statement(self, indent: str) -> None:
        kind, value, name = self.random.random(), self._value(), self._name()
        if kind < 0.45:
            lines = (
                "other = items", "other = [1, 2]", f"other.append({value})", f"other[0] = {value}",
                "box['k'] = other", f"box['k'].append({value})", f"{name} = box['k'][-1]", f"{name} = other[-1]",
                "items = other", f"{name} = 5", f"{name} = items[-1]",
                "for one in (items, other):\n" + indent + f"    one.append({value})",
            )  # fmt: skip
            self.lines.append(indent + self.random.choice(lines))
        elif kind < 0.85:
            self.lines.append(f"{indent}{name if name in self.names else 'x'} = await {self._call(safe=True)}")
        else:
            super()._write_statement(indent)


class AddSpans(ast.NodeTransformer):
    """Passes its span to each call of a tool."""

    def __init__(self, flow: DataFlow) -> None:
        self.flow = flow

    def visit_Call(self, node: ast.Call) -> ast.AST:
        span = self.flow._span(node)
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
            node.keywords.append(ast.keyword("span", ast.Constant(span)))
        return node


Seen = dict[Span, list[tuple[Any, ...]]]


async def observe(code: str, changed: Span | None) -> tuple[Seen, bool]:
    """Run a program. Return the arguments of its calls, and whether it ended by itself. One call has other results."""
    seen: Seen = defaultdict(list)

    def record(name: str) -> Any:
        names = FUNCTIONS[name].__code__.co_varnames[: FUNCTIONS[name].__code__.co_argcount]

        async def call(*args: Any, span: Span, **kwargs: Any) -> Any:
            values = dict(zip(names, args, strict=False)) | kwargs
            if sum(map(len, seen.values())) >= CALLS:
                raise TooManyCalls
            seen[span].append(tuple(repr(values[one]) for one in names))
            try:
                return await FUNCTIONS[name](**values) + (13 if span == changed else 0)
            except ToolError as error:
                if span == changed:
                    return 1
                raise RuntimeError(str(error)) from None

        return call

    tree = ast.parse(code)
    body = AddSpans(DataFlow(code, ast.parse(code), FUNCTIONS)).visit(tree).body
    function = ast.AsyncFunctionDef("program", ast.arguments([], [], None, [], [], None, []), body, [])
    module = ast.fix_missing_locations(ast.Module([function], []))
    scope: dict[str, Any] = {name: record(name) for name in FUNCTIONS} | {"print": lambda *_: None}
    exec(compile(module, "program", "exec"), scope)
    try:
        await scope["program"]()
    except (Exception, TooManyCalls):
        return seen, False
    return seen, True


async def test_a_clean_argument_does_not_depend_on_a_tainted_result() -> None:
    compared = clean_arguments = 0
    for number in range(80):
        code = AliasGenerator(number).write()
        tree = ast.parse(code)
        flow = DataFlow(code, tree, FUNCTIONS)
        before, ended = await observe(code, None)
        for tainted in before:
            after, also = await observe(code, tainted)
            if not (ended and also):
                continue  # an error that ends the program is not covered
            for span in before | after:
                name = next(one for one in FUNCTIONS if span in spans_of(tree, flow, one))
                names = FUNCTIONS[name].__code__.co_varnames[: FUNCTIONS[name].__code__.co_argcount]
                found = flow.list_clean(span, {one: at for at, one in enumerate(names)}, [tainted])
                compared += len(names)
                if CONTROL not in found:
                    continue
                clean_arguments += len(found) - 1
                one, two = before.get(span, []), after.get(span, [])
                assert len(one) == len(two), f"{span} is called {len(two)} times instead of {len(one)}:\n{code}"
                for at in [at for at, argument in enumerate(names) if argument in found]:
                    assert [row[at] for row in one] == [row[at] for row in two], f"{code[slice(*span)]} in\n{code}"
    assert clean_arguments > compared / 6, f"only {clean_arguments} of {compared} arguments are clean"
    await asyncio.sleep(0)
