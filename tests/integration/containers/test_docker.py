"""A workspace in a real container: lifecycle, confinement, its daemon, and commands without one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import engines
import images
from faults.hostile_containers import Container
from faults.tally import FULL
from kit import tool_calls_reply
from wick import Agent, Scripted, ToolCall, constants
from wick.backends.containers import socket_folder
from wick.backends.containers.seccomp_profile import profile
from wick.backends.docker import Docker, reap
from wick.capabilities.filesystem import Filesystem
from wick.cli.checks import doctor
from wick.errors import BackendError, ConfigError
from wick.wickd import zipapp

Make = Callable[..., Docker]


@pytest.fixture
def server() -> str:
    """The label of everything a test makes."""
    return f"test-{uuid4().hex[:12]}"


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that had no processor for some seconds is not one that does not answer."""
    monkeypatch.setattr(constants, "DAEMON_SECONDS", 60.0)
    monkeypatch.setattr(constants, "DAEMON_GRACE_SECONDS", 60.0)


@pytest.fixture
async def make(server: str) -> AsyncIterator[Make]:
    made = list[Docker]()

    def docker(image: str = "python", **options: Any) -> Docker:
        here = engines.find_engine()
        made.append(Docker(here.image(image), **{"engine": here.url, "server": server, **options}))
        return made[-1]

    yield docker
    for one in made:
        await one.stop()
    engines.find_engine().remove(f"wick.server={server}")


def containers(server: str) -> list[dict[str, Any]]:
    return engines.find_engine().containers(f"wick.server={server}")


async def out(backend: Docker, command: str, **options: Any) -> str:
    done = await backend.execute(command, **options)
    return done["stdout"].strip()


# -- its life -------------------------------------------------------------------------------------------------------


async def test_a_container_lives_from_its_first_use_to_its_stop(make: Make, server: str) -> None:
    backend = make()
    assert (backend.status.state, containers(server)) == ("idle", [])
    assert await out(backend, "echo hi") == "hi"
    assert (backend.status.state, len(containers(server))) == ("launched", 1)
    assert containers(server)[0]["Names"] == [f"/wick-{backend.id}"]
    await backend.stop()
    assert (backend.status.state, containers(server)) == ("idle", [])
    await backend.stop()
    assert await out(backend, "echo again") == "again"


async def test_starts_at_once_make_one_container(make: Make, server: str) -> None:
    backend = make()
    await asyncio.gather(*(backend.start() for _ in range(10)))
    assert len(containers(server)) == 1
    twins = [make(id=f"shared-by-two-{server}") for _ in range(4)]
    await asyncio.gather(*(twin.start() for twin in twins))
    assert len(containers(server)) == 2
    assert await asyncio.gather(*(out(twin, "echo $HOME") for twin in twins)) == ["/tmp"] * 4


async def test_a_container_is_found_again_by_its_id(make: Make, server: str) -> None:
    first = make(id=f"kept-{server}", owner="ada")
    await first.write("note.txt", "still here")
    second = make(id=f"kept-{server}", owner="ada")
    assert (await second.read("note.txt"))["content"] == "still here"
    assert len(containers(server)) == 1


async def test_containers_of_other_owners_are_not_touched(make: Make, server: str) -> None:
    first = make(id=f"hers-{server}", owner="ada")
    await first.start()
    stranger = make(id=f"hers-{server}", owner="eve")
    with pytest.raises(BackendError, match="belongs to another owner") as caught:
        await stranger.start()
    assert caught.value.code == "denied"
    await stranger.stop()
    await first.execute("true")
    assert len(containers(server)) == 1


async def test_a_container_with_another_config_is_replaced(make: Make, server: str) -> None:
    await make(id=f"changed-{server}").start()
    before = containers(server)[0]["Id"]
    backend = make(id=f"changed-{server}", env={"COLOUR": "blue"})
    assert await out(backend, "echo $COLOUR") == "blue"
    assert [one["Id"] for one in containers(server)] != [before]
    assert len(containers(server)) == 1


async def test_a_half_created_container_is_recreated(make: Make, server: str) -> None:
    here = engines.find_engine()
    labels = {"wick.id": f"half-{server}", "wick.owner": "", "wick.server": server}
    body = {"Image": here.image("python"), "Cmd": ["true"], "Labels": labels}
    here.ask("POST", f"/containers/create?name=wick-half-{server}", body)
    assert await out(make(id=f"half-{server}"), "echo whole") == "whole"


async def test_a_stopped_container_is_started_again(make: Make, server: str) -> None:
    backend = make(id=f"stopped-{server}")
    await backend.write("a.txt", "a")
    engines.find_engine().ask("POST", f"/containers/wick-{backend.id}/stop?t=0")
    again = make(id=f"stopped-{server}")
    assert (await again.read("a.txt"))["content"] == "a"
    assert await out(backend, "cat a.txt") == "a"


async def test_a_container_whose_image_was_removed_continues(make: Make, server: str) -> None:
    here, name = engines.find_engine(), f"wick-test:{server}"
    here.ask("POST", f"/images/{here.image('plain')}/tag?repo=wick-test&tag={server}")
    backend = Docker(name, engine=here.url, server=server)
    try:
        assert await out(backend, "echo before") == "before"
        here.ask("DELETE", f"/images/{name}?force=true")
        await asyncio.sleep(1.1)  # until it is looked at again
        assert await out(backend, "echo after") == "after"
    finally:
        await backend.stop()


async def test_stop_during_start(make: Make, server: str) -> None:
    backend = make()
    starting = [asyncio.create_task(backend.execute("echo hi")) for _ in range(3)]
    await asyncio.sleep(0.1)
    await backend.stop()
    await asyncio.gather(*starting, return_exceptions=True)
    assert (containers(server), backend.status.state) == ([], "idle")


async def test_restarting_makes_a_new_container(make: Make, server: str) -> None:
    backend = make()
    await backend.write("a.txt", "a")
    before = containers(server)[0]["Id"]
    await backend.restart()
    assert containers(server)[0]["Id"] != before
    assert (await backend.ls())["entries"] == []


async def test_containers_left_by_a_server_are_removed(make: Make, server: str) -> None:
    here = engines.find_engine()
    for id in ("orphan", "known"):
        await make(id=f"{id}-{server}").start()
    other = make(id=f"other-{server}", server=f"{server}-other")
    await other.start()
    gone = await reap(here.url, server=server, keep=[f"known-{server}"])
    assert gone == [f"orphan-{server}"]
    assert [one["Names"] for one in containers(server)] == [[f"/wick-known-{server}"]]
    await other.execute("true")


def test_a_backend_is_used_by_one_loop_after_another(server: str) -> None:
    here = engines.find_engine()
    backend = Docker(here.image("python"), engine=here.url, server=server)

    async def use(text: str) -> str:
        await backend.background("sleep 60")
        return await out(backend, f"echo {text}")

    async def end() -> None:
        await backend.stop()

    assert [asyncio.run(use("one")), asyncio.run(use("two"))] == ["one", "two"]
    assert len(containers(server)) == 1
    asyncio.run(end())
    assert containers(server) == []


async def test_a_private_network_is_removed_with_its_container(make: Make, server: str) -> None:
    backend = make("plain", network="own")
    await backend.start()
    networks = [one["Name"] for one in engines.find_engine().ask("GET", "/networks")]
    assert f"wick-{backend.id}" in networks
    assert list(containers(server)[0]["NetworkSettings"]["Networks"]) == [f"wick-{backend.id}"]
    await backend.stop()
    assert f"wick-{backend.id}" not in [one["Name"] for one in engines.find_engine().ask("GET", "/networks")]


async def test_an_image_that_is_not_there(server: str) -> None:
    backend = Docker("wick-test:nowhere", engine=engines.find_engine().url, server=server)
    with pytest.raises(BackendError, match="pull it with: docker pull wick-test:nowhere") as caught:
        await backend.execute("true")
    assert (caught.value.code, backend.status.state) == ("not_found", "error")
    assert "docker pull" in backend.status.reason
    await backend.stop()


async def test_an_image_that_cannot_be_pulled(server: str) -> None:
    backend = Docker("127.0.0.1:1/nowhere:x", engine=engines.find_engine().url, server=server, pull=True)
    with pytest.raises(BackendError, match="refused"):
        await backend.start()
    await backend.stop()


async def test_no_engine(tmp_path: Path) -> None:
    backend = Docker("any", engine=f"unix://{tmp_path}/none.sock")
    for doing in (backend.execute("true"), backend.ls(), backend.terminal(), backend.background("true")):
        with pytest.raises(BackendError, match="no engine answers.*start Docker") as caught:
            await doing
        assert caught.value.code == "unavailable"
    assert (backend.status.state, await backend.jobs()) == ("error", [])


# -- confinement ----------------------------------------------------------------------------------------------------


async def test_a_container_is_confined(make: Make, server: str) -> None:
    backend = make(limits={"memory": "300m", "pids": 60, "cpus": 0.5})
    assert await out(backend, "id -u; id -g") == "1000\n1000"
    status = await out(backend, "cat /proc/self/status")
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert {lines[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (lines["NoNewPrivs"], lines["Seccomp"]) == ("1", "2")
    assert await out(backend, "cat /proc/net/dev | grep -c :") == "1"  # its loopback
    refused = "touch /x /.wickd/x /.wickd/wickd.pyz 2>&1; chmod u+w /.wickd 2>&1; ls /var/run/docker.sock 2>&1; true"
    assert await out(backend, f"({refused}) | grep -c -e denied -e permitted -e 'No such'") == "5"
    found = engines.find_engine().inspect(containers(server)[0]["Id"])
    host = found["HostConfig"]
    assert (found["Config"]["User"], host["CapDrop"], host["Privileged"]) == ("1000:1000", ["ALL"], False)
    assert host["SecurityOpt"] == ["no-new-privileges", f"seccomp={profile()}"]
    assert (host["NetworkMode"], host["Init"], host["PidMode"], host["IpcMode"]) == ("none", True, "", "private")
    assert (host["Memory"], host["MemorySwap"], host["PidsLimit"]) == (300_000_000, 300_000_000, 60)
    assert host["CpuQuota"] / host["CpuPeriod"] == 0.5
    assert list(host["Tmpfs"]) == ["/tmp"]
    assert "python, not as root" in backend.protection.says
    assert (backend.protection.level, backend.protection.by, backend.protection.asks) == ("strong", "docker", False)


async def test_memory_and_processes_are_limited(make: Make) -> None:
    backend = make(limits={"memory": "100m", "pids": 40})
    eater = "python3 -c 'x = bytearray(400_000_000); print(len(x))'"
    done = await backend.execute(eater, timeout=60)
    assert done["exit_code"] == 137
    bomb = "i=0; while [ $i -lt 100 ]; do sleep 60 & i=$((i+1)); done; echo all"
    done = await backend.execute(bomb, timeout=60)
    assert (done["stdout"], done["exit_code"] == 0) == ("", False)
    assert await out(backend, "echo fine") == "fine"


@pytest.mark.parametrize(("image", "who"), [("plain", "1000:1000"), ("reader", "4242:4343")])
async def test_the_user_is_not_root_and_owns_the_workspace(make: Make, image: str, who: str) -> None:
    backend = make(image, workdir="/srv/deep/place")
    said = await out(backend, "touch new && stat -c %u:%g new . && pwd")
    assert said.split() == [who, who, "/srv/deep/place"]


async def test_a_root_user_with_another_name_is_refused(make: Make) -> None:
    with pytest.raises(BackendError, match="'toor' is root; name another one") as caught:
        await make("toor").start()
    assert caught.value.code == "denied"
    assert await out(make("toor", user="1000"), "id -u") == "1000"


async def test_an_unknown_user_is_refused(make: Make, server: str) -> None:
    with pytest.raises(BackendError, match="no user named 'nobody-here'"):
        await make("plain", user="nobody-here").start()
    assert containers(server) == []


async def test_commands_run_as_root_only_on_request(make: Make) -> None:
    backend = make("plain", user="0")
    said = "0\ntouch: cannot touch '/.wickd/x': Permission denied\nCapEff:\t" + "0" * 16
    assert await out(backend, "id -u; touch /.wickd/x 2>&1; grep CapEff /proc/self/status") == said
    assert "as root inside" in backend.protection.says


async def test_a_read_only_container(make: Make) -> None:
    backend = make(read_only=True)
    await backend.write("a.txt", "a")
    assert backend.uses_daemon
    said = await out(backend, "cat a.txt; touch /x 2>&1; touch /.wickd/x 2>&1; touch /tmp/x && echo tmp")
    assert said.splitlines()[0].startswith("atouch: cannot touch '/x': Read-only file system")
    assert "/.wickd/x': Permission denied" in said and said.endswith("tmp")


async def test_folders_and_volumes(make: Make, server: str, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given").chmod(0o777)
    os.chmod(tmp_path, 0o755)
    (tmp_path / "given" / "a.txt").write_text("a")
    here, volume = engines.find_engine(), f"wick-{server}"
    volumes = {str(tmp_path / "given"): "/workspace", volume: "/kept", str(tmp_path): "/all:ro"}
    try:
        backend = make("plain", volumes=volumes)
        assert await out(backend, "cat a.txt; echo b > b.txt; touch /all/x 2>&1") == (
            "atouch: cannot touch '/all/x': Read-only file system"
        )
        assert (tmp_path / "given" / "b.txt").read_text() == "b\n"
        assert (tmp_path / "given").stat().st_uid == os.getuid()  # a folder of the host stays as it is
        assert str(tmp_path) in backend.protection.says
    finally:
        await backend.stop()
        here.ask("DELETE", f"/volumes/{volume}")


async def test_a_named_volume_persists_the_workspace(make: Make, server: str) -> None:
    volume = f"wick-{server}"
    backend = make("plain", volumes={volume: "/workspace"})
    try:
        await backend.write("a.txt", "a")
        await backend.restart()
        assert (await backend.read("a.txt"))["content"] == "a"
    finally:
        await backend.stop()
        engines.find_engine().ask("DELETE", f"/volumes/{volume}")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"volumes": {"/var/run/docker.sock": "/var/run/docker.sock"}}, "holds an engine's socket"),
        ({"volumes": {"/run/../run/docker.sock": "/s"}}, "holds an engine's socket"),
        ({"volumes": {"/var/run": "/host"}}, "holds an engine's socket"),
        ({"volumes": {"/": "/host"}}, "holds an engine's socket"),
        ({"volumes": {"/run/containerd": "/host"}}, "holds an engine's socket"),
        ({"volumes": {"/run": "/host"}, "engine": "tcp://far:1"}, "holds an engine's socket"),
        ({"volumes": {"here": "relative"}}, "goes to an absolute path"),
        ({"volumes": {"here": "/a:exec"}}, "goes to an absolute path"),
        ({"volumes": {"/tmp/x": "/.wickd"}}, "goes to an absolute path"),
        ({"volumes": {"./x": "/a"}, "engine": "ssh://far"}, "an absolute path there or a name"),
        ({"network": "host"}, "is not confined"),
        ({"network": "container:other"}, "is not confined"),
        ({"workdir": "relative"}, "an absolute path inside"),
        ({"workdir": "/a/../b"}, "an absolute path inside"),
        ({"workdir": "/"}, "choose a folder"),
        ({"workdir": "/tmp/x"}, "choose a folder"),
        ({"limits": {"memory": "lots"}}, "not a size"),
        ({"limits": {"pids": 0}}, "above 0"),
        ({"limits": {"disk": 1}}, "no limit named 'disk'"),
        ({"id": "../up"}, "is not an id"),
        ({"id": "a b"}, "is not an id"),
        ({"image": ""}, "needs the name of an image"),
        ({"image": "--privileged"}, "needs the name of an image"),
        ({"daemon": "smoke"}, "no daemon 'smoke'"),
        ({"daemon": "tcp"}, "needs a network"),
        ({"daemon": "tcp", "engine": "tcp://far:1", "network": "own"}, "an engine on this machine"),
        ({"daemon": "unix", "engine": "ssh://far"}, "an engine on this machine"),
        ({"engine": "somewhere"}, "not the address of an engine"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_a_config_that_cannot_be(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Docker(**{"image": "any", "engine": "unix:///run/any.sock", **options})


def test_a_link_to_the_engines_socket_is_seen_through(tmp_path: Path) -> None:
    engines.find_engine()
    (tmp_path / "innocent").symlink_to("/var/run/docker.sock")
    (tmp_path / "folder").symlink_to("/var/run")
    for name in ("innocent", "folder"):
        with pytest.raises(ConfigError, match="holds an engine's socket"):
            Docker("any", engine="unix:///run/any.sock", volumes={str(tmp_path / name): "/x"})


# -- its daemon -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("image", images.python_images())
async def test_commands_run_through_the_daemon(make: Make, image: str) -> None:
    backend = make(image)
    await backend.start()
    assert backend.uses_daemon
    assert await out(backend, "tr ' ' '\\n' </proc/$PPID/cmdline | tr '\\0' '\\n' | grep -c wickd") != "0"


async def test_the_daemon_is_verified_before_use(make: Make, server: str) -> None:
    """Another file in its place, an older daemon or a foreign one, is replaced and not run."""
    backend = make(id=f"tampered-{server}")
    await backend.write("a.txt", "a")
    other = b"import pathlib; print('wickd', flush=True); pathlib.Path('/workspace/run.txt').write_text('')"
    put = images.build_tar({".wickd/wickd.pyz": other})
    engines.find_engine().ask("PUT", f"/containers/wick-{backend.id}/archive?path=/", put)
    again = make(id=f"tampered-{server}")
    assert await out(again, "ls; sha256sum /.wickd/wickd.pyz") == f"a.txt\n{zipapp.compute_digest()}  /.wickd/wickd.pyz"
    assert again.uses_daemon
    assert backend.uses_daemon  # the checked content is executed, even if the file changed


async def test_a_daemon_that_cannot_be_put_right(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run all the same, and the reason is reported."""
    backend = make()
    monkeypatch.setattr("wick.constants.DAEMON_PAUSE_SECONDS", 0.5)
    with monkeypatch.context() as wrong:
        wrong.setattr("wick.backends.containers.daemon_launch.FILE", "/etc/passwd")
        assert await out(backend, "echo hi") == "hi"
        assert not backend.uses_daemon
        assert "not the one that was put there" in backend.status.reason
    async with asyncio.timeout(60):
        while not backend.uses_daemon:
            await asyncio.sleep(0.2)
            assert await out(backend, "echo again") == "again"
    assert backend.status.reason == ""


async def test_a_daemon_on_a_port(make: Make, server: str) -> None:
    backend = make(daemon="tcp", network="own")
    assert await out(backend, "echo hi") == "hi"
    assert backend.uses_daemon
    found = engines.find_engine().inspect(containers(server)[0]["Id"])
    ports = found["NetworkSettings"]["Ports"]["9090/tcp"]
    assert {port["HostIp"] for port in ports} == {"127.0.0.1"}
    assert backend._lifecycle.token not in json.dumps(found)
    for exec_id in found["ExecIDs"] or []:
        assert backend._lifecycle.token not in json.dumps(engines.find_engine().ask("GET", f"/exec/{exec_id}/json"))
    seen = await out(backend, "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null")
    assert backend._lifecycle.token not in seen
    with socket.create_connection(("127.0.0.1", int(ports[0]["HostPort"])), 30) as stranger:
        stranger.sendall(b'{"token": "wrong"}\n{"id": "r1", "cmd": "id"}\n')
        assert stranger.recv(100) == b""


async def test_a_daemon_on_a_socket(make: Make) -> None:
    backend = make(daemon="unix")
    assert await out(backend, "ls /tmp") == "wick-daemon.sock"
    assert backend.uses_daemon
    folder = Path(socket_folder.folder_path(backend.id))
    assert folder.parent.parent.stat().st_mode & 0o077 == 0
    await backend.stop()
    assert not list(folder.parent.parent.glob(backend.id))


async def test_a_socket_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """Else a container could hand us this machine's own engine to talk to."""
    (tmp_path / socket_folder.SOCKET).symlink_to(engines.find_engine().path)
    with pytest.raises(OSError):
        socket_folder.connect_socket(str(tmp_path))
    (tmp_path / socket_folder.SOCKET).unlink()
    (tmp_path / socket_folder.SOCKET).write_text("")
    with pytest.raises(ConnectionRefusedError):
        socket_folder.connect_socket(str(tmp_path))


@pytest.mark.parametrize("how", ["tcp", "unix"])
async def test_a_daemon_with_an_unknown_token_is_replaced(make: Make, server: str, how: str) -> None:
    """A crashed server lost it; the next one starts another daemon."""
    options = {"id": f"crashed-{server}", "daemon": how, "network": "own"}
    await make(**options).write("a.txt", "a")
    after = make(**options)
    assert (await after.read("a.txt"))["content"] == "a"
    assert after.uses_daemon


# -- without a daemon -----------------------------------------------------------------------------------------------

CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("write", ("a/b/c.txt", "hello\nwörld\n"), {}),
    ("write", (" odd\n'\"ü\n", "x" * 100_000), {}),
    ("write", ("windows.txt", "a\r\nb\r\n"), {}),
    ("write", ("utf16.txt", "one\ntwo\n".encode("utf-16")), {}),
    ("write", ("empty", b""), {}),
    ("ls", (), {}),
    ("ls", ("a/b/",), {}),
    ("ls", ("a/b/c.txt",), {}),
    ("ls", ("nowhere",), {}),
    ("read", ("a/b/c.txt",), {}),
    ("read", ("a/b/c.txt",), {"offset": 3, "limit": 4}),
    ("read", ("a/b/c.txt",), {"offset": 100}),
    ("read", ("a/b/c.txt",), {"limit": 0}),
    ("read", ("a/b/c.txt",), {"offset": -1}),
    ("read", (" odd\n'\"ü\n",), {"offset": 70_000, "limit": 5}),
    ("read", ("a",), {}),
    ("read", ("nowhere/x",), {}),
    ("lines", ("a/b/c.txt",), {"offset": 1}),
    ("lines", ("a/b/c.txt",), {"limit": 1}),
    ("lines", ("utf16.txt",), {"offset": 1}),
    ("lines", ("empty",), {}),
    ("edit", ("windows.txt", "a\nb", "c\nd"), {}),
    ("edit", ("windows.txt", "nothing", "x"), {}),
    ("edit", ("a/b/c.txt", "l", "L"), {}),
    ("edit", ("a/b/c.txt", "l", "L"), {"replace_all": True}),
    ("read", ("windows.txt",), {}),
    (
        "execute",
        ("ln -s nothing dangling; mkfifo fifo; mkdir -p .git/hooks sub/.wick node_modules; chmod 600 windows.txt",),
        {},
    ),
    (
        "execute",
        ("echo S=1 >.env; printf 'a\\0b' >bin; echo '*.log' >.gitignore; touch x.log a/y.log",),
        {},
    ),
    (
        "execute",
        ("touch node_modules/x; mkdir shut; touch shut/x; chmod 0 shut; touch readable; chmod 444 readable",),
        {},
    ),
    *[("read", (path,), {}) for path in "fifo .env ../x a/../empty".split()],
    *[
        ("read", (path,), {})
        for path in ("bin", "/etc/passwd", "/workspace/empty", "", "a\0b", "x" * 256, "shut/x", "a/b/c.txt/d")
    ],
    ("stat", ("a/b/c.txt",), {}),
    ("stat", ("dangling",), {}),
    ("stat", (".",), {}),
    ("stat", ("nowhere",), {}),
    ("stat", ("windows.txt",), {}),
    *[("write", (path, "x"), {}) for path in ".git/config .git/hooks/pre-commit a fifo sub/.wick/x".split()],
    *[("write", (path, "x"), {}) for path in ("new/", "n" * 255, "shut/y", "readable", "empty/x")],
    *[("mkdir", (path,), {}) for path in "m/n/o m/n empty empty/x .wick".split()],
    *[("move", pair, {}) for pair in [("m", "k/l"), ("k", "k/l/z"), ("empty", "bin"), ("nowhere", "x"), (".git", "g")]],
    *[
        ("move", pair, {})
        for pair in [("empty", ".env"), ("sub", "bus"), (".", "x"), ("dangling", "moved"), ("bin", "../x")]
    ],
    ("delete", ("k",), {}),
    ("delete", ("k",), {"recursive": True}),
    *[("delete", (path,), {"recursive": True}) for path in "sub .env . nowhere moved".split()],
    ("ls", (), {}),
]


async def comparable_result(backend: Docker, op: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return the result of a call without container-specific parts."""
    try:
        found = await getattr(backend, op)(*args, **options)
    except BackendError as error:
        return error.code
    if op == "execute":
        return found["exit_code"], found["stdout"], found["stderr"]
    return {name: value for name, value in found.items() if name != "modified"} if isinstance(found, dict) else found


async def test_files_behave_the_same_without_python(make: Make) -> None:
    _, *without = backends = [make(), *map(make, ["plain", "busybox"] if FULL else ["busybox"])]
    await asyncio.gather(*(one.start() for one in backends))
    assert [one.uses_daemon for one in backends] == [True, *(False for _ in without)]
    assert all("the image has no python3" in one.status.reason for one in without)
    for op, args, options in CALLS:
        wanted, *found = await asyncio.gather(*(comparable_result(one, op, args, options) for one in backends))
        assert found == [wanted] * len(without), f"{op}{args} {options}"


async def test_files_follow_no_link_without_python(make: Make) -> None:
    """Wherever it leads to. A link itself is listed, moved and deleted."""
    backend = make("busybox")
    await backend.execute("mkdir a; echo x >a/b.txt; echo x >/tmp/b.txt; echo S=1 >.env; ln -s a in; ln -s /tmp out")
    await backend.execute("ln -s a/b.txt file; ln -s .env env; ln -s loop loop; ln -s new dangling")
    calls = [
        *[
            call
            for path in ("in/b.txt", "out/b.txt", "file", "env", "loop", "dangling")
            for call in content_calls(path)
        ],
        *[call for path in ("in", "in/", "out") for call in (("ls", path), ("execute", "true", path))],
        *[("stat", "in/b.txt"), ("mkdir", "out/new"), ("delete", "out/b.txt"), ("delete", "in/b.txt")],
        *[("move", "a/b.txt", "out/new"), ("move", "out/b.txt", "new"), ("move", "out", "in/new")],
    ]
    for op, *args in calls:
        options = {"workdir": args.pop()} if op == "execute" else {}
        with pytest.raises(BackendError, match="leads over a link") as caught:
            await getattr(backend, op)(*args, **options)
        assert caught.value.code == "linked", (op, *args)
    assert await out(backend, "cat a/b.txt /tmp/b.txt .env; ls a; ls /tmp") == "x\nx\nS=1\nb.txt\nb.txt"
    assert (await backend.read("no/../a/b.txt/"))["content"] == "x\n"  # a path is resolved by its names alone
    assert (await backend.stat("out"))["type"] == "link"
    await backend.move("in", "moved")
    await backend.delete("moved", recursive=True)
    await backend.delete("out")
    assert await out(backend, "ls -d a in out moved /tmp/b.txt 2>/dev/null") == "/tmp/b.txt\na"


def content_calls(path: str) -> list[tuple[str, ...]]:
    return [("read", path), ("lines", path), ("write", path, "y"), ("edit", path, "x", "y")]


async def test_leftover_processes_of_a_command_are_killed(make: Make) -> None:
    backend = make("plain")
    await backend.execute("sleep 1000 & setsid sleep 1001 & (sleep 1002 &)")
    await backend.execute("trap '' TERM; sleep 1003 & sleep 1004", timeout=0.5)
    task = asyncio.create_task(backend.execute("sleep 1005"))
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await backend.execute("sleep 1006 & kill -9 $PPID; sleep 1007", timeout=60)
    assert await out(backend, "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 100[0-9]' || true") == "0"


@pytest.mark.parametrize("image", ["plain", "busybox"])
async def test_a_process_that_hid_may_outlive_its_command(make: Make, image: str) -> None:
    """The documented limit without wickd. One that only left its session, or only its environment, is ended."""
    backend = make(image)
    hide = "env -i setsid sh -c '>one; exec sleep 301' >/dev/null 2>&1 & setsid sh -c '>two; exec sleep 302' &"
    await backend.execute(f"{hide} until [ -e one ] && [ -e two ]; do sleep 0.05; done")
    await until(lambda: running_processes(backend) == ["sleep 301"])
    assert "may outlive its command" in backend.protection.says
    done = await backend.execute("env -i sleep 303", timeout=0.5)
    assert done["exit_code"] == 124
    await until(lambda: running_processes(backend) == ["sleep 301"])
    await backend.stop()
    assert not running_processes(backend)


async def test_a_script_that_was_stopped_is_ended(make: Make) -> None:
    backend = make("plain")
    done = await backend.execute("kill -STOP $PPID; sleep 303", timeout=0.5)
    assert done["exit_code"] == 124
    await until(lambda: not running_processes(backend))


async def test_stopping_ends_a_fork_bomb(make: Make) -> None:
    """Without wickd it may survive its command; the limits of the container hold it until then."""
    backend = make("plain", limits={"pids": 60})
    with suppress(BackendError):
        await backend.execute("f() { f | f & }; f; sleep 0.3", timeout=5)
    await backend.restart()
    assert not running_processes(backend)
    assert await out(backend, "echo well") == "well"


async def test_a_daemon_killed_with_its_container_is_restarted(make: Make) -> None:
    backend = make()
    await backend.start()
    with suppress(BackendError):
        await backend.execute("kill -9 -1")

    async with asyncio.timeout(60):
        while not backend.uses_daemon:
            await asyncio.sleep(0.3)
            with suppress(BackendError):
                await backend.execute("true")


async def until(so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(so):  # the engine may wait for this event loop before it answers
            await asyncio.sleep(0.05)


def running_processes(backend: Docker) -> list[str]:
    """Return the processes in its container."""
    return list(Container(backend.id).running().values())


async def test_a_great_output_without_a_daemon(make: Make) -> None:
    backend = make("plain")
    done = await backend.execute("yes 0123456789 | head -c 20000000", timeout=60)
    assert (done["stdout_bytes"], done["truncated"]) == (20_000_000, True)
    assert len(done["stdout"]) < 1_100_000
    assert "bytes were left out here" in done["stdout"]


async def test_input_that_is_not_read_without_a_daemon(make: Make) -> None:
    backend = make("busybox")
    assert (await backend.execute("true", stdin=b"x" * 3_000_000))["exit_code"] == 0
    assert await out(backend, "head -c 3", stdin=b"y" * 3_000_000) == "yyy"
    assert await out(backend, "wc -c", stdin=b"z" * 3_000_000) == "3000000"
    assert await out(backend, "wc -c") == "0"


async def test_the_daemon_can_be_disabled(make: Make) -> None:
    backend = make(daemon="none")
    assert await out(backend, "echo hi") == "hi"
    assert (backend.uses_daemon, backend.status.reason) == (False, "")


async def test_files_of_a_read_only_container_without_python(make: Make) -> None:
    """Its workspace is in memory, which the engine's archive API does not reach."""
    backend = make("plain", read_only=True)
    assert await out(backend, "echo hi > a.txt; cat a.txt") == "hi"
    assert (await backend.read("a.txt"))["content"] == "hi\n"
    await backend.write("sub/b.txt", "there")
    assert await out(backend, "cat sub/b.txt") == "there"


async def test_lines_are_counted_up_to_a_bound_without_python(make: Make) -> None:
    backend = make("plain")
    line = "x" * 999
    await backend.execute(f"yes {line} | head -c 12000000 > large.txt", timeout=60)
    found = await backend.lines("large.txt", offset=9_000, limit=2)
    assert (found["content"], found["truncated"]) == (f"{line}\n" * 2, True)
    with pytest.raises(BackendError, match="too large to count its lines; read a range of its bytes") as caught:
        await backend.lines("large.txt", offset=11_000)
    assert caught.value.code == "too_large"
    assert (await backend.read("large.txt", offset=11_999_998))["content"] == "x\n"


NEEDS_WICKD: dict[str, Callable[[Docker], Awaitable[Any]]] = {
    "there is no glob; .*, or use execute: `find": lambda backend: backend.glob("*"),
    "there is no grep; .*, or use execute: `grep -rn": lambda backend: backend.grep("a"),
    "there is no background command; .*, or use execute": lambda backend: backend.background("true"),
    "there is no terminal; .*, or use execute": lambda backend: backend.terminal(),
}


@pytest.mark.parametrize("says", NEEDS_WICKD)
async def test_operations_that_need_wickd_say_so(make: Make, says: str) -> None:
    """In an image without Python, and where the daemon is switched off."""
    reasons = {
        "the image has no python3, so .*; add python3 to the image": make("plain"),
        "the backend has daemon='none', so .*; choose another `daemon`": make(daemon="none"),
    }
    for reason, backend in reasons.items():
        with pytest.raises(BackendError, match=reason) as caught:
            await NEEDS_WICKD[says](backend)
        assert caught.value.code == "unsupported" and re.search(says, str(caught.value)), str(caught.value)
        assert await backend.jobs() == []


async def test_a_search_goes_by_the_next_daemon_if_one_is_lost(make: Make) -> None:
    backend = make()
    await backend.write("a.txt", "one\n")
    link = backend._lifecycle.link
    assert link is not None and link.daemon is not None
    link.daemon.data_received(b"this is no reply\n")
    assert (await backend.grep("one"))["matches"] == [{"file": "a.txt", "line": 1, "text": "one"}]
    assert (await backend.background("true"))["id"]


async def test_the_tools_of_an_agent_without_python(make: Make) -> None:
    """A search fails with the sentence, which tells the model what to do instead."""
    calls = [ToolCall("c1", "grep", {"pattern": "a"}), ToolCall("c2", "execute", {"command": "echo well"})]
    result = await Agent(Scripted(tool_calls_reply(*calls), "done"), hooks=[Filesystem(make("plain"))]).run("go")
    said = [str(message.content) for message in result.thread.messages if message.role == "tool"]
    assert "there is no grep; add python3 to the image" in said[0] and "well" in said[1]


async def test_doctor_names_the_limits_of_images_without_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", engines.find_engine().url)
    found = await asyncio.to_thread(lambda: [*doctor.check_engine()])
    assert [check.state for check in found] == ["ok"] and "in an image without Python, there are no" in found[0].says
    assert "file operations follow no links" in found[0].says


async def test_searching_where_nothing_inside_can(make: Make) -> None:
    """With Python but neither ripgrep nor grep, the bytes come here."""
    backend = make("searchless")
    await backend.write("a/b.txt", "one\ntwo\n")
    await backend.execute("echo two >.env; printf 'two\\0' >bin; ln -s a/b.txt link; ln -s a/b.txt .envrc")
    assert backend.uses_daemon
    expected = [{"file": "a/b.txt", "line": 2, "text": "two"}]
    for path in (".", "a", "a/b.txt", "/workspace/a/b.txt"):
        assert await backend.grep("^t", path) == {"matches": expected, "truncated": False}, path
    assert (await backend.grep("^t", glob="*.py"))["matches"] == []
    for path, code in {".env": "protected", "nowhere": "not_found", "..": "escapes"}.items():
        with pytest.raises(BackendError) as caught:
            await backend.grep("two", path)
        assert caught.value.code == code
    await backend.write("many", "two\n" * 1_500)
    found = await backend.grep("two")
    assert (len(found["matches"]), found["truncated"]) == (1_000, True)


# -- Podman ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[engines.RunningEngine]:
    with engines.start_podman(tmp_path_factory.mktemp("podman")) as engine:
        yield engine


@pytest.mark.parametrize("image", ["python", "plain"])
async def test_podman(podman: engines.RunningEngine, image: str, server: str) -> None:
    backend, again = (Docker(podman.image(image), engine=podman.url, server=server, id=f"pod-{server}") for _ in "ab")
    try:
        assert await out(backend, "id -u; pwd; cat", stdin=b"given") == "1000\n/workspace\ngiven"
        assert backend.uses_daemon == (image == "python")
        await backend.write("a/b.txt", "one\ntwo\n")
        assert (await backend.execute("sleep 60", timeout=0.5))["exit_code"] == 124
        if image == "python":
            assert (await backend.grep("t.o"))["matches"] == [{"file": "a/b.txt", "line": 2, "text": "two"}]
            terminal = await backend.terminal(rows=31, columns=99)
            await terminal.write(b"stty size; exit\n")
            said = b""
            while data := await terminal.read():
                said += data
            await terminal.close()
            assert b"31 99" in said
        assert "CapEff:\t0000000000000000" in await out(backend, "cat /proc/self/status")
        assert (await again.read("a/b.txt"))["content"] == "one\ntwo\n"
        assert await reap(podman.url, server=server) == [f"pod-{server}"]
    finally:
        await backend.stop()
        await again.stop()
    assert podman.containers(f"wick.server={server}") == []
