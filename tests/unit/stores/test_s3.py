"""Addresses of buckets, and responses of object stores: repeated requests, and errors as sentences."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from wick.backends.state import State
from wick.capabilities.snapshots import Snapshots
from wick.errors import BackendError, ConfigError
from wick.server.settings import load_settings
from wick.stores import s3
from wick.stores.s3 import BucketAddress, S3Bucket

VARIABLES = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-secret")
    monkeypatch.setattr(s3, "FIRST_DELAY", 0.001)
    yield
    s3.close_connections()


class Answers(ThreadingHTTPServer):
    """A server with scripted responses: status, body and headers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.responses: list[tuple[int, str, dict[str, str]]] = []
        self.requests: list[str] = []

    @property
    def bucket(self) -> S3Bucket:
        return S3Bucket(BucketAddress.parse(f"s3://box?endpoint=http://127.0.0.1:{self.server_port}"))


class Handler(BaseHTTPRequestHandler):
    """Sends the next response."""

    server: Answers
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append(f"{self.command} {self.path}")
        status, body, headers = self.server.responses.pop(0)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())

    do_PUT = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def answers() -> Iterator[Answers]:
    with Answers() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()
        s3.close_connections()  # before the server waits for its connections


# -- addresses ------------------------------------------------------------------------------------------------------


def test_addresses_have_the_style_of_their_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    amazon = BucketAddress.parse("s3://box/a/b/")
    assert amazon.url_of(amazon.key_of("x y")) == "https://box.s3.eu-west-1.amazonaws.com/a/b/x%20y"
    dotted = BucketAddress.parse("s3://my.box?region=us-east-1")
    assert dotted.url_of("x") == "https://s3.us-east-1.amazonaws.com/my.box/x"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio:9000/")
    assert BucketAddress.parse("s3://box").url_of("x") == "http://minio:9000/box/x"
    assert BucketAddress.parse("s3://box?style=host").url_of("x") == "http://box.minio:9000/x"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://garage:3900")
    assert BucketAddress.parse("s3://box").endpoint == "http://garage:3900"
    assert BucketAddress.parse(str(amazon.join("ü", "c"))) == amazon.join("ü", "c")


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("s3://", "the address of a bucket is like s3://bucket/prefix"),
        ("s3://box?endpont=http://h", "the address of a bucket is like s3://bucket/prefix"),
        ("s3://box", "the region of the bucket box is not set; set AWS_REGION"),
        ("s3://box?endpoint=minio:9000", "the endpoint of the bucket box is like https://host:port"),
        ("s3://box?endpoint=http://h&style=dns", "`path` or `host`, not 'dns'"),
    ],
)
def test_wrong_addresses_are_refused_when_the_server_starts(address: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem.replace("?", r"\?")):
        load_settings({"snapshots": address}, environment={})
    with pytest.raises(ConfigError):
        Snapshots(State(), folder=address)


# -- responses ------------------------------------------------------------------------------------------------------

PROBLEMS = [
    (403, "<Code>AccessDenied</Code>", {}, "allow it s3:ListBucket"),
    (403, "<Code>RequestTimeTooSkewed</Code>", {}, "the clock of this machine is wrong"),
    (404, "<Code>NoSuchBucket</Code>", {}, "there is no bucket box"),
    (
        301,
        "<Code>PermanentRedirect</Code>",
        {"x-amz-bucket-region": "eu-west-1"},
        "its region is eu-west-1, not us-e",
    ),
    (400, "<Code>AuthorizationHeaderMalformed</Code><Region>eu-west-2</Region>", {}, "its region is eu-west-2"),
    (400, "<Code>ExpiredToken</Code>", {}, "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"),
    (405, "", {}, r"405 \(no reason was given\); check the endpoint"),
]


@pytest.mark.parametrize(("status", "body", "headers", "problem"), PROBLEMS)
def test_errors_say_what_to_do_and_are_not_repeated(
    answers: Answers, status: int, body: str, headers: dict[str, str], problem: str
) -> None:
    answers.responses = [(status, body, headers)]
    with pytest.raises(BackendError, match=problem) as caught:
        answers.bucket.get("x")
    assert caught.value.code == "unavailable" and "the-secret" not in str(caught.value)


def test_requests_are_repeated_after_failures_that_may_pass(answers: Answers) -> None:
    answers.responses = [(503, "<Code>SlowDown</Code>", {}), (429, "", {}), (500, "", {}), (200, "content", {})]
    assert answers.bucket.get("x") == b"content"
    assert answers.requests == ["GET /box/x"] * 4


def test_a_store_that_stays_away_fails_at_once_for_a_while(answers: Answers) -> None:
    bucket = answers.bucket
    answers.responses = [(503, "<Code>SlowDown</Code>", {})] * 4
    for _ in range(3):
        with pytest.raises(BackendError, match=r"503 \(SlowDown\)"):
            bucket.put("x", b"data")
    assert len(answers.requests) == 4


def test_a_store_that_cannot_be_reached_is_named() -> None:
    bucket = S3Bucket(BucketAddress.parse("s3://box?endpoint=http://127.0.0.1:1"))
    with pytest.raises(BackendError, match="cannot be reached at http://127.0.0.1:1: .*; check the endpoint, the net"):
        bucket.check()


def test_missing_credentials_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(BackendError, match="the bucket box needs credentials of AWS: set AWS_ACCESS_KEY_ID"):
        S3Bucket(BucketAddress.parse("s3://box?endpoint=http://127.0.0.1:1")).check()
