"""One call of a hook program, outside of any run, and what its answer would mean."""

from __future__ import annotations

import json
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from wick.hook_programs.answers import InvalidAnswer, parse_answer, read_answer
from wick.hook_programs.claude.answers import HandlerResult
from wick.hook_programs.claude.handlers import call_handler
from wick.hook_programs.claude.settings import HookHandler
from wick.hook_programs.failure_policy import Fail, decides
from wick.hook_programs.registry import HookProgram
from wick.hook_programs.runner import ProgramResult, Runner, run_blocking

ID = "1"  # of the only line that a program is sent


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a program said: `word` is agreed, changed, asks, refused, stops, continues or failed."""

    word: str
    reason: str
    answer: dict[str, Any]
    exit_code: int
    milliseconds: float


def tried_handler(entry: HookHandler, runner: Runner, told: dict[str, Any]) -> Verdict:
    """Call a handler of Claude Code's settings once with an event."""
    payload = json.dumps({"hook_event_name": entry.event, **told}).encode()
    start = perf_counter()
    said = run_blocking(lambda: call_handler(entry, payload, runner, None))
    took = (perf_counter() - start) * 1000
    if said.problem:
        return Verdict("failed", f"it {said.problem}, so {_means(entry.event, entry.fail)}", {}, 0, took)
    answer = said.answer.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)
    return Verdict(*_said(said), answer, 2 if said.refuses else 0, took)


def _said(said: HandlerResult) -> tuple[str, str]:
    if said.answer.continues is False:
        return "stops", said.answer.stopReason or ""
    if said.permission == "deny" or said.blocks:
        return ("continues" if said.entry.event in ("Stop", "SubagentStop") else "refused"), said.reason
    if said.permission in ("ask", "defer"):
        return "asks", said.specific.permissionDecisionReason or ""
    changes = said.specific.updatedInput is not None or said.specific.updatedToolOutput is not None
    return ("changed" if changes else "agreed"), "\n".join(said.context)


def _means(event: str, fail: Fail | None) -> str:
    return "it has not agreed" if decides(event) and fail != "open" else "the run goes on"


def tried(found: HookProgram, runner: Runner, told: dict[str, Any]) -> Verdict:
    """Call a program once with an event."""
    event = str(told.get("event") or (found.points[0] if found.points else ""))
    told = {"event": event, **told}
    lines = found.protocol == "lines"
    argv = [str(found.path), "serve" if lines else "run"]
    stdin = json.dumps({"id": ID, **told} if lines else told).encode() + b"\n"
    ran = run_blocking(lambda: runner.run(argv, stdin=stdin))
    try:
        answer = _line(ran) if lines else read_answer(ran)
    except InvalidAnswer as problem:
        reason = f"it {problem}, so {_means(event, found.fail)}"
        return Verdict("failed", reason, {}, ran.exit_code, ran.milliseconds)
    return Verdict(*_meaning(answer), answer, ran.exit_code, ran.milliseconds)


def _line(ran: ProgramResult) -> dict[str, Any]:
    """The answer of a program that is kept; it has ended, as there was nothing more to read."""
    if ran.problem:
        raise InvalidAnswer(ran.problem)
    answer = parse_answer(ran.stdout)
    if str(answer.pop("id", "")) != ID:
        raise InvalidAnswer("answered for another call" if answer else "did not answer")
    if "error" in answer and len(answer) == 1:
        raise InvalidAnswer(f"failed: {answer['error']}")
    return answer


_WORDS = {"block": "refused", "ask": "asks", "stop": "stops", "continue": "continues"}


def _meaning(answer: dict[str, Any]) -> tuple[str, str]:
    reason = str(answer.get("reason") or answer.get("question") or answer.get("message") or "")
    if answer.get("blocked") is True:
        return "refused", reason
    if (word := _WORDS.get(str(answer.get("decision")))) is not None:
        return word, reason
    if answer.get("follow_up_messages"):
        return "continues", "\n".join(map(str, answer["follow_up_messages"]))
    changes = any(answer.get(name) is not None for name in ("input", "args", "output", "result", "system"))
    return ("changed" if changes else "agreed"), reason
