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
sys.path.insert(0, str(HERE))  # the programs find these by standing beside them

from model import Record, run_model  # noqa: E402
from peer import BUDGET_TOKENS, CHILD_SECONDS, HARMLESS, WAYS, harmful  # noqa: E402

SECONDS = 90
HANG_SECONDS = 12  # so long is a hanging guard watched
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
class Show:
    """One program run: its model, its folder and its output."""

    python: Sequence[str]
    program: Path
    folder: Path
    record: Record
    said: dict[str, Any]
    path: Path | None = None  # where a framework finds more packages

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
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as late:
            self.said["peak"] = _peak(process.pid)
            raise Failed(f"it did not end within {seconds:.0f} s") from late
        finally:
            end(process)
        self.hear(said)

    def hear(self, text: str) -> None:
        lines = [line for line in text.splitlines() if line.startswith('{"version"')]
        if not lines:
            raise Failed((self.folder / "stderr").read_text().strip()[-300:] or "it said nothing")
        self.said |= json.loads(lines[-1])
        if "missing" in self.said:
            raise Missing(self.said["missing"])

    def ran(self) -> list[str]:
        file = self.folder / "ran"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def mechanism(self) -> str:
        file = self.folder / "mechanism"
        return self.said.get("mechanism") or (file.read_text() if file.exists() else "")

    @property
    def error(self) -> str:
        return self.said.get("error", "") or (self.folder / "stderr").read_text().strip()[-200:]


class Missing(Exception):
    """The framework has no such thing."""


_QUIET = {"LANGSMITH_TRACING": "false", "OTEL_SDK_DISABLED": "true", "AGNO_TELEMETRY": "false", "PYTHONUNBUFFERED": "1"}


def end(process: subprocess.Popen[str]) -> None:
    """End a program with all that it started in its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout:
        process.stdout.close()


# -- the leaks --------------------------------------------------------------------------------------------------------


def _by_commands(show: Show, note: str = "") -> tuple[bool, str]:
    """Return True if a harmful command was executed; a harmless one must have been, else the run is invalid."""
    ran = show.ran()
    if HARMLESS not in ran:
        raise Failed(f"not even the harmless command ran: {show.error}")
    return any(map(harmful, ran)), f"{note}executed: {', '.join(ran)}"


def rewrite(show: Show) -> tuple[bool, str]:
    show.run("rewrite")
    return _by_commands(show)


def subagent(show: Show) -> tuple[bool, str]:
    show.run("subagent")
    return _by_commands(show)


def failing(show: Show) -> tuple[bool, str]:
    """Three ways to fail; one that lets the command pass is enough."""
    told, leaked = [], False
    for way in FAILURES:
        for file in ("ran", "failing"):
            (show.folder / file).unlink(missing_ok=True)
        process = show.start(f"failing:{way}")
        try:
            said = _watched(show, process)
        finally:
            end(process)
        if said is not None:
            show.hear(said)
        if not (show.folder / "failing").exists():
            raise Failed(f"the guard was not asked: {show.error}")
        passed, _ = _by_commands(show)
        leaked |= passed
        told.append(
            f"{way}: {'let through' if passed else 'not executed' if said is not None else 'hangs, not executed'}"
        )
    return leaked, "; ".join(told)


def _watched(show: Show, process: subprocess.Popen[str]) -> str | None:
    """Return the final output of the program, or None if it hangs with its guard."""
    until = time.monotonic() + SECONDS
    while process.poll() is None and not (show.folder / "failing").exists() and time.monotonic() < until:
        time.sleep(0.05)
    try:
        return process.communicate(timeout=HANG_SECONDS)[0]
    except subprocess.TimeoutExpired:
        return None


def resume(show: Show) -> tuple[bool, str]:
    """Killed in the middle of a tool, and taken up again by another process."""
    process = show.start("resume")
    try:
        until = time.monotonic() + SECONDS
        while not show.ran() and time.monotonic() < until:
            if process.poll() is not None:
                show.hear(process.communicate()[0])
                raise Failed(f"it ended before its tool ran: {show.error}")
            time.sleep(0.05)
        time.sleep(0.5)
    finally:
        end(process)
    if not show.ran():
        raise Failed(f"its tool never ran: {show.error}")
    time.sleep(1.5)  # resources of a dead process are free by then
    before = len(show.record.asked)
    show.run("resume:again")
    times, after = len(show.ran()), len(show.record.asked) - before
    if times == 1 and (not after or show.record.asked[-1].status != 200):
        raise Failed(f"it was not taken up again: {show.error}")
    return times > 1, f"the tool ran {_times(times)}; after the kill the model was asked {_times(after)}"


def budget(show: Show) -> tuple[bool, str]:
    show.run("budget")
    spent = show.record.tokens
    if not spent:
        raise Failed(f"nothing was asked: {show.error}")
    return spent > BUDGET_TOKENS, f"{spent:,} tokens spent of {BUDGET_TOKENS:,}, {len(show.record.asked)} requests"


def shell(show: Show) -> tuple[bool, str]:
    victims = show.work / "victims"
    victims.mkdir()
    for number in range(len(WAYS)):
        (victims / str(number)).touch()
    show.run("shell")
    if not (show.work / "works").exists():
        raise Failed(f"not even a harmless command ran: {show.error}")
    if (tried := len(show.record.asked)) < len(WAYS) + 2:
        raise Failed(f"it ended after {tried} requests, before all ways were tried: {show.error}")
    through = [way.format("FILE") for number, way in enumerate(WAYS) if not (victims / str(number)).exists()]
    told = f"{len(through)} of {len(WAYS)} ways deleted a file"
    return bool(through), told + "".join(f"{', ' if n else ': '}`{way}`" for n, way in enumerate(through[:6]))


def cancelled(show: Show) -> tuple[bool, str]:
    show.run("cancelled")
    last = show.record.asked[-1]
    if len(show.record.asked) < 2 or "What now?" not in str(last.messages):
        raise Failed(f"the next message did not reach the model: {show.error}")
    kept = "with" if any(one.get("tool_calls") for one in last.messages) else "without"
    told = f"the next request, {kept} the cancelled call, was answered with {last.status}"
    return last.status != 200, f"{told}: {last.why}" if last.why else told


def background(show: Show) -> tuple[bool, str]:
    show.run("background")
    asked = show.record.asked
    if len(asked) < 2 or asked[-1].status != 200:
        raise Failed(f"the model was not told what the command said: {show.error}")
    seconds, told = asked[1].at - asked[0].at, str(asked[1].messages[-1])
    began = "started" in told.replace("echo started", "")
    what = f"the model heard of it after {seconds:.1f} s (the child runs {CHILD_SECONDS} s)"
    return seconds > CHILD_SECONDS / 2 or not began, what + ("" if began else ", without what it printed")


def output(show: Show, megabytes: int = 1_000) -> tuple[bool, str]:
    try:
        show.run(f"output:{megabytes}", 2 * SECONDS)
    except Failed as failed:
        if (peak := show.said.get("peak", 0) / 1e6) > megabytes:
            return True, f"{peak:,.0f} MB of memory at its peak for {megabytes:,} MB of output, and {failed}"
        raise
    if len(show.record.asked) < 2:
        raise Failed(f"the model was not told what the command said: {show.error}")
    grown = (show.said["peak"] - show.said["before"]) / 1e6
    sent = max(one.size for one in show.record.asked) / 1e6
    told = f"{grown:,.0f} MB more memory at its peak for {megabytes:,} MB of output; {sent:,.1f} MB sent to the model"
    return grown > megabytes / 2, told


def _peak(pid: int) -> int:
    """The most memory that a process that still runs ever had."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) * 1024 if "VmHWM:" in text else 0


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


LEAKS: dict[str, Callable[[Show], tuple[bool, str]]] = {
    leak.__name__: leak for leak in (rewrite, subagent, failing, resume, budget, shell, cancelled, background, output)
}


def judge(
    framework: str, leak: str, python: Sequence[str], program: Path, *, path: Path | None = None, **options: Any
) -> Verdict:
    """Run one program and return its verdict."""
    said: dict[str, Any] = {}
    with TemporaryDirectory(prefix="leak", ignore_cleanup_errors=True) as folder, run_model() as record:
        show = Show(python, program, Path(folder), record, said, path)
        try:
            leaked, what = LEAKS[leak](show, **options)
            verdict, evidence = ("leaked" if leaked else "held"), f"{show.mechanism}: {what}"
        except Missing as missing:
            verdict, evidence = "no such thing", str(missing)
        except Failed as failed:
            verdict, evidence = "failed", " ".join(str(failed).replace(folder, "FOLDER").split())
    return Verdict(framework, said.get("version", ""), leak, verdict, evidence.replace(folder, "FOLDER"))
