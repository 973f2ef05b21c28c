"""The Engine API: addresses, frames, every transport to a real engine, and a missing engine."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

import engines
from ports import own_port
from wick.backends.containers.engine import Engine, EngineError, FrameDecoder
from wick.backends.containers.engine_address import parse_engine_address
from wick.backends.containers.ssh_tunnel import SshTunnel
from wick.backends.docker import Docker
from wick.errors import ConfigError

# -- addresses ------------------------------------------------------------------------------------------------------


def test_engine_addresses_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    assert parse_engine_address("unix:///run/a%20b.sock").path == "/run/a b.sock"
    there = parse_engine_address("tcp://10.0.0.7")
    assert (there.host, there.port, there.base_url, there.is_local) == ("10.0.0.7", 2375, "http://10.0.0.7:2375", False)
    assert parse_engine_address("tcp://[::1]:99").base_url == "http://[::1]:99"
    assert parse_engine_address("tcp://127.0.0.1:99").is_local
    assert parse_engine_address("https://engine:99").base_url == "https://engine:99"
    assert parse_engine_address("ssh://me@far:2222").ssh == ("-lme", "-p2222", "--", "far")
    assert not parse_engine_address("ssh://far").is_local


def test_without_an_address_the_environment_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere:1")
    assert parse_engine_address().base_url == "http://elsewhere:1"
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="a folder with ca.pem, cert.pem and key.pem"):
        parse_engine_address()
    monkeypatch.delenv("DOCKER_HOST")
    assert parse_engine_address().path.endswith(".sock")  # any engine of this machine


@pytest.mark.parametrize(
    "url",
    "nonsense unix:// unix://host/path tcp:// tcp://h:port tcp://h:99999 ssh:// ssh://-oProxy ftp://h npipe:////x".split(),
)
def test_invalid_engine_addresses_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="not the address of an engine"):
        parse_engine_address(url)


# -- frames ---------------------------------------------------------------------------------------------------------

PIECES = st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=40)), max_size=8)


@given(PIECES, st.lists(st.integers(1, 30), min_size=1))
def test_frames_are_decoded_from_any_chunks(pieces: list[tuple[int, bytes]], cuts: list[int]) -> None:
    wire = b"".join(bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data for stream, data in pieces)
    frames, found, at = FrameDecoder(), {1: b"", 2: b""}, 0
    for cut in cuts * (len(wire) + 1):
        for stream, data in frames.feed(wire[at : at + cut]):
            found[stream] += data
        at += cut
    assert found == {wanted: b"".join(data for stream, data in pieces if stream == wanted) for wanted in (1, 2)}


def test_a_long_frame_is_not_held_back() -> None:
    frames = FrameDecoder()
    assert frames.feed(b"\x01\0\0\0\xff\xff\xff\xff" + b"a" * 10) == [(1, b"a" * 10)]
    assert frames.feed(b"b" * 10) == [(1, b"b" * 10)]


# -- a real engine --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def engine(url: str, **options: object) -> AsyncIterator[Engine]:
    made = Engine(url, **options)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture(scope="module")
def container() -> Iterator[str]:
    """A container that only sleeps."""
    here, label = engines.find_engine(), f"wick.test={uuid4().hex}"
    body = {"Image": here.image("plain"), "Cmd": ["sleep", "3600"], "Labels": dict([label.split("=")])}
    id = here.ask("POST", "/containers/create", body | {"HostConfig": {"NetworkMode": "none", "Init": True}})["Id"]
    here.ask("POST", f"/containers/{id}/start")
    yield id
    here.remove(label)


async def output(engine: Engine, container: str, *argv: str, **options: object) -> tuple[bytes, bytes, int]:
    process = await engine.exec(container, argv, **options)  # type: ignore[arg-type]
    said = {1: b"", 2: b""}
    try:
        while pieces := await process.read():
            for stream, data in pieces:
                said[stream] += data
        return said[1], said[2], await process.exit_code()
    finally:
        process.close()


async def test_a_process_in_a_container(container: str) -> None:
    async with engine(engines.find_engine().url) as there:
        script = "echo out; echo err >&2; echo $A; pwd; id -u; exit 3"
        done = await output(there, container, "sh", "-c", script, env={"A": "b"}, workdir="/usr", user="77:77")
        assert done == (b"out\nb\n/usr\n77\n", b"err\n", 3)


async def test_process_output_is_not_buffered_in_memory(container: str) -> None:
    async with engine(engines.find_engine().url) as there:
        process = await there.exec(container, ["head", "-c", "50000000", "/dev/zero"])
        size = largest = 0
        while pieces := await process.read():
            size += sum(len(data) for _, data in pieces)
            largest = max(largest, sum(len(data) for _, data in pieces))
        assert (size, await process.exit_code()) == (50_000_000, 0)
        assert largest <= 70_000
        process.close()


async def test_a_refusal_is_a_sentence(container: str) -> None:
    async with engine(engines.find_engine().url) as there:
        with pytest.raises(EngineError, match="No such container") as caught:
            await there.exec("wick-nobody", ["true"])
        assert (caught.value.status, caught.value.code) == (404, "not_found")
        assert await there.get_or_none("/containers/wick-nobody/json") is None
        with pytest.raises(EngineError, match="the engine refused"):
            await there.hijack("/exec/nothing/start", {})


async def test_a_remote_engine_by_tcp(container: str) -> None:
    with engines.relay_port(engines.find_engine().path) as port:
        async with engine(f"tcp://127.0.0.1:{port}") as there:
            assert (await output(there, container, "echo", "hi"))[0] == b"hi\n"


# -- TLS ------------------------------------------------------------------------------------------------------------


def certificates(folder: Path) -> None:
    """An authority, a server at 127.0.0.1 and a client, as `docker --tlsverify` wants them."""
    if not shutil.which("openssl"):
        pytest.skip("there is no openssl here: apt-get install openssl")

    def openssl(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True, timeout=30)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca-key.pem", "-out", "ca.pem", "-days", "2", "-subj", "/CN=authority")
    for name, extra in (("server", "subjectAltName=IP:127.0.0.1"), ("client", "extendedKeyUsage=clientAuth")):
        (folder / f"{name}.ext").write_text(f"{extra}\n")
        openssl("req", *key, "-keyout", f"{name}-key.pem", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ("-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial", "-days", "2")
        openssl("x509", "-req", *signed, "-out", f"{name}.pem", "-extfile", f"{name}.ext")
    (folder / "client.pem").rename(folder / "cert.pem")
    (folder / "client-key.pem").rename(folder / "key.pem")


@contextmanager
def tls_engine(folder: Path) -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server-key.pem")
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with engines.relay_port(engines.find_engine().path, context) as port:
        yield port


async def test_a_remote_engine_by_tls(container: str, tmp_path: Path) -> None:
    certificates(tmp_path)
    with tls_engine(tmp_path) as port:
        async with engine(f"tcp://127.0.0.1:{port}", tls=str(tmp_path)) as there:
            assert (await there.request("GET", "/version"))["ApiVersion"]
            assert (await output(there, container, "echo", "hi"))[0] == b"hi\n"


async def test_an_engine_that_is_not_the_one_we_trust(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        certificates(tmp_path / name)
    with tls_engine(tmp_path / "theirs") as port:
        async with engine(f"tcp://127.0.0.1:{port}", tls=str(tmp_path / "ours")) as there:
            with pytest.raises(EngineError, match="no engine answers.*certificate"):
                await there.request("GET", "/version")
            with pytest.raises(EngineError, match="no engine answers.*certificate"):
                await there.hijack("/exec/nothing/start", {})


# -- ssh ------------------------------------------------------------------------------------------------------------


@contextmanager
def ssh_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A real sshd on loopback, and an `ssh` that knows its keys; gives the engine's address."""
    for program, package in (("sshd", "openssh-server"), ("ssh", "openssh-client"), ("docker", "docker.io")):
        if not shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin"):
            pytest.skip(f"there is no {program} here: apt-get install {package}")
    with own_port() as port:
        yield from _ssh_server(folder, monkeypatch, port)


def _ssh_server(folder: Path, monkeypatch: pytest.MonkeyPatch, port: int) -> Iterator[str]:
    sshd = str(shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin"))
    for name in ("host", "user"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True, timeout=30)
    shutil.copy(folder / "user.pub", folder / "authorized")
    settings = ["PidFile none", "UsePAM no", "StrictModes no", f"AuthorizedKeysFile {folder}/authorized"]
    settings += [f"Port {port}", "ListenAddress 127.0.0.1", f"HostKey {folder}/host"]
    settings += [f"SetEnv PATH={os.environ['PATH']}"]
    (folder / "sshd_config").write_text("\n".join(settings) + "\n")
    known = (folder / "host.pub").read_text()
    (folder / "known").write_text(f"[127.0.0.1]:{port} {known}")
    options = f"-F none -i {folder}/user -o UserKnownHostsFile={folder}/known"
    (folder / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} {options} "$@"\n')
    (folder / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    Path("/run/sshd").mkdir(exist_ok=True)  # where it drops its privileges
    server = subprocess.Popen([sshd, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=subprocess.DEVNULL)
    try:
        engines.wait_for_port(port)
        yield f"ssh://{os.environ.get('USER') or 'root'}@127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)


async def test_a_remote_engine_by_ssh(container: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ssh_server(tmp_path, monkeypatch) as url:
        async with engine(url) as there:
            assert (await output(there, container, "echo", "hi"))[0] == b"hi\n"
        assert not _children("ssh"), "closing the engine ends what it started"


async def test_an_ssh_failure_reports_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ssh_server(tmp_path, monkeypatch) as url:
        (tmp_path / "authorized").write_text("")
        async with engine(url) as there:
            with pytest.raises(EngineError, match="no engine answers.*Permission denied"):
                await there.request("GET", "/version")


@pytest.mark.parametrize("way", ["tls", "ssh"])
async def test_a_backend_on_a_remote_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    with ExitStack() as stack:
        options = {"engine": "", "tls": None}
        if way == "ssh":
            options["engine"] = stack.enter_context(ssh_server(tmp_path, monkeypatch))
        else:
            certificates(tmp_path)
            port = stack.enter_context(tls_engine(tmp_path))
            options = {"engine": f"tcp://127.0.0.1:{port}", "tls": str(tmp_path)}
        for image in ("python", "plain"):
            backend = Docker(engines.find_engine().image(image), server=f"test-{uuid4().hex}", **options)  # type: ignore[arg-type]
            try:
                assert (await backend.execute("cat", stdin=b"x" * 200_000))["stdout_bytes"] == 200_000
                assert backend.uses_daemon == (image == "python")
                await backend.write("a.txt", "a" * 300_000)
                assert (await backend.read("a.txt"))["bytes"] == 300_000
            finally:
                await backend.stop()


def _children(name: str) -> list[str]:
    found = subprocess.run(
        ["ps", "-o", "comm=", "--ppid", str(os.getpid())], capture_output=True, text=True, timeout=60
    )
    return [line for line in found.stdout.split() if line == name]


# -- trouble --------------------------------------------------------------------------------------------------------


async def test_no_engine_is_a_sentence(tmp_path: Path) -> None:
    for url in (f"unix://{tmp_path}/none.sock", "tcp://127.0.0.1:1"):
        async with engine(url) as there:
            with pytest.raises(EngineError, match=f"no engine answers at {url}.*start Docker") as caught:
                await there.request("GET", "/version")
            assert caught.value.code == "unavailable"
            with pytest.raises(EngineError, match="no engine answers"):
                await there.hijack("/exec/x/start", {})


async def _served(tmp_path: Path, answer: bytes) -> tuple[asyncio.Server, str]:
    """A server that sends one response to every client, and then nothing."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await reader.read(-1)
        writer.close()

    path = str(tmp_path / f"{uuid4().hex}.sock")
    return await asyncio.start_unix_server(serve, path), f"unix://{path}"


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
async def test_a_silent_engine_is_not_waited_for(tmp_path: Path, answer: bytes) -> None:
    server, url = await _served(tmp_path, answer)
    async with server, asyncio.timeout(20), engine(url, seconds=0.3) as there:
        with pytest.raises(EngineError, match="did not answer within 0.3 s"):
            await there.request("GET", "/version")
        if b"\r\n\r\n" not in answer:
            with pytest.raises(EngineError, match="did not answer within 0.3 s"):
                await there.hijack("/exec/x/start", {})


@pytest.mark.parametrize("answer", [b"nonsense\r\n\r\n", b"HTTP/1.1 what\r\n\r\n", b"\0" * 100_000])
async def test_an_invalid_engine_is_refused(tmp_path: Path, answer: bytes) -> None:
    server, url = await _served(tmp_path, answer)
    async with server, asyncio.timeout(20), engine(url, seconds=3) as there:
        with pytest.raises(EngineError):
            await there.request("GET", "/version")
        with pytest.raises(EngineError):
            await there.hijack("/exec/x/start", {})


async def test_an_endless_response_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wick.constants.ENGINE_ANSWER_BYTES", 10_000)
    server, url = await _served(tmp_path, b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 50_000)
    async with server, asyncio.timeout(20), engine(url) as there:
        with pytest.raises(EngineError, match="more than 10000 bytes"):
            await there.request("GET", "/version")


async def test_asking_can_be_cancelled(tmp_path: Path) -> None:
    server, url = await _served(tmp_path, b"")
    async with server, asyncio.timeout(20), engine(url) as there:
        for asking in (there.request("GET", "/version"), there.hijack("/exec/x/start", {})):
            task = asyncio.create_task(asking)
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


def test_an_engine_is_used_by_one_loop_after_another() -> None:
    there = Engine(engines.find_engine().url)

    async def version() -> str:
        return str((await there.request("GET", "/version"))["ApiVersion"])

    assert asyncio.run(version()) == asyncio.run(version())


def test_a_stopped_engine_is_not_waited_for(tmp_path: Path) -> None:
    with engines.start_private(tmp_path) as hung:

        async def ask() -> None:
            async with engine(hung.url, seconds=0.5) as there:
                await there.request("GET", "/_ping", seconds=30)
                hung.signal(signal.SIGSTOP)
                with pytest.raises(EngineError, match="did not answer within 0.5 s"):
                    await there.request("GET", "/_ping")
                hung.signal(signal.SIGCONT)
                assert await there.request("GET", "/_ping", seconds=60) == b"OK"

        began = time.monotonic()
        asyncio.run(ask())
        assert time.monotonic() - began < 100


async def test_a_tunnel_that_is_closed_while_a_connection_ends_sees_its_ssh_to_the_end() -> None:
    tunnel = SshTunnel(())
    tunnel._command = ("sh", "-c", "trap '' TERM; exec 1>&-; sleep 0.3 & wait; wait")  # it sends nothing more
    _, writer = await asyncio.open_unix_connection(await tunnel.open())
    async with asyncio.timeout(60):
        while not tunnel._ending:
            await asyncio.sleep(0.01)
    (ending,) = tunnel._ending
    await tunnel.close()
    assert ending.done() and not ending.cancelled()
    writer.close()
    await writer.wait_closed()
