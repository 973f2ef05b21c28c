"""Hooks of programs that are started for each event: `<program> run`, JSON on stdin, JSON or nothing on stdout."""

from __future__ import annotations

from wick.hook_programs import kodelet, long_running
from wick.hook_programs.answers import InvalidAnswer, encode_payload, read_answer
from wick.hook_programs.failure_policy import decides
from wick.hook_programs.long_running import Json, Language, WickLanguage
from wick.hook_programs.registry import HookProgram
from wick.hook_programs.runner import Runner
from wick.hooks import Hook


def build_hooks(program: HookProgram, runner: Runner) -> list[Hook]:
    """Return the hooks of a program, for kodelet's events and for wick's own points."""

    async def ask(payload: Json) -> Json:
        ran = await runner.run([str(program.path), "run"], stdin=encode_payload(payload))
        answer = read_answer(ran)
        refuses = answer.get("blocked") is True or answer.get("decision") in ("block", "stop")
        if ran.unread and decides(payload["event"]) and not refuses:
            raise InvalidAnswer("exited before it had read its input")
        return answer

    return [
        hook
        for event in program.points
        for hook in long_running.build_hooks(program, language_for(event), ask, cwd=runner.cwd, timeout=runner.timeout)
    ]


def language_for(event: str) -> Language:
    """Return the language of an event."""
    return kodelet.KodeletEvent(event) if event in kodelet.EVENTS else WickLanguage(event)
