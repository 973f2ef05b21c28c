"""Let wick read far more than it may hold, in a process of its own; print its memory growth.

    python memory_load.py KIND MEGABYTES [FAULT]

KIND is one of KINDS; with a FAULT the limits of wick and of its wickd are lifted first. The answer is one line of JSON:
`{"grew": 1234567, "said": "…"}`. What wickd grew by is part of it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZipFile

from wick import constants

LIFTED = [name for name in vars(constants) if name.endswith(("_BYTES", "_CHARS", "_FRAMES")) and name != "HEAD_BYTES"]
LIFT = f"""
from wick import constants
for name in {LIFTED!r}:
    setattr(constants, name, getattr(constants, name) * 1000 if hasattr(constants, name) else 0)
"""

if sys.argv[3:] and __name__ == "__main__":  # before any cap is read
    exec(LIFT)

from faults.leaks import forget_peak, memory, peak  # noqa: E402
from kit import execute, tool_agent  # noqa: E402
from programs import Programs  # noqa: E402
from wick import Agent  # noqa: E402
from wick._internal.zip_archives import unpack  # noqa: E402
from wick.backends import daemon_client  # noqa: E402
from wick.backends.local import Local  # noqa: E402
from wick.errors import ConfigError, ModelError  # noqa: E402
from wick.models.openai import OpenAI  # noqa: E402

Eat = Callable[[Path, int], Awaitable[str]]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
ANSWER = b'data: {"choices":[{"index":0,"delta":{"content":"fine"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
PIECE = b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % (b"x" * 60_000)


async def tool_output(folder: Path, size: int) -> str:
    """A command prints that much on both outputs."""
    backend = Local(folder / "work")
    half = size // 2
    done = await backend.execute(f"head -c {half} /dev/zero & head -c {half} /dev/zero >&2; wait", timeout=300)
    await backend.stop()
    return f"exit code {done['exit_code']}, {len(done['stdout'])} characters kept"


async def hook_output(folder: Path, size: int) -> str:
    """A hook program answers with that much, and another complains with as much."""
    for name, where in (("one", ""), ("two", ">&2")):
        programs = Programs(folder / name)
        programs.sh("check", "before_tool_call", f"cat >/dev/null; head -c {size} /dev/zero {where}")
        result = await tool_agent(execute, programs.executables(timeout=300), args={"command": "ls"}).run("go")
    return next(message.text for message in result.messages if message.role == "tool")


@asynccontextmanager
async def _provider(size: int, *pieces: bytes) -> AsyncIterator[str]:
    """A provider whose first response consists of that many bytes of these pieces; the next one is valid."""
    first, again = pieces[0], pieces[-1]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + first)
        try:
            for _ in range(size // len(again)):
                writer.write(again)
                await writer.drain()
            writer.write(ANSWER)
            await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass  # the reader stops
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


def _stream(*pieces: bytes) -> Eat:
    async def eat(folder: Path, size: int) -> str:
        async with _provider(size, *pieces) as url:
            try:
                return (await Agent(OpenAI("m", base_url=url, api_key="k")).run("go")).text
            except ModelError as error:
                return str(error)

    return eat


def _archive(how: int) -> Eat:
    """An archive that unpacks to that much."""

    async def eat(folder: Path, size: int) -> str:
        file = BytesIO()
        with ZipFile(file, "w", how) as archive, archive.open("bomb", "w") as entry:
            for _ in range(size // 1_000_000):
                entry.write(bytes(1_000_000))
        forget_peak()
        try:
            return f"unpacked {len(unpack(file.getvalue()))}"
        except ConfigError as error:
            return str(error)

    return eat


KINDS: dict[str, Eat] = {
    "tool output": tool_output,
    "hook output": hook_output,
    "provider text": _stream(PIECE),
    "provider comments": _stream(b": " + b"x" * 60_000 + b"\n"),
    "provider line": _stream(b"data: ", b"x" * 60_000),
    "archive bomb": _archive(ZIP_DEFLATED),
    "archive bomb by bzip2": _archive(ZIP_BZIP2),
    "archive": _archive(ZIP_DEFLATED),
}


async def main(kind: str, size: int) -> None:
    """Warm up, run the load, and print the growth."""
    wickd = (await (await daemon_client.get_host_daemon()).ping())["pid"]
    with TemporaryDirectory() as folder:
        await KINDS[kind](Path(folder) / "little", 1_000_000)
        before = forget_peak() + memory(wickd)
        said = await KINDS[kind](Path(folder) / "much", size)
    print(json.dumps({"grew": peak() + peak(wickd) - before, "said": said}))


if __name__ == "__main__":
    if sys.argv[3:]:
        daemon_client._LAUNCH = daemon_client._LAUNCH.replace("from wick.wickd", f"{LIFT}from wick.wickd", 1)
    asyncio.run(main(sys.argv[1], int(sys.argv[2]) * 1_000_000))
