"""Addresses of container engines, parsed from a config or the environment."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from wick.errors import ConfigError

SOCKET = "/var/run/docker.sock"
PORTS = {False: 2375, True: 2376}  # without and with TLS
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """The address of an engine: a unix socket path, or a host and port; `ssh` are arguments of ssh."""

    url: str
    path: str = ""
    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None
    ssh: tuple[str, ...] = ()

    @property
    def base_url(self) -> str:
        """The base URL of requests."""
        if not self.host:
            return "http://engine"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """True if the engine is on this machine, so that folders and loopback ports are shared."""
        return bool(self.path) or self.host in LOOPBACK


def parse_engine_address(engine: str = "", tls: str | ssl.SSLContext | None = None) -> EngineAddress:
    """Parse an engine address; the default is DOCKER_HOST, or else the socket of this machine.

    `tls` is a folder with ca.pem, cert.pem and key.pem, as for `docker --tlsverify`, or an SSLContext.
    """
    if not engine and (engine := os.environ.get("DOCKER_HOST", "")) and os.environ.get("DOCKER_TLS_VERIFY"):
        tls = tls or os.environ.get("DOCKER_CERT_PATH") or str(Path.home() / ".docker")
    url = engine
    if not url:  # the first existing socket: the system's, a rootless Docker's, Podman's
        own = os.environ.get("XDG_RUNTIME_DIR", "")
        user_sockets = [f"{own}/docker.sock", f"{own}/podman/podman.sock"] if own else []
        places = [SOCKET, *user_sockets, "/run/podman/podman.sock"]
        url = f"unix://{next(filter(os.path.exists, places), SOCKET)}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{url!r} is not the address of an engine: {error}") from None
    if parts.scheme == "unix" and parts.path and not parts.netloc:
        return EngineAddress(url, path=unquote(parts.path))
    if parts.scheme in ("tcp", "http", "https") and parts.hostname:
        context = _load_tls_context(tls or None, needed=parts.scheme == "https")
        return EngineAddress(url, host=parts.hostname, port=port or PORTS[context is not None], tls=context)
    if parts.scheme == "ssh" and parts.hostname and not parts.hostname.startswith("-"):
        user = [f"-l{unquote(parts.username)}"] if parts.username else []
        return EngineAddress(url, ssh=(*user, *([f"-p{port}"] if port else []), "--", parts.hostname))
    raise ConfigError(
        f"{url!r} is not the address of an engine; write unix:///path, tcp://host:port or ssh://user@host"
    )


def _load_tls_context(tls: str | ssl.SSLContext | None, needed: bool) -> ssl.SSLContext | None:
    if isinstance(tls, ssl.SSLContext):
        return tls
    if tls is None:
        return ssl.create_default_context() if needed else None
    folder = Path(tls)
    try:
        context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"tls must be a folder with ca.pem, cert.pem and key.pem; {tls!r}: {error}") from None
    return context
