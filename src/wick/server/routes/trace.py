"""The runs of a thread, and the trace of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from wick._internal.frozen import thaw
from wick._internal.worker_threads import run_in_thread
from wick.api.types import CallContent, RunTrace, ThreadRun, ThreadRuns, TraceSpan
from wick.capabilities.recorder import VALUE
from wick.prices import price
from wick.protocols import Usage
from wick.server.dependencies import Caller, Wick
from wick.server.errors import not_found
from wick.server.http.spooling import spool_response
from wick.server.runs.call_content import build_call_content, find_span
from wick.threads import Thread

router = APIRouter(tags=["runs"])

COUNTED = ("input_tokens", "output_tokens", "cache_read.input_tokens")  # in the order of Usage


@router.get("/threads/{id}/runs", response_model=ThreadRuns)
async def thread_runs(id: str, caller: Caller, wick: Wick, request: Request) -> Response:
    """List the runs of a thread, with their first and last entries."""
    await wick.store.head(caller.id, id)
    async with wick.thread_loader.load(caller.id, id, request) as thread:
        found = await run_in_thread(
            lambda: ThreadRuns(runs=list_runs(thread)).model_dump_json(), "the runs of a thread"
        )
    return Response(found, media_type="application/json")


def list_runs(thread: Thread) -> list[ThreadRun]:
    """Return the runs of a log. A run that was released and resumed is listed once."""
    found: dict[str, ThreadRun] = {}
    traced = thread.values.get(VALUE, {})
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
    """Return the trace of a run. Only the last runs of a thread have one."""
    row = await wick.records.get("run", caller.id, id)
    if row is None:
        raise not_found(f"run {id!r}")
    async with wick.thread_loader.load(caller.id, row["thread"], request) as thread:
        recorded = thread.values.get(VALUE, {}).get(id)
        del thread  # release the thread while prices are looked up
    if recorded is None:
        raise not_found(f"trace of run {id!r}: the run is in progress, has no recorder, or its trace has expired")
    found = RunTrace.model_validate({**thaw(recorded), "thread_id": row["thread"]})

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
    row = await wick.records.get("run", caller.id, id)
    if row is None:
        raise not_found(f"run {id!r}")
    async with wick.thread_loader.load(caller.id, row["thread"], request) as root:
        recorded = root.values.get(VALUE, {}).get(id, {})
    span = find_span(recorded.get("spans", ()), path)
    if span is None or "request" not in span:
        raise not_found(f"content of the span {path} in run {id!r}: it is not a model call, or was not stored in full")
    place = str(span["attributes"].get("gen_ai.conversation.id", ""))
    if place in ("", root.id):
        thread = root
    else:
        async with wick.thread_loader.load(caller.id, place, request) as child:
            thread = child

    def encode() -> bytes:
        found = build_call_content(span, recorded["spans"], recorded.get("texts", {}), thread)
        return found.model_dump_json().encode()

    return await spool_response(Response(await run_in_thread(encode, "a call"), media_type="application/json"))


def _walk_spans(spans: Iterable[TraceSpan]) -> Iterator[TraceSpan]:
    for span in spans:
        yield span
        yield from _walk_spans(span.children)
