"""The image is built, authenticates users, persists threads, and does not run as root."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import yaml

import engines
from images import require_programs
from wheel_install import ROOT, wheelhouse
from wick.client import ServerError, SyncClient
from wick.events import ChatModelStream
from wick.server.settings import ENVIRONMENT
from wick.server.static_files import BUILT_PAGES

pytestmark = pytest.mark.timeout(300)  # an image is built
TOKEN = "a-token-that-is-long-enough"
MOST_MB = 200  # that it adds to its base


def docker(*words: str, seconds: int = 100) -> str:
    """Return the output of a docker command; use the builder that every engine has."""
    environment = {**os.environ, "DOCKER_HOST": engines.find_engine().url, "DOCKER_BUILDKIT": "0"}
    done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=seconds, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return (done.stdout + done.stderr).strip() if words[0] == "logs" else done.stdout.strip()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The image, on a base made of this machine's files, with packages from a folder: nothing is pulled."""
    require_programs("docker")
    if not (BUILT_PAGES / "index.html").is_file():
        pytest.skip("the interface is not built: make ui")
    base = engines.find_engine().image("whole")
    folder = tmp_path_factory.mktemp("image")
    context = folder / "context"
    kept = shutil.ignore_patterns("node_modules", "__pycache__")
    for name in ("src", "ui", "scripts"):
        shutil.copytree(ROOT / name, context / name, ignore=kept)
    for name in ("pyproject.toml", "README.md", "LICENSE", "Dockerfile", ".dockerignore"):
        shutil.copy(ROOT / name, context)
    wheelhouse(folder, f"{ROOT}[server,postgres,nats,mcp]", "hatchling").rename(context / "wheelhouse")
    name = f"wick-test-image:{uuid4().hex[:8]}"
    bases = ["--build-arg", f"PYTHON={base}", "--build-arg", f"NODE={base}"]
    told = docker("build", "--network=none", "--force-rm", "--tag", name, *bases, str(context), seconds=290)
    yield name
    forget(name, told, base)


def forget(name: str, told: str, base: str) -> None:
    """Remove an image and its intermediate layers, and keep its base."""
    engine = engines.find_engine()
    kept = engine.ask("GET", f"/images/{base}/json")["Id"].removeprefix("sha256:")
    for id in (name, *reversed(re.findall(r"^ ---> ([0-9a-f]{12})$", told, re.MULTILINE))):
        if not kept.startswith(id):
            engines.request_engine(engine.path, "DELETE", f"/images/{id}?force=true")


class Container:
    """The image, running, with a port of this machine."""

    def __init__(self, image: str, *options: str) -> None:
        self.port = engines.free_port()
        options = ("--init", "--publish", f"127.0.0.1:{self.port}:8000", "--env", f"WICK_TOKEN={TOKEN}", *options)
        self.id = docker("run", "--detach", "--label", "wick.test.image=1", *options, image)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def inspect(self) -> dict[str, Any]:
        return engines.find_engine().inspect(self.id)

    def log(self) -> str:
        return docker("logs", self.id)

    def healthy(self) -> bool:
        """Wait for a status of the health check."""
        for _ in range(600):
            state = self.inspect()["State"]
            assert state["Running"], self.log()
            if state["Health"]["Status"] != "starting":
                return bool(state["Health"]["Status"] == "healthy")
            time.sleep(0.1)
        return False


@pytest.fixture(scope="module")
def container(image: str) -> Iterator[Container]:
    volume = f"wick-test-{uuid4().hex[:8]}"
    made = Container(image, "--volume", f"{volume}:/data", "--health-interval", "1s")
    yield made
    docker("rm", "--force", "--volumes", made.id)
    docker("volume", "rm", "--force", volume)


def send_words(client: SyncClient, words: str) -> tuple[str, str]:
    """Return the answer and its thread."""
    stream = client.stream("default", words)
    text = "".join(event.delta for event in stream if isinstance(event, ChatModelStream) and event.kind == "text")
    return text, stream.thread_id


@pytest.mark.long
def test_it_serves_authenticated_requests_and_persists_threads(container: Container) -> None:
    assert container.healthy()
    with SyncClient(container.url, "somebody-elses-token") as stranger, pytest.raises(ServerError):
        stranger.agents()
    with SyncClient(container.url, TOKEN) as client:
        text, thread = send_words(client, "What can you do?")
        assert "Offline demo model" in text
    docker("stop", "--time", "30", container.id)
    assert container.inspect()["State"]["ExitCode"] == 0, "it ends by itself when it is told to"
    docker("start", container.id)
    assert container.healthy()
    with SyncClient(container.url, TOKEN) as client:
        assert [message.role for message in client.thread(thread).messages] == ["user", "assistant"]


@pytest.mark.long
def test_it_serves_the_page(container: Container) -> None:
    assert container.healthy()
    page = subprocess.run(["curl", "--silent", container.url], capture_output=True, text=True, timeout=20).stdout
    assert '<div id="root">' in page


@pytest.mark.long
def test_it_does_not_run_as_root(container: Container) -> None:
    assert docker("exec", container.id, "id", "-u") == "10001"
    owners = docker("exec", container.id, "sh", "-c", "stat -c %u /proc/1 /data /data/threads.db; stat -c %u /opt/wick")
    assert owners.split() == ["10001", "10001", "10001", "0"]


@pytest.mark.long
def test_it_contains_python_for_skill_scripts_only(container: Container) -> None:
    code = "import sys, pptx, psycopg, mcp; print(sys.version_info >= (3, 11))"
    assert docker("exec", container.id, "python3", "-c", code) == "True"
    found = docker("exec", container.id, "sh", "-c", "command -v node npm cc gcc pip || true")
    assert found == ""


@pytest.mark.long
def test_without_credentials_it_refuses_to_start(image: str) -> None:
    environment = {**os.environ, "DOCKER_HOST": engines.find_engine().url}
    command = ["docker", "run", "--rm", image]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 2
    assert "no authentication is configured" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.long
def test_the_image_is_small(image: str) -> None:
    sizes = [engines.find_engine().ask("GET", f"/images/{name}/json")["Size"] for name in (image, "wick-test:whole")]
    added = (sizes[0] - sizes[1]) / 1e6
    print(f"the image adds {added:.0f} MB to its base")
    assert added < MOST_MB


# -- with Postgres ----------------------------------------------------------------------------------------------------


def test_the_compose_file_uses_known_settings() -> None:
    told = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    wick, db = told["services"]["wick"], told["services"]["db"]
    ours = {name for name in wick["environment"] if name.startswith("WICK_")}
    assert ours and ours <= set(ENVIRONMENT)
    assert wick["depends_on"]["db"]["condition"] == "service_healthy" and db["healthcheck"]
    assert wick["ports"][0].startswith("127.0.0.1:"), "nobody else reaches it unless somebody says so"
    assert {volume.partition(":")[0] for part in (wick, db) for volume in part["volumes"]} == {*told["volumes"]}
