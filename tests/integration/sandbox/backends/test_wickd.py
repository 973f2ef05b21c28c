"""wickd as a container has it: one packed file that is spoken to in lines of JSON."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import zipfile
from base64 import b64decode, b64encode
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leak_checks import allow_leaks
from ports import own_port
from wick import constants
from wick.wickd import zipapp
from wick.wickd.event_loop import EventLoop
from wick.wickd.output_buffers import HeadTailBuffer, RingBuffer, trim_partial_end, trim_partial_start
from wickd_process import (
    WickdProcess,
    becomes_true,
    connect_when_ready,
    kill,
    marked_environment,
    marked_processes,
    wickd,
)

FULL = bool(os.environ.get("WICK_FULL"))
TOKEN = "a token that nobody guesses"
PYTHONS = [*sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3")), Path("/usr/bin/python3")]


@pytest.fixture(scope="module")
def shared() -> Any:
    """One wickd for tests that leave it as it was."""
    with wickd() as one:
        yield one


# -- the packed file ------------------------------------------------------------------------------------------------


def test_the_same_sources_give_the_same_bytes() -> None:
    zipapp.build_zipapp.cache_clear()
    first = zipapp.build_zipapp()
    zipapp.build_zipapp.cache_clear()
    assert zipapp.build_zipapp() == first
    with zipfile.ZipFile(BytesIO(first)) as archive:
        assert archive.namelist() == sorted(archive.namelist())
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert archive.read("wick/__init__.py") == b""
        assert not any("zipapp" in name for name in archive.namelist())
    assert len(zipapp.compute_digest()) == 64


def test_the_bundle_imports_only_itself_and_the_standard_library() -> None:
    packed = {name.removesuffix(".py").replace("/", ".").removesuffix(".__init__") for name in zipapp.read_sources()}
    for name, source in zipapp.read_sources().items():
        for node in ast.walk(ast.parse(source, name, feature_version=(3, 8))):
            for target in _imported(node):
                known = target in packed or target.split(".")[0] in sys.stdlib_module_names or target == "re2"
                assert known, f"{name} imports {target}, which a container does not have"


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        whole = [f"{node.module}.{alias.name}" for alias in node.names]
        return whole if node.module in ("wick", "wick.wickd") else [node.module]
    return []


def test_the_bundle_runs_on_python_3_8(tmp_path: Path) -> None:
    paths = []
    for name, source in zipapp.read_sources().items():
        paths.append(tmp_path / name)
        paths[-1].parent.mkdir(parents=True, exist_ok=True)
        paths[-1].write_bytes(source)
    command = [Path(sys.executable).parent / "vermin", "-q", "-t=3.8-", "--no-tips", "--violations", *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("python", [path for path in PYTHONS if path.exists()] or [Path(sys.executable)], ids=str)
def test_wickd_runs_on_every_installed_python(python: Path) -> None:
    version = subprocess.run([python, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    if tuple(map(int, version.split()[1].split("."))) < (3, 8):
        return  # older than supported
    with wickd(python=str(python)) as one:
        done = one.ask({"id": "r1", "cmd": "cat; sleep 100 & echo $PWD", "stdin": "in ", "workdir": "/tmp"})
        assert (done["stdout"], done["exit_code"]) == ("in /tmp\n", 0)
        assert one.ask({"id": "r2", "op": "ls", "root": "/tmp"})["result"]["path"] == "."
        found = one.ask({"id": "r3", "op": "glob", "root": "/etc", "pattern": "hostname"})
        assert found["result"]["files"] == ["hostname"]


def test_wickd_degrades_without_linux_features() -> None:
    """Without subreapers, prctl and /proc: processes in the command's group, or below it, are killed."""
    mark = uuid4().hex
    with wickd(platform="darwin") as one:
        script = "sleep 100 & (sleep 100 &) ; echo $PWD"
        done = one.ask({"id": "r", "cmd": script, "workdir": "/tmp", "env": marked_environment(mark)})
        assert (done["stdout"], done["exit_code"]) == ("/tmp\n", 0)
        assert becomes_true(lambda: not marked_processes(mark))
        late = one.ask(
            {"id": "r", "cmd": "setsid sleep 100 & sleep 100", "timeout": 2.5, "env": marked_environment(mark)}
        )
        assert late["exit_code"] == 124
        assert becomes_true(lambda: not marked_processes(mark))
        limited = one.ask({"id": "r", "cmd": "ulimit -n", "limits": {"files": 50}})
        assert limited["stdout"] == "50\n"
        assert "no Landlock" in one.ask({"id": "r", "cmd": "true", "landlock": {}})["error"]
        one.say({"id": "t", "op": "pty", "cmd": "tty"})
        assert one.hear()["result"] == {} and b"/dev/" in b64decode(one.hear()["data"])


# -- the plain form, and every field --------------------------------------------------------------------------------


def test_the_plain_form(shared: WickdProcess) -> None:
    reply = shared.ask(
        {"id": "r1", "cmd": "cat; echo oops >&2; exit 3", "workdir": "/tmp", "stdin": "hé", "timeout": 120}
    )
    assert reply.pop("seconds") > 0
    assert reply == {
        "id": "r1",
        "stdout": "hé",
        "stderr": "oops\n",
        "exit_code": 3,
        "error": "",
        "truncated": False,
        "stdout_bytes": 3,
        "stderr_bytes": 5,
        "moved": [],
    }


def test_a_reply_is_plain_ascii(shared: WickdProcess) -> None:
    shared.say({"id": "r1", "argv": ["printf", "h\u00e9 \u2713 \\377"]})
    line = os.read(shared.reads, 65_536)
    assert line.isascii() and line.endswith(b"\n")
    assert json.loads(line)["stdout"] == "h\u00e9 \u2713 \ufffd"


def test_arguments_are_not_seen_by_a_shell(shared: WickdProcess) -> None:
    argv = ["printf", "%s|", "a b", "$HOME", "`id`", "", "*"]
    assert shared.ask({"id": "r", "argv": argv})["stdout"] == "a b|$HOME|`id`||*|"


def test_the_environment_is_empty_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "planted")
    monkeypatch.setenv("LC_TIME", "C")
    with wickd() as one:
        names = {line.partition("=")[0] for line in one.ask({"id": "r", "argv": ["env"]})["stdout"].splitlines()}
        assert "LC_TIME" in names and "PATH" in names
        assert names <= {"PATH", "HOME", "LANG", "TERM", "TMPDIR", "TZ", "USER", "SHELL"} | {
            name for name in names if name.startswith("LC_")
        }
        given = one.ask({"id": "r", "argv": ["/usr/bin/env"], "env": {"ONLY": "this"}})
        assert given["stdout"] == "ONLY=this\n"
        everything = one.ask(
            {"id": "r", "cmd": "cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c ONLY= ; true"}
        )
        assert everything["exit_code"] == 0


def test_a_command_has_nothing_open_but_its_own(shared: WickdProcess) -> None:
    for extra in ({}, {"limits": {"files": 100}}):  # spawned, and forked
        shown = shared.ask({"id": "r", "cmd": "ls /proc/self/fd", **extra})["stdout"].split()
        assert set(shown) <= {"0", "1", "2", "3"}, extra  # 3 is the folder that ls reads


@pytest.mark.parametrize("extra", [{}, {"limits": {"files": 100}}], ids=["spawned", "forked"])
def test_a_command_starts_with_clean_signals_in_its_own_session(shared: WickdProcess, extra: dict[str, Any]) -> None:
    wanted = "grep -E '^Sig(Blk|Ign)' /proc/self/status; ps -o sid= -p $$; echo $$"
    out = shared.ask({"id": "r", "cmd": wanted, **extra})["stdout"].split()
    internal = 0b11 << 31  # signals 32 and 33, the C library's own
    assert int(out[1], 16) == int(out[3], 16) & ~internal == 0
    assert out[4] == out[5]


def test_data_is_read_from_descriptors(shared: WickdProcess) -> None:
    first, second = b64encode(b"one\0").decode(), b64encode(b"x" * 300_000).decode()
    for extra in ({}, {"limits": {"files": 100}}):
        request = {
            "id": "r",
            "argv": [
                "sh",
                "-c",
                "cat /dev/fd/$0; wc -c < /dev/fd/$1; echo $2 $3",
                *("%fd0%", "%fd1%", "%fd0%", "x%fd1%"),
            ],
            "data": [first, second],
            **extra,
        }
        said = shared.ask(request)["stdout"].split("\0")
        assert said == ["one", "300000\n%fd0% x%fd1%\n"], "a command that only looks like it is left as it is"


def test_output_is_streamed_on_request(shared: WickdProcess, tmp_path: Path) -> None:
    """The command continues after its output arrived."""
    said = "echo a; until test -e 1; do sleep 0.01; done; echo b >&2; until test -e 2; do sleep 0.01; done; printf c"
    shared.say({"id": "s", "cmd": said, "stream": True, "workdir": str(tmp_path)})
    chunks = []
    while "chunk" in (final := shared.hear()):
        chunks.append(final)
        (tmp_path / str(len(chunks))).touch()
    told = [(chunk["chunk"], b64decode(chunk["data"])) for chunk in chunks]
    assert told == [("stdout", b"a\n"), ("stderr", b"b\n"), ("stdout", b"c")]
    assert (final["stdout"], final["stderr"]) == ("a\nc", "b\n")


def test_head_and_tail_are_kept_with_the_true_size(shared: WickdProcess) -> None:
    reply = shared.ask({"id": "r", "cmd": "seq 1 200000", "head": 20, "tail": 14})
    assert reply["stdout"].startswith("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n[… ")
    assert reply["stdout"].endswith(" bytes were left out here …]\n199999\n200000\n")
    assert reply["truncated"] and reply["stdout_bytes"] == 1_288_895
    assert reply["stderr"] == "" and reply["stderr_bytes"] == 0


@pytest.mark.parametrize(
    ("limits", "command", "said"),
    [
        ({"cpu": 1}, "while :; do :; done", "processor time"),
        (
            {"file_size": 1000},
            "head -c 5000 /dev/zero > /tmp/wickd-test-$$; s=$?; rm -f /tmp/wickd-test-$$; kill -XFSZ $$",
            "larger",
        ),
        ({"files": 10}, "ulimit -n", "10\n"),
        ({"memory": 50_000_000}, "python3 -c 'x = bytearray(200_000_000)' 2>&1 | tail -1", "MemoryError"),
        (
            {"memory": 60_000_000},
            "exec python3 -c 'x = bytearray(45_000_000); y = bytearray(20_000_000)'",
            "it may need more",
        ),
    ],
)
def test_limits(shared: WickdProcess, limits: dict[str, int], command: str, said: str) -> None:
    reply = shared.ask({"id": "r", "cmd": command, "limits": limits, "timeout": 80}, 100)
    assert said in reply["stdout"] + reply["error"], reply


def test_a_start_failure_is_reported(shared: WickdProcess, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("not a program")
    for extra in ({}, {"limits": {"files": 100}}):
        missing = shared.ask({"id": "r", "argv": ["no-such-program"], **extra})
        assert (missing["exit_code"], missing["error"][:26]) == (127, "there is no program 'no-su")
        refused = shared.ask({"id": "r", "argv": [str(tmp_path / "plain")], **extra})
        assert refused["exit_code"] == 126 and "could not be started" in refused["error"]
        nowhere = shared.ask({"id": "r", "cmd": "true", "workdir": str(tmp_path / "no"), **extra})
        assert nowhere["exit_code"] == 126 and "cannot be entered" in nowhere["error"]
    group = shared.ask({"id": "r", "cmd": "true", "cgroup": ["/no/such/cgroup.procs"]})
    assert "cannot be joined" in group["error"]


def test_landlock_allows_only_listed_paths(shared: WickdProcess, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_text("planted")
    system = ["/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache"]
    rules = {"read": [*system, "/no/such/path"], "write": [str(tmp_path / "in"), "/dev/null"], "network": False}
    tries = f"cat {tmp_path}/secret; echo x > {tmp_path}/out; echo fine > {tmp_path}/in/a && cat {tmp_path}/in/a"
    reply = shared.ask({"id": "r", "cmd": tries, "landlock": rules, "workdir": "/"})
    if "no Landlock" in reply["error"]:
        pytest.skip("needs a kernel with Landlock")
    refusals = [line.rsplit(": ", 1)[1] for line in reply["stderr"].splitlines()]
    assert reply["stdout"] == "fine\n" and len(refusals) == 2
    assert set(refusals) <= {"Permission denied", "Read-only file system"}  # mounts are read-only where they can be
    assert not (tmp_path / "out").exists()


# -- bad input ------------------------------------------------------------------------------------------------------

BAD: list[tuple[Any, str]] = [
    (b"not json", ""),
    (b"\xff\xfe\x00", ""),
    (b"[]", ""),
    (b'"text"', ""),
    (b"{}", ""),
    (b"[" * 100_000, ""),
    ({"id": 7, "cmd": "true"}, ""),
    ({"id": "", "cmd": "true"}, ""),
    ({"id": "x" * 201, "cmd": "true"}, ""),
    ({"id": "b", "op": "dance"}, "b"),
    ({"id": "b", "op": ["run"]}, "b"),
    ({"id": "b"}, "b"),
    ({"id": "b", "cmd": "true", "argv": ["true"]}, "b"),
    ({"id": "b", "cmd": 7}, "b"),
    ({"id": "b", "cmd": "a\0b"}, "b"),
    ({"id": "b", "argv": "true"}, "b"),
    ({"id": "b", "argv": ["true", None]}, "b"),
    ({"id": "b", "cmd": "true", "timeout": "soon"}, "b"),
    ({"id": "b", "cmd": "true", "timeout": -1}, "b"),
    ({"id": "b", "cmd": "true", "timeout": True}, "b"),
    (b'{"id":"b","cmd":"true","timeout":Infinity}', "b"),
    (b'{"id":"b","cmd":"true","timeout":NaN}', "b"),
    ({"id": "b", "cmd": "true", "workdir": ["/"]}, "b"),
    ({"id": "b", "cmd": "true", "stdin": 5}, "b"),
    (b'{"id":"b","cmd":"true","stdin":"\\ud800"}', "b"),
    ({"id": "b", "cmd": "true", "stdin64": "###"}, "b"),
    ({"id": "b", "cmd": "true", "env": {"A": 1}}, "b"),
    ({"id": "b", "cmd": "true", "env": {"A=B": "1"}}, "b"),
    ({"id": "b", "cmd": "true", "env": []}, "b"),
    ({"id": "b", "cmd": "true", "limits": {"luck": 1}}, "b"),
    ({"id": "b", "cmd": "true", "limits": {"memory": "much"}}, "b"),
    ({"id": "b", "cmd": "true", "limits": {"memory": -1}}, "b"),
    ({"id": "b", "cmd": "true", "data": ["%%%"]}, "b"),
    ({"id": "b", "cmd": "true", "data": [""] * 65}, "b"),
    ({"id": "b", "cmd": "true", "head": -5}, "b"),
    ({"id": "b", "cmd": "true", "tail": 10**12}, "b"),
    ({"id": "b", "cmd": "true", "stream": "yes"}, "b"),
    ({"id": "b", "cmd": "true", "landlock": []}, "b"),
    ({"id": "b", "op": "pty", "cmd": "true", "rows": 0}, "b"),
    ({"id": "b", "op": "resize", "target": "nobody"}, "b"),
    ({"id": "b", "op": "input", "target": "nobody", "data": ""}, "b"),
    ({"id": "b", "op": "job_output", "job": "nobody"}, "b"),
    ({"id": "b", "op": "end_job", "job": 3}, "b"),
    ({"id": "b", "op": "read", "root": "/tmp"}, "b"),
    ({"id": "b", "op": "read", "root": "/tmp", "path": 3}, "b"),
    ({"id": "b", "op": "read", "root": "/no/such/root", "path": "a"}, "b"),
    ({"id": "b", "op": "read", "root": "/tmp", "path": "a", "luck": 1}, "b"),
    ({"id": "b", "op": "write", "root": "/tmp", "path": "a"}, "b"),
    ({"id": "b", "op": "write", "root": "/tmp", "path": "a", "content64": "#"}, "b"),
    ({"id": "b", "op": "grep", "root": "/tmp", "pattern": "x", "timeout": 0}, "b"),
]


@pytest.mark.parametrize(("request_", "id"), BAD, ids=range(len(BAD)))
def test_bad_input_is_answered_in_a_sentence(shared: WickdProcess, request_: Any, id: str) -> None:
    reply = shared.ask(request_)
    assert reply["id"] == id and len(reply["error"]) > 10 and reply["code"]
    assert shared.ask({"id": "after", "cmd": "echo still here"})["stdout"] == "still here\n"


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5), lambda s: st.lists(s, max_size=3)))
def test_no_value_crashes_wickd(value: Any) -> None:
    for field in ("op", "cmd", "argv", "workdir", "timeout", "env", "limits", "cgroup", "data", "landlock", "protect"):
        Fuzzed.one().say({"id": "f", "cmd": "true", field: value} if field != "cmd" else {"id": "f", field: value})
        assert Fuzzed.one().hear()["id"] == "f"


class Fuzzed:
    """The wickd that takes generated values; made when first needed."""

    _one: WickdProcess | None = None

    @classmethod
    def one(cls) -> WickdProcess:
        with allow_leaks("module"):
            cls._one = cls._one or WickdProcess()
        return cls._one

    @classmethod
    def end(cls) -> None:
        if cls._one:
            cls._one.end()
            cls._one = None


@pytest.fixture(autouse=True, scope="module")
def _end_fuzzed() -> Any:
    yield
    Fuzzed.end()


def test_empty_lines_are_nothing(shared: WickdProcess) -> None:
    shared.say(b"\n  \n")
    assert shared.ask({"id": "r", "cmd": "echo x"})["stdout"] == "x\n"


def test_a_line_that_is_too_long_is_passed_over() -> None:
    with wickd() as one:
        one.say(b"x" * (constants.WIRE_LINE_BYTES + 2_000_000))
        refused = one.hear()
        assert refused["code"] == "too_large" and refused["id"] == ""
        assert one.ask({"id": "r", "cmd": "echo x"})["stdout"] == "x\n"


def test_a_duplicate_id_is_refused_and_the_first_continues(shared: WickdProcess, tmp_path: Path) -> None:
    waits = "until test -e go; do sleep 0.01; done; echo first"
    shared.say({"id": "twice", "cmd": waits, "workdir": str(tmp_path)})
    refused = shared.ask({"id": "twice", "cmd": "echo second"})
    assert refused["id"] == "twice" and refused["code"] == "invalid"
    (tmp_path / "go").touch()
    assert shared.hear()["stdout"] == "first\n"
    assert shared.ask({"id": "twice", "cmd": "echo again"})["stdout"] == "again\n"


# -- ending ---------------------------------------------------------------------------------------------------------


def test_cancel_by_id(shared: WickdProcess) -> None:
    mark = uuid4().hex
    shared.say({"id": "long", "cmd": "sleep 100 & sleep 100", "env": marked_environment(mark)})
    assert becomes_true(lambda: len(marked_processes(mark)) >= 3)
    replies = [shared.ask({"id": "c", "op": "cancel", "target": "long"}), shared.hear()]
    by_id = {reply["id"]: reply for reply in replies}
    assert by_id["c"]["result"] == {"found": True}
    assert "cancelled" in by_id["long"]["error"]
    assert becomes_true(lambda: not marked_processes(mark))
    assert shared.ask({"id": "c", "op": "cancel", "target": "long"})["result"] == {"found": False}


@pytest.mark.parametrize("how", ["eof", "term", "kill wickd", "kill guard", "kill both", "stop and kill"])
def test_when_wickd_ends_everything_does(how: str) -> None:
    mark = uuid4().hex
    one = WickdProcess()
    pid = one.pid
    one.say({"id": "a", "cmd": "setsid sleep 100 & (sleep 100 &) ; sleep 100", "env": marked_environment(mark)})
    one.say({"id": "b", "op": "job", "cmd": "trap '' TERM; sleep 100; sleep 100", "env": marked_environment(mark)})
    one.say({"id": "c", "op": "pty", "cmd": "sleep 100; true", "env": marked_environment(mark)})
    assert becomes_true(lambda: len(marked_processes(mark)) >= 8)
    tree = one.tree()
    if how == "eof":
        assert one.process.stdin
        one.process.stdin.close()
    elif how == "term":
        one.process.terminate()
    elif how == "stop and kill":
        for supervisor in tree[2:]:
            with suppress(ProcessLookupError):  # a shell that only started others
                os.kill(supervisor, signal.SIGSTOP)
        kill(pid)
    else:
        for victim in {"kill wickd": [pid], "kill guard": [tree[0]], "kill both": [pid, tree[0]]}[how]:
            kill(victim)
    assert becomes_true(lambda: not marked_processes(mark))
    assert becomes_true(
        lambda: not [left for left in tree if left != one.process.pid and Path(f"/proc/{left}").exists()]
    )
    one.end()


def test_when_supervisors_and_wickd_are_killed_the_guard_ends_the_rest() -> None:
    mark = uuid4().hex
    one = WickdProcess()
    pid = one.pid
    one.say({"id": "a", "cmd": "setsid sleep 100 & sleep 100; true", "env": marked_environment(mark)})
    assert becomes_true(lambda: len(marked_processes(mark)) >= 3)
    supervisors = [child for child in one.tree()[1:] if child != pid and child not in marked_processes(mark)]
    for victim in [*supervisors, pid]:
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    assert becomes_true(lambda: not marked_processes(mark))
    one.end()


def test_wickd_ends_with_its_parent_though_the_pipe_is_open(tmp_path: Path) -> None:
    """A parent that has forked leaves its end of the pipe open in its child."""
    (tmp_path / "wickd.pyz").write_bytes(zipapp.build_zipapp())
    program = f"""
import os, subprocess, sys, time
parent = str(os.getpid())
one = subprocess.Popen([sys.executable, "-I", "-S", {str(tmp_path / "wickd.pyz")!r}, "--parent", parent],
                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
one.stdin.write(b'{{"id":"p","op":"ping"}}\\n'); one.stdin.flush(); one.stdout.readline()
if os.fork() == 0:
    time.sleep(100)
print(one.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    mark = uuid4().hex
    environ = {**os.environ, **marked_environment(mark)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environ) as parent:
        assert parent.stdout
        guard = int(parent.stdout.readline())
        assert becomes_true(lambda: not Path(f"/proc/{guard}/cmdline").exists() or not _cmdline(guard))
        for pid in marked_processes(mark):
            kill(pid)  # the child that holds the pipe


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


# -- not reading, and large things ----------------------------------------------------------------------------------

BIG = 1_000_000_000 if FULL else 150_000_000


def test_much_output_takes_little_memory() -> None:
    with wickd() as one:
        reply = one.ask({"id": "r", "cmd": f"head -c {BIG} /dev/zero | tr '\\0' x"}, 100)
        assert reply["stdout_bytes"] == BIG and reply["truncated"]
        assert len(reply["stdout"]) < 1_001_000
        assert one.memory() < 64_000_000


def test_a_client_that_does_not_read_makes_the_command_wait() -> None:
    with wickd() as one:
        one.say({"id": "s", "cmd": f"head -c {BIG // 3} /dev/zero", "stream": True})
        time.sleep(1.0)
        size, reply = 0, one.hear()
        while "chunk" in reply:
            size += len(b64decode(reply["data"]))
            reply = one.hear()
        assert size == reply["stdout_bytes"] == BIG // 3
        assert one.memory() < 64_000_000


def test_a_client_that_does_not_read_is_not_in_the_way_of_the_time_limit(tmp_path: Path) -> None:
    mark, begun = uuid4().hex, tmp_path / "begun"
    with wickd() as one:
        command = f"touch {begun}; cat /dev/zero"
        one.say({"id": "s", "cmd": command, "stream": True, "timeout": 4, "env": marked_environment(mark)})
        assert becomes_true(begun.exists)
        assert becomes_true(lambda: not marked_processes(mark))
        final = one.all_of("s")[-1]
        assert final["exit_code"] == 124


def test_large_input_is_fed_while_output_is_read(shared: WickdProcess) -> None:
    reply = shared.ask({"id": "r", "argv": ["cat"], "stdin64": b64encode(b"y" * 20_000_000).decode()}, 60)
    assert reply["stdout_bytes"] == 20_000_000


def test_unread_input_is_dropped(shared: WickdProcess) -> None:
    reply = shared.ask({"id": "r", "cmd": "exec 0<&-; echo done", "stdin64": b64encode(b"y" * 5_000_000).decode()})
    assert (reply["stdout"], reply["exit_code"]) == ("done\n", 0)
    late = shared.ask({"id": "r", "cmd": "sleep 0.2; echo done", "stdin64": b64encode(b"y" * 5_000_000).decode()})
    assert late["stdout"] == "done\n"


def test_many_at_once(shared: WickdProcess) -> None:
    for number in range(200):
        shared.say({"id": f"m{number}", "cmd": f"echo {number}"})
    assert {reply["id"]: reply["stdout"] for reply in (shared.hear() for _ in range(200))} == {
        f"m{number}": f"{number}\n" for number in range(200)
    }


def test_idle_supervisors_end() -> None:
    with wickd() as one:
        for number in range(20):
            one.say({"id": f"m{number}", "cmd": "sleep 0.3"})
        assert all(one.hear()["exit_code"] == 0 for _ in range(20))
        assert becomes_true(lambda: len(one.tree()) <= 5), one.tree()
        assert one.ask({"id": "r", "cmd": "echo x"})["stdout"] == "x\n"


# -- jobs and terminals ---------------------------------------------------------------------------------------------


def test_a_job_keeps_the_tail_of_its_output_with_true_offsets(shared: WickdProcess) -> None:
    job = shared.ask({"id": "j", "op": "job", "cmd": "seq 1 400000"})["result"]["id"]
    ask = {"id": "o", "op": "job_output", "job": job}
    assert becomes_true(lambda: not shared.ask(ask)["result"]["running"])
    found = shared.ask(ask)["result"]
    assert found["next_offset"] == 2_688_895
    assert found["offset"] == found["next_offset"] - constants.JOB_OUTPUT_BYTES
    assert found["output"].endswith("399999\n400000\n")
    rest = shared.ask({**ask, "offset": found["next_offset"] - 7})["result"]
    assert rest["output"] == "400000\n"
    assert shared.ask({**ask, "offset": 10**9})["result"]["output"] == ""


def test_short_jobs_are_reported_as_started(shared: WickdProcess) -> None:
    begun = set()
    for _ in range(4):
        for number in range(10):
            shared.say({"id": f"j{number}", "op": "job", "cmd": "exit 7"})
        replies = [shared.hear() for _ in range(10)]
        assert all("result" in reply for reply in replies), replies
        begun |= {reply["result"]["id"] for reply in replies}
    assert len(begun) == 40
    listed = {job["id"]: job for job in shared.ask({"id": "l", "op": "jobs"})["result"]["jobs"]}
    assert len(listed) <= constants.JOBS_KEPT + constants.JOBS_AT_ONCE


def test_jobs_are_bounded() -> None:
    with wickd() as one:
        for number in range(constants.JOBS_AT_ONCE + 1):
            one.say({"id": f"j{number}", "op": "job", "cmd": "sleep 100"})
        replies = [one.hear() for _ in range(constants.JOBS_AT_ONCE + 1)]
        assert sum("result" in reply for reply in replies) == constants.JOBS_AT_ONCE
        assert [reply["code"] for reply in replies if "code" in reply] == ["busy"]
        assert len(one.ask({"id": "l", "op": "jobs"})["result"]["jobs"]) == constants.JOBS_AT_ONCE


def test_a_terminal_waits_for_its_reader() -> None:
    with wickd() as one:
        one.say({"id": "t", "op": "pty", "cmd": "cat /dev/zero"})
        assert one.hear() == {"id": "t", "result": {}}
        size = 0
        while size <= constants.TERMINAL_WINDOW_BYTES:
            size += len(b64decode(one.hear()["data"]))
        one.say({"id": "p", "op": "ping"})
        while (reply := one.hear())["id"] != "p":
            size += len(b64decode(reply["data"]))
        assert size < 2 * constants.TERMINAL_WINDOW_BYTES
        one.say({"id": "k", "op": "taken", "target": "t", "bytes": size})
        assert "data" in one.hear()


def test_a_terminal_with_full_input_reports_it(shared: WickdProcess) -> None:
    shared.say({"id": "t", "op": "pty", "cmd": "stty raw -echo; echo ready; sleep 100"})
    assert shared.hear()["result"] == {}
    said = b""
    while b"ready" not in said:
        said += b64decode(shared.hear()["data"])
    piece = b64encode(b"y" * 400_000).decode()
    codes = []
    for _ in range(4):
        shared.say({"id": "i", "op": "input", "target": "t", "data": piece})
        reply = shared.hear()
        while "chunk" in reply:
            reply = shared.hear()
        codes.append(reply.get("code"))
    assert codes[0] is None and codes[-1] == "busy"
    shared.say({"id": "c", "op": "cancel", "target": "t"})
    while shared.hear()["id"] != "t":
        pass


# -- files ----------------------------------------------------------------------------------------------------------


def test_file_operations(shared: WickdProcess, tmp_path: Path) -> None:
    odd = os.fsdecode(b"odd \xff\n'name")

    def do(op: str, **args: Any) -> Any:
        reply = shared.ask({"id": "f", "op": op, "root": str(tmp_path), **args})
        return reply.get("result", reply.get("code"))

    assert do("write", path=f"a/{odd}", content="one\ntwo\n") == {"path": f"a/{odd}", "bytes_written": 8}
    assert (tmp_path / "a" / odd).read_text() == "one\ntwo\n"
    assert do("write", path="b", content64="/w==")["bytes_written"] == 1
    assert do("read", path="b")["content"] == "/w=="
    assert do("lines", path=f"a/{odd}", offset=1)["content"] == "two\n"
    assert do("edit", path=f"a/{odd}", old="two", new="2")["replacements"] == 1
    assert do("glob", pattern="*name")["files"] == [f"a/{odd}"]
    assert do("walk")["files"] == [f"a/{odd}", "b"] or do("walk")["files"] == [f"a/{odd}"]
    assert do("mkdir", path="c/d") == {} and do("move", source="b", target="c/e") == {}
    assert [entry["name"] for entry in do("ls", path="c")["entries"]] == ["d", "e"]
    assert do("stat", path="c")["type"] == "dir"
    assert do("delete", path="c") == "not_empty" and do("delete", path="c", recursive=True) == {}
    assert do("read", path="../x") == "escapes" and do("read", path="no") == "not_found"
    assert do("write", path=".env", content="x") == "protected"
    assert do("write", path="mine", content="x", protect=["mine"]) == "protected"


@pytest.mark.parametrize("engine", ["rg", "grep", ""])
def test_grep_uses_available_programs(tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a.txt").write_text("one\ntwo 2\n")
    (tmp_path / "bin").mkdir()
    for program in (engine, "env" if engine == "grep" else ""):
        found = shutil.which(program) if program else None
        if program and not found:
            pytest.skip(f"needs {program}; install it")
        if found:
            (tmp_path / "bin" / program).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with wickd(python=sys.executable) as one:
        ask = {"id": "g", "op": "grep", "root": str(tmp_path / "tree"), "pattern": r"^t\w+ \d"}
        reply = one.ask(ask)
        if not engine:
            assert reply["code"] == "no_engine"
            return
        assert reply["result"] == {"matches": [{"file": "a.txt", "line": 2, "text": "two 2"}], "truncated": False}
        assert one.ask({**ask, "pattern": "("})["code"] == "invalid"


def test_a_search_can_be_cancelled_and_has_a_time_limit(shared: WickdProcess, tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        for _ in range(60):
            file.write(b"abcdefgh " * 100_000 + b"\n")
    ask = {"op": "grep", "root": str(tmp_path), "pattern": "(a|b|c|d|e|f|g|h| )+z", "ignore_case": True}
    slow = shared.ask({"id": "g", **ask, "timeout": 0.001})
    assert slow.get("code") == "failed" and "time limit" in slow["error"]
    shared.say({"id": "g", **ask})
    shared.say({"id": "c", "op": "cancel", "target": "g"})
    assert {shared.hear()["id"], shared.hear()["id"]} == {"c", "g"}


# -- listening ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["tcp", "unix"], scope="module")
def listening(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = str(tmp_path_factory.mktemp("listening") / "wickd.sock")
    with own_port() as port:
        options = ("--tcp", f"127.0.0.1:{port}") if request.param == "tcp" else ("--unix", path)
        with wickd(*options, "--token-stdin") as one:
            one.say(TOKEN.encode())
            yield path if request.param == "unix" else ("127.0.0.1", port)
            one.process.terminate()
            one.process.wait(60)
            assert not Path(path).exists()


def test_a_valid_token_is_accepted(listening: Any) -> None:
    with connect_when_ready(listening) as one:
        one.say({"token": TOKEN})
        assert one.ask({"id": "r", "cmd": "echo in"})["stdout"] == "in\n"
    if isinstance(listening, str):
        assert stat.S_IMODE(os.stat(listening).st_mode) == 0o600


@pytest.mark.parametrize(
    "first",
    [{"token": "wrong"}, {"token": ""}, {"token": None}, {}, [], b"nonsense", {"id": "r", "cmd": "true"}, b"x" * 9_000],
)
def test_without_the_token_no_reply_is_sent(listening: Any, first: Any) -> None:
    with connect_when_ready(listening) as one:
        assert one.ask(first) == {}


def test_each_connection_sees_only_its_own(listening: Any) -> None:
    mark = uuid4().hex
    with connect_when_ready(listening) as one:
        one.say({"token": TOKEN})
        with connect_when_ready(listening) as other:
            other.say({"token": TOKEN})
            other.say({"id": "long", "cmd": "sleep 100", "env": marked_environment(mark)})
            assert other.ask({"id": "j", "op": "job", "cmd": "sleep 100", "env": marked_environment(mark)})["result"][
                "id"
            ]
            assert becomes_true(lambda: len(marked_processes(mark)) >= 2)
            assert one.ask({"id": "c", "op": "cancel", "target": "long"})["result"] == {"found": False}
            assert one.ask({"id": "j", "op": "jobs"})["result"] == {"jobs": []}
            assert one.ask({"id": "long", "cmd": "echo mine"})["stdout"] == "mine\n"
        assert becomes_true(lambda: not marked_processes(mark)), "what a connection started ends with it"
        assert one.ask({"id": "r", "cmd": "echo still"})["stdout"] == "still\n"


def test_wickd_does_not_listen_without_a_token(tmp_path: Path) -> None:
    file = tmp_path / "wickd.pyz"
    file.write_bytes(zipapp.build_zipapp())
    (tmp_path / "short").write_text("short")
    for options in ([], ["--token-file", str(tmp_path / "short")], ["--token-stdin"]):
        command = [sys.executable, "-I", str(file), "--unix", str(tmp_path / "s"), *options]
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False
        )
        assert done.returncode and "token" in done.stderr
    assert not (tmp_path / "s").exists()


def test_the_token_may_be_in_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
    with wickd("--unix", str(tmp_path / "a"), "--token-file", str(tmp_path / "token")) as one:
        with connect_when_ready(str(tmp_path / "a")) as client:
            client.say({"token": TOKEN})
            assert client.ask({"id": "r", "cmd": "echo in"})["stdout"] == "in\n"
        one.process.terminate()
    monkeypatch.setenv("WICK_DAEMON_TOKEN", TOKEN)
    with wickd("--unix", str(tmp_path / "b")) as one:
        with connect_when_ready(str(tmp_path / "b")) as client:
            client.say({"token": TOKEN})
            seen = client.ask({"id": "r", "cmd": "env; cat /proc/$PPID/environ | tr '\\0' '\\n'"})
            assert TOKEN not in seen["stdout"].replace("cat: ", "") or os.getuid() == 0
        one.process.terminate()


# -- the loop -------------------------------------------------------------------------------------------------------


def test_timers_fire_in_order_unless_cancelled() -> None:
    loop, seen = EventLoop(), []
    for number, seconds in enumerate((0.02, 0.0, 0.01, 0.005)):
        timer = loop.call_later(seconds, lambda number=number: seen.append(number))
        if number == 3:
            timer.cancel()
    loop.call_later(0.03, lambda: setattr(loop, "running", False))
    loop.run()
    assert seen == [1, 2, 0]


def test_cancelled_timers_are_released() -> None:
    loop = EventLoop()
    for _ in range(10_000):
        loop.call_later(1_000, list).cancel()
    assert len(loop._timers) < 600


def test_reader_and_writer_of_one_descriptor_are_distinguished() -> None:
    loop, seen = EventLoop(), []
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        loop.on_read(ours.fileno(), lambda: seen.append(("read", ours.recv(9))))
        loop.on_write(ours.fileno(), lambda: (seen.append(("write", b"")), loop.on_write(ours.fileno(), None)))
        loop.run_once()
        theirs.send(b"x")
        loop.run_once()
        loop.on_read(ours.fileno(), None)
        theirs.send(b"y")
        loop.call_later(0.0, lambda: None)
        loop.run_once()
        loop.unregister(ours.fileno())
    assert seen == [("write", b""), ("read", b"x")]


# -- stored output --------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(0, 60), st.integers(0, 60))
def test_head_and_tail_of_anything(pieces: list[bytes], head: int, tail: int) -> None:
    kept = HeadTailBuffer(head, tail)
    for piece in pieces:
        kept.add(piece)
    whole = b"".join(pieces)
    assert kept.size == len(whole) and kept.truncated == (len(whole) > head + tail)
    if not kept.truncated:
        assert kept.to_text() == whole.decode("utf-8", "replace")
        return
    before, _, rest = kept.to_text().partition("\n[… ")
    left_out, _, after = rest.partition(" bytes were left out here …]\n")
    first, last = trim_partial_end(whole[:head]), trim_partial_start(whole[len(whole) - tail :])
    assert before == first.decode("utf-8", "replace") and after == last.decode("utf-8", "replace")
    assert int(left_out) == len(whole) - len(first) - len(last)


@given(st.text(max_size=30), st.integers(0, 40))
def test_no_character_is_cut(text: str, at: int) -> None:
    data = text.encode("utf-8", "replace")
    trim_partial_end(data[:at]).decode()
    trim_partial_start(data[at:]).decode()


@given(st.lists(st.binary(max_size=30), max_size=20), st.integers(1, 40), st.integers(0, 700))
def test_a_ring_of_anything(pieces: list[bytes], most: int, offset: int) -> None:
    ring, whole = RingBuffer(most), b"".join(pieces)
    for piece in pieces:
        ring.add(piece)
    start, data = ring.read_since(offset, ended=True)
    assert start == min(max(offset, len(whole) - most, 0), len(whole)) and data == whole[start:]


def test_a_command_right_after_a_workspace_is_forgotten_gets_a_new_watcher(
    tmp_path: Path, shared: WickdProcess
) -> None:
    watch = {"op": "guard", "root": str(tmp_path), "protect": [".env"]}
    (tmp_path / ".env").touch()
    for number in range(20):
        first, last = {"id": f"a{number}", **watch}, {"id": f"b{number}", **watch}
        forget = {"id": f"f{number}", "op": "unwatch", "root": str(tmp_path)}
        shared.say("\n".join(map(json.dumps, (first, forget, last))).encode())  # handled before the watcher has ended
        replies = {reply["id"]: reply for reply in (shared.hear(), shared.hear(), shared.hear())}
        assert replies[f"b{number}"].get("result", {}).get("entries") == replies[f"a{number}"]["result"]["entries"], (
            replies
        )
    shared.ask({"id": "end", "op": "unwatch", "root": str(tmp_path)})
