"""Requests and replies: lines of JSON over any number of connections, each of which sees only its own."""

from __future__ import annotations

import json
import os
import sys
from base64 import b64encode
from typing import Callable

from wick import constants
from wick.errors import BackendError
from wick.wickd import files
from wick.wickd.command import Command, Ended
from wick.wickd.commands import Commands
from wick.wickd.connection import Lines
from wick.wickd.event_loop import Loop
from wick.wickd.jobs import Job
from wick.wickd.output_buffers import HeadAndTail
from wick.wickd.requests import Wanted
from wick.wickd.watcher import Watchers
from wick.workspace.results import Json

PROTOCOL = 1


class Connection(Lines):
    """One client: its requests in flight, its jobs and its terminals."""

    def __init__(
        self, loop: Loop, commands: Commands, watchers: Watchers, ends: tuple[int, int], token: str = ""
    ) -> None:
        super().__init__(loop, ends, token)
        self._commands, self._watchers = commands, watchers
        self._requests: dict[str, Command] = {}
        self._streams: set[Command] = set()
        self._windows: dict[str, int] = {}  # what each terminal's reader has not taken yet
        self._jobs: dict[str, Job] = {}
        self._job_count = 0

    def take(self, line: bytes) -> None:
        id = ""
        try:
            request = _parsed(line)
            id = _id(request)
            if id in self._requests:
                raise BackendError(f"a request with the id {id!r} is still running; give each its own", "invalid")
            op = request.get("op", "run")
            do = OPERATIONS.get(op) if isinstance(op, str) else None
            if do is None:
                raise BackendError(f"there is no operation {op!r}; there are {', '.join(OPERATIONS)}", "invalid")
            if self._commands.full and op in STARTS:
                raise BackendError("too many commands wait already; try again later", "busy")
            do(self, id, Wanted(request))
        except BackendError as error:
            self.refuse(id, str(error), error.code)
        except Exception as error:  # a mistake in one operation is not the end of all others
            self.refuse(id, f"wickd made a mistake: {error!r}", "failed")

    def wait(self, behind: bool) -> None:
        """Streams of output wait while the client does not read."""
        for command in self._streams:
            command.pause(behind)

    def close(self) -> None:
        """End the connection and everything that was started over it."""
        running = [*self._requests.values(), *(job.command for job in self._jobs.values() if job.running)]
        super().close()
        for command in running:
            if command is not None:
                self._commands.end(command, "its connection was closed")

    # -- running ----------------------------------------------------------------------------------------------------

    def _run(self, id: str, wanted: Wanted) -> None:
        outputs = [HeadAndTail(*wanted.kept()), HeadAndTail(*wanted.kept())]
        names = ("stdout", "stderr")
        stream = wanted.flag("stream")
        if stream:
            sinks = [self._streamed(id, *pair) for pair in zip(names, outputs)]
        else:
            sinks = [output.add for output in outputs]

        def done(ended: Ended) -> None:
            self._forget(id)
            self.reply(id, **_executed(ended, *outputs))

        command = Command(
            {**wanted.spec(), "whole": wanted.flag("whole"), "read": wanted.flag("read")},
            sinks=sinks,
            done=done,
            stdin=wanted.stdin(),
            data=wanted.data(),
            timeout=wanted.timeout(),
        )
        if stream:
            self._streams.add(command)
        self._start(id, command)

    def _streamed(self, id: str, name: str, output: HeadAndTail) -> Callable[[bytes], None]:
        def take(data: bytes) -> None:
            output.add(data)
            self.reply(id, chunk=name, data=b64encode(data).decode())

        return take

    def _start(self, id: str, command: Command) -> None:
        self._requests[id] = command
        self._commands.start(command)

    def _forget(self, id: str) -> None:
        command = self._requests.pop(id, None)
        if command is not None:
            self._streams.discard(command)

    def _cancel(self, id: str, wanted: Wanted) -> None:
        target = wanted.text("target")
        started = (job.command for job in self._jobs.values() if job.asked_by == target and job.running)
        command = self._requests.get(target) or next(started, None)
        if command is not None:
            self._commands.end(command, "it was cancelled")
        self.reply(id, result={"found": command is not None})

    # -- jobs -------------------------------------------------------------------------------------------------------

    def _job(self, id: str, wanted: Wanted) -> None:
        if sum(job.running for job in self._jobs.values()) >= constants.JOBS_AT_ONCE:
            raise BackendError(f"{constants.JOBS_AT_ONCE} jobs are running already; end one first", "busy")
        spec = wanted.spec()
        self._job_count += 1
        job = Job(f"job-{self._job_count}", id, wanted.text("label") or wanted.text("cmd") or " ".join(spec["argv"]))

        def began() -> None:
            job.begun = True
            self._forget(id)
            self.reply(id, result=job.described())

        guard = wanted.text("guard")

        def done(ended: Ended) -> None:
            self._watchers.end(guard)
            job.finish(ended)
            if not job.begun:
                self._forget(id)
                del self._jobs[job.id]
                self.refuse(id, ended.error, "failed")

        job.command = Command(spec, sinks=[job.output.add], began=began, done=done, data=wanted.data())
        self._keep(job)
        self._start(id, job.command)

    def _keep(self, job: Job) -> None:
        self._jobs[job.id] = job
        ended = [one.id for one in self._jobs.values() if not one.running]
        for id in ended[: max(0, len(ended) - constants.JOBS_KEPT)]:
            del self._jobs[id]

    def _list_jobs(self, id: str, wanted: Wanted) -> None:
        self.reply(id, result={"jobs": [job.described() for job in self._jobs.values()]})

    def _job_output(self, id: str, wanted: Wanted) -> None:
        self.reply(id, result=self._job_named(wanted).since(wanted.whole("offset", 0)))

    def _end_job(self, id: str, wanted: Wanted) -> None:
        job = self._job_named(wanted)
        if job.running and job.command is not None:
            job.when_ended.append(lambda: self.reply(id, result=job.described()))
            self._commands.end(job.command, "it was told to end")
        else:
            self.reply(id, result=job.described())

    def _job_named(self, wanted: Wanted) -> Job:
        name = wanted.text("job")
        if name not in self._jobs:
            raise BackendError(f"there is no job {name!r}; there are {', '.join(self._jobs) or 'none'}", "not_found")
        return self._jobs[name]

    # -- terminals --------------------------------------------------------------------------------------------------

    def _pty(self, id: str, wanted: Wanted) -> None:
        if len(self._windows) >= constants.TERMINALS_AT_ONCE:
            raise BackendError(f"{constants.TERMINALS_AT_ONCE} terminals are open already; close one first", "busy")

        def take(data: bytes) -> None:
            self._windows[id] += len(data)
            command.pause(self._windows[id] > constants.TERMINAL_WINDOW_BYTES)
            self.reply(id, chunk="output", data=b64encode(data).decode())

        def done(ended: Ended) -> None:
            self._forget(id)
            self._windows.pop(id, None)
            if ended.failed:
                self.refuse(id, ended.error, "failed")
            else:
                self.reply(id, exit_code=ended.exit_code, error=ended.error)

        spec = {**wanted.spec(), "terminal": True}
        spec["env"].setdefault("TERM", "xterm-256color")
        command = Command(
            spec,
            sinks=[take],
            began=lambda: self.reply(id, result={}),
            done=done,
            data=wanted.data(),
            size=(wanted.whole("rows", 24, 1, 10_000), wanted.whole("columns", 80, 1, 10_000)),
        )
        self._windows[id] = 0
        self._start(id, command)

    def _taken(self, id: str, wanted: Wanted) -> None:
        """The reader of a terminal has taken so many bytes. There is no reply."""
        target = wanted.text("target")
        if target in self._windows:
            self._windows[target] -= wanted.whole("bytes", 0)
            self._requests[target].pause(self._windows[target] > constants.TERMINAL_WINDOW_BYTES)

    def _input(self, id: str, wanted: Wanted) -> None:
        command, data = self._terminal_named(wanted), wanted.bytes64("data")
        if command.unfed + len(data) > constants.WIRE_BUFFER_BYTES:
            raise BackendError("the terminal does not take its input; wait until it does", "busy")
        command.feed(data)
        self.reply(id, result={})

    def _resize(self, id: str, wanted: Wanted) -> None:
        rows, columns = wanted.whole("rows", 24, 1, 10_000), wanted.whole("columns", 80, 1, 10_000)
        self._terminal_named(wanted).resize(rows, columns)
        self.reply(id, result={})

    def _terminal_named(self, wanted: Wanted) -> Command:
        target = wanted.text("target")
        if target not in self._windows:
            raise BackendError("this terminal is closed; open another", "not_running")
        return self._requests[target]

    # -- files and the rest -----------------------------------------------------------------------------------------

    def _file(self, id: str, wanted: Wanted) -> None:
        call = wanted.file_call()
        if not files.takes_long(call):
            self.reply(id, **files.answer(call))
            return
        output = HeadAndTail(constants.WIRE_LINE_BYTES - 1_000, 0)

        def done(ended: Ended) -> None:
            self._forget(id)
            self.reply(id, **_answer(ended, output))

        spec = {"call": call, "terminal": False}
        errors = HeadAndTail(0, 2_000)
        timeout = wanted.timeout(constants.FILE_SECONDS)
        self._start(id, Command(spec, sinks=[output.add, errors.add], done=done, timeout=timeout))

    def _guard(self, id: str, wanted: Wanted) -> None:
        """Watch a workspace before a command starts there; `arm` says that the command may write."""

        def reply(guard: str, found: Json) -> None:
            if "entries" in found:
                self.reply(id, result={"guard": guard, **found})
            else:
                self.refuse(id, "the workspace cannot be watched; see that it can be read", "failed")

        key = (wanted.text("root"), tuple(wanted.texts("protect")), wanted.flag("contained"))
        self._watchers.guard(key, wanted.flag("arm"), reply)

    def _release(self, id: str, wanted: Wanted) -> None:
        guard = wanted.text("guard")
        self._watchers.release(guard, lambda found: self.reply(id, result={"moved": [], "stuck": [], **found}))

    def _unwatch(self, id: str, wanted: Wanted) -> None:
        self._watchers.forget(wanted.text("root"))
        self.reply(id, result={})

    def _ping(self, id: str, wanted: Wanted) -> None:
        about = {"protocol": PROTOCOL, "pid": os.getpid(), "python": sys.version.split()[0], "uid": os.getuid()}
        self.reply(id, result=about)


def _parsed(line: bytes) -> Json:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        raise BackendError("a request is one line of JSON; this line is not", "invalid") from None
    if not isinstance(request, dict):
        raise BackendError("a request is a JSON object with an id", "invalid")
    return request


def _id(request: Json) -> str:
    id = request.get("id")
    if not isinstance(id, str) or not 0 < len(id) <= 200:
        raise BackendError("a request needs an id, a text of at most 200 characters", "invalid")
    return id


def _executed(ended: Ended, stdout: HeadAndTail, stderr: HeadAndTail) -> Json:
    return {
        "stdout": stdout.text(),
        "stderr": stderr.text(),
        "exit_code": ended.exit_code,
        "error": ended.error,
        "truncated": stdout.truncated or stderr.truncated,
        "stdout_bytes": stdout.size,
        "stderr_bytes": stderr.size,
        "seconds": round(ended.seconds, 6),
        "moved": [],
    }


def _answer(ended: Ended, output: HeadAndTail) -> Json:
    """What a file operation in a process of its own came to."""
    if ended.exit_code == 0 and not output.truncated:
        found: Json = json.loads(output.text())
        return found
    if output.truncated:
        return {"error": "the answer is too large; ask for less", "code": "too_large"}
    return {"error": ended.error or "the operation failed without a word", "code": "failed"}


_Operation = Callable[[Connection, str, Wanted], None]
OPERATIONS: dict[str, _Operation] = {
    "run": Connection._run,
    "cancel": Connection._cancel,
    "job": Connection._job,
    "jobs": Connection._list_jobs,
    "job_output": Connection._job_output,
    "end_job": Connection._end_job,
    "pty": Connection._pty,
    "taken": Connection._taken,
    "input": Connection._input,
    "resize": Connection._resize,
    "guard": Connection._guard,
    "release": Connection._release,
    "unwatch": Connection._unwatch,
    "ping": Connection._ping,
    **dict.fromkeys(files.OPERATIONS, Connection._file),
}
STARTS = frozenset(("run", "job", "pty", *files.OPERATIONS))
