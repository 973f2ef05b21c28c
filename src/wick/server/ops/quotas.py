"""Quotas of users: concurrent resources and request rate. A refusal is a 429 with `Retry-After`."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from wick.server.errors import ApiError
from wick.server.ops.shared_rate import RateRecords, SharedRate
from wick.server.settings import Quotas

QuotaKind = Literal["runs", "threads", "agents", "terminals", "streams"]
MAX_BUCKETS = 10_000
RETRY_SECONDS = {"runs": 5, "terminals": 5, "streams": 5}  # these end by themselves; the others must be deleted


class QuotaLimiter:
    """Counts the resources and requests of users, and raises a 429 above a quota."""

    def __init__(
        self, quotas: Quotas, clock: Callable[[], float] = time.monotonic, records: RateRecords | None = None
    ) -> None:
        self._quotas, self._clock = quotas, clock
        self._shared = SharedRate(records, quotas.requests_per_second, quotas.burst, clock) if records else None
        self.count_servers: Callable[[], int] = lambda: 1  # those that share one database
        self._buckets: dict[str, tuple[float, float]] = {}  # token buckets: requests left, and the time of that count
        self._held: Counter[tuple[QuotaKind, str]] = Counter()

    @property
    def is_shared(self) -> bool:
        """Return True if other servers count against the same quotas."""
        return self.count_servers() > 1

    async def take_request(self, user: str) -> None:
        """Count one request of a user, on all servers together; raise a 429 above the rate."""
        rate = self._quotas.requests_per_second
        if self._shared is None or not self.is_shared or not rate or not self._quotas.burst:
            self.count_request(user)
        elif not await self._shared.take(user):
            raise _too_many("requests at once", math.ceil(1 / rate))

    def count_request(self, user: str) -> None:
        """Count one request of a user in its token bucket here; raise a 429 if the bucket is empty."""
        rate, burst = self._quotas.requests_per_second, float(self._quotas.burst)
        if not rate or not burst:  # 0 means no limit
            return
        now = self._clock()
        left, at = self._buckets.get(user, (burst, now))
        left = min(burst, left + (now - at) * rate)
        if left < 1:
            raise _too_many("requests at once", math.ceil((1 - left) / rate))
        if len(self._buckets) >= MAX_BUCKETS:  # drop buckets that have refilled: a missing bucket counts as full
            self._buckets = {id: bucket for id, bucket in self._buckets.items() if now - bucket[1] < burst / rate}
        self._buckets[user] = (left - 1, now)

    def check_room(self, kind: QuotaKind, have: int) -> None:
        """Raise a 429 if a user who has `have` resources of this kind may not have another."""
        most = self.limit_of(kind)
        if most and have >= most:
            raise _too_many(f"{kind}: at most {most}", RETRY_SECONDS.get(kind, 60))

    @contextmanager
    def hold(self, kind: QuotaKind, user: str) -> Iterator[None]:
        """Hold one resource of this kind while the context is open."""
        self.check_room(kind, self._held[kind, user])
        self._held[kind, user] += 1
        try:
            yield
        finally:
            self._held[kind, user] -= 1
            if not self._held[kind, user]:
                del self._held[kind, user]

    def count_held(self, kind: QuotaKind, user: str) -> int:
        return self._held[kind, user]

    def count_all(self, kind: QuotaKind) -> int:
        """Return the number of resources of this kind that all users hold."""
        return sum(count for (each, _), count in self._held.items() if each == kind)

    def limit_of(self, kind: QuotaKind) -> int:
        limit: int = getattr(self._quotas, kind)
        return limit


def _too_many(what: str, seconds: int) -> ApiError:
    message = f"too many {what}; try again in {seconds} s"
    return ApiError(429, "too_many", message, {"Retry-After": str(max(1, seconds))})
