"""An MCP server of the older kind, without any package, that does what servers should not do. It speaks over stdio.

`python mcp_raw.py silent` never lists its tools, `python mcp_raw.py endless` never ends to.
"""

from __future__ import annotations

import json
import sys
from typing import Any

BACKTRACKS = {"type": "string", "pattern": "^(a+)+$"}
calls = 0


def definitions() -> list[dict[str, Any]]:
    nothing = {"type": "object", "properties": {}}
    names = {name: {"type": "string"} for name in ("self", "use", "_tool_use", "name")}
    return [
        {"name": "count", "description": f"Count to {calls + 1}.", "inputSchema": nothing},
        {"name": "names", "description": "Take names.", "inputSchema": {"type": "object", "properties": names}},
        {"name": "broken", "inputSchema": {"type": "object", "properties": {"a": {"type": "nonsense"}}}},
        {"name": "elsewhere", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "http://evil.example/"}}}},
        {"name": "huge", "inputSchema": nothing | {"default": "x" * 200_000}},
        {"name": "wordy", "description": "word " * 100_000, "inputSchema": nothing},
        {"name": "nonsense", "inputSchema": nothing},
        {"name": "slow", "inputSchema": nothing, "outputSchema": {"type": "object", "properties": {"x": BACKTRACKS}}},
    ]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    global calls
    if method == "initialize":
        about = {"name": "raw", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": True}}, "serverInfo": about}
    if method == "tools/list" and "endless" in sys.argv:
        return {"tools": [], "nextCursor": (params.get("cursor") or "") + "x"}
    if method == "tools/list":
        return {"tools": definitions(), "nextCursor": "there is always more"}
    if method != "tools/call":
        return None
    if params["name"] == "nonsense":
        return {"content": "this should be a list"}
    if params["name"] == "slow":
        return {"content": [], "structuredContent": {"x": "a" * 60 + "!"}}
    if params["name"] == "count":
        calls += 1
        send_line({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    return {"content": [{"type": "text", "text": json.dumps(params.get("arguments"), sort_keys=True)}]}


def send_line(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


print("Welcome! This line is no message.", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked or (asked["method"] == "tools/list" and "silent" in sys.argv):
        continue
    result = answer(asked["method"], asked.get("params") or {})
    unknown = {"error": {"code": -32601, "message": "Method not found"}}
    send_line({"jsonrpc": "2.0", "id": asked["id"], **({"result": result} if result is not None else unknown)})
