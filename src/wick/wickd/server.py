"""Request handlers of wickd: lines of JSON over isolated connections."""

from __future__ import annotations

import json
import os
import sys
from base64 import b64encode
from typing import Callable

from wick import constants
from wick.errors import BackendError
from wick.wickd import files
from wick.wickd.command import CommandOutcome, DaemonCommand
from wick.wickd.commands import CommandPool
from wick.wickd.connection import LineConnection
from wick.wickd.event_loop import EventLoop
from wick.wickd.jobs import DaemonJob
from wick.wickd.output_buffers import HeadTailBuffer, build_command_result
from wick.wickd.requests import DaemonRequest
from wick.wickd.watcher import WatcherPool
from wick.workspace.results import Json

PROTOCOL = 1


class ClientConnection(LineConnection):
    """The connection of one client, with its pending requests, jobs and terminals."""

    def __init__(
        self, loop: EventLoop, commands: CommandPool, watchers: WatcherPool, ends: tuple[int, int], token: str = ""
    ) -> None:
        super().__init__(loop, ends, token)
        self._commands, self._watchers = commands, watchers
        self._requests: dict[str, DaemonCommand] = {}
        self._streams: set[DaemonCommand] = set()
        self._windows: dict[str, int] = {}  # bytes that each terminal's reader has not confirmed yet
        self._jobs: dict[str, DaemonJob] = {}
        self._job_count = 0

    def handle_line(self, line: bytes) -> None:
        id = ""
        try:
            try:
                request = json.loads(line)
            except (ValueError, RecursionError):
                raise BackendError("a request is one line of JSON; this line is not", "invalid") from None
            if not isinstance(request, dict):
                raise BackendError("a request is a JSON object with an id", "invalid")
            given = request.get("id")
            if not isinstance(given, str) or not 0 < len(given) <= 200:
                raise BackendError("a request needs an id, a text of at most 200 characters", "invalid")
            id = given
            if id in self._requests:
                raise BackendError(f"a request with the id {id!r} is still running; give each its own", "invalid")
            op = request.get("op", "run")
            do = OPERATIONS.get(op) if isinstance(op, str) else None
            if do is None:
                raise BackendError(f"there is no operation {op!r}; there are {', '.join(OPERATIONS)}", "invalid")
            if self._commands.is_full and op in STARTS:
                raise BackendError("too many commands wait already; try again later", "busy")
            do(self, id, DaemonRequest(request))
        except BackendError as error:
            self.reply_error(id, str(error), error.code)
        except Exception as error:  # a bug in one operation must not end all others
            self.reply_error(id, f"internal error in wickd: {error!r}", "failed")

    def set_backpressure(self, behind: bool) -> None:
        """Pause or resume streamed output, depending on the client's reading."""
        for command in self._streams:
            command.set_paused(behind)

    def close(self) -> None:
        """Close the connection and end all its commands and jobs."""
        running = [*self._requests.values(), *(job.command for job in self._jobs.values() if job.running)]
        super().close()
        for command in running:
            if command is not None:
                self._commands.end(command, "its connection was closed")

    # -- running ----------------------------------------------------------------------------------------------------

    def handle_run(self, id: str, request: DaemonRequest) -> None:
        limits = request.get_output_limits()
        stdout, stderr = HeadTailBuffer(*limits), HeadTailBuffer(*limits)
        stream = request.get_flag("stream")
        if stream:
            sinks = [self._stream_sink(id, "stdout", stdout), self._stream_sink(id, "stderr", stderr)]
        else:
            sinks = [stdout.add, stderr.add]

        def done(ended: CommandOutcome) -> None:
            self._drop_request(id)
            self.reply(id, **build_command_result(stdout, stderr, ended.exit_code, ended.error, ended.seconds))

        command = DaemonCommand(
            {**request.get_spec(), "whole": request.get_flag("whole"), "read": request.get_flag("read")},
            sinks=sinks,
            done=done,
            stdin=request.get_stdin(),
            data=request.get_data(),
            timeout=request.get_timeout(),
        )
        if stream:
            self._streams.add(command)
        self._start_command(id, command)

    def _stream_sink(self, id: str, name: str, output: HeadTailBuffer) -> Callable[[bytes], None]:
        def take(data: bytes) -> None:
            output.add(data)
            self.reply(id, chunk=name, data=b64encode(data).decode())

        return take

    def _start_command(self, id: str, command: DaemonCommand) -> None:
        self._requests[id] = command
        self._commands.start(command)

    def _drop_request(self, id: str) -> None:
        command = self._requests.pop(id, None)
        if command is not None:
            self._streams.discard(command)

    def handle_cancel(self, id: str, request: DaemonRequest) -> None:
        target = request.get_text("target")
        started = (job.command for job in self._jobs.values() if job.asked_by == target and job.running)
        command = self._requests.get(target) or next(started, None)
        if command is not None:
            self._commands.end(command, "it was cancelled")
        self.reply(id, result={"found": command is not None})

    # -- jobs -------------------------------------------------------------------------------------------------------

    def handle_job(self, id: str, request: DaemonRequest) -> None:
        if sum(job.running for job in self._jobs.values()) >= constants.JOBS_AT_ONCE:
            raise BackendError(f"{constants.JOBS_AT_ONCE} jobs are running already; end one first", "busy")
        spec = request.get_spec()
        self._job_count += 1
        job = DaemonJob(
            f"job-{self._job_count}", id, request.get_text("label") or request.get_text("cmd") or " ".join(spec["argv"])
        )

        def began() -> None:
            job.has_started = True
            self._drop_request(id)
            self.reply(id, result=job.describe())

        guard = request.get_text("guard")

        def done(ended: CommandOutcome) -> None:
            self._watchers.end_guard(guard)
            job.finish(ended)
            if not job.has_started:
                self._drop_request(id)
                del self._jobs[job.id]
                self.reply_error(id, ended.error, "failed")

        job.command = DaemonCommand(spec, sinks=[job.output.add], began=began, done=done, data=request.get_data())
        self._jobs[job.id] = job
        finished = [one.id for one in self._jobs.values() if not one.running]
        for old in finished[: max(0, len(finished) - constants.JOBS_KEPT)]:
            del self._jobs[old]
        self._start_command(id, job.command)

    def handle_jobs(self, id: str, request: DaemonRequest) -> None:
        self.reply(id, result={"jobs": [job.describe() for job in self._jobs.values()]})

    def handle_job_output(self, id: str, request: DaemonRequest) -> None:
        self.reply(id, result=self._find_job(request).read_since(request.get_int("offset", 0)))

    def handle_end_job(self, id: str, request: DaemonRequest) -> None:
        job = self._find_job(request)
        if job.running and job.command is not None:
            job.on_end.append(lambda: self.reply(id, result=job.describe()))
            self._commands.end(job.command, "the client ended the job")
        else:
            self.reply(id, result=job.describe())

    def _find_job(self, request: DaemonRequest) -> DaemonJob:
        name = request.get_text("job")
        if name not in self._jobs:
            raise BackendError(f"there is no job {name!r}; there are {', '.join(self._jobs) or 'none'}", "not_found")
        return self._jobs[name]

    # -- terminals --------------------------------------------------------------------------------------------------

    def handle_pty(self, id: str, request: DaemonRequest) -> None:
        if len(self._windows) >= constants.TERMINALS_AT_ONCE:
            raise BackendError(f"{constants.TERMINALS_AT_ONCE} terminals are open already; close one first", "busy")

        def take(data: bytes) -> None:
            self._windows[id] += len(data)
            command.set_paused(self._windows[id] > constants.TERMINAL_WINDOW_BYTES)
            self.reply(id, chunk="output", data=b64encode(data).decode())

        def done(ended: CommandOutcome) -> None:
            self._drop_request(id)
            self._windows.pop(id, None)
            if ended.failed:
                self.reply_error(id, ended.error, "failed")
            else:
                self.reply(id, exit_code=ended.exit_code, error=ended.error)

        spec = {**request.get_spec(), "terminal": True}
        spec["env"].setdefault("TERM", "xterm-256color")
        command = DaemonCommand(
            spec,
            sinks=[take],
            began=lambda: self.reply(id, result={}),
            done=done,
            data=request.get_data(),
            size=(request.get_int("rows", 24, 1, 10_000), request.get_int("columns", 80, 1, 10_000)),
        )
        self._windows[id] = 0
        self._start_command(id, command)

    def handle_taken(self, id: str, request: DaemonRequest) -> None:
        """Handle the confirmation that a terminal's reader has processed some bytes. There is no reply."""
        target = request.get_text("target")
        if target in self._windows:
            self._windows[target] -= request.get_int("bytes", 0)
            self._requests[target].set_paused(self._windows[target] > constants.TERMINAL_WINDOW_BYTES)

    def handle_input(self, id: str, request: DaemonRequest) -> None:
        command, data = self._find_terminal(request), request.get_bytes("data")
        if command.pending_input + len(data) > constants.WIRE_BUFFER_BYTES:
            raise BackendError("the terminal does not take its input; wait until it does", "busy")
        command.feed(data)
        self.reply(id, result={})

    def handle_resize(self, id: str, request: DaemonRequest) -> None:
        rows, columns = request.get_int("rows", 24, 1, 10_000), request.get_int("columns", 80, 1, 10_000)
        self._find_terminal(request).resize(rows, columns)
        self.reply(id, result={})

    def _find_terminal(self, request: DaemonRequest) -> DaemonCommand:
        target = request.get_text("target")
        if target not in self._windows:
            raise BackendError("this terminal is closed; open another", "not_running")
        return self._requests[target]

    # -- files and the rest -----------------------------------------------------------------------------------------

    def handle_file(self, id: str, request: DaemonRequest) -> None:
        call = request.get_file_call()
        if not files.is_long_running(call):
            self.reply(id, **files.handle_call(call))
            return
        output = HeadTailBuffer(constants.WIRE_LINE_BYTES - 1_000, 0)

        def done(ended: CommandOutcome) -> None:
            self._drop_request(id)
            if output.truncated:
                self.reply_error(id, "the answer is too large; ask for less", "too_large")
            elif ended.exit_code == 0:
                self.reply(id, **json.loads(output.to_text()))
            else:
                self.reply_error(id, ended.error or "the operation failed without an error message", "failed")

        spec = {"call": call, "terminal": False}
        errors = HeadTailBuffer(0, 2_000)
        timeout = request.get_timeout(constants.FILE_SECONDS)
        self._start_command(id, DaemonCommand(spec, sinks=[output.add, errors.add], done=done, timeout=timeout))

    def handle_guard(self, id: str, request: DaemonRequest) -> None:
        """Watch a workspace before a command starts there; with `arm`, the command may write."""

        def reply(guard: str, watched: Json) -> None:
            if "entries" in watched:
                self.reply(id, result={"guard": guard, **watched})
            else:
                self.reply_error(id, "the workspace cannot be watched; see that it can be read", "failed")

        key = (request.get_text("root"), tuple(request.get_texts("protect")), request.get_flag("contained"))
        self._watchers.guard(key, request.get_flag("arm"), reply)

    def handle_release(self, id: str, request: DaemonRequest) -> None:
        guard = request.get_text("guard")
        self._watchers.release(guard, lambda planted: self.reply(id, result={"moved": [], "stuck": [], **planted}))

    def handle_unwatch(self, id: str, request: DaemonRequest) -> None:
        self._watchers.forget(request.get_text("root"))
        self.reply(id, result={})

    def handle_ping(self, id: str, request: DaemonRequest) -> None:
        about = {"protocol": PROTOCOL, "pid": os.getpid(), "python": sys.version.split()[0], "uid": os.getuid()}
        self.reply(id, result=about)


_Operation = Callable[[ClientConnection, str, DaemonRequest], None]
OPERATIONS: dict[str, _Operation] = {
    "run": ClientConnection.handle_run,
    "cancel": ClientConnection.handle_cancel,
    "job": ClientConnection.handle_job,
    "jobs": ClientConnection.handle_jobs,
    "job_output": ClientConnection.handle_job_output,
    "end_job": ClientConnection.handle_end_job,
    "pty": ClientConnection.handle_pty,
    "taken": ClientConnection.handle_taken,
    "input": ClientConnection.handle_input,
    "resize": ClientConnection.handle_resize,
    "guard": ClientConnection.handle_guard,
    "release": ClientConnection.handle_release,
    "unwatch": ClientConnection.handle_unwatch,
    "ping": ClientConnection.handle_ping,
    **dict.fromkeys(files.OPERATIONS, ClientConnection.handle_file),
}
STARTS = frozenset(("run", "job", "pty", *files.OPERATIONS))
