"""The three kinds of handlers: commands, servers and prompts."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from executables.claude_kit import (
    Json,
    agent,
    decision_output,
    event_hooks,
    last_prompt,
    recording_handler,
    specific_output,
)
from kit import thread_entries, tool_call, tool_calls_reply, tool_result
from wick import Result, Scripted

PROGRAMS = Path(__file__).parents[3] / "support" / "executables" / "programs"


async def used(folder: Path, hooks: Any, *replies: Any, command: str = "ls") -> Result:
    model = Scripted(tool_calls_reply(tool_call("execute", command=command)), *(replies or ("done",)), spare=True)
    return await agent(folder, hooks, model).run("go")


# -- commands -------------------------------------------------------------------------------------------------------


@pytest.mark.shows("claude", "settings", "type-command", "command")
async def test_a_command_is_one_for_the_shell(tmp_path: Path) -> None:
    hooks = event_hooks(
        "PreToolUse", {"type": "command", "command": f"python3 '{PROGRAMS}/claude_blocker.py' | cat; exit 0"}
    )
    assert tool_result(await used(tmp_path, hooks, command="rm -rf /")) == "ran rm -rf /"  # for the pipe hides the code
    hooks = event_hooks("PreToolUse", {"type": "command", "command": f"python3 '{PROGRAMS}/claude_blocker.py'"})
    assert tool_result(await used(tmp_path, hooks, command="rm -rf /")) == "Deleting everything is not allowed here."
    assert tool_result(await used(tmp_path, hooks)) == "ran ls"


@pytest.mark.shows("claude", "settings", "args")
@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js: apt install nodejs")
async def test_args_are_a_program_without_a_shell(tmp_path: Path) -> None:
    program = str(PROGRAMS / "claude_rewriter.mjs")
    for handler in ({"command": "node", "args": [program, "$HOME; -l"]}, {"args": ["node", program, "$HOME; -l"]}):
        result = await used(tmp_path, event_hooks("PreToolUse", {"type": "command", **handler}))
        assert tool_result(result) == "ran ls $HOME; -l"


@pytest.mark.shows("claude", "*", "CLAUDE_PROJECT_DIR")
async def test_args_may_name_the_folder(tmp_path: Path) -> None:
    (tmp_path / "no").write_text("not here")
    handler = {"type": "command", "args": ["sh", "-c", 'cat "$0" >&2; exit 2', "${CLAUDE_PROJECT_DIR}/no"]}
    assert tool_result(await used(tmp_path, event_hooks("PreToolUse", handler))) == "not here"


@pytest.mark.shows("claude", "settings", "timeout")
async def test_a_command_has_a_time_limit(tmp_path: Path) -> None:
    handler = {"type": "command", "command": "sleep 60", "timeout": 0.2}
    assert "did not answer within 0.2 s, so it has not agreed" in tool_result(
        await used(tmp_path, event_hooks("PreToolUse", handler))
    )


# -- servers --------------------------------------------------------------------------------------------------------

Answer = Callable[[web.Request], web.Response]


@asynccontextmanager
async def run_http_server(answer: Any, got: list[tuple[Any, Json]] | None = None) -> AsyncIterator[str]:
    """A server on this machine that answers every request in the same way."""

    over = asyncio.Event()

    async def respond(request: web.Request) -> web.StreamResponse:
        if got is not None:
            got.append((request.headers, await request.json()))
        if answer is None:
            await over.wait()
        status, body = answer if isinstance(answer, tuple) else (200, answer)
        return web.Response(status=status, body=body if isinstance(body, str | bytes) else json.dumps(body))

    app = web.Application()
    app.router.add_post("/hook", respond)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    finally:
        over.set()
        await runner.cleanup()


@pytest.mark.shows("claude", "settings", "type-http", "url", "headers")
async def test_a_server_decides_by_2xx_and_a_json_object(tmp_path: Path) -> None:
    got: list[tuple[Any, Json]] = []
    async with run_http_server(decision_output("deny", "says the server"), got) as url:
        handler = {"type": "http", "url": url, "headers": {"X-Team": "blue"}}
        result = await used(tmp_path, event_hooks("PreToolUse", handler))
    assert tool_result(result) == "says the server"
    ((headers, payload),) = got
    assert headers["X-Team"] == "blue" and headers["Content-Type"] == "application/json"
    assert (payload["tool_name"], payload["tool_input"]) == ("Bash", {"command": "ls"})


@pytest.mark.shows("claude", "settings", "type-http")
@pytest.mark.parametrize("body", ["", "all good", {}])
async def test_an_empty_server_response_passes(tmp_path: Path, body: Any) -> None:
    async with run_http_server(body) as url:
        assert tool_result(await used(tmp_path, event_hooks("PreToolUse", {"type": "http", "url": url}))) == "ran ls"


@pytest.mark.shows("claude", "settings", "type-http")
@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((500, decision_output("allow")), "answered with status 500"),
        ((302, ""), "answered with status 302"),
        ((404, "not here"), "answered with status 404"),
        ('{"hookSpecificOutput": ', "did not answer with JSON|answered with"),
        ({"continue": "no"}, "answered with JSON that does not fit"),
        (b"{" + b" " * 1_100_000, "answered with more than 1,000,000 bytes"),
        (None, "did not answer within"),
    ],
)
async def test_a_server_that_fails_has_not_agreed(tmp_path: Path, answer: Any, problem: str) -> None:
    async with run_http_server(answer) as url:
        handler = {"type": "http", "url": url, "timeout": 1 if answer is None else 20}
        said = tool_result(await used(tmp_path, event_hooks("PreToolUse", handler)))
        assert "so it has not agreed" in said and any(part in said for part in problem.split("|"))
        assert tool_result(await used(tmp_path, event_hooks("PreToolUse", {**handler, "fail": "open"}))) == "ran ls"


async def test_a_server_that_is_not_there_has_not_agreed(tmp_path: Path) -> None:
    async with run_http_server({}) as url:
        pass
    said = tool_result(await used(tmp_path, event_hooks("PreToolUse", {"type": "http", "url": url})))
    assert "cannot be reached" in said and "so it has not agreed" in said


async def test_a_server_response_to_a_prompt_is_context(tmp_path: Path) -> None:
    model = Scripted("done")
    async with run_http_server("it is Monday") as url:
        await agent(tmp_path, event_hooks("UserPromptSubmit", {"type": "http", "url": url}), model).run("go")
    assert "it is Monday" in last_prompt(model)


# -- prompts --------------------------------------------------------------------------------------------------------


@pytest.mark.shows("claude", "settings", "type-prompt", "prompt")
async def test_a_prompt_asks_the_model(tmp_path: Path) -> None:
    model = Scripted(
        tool_calls_reply(tool_call("execute", command="rm x")), '{"ok": false, "reason": "it deletes"}', "done"
    )
    hooks = event_hooks("PreToolUse", {"type": "prompt", "prompt": "Is it safe? $ARGUMENTS Say so."})
    result = await agent(tmp_path, hooks, model).run("go")
    assert tool_result(result) == "it deletes"
    question = model.requests[1].messages[0].text
    assert question.startswith("Is it safe? <event>") and question.endswith("Say so.") and '"rm x"' in question


@pytest.mark.shows("claude", "settings", "type-prompt")
@pytest.mark.parametrize("reply", ['{"ok": true}', '```json\n{"ok": true, "reason": ""}\n```'])
async def test_an_approving_model_passes(tmp_path: Path, reply: str) -> None:
    hooks = event_hooks("PreToolUse", {"type": "prompt", "prompt": "Is it safe?"})
    assert tool_result(await used(tmp_path, hooks, reply, "done")) == "ran ls"


@pytest.mark.shows("claude", "settings", "type-prompt")
@pytest.mark.parametrize("reply", ["yes", "{}", '{"ok": "true"}', '{"ok": true} {"ok": false}', RuntimeError("down")])
async def test_any_other_model_answer_denies(tmp_path: Path, reply: Any) -> None:
    hooks = event_hooks("PreToolUse", {"type": "prompt", "prompt": "Is it safe?"})
    assert "so it has not agreed" in tool_result(await used(tmp_path, hooks, reply, "done"))


async def test_a_prompt_at_the_end_sends_back(tmp_path: Path) -> None:
    model = Scripted("first", '{"ok": false, "reason": "the tests are missing"}', "second", '{"ok": true}')
    result = await agent(tmp_path, event_hooks("Stop", {"type": "prompt", "prompt": "Is it complete?"}), model).run(
        "go"
    )
    assert result.text == "second" and "the tests are missing" in "".join(m.text for m in result.messages)


# -- unsupported handlers -------------------------------------------------------------------------------------------


async def test_a_kind_of_handler_that_wick_does_not_know_has_not_agreed(tmp_path: Path) -> None:
    said = tool_result(await used(tmp_path, event_hooks("PreToolUse", {"type": "agent", "prompt": "look"})))
    assert "is of the type 'agent', which wick cannot run, so it has not agreed" in said
    result = await used(tmp_path, event_hooks("PostToolUse", {"type": "agent", "prompt": "look"}))
    (event,) = [data["data"] for data in thread_entries(result.thread, "event") if data["name"] == "hook_failed"]
    assert "which wick cannot run" in event["problem"]


async def test_an_if_where_there_is_no_tool_denies(tmp_path: Path) -> None:
    hooks = event_hooks("UserPromptSubmit", recording_handler(specific_output("UserPromptSubmit"), **{"if": "Bash"}))
    result = await agent(tmp_path, hooks, Scripted("never", spare=True)).run("go")
    assert result.reason.startswith("blocked: the hook program") and "it is for events of tools" in result.reason
