"""Quotas and rates: an excess request gets a retry time."""

from __future__ import annotations

import pytest

from wick.server.errors import ApiError
from wick.server.ops.quotas import QuotaLimiter
from wick.server.settings import Quotas


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_requests_are_limited_to_their_rate_after_a_burst() -> None:
    clock = Clock()
    limits = QuotaLimiter(Quotas(requests_per_second=2, burst=3), clock)
    for _ in range(3):
        limits.count_request("ada")
    with pytest.raises(ApiError) as caught:
        limits.count_request("ada")
    assert (caught.value.status, caught.value.headers["Retry-After"]) == (429, "1")
    limits.count_request("bob")  # another one's requests are not counted
    clock.now = 0.5
    limits.count_request("ada")
    with pytest.raises(ApiError):
        limits.count_request("ada")
    clock.now = 1_000
    for _ in range(3):
        limits.count_request("ada")


def test_a_slow_rate_returns_the_wait() -> None:
    limits = QuotaLimiter(Quotas(requests_per_second=0.1, burst=1), Clock())
    limits.count_request("ada")
    with pytest.raises(ApiError) as caught:
        limits.count_request("ada")
    assert caught.value.headers["Retry-After"] == "10"


def test_without_a_rate_there_is_no_wait() -> None:
    limits = QuotaLimiter(Quotas(requests_per_second=0, burst=1), Clock())
    for _ in range(1_000):
        limits.count_request("ada")


def test_idle_users_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wick.server.ops.quotas.MAX_BUCKETS", 10)
    clock = Clock()
    limits = QuotaLimiter(Quotas(requests_per_second=1, burst=2), clock)
    for number in range(10):
        limits.count_request(f"u{number}")
    clock.now = 10
    limits.count_request("ada")
    assert [*limits._buckets] == ["ada"]


def test_a_slot_counts_until_its_release() -> None:
    limits = QuotaLimiter(Quotas(runs=2))
    with limits.hold("runs", "ada"), limits.hold("runs", "ada"):
        assert limits.count_held("runs", "ada") == 2
        with pytest.raises(ApiError) as caught, limits.hold("runs", "ada"):
            raise AssertionError("a third one was let in")
        assert (caught.value.status, caught.value.code) == (429, "too_many")
        with limits.hold("runs", "bob"), limits.hold("terminals", "ada"):
            """Others, and other things, are counted by themselves."""
    assert limits.count_held("runs", "ada") == 0


def test_existing_use_counts_against_the_quota() -> None:
    limits = QuotaLimiter(Quotas(threads=3, agents=0))
    limits.check_room("threads", 2)
    limits.check_room("agents", 1_000_000)
    with pytest.raises(ApiError, match="threads"):
        limits.check_room("threads", 3)


@pytest.mark.parametrize("name", Quotas.model_fields)
def test_zero_is_no_limit_for_every_quota(name: str) -> None:
    limits = QuotaLimiter(Quotas(**{name: 0}), Clock())
    for _ in range(1_000):
        if name in ("burst", "requests_per_second"):
            limits.count_request("ada")
        else:
            limits.check_room(name, 10**6)  # type: ignore[arg-type]
