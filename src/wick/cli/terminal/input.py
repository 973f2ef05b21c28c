"""Where a user types: with a history, several lines, and words that are completed after a slash.

Enter sends. Alt-Enter, or Enter after a backslash, begins another line; a text that is pasted keeps its lines.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

PROMPT = FormattedText([("bold", "› ")])
CONTINUATION = FormattedText([("", "… ")])


class LineReader:
    """Reads what a user says; `words` are what can stand after a slash, each with what it does."""

    def __init__(self, history: Path, words: Callable[[], Mapping[str, str]]) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=_open_history(history),
            completer=_SlashCompleter(words),
            complete_while_typing=False,
            multiline=True,
            prompt_continuation=CONTINUATION,
            key_bindings=_build_key_bindings(),
            enable_open_in_editor=True,
            enable_suspend=True,
        )

    async def read(self) -> str:
        """What was typed. KeyboardInterrupt is Ctrl-C, EOFError Ctrl-D."""
        return await self._session.prompt_async(PROMPT, handle_sigint=False)

    @property
    def typed_text(self) -> str:
        """What stood there when it was interrupted."""
        return self._session.default_buffer.text


class _SlashCompleter(Completer):
    def __init__(self, words: Callable[[], Mapping[str, str]]) -> None:
        self._words = words

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        if not text.startswith("/") or " " in text or "\n" in text:
            return
        for word, does in self._words().items():
            if f"/{word}".startswith(text):
                yield Completion(f"/{word} ", start_position=-len(text), display=f"/{word}", display_meta=does)


def _open_history(path: Path) -> History:
    """The history in a file that only its owner reads; where none can be written, for as long as this goes on."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)


def _build_key_bindings() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        elif buffer.text.strip():
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys
