"""Requests to AWS: signatures, event streams, credentials and regions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from struct import pack
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provider.converse import message
from wick._internal.aws_credentials import find_credentials, find_region
from wick._internal.aws_signature import AwsCredentials, sign_request
from wick.errors import ConfigError, ModelError
from wick.models._event_stream import EventStreamDecoder

# -- signatures -----------------------------------------------------------------------------------------------------

# The credentials, requests and signatures of the test suite that AWS publishes.
AKID = AwsCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
TOKEN = (
    "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwth"
    "Ax7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY"
    "9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="
)
NOW = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
SIGNED = [
    ("GET", "/", {}, b"", "", "host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
    ("POST", "/", {}, b"", "", "host;x-amz-date", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
    (
        *("GET", "/?Param2=value2&Param1=value1", {}, b"", "", "host;x-amz-date"),
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ),
    (
        *("POST", "/", FORM, b"Param1=value1", "", "content-type;host;x-amz-date"),
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
    ),
    (
        *("POST", "/", {}, b"", TOKEN, "host;x-amz-date;x-amz-security-token"),
        "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
    ),
]


@pytest.mark.parametrize(("method", "path", "headers", "body", "token", "names", "signature"), SIGNED)
def test_signatures_are_those_of_the_published_suite(
    method: str, path: str, headers: dict[str, str], body: bytes, token: str, names: str, signature: str
) -> None:
    credentials = AKID._replace(token=token or None)
    added = sign_request(
        method, f"https://example.amazonaws.com{path}", headers, body, credentials,
        region="us-east-1", service="service", now=NOW,
    )  # fmt: skip
    assert added.get("x-amz-security-token", "") == token
    assert added["x-amz-date"] == "20150830T123600Z"
    scope = "AKIDEXAMPLE/20150830/us-east-1/service/aws4_request"
    assert added["authorization"] == (
        f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={names}, Signature={signature}"
    )


# The examples in the documentation of S3, whose paths are encoded once, and whose content is signed as a header.
S3_KEY = AwsCredentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
S3_DATE = {"Date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"}
S3_SIGNED = [
    (
        "GET",
        "/test.txt",
        {"Range": "bytes=0-9"},
        b"",
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    ),
    (
        *("PUT", "/test%24file.text", S3_DATE, b"Welcome to Amazon S3."),
        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
    ),
    ("GET", "/?max-keys=2&prefix=J", {}, b"", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
]


@pytest.mark.parametrize(("method", "path", "headers", "body", "signature"), S3_SIGNED)
def test_signatures_of_s3_are_those_of_its_documentation(
    method: str, path: str, headers: dict[str, str], body: bytes, signature: str
) -> None:
    added = sign_request(
        method, f"https://examplebucket.s3.amazonaws.com{path}", headers, body, S3_KEY,
        region="us-east-1", service="s3", now=datetime(2013, 5, 24, tzinfo=UTC),
    )  # fmt: skip
    assert added["authorization"].endswith(f"Signature={signature}")


def test_the_secret_key_is_not_sent() -> None:
    added = sign_request("POST", "https://h/", {}, b"", AKID, region="r", service="s", now=NOW)
    assert AKID.secret_key not in str(added)


# -- event streams --------------------------------------------------------------------------------------------------

EVENT = {":event-type": "messageStop", ":message-type": "event"}
FIRST, SECOND = message(EVENT, b'{"stopReason":"end_turn"}'), message({**EVENT, ":event-type": "metadata"}, b"")


@given(st.lists(st.integers(1, 40), max_size=30))
def test_messages_are_read_in_any_pieces(sizes: list[int]) -> None:
    decoder, left, events = EventStreamDecoder(), FIRST + SECOND, list[bytes]()
    for size in sizes:
        piece, left = left[:size], left[size:]
        events += decoder.feed(piece)
    assert events + decoder.feed(left) == [b'{"messageStop":{"stopReason":"end_turn"}}', b'{"metadata":{}}']
    assert decoder.close() == []


def test_every_damaged_byte_is_noticed() -> None:
    for place in range(len(FIRST)):
        data = bytearray(FIRST)
        data[place] ^= 0xFF
        try:
            events = EventStreamDecoder().feed(bytes(data))
        except ModelError as error:
            assert "damaged" in str(error) or "longer than" in str(error)
        else:
            assert events == [], place


def test_exceptions_and_errors_are_events() -> None:
    decoder = EventStreamDecoder()
    exception = {":message-type": "exception", ":exception-type": "throttlingException"}
    error = {":message-type": "error", ":error-code": "InternalError", ":error-message": "oh"}
    assert decoder.feed(message(exception, b'{"message":"slow down"}') + message(exception, b"<oops>")) == [
        b'{"error":{"type":"throttlingException","message":"slow down"}}',
        b'{"error":{"type":"throttlingException","message":"<oops>"}}',
    ]
    assert decoder.feed(message(error, b"")) == [b'{"error":{"type":"InternalError","message":"oh"}}']


def test_headers_of_every_type_are_skipped() -> None:
    values = [b"\x00", b"\x01", b"\x02a", b"\x03ab", b"\x04abcd", b"\x05abcdefgh", b"\x06\x00\x02ab", b"\x08abcdefgh"]
    lines = b"".join(b"\x01x" + value for value in (*values, b"\x09" + b"u" * 16))
    lines += b"\x0b:event-type\x07\x00\x01e"
    assert EventStreamDecoder().feed(_framed(lines, b"{}")) == [b'{"e":{}}']
    for wrong in (b"\x01x\x63", b"\x01", b"\x01\xff\x00"):
        with pytest.raises(ModelError, match="damaged"):
            EventStreamDecoder().feed(_framed(wrong, b"{}"))


def _framed(lines: bytes, payload: bytes) -> bytes:
    prelude = pack(">II", 16 + len(lines) + len(payload), len(lines))
    checked = prelude + pack(">I", crc32(prelude)) + lines + payload
    return checked + pack(">I", crc32(checked))


def test_a_huge_message_is_refused_before_it_comes() -> None:
    prelude = pack(">II", 2**31, 0)
    with pytest.raises(ModelError, match="longer than"):
        EventStreamDecoder().feed(prelude + pack(">I", crc32(prelude)))


# -- credentials ----------------------------------------------------------------------------------------------------

Files = Callable[[str, str], None]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Without credentials in the environment; the function writes the files of AWS."""
    for name in "REGION DEFAULT_REGION ACCESS_KEY_ID SECRET_ACCESS_KEY SESSION_TOKEN PROFILE".split():
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))

    def write(credentials: str, config: str) -> None:
        (tmp_path / "credentials").write_text(credentials)
        (tmp_path / "config").write_text(config)

    return write


def test_credentials_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SK")
    assert find_credentials() == AwsCredentials("AK", "SK", None)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "ST")
    assert find_credentials() == AwsCredentials("AK", "SK", "ST")
    with pytest.raises(ConfigError, match="there is no profile 'work' with an access key"):
        find_credentials("work")


PROFILES = """
[default]
aws_access_key_id = AK
aws_secret_access_key = S%K
[work]
aws_access_key_id = AK2
aws_secret_access_key = SK2
aws_session_token = ST2
"""


def test_credentials_of_a_profile(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    files(PROFILES, "[default]\nregion = eu-west-1\n[profile work]\nregion = us-east-1\n")
    assert (find_credentials(), find_region()) == (AwsCredentials("AK", "S%K"), "eu-west-1")
    assert (find_credentials("work"), find_region("work")) == (AwsCredentials("AK2", "SK2", "ST2"), "us-east-1")
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert find_credentials().access_key == "AK2"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    assert find_region() == "eu-north-1"
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    assert find_region() == "ap-south-1"


def test_missing_credentials_are_a_sentence(files: Files) -> None:
    with pytest.raises(ConfigError, match="wick needs credentials of AWS: set AWS_ACCESS_KEY_ID and AWS_SECRET"):
        find_credentials()
    assert find_region() == ""
    files("", "[profile sso]\nsso_session = corp\n")
    with pytest.raises(
        ConfigError, match="uses sso_session, which wick does not follow; run: eval .*export-credentials"
    ):
        find_credentials("sso")
    files("not an ini file", "")
    with pytest.raises(ConfigError, match="cannot be read as settings of AWS; correct it"):
        find_credentials()
