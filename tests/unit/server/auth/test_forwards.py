"""Forwarded requests: a signature is for one user, one request, one place, and a minute."""

from __future__ import annotations

import pytest

from wick.server.auth.forwards import ForwardSigner
from wick.server.auth.identity import User

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
    assert signer.verify(make_signer().sign(ADA, "GET", TARGET, "here"), method, target) is None


def test_a_signature_ends() -> None:
    clock = Clock()
    signer = make_signer(clock=clock)
    header = signer.sign(ADA, "GET", TARGET, "here")
    clock.now += 61
    assert signer.verify(header, "GET", TARGET) is None


def test_a_changed_or_unreadable_header_is_refused() -> None:
    signer = make_signer()
    payload, _, signature = signer.sign(ADA, "GET", TARGET, "here").partition(".")
    admin = signer.sign(User("u2", "eve", "admin"), "GET", TARGET, "there").partition(".")[0]
    for header in (f"{admin}.{signature}", payload, "", ".", f"{payload}.", "\xff.\xff"):
        assert signer.verify(header, "GET", TARGET) is None
    assert ForwardSigner().verify(ForwardSigner().sign(ADA, "GET", TARGET, ""), "GET", TARGET) is None
