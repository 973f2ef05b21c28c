"""Skills over HTTP: which there are, switching them for oneself, and uploading another one."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import pytest

from api_requests import send_refused, send_request
from server_process import ServerProcess, host_server

SKILL = b"---\nname: greeting\ndescription: How to greet.\n---\nSay hello.\n"


async def skills_of(server: Any, user: str = "ada", agent: str = "default") -> dict[str, bool]:
    _, listed = await send_request(server, user, "GET", f"/agents/{agent}/skills")
    return {skill["name"]: skill["enabled"] for skill in listed["skills"]}


def zipped(**files: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in files.items():
            archive.writestr(name.replace("__", "/").replace("_md", ".md"), data)
    return target.getvalue()


async def test_shipped_skills_are_listed(server: ServerProcess) -> None:
    status, listed = await send_request(server, "ada", "GET", "/agents/skills/available")
    assert status == 200 and "slides" in {skill["name"] for skill in listed["skills"]}
    assert all(not skill["path"].startswith("/") for skill in listed["skills"])  # no path of this machine


async def test_a_skill_is_switched_per_user(server: ServerProcess) -> None:
    path = "/agents/default/skills"
    assert (await skills_of(server))["slides"]
    status, listed = await send_request(server, "ada", "PATCH", path, json={"disable": ["Slides"]})
    assert status == 200 and not {skill["name"]: skill["enabled"] for skill in listed["skills"]}["slides"]
    assert not (await skills_of(server))["slides"] and (await skills_of(server, "bob"))["slides"]
    assert (await send_request(server, "ada", "PATCH", path, json={"enable": ["slides"]}))[0] == 200
    assert (await skills_of(server))["slides"]
    assert await send_refused(server, "ada", "PATCH", path, json={"enable": ["nothing"]}) == (404, "not_found")


async def test_an_agent_without_skills_has_none_to_switch(server: ServerProcess) -> None:
    assert await send_refused(server, "ada", "GET", "/agents/plain/skills") == (409, "conflict")
    assert await send_refused(server, "ada", "POST", "/agents/plain/skills", data=SKILL) == (409, "conflict")


@pytest.mark.parametrize("data", [SKILL, zipped(SKILL_md=SKILL, more__notes_md=b"x"), zipped(greeting__SKILL_md=SKILL)])
async def test_a_skill_is_uploaded_as_a_file_or_as_an_archive(tmp_path: Path, data: bytes) -> None:
    agents = {"default": {"model": "demo", "backend": "local", "skills": True}}
    async with host_server(tmp_path, agents=agents) as there:
        path = "/agents/default/skills"
        status, skill = await send_request(there, "ada", "POST", path, data=data)
        assert status == 201 and skill["name"] == "greeting" and skill["path"] == "skills/greeting/SKILL.md"
        found = await skills_of(there)
        assert found["greeting"] and "slides" in found  # those that were there stay
        assert "greeting" not in await skills_of(there, "bob")
        assert await send_refused(there, "ada", "POST", path, data=data) == (400, "invalid")  # there is one already
        assert (await send_request(there, "ada", "POST", path, data=data, params={"overwrite": "true"}))[0] == 201


@pytest.mark.parametrize("data", [b"", b"no skill", b"PK\x03\x04broken", zipped(other_md=b"x"), b"x" * 10_000_001])
async def test_invalid_skills_are_refused(tmp_path: Path, data: bytes) -> None:
    agents = {"default": {"model": "demo", "backend": "local", "skills": True}}
    async with host_server(tmp_path, agents=agents) as there:
        status, refused = await send_refused(there, "ada", "POST", "/agents/default/skills", data=io.BytesIO(data))
        assert (status, refused) in ((400, "invalid"), (413, "too_large"))
        assert "greeting" not in await skills_of(there)
