"""Agents that work for this one: it waits for their answer, or lets them work in the background."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from wick import caps
from wick.capability import Capability
from wick.decisions import Continue, Stop
from wick.errors import ConfigError, Paused, StoreError, ToolError
from wick.events import ChatModelStart, Event, SubagentEnd, SubagentStart, TaskEnd, TaskStart, TaskUpdate, ToolStart
from wick.frozen import digest, thaw
from wick.hooks import Hook, Next, after, before, wrap
from wick.keeping import Kept, hold
from wick.messages import Message
from wick.operations import ModelCall, Result, Run, Step, ToolUse
from wick.subagent import Definition, Subagent, definitions
from wick.threads import Thread
from wick.tools import Tool, no_such_tool, tool
from wick.turns import closing, end

INNERMOST = -100.0  # what other hooks bring to a run is there when its tasks are taken up
KEY = "tasks"  # of the thread's values: what the tasks in the background came to
SNAPSHOT = "subagent_paused"  # the event that holds the thread of a child, where threads are not kept
OWN_ANSWER = "answer"  # the kind of tools by which an agent gives its own answer
POLL_SECONDS = 0.5  # how soon a run that waits for its tasks hears what the user says
OPEN = ("running", "waiting")

AgentName = Annotated[str, "the name of the agent"]
Prompt = Annotated[str, "everything it needs to know: it sees nothing of this conversation"]
TaskId = Annotated[str, "the id that start_task gave"]


class Subagents(Capability):
    """Lets the model hand work to other agents: `task` waits for the answer, `start_task` does not.

    A child is under every guard, budget and limit of the agents above it that reaches down; its questions go to the
    user of the run at the top, and what it uses counts for the runs above. It gets the tools that it names and the
    agent above has, with the hooks of the capabilities that these belong to. Its thread is kept where the parent's is,
    so that a run that was interrupted goes on inside its children.
    """

    def __init__(
        self,
        agents: Iterable[Definition] | Mapping[str, Any] | str | Path,
        *,
        depth: int = caps.SUBAGENT_DEPTH,
        models: Mapping[str, Any] | None = None,
        background: bool = True,
        at_once: int = caps.TASKS_AT_ONCE,
        at_end: Literal["wait", "cancel"] = "wait",
    ) -> None:
        for name, number in (("depth", depth), ("at_once", at_once)):
            if type(number) is not int or number < 1:
                raise ConfigError(f"Subagents({name}={number!r}): say how many, a whole number above 0")
        if at_end not in ("wait", "cancel") or type(background) is not bool:
            raise ConfigError('Subagents takes at_end="wait" or "cancel", and background=True or False')
        self.agents = definitions(agents)
        self.depth, self.models, self.at_once, self.at_end = depth, dict(models or {}), at_once, at_end
        self.background = background
        for subagent in self.agents.values():
            _check_hooks(subagent)

    def hooks(self) -> list[Hook]:
        return super().hooks() if self.background else []

    def tools(self) -> list[Tool]:
        """Its tools; those that start an agent say which there are."""
        lines = [f"- {agent.name}: {' '.join(agent.description.split())}" for agent in self.agents.values()]
        listed = "\n".join(["", "", "The agents:", *lines])
        tools = [item for item in super().tools() if self.background or item.name == "task"]
        starts = ("task", "start_task")
        return [replace(item, description=item.description + listed) if item.name in starts else item for item in tools]

    def foreign_tools(self) -> list[str]:
        return [item.name for agent in self.agents.values() for item in (*agent.own, *_brought(agent))]

    # -- waiting for the answer ---------------------------------------------------------------------------------------

    @tool(idempotent=True, kind="agent")  # a second attempt takes up the thread of the first
    async def task(self, agent: AgentName, prompt: Prompt, use: ToolUse) -> str:
        """Hand a piece of work to another agent and wait for its answer. Several calls at once work side by side."""
        result = await self._work(use.run, self._job(agent, prompt, use))
        if result.outcome == "interrupted":
            raise Paused(result.reason.removeprefix("paused: "))
        if result.error is not None:
            raise ToolError(f"{agent} failed: {result.error}")
        return _told(agent, result.outcome, result.reason, result.text)

    # -- in the background --------------------------------------------------------------------------------------------

    @tool(idempotent=True, kind="agent")  # a second attempt finds what the first one started
    async def start_task(self, agent: AgentName, prompt: Prompt, use: ToolUse) -> dict[str, Any]:
        """Hand a piece of work to another agent and go on meanwhile; gives the task's id."""
        run, tasks = use.run, self._tasks(use.run)
        job = self._job(agent, prompt, use)
        known = next((task for task in tasks.values() if task.job.thread == job.thread), None)
        if known is None:
            if sum(task.open for task in tasks.values()) >= self.at_once:
                raise ToolError(f"{self.at_once} tasks are open already; wait for one with await_tasks, or cancel one")
            known = _Task(f"task_{len(run.thread.values.get(KEY, ())) + 1}", job)
            self._begin(run, known)
            await run.thread.saved()
            run.emit(TaskStart(name=agent, task_id=known.id, call_id=job.call, prompt=prompt))
        return {"task": known.id, "agent": agent, "status": known.status}

    @tool(read_only=True)
    async def check_task(self, task: TaskId, run: Run) -> dict[str, Any]:
        """How a task in the background stands, and its answer if it has ended."""
        return self._report(run, self._find(run, task))

    @tool(read_only=True)
    async def list_tasks(self, run: Run) -> list[dict[str, Any]]:
        """Every task of this conversation and how it stands."""
        return [_line(record) for record in self._records(run).values()]

    @tool
    async def update_task(self, task: TaskId, message: Annotated[str, "what it should know or do"], run: Run) -> str:
        """Tell a task in the background something; it hears it at its next step."""
        found = self._find(run, task)
        if found.status != "running" or found.job.run is None or not message.strip():
            raise ToolError(f"{task} is {found.status}, and hears nothing" if message.strip() else "say something")
        found.job.run.send(message)
        run.emit(TaskUpdate(name=found.job.agent, task_id=task, status=found.status, message=message))
        return f"{task} hears it at its next step"

    @tool(idempotent=True)
    async def cancel_task(self, task: TaskId, run: Run) -> dict[str, Any]:
        """End a task in the background."""
        found = self._find(run, task)
        if found.work is not None and not found.work.done():
            await end((found.work,))
        if found.open:  # it was waiting for an answer
            self._ended(run, found, "cancelled", "", "")
        return self._report(run, found)

    @tool(read_only=True)
    async def await_tasks(
        self,
        run: Run,
        tasks: Annotated[list[str] | None, "their ids; all that are open if left out"] = None,
        wait_for: Annotated[Literal["all", "any"], "whether one of them is enough"] = "all",
        seconds: Annotated[float, "how long to wait at most"] = 60.0,
    ) -> list[dict[str, Any]]:
        """Wait until tasks in the background have ended, or the time is over; gives how each stands, and its answer."""
        if not 0 <= seconds <= caps.TASK_WAIT_SECONDS:
            raise ToolError(f"seconds= goes from 0 to {caps.TASK_WAIT_SECONDS:g}; wait again if that is not enough")
        wanted = tasks if tasks is not None else [task.id for task in self._tasks(run).values() if not task.shown]
        found = [self._find(run, id) for id in wanted]
        await self._wait(run, found, wait_for, seconds)
        return [self._report(run, task) for task in found]

    @before(ModelCall)
    def show_tasks(self, call: ModelCall) -> None:
        """Say at the end of the request how the tasks stand; those whose answer was read are left out."""
        lines = [task.line() for task in self._tasks(call.run).values() if not task.shown]
        if lines and not call.purpose:
            text = "\n".join(["Tasks in the background, as they stand now:", *lines])
            call.messages.append(Message("user", text, name=self.name))

    @after(Step)
    async def wait_for_tasks(self, step: Step) -> Continue | None:
        """A run does not end before its tasks: the model reads what they came to first."""
        tasks = [task for task in self._tasks(step.run).values() if task.open]
        if not tasks or self.at_end == "cancel" or not _finished(step):
            return None
        await self._wait(step.run, tasks, "all", None)
        ended = [task for task in tasks if not task.open]
        return Continue(self._told_all(ended)) if ended else None

    @wrap(Run, priority=INNERMOST)
    async def look_after_tasks(self, run: Run, next: Next[Result]) -> Result:
        """Nothing is left behind when a run ends, and what a crash or a pause interrupted is taken up."""
        over = OPEN  # what no task is any more when the run is over
        try:
            await self._take_up(run)
            return await next(run)
        except Paused:  # as with tools side by side: the others finish, or pause too
            over = ("running",)
            await self._settle(run, [*self._tasks(run).values()])
            raise
        finally:
            await self._end_all(run, over)

    # -- the work of one agent ----------------------------------------------------------------------------------------

    def _job(self, agent: str, prompt: str, use: ToolUse) -> _Job:
        if agent not in self.agents:
            raise ToolError(no_such_tool(agent, self.agents).replace("tool", "agent"))
        if use.run.depth >= self.depth:
            raise ToolError(f"agents work for each other {self.depth} levels deep at most; do this yourself")
        if not prompt.strip() or len(prompt) > caps.TASK_PROMPT_CHARS:
            raise ToolError(f"a prompt is a text of up to {caps.TASK_PROMPT_CHARS:,} characters")
        place = digest(use.key.encode("utf-8", "surrogatepass"))[:12]  # the same for every attempt at this call
        return _Job(agent, prompt, use.call.id, f"{use.run.thread.id[:150]}.{place}")

    async def _work(self, run: Run, job: _Job) -> Result:
        """Let an agent do its work; what it had done before it was interrupted is not done again."""
        async with _thread(run, job) as thread:
            if (before := _before(thread)) is not None:
                return before
            words = "" if thread.messages and (thread.open_run or not _last_end(thread)) else job.prompt
            try:
                agent = self._agent(run, self.agents[job.agent])
                stream = agent.stream(words, thread=thread, parent=run, without=run.progress.without)
            except ConfigError as error:
                raise ToolError(f"{job.agent} cannot be started: {error}") from None
            job.run = child = stream.run
            _tell(run, SubagentStart(child.id, job.agent, run.id, job.call, thread.id, job.prompt, child.resumed))
            try:
                async with closing(aiter(stream)) as events:
                    async for event in events:
                        job.follow(event, child.id)
            finally:
                result = child.progress.result or Result(outcome="cancelled", reason="user requested")
                _tell(run, _end(run, job, child, result))
            if result.outcome == "interrupted" and thread.keeper is None:
                run.thread.append("event", {"run": run.id, "name": SNAPSHOT, "data": thread.to_json()})
            return result

    def _agent(self, run: Run, subagent: Subagent) -> Any:
        """The agent that a definition stands for, with those of the parent's tools that it wants."""
        names = {part.name for part in subagent.hooks}
        given = [item for item in run.tools.values() if subagent.wants(item) and self._hands_down(run, item, names)]
        taken = {item.name for item in (*subagent.own, *_brought(subagent))}
        given = [item for item in given if item.name not in taken]
        owners = dict.fromkeys(owner for item in given if (owner := _owner(item)) is not None)
        hooks = [hook for owner in owners for hook in owner.hooks() if hook.position != "guard" and not hook.inherit]
        return run.make(
            self._model(run, subagent),
            name=subagent.name,
            system=subagent.prompt,
            tools=[*given, *subagent.own],
            hooks=[*hooks, *subagent.hooks],
        )

    def _hands_down(self, run: Run, item: Tool, names: set[str]) -> bool:
        owner = _owner(item)
        deepest = run.depth + 1 >= self.depth and owner is self
        return item.kind != OWN_ANSWER and not deepest and (owner is None or owner.name not in names)

    def _model(self, run: Run, subagent: Subagent) -> Any:
        if subagent.model is None or subagent.model in ("", "inherit"):
            return run.model
        named = isinstance(subagent.model, str) and subagent.model in self.models
        return self.models[subagent.model] if named else subagent.model

    # -- the tasks of one run -----------------------------------------------------------------------------------------

    def _tasks(self, run: Run) -> dict[str, _Task]:
        tasks: dict[str, _Task] = run.scratch.setdefault(self, {})
        return tasks

    def _records(self, run: Run) -> dict[str, dict[str, Any]]:
        """Every task of the conversation: those of this run as they are, those of earlier ones as they ended."""
        kept = {id: thaw(record) for id, record in run.thread.values.get(KEY, {}).items()}
        return kept | {task.id: task.record(run) for task in self._tasks(run).values()}

    def _find(self, run: Run, id: str) -> _Task:
        tasks = self._tasks(run)
        if id in tasks:
            return tasks[id]
        records = self._records(run)
        if id not in records:
            raise ToolError(no_such_tool(id, records).replace("tools", "tasks").replace("tool", "task"))
        return _Task.of(id, records[id])

    def _report(self, run: Run, task: _Task) -> dict[str, Any]:
        task.shown = not task.open
        return {**_line(task.record(run)), **({"answer": task.answer} if task.answer else {})}

    def _begin(self, run: Run, task: _Task) -> None:
        task.status = "running"
        self._tasks(run)[task.id] = task
        run.thread.values.put(KEY, task.id, task.record(run))
        task.work = asyncio.create_task(self._carry_out(run, task), name=f"{task.id} ({task.job.agent})")

    async def _carry_out(self, run: Run, task: _Task) -> None:
        try:
            result = await self._work(run, task.job)
        except asyncio.CancelledError:
            self._ended(run, task, "cancelled", "", "")
            raise
        except Exception as error:
            return self._ended(run, task, "failed", "", str(error) or type(error).__name__)
        if result.outcome != "interrupted":
            status = {"completed": "done", "stopped": "stopped"}.get(result.outcome, "failed")
            return self._ended(run, task, status, result.text, _reason(result))
        task.status, task.reason, task.asked_at = "waiting", result.reason, run.root.thread.steps
        run.thread.values.put(KEY, task.id, task.record(run))
        run.emit(TaskUpdate(name=task.job.agent, task_id=task.id, status="waiting", message=result.reason))

    def _ended(self, run: Run, task: _Task, status: str, text: str, reason: str) -> None:
        if not task.open or run.progress.over:  # who was abandoned has nothing to say any more
            return
        short = text[: caps.TASK_ANSWER_CHARS]
        cut = f"\n\n... (truncated {len(text) - len(short)} characters) ..." if len(short) < len(text) else ""
        task.status, task.reason, task.answer = status, reason, short + cut
        run.thread.values.put(KEY, task.id, task.record(run))
        run.emit(TaskEnd(name=task.job.agent, task_id=task.id, status=status, text=task.answer, reason=reason))

    async def _wait(
        self, run: Run, tasks: Sequence[_Task], wait_for: Literal["all", "any"], seconds: float | None
    ) -> None:
        """Wait for tasks; if all that is left waits for an answer, the run waits for it too. Without a limit, only
        until the user says something."""
        clock = asyncio.get_running_loop().time
        until = None if seconds is None else clock() + seconds
        self._rouse(run, tasks)
        while works := [task.work for task in tasks if task.work is not None and not task.work.done()]:
            if (wait_for == "any" and any(not task.open for task in tasks)) or (until is not None and clock() >= until):
                return
            if until is None and run.progress.inbox:
                return
            left = POLL_SECONDS if until is None else until - clock()
            enough = asyncio.FIRST_COMPLETED if wait_for == "any" else asyncio.ALL_COMPLETED
            await asyncio.wait(works, timeout=max(left, 0), return_when=enough)
        waiting = [task for task in tasks if task.open]
        if waiting and (wait_for == "all" or len(waiting) == len(tasks)):
            raise Paused("; ".join(task.reason.removeprefix("paused: ") for task in waiting))

    def _rouse(self, run: Run, tasks: Iterable[_Task]) -> None:
        """Ask again what was asked before the run at the top went on: a question belongs to the step it is put in."""
        for task in tasks:
            if task.status == "waiting" and task.asked_at != run.root.thread.steps:
                self._begin(run, task)

    async def _settle(self, run: Run, tasks: Sequence[_Task]) -> None:
        """Let every task end, or come to a question."""
        self._rouse(run, tasks)
        works = [task.work for task in tasks if task.work is not None and not task.work.done()]
        if works:
            await asyncio.wait(works)

    async def _end_all(self, run: Run, over: Sequence[str]) -> None:
        tasks = [*self._tasks(run).values()]
        await end([task.work for task in tasks if task.work is not None and not task.work.done()])
        for task in tasks:
            if task.status in over:
                self._ended(run, task, "cancelled", "", "the run ended")

    async def _take_up(self, run: Run) -> None:
        """Go on with the tasks of a run that was interrupted; those of a run that nobody took up are lost."""
        for id, record in [*run.thread.values.get(KEY, {}).items()]:
            if record["status"] not in OPEN:
                continue
            task = _Task.of(id, record)
            mine = run.resumed and record["run"] == run.id and task.job.agent in self.agents
            if mine and (isinstance(run.thread.keeper, Kept) or _snapshot(run.thread, task.job.thread) is not None):
                self._begin(run, task)
            else:
                run.thread.values.put(KEY, id, {**thaw(record), "status": "lost", "reason": "the run was interrupted"})
        tasks = [task for task in self._tasks(run).values() if task.open]
        if tasks and not run.input and _all_said(run.thread):  # such a run would end at once
            await self._wait(run, tasks, "all", None)
            run.send(Message("user", self._told_all(tasks), name=self.wait_for_tasks.name))

    def _told_all(self, tasks: Sequence[_Task]) -> str:
        """What tasks came to, for the model."""
        for task in tasks:
            task.shown = True
        texts = [_told(f"{task.id} ({task.job.agent})", task.status, task.reason, task.answer) for task in tasks]
        return "\n\n".join(
            f"{task.id} ({task.job.agent}) has ended:\n{text}" for task, text in zip(tasks, texts, strict=True)
        )


@dataclass(eq=False, slots=True)
class _Job:
    """One piece of work for an agent, and how far it is."""

    agent: str
    prompt: str
    call: str
    thread: str
    run: Run | None = None
    step: int = 0
    doing: str = ""

    def follow(self, event: Event, run: str) -> None:
        if event.run_id != run:
            return
        if isinstance(event, ChatModelStart):
            self.step, self.doing = event.step, "thinking"
        elif isinstance(event, ToolStart):
            self.doing = f"using {event.name}"


@dataclass(eq=False, slots=True)
class _Task:
    """A piece of work in the background of a run."""

    id: str
    job: _Job
    status: str = "running"
    reason: str = ""
    answer: str = ""
    work: asyncio.Task[None] | None = None
    shown: bool = False  # the model has read how it ended
    asked_at: int = 0  # how many steps the run at the top had made when its question was put

    @classmethod
    def of(cls, id: str, record: Mapping[str, Any]) -> _Task:
        job = _Job(record["agent"], record["prompt"], record["call"], record["thread"])
        return cls(id, job, record["status"], record["reason"], record["answer"])

    @property
    def open(self) -> bool:
        return self.status in OPEN

    def record(self, run: Run) -> dict[str, Any]:
        job = self.job
        whose = {"agent": job.agent, "prompt": job.prompt, "call": job.call, "thread": job.thread, "run": run.id}
        return {"id": self.id, **whose, "status": self.status, "reason": self.reason, "answer": self.answer}

    def line(self) -> str:
        more = f", step {self.job.step}, {self.job.doing}" if self.status == "running" and self.job.step else ""
        hint = "" if self.open else "; check_task gives its answer"
        return f"- {self.id} ({self.job.agent}): {self.status}{more}{hint}"


# -- threads of children ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def _thread(run: Run, job: _Job) -> AsyncIterator[Thread]:
    """The thread of a piece of work, where that of the run above is kept; else what the run above has of it."""
    keeper = run.thread.keeper
    if not isinstance(keeper, Kept):
        yield _snapshot(run.thread, job.thread) or Thread(job.thread)
        return
    thread, about = Thread(job.thread), {"parent": run.thread.id, "agent": job.agent}
    try:
        await keeper.store.create(keeper.owner, thread.id, meta=about)
    except StoreError as error:  # it is there already
        if error.code != "conflict":
            raise
    async with hold(keeper.store, keeper.owner, thread, patience=keeper.patience):
        yield thread


def _snapshot(above: Thread, id: str) -> Thread | None:
    """The thread of a child that paused, as the thread above has it."""
    for entry in reversed(above.lineage()):
        if entry.kind == "event" and entry.data["name"] == SNAPSHOT and entry.data["data"]["id"] == id:
            return Thread.from_json(thaw(entry.data["data"]))
    return None


def _last_end(thread: Thread) -> Any:
    return next((entry.data for entry in reversed(thread.entries) if entry.kind == "run_end"), None)


def _before(thread: Thread) -> Result | None:
    """What the work had come to already, if it had; a crash may have cut off that somebody heard of it."""
    last = _last_end(thread)
    if thread.open_run is not None or last is None or last["outcome"] not in ("completed", "stopped"):
        return None
    text = next((message.text for message in reversed(thread.messages) if message.role == "assistant"), "")
    return Result(text, last["reason"], last["outcome"], messages=thread.messages, thread=thread)


def _all_said(thread: Thread) -> bool:
    """Whether the model had said its last word."""
    return bool(thread.messages) and thread.messages[-1].role == "assistant" and not thread.pending


# -- words ------------------------------------------------------------------------------------------------------------


def _told(agent: str, outcome: str, reason: str, text: str) -> str:
    if outcome in ("completed", "done"):
        return text or f"({agent} has ended without a word)"
    return "\n\n".join(filter(None, (text, f"({agent}: {outcome}{f', {reason}' if reason else ''})")))


def _reason(result: Result) -> str:
    return str(result.error) if result.error is not None else result.reason


def _line(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a model is told of a task."""
    line = {"task": record["id"], "agent": record["agent"], "status": record["status"]}
    return line | ({"reason": record["reason"]} if record["reason"] not in ("", "completed") else {})


def _tell(run: Run, event: Event) -> None:
    """Announce an event of a child to whoever watches its parent, under the child's id."""
    if run.emitter is not None and not run.progress.over:
        run.emitter(event)


def _end(run: Run, job: _Job, child: Run, result: Result) -> SubagentEnd:
    usage = child.usage.to_json()
    return SubagentEnd(child.id, job.agent, run.id, job.call, result.outcome, _reason(result), result.text, usage)


# -- tools and hooks of children --------------------------------------------------------------------------------------


def _finished(step: Step) -> bool:
    return (
        isinstance(step.result, Stop) and step.result.kind in ("completed", "finish reason") and not step.run.stopping
    )


def _owner(item: Tool) -> Capability | None:
    owner = getattr(item.fn, "__self__", None)
    return owner if isinstance(owner, Capability) else None


def _brought(subagent: Subagent) -> list[Tool]:
    """The tools of a subagent's own capabilities."""
    return [item for part in subagent.hooks if isinstance(part, Capability) for item in part.tools()]


def _check_hooks(subagent: Subagent) -> None:
    for part in subagent.hooks:
        if not isinstance(part, Hook | Capability):
            raise ConfigError(f"the subagent {subagent.name!r} has {part!r} among its hooks, which is none")
        if isinstance(part, Capability) and type(part).holding is not Capability.holding:
            raise ConfigError(
                f"the subagent {subagent.name!r} needs no {part.name}: its threads are kept with its parent's"
            )
