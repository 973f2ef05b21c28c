"""The input line of `wick chat`, with a history, multi-line editing and completion of slash commands.

Enter sends. Alt-Enter, or Enter after a backslash, inserts a newline. Pasted text keeps its newlines.
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
    """A reader of prompts; `words` returns the slash commands with their help texts."""

    def __init__(self, history: Path, words: Callable[[], Mapping[str, str]]) -> None:
        entries: History = FileHistory(history)
        try:
            history.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(history, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
        except OSError:  # the file cannot be written
            entries = InMemoryHistory()
        self._session: PromptSession[str] = PromptSession(
            history=entries,
            completer=_SlashCompleter(words),
            complete_while_typing=False,
            multiline=True,
            prompt_continuation=CONTINUATION,
            key_bindings=_build_key_bindings(),
            enable_open_in_editor=True,
            enable_suspend=True,
        )

    async def read(self) -> str:
        """Return the next input. Raise KeyboardInterrupt on Ctrl-C and EOFError on Ctrl-D."""
        return await self._session.prompt_async(PROMPT, handle_sigint=False)

    @property
    def typed_text(self) -> str:
        """Return the text of the input line when it was interrupted."""
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


def _build_key_bindings() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def submit(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        elif buffer.text.strip():
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def insert_newline(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys
