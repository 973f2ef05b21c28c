"""The startup message: address, sign-in link, model and protection of commands."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from wick.server.service import Service
from wick.server.settings import url_host


async def startup_lines(service: Service, host: str, port: int, notes: Sequence[str] = ()) -> list[str]:
    """Return the lines of the message. The sign-in link can be used once, for ten minutes."""
    name = "127.0.0.1" if host in ("0.0.0.0", "::") else url_host(host)
    address = f"http://{name}:{port}"
    link = f"{address}/ with your token"
    if token := service.authenticator.verifier.local_token:
        link = f"{address}/#ticket={await service.tickets.issue_sign_in(token)}"
    lines = [f"wick serves {address}", f"  sign in     {link}"]
    lines += [f"  {about:<11} {what}" for about, what in await service.describe()]
    lines += [f"  note        {note}" for note in notes]
    return lines


@contextmanager
def hide_auto_choices() -> Iterator[None]:
    """Do not log the choices of `auto`: the message has it, and the agents of each user would repeat it."""
    logger = logging.getLogger("wick.auto")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
