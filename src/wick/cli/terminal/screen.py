"""Display of a run in a terminal: streamed Markdown, tool uses, todos and the result."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.markdown import Markdown
from rich.spinner import Spinner
from rich.text import Text

from wick._internal.prompt_text import to_one_line
from wick.cli.host.protocol import RunOutcome
from wick.cli.terminal.output import strip_controls
from wick.events import (
    ApprovalRequest,
    ApprovalResponse,
    ChatModelEnd,
    ChatModelRestart,
    ChatModelStart,
    ChatModelStream,
    Event,
    StateChange,
    SubagentEnd,
    SubagentStart,
    ToolEnd,
    ToolStart,
    ToolStream,
    UserMessage,
)

OUTPUT_LINES = 6  # shown of a tool's output
TAIL_LINES = 12  # shown of a paragraph that is still streaming
CHARS = 200
MARKS = {"done": "✔", "in_progress": "▸", "pending": "○"}
# Of a tool use, the first of these arguments is shown.
MAIN_ARGS = ("command", "path", "pattern", "query", "url", "question", "name")


class Screen:
    """The display of one run after another on a console."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Live | None = None
        self._text = ""  # streamed text that is not final yet
        self._is_replying = False  # a part of the reply was streamed
        self._started: dict[str, float] = {}
        self._todos: Any = None

    def show(self, event: Event, *, is_main_run: bool = True) -> None:
        """Show an event; of subagents, only tool uses, questions, start and end."""
        if not is_main_run and not isinstance(event, ToolStart | SubagentStart | SubagentEnd | ApprovalRequest):
            return
        match event:
            case ChatModelStart():
                self._show_status("thinking")
            case ChatModelStream():
                self._is_replying = True
                self._show_delta(event)
            case ChatModelRestart():
                self._text = ""
                self._stop_live()
                if self._is_replying:  # else a hook replied in place of the model
                    self._print_line("(the answer was restarted)", "dim")
                self._show_delta(ChatModelStream(delta=event.content))
            case ChatModelEnd() | ApprovalRequest():  # after a request, the prompt must be the last line
                self._is_replying = False
                self._flush_text()
                self._stop_live()
            case ToolStart():
                self._started[event.call_id] = monotonic()
                mark = f"  line {event.lines[0]} ●" if event.lines else "●"  # of a program
                self._print_line(f"{mark} {strip_controls(event.name)} {summarize_args(event.args)}", "cyan")
                self._show_status(event.name)
            case ToolStream():
                if last := event.delta.strip().rpartition("\n")[2]:
                    self._show_status(f"{event.name}: {last}")
            case ToolEnd():
                self._show_tool_end(event)
            case StateChange():
                todos = event.values.get("todos")
                if isinstance(todos, list) and todos != self._todos:
                    self._todos = todos
                    self.print_todos(todos)
            case ApprovalResponse():
                words = "allowed" if event.allowed else f"denied: {strip_controls(event.reason)}"
                self._print_line(f"  {words}", "green" if event.allowed else "yellow")
            case SubagentStart():
                prompt = to_one_line(strip_controls(event.prompt), CHARS)
                self._print_line(f"▸ {strip_controls(event.name)}: {prompt}", "magenta")
            case SubagentEnd():
                self._print_line(f"◂ {strip_controls(event.name)} {event.outcome}", "magenta")
            case UserMessage():
                self._print_line(f"› {strip_controls(_message_text(event.message))}", "bold")

    def show_thinking(self) -> None:
        """Show a spinner until the first event."""
        self._show_status("thinking")

    def show_disconnect(self, error: Exception) -> None:
        """Show that the connection is lost and is being retried."""
        self._show_status(f"connection lost, reconnecting: {error}")

    def finish(self, outcome: RunOutcome | None = None) -> None:
        self._flush_text()
        self._stop_live()
        if outcome is None:
            return
        if outcome.outcome != "completed":
            reason = outcome.error or outcome.reason
            self._print_line(
                f"{outcome.outcome}: {strip_controls(reason)}", "red" if outcome.outcome == "failed" else "yellow"
            )
        self._print_line(format_usage(outcome.usage, outcome.cost), "dim")

    def print_messages(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Print the text of user and assistant messages."""
        for message in messages:
            text = _message_text(message)
            if message.get("role") == "user" and text:
                self._print_line(f"› {strip_controls(text)}", "bold")
            elif message.get("role") == "assistant" and text:
                self.console.print(Markdown(strip_controls(text)))

    def print_todos(self, todos: Sequence[Mapping[str, Any]]) -> None:
        for todo in todos:
            mark = MARKS.get(str(todo.get("status")), "○")
            style = "dim" if todo.get("status") == "done" else ""
            self._print_line(f"  {mark} {strip_controls(str(todo.get('title', '')))}", style)

    # -- the live line at the bottom ----------------------------------------------------------------------------------

    def _update_live(self, shown: RenderableType) -> None:
        if self._live is None:
            self._live = Live(shown, console=self.console, refresh_per_second=8, transient=True)
            self._live.start()
        else:
            self._live.update(shown)

    def _show_status(self, words: str) -> None:
        self._update_live(Spinner("dots", Text(to_one_line(strip_controls(words), CHARS), style="dim")))

    def _stop_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _print_line(self, words: str, style: str = "") -> None:
        self.console.print(Text(words, style=style))

    # -- events -------------------------------------------------------------------------------------------------------

    def _show_delta(self, event: ChatModelStream) -> None:
        if event.kind == "reasoning":
            last = event.delta.strip().rpartition("\n")[2]
            return self._show_status(f"thinking: {last}") if last and not self._text else None
        if event.kind != "text":
            return None
        self._text += strip_controls(event.delta)
        done, self._text = split_settled(self._text)
        if done.strip():
            self.console.print(Markdown(done))
        lines = self._text.strip("\n").split("\n")
        shown = self._text
        if len(lines) > TAIL_LINES:  # the last ones, with the opening fence of a code block
            fence = lines[:1] if lines[0].lstrip().startswith(("```", "~~~")) else []
            shown = "\n".join([*fence, *lines[-TAIL_LINES:]])
        self._update_live(Markdown(shown or "…"))
        return None

    def _flush_text(self) -> None:
        """Print the rest of the streamed text as final."""
        text, self._text = self._text, ""
        if text.strip():
            self._stop_live()
            self.console.print(Markdown(text))

    def _show_tool_end(self, event: ToolEnd) -> None:
        self._stop_live()
        took = monotonic() - self._started.pop(event.call_id, monotonic())
        lines = [
            line for line in strip_controls(event.error or format_output(event.output)).split("\n") if line.strip()
        ]
        for number, line in enumerate(lines[:OUTPUT_LINES]):
            self._print_line(f"  {'└' if number == 0 else ' '} {line[:CHARS]}", "red" if event.error else "dim")
        left = len(lines) - OUTPUT_LINES
        more = [f"{left} more lines"] if left > 0 else []
        if more or took >= 1:
            self._print_line(f"    … {', '.join([*more, f'{took:.1f} s'])}", "dim")


def split_settled(text: str) -> tuple[str, str]:
    """Split streamed Markdown into blocks that no later text can change, and the rest."""
    cut, fence, end = 0, "", 0
    for line in text.splitlines(keepends=True):
        end += len(line)
        bare = line.strip()
        if fence:
            fence = "" if bare.startswith(fence) and not bare.strip(fence[0]) else fence
        elif bare.startswith(("```", "~~~")):
            fence = bare[: len(bare) - len(bare.lstrip(bare[0]))]
        elif not bare and line.endswith("\n"):
            cut = end
    return text[:cut], text[cut:]


def summarize_args(args: Mapping[str, Any]) -> str:
    """Return the arguments of a tool use on one line."""
    if isinstance(args.get("todos"), list):
        return ""  # the list is shown
    main = next((args[name] for name in MAIN_ARGS if isinstance(args.get(name), str)), None)
    return to_one_line(
        strip_controls(main if main is not None else json.dumps(args, ensure_ascii=False) if args else ""), CHARS
    )


def format_output(output: str) -> str:
    """Return the output of a tool; of a command, its stdout, stderr and exit code."""
    try:
        result = json.loads(output) if output.startswith('{"stdout"') else None
    except ValueError:
        result = None
    if not isinstance(result, dict):
        return output
    ended = f"exit code {result['exit_code']}" if result.get("exit_code") else ""
    return "\n".join(filter(None, (str(result.get("stdout", "")), str(result.get("stderr", "")), ended)))


def format_usage(usage: Mapping[str, int], cost: float | None) -> str:
    tokens = f"{usage.get('input_tokens', 0):,} tokens in, {usage.get('output_tokens', 0):,} out"
    return tokens if not cost else f"{tokens}, ${cost:.4f}"


def _message_text(message: Mapping[str, Any]) -> str:
    content = message.get("content", "")
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in content if isinstance(part, Mapping))
