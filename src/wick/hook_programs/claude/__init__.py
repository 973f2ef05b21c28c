"""Claude Code's settings as hooks: each of its events stands at one of wick's points.

SessionStart, UserPromptSubmit, SubagentStart    before a run; a prompt is looked at again at the gate
PreToolUse                                       before a tool is used, and at the gate
PermissionRequest, Notification                  when the user is about to be asked
PostToolUse, PostToolUseFailure                  after a tool was used
Stop, SubagentStop                               after the step that would be the last
PreCompact, PostCompact                          before and after the conversation is summed up
SessionEnd                                       when the capability is closed
"""

from __future__ import annotations

from typing import Any

from wick.hook_programs.claude.names import Place
from wick.hook_programs.claude.run_events import RunEvents
from wick.hook_programs.claude.session import Session
from wick.hook_programs.claude.settings import Settings
from wick.hook_programs.claude.tool_events import ToolEvents
from wick.hook_programs.registry import Listed
from wick.hook_programs.runner import Runner
from wick.hooks import Hook
from wick.operations import ModelCall, Operation, Run, Step, ToolUse

SPARE_SECONDS = 15.0  # beyond a program's own time limit, which ends it with a better sentence
INNERMOST = -50.0  # inside of what sums up the conversation


def hooks(settings: Settings, runner: Runner) -> list[Hook]:
    """The hooks that settings stand for."""
    return SettingsHooks(settings, runner).hooks()


class SettingsHooks:
    """The hooks of some settings, and what is to be done when they are no longer needed."""

    def __init__(self, settings: Settings, runner: Runner) -> None:
        self.session = Session(settings, runner)
        self.runs, self.tools = RunEvents(self.session), ToolEvents(self.session)

    def hooks(self) -> list[Hook]:
        """Its hooks, outermost first; without handlers there are none."""
        return [*self._around(), *self._of_runs(), *self._of_tools()] if self.session.live else []

    def _around(self) -> list[Hook]:
        made = [
            self._hook("settings", Run, "wrap", self.runs.attend),
            self._hook("settings", Run, "before", self.runs.begin),
            self._hook("settings", ModelCall, "before", self.runs.tell, priority=INNERMOST),
        ]
        if self.session.has("PermissionRequest", "Notification"):
            made.append(self._hook("PermissionRequest", Run, "before", self.tools.deputise))
        return made

    def _of_runs(self) -> list[Hook]:
        runs = self.runs
        made = [
            self._hook("SessionStart", Run, "before", runs.start),
            self._hook("SubagentStart", Run, "before", runs.start_subagent),
            self._hook("UserPromptSubmit", Run, "before", runs.hear),
            self._hook("UserPromptSubmit", Run, "guard", runs.hear_again),
            self._hook("Stop", Step, "after", runs.stop),
            self._hook("SubagentStop", Step, "after", runs.stop_subagent),
        ]
        return [hook for hook in made if self.session.has(hook.name.partition("@")[0])]

    def _of_tools(self) -> list[Hook]:
        tools = self.tools
        made = [
            self._tool_hook("PreToolUse", "before", tools.look),
            self._tool_hook("PreToolUse", "guard", tools.check),
            self._tool_hook("PostToolUse", "after", tools.review, hold=True),
            self._tool_hook("PostToolUseFailure", "after", tools.review_failure, hold=True),
        ]
        return [hook for hook in made if self.session.has(hook.name.partition("@")[0])]

    def _tool_hook(self, event: str, position: Any, fn: Any, **options: Any) -> Hook:
        cwd = self.session.runner.cwd

        def matches(use: ToolUse) -> bool:
            return use.tool is not None and bool(self.session.matching(event, Place.of(use, cwd).names))

        return self._hook(event, ToolUse, position, fn, match=matches, **options)

    def _hook(self, event: str, operation: type[Operation[Any]], position: Any, fn: Any, **options: Any) -> Hook:
        seconds = [entry.seconds for entry in self.session.settings.of(event)]
        if position == "guard":
            options["timeout"] = max(seconds, default=0.0) + SPARE_SECONDS
        inherit = position in ("before", "after")
        return Hook(fn, operation, position, name=f"{event}@{position}_{operation.name}", inherit=inherit, **options)

    def listed(self, ring: int = 0) -> list[Listed]:
        """A row for each handler; `ring` is the place of the first."""
        return self.session.listed(ring)

    async def close(self) -> None:
        """Tell the programs that the conversations have ended."""
        await self.session.close()
