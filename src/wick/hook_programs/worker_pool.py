"""Programs that are kept: hooks and tools of a program that is started once and answers a line for a line.

    program = Warm(found, Runner(cwd="/srv/app"))
    Agent(model, hooks=program.hooks(), tools=program.tools())
    await program.close()

`<program> hook` says where it stands, `<program> serve` reads `{"id", "event", …}` and writes `{"id", …}`; what an
event has and what an answer may have is in `wick.hook_programs.wick_protocol`. An answer `{"id", "error"}` says that
the program could not decide. A tool call is the event `tool` with `tool` and `args`; its answer has an `output`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from wick import constants, tools
from wick.errors import ConfigError, ToolError, Uncertain
from wick.hook_programs import long_running
from wick.hook_programs.answers import Unfit, only
from wick.hook_programs.failure_policy import words
from wick.hook_programs.hooks import language
from wick.hook_programs.long_running import Json
from wick.hook_programs.registry import Found
from wick.hook_programs.runner import Runner
from wick.hook_programs.worker import Failed, Serving
from wick.hooks import Hook
from wick.tools import Tool

_NO_PARAMETERS = {"type": "object", "properties": {}}


class Warm:
    """A program that is kept, with its hooks and tools; when nobody has asked it for `idle` seconds, it is stopped."""

    def __init__(self, found: Found, runner: Runner, *, idle: float = constants.WARM_IDLE_SECONDS) -> None:
        self.found, self._runner = found, runner
        self._serving = Serving([str(found.path), "serve"], runner, idle=idle)

    def hooks(self) -> list[Hook]:
        """Its hooks, one program at each of its points."""
        made: dict[str, Hook] = {}
        for event in self.found.points:
            for hook in self._hooks_at(event):
                name = hook.name if hook.name not in made else f"{hook.name} ({event})"
                made[name] = replace(hook, name=name)
        return [*made.values()]

    def _hooks_at(self, event: str) -> list[Hook]:
        cwd, timeout = self._runner.cwd, self._runner.timeout
        return long_running.hooks(self._at(event), language(event), self._ask, cwd=cwd, timeout=timeout)

    def _at(self, event: str) -> Found:
        """What it matches are tools; runs, steps and model calls it sees all."""
        return self.found if language(event).point.endswith("_tool_use") else replace(self.found, match=None)

    def tools(self) -> list[Tool]:
        """The tools that it brings."""
        return [self._tool(described) for described in self.found.tools]

    async def close(self) -> None:
        """Stop it; it is started again when it is asked again."""
        await self._serving.close()

    # -- asking -----------------------------------------------------------------------------------------------------

    async def _ask(self, told: Json) -> Json:
        try:
            answer = await self._serving.ask(told, timeout=self._runner.timeout)
        except Failed as failure:
            raise Unfit(str(failure)) from None
        if answer.get("error") is not None:
            raise Unfit(f"failed: {words(answer['error'])}")
        return answer

    def _tool(self, described: Mapping[str, Any]) -> Tool:
        try:
            only(described, {"name": str, "description": str, "parameters": dict}, "a tool")
            name, parameters = described["name"], described.get("parameters") or _NO_PARAMETERS
        except (Unfit, KeyError) as error:
            raise ConfigError(f"the hook program {self.found.name} brings a tool that is none: {error}") from None

        async def use(**args: Any) -> Any:
            return await self._use(name, args)

        return tools.tool(use, name=name, description=described.get("description") or name, parameters=parameters)

    async def _use(self, name: str, args: Json) -> Any:
        whose = f"the hook program {self.found.name}"
        if problem := self.found.problem or self.found.check():
            raise ToolError(f"{whose} {problem}")
        try:
            answer = await self._serving.ask(
                {"event": "tool", "tool": name, "args": args}, timeout=self._runner.timeout
            )
        except Failed as failure:
            sentence = f"{whose} {failure}"
            raise (Uncertain if failure.sent else ToolError)(sentence) from None
        if answer.get("error") is not None:
            raise ToolError(str(answer["error"]))
        if "output" not in answer:
            raise Uncertain(f'{whose} answered neither {{"output": …}} nor {{"error": …}}')
        return answer["output"]
