"""Settings: precedence, refusals, and hidden values."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from wick._internal.paths import default_data_folder
from wick.errors import ConfigError
from wick.server.server import Server, ServerOptions
from wick.server.settings import Settings, is_loopback, load_settings

DIGEST = sha256(b"secret").hexdigest()


def load(tmp_path: Path, text: str = "", environment: dict[str, str] | None = None, **flags: Any) -> Settings:
    if text:
        (tmp_path / "server.yaml").write_text(text)
    return load_settings({"data": tmp_path, **flags}, environment=environment or {})


def test_flags_override_environment_and_file(tmp_path: Path) -> None:
    file = "host: ::1\nport: 1\ntoken: of-the-file\n"
    environment = {"WICK_PORT": "2", "WICK_TOKEN": "of-the-environment"}
    found = load(tmp_path, file, environment, port=3)
    assert (found.host, found.token, found.port) == ("::1", "of-the-environment", 3)


def test_every_variable_is_read(tmp_path: Path) -> None:
    said = {"HOST": "localhost", "PORT": "81", "DATA": str(tmp_path / "d"), "TOKEN": "t", "GATEWAY_URL": "http://g"}
    found = load_settings({}, environment={f"WICK_{name}": value for name, value in said.items()})
    assert (found.host, found.port, found.data) == ("localhost", 81, tmp_path / "d")
    assert (found.token, found.gateway) == ("t", "http://g")


def test_the_default_is_loopback(tmp_path: Path) -> None:
    found = load(tmp_path)
    assert (found.host, found.port, found.cors_origins, found.allow_system_messages) == ("127.0.0.1", 8000, (), False)
    assert not found.has_provider


def test_the_data_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_data_folder() == tmp_path / "wick"
    monkeypatch.setenv("XDG_DATA_HOME", "not/absolute")
    assert default_data_folder() == Path.home() / ".local" / "share" / "wick"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com", "", "127.0.0.1.example.com"])
def test_a_public_address_needs_authentication(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="no authentication is configured"):
        load(tmp_path, host=host)
    listed = f"tokens: [{{name: ada, sha256: {DIGEST}}}]\n"
    assert load(tmp_path, listed, host=host).host == host
    assert load(tmp_path / "a", token="t", host=host).has_provider
    assert load(tmp_path / "a", gateway="https://g", host=host).has_provider


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "LOCALHOST"])
def test_loopback_needs_no_authentication(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("prot: 1\n", "line 1: prot: there is no such setting; did you mean port?"),
        ("approvals: 1\n", "approvals: there is no such setting; the settings are host, port, data, config,"),
        ("quotas:\n  runz: 1\n", "line 2: quotas.runz: there is no such setting; did you mean runs?"),
        ("jwt:\n  url: x\n  jwks: y\n  issuer: z\n  audience: a\n", "the settings are jwks, issuer, audience,"),
        ("host: x\nport: many\n", "line 2: port"),
        ("quotas:\n  runs: -1\n", "line 2: quotas.runs"),
        ("tokens:\n- {name: ada, sha256: short}\n", "line 2: tokens.0.sha256"),
        (f"tokens:\n- {{name: ada, role: king, sha256: {DIGEST}}}\n", "tokens.0.role"),
        ("store: mysql://x\n", "store is `sqlite`"),
        ("gateway: ftp://x\n", "the gateway is an address"),
    ],
)
def test_problems_are_reported_with_their_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert says in str(caught.value)


def test_a_flag_that_is_wrong_is_no_fault_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="^port: "):
        load(tmp_path, "host: localhost\n", port=70_000)


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    found = load(tmp_path, f"tokens: [{{name: ada, sha256: {DIGEST}}}]\n", token="hush", store="postgresql://u:pw@h/d")
    assert "hush" not in repr(found) and DIGEST not in repr(found) and "pw" not in repr(found)


def test_hosts_are_those_of_this_machine_and_those_that_are_named(tmp_path: Path) -> None:
    found = load(tmp_path, "hosts: [wick.example.com]\n", host="192.168.1.5", token="t")
    assert found.allowed_hosts == ("localhost", "127.0.0.1", "[::1]", "192.168.1.5", "wick.example.com")
    assert "0.0.0.0" not in load(tmp_path, host="0.0.0.0", token="t").allowed_hosts


def test_a_program_can_set_every_file_setting() -> None:
    assert ServerOptions.__annotations__.keys() == Settings.model_fields.keys()


def test_the_live_plane_follows_the_store(tmp_path: Path) -> None:
    database = "postgresql://db/wick"
    assert load(tmp_path).live_kind == "local"
    assert load(tmp_path, store=database).live_kind == "postgres"
    assert load(tmp_path, store=database, live="local").live_kind == "local"
    several = load(tmp_path, store=database, environment={"WICK_LIVE": "nats://ada:secret@one:4222, tls://two"})
    assert several.live_kind == "nats" and "secret" not in repr(several)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"live": "nats://host"}, "a server with the store sqlite is alone"),
        ({"live": "postgres"}, "needs Postgres as the store"),
        ({"live": "redis://ada:secret@host", "store": "postgresql://db/wick"}, "not 'redis://…'"),
        ({"live": "nats://a,http://b", "store": "postgresql://db/wick"}, "live is an address nats://"),
        ({"live_cluster": "a.b"}, "live_cluster"),
        ({"advertise": "10.0.0.5:8000"}, "advertise is an address without a path, as in http://"),
        ({"advertise": "http://host/wick"}, "advertise is an address without a path"),
        ({"cluster_secret": "short"}, "openssl rand"),
    ],
)
def test_wrong_live_planes_are_refused(tmp_path: Path, given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, **given)


def test_a_store_is_an_address_or_an_object(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="store= takes 'sqlite', 'memory', an address"):
        Server(store=7, data=tmp_path)  # type: ignore[arg-type]


def test_a_postgres_object_is_answered_with_its_address(tmp_path: Path) -> None:
    postgres = pytest.importorskip("wick.stores.postgres")
    with pytest.raises(ConfigError, match=r"give it the address, store='postgresql://…'"):
        Server(store=postgres.Postgres("postgresql://localhost/x"), data=tmp_path)
