"""Tools, resources and prompts of MCP servers, under the names `mcp__server__tool`."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from wick import constants
from wick._internal.frozen import canonical_json, digest, thaw
from wick._internal.prompt_text import to_one_line
from wick._internal.tool_flow import RESULT_FLOW, ToolFlow, declare_flow
from wick._internal.worker_threads import run_in_thread
from wick.capabilities.mcp.config import McpServer, read_servers
from wick.capabilities.mcp.connections import McpConnection, McpConnections
from wick.capability import Capability
from wick.decisions import Ask, Block
from wick.errors import ConfigError, ToolError
from wick.hooks import before, guard
from wick.messages import ImagePart, Part, ToolResult
from wick.operations import Run, ToolUse
from wick.tools import Tool, tool

logger = logging.getLogger(__name__)

PINS = "mcp_pins"  # key of `thread.values`: pinned definitions, as {server: {tool: hash}}
ASKED = "mcp_asked"  # key of `thread.values`: the definition of each question, as {use: hash}
ASKED_KEPT = 20
LARGE_CHARS = 5_000  # of a schema
DESCRIPTION_CHARS = 300  # of a description, in a question
NAME_CHARS = 64  # the longest tool name that every provider accepts
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
PENDING_DESCRIPTION = "Its definition has changed since it was agreed to, so the user is asked before it is used."
_ODD, _PLAIN = re.compile(r"[^A-Za-z0-9_-]"), re.compile(r"[\w.-]{1,64}")
_TYPES = ("string", "number", "integer", "boolean", "array", "object")

Pins = Mapping[str, Mapping[str, str]]


class MCP(Capability):
    """Adds the tools of MCP servers: programs (`command`, `args`, `env`) and services (`url`, `headers`).

    A tool is named `mcp__server__tool`. Tool definitions are pinned when a server is first seen: in the file `pins`, or
    with the thread. A mapping as `pins` pins exactly its definitions. A tool with a changed definition needs the user's
    approval. Connections open when a run first needs them, and stay open until `close`.
    """

    name = "mcp"

    def __init__(
        self,
        servers: Mapping[str, Mapping[str, Any]],
        *,
        pins: str | Path | Pins | None = None,
        max_output: int = constants.MCP_OUTPUT_CHARS,
    ) -> None:
        if type(max_output) is not int or max_output < 1:
            raise ConfigError(f"MCP(max_output={max_output!r}): give a number of characters of at least 1")
        self.servers, self.pins, self.max_output = read_servers(servers), _PinStore.from_option(pins), max_output
        self._connections = McpConnections()

    def foreign_tools(self) -> Iterable[str]:
        """Yield the patterns `mcp__server__*`, and the tool names of each server, or `*` if it has no `tools`."""
        for server in self.servers:
            yield f"mcp__{server.name}__*"
            yield from ("*",) if server.tools is None else server.tools

    async def close(self) -> None:
        """Close the connections of this event loop, and stop their programs."""
        await self._connections.close()

    async def definitions(self) -> dict[str, dict[str, str]]:
        """Return the hashes of the current tool definitions, in the form of `pins`."""
        links = [await self._connections.connect(server) for server in self.servers]
        return {
            link.server.name: {
                definition.name: _hash_definition(definition) for definition in await link.tools(fresh=True)
            }
            for link in links
        }

    async def declarations(self) -> dict[str, ToolFlow | None]:
        """Return what the tools of the servers declare for information flow, by name; None without a declaration."""
        found = dict[str, ToolFlow | None]()
        for server in self.servers:
            link = await self._connections.connect(server)
            listed = [(definition.name, definition) for definition in await link.tools(fresh=True)]
            for tool_name, definition in [*listed, *((name, None) for name in _list_extras(link))]:
                if server.tools is None or tool_name in server.tools:
                    remote = _RemoteTool(server, self._connections, self.pins, tool_name, definition)
                    name = f"mcp__{server.name}__{_ODD.sub('_', tool_name)}"[:NAME_CHARS]
                    found[name] = remote.build_tool(name, self.max_output).flow
        return found

    @before(Run)
    async def connect(self, run: Run) -> None:
        for link in await asyncio.gather(*(self._connect_server(run, server) for server in self.servers)):
            for remote in await self._list_remote_tools(run, link) if link is not None else ():
                await self._add_tool(run, remote)

    @guard(ToolUse, match=lambda use: _find_remote(use) is not None)
    async def ask_about_changes(self, use: ToolUse) -> Ask | Block | None:
        remote = _find_remote(use)
        if remote is None or remote.pins is not self.pins or not remote.hash:
            return None
        known = await self.pins.load_hashes(use.run, remote.server.name)
        if known.get(remote.tool) == remote.hash:
            return None
        values = use.run.root.thread.values
        asked = dict(values.get(ASKED, {}))
        if use.key not in asked:
            values[ASKED] = dict([*asked.items(), (use.key, remote.hash)][-ASKED_KEPT:])
        elif asked[use.key] != remote.hash:  # the definition changed while the run was paused
            return Block(
                f"{remote.server.name} has changed {remote.label} again since the user was asked; try once more"
            )
        what = "has changed its tool" if remote.tool in known else "has a new tool,"
        says = to_one_line(remote.description, DESCRIPTION_CHARS) or "nothing."
        return Ask(f"The MCP server {remote.server.name} {what} {remote.label}. It says: {says} May it be used?")

    async def _connect_server(self, run: Run, server: McpServer) -> McpConnection | None:
        """Return a connection with a fresh tool list; None if the server is unreachable: the run continues."""
        try:
            await self._connections.request(server, lambda link: link.tools(fresh=True))
            return await self._connections.connect(server)
        except ToolError as error:
            logger.warning("%s", error)
            run.record("mcp_unreachable", server=server.name, error=str(error))
            return None

    async def _list_remote_tools(self, run: Run, link: McpConnection) -> list[_RemoteTool]:
        """Return the tools of a server that this agent may use, and tools for its resources and prompts."""
        server, definitions = link.server, await link.tools()
        hashes = {definition.name: _hash_definition(definition) for definition in definitions}
        await self.pins.pin_new_server(run, server.name, hashes)
        known = await self.pins.load_hashes(run, server.name)
        tools = [
            _RemoteTool(server, self._connections, self.pins, name, definition, hash, known.get(name) == hash)
            for definition, (name, hash) in zip(definitions, hashes.items(), strict=True)
            if server.tools is None or name in server.tools
        ]
        return tools + [
            _RemoteTool(server, self._connections, self.pins, name)
            for name in _list_extras(link)
            if server.tools is None or name in server.tools
        ]

    async def _add_tool(self, run: Run, remote: _RemoteTool) -> None:
        name = f"mcp__{remote.server.name}__{_ODD.sub('_', remote.tool)}"
        if len(name) > NAME_CHARS or name in run.tools:
            name = f"{name[: NAME_CHARS - 9]}_{digest(remote.tool.encode())[-8:]}"
        try:
            built = remote.build_tool(name, self.max_output)
            if remote.is_large:  # reading such a schema would block the event loop
                await run_in_thread(lambda: built.schema, "a definition")
            if len(canonical_json(built.schema)) > constants.MCP_DEFINITION_BYTES:
                raise ConfigError(f"its definition has more than {constants.MCP_DEFINITION_BYTES:,} bytes")
        except ConfigError as error:  # raised for a schema that cannot be converted
            run.record("mcp_tool_refused", server=remote.server.name, tool=remote.label, error=str(error))
            return
        run.tools[name] = built


def _find_remote(use: ToolUse) -> _RemoteTool | None:
    owner = getattr(use.tool and use.tool.fn, "__self__", None)
    return owner if isinstance(owner, _RemoteTool) else None


def _list_extras(link: McpConnection) -> list[str]:
    """Return the names of the tools for the resources and prompts of a server."""
    has = {"resources": link.abilities.resources, "prompts": link.abilities.prompts}
    return [name for ability, names in _EXTRA_NAMES.items() if has[ability] for name in names]


def _hash_definition(definition: Any) -> str:
    fields = definition.model_dump(mode="json", by_alias=True, exclude_none=True)
    return digest(canonical_json({key: value for key, value in fields.items() if key not in ("_meta", "icons")}))


# -- remote tools -----------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _RemoteTool:
    """A tool, resource or prompt of a server."""

    server: McpServer
    connections: McpConnections
    pins: _PinStore
    tool: str  # its name on the server
    definition: Any = None  # None: a resource or a prompt
    hash: str = ""
    is_approved: bool = True

    @property
    def label(self) -> str:
        """Return its name as one short line, safe to show to users."""
        return to_one_line(self.tool, NAME_CHARS)

    @property
    def description(self) -> str:
        return str((self.definition and (self.definition.description or self.definition.title)) or "")

    @property
    def is_large(self) -> bool:
        """Return True if reading the definition takes milliseconds."""
        return self.definition is not None and len(str(self.definition.input_schema)) > LARGE_CHARS

    def build_tool(self, name: str, max_output: int) -> Tool:
        """Return the tool that calls the server. Its annotations count only if the server is trusted."""
        options: dict[str, Any] = {"name": name, "kind": "mcp", "max_output": max_output, "aliases": (), "renames": {}}
        options["timeout"] = self.server.seconds
        if self.definition is None:
            options |= (
                _EXTRA_FLOWS[self.tool] if self.server.trust else {**_EXTRA_FLOWS[self.tool], "returns": "untrusted"}
            )
            built = tool(getattr(self, self.tool), description=_EXTRA_DESCRIPTIONS[self.tool], **options)
            return replace(built, origin=self.tool, read_only=self.server.trust, idempotent=self.server.trust)
        hints = self.definition.annotations if self.server.trust else None
        about, schema = self.description[: constants.MCP_DESCRIPTION_CHARS], self.definition.input_schema
        if not self.is_approved:  # unapproved text does not reach the model
            properties = schema.get("properties")
            properties = properties if isinstance(properties, dict) else {}
            kinds = {
                name: argument.get("type") if isinstance(argument, dict) else None
                for name, argument in properties.items()
                if _PLAIN.fullmatch(name)
            }
            plain = {name: {"type": kind} if kind in _TYPES else {} for name, kind in kinds.items()}
            about, schema = PENDING_DESCRIPTION, {"type": "object", "properties": plain}
        built = tool(self.call, description=about or name, parameters=schema, **options)
        read_only = bool(hints and hints.read_only_hint)
        idempotent = read_only or bool(hints and hints.idempotent_hint)
        flow = _declare_flow(hints) if hints else None
        return replace(built, origin=self.tool, read_only=read_only, idempotent=idempotent, flow=flow)

    async def call(self, /, _tool_use: ToolUse, **args: Any) -> ToolResult:
        link = await self.connections.connect(self.server)
        if self.hash not in {
            _hash_definition(definition) for definition in await link.tools() if definition.name == self.tool
        }:
            raise ToolError(f"{self.server.name} has changed {self.label} meanwhile; it can be used in the next run")
        if self.hash != (await self.pins.load_hashes(_tool_use.run, self.server.name)).get(self.tool):
            # The gate has asked the user.
            await self.pins.pin_tool(_tool_use.run, self.server.name, self.tool, self.hash)

        async def show(progress: float, total: float | None, message: str | None) -> None:
            if message:
                _tool_use.stream(message + "\n")

        changes = not _tool_use.bound.read_only
        answer = await link.request(
            lambda client: client.call_tool(self.tool, args, progress_callback=show), changes=changes
        )
        if self.server.trust and (flow := _read_result_label(self.server.name, answer.meta)):
            _tool_use.notes[RESULT_FLOW] = flow
        shown = _convert_blocks(answer.content)
        if answer.is_error:
            raise ToolError(shown.output or f"{self.label} failed without a message from its server")
        data = answer.structured_content
        output = shown.output or ("" if data is None else json.dumps(data, ensure_ascii=False))
        return ToolResult(output, data=data, parts=shown.parts)

    async def request(self, question: Callable[[Any], Awaitable[Any]]) -> Any:
        return await self.connections.request(self.server, lambda link: link.request(question, changes=False))

    # The tools for resources and prompts: those without a definition.

    async def list_resources(self) -> Any:
        resources = await self.connections.request(self.server, McpConnection.resources)
        return [_pick_fields(row, "uri", "name", "description", "mime_type", "size") for row in resources]

    async def read_resource(self, uri: str) -> ToolResult:
        answer = await self.request(lambda client: client.read_resource(uri))
        return _convert_blocks(answer.contents)

    async def list_prompts(self) -> Any:
        rows = []
        for row in await self.connections.request(self.server, McpConnection.prompts):
            arguments = [_pick_fields(argument, "name", "description", "required") for argument in row.arguments or ()]
            rows.append({**_pick_fields(row, "name", "description"), "arguments": arguments})
        return rows

    async def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> ToolResult:
        answer = await self.request(lambda client: client.get_prompt(name, arguments or {}))
        return _convert_blocks([message.content for message in answer.messages])


def _declare_flow(hints: Any) -> ToolFlow | None:
    """Return the declaration of a trusted server's tool. What it returns stays untrusted: the hints do not say.

    Without `openWorldHint` the world of a tool is open, as MCP defines it, so that its arguments leave.
    """
    if hints.read_only_hint:
        return declare_flow("read" if hints.open_world_hint is False else "fetch")
    return declare_flow("delete") if hints.destructive_hint else None


def _read_result_label(server: str, meta: Any) -> ToolFlow | None:
    """Return the declaration of a result with a label in `_meta.ifc`: its integrity, and its readers.

    A trusted result is not a source of targets: the label says that others did not write it, not that it names any.
    """
    label = meta.get("ifc") if isinstance(meta, Mapping) else None
    if not isinstance(label, Mapping) or label.get("integrity") not in ("trusted", "untrusted"):
        return None
    readers = label.get("confidentiality", ())
    is_public = "public" in (readers if isinstance(readers, list) else [readers])
    return declare_flow(None, "own" if label["integrity"] == "trusted" else "untrusted", "" if is_public else server)


# -- resources and prompts --------------------------------------------------------------------------------------------


def _pick_fields(row: Any, *fields: str) -> dict[str, Any]:
    return {name: value for name in fields if (value := getattr(row, name, None)) is not None}


_EXTRA_NAMES = {"resources": ("list_resources", "read_resource"), "prompts": ("list_prompts", "get_prompt")}
_EXTRA_DESCRIPTIONS = {
    "list_resources": "List the resources that this server has, each with its URI.",
    "read_resource": "Read a resource of this server by its URI.",
    "list_prompts": "List the prompts that this server has, each with its arguments.",
    "get_prompt": "Get a prompt of this server by its name, filled in with arguments.",
}

_EXTRA_FLOWS: dict[str, dict[str, Any]] = {  # a trusted server's own names of its resources and prompts are ids
    "list_resources": {"effect": "read", "returns": {"uri": "id"}},
    "read_resource": {"effect": "fetch", "returns": "untrusted"},
    "list_prompts": {"effect": "read", "returns": {"name": "id"}},
    "get_prompt": {"effect": "fetch", "returns": "untrusted"},
}


# -- answers ----------------------------------------------------------------------------------------------------------


def _convert_blocks(blocks: Iterable[Any]) -> ToolResult:
    """Return texts as output and images as parts; other blocks become a placeholder."""
    texts, parts, room = list[str](), list[Part](), constants.MCP_MEDIA_CHARS
    for block in blocks:
        block = getattr(block, "resource", block)
        text, data, kind = (getattr(block, name, None) for name in ("text", "data", "mime_type"))
        data = data or getattr(block, "blob", None)
        if text is not None:
            texts.append(text)
        elif data and kind in PICTURES and len(data) <= room:
            room -= len(data)
            parts.append(ImagePart(data=data, media_type=kind))
        elif data:
            texts.append(f"[{to_one_line(kind or 'data', 100)}, {len(data) * 3 // 4:,} bytes, is not shown]")
        else:
            texts.append(f"[{to_one_line(str(getattr(block, 'uri', 'something')), 500)}]")
    return ToolResult("\n".join(texts), parts=tuple(parts))


# -- pins -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _PinStore:
    """The approved definitions: in a file, with the thread, or given as a mapping."""

    path: Path | None = None
    given: Pins | None = None

    @classmethod
    def from_option(cls, pins: Any) -> _PinStore:
        if pins is None:
            return cls()
        if isinstance(pins, str | Path) and str(pins):
            return cls(path=Path(pins))
        if not _are_pins(pins):
            raise ConfigError('MCP(pins=…) takes a file, or {"server": {"tool": "hash"}} as `definitions()` gives it')
        return cls(given=pins)

    async def load_hashes(self, run: Run, server: str) -> dict[str, str]:
        """Return the pinned hashes of a server's tools."""
        stored = (await self._load_all(run)).get(server, {})
        return {**(self.given.get(server, {}) if self.given is not None else {}), **stored}

    async def pin_new_server(self, run: Run, server: str, hashes: dict[str, str]) -> None:
        """Pin all tools of a server that is seen for the first time, unless the pins were given."""
        if self.given is None and server not in await self._load_all(run):
            await self._write(run, server, hashes)

    async def pin_tool(self, run: Run, server: str, tool: str, hash: str) -> None:
        await self._write(run, server, {tool: hash})

    async def _load_all(self, run: Run) -> dict[str, dict[str, str]]:
        if self.path is None:
            return thaw(run.root.thread.values.get(PINS, {}))  # type: ignore[no-any-return]
        return await run_in_thread(partial(_read_pins, self.path), "reading pins")

    async def _write(self, run: Run, server: str, hashes: dict[str, str]) -> None:
        if self.path is not None:
            await run_in_thread(partial(_write_pins, self.path, server, hashes), "writing pins")
            return
        stored = thaw(run.root.thread.values.get(PINS, {}))
        run.root.thread.values[PINS] = {**stored, server: {**stored.get(server, {}), **hashes}}


def _are_pins(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(server, str)
        and isinstance(tools, Mapping)
        and all(isinstance(item, str) for pair in tools.items() for item in pair)
        for server, tools in value.items()
    )


def _read_pins(path: Path) -> dict[str, dict[str, str]]:
    """Return the pins in a file; raise a ConfigError if it is unreadable: ignoring it would unpin all tools."""
    try:
        with path.open("rb") as file:
            pins = json.loads(file.read(constants.MCP_PINS_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"the pins of MCP servers in {path} cannot be read: {error}; mend or remove it") from None
    if not _are_pins(pins):
        raise ConfigError(f'the file {path} has no pins of MCP servers, which are {{"server": {{"tool": "hash"}}}}')
    return pins  # type: ignore[no-any-return]


def _write_pins(path: Path, server: str, hashes: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released when the file is closed
        pins = _read_pins(path)
        pins[server] = {**pins.get(server, {}), **hashes}
        with NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8") as file:
            json.dump(pins, file, indent=2, sort_keys=True)
        os.replace(file.name, path)
