"""The host that runs agents in this process, with the threads of this machine's data folder.

It shares the threads of the local owner with `wick serve`. Threads created by a command have no `agent` in their
metadata: a server shows them, but does not resume them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, Literal

from wick._internal.prompt_text import to_one_line
from wick._internal.worker_threads import run_in_thread
from wick.agent import Agent, Stream
from wick.api.conversions import (
    list_operation_rings,
    list_tools,
    make_backend_info,
    make_changed_verdict,
    make_skill_list,
    make_thread_info,
)
from wick.api.types import (
    AgentDetail,
    AgentInfo,
    AgentOrigin,
    Approval,
    Choice,
    OperationRings,
    ReplayReport,
    SkillList,
    UndoPreview,
    UndoReport,
)
from wick.api.undo import preview_undo, undo_files
from wick.capabilities.filesystem import Filesystem
from wick.capabilities.sessions import LOCAL, Sessions, check_changed_args
from wick.capabilities.skills import Skills
from wick.cli.host.agent_options import AgentOverrides, SelectedAgent
from wick.cli.host.grants import Grants
from wick.cli.host.local_threads import LocalThreads
from wick.cli.host.protocol import RunOutcome
from wick.config.builder import AgentConfig
from wick.config.process_files import ProcessFiles
from wick.config.provider_models import is_demo
from wick.config.selection import add_rules, find_permissions, split_agent_spec
from wick.errors import ConfigError, InvalidArgs, StoreError, WickError
from wick.events import Event
from wick.hook_programs.registry import HookRow
from wick.hook_programs.trust import format_trust_command
from wick.hooks import Hook
from wick.protocols import Backend, Summary
from wick.replay import replay
from wick.stores.held_thread import hold
from wick.stores.sqlite import Sqlite
from wick.threads import Thread

NAMED_HOOKS = 3  # shown in the warning about untrusted hooks
SKIPPED_CHARS = 1_000  # of the names that --no-hooks leaves out
DENIED_BY_MESSAGE = "the user sent another message"


class LocalHost(LocalThreads):
    """Agents in this process, in a folder. With `interactive`, runs wait for answers to questions."""

    remote = False
    on_break: Callable[[Exception], None] | None = None  # there is no connection
    hint_options: str = ""

    def __init__(
        self,
        data: Path,
        folder: Path,
        agent: str | None = None,
        overrides: AgentOverrides | None = None,
        *,
        interactive: bool = False,
    ) -> None:
        store = Sqlite(data / "threads.db")
        super().__init__(Sessions(store, busy="refuse", patience=inf if interactive else 0.0))
        self._data = data.absolute()
        self.folder, self._spec, self._overrides, self._grants = folder.absolute(), agent, overrides, Grants(data)
        self._selected: SelectedAgent | None = None
        self._has_own_store = False  # the agent's file names a store, which is not used here
        self._agent: Agent | None = None

    @property
    def name(self) -> str:
        return str(self.folder)

    async def open(self) -> None:
        """Do nothing: files are opened on first use."""

    async def close(self) -> None:
        if self._selected is not None:
            await self._selected.close()
        await self.sessions.close()

    # -- agents -------------------------------------------------------------------------------------------------------

    @property
    def selected(self) -> SelectedAgent:
        """Return the selected agent; its file is read on first use."""
        if self._selected is None:
            self._selected = SelectedAgent(self._spec, str(self.folder), self._overrides)
            part = self._selected.part
            key = str(self.folder), self._agent_key(part)
            self._has_own_store = bool(part.options.get("sessions"))
            part.options = {**part.options, "sessions": False}
            for agent in self._selected.config.agents.values():
                agent.private = ProcessFiles({str(self._data): "the data folder of wick"})
            if (permissions := find_permissions(part.options)) is not None:
                granted: dict[str, Sequence[Any]] = {
                    "grants": self._grants.list_tool_uses(*key),
                    "allow": self._grants.list_rules(*key),
                }
                part.options["permissions"] = add_rules(permissions, **granted)
        return self._selected

    def _agent_key(self, part: AgentConfig) -> str:
        """Return the key of an agent in the grants: `FILE:ID`, or empty for the default agent."""
        return f"{split_agent_spec(self._spec)[0].absolute()}:{part.id}" if self._spec else ""

    def _current_agent(self) -> Agent:
        if self._agent is None:
            self._agent = self.selected.build().with_hooks(self.sessions)
        return self._agent

    def _rebuild_agent(self, model: str = "") -> Agent:
        """Build the agent again, with the same backend."""
        self._agent = self.selected.rebuild(model=model, backend=_find_backend(self._current_agent())).with_hooks(
            self.sessions
        )
        return self._agent

    async def list_agents(self) -> list[AgentInfo]:
        return [self._make_agent_info(part) for part in self.selected.config.agents.values()]

    def _make_agent_info(self, part: AgentConfig) -> AgentInfo:
        model = part.options.get("model", "auto")
        named = model if isinstance(model, str) else str(model.get("model", "")) if isinstance(model, Mapping) else ""
        on = [key for key, value in part.options.items() if value is not False and key not in _NOT_CAPABILITIES]
        origin: AgentOrigin = "file" if self._spec else "code"
        return AgentInfo(agent_id=part.id, name=part.name, model=named, origin=origin, shared=False, hooks=on)

    async def get_agent(self, id: str = "") -> AgentDetail:
        part, agent = self._find_config(id), self._find_agent(id)
        backend = _find_backend(agent)
        model = await run_in_thread(lambda: agent.model, "finding a model")
        return AgentDetail(
            **{**self._make_agent_info(part).model_dump(), "model": str(getattr(model, "name", ""))},
            system_prompt=agent.system,
            context_window=part.options.get("context_window"),
            tools=list_tools(agent),
            missing_tools=[],
            backend=None if backend is None else make_backend_info(backend),
            answering_model=str(getattr(model, "name", "")),
            is_demo=is_demo(model),
            examples=[*part.options.get("examples", ())],
        )

    def _find_config(self, id: str) -> AgentConfig:
        if id in ("", self.selected.part.id):
            return self.selected.part
        if id not in self.selected.config.agents:
            known = ", ".join(self.selected.config.agents)
            raise ConfigError(f"{self.selected.config.path} has no agent {id!r}; there is {known}")
        return self.selected.config.agents[id]

    def _find_agent(self, id: str) -> Agent:
        part = self._find_config(id)
        return self._current_agent() if part is self.selected.part else part.agent()

    async def list_warnings(self, thread: str = "") -> list[str]:
        if thread:
            with suppress(StoreError):  # the run reports it
                self._select_agent_of(await self.store.head(LOCAL, thread))
        self._current_agent()
        warnings = list[str]()
        if reason := self.selected.no_workspace:
            advice = "change to a project folder, or use --folder"
            warnings.append(f"no workspace, so no files and commands: {reason}; {advice}")
        if self._has_own_store:
            warnings.append(
                f"`sessions` of the file is for programs that load it: this command stores threads in {self._data}; "
                "to store them elsewhere, set WICK_DATA, and to use the store of a server, add --server URL"
            )
        return [*warnings, *self._warn_about_hooks()]

    def _warn_about_hooks(self) -> list[str]:
        if skipped := self.selected.skipped_hooks:
            named = to_one_line(", ".join(skipped), SKIPPED_CHARS)
            return [f"--no-hooks leaves out: {named}; permissions, guards and hooks in Python stay"]
        rows = [row for part in self.selected.executables for row in part.listed()]
        problems = {
            "untrusted hooks are off": [row for row in rows if row.trust == "untrusted"],
            "hooks changed after they were trusted, and deny": [row for row in rows if row.trust == "changed"],
        }
        agent = ("--agent", self._spec) if self._spec else ()
        hint = f"review them, then run: {format_trust_command(self.folder, *agent)}"
        return [f"{problem}: {self._name_hooks(found)}; {hint}" for problem, found in problems.items() if found]

    def _name_hooks(self, rows: Sequence[HookRow]) -> str:
        """Return the names of some hooks with their sources, relative to the folder."""
        names = dict[str, None]()
        for row in rows:
            source = row.source.removeprefix(f"{self.folder}/")
            of_settings = source if row.trust == "changed" else f"{row.name} of {source}"
            names[of_settings if source.endswith(".json") else f"{source}/{row.name}"] = None
        more = f" and {len(names) - NAMED_HOOKS} more" if len(names) > NAMED_HOOKS else ""
        return to_one_line(", ".join([*names][:NAMED_HOOKS]), 200) + more

    async def list_rings(self, id: str = "") -> list[OperationRings]:
        return list_operation_rings(self._find_agent(id))

    async def list_skills(self, id: str = "") -> SkillList:
        parts = [part for part in self._find_agent(id).capabilities if isinstance(part, Skills)]
        return make_skill_list(*[await part.discover() for part in parts])

    async def use_model(self, model: str) -> str:
        agent = self._rebuild_agent(model)
        return str(getattr(await run_in_thread(lambda: agent.model, "finding a model"), "name", model))

    # -- runs ---------------------------------------------------------------------------------------------------------

    def start_run(self, words: str, *, thread: str = "", recipe: str = "") -> _LocalRun:
        return _LocalRun(self, words, thread, recipe)

    def resume_run(self, thread: str) -> _LocalRun:
        return _LocalRun(self, "", thread, "")

    async def open_stream(self, words: str, thread: str, recipe: str, emit: Callable[[Event], None]) -> Stream:
        """Return the stream of a new or resumed run. If a run waits, `words` are queued as its next message."""
        head = await self.store.head(LOCAL, thread) if thread else None
        if head is not None:
            self._check_available(head)
            self._select_agent_of(head)
        agent = self._current_agent()
        if head is None:
            part = self.selected.part
            meta = {"folder": str(self.folder), "agent_name": part.name, "agent_file": self._agent_key(part)}
            head = await self.store.create(LOCAL, Thread().id, meta=meta)
        if words and head.run and not recipe:
            for question in await self.sessions.questions(head.id):  # a new message does not approve them
                with suppress(StoreError):  # answered elsewhere at this moment, or expired
                    await self.sessions.answer(head.id, question["id"], "deny", words=DENIED_BY_MESSAGE, by=LOCAL)
            await self.steer(head.id, words)
            words = ""
        try:
            return agent.stream(words, thread=head.id, user=LOCAL, emit=emit, recipe=recipe)
        except WickError:  # such as an unknown model
            await self.delete_if_empty(head.id)
            raise

    def _select_agent_of(self, head: Summary) -> None:
        """Choose the agent that a thread was started with, unless one is named or in use."""
        if self._selected is None and not self._spec:
            self._spec = str(head.meta.get("agent_file") or "") or None

    def _check_available(self, head: Summary) -> None:
        """Raise if the open run of a thread belongs to a server, another process or another folder."""
        if head.run and "agent" in head.meta:
            raise ConfigError(f"thread {head.id} has an unfinished run of a server; use --server URL")
        if head.leased:
            raise StoreError(f"thread {head.id} is in use by another process; wait until it is done", "conflict")
        where = str(head.meta.get("folder", self.folder))
        if head.run and where != str(self.folder):  # its approvals would be applied in this folder
            raise ConfigError(f"thread {head.id} has an unfinished run in {where}; use --folder {where}")

    async def preview_undo(self, id: str, seq: int | None = None, paths: Sequence[str] = ()) -> UndoPreview:
        agent = await self._find_undo_agent(id)
        return await preview_undo(agent, await self.sessions.load(id), seq, paths)

    async def undo_files(self, id: str, seq: int | None = None, paths: Sequence[str] = ()) -> UndoReport:
        agent, thread = await self._find_undo_agent(id), Thread(id)
        async with hold(self.store, LOCAL, thread, wait=False):
            return await undo_files(agent, thread, seq, paths)

    async def _find_undo_agent(self, id: str) -> Agent:
        """Return the agent of a thread; raise if its files are in another folder or on a server."""
        head = await self.store.head(LOCAL, id)
        if "agent" in head.meta:
            raise ConfigError(f"thread {id} belongs to a server; use --server URL")
        where = str(head.meta.get("folder", self.folder))
        if where != str(self.folder):
            raise ConfigError(f"the files of thread {id} are in {where}; use --folder {where}")
        self._select_agent_of(head)
        return self._current_agent()

    async def delete_if_empty(self, thread: str) -> None:
        """Delete a thread without entries, left by a run that could not start."""
        with suppress(StoreError):
            head = await self.store.head(LOCAL, thread)
            if not head.last and not head.queued:
                await self.store.delete(LOCAL, thread)

    async def steer(self, thread: str, words: str) -> None:
        await self.sessions.send(thread, words)

    async def answer_approval(
        self, id: str, choice: Choice, *, words: str = "", args: Mapping[str, Any] | None = None, thread: str = ""
    ) -> str:
        question = await self.find_approval(id, thread)
        if args is not None and choice != "deny":
            await self._check_args(question, args)
        await super().answer_approval(id, choice, words=words, args=args, thread=question.thread_id)
        if choice == "allow_always" and question.operation == "tool_use" and question.args is not None:
            allowed_args = dict(question.args if args is None else args)
            rule = {"operation": "tool_use", "tool": question.tool, "args": allowed_args}
            # The folder and the agent of the thread may differ from those of this command.
            meta = (await self.store.head(LOCAL, question.thread_id)).meta
            folder, agent = str(meta.get("folder", "")), str(meta.get("agent_file", ""))
            if (folder, agent) == (str(self.folder), self._agent_key(self.selected.part)):
                self._grant(rule)
            elif folder:  # threads of a server have no folder; the server stores their grants
                self._grants.add(folder, agent, rule)
        return question.thread_id

    async def _check_args(self, question: Approval, args: Mapping[str, Any]) -> None:
        """Refuse changed arguments that do not fit the tool, so that the question stays open.

        The tools of subagents, and those of other folders and programs, are not known here. The gate checks them.
        """
        head = await self.store.head(LOCAL, question.thread_id)
        if "agent" in head.meta or head.meta.get("folder") != str(self.folder) or question.run_id != head.run:
            return
        self._select_agent_of(head)
        try:
            await check_changed_args(self._current_agent().tools, question.tool, args)
        except InvalidArgs as problem:
            raise ConfigError(f"{problem}; the question is still open") from None

    async def add_allow_rule(self, rule: str) -> None:
        if not self.selected.part.options.get("permissions"):
            raise ConfigError(f"the agent {self.selected.part.id!r} has no permission rules; enable `permissions`")
        self._grant(rule)

    def _grant(self, rule: dict[str, Any] | str) -> None:
        """Store a grant for this folder, and apply it from the next run on."""
        part = self.selected.part
        more = {"allow": [rule]} if isinstance(rule, str) else {"grants": [rule]}
        if (permissions := find_permissions(part.options)) is not None:
            part.options = {**part.options, "permissions": add_rules(permissions, **more)}
            self._agent = self._rebuild_agent() if self._agent is not None else None
        self._grants.add(str(self.folder), self._agent_key(part), rule)

    # -- replay -------------------------------------------------------------------------------------------------------

    async def replay(
        self,
        threads: Sequence[str] | None = None,
        *,
        rules: Mapping[Literal["deny", "ask", "allow"], Sequence[str]] | None = None,
        guards: Sequence[Hook] = (),
    ) -> ReplayReport:
        part = self.selected.part
        more = {type: [*given] for type, given in (rules or {}).items() if given}
        if more:
            part.options = {**part.options, "permissions": add_rules(find_permissions(part.options), **more)}
        agent = self.selected.build().with_hooks(*guards) if guards else self.selected.build()
        if threads is None:
            infos = await self.list_threads(limit=10_000, folder=str(self.folder))
        else:
            infos = [make_thread_info(await self.store.head(LOCAL, id)) for id in dict.fromkeys(threads)]
        titles = {info.id: info.title for info in infos}
        report = await replay(agent, (await self.sessions.load(id) for id in titles))
        changes = [make_changed_verdict(change, titles) for change in report.changes]
        return ReplayReport(
            threads=report.threads,
            uses=report.uses,
            changes=changes,
            skipped=report.skipped,
            more=False,
            asked=report.asked,
        )


class _LocalRun:
    """A run in this process; it runs while its events are read."""

    def __init__(self, host: LocalHost, words: str, thread: str, recipe: str) -> None:
        self._host, self._request, self._is_new = host, (words, thread, recipe), not thread
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._stream: Stream | None = None
        self._task: asyncio.Task[None] | None = None
        self.thread_id, self.run_id = thread, ""

    async def __aiter__(self) -> AsyncIterator[Event]:
        stream = self._stream = await self._host.open_stream(*self._request, self._events.put_nowait)
        self.thread_id, self.run_id = stream.run.thread.id, stream.run.id

        async def finish() -> None:
            try:
                await stream.finish()
            except Exception:
                pass  # the result has the error
            finally:
                self._events.put_nowait(None)

        self._task = asyncio.create_task(finish(), name=self.run_id or "run")
        try:
            while (event := await self._events.get()) is not None:
                self.run_id = stream.run.id  # a resumed run keeps its id
                yield event
        finally:
            await self.stop()
            if self._is_new:
                await self._host.delete_if_empty(self.thread_id)

    async def stop(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def get_outcome(self) -> RunOutcome:
        result = self._stream.run.progress.result if self._stream is not None else None
        if result is None:
            return RunOutcome(self.run_id, self.thread_id, "cancelled", "user requested")
        price = await run_in_thread(lambda: result.price, "a price") if result.charges else None
        code = "" if result.error is None else str(getattr(result.error, "code", "") or "error")
        if isinstance(result.error, ConfigError):
            code = "config_error"
        return RunOutcome(
            self.run_id,
            self.thread_id,
            result.outcome,
            result.reason,
            result.text,
            result.usage.to_json(),
            None if price is None else float(price),
            "" if result.error is None else str(result.error),
            code,
        )


_NOT_CAPABILITIES = (
    "name",
    "model",
    "system_prompt",
    "backend",
    "tools",
    "settings",
    "context_window",
    "sessions",
    "deps",
)


def _find_backend(agent: Agent) -> Backend | None:
    return next((part.backend for part in agent.capabilities if isinstance(part, Filesystem)), None)
