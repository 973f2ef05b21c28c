"""File and command tools on a backend, and files for results too large for the model.

    Agent(model, hooks=[Filesystem(Local("./project"))])

Written files are also stored in `thread.values["files"]`. `Filesystem(State())` stores its files only there, separately
for each thread.
"""

from __future__ import annotations

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from wick import constants
from wick._internal.frozen import digest
from wick._internal.visible_text import make_visible
from wick.backends.state import State
from wick.capabilities.filesystem.tracked_files import TrackedWorkspace
from wick.capability import Capability
from wick.decisions import Ask
from wick.errors import BackendError, ConfigError, ToolError, Uncertain
from wick.hooks import Hook, after, guard
from wick.messages import ToolResult
from wick.operations import Run, ToolUse
from wick.protocols import Backend
from wick.stores.large_results import load_large_text, store_large_text, truncate_text
from wick.tools import Tool, tool
from wick.workspace.results import FileLines
from wick.workspace.text import read_lines

_NEEDED = ("ls", "lines", "read", "write", "edit", "glob", "grep", "stat", "execute")
READING = ("ls", "read_file", "glob", "grep")
WRITING = ("write_file", "edit_file")
FILE_TOOLS = frozenset((*READING, *WRITING))  # results of these are never moved to a file
RESULTS = ".results"
READ_CHARS = constants.TOOL_OUTPUT_CHARS - 1_000  # of a file per call; the rest is for the hint how to continue
EXECUTED_CHARS = 8 * (constants.OUTPUT_HEAD_BYTES + constants.OUTPUT_TAIL_BYTES)  # both outputs, as JSON

Path = Annotated[str, "relative to the workspace"]


class Filesystem(Capability):
    """Adds tools for the files and commands of a backend: ls, read_file, write_file, edit_file, glob, grep, execute.

    `read_only` leaves the four reading tools; `execute=False` removes commands. Without a sandbox
    (`backend.protection.asks`), the user is asked about each command. A tool result with more than `result_chars`
    characters is written to a file; the model sees its beginning and end.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        execute: bool = True,
        read_only: bool = False,
        track: bool = True,
        result_chars: int | None = constants.RESULT_CHARS,
        longest: float = constants.LONGEST_COMMAND_SECONDS,
    ) -> None:
        if isinstance(backend, type) or not all(callable(getattr(backend, name, None)) for name in _NEEDED):
            raise ConfigError(f"Filesystem needs a backend, such as Local('./workspace'), not {backend!r}")
        for name, flag in {"execute": execute, "read_only": read_only, "track": track}.items():
            if type(flag) is not bool:
                raise ConfigError(f"Filesystem({name}={flag!r}): it is true or false")
        _check_number("longest", longest, 0)
        if result_chars is not None:
            _check_number("result_chars", result_chars, constants.CUT_HEAD_CHARS + constants.CUT_TAIL_CHARS - 1)
        self.backend = backend
        self._commands = execute and not read_only and not isinstance(backend, State)
        self._read_only, self._track, self._result_chars, self._longest = read_only, track, result_chars, longest

    def tools(self) -> list[Tool]:
        """Return the tools that the backend and the options allow."""
        without = {*(WRITING if self._read_only else ()), *(() if self._commands else ("execute",))}
        return [tool for tool in super().tools() if tool.name not in without]

    def hooks(self) -> list[Hook]:
        """Return the hooks that the options need."""
        wanted = {"confirm": self._commands, "keep_large": self._result_chars is not None}
        return [hook for hook in super().hooks() if wanted.get(hook.name.rpartition(".")[2], True)]

    def foreign_tools(self) -> list[str]:
        """Return the names of all seven tools: a guard may name one that the options disable."""
        return [tool.name for tool in super().tools()]

    # -- files --------------------------------------------------------------------------------------------------------

    @tool(kind="read", read_only=True, effect="read", returns="untrusted")
    async def ls(self, run: Run, use: ToolUse, path: Path = ".") -> ToolResult:
        """List a folder: the name, type and size of each entry."""
        with _as_tool_errors():
            listing = await self._get_workspace(run).backend.ls(path, **_build_link_options(use, path))
        entries = [
            {"name": entry["name"], "type": entry["type"], "size": entry["size"]} for entry in listing["entries"]
        ]
        more = {"name": "... (there are more entries) ...", "type": "other", "size": 0}
        return _build_json_result([*entries, more] if listing["truncated"] else entries)

    @tool(kind="read", read_only=True, effect="read", returns="untrusted")
    async def read_file(
        self,
        run: Run,
        use: ToolUse,
        path: Path,
        offset: Annotated[int, "how many lines to skip"] = 0,
        limit: Annotated[int | None, "how many lines to read; all, if left out"] = None,
    ) -> ToolResult:
        """Read a text file, or some lines of it."""
        with _as_tool_errors():
            page = await self._read_lines(run, path, offset=offset, limit=limit, **_build_link_options(use, path))
        if not page["lines"] and offset:
            raise ToolError(f"{path} has no more than {offset} lines; read it from a smaller offset")
        text, is_long = page["content"], len(page["content"]) > READ_CHARS
        if is_long:
            text = text[: text.rfind("\n", 0, READ_CHARS) + 1 or READ_CHARS]
        if is_long or (page["truncated"] and limit is None):
            next_offset = page["offset"] + text.count("\n")
            text += f"\n... (the file continues; read it from offset {next_offset}) ..."
        about = {name: page[name] for name in ("path", "offset", "lines", "truncated")}
        return ToolResult(_replace_surrogates(text), data=about)

    @tool(kind="write", idempotent=True, effect="write", returns="own", targets=["path"])
    async def write_file(self, run: Run, use: ToolUse, path: Path, content: str) -> ToolResult:
        """Write a text file: make it, with the folders it needs, or replace what is there."""
        workspace = self._get_workspace(run)
        async with workspace.lock(path):
            with _as_tool_errors():
                written = await workspace.backend.write(path, content, **_build_link_options(use, path))
            workspace.track(path, written["bytes_written"], content)
        return _build_json_result(written)

    @tool(kind="write", effect="write", returns="own", targets=["path"])
    async def edit_file(
        self,
        run: Run,
        use: ToolUse,
        path: Path,
        old_text: Annotated[str, "exactly as it is in the file, and only once there"],
        new_text: str,
        replace_all: Annotated[bool, "replace it wherever it is"] = False,
        occurrence: Annotated[Literal["only", "first"], "first: replace the first, whatever else there is"] = "only",
    ) -> ToolResult:
        """Replace a text in a file by another."""
        workspace, strict = self._get_workspace(run), _build_link_options(use, path)
        async with workspace.lock(path):
            with _as_tool_errors():
                edited = await workspace.backend.edit(
                    path, old_text, new_text, replace_all=replace_all, occurrence=occurrence, **strict
                )
            await workspace.track_edited(path, edited["bytes_written"], **strict)
        return _build_json_result(edited)

    @tool(kind="read", read_only=True, effect="read", returns="untrusted")
    async def glob(
        self,
        run: Run,
        use: ToolUse,
        pattern: Annotated[str, "such as *.py, src/**/*.ts or {a,b}.txt"],
        path: Annotated[str, "the folder to look in"] = ".",
        everything: Annotated[bool, "also what .gitignore leaves out"] = False,
    ) -> ToolResult:
        """Find files by their names."""
        with _as_tool_errors():
            matches = await self._get_workspace(run).backend.glob(
                pattern, path, everything=everything, **_build_link_options(use, path)
            )
        return _build_json_result(matches)

    @tool(kind="read", read_only=True, effect="read", returns="untrusted")
    async def grep(
        self,
        run: Run,
        use: ToolUse,
        pattern: Annotated[str, "a regular expression (RE2)"],
        path: Annotated[str, "the folder or file to search"] = ".",
        glob: Annotated[str, "only in files like this, such as *.py"] = "",
        ignore_case: bool = False,
        everything: Annotated[bool, "also in what .gitignore leaves out"] = False,
    ) -> ToolResult:
        """Search in files for lines that match a pattern."""
        backend = self._get_workspace(run).backend
        with _as_tool_errors():
            matches = await backend.grep(
                pattern,
                path,
                glob=glob,
                ignore_case=ignore_case,
                everything=everything,
                **_build_link_options(use, path),
            )
        return _build_json_result(matches)

    def _get_workspace(self, run: Run) -> TrackedWorkspace:
        """Return the workspace of this run, created on first use."""
        if self not in run.scratch:
            backend, thread = self.backend, run.thread
            bound = backend.of(thread) if isinstance(backend, State) else backend
            run.scratch[self] = TrackedWorkspace(bound, thread, bound is not backend, self._track)
        return run.scratch[self]  # type: ignore[no-any-return]

    async def _read_lines(self, run: Run, path: str, *, offset: int, limit: int | None, **strict: bool) -> FileLines:
        workspace = self._get_workspace(run)
        try:
            return await workspace.backend.lines(path, offset=offset, limit=limit, **strict)
        except BackendError as error:
            text = (
                await load_large_text(run.thread, workspace.normalize_path(path)) if error.code == "not_found" else None
            )
            if text is None:
                raise
            data = text.encode()
            return read_lines(path, [data], len(data), offset, limit)

    # -- commands -----------------------------------------------------------------------------------------------------

    @tool(
        kind="shell",
        max_output=EXECUTED_CHARS,
        effect="change",
        targets=["command", "timeout", "workdir"],
        returns="untrusted",
    )
    async def execute(
        self,
        run: Run,
        use: ToolUse,
        command: Annotated[str, "for the shell"],
        timeout: Annotated[float | None, "in seconds"] = None,
        workdir: Annotated[str, "the folder to run it in; the workspace, if left out"] = "",
    ) -> ToolResult:
        """Run a shell command in the workspace, and get its output and its exit code."""
        if timeout is not None and not 0 < timeout <= self._longest:
            raise ToolError(f"timeout is a number of seconds above 0, at most {self._longest:g}")
        live = _LiveOutput(use)
        # `confirm` does not guard the use of a tool that was taken without its capability.
        is_guarded = self._is_ours(use) and any(hook.owner is self for hook in use.run.guards(ToolUse))
        with _as_tool_errors():
            executed = await self._get_workspace(run).backend.execute(
                command, workdir=workdir, timeout=timeout, on_output=live.write, approved=is_guarded
            )
        live.finish()
        fields = {name: executed[name] for name in ("stdout", "stderr", "exit_code")}
        return _build_json_result(
            fields | {name: executed[name] for name in ("error", "truncated", "moved") if executed[name]}
        )

    @guard(ToolUse, match="execute")
    async def confirm(self, use: ToolUse) -> Ask | None:
        """Ask the user about each command if the backend has no sandbox."""
        if not self._is_ours(use) or not self.backend.protection.asks:
            return None
        return Ask(f"Nothing confines commands here. Run this one? {make_visible(str(use.args['command']))}")

    def _is_ours(self, use: ToolUse) -> bool:
        return use.tool is not None and getattr(use.tool.fn, "__self__", None) is self

    # -- results that are too large -----------------------------------------------------------------------------------

    @after(ToolUse)
    async def keep_large(self, use: ToolUse) -> None:
        if use.error is not None or self._result_chars is None or not use.names.isdisjoint(FILE_TOOLS):
            return
        result, text = use.result, _replace_surrogates(use.result.text)
        if len(text) <= self._result_chars:
            return
        if self._is_ours(use) and result.data and not result.error:  # it stays JSON, with a note of the path
            outputs = {name: result.data[name] for name in ("stdout", "stderr")}
            whole = outputs["stdout"] + (f"\n--- stderr ---\n{outputs['stderr']}" if outputs["stderr"] else "")
            note = await self._store_result(use, whole)
            most = constants.CUT_HEAD_CHARS + constants.CUT_TAIL_CHARS
            shortened = {name: truncate_text(output) for name, output in outputs.items() if len(output) > most}
            result.output = _encode_result({**result.data, **shortened, "note": note})
            return
        short = f"{truncate_text(text)}\n\n({await self._store_result(use, text)})"
        if result.error:
            result.error = short
        else:
            result.output = short

    async def _store_result(self, use: ToolUse, text: str) -> str:
        """Store a result in the workspace, or else with the thread; return a sentence with its path."""
        workspace = self._get_workspace(use.run)
        if not self._read_only and not workspace.in_thread:
            try:
                path = await _find_free_path(workspace.backend, use)
                await workspace.backend.write(path, text, links=False)  # a command may have replaced RESULTS by a link
            except BackendError:
                pass  # store it with the thread instead
            else:
                return (
                    f"the whole result is in {path}; read it with read_file, offset and limit, or search it with grep"
                )
        path = f"{RESULTS}/{_format_call_id(use)}-{_hash_call(use)}.txt"
        if await store_large_text(use.run.thread, use.run.id, path, text):
            return f"the whole result is kept as {path}; read it with read_file, offset and limit"
        return "the rest could not be kept; ask for less"


def _check_number(name: str, number: Any, least: float) -> None:
    if isinstance(number, bool) or not isinstance(number, int | float) or not least < number < float("inf"):
        raise ConfigError(f"Filesystem({name}={number!r}): it is a number above {least:,}")


# -- results ----------------------------------------------------------------------------------------------------------


@contextmanager
def _as_tool_errors() -> Iterator[None]:
    """Convert a BackendError into a ToolError, or into Uncertain if its effect is unknown."""
    try:
        yield
    except BackendError as error:
        raise (Uncertain if error.code == "unknown" else ToolError)(str(error)) from None


def _build_link_options(use: ToolUse, path: str) -> dict[str, bool]:
    """Return the option that keeps a backend from following links, where a rule decided about a path by its names."""
    return {} if use.follows_links(path) else {"links": False}


def _build_json_result(data: Any) -> ToolResult:
    text = _encode_result(data)
    return ToolResult(text, data=json.loads(text))


def _encode_result(data: Any) -> str:
    return _replace_surrogates(json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def _replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which come from file names that are not UTF-8."""
    return text if text.isascii() else _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


_SURROGATE = re.compile("[\ud800-\udfff]")


class _LiveOutput:
    """Streamed output of a running command, up to a limit."""

    def __init__(self, use: ToolUse) -> None:
        self._use, self._left = use, constants.STREAM_CHARS
        self._decoders = {name: getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}

    def write(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        self._emit(self._decoders[stream].decode(data))

    def finish(self) -> None:
        for decoder in self._decoders.values():
            self._emit(decoder.decode(b"", final=True))

    def _emit(self, text: str) -> None:
        if not text or self._left <= 0:
            return
        self._use.stream(text[: self._left])
        self._left -= len(text)
        if self._left <= 0:
            self._use.stream("\n... (no more of it is shown while it runs) ...\n")


# -- paths of large results -------------------------------------------------------------------------------------------


def _format_call_id(use: ToolUse) -> str:
    """Return the id of a call as a file name."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", use.call.id)[:80] or "call"


def _hash_call(use: ToolUse) -> str:
    """Return a digest that distinguishes calls with the same id in other steps or threads."""
    return digest(use.key.encode())[:8]


async def _find_free_path(backend: Backend, use: ToolUse) -> str:
    path = f"{RESULTS}/{_format_call_id(use)}.txt"
    try:
        await backend.stat(path)
    except BackendError as error:
        if error.code == "not_found":
            return path
        raise
    return f"{RESULTS}/{_format_call_id(use)}-{_hash_call(use)}.txt"
