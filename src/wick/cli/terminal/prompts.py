"""Questions of an agent at the terminal: approvals of tool uses, and questions of the tool `ask_user`."""

from __future__ import annotations

import errno
import json
import re
import select
import signal
import sys
import termios
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.output import create_output
from prompt_toolkit.patch_stdout import patch_stdout
from rich.console import Console
from rich.text import Text

from wick._internal.visible_text import make_visible
from wick.api.types import Choice
from wick.approvals import START_AFRESH
from wick.capabilities.ask_user import Inquiry, format_inquiry, parse_line
from wick.cli.terminal.follow_run import ApprovalReply, Interrupted
from wick.cli.terminal.output import strip_controls
from wick.constants import DETAIL_CHARS, DETAIL_LINES
from wick.errors import WickError
from wick.events import ApprovalRequest
from wick.permissions.rules import parse_rule

CHOICES: dict[str, Choice] = {
    **dict.fromkeys(("y", "yes"), "allow"),
    **dict.fromkeys(("n", "no"), "deny"),
    **dict.fromkeys(("s", "session"), "allow_session"),
    **dict.fromkeys(("a", "always"), "allow_always"),
    **dict.fromkeys(("t", "trust"), "allow_source"),
    "all": "allow_step",
    "none": "deny_step",
}
KEYS_ONCE = "y yes · v view all · n no, or type what to do instead"
KEYS_EDITABLE = "y yes · v view all · e edit · n no, or type what to do instead"
KEYS_LASTING = (
    "y yes · s yes in this thread · a always, or a RULE · v view all · e edit · n no, or type what to do instead"
)
KEY_SOURCE = "t yes, and this source may name such targets in this run"
KEYS_STEP = "all yes to all questions of this step · none no to all"
KEYS_LOST = "y try again · f start afresh, without the files · n end the run"
_REFUSED_LASTING = "this question is asked every time; answer y or n"
_REFUSED_RULE = "a rule would not apply, as this question is asked every time; answer y or n"
_REFUSED = {
    "allow_source": "this question names no source; answer y or n",
    **dict.fromkeys(("allow_step", "deny_step"), "this is the only question of this step; answer y or n"),
}
INQUIRY_KINDS = ("confirm", "select", "multiselect", "input")  # of the tool `ask_user`
RULE = re.compile(r"a(?:lways)?\s+(\w+\(.*)", re.DOTALL)  # as in: a Bash(git *)


def _is_terminal_closed() -> bool:
    """Return True if standard input is a terminal that was closed.

    While it is closing, reads and writes fail already, and other calls succeed; it is polled as hung up then.
    """
    try:
        termios.tcgetattr(sys.stdin)
    except termios.error as error:
        return bool(error.args[0] == errno.EIO)
    poll = select.poll()
    poll.register(sys.stdin, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


class ApprovalPrompt:
    """A prompt for approvals and questions on a terminal, given as a file."""

    def __init__(self, file: TextIO) -> None:
        self._session: PromptSession[str] = PromptSession(output=create_output(stdout=file))
        self._console = Console(file=file, highlight=False)

    async def ask(self, request: ApprovalRequest, problem: str = "") -> ApprovalReply:
        """Ask a question and return the answer. Ctrl-D denies; Ctrl-C raises Interrupted, which stops the run.

        The problem of an earlier answer is shown first.

        If the terminal is closed, the process ends as by SIGHUP, and the question stays open.
        """
        # Discard type-ahead: keys pressed before the question was shown must not answer it.
        clear_typeahead(self._session.input)
        with suppress(termios.error, OSError, ValueError):
            termios.tcflush(sys.stdin, termios.TCIFLUSH)
        if problem:
            self._console.print(Text(f"  {strip_controls(problem)}", style="red"))
        is_inquiry = request.about.get("tool") == "ask_user" and request.about.get("kind") in INQUIRY_KINDS
        try:
            return await (self._ask_question(request) if is_inquiry else self._ask_permission(request))
        except (EOFError, OSError) as error:
            if _is_terminal_closed():  # the signal of the closed terminal may come later than the end of input
                signal.raise_signal(signal.SIGHUP)
            if isinstance(error, OSError):
                raise
            return ApprovalReply("deny")
        except KeyboardInterrupt:
            raise Interrupted from None

    # -- approvals --------------------------------------------------------------------------------------------------

    async def _ask_permission(self, request: ApprovalRequest) -> ApprovalReply:
        args = request.about.get("args")
        first, *rest = make_visible(request.question, mark_breaks=False).split("\n")
        self._console.print(Text(f"? {first}", style="bold yellow"))
        for line in rest:
            self._console.print(Text(f"    {line}", style="bold yellow"))
        for line in format_args(args):
            self._console.print(Text(f"  {line}", style="dim"))
        lasting = bool(request.about.get("lasting"))  # whether a lasting grant is offered
        is_lost = request.about.get("files") == "missing"  # of the workspace
        offered = KEYS_LASTING if lasting else KEYS_EDITABLE if isinstance(args, dict) else KEYS_ONCE
        offered = KEYS_LOST if is_lost else offered
        others = request.about.get("step") or ()
        allowed = {"allow", "deny", *(("allow_session", "allow_always") if lasting else ())}
        if request.about.get("sources"):
            offered, allowed = f"{KEY_SOURCE} · {offered}", allowed | {"allow_source"}
        if others:
            offered, allowed = f"{KEYS_STEP} · {offered}", allowed | {"allow_step", "deny_step"}
            self._console.print(Text(f"  one of {len(others) + 1} questions of this step", style="dim"))
        self._console.print(Text(f"  {offered}", style="dim"))
        while True:
            line = (await self._read_line("  > ")).strip()
            if line.lower() in ("e", "edit") and isinstance(args, dict):
                if (changed := await self._edit_args(args)) is not None:
                    return ApprovalReply("allow", args=changed)
            elif is_lost and line.lower() == "f":
                return ApprovalReply("allow", args={"workspace": START_AFRESH})
            elif line.lower() in ("v", "view"):
                for detail in format_args(args, cut=False):
                    self._console.print(Text(f"  {detail}", style="dim"))
            elif (choice := CHOICES.get(line.lower())) is not None:
                if choice in allowed:
                    return ApprovalReply(choice)
                self._console.print(Text(f"  {_REFUSED.get(choice, _REFUSED_LASTING)}", style="red"))
            elif (match := RULE.fullmatch(line)) is not None:
                if "allow_always" not in allowed:
                    self._console.print(Text(f"  {_REFUSED_RULE}", style="red"))
                    continue
                try:
                    parse_rule("allow", match[1])
                    return ApprovalReply("allow", rule=match[1])
                except WickError as error:
                    self._console.print(Text(f"  {strip_controls(str(error))}", style="red"))
            elif line:
                return ApprovalReply("deny", words=line)

    async def _edit_args(self, args: dict[str, Any]) -> dict[str, Any] | None:
        """Let the user edit the command, or all arguments as JSON. Return None if the JSON is invalid."""
        if isinstance(args.get("command"), str):
            return {**args, "command": await self._read_line("  command: ", args["command"])}
        text = await self._read_line("  arguments: ", json.dumps(args, ensure_ascii=False))
        try:
            changed = json.loads(text)
        except ValueError as error:
            self._console.print(Text(f"  invalid JSON: {error}", style="red"))
            return None
        if isinstance(changed, dict):
            return changed
        self._console.print(Text("  the arguments must be a JSON object, as in {…}", style="red"))
        return None

    # -- questions of ask_user --------------------------------------------------------------------------------------

    async def _ask_question(self, request: ApprovalRequest) -> ApprovalReply:
        about = request.about
        inquiry = Inquiry(about["kind"], request.question, tuple(about.get("options") or ()), about.get("default"))
        while True:
            *first_lines, last = strip_controls(format_inquiry(inquiry)).rstrip().split("\n")
            for line in first_lines:
                self._console.print(Text(line, style="bold cyan"))
            line = (await self._read_line(f"{last} ")).strip()
            try:
                return ApprovalReply("allow", args={"answer": inquiry.read(parse_line(inquiry, line))})
            except ValueError as problem:
                self._console.print(Text(strip_controls(str(problem)), style="red"))

    async def _read_line(self, words: str, default: str = "") -> str:
        """Read a line; output printed meanwhile appears above it."""
        beside: AbstractContextManager[Any] = patch_stdout(raw=True) if sys.stdout.isatty() else nullcontext()
        with beside:
            return await self._session.prompt_async(words, default=default, handle_sigint=False)


def format_args(args: Any, *, cut: bool = True) -> list[str]:
    """Return the lines that show the arguments of a tool.

    A command is shown completely. Other long values are cut, with the number of omitted characters, unless `cut` is
    False.
    """
    lines = list[str]()
    for key, value in args.items() if isinstance(args, dict) else ():
        if value in (None, ""):
            continue
        name = make_visible(str(key))
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        shown = "\n".join(text[:DETAIL_CHARS].split("\n")[:DETAIL_LINES]) if cut and key != "command" else text
        first, *rest = make_visible(shown, mark_breaks=False).split("\n")
        lines += [f"{name}: {first}", *(f"    {line}" for line in rest)]
        if left := len(text) - len(shown):
            lines.append(f"    … {left:,} of {len(text):,} characters of {name} are not shown; v shows all")
    return lines
