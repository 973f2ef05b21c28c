"""Eval reports over HTTP: operators list and read them."""

from __future__ import annotations

from pathlib import Path

from api_requests import send_request
from eval_shop import SMALL, run_cases
from server_process import host_server
from wick.evals.storage import store_report


async def test_operators_list_and_read_reports(tmp_path: Path) -> None:
    async with host_server(tmp_path) as server:
        assert await send_request(server, "olga", "GET", "/evals") == (200, {"reports": []})
        report = await run_cases(variants={"base": "eval_shop:agent", "unguarded": "eval_shop:unguarded"})
        store_report(tmp_path / "data", "nightly", report)
        status, listed = await send_request(server, "olga", "GET", "/evals")
        (info,) = listed["reports"]
        assert status == 200 and (info["name"], info["suite"], info["regressions"]) == ("nightly", "shop", 1)
        assert await send_request(server, "root", "GET", "/evals/nightly") == (200, report.model_dump())
        status, body = await send_request(server, "olga", "GET", "/evals/weekly")
        assert status == 404 and body["error"]["message"] == "there is no eval report 'weekly'"
        for path in ("/evals", "/evals/nightly"):
            assert (await send_request(server, "ada", "GET", path))[0] == 403


async def test_secrets_of_the_server_are_redacted(tmp_path: Path) -> None:
    async with host_server(tmp_path) as server:
        secret = "token-with-16-distinct-chars"
        server.service.secrets.learn([secret])
        store_report(tmp_path / "data", "leaky", await run_cases({**SMALL, "input": f"Use {secret}."}))
        _, body = await send_request(server, "olga", "GET", "/evals/leaky")
        assert body["cases"][0]["input"] == "Use [secret]."
