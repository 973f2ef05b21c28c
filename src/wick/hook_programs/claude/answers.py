"""What a program for Claude Code answers: its JSON, checked, and what several answers come to together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wick import constants
from wick.decisions import Ask, Block, Stop
from wick.hook_programs.answers import Unfit
from wick.hook_programs.claude.settings import Entry
from wick.hook_programs.failure_policy import decides, failed, words
from wick.operations import Run

Permission = Literal["allow", "deny", "ask", "defer"]


class _Data(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)  # other versions have more fields


class Behaviour(_Data):
    """What a program says in place of the user."""

    behavior: Literal["allow", "deny"]
    updatedInput: dict[str, Any] | None = None
    message: str | None = None
    interrupt: bool | None = None


class Specific(_Data):
    """What only some events have."""

    hookEventName: str
    permissionDecision: Permission | None = None
    permissionDecisionReason: str | None = None
    updatedInput: dict[str, Any] | None = None
    additionalContext: str | None = None
    updatedToolOutput: Any = None
    initialUserMessage: str | None = None
    decision: Behaviour | None = None


class Answer(_Data):
    """The JSON that a program printed; without any, what saying nothing means."""

    goes_on: bool | None = Field(True, alias="continue")
    stopReason: str | None = None
    suppressOutput: bool | None = None
    systemMessage: str | None = None
    decision: Literal["block", "approve"] | None = None
    reason: str | None = None
    hookSpecificOutput: Specific | None = None


NOTHING = Answer.model_validate({})


def checked(data: dict[str, Any], event: str) -> Answer:
    """An answer to this event; `Unfit` if it is none."""
    try:
        answer = Answer.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise Unfit(f"answered with JSON that does not fit: {where}: {words(first['msg'])}") from None
    specific = answer.hookSpecificOutput
    if specific is not None and specific.hookEventName != event:
        raise Unfit(f"answered for {words(specific.hookEventName, 40)!r}, and it was asked about {event}")
    return answer


@dataclass(frozen=True, slots=True)
class Said:
    """What one handler came to. `problem` is the rest of a sentence about its failure."""

    entry: Entry
    answer: Answer = NOTHING
    text: str = ""  # what it printed, where that is no JSON
    stderr: str = ""
    refuses: bool = False  # by exit code 2, or as a model that was asked
    problem: str = ""
    printed: str = ""  # the beginning of all that it printed

    @property
    def specific(self) -> Specific:
        return self.answer.hookSpecificOutput or Specific(hookEventName=self.entry.event)

    @property
    def reason(self) -> str:
        """Why it refuses: the JSON's reason, or else what it wrote to stderr."""
        said = self.specific.permissionDecisionReason or self.answer.reason or self.stderr.strip()
        return said or f"the hook {self.entry.name} refused it and gave no reason"

    @property
    def blocks(self) -> bool:
        return self.refuses or self.answer.decision == "block"

    @property
    def context(self) -> list[str]:
        """What it wants the model to know."""
        plain = self.text if self.entry.event in ("SessionStart", "UserPromptSubmit") else ""
        return [text for text in (plain, self.specific.additionalContext or "") if text.strip()]

    @property
    def permission(self) -> Permission | None:
        if self.refuses:
            return "deny"
        old: dict[str | None, Permission] = {"approve": "allow", "block": "deny"}
        return self.specific.permissionDecision or old.get(self.answer.decision)


def stop(said: Sequence[Said]) -> Stop | None:
    """`continue: false` ends everything and wins over all."""
    for one in said:
        if one.answer.goes_on is False:
            reason = (one.answer.stopReason or "")[: constants.HOOK_TEXT_CHARS]
            return Stop(reason or f"the hook {one.entry.name} wants nothing more to be done")
    return None


def failure(run: Run, said: Sequence[Said]) -> Block | None:
    """What the failures among several answers mean; the first that denies counts."""
    blocks = [
        failed(run, one.entry.name, one.problem, one.entry.fail, decides(one.entry.event))
        for one in said
        if one.problem
    ]
    return next((block for block in blocks if block is not None), None)


def refusal(said: Sequence[Said]) -> str:
    """Why those refuse that do, all together; nothing if nobody does."""
    return "\n".join(dict.fromkeys(one.reason for one in said if one.blocks))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What several answers about one tool use come to."""

    decision: Block | Ask | Stop | None = None
    allowed: bool = False
    rewrite: Said | None = None  # the answer whose input counts: the last that has one
    context: list[str] = field(default_factory=list)


def verdict(run: Run, said: Sequence[Said], question: str) -> Verdict:
    """Deny over defer over ask over allow, whatever the order."""
    if (ended := stop(said)) is not None:
        return Verdict(ended)
    if (broken := failure(run, said)) is not None:
        return Verdict(broken)
    by = {word: [one for one in said if one.permission == word] for word in ("deny", "defer", "ask", "allow")}
    context = [text for one in said for text in one.context]
    if by["deny"]:
        return Verdict(Block(by["deny"][0].reason), context=context)
    rewrite = next((one for one in reversed(said) if one.specific.updatedInput is not None), None)
    if asking := (by["defer"] or by["ask"]):
        return Verdict(Ask(asking[0].specific.permissionDecisionReason or question), False, rewrite, context)
    return Verdict(None, bool(by["allow"]), rewrite, context)
