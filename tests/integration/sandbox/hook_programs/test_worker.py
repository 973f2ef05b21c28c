"""A worker program: its calls, every failure, and its restart."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from executables.worker_kit import FAILURES, Make, WorkerProgram, failure_message, run_agent, wait_until_ended
from wick.backends.sandbox.selection import choose_sandbox
from wick.hook_programs.worker import ProgramFailed

# -- calls ----------------------------------------------------------------------------------------------------------


@pytest.mark.shows("lines", "*", "id")
async def test_a_worker_starts_once_and_answers_are_matched_by_id(program: Make) -> None:
    kept = program("def answer(call): return {'said': call['n']}")
    serving = kept.alone()
    assert [await serving.ask({"event": "x", "n": n}, timeout=20) for n in range(5)] == [{"said": n} for n in range(5)]
    assert len(kept.starts) == 1
    assert len({call["id"] for call in kept.calls}) == 5


@pytest.mark.shows("lines", "*", "many-in-flight")
async def test_many_calls_are_in_flight_and_are_answered_in_any_order(program: Make) -> None:
    body = """
def serve():
    calls = [json.loads(sys.stdin.readline()) for _ in range(20)]
    for call in reversed(calls):
        say({"id": call["id"], "said": call["n"]})
    sys.stdin.read()
"""
    serving = program(body).alone()
    answers = await asyncio.gather(*(serving.ask({"event": "x", "n": n}, timeout=20) for n in range(20)))
    assert [answer["said"] for answer in answers] == [*range(20)]


async def test_simultaneous_calls_start_one_process(program: Make) -> None:
    kept = program()
    serving = kept.alone()
    await asyncio.gather(*(serving.ask({"event": "x"}, timeout=20) for _ in range(50)))
    assert len(kept.starts) == 1


async def test_long_texts_and_unusual_characters_pass(program: Make) -> None:
    serving = program("def answer(call): return {'said': call['text']}").alone()
    for text in ("ü🙂\u2028\n\r\t\0", "x" * 900_000):
        assert await serving.ask({"event": "x", "text": text}, timeout=20) == {"said": text}


async def test_standard_error_does_not_disturb_answers(program: Make) -> None:
    body = "def answer(call):\n    for _ in range(20): os.write(2, b'x' * 1_000_000)\n    return {'done': True}"
    assert await program(body).alone().ask({"event": "x"}, timeout=20) == {"done": True}


async def test_a_late_answer_to_an_abandoned_call_is_ignored(program: Make) -> None:
    kept = program("def answer(call):\n    time.sleep(call.get('s', 0))\n    return {}")
    serving = kept.alone()
    assert await serving.ask({"event": "x"}, timeout=20) == {}
    waiting = asyncio.ensure_future(serving.ask({"event": "x", "s": 0.5}, timeout=20))
    async with asyncio.timeout(20):
        while len(kept.calls) < 2:
            await asyncio.sleep(0.01)
    waiting.cancel()
    assert await serving.ask({"event": "x"}, timeout=20) == {}
    assert len(kept.starts) == 1


async def test_a_worker_has_a_clean_environment_and_its_folder(program: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    kept = program("def answer(call): return {'env': [*os.environ], 'cwd': os.getcwd()}")
    answer = await kept.alone().ask({"event": "x"}, timeout=20)
    assert "PATH" in answer["env"] and "SECRET_TOKEN" not in answer["env"]
    assert answer["cwd"] == str(kept.folder.resolve())


async def test_a_worker_runs_in_the_sandbox(program: Make) -> None:
    if choose_sandbox("auto").protection(False, "").asks:
        pytest.skip("there is no sandbox here: install bubblewrap")
    body = f"def answer(call): return {{'sees': os.path.exists({str(Path(__file__))!r}), 'runs': True}}"
    kept = program(body)
    kept.path.write_text(kept.path.read_text().replace(sys.executable, "/usr/bin/python3"))  # it sees only the system's
    if shutil.which("/usr/bin/python3") is None:
        pytest.skip("there is no /usr/bin/python3 here: install python3")
    answer = await kept.alone(sandbox=True).ask({"event": "x"}, timeout=20)
    assert answer == {"sees": False, "runs": True}
    (kept.folder / "starts").unlink()  # it has written down a number that means nothing out here


def test_each_event_loop_has_its_own_process_that_ends_with_it(tmp_path: Path) -> None:
    kept = WorkerProgram(tmp_path, "")
    serving = kept.alone()
    for _ in range(2):
        assert asyncio.run(serving.ask({"event": "x"}, timeout=20)) == {}
    assert len(kept.starts) == 2
    assert not [pid for pid in kept.starts if run_agent(pid)]


# -- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.shows("lines", "*", "crash")
@pytest.mark.shows("lines", "*", "broken-line")
@pytest.mark.parametrize(("body", "sentence"), FAILURES.values(), ids=FAILURES)
async def test_a_program_that_fails_fails_the_call_and_is_started_again(
    program: Make, body: str, sentence: str
) -> None:
    kept = program(body)
    serving = kept.alone()
    assert sentence in await failure_message(serving)
    assert sentence in await failure_message(serving)
    assert len(kept.starts) == 2
    assert await wait_until_ended(kept.starts[0])


@pytest.mark.shows("lines", "*", "timeout")
async def test_a_timed_out_call_fails_all_open_calls_with_a_message(program: Make) -> None:
    kept = program("def answer(call):\n    time.sleep(call['s'])\n    return {}")
    serving = kept.alone()
    assert await serving.ask({"event": "x", "s": 0}, timeout=20) == {}
    late, other = await asyncio.gather(failure_message(serving, timeout=0.2, s=1000), failure_message(serving, s=0))
    assert late == "did not answer within 0.2 s"
    assert other == "was ended, for it did not answer another call in time"
    assert await serving.ask({"event": "x", "s": 0}, timeout=20) == {}
    assert len(kept.starts) == 2
    assert await wait_until_ended(kept.starts[0])


async def test_a_late_answer_is_ignored(program: Make) -> None:
    kept = program("def answer(call):\n    time.sleep(call['s'])\n    return {'s': call['s']}")
    serving = kept.alone()
    assert await serving.ask({"event": "x", "s": 0}, timeout=20) == {"s": 0}  # it has started
    assert "did not answer" in await failure_message(serving, timeout=0.3, s=2)
    await asyncio.sleep(2)
    assert await serving.ask({"event": "x", "s": 0}, timeout=20) == {"s": 0}


async def test_a_second_answer_ends_the_worker_and_fails_open_calls(program: Make) -> None:
    body = """
def answer(call):
    if call["event"] != "waits":
        return {}
    say({"id": "1", "decision": "block"})  # which it has answered before
"""
    kept = program(body)
    serving = kept.alone()
    assert await serving.ask({"event": "x"}, timeout=20) == {}
    assert await failure_message(serving, event="waits") == "answered twice (id '1')"
    assert await serving.ask({"event": "x"}, timeout=20) == {}
    assert len(kept.starts) == 2


async def test_a_worker_that_does_not_read_blocks_only_itself(program: Make) -> None:
    kept = program("def serve(): time.sleep(1000)")
    serving = kept.alone()
    first = asyncio.ensure_future(failure_message(serving, timeout=60))
    async with asyncio.timeout(60):
        while not kept.starts:
            await asyncio.sleep(0.01)
    calls = [failure_message(serving, timeout=3, text="x" * 1_000_000) for _ in range(20)]
    turns, work = 0, asyncio.gather(*calls)
    while not work.done():
        await asyncio.sleep(0.01)
        turns += 1
    said = await work
    assert turns > 20
    assert any("waiting that it does not read" in sentence for sentence in said)
    assert any("did not answer within 3 s" in sentence for sentence in said)
    assert "did not answer another call in time" in await first


@pytest.mark.shows("lines", "*", "back-off")
async def test_a_crashing_worker_is_not_restarted_forever(program: Make) -> None:
    kept = program("def serve(): sys.exit(5)")
    serving = kept.alone()
    said = [await failure_message(serving) for _ in range(100)]
    assert said[0].startswith("ended with exit code 5")
    assert said[-1].startswith("keeps failing (it ended with exit code 5) and is not started again for")
    assert len(kept.starts) < 8


async def test_one_that_answers_again_is_forgiven(program: Make) -> None:
    kept = program("def answer(call): return sys.exit(5) if call['dies'] else {}")
    serving = kept.alone()
    for _ in range(6):
        assert "exit code 5" in await failure_message(serving, dies=True)
        assert await serving.ask({"event": "x", "dies": False}, timeout=20) == {}


@pytest.mark.shows("lines", "*", "idle")
async def test_an_idle_worker_is_stopped_and_restarted_on_demand(program: Make) -> None:
    kept = program()
    serving = kept.alone(idle=0.2)
    assert await serving.ask({"event": "x"}, timeout=20) == {}
    async with asyncio.timeout(20):
        while run_agent(kept.starts[0]):
            await asyncio.sleep(0.02)
    assert await serving.ask({"event": "x"}, timeout=20) == {}
    assert len(kept.starts) == 2


async def test_one_that_works_on_a_call_is_not_idle(program: Make) -> None:
    kept = program("def answer(call):\n    time.sleep(0.6)\n    return {}")
    assert await kept.alone(idle=0.1).ask({"event": "x"}, timeout=20) == {}
    assert len(kept.starts) == 1


async def test_a_removed_or_changed_file_is_detected_at_the_next_call(program: Make) -> None:
    kept = program("def answer(call): return {'version': 1}")
    serving = kept.alone()
    assert await serving.ask({"event": "x"}, timeout=20) == {"version": 1}
    kept.path.write_text(kept.path.read_text().replace("'version': 1", "'version': 22"))
    assert await serving.ask({"event": "x"}, timeout=20) == {"version": 22}
    kept.path.unlink()
    assert await failure_message(serving) == "no longer exists"
    async with asyncio.timeout(20):
        while any(map(run_agent, kept.starts)):
            await asyncio.sleep(0.02)


async def test_open_calls_fail_at_stop(program: Make) -> None:
    serving = program("def answer(call): time.sleep(1000)").alone()
    waiting = asyncio.ensure_future(failure_message(serving))
    await asyncio.sleep(0.3)
    await serving.close()
    assert await waiting == "was stopped"


async def test_a_killed_worker_is_restarted(program: Make) -> None:
    kept = program()
    serving = kept.alone()
    assert await serving.ask({"event": "x"}, timeout=20) == {}
    os.kill(kept.starts[0], signal.SIGKILL)
    async with asyncio.timeout(20):
        while run_agent(kept.starts[0]):
            await asyncio.sleep(0.01)
    with suppress(ProgramFailed):  # a call before the failure was detected gets the error
        await serving.ask({"event": "x"}, timeout=20)
    assert await serving.ask({"event": "x"}, timeout=20) == {}
    assert len(kept.starts) == 2


async def test_an_unreferenced_worker_ends(program: Make) -> None:
    kept = program()
    serving = kept.alone()
    assert await serving.ask({"event": "x"}, timeout=20) == {}
    kept.serving = None
    del serving
    gc.collect()
    async with asyncio.timeout(20):
        while run_agent(kept.starts[0]):
            await asyncio.sleep(0.02)


async def test_under_failures_each_call_gets_its_answer_or_an_error(program: Make) -> None:
    body = """
import random
def answer(call):
    whim = random.Random(call["n"] + os.getpid()).random()
    if whim < 0.02:
        os._exit(9)
    if whim < 0.04:
        print("garbage", flush=True)
    return {"said": call["n"]}
"""
    serving, answered, failed = program(body).alone(), 0, 0

    async def ask(n: int) -> None:
        nonlocal answered, failed
        try:
            assert await serving.ask({"event": "x", "n": n}, timeout=20) == {"said": n}
            answered += 1
        except ProgramFailed as failure:
            assert str(failure)
            failed += 1

    for start in range(0, 320, 32):
        await asyncio.gather(*(ask(n) for n in range(start, start + 32)))
    assert answered + failed == 320 and answered > 0
