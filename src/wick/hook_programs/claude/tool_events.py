"""The events of Claude Code's settings for tools: before, after, and for permission requests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from wick._internal.frozen import canonical_json
from wick.decisions import Allow, Ask, Block, Question, Stop
from wick.errors import HookError, InvalidArgs
from wick.hook_programs.agreements import has_agreed, record_agreement
from wick.hook_programs.claude.answers import (
    HandlerResult,
    ToolVerdict,
    combine_answers,
    find_stop,
    join_refusals,
    resolve_failures,
)
from wick.hook_programs.claude.names import ToolView
from wick.hook_programs.claude.session import HookSession
from wick.hook_programs.claude.settings import HookHandler
from wick.messages import ToolResult
from wick.operations import Run, ToolUse


class ToolEvents:
    """Hooks for PreToolUse, PermissionRequest, PostToolUse and PostToolUseFailure."""

    def __init__(self, session: HookSession) -> None:
        self.session, self.cwd = session, session.runner.cwd

    def install_delegate(self, run: Run) -> None:
        """Register to answer permission questions before the user."""
        if self.answer_permission not in run.progress.extensions.delegates:
            run.progress.extensions.delegates.append(self.answer_permission)

    async def before_use(self, use: ToolUse) -> Block | Ask | Stop | None:
        """Fire PreToolUse before the gate: a program may change the input, allow, ask or deny."""
        view = ToolView.from_use(use, self.cwd)
        entries = self.session.find_handlers("PreToolUse", view.names, use)
        results, verdict = await self._fire_pre_tool_use(use, view, entries)
        if isinstance(verdict.decision, Block | Stop):
            return verdict.decision
        for result in results:
            if result.specific.updatedInput is None:
                record_agreement(use, (self, result.entry.key))
        if verdict.rewrite is not None:
            original = use.args
            use.args = view.from_claude_args(verdict.rewrite.specific.updatedInput or {}, original)
            try:
                use.validate()
            except InvalidArgs as error:
                use.args = original
                name = verdict.rewrite.entry.name
                return Block(f"the hook program {name} gave an input that the tool does not take: {error}")
            record_agreement(use, (self, verdict.rewrite.entry.key))
        if verdict.allowed:
            use.grant()
        return verdict.decision

    async def check_sealed(self, use: ToolUse) -> Block | Ask | Stop | None:
        """Fire PreToolUse at the gate for handlers that have not agreed to exactly this call."""
        view = ToolView.from_use(use, self.cwd)
        entries = [
            entry
            for entry in self.session.find_handlers("PreToolUse", view.names, use)
            if not has_agreed(use, (self, entry.key))
        ]  # fmt: skip
        if not entries:
            return None
        _, verdict = await self._fire_pre_tool_use(use, view, entries)
        if verdict.rewrite is not None and not isinstance(verdict.decision, Block | Stop):
            wanted = view.from_claude_args(verdict.rewrite.specific.updatedInput or {}, use.args)
            with suppress(InvalidArgs):
                if canonical_json(use.bound.validate(wanted)) == canonical_json(use.args):
                    return verdict.decision
            name = verdict.rewrite.entry.name
            return Block(
                f"the hook program {name} wants to change what was changed after it had looked, so it has not agreed"
            )
        if verdict.allowed:
            use.grant()
        return verdict.decision

    async def _fire_pre_tool_use(
        self, use: ToolUse, view: ToolView, entries: Sequence[HookHandler]
    ) -> tuple[list[HandlerResult], ToolVerdict]:
        more = {"tool_name": view.name, "tool_input": view.to_claude_args(use.args), "tool_use_id": use.call.id}
        results = await self.session.fire("PreToolUse", use, view.names, more, entries=entries)
        question = f"A hook wants your agreement. May {use.bound.name} be used?"
        verdict = combine_answers(use.run, results, question)
        if isinstance(verdict.decision, Block):
            reason = await self.session.shorten(use.run, "PreToolUse", verdict.decision.reason)
            verdict = replace(verdict, decision=Block(reason))
        await self.session.add_context(use.run, "PreToolUse", verdict.context)
        return results, verdict

    async def after_use(self, use: ToolUse) -> Stop | None:
        """Fire PostToolUse after a successful tool use."""
        if not _was_run(use) or use.error is not None or use.result.error:
            return None
        view, args = ToolView.from_use(use, self.cwd), _final_args(use)
        response = view.to_claude_response(args, use.result)
        results = await self._fire_post_tool_use("PostToolUse", use, view, args, {"tool_response": response})
        for result in results:
            specific = result.answer.hookSpecificOutput
            if specific is not None and "updatedToolOutput" in specific.model_fields_set:
                output = specific.updatedToolOutput
                text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
                use.result = ToolResult(text, data=None if isinstance(output, str) else output)
        return find_stop(results)

    async def after_failure(self, use: ToolUse) -> Stop | None:
        """Fire PostToolUseFailure after a failed tool use."""
        if not _was_run(use) or (use.error is None and not use.result.error):
            return None
        error = str(use.error) if use.error is not None else use.result.error
        more = {"error": error, "is_interrupt": False}
        results = await self._fire_post_tool_use(
            "PostToolUseFailure", use, ToolView.from_use(use, self.cwd), _final_args(use), more
        )
        return find_stop(results)

    async def _fire_post_tool_use(
        self, event: str, use: ToolUse, view: ToolView, args: Any, more: dict[str, Any]
    ) -> list[HandlerResult]:
        fields = {"tool_name": view.name, "tool_input": view.to_claude_args(args), "tool_use_id": use.call.id}
        fields |= more | {"duration_ms": _duration_ms(use)}
        entries = self.session.find_handlers(event, view.names, use)
        results = await self.session.fire(event, use, view.names, fields, entries=entries)
        resolve_failures(use.run, results)
        context = [text for result in results for text in result.context]
        feedback = [join_refusals(results)] if join_refusals(results) else []
        await self.session.add_context(use.run, event, [*feedback, *context])
        return results

    # -- questions to the user ----------------------------------------------------------------------------------------

    async def answer_permission(self, run: Run, question: Question) -> tuple[Allow | Block | None, str]:
        """Fire PermissionRequest; return a program's answer with its name, or notify the user."""
        use, about_itself = question.op, question.hash == question.op.hash
        if isinstance(use, ToolUse) and about_itself:
            try:
                answer, name = await self._fire_permission_request(use, question)
            except HookError as error:
                return Block(str(error)), "PermissionRequest"
            if answer is not None:
                return answer, name
        await self.session.notify(run, "permission_prompt" if about_itself else "elicitation_dialog", question.question)
        return None, ""

    async def _fire_permission_request(self, use: ToolUse, question: Question) -> tuple[Allow | Block | None, str]:
        """Return a denial always, but an approval only for questions of the permission mode.

        Rules and hooks that ask want an answer of the user.
        """
        view = ToolView.from_use(use, self.cwd)
        more = {
            "tool_name": view.name,
            "tool_input": view.to_claude_args(use.args),
            "permission_suggestions": view.suggest_rules(use.args),
        }
        entries = self.session.find_handlers("PermissionRequest", view.names, use)
        results = await self.session.fire("PermissionRequest", use, view.names, more, entries=entries)
        resolve_failures(use.run, results)
        if (ended := find_stop(results)) is not None:
            use.run.halt(ended)
            return Block(ended.reason), "PermissionRequest"
        answers = [
            (result.specific.decision, result.entry.name) for result in results if result.specific.decision is not None
        ]
        for answer, name in answers:
            if answer.behavior == "deny":
                reason = answer.message or f"the hook {name} said no"
                if answer.interrupt:
                    use.run.halt(Stop(reason))
                return Block(reason), name
        if not answers or question.question != use.state.grants.default_question:
            return None, ""
        answer, name = answers[0]
        given = answer.updatedInput
        return Allow(None if given is None else view.from_claude_args(given, use.args)), name


def _was_run(use: ToolUse) -> bool:
    """Return True if the tool ran, and was not prevented by a hook or the user."""
    return use.prevented is None and not use.invalid and use.tool is not None


def _final_args(use: ToolUse) -> Any:
    """Return the arguments that the tool ran with."""
    return use.last_sealed("args")


def _duration_ms(use: ToolUse) -> int:
    """Return the duration of the tool use by the log, in milliseconds."""
    ended = 0.0
    for entry in reversed(use.run.thread.entries):
        mine = entry.kind in ("intent", "done") and entry.data["call"] == use.call.id
        if mine and entry.kind == "done":
            ended = ended or entry.at
        elif mine:
            return round(max(0.0, (ended or entry.at) - entry.at) * 1000)
    return 0
