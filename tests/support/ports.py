"""A port of this machine that no other process gets, also while nothing listens there.

with own_port() as port             a server may listen there, end, and listen there again
with own_port(port)                 the same for one whose server has ended
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def own_port(port: int = 0) -> Iterator[int]:
    """Bind the port without listening: other processes get another port, and an explicit bind gets this one."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", port))
        yield int(kept.getsockname()[1])
