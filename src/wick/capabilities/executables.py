"""Hook programs: executables in hook directories, and handlers in Claude Code settings."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from wick import constants
from wick._internal.aliases import POINTS
from wick.capability import Capability
from wick.errors import ConfigError
from wick.hook_programs import discovery
from wick.hook_programs import hooks as single
from wick.hook_programs.claude import SettingsHooks, sources
from wick.hook_programs.claude.settings import HookHandler
from wick.hook_programs.failure_policy import Fail, describe_failure
from wick.hook_programs.registry import HookProgram, HookRow
from wick.hook_programs.runner import Runner
from wick.hook_programs.trust import DEFAULT, Trust
from wick.hook_programs.worker_pool import WarmProgram
from wick.hooks import Hook
from wick.tools import Tool

Brand = Literal["wick", "kodelet"]
_LAST = ("agent_stop",)  # events that run after all others at the end of a step


class Executables(Capability):
    """Runs hook programs in any language, which observe, change, block or continue operations of the agent.

    `dirs` are directories of programs; naming one trusts it. `folder` adds the hook directories of that folder and of
    the user. Programs of the folder and of plugins run only if their files are trusted. `fail` sets the failure policy
    by program name: "closed" denies or withholds, "open" allows. `settings` maps Claude Code events to handlers.
    `claude` also reads its settings files; those of the folder must be trusted.
    """

    def __init__(
        self,
        dirs: str | Path | Sequence[str | Path | Mapping[str, str]] = (),
        *,
        folder: str | Path | None = None,
        cwd: str | Path | None = None,
        timeout: float = constants.HOOK_SECONDS,
        settings: Mapping[str, Any] | None = None,
        claude: bool | Sequence[str | Path] = False,
        fail: Mapping[str, Fail] | None = None,
        sandbox: bool = False,
        trust: Trust | str | Path | None = None,
        env: Mapping[str, str] | None = None,
        home: str | Path | None = None,
        brand: Brand = "wick",
    ) -> None:
        _check_options(timeout, fail or {}, brand)
        self.runner = Runner(cwd=cwd or folder or os.getcwd(), timeout=timeout, env=env, sandbox=sandbox)
        self.trust = trust if isinstance(trust, Trust) else Trust(trust or DEFAULT)
        self._sources = discovery.parse_directories(dirs)
        if folder is not None:
            self._sources += discovery.default_directories(folder, home or f"~/.{brand}", brand)
        self.found = discovery.discover(self._sources, self.runner, self.trust, fail)
        names = [program.name for program in self.found]
        for name in fail or {}:
            if name not in names:
                there = f"the programs are {', '.join(names)}" if names else "no program was found"
                raise ConfigError(f"fail= names the program {name!r}, which is not there; {there}")
        self._active = [program for program in self.found if program.points or program.tools]
        self._workers = {
            program.name: WarmProgram(program, self.runner) for program in self._active if program.protocol == "lines"
        }
        given = sources.gather_settings(folder or self.runner.cwd, self.trust, hooks=settings, claude=claude)
        self._settings = SettingsHooks(given, self.runner)
        self._hooks = (*self._build_hooks(), *self._settings.hooks())

    def _build_hooks(self) -> list[Hook]:
        """Return hooks in ring order, outermost first. After-hooks are outside, so that they also see refusals.

        Results pass from the inside out. After-hooks are reversed, so that programs run in their listed order.
        """
        others, first, last = list[Hook](), list[Hook](), list[Hook]()
        for program in self._active:
            hooks = (
                self._workers[program.name].hooks()
                if program.protocol == "lines"
                else single.build_hooks(program, self.runner)
            )
            events = {_resolve_point(event): event for event in program.points}
            for hook in hooks:
                reviews = last if events.get(hook.point, hook.point) in _LAST else first
                (reviews if hook.position == "after" else others).append(hook)
        return [*reversed(last), *reversed(first), *others]

    def hooks(self) -> list[Hook]:
        """Return the hooks of the programs, each as its own ring."""
        return [*super().hooks(), *self._hooks]

    def tools(self) -> list[Tool]:
        """Return the tools that the programs provide."""
        return [tool for warm in self._workers.values() for tool in warm.tools()]

    def programs(self, point: str | None = None) -> list[HookProgram]:
        """Return the programs that hook something, or this event or point.

        An event is one thing that happens at a point: `agent_stop` and `turn_end` are both at `after_step`. A point
        includes the programs of all its events; an event includes those that are for the whole point.
        """
        if point is None:
            return [*self._active]
        resolved = _resolve_point(point)
        names = {name for name in (*POINTS, resolved) if _resolve_point(name) == resolved}
        if point == "turn_end":
            names = {resolved}
        elif point in names & POINTS.keys():
            names -= {"turn_end"}
        wanted = {point, *names}
        return [program for program in self._active if not wanted.isdisjoint(program.points)]

    def program(self, name: str) -> HookProgram | None:
        """Return the program of this name, or None."""
        return next((program for program in self.found if program.name == name), None)

    def handlers(self, name: str) -> list[HookHandler]:
        """Return the settings handlers with this name or for this event."""
        return [entry for entry in self._settings.session.settings.entries if name in (entry.name, entry.event)]

    def untrusted(self) -> list[Path]:
        """Return the files of a folder or plugin with untrusted content."""
        files = [*discovery.list_trustable(self._sources), *sources.list_trustable(self.runner.cwd)]
        return [path for path in dict.fromkeys(files) if self.trust.trust_state(path) != "trusted"]

    def listed(self) -> list[HookRow]:
        """Return a row for each program and hook point, including broken and untrusted programs."""
        rows: list[HookRow] = []
        for ring, program in enumerate(self.found):
            row = HookRow(program.name, program.source, program.trust, ring=ring, problem=program.problem)
            rows += [
                replace(row, point=_resolve_point(event), event=event, fail=describe_failure(event, program.fail))
                for event in program.points
            ] or [row]
        return [*rows, *self._settings.list_handlers(len(self.found))]

    def fails_open(self, hook: Hook) -> bool:
        """Return True if the hook belongs to a program with the failure policy "open"."""
        named = hook.name.rpartition("@")[0]
        return hook.owner is None and any(named in (row.name, row.event) for row in self.listed() if row.fail == "open")

    async def close(self) -> None:
        """Stop worker programs, and send the session end to settings hooks."""
        for warm in self._workers.values():
            await warm.close()
        await self._settings.close()


def _check_options(timeout: float, fail: Mapping[str, str], brand: str) -> None:
    if isinstance(timeout, bool) or not 0 < timeout <= 86_400:
        raise ConfigError(f"timeout is a number of seconds above 0, at most a day; not {timeout!r}")
    if brand not in get_args(Brand):
        raise ConfigError(f"brand is {' or '.join(get_args(Brand))}, not {brand!r}")
    for name, choice in fail.items():
        if choice not in get_args(Fail):
            raise ConfigError(f"fail is open or closed for each program, not {choice!r} for {name!r}")


def _resolve_point(event: str) -> str:
    return POINTS.get(event, event)
