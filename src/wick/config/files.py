"""The files of this machine that an agent's options name, as code or as config."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from wick.config.process_files import ProcessFiles, find_packages, pin_files

SCRIPTS = (".sh", ".bash", ".zsh", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".go")


def find_named_files(options: Mapping[str, Any], folder: Path, config: Path | None, workspace: str) -> ProcessFiles:
    """Return the files that an agent with these options loads, runs or reads."""
    code: dict[str, str] = {}
    for name in find_python_names(options):
        code |= dict.fromkeys(find_packages(name, folder), f"the module of {name}")
    code |= dict(_list_programs(options, folder, workspace))
    reread = {} if config is None else {str(config): "the file that this agent is made of"}
    reread |= dict(_list_reread_files(options, folder))
    return ProcessFiles(code, reread)


def pin_config(
    workspace: str,
    options: Mapping[str, Any],
    folder: Path,
    config: Path | None,
    private: ProcessFiles,
    *,
    protects: bool = False,
) -> list[str]:
    """Return the files to pin in a workspace; raise a ConfigError if the workspace contains code."""
    return pin_files(workspace, find_named_files(options, folder, config, workspace) | private, protects=protects)


def pin_volumes(volumes: Mapping[str, str], pin: Callable[[str], list[str]]) -> dict[str, str]:
    """Return the volumes of a container with a read-only mount over each pinned file."""
    mounts = dict(volumes)
    for source, target in volumes.items():
        inside, _, mode = target.partition(":")
        if mode == "ro" or "/" not in source:
            continue
        for path in pin(source):
            names = path.split("/")
            for depth in range(1, len(names)):  # a folder that is a mount cannot be renamed
                above = "/".join(names[:depth])
                mounts.setdefault(f"{source.rstrip('/')}/{above}", f"{inside.rstrip('/')}/{above}")
            mounts[f"{source.rstrip('/')}/{path}"] = f"{inside.rstrip('/')}/{path}:ro"
    return mounts


def find_python_names(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the `module:name` references in hooks, tools, deps and handlers of an agent and its subagents."""
    for hook in as_list(options.get("hooks")):
        yield from (name for name in ([hook] if isinstance(hook, str) else hook) if ":" in name)
    yield from (tool for tool in as_list(options.get("tools")) if isinstance(tool, str) and ":" in tool)
    yield from (str(name) for name in as_list(options.get("deps")))
    schema = options.get("output_type") or _as_mapping(options.get("structured_output")).get("schema")
    yield from [schema] if isinstance(schema, str) and ":" in schema else []
    recipes, subagents = _as_mapping(options.get("recipes")), _as_mapping(options.get("subagents"))
    yield from (str(handler) for handler in _as_mapping(recipes.get("handlers")).values())
    agents = subagents.get("agents")
    for agent in agents.values() if isinstance(agents, Mapping) else as_list(agents):
        if isinstance(agent, Mapping):
            yield from find_python_names(agent)


def _list_programs(options: Mapping[str, Any], folder: Path, workspace: str) -> Iterator[tuple[str, str]]:
    """Yield the paths that are executed, or trusted without a prompt, each with a description."""
    programs = _as_mapping(options.get("executables"))
    for given in as_list(programs.get("dirs")):
        path = given.get("dir", "") if isinstance(given, Mapping) else given
        yield resolve_path(folder, path), "a folder of hook programs"
    settings = options.get("claude_settings")
    named = settings if isinstance(settings, list) else _as_mapping(settings).get("paths")
    for given in (*as_list(programs.get("claude")), *as_list(named)):
        yield resolve_path(folder, given), "settings that name hook programs"
    for name in {"trust", "home"} & programs.keys():
        yield resolve_path(folder, programs[name]), "the trust file of hook programs"
    cwd = str(programs.get("cwd") or workspace)
    for command in _find_commands([options.get("hooks"), programs.get("settings")]):
        yield from ((path, "a program of a hook") for path in _find_command_files(command, str(folder / cwd)))
    for name, server in _as_mapping(_as_mapping(options.get("mcp")).get("servers")).items():
        yield from _list_server_files(name, _as_mapping(server))
    store = _as_mapping(options.get("sessions")).get("store") or ("sessions" if options.get("sessions") is True else "")
    if store and store != "memory" and "://" not in store:
        yield resolve_path(folder, store), "the store of the threads"


def _list_server_files(name: str, server: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    what, cwd = f"a program of the MCP server {name}", str(server.get("cwd") or os.getcwd())
    if "cwd" in server:
        yield cwd, f"the folder of the MCP server {name}"
    if os.sep in (command := str(server.get("command", ""))):
        yield os.path.join(cwd, command), what
    for word in server.get("args", ()):
        if os.path.isfile(path := os.path.join(cwd, str(word))):
            yield path, what


def _list_reread_files(options: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, str]]:
    """Yield files and folders that are read again, each with a description."""
    recipes, skills = options.get("recipes"), _as_mapping(options.get("skills"))
    if recipes:
        dirs = _as_mapping(recipes).get("dirs", ".wick/recipes")
        yield from ((resolve_path(folder, path), "a folder of recipes") for path in as_list(dirs))
    yield from ((resolve_path(folder, path), "a folder of skills") for path in as_list(skills.get("host")))
    agents = _as_mapping(options.get("subagents")).get("agents")
    for agent in agents.values() if isinstance(agents, Mapping) else as_list(agents):
        if isinstance(agent, str):
            yield resolve_path(folder, agent), "a subagent"
    if isinstance(pins := _as_mapping(options.get("mcp")).get("pins"), str):
        yield resolve_path(folder, pins), "the pins of MCP servers"


def _find_commands(given: Any) -> Iterator[str]:
    """Yield each `command:` in the settings of hook programs."""
    if isinstance(given, Mapping):
        if isinstance(command := given.get("command"), str):
            yield command
        for value in given.values():
            yield from _find_commands(value)
    elif isinstance(given, list | tuple):
        for value in given:
            yield from _find_commands(value)


def _find_command_files(command: str, cwd: str) -> Iterator[str]:
    """Yield the files that the words of a shell command name."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        words = command.split()
    for number, word in enumerate(words):
        part = word.rpartition("=")[2]
        path = os.path.join(cwd, os.path.expandvars(os.path.expanduser(part)))
        is_program = "/" in part and (number == 0 or part.endswith(SCRIPTS))  # also if it does not exist yet
        if "://" not in part and (is_program or os.path.isfile(path)):
            yield path


def resolve_path(folder: Path, path: Any) -> str:
    """Return an absolute path; relative ones start at the folder."""
    return str(folder / Path(str(path)).expanduser())


def as_list(given: Any) -> list[Any]:
    """Return the items of an option that is a list, one item, or off."""
    if given is None or isinstance(given, bool):
        return []
    return [given] if isinstance(given, str | Mapping) else [*given]


def _as_mapping(given: Any) -> Mapping[str, Any]:
    return given if isinstance(given, Mapping) else {}
