"""The deployment files: the compose file, the proxy's configuration and the Helm chart."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from compose import compose_command
from helm_chart import render_chart
from wick.config import load
from wick.server.settings import load_settings

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "wick"
SERVERS = ["wick-1", "wick-2", "wick-3"]


def find_object(objects: list[dict[str, Any]], kind: str, name: str = "wick") -> dict[str, Any]:
    return next(found for found in objects if found["kind"] == kind and found["metadata"]["name"] == name)


# -- compose --------------------------------------------------------------------------------------------------------


def test_the_compose_file_has_three_equal_servers_behind_a_proxy() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert sorted(compose["services"]) == ["db", "nats", "proxy", *SERVERS]
    ours = [{**compose["services"][name], "hostname": "", "volumes": []} for name in SERVERS]
    assert [one["environment"].pop("WICK_ADVERTISE") for one in ours] == [f"http://{name}:8000" for name in SERVERS]
    assert ours[0] == ours[1] == ours[2]
    assert {"WICK_CLUSTER_SECRET", "WICK_SNAPSHOTS", "AWS_ACCESS_KEY_ID"} < ours[0]["environment"].keys()
    published = {name for name, service in compose["services"].items() if "ports" in service}
    assert published == {"proxy"}  # the servers trust headers of the proxy
    named = {volume.partition(":")[0] for each in compose["services"].values() for volume in each.get("volumes", [])}
    assert {name for name in named if not name.startswith(".")} == {*compose["volumes"]}
    assert all((DEPLOY / name).is_file() for name in named if name.startswith("."))


def test_the_servers_of_the_compose_file_have_time_to_drain() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    settings = load_settings({"token": "x" * 32}, environment={}, file=DEPLOY / "server.yaml")
    seconds = int(compose["services"]["wick-1"]["stop_grace_period"].removesuffix("s"))
    assert seconds > settings.grace + settings.drain_delay and not settings.snapshots
    bucket = {"WICK_SNAPSHOTS": "s3://wick/team?endpoint=https://objects.example.com"}
    shared = load_settings({"token": "x" * 32}, environment=bucket, file=DEPLOY / "server.yaml")
    assert shared.snapshots == bucket["WICK_SNAPSHOTS"]
    assert [*load(DEPLOY / "agents.yaml").agents] == ["default"]


def test_the_proxy_checks_readiness_and_notices_a_draining_server() -> None:
    text = (DEPLOY / "haproxy.cfg").read_text()
    assert re.findall(r"^    server (\S+) (\S+)$", text, re.MULTILINE) == [(name, f"{name}:8000") for name in SERVERS]
    assert "uri /health/ready" in text and "balance roundrobin" in text
    checks = re.search(r"inter (\d+)s fall (\d+)", text)
    assert checks is not None
    settings = load_settings({"token": "x" * 32}, environment={}, file=DEPLOY / "server.yaml")
    assert settings.drain_delay > int(checks[1]) * int(checks[2])


if compose_command():

    @pytest.mark.parametrize("path", [DEPLOY / "compose.yaml", DEPLOY.parent / "compose.yaml"])
    def test_docker_accepts_the_compose_files(path: Path) -> None:
        environment = {**os.environ, "WICK_TOKEN": "x" * 32, "POSTGRES_PASSWORD": "y"}
        command = [*compose_command(), "-f", str(path), "config", "--quiet"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr


if shutil.which("haproxy"):

    def test_haproxy_accepts_its_configuration() -> None:
        command = ["haproxy", "-c", "-f", str(DEPLOY / "haproxy.cfg")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr


# -- Helm -----------------------------------------------------------------------------------------------------------


def test_the_chart_renders_servers_that_are_checked_and_drained() -> None:
    objects = render_chart(CHART)
    pod = find_object(objects, "StatefulSet")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/health/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/health/live"
    assert pod["terminationGracePeriodSeconds"] == 50
    assert {"name": "WICK_LIVE", "value": "nats://wick-nats:4222"} in container["env"]
    assert {"name": "WICK_ADVERTISE", "value": "http://$(POD_NAME).wick-pods:8000"} in container["env"]
    assert find_object(objects, "Service", "wick-pods")["spec"]["ports"][0]["port"] == 8000
    probe = container["readinessProbe"]
    files = find_object(objects, "ConfigMap")["data"]
    assert yaml.safe_load(files["server.yaml"])["drain_delay"] > probe["periodSeconds"] * probe["failureThreshold"]
    assert {found["kind"] for found in objects} == {
        "ConfigMap",
        "Deployment",
        "PodDisruptionBudget",
        "Service",
        "StatefulSet",
    }


def test_the_files_of_the_chart_are_valid(tmp_path: Path) -> None:
    files = find_object(render_chart(CHART), "ConfigMap")["data"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert load_settings({"token": "x" * 32}, environment={}, file=tmp_path / "server.yaml").grace == 20
    assert [*load(tmp_path / "agents.yaml").agents] == ["default"]


OTHER_VALUES: dict[str, Any] = {
    "replicas": 5,
    "workers": 4,
    "nats": {"enabled": False, "url": "nats://own:4222"},
    "ingress": {"enabled": True, "tlsSecret": "tls"},
    "storage": {"className": "fast"},
    "server": {"snapshots": "s3://wick/team"},
}


def test_the_chart_follows_its_values() -> None:
    objects = render_chart(CHART, OTHER_VALUES, "team")
    ours = find_object(objects, "StatefulSet", "team")["spec"]
    (container,) = ours["template"]["spec"]["containers"]
    assert ours["replicas"] == 5 and "--workers=4" in container["args"]
    assert {"name": "WICK_LIVE", "value": "nats://own:4222"} in container["env"]
    assert ours["volumeClaimTemplates"][0]["spec"]["storageClassName"] == "fast"
    assert (
        yaml.safe_load(find_object(objects, "ConfigMap", "team")["data"]["server.yaml"])["snapshots"]
        == "s3://wick/team"
    )
    assert find_object(objects, "Ingress", "team")["spec"]["tls"][0]["secretName"] == "tls"
    assert not any(found["kind"] == "Deployment" for found in objects)
    selectors = [found["spec"]["selector"] for found in objects if found["kind"] == "Service"]
    assert all(selector == ours["template"]["metadata"]["labels"] for selector in selectors)


@pytest.mark.parametrize(
    "values",
    [
        {"replicas": 0},
        {"replica": 3},
        {"server": {"store": "sqlite"}},
        {"server": {"cluster_secret": "x" * 32}},  # for the Secret
        {"server": {"snapshots": "/snapshots"}},  # no volume is mounted there
        {"nats": {"adress": "x"}},
    ],
)
def test_the_schema_refuses_wrong_values(values: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        render_chart(CHART, values)


HELM = shutil.which("helm", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")

if HELM is not None:

    def run_helm(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HOME": str(folder)}
        return subprocess.run([HELM, *words], env=environment, capture_output=True, text=True, check=False, timeout=60)

    @pytest.mark.parametrize("values", [{}, OTHER_VALUES], ids=["default", "other"])
    def test_helm_renders_the_same(values: dict[str, Any], tmp_path: Path) -> None:
        (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
        done = run_helm(tmp_path, "template", "team", str(CHART), "--values", str(tmp_path / "values.yaml"))
        assert done.returncode == 0, done.stderr
        rendered = [found for found in yaml.safe_load_all(done.stdout) if found]
        assert sorted(map(str, rendered)) == sorted(map(str, render_chart(CHART, values, "team")))

    def test_helm_accepts_the_chart_and_refuses_wrong_values(tmp_path: Path) -> None:
        linted = run_helm(tmp_path, "lint", "--strict", str(CHART))
        assert linted.returncode == 0, linted.stdout + linted.stderr
        refused = run_helm(tmp_path, "template", str(CHART), "--set", "replicas=0")
        assert refused.returncode and "greater than or equal to 1" in refused.stderr
