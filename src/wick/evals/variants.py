"""Variants: agents by name, with another model, prompt or policy."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from wick.agent import Agent
from wick.capabilities.permissions import Permissions
from wick.capabilities.sessions import Sessions
from wick.capability import Capability
from wick.config import Config, load
from wick.config.builder import load_python_name
from wick.config.selection import add_rules, find_permissions, split_agent_spec
from wick.errors import ConfigError
from wick.evals.named_models import load_named_model
from wick.evals.suite import EvalVariant
from wick.hooks import Hook
from wick.operations import Run

CONFIG_SUFFIXES = (".yaml", ".yml", ".json")


class VariantAgents:
    """The agents of a suite's variants, built once. Paths and modules are relative to a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._configs: list[Config] = []
        self._agents: dict[str, Agent] = {}

    def build(self, name: str, variant: EvalVariant) -> Agent:
        """Return the agent of a variant, without a store of threads; later calls return the same one."""
        if name not in self._agents:
            try:
                self._agents[name] = self._apply_changes(self._load_agent(variant), variant)
            except ConfigError as error:
                raise ConfigError(f"variant {name!r}: {error}") from error
        return self._agents[name]

    def load_deps(self, variant: EvalVariant) -> Callable[[Run[Any]], Any]:
        """Return the factory of a variant's dependencies; raise a ConfigError if it is not one.

        It takes the run, as a `deps_factory` of an agent does, or nothing.
        """
        factory, name = load_python_name(variant.deps, self.folder), variant.deps.partition(":")[2]
        if not callable(factory) or inspect.iscoroutinefunction(factory):
            raise ConfigError(f"{variant.deps} is not a plain function; name one that returns the deps of a run")
        try:
            signature = inspect.signature(factory)
        except (TypeError, ValueError):  # a class in C, such as dict
            return lambda run: factory()
        for args in ((), (None,)):
            with suppress(TypeError):
                signature.bind(*args)
                return factory if args else lambda run: factory()
        raise ConfigError(f"{variant.deps} must take the run or nothing: def {name}(run: Run), or def {name}()")

    async def close(self) -> None:
        """Close the resources of all agents."""
        for config in self._configs:
            await config.close()

    def _load_agent(self, variant: EvalVariant) -> Agent:
        path, id = split_agent_spec(variant.agent, self.folder)
        if path.suffix != ".py" and (path.suffix in CONFIG_SUFFIXES or path.exists()):
            return self._load_configured(path, id, variant)
        agent = load_python_name(*_locate_module(variant.agent, self.folder))
        if not isinstance(agent, Agent) and callable(agent):
            try:
                agent = agent()
            except Exception as error:  # the function of a user may raise anything
                raise ConfigError(f"{variant.agent}() failed: {type(error).__name__}: {error}") from error
        if not isinstance(agent, Agent):
            raise ConfigError(f"{variant.agent} is not an agent, but a {type(agent).__name__}")
        if variant.permissions is None:
            return agent
        if any(part.name == "permissions" for part in agent.capabilities):
            raise ConfigError(
                f"the agent {variant.agent} has permissions of its own; remove them with `without: permissions`"
            )
        return agent.with_hooks(Permissions(**{"mode": "bypassPermissions", **variant.permissions}))

    def _load_configured(self, path: Path, id: str, variant: EvalVariant) -> Agent:
        config = load(path)
        self._configs.append(config)
        part = config.find(id)
        if variant.permissions is not None:
            more = {key: value for key, value in variant.permissions.items() if key in ("allow", "ask", "deny")}
            other = {key: value for key, value in variant.permissions.items() if key not in more}
            part.options = {
                **part.options,
                "permissions": {**add_rules(find_permissions(part.options), **more), **other},
            }
        part.options = {**part.options, "sessions": False}
        return part.agent()

    def _apply_changes(self, agent: Agent, variant: EvalVariant) -> Agent:
        model = None if variant.model is None else load_named_model(variant.model, self.folder)
        changes: dict[str, Any] = {
            key: value
            for key, value in (
                ("model", model),
                ("system", variant.system_prompt),
                ("settings", variant.settings),
            )
            if value is not None
        }
        stores = [part.name for part in agent.capabilities if isinstance(part, Sessions)]
        agent = agent.with_options(**changes).without_hooks(*stores, *variant.without)
        agent = agent.with_hooks(*(self._load_guard(name) for name in variant.guards))
        if variant.deps:
            agent.deps_factory = self.load_deps(variant)  # of this copy; the agent may be used by other variants
        return agent

    def _load_guard(self, name: str) -> Hook | Capability:
        hook = load_python_name(name, self.folder)
        if isinstance(hook, type) and issubclass(hook, Capability):
            hook = hook()
        if not isinstance(hook, Hook | Capability):
            raise ConfigError(f"{name} is not a guard; decorate it with @guard(ToolUse)")
        return hook


def _locate_module(spec: str, folder: Path) -> tuple[str, Path]:
    """Return `module:name` and its folder for a spec, also if it names the file of the module: `../shop.py:agent`."""
    file, _, name = spec.rpartition(":")
    if not file.endswith(".py"):
        return spec, folder
    folder, path = Path(os.path.normpath(folder)), Path(os.path.normpath(folder / file))
    if path.is_relative_to(folder):
        return f"{'.'.join(path.relative_to(folder).with_suffix('').parts)}:{name}", folder
    return f"{path.stem}:{name}", path.parent


def name_variants(specs: Sequence[str]) -> dict[str, EvalVariant]:
    """Return a variant for each agent given on the command line, named by its id or by the whole spec."""
    short = [spec.rpartition(":")[2] for spec in specs]
    distinct = len({*short}) == len(short)
    return {name if distinct else spec: EvalVariant(agent=spec) for name, spec in zip(short, specs, strict=True)}
