"""A single call of a hook program outside of a run, with the verdict of its answer."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

from wick.hook_programs.answers import InvalidAnswer, encode_payload, parse_answer, read_answer
from wick.hook_programs.claude.answers import HandlerResult
from wick.hook_programs.claude.handlers import call_handler
from wick.hook_programs.claude.settings import HookHandler
from wick.hook_programs.failure_policy import Fail, decides
from wick.hook_programs.registry import HookProgram
from wick.hook_programs.runner import ProgramResult, Runner, run_blocking

CALL_ID = "1"  # of the only request line


@dataclass(frozen=True, slots=True)
class TrialVerdict:
    """The verdict of a program: `word` is agreed, changed, asks, refused, stops, continues or failed."""

    word: str
    reason: str
    answer: dict[str, Any]
    exit_code: int
    milliseconds: float


def try_handler(entry: HookHandler, runner: Runner, payload: dict[str, Any]) -> TrialVerdict:
    """Call a handler of Claude Code's settings once with an event."""
    stdin = encode_payload({"hook_event_name": entry.event, **payload})
    start = perf_counter()
    reply = run_blocking(lambda: call_handler(entry, stdin, runner, None))
    took = (perf_counter() - start) * 1000
    if reply.problem:
        return TrialVerdict(
            "failed", f"it {reply.problem}, so {_describe_failure(entry.event, entry.fail)}", {}, 0, took
        )
    answer = reply.answer.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)
    return TrialVerdict(*_interpret_handler(reply), answer, 2 if reply.refuses else 0, took)


def _interpret_handler(reply: HandlerResult) -> tuple[str, str]:
    if reply.answer.continues is False:
        return "stops", reply.answer.stopReason or ""
    if reply.permission == "deny" or reply.blocks:
        return ("continues" if reply.entry.event in ("Stop", "SubagentStop") else "refused"), reply.reason
    if reply.permission in ("ask", "defer"):
        return "asks", reply.specific.permissionDecisionReason or ""
    changes = reply.specific.updatedInput is not None or reply.specific.updatedToolOutput is not None
    return ("changed" if changes else "agreed"), "\n".join(reply.context)


def _describe_failure(event: str, fail: Fail | None) -> str:
    return "the operation is blocked" if decides(event) and fail != "open" else "the run continues"


def try_program(program: HookProgram, runner: Runner, payload: dict[str, Any]) -> TrialVerdict:
    """Call a program once with an event."""
    event = str(payload.get("event") or (program.points[0] if program.points else ""))
    payload = {"event": event, **payload}
    lines = program.protocol == "lines"
    argv = [str(program.path), "serve" if lines else "run"]
    stdin = encode_payload({"id": CALL_ID, **payload} if lines else payload) + b"\n"
    ran = run_blocking(lambda: runner.run(argv, stdin=stdin))
    try:
        answer = _parse_line(ran) if lines else read_answer(ran)
    except InvalidAnswer as problem:
        reason = f"it {problem}, so {_describe_failure(event, program.fail)}"
        return TrialVerdict("failed", reason, {}, ran.exit_code, ran.milliseconds)
    return TrialVerdict(*_interpret_answer(answer), answer, ran.exit_code, ran.milliseconds)


def _parse_line(ran: ProgramResult) -> dict[str, Any]:
    """Return the answer of a program with the protocol `lines`; it ends at the end of its input."""
    if ran.problem:
        raise InvalidAnswer(ran.problem)
    answer = parse_answer(ran.stdout)
    if str(answer.pop("id", "")) != CALL_ID:
        raise InvalidAnswer("answered for another call" if answer else "did not answer")
    if "error" in answer and len(answer) == 1:
        raise InvalidAnswer(f"failed: {answer['error']}")
    return answer


_WORDS = {"block": "refused", "ask": "asks", "stop": "stops", "continue": "continues"}


def _interpret_answer(answer: dict[str, Any]) -> tuple[str, str]:
    reason = str(answer.get("reason") or answer.get("question") or answer.get("message") or "")
    if answer.get("blocked") is True:
        return "refused", reason
    if (word := _WORDS.get(str(answer.get("decision")))) is not None:
        return word, reason
    if answer.get("follow_up_messages"):
        return "continues", "\n".join(map(str, answer["follow_up_messages"]))
    changes = any(answer.get(name) is not None for name in ("input", "args", "output", "result", "system"))
    return ("changed" if changes else "agreed"), reason
