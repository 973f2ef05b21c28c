"""A tool that lets the model ask the user: to confirm, to select one or several options, or for text."""

from __future__ import annotations

import sys
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from threading import Event, Lock
from time import time
from typing import Annotated, Any, Literal, TextIO

from wick import constants
from wick._internal.frozen import digest
from wick._internal.tasks import run_with_timeout
from wick._internal.worker_threads import run_in_thread
from wick.approvals import ask_user, new_question_id
from wick.capability import Capability
from wick.decisions import Allow, Block, Question
from wick.errors import ConfigError, ToolError
from wick.operations import ToolUse
from wick.tools import tool

Kind = Literal["confirm", "select", "multiselect", "input"]
AnswerValue = bool | str | list[str]

YES, NO = ("y", "yes", "true"), ("n", "no", "false")


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A question to the user. `problem` explains why the previous answer was invalid."""

    kind: Kind
    question: str
    options: tuple[str, ...] = ()
    default: AnswerValue | None = None
    problem: str = ""

    def read(self, answer: Any) -> AnswerValue:
        """Return the parsed answer; raise a ValueError that describes the expected form."""
        if answer is None or answer == "":
            answer = self.default
        if self.kind == "confirm":
            word = answer.strip().lower() if isinstance(answer, str) else answer
            if not isinstance(word, bool) and word not in (*YES, *NO):
                raise ValueError(f"the answer is yes or no, not {_shorten(answer)}")
            return word if isinstance(word, bool) else word in YES
        if self.kind == "select":
            return self._select(answer)
        if self.kind == "multiselect":
            if not isinstance(answer, list | tuple):
                raise ValueError(f"the answer is a list of some of {', '.join(self.options)}, not {_shorten(answer)}")
            chosen = {self._select(item) for item in answer}
            return [option for option in self.options if option in chosen]
        if not isinstance(answer, str) or not answer.strip():
            raise ValueError(f"the answer is a text, not {_shorten(answer)}")
        if len(answer) > constants.ASK_ANSWER_CHARS:
            raise ValueError(f"the answer is longer than {constants.ASK_ANSWER_CHARS:,} characters")
        return answer

    def _select(self, answer: Any) -> str:
        if not isinstance(answer, str) or answer not in self.options:
            raise ValueError(f"the answer is one of {', '.join(self.options)}, not {_shorten(answer)}")
        return answer


Interactor = Callable[[Inquiry], Awaitable[Any]]
"""An async function that asks the user and returns a bool, an option, a list of options, or a text."""


class AskUser(Capability):
    """Adds the tool `ask_user`, which asks the user of the root run.

    An `interactor` asks immediately: `Terminal()`, or your own async function. Without one, the question goes to the
    agent's `ask=`, or into the log. There the run pauses until the question is answered, from any program. A question
    expires after `seconds`, by default after `answer_within` of `Sessions`, which is a day.
    """

    def __init__(self, interactor: Interactor | None = None, *, seconds: float | None = None) -> None:
        if interactor is not None and not callable(interactor):
            raise ConfigError(f"AskUser({interactor!r}): an interactor is an async function of the question")
        if seconds is not None and (type(seconds) not in (int, float) or not seconds > 0):
            raise ConfigError(f"AskUser(seconds={seconds!r}): give a number of seconds above 0")
        self.interactor, self.seconds = interactor, seconds

    @tool(read_only=True, idempotent=True, alone=True, effect="read", returns="trusted")
    async def ask_user(
        self,
        question: str,
        use: ToolUse,
        kind: Annotated[Kind, "yes or no, one of the options, some of them, or a text"] = "input",
        options: Annotated[list[str] | None, "what can be chosen, for select and multiselect"] = None,
        default: Annotated[bool | str | list[str] | None, "what counts if the user gives no answer"] = None,
    ) -> dict[str, Any]:
        """Ask the user something that only they can know or decide, and wait for the answer."""
        inquiry = _check_inquiry(
            Inquiry(kind, question.strip(), tuple(options or ()), None if default == "" else default)
        )
        for number in range(constants.ASK_TRIES):
            answer = await self._ask(use, inquiry, number)
            if isinstance(answer, Block):
                return {"answer": False if kind == "confirm" else None, "reason": answer.reason}
            try:
                return {"answer": inquiry.read(answer)}
            except ValueError as problem:
                inquiry = replace(inquiry, problem=str(problem))
        raise ToolError(f"the user gave no answer that can be used: {inquiry.problem}")

    async def _ask(self, use: ToolUse, inquiry: Inquiry, number: int) -> Any:
        """Ask through the interactor, or else through the agent's `ask=` or the log.

        In the log, each retry is a new question with its own hash.
        """
        root = use.run.root
        seconds = self.seconds or root.progress.resumption.answer_within
        if self.interactor:
            try:
                return await run_with_timeout(seconds, self.interactor(inquiry), "asking the user")
            except TimeoutError:
                raise ToolError(f"the question lapsed without an answer: {inquiry.question}") from None
            except Exception as error:
                raise ToolError(f"the user could not be asked: {error}") from None
        if root.asker is None and root.thread.writer is None:
            raise ToolError("there is no user to ask; decide by yourself, and say so in your answer")
        hash = digest(f"{use.hash} asks {number}".encode())
        text = "\n".join(filter(None, (inquiry.problem, inquiry.question)))
        about = {**use.to_json(), "kind": inquiry.kind, "options": [*inquiry.options], "default": inquiry.default}
        about["expires"] = time() + seconds
        answer = await ask_user(use.run, Question(text, new_question_id(), hash, about, use))
        if isinstance(answer, Allow):
            args = {} if answer.args is None else answer.args
            return args.get("answer", True if inquiry.kind == "confirm" else None)
        logged = root.thread.answers.get(hash)
        if logged is not None and logged.get("lapsed"):
            raise ToolError(answer.reason)
        return answer


class Terminal:
    """An interactor that asks at the terminal, one question at a time."""

    def __init__(self, input: TextIO | None = None, output: TextIO | None = None) -> None:
        self._input, self._output, self._one_by_one = input, output, Lock()

    async def __call__(self, inquiry: Inquiry) -> Any:
        cancelled = Event()

        def ask() -> Any:
            with self._one_by_one:
                if cancelled.is_set():
                    return None
                output = self._output or sys.stdout
                output.write(format_inquiry(inquiry))
                output.flush()
                line = (self._input or sys.stdin).readline()
            if not line:
                raise EOFError("the terminal is closed")
            return parse_line(inquiry, line.strip())

        try:
            return await run_in_thread(ask, "the terminal")
        except CancelledError:
            cancelled.set()  # drop the question if it is still queued
            raise


def format_inquiry(inquiry: Inquiry) -> str:
    """Return the terminal form of a question, without control characters that could move the cursor."""
    lines = [inquiry.problem, inquiry.question, *(f"  {n}) {option}" for n, option in enumerate(inquiry.options, 1))]
    hint = {
        "confirm": "yes or no",
        "select": "a number",
        "multiselect": "numbers, with commas, or - for none",
        "input": "",
    }[inquiry.kind]
    default = inquiry.default
    if isinstance(default, bool):
        default = "yes" if default else "no"
    elif default is not None and not isinstance(default, str):
        default = ", ".join(default)
    more = "; ".join(filter(None, (hint, "" if default is None else f"Enter for {default}")))
    text = "\n".join(filter(None, lines)) + (f" [{more}]" if more else "") + " "
    return "".join(char for char in text if char.isprintable() or char == "\n")


def parse_line(inquiry: Inquiry, line: str) -> Any:
    """Return the answer in a typed line. Numbers select options."""
    if not line:
        return None
    if inquiry.kind == "select":
        return _pick_option(inquiry.options, line)
    if inquiry.kind == "multiselect":
        parts = [] if line == "-" else [part.strip() for part in line.split(",") if part.strip()]
        return [_pick_option(inquiry.options, part) for part in parts]
    return line


def _pick_option(options: Sequence[str], word: str) -> str:
    number = int(word) if word.isascii() and word.isdigit() and len(word) < 4 else 0
    return options[number - 1] if word not in options and 0 < number <= len(options) else word


def _check_inquiry(inquiry: Inquiry) -> Inquiry:
    """Return the question; raise a ToolError if it is too long, or its options or default are invalid."""
    options, most = inquiry.options, constants.ASK_OPTION_CHARS
    if not inquiry.question or len(inquiry.question) > constants.ASK_QUESTION_CHARS:
        raise ToolError(f"a question is a text of up to {constants.ASK_QUESTION_CHARS:,} characters")
    if inquiry.kind in ("confirm", "input") and options:
        raise ToolError(
            f"a question of the kind {inquiry.kind} has no options; for these, kind is select or multiselect"
        )
    if inquiry.kind in ("select", "multiselect") and not 2 <= len({*options}) == len(options) <= constants.ASK_OPTIONS:
        raise ToolError(f"a {inquiry.kind} needs 2 to {constants.ASK_OPTIONS} options, each another one")
    if not all(option.splitlines() == [option.strip()] and len(option) <= most for option in options):
        raise ToolError(f"an option is one line of up to {most} characters, without spaces around it")
    if inquiry.default is not None:
        try:
            inquiry.read(inquiry.default)
        except ValueError as problem:
            raise ToolError(f"the default cannot be the answer: {problem}") from None
    return inquiry


def _shorten(answer: Any) -> str:
    text = "none" if answer is None else repr(answer)
    return text if len(text) <= 100 else f"{text[:100]}…"
