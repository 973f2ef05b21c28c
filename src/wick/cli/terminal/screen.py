"""A run on a terminal: the answer as Markdown while it comes, a card for each tool, what is to do, how it ended."""

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

from wick._internal.prompt_text import one_line
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

OUTPUT_LINES = 6  # of a tool that are shown
TAIL_LINES = 12  # of a paragraph that still grows
CHARS = 200
MARKS = {"done": "✔", "in_progress": "▸", "pending": "○"}
MAIN_ARGS = ("command", "path", "pattern", "query", "url", "question", "name")  # what tells most about a tool use


class Screen:
    """Shows what a run says."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Live | None = None
        self._text = ""  # of the answer, as far as it is not printed for good
        self._started: dict[str, float] = {}
        self._todos: Any = None

    def show(self, event: Event, *, is_main_run: bool = True) -> None:
        """Show an event; of what subagents say, which tools they use is enough."""
        if not is_main_run and not isinstance(event, ToolStart | SubagentStart | SubagentEnd | ApprovalRequest):
            return
        for kind, shown in _HANDLERS.items():
            if isinstance(event, kind):
                shown(self, event)
                return

    def show_thinking(self) -> None:
        """Something is being done, and nothing can be told of it yet."""
        self._show_status("thinking")

    def show_disconnect(self, error: Exception) -> None:
        """The server is away for the moment."""
        self._show_status(f"the connection is lost, trying again: {error}")

    def finish(self, outcome: RunOutcome | None = None) -> None:
        self._flush_text()
        self._stop_live()
        if outcome is None:
            return
        if outcome.outcome != "completed":
            said = outcome.error or outcome.reason
            self._print_line(
                f"{outcome.outcome}: {strip_controls(said)}", "red" if outcome.outcome == "failed" else "yellow"
            )
        self._print_line(format_usage(outcome.usage, outcome.cost), "dim")

    def print_messages(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """What was said before, as far as people said it."""
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

    # -- what is below everything that is printed ---------------------------------------------------------------------

    def _update_live(self, shown: RenderableType) -> None:
        if self._live is None:
            self._live = Live(shown, console=self.console, refresh_per_second=8, transient=True)
            self._live.start()
        else:
            self._live.update(shown)

    def _show_status(self, words: str) -> None:
        self._update_live(Spinner("dots", Text(one_line(strip_controls(words), CHARS), style="dim")))

    def _stop_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _print_line(self, words: str, style: str = "") -> None:
        self.console.print(Text(words, style=style))

    # -- the answer ---------------------------------------------------------------------------------------------------

    def _on_model_start(self, event: ChatModelStart) -> None:
        self._show_status("thinking")

    def _on_model_stream(self, event: ChatModelStream) -> None:
        if event.kind == "reasoning":
            last = event.delta.strip().rpartition("\n")[2]
            return self._show_status(f"thinking: {last}") if last and not self._text else None
        if event.kind != "text":
            return None
        self._text += strip_controls(event.delta)
        done, self._text = split_settled(self._text)
        if done.strip():
            self.console.print(Markdown(done))
        self._update_live(Markdown(_last_lines(self._text) or "…"))
        return None

    def _flush_text(self) -> None:
        """Print for good what is left of the answer."""
        text, self._text = self._text, ""
        if text.strip():
            self._stop_live()
            self.console.print(Markdown(text))

    def _on_model_restart(self, event: ChatModelRestart) -> None:
        self._text = ""
        self._stop_live()
        self._print_line("(the answer begins anew)", "dim")
        self._on_model_stream(ChatModelStream(delta=event.content))

    def _on_model_end(self, event: ChatModelEnd) -> None:
        self._flush_text()
        self._stop_live()

    # -- tools --------------------------------------------------------------------------------------------------------

    def _on_tool_start(self, event: ToolStart) -> None:
        self._started[event.call_id] = monotonic()
        self._print_line(f"● {strip_controls(event.name)} {summarize_args(event.args)}", "cyan")
        self._show_status(event.name)

    def _on_tool_stream(self, event: ToolStream) -> None:
        if last := event.delta.strip().rpartition("\n")[2]:
            self._show_status(f"{event.name}: {last}")

    def _on_tool_end(self, event: ToolEnd) -> None:
        self._stop_live()
        took = monotonic() - self._started.pop(event.call_id, monotonic())
        lines = [
            line for line in strip_controls(event.error or format_output(event.output)).split("\n") if line.strip()
        ]
        for number, line in enumerate(lines[:OUTPUT_LINES]):
            self._print_line(f"  {'└' if number == 0 else ' '} {line[:CHARS]}", "red" if event.error else "dim")
        left = len(lines) - OUTPUT_LINES
        more = [f"{left} lines more"] if left > 0 else []
        if more or took >= 1:
            self._print_line(f"    … {', '.join([*more, f'{took:.1f} s'])}", "dim")

    def _on_subagent_start(self, event: SubagentStart) -> None:
        self._print_line(f"▸ {strip_controls(event.name)}: {one_line(strip_controls(event.prompt), CHARS)}", "magenta")

    def _on_subagent_end(self, event: SubagentEnd) -> None:
        self._print_line(f"◂ {strip_controls(event.name)} {event.outcome}", "magenta")

    # -- the rest -----------------------------------------------------------------------------------------------------

    def _on_state_change(self, event: StateChange) -> None:
        todos = event.values.get("todos")
        if isinstance(todos, list) and todos != self._todos:
            self._todos = todos
            self.print_todos(todos)

    def _on_approval_request(self, event: ApprovalRequest) -> None:
        self._flush_text()
        self._stop_live()  # the line where the answer is typed is the last one

    def _on_approval_response(self, event: ApprovalResponse) -> None:
        words = "allowed" if event.allowed else f"denied: {strip_controls(event.reason)}"
        self._print_line(f"  {words}", "green" if event.allowed else "yellow")

    def _on_user_message(self, event: UserMessage) -> None:
        self._print_line(f"› {strip_controls(_message_text(event.message))}", "bold")


_HANDLERS: dict[type[Event], Any] = {
    ChatModelStart: Screen._on_model_start,
    ChatModelStream: Screen._on_model_stream,
    ChatModelRestart: Screen._on_model_restart,
    ChatModelEnd: Screen._on_model_end,
    ToolStart: Screen._on_tool_start,
    ToolStream: Screen._on_tool_stream,
    ToolEnd: Screen._on_tool_end,
    StateChange: Screen._on_state_change,
    ApprovalRequest: Screen._on_approval_request,
    ApprovalResponse: Screen._on_approval_response,
    SubagentStart: Screen._on_subagent_start,
    SubagentEnd: Screen._on_subagent_end,
    UserMessage: Screen._on_user_message,
}


def split_settled(text: str) -> tuple[str, str]:
    """A Markdown text in two: what does not change any more whatever follows, and the rest."""
    cut, fence, place = 0, "", 0
    for line in text.splitlines(keepends=True):
        place += len(line)
        bare = line.strip()
        if fence:
            fence = "" if bare.startswith(fence) and not bare.strip(fence[0]) else fence
        elif bare.startswith(("```", "~~~")):
            fence = bare[: len(bare) - len(bare.lstrip(bare[0]))]
        elif not bare and line.endswith("\n"):
            cut = place
    return text[:cut], text[cut:]


def _last_lines(text: str) -> str:
    """The end of what still grows; of a block of code, with the line that begins it."""
    lines = text.strip("\n").split("\n")
    first = lines[:1] if lines[0].lstrip().startswith(("```", "~~~")) else []
    return text if len(lines) <= TAIL_LINES else "\n".join([*first, *lines[-TAIL_LINES:]])


def summarize_args(args: Mapping[str, Any]) -> str:
    """What a tool is given, on a line."""
    if isinstance(args.get("todos"), list):
        return ""  # the list is shown
    main = next((args[name] for name in MAIN_ARGS if isinstance(args.get(name), str)), None)
    return one_line(
        strip_controls(main if main is not None else json.dumps(args, ensure_ascii=False) if args else ""), CHARS
    )


def format_output(output: str) -> str:
    """What a tool said; of a command, what it printed."""
    try:
        said = json.loads(output) if output.startswith('{"stdout"') else None
    except ValueError:
        said = None
    if not isinstance(said, dict):
        return output
    ended = f"exit code {said['exit_code']}" if said.get("exit_code") else ""
    return "\n".join(filter(None, (str(said.get("stdout", "")), str(said.get("stderr", "")), ended)))


def format_usage(usage: Mapping[str, int], cost: float | None) -> str:
    tokens = f"{usage.get('input_tokens', 0):,} tokens in, {usage.get('output_tokens', 0):,} out"
    return tokens if not cost else f"{tokens}, ${cost:.4f}"


def _message_text(message: Mapping[str, Any]) -> str:
    content = message.get("content", "")
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in content if isinstance(part, Mapping))
