"""A config with a key in it does not lie where commands can read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from wick import config
from wick.config import load, secrets
from wick.errors import ConfigError

KEY = "sk-0123456789abcdef"
SHOWN = (
    "backend: {type: local, workdir: .}",
    "backend: {type: local, workdir: ..}",
    "backend: {type: local, workdir: link}",
    "backend: {type: local, readable: [.]}",
    'backend: {type: docker, image: x, volumes: {".": /src}}',
)
HELD = (
    f"model: {{provider: openai, model: m, base_url: 'http://127.0.0.1:1/v1', api_key: {KEY}}}",
    f"model: {{provider: openai, model: m, base_url: 'http://h/v1', headers: {{Authorization: Bearer {KEY}}}}}",
    f'model: {{provider: openai, model: m, base_url: "http://127.0.0.1:1/v1", api_key: "${{UNSET:-{KEY}}}"}}',
    f"model: {{provider: openai, model: m, base_url: 'https://h/v1', cert: [a.pem, a.key, {KEY}]}}",
)


def _file(tmp_path: Path, *lines: str) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "link").symlink_to(".")
    (folder / "agents.yaml").write_text("\n".join((*lines, "")))
    return folder / "agents.yaml"


@pytest.mark.parametrize("shown", SHOWN)
@pytest.mark.parametrize("held", HELD)
def test_a_key_that_commands_could_read_is_refused(tmp_path: Path, shown: str, held: str) -> None:
    with pytest.raises(ConfigError, match="holds a key and lies in the workspace of the agent 'default'") as caught:
        load(_file(tmp_path, shown, held), environment={})
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("shown", [*SHOWN, "backend: local", "backend: {type: local, workdir: ./work}"])
def test_a_key_of_a_variable_is_taken(tmp_path: Path, shown: str) -> None:
    held = "model: {provider: openai, model: m, base_url: 'http://127.0.0.1:1/v1', api_key: \"${SOME}\"}"
    assert load(_file(tmp_path, shown, held), environment={"SOME": KEY}).agents


def test_a_workspace_beside_the_file_is_taken(tmp_path: Path) -> None:
    assert load(_file(tmp_path, "backend: {type: local, workdir: ./work}", HELD[0]), environment={}).agents


def test_a_key_of_another_agent_of_the_file_counts(tmp_path: Path) -> None:
    lines = ("agents:", "  a: {model: demo, backend: {type: local, workdir: .}}", f"  b: {{{HELD[0]}}}")
    with pytest.raises(ConfigError, match="of the agent 'a'"):
        load(_file(tmp_path, *lines), environment={})


def test_an_unchecked_file_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "check_exposure", lambda path, agents: None)
    with pytest.raises(pytest.fail.Exception):
        test_a_key_that_commands_could_read_is_refused(tmp_path, SHOWN[0], HELD[0])
    assert secrets.check_exposure is not config.check_exposure  # type: ignore[attr-defined]
