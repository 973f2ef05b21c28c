"""A folder of this machine as a workspace: which sandbox it has, and commands, jobs and terminals in it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from local_sandbox import (
    PYTHON,
    Make,
    assert_refused,
    command_lines,
    control_groups,
    fill_folder,
    folder,
    is_running,
    local,
    needs_bubblewrap,
    run_successfully,
    wait_until_ended,
)
from wick import constants
from wick.backends.local import Local
from wick.backends.sandbox import landlock, selection
from wick.backends.sandbox.base import SandboxUnavailable
from wick.errors import ConfigError
from wick.protocols import Backend

RESOLVERS = Path("/etc/resolv.conf").read_text()

pytestmark = needs_bubblewrap
__all__ = ["folder", "local"]  # fixtures


# -- making one -----------------------------------------------------------------------------------------------------


async def test_a_backend_is_one(local: Make, folder: Path) -> None:
    backend: Backend = local(path=folder / "not" / "there")
    assert (folder / "not" / "there").is_dir()
    assert backend.name == "local" and backend.workdir == str(folder / "not" / "there")


async def test_the_backend_starts_lazily(local: Make) -> None:
    backend = local()
    assert backend.status.state == "idle"
    await backend.ls()
    assert backend.status.state == "launched"
    await backend.stop()
    await backend.stop()
    assert backend.status.state == "idle"
    await backend.start()
    await backend.start()
    assert backend.status.state == "launched"
    assert await run_successfully(backend, "echo again") == "again\n"


@pytest.mark.parametrize("path", ["/", "/usr", "/etc", "/tmp", "/proc", "/home", "~", "~/.."])
def test_a_folder_of_the_system_is_no_workspace(path: str) -> None:
    with pytest.raises(ConfigError, match="give a folder inside it"):
        Local(path)


def test_a_file_is_no_workspace(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be made"):
        Local(tmp_path / "file")
    with pytest.raises(ConfigError, match="cannot be made"):
        Local(tmp_path / "file" / "below")


@pytest.mark.parametrize(
    "limits, sentence",
    [({"ram": 5}, "no limit 'ram'; there are memory, pids"), ({"memory": 0}, "above 0"), ({"pids": -1}, "above 0")],
)
def test_wrong_limits_are_refused(folder: Path, limits: dict[str, float], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Local(folder, limits=limits)


@pytest.mark.parametrize("timeout", [0, -5, float("nan"), float("inf"), 86_401])
async def test_wrong_time_limits_are_refused(local: Make, timeout: float) -> None:
    with pytest.raises(ConfigError, match="at most a day"):
        local(timeout=timeout)
    await assert_refused("invalid", local().execute("true", timeout=timeout))


@pytest.mark.parametrize(
    "name", ["with space", 'it\'s "quoted"', "new\nline", "back\\slash", "%fd0%", "übung", "-rf", "$HOME"]
)
async def test_a_workspace_may_have_an_odd_name(local: Make, folder: Path, name: str) -> None:
    backend = local(path=folder / name)
    assert await run_successfully(backend, "pwd; mkdir 'in side'; echo x > 'in side/f'") == f"{folder / name}\n"
    assert await run_successfully(backend, "pwd; cat f", workdir="in side") == f"{folder / name}/in side\nx\n"


async def test_a_link_to_a_workspace_is_resolved_once(local: Make, folder: Path, tmp_path: Path) -> None:
    fill_folder(folder, {"here": ""})
    fill_folder(tmp_path / "other", {"there": ""})
    (tmp_path / "link").symlink_to(folder)
    backend = local(path=tmp_path / "link")
    assert backend.workdir == str(folder)
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(tmp_path / "other")
    assert await run_successfully(backend, "ls") == "here\n"


# -- which sandbox --------------------------------------------------------------------------------------------------


async def test_the_strongest_sandbox_is_chosen_and_described(local: Make) -> None:
    protection = local(sandbox="auto").protection
    assert (protection.level, protection.by, protection.asks) == ("strong", "bubblewrap", False)
    assert "no network" in protection.says and "no files but the workspace" in protection.says
    assert "memory 2 GB" in protection.says and "512 processes" in protection.says
    assert "the host's network" in local(network=True).protection.says


async def test_without_any_sandbox_every_command_asks(local: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_there() -> Any:
        raise SandboxUnavailable("it is not installed; install it")

    monkeypatch.setattr(selection, "SANDBOXES", dict.fromkeys(selection.SANDBOXES, not_there))
    backend = local(sandbox="auto")
    assert (backend.protection.level, backend.protection.asks) == ("none", True)
    assert "install it" in backend.protection.says
    assert "echo hi" in await assert_refused("needs_approval", backend.execute("echo hi"))
    await assert_refused("needs_approval", backend.background("echo hi"))
    await assert_refused("needs_approval", backend.terminal())
    assert await run_successfully(backend, "echo hi", approved=True) == "hi\n"
    with pytest.raises(ConfigError, match="install it"):
        local(sandbox="bubblewrap")
    with pytest.raises(ConfigError, match="no sandbox 'jail'; give one of auto"):
        local(sandbox="jail")


async def test_an_operator_can_do_without(local: Make, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WICK_PLANTED", "secret")
    backend = local(sandbox="none")
    assert (backend.protection.level, backend.protection.asks) == ("none", False)
    assert await run_successfully(backend, "pwd; echo $WICK_PLANTED") == f"{folder}\n\n"
    assert (await backend.execute("kill -9 $$"))["exit_code"] == 137


async def test_landlock_confines_files_and_calls_itself_weak(local: Make, tmp_path: Path) -> None:
    version = landlock.find_landlock().version
    (tmp_path / "beside").write_text("secret")
    backend = local(sandbox="landlock")
    assert backend.protection.level == "weak" and "see other processes" in backend.protection.says
    assert (
        await run_successfully(
            backend, "echo x > f; cat f; echo y > $TMPDIR/t; cat $TMPDIR/t; cat /dev/null; ls /usr >/dev/null"
        )
        == "x\ny\n"
    )
    new = f"touch /tmp/{uuid4().hex}"
    (Path.home() / ".bashrc").touch()
    for command in ("cat ../beside", "ls ..", "touch ../new", f"cat {Path.home()}/.bashrc", "ls /etc", new):
        result = await backend.execute(command)
        refused = "denied" in result["stderr"] or "Read-only file system" in result["stderr"]  # by rules, or by mounts
        assert result["exit_code"] != 0 and refused, (version, result)
    scratch = (await run_successfully(backend, "echo $TMPDIR")).strip()
    await backend.stop()
    assert not is_running(scratch)


async def test_landlock_confines_root_and_protected_paths(
    local: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = local(sandbox="landlock")
    assert set((await run_successfully(backend, "grep -E 'Cap(Eff|Bnd)' /proc/self/status")).split()[1::2]) == {
        "0" * 16
    }
    for command in (
        "mknod disk b 254 0 && cat disk",
        f"cat /proc/{os.getpid()}/environ",
        f"ls /proc/{os.getpid()}/root/",
    ):
        assert (await backend.execute(command))["exit_code"] != 0, command
    monkeypatch.setattr(landlock.shutil, "which", lambda *_, **__: None)
    if os.getuid() == 0:
        with pytest.raises(ConfigError, match="does not hold root"):
            local(sandbox="landlock")


async def test_landlock_blocks_the_network(local: Make) -> None:
    if landlock.find_landlock().version < landlock.TCP:
        pytest.skip("this kernel's Landlock knows no network: use Linux 6.7 or newer")
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    connect = f"{PYTHON} -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}))'"
    assert "PermissionError" in (await local(sandbox="landlock").execute(connect))["stderr"]
    assert (await local(sandbox="landlock", network=True).execute(connect))["exit_code"] == 0
    server.close()


# -- commands -------------------------------------------------------------------------------------------------------


async def test_a_command_sees_a_plain_small_world(local: Make, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WICK_PLANTED", "secret")
    backend = local(env={"COLOR": "blue"})
    assert (
        await run_successfully(backend, "id -un; id -u; hostname; pwd; echo $HOME $COLOR")
        == f"wick\n1000\nwick\n{folder}\n/tmp blue\n"
    )
    found = dict(line.split("=", 1) for line in (await run_successfully(backend, "env")).splitlines())
    assert found.keys() == {"PATH", "HOME", "TMPDIR", "LANG", "USER", "SHELL", "COLOR", "PWD"}
    assert await run_successfully(backend, "echo $COLOR $SIZE", env={"COLOR": "red", "SIZE": "a b"}) == "red a b\n"
    above = folder.relative_to("/tmp").parts[0]  # of the workspace, which is there to be seen
    assert await run_successfully(backend, f"echo x > /tmp/f; ls -A /tmp | grep -vx {above}") == "f\n"
    assert await run_successfully(backend, f"ls -A /tmp | grep -vx {above} || true") == ""


async def test_the_environment_never_reaches_bubblewrap_itself(local: Make, folder: Path) -> None:
    """LD_PRELOAD would run code outside, where bubblewrap still is."""
    result = await local().execute("echo hi", env={"LD_PRELOAD": "/nowhere.so", "SECRET": "in-the-list"})
    assert result["stdout"] == "hi\n" and result["stderr"].count("/nowhere.so") == 1, (
        result
    )  # sh complains, bwrap does not
    job = await local().background("sleep 60")
    assert "bwrap" in command_lines() and "in-the-list" not in command_lines()
    assert job["running"]


@pytest.mark.parametrize("env", [{"": "x"}, {"A=B": "x"}, {"A": "x\0y"}, {"A": "\ud800"}])
async def test_invalid_environment_values_are_refused(local: Make, env: dict[str, str]) -> None:
    await assert_refused("invalid", local().execute("true", env=env))
    with pytest.raises(ConfigError, match="none can have"):
        local(env=env)


@pytest.mark.parametrize("command", ["", "  \n", "echo \0"])
async def test_invalid_commands_are_refused(local: Make, command: str) -> None:
    await assert_refused("invalid", local().execute(command))


@pytest.mark.parametrize(
    "workdir, code",
    [
        ("..", "escapes"),
        ("/", "escapes"),
        ("a/../..", "escapes"),
        ("gone", "not_found"),
        ("file", "not_directory"),
        ("out", "escapes"),
        ("loop", "loop"),
    ],
)
async def test_a_working_directory_is_in_the_workspace(local: Make, folder: Path, workdir: str, code: str) -> None:
    fill_folder(folder, {"file": "", "a/f": ""})
    (folder / "out").symlink_to("/etc")
    (folder / "loop").symlink_to("loop")
    (folder / "in").symlink_to("a")
    await assert_refused(code, local().execute("pwd", workdir=workdir))
    assert (
        await run_successfully(local(), "pwd", workdir="in")
        == await run_successfully(local(), "pwd", workdir=f"{folder}/a/../a")
        == f"{folder}/a\n"
    )


async def test_a_command_is_passed_verbatim(local: Make) -> None:
    odd = "$HOME \\ ' \" ` ; & | ü \udcff"
    assert (await run_successfully(local(), "cat <<'END'\n" + odd + "\nEND")).rstrip() == odd.replace(
        "\udcff", "\ufffd"
    )


@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock", "none"])
async def test_a_signal_is_named(local: Make, sandbox: str) -> None:
    result = await local(sandbox=sandbox).execute("kill -SEGV $$")
    assert result["exit_code"] == 139 and "SIGSEGV" in result["error"], result
    assert (await local(sandbox=sandbox).execute("exit 130"))["error"] == ""


if os.uname().machine == "x86_64":  # the others have no such way

    async def test_calls_of_another_architecture_end_the_command(local: Make) -> None:
        """A 32-bit program's way into the kernel, where the filter of this machine would not be asked."""
        code = bytes.fromhex("b814000000cd80c3")  # mov eax, 20 (getpid of i386); int 0x80; ret
        program = (
            "import ctypes, mmap; page = mmap.mmap(-1, 4096, prot=7); page.write(bytes.fromhex('" + code.hex() + "'));"
            "ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()"
        )
        result = await local().execute(f'exec {PYTHON} -c "{program}"')
        assert result["exit_code"] == 159 and "SIGSYS" in result["error"], result


async def test_the_network_is_available_on_request(local: Make) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    connect = f"{PYTHON} -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}))'"
    assert (await local().execute(connect))["exit_code"] == 1
    assert (await local(network=True).execute(connect))["exit_code"] == 0
    assert await run_successfully(local(network=True), "cat /etc/resolv.conf") == RESOLVERS
    server.close()


async def test_folders_outside_can_be_made_readable(local: Make, tmp_path: Path) -> None:
    fill_folder(tmp_path / "tools", {"a.txt": "tool"})
    backend = local(readable=[tmp_path / "tools"])
    assert await run_successfully(backend, f"cat {tmp_path}/tools/a.txt") == "tool"
    assert (await backend.execute(f"touch {tmp_path}/tools/new"))["exit_code"] == 1


async def test_cancelling_kills_a_command_and_its_children(local: Make, folder: Path) -> None:
    backend = local()
    running = asyncio.create_task(backend.execute("(setsid sleep 31.7 &) ; touch began; trap '' TERM; sleep 31.7"))
    while not (folder / "began").exists():
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await wait_until_ended("sleep 31.7")
    assert not control_groups()


async def test_stopping_kills_running_commands(local: Make, folder: Path) -> None:
    backend = local()
    running = asyncio.create_task(backend.execute("touch began; sleep 32.7"))
    job = await backend.background("sleep 32.7")
    terminal = await backend.terminal()
    await terminal.write(b"sleep 32.7\n")
    while not (folder / "began").exists():
        await asyncio.sleep(0.01)
    await backend.stop()
    assert "stopped" in await assert_refused("not_running", running)
    assert await backend.jobs() == [] and job["running"]
    await wait_until_ended("sleep 32.7")
    assert not control_groups()


HOSTILE = [
    "setsid sleep 38.7 & exit 0",
    "(setsid sh -c 'trap \"\" TERM HUP INT; sleep 38.7' &) & exit 3",
    f'{PYTHON} -c \'import os; os.fork() or os.setsid() or os.fork() or os.execvp("sleep", ["sleep", "38.7"])\'',
    "sleep 38.7 & kill -STOP $!; exit 0",
    "kill -9 -1",
    "kill -STOP 1; kill -9 1; exit 0",
    "exec >&- 2>&- <&-; sleep 38.7 &",
    "sleep 38.7 | sleep 38.7 & kill -STOP $$",
]


ROUNDS = 320 if os.environ.get("WICK_FULL") else 1


@pytest.mark.timeout(120 * ROUNDS)
async def test_hostile_commands_leave_nothing(local: Make) -> None:
    backend = local()
    for _ in range(ROUNDS):
        results = await asyncio.gather(*(backend.execute(command, timeout=2) for command in HOSTILE * 2))
        assert all(result["seconds"] < 40 for result in results)
        await wait_until_ended("38.7")
        assert not control_groups()
    assert await run_successfully(backend, "echo fine") == "fine\n"


KILLED = """
import asyncio, sys
from wick.backends.local import Local

async def main():
    backend = Local(sys.argv[1])
    await backend.background("setsid sleep 39.7 & sleep 39.7")
    await backend.execute("touch began; setsid sleep 39.7 & sleep 39.7")

asyncio.run(main())
"""


async def test_nothing_is_left_when_wick_is_killed(folder: Path) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, str(folder))
    while not (folder / "began").exists():
        await asyncio.sleep(0.01)
    process.kill()
    await process.wait()
    await wait_until_ended("39.7")


async def test_commands_in_a_deleted_workspace_are_refused(local: Make, folder: Path) -> None:
    backend = local()
    assert await run_successfully(backend, "echo here") == "here\n"
    os.rename(folder, f"{folder}-elsewhere")
    assert "not there any more" in await assert_refused("not_running", backend.execute("echo here"))
    os.symlink("/etc", folder)
    await assert_refused("not_running", backend.background("cat passwd"))
    assert not control_groups()


async def test_old_jobs_are_forgotten(local: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "JOBS_KEPT", 2)
    backend = local()
    for number in range(5):
        job = await backend.background(f"echo {number}")
        await backend.end_job(job["id"])
    assert [job["id"] for job in await backend.jobs()] == ["job-3", "job-4", "job-5"]


def test_several_event_loops_one_after_another(folder: Path) -> None:
    backend = Local(folder, sandbox="bubblewrap")

    async def run() -> str:
        await backend.background("sleep 33.7")
        return await run_successfully(backend, "echo x >> f; cat f")

    assert asyncio.run(run()) == "x\n"
    assert asyncio.run(run()) == "x\nx\n"

    async def look() -> list[bool]:
        found = [job["running"] for job in await backend.jobs()]
        await backend.stop()
        return found

    assert asyncio.run(look()) == [False, False]
    asyncio.run(wait_until_ended("sleep 33.7"))


async def test_many_commands_at_once(local: Make, folder: Path) -> None:
    fill_folder(folder, {".env": "x", ".git/config": "", ".git/hooks/pre-commit": ""})
    backend = local()
    results = await asyncio.gather(
        *(run_successfully(backend, f"echo {number} | tee {number}") for number in range(20))
    )
    assert results == [f"{number}\n" for number in range(20)]
    assert not control_groups()


# -- jobs and terminals ---------------------------------------------------------------------------------------------


async def test_a_job_runs_in_the_sandbox_and_is_listed(local: Make, folder: Path) -> None:
    backend, other = local(), local()
    job = await backend.background("id -un; touch .env; while [ ! -e go ]; do sleep 0.01; done; exit 3", workdir=".")
    assert job["running"] and job["command"].startswith("id -un") and job["exit_code"] == -1
    assert [one["id"] for one in await backend.jobs()] == [job["id"]] and await other.jobs() == []
    (folder / "go").touch()
    ended = job
    while ended["running"]:
        (ended,) = await backend.jobs()
    assert (ended["exit_code"], ended["id"]) == (3, job["id"])
    assert ".env" in ended["error"] and "moved aside" in ended["error"] and (folder / "env.moved-1").exists()
    assert (await backend.job_output(job["id"]))["output"] == "wick\n"
    assert (await backend.end_job(job["id"]))["exit_code"] == 3
    assert not control_groups()
    assert job["id"] in await assert_refused("not_found", backend.job_output("job-99"))
    await assert_refused("not_found", other.end_job(job["id"]))


async def test_a_job_can_be_ended(local: Make) -> None:
    backend = local()
    job = await backend.background("trap '' TERM; sleep 34.7 & wait; sleep 34.7")
    ended = await backend.end_job(job["id"])
    assert not ended["running"] and ended["exit_code"] != 0
    await wait_until_ended("sleep 34.7")
    assert not control_groups()


async def test_a_terminal_is_in_the_sandbox(local: Make, folder: Path) -> None:
    backend = local()
    terminal = await backend.terminal(rows=33, columns=111)
    await terminal.write(b"echo $((40+2)); id -un; stty size; ls -d /root /home; tty; jobs; touch .envrc\n")
    shown = b""
    while b"33 111" not in shown or b"wick" not in shown or b"42" not in shown:
        shown += await asyncio.wait_for(terminal.read(), 60)
    await terminal.resize(20, 80)
    await terminal.write(b"clear; stty size; exit\n")
    while data := await asyncio.wait_for(terminal.read(), 60):
        shown += data
    assert b"20 80" in shown and b"/root\r\n" not in shown and b"no job control" not in shown, shown
    assert terminal.moved == [".envrc"] and (folder / ".envrc.moved-1").exists()
    await terminal.close()
    assert not control_groups()


async def test_a_command_during_release_of_the_workspace_is_refused(local: Make) -> None:
    backend = local()
    await backend.start()
    (await backend._ensure_workspace()).tree.close()
    assert "not there any more" in await assert_refused("not_running", backend.execute("echo here"))
