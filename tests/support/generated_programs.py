"""Programs of code mode, generated from a number; and the same programs run directly by Python."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from contextlib import redirect_stdout
from random import Random
from typing import Any

from wick.errors import ToolError

Calls = list[tuple[str, tuple[Any, ...]]]
CALLS = 40  # the limit of tool calls

# Ways out of a program. Each line is an expression, or statements that end with one.
ESCAPES = (
    "open('{file}').read()", "__import__('os').environ", "().__class__.__base__.__subclasses__()", "add.__globals__",
    "add.__self__", "add.fn", "getattr(add, '__globals__')", "'{{0.__globals__}}'.format(add)",
    "'{{0.__class__}}'.format(add)", "f'{{add.__code__}}'", "type(add).__mro__", "print.__self__", "eval('add')",
    "exec('import os')", "globals()", "vars()", "import os\nos.environ", "import sys\nsys.modules",
    "import socket\nsocket.socket()", "import subprocess\nsubprocess.run(['id'])",
    "import pathlib\npathlib.Path('{file}')", "import asyncio\nasyncio.subprocess",
    "import asyncio\nasyncio.open_connection", "import asyncio\nasyncio.events.os", "import json\njson.codecs",
    "import json\njson.decoder.scanner", "import re\nre.sys", "import re\nre._compiler.sys",
    "import typing\ntyping.sys.modules", "import collections\ncollections.abc.sys", "import datetime\ndatetime.sys",
    "import functools\nfunctools.reduce.__self__", "import itertools\nitertools.__loader__",
    "import copy\ncopy.copyreg", "import math\nmath.__spec__", "from os import environ\nenviron",
    "import importlib\nimportlib.import_module('os')", "import builtins\nbuiltins.open('{file}')",
    "[x for x in add.__dir__()]", "dict(add)", "list(add)", "add.tool",
    "try:\n    1 / 0\nexcept Exception as error:\n    x = error.__traceback__.tb_frame.f_globals\nx",
    "class A:\n    pass\nA.__init__.__globals__", "(lambda: 0).__globals__",
    "import asyncio\nasyncio.get_event_loop()", "import dataclasses\ndataclasses.sys",
    "hasattr(add, '__globals__') or 1 / 0", "import time\ntime.os", "await add(a=add, b=1)",
    "await add(**{{'a': 1, '__class__': 2}})", "await pick(items=[add], index=0)",
)  # fmt: skip


class Generator:
    """Generates one program: loops, comprehensions, exceptions, parallel calls, functions that call each other."""

    def __init__(self, number: int) -> None:
        self.random, self.names, self.functions, self.depth = Random(number), ["x"], list[str](), 0
        self.lines = ["import asyncio", f"x = {self.random.randint(0, 9)}", "items = [1, 2, 3]"]

    def write(self) -> str:
        for number in range(self.random.randint(0, 3)):
            self._write_function(number)
        for _ in range(self.random.randint(2, 6)):
            self._write_statement("")
        self.lines.append(f"print({', '.join(sorted(set(self.names)))}, items)")
        return "\n".join(self.lines) + "\n"

    def _pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def _value(self) -> str:
        name = self._pick(*self.names)
        return str(
            self._pick(
                name, str(self.random.randint(-5, 9)), f"({name} + {self.random.randint(1, 4)})", f"({name} % 7)"
            )
        )

    def _call(self, safe: bool = False) -> str:
        one, two = self._value(), self._value()
        calls = [
            f"add({one}, {two})",
            f"add(a={one}, b={two})",
            f"double(n={one})",
            f"pick(items=[{one}, {two}, 5], index=1)",
        ]
        calls += [f"{name}({one})" for name in self.functions]
        return str(self._pick(*calls, *([] if safe else [f"check({one})"])))

    def _name(self) -> str:
        name = f"v{self.random.randint(0, 4)}"
        return str(self._pick(name, "x"))

    def _assign(self, indent: str, text: str) -> None:
        name = self._name()
        self.lines.append(f"{indent}{name} = {text}")
        if not indent and name not in self.names:
            self.names.append(name)

    def _write_function(self, number: int) -> None:
        name, before = f"f{number}", [*self.names]
        self.names = ["n"]
        self.lines += [f"async def {name}(n: int) -> int:", f"    r = await {self._call(safe=True)}"]
        if self._pick(True, False):
            self.lines += ["    if r > 5:", f"        return await {self._call(safe=True)}"]
        self.lines.append("    return r + n")
        self.names = before
        self.functions.append(name)

    def _write_block(self, indent: str, head: str) -> None:
        self.lines.append(indent + head)
        self.depth += 1
        for _ in range(self.random.randint(1, 2)):
            self._write_statement(indent + "    ")
        self.depth -= 1

    def _write_statement(self, indent: str) -> None:
        kinds: list[Callable[[str], None]] = [
            lambda i: self._assign(i, f"await {self._call()}"),
            lambda i: self._assign(i, f"await {self._call(safe=True)}"),
            lambda i: self._assign(i, f"sum([await {self._call(True)} for i in range({self.random.randint(0, 3)})])"),
            lambda i: self._assign(i, f"max(await asyncio.gather({self._call(True)}, {self._call(True)}))"),
            lambda i: self._assign(i, f"sum(await asyncio.gather(*[add(i, {self._value()}) for i in items]))"),
            lambda i: self.lines.append(f"{i}items.append({self._value()})"),
            lambda i: self.lines.append(f"{i}print({self._value()}, f'{{{self._value()}!r}}', items)"),
            lambda i: self._assign(i, f"({self._value()}) if ({self._value()}) > 2 else await {self._call(True)}"),
        ]  # fmt: skip
        if self.depth < 3:
            kinds += [
                lambda i: self._write_block(i, f"for i in range({self.random.randint(0, 4)}):"),
                lambda i: self._write_block(i, f"for item in items[:{self.random.randint(0, 3)}]:"),
                lambda i: self._write_block(i, f"if {self._value()} > {self.random.randint(0, 6)}:"),
                self._write_try,
                self._write_while,
            ]
        self._pick(*kinds)(indent)

    def _write_try(self, indent: str) -> None:
        self._write_block(indent, "try:")
        self.lines.append(f"{indent}    await check({self._value()})")
        self._write_block(
            indent, f"except {self._pick('RuntimeError', 'Exception', '(ValueError, RuntimeError)')} as error:"
        )
        self.lines.append(f"{indent}    print('caught', error)")
        if self._pick(True, False):
            self._write_block(indent, "finally:")

    def _write_while(self, indent: str) -> None:
        name = f"k{self.depth}"
        self.lines.append(f"{indent}{name} = 0")
        self._write_block(indent, f"while {name} < {self.random.randint(1, 4)}:")
        self.lines.append(f"{indent}    {name} += 1")
        if self._pick(True, False):
            self.lines += [f"{indent}    if x > 50:", f"{indent}        break"]


class TooManyCalls(BaseException):
    """The program made more calls than the limit."""


async def add(a: int, b: int) -> int:
    return (a + b) % 1000


async def double(n: int) -> int:
    return n * 2 % 1000


async def pick(items: list[int], index: int) -> int:
    return items[index]


async def check(n: int) -> int:
    if n % 3 == 0:
        raise ToolError(f"{n} is divisible by 3")
    return n


FUNCTIONS = {"add": add, "double": double, "pick": pick, "check": check}


async def run_directly(code: str) -> tuple[Calls, str, str]:
    """Run a program in Python. Return its calls, its printed text, and the name of its error."""
    calls, printed, error = Calls(), io.StringIO(), ""

    def record(name: str) -> Any:
        parameters = FUNCTIONS[name].__code__.co_varnames[: FUNCTIONS[name].__code__.co_argcount]

        async def call(*args: Any, **kwargs: Any) -> Any:
            values = dict(zip(parameters, args, strict=False)) | kwargs
            if len(calls) == CALLS:
                raise TooManyCalls
            calls.append((name, tuple(values[parameter] for parameter in parameters)))
            try:
                return await FUNCTIONS[name](**values)
            except ToolError as error:
                raise RuntimeError(str(error)) from None

        return call

    scope = {name: record(name) for name in FUNCTIONS}
    body = "\n".join("    " + line for line in code.splitlines())
    exec(compile(f"async def program():\n{body}\n", "program", "exec"), scope)
    with redirect_stdout(printed):
        try:
            await scope["program"]()
        except (Exception, TooManyCalls) as failure:
            error = type(failure).__name__.replace("UnboundLocal", "Name")  # a program is no function
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)
    return calls, printed.getvalue(), error
