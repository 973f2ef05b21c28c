"""Scorers: compare the transcript of a run with the expectations of a case."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from wick.errors import ConfigError
from wick.evals.recordings import Replay
from wick.evals.report import REQUEST_CHECKS, EvalCheck
from wick.evals.suite import Expectations, ExpectedArguments, ExpectedText, equals_argument, format_argument
from wick.evals.transcript import EvalTranscript, TranscriptCall
from wick.testing.redaction import redact_arguments

PASSING_SCORE = 0.5  # of custom scorers that return a number
SHOWN_CHARS = 200
RECORD_AGAIN = "if the change is intended, record again with --record"


@dataclass(frozen=True, slots=True)
class Score:
    """The result of a custom scorer: a score from 0 to 1 with a reason. It passes from `threshold` on."""

    value: float  # from 0 to 1
    reason: str = ""  # shown in the report
    threshold: float = PASSING_SCORE  # the check passes from this value on


Scorer = Callable[[EvalTranscript], "Score | float | bool | Awaitable[Score | float | bool]"]


def score_transcript(transcript: EvalTranscript, expected: Expectations) -> list[EvalCheck]:
    """Return a check for each expectation that needs no model and no code of the user."""
    outcome = transcript.outcome
    wrong = [] if outcome == expected.outcome else [f"{outcome} ({transcript.reason}), not {expected.outcome}"]
    checks = [_make_check("outcome", wrong)]
    if expected.text is not None:
        checks.append(_make_check("text", _find_text_problems(transcript.text, expected.text)))
    return [*checks, *_check_calls(transcript, expected), *_check_limits(transcript, expected)]


def score_recording(replay: Replay, calls: Sequence[TranscriptCall] = ()) -> list[EvalCheck]:
    """Return the checks of a replay: requests as recorded, and no missing or unused recordings."""
    problems = [*dict.fromkeys(replay.missing), *_find_stopped_calls(replay, calls)]
    if replay.unused and not problems:
        problems.append(f"{replay.unused} of {len(replay.replies)} recorded replies were not needed")
    checks = [_make_check("recording", problems)]
    if any(reply.request is not None for reply in replay.replies):
        parts = [_describe_change(part, *change) for part, change in replay.changed.items()]
        changed = [f"{', '.join(parts)} changed since the recording"] if parts else []
        checks.append(_make_check("requests", changed))
    return checks


def _find_stopped_calls(replay: Replay, calls: Sequence[TranscriptCall]) -> list[str]:
    """Return a sentence for each call that ran while the case was recorded, and that a hook or an answer stops now."""
    stopped = {call.tool: call for call in reversed(calls) if call.decision != "ran"}
    found = dict.fromkeys(result.tool for result in replay.unused_results if result.tool in stopped)
    return [
        f"{tool} ran when the case was recorded, and was {stopped[tool].decision}: "
        f"{stopped[tool].reason or stopped[tool].output}{f' ({stopped[tool].hook})' if stopped[tool].hook else ''}"
        for tool in found
    ]


def _describe_change(part: str, first: int, change: str) -> str:
    notes = [*([change] if change else []), *([f"from request {first}"] if first > 1 else [])]
    return f"{part} ({', '.join(notes)})" if notes else part


def advise_recording(checks: Sequence[EvalCheck]) -> list[EvalCheck]:
    """Return checks, with the advice to record again if only requests changed.

    Beside a failed expectation the advice would be dangerous: recording again may hide a regression.
    """
    failed = {check.name for check in checks if not check.passed}
    if not failed or not failed <= REQUEST_CHECKS:
        return [*checks]
    return [
        check if check.passed else check.model_copy(update={"detail": f"{check.detail}; {RECORD_AGAIN}"})
        for check in checks
    ]


def _make_check(name: str, problems: Iterable[str]) -> EvalCheck:
    found = [*problems]
    return EvalCheck(name=name, passed=not found, score=0.0 if found else 1.0, detail="; ".join(found))


def _find_text_problems(text: str, expected: ExpectedText) -> list[str]:
    problems = [f"{part!r} is missing" for part in expected.contains if part not in text]
    problems += [f"{part!r} is in it" for part in expected.excludes if part in text]
    if expected.matches and not re.search(expected.matches, text):
        problems.append(f"it does not match {expected.matches!r}")
    if expected.equals is not None and text != expected.equals:
        problems.append(f"it is not {_shorten(expected.equals)!r}")
    return [f"{problem}: {_shorten(text)!r}" for problem in problems]


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def _check_calls(transcript: EvalTranscript, expected: Expectations) -> Iterator[EvalCheck]:
    names = [call.tool for call in transcript.calls]
    if expected.calls is not None:
        counted = [call.tool for call in transcript.calls if not call.is_answer or call.tool in expected.calls]
        wrong = [] if Counter(counted) == Counter(expected.calls) else [_list_difference(counted, expected.calls)]
        yield _make_check("calls", wrong)
    if expected.order is not None:
        rest = iter(names)
        is_in_order = all(name in rest for name in expected.order)
        wrong = [] if is_in_order else [_list_difference(names, expected.order)]
        yield _make_check("order", wrong)
    if expected.not_called:
        yield _make_check("not_called", [f"{name} was called" for name in expected.not_called if name in names])
    for item in expected.arguments:
        yield _make_check(f"arguments of {item.tool}", _find_argument_problem(transcript.calls, item))
    for output in expected.outputs:
        problems = [_find_text_problems(call.output, output) for call in transcript.calls if call.tool == output.tool]
        wrong = [] if [] in problems else problems[-1] if problems else [f"{output.tool} was not called"]
        yield _make_check(f"output of {output.tool}", wrong)
    if expected.blocked is not None:
        yield _compare_tools(
            "blocked", [call for call in transcript.calls if call.decision == "blocked"], expected.blocked
        )
    if expected.asked is not None:
        yield _compare_tools("asked", [call for call in transcript.calls if call.asked], expected.asked)
    if expected.denied is not None:
        yield _compare_tools(
            "denied", [call for call in transcript.calls if call.decision == "denied"], expected.denied
        )
    if expected.invalid is not None:
        yield _compare_tools(
            "invalid", [call for call in transcript.calls if call.decision == "invalid"], expected.invalid
        )


def _list_difference(names: Sequence[str], expected: Sequence[str]) -> str:
    return f"the calls are {', '.join(names) or 'none'}; expected {', '.join(expected) or 'none'}"


def _find_argument_problem(calls: Iterable[TranscriptCall], expected: ExpectedArguments) -> list[str]:
    found = [call.args for call in calls if call.tool == expected.tool]
    if any(_args_match(args, expected) for args in found):
        return []
    shown = "; ".join(_shorten(json.dumps(args, ensure_ascii=False, sort_keys=True)) for args in found)
    return [f"no call has {json.dumps(expected.args, ensure_ascii=False)} ({expected.match}): {shown or 'no call'}"]


def _args_match(args: dict[str, Any], expected: ExpectedArguments) -> bool:
    if expected.match != "regex":
        wanted = (expected.args, redact_arguments(expected.args))  # a replay has no secrets
        return any(equals_argument(one, args) if expected.match == "exact" else _is_subset(one, args) for one in wanted)
    texts = {name: format_argument(value) for name, value in args.items()}
    return all(name in texts and re.search(pattern, texts[name]) for name, pattern in expected.patterns.items())


def _is_subset(wanted: Any, found: Any) -> bool:
    """Return True if a value has all keys of another one, with equal values; at any depth of mappings."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(key in found and _is_subset(value, found[key]) for key, value in wanted.items())
    return equals_argument(wanted, found)


def _compare_tools(name: str, calls: Iterable[TranscriptCall], expected: Sequence[str]) -> EvalCheck:
    found = {call.tool: call.reason or call.output for call in calls}
    problems = [f"{tool} was not {name}" for tool in dict.fromkeys(expected) if tool not in found]
    problems += [f"{tool} was {name}: {reason}" for tool, reason in found.items() if tool not in expected]
    return _make_check(name, problems)


def _check_limits(transcript: EvalTranscript, expected: Expectations) -> Iterator[EvalCheck]:
    tokens, price = transcript.usage.total_tokens, transcript.price
    if expected.max_steps is not None:
        over = transcript.steps > expected.max_steps
        yield _make_check("max_steps", [f"{transcript.steps} steps, more than {expected.max_steps}"] if over else [])
    if expected.max_tokens is not None:
        over = tokens > expected.max_tokens
        yield _make_check("max_tokens", [f"{tokens:,} tokens, more than {expected.max_tokens:,}"] if over else [])
    if expected.max_cost is not None:
        problem = "the price of the model is not known" if price is None else ""
        if price is not None and float(price) > expected.max_cost:
            problem = f"${float(price):.6f}, more than ${expected.max_cost:g}"
        yield _make_check("max_cost", [problem] if problem else [])


# -- custom scorers ---------------------------------------------------------------------------------------------------


async def apply_scorer(name: str, scorer: Scorer, transcript: EvalTranscript) -> EvalCheck:
    """Return the check of a custom scorer, which may be async. An exception is a failed check."""
    try:
        given = scorer(transcript)
        value: object = await given if isawaitable(given) else given
        score = Score(value) if isinstance(value, int | float) else value
        if not isinstance(score, Score) or not 0 <= score.value <= 1:
            raise ConfigError(f"a scorer returns a Score, a bool, or a number from 0 to 1, not {value!r}")
    except Exception as error:
        return _make_check(name, [f"the scorer failed: {type(error).__name__}: {error}"])
    passed = score.value >= score.threshold
    return EvalCheck(name=name, passed=passed, score=round(float(score.value), 4), detail=score.reason)
