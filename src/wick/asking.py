"""Asking the user: once about each sealed operation, with the question and the answer in the log."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import isawaitable
from time import perf_counter
from typing import Any
from uuid import uuid4

from wick.decisions import Allow, Answer, Ask, Block, Question
from wick.events import ApprovalRequest, ApprovalResponse
from wick.frozen import freeze
from wick.operations import Operation, Run
from wick.why import Why


async def ask(op: Operation[Any], sealed: Operation[Any], asks: Sequence[Ask]) -> Allow | Block:
    """Put every question about a sealed operation to the user of the root run, together."""
    await op.before_asking()
    start = perf_counter()
    text = "\n".join(dict.fromkeys(ask.question for ask in asks))
    question = Question(text, f"ask_{uuid4().hex[:12]}", sealed.hash, sealed.about(), sealed)
    answer = op.trail.answers.get(question.hash) or _remembered(op.run, question) or await _put(op.run, question)
    if isinstance(answer, Allow) and answer.args is not None and "args" not in op.editable:
        answer = Block("only a tool's arguments can be changed by an answer")
    op.trail.answers[question.hash] = answer  # it covers later attempts at the same
    verdict, reason = ("refused", answer.reason) if isinstance(answer, Block) else ("approved", "")
    op.why.append(Why("user", "gate", verdict, reason, (perf_counter() - start) * 1000))
    return answer


def _remembered(run: Run, question: Question) -> Allow | Block | None:
    """An answer that is in the log already, given while the run was interrupted or to an earlier attempt."""
    said = run.thread.answers.get(question.hash)
    if said is None:
        return None
    return Allow(said.get("args")) if said["allowed"] else Block(said["reason"])


async def _put(run: Run, question: Question) -> Allow | Block:
    about = {"id": question.id, "question": question.question}
    run.thread.append("asked", {"run": run.id, "hash": question.hash, **about, **question.about})
    run.emit(ApprovalRequest(name=question.op.name, about=question.about, **about))
    answer = _understood(await _answer(run, question), question)
    allowed, reason = isinstance(answer, Allow), getattr(answer, "reason", "")
    changed = {"args": answer.args} if isinstance(answer, Allow) and answer.args is not None else {}
    said = {"id": question.id, "hash": question.hash, "allowed": allowed, "reason": reason}
    run.thread.append("answered", said | changed)
    run.emit(ApprovalResponse(name=question.op.name, id=question.id, allowed=allowed, reason=reason))
    return answer


async def _answer(run: Run, question: Question) -> Answer:
    asker = run.root.asker
    if asker is None:
        return Block(f"nobody is there to say yes to: {question.question}")
    try:
        answer = asker(question)
        return await answer if isawaitable(answer) else answer
    except Exception as error:  # who could not be asked has not agreed
        return Block(f"the user could not be asked: {error}")


def _understood(answer: Any, question: Question) -> Allow | Block:
    if answer is None or answer is True:
        return Allow()
    if answer is False:
        return Block(f"the user said no to: {question.question}")
    if isinstance(answer, Allow | Block):
        return _json(answer)
    return Block(f"{answer!r} is not an answer to: {question.question}")


def _json(answer: Allow | Block) -> Allow | Block:
    if isinstance(answer, Block) or answer.args is None:
        return answer
    try:
        return Allow(freeze(answer.args))
    except (TypeError, ValueError) as problem:
        return Block(f"the arguments in the answer are not JSON data: {problem}")
