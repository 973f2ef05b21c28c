"""One program per hook: `<program> run`, JSON on its stdin, JSON or nothing on its stdout."""

from __future__ import annotations

from wick.hook_programs import kodelet, long_running
from wick.hook_programs.answers import Unfit, answered, encoded
from wick.hook_programs.failure_policy import decides
from wick.hook_programs.long_running import Json, Language, Plain
from wick.hook_programs.registry import Found
from wick.hook_programs.runner import Runner
from wick.hooks import Hook


def hooks(found: Found, runner: Runner) -> list[Hook]:
    """The hooks of a program, for kodelet's events and for wick's own points."""

    async def ask(told: Json) -> Json:
        ran = await runner.run([str(found.path), "run"], stdin=encoded(told))
        answer = answered(ran)
        if ran.unread and decides(told["event"]) and not _refuses(answer):
            raise Unfit("ended before it had read what it was asked")
        return answer

    made = [
        long_running.hooks(found, language(event), ask, cwd=runner.cwd, timeout=runner.timeout)
        for event in found.points
    ]
    return [hook for hooks in made for hook in hooks]


def _refuses(answer: Json) -> bool:
    return answer.get("blocked") is True or answer.get("decision") in ("block", "stop")


def language(event: str) -> Language:
    """What is spoken at an event."""
    return kodelet.Event(event) if event in kodelet.EVENTS else Plain(event)
