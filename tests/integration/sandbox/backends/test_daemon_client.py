"""Commands through wickd on the host: their results, their end, and no leftover process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ports import own_port
from wick import constants
from wick.backends import daemon_client as daemons
from wick.backends.daemon_client import Daemon, DaemonLost, get_host_daemon
from wick.errors import BackendError
from wickd_process import WickdProcess, becomes_true, kill, marked_environment, marked_processes, wickd

FULL = bool(os.environ.get("WICK_FULL"))
BIG = 1_000_000_000 if FULL else 100_000_000


async def soon(true: Callable[[], Any], seconds: float = 30.0) -> bool:
    """Return True if the condition becomes true, while other tasks run."""
    for _ in range(int(seconds * 100)):
        if true():
            return True
        await asyncio.sleep(0.01)
    return False


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wickd that had no processor for some seconds is not one that does not answer."""
    monkeypatch.setattr(constants, "DAEMON_GRACE_SECONDS", 60.0)


def _launched_with(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    """The wickd of this host gives commands that much time to end; a busy machine may need it."""
    told = "from wick import constants\n" + "".join(f"constants.{name} = {value}\n" for name, value in seconds.items())
    launch = daemons._LAUNCH.replace("from wick.wickd", f"{told}from wick.wickd", 1)
    assert told in launch
    monkeypatch.setattr(daemons, "_LAUNCH", launch)


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait without limit for reported ends."""
    _launched_with(monkeypatch, END_SECONDS=30.0)


# -- running --------------------------------------------------------------------------------------------------------


async def test_a_command_returns_its_output() -> None:
    daemon = await get_host_daemon()
    done = await daemon.run("cat; echo oops >&2; exit 3", stdin=b"in\n", workdir="/tmp")
    assert done.pop("seconds") >= 0  # type: ignore[misc]
    assert done == {
        "stdout": "in\n",
        "stderr": "oops\n",
        "exit_code": 3,
        "error": "",
        "truncated": False,
        "stdout_bytes": 3,
        "stderr_bytes": 5,
        "moved": [],
    }


async def test_output_is_streamed_in_order(tmp_path: Path) -> None:
    """The command continues after its output arrived."""
    seen: list[tuple[str, bytes]] = []
    daemon = await get_host_daemon()

    def see(name: str, data: bytes) -> None:
        seen.append((name, data))
        (tmp_path / str(len(seen))).touch()

    script = "n=0; seen() { n=$((n + 1)); until test -e $n; do sleep 0.01; done; }\n"
    script += "for i in 1 2 3; do echo o$i; seen; echo e$i >&2; seen; done"
    done = await daemon.run(script, on_output=see, workdir=str(tmp_path))
    assert seen == [(name, f"{name[3]}{i}\n".encode()) for i in "123" for name in ("stdout", "stderr")]
    assert done["stdout"] == "o1\no2\no3\n"


async def test_many_at_once() -> None:
    daemon = await get_host_daemon()
    done = await asyncio.gather(*(daemon.run(f"echo {number}; sleep 0.05") for number in range(60)))
    assert [one["stdout"] for one in done] == [f"{number}\n" for number in range(60)]


async def test_excess_commands_are_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "COMMANDS_AT_ONCE", 3)
    with wickd() as one:
        reader, writer = await _streams(one)
        daemon = Daemon.from_streams(reader, writer)
        done = await asyncio.gather(*(daemon.run("sleep 0.05; echo x") for _ in range(12)))
        assert [one["stdout"] for one in done] == ["x\n"] * 12
        await daemon.close()


async def _streams(one: WickdProcess) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    pipe = os.fdopen(os.dup(one.reads), "rb")
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(os.dup(one.writes), "wb")
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def test_over_streams() -> None:
    with wickd() as one:
        daemon = Daemon.from_streams(*await _streams(one), name="wickd of a test")
        assert (await daemon.run("echo by pipe"))["stdout"] == "by pipe\n"
        assert (await daemon.ping())["python"] == sys.version.split()[0]
        kill(one.process.pid)
        with pytest.raises(DaemonLost) as caught:
            await daemon.run("sleep 100")
        assert "wickd of a test" in str(caught.value)
        await daemon.close()


async def test_over_tcp_with_a_token() -> None:
    token = uuid4().hex
    with own_port() as port, wickd("--tcp", f"127.0.0.1:{port}", "--token-stdin") as one:
        one.say(token.encode())
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(becomes_true, lambda: _listens(port))
        _, daemon = await loop.create_connection(lambda: Daemon(token=token), "127.0.0.1", port)
        assert (await daemon.run("echo by port"))["stdout"] == "by port\n"
        _, stranger = await loop.create_connection(lambda: Daemon(token="wrong"), "127.0.0.1", port)
        with pytest.raises(DaemonLost):
            await stranger.ping()
        await daemon.close()
        await stranger.close()
        one.process.terminate()


def _listens(port: int) -> bool:
    listening = f"0100007F:{port:04X} 00000000:0000 0A"
    return listening in Path("/proc/net/tcp").read_text()


# -- ending ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unhurried")
async def test_a_time_limit_kills_all_processes_and_returns_the_output() -> None:
    mark, daemon = uuid4().hex, await get_host_daemon()
    done = await daemon.run("echo begun; setsid sleep 100 & sleep 100", timeout=3.5, env=marked_environment(mark))
    assert (done["exit_code"], done["stdout"]) == (124, "begun\n")
    assert done["error"].startswith("the command was stopped after 3.5 s, its time limit; ")
    assert not marked_processes(mark)


async def test_a_command_can_handle_sigterm(monkeypatch: pytest.MonkeyPatch) -> None:
    _launched_with(monkeypatch, COMMAND_GRACE_SECONDS=30.0)
    daemon = await get_host_daemon()
    done = await daemon.run("trap 'echo bye; exit 0' TERM; sleep 100 & wait", timeout=3.0)
    assert (done["exit_code"], done["stdout"]) == (124, "bye\n")


async def test_a_signal_is_named() -> None:
    daemon = await get_host_daemon()
    done = await daemon.run("kill -SEGV $$")
    assert (done["exit_code"], done["error"]) == (139, "the command was ended by SIGSEGV")


@pytest.mark.usefixtures("unhurried")
async def test_a_command_returns_at_its_end_and_its_children_are_killed() -> None:
    mark, daemon = uuid4().hex, await get_host_daemon()
    done = await daemon.run("sleep 100 & setsid sleep 100 & (sleep 100 &); echo $!", env=marked_environment(mark))
    assert done["exit_code"] == 0 and done["seconds"] < 50
    assert not marked_processes(mark)


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("times", [1, 3])
async def test_cancelling_waits_until_all_processes_are_dead(times: int) -> None:
    mark, daemon = uuid4().hex, await get_host_daemon()
    script = "trap '' TERM; setsid sleep 100 & while :; do sleep 1; done"
    task = asyncio.create_task(daemon.run(script, env=marked_environment(mark)))
    assert await soon(lambda: len(marked_processes(mark)) >= 3)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not marked_processes(mark)
    assert (await daemon.run("echo on"))["stdout"] == "on\n"


@pytest.mark.usefixtures("unhurried")
async def test_a_time_limit_of_the_caller() -> None:
    mark, daemon = uuid4().hex, await get_host_daemon()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await daemon.run("sleep 100; true", env=marked_environment(mark))
    assert not marked_processes(mark)


@pytest.mark.usefixtures("unhurried")
async def test_a_reader_that_fails_ends_the_command() -> None:
    mark, daemon = uuid4().hex, await get_host_daemon()

    def fail(name: str, data: bytes) -> None:
        raise LookupError("no room for it")

    with pytest.raises(LookupError, match="no room"):
        await daemon.run("yes", on_output=fail, env=marked_environment(mark))
    assert not marked_processes(mark)


# -- hostile commands -----------------------------------------------------------------------------------------------

RABBIT = "import os\nwhile True:\n    if os.fork(): os._exit(0)"
BROOD = (
    "import os, time\nfor _ in range(60):\n    if os.fork() == 0:\n        os.setsid(); os.fork(); time.sleep(1000)\n"
)
# A behaviour and its end: an exit code, "limit" or "killed".
HOSTILE: dict[str, tuple[str, Any]] = {
    "leaves a child": ("sleep 1000 & exit 5", 5),
    "leaves a session": ("setsid sleep 1000 & exit 5", 5),
    "forks twice": ("( (setsid sleep 1000 &) & ); exit 5", 5),
    "leaves with nohup": ("nohup sleep 1000 >/dev/null 2>&1 & exit 5", 5),
    "ignores TERM": ("trap '' TERM INT HUP; while :; do sleep 1; done", "limit"),
    "ignores TERM in a child": ("(trap '' TERM; exec setsid sleep 1000) & wait", "limit"),
    "stops itself": ("kill -STOP $$; sleep 1000", "limit"),
    "stops its children": ("sleep 1000 & kill -STOP $!; exit 5", 5),
    "stops its supervisor": ("kill -STOP $PPID; sleep 1000", "limit"),
    "kills its supervisor": ("kill -9 $PPID; sleep 1000", "killed"),
    "kills its supervisor from afar": ('p=$PPID; (setsid sh -c "kill -9 $p; sleep 1000" &); sleep 1000', "killed"),
    "asks its supervisor to end": ("kill -TERM $PPID; kill -INT $PPID; kill -HUP $PPID; exit 5", 5),
    "kills its group": ("sleep 1000 & kill -9 0", 137),
    "closes its pipes": ("exec 0<&- 1>&- 2>&-; setsid sleep 1000 & exit 5", 5),
    "closes its pipes and stays": ("exec 0<&- 1>&- 2>&-; sleep 1000", "limit"),
    "prints for ever": ("yes", "limit"),
    "leaves a printer": ("yes & exit 5", 5),
    "reads for ever": ("cat /dev/zero > /dev/null", "limit"),
    "runs from fork to fork": (f"{sys.executable} -c '{RABBIT}' & sleep 0.2; exit 5", 5),
    "has a brood": (f"{sys.executable} -c '{BROOD}' & sleep 0.3; exit 5", 5),
}
ROUNDS = 5_000 // len(HOSTILE) if FULL else 3


async def test_hostile_commands_leave_nothing() -> None:
    mark, daemon = uuid4().hex, await get_host_daemon()
    room = asyncio.Semaphore(6)

    async def one(name: str) -> None:
        script, ends = HOSTILE[name]
        async with room:
            done = await daemon.run(script, timeout=0.5 if ends == "limit" else 60, env=marked_environment(mark))
        if ends == "killed":
            assert done["exit_code"] == 137 and "its supervisor was killed" in done["error"], (name, done)
        else:
            assert done["exit_code"] == (124 if ends == "limit" else ends), (name, done)
        assert done["seconds"] < 45, name

    for _ in range(ROUNDS):
        await asyncio.gather(*map(one, HOSTILE))
        assert await soon(lambda: not marked_processes(mark)), marked_processes(mark)
    assert daemon is await get_host_daemon() and daemon.alive
    assert (await daemon.run("echo still here"))["stdout"] == "still here\n"


async def test_cancelled_hostile_commands_leave_nothing() -> None:
    mark, daemon = uuid4().hex, await get_host_daemon()
    tasks = [asyncio.create_task(daemon.run(script, env=marked_environment(mark))) for script, _ in HOSTILE.values()]
    await asyncio.sleep(0.3)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert await soon(lambda: not marked_processes(mark))
    assert (await daemon.run("echo still here"))["stdout"] == "still here\n"


async def test_no_descriptor_is_left_open() -> None:
    daemon = await get_host_daemon()
    folder = f"/proc/{(await daemon.ping())['pid']}/fd"

    async def use() -> int:
        for script in ("true", "yes | head -c 300000", "sleep 9", "exec 0<&- 1>&- 2>&-; sleep 0.01"):
            await asyncio.gather(*(daemon.run(script, stdin=b"x" * size, timeout=0.2) for size in (0, 9, 200_000)))
        await daemon.run("true", limits={"files": 50}, data=[b"x", b"y"], on_output=lambda *_: None)
        await daemon.file("glob", "/etc", pattern="host*")
        await (await daemon.terminal("sleep 9")).close()
        await daemon.end_job((await daemon.job("sleep 9"))["id"])
        for wrong in ({"argv": ["no-such-program"]}, {"cmd": "true", "workdir": "/no/such"}):
            await daemon.run(**wrong)  # type: ignore[arg-type]
        return len(os.listdir(folder))

    first = await use()
    for _ in range(3):
        await use()
        assert await soon(lambda: len(os.listdir(folder)) <= first + 4)  # a supervisor more or less


# -- the one of this host -------------------------------------------------------------------------------------------


async def test_there_is_one_for_each_loop() -> None:
    found = await asyncio.gather(*(get_host_daemon() for _ in range(10)))
    assert len(set(found)) == 1


@pytest.mark.parametrize("whom", ["wickd", "guard"])
async def test_a_dead_daemon_is_restarted(whom: str) -> None:
    mark, daemon = uuid4().hex, await get_host_daemon()
    running = asyncio.create_task(daemon.run("setsid sleep 100 & sleep 100; true", env=marked_environment(mark)))
    assert await soon(lambda: len(marked_processes(mark)) >= 3)
    pid = (await daemon.ping())["pid"]
    kill(pid if whom == "wickd" else _parent(pid))
    with pytest.raises(DaemonLost) as caught:
        await running
    assert caught.value.began and caught.value.code == "unavailable"
    assert await soon(lambda: not marked_processes(mark))
    with pytest.raises(DaemonLost) as caught:
        await daemon.run("true")
    assert not caught.value.began
    again = await asyncio.gather(*(get_host_daemon() for _ in range(5)))
    assert len(set(again)) == 1 and again[0] is not daemon
    assert (await again[0].run("echo new"))["stdout"] == "new\n"


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_one_that_was_stopped_is_left_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DAEMON_GRACE_SECONDS", 0.5)
    mark, daemon = uuid4().hex, await get_host_daemon()
    os.kill((await daemon.ping())["pid"], signal.SIGSTOP)
    with pytest.raises(DaemonLost, match="did not answer within"):
        await daemon.run("setsid sleep 100 & sleep 100", timeout=0.2, env=marked_environment(mark))
    assert await soon(lambda: not marked_processes(mark))
    assert (await (await get_host_daemon()).run("echo new"))["stdout"] == "new\n"


async def test_a_missing_python_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(DaemonLost, match="/no/such/python") as caught:
        await get_host_daemon()
    assert not caught.value.began
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(DaemonLost, match="/bin/false"):
        await get_host_daemon()
    monkeypatch.undo()
    assert (await (await get_host_daemon()).run("echo now"))["stdout"] == "now\n"


async def test_starting_can_be_cancelled() -> None:
    for moment in (0, 0.001, 0.01, 0.05):
        task = asyncio.create_task(get_host_daemon())
        await asyncio.sleep(moment)
        task.cancel()
        await asyncio.wait([task])
    assert (await (await get_host_daemon()).run("echo now"))["stdout"] == "now\n"


async def test_no_secret_of_the_host_is_in_wickd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "planted-and-never-seen")
    daemon = await get_host_daemon()
    seen = await daemon.run("cat /proc/$PPID/environ /proc/$$/environ; env")
    assert "planted-and-never-seen" not in seen["stdout"]


def test_one_loop_after_another() -> None:
    pids = []

    async def use() -> None:
        daemon = await get_host_daemon()
        pids.append((await daemon.ping())["pid"])
        assert (await daemon.run("echo x"))["stdout"] == "x\n"
        await daemon.job("sleep 100")

    asyncio.run(use())
    asyncio.run(use())
    assert len(set(pids)) == 2
    assert becomes_true(lambda: not [pid for pid in pids if Path(f"/proc/{pid}").exists()])


PROGRAM = """
import asyncio, os, sys
from wick.backends.daemon_client import get_host_daemon

async def main():
    daemon = await get_host_daemon()
    print((await daemon.ping())["pid"], flush=True)
    env = dict(os.environ)
    await daemon.job("setsid sleep 1000 & sleep 1000; true", env=env)
    await daemon.terminal("sleep 1000; true", env=env)
    await daemon.run("(setsid sleep 1000 &); sleep 1000; true", env=env)

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_when_the_host_dies_everything_does(number: signal.Signals) -> None:
    mark = uuid4().hex
    command = [sys.executable, "-c", PROGRAM]
    env = {**os.environ, **marked_environment(mark)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env) as host:
        assert host.stdout
        pid = int(host.stdout.readline())
        assert becomes_true(lambda: len(marked_processes(mark)) >= 8)
        os.kill(host.pid, number)
        host.wait(60)
    assert becomes_true(lambda: not marked_processes(mark))
    assert becomes_true(lambda: not Path(f"/proc/{pid}").exists())


def test_when_the_host_dies_a_stopped_wickd_does_too() -> None:
    mark = uuid4().hex
    env = {**os.environ, **marked_environment(mark)}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, env=env) as host:
        assert host.stdout
        pid = int(host.stdout.readline())
        assert becomes_true(lambda: len(marked_processes(mark)) >= 8)
        os.kill(pid, signal.SIGSTOP)
        host.kill()
    assert becomes_true(lambda: not marked_processes(mark))
    assert becomes_true(lambda: not Path(f"/proc/{pid}").exists())


MEMORY = """
import asyncio, resource
from wick.backends.daemon_client import get_host_daemon

async def main():
    daemon = await get_host_daemon()
    await daemon.run("echo warm", on_output=lambda *_: None)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = 0
    def take(name, data):
        nonlocal size
        size += len(data)
    done = await daemon.run("head -c BIG /dev/zero | tr '\\\\0' x", on_output=take, timeout=100)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(size, done["stdout_bytes"], (after - before) * 1024)

asyncio.run(main())
"""


def test_much_output_takes_little_memory_here_too() -> None:
    command = [sys.executable, "-c", MEMORY.replace("BIG", str(BIG))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=True)
    size, told, grown = map(int, done.stdout.split())
    assert size == told == BIG
    assert grown < 64_000_000


# -- jobs -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unhurried")
async def test_a_job_is_listed_read_and_ended() -> None:
    mark, daemon = uuid4().hex, await get_host_daemon()
    script = "for i in 1 2 3; do echo line $i; done; setsid sleep 100 & sleep 100"
    job = await daemon.job(script, label="my job", env=marked_environment(mark))
    assert job["running"] and job["exit_code"] == -1 and job["command"] == "my job"
    assert job in await daemon.jobs()
    output = await daemon.job_output(job["id"])
    while output["next_offset"] < 21:
        output = await daemon.job_output(job["id"])
    assert output["output"] == "line 1\nline 2\nline 3\n"
    assert (await daemon.job_output(job["id"], offset=14))["output"] == "line 3\n"
    ended = await daemon.end_job(job["id"])
    assert not ended["running"] and not marked_processes(mark)
    assert await daemon.end_job(job["id"]) == ended
    assert not (await daemon.job_output(job["id"]))["running"]


@pytest.mark.usefixtures("unhurried")
async def test_a_job_that_ends_by_itself_takes_its_children_along() -> None:
    mark, daemon = uuid4().hex, await get_host_daemon()
    job = await daemon.job("setsid sleep 100 & exit 7", env=marked_environment(mark))
    while job["running"]:
        (job,) = (one for one in await daemon.jobs() if one["id"] == job["id"])
    assert job["exit_code"] == 7 and not marked_processes(mark)


async def test_an_invalid_job_is_an_error() -> None:
    daemon = await get_host_daemon()
    before = await daemon.jobs()
    for start in ({"argv": ["no-such-program"]}, {"cmd": "true", "workdir": "/no/such"}):
        with pytest.raises(BackendError) as caught:
            await daemon.job(**start)  # type: ignore[arg-type]
        assert caught.value.code == "failed"
    with pytest.raises(BackendError) as caught:
        await daemon.job_output("job-99")
    assert caught.value.code == "not_found"
    assert await daemon.jobs() == before


async def test_a_job_cancelled_at_start_is_removed() -> None:
    mark, daemon = uuid4().hex, await get_host_daemon()
    for moment in (0, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01):
        task = asyncio.create_task(daemon.job("sleep 100; true", env=marked_environment(mark)))
        await asyncio.sleep(moment)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            await daemon.end_job(task.result()["id"])
    assert await soon(lambda: not marked_processes(mark))


# -- terminals ------------------------------------------------------------------------------------------------------


async def _until(read: Callable[[], Awaitable[bytes]], wanted: bytes) -> bytes:
    seen = b""
    async with asyncio.timeout(60):
        while wanted not in seen:
            piece = await read()
            assert piece, f"it ended after {seen!r}"
            seen += piece
    return seen


@pytest.mark.usefixtures("unhurried")
async def test_a_terminal_is_typed_into_resized_and_closed() -> None:
    mark, daemon = uuid4().hex, await get_host_daemon()
    terminal = await daemon.terminal(argv=["sh"], rows=30, columns=100, env={**marked_environment(mark), "PS1": "> "})
    await _until(terminal.read, b"> ")
    await terminal.write(b"stty size; tty\n")
    assert b"/dev/pts/" in await _until(terminal.read, b"/dev/pts/")
    await terminal.write(b"trap 'echo now $(stty size)' WINCH; echo ar''med\n")
    await _until(terminal.read, b"armed")
    await terminal.resize(50, 132)
    await terminal.write(b"\n")
    await _until(terminal.read, b"now 50 132")
    await terminal.write(b"setsid sleep 100 & sleep 100\n")
    assert await soon(lambda: len(marked_processes(mark)) >= 3)
    await terminal.close()
    assert not marked_processes(mark)
    assert await terminal.read() == b""
    with pytest.raises(BackendError) as caught:
        await terminal.write(b"x")
    assert caught.value.code == "not_running"
    await terminal.close()


async def test_a_terminal_ends_with_its_program() -> None:
    daemon = await get_host_daemon()
    terminal = await daemon.terminal("read x; echo got $x; exit 4")
    await terminal.write(b"it\n")
    seen = b""
    while piece := await terminal.read():
        seen += piece
    assert b"got it\r\n" in seen and terminal.exit_code == 4


async def test_control_c_reaches_the_program() -> None:
    daemon = await get_host_daemon()
    terminal = await daemon.terminal("trap 'echo stopped; exit 9' INT; echo ready; while :; do sleep 0.1; done")
    await _until(terminal.read, b"ready")
    await terminal.write(b"\x03")
    await _until(terminal.read, b"stopped")
    await terminal.close()


async def test_a_terminal_that_cannot_open_is_an_error() -> None:
    daemon = await get_host_daemon()
    with pytest.raises(BackendError, match="there is no program"):
        await daemon.terminal(argv=["no-such-program"])


async def test_an_unread_terminal_blocks_only_itself() -> None:
    daemon = await get_host_daemon()
    terminal = await daemon.terminal("yes")
    await asyncio.sleep(0.5)
    assert (await daemon.run("echo on"))["stdout"] == "on\n"
    size = 0
    while size < 2_000_000:
        size += len(await terminal.read())
    await terminal.close()


async def test_a_long_paste_arrives_whole() -> None:
    daemon = await get_host_daemon()
    terminal = await daemon.terminal("stty raw -echo; echo ready; sleep 0.3; head -c 3000000 | cksum")
    await _until(terminal.read, b"ready")
    await terminal.write(b"x" * 3_000_000)
    expected = (await daemon.run("cksum", stdin=b"x" * 3_000_000))["stdout"].split()[0]
    assert expected.encode() in await _until(terminal.read, b"3000000")
    await terminal.close()


async def test_a_terminal_dies_with_wickd() -> None:
    daemon = await get_host_daemon()
    terminal = await daemon.terminal("echo ready; sleep 100; true")
    await _until(terminal.read, b"ready\r\n")
    kill((await daemon.ping())["pid"])
    assert await terminal.read() == b""
    with pytest.raises(DaemonLost):
        await terminal.resize(10, 10)


# -- files ----------------------------------------------------------------------------------------------------------


async def test_files(tmp_path: Path) -> None:
    daemon, root = await get_host_daemon(), str(tmp_path)
    assert (await daemon.file("write", root, path="a.bin", content=b"\xff\x00"))["bytes_written"] == 2
    assert (await daemon.file("read", root, path="a.bin"))["encoding"] == "base64"
    assert (await daemon.file("glob", root, pattern="*.bin"))["files"] == ["a.bin"]
    for args, code in (({"path": "no"}, "not_found"), ({"path": "../x"}, "escapes"), ({"luck": 1}, "invalid")):
        with pytest.raises(BackendError) as caught:
            await daemon.file("read", root, **args)
        assert caught.value.code == code
    with pytest.raises(BackendError) as caught:
        await daemon.file("write", root, ["a.*"], path="a.bin", content="x")
    assert caught.value.code == "protected"
    with pytest.raises(BackendError, match="there is no operation"):
        await daemon.file("dance", root)


async def test_a_request_that_is_too_large_is_not_sent() -> None:
    daemon = await get_host_daemon()
    with pytest.raises(BackendError) as caught:
        await daemon.run("cat", stdin=b"x" * constants.WIRE_LINE_BYTES)
    assert caught.value.code == "too_large"
    assert (await daemon.run("echo on"))["stdout"] == "on\n"


async def test_a_refusal_of_wickd_is_an_error() -> None:
    daemon = await get_host_daemon()
    for wrong in ({"cmd": ""}, {"cmd": "true", "limits": {"luck": 1}}, {"cmd": "true", "timeout": -1}, {"cmd": "a\0b"}):
        with pytest.raises(BackendError) as caught:
            await daemon.run(**wrong)  # type: ignore[arg-type]
        assert caught.value.code == "invalid"


# -- a wickd that lies ----------------------------------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "stdout": "",
    "stderr": "",
    "exit_code": 0,
    "error": "",
    "truncated": False,
    "stdout_bytes": 0,
    "stderr_bytes": 0,
    "seconds": 0.1,
}


async def _liar(answer: Callable[[dict[str, Any]], bytes]) -> tuple[asyncio.Server, Daemon]:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            reply = answer(json.loads(line))
            if reply == b"hang up":
                break
            writer.write(reply)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, limit=10_000_000)
    port = server.sockets[0].getsockname()[1]
    _, daemon = await asyncio.get_running_loop().create_connection(Daemon, "127.0.0.1", port)
    return server, daemon


async def _against(answer: Callable[[dict[str, Any]], bytes], **options: Any) -> Any:
    server, daemon = await _liar(answer)
    try:
        return await daemon.run("true", timeout=60, **options)
    finally:
        await daemon.close()
        server.close()
        await server.wait_closed()


def _reply(**fields: Any) -> Callable[[dict[str, Any]], bytes]:
    return lambda request: json.dumps({"id": request["id"], **GOOD, **fields}).encode() + b"\n"


@pytest.mark.parametrize(
    "fields",
    [
        *({"stdout": 5}, {"stderr": None}, {"exit_code": "0"}, {"exit_code": True}, {"truncated": 1}),
        *({"seconds": "long"}, {"stdout_bytes": 1.5}, {"error": []}, {"code": 5}, {"code": "x", "error": None}),
    ],
)
async def test_a_reply_of_the_wrong_shape_is_an_error(fields: dict[str, Any]) -> None:
    with pytest.raises(BackendError, match="invalid reply from wickd to .*"):
        await _against(_reply(**fields))


@pytest.mark.parametrize(
    "said",
    [b"nonsense\n", b"[]\n", b"7\n", b"{}\n", b'{"id": []}\n', b"\xff\n", b"[" * 5_000 + b"\n", b"hang up"],
)
async def test_nonsense_ends_the_connection(said: bytes) -> None:
    with pytest.raises(DaemonLost) as caught:
        await _against(lambda request: said)
    assert caught.value.began


async def test_unsolicited_replies_are_ignored() -> None:
    def answer(request: dict[str, Any]) -> bytes:
        return b'{"id":"stranger","stdout":"x"}\n{"id":"other","chunk":1}\n' + _reply(stdout="mine")(request)

    assert (await _against(answer))["stdout"] == "mine"


@pytest.mark.parametrize(
    "chunk", [{"chunk": "stdout"}, {"chunk": "secret", "data": ""}, {"chunk": "stdout", "data": "#"}]
)
async def test_an_invalid_output_ends_the_connection(chunk: dict[str, Any]) -> None:
    with pytest.raises(DaemonLost):
        await _against(
            lambda request: json.dumps({"id": request["id"], **chunk}).encode() + b"\n", on_output=lambda *_: None
        )


async def test_a_line_without_end_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "WIRE_LINE_BYTES", 100_000)
    with pytest.raises(DaemonLost, match="more than 100000 bytes"):
        await _against(lambda request: b"x" * 200_000)


async def test_one_that_does_not_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DAEMON_GRACE_SECONDS", 0.2)
    server, daemon = await _liar(lambda request: b"")
    with pytest.raises(DaemonLost, match="did not answer") as caught:
        await daemon.run("true", timeout=0.1)
    assert caught.value.began and not daemon.alive
    await daemon.close()
    server.close()
    await server.wait_closed()


async def test_one_that_does_not_read_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DAEMON_ANSWER_SECONDS", 0.3)
    ours, theirs = socket.socketpair()
    with theirs:
        _, daemon = await asyncio.get_running_loop().create_unix_connection(Daemon, sock=ours)
        first = asyncio.create_task(daemon.run("cat", stdin=b"x" * 5_000_000))
        await asyncio.sleep(0.05)
        with pytest.raises(DaemonLost, match="did not read") as caught:
            await daemon.run("true")
        assert not caught.value.began
        with pytest.raises(DaemonLost) as caught:
            await first
        assert caught.value.began
        await daemon.close()


async def test_a_daemon_that_does_not_end_cancelled_commands_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DAEMON_GRACE_SECONDS", 0.2)
    server, daemon = await _liar(lambda request: b"")
    task = asyncio.create_task(daemon.run("true"))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not daemon.alive
    await daemon.close()
    server.close()
    await server.wait_closed()


async def test_one_that_sends_too_much_of_a_terminal_is_left() -> None:
    def answer(request: dict[str, Any]) -> bytes:
        chunk = json.dumps({"id": request["id"], "chunk": "output", "data": "eHh4" * 100_000}).encode() + b"\n"
        return json.dumps({"id": request["id"], "result": {}}).encode() + b"\n" + chunk * 8

    server, daemon = await _liar(answer)
    terminal = await daemon.terminal("sh")
    assert await soon(lambda: not daemon.alive)
    assert await terminal.read()
    assert await terminal.read() == b""
    server.close()
    await server.wait_closed()


async def test_a_daemon_without_connection_reports_it() -> None:
    daemon = Daemon(name="nobody")
    assert not daemon.alive
    with pytest.raises(DaemonLost) as caught:
        await daemon.run("true")
    assert not caught.value.began
    await daemon.close()
