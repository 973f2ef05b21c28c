"""Claude Code's settings as hooks: each of its events is mapped to a hook point of wick.

SessionStart, UserPromptSubmit, SubagentStart    before a run; a prompt is checked again at the gate
PreToolUse                                       before a tool is used, and at the gate
PermissionRequest, Notification                  when the user is about to be asked
PostToolUse, PostToolUseFailure                  after a tool was used
Stop, SubagentStop                               after the step that would be the last
PreCompact, PostCompact                          before and after the conversation is summarized
SessionEnd                                       when the capability is closed
"""

from __future__ import annotations

from typing import Any

from wick.hook_programs.claude.names import ToolView
from wick.hook_programs.claude.run_events import RunEvents
from wick.hook_programs.claude.session import HookSession
from wick.hook_programs.claude.settings import HookSettings
from wick.hook_programs.claude.tool_events import ToolEvents
from wick.hook_programs.registry import HookRow
from wick.hook_programs.runner import Runner
from wick.hooks import Hook
from wick.operations import ModelCall, Operation, Run, Step, ToolUse

SPARE_SECONDS = 15.0  # added to the program's own time limit, which has a better error message
INNERMOST = -50.0  # inside of the summarization hooks


def build_hooks(settings: HookSettings, runner: Runner) -> list[Hook]:
    """Return the hooks of settings."""
    return SettingsHooks(settings, runner).hooks()


class SettingsHooks:
    """The hooks of settings, with the cleanup of their session."""

    def __init__(self, settings: HookSettings, runner: Runner) -> None:
        self.session = HookSession(settings, runner)
        self.runs, self.tools = RunEvents(self.session), ToolEvents(self.session)

    def hooks(self) -> list[Hook]:
        """Return the hooks, outermost first; an empty list without handlers."""
        if not self.session.is_live:
            return []
        runs, tools = self.runs, self.tools
        outer = [
            self._hook("settings", Run, "wrap", runs.wrap_run),
            self._hook("settings", Run, "before", runs.watch_compaction),
            self._hook("settings", ModelCall, "before", runs.deliver_context, priority=INNERMOST),
        ]
        if self.session.has_handlers("PermissionRequest", "Notification"):
            outer.append(self._hook("PermissionRequest", Run, "before", tools.install_delegate))
        by_event = [
            self._hook("SessionStart", Run, "before", runs.start_session),
            self._hook("SubagentStart", Run, "before", runs.start_subagent),
            self._hook("UserPromptSubmit", Run, "before", runs.check_prompt),
            self._hook("UserPromptSubmit", Run, "guard", runs.recheck_prompt),
            self._hook("Stop", Step, "after", runs.check_stop),
            self._hook("SubagentStop", Step, "after", runs.check_subagent_stop),
            self._tool_hook("PreToolUse", "before", tools.before_use),
            self._tool_hook("PreToolUse", "guard", tools.check_sealed),
            self._tool_hook("PostToolUse", "after", tools.after_use, hold=True),
            self._tool_hook("PostToolUseFailure", "after", tools.after_failure, hold=True),
        ]
        return outer + [hook for hook in by_event if self.session.has_handlers(hook.name.partition("@")[0])]

    def _tool_hook(self, event: str, position: Any, fn: Any, **options: Any) -> Hook:
        cwd = self.session.runner.cwd

        def matches(use: ToolUse) -> bool:
            return use.tool is not None and bool(self.session.find_handlers(event, ToolView.from_use(use, cwd).names))

        return self._hook(event, ToolUse, position, fn, match=matches, **options)

    def _hook(self, event: str, operation: type[Operation[Any]], position: Any, fn: Any, **options: Any) -> Hook:
        seconds = [entry.seconds for entry in self.session.settings.for_event(event)]
        if position == "guard":
            options["timeout"] = max(seconds, default=0.0) + SPARE_SECONDS
        inherit = position in ("before", "after")
        name = f"{event}@{position}_{operation.operation_name}"
        return Hook(fn, operation, position, name=name, inherit=inherit, **options)

    def list_handlers(self, ring: int = 0) -> list[HookRow]:
        """Return a row for each handler; `ring` is the position of the first."""
        return self.session.list_handlers(ring)

    async def close(self) -> None:
        """Send SessionEnd for every conversation."""
        await self.session.close()
