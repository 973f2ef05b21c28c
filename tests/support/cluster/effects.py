"""A tool whose effects are recorded: each is one line of a ledger, with its call id and the host that performed it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time

from wick import ToolUse, tool

EFFECT_SECONDS = 0.05  # so that a server can be killed during an effect


@tool
async def effect(run_name: str, number: int, use: ToolUse) -> str:
    """Record an effect."""
    row = {"run": run_name, "number": number, "call": use.call.id, "server": socket.gethostname(), "at": time.time()}
    ledger = os.open(os.environ["WICK_CLUSTER_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(ledger, (json.dumps(row) + "\n").encode())
    finally:
        os.close(ledger)
    await asyncio.sleep(EFFECT_SECONDS)
    return "recorded"
