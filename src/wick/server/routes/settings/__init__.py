"""Settings of the server that admins change while it runs."""

from __future__ import annotations

from fastapi import APIRouter

from wick.server.routes.settings import agent_forms, providers, users

router = APIRouter()
for part in (agent_forms, providers, users):
    router.routes += part.router.routes
