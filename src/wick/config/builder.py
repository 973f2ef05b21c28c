"""Builds an agent from what `agents.yaml` says about it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from inspect import Parameter
from logging import DEBUG, WARNING, getLogger
from pathlib import Path
from typing import Any, ClassVar, get_args, get_origin

from wick._internal.aliases import resolve_tool_name
from wick._internal.import_path import load_module
from wick._internal.safe_yaml import KeyPath, YamlSource
from wick.agent import Agent
from wick.capabilities._defaults import DEFAULTS
from wick.capability import Capability
from wick.config.files import named_files, pin_config, pin_volumes
from wick.config.keys import BACKENDS, Ring, own
from wick.config.options_schema import hints, nearest
from wick.config.process_files import ProcessFiles, check_loaded, find_module, find_packages, guard_editable, pin_files
from wick.decisions import Asker
from wick.errors import ConfigError, WickError
from wick.hooks import Hook
from wick.models import check_model, resolve
from wick.protocols import Backend, Model
from wick.tools import HttpTool, Tool
from wick.workspace.protected import PROTECTED

logger = getLogger("wick")

BUILTIN = ("calculate", "datetime", "http_request", "web_search")
_EVERYONES = {part.name for part in DEFAULTS}


@dataclass(frozen=True, slots=True)
class File:
    """What the agents of a file have in common."""

    source: YamlSource
    folder: Path
    rings: tuple[Ring, ...]
    path: Path | None = None  # the file itself, which is read again
    shared: dict[str, Capability | None] = field(
        default_factory=dict
    )  # what stands under `defaults:` and is one for all


class AgentConfig:
    """What a file says about one agent: `options` are its own over the defaults."""

    def __init__(self, file: File, id: str, options: Mapping[str, Any], places: tuple[KeyPath, ...]) -> None:
        self.file, self.id, self.options = file, id, options
        self.name: str = options.get("name", id)
        self.begun: list[Any] = []  # what has to be ended
        self.private = ProcessFiles()  # of the process that the agent runs in
        self.siblings: list[AgentConfig] = []  # the other agents of the file
        self._places = places  # where its options stand, its own first
        self._agent: Agent | None = None

    def __repr__(self) -> str:
        return f"AgentConfig({self.id!r})"  # its options may have keys in them

    def agent(self, *, model: Model | None = None, backend: Backend | None = None, ask: Asker | None = None) -> Agent:
        """The agent; one with another `model` or `backend`, or with somebody to `ask`, is a new one each time."""
        if (model, backend, ask) != (None, None, None):
            return _Building(self, backend).agent(model, ask)
        if self._agent is None:
            self._agent = _Building(self, None).agent(None, None)
        return self._agent

    def check_model(self) -> None:
        """Refuse a model that there is not, with its line."""
        if isinstance(given := self.options.get("model"), str | Mapping):
            try:
                check_model(given)
            except ConfigError as error:
                raise self.wrong("model", error) from None

    def wrong(self, key: str, what: object, *within: str | int) -> ConfigError:
        """An error that names the line on which a key of this agent stands, or something of it, or the agent itself."""
        return self.file.source.error_at((*self.at(key), *within), f"{key or f'the agent {self.id!r}'}: {what}")

    def at(self, key: str) -> KeyPath:
        """Where a key stands: in the agent's own part, or among the defaults."""
        places = [(*place, key) for place in self._places]
        return next((place for place in places if place in self.file.source.lines), self._places[0])

    def is_own(self, key: str) -> bool:
        """Whether a key stands in the agent's own part."""
        return (*self._places[0], key) in self.file.source.lines


class _Building:
    """Builds one agent, part by part."""

    def __init__(self, config: AgentConfig, backend: Backend | None) -> None:
        self.config, self.options, self.folder = config, config.options, config.file.folder
        self._workspaces: list[str] = []
        self.backend = backend if backend is not None else self._backend()
        if backend is not None and backend.name == "local":
            self._workspaces.append(backend.workdir)

    def agent(self, model: Model | None, ask: Asker | None) -> Agent:
        tools = self._tools()
        hooks = [part for ring in self.config.file.rings for part in self._parts(ring)]
        with self._telling():
            return Agent(
                self.options.get("model", "auto") if model is None else model,
                name=self.config.name,
                system=self.options.get("system_prompt", ""),
                tools=tools,
                hooks=hooks,
                ask=ask,
                settings=self.options.get("settings"),
            )

    @contextmanager
    def _telling(self, key: str = "", *within: str | int) -> Iterator[None]:
        """What goes wrong while a key is carried out, or an item of it, is told with its line."""
        try:
            yield
        except (WickError, OSError) as error:
            raise self.config.wrong(key, error, *within) from error

    # -- rings --

    def _parts(self, ring: Ring) -> list[Hook | Capability]:
        if ring.key == "hooks":
            given = self.options.get("hooks", ())
            return [] if isinstance(given, Mapping) else [self._listed(*item) for item in enumerate(given)]
        with self._telling(ring.key):
            made = self._shared(ring) if ring.shared and not self.config.is_own(ring.key) else self._capability(ring)
        if made is None and ring.key in _EVERYONES:
            made = _nothing(ring.key)
        return [] if made is None else [made]

    def _listed(self, number: int, given: str | Mapping[str, Any]) -> Hook | Capability:
        with self._telling("hooks", number):
            return self._hook(given)

    def _shared(self, ring: Ring) -> Capability | None:
        shared = self.config.file.shared
        if ring.key not in shared:
            shared[ring.key] = self._capability(ring)
        return shared[ring.key]

    def _capability(self, ring: Ring) -> Capability | None:
        options = self._ring_options(ring)
        if options is None:
            return None
        made: Capability = self._made(ring.load(), options, self.backend)
        self.config.begun.append(getattr(made, "store", made))
        return made

    def _ring_options(self, ring: Ring) -> dict[str, Any] | None:
        """The options of a capability; None if it is off."""
        value = self.options.get(ring.key, ring.always or (ring.backend and self.backend is not None))
        if value is False and ring.key == "executables" and isinstance(self.options.get("hooks"), Mapping):
            value = {}
        if value is False and ring.key == "builtins" and self._named_builtins():
            value = {"tools": []}
        if value is False:
            return None
        options = dict(ring.yes if value is True else value)
        if ring.backend and self.backend is None:
            self._say_off(ring.key)
            return None
        adjust = self._SPECIAL.get(ring.key)
        return options if adjust is None else adjust(self, options)

    def _say_off(self, key: str) -> None:
        level = WARNING if self.config.is_own(key) else DEBUG  # one of the defaults is not meant for every agent
        logger.log(level, "%s", self.config.wrong(key, f"stays off, as the agent {self.config.id!r} has no backend"))

    def _made(self, kind: Callable[..., Any], options: Mapping[str, Any], backend: Backend | None = None) -> Any:
        """Something by its options; what the file names is looked up."""
        taken, given = hints(kind), dict(options)
        if backend is not None and "backend" in taken:
            given["backend"] = backend
        spread: list[Any] = []
        for name, (parameter, hint) in taken.items():
            if parameter.kind is Parameter.VAR_POSITIONAL:
                spread += [self._argument(item, hint) for item in given.pop(name, ())]
            elif name in given:
                given[name] = self._argument(given[name], hint)
            elif parameter.default is Parameter.empty:
                raise ConfigError(f"it needs {name!r}")
        return kind(*spread, **given)

    def _argument(self, value: Any, hint: Any) -> Any:
        kinds = get_args(hint) or (hint,)
        if Model in kinds and isinstance(value, str | Mapping):
            return resolve(value)
        named = any(kind is Callable or get_origin(kind) in (type, Callable) for kind in (hint, *kinds))
        return self._python(value) if named and isinstance(value, str) and str not in kinds else value

    # -- what is special about some --

    def _skills(self, options: dict[str, Any]) -> dict[str, Any] | None:
        if "host" in options:
            options["host"] = [self._beside(path) for path in _several(options["host"])]
        if self.backend is None:
            options["paths"] = ()
        has_any = options.get("paths") or options.get("host") or options.get("shipped")
        if not has_any and self.backend is None:
            self._say_off("skills")
            return None
        return options if has_any else None

    def _memory(self, options: dict[str, Any]) -> dict[str, Any] | None:
        if self.backend is None:
            self._say_off("memory")
            return None
        return options if options.get("paths", ["AGENTS.md"]) else None

    def _summarization(self, options: dict[str, Any]) -> dict[str, Any]:
        window = self.options.get("context_window")
        return options if window is None else {"window": window, **options}

    def _sessions(self, options: dict[str, Any]) -> dict[str, Any]:
        store = options.get("store", "sessions")
        if store == "memory":
            return {**options, "store": own("wick.stores.in_memory:InMemory")()}
        if re.match(r"postgres(ql)?://", store):
            return {**options, "store": own("wick.stores.postgres:Postgres")(str(store))}
        return {**options, "store": self._beside(store)}

    def _context(self, options: dict[str, Any]) -> dict[str, Any]:
        if self.backend is None and "files" in options:
            options["files"] = [self._beside(path) for path in options["files"]]
        return options

    def _named_builtins(self) -> list[str]:
        return [name for name in map(_tool_word, self.options.get("tools", ())) if name in BUILTIN]

    def _builtins(self, options: dict[str, Any]) -> dict[str, Any]:
        """Those of `builtins:`, and those that `tools:` names."""
        tools = options.get("tools")
        if tools is None:
            tools = [name for name in BUILTIN if name != "web_search" or "search" in options]
        return {**options, "tools": [*tools, *self._named_builtins()]}

    def _subagents(self, options: dict[str, Any]) -> dict[str, Any]:
        agents = options.get("agents")
        if isinstance(agents, dict):
            options["agents"] = {name: self._definition(one) for name, one in agents.items()}
        elif agents is not None:
            options["agents"] = [self._definition(one) for one in _several(agents)]
        return options

    def _definition(self, given: str | dict[str, Any]) -> Any:
        """A subagent: its Markdown file beside this one, or a map whose tools and hooks may be Python's."""
        if isinstance(given, str):
            return self._beside(given)
        found = dict(given)
        if isinstance(given.get("tools"), list):
            found["tools"] = [self._python(name) if ":" in name else name for name in given["tools"]]
        if "hooks" in given:
            found["hooks"] = [self._hook(hook) for hook in given["hooks"]]
        return found

    def _mcp(self, options: dict[str, Any]) -> dict[str, Any]:
        pins = options.get("pins")
        return {**options, "pins": self._beside(pins)} if isinstance(pins, str) else options

    def _ask_user(self, options: dict[str, Any]) -> dict[str, Any]:
        if options.get("interactor") == "terminal":
            options["interactor"] = own("wick.capabilities.ask_user:Terminal")()
        return options

    def _executables(self, options: dict[str, Any]) -> dict[str, Any]:
        """Directories beside the file, and handlers of events that stand under `hooks`."""
        if isinstance(handlers := self.options.get("hooks"), Mapping):
            if "settings" in options:
                raise ConfigError("`hooks` and `settings` are two places for handlers of events; take one of them")
            options["settings"] = handlers
        options["dirs"] = [self._directory(given) for given in _several(options.get("dirs", ()))]
        for name in {"folder", "cwd", "trust", "home"} & options.keys():
            options[name] = self._beside(options[name])
        if isinstance(options.get("claude"), list):
            options["claude"] = [self._beside(path) for path in options["claude"]]
        if self.backend is not None and self.backend.name == "local":
            options.setdefault("cwd", self.backend.workdir)
        return options

    def _directory(self, given: Any) -> Any:
        if isinstance(given, Mapping):
            return {**given, "dir": self._beside(str(given.get("dir", "")))}
        return self._beside(given)

    def _recipes(self, options: dict[str, Any]) -> dict[str, Any]:
        """Folders beside the file, and handlers of Python."""
        options["dirs"] = [self._beside(folder) for folder in _several(options.get("dirs", ".wick/recipes"))]
        if "handlers" in options:
            found = {name: self._python(str(given)) for name, given in options["handlers"].items()}
            options["handlers"] = {name: one() if isinstance(one, type) else one for name, one in found.items()}
        return options

    _SPECIAL: ClassVar = {
        "skills": _skills,
        "memory": _memory,
        "summarization": _summarization,
        "sessions": _sessions,
        "context": _context,
        "builtins": _builtins,
        "subagents": _subagents,
        "mcp": _mcp,
        "executables": _executables,
        "recipes": _recipes,
        "ask_user": _ask_user,
    }

    # -- backend, tools and hooks --

    def _backend(self) -> Backend | None:
        given = self.options.get("backend", False)
        if given is False:
            return None
        options: dict[str, Any] = {"type": given} if isinstance(given, str) else dict(given)
        type = options.pop("type")
        if type == "local":
            options["path"] = self._beside(options.pop("workdir", "workspace"))
            options["readable"] = [self._beside(folder) for folder in options.get("readable", ())]
            with self._telling("backend"):
                options["pinned"] = [*options.get("pinned", ()), *self._pin(options["path"], protects=True)]
            options |= guard_editable(options["path"], options.get("protect", PROTECTED))
        if "volumes" in options:
            volumes = {self._volume(place): to for place, to in options["volumes"].items()}
            with self._telling("backend"):
                options["volumes"] = pin_volumes(volumes, self._pin)
        with self._telling("backend"):
            backend: Backend = self._made(own(BACKENDS[type]), options)
        self.config.begun.append(backend)
        return backend

    def _pin(self, workspace: str, *, protects: bool = False) -> list[str]:
        """Return the files of a workspace that configure this process; a ConfigError if its code is there."""
        self._workspaces.append(os.path.realpath(workspace))
        private = self.config.private
        for one in self.config.siblings:
            private |= named_files(one.options, self.folder, None, workspace)
        return pin_config(workspace, self.options, self.folder, self.config.file.path, private, protects=protects)

    def _volume(self, place: str) -> str:
        """A folder of this machine; a name alone is a volume of the engine's."""
        return self._beside(place) if place.startswith((".", "~")) or "/" in place else place

    def _tools(self) -> list[Tool | Callable[..., object]]:
        listed = enumerate(self.options.get("tools", ()))
        return [self._tool(number, item) for number, item in listed if _tool_word(item) not in BUILTIN]

    def _tool(self, number: int, given: Any) -> Tool | Callable[..., object]:
        with self._telling("tools", number):
            return self._named_tool(given) if isinstance(given, str) else HttpTool(**given)

    def _named_tool(self, name: str) -> Tool | Callable[..., object]:
        found = self._named(name, "wick.tools", "tool", BUILTIN)
        if not isinstance(found, Tool) and (isinstance(found, type) or not callable(found)):
            raise ConfigError(f"{name} is neither a tool nor a function")
        return found

    def _hook(self, given: str | Mapping[str, Any]) -> Hook | Capability:
        """A hook or a capability by its name; a map of one name is what is called with the options beside it."""
        if isinstance(given, Mapping) and len(given) != 1:
            raise ConfigError("a hook with options is a map of one name, as in `- mine:Redactor: {words: [secret]}`")
        named: Mapping[str, Any] = {given: {}} if isinstance(given, str) else given
        name, options = next(iter(named.items()))
        found = self._named(name, "wick.hooks", "hook", ())
        if not isinstance(found, Hook | Capability) and callable(found):
            found = self._called(name, found, options or {})
        if not isinstance(found, Hook | Capability):
            raise ConfigError(f"{name} is no hook: decorate it with @before, @wrap, @after or @guard")
        return found

    def _called(self, name: str, make: Callable[..., Any], options: Mapping[str, Any]) -> Any:
        try:
            return make(**options)
        except TypeError as error:
            raise ConfigError(f"{name} cannot be made: {error}; is it a hook, decorated with @guard or so?") from None

    # -- names --

    def _named(self, name: str, group: str, what: str, known: tuple[str, ...]) -> Any:
        """What is installed under a name, or module:name."""
        if ":" in name:
            return self._python(name)
        points = {point.name: point for point in entry_points(group=group)}
        if name in points:
            return _loaded(points[name].load, name)
        there = nearest(name, [*known, *points], "one of your own is written module:name, and there are")
        raise ConfigError(f"there is no {what} {name!r}; {there if known or points else 'say module:name'}")

    def _python(self, name: str) -> Any:
        places = dict.fromkeys(find_packages(name, self.folder), f"the module of {name}")
        for workspace in self._workspaces:
            pin_files(workspace, ProcessFiles(places), protects=True)
        found = of_python(name, self.folder)
        for workspace in self._workspaces:
            check_loaded(workspace)
        return found

    def _beside(self, path: str) -> str:
        """A path of this machine; a relative one begins where the file is."""
        return str(self.folder / Path(path).expanduser())


def of_python(name: str, folder: Path) -> Any:
    """Something of Python, by module:name; a module may stand in this folder."""
    module, _, names = name.partition(":")
    if not re.fullmatch(r"[\w.]+:[\w.]+", name):
        raise ConfigError(f"{name!r} is not written as module:name")
    beside = os.path.dirname(find_module(name, folder)) in (str(folder), str(folder / module.partition(".")[0]))
    with _importable(folder) if beside else nullcontext():
        return _loaded(lambda: _within(import_module(module), names), name)


def _tool_word(given: Any) -> str:
    return resolve_tool_name(given) if isinstance(given, str) else ""


def _several(given: Any) -> list[Any]:
    return [given] if isinstance(given, str) else [*given]


def _nothing(name: str) -> Capability:
    """Stands in the place of what every agent has, for those who want to be without it."""
    nothing = Capability()
    nothing.name = name
    return nothing


def _within(thing: Any, names: str) -> Any:
    for name in names.split("."):
        thing = getattr(thing, name)
    return thing


def _loaded(load: Callable[[], Any], name: str) -> Any:
    try:
        return load_module(load)
    except Exception as error:  # whatever a module does when it is imported
        raise ConfigError(f"{name} cannot be loaded: {type(error).__name__}: {error}") from error


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """For a moment modules are found in this folder, too: after all others, so that it hides none of them."""
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
