"""An MCP server for tests, made with the `mcp` package: `python mcp_server.py [PORT]`, over stdio without a port.

What its tool `greet` says of itself stands in the variable GREETING, and `change` changes it. SENSORS is a number of
further tools.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, TextContent, ToolAnnotations

server = MCPServer("tests", log_level="CRITICAL")


@server.tool(annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def is_even(number: int) -> bool:
    """Return True if a number is even."""
    return number % 2 == 0


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def read_note(integrity: str, readers: list[str]) -> CallToolResult:
    """Read a note, with a label of its author and its readers."""
    label = {"integrity": integrity, "confidentiality": readers}
    return CallToolResult(content=[TextContent(type="text", text="note")], _meta={"ifc": label})


def greet(name: str) -> str:
    return f"Hello, {name}."


@server.tool()
def change(greeting: str) -> str:
    """Redefine a tool."""
    server.remove_tool("greet")
    server.add_tool(greet, description=greeting)
    return "changed"


server.add_tool(greet, description=os.environ.get("GREETING", "Greet somebody."))


@server.tool()
async def wait(seconds: float, ctx: Context) -> str:
    """Wait a while."""
    await ctx.report_progress(0.5, 1, "still waiting")
    await asyncio.sleep(seconds)
    return "waited"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("it does not work")


@server.tool()
def die() -> str:
    """End the server."""
    print("out of memory", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
def long(characters: int) -> str:
    """Say a lot."""
    return "x" * characters


@server.tool()
def picture() -> Image:
    """Draw something."""
    return Image(data=b"not really a picture", format="png")


@server.tool()
def environment(name: str) -> str:
    """Look at a variable of the environment."""
    return os.environ.get(name, "(not set)")


@server.tool()
def header(name: str, ctx: Context) -> str:
    """Look at a header of the request."""
    return (ctx.headers or {}).get(name, "(not sent)")


@server.tool(name="odd.name/of a tool that is much longer than any provider of models would take")
def odd() -> str:
    """Have a name."""
    return "odd"


@server.tool()
def pid() -> int:
    """The number of the server's process."""
    return os.getpid()


@server.resource("note://moon")
def moon() -> str:
    """A note about the moon."""
    return "It is round."


@server.resource("note://picture", mime_type="application/zip")
def archive() -> bytes:
    """An archive."""
    return b"PK" * 600


@server.prompt()
def review(language: str) -> str:
    """Review code."""
    return f"Review this {language} code."


def make_sensor(number: int) -> Callable[[str], str]:
    def read_sensor(place: str) -> str:
        return f"{place}: {number} degrees"

    return read_sensor


for number in range(int(os.environ.get("SENSORS", "0"))):
    server.add_tool(
        make_sensor(number), name=f"sensor_{number}", description=f"Read the sensor {number} of a building."
    )

if "PIDFILE" in os.environ:
    Path(os.environ["PIDFILE"]).write_text(str(os.getpid()))
if "STUBBORN" in os.environ:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if __name__ == "__main__" and len(sys.argv) > 1:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
elif __name__ == "__main__":
    server.run("stdio")
    while "STUBBORN" in os.environ:  # takes no notice that its input has ended
        signal.pause()
