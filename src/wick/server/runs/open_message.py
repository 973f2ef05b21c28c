"""The message that a model is writing: its text so far, for readers that join a run."""

from __future__ import annotations

from wick.events import ChatModelRestart, ChatModelStart, ChatModelStream, Event


class OpenMessage:
    """The reply of a model from its start until it is logged."""

    __slots__ = ("_pieces", "start")

    def __init__(self) -> None:
        self._pieces: list[str] | None = None  # None if no reply is open
        self.start: ChatModelStart | None = None  # its start event

    @property
    def text(self) -> str | None:
        """The text so far, or None if no reply is open."""
        if self._pieces is None:
            return None
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    @property
    def is_open(self) -> bool:
        return self._pieces is not None

    def open(self, text: str, start: ChatModelStart | None) -> None:
        """Set the reply and its text so far."""
        self._pieces, self.start = [text] if text else [], start

    def add(self, text: str) -> None:
        """Add a piece of text, if a reply is open."""
        if self._pieces is not None and text:
            self._pieces.append(text)

    def close(self) -> None:
        """Forget the reply: it is logged."""
        self._pieces = None

    def track(self, event: Event) -> bool:
        """Apply an event of the run; return False if it restarts a reply that is already complete."""
        if isinstance(event, ChatModelStream):
            if event.kind == "text":
                self.add(event.delta)
        elif isinstance(event, ChatModelStart):
            self.open("", event)
        elif isinstance(event, ChatModelRestart):
            if self._pieces is None:
                return False
            self._pieces = [event.content]
        return True

    def joining_event(self, run: str) -> Event | None:
        """Return the event that a joining reader gets: the text so far, or the start if there is no text yet."""
        text = self.text
        if text:
            return ChatModelRestart(run, content=text)
        return self.start if text is not None else None
