"""Programs of code mode, generated from a number; and the same programs run directly by Python."""

from __future__ import annotations

import asyncio
import io
import re
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
    "x = 0\nmatch add:\n    case object(__globals__=found):\n        x = found\nx",
    "class A:\n    def __getattr__(self, name):\n        return name\nA().__globals__", "[*map(open, ['{file}'])]",
    "'{{a.__class__}}'.format_map({{'a': add}})", "import functools\nfunctools.partial(add, 1).func.__globals__",
    "import asyncio\nasyncio.run(add(a=add, b=1))", "\uff45val('add')", "import asyncio.subprocess\nasyncio",
    "try:\n    raise add\nexcept Exception as error:\n    x = error.with_traceback(None)\nx",
    "import typing\ntyping.get_type_hints(add)", "import dataclasses\ndataclasses.fields(add)",
)  # fmt: skip


class Generator:
    """Generates one program: loops, comprehensions, exceptions, parallel calls, nested and recursive functions."""

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
        self.lines.append(f"async def {name}(n: int) -> int:")
        self._pick(self._write_inner_function, self._write_recursion, lambda: None)()
        self.lines.append(f"    r = await {self._call(safe=True)}")
        if self._pick(True, False):
            self.lines += ["    if r > 5:", f"        return await {self._call(safe=True)}"]
        self.lines.append("    return r + n")
        self.names = before
        self.functions.append(name)

    def _write_inner_function(self) -> None:
        self.lines += [
            "    async def inner(m: int, more: int = n) -> int:",
            "        return m + more + await add(m, n)",
        ]
        self.lines.append(f"    n = await inner({self._value()})")

    def _write_recursion(self) -> None:
        """Write a function that calls itself, with a call of a tool at the bottom."""
        self.lines += [
            "    async def dive(m: int) -> int:",
            "        if m < 1:",
            "            return await double(n=n)",
        ]
        self.lines += ["        return 1 + await dive(m - 1)", f"    n = await dive({self.random.randint(1, 60)})"]

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
            lambda i: self._assign(i, f"len({{one: two for one in items for two in [{self._value()}] if one != two}})"),
            lambda i: self._assign(i, f"len({{one % 3 for one in items if await add(one, 1) > {self._value()}}})"),
            lambda i: self._assign(i, f"max((one * 2 for one in items), default={self._value()})"),
            lambda i: self._assign(i, f"({self._value()}) if ({self._value()}) > 2 else await {self._call(True)}"),
        ]  # fmt: skip
        if self.depth < 3:
            kinds += [
                lambda i: self._write_block(i, f"for i in range({self.random.randint(0, 4)}):"),
                lambda i: self._write_block(i, f"for item in items[:{self.random.randint(0, 3)}]:"),
                lambda i: self._write_block(i, f"if {self._value()} > {self.random.randint(0, 6)}:"),
                self._write_try,
                self._write_failing_gather,
                self._write_raise,
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

    def _write_failing_gather(self, indent: str) -> None:
        calls = f"check({self._value()}), add({self._value()}, 1)"  # what is left of a function would end at any time
        self.lines += [f"{indent}try:", f"{indent}    print(await asyncio.gather({calls}))"]
        self.lines += [f"{indent}except RuntimeError as error:", f"{indent}    print('gathered', error)"]

    def _write_raise(self, indent: str) -> None:
        """Write an error of the program, and a handler that may be for another kind."""
        self.lines += [f"{indent}try:", f"{indent}    if {self._value()} > 3:"]
        self.lines.append(f"{indent}        raise {self._pick('ValueError', 'KeyError')}(f'{{{self._value()}}}')")
        self._write_block(indent, "except ValueError as error:")
        self.lines.append(f"{indent}    print('raised', error)")
        self._write_block(indent, "else:")

    def _write_while(self, indent: str) -> None:
        name = f"k{self.depth}"
        self.lines.append(f"{indent}{name} = 0")
        self._write_block(indent, f"while {name} < {self.random.randint(1, 4)}:")
        self.lines.append(f"{indent}    {name} += 1")
        if self._pick(True, False):
            self.lines += [f"{indent}    if x > 50:", f"{indent}        break"]


# Ways in which one value reaches another: aliases, containers, iterators, deferred calls, shadowed names. In each,
# N and O are numbers, L and M lists, V is any value, CALL a call of a tool, and K a number that occurs once.
FLOWS = (
    "if V > 4:\n    L = M\nL.append(2)", "box = L if V > 3 else M\nbox[-1] = 2",
    "L = M = [V]", "L, M = [[V]] * 2", "L, M = M, L", "L = other = M[:]\nother.append(V)", "L += M[:2]", "L += [V]",
    "for L in (M, [3]):\n    L.append(V)", "for N, O in ((V, 3), (4, V)):\n    pass",
    "for N, O in zip(L, M):\n    pass", "for N in (one for one in L[:4]):\n    M.append(N)",
    "[one.append(V) for one in (L, M)]", "box = [[L], M]\nbox[0][0].append(V)",
    "box = {'a': L}\nfor one in box.values():\n    one.append(V)", "box = {'a': {'b': L}}\nbox['a']['b'] += [V]",
    "L[V % len(L)] = 5", "L[0], L[-1] = V, O", "del L[V % len(L)]\nL.append(1)", "L.insert(V % 2, O)",
    "keys = dict.fromkeys(range(3), 1)\ndel keys[V % 3]\nN = sum(keys)", "N = {1: V, V: 2}.get(O, 3)",
    "counts = collections.defaultdict(int)\nif V > 3:\n    counts[O]\nN = len(counts)",
    "it = iter(L)\nif V > 3:\n    next(it, 0)\nN = next(it, 0)", "N = next(iter(L))",
    "it = zip(L, L)\nfor one in it:\n    if V > 3:\n        break\nN = len(list(it))",
    "it = (one for one in [1, 2, 3])\nV in it\nN = sum(it)", "N = next((one for one in L if one > V), 7)",
    "work = [CALL, CALL]\nif V > 3:\n    work.reverse()\nN = await work[0] - await work[1]",
    "work = push(V)\nif O > 3:\n    await work\nelse:\n    work.close()", "await asyncio.gather(push(V), push(O))",
    "await asyncio.gather(mark(V), mark(O))", "await asyncio.gather(*[push(one) for one in L[:2]])",
    "N, O = await asyncio.gather(CALL, CALL)",
    "try:\n    raise ValueError(L)\nexcept ValueError as error:\n    error.args[0].append(V)",
    "try:\n    N = [1, 2, 3][V % 5]\nexcept IndexError:\n    N = 4",
    "try:\n    await check(V)\nexcept RuntimeError:\n    N = 1",
    "def gK(p=L):\n    p.append(V)\n    return p\nM = gK()",
    "def gK(p, q):\n    p.append(V)\n    return q[-1]\nN = gK(*[L] * 2)",
    "def gK(asyncio):\n    asyncio.append(V)\ngK(L)",
    "def gK(max):\n    return max.pop() + len(max)\nN = gK([*L, V])",
    "def gK(n):\n    return gK(n - 1) + V if n > 0 else 0\nN = gK(2)",
    "def gK(n):\n    if n > 3:\n        return 1\n    return 2\nN = gK(V)",
    "while N % 5 and len(L) < 6:\n    L.append(N)", "N = 0\nwhile (await CALL) % 3 and N < 3:\n    N += 1",
    "while True:\n    if V > 3:\n        break\n    L.append(O)\n    break", "N = sorted(L, key=lambda one: -one)[0]",
    "M = list(map(lambda one: one + V, L))", "M.extend(one + 1 for one in L[:2])", "N = max(L) if V > 1 else O",
    "N = L.pop() if len(L) > 1 else 4", "(found := [V]).append(O)\nN = found[-1]", "N = len(f'{V}{O:3}')",
    "match V % 3:\n    case 0:\n        N = 1\n    case _:\n        N = 2", "append = L.append\nappend(V)",
    "def gK(n):\n    M.append(n)\n    return n\nN = sum(map(gK, [V]))", "await asyncio.gather(*map(push, [V]))",
    "class BoxK:\n    items = L\nBoxK.items.append(V)", "[*map(L.append, [V])]", "N = V and await CALL",
    "N = await CALL", "assert V < 10 ** 6, await CALL", "N = 1 < V < (await CALL)",
    "L = [one for one in M if one > V] or [1]",
)  # fmt: skip


class FlowGenerator:
    """Generates programs in which values reach others in many ways."""

    def __init__(self, number: int) -> None:
        self.random, self.count = Random(number), 0
        self.lines = [
            "import asyncio",
            "import collections",
            *(f"v{number} = {number + 1}" for number in range(4)),
            *("l0 = [5]", "l1 = [6, 7]", "l2 = [8]"),
        ]
        self.lines += ["async def push(n: int) -> int:", "    l0.append(await double(n=n))", "    return n"]
        self.lines += ["async def mark(n: int) -> None:", "    await double(n=n)", "    l1.append(n)"]

    def write(self) -> str:
        for _ in range(self.random.randint(4, 9)):
            kind = self.random.random()
            text = self.fill("N = await CALL" if kind < 0.4 else self.random.choice(FLOWS))
            if kind > 0.9:
                text = self.fill("if V > 4:\n    ") + text.replace("\n", "\n    ")
            self.lines += text.splitlines()
        self.lines += [self.fill("await CALL") for _ in range(2)]
        return "\n".join(self.lines) + "\n"

    def fill(self, text: str) -> str:
        """Replace the placeholders of a text."""
        self.count += 1
        numbers, lists = self.random.sample(["v0", "v1", "v2", "v3"], 2), self.random.sample(["l0", "l1", "l2"], 2)
        found = {"N": numbers[0], "O": numbers[1], "L": lists[0], "M": lists[1], "K": str(self.count)}
        text = re.sub(r"\bCALL\b", lambda _: self.random.choice(_CALLS), text)
        text = re.sub(r"\bV\b", lambda _: self.random.choice(_VALUES), text)
        text = re.sub(r"\b[NOLM]\b", lambda match: found[match[0]], text)
        return re.sub(r"(?<=\bg)K|(?<=\bBox)K", found["K"], text)


_CALLS = (
    "add(V, 1)",
    "add(a=V, b=V)",
    "double(n=V)",
    "pick(items=[V, V, 5], index=1)",
    "pick(L, 0)",
    "pick(M, -1)",
    "check(1)",
)
_VALUES = ("v0", "v1", "v2", "v3", "l0[0]", "l1[-1]", "l2[-1]", "l0[-1]", "2")


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
    calls, printed, error, is_stopped = Calls(), io.StringIO(), "", False

    def record(name: str) -> Any:
        parameters = FUNCTIONS[name].__code__.co_varnames[: FUNCTIONS[name].__code__.co_argcount]

        async def call(*args: Any, **kwargs: Any) -> Any:
            values = dict(zip(parameters, args, strict=False)) | kwargs
            nonlocal is_stopped
            if len(calls) == CALLS:
                is_stopped = True  # also where another call of a gather fails first
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
    return calls, printed.getvalue(), "TooManyCalls" if is_stopped else error
