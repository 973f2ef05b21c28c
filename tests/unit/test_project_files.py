"""Files of the repository for its host: the workflow of CI, the templates, the project's metadata."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from doc_pages import ROOT

HOST = ROOT / ".github"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
WORKFLOW: dict[str, Any] = yaml.safe_load((HOST / "workflows" / "ci.yml").read_text("utf-8"))
JOBS: dict[str, Any] = WORKFLOW["jobs"]


def commands(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


def test_the_versions_of_python_are_those_that_ci_runs() -> None:
    named = [re.search(r":: (3\.\d+)$", line) for line in PROJECT["classifiers"]]
    versions = [found[1] for found in named if found]
    assert JOBS["unit"]["strategy"]["matrix"]["python"] == versions == ["3.11", "3.12", "3.13", "3.14"]
    assert PROJECT["requires-python"] == f">={versions[0]}"


def test_ci_runs_every_group_of_integration_tests() -> None:
    groups = re.search(r"^groups := (.*)$", MAKEFILE, re.MULTILINE)
    assert groups and JOBS["integration"]["strategy"]["matrix"]["group"] == groups[1].split()


def test_ci_runs_what_runs_locally() -> None:
    """Each job runs lines of `.ci/run`, and together they run all of them."""
    local = [
        line for line in (ROOT / ".ci" / "run").read_text("utf-8").splitlines() if line.startswith(("make", ".ci"))
    ]
    hosted = [line.replace(" GROUP=${{ matrix.group }}", "") for job in JOBS.values() for line in commands(job)]
    assert len(local) == 4 and {line for line in hosted if not line.startswith("git config")} == {*local}


@pytest.mark.parametrize("job", JOBS)
def test_the_commands_of_a_job_exist(job: str) -> None:
    targets = re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE)
    assert commands(JOBS[job])
    for line in commands(JOBS[job]):
        assert {*re.findall(r"\bmake ([a-z-]+)", line)} <= {*targets}, line
        for script in re.findall(r"(?:\.ci|scripts)/[\w-]+", line):
            assert os.access(ROOT / script, os.X_OK), script


@pytest.mark.parametrize("job", JOBS)
def test_a_job_has_a_time_limit_and_reads_only(job: str) -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert JOBS[job]["timeout-minutes"] <= 60


@pytest.mark.parametrize("path", sorted(HOST.glob("ISSUE_TEMPLATE/[!c]*.yml")), ids=lambda path: path.name)
def test_a_form_for_issues_can_be_shown(path: Path) -> None:
    form = yaml.safe_load(path.read_text("utf-8"))
    assert form["name"] and form["description"]
    fields = [part for part in form["body"] if part["type"] != "markdown"]
    assert len({part["id"] for part in fields}) == len(fields) >= 3
    assert all(part["attributes"]["label"] and part["attributes"]["description"] for part in fields)
    assert any(part.get("validations", {}).get("required") for part in fields)


def test_addresses_are_those_of_the_repository() -> None:
    """One place names the repository; addresses in other files begin with it."""
    repository = PROJECT["urls"]["Repository"]
    files = [ROOT / "pyproject.toml", ROOT / "SECURITY.md", ROOT / "README.md", *HOST.rglob("*.*")]
    texts = [path.read_text("utf-8") for path in files if path.is_file()]
    found = [address for text in texts for address in re.findall(r"https://github\.com/[\w/.-]+", text)]
    assert found and [address for address in found if not address.startswith(repository)] == []


def test_addresses_of_files_lead_to_files() -> None:
    main = f"{PROJECT['urls']['Repository']}/blob/main/"
    texts = [path.read_text("utf-8") for path in [ROOT / "pyproject.toml", *HOST.rglob("*.*")] if path.is_file()]
    named = [name for text in texts for name in re.findall(rf"{re.escape(main)}([\w/.-]+)", text)]
    assert named and [name for name in named if not (ROOT / name).is_file()] == []
