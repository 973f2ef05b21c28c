"""A port of this machine that nobody else gets, also while nobody listens there.

with own_port() as port             a server may listen there, end, and listen there again
with own_port(port)                 the same for one whose server has ended
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def own_port(port: int = 0) -> Iterator[int]:
    """It is bound, and nobody listens: whoever asks for any port gets another, and who asks for this one gets it."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", port))
        yield int(kept.getsockname()[1])
