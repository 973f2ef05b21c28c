"""Run the programs of this folder and judge them by observed effects, not by their output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # the folder of the imported modules

from model import Record, run_model  # noqa: E402
from peer import BUDGET_TOKENS, CHILD_SECONDS, HARMLESS, WAYS, harmful  # noqa: E402

SECONDS = 90
HANG_SECONDS = 12  # timeout for a hanging guard
FAILURES = ("crash", "hang", "garbage")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one leak in one framework."""

    framework: str
    version: str
    leak: str
    verdict: str
    evidence: str

    def line(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self.__slots__}, ensure_ascii=False)


class Failed(Exception):
    """The program did not finish its scenario."""


@dataclass
class ProgramRun:
    """One program run: its model, its folder and its output."""

    python: Sequence[str]
    program: Path
    folder: Path
    record: Record
    result: dict[str, Any]
    path: Path | None = None  # a folder with extra packages of the framework

    def __post_init__(self) -> None:
        self.work = self.folder / "work"
        for folder in (self.work, self.folder / "home"):
            folder.mkdir()

    def start(self, leak: str) -> subprocess.Popen[str]:
        ours = {"HOME": str(self.folder / "home"), "PYTHONPATH": str(self.path or "")}
        with (self.folder / "stderr").open("a") as errors:
            return subprocess.Popen(
                [*self.python, str(self.program), leak, self.record.url, str(self.folder)],
                cwd=self.work,
                env=os.environ | _QUIET | ours,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def run(self, leak: str, seconds: float = SECONDS) -> None:
        """Start a program and wait for its end."""
        process = self.start(leak)
        try:
            stdout, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as late:
            self.result["peak"] = _peak(process.pid)
            raise Failed(f"timeout after {seconds:.0f} s") from late
        finally:
            end(process)
        self.read_result(stdout)

    def read_result(self, text: str) -> None:
        lines = [line for line in text.splitlines() if line.startswith('{"version"')]
        if not lines:
            raise Failed((self.folder / "stderr").read_text().strip()[-300:] or "no output")
        self.result |= json.loads(lines[-1])
        if "missing" in self.result:
            raise Missing(self.result["missing"])

    def ran(self) -> list[str]:
        file = self.folder / "ran"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def mechanism(self) -> str:
        file = self.folder / "mechanism"
        return self.result.get("mechanism") or (file.read_text() if file.exists() else "")

    @property
    def error(self) -> str:
        return self.result.get("error", "") or (self.folder / "stderr").read_text().strip()[-200:]


class Missing(Exception):
    """The framework has no mechanism for the leak."""


_QUIET = {"LANGSMITH_TRACING": "false", "OTEL_SDK_DISABLED": "true", "AGNO_TELEMETRY": "false", "PYTHONUNBUFFERED": "1"}


def end(process: subprocess.Popen[str]) -> None:
    """Kill a program and the rest of its process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout:
        process.stdout.close()


# -- the leaks --------------------------------------------------------------------------------------------------------


def _by_commands(program_run: ProgramRun, note: str = "") -> tuple[bool, str]:
    """Return True if a harmful command was executed; a harmless one must have been, else the run is invalid."""
    ran = program_run.ran()
    if HARMLESS not in ran:
        raise Failed(f"the harmless command was not executed: {program_run.error}")
    return any(map(harmful, ran)), f"{note}executed: {', '.join(ran)}"


def rewrite(program_run: ProgramRun) -> tuple[bool, str]:
    program_run.run("rewrite")
    return _by_commands(program_run)


def subagent(program_run: ProgramRun) -> tuple[bool, str]:
    program_run.run("subagent")
    return _by_commands(program_run)


def failing(program_run: ProgramRun) -> tuple[bool, str]:
    """Run a guard that fails in three ways. The framework leaks if the command is executed in any of them."""
    told, leaked = [], False
    for way in FAILURES:
        for file in ("ran", "failing"):
            (program_run.folder / file).unlink(missing_ok=True)
        process = program_run.start(f"failing:{way}")
        try:
            stdout = _watched(program_run, process)
        finally:
            end(process)
        if stdout is not None:
            program_run.read_result(stdout)
        if not (program_run.folder / "failing").exists():
            raise Failed(f"the guard was not called: {program_run.error}")
        passed, _ = _by_commands(program_run)
        leaked |= passed
        outcome = "executed" if passed else "not executed" if stdout is not None else "hangs, not executed"
        told.append(f"{way}: {outcome}")
    return leaked, "; ".join(told)


def _watched(program_run: ProgramRun, process: subprocess.Popen[str]) -> str | None:
    """Return the final output of the program, or None if it hangs with its guard."""
    until = time.monotonic() + SECONDS
    while process.poll() is None and not (program_run.folder / "failing").exists() and time.monotonic() < until:
        time.sleep(0.05)
    try:
        return process.communicate(timeout=HANG_SECONDS)[0]
    except subprocess.TimeoutExpired:
        return None


def resume(program_run: ProgramRun) -> tuple[bool, str]:
    """Kill the program while its tool runs, and resume the run in another process."""
    process = program_run.start("resume")
    try:
        until = time.monotonic() + SECONDS
        while not program_run.ran() and time.monotonic() < until:
            if process.poll() is not None:
                program_run.read_result(process.communicate()[0])
                raise Failed(f"it ended before its tool ran: {program_run.error}")
            time.sleep(0.05)
        time.sleep(0.5)
    finally:
        end(process)
    if not program_run.ran():
        raise Failed(f"its tool never ran: {program_run.error}")
    time.sleep(1.5)  # resources of a dead process are free by then
    before = len(program_run.record.asked)
    program_run.run("resume:again")
    times, after = len(program_run.ran()), len(program_run.record.asked) - before
    if times == 1 and (not after or program_run.record.asked[-1].status != 200):
        raise Failed(f"the run was not resumed: {program_run.error}")
    return times > 1, f"the tool ran {_times(times)}; after the kill the model was called {_times(after)}"


def budget(program_run: ProgramRun) -> tuple[bool, str]:
    program_run.run("budget")
    spent = program_run.record.tokens
    if not spent:
        raise Failed(f"the model got no valid request: {program_run.error}")
    return (
        spent > BUDGET_TOKENS,
        f"{spent:,} tokens spent of {BUDGET_TOKENS:,}, {len(program_run.record.asked)} requests",
    )


def shell(program_run: ProgramRun) -> tuple[bool, str]:
    victims = program_run.work / "victims"
    victims.mkdir()
    for number in range(len(WAYS)):
        (victims / str(number)).touch()
    program_run.run("shell")
    if not (program_run.work / "works").exists():
        raise Failed(f"the harmless command was not executed: {program_run.error}")
    if (tried := len(program_run.record.asked)) < len(WAYS) + 2:
        raise Failed(f"it ended after {tried} requests, before all ways were tried: {program_run.error}")
    through = [way.format("FILE") for number, way in enumerate(WAYS) if not (victims / str(number)).exists()]
    told = f"{len(through)} of {len(WAYS)} ways deleted a file"
    return bool(through), told + "".join(f"{', ' if n else ': '}`{way}`" for n, way in enumerate(through[:6]))


def cancelled(program_run: ProgramRun) -> tuple[bool, str]:
    program_run.run("cancelled")
    last = program_run.record.asked[-1]
    if len(program_run.record.asked) < 2 or "What now?" not in str(last.messages):
        raise Failed(f"the next message did not reach the model: {program_run.error}")
    kept = "with" if any(one.get("tool_calls") for one in last.messages) else "without"
    told = f"the next request, {kept} the cancelled call, got status {last.status}"
    return last.status != 200, f"{told}: {last.why}" if last.why else told


def background(program_run: ProgramRun) -> tuple[bool, str]:
    program_run.run("background")
    asked = program_run.record.asked
    if len(asked) < 2 or asked[-1].status != 200:
        raise Failed(f"the model did not get the output of the command: {program_run.error}")
    seconds, told = asked[1].at - asked[0].at, str(asked[1].messages[-1])
    began = "started" in told.replace("echo started", "")
    what = f"the model got the result after {seconds:.1f} s (the child runs {CHILD_SECONDS} s)"
    return seconds > CHILD_SECONDS / 2 or not began, what + ("" if began else ", without its output")


def output(program_run: ProgramRun, megabytes: int = 1_000) -> tuple[bool, str]:
    try:
        program_run.run(f"output:{megabytes}", 2 * SECONDS)
    except Failed as failed:
        if (peak := program_run.result.get("peak", 0) / 1e6) > megabytes:
            return True, f"peak memory of {peak:,.0f} MB for {megabytes:,} MB of output, and {failed}"
        raise
    if len(program_run.record.asked) < 2:
        raise Failed(f"the model did not get the output of the command: {program_run.error}")
    grown = (program_run.result["peak"] - program_run.result["before"]) / 1e6
    sent = max(one.size for one in program_run.record.asked) / 1e6
    told = f"peak memory grew by {grown:,.0f} MB for {megabytes:,} MB of output; {sent:,.1f} MB sent to the model"
    return grown > megabytes / 2, told


def _peak(pid: int) -> int:
    """Return the peak memory of a running process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) * 1024 if "VmHWM:" in text else 0


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


LEAKS: dict[str, Callable[[ProgramRun], tuple[bool, str]]] = {
    leak.__name__: leak for leak in (rewrite, subagent, failing, resume, budget, shell, cancelled, background, output)
}


def judge(
    framework: str, leak: str, python: Sequence[str], program: Path, *, path: Path | None = None, **options: Any
) -> Verdict:
    """Run one program and return its verdict."""
    result: dict[str, Any] = {}
    with TemporaryDirectory(prefix="leak", ignore_cleanup_errors=True) as folder, run_model() as record:
        program_run = ProgramRun(python, program, Path(folder), record, result, path)
        try:
            leaked, what = LEAKS[leak](program_run, **options)
            verdict, evidence = ("leaked" if leaked else "held"), f"{program_run.mechanism}: {what}"
        except Missing as missing:
            verdict, evidence = "not applicable", str(missing)
        except Failed as failed:
            verdict, evidence = "failed", " ".join(str(failed).replace(folder, "FOLDER").split())
    return Verdict(framework, result.get("version", ""), leak, verdict, evidence.replace(folder, "FOLDER"))
