"""Hooks and tools of programs that stay running and answer each request line with a line.

    program = WarmProgram(found, Runner(cwd="/srv/app"))
    Agent(model, hooks=program.hooks(), tools=program.tools())
    await program.close()

`<program> hook` prints its type. `<program> serve` reads `{"id", "event", …}` and writes `{"id", …}`. The fields of
events and answers are defined in `wick.hook_programs.wick_protocol`. An answer `{"id", "error"}` reports a failure. A
tool call is the event `tool` with `tool` and `args`; its answer has an `output`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from wick import constants, tools
from wick.errors import ConfigError, ToolError, Uncertain
from wick.hook_programs import long_running
from wick.hook_programs.answers import InvalidAnswer, check_fields
from wick.hook_programs.failure_policy import one_line
from wick.hook_programs.hooks import language_for
from wick.hook_programs.long_running import Json
from wick.hook_programs.registry import HookProgram
from wick.hook_programs.runner import Runner
from wick.hook_programs.worker import ProgramFailed, ProgramWorker
from wick.hooks import Hook
from wick.tools import Tool

_NO_PARAMETERS = {"type": "object", "properties": {}}


class WarmProgram:
    """A program that stays running, with its hooks and tools. It is stopped after `idle` seconds without requests."""

    def __init__(self, program: HookProgram, runner: Runner, *, idle: float = constants.WARM_IDLE_SECONDS) -> None:
        self.program, self._runner = program, runner
        self._serving = ProgramWorker([str(program.path), "serve"], runner, idle=idle)

    def hooks(self) -> list[Hook]:
        """Return the hooks of the program at all its points."""
        cwd, timeout = self._runner.cwd, self._runner.timeout
        hooks: dict[str, Hook] = {}
        for event in self.program.points:
            language = language_for(event)
            # `match` applies to tool events only.
            program = self.program if language.point.endswith("_tool_use") else replace(self.program, match=None)
            for hook in long_running.build_hooks(program, language, self._send, cwd=cwd, timeout=timeout):
                name = hook.name if hook.name not in hooks else f"{hook.name} ({event})"
                hooks[name] = replace(hook, name=name)
        return [*hooks.values()]

    def tools(self) -> list[Tool]:
        """Return the tools of the program."""
        return [self._make_tool(described) for described in self.program.tools]

    async def close(self) -> None:
        """Stop the program; the next request starts it again."""
        await self._serving.close()

    # -- asking -----------------------------------------------------------------------------------------------------

    async def _send(self, payload: Json) -> Json:
        try:
            answer = await self._serving.ask(payload, timeout=self._runner.timeout)
        except ProgramFailed as failure:
            raise InvalidAnswer(str(failure)) from None
        if answer.get("error") is not None:
            raise InvalidAnswer(f"failed: {one_line(answer['error'])}")
        return answer

    def _make_tool(self, described: Mapping[str, Any]) -> Tool:
        label = f"the hook program {self.program.name}"
        try:
            check_fields(described, {"name": str, "description": str, "parameters": dict}, "a tool")
            name, parameters = described["name"], described.get("parameters") or _NO_PARAMETERS
        except (InvalidAnswer, KeyError) as error:
            raise ConfigError(f"{label} brings an invalid tool: {error}") from None

        async def use(**args: Any) -> Any:
            if problem := self.program.problem or self.program.check():
                raise ToolError(f"{label} {problem}")
            request = {"event": "tool", "tool": name, "args": args}
            try:
                answer = await self._serving.ask(request, timeout=self._runner.timeout)
            except ProgramFailed as failure:
                raise (Uncertain if failure.sent else ToolError)(f"{label} {failure}") from None
            if answer.get("error") is not None:
                raise ToolError(str(answer["error"]))
            if "output" not in answer:
                raise Uncertain(f'{label} answered neither {{"output": …}} nor {{"error": …}}')
            return answer["output"]

        return tools.tool(use, name=name, description=described.get("description") or name, parameters=parameters)
