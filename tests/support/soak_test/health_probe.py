"""Measure the response times of /health in a dedicated process: `health_probe.py PORT FILE [SECONDS]`."""

from __future__ import annotations

import os
import socket
import sys
import time

ASK = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def once(port: int) -> float | None:
    """Milliseconds to an answer; None if there is no server."""
    began = time.perf_counter()
    try:
        with socket.create_connection(("127.0.0.1", port), 10) as link:
            link.sendall(ASK)
            return (time.perf_counter() - began) * 1000 if link.recv(100).startswith(b"HTTP/1.1 200") else None
    except OSError:
        return None


def main(port: int, file: str, pause: float = 0.1) -> None:
    parent = os.getppid()
    with open(file, "w", buffering=1) as out:
        while os.getppid() == parent:
            sent = time.time()
            took = once(port)
            out.write(f"{sent:.3f} {'-' if took is None else f'{took:.2f}'}\n")
            time.sleep(pause)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], *map(float, sys.argv[3:]))
