"""Network settings of model servers (proxy, trusted CAs, client certificate), and errors of connections."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from wick._internal.worker_threads import run_in_thread
from wick.errors import ConfigError

PathText = str | os.PathLike[str]
_HASHED_NAME = re.compile(r"[0-9a-f]{8}\.\d+")  # the name of a certificate in a folder that OpenSSL can search
_VERIFY = "the 'verify' of a model's spec must be true, false, or the path of a CA file or folder"
_CERT = "the 'cert' of a model's spec must be a path, or a list of the paths of certificate and key and a password"
_CONTEXTS = 32  # TLS contexts that are cached


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Verification and routing of connections to a server. Files are checked when the settings are created.

    `verify` is False, or the path of a CA file or folder instead of the CAs of the system. `cert` is the path of a PEM
    file with the client certificate and its key, or `(certificate, key)` or `(certificate, key, password)`.
    `trust_env=False` ignores the proxies of the environment.
    """

    verify: bool | PathText = True
    cert: PathText | Sequence[PathText] = field(default=(), repr=False)  # it may contain a password
    trust_env: bool = True
    _changed: tuple[int, ...] = field(default=(), init=False, repr=False)  # renewed files get a new TLS context

    def __post_init__(self) -> None:
        if not isinstance(self.trust_env, bool):
            raise ConfigError(f"the 'trust_env' of a model's spec must be true or false, not {self.trust_env!r}")
        if not isinstance(self.verify, bool):
            object.__setattr__(self, "verify", _read_path(self.verify, _VERIFY))
        parts = [self.cert] if isinstance(self.cert, str | os.PathLike) else self.cert or ()
        if not isinstance(parts, list | tuple) or len(parts) > 3:
            raise ConfigError(_CERT)
        texts = [_read_path(part, _CERT) for part in parts[:2]]
        if parts[2:] and not isinstance(parts[2], str):
            raise ConfigError(_CERT)
        object.__setattr__(self, "cert", (*texts, *parts[2:]))
        files = [path for path in (self.verify, *texts) if isinstance(path, str)]
        object.__setattr__(self, "_changed", tuple(os.stat(path).st_mtime_ns for path in files))
        if files:
            _load_files(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), self)


class Endpoint(NamedTuple):
    """The address of a server, with the parts that every request to it shares."""

    url: str  # percent-encoded
    headers: Mapping[str, str]
    network: NetworkSettings
    proxy: str  # may contain a password
    connect: float  # time limits in seconds
    first_byte: float


class Unreachable(OSError):
    """No connection to the server can be opened. `advice` says what to do, if it is known."""

    def __init__(self, reason: str, advice: str = "", *, status: int | None = None, retryable: bool = True) -> None:
        super().__init__(reason)
        self.advice, self.status, self.retryable = advice, status, retryable


class Broken(OSError):
    """A connection was lost before the response ended, or the response is not HTTP."""


def _read_path(value: object, rule: str) -> str:
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise ConfigError(rule)
    path = os.path.abspath(os.path.expanduser(os.fspath(value)))
    if not os.path.exists(path):
        raise ConfigError(f"there is no file {path}; {rule}")
    return path


def _load_files(context: ssl.SSLContext, network: NetworkSettings) -> None:
    """Load the CAs and the client certificate; raise ConfigError if a file cannot be used."""
    if isinstance(path := network.verify, str):
        try:
            if not os.path.isdir(path):
                context.load_verify_locations(path)
            elif any(map(_HASHED_NAME.fullmatch, os.listdir(path))):
                context.load_verify_locations(capath=path)
            else:
                raise ConfigError(f"no CA is found in the folder {path}; run: openssl rehash {path}")
        except OSError as error:
            raise ConfigError(f"{path} has no CA certificates: {_reason(error)}; give a file in PEM format") from None
    if network.cert:
        file, key, password = (*network.cert, "", "")[:3]  # type: ignore[misc]
        try:  # without a password, OpenSSL would ask for it at the terminal
            context.load_cert_chain(file, key or None, password)
        except OSError as error:
            raise ConfigError(
                f"the client certificate {file} cannot be used: {_reason(error)}; check that it is in PEM format with "
                "its certificate first, that the key belongs to it, and the password of the key"
            ) from None


def _reason(error: OSError) -> str:
    text = error.strerror or str(error) or type(error).__name__
    return re.sub(r"^\[[^]]*\] *| *\(_ssl\.c:\d+\)$", "", text)


# -- TLS contexts ---------------------------------------------------------------------------------------------------

_contexts: dict[tuple[object, ...], ssl.SSLContext] = {}


async def find_context(network: NetworkSettings) -> ssl.SSLContext:
    """Return the TLS context of these settings and of SSL_CERT_FILE and SSL_CERT_DIR, which OpenSSL reads."""
    key = network.verify, network.cert, network._changed, os.getenv("SSL_CERT_FILE"), os.getenv("SSL_CERT_DIR")
    if (context := _contexts.get(key)) is None:
        built = await run_in_thread(lambda: _build_context(network), "reading certificates")
        context = _contexts.setdefault(key, built)
        while len(_contexts) > _CONTEXTS:
            del _contexts[next(iter(_contexts))]
    return context


def _build_context(network: NetworkSettings) -> ssl.SSLContext:
    path = network.verify
    if path is True:
        context = ssl.create_default_context()
    elif isinstance(path, str):
        is_folder = os.path.isdir(path)
        context = ssl.create_default_context(cafile=None if is_folder else path, capath=path if is_folder else None)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _load_files(context, network)
    context.set_alpn_protocols(["http/1.1"])
    return context


# -- proxies --------------------------------------------------------------------------------------------------------


def find_proxy(scheme: str, host: str, port: int) -> str:
    """Return the proxy of the environment for an address, or an empty string."""
    from urllib.request import getproxies, proxy_bypass  # imported late, as it is large

    given = getproxies().get(scheme, "").strip()
    if not given or proxy_bypass(f"{host}:{port}"):
        return ""
    try:
        parts = urlsplit(given if "://" in given else f"http://{given}")
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts._replace(path="", query="", fragment="").geturl()
    except ValueError:  # an invalid port
        pass
    shown = shown_address(given)
    rule = f"{scheme.upper()}_PROXY must be like http://host:port, not {shown!r}"
    raise ConfigError(f"{rule}; correct it, or add {host} to NO_PROXY")


# -- addresses ------------------------------------------------------------------------------------------------------

_HOST_LABEL = re.compile(r"[a-z0-9-]{1,63}")


def check_address(base_url: str, title: str) -> str:
    """Return an address without its last slash; raise ConfigError if it is not one, or holds a password."""
    if not re.fullmatch(r"https?://[^/@?#\s]+(/[^?#\s]*)?", base_url):
        raise ConfigError(f"the base_url of {title} must be like https://host/path, without a password or a query")
    return base_url.rstrip("/")


def check_host_label(text: str, what: str) -> str:
    """Return a text that is put into a host name; raise ConfigError if it could change the rest of the name."""
    if not _HOST_LABEL.fullmatch(text):
        raise ConfigError(f"{what} must have only lower-case letters, digits and hyphens, not {text[:200]!r}")
    return text


def quote_segment(text: str, what: str) -> str:
    """Return a text quoted as one segment of a path; raise ConfigError if it would change the rest of the path."""
    if text in ("", ".", ".."):
        raise ConfigError(f"{what} must not be empty, '.' or '..'; correct it")
    return quote(text, safe="")


def quote_path(path: str, what: str) -> str:
    """Return a relative path with each segment quoted; raise ConfigError for a segment that is empty or dots."""
    return "/".join(quote_segment(segment, f"each part of {what} {path[:200]!r}") for segment in path.split("/"))


def shown_address(url: str) -> str:
    """Return an address for error messages: without user, password and query. It may be malformed."""
    return re.sub(r"^([^/?#]*//)?[^/?#]*@", r"\1", url.partition("?")[0])
