"""A bucket of an object store with the S3 API. Its methods block; many objects are transferred in parallel.

bucket = S3Bucket(BucketAddress.parse("s3://snapshots/team?endpoint=https://objects.example.com"))
bucket.put("a/b", b"content")
bucket.get("a/b")                     None if there is no such object
"""

from __future__ import annotations

import asyncio
import atexit
import os
import random
import re
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from html import unescape
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, quote, unquote, unquote_plus, urlencode, urlsplit

from wick._internal.aws_credentials import find_credentials, find_region
from wick._internal.aws_signature import sign_request
from wick._internal.environment import read_variable
from wick.errors import BackendError, ConfigError

T = TypeVar("T")

SCHEME = "s3://"
PARALLEL = 16  # requests at once
ATTEMPTS = 4
FIRST_DELAY, LONGEST_DELAY = 0.2, 5.0  # seconds before another attempt
CONNECT_SECONDS, SILENT_SECONDS = 5.0, 15.0  # until a connection is open, and between two pieces of a response
SKEW_SECONDS = 840.0  # a clock that is wrong by more than this explains a refused signature; AWS allows 15 minutes
PAUSE_SECONDS = 30.0  # after the last attempt, in which requests fail at once
RETRYABLE = frozenset((408, 429, 500, 502, 503, 504))
UNAVAILABLE = "unavailable"  # the code of errors that concern the bucket, not an object
_EXAMPLE = "s3://bucket/prefix?endpoint=https://host&region=name&style=path"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """The address of a bucket, and the prefix of the keys in it."""

    bucket: str
    prefix: str  # without a slash at its ends
    endpoint: str  # http:// or https://, without a slash at the end
    region: str
    style: str  # `path` (https://host/bucket/key) or `host` (https://bucket.host/key)
    profile: str = ""  # in the files of AWS

    @classmethod
    def parse(cls, text: str) -> BucketAddress:
        """Return the address of `s3://bucket/prefix?endpoint=…`; other parts come from the environment of AWS."""
        parts = urlsplit(text)
        options = dict(parse_qsl(parts.query))
        unknown = [name for name in options if name not in ("endpoint", "region", "style", "profile")]
        if parts.scheme != "s3" or not _BUCKET.fullmatch(parts.netloc) or unknown or parts.fragment:
            raise ConfigError(f"the address of a bucket is like {_EXAMPLE}, not {text!r}; correct it")
        named = options.get("endpoint") or read_variable("AWS_ENDPOINT_URL_S3") or read_variable("AWS_ENDPOINT_URL")
        profile = options.get("profile", "")
        region = options.get("region") or find_region(profile) or ("us-east-1" if named else "")
        if not region:
            raise ConfigError(f"the region of the bucket {parts.netloc} is not set; set AWS_REGION, or add ?region=…")
        endpoint = (named or f"https://s3.{region}.amazonaws.com").rstrip("/")
        found = urlsplit(endpoint)
        if found.scheme not in ("http", "https") or not found.hostname or found.query or found.username:
            raise ConfigError(f"the endpoint of the bucket {parts.netloc} is like https://host:port, not {endpoint!r}")
        style = options.get("style") or ("path" if named or "." in parts.netloc else "host")
        if style not in ("path", "host"):
            raise ConfigError(f"the style of the bucket {parts.netloc} is `path` or `host`, not {style!r}")
        prefix = "/".join(part for part in unquote(parts.path).split("/") if part)
        return cls(parts.netloc, prefix, endpoint, region, style, profile)

    def __str__(self) -> str:
        fields = {"endpoint": self.endpoint, "region": self.region, "style": self.style, "profile": self.profile}
        query = urlencode({name: value for name, value in fields.items() if value})
        return f"{SCHEME}{self.bucket}/{quote(self.prefix)}?{query}"

    def join(self, *names: str) -> BucketAddress:
        """Return the address with a longer prefix."""
        return replace(self, prefix="/".join(part for part in (self.prefix, *names) if part))

    def key_of(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix else name

    def url_of(self, key: str = "", query: str = "") -> str:
        """Return the URL of an object, or of the bucket."""
        scheme, _, host = self.endpoint.partition("://")
        base = f"{scheme}://{self.bucket}.{host}" if self.style == "host" else f"{self.endpoint}/{self.bucket}"
        return f"{base}/{quote(key)}{query}"


class StoredObject(NamedTuple):
    """An object of a bucket in a list."""

    name: str  # without the prefix
    modified: float


class S3Response(NamedTuple):
    """A response of the object store that is not an error."""

    status: int
    body: bytes


class S3Bucket:
    """The objects below a prefix of a bucket. Requests that fail for a moment are repeated."""

    def __init__(self, address: BucketAddress) -> None:
        self.address = address
        self._title = f"the bucket {address.bucket}"
        self._paused = (0.0, "")  # until when requests fail at once, and why

    def put(self, name: str, data: bytes) -> None:
        """Store an object."""
        _run(self._request("PUT", name, data))

    def put_all(self, objects: Iterable[tuple[str, Callable[[], bytes]]]) -> None:
        """Store objects. Their content is loaded when its turn comes."""

        async def put(item: tuple[str, Callable[[], bytes]]) -> None:
            await self._request("PUT", item[0], item[1]())

        _run(_run_parallel(objects, put))

    def get(self, name: str) -> bytes | None:
        """Return an object, or None if there is none."""
        reply = _run(self._request("GET", name))
        return None if reply.status == 404 else reply.body

    def get_all(self, names: list[str], receive: Callable[[str, bytes], object]) -> None:
        """Fetch objects, and pass each to `receive`. Objects that are missing are left out."""

        async def get(name: str) -> None:
            reply = await self._request("GET", name)
            if reply.status != 404:
                receive(name, reply.body)

        _run(_run_parallel(names, get))

    def has(self, name: str) -> bool:
        """Return True if there is such an object."""
        return _run(self._request("HEAD", name)).status != 404

    def list(self, below: str = "") -> Iterator[StoredObject]:
        """Yield the objects whose name begins with `below`, sorted by name."""
        start = self.address.key_of("")
        query = {"list-type": "2", "encoding-type": "url", "prefix": start + below}
        while True:
            page = _run(self._request("GET", "", query=query)).body.decode("utf-8", "replace")
            for item in re.findall(r"<Contents>(.*?)</Contents>", page, re.DOTALL):
                modified = datetime.fromisoformat(_read_tag(item, "LastModified").replace("Z", "+00:00"))
                yield StoredObject(unquote_plus(_read_tag(item, "Key")).removeprefix(start), modified.timestamp())
            if _read_tag(page, "IsTruncated") != "true":
                return
            query["continuation-token"] = _read_tag(page, "NextContinuationToken")

    def delete_all(self, names: Iterable[str]) -> None:
        """Delete objects, also if they are missing."""

        async def delete(name: str) -> None:
            await self._request("DELETE", name)

        _run(_run_parallel(names, delete))

    def check(self) -> None:
        """Raise a BackendError if the bucket cannot be used: the key, the bucket, the clock or the network."""
        _run(self._request("GET", "", query={"list-type": "2", "max-keys": "1"}))

    async def _request(
        self, method: str, name: str, body: bytes = b"", query: dict[str, str] | None = None
    ) -> S3Response:
        """Send a request, again after a failure that may pass. Raise a BackendError, but not for a missing object."""
        until, reason = self._paused
        if time.monotonic() < until:
            raise BackendError(reason, UNAVAILABLE)
        for attempt in range(1, ATTEMPTS + 1):
            reply, problem, delay = await self._try_request(method, name, body, query)
            if reply is not None:
                return reply
            if delay is None:
                raise BackendError(problem, UNAVAILABLE)
            if attempt < ATTEMPTS:
                await asyncio.sleep(min(max(delay, FIRST_DELAY * 2**attempt * random.random()), LONGEST_DELAY))
        self._paused = (time.monotonic() + PAUSE_SECONDS, problem)
        raise BackendError(problem, UNAVAILABLE)

    async def _try_request(
        self, method: str, name: str, body: bytes, query: dict[str, str] | None
    ) -> tuple[S3Response | None, str, float | None]:
        """Send a request once. Return the reply; or the problem, and the least delay if it can be repeated."""
        import aiohttp  # imported late, as it is large
        from yarl import URL

        where = f"{self._title} cannot be reached at {self.address.endpoint}"
        try:
            credentials = find_credentials(self.address.profile, purpose=self._title)
        except ConfigError as error:
            return None, str(error), None
        text = f"?{urlencode(query, quote_via=quote, safe='~')}" if query else ""
        url = self.address.url_of(self.address.key_of(name) if name else "", text)
        headers = sign_request(
            method, url, {}, body, credentials, region=self.address.region, service="s3", now=datetime.now(UTC)
        )
        try:
            async with _session().request(
                method, URL(url, encoded=True), data=body, headers=headers, allow_redirects=False
            ) as response:
                data = await response.read()
        except aiohttp.ClientConnectorCertificateError as error:
            reason = str(error.certificate_error)
            return None, f"{where}: {reason}; set AWS_CA_BUNDLE to the file of its certificate authority", None
        except (aiohttp.ClientError, OSError) as error:  # also a time limit
            reason = " ".join(str(error).split())[:200] or "it did not answer in time"
            return None, f"{where}: {reason}; check the endpoint, the network and the proxy", 0.0
        code = _read_tag(data[:10_000].decode("utf-8", "replace"), "Code")
        if response.status < 300 or (response.status == 404 and name and code in ("", "NoSuchKey")):
            return S3Response(response.status, data), "", None
        retry_after = response.headers.get("Retry-After", "")
        delay = float(retry_after) if retry_after.isdigit() else 0.0
        problem = self._explain(response.status, response.headers, data[:10_000].decode("utf-8", "replace"))
        return None, problem, delay if response.status in RETRYABLE else None

    def _explain(self, status: int, headers: Mapping[str, str], text: str) -> str:
        """Return the problem of an error response as a sentence that says what to do."""
        code = _read_tag(text, "Code")
        found = " ".join(part for part in (code, _read_tag(text, "Message")[:200]) if part) or "no reason was given"
        start = f"{self._title} answered {status} ({found})"
        skew = _measure_skew(headers.get("Date", ""))
        if code == "RequestTimeTooSkewed" or (status == 403 and skew > SKEW_SECONDS):
            return f"{start}: the clock of this machine is wrong by {skew / 60:.0f} minutes; set it, for example by NTP"
        if code == "NoSuchBucket":
            return f"there is no bucket {self.address.bucket} at {self.address.endpoint}; create it or correct the name"
        if status in (301, 307, 308) or code in ("AuthorizationHeaderMalformed", "IllegalLocationConstraintException"):
            named = headers.get("x-amz-bucket-region") or _read_tag(text, "Region") or "another one"
            return f"{start}: its region is {named}, not {self.address.region}; set AWS_REGION, or ?region=…"
        if code in ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken") or status == 401:
            return f"{start}; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"
        if status == 403:
            rights = "s3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject"
            return f"{start}; check the access key, and allow it {rights}"
        return f"{start}; check the endpoint and its log"


def _read_tag(text: str, tag: str) -> str:
    found = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return unescape(found[1]) if found else ""


def _measure_skew(date: str) -> float:
    """Return the difference in seconds between this clock and the `Date` of a response."""
    try:
        return abs((parsedate_to_datetime(date) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return 0.0


async def _run_parallel(items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Await `work` for each item, some at once. The first error ends all."""
    queue = iter(items)

    async def work_queue() -> None:
        for item in queue:
            await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(PARALLEL):
                group.create_task(work_queue())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


# -- event loop -----------------------------------------------------------------------------------------------------


class _LoopThread:
    """The event loop of all buckets of this process, in a daemon thread, with one pool of connections."""

    def __init__(self) -> None:
        self.pid, self.loop = os.getpid(), asyncio.new_event_loop()
        self.sessions = dict[str, Any]()  # by the file of certificate authorities
        self.thread = threading.Thread(target=self.loop.run_forever, name="wick s3", daemon=True)
        self.thread.start()

    def close(self) -> None:
        for session in self.sessions.values():
            asyncio.run_coroutine_threadsafe(session.close(), self.loop).result(5)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


_lock = threading.Lock()
_thread: _LoopThread | None = None


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the event loop of the buckets, and return its result."""
    global _thread
    with _lock:
        if _thread is None or _thread.pid != os.getpid():  # a forked process does not have the thread
            _thread = _LoopThread()
    return asyncio.run_coroutine_threadsafe(work, _thread.loop).result()


@atexit.register
def close_connections() -> None:
    """Close the connections of all buckets. The next request opens new ones."""
    global _thread
    with _lock:
        closed, _thread = _thread, None
    if closed is not None and closed.pid == os.getpid():
        closed.close()


def _session() -> Any:
    """Return the open connections, in the event loop of the buckets."""
    import aiohttp  # imported late, as it is large

    assert _thread is not None
    authorities = read_variable("AWS_CA_BUNDLE")
    if authorities not in _thread.sessions:
        context = ssl.create_default_context(cafile=authorities or None)
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENT_SECONDS)
        connector = aiohttp.TCPConnector(limit=2 * PARALLEL, ssl=context)
        _thread.sessions[authorities] = aiohttp.ClientSession(
            connector=connector, timeout=limits, trust_env=True, auto_decompress=False
        )
    return _thread.sessions[authorities]
