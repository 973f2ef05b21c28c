"""Tools that run child agents, in the foreground or as background tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FunctionType, MethodType
from typing import Annotated, Any, Literal

from wick import constants
from wick._internal.frozen import digest, thaw
from wick._internal.prompt_text import to_one_line
from wick._internal.tasks import cancel_and_wait
from wick.capabilities._child_agents.definitions import Definition, load_definitions
from wick.capabilities._child_agents.definitions import Subagent as Subagent
from wick.capabilities._child_agents.runs import (
    OPEN,
    BackgroundTask,
    ChildJob,
    build_child,
    can_resume,
    explain_outcome,
    find_structured_answer,
    list_capability_tools,
    run_child,
)
from wick.capability import Capability
from wick.decisions import Continue, Stop
from wick.errors import ConfigError, Paused, ToolError
from wick.events import TaskEnd, TaskStart, TaskUpdate
from wick.hooks import Hook, Next, after, before, wrap
from wick.messages import Message, ToolResult
from wick.operations import ModelCall, Result, Run, Step, ToolUse
from wick.tools import Tool, tool

INNERMOST = -100.0  # tasks resume after other hooks have prepared the run
KEY = "tasks"  # of `thread.values`: records of background tasks
STARTS = ("task", "start_task")
POLL_SECONDS = 0.5  # how often a waiting run checks its inbox

Prompt = Annotated[str, "everything it needs to know: it sees nothing of this conversation"]
Description = Annotated[str, "what it is about, in three to five words for the user"]
TaskId = Annotated[str, "the id that start_task gave"]


class Subagents(Capability):
    """Adds tools that delegate work to child agents: `task` waits for the answer, `start_task` does not.

    A child is subject to all guards and inherited hooks of its parents. Its questions go to the user of the root run,
    and its usage counts for its parents. It inherits the tools that it names, with the hooks of their capabilities. Its
    thread is stored where the parent's is, so that an interrupted run also resumes its children.
    """

    def __init__(
        self,
        agents: Iterable[Definition] | Mapping[str, Any] | str | Path,
        *,
        depth: int = constants.SUBAGENT_DEPTH,
        models: Mapping[str, Any] | None = None,
        background: bool = True,
        at_once: int = constants.TASKS_AT_ONCE,
        at_end: Literal["wait", "cancel"] = "wait",
    ) -> None:
        for name, number in (("depth", depth), ("at_once", at_once)):
            if type(number) is not int or number < 1:
                raise ConfigError(f"Subagents({name}={number!r}): give a whole number above 0")
        if at_end not in ("wait", "cancel") or type(background) is not bool:
            raise ConfigError('Subagents takes at_end="wait" or "cancel", and background=True or False')
        self.agents = load_definitions(agents)
        self.depth, self.models, self.at_once, self.at_end = depth, dict(models or {}), at_once, at_end
        self.background = background
        for subagent in self.agents.values():
            for part in subagent.hooks:
                if not isinstance(part, Hook | Capability):
                    raise ConfigError(
                        f"the subagent {subagent.name!r} has {part!r} among its hooks, which is not a hook"
                    )
                if isinstance(part, Capability) and type(part).session is not Capability.session:
                    raise ConfigError(
                        f"the subagent {subagent.name!r} needs no {part.name}: its threads are kept with its parent's"
                    )

    def hooks(self) -> list[Hook]:
        return super().hooks() if self.background else []

    def tools(self) -> list[Tool]:
        """Return the tools; those that start an agent have the agents in their schema and description."""
        lines = [f"- {agent.name}: {' '.join(agent.description.split())}" for agent in self.agents.values()]
        tools: list[Tool] = []
        for item in super().tools():
            if item.name in STARTS:
                plain: Any = item.fn.__func__  # type: ignore[attr-defined]
                named = FunctionType(
                    plain.__code__, plain.__globals__, plain.__name__, plain.__defaults__, plain.__closure__
                )
                named.__annotations__ = {**plain.__annotations__, "agent": Literal[tuple(self.agents)]}
                description = "\n".join([item.description, "", "The agents:", *lines])
                item = replace(item, fn=MethodType(named, self), description=description)
            if self.background or item.name == "task":
                tools.append(item)
        return tools

    def foreign_tools(self) -> list[str]:
        return [item.name for agent in self.agents.values() for item in (*agent.own, *list_capability_tools(agent))]

    # -- waiting for the answer ---------------------------------------------------------------------------------------

    @tool(
        idempotent=True, kind="agent", effect="read", returns="child"
    )  # a second attempt resumes the thread of the first
    async def task(self, agent: str, prompt: Prompt, use: ToolUse, description: Description = "") -> str | ToolResult:
        """Hand a piece of work to another agent and wait for its answer. Several calls at once work side by side."""
        result = await self._run_job(use.run, self._build_job(agent, prompt, use, description))
        if result.outcome == "interrupted":
            raise Paused(result.reason.removeprefix("paused: "))
        if result.error is not None:
            raise ToolError(f"{agent} failed: {explain_outcome(result)}")
        answer = _format_answer(agent, result.outcome, result.reason, result.text)
        data = find_structured_answer(result)
        return answer if data is None else ToolResult(answer, data=data)

    # -- in the background --------------------------------------------------------------------------------------------

    @tool(
        idempotent=True, kind="agent", effect="read", returns="child"
    )  # a second attempt finds what the first one started
    async def start_task(
        self, agent: str, prompt: Prompt, use: ToolUse, description: Description = ""
    ) -> dict[str, Any]:
        """Hand a piece of work to another agent and continue meanwhile; returns the task's id."""
        run, tasks = use.run, self._get_tasks(use.run)
        job = self._build_job(agent, prompt, use, description)
        known = next((task for task in tasks.values() if task.job.thread == job.thread), None)
        if known is None:
            if sum(task.is_open for task in tasks.values()) >= self.at_once:
                raise ToolError(f"{self.at_once} tasks are open already; wait for one with await_tasks, or cancel one")
            known = BackgroundTask(f"task_{len(run.thread.values.get(KEY, ())) + 1}", job)
            self._launch_task(run, known, new=True)
        return {"task": known.id, "agent": agent, "status": known.status}

    @tool(read_only=True, effect="read", returns="child")
    async def check_task(self, task: TaskId, run: Run) -> dict[str, Any]:
        """Return the status of a task in the background, and its answer if it has ended."""
        return self._report_task(run, self._find_task(run, task))

    @tool(read_only=True, effect="read", returns="child")
    async def list_tasks(self, run: Run) -> list[dict[str, Any]]:
        """List every task of this conversation with its status."""
        return [_summarize_record(record) for record in self._list_records(run).values()]

    @tool(effect="write", returns="own", targets=[])
    async def update_task(self, task: TaskId, message: Annotated[str, "what it should know or do"], run: Run) -> str:
        """Send a message to a task in the background; it reads it at its next step."""
        background_task = self._find_task(run, task)
        if background_task.status != "running" or not message.strip():
            raise ToolError(
                f"{task} is {background_task.status}; it gets no messages"
                if message.strip()
                else "the message is empty; write one"
            )
        background_task.job.send(message)
        run.emit(
            TaskUpdate(name=background_task.job.agent, task_id=task, status=background_task.status, message=message)
        )
        return f"{task} reads it at its next step"

    @tool(idempotent=True, effect="write", returns="child", targets=[])
    async def cancel_task(self, task: TaskId, run: Run) -> dict[str, Any]:
        """End a task in the background."""
        background_task = self._find_task(run, task)
        if background_task.async_task is not None and not background_task.async_task.done():
            await cancel_and_wait((background_task.async_task,))
        if background_task.is_open:  # it had not started, or waited for an answer
            self._finish_task(run, background_task, "cancelled", "", "")
        return self._report_task(run, background_task)

    @tool(read_only=True, effect="read", returns="child")
    async def await_tasks(
        self,
        run: Run,
        tasks: Annotated[list[str] | None, "their ids; all that are open if left out"] = None,
        wait_for: Annotated[Literal["all", "any"], "whether one of them is enough"] = "all",
        seconds: Annotated[float, "how long to wait at most"] = 60.0,
    ) -> list[dict[str, Any]]:
        """Wait until tasks in the background have ended, or the time is over; returns the status and answer of each."""
        if not 0 <= seconds <= constants.TASK_WAIT_SECONDS:
            raise ToolError(
                f"seconds= goes from 0 to {constants.TASK_WAIT_SECONDS:g}; wait again if that is not enough"
            )
        wanted = tasks if tasks is not None else [task.id for task in self._get_tasks(run).values() if not task.shown]
        awaited = [self._find_task(run, id) for id in wanted]
        await self._wait_tasks(run, awaited, wait_for, seconds)
        return [self._report_task(run, task) for task in awaited]

    @before(ModelCall)
    def show_tasks(self, call: ModelCall) -> None:
        """Append the status of tasks to the request, except tasks with an answer that was read."""
        lines = [task.format_line() for task in self._get_tasks(call.run).values() if not task.shown]
        if lines and not call.purpose:
            text = "\n".join(["Tasks in the background, as they stand now:", *lines])
            call.messages.append(Message("user", text, name=self.name))

    @after(Step)
    async def wait_for_tasks(self, step: Step) -> Continue | None:
        """Wait for open tasks before the run ends, so that the model reads their answers."""
        tasks = [task for task in self._get_tasks(step.run).values() if task.is_open]
        is_final = isinstance(step.result, Stop) and step.result.kind in ("completed", "finish reason")
        if not tasks or self.at_end == "cancel" or not is_final or step.run.stopping:
            return None
        answers = await self._collect_answers(step.run, tasks)
        return Continue(answers) if answers else None

    @wrap(Run, priority=INNERMOST)
    async def look_after_tasks(self, run: Run, next: Next[Result]) -> Result:
        """Resume interrupted tasks when a run starts, and cancel open tasks when it ends."""
        over = OPEN  # states to cancel at the end of the run
        try:
            await self._resume_tasks(run)
            return await next(run)
        except Paused:  # as with concurrent tools, the other tasks finish or pause too
            over = ("running",)
            tasks = [*self._get_tasks(run).values()]
            self._relaunch_waiting(run, tasks)
            works = [task.async_task for task in tasks if task.async_task is not None and not task.async_task.done()]
            if works:
                await asyncio.wait(works)
            raise
        finally:
            tasks = [*self._get_tasks(run).values()]
            await cancel_and_wait(
                [task.async_task for task in tasks if task.async_task is not None and not task.async_task.done()]
            )
            for task in tasks:
                if task.status in over:
                    self._finish_task(run, task, "cancelled", "", "the run ended")

    # -- the work of one agent ----------------------------------------------------------------------------------------

    def _build_job(self, agent: str, prompt: str, use: ToolUse, description: str) -> ChildJob:
        if use.run.depth >= self.depth:
            raise ToolError(f"agents work for each other {self.depth} levels deep at most; do this yourself")
        if not prompt.strip() or len(prompt) > constants.TASK_PROMPT_CHARS:
            raise ToolError(f"a prompt is a text of up to {constants.TASK_PROMPT_CHARS:,} characters")
        call_hash = digest(use.key.encode("utf-8", "surrogatepass"))[:12]  # equal for every attempt at this call
        job = ChildJob(agent, prompt, use.call.id, f"{use.run.thread.id[:150]}.{call_hash}")
        job.description = to_one_line(description, constants.TASK_DESCRIPTION_CHARS)
        return job

    async def _run_job(self, run: Run, job: ChildJob) -> Result:
        subagent = self.agents[job.agent]
        deepest = run.depth + 1 >= self.depth
        spare = [item.name for item in super().tools()] if deepest else []
        model = subagent.model
        if model is None or model in ("", "inherit"):
            model = run.model
        elif isinstance(model, str):
            model = self.models.get(model, model)
        async with self._get_children(run).slots:
            try:
                async with asyncio.timeout(subagent.timeout) as limit:
                    return await run_child(run, job, lambda: build_child(run, subagent, model, spare=spare))
            except TimeoutError:
                if not limit.expired():
                    raise
                raise ToolError(f"{job.agent} was cancelled after {subagent.timeout:g} s, its time limit") from None

    # -- the tasks of one run -----------------------------------------------------------------------------------------

    def _get_children(self, run: Run) -> _Children:
        children: _Children = run.scratch.get(self) or run.scratch.setdefault(self, _Children(self.at_once))
        return children

    def _get_tasks(self, run: Run) -> dict[str, BackgroundTask]:
        return self._get_children(run).tasks

    def _list_records(self, run: Run) -> dict[str, dict[str, Any]]:
        """Return the records of all tasks in the thread, with the current state of this run's tasks."""
        stored = {id: thaw(record) for id, record in run.thread.values.get(KEY, {}).items()}
        return stored | {task.id: task.to_record(run) for task in self._get_tasks(run).values()}

    def _find_task(self, run: Run, id: str) -> BackgroundTask:
        tasks = self._get_tasks(run)
        if id in tasks:
            return tasks[id]
        records = self._list_records(run)
        if id not in records:
            raise ToolError(f"there is no task {id[:100]!r}; the tasks are {', '.join(records) or '(none)'}")
        return BackgroundTask.from_record(id, records[id])

    def _report_task(self, run: Run, task: BackgroundTask) -> dict[str, Any]:
        task.shown = not task.is_open
        return {**_summarize_record(task.to_record(run)), **({"answer": task.answer} if task.answer else {})}

    def _launch_task(self, run: Run, task: BackgroundTask, new: bool = False) -> None:
        task.status, task.job.run, task.started_at_step = "running", None, run.root.thread.steps
        self._get_tasks(run)[task.id] = task
        run.thread.values.put(KEY, task.id, task.to_record(run))
        task.async_task = asyncio.create_task(self._run_task(run, task, new), name=task.title)
        # Mark the exception as retrieved.
        task.async_task.add_done_callback(lambda work: work.cancelled() or work.exception())

    async def _run_task(self, run: Run, task: BackgroundTask, new: bool) -> None:
        try:
            if new:
                await run.thread.saved()
                job = task.job
                fields = {"prompt": job.prompt, "description": job.description}
                run.emit(TaskStart(name=job.agent, task_id=task.id, call_id=job.call, **fields))
            result = await self._run_job(run, task.job)
        except asyncio.CancelledError:
            self._finish_task(run, task, "cancelled", "", "")
            raise
        except Exception as error:
            return self._finish_task(run, task, "failed", "", str(error) or type(error).__name__)
        if result.outcome != "interrupted":
            status = {"completed": "done", "stopped": "stopped"}.get(result.outcome, "failed")
            return self._finish_task(run, task, status, result.text, explain_outcome(result))
        task.status, task.status_reason = "waiting", result.reason
        run.thread.values.put(KEY, task.id, task.to_record(run))
        run.emit(TaskUpdate(name=task.job.agent, task_id=task.id, status="waiting", message=result.reason))

    def _finish_task(self, run: Run, task: BackgroundTask, status: str, text: str, reason: str) -> None:
        if not task.is_open or run.progress.over:  # an abandoned run writes nothing
            return
        short = text[: constants.TASK_ANSWER_CHARS]
        cut = f"\n\n... (truncated {len(text) - len(short)} characters) ..." if len(short) < len(text) else ""
        task.status, task.status_reason, task.answer = status, reason, short + cut
        run.thread.values.put(KEY, task.id, task.to_record(run))
        run.emit(TaskEnd(name=task.job.agent, task_id=task.id, status=status, text=task.answer, reason=reason))

    async def _wait_tasks(
        self, run: Run, tasks: Sequence[BackgroundTask], wait_for: Literal["all", "any"], seconds: float | None
    ) -> None:
        """Wait for tasks; raise Paused if only tasks with open questions are left.

        Without `seconds`, the wait also ends when a user message arrives.
        """
        clock = asyncio.get_running_loop().time
        until = None if seconds is None else clock() + seconds
        self._relaunch_waiting(run, tasks)
        while works := [
            task.async_task for task in tasks if task.async_task is not None and not task.async_task.done()
        ]:
            if (wait_for == "any" and any(not task.is_open for task in tasks)) or (
                until is not None and clock() >= until
            ):
                return
            if until is None and run.progress.inbox:
                return
            left = POLL_SECONDS if until is None else until - clock()
            enough = asyncio.FIRST_COMPLETED if wait_for == "any" else asyncio.ALL_COMPLETED
            await asyncio.wait(works, timeout=max(left, 0), return_when=enough)
        for task in tasks:
            task.raise_failure()
        waiting = [task for task in tasks if task.is_open]
        if waiting and (wait_for == "all" or len(waiting) == len(tasks)):
            raise Paused("; ".join(task.status_reason.removeprefix("paused: ") for task in waiting))

    def _relaunch_waiting(self, run: Run, tasks: Iterable[BackgroundTask]) -> None:
        """Relaunch tasks whose question belongs to an earlier step of the root run, so that they ask again."""
        for task in tasks:
            if task.status == "waiting" and task.started_at_step != run.root.thread.steps:
                self._launch_task(run, task)

    async def _resume_tasks(self, run: Run) -> None:
        """Resume the tasks of an interrupted run; mark tasks of runs that were not resumed as lost."""
        for id, record in [*run.thread.values.get(KEY, {}).items()]:
            if record["status"] not in OPEN:
                continue
            task = BackgroundTask.from_record(id, record)
            mine = run.resumed and record["run"] == run.id and task.job.agent in self.agents
            if mine and can_resume(run, task.job):
                self._launch_task(run, task)
            else:
                run.thread.values.put(KEY, id, {**thaw(record), "status": "lost", "reason": "the run was interrupted"})
        tasks = [task for task in self._get_tasks(run).values() if task.is_open]
        messages = run.thread.messages
        is_answered = bool(messages) and messages[-1].role == "assistant" and not run.thread.pending
        would_end = bool(tasks) and not run.input and is_answered
        if would_end and (answers := await self._collect_answers(run, tasks)):
            run.send(Message("user", answers, name=self.wait_for_tasks.name))

    async def _collect_answers(self, run: Run, tasks: Sequence[BackgroundTask]) -> str:
        """Return the answers of finished tasks for the model; "" if a user message arrived first."""
        await self._wait_tasks(run, tasks, "all", None)
        ended = [task for task in tasks if not task.is_open]
        for task in ended:
            task.shown = True
        return "\n\n".join(
            f"{task.title} has ended:\n{_format_answer(task.title, task.status, task.status_reason, task.answer)}"
            for task in ended
        )


class _Children:
    """The children of one run: its background tasks by id, and the slots of those that work at the same time."""

    def __init__(self, at_once: int) -> None:
        self.tasks: dict[str, BackgroundTask] = {}
        self.slots = asyncio.Semaphore(at_once)


# -- text for the model -----------------------------------------------------------------------------------------------


def _format_answer(agent: str, outcome: str, reason: str, text: str) -> str:
    if outcome in ("completed", "done"):
        return text or f"({agent} has ended without a word)"
    return "\n\n".join(filter(None, (text, f"({agent}: {outcome}{f', {reason}' if reason else ''})")))


def _summarize_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a task record for the model."""
    line = {"task": record["id"], "agent": record["agent"], "status": record["status"]}
    return line | ({"reason": record["reason"]} if record["reason"] not in ("", "completed") else {})
