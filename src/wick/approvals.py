"""Approvals: ask the user once about each sealed operation, and log the question and the answer."""

from __future__ import annotations

import logging
from asyncio import Lock, sleep
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from inspect import isawaitable
from math import inf
from time import perf_counter, time
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from wick._internal.frozen import FrozenDict, freeze, thaw
from wick.decisions import Allow, Ask, Asker, Block, Question
from wick.errors import Paused
from wick.events import ApprovalRequest, ApprovalResponse
from wick.operations import Operation, Run
from wick.threads import ThreadWriter
from wick.why import DispatchState, describe_answer

logger = logging.getLogger(__name__)

SOURCE = "source"  # the scope of an answer that endorses the sources of a question for this run
START_AFRESH = "start afresh"  # the argument `workspace` of an answer: continue in an empty folder, without the files

# The answers for each operation, by hash, for its later attempts. Hooks can write to `DispatchState`, but not to this.
_answers: WeakKeyDictionary[DispatchState, dict[str, Allow | Block]] = WeakKeyDictionary()
# The id of the root run whose asker the calling code is part of. Such code may ask again without waiting for itself.
_asking: ContextVar[str] = ContextVar("wick_asking", default="")


async def request_approval(op: Operation[object], sealed: Operation[object], asks: Sequence[Ask]) -> Allow | Block:
    """Ask the user of the root run all questions about a sealed operation at once. An asker gets a view of it."""
    await op.before_asking()
    start = perf_counter()
    text = "\n".join(dict.fromkeys(ask.question for ask in asks))
    about = {name: value for ask in asks for name, value in ask.details.items()} | sealed.to_json()
    if text == op.state.grants.default_question:
        about["lasting"] = True  # a lasting grant skips this question
    question = Question(text, new_question_id(), sealed.hash, about, sealed.view())
    given = _answers.setdefault(op.state, {})
    answer = given.get(question.hash) or await ask_user(op.run, question)
    if isinstance(answer, Allow) and answer.args is not None and "args" not in op.editable:
        answer = Block("only a tool's arguments can be changed by an answer")
    given[question.hash] = answer  # also valid for later attempts
    logged: Mapping[str, object] = op.run.root.thread.answers.get(question.hash, {})
    row = {**logged, "allowed": isinstance(answer, Allow), "reason": getattr(answer, "reason", "")}
    op.why.append(describe_answer(row, question.args, (perf_counter() - start) * 1000))
    return answer


async def find_answered_question(op: Operation[object], sealed: Operation[object]) -> list[Ask]:
    """Return the question about an operation that a user has answered, if no guard asks it any more.

    When a run is resumed, its guards may decide otherwise than before. The decision of a person still holds.
    """
    thread, name = op.run.root.thread, op.operation_name
    if name == "tool_use" and thread.answers and sealed.hash in thread.answers:
        return [Ask("a guard asked before the run was resumed")]
    open_questions = [asked for asked in thread.questions.values() if asked.get("operation") == name]
    for asked in open_questions:  # usually none: the hash of a long conversation takes time
        if asked["hash"] == sealed.hash and thread.writer is not None and await thread.writer.answer(asked["id"], 0.0):
            return [Ask(asked["question"])]
    return []


def new_question_id() -> str:
    return f"ask_{uuid4().hex[:12]}"


async def ask_user(run: Run, question: Question) -> Allow | Block:
    """Return the logged answer to a question, or ask the user. The root's thread has the questions of children."""
    thread = run.root.thread
    if question.hash in thread.answers:
        return _decode_answer(thread.answers[question.hash])
    asked = next((asked for asked in thread.questions.values() if asked["hash"] == question.hash), None)
    delegated = None
    if asked is None:
        delegated = await _answer_by_delegate(run, question)
        expires = time() + run.root.progress.resumption.answer_within
        about = {"id": question.id, "question": question.question, "expires": expires}
        about |= {"run": run.id, "operation": question.op.operation_name, "hash": question.hash}
        asked = thread.append("asked", {**about, **question.about}).data
    await sleep(0)  # the other tool uses of this step ask now, too
    question = replace(question, id=asked["id"], others=tuple(list_step_questions(thread.questions, asked)))
    if delegated is not None:
        return await _log_answer(run, question, *delegated)
    await thread.saved()
    operation = question.op.operation_name
    step = {"step": [other["id"] for other in question.others]} if question.others else {}
    about = question.about | step
    run.emit(ApprovalRequest(name=operation, id=question.id, question=question.question, about=about))
    answer = await _log_answer(run, question, *await _wait_for_answer(run, question, asked))
    response = ApprovalResponse(name=operation, id=question.id)
    if isinstance(answer, Allow):
        response.allowed, response.args = True, thaw(answer.args)
    else:
        response.reason = answer.reason
    run.emit(response)
    return answer


def list_step_questions(questions: Mapping[str, FrozenDict], asked: Mapping[str, Any]) -> list[FrozenDict]:
    """Return the other open questions of a step that one answer can include: not those with an answer of their own."""
    run = asked["run"]
    others = [row for row in questions.values() if row["run"] == run and row["id"] != asked["id"]]
    uses = [row for row in others if row.get("operation") == "tool_use" and "files" not in row]
    return [row for row in uses if row.get("tool") != "ask_user"]


async def _answer_by_delegate(run: Run, question: Question) -> tuple[Allow | Block, dict[str, object]] | None:
    """Return the answer of the first delegate that decides, with its name, or None to ask the user."""
    for delegate in run.progress.extensions.delegates:
        answer, name = await delegate(run, question)
        if answer is not None:
            return _parse_answer(answer, question), {"deputy": name}
    return None


async def _wait_for_answer(run: Run, question: Question, asked: FrozenDict) -> tuple[Allow | Block, dict[str, object]]:
    """Return the user's answer and more data for its log entry. Of two answers, the stored one counts."""
    asker, writer, expires = run.root.asker, run.root.thread.writer, asked.get("expires", inf)
    # Without an asker the writer waits for an answer, for as long as its store is configured to. Then the run pauses.
    if asker is None and writer is not None and (row := await writer.answer(question.id, expires - time())):
        return _accept_stored_answer(row, question)
    if asker is None and time() >= expires:
        return _lapse(question)
    if asker is None and writer is not None:
        raise Paused(f"waiting for an answer to: {question.question}")
    if asker is None:
        logger.warning(
            "the agent %s asks for approval of a %s, and no user can answer: give the agent a function ask=…, "
            "or hooks=[Sessions(…)] to answer later",
            run.root.agent, question.op.operation_name,
        )  # fmt: skip
        return Block(f"no user is there to approve: {question.question}"), {}
    async with _take_turn(run.root):
        if (row := run.root.thread.answers.get(question.hash)) is not None:  # by the answer to another one of its step
            return _accept_stored_answer(row, question)
        return await _call_asker(asker, writer, question, expires)


async def _call_asker(
    asker: Asker, writer: ThreadWriter | None, question: Question, expires: float
) -> tuple[Allow | Block, dict[str, object]]:
    """Return the answer of the agent's `ask` function, or the stored one of another process."""
    if writer is not None and (row := await writer.answer(question.id, 0.0)):
        return _accept_stored_answer(row, question)
    if time() >= expires:
        return _lapse(question)
    try:
        given = asker(question)
        answer = _parse_answer(await given if isawaitable(given) else given, question)
    except Exception as error:  # a failed question is not an approval
        answer = Block(f"the user could not be asked: {error}")
    if writer is not None and (row := await writer.answer(question.id, 0.0)):
        return _accept_stored_answer(row, question)
    return answer, {}


def _lapse(question: Question) -> tuple[Block, dict[str, object]]:
    return Block(f"the question lapsed without an answer: {question.question}"), {"lapsed": True}


@asynccontextmanager
async def _take_turn(root: Run) -> AsyncIterator[None]:
    """Wait until the earlier questions of a run are answered: its user sees one at a time, in order."""
    if _asking.get() == root.id:  # an agent that the asker itself runs
        yield
        return
    async with root.scratch.setdefault(_take_turn, Lock()):
        token = _asking.set(root.id)
        try:
            yield
        finally:
            _asking.reset(token)


def _accept_stored_answer(row: FrozenDict, question: Question) -> tuple[Allow | Block, dict[str, object]]:
    more = {key: row[key] for key in ("scope", "rule", "by") if key in row}
    return _parse_answer(_decode_answer(row), question), more


def _parse_answer(answer: object, question: Question) -> Allow | Block:
    """Return an answer as Allow or Block. Only True and Allow approve: a function may forget to return."""
    if answer is True:
        return Allow()
    if answer is None:
        return Block(f"the `ask` function returned None, which is not an approval of: {question.question}; return True")
    if answer is False:
        return Block(f"the user said no to: {question.question}")
    if not isinstance(answer, Allow | Block):
        hint = "return True, False, Allow(…) or Block(…) from the `ask` function"
        return Block(f"{answer!r} is not an answer to: {question.question}; {hint}")
    if isinstance(answer, Block) or answer.args is None:
        return answer
    try:
        return replace(answer, args=freeze(answer.args))
    except (TypeError, ValueError) as problem:
        return Block(f"the arguments in the answer are not JSON data: {problem}")


async def _log_answer(run: Run, question: Question, answer: Allow | Block, more: dict[str, object]) -> Allow | Block:
    thread = run.root.thread
    if question.hash in thread.answers:  # logged with another one of its step
        return answer
    row: dict[str, Any] = {"id": question.id, "hash": question.hash, "allowed": isinstance(answer, Allow)}
    row["reason"] = getattr(answer, "reason", "")
    if isinstance(answer, Allow):
        more |= {"args": answer.args} if answer.args is not None else {}
        more |= {"scope": SOURCE} if answer.source else {}
    thread.append("answered", row | more)
    if isinstance(answer, Allow) and answer.step:
        for other in list_step_questions(thread.questions, {"id": question.id, "run": run.id}):
            thread.append("answered", {**row, "id": other["id"], "hash": other["hash"]})
    await thread.saved()
    return answer


def _decode_answer(row: FrozenDict) -> Allow | Block:
    return Allow(row.get("args"), source=row.get("scope") == SOURCE) if row["allowed"] else Block(row["reason"])
