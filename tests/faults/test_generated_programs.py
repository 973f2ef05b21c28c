"""Code mode: a program's calls are those of the same program in Python, its limits hold, and there is no way out.

In CI 150 programs and each attempt to escape once; with WICK_FULL 10,000 programs and 1,000 attempts at the end of such
programs, in pieces of some minutes that can run one by one: `-k piece_07` is one of 20.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from faults.tally import FULL, Tally
from generated_programs import CALLS, ESCAPES, FUNCTIONS, Calls, Generator, run_directly
from interpreter_runtime import start_runtime
from kit import thread_entries, tool_calls_reply
from wick import Agent, Result, Scripted, ToolCall, tool
from wick.capabilities import CodeMode

PROGRAMS, ATTEMPTS, PIECES = (10_000, 1_000, 20) if FULL else (150, len(ESCAPES), 1)
CANARY = "canary-5f2e81"
TOOLS = [tool(fn, description=f"The function {name}.", name=name) for name, fn in FUNCTIONS.items()]
start_runtime()


async def run_program(code: str, **options: Any) -> Result:
    model = Scripted(tool_calls_reply(ToolCall("p", "run_code", {"code": code})), "done")
    return await Agent(model, tools=TOOLS, hooks=[CodeMode(**options)]).run("go")


def logged_calls(result: Result) -> Calls:
    rows = thread_entries(result.thread, "call")
    order = {item.name: [*item.parameters["properties"]] for item in TOOLS}
    return [(row["name"], tuple(row["args"][name] for name in order[row["name"]])) for row in rows]


def compare(code: str, result: Result, calls: Calls, printed: str, error: str) -> None:
    output, logged = result.thread.messages[2].text, logged_calls(result)
    if "gather" in code:  # the order of parallel calls is not defined
        calls, logged = sorted(calls, key=repr), sorted(logged, key=repr)
    if error == "TooManyCalls":
        assert f"at most {CALLS} tool calls" in output and len(logged) <= CALLS
        return
    assert logged == calls, f"{logged} instead of {calls}, output {output!r} in:\n{code}"
    if error:
        assert error in output, f"{error} is missing in {output!r}:\n{code}"
    else:
        assert output == printed.rstrip("\n"), f"{output!r} instead of {printed!r} in:\n{code}"


async def try_programs(numbers: Sequence[int], *, planted: bool = False) -> None:
    with Tally("G3", "generated programs", planted=planted) as tally:
        outcomes = {"completed": 0, "failed": 0, "stopped": 0, "calls": 0}
        for number in numbers:
            code = Generator(number).write()
            calls, printed, error = await run_directly(code)
            if planted:
                calls = [*calls, ("add", (1, 1))]
            with tally.trying(f"program {number}"):
                compare(code, await run_program(code, calls=CALLS, seconds=60), calls, printed, error)
            if tally.tried % 100 == 0:
                tally.show_progress()
            outcomes["stopped" if error == "TooManyCalls" else "failed" if error else "completed"] += 1
            outcomes["calls"] += len(calls)
        tally.note(**outcomes)
        assert min(outcomes.values()) > 0, f"the programs are all alike: {outcomes}"


def list_piece(piece: int, count: int) -> range:
    """Return the numbers of one of PIECES equal parts."""
    size = count // PIECES
    return range(piece * size, (piece + 1) * size)


@pytest.mark.timeout(3600 if FULL else 120)
@pytest.mark.parametrize("piece", range(PIECES), ids="piece_{:02}".format)
async def test_the_calls_of_a_program_are_those_of_python(piece: int) -> None:
    await try_programs(list_piece(piece, PROGRAMS))


async def test_another_call_is_found() -> None:
    with pytest.raises(AssertionError):
        await try_programs(range(30), planted=True)


@pytest.mark.timeout(3600 if FULL else 120)
@pytest.mark.parametrize("piece", range(PIECES), ids="piece_{:02}".format)
async def test_there_is_no_way_out(piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt ends with an error, or with a value that has nothing of the host."""
    secret = tmp_path / "secret"
    secret.write_text(CANARY)
    monkeypatch.setenv("WICK_CANARY", CANARY)
    with Tally("G3", "escapes") as tally:
        for number in list_piece(piece, ATTEMPTS):
            attempt, is_plain = ESCAPES[number % len(ESCAPES)].format(file=secret), number < len(ESCAPES)
            if not is_plain:
                attempt = Generator(number).write() + vary(attempt, Random(number))
            with tally.trying(attempt):
                result = await run_program(attempt, seconds=1)
                output = result.thread.messages[2].text
                assert CANARY not in str([entry.to_json() for entry in result.thread.entries[3:]])
                assert not any(word in output for word in (*HOST_WORDS, *[str(os.getpid())] * is_plain)), output


HOST_WORDS = ("<module '", "<code object", "<frame", "object at 0x7", "'__builtins__'", "site-packages", "root:x:0")


def vary(attempt: str, random: Random) -> str:
    """Return an attempt inside of a function, a comprehension or a handler."""
    lines = attempt.splitlines()
    body = "\n".join(["    " + line for line in lines[:-1]] + ["    print(" + lines[-1].strip() + ")"])
    forms = (
        f"async def f():\n{body}\nawait f()", f"try:\n{body}\nexcept Exception as error:\n    print(error, error.args)",
        f"for i in range(2):\n{body}", f"if True:\n{body}",
    )  # fmt: skip
    return random.choice(forms)
