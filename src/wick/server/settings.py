"""Settings of the server, by precedence: flags, environment variables, `server.yaml`, defaults."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError

from wick import constants
from wick._internal.paths import default_data_folder
from wick._internal.plugins import find_plugin
from wick._internal.safe_yaml import read
from wick.errors import ConfigError
from wick.stores.registry import find_scheme
from wick.stores.s3 import SCHEME, BucketAddress

ENVIRONMENT = {
    "WICK_HOST": "host",
    "WICK_PORT": "port",
    "WICK_DATA": "data",
    "WICK_TOKEN": "token",
    "WICK_GATEWAY_URL": "gateway",
    "WICK_LIVE": "live",
    "WICK_ADVERTISE": "advertise",
    "WICK_CLUSTER_SECRET": "cluster_secret",
    "WICK_ENCRYPTION_KEY": "encryption_key",
}
MEMORY = "memory"  # value of `store`
LIVE_SCHEMES = ("nats://", "tls://")  # of addresses in `live`
UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
FILE = "server.yaml"  # in the data folder


class _SettingsModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class StaticToken(_SettingsModel):
    """A token of a user, stored as its SHA-256."""

    name: str = Field(min_length=1, max_length=200)  # the user name
    role: Literal["user", "operator", "admin"] = "user"  # what the user may do
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", repr=False)  # the SHA-256 of the token, in hexadecimal


class Jwt(_SettingsModel):
    """JWTs of another identity provider: its keys, and the claims that are used."""

    jwks: str  # a file, or an https address
    issuer: str  # the required `iss` claim
    audience: str  # the required `aud` claim
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")  # accepted signature algorithms
    name_claim: str = "sub"  # the claim with the user name
    role_claim: str = "role"  # the claim with the role


class Quotas(_SettingsModel):
    """Quotas of one user: concurrent resources and request rate; 0 means no limit."""

    runs: int = Field(default=20, ge=0)  # at once
    threads: int = Field(default=10_000, ge=0)  # stored threads; a new one replaces the longest idle one
    agents: int = Field(default=50, ge=0)  # agents that a user has created
    terminals: int = Field(default=8, ge=0)  # open terminals
    streams: int = Field(default=200, ge=0)  # open event streams
    disk: int = Field(default=constants.WORKSPACE_BYTES, ge=0)  # bytes of a workspace that the server created
    reserve: int = Field(default=constants.RESERVED_BYTES, ge=0)  # bytes of the disk that workspaces leave free
    requests_per_second: float = Field(default=50.0, ge=0)  # sustained request rate
    burst: int = Field(default=200, ge=0)  # requests above that rate at once


def _parse_seconds(given: Any) -> Any:
    """Parse a duration such as 30d, 12h, 90m or 45s; 0 means none."""
    if given is None or given is False or (type(given) in (int, float) and given == 0):
        return 0.0
    found = re.fullmatch(r"(\d{1,6})\s*([smhdw])", given.strip()) if isinstance(given, str) else None
    if found is None or not int(found[1]):
        raise ValueError("give a duration, as in 30d, 12h, 90m or 45s; 0 keeps everything")
    return float(int(found[1]) * UNITS[found[2]])


class Retention(_SettingsModel):
    """How long idle data is stored; 0 means forever, except one hour for threads in memory."""

    # a duration such as 30d, after which threads without writes are deleted
    threads: Annotated[float, BeforeValidator(_parse_seconds)] = 0.0


class Settings(_SettingsModel):
    """All settings of a server."""

    host: str = "127.0.0.1"  # the address to listen on; other than loopback, it needs authentication
    port: int = Field(default=8000, ge=0, le=65_535)  # the port to listen on; 0 for any free one
    data: Path = Field(default_factory=default_data_folder)  # the folder of threads, records and workspaces
    config: Path | None = None  # the agents.yaml with the agents
    token: str = Field(default="", repr=False)  # the owner's token; created if there is no authentication
    tokens: tuple[StaticToken, ...] = ()  # tokens of other users
    gateway: str = ""  # the URL of a service that validates tokens
    jwt: Jwt | None = None  # validation of JWTs
    cors_origins: tuple[str, ...] = ()  # origins of pages that may use the server, such as https://app.example.com
    hosts: tuple[str, ...] = ()  # additional host names of the server
    allow_system_messages: bool = False  # clients may send system messages
    store: str = Field(default="sqlite", repr=False)  # sqlite, memory, or postgresql://…
    store_schema: str = "wick"  # the schema in Postgres
    capacity: int = Field(default=0, ge=0)  # runs at once on this server; 0 for no limit. Others wait, or run elsewhere
    # how servers reach each other: nats://…, postgres or local; with Postgres as the store, postgres is the default
    live: str = Field(default="", repr=False)
    live_credentials: Path | None = None  # a file with NATS credentials, or with an nkey
    live_ca: Path | None = None  # the certificates of the authority that signed the one of NATS
    live_cluster: str = Field(
        default="", pattern=r"^[A-Za-z0-9_-]{0,60}$"
    )  # a name; servers with the same one are peers
    # the address at which other servers reach this one, such as http://10.0.0.5:8000; found by default
    advertise: str = ""
    # proves forwarded requests between servers, the same on all; by default derived from `token`, or in the database
    cluster_secret: str = Field(default="", repr=False)
    quotas: Quotas = Quotas()  # limits of one user
    retention: Retention = Retention()  # how long idle data is stored
    # the folder of snapshots, or s3://bucket/prefix, shared by several servers; by default a folder in `data`
    snapshots: Annotated[str, BeforeValidator(lambda given: os.fspath(given) if given else "")] = ""
    # encrypts provider keys that are stored in the settings; without it, a file in `data` does. Postgres requires it
    encryption_key: str = Field(default="", repr=False, pattern=r"^(.{16,})?$")
    models: tuple[str, ...] = ()  # models that users may choose for a run, beside those of stored and set provider keys
    # the least role that changes agents of all users that were created over HTTP; users change their own
    agent_editors: Literal["user", "operator", "admin"] = "admin"
    shares: bool = True  # users may create links with which anyone reads a thread
    titles: bool = True  # the model of a new thread writes its title, with one short call after the first reply
    # options as in agents.yaml that every agent has, whatever its own say: rules are added, other values replaced
    enforced: dict[str, Any] = Field(default_factory=dict)
    static: Path | None = None  # a folder of pages, in place of the web interface
    answer_within: float = Field(default=constants.ASK_SECONDS, gt=0)  # seconds until an open question expires
    grace: float = Field(default=20.0, ge=0, le=3600)  # seconds for runs to end when the server stops
    drain_delay: float = Field(default=0.0, ge=0, le=300)  # seconds before that in which it is not ready, but works
    _file: Path | None = PrivateAttr(default=None)

    @property
    def file(self) -> Path | None:
        """The file that these settings were read from."""
        return self._file

    @property
    def snapshot_folder(self) -> Path | None:
        """The folder of snapshots, if it is set."""
        return Path(self.snapshots) if self.snapshots and not self.snapshots.startswith(SCHEME) else None

    @property
    def on_postgres(self) -> bool:
        return self.store.startswith(("postgres://", "postgresql://", "host="))

    @property
    def live_kind(self) -> Literal["local", "postgres", "nats"]:
        """The kind of the live plane."""
        if self.live.startswith(LIVE_SCHEMES):
            return "nats"
        return "postgres" if self.on_postgres and self.live != "local" else "local"

    @property
    def has_provider(self) -> bool:
        """Return True if an authentication source is configured; otherwise the server creates its own token."""
        return bool(self.token or self.tokens or self.gateway or self.jwt)

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        """The host names that requests may use. A name without a port allows every port."""
        bound = () if self.host in ("0.0.0.0", "::", "") else (url_host(self.host),)
        return (*LOOPBACK_NAMES, *bound, *self.hosts)

    def check(self) -> Settings:
        """Return these settings; raise a ConfigError if a server cannot be started with them."""
        if not is_loopback(self.host) and not self.has_provider:
            raise ConfigError(
                f"{self.host} can be reached from other machines, but no authentication is configured; set --token, "
                "--gateway, or tokens: or jwt: in server.yaml, or listen on 127.0.0.1"
            )
        if self.store not in ("sqlite", MEMORY) and not self.on_postgres:
            scheme = find_scheme(self.store)
            if not scheme or find_plugin("wick.stores", scheme) is None:
                given = f"{scheme}://…" if scheme else self.store  # an address may contain a password
                known = "`sqlite`, `memory`, or an address postgresql://… or of an installed plugin"
                raise ConfigError(f"store is {known}, not {given!r}")
        if self.gateway and not self.gateway.startswith(("http://", "https://")):
            raise ConfigError(f"the gateway is an address http://… or https://…, not {self.gateway!r}")
        if self.advertise and not re.fullmatch(r"https?://[^/?#@\s]+/?", self.advertise):
            raise ConfigError(
                f"advertise is an address without a path, as in http://10.0.0.5:8000, not {self.advertise!r}"
            )
        if self.cluster_secret and len(self.cluster_secret) < constants.SECRET_CHARS:
            problem = f"cluster_secret has fewer than {constants.SECRET_CHARS} characters"
            raise ConfigError(f"{problem}; create one with: openssl rand -hex 32")
        self._check_live()
        if self.snapshots.startswith(SCHEME):
            BucketAddress.parse(self.snapshots)
        return self

    def _check_live(self) -> None:
        known = self.live in ("", "local", "postgres")
        if not known and not all(url.strip().startswith(LIVE_SCHEMES) for url in self.live.split(",")):
            given = f"{scheme}://…" if (scheme := find_scheme(self.live)) else self.live  # may contain a password
            raise ConfigError(f"live is an address nats://… or tls://…, `postgres` or `local`, not {given!r}")
        if self.live == "postgres" and not self.on_postgres:
            raise ConfigError("live: postgres needs Postgres as the store; set store to its address, or remove live")
        if self.live_kind == "nats" and self.store in ("sqlite", MEMORY):
            raise ConfigError(
                f"live connects the servers of one store, and a server with the store {self.store} is alone; set store "
                "to postgresql://…, or remove live"
            )


_GROUPS: dict[str, type[BaseModel]] = {"tokens": StaticToken, "jwt": Jwt, "quotas": Quotas, "retention": Retention}


def _explain_unknown(place: tuple[int | str, ...]) -> str:
    """Return the sentence about a setting that does not exist, with the closest one or all of its group."""
    group = _GROUPS.get(str(place[0]), Settings) if len(place) > 1 else Settings
    known = [*group.model_fields]
    close = get_close_matches(str(place[-1]), known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"the settings are {', '.join(known)}"
    return f"there is no such setting; {hint}"


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def url_host(host: str) -> str:
    """Return a host as in a URL, with IPv6 in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def load_settings(
    flags: Mapping[str, Any], *, environment: Mapping[str, str] | None = None, file: str | Path | None = None
) -> Settings:
    """Return the settings from flags that are not None, the environment, the file and the defaults."""
    environment = os.environ if environment is None else environment
    given = {name: value for name, value in flags.items() if value is not None}
    given = {key: environment[name] for name, key in ENVIRONMENT.items() if environment.get(name)} | given
    path = Path(file) if file is not None else Path(given.get("data") or default_data_folder()) / FILE
    source = read(path, environment) if file is not None or path.is_file() else None
    try:
        settings = Settings(**((source.data if source else {}) | given)).check()
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        place = (*first["loc"],)
        what = _explain_unknown(place) if first["type"] == "extra_forbidden" else first["msg"]
        message = f"{'.'.join(map(str, place)) or 'the settings'}: {what}"
        if source is not None and place and place[0] not in given:
            raise source.error_at(place, message) from None
        raise ConfigError(message) from None
    settings._file = path
    return settings
