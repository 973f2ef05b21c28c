"""Answers of handlers for Claude Code: validation of their JSON, and the combination of several answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wick import constants
from wick.decisions import Ask, Block, Stop
from wick.hook_programs.answers import InvalidAnswer
from wick.hook_programs.claude.settings import HookHandler
from wick.hook_programs.failure_policy import decides, handle_failure, one_line
from wick.operations import Run

Permission = Literal["allow", "deny", "ask", "defer"]


class _Data(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)  # other versions have more fields


class PermissionBehaviour(_Data):
    """The decision that a program makes in place of the user."""

    behavior: Literal["allow", "deny"]
    updatedInput: dict[str, Any] | None = None
    message: str | None = None
    interrupt: bool | None = None


class EventOutput(_Data):
    """The event-specific fields of an answer."""

    hookEventName: str
    permissionDecision: Permission | None = None
    permissionDecisionReason: str | None = None
    updatedInput: dict[str, Any] | None = None
    additionalContext: str | None = None
    updatedToolOutput: Any = None
    initialUserMessage: str | None = None
    decision: PermissionBehaviour | None = None


class ClaudeAnswer(_Data):
    """The JSON that a program printed. The defaults are the meaning of an empty answer."""

    continues: bool | None = Field(True, alias="continue")
    stopReason: str | None = None
    suppressOutput: bool | None = None
    systemMessage: str | None = None
    decision: Literal["block", "approve"] | None = None
    reason: str | None = None
    hookSpecificOutput: EventOutput | None = None


NOTHING = ClaudeAnswer.model_validate({})


def validate_answer(data: dict[str, Any], event: str) -> ClaudeAnswer:
    """Validate an answer to this event; raise `InvalidAnswer` if it is invalid."""
    try:
        answer = ClaudeAnswer.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidAnswer(f"answered with JSON that does not fit: {where}: {one_line(first['msg'])}") from None
    specific = answer.hookSpecificOutput
    if specific is not None and specific.hookEventName != event:
        raise InvalidAnswer(f"answered for {one_line(specific.hookEventName, 40)!r}, and it was asked about {event}")
    return answer


@dataclass(frozen=True, slots=True)
class HandlerResult:
    """The result of one handler. `problem` continues a sentence about its failure."""

    entry: HookHandler
    answer: ClaudeAnswer = NOTHING
    text: str = ""  # the output, if it is not JSON
    stderr: str = ""
    refuses: bool = False  # by exit code 2, or by the judgement of a prompt handler
    problem: str = ""
    printed: str = ""  # the beginning of the output

    @property
    def specific(self) -> EventOutput:
        return self.answer.hookSpecificOutput or EventOutput(hookEventName=self.entry.event)

    @property
    def reason(self) -> str:
        """The reason of a refusal: from the JSON, or else from stderr."""
        reason = self.specific.permissionDecisionReason or self.answer.reason or self.stderr.strip()
        return reason or f"the hook {self.entry.name} refused it and gave no reason"

    @property
    def blocks(self) -> bool:
        return self.refuses or self.answer.decision == "block"

    @property
    def context(self) -> list[str]:
        """The texts that are added to the context of the model."""
        plain = self.text if self.entry.event in ("SessionStart", "UserPromptSubmit") else ""
        return [text for text in (plain, self.specific.additionalContext or "") if text.strip()]

    @property
    def permission(self) -> Permission | None:
        if self.refuses:
            return "deny"
        old: dict[str | None, Permission] = {"approve": "allow", "block": "deny"}
        return self.specific.permissionDecision or old.get(self.answer.decision)


def find_stop(results: Sequence[HandlerResult]) -> Stop | None:
    """Return the Stop of the first answer with `continue: false`, which overrides all others."""
    for result in results:
        if result.answer.continues is False:
            reason = (result.answer.stopReason or "")[: constants.HOOK_TEXT_CHARS]
            return Stop(reason or f"the hook {result.entry.name} wants nothing more to be done")
    return None


def resolve_failures(run: Run, results: Sequence[HandlerResult]) -> Block | None:
    """Apply the failure policy to failed handlers; return the first Block."""
    blocks = [
        handle_failure(run, result.entry.name, result.problem, result.entry.fail, decides(result.entry.event))
        for result in results
        if result.problem
    ]
    return next((block for block in blocks if block is not None), None)


def join_refusals(results: Sequence[HandlerResult]) -> str:
    """Return the reasons of all refusals, joined; an empty text without refusals."""
    return "\n".join(dict.fromkeys(result.reason for result in results if result.blocks))


@dataclass(frozen=True, slots=True)
class ToolVerdict:
    """The combined answers about one tool use."""

    decision: Block | Ask | Stop | None = None
    allowed: bool = False
    rewrite: HandlerResult | None = None  # the last answer with an updated input
    context: list[str] = field(default_factory=list)


def combine_answers(run: Run, results: Sequence[HandlerResult], question: str) -> ToolVerdict:
    """Combine answers: deny before defer before ask before allow, in any order."""
    if (ended := find_stop(results)) is not None:
        return ToolVerdict(ended)
    if (broken := resolve_failures(run, results)) is not None:
        return ToolVerdict(broken)
    by = {
        permission: [result for result in results if result.permission == permission]
        for permission in ("deny", "defer", "ask", "allow")
    }
    context = [text for result in results for text in result.context]
    if by["deny"]:
        return ToolVerdict(Block(by["deny"][0].reason), context=context)
    rewrite = next((result for result in reversed(results) if result.specific.updatedInput is not None), None)
    if asking := (by["defer"] or by["ask"]):
        return ToolVerdict(Ask(asking[0].specific.permissionDecisionReason or question), False, rewrite, context)
    return ToolVerdict(None, bool(by["allow"]), rewrite, context)
