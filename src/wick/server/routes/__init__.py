"""The routes of the HTTP API: one module per resource, each with a `router`."""

from __future__ import annotations

from fastapi import APIRouter

from wick.server.routes import (
    agents,
    approvals,
    auth,
    backend,
    cluster,
    container,
    evals,
    events,
    files,
    health,
    hooks,
    invoke,
    limits,
    metrics,
    onion,
    openai,
    pages,
    permissions,
    replay,
    runs,
    settings,
    skills,
    slides,
    terminal,
    threads,
    tools,
    trace,
    undo,
    usage,
    why,
)

ROUTERS: tuple[APIRouter, ...] = tuple(
    module.router
    for module in (
        agents,
        approvals,
        auth,
        backend,
        cluster,
        container,
        evals,
        events,
        files,
        health,
        hooks,
        invoke,
        limits,
        metrics,
        onion,
        openai,
        pages,
        permissions,
        replay,
        runs,
        settings,
        skills,
        slides,
        terminal,
        threads,
        tools,
        trace,
        undo,
        usage,
        why,
    )
)
