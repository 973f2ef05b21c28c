"""Eval reports: the files that `wick eval run --save` stored in the data folder."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from wick._internal.worker_threads import run_in_thread
from wick.evals.report import EvalReport
from wick.evals.storage import EvalReportInfo, list_reports, load_report
from wick.server.dependencies import Wick

router = APIRouter(tags=["evals"])


class EvalReportList(BaseModel):
    """The stored eval reports, the latest first."""

    reports: list[EvalReportInfo]


@router.get("/evals")
async def list_eval_reports(wick: Wick) -> EvalReportList:
    """Return the stored eval reports without their cases."""
    data = wick.settings.data
    return EvalReportList(reports=await run_in_thread(lambda: list_reports(data), "listing eval reports"))


@router.get("/evals/{name}")
async def get_eval_report(name: str, wick: Wick) -> EvalReport:
    """Return a stored eval report, with secrets of the server redacted."""
    data, secrets = wick.settings.data, wick.secrets

    def read_redacted() -> EvalReport:
        return EvalReport.model_validate(secrets.redact_json(load_report(data, name).model_dump()))

    return await run_in_thread(read_redacted, "reading an eval report")
