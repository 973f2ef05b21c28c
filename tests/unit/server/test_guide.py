"""The pages about the server leave nothing out."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from wick.cli.commands.serve import command
from wick.server.auth.access_table import ACCESS
from wick.server.ops.metrics import Metrics
from wick.server.settings import ENVIRONMENT, Jwt, Quotas, Settings

GUIDE = Path(__file__).parents[3] / "docs" / "guide"
ROUTES, SETTINGS, METRICS = (
    (GUIDE / f"{name}.md").read_text(encoding="utf-8") for name in ("http-api", "server", "operations")
)


@pytest.mark.parametrize(("method", "path", "access"), ACCESS)
def test_every_route_is_listed_with_its_roles(method: str, path: str, access: str) -> None:
    route = f"`{method} {path.replace(':path}', '}')}`"
    rows = [line.split("|") for line in ROUTES.splitlines() if line.startswith("|") and route in line.split("|")[1]]
    assert rows, f"{route} is in no table of the guide"
    assert any(access in row[2] for row in rows), f"{route} takes the role {access}"


def test_every_setting_is_documented_with_its_default() -> None:
    rows = {line.split("|")[1].strip(): line for line in SETTINGS.splitlines() if line.startswith("| `")}
    for name in Settings.model_fields:
        assert f"`{name}`" in rows, name
    for variable, name in ENVIRONMENT.items():
        assert f"`{variable}`" in rows[f"`{name}`"], variable
    for name, field in Quotas.model_fields.items():
        assert f"{name}: {field.default:.15g}" in rows["`quotas`"], name
    for name in Jwt.model_fields:
        assert name in rows["`jwt`"], name


def test_every_flag_is_explained() -> None:
    flags = [
        name
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
        for name in option.opts
    ]
    for flag in flags:
        assert f"`{flag}`" in SETTINGS, flag


def test_every_metric_is_explained() -> None:
    names = [line.split()[2] for line in Metrics().render().splitlines() if line.startswith("# TYPE")]
    assert sorted(names) == sorted(re.findall(r"^\| `(wick_[a-z_]+)` \|", METRICS, re.MULTILINE)) and len(names) == 18
