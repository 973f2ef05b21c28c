"""Puts what an agent asks to who sits at the terminal: may it do this, and what only the user can know."""

from __future__ import annotations

import json
import re
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
from wick.capabilities.ask_user import Inquiry, shown, typed
from wick.cli.host.protocol import Choice
from wick.cli.terminal.follow_run import ApprovalReply, Interrupted
from wick.cli.terminal.output import strip_controls
from wick.constants import DETAIL_CHARS, DETAIL_LINES
from wick.errors import WickError
from wick.events import ApprovalRequest
from wick.permissions.rules import rule

CHOICES: dict[str, Choice] = {
    **dict.fromkeys(("y", "yes"), "allow"),
    **dict.fromkeys(("n", "no"), "deny"),
    **dict.fromkeys(("s", "session"), "allow_session"),
    **dict.fromkeys(("a", "always"), "allow_always"),
}
KEYS_ONCE = "y yes · v view all · n no, or say what to do instead"
KEYS_EDITABLE = "y yes · v view all · e edit · n no, or say what to do instead"
KEYS_LASTING = (
    "y yes · s yes in this thread · a always, or a RULE · v view all · e edit · n no, or say what to do instead"
)
RULE = re.compile(r"a(?:lways)?\s+(\w+\(.*)", re.DOTALL)  # as in: a Bash(git *)


class ApprovalPrompt:
    """Who sits at the terminal that this file is."""

    def __init__(self, file: TextIO) -> None:
        self._session: PromptSession[str] = PromptSession(output=create_output(stdout=file))
        self._console = Console(file=file, highlight=False)

    async def ask(self, asked: ApprovalRequest) -> ApprovalReply:
        """The answer to a question. Who ends the input says no; who interrupts it ends the run."""
        self._flush_input()
        try:
            return await (self._ask_question(asked) if _is_inquiry(asked) else self._ask_permission(asked))
        except EOFError:
            return ApprovalReply("deny")
        except KeyboardInterrupt:
            raise Interrupted from None

    def _flush_input(self) -> None:
        """Nobody answers a question that they have not seen."""
        clear_typeahead(self._session.input)
        with suppress(termios.error, OSError, ValueError):
            termios.tcflush(sys.stdin, termios.TCIFLUSH)

    # -- may it do this ---------------------------------------------------------------------------------------------

    async def _ask_permission(self, asked: ApprovalRequest) -> ApprovalReply:
        args = asked.about.get("args")
        first, *rest = make_visible(asked.question, mark_breaks=False).split("\n")
        self._console.print(Text(f"? {first}", style="bold yellow"))
        for line in rest:
            self._console.print(Text(f"    {line}", style="bold yellow"))
        for line in format_args(args):
            self._console.print(Text(f"  {line}", style="dim"))
        lasting = bool(asked.about.get("lasting"))  # a yes that holds for longer would silence this question
        offered = KEYS_LASTING if lasting else KEYS_EDITABLE if isinstance(args, dict) else KEYS_ONCE
        self._console.print(Text(f"  {offered}", style="dim"))
        while True:
            said = (await self._read_line("  > ")).strip()
            if said.lower() in ("e", "edit") and isinstance(args, dict):
                if (changed := await self._edit_args(args)) is not None:
                    return ApprovalReply("allow", args=changed)
            elif said.lower() in ("v", "view"):
                for line in format_args(args, cut=False):
                    self._console.print(Text(f"  {line}", style="dim"))
            elif (choice := CHOICES.get(said.lower())) is not None:
                if lasting or choice in ("allow", "deny"):
                    return ApprovalReply(choice)
                self._console.print(Text("  this is asked each time; say y or n", style="red"))
            elif (found := RULE.fullmatch(said)) is not None:
                if self._is_valid_rule(found[1]):
                    return ApprovalReply("allow", rule=found[1])
            elif said:
                return ApprovalReply("deny", words=said)

    def _is_valid_rule(self, text: str) -> bool:
        try:
            rule("allow", text)
        except WickError as error:
            self._console.print(Text(f"  {strip_controls(str(error))}", style="red"))
            return False
        return True

    async def _edit_args(self, args: dict[str, Any]) -> dict[str, Any] | None:
        """The arguments as the user wants them: the command alone, or all of them as JSON."""
        if isinstance(args.get("command"), str):
            return {**args, "command": await self._read_line("  command: ", args["command"])}
        said = await self._read_line("  arguments: ", json.dumps(args, ensure_ascii=False))
        try:
            changed = json.loads(said)
        except ValueError as error:
            self._console.print(Text(f"  that is no JSON: {error}", style="red"))
            return None
        if isinstance(changed, dict):
            return changed
        self._console.print(Text("  the arguments are a JSON object, as in {…}", style="red"))
        return None

    # -- what only the user can know --------------------------------------------------------------------------------

    async def _ask_question(self, asked: ApprovalRequest) -> ApprovalReply:
        about = asked.about
        inquiry = Inquiry(about["kind"], asked.question, tuple(about.get("options") or ()), about.get("default"))
        while True:
            *above, last = strip_controls(shown(inquiry)).rstrip().split("\n")
            for line in above:
                self._console.print(Text(line, style="bold cyan"))
            said = (await self._read_line(f"{last} ")).strip()
            try:
                return ApprovalReply("allow", args={"answer": inquiry.read(typed(inquiry, said))})
            except ValueError as problem:
                self._console.print(Text(strip_controls(str(problem)), style="red"))

    async def _read_line(self, words: str, default: str = "") -> str:
        """A line; what is printed meanwhile stands above it."""
        beside: AbstractContextManager[Any] = patch_stdout(raw=True) if sys.stdout.isatty() else nullcontext()
        with beside:
            return await self._session.prompt_async(words, default=default, handle_sigint=False)


def format_args(args: Any, *, cut: bool = True) -> list[str]:
    """Return the lines that show what a tool would be given.

    A command is complete. Of other long values the rest is counted, unless `cut` is False.
    """
    lines = list[str]()
    given = {name: value for name, value in args.items() if value not in (None, "")} if isinstance(args, dict) else {}
    for name, value in given.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines += _format_arg(make_visible(str(name)), text, cut and name != "command")
    return lines


def _format_arg(name: str, text: str, cut: bool) -> list[str]:
    shown = "\n".join(text[:DETAIL_CHARS].split("\n")[:DETAIL_LINES]) if cut else text
    first, *rest = make_visible(shown, mark_breaks=False).split("\n")
    rows = [f"{name}: {first}", *(f"    {line}" for line in rest)]
    left = len(text) - len(shown)
    return [*rows, f"    … {left:,} of {len(text):,} characters of {name} are not shown; v shows all"] if left else rows


def _is_inquiry(asked: ApprovalRequest) -> bool:
    return asked.about.get("tool") == "ask_user" and asked.about.get("kind") in (
        *("confirm", "select", "multiselect", "input"),
    )
