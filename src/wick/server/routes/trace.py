"""The runs of a thread, and the trace of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from wick._internal.frozen import thaw
from wick._internal.worker_threads import run_in_thread
from wick.api.types import CallContent, RunTrace, ThreadRun, ThreadRuns, TraceSpan
from wick.capabilities.recorder import VALUE, Recorder
from wick.prices import price
from wick.protocols import Usage
from wick.server.dependencies import Caller, Wick
from wick.server.errors import not_found
from wick.server.http.spooling import spool_response
from wick.server.runs.call_content import build_call_content, find_span
from wick.server.service import Service
from wick.threads import Thread

router = APIRouter(tags=["runs"])

COUNTED = ("input_tokens", "output_tokens", "cache_read.input_tokens")  # in the order of Usage


@router.get("/threads/{id}/runs", response_model=ThreadRuns)
async def thread_runs(id: str, caller: Caller, wick: Wick, request: Request) -> Response:
    """List the runs of a thread, with their first and last entries."""
    await wick.store.head(caller.id, id)
    active = wick.runs.executor.find(caller.id, id)
    is_recorded = active is not None and active.run is not None and Recorder.is_recorded(active.run)
    recorded_run = active.info.id if active is not None and is_recorded else ""
    async with wick.thread_loader.load(caller.id, id, request) as thread:
        found = await run_in_thread(
            lambda: ThreadRuns(runs=list_runs(thread, recorded_run)).model_dump_json(), "the runs of a thread"
        )
    return Response(found, media_type="application/json")


def list_runs(thread: Thread, recorded_run: str = "") -> list[ThreadRun]:
    """Return the runs of a log. A run that was released and resumed is listed once.

    `recorded_run` is one in progress that has a trace.
    """
    found: dict[str, ThreadRun] = {}
    traced = {*thread.values.get(VALUE, {}), recorded_run}
    for entry in thread.entries:
        if entry.kind == "run_start":
            id = entry.data["run"]
            run = ThreadRun(run_id=id, first=entry.seq, started=entry.at, traced=id in traced)
            found.setdefault(id, run)
        elif entry.kind == "run_end" and (ended := found.get(entry.data["run"])):
            ended.last, ended.ended = entry.seq, entry.at
            ended.outcome, ended.reason = entry.data["outcome"], entry.data["reason"]
    return [*found.values()]


@router.get("/runs/{id}/trace")
async def trace(id: str, caller: Caller, wick: Wick, request: Request) -> RunTrace:
    """Return the trace of a run. Only the last runs of a thread have one.

    A run in progress has one on the server that performs it. The `ms` of its open spans is null.
    """
    thread_id, recorded = await _load_trace(wick, caller.id, id, request)
    if recorded is None:
        raise not_found(
            f"trace of run {id!r}: it has no recorder, its trace has expired, or another server performs it"
        )
    found = await run_in_thread(
        lambda: RunTrace.model_validate({**thaw(recorded), "thread_id": thread_id}), "reading a trace"
    )

    def add_costs() -> None:  # of each model call; the price list is read on first use, which takes a moment
        for span in _walk_spans(found.spans):
            asked, model = span.attributes, span.attributes.get("gen_ai.request.model")
            counts = [asked.get(f"gen_ai.usage.{name}") for name in COUNTED]
            tokens = Usage(*(count if isinstance(count, int) else 0 for count in counts))
            if isinstance(model, str) and tokens.total_tokens:
                cost = price(model, tokens)
                span.cost = None if cost is None else float(cost)

    await run_in_thread(add_costs, "looking up prices")
    return found


@router.get("/runs/{id}/spans/{path}", response_model=CallContent)
async def call_content(
    id: str,
    path: Annotated[
        str, Path(max_length=200, description="the place of the span, as in `0.2.1`", pattern=r"^\d{1,6}(\.\d{1,6})*$")
    ],
    caller: Caller,
    wick: Wick,
    request: Request,
) -> Response:
    """Return the full request and reply of a model call of a trace. `path` is its place, as in `0.2.1`."""
    thread_id, found = await _load_trace(wick, caller.id, id, request)
    recorded = found or {}
    span = find_span(recorded.get("spans", ()), path)
    if span is None or "request" not in span:
        raise not_found(f"content of the span {path} in run {id!r}: it is not a model call, or was not stored in full")
    place = str(span["attributes"].get("gen_ai.conversation.id", ""))
    async with wick.thread_loader.load(caller.id, place or thread_id, request) as loaded:
        thread = loaded

    def encode() -> bytes:
        found = build_call_content(span, recorded["spans"], recorded.get("texts", {}), thread)
        return found.model_dump_json().encode()

    return await spool_response(Response(await run_in_thread(encode, "a call"), media_type="application/json"))


async def _load_trace(wick: Service, owner: str, id: str, request: Request) -> tuple[str, Mapping[str, Any] | None]:
    """Return the thread of a run, and its trace: the current one if this server performs the run, or the stored one."""
    row = await wick.records.get("run", owner, id)
    if row is None:
        raise not_found(f"run {id!r}")
    active = wick.runs.executor.find(owner, row["thread"])
    if active is not None and active.run is not None and active.info.id == id:
        trace = Recorder.build_partial_trace(active.run)
        return row["thread"], await run_in_thread(lambda: wick.secrets.redact_json(trace), "redacting a trace")
    async with wick.thread_loader.load(owner, row["thread"], request) as thread:
        return row["thread"], thread.values.get(VALUE, {}).get(id)


def _walk_spans(spans: Iterable[TraceSpan]) -> Iterator[TraceSpan]:
    for span in spans:
        yield span
        yield from _walk_spans(span.children)
