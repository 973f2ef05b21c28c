"""Subscriptions of one server, by subject: the part that all live planes share."""

from __future__ import annotations

import logging

from wick.server.live import Receive

logger = logging.getLogger("wick.server")


class Subscriptions:
    """The receivers of each subject."""

    def __init__(self) -> None:
        self._by_subject: dict[str, list[Receive]] = {}

    def __contains__(self, subject: str) -> bool:
        return subject in self._by_subject

    def subjects(self) -> list[str]:
        """Return all subjects with a receiver."""
        return [*self._by_subject]

    def add(self, subject: str, receive: Receive) -> None:
        self._by_subject.setdefault(subject, []).append(receive)

    def remove(self, subject: str, receive: Receive) -> None:
        receivers = self._by_subject.get(subject, [])
        if receive in receivers:
            receivers.remove(receive)
        if not receivers:
            self._by_subject.pop(subject, None)

    def deliver(self, subject: str, data: bytes) -> bytes | None:
        """Call the receivers of a subject; return the first reply. An error in one does not stop the others."""
        reply: bytes | None = None
        for receive in [*self._by_subject.get(subject, ())]:
            try:
                answer = receive(data)
            except Exception:
                logger.exception("a message of the live plane on %s could not be handled", subject)
            else:
                reply = answer if reply is None else reply
        return reply
