"""Forwarded requests: a signature is for one user, one request, one place, and a minute."""

from __future__ import annotations

import pytest

from wick.server.auth.forwards import ForwardSigner
from wick.server.auth.identity import User
from wick.server.errors import ApiError

ADA = User("u1", "ada ü", "operator")
TARGET = b"/agents/a/files/list?path=."


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def make_signer(secret: str = "s" * 32, place: str = "here", clock: Clock | None = None) -> ForwardSigner:
    made = ForwardSigner(clock or Clock())
    made.start(secret, place)
    return made


def test_a_forwarded_request_has_its_user() -> None:
    header = make_signer(place="elsewhere").sign(ADA, "GET", TARGET, "here")
    assert make_signer().verify(header, "GET", TARGET) == ADA


@pytest.mark.parametrize(
    ("method", "target", "signer"),
    [
        ("DELETE", TARGET, make_signer()),
        ("GET", b"/agents/a/files/list?path=..", make_signer()),
        ("GET", TARGET, make_signer(place="there")),
        ("GET", TARGET, make_signer("t" * 32)),
        ("GET", TARGET, ForwardSigner()),  # a server without a cluster
    ],
)
def test_a_signature_is_for_one_request(method: str, target: bytes, signer: ForwardSigner) -> None:
    with pytest.raises(ApiError, match="cluster_secret"):
        signer.verify(make_signer().sign(ADA, "GET", TARGET, "here"), method, target)


def test_a_signature_is_used_once() -> None:
    clock = Clock()
    signer = make_signer(clock=clock)
    header = signer.sign(ADA, "GET", TARGET, "here")
    assert signer.verify(header, "GET", TARGET) == ADA
    with pytest.raises(ApiError, match="used before"):
        signer.verify(header, "GET", TARGET)
    assert signer.verify(signer.sign(ADA, "GET", TARGET, "here"), "GET", TARGET) == ADA  # the same request again
    clock.now += 1000
    signer.verify(signer.sign(ADA, "GET", TARGET, "here"), "GET", TARGET)
    assert len(signer._used) == 1  # the old ones are forgotten


def test_clocks_that_differ_are_reported() -> None:
    ahead = Clock()
    ahead.now += 300
    header = make_signer(clock=ahead).sign(ADA, "GET", TARGET, "here")
    with pytest.raises(ApiError, match="clocks"):
        make_signer().verify(header, "GET", TARGET)


def test_a_signature_ends() -> None:
    clock = Clock()
    signer = make_signer(clock=clock)
    header = signer.sign(ADA, "GET", TARGET, "here")
    clock.now += 61
    with pytest.raises(ApiError, match="too old"):
        signer.verify(header, "GET", TARGET)


def test_a_changed_or_unreadable_header_is_refused() -> None:
    signer = make_signer()
    payload, _, signature = signer.sign(ADA, "GET", TARGET, "here").partition(".")
    admin = signer.sign(User("u2", "eve", "admin"), "GET", TARGET, "there").partition(".")[0]
    for header in (f"{admin}.{signature}", payload, "", ".", f"{payload}.", "\xff.\xff"):
        with pytest.raises(ApiError):
            signer.verify(header, "GET", TARGET)
    with pytest.raises(ApiError):
        ForwardSigner().verify(ForwardSigner().sign(ADA, "GET", TARGET, ""), "GET", TARGET)
