"""The events of Claude Code's settings that are about tools: before, after, and when the user is asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from wick._internal.frozen import canonical_json
from wick.decisions import Allow, Ask, Block, Question, Stop
from wick.errors import HookError, InvalidArgs
from wick.hook_programs.agreements import agreed, remember
from wick.hook_programs.claude.answers import Said, Verdict, failure, refusal, stop, verdict
from wick.hook_programs.claude.names import Place
from wick.hook_programs.claude.session import Session
from wick.hook_programs.claude.settings import Entry
from wick.messages import ToolResult
from wick.operations import Run, ToolUse


class ToolEvents:
    """PreToolUse, PermissionRequest, PostToolUse, PostToolUseFailure."""

    def __init__(self, session: Session) -> None:
        self.session, self.cwd = session, session.runner.cwd

    def deputise(self, run: Run) -> None:
        """Be there when the user is about to be asked."""
        if self.answer not in run.progress.delegates:
            run.progress.delegates.append(self.answer)

    async def look(self, use: ToolUse) -> Block | Ask | Stop | None:
        """PreToolUse, before: a program may change the input, allow, ask or deny."""
        place = Place.of(use, self.cwd)
        entries = self.session.matching("PreToolUse", place.names, use)
        said, verdict = await self._asked(use, place, entries)
        if isinstance(verdict.decision, Block | Stop):
            return verdict.decision
        for one in said:
            if one.specific.updatedInput is None:
                remember(use, (self, one.entry.key))
        if verdict.rewrite is not None:
            if (refused := _rewrite(use, place, verdict.rewrite)) is not None:
                return refused
            remember(use, (self, verdict.rewrite.entry.key))
        if verdict.allowed:
            use.grant()
        return verdict.decision

    async def check(self, use: ToolUse) -> Block | Ask | Stop | None:
        """PreToolUse, at the gate: who has not agreed to exactly this call is asked again."""
        place = Place.of(use, self.cwd)
        entries = [
            entry
            for entry in self.session.matching("PreToolUse", place.names, use)
            if not agreed(use, (self, entry.key))
        ]  # fmt: skip
        if not entries:
            return None
        _, verdict = await self._asked(use, place, entries)
        if verdict.rewrite is not None and not isinstance(verdict.decision, Block | Stop):
            if _same(place, verdict.rewrite, use):
                return verdict.decision
            name = verdict.rewrite.entry.name
            return Block(
                f"the hook program {name} wants to change what was changed after it had looked, so it has not agreed"
            )
        if verdict.allowed:
            use.grant()
        return verdict.decision

    async def _asked(self, use: ToolUse, place: Place, entries: Sequence[Entry]) -> tuple[list[Said], Verdict]:
        more = {"tool_name": place.name, "tool_input": place.shown(use.args), "tool_use_id": use.call.id}
        said = await self.session.fire("PreToolUse", use, place.names, more, entries=entries)
        question = f"A hook wants your agreement. May {use.bound.name} be used?"
        found = verdict(use.run, said, question)
        if isinstance(found.decision, Block):
            found = replace(
                found, decision=Block(await self.session.short(use.run, "PreToolUse", found.decision.reason))
            )
        await self.session.add_context(use.run, "PreToolUse", found.context)
        return said, found

    async def review(self, use: ToolUse) -> Stop | None:
        """PostToolUse: after a tool that did what it was told."""
        if not _ran(use) or use.error is not None or use.result.error:
            return None
        place, args = Place.of(use, self.cwd), _final(use)
        response = place.response(args, use.result)
        said = await self._reviewed("PostToolUse", use, place, args, {"tool_response": response})
        for one in said:
            specific = one.answer.hookSpecificOutput
            if specific is not None and "updatedToolOutput" in specific.model_fields_set:
                use.result = _output(specific.updatedToolOutput)
        return stop(said)

    async def review_failure(self, use: ToolUse) -> Stop | None:
        """PostToolUseFailure: after a tool that failed."""
        if not _ran(use) or (use.error is None and not use.result.error):
            return None
        error = str(use.error) if use.error is not None else use.result.error
        more = {"error": error, "is_interrupt": False}
        said = await self._reviewed("PostToolUseFailure", use, Place.of(use, self.cwd), _final(use), more)
        return stop(said)

    async def _reviewed(self, event: str, use: ToolUse, place: Place, args: Any, more: dict[str, Any]) -> list[Said]:
        told = {"tool_name": place.name, "tool_input": place.shown(args), "tool_use_id": use.call.id}
        told |= more | {"duration_ms": _duration(use)}
        entries = self.session.matching(event, place.names, use)
        said = await self.session.fire(event, use, place.names, told, entries=entries)
        failure(use.run, said)
        context = [text for one in said for text in one.context]
        feedback = [refusal(said)] if refusal(said) else []
        await self.session.add_context(use.run, event, [*feedback, *context])
        return said

    # -- questions to the user ----------------------------------------------------------------------------------------

    async def answer(self, run: Run, question: Question) -> tuple[Allow | Block | None, str]:
        """PermissionRequest: what a program says in the user's place; else the user is notified and asked."""
        use, about_itself = question.op, question.hash == question.op.hash
        if isinstance(use, ToolUse) and about_itself:
            try:
                found, name = await self._permitted(use, question)
            except HookError as error:
                return Block(str(error)), "PermissionRequest"
            if found is not None:
                return found, name
        await self.session.notify(run, "permission_prompt" if about_itself else "elicitation_dialog", question.question)
        return None, ""

    async def _permitted(self, use: ToolUse, question: Question) -> tuple[Allow | Block | None, str]:
        place = Place.of(use, self.cwd)
        suggested = place.suggestions(use.args)
        more = {"tool_name": place.name, "tool_input": place.shown(use.args), "permission_suggestions": suggested}
        entries = self.session.matching("PermissionRequest", place.names, use)
        said = await self.session.fire("PermissionRequest", use, place.names, more, entries=entries)
        failure(use.run, said)
        if (ended := stop(said)) is not None:
            use.run.halt(ended)
            return Block(ended.reason), "PermissionRequest"
        return self._decided(use, place, said, question)

    def _decided(
        self, use: ToolUse, place: Place, said: Sequence[Said], question: Question
    ) -> tuple[Allow | Block | None, str]:
        """A no counts; a yes only for what a permission mode asks, for rules and hooks that ask mean the user."""
        answers = [(one.specific.decision, one.entry.name) for one in said if one.specific.decision is not None]
        for answer, name in answers:
            if answer.behavior == "deny":
                if answer.interrupt:
                    use.run.halt(Stop(answer.message or f"the hook {name} said no"))
                return Block(answer.message or f"the hook {name} said no"), name
        if not answers or question.question != use.state.default_question:
            return None, ""
        answer, name = answers[0]
        given = answer.updatedInput
        return Allow(None if given is None else place.taken(given, use.args)), name


def _rewrite(use: ToolUse, place: Place, said: Said) -> Block | None:
    """Give a call the input that a program wants; what the tool does not take is the program's failure."""
    given, was = said.specific.updatedInput or {}, use.args
    use.args = place.taken(given, was)
    try:
        use.validate()
    except InvalidArgs as error:
        use.args = was
        return Block(f"the hook program {said.entry.name} gave an input that the tool does not take: {error}")
    return None


def _same(place: Place, said: Said, use: ToolUse) -> bool:
    """Whether the input that a program wants is the one that there is."""
    try:
        wanted = use.bound.validate(place.taken(said.specific.updatedInput or {}, use.args))
    except InvalidArgs:
        return False
    return canonical_json(wanted) == canonical_json(use.args)


def _ran(use: ToolUse) -> bool:
    """Whether the tool was really used; what a hook or the user prevented was not."""
    return use.state.prevented is None and not use.state.invalid and use.tool is not None


def _final(use: ToolUse) -> Any:
    """The arguments that the tool was used with."""
    return use.last_sealed("args")


def _duration(use: ToolUse) -> int:
    """How long the tool took, as the log has it."""
    ended = 0.0
    for entry in reversed(use.run.thread.entries):
        mine = entry.kind in ("intent", "done") and entry.data["call"] == use.call.id
        if mine and entry.kind == "done":
            ended = ended or entry.at
        elif mine:
            return round(max(0.0, (ended or entry.at) - entry.at) * 1000)
    return 0


def _output(given: Any) -> ToolResult:
    if isinstance(given, str):
        return ToolResult(given)
    return ToolResult(json.dumps(given, ensure_ascii=False), data=given)
