"""Builds agents from the options in `agents.yaml`."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from inspect import Parameter
from logging import DEBUG, WARNING, getLogger
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args, get_origin

from wick._internal.aliases import resolve_tool_name
from wick._internal.factory_options import read_hints, suggest_key, validate_options
from wick._internal.import_path import load_module
from wick._internal.plugins import find_plugin, find_plugins
from wick._internal.safe_yaml import KeyPath, YamlSource
from wick.agent import Agent
from wick.capabilities._defaults import DEFAULT_NAMES
from wick.capability import Capability
from wick.config.files import as_list, find_named_files, pin_config, pin_volumes, resolve_path
from wick.config.keys import CapabilityRing, load_backend_class, load_own
from wick.config.process_files import ProcessFiles, check_loaded, find_module, find_packages, guard_editable, pin_files
from wick.decisions import Asker
from wick.errors import ConfigError, WickError
from wick.hooks import Hook
from wick.models import check_model, resolve
from wick.operations import Operation, Run
from wick.protocols import Backend, Model
from wick.stores.registry import MEMORY, check_slashes, create_store, find_scheme
from wick.tools import HttpTool, Tool
from wick.workspace.protected import PROTECTED

logger = getLogger("wick")

BUILTIN = ("calculate", "datetime", "http_request", "web_search")


@dataclass(frozen=True, slots=True)
class AgentsFile:
    """The state that the agents of a file share."""

    source: YamlSource
    folder: Path
    rings: tuple[CapabilityRing, ...]
    path: Path | None = None  # the file itself, which is reloaded on change
    # Capabilities in `defaults:` with one instance for all agents.
    shared: dict[str, Capability | None] = field(default_factory=dict)


class AgentConfig:
    """The configuration of one agent: `options` are its own, merged over the defaults."""

    def __init__(self, file: AgentsFile, id: str, options: Mapping[str, Any], places: tuple[KeyPath, ...]) -> None:
        self.file, self.id, self.options = file, id, options
        self.name: str = options.get("name", id)
        self.resources: list[Any] = []  # objects to close
        self.private = ProcessFiles()  # files of the process that the agent runs in
        self.siblings: list[AgentConfig] = []  # the other agents of the file
        self._locations = places  # paths of its options in the file, its own first
        self._agent: Agent | None = None

    def __repr__(self) -> str:
        return f"AgentConfig({self.id!r})"  # options may contain secrets

    def agent(self, *, model: Model | None = None, backend: Backend | None = None, ask: Asker | None = None) -> Agent:
        """Return the agent. It is cached, unless `model`, `backend` or `ask` is given."""
        if (model, backend, ask) != (None, None, None):
            return _AgentBuilder(self, backend).agent(model, ask)
        if self._agent is None:
            self._agent = _AgentBuilder(self, None).agent(None, None)
        return self._agent

    def check_model(self) -> None:
        """Raise a ConfigError with its line if the model does not exist."""
        if isinstance(given := self.options.get("model"), str | Mapping):
            try:
                check_model(given)
            except ConfigError as error:
                raise self.build_error("model", error) from None

    def build_error(self, key: str, what: object, *within: str | int) -> ConfigError:
        """Return an error with the line of a key of this agent, of an item within it, or of the agent."""
        return self.file.source.error_at((*self.locate_key(key), *within), f"{key or f'the agent {self.id!r}'}: {what}")

    def locate_key(self, key: str) -> KeyPath:
        """Return the path of a key in the file: in the agent's own part, or in the defaults."""
        paths = [(*path, key) for path in self._locations]
        return next((path for path in paths if path in self.file.source.lines), self._locations[0])

    def is_own(self, key: str) -> bool:
        """Return True if a key is in the agent's own part."""
        return (*self._locations[0], key) in self.file.source.lines


class _AgentBuilder:
    """Builds one agent, part by part."""

    def __init__(self, config: AgentConfig, backend: Backend | None) -> None:
        self.config, self.folder = config, config.file.folder
        self.options = self._add_claude_settings(config.options)
        self._workspaces: list[str] = []
        self.backend = backend if backend is not None else self._build_backend()
        if backend is not None and backend.name == "local":
            self._workspaces.append(backend.workdir)

    def agent(self, model: Model | None, ask: Asker | None) -> Agent:
        tools = self._build_tools()
        hooks = [part for ring in self.config.file.rings for part in self._build_parts(ring)]
        with self._locate_errors():
            return Agent(
                self._locate_certificates(self.options.get("model", "auto")) if model is None else model,
                name=self.config.name,
                system=self.options.get("system_prompt", ""),
                tools=tools,
                hooks=hooks,
                ask=ask,
                settings=self.options.get("settings"),
                deps_factory=self._load_deps_factory(),
            )

    @contextmanager
    def _locate_errors(self, key: str = "", *within: str | int) -> Iterator[None]:
        """Convert errors into a ConfigError with the line of a key, or of an item within it."""
        try:
            yield
        except (WickError, OSError) as error:
            raise self.config.build_error(key, error, *within) from error

    def _add_claude_settings(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options with the settings of Claude Code, if they are wanted."""
        given = options.get("claude_settings", False)
        if given is False:
            return options
        wanted: dict[str, Any] = {"paths": given} if isinstance(given, list) else {} if given is True else dict(given)
        backend = options.get("backend")
        local = {"type": backend} if isinstance(backend, str) else backend or {}
        workdir = local.get("workdir", "workspace") if local.get("type") == "local" else "."
        folder = self._resolve_path(wanted.pop("folder", workdir))
        paths = [self._resolve_path(path) for path in wanted.pop("paths", ())]
        is_written = self.config.locate_key("claude_settings")[-1:] == ("claude_settings",)  # else the caller set it
        with self._locate_errors("claude_settings") if is_written else nullcontext():
            settings = load_own("wick.config.claude_settings:ClaudeSettings").load(folder, paths=paths, **wanted)
            return settings.apply_to(options)  # type: ignore[no-any-return]

    # -- rings --

    def _build_parts(self, ring: CapabilityRing) -> list[Hook | Capability]:
        if ring.key == "hooks":
            given, hooks = self.options.get("hooks", ()), list[Hook | Capability]()
            for number, hook in enumerate(() if isinstance(given, Mapping) else given):
                with self._locate_errors("hooks", number):
                    hooks.append(self._build_hook(hook))
            return hooks
        shared = self.config.file.shared if ring.shared and not self.config.is_own(ring.key) else {}
        with self._locate_errors(ring.key):
            if ring.key not in shared:
                shared[ring.key] = self._build_capability(ring)
        capability = shared[ring.key]
        if capability is None and ring.key in DEFAULT_NAMES and self.options.get(ring.key) is False:
            capability = Capability()  # an empty one, which replaces the default one of this name
            capability.name = ring.key
        return [] if capability is None else [capability]

    def _build_capability(self, ring: CapabilityRing) -> Capability | None:
        """Return the capability of a ring, or None if it is disabled."""
        value = self.options.get(ring.key, ring.always or (ring.backend and self.backend is not None))
        if value is False and ring.key == "executables" and isinstance(self.options.get("hooks"), Mapping):
            value = {}
        if value is False and ring.key == "builtins" and self._list_named_builtins():
            value = {"tools": []}
        if value is False:
            return None
        options = dict(ring.yes if value is True else value)
        if ring.backend and self.backend is None:
            self._log_off(ring.key)
            return None
        adjusted = self._adjust_options(ring.key, options)
        if adjusted is None:
            return None
        capability: Capability = self._construct(ring.load_class(), adjusted, self.backend)
        self.config.resources.append(getattr(capability, "store", capability))
        return capability

    def _log_off(self, key: str) -> None:
        level = WARNING if self.config.is_own(key) else DEBUG  # a key in `defaults:` need not apply to every agent
        logger.log(
            level, "%s", self.config.build_error(key, f"stays off, as the agent {self.config.id!r} has no backend")
        )

    def _construct(self, kind: Callable[..., Any], options: Mapping[str, Any], backend: Backend | None = None) -> Any:
        """Return an instance of a class with these options; resolve models and `module:name` references."""
        taken, given = read_hints(kind), dict(options)
        if backend is not None and "backend" in taken:
            given["backend"] = backend
        spread: list[Any] = []
        for name, (parameter, hint) in taken.items():
            if parameter.kind is Parameter.VAR_POSITIONAL:
                spread += [self._resolve_argument(item, hint) for item in given.pop(name, ())]
            elif name in given:
                given[name] = self._resolve_argument(given[name], hint)
            elif parameter.default is Parameter.empty:
                raise ConfigError(f"it needs {name!r}")
        return kind(*spread, **given)

    def _resolve_argument(self, value: Any, hint: Any) -> Any:
        kinds = get_args(hint) or (hint,)
        if Model in kinds and isinstance(value, str | Mapping):
            return resolve(self._locate_certificates(value))
        named = any(kind is Callable or get_origin(kind) in (type, Callable) for kind in (hint, *kinds))
        return self._load_python(value) if named and isinstance(value, str) and str not in kinds else value

    # -- adjustments of options --

    def _adjust_options(self, key: str, options: dict[str, Any]) -> dict[str, Any] | None:
        """Return the options of a capability with paths resolved and objects loaded; None if it stays off."""
        if key == "skills":
            return self._adjust_skills(options)
        if key == "executables":
            return self._adjust_executables(options)
        if key == "snapshots":
            if self.backend is None:
                self._log_off("snapshots")
                return None
            named = {name: str(options[name]) for name in ("folder", "cache") if options.get(name)}
            return options | {
                name: text if find_scheme(text) else self._resolve_path(text) for name, text in named.items()
            }
        if key == "memory":
            if self.backend is None:
                self._log_off("memory")
            return options if self.backend is not None and options.get("paths", ["AGENTS.md"]) else None
        if key == "summarization":
            window = self.options.get("context_window")
            return options if window is None else {"window": window, **options}
        if key == "sessions":
            store = str(options.get("store", "sessions"))
            check_slashes(store)
            is_folder = store != MEMORY and not find_scheme(store)
            return {**options, "store": create_store(self._resolve_path(store) if is_folder else store)}
        if key == "builtins":
            tools = options.get("tools")
            if tools is None:
                tools = [name for name in BUILTIN if name != "web_search" or "search" in options]
            return {**options, "tools": [*tools, *self._list_named_builtins()]}
        if key == "subagents":
            agents = options.get("agents")
            if isinstance(agents, dict):
                options["agents"] = {name: self._resolve_definition(agent) for name, agent in agents.items()}
            elif agents is not None:
                options["agents"] = [self._resolve_definition(agent) for agent in as_list(agents)]
        elif key == "context" and self.backend is None and "files" in options:
            options["files"] = [self._resolve_path(path) for path in options["files"]]
        elif key == "mcp" and isinstance(pins := options.get("pins"), str):
            options["pins"] = self._resolve_path(pins)
        elif key == "ask_user" and options.get("interactor") == "terminal":
            options["interactor"] = load_own("wick.capabilities.ask_user:Terminal")()
        elif key == "recipes":
            options["dirs"] = [self._resolve_path(folder) for folder in as_list(options.get("dirs", ".wick/recipes"))]
            loaded = {name: self._load_python(str(given)) for name, given in options.get("handlers", {}).items()}
            if loaded:
                options["handlers"] = {
                    name: item() if isinstance(item, type) else item for name, item in loaded.items()
                }
        return options

    def _adjust_skills(self, options: dict[str, Any]) -> dict[str, Any] | None:
        if "host" in options:
            options["host"] = [self._resolve_path(path) for path in as_list(options["host"])]
        if self.backend is None:
            options["paths"] = ()
        has_any = options.get("paths") or options.get("host") or options.get("shipped")
        if not has_any and self.backend is None:
            self._log_off("skills")
            return None
        return options if has_any else None

    def _list_named_builtins(self) -> list[str]:
        return [name for name in map(_parse_tool_name, self.options.get("tools", ())) if name in BUILTIN]

    def _resolve_definition(self, given: str | dict[str, Any]) -> Any:
        """Return a subagent definition: the path of its Markdown file, or a map with resolved tools and hooks."""
        if isinstance(given, str):
            return self._resolve_path(given)
        definition = dict(given)
        if "model" in given:
            definition["model"] = self._locate_certificates(given["model"])
        if isinstance(given.get("tools"), list):
            definition["tools"] = [self._load_python(name) if ":" in name else name for name in given["tools"]]
        if "hooks" in given:
            definition["hooks"] = [self._build_hook(hook) for hook in given["hooks"]]
        if isinstance(given.get("output_type"), str):
            definition["output_type"] = self._load_python(given["output_type"])
        return definition

    def _adjust_executables(self, options: dict[str, Any]) -> dict[str, Any]:
        """Resolve paths relative to the file, and add the event handlers under `hooks`."""
        if isinstance(handlers := self.options.get("hooks"), Mapping):
            if "settings" in options:
                raise ConfigError("`hooks` and `settings` are two places for handlers of events; take one of them")
            options["settings"] = handlers
        options["dirs"] = [
            {**folder, "dir": self._resolve_path(str(folder.get("dir", "")))}
            if isinstance(folder, Mapping)
            else self._resolve_path(folder)
            for folder in as_list(options.get("dirs", ()))
        ]
        for name in {"folder", "cwd", "trust", "home"} & options.keys():
            options[name] = self._resolve_path(options[name])
        if isinstance(options.get("claude"), list):
            options["claude"] = [self._resolve_path(path) for path in options["claude"]]
        if self.backend is not None and self.backend.name == "local":
            options.setdefault("cwd", self.backend.workdir)
        return options

    # -- backend, tools and hooks --

    def _build_backend(self) -> Backend | None:
        given = self.options.get("backend", False)
        if given is False:
            return None
        options: dict[str, Any] = {"type": given} if isinstance(given, str) else dict(given)
        type = options.pop("type")
        if type == "local":
            options["path"] = self._resolve_path(options.pop("workdir", "workspace"))
            options["readable"] = [self._resolve_path(folder) for folder in options.get("readable", ())]
            with self._locate_errors("backend"):
                options["pinned"] = [*options.get("pinned", ()), *self._pin_workspace(options["path"], protects=True)]
            options |= guard_editable(options["path"], options.get("protect", PROTECTED))
        if "volumes" in options:
            volumes = {  # a plain name is a volume of the container engine
                self._resolve_path(source) if source.startswith((".", "~")) or "/" in source else source: target
                for source, target in options["volumes"].items()
            }
            with self._locate_errors("backend"):
                options["volumes"] = pin_volumes(volumes, self._pin_workspace)
        with self._locate_errors("backend"):
            backend: Backend = self._construct(load_backend_class(type), options)
            if not isinstance(backend, Backend):
                raise ConfigError(f"{type} is not a backend: it does not have all methods of a Backend")
        self.config.resources.append(backend)
        return backend

    def _pin_workspace(self, workspace: str, *, protects: bool = False) -> list[str]:
        """Return the files to pin in a workspace; raise a ConfigError if it contains code of the process."""
        self._workspaces.append(os.path.realpath(workspace))
        private = self.config.private
        for sibling in self.config.siblings:
            private |= find_named_files(sibling.options, self.folder, None, workspace)
        return pin_config(workspace, self.options, self.folder, self.config.file.path, private, protects=protects)

    def _build_tools(self) -> list[Tool | Callable[..., object]]:
        tools: list[Tool | Callable[..., object]] = []
        for number, given in enumerate(self.options.get("tools", ())):
            if _parse_tool_name(given) in BUILTIN:
                continue
            with self._locate_errors("tools", number):
                if not isinstance(given, str):
                    tools.append(HttpTool(**given))
                    continue
                tool = self._load_named(given, "wick.tools", "tool", BUILTIN)
                if not isinstance(tool, Tool) and (isinstance(tool, type) or not callable(tool)):
                    raise ConfigError(f"{given} is neither a tool nor a function")
                tools.append(tool)
        return tools

    def _build_hook(self, given: str | Mapping[str, Any]) -> Hook | Capability:
        """Return a hook or capability by name; `{name: options}` calls a factory with these options."""
        if isinstance(given, Mapping) and len(given) != 1:
            raise ConfigError("a hook with options is a map of one name, as in `- mine:Redactor: {words: [secret]}`")
        named: Mapping[str, Any] = {given: {}} if isinstance(given, str) else given
        name, options = next(iter(named.items()))
        hook = self._load_named(name, "wick.hooks", "hook", ())
        if isinstance(hook, Hook | Capability) and options:
            raise ConfigError(
                f"{name} is a hook that takes no options; remove them, or name a function or class that takes them and "
                "returns the hook"
            )
        if not isinstance(hook, Hook | Capability) and callable(hook):
            shared: dict[str, Any] = {}
            if isinstance(hook, type) and issubclass(hook, Capability) and self.backend is not None:
                shared = {"backend": self.backend} if "backend" in inspect.signature(hook).parameters else {}
            try:
                hook = hook(**{**shared, **self._validate_hook_options(name, hook, options, shared)})
            except ConfigError as error:
                raise ConfigError(f"{name}: {error}") from None
            except TypeError as error:
                is_raised_inside = error.__traceback__ is not None and error.__traceback__.tb_next is not None
                hint = "" if is_raised_inside else "; is it a hook, decorated with @guard or so?"
                raise ConfigError(f"{name} cannot be made: {error}{hint}") from None
        if not isinstance(hook, Hook | Capability):
            raise ConfigError(f"{name} is not a hook: decorate it with @before, @wrap, @after or @guard")
        return hook

    def _validate_hook_options(
        self, name: str, factory: Callable[..., Any], options: Any, shared: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the options of a hook, with models and `module:name` references resolved by the factory's types."""
        try:
            hints = read_hints(factory)
        except (NameError, TypeError, ValueError):  # the signature cannot be read
            hints = {}
        if options is None:
            options = {}
        if not isinstance(options, Mapping):
            example = options if type(options) in (int, float) else "…"
            raise ConfigError(f"options are a map, as in {{{next(iter(hints), 'name')}: {example}}}")
        if not hints:
            return dict(options)
        resolved = {
            key: self._resolve_argument(value, hints[key][1]) if key in hints else value
            for key, value in options.items()
        }
        converted = validate_options(factory, resolved)
        for key, (parameter, hint) in hints.items():
            is_missing = parameter.default is Parameter.empty and key not in options and key not in shared
            # The parameter of a hook that lacks its decorator, which is not an option.
            is_of_hook = hint is Any or (isinstance(hint, type) and issubclass(hint, Operation))
            if is_missing and parameter.kind is not Parameter.VAR_POSITIONAL and not is_of_hook:
                raise ConfigError(f"the option {key!r} is missing; write {{{name}: {{{key}: …}}}}")
        return converted

    def _load_deps_factory(self) -> Callable[[Run[Any]], Any] | None:
        """Return the function of the run that `deps` names."""
        if (name := self.options.get("deps")) is None:
            return None
        with self._locate_errors("deps"):
            factory = self._load_python(name)
            if not callable(factory) or inspect.iscoroutinefunction(factory):
                raise ConfigError(f"{name} is not a plain function; name one that takes the run and returns the deps")
            try:
                inspect.signature(factory).bind(None)
            except (TypeError, ValueError):
                raise ConfigError(
                    f"{name} must take one argument, the run: def {name.partition(':')[2]}(run: Run)"
                ) from None
            return factory  # type: ignore[no-any-return]

    # -- names --

    def _load_named(self, name: str, group: str, what: str, known: tuple[str, ...]) -> Any:
        """Return an object by entry point name, or by `module:name`."""
        if ":" in name:
            return self._load_python(name)
        if (plugin := find_plugin(group, name)) is not None:
            loaded = plugin.load()
            for workspace in self._workspaces:
                check_loaded(workspace)
            return loaded
        names = [*known, *(plugin.name for plugin in find_plugins(group))]
        hint = suggest_key(name, names, "one of your own is written module:name, and there are")
        raise ConfigError(f"there is no {what} {name!r}; {hint if names else 'write module:name'}")

    def _load_python(self, name: str) -> Any:
        places = dict.fromkeys(find_packages(name, self.folder), f"the module of {name}")
        for workspace in self._workspaces:
            pin_files(workspace, ProcessFiles(places), protects=True)
        loaded = load_python_name(name, self.folder)
        for workspace in self._workspaces:
            check_loaded(workspace)
        return loaded

    def _locate_certificates(self, model: Any) -> Any:
        """Return a model with absolute paths of certificates; relative ones start at the folder of the file."""
        if not isinstance(model, Mapping):
            return model
        spec = dict(model)
        for key in {"verify", "cert"} & spec.keys():
            if isinstance(given := spec[key], str):
                spec[key] = self._resolve_path(given)
            elif isinstance(given, list):  # certificate, key, password
                paths = [self._resolve_path(path) if isinstance(path, str) else path for path in given[:2]]
                spec[key] = [*paths, *given[2:]]
        return spec

    def _resolve_path(self, path: str) -> str:
        """Return an absolute path; relative ones start at the folder of the file."""
        return resolve_path(self.folder, path)


def load_python_name(name: str, folder: Path) -> Any:
    """Return a Python object by `module:name`; the module may be in this folder."""
    module, _, names = name.partition(":")
    if not re.fullmatch(r"[\w.]+:[\w.]+", name):
        raise ConfigError(f"{name!r} is not written as module:name")
    beside = os.path.dirname(find_module(name, folder)) in (str(folder), str(folder / module.partition(".")[0]))
    if beside:
        sys.path.append(str(folder))  # as the last entry it shadows no other module
    try:
        return load_module(lambda: attrgetter(names)(import_module(module)))
    except Exception as error:  # importing a module may raise anything
        raise ConfigError(f"{name} cannot be loaded: {type(error).__name__}: {error}") from error
    finally:
        if beside:
            sys.path.remove(str(folder))


def _parse_tool_name(given: Any) -> str:
    return resolve_tool_name(given) if isinstance(given, str) else ""
