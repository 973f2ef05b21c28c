"""llama.cpp's server as a separate program: `Local` starts it, and it ends when its stdin is closed.

Do not import this module. llama.cpp holds the GIL while it loads a model, may block forever when it unloads one, and
may crash on a broken file. So it must not run in the process of the agents.

    in     {"path": …, "context": …, "key": …, …}
    out    {"read": 0.5} …  then  {"url": "http://127.0.0.1:…"}  or  {"error": …}
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import struct
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

MEGABYTE = 1 << 20
HEAD = 64 * MEGABYTE  # metadata is at the beginning of a file

CHATML = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""

# Prepended to a template without tool support. It converts tools to text in the first message of the role `place`, and
# calls and results to text. llama.cpp detects the format of calls by itself, parses them, and restricts their arguments
# to the schemas of the tools by a grammar.
TOOLS_IN_WORDS = """\
{%- set how = 'You can use these tools:\\n' + ((tools or []) | tojson)
  + '\\nTo use one, answer with nothing but:\\n<tool_call>\\n{"name": ..., "arguments": {...}}\\n</tool_call>' -%}
{%- set chat = namespace(turns=[], explained=not tools, text='') -%}
{%- if not chat.explained and place == 'system' and messages[0].role != 'system' -%}
  {%- set chat.turns = [{'role': 'system', 'content': how}] -%}
  {%- set chat.explained = true -%}
{%- endif -%}
{%- for message in messages -%}
  {%- set role = {'tool': 'user', 'system': place}.get(message.role, message.role) -%}
  {%- set chat.text = message.content or '' -%}
  {%- if message.role == 'tool' -%}
    {%- set chat.text = '<tool_response>\\n' + chat.text + '\\n</tool_response>' -%}
  {%- elif role == place and not chat.explained -%}
    {%- set chat.text = how + '\\n\\n' + chat.text -%}
    {%- set chat.explained = true -%}
  {%- endif -%}
  {%- for call in message.tool_calls or [] -%}
    {%- set arguments = call.function.arguments -%}
    {%- set chat.text = chat.text + '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": '
      + (arguments if arguments is string else arguments | tojson) + '}\\n</tool_call>' -%}
  {%- endfor -%}
  {%- if chat.turns and chat.turns[-1].role == role -%}
    {%- set chat.turns = chat.turns[:-1] + [{'role': role, 'content': chat.turns[-1].content + '\\n' + chat.text}] -%}
  {%- else -%}
    {%- set chat.turns = chat.turns + [{'role': role, 'content': chat.text}] -%}
  {%- endif -%}
{%- endfor -%}
{%- set messages = chat.turns -%}
"""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent process
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # stdout is for answers, not for output of llama.cpp
    request = json.loads(sys.stdin.readline())
    try:
        _preload(request["path"], out)
        llama = import_module("xllamacpp")
        params = llama.CommonParams()
        params.model.path = request["path"]
        params.n_ctx = request["context"] * request["parallel"]  # divided among the slots
        params.n_parallel = request["parallel"]
        if request["threads"]:
            params.cpuparams.n_threads = params.cpuparams_batch.n_threads = request["threads"]
        params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [request["key"]]
        params.ui = False
        params.verbosity = request["verbosity"]
        params.chat_template = _choose_template(request["path"])
        server = llama.Server(params)
    except Exception as error:
        _report(out, error=str(error) or type(error).__name__)
        sys.stdin.read()  # llama.cpp may still log the reason in another thread
        os._exit(1)
    _report(out, url=server.listening_address)
    sys.stdin.read()
    os._exit(0)  # skips unloading the model, which may block forever


def _report(out: Any, **fields: Any) -> None:
    print(json.dumps(fields), file=out, flush=True)


def _preload(path: str, out: Any) -> None:
    """Read the file once, to report progress and to load it from the page cache."""
    size, done, reported = os.path.getsize(path), 0, 0.0
    buffer = bytearray(4 * MEGABYTE)
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            done += count
            if done / size - reported >= 0.01:
                reported = done / size
                _report(out, read=round(reported, 2))


def _choose_template(path: str) -> str:
    """Return a template with tool support; an empty string if the model has its own."""
    own = _read_gguf_text(Path(path), "tokenizer.chat_template")
    if "tools" in own or _read_gguf_text(Path(path), "tokenizer.chat_template.tool_use"):
        return ""
    place = "user" if "raise_exception" in own else "system"  # some templates refuse system messages
    return f"{{%- set place = '{place}' -%}}{TOOLS_IN_WORDS}{own or CHATML}"


def _read_gguf_text(path: Path, key: str) -> str:
    """Return a text from the metadata of a GGUF file: length and key, the type 8, length and text."""
    mark = struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", 8)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        start = data.find(mark, 0, HEAD) + len(mark) + 8
        if start < len(mark) + 8:
            return ""
        (length,) = struct.unpack("<Q", data[start - 8 : start])
        return data[start : start + length].decode(errors="replace")


if __name__ == "__main__":
    main()
