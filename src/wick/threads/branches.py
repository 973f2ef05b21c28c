"""The branches of a thread: messages that follow the same message, of which a rewind has left all but one."""

from __future__ import annotations

from collections.abc import Sequence

from wick.threads.state import Entry


class MessageTree:
    """The messages of a log, those that a rewind has undone included. A message is named by its entry."""

    def __init__(self, log: Sequence[Entry]) -> None:
        self._parents: dict[int, int] = {}
        self._children: dict[int, list[int]] = {}
        self._last = [0]  # the last message of the state after each entry; 0 without a message
        for entry in log:
            parent = self._last[-1]
            if entry.kind == "rewind":
                self._last.append(self._last[entry.data["to"]])
            elif entry.kind == "message":
                self._parents[entry.seq] = parent
                self._children.setdefault(parent, []).append(entry.seq)
                self._last.append(entry.seq)
            else:
                self._last.append(parent)

    def list_branches(self, message: int) -> list[int]:
        """Return the messages that follow the same message as this one, itself included, the earliest first."""
        return self._children[self._parents[message]] if message in self._parents else []

    def find_tip(self, message: int) -> int:
        """Return the last entry at which a message was part of the thread; raise a KeyError if it is not a message."""
        if message not in self._parents:
            raise KeyError(message)
        below = {message}
        for seq, parent in self._parents.items():  # in the order of the log: parents come first
            if parent in below:
                below.add(seq)
        return next(at for at in range(len(self._last) - 1, 0, -1) if self._last[at] in below)
