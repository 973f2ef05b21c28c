"""The records of the server in Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from conformance.record_cases import *  # noqa: F403
from postgres import shared_server as postgres_server
from wick.server.records import Records
from wick.server.records.postgres import PostgresRecords


@pytest.fixture
async def records() -> AsyncIterator[Records]:
    opened = PostgresRecords(postgres_server().conninfo, schema=postgres_server().schema())
    yield opened
    await opened.close()
