"""`wick eval run`, as a process."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import eval_shop
from cli.command import WickCommand
from cli.forked_command import ForkedWick
from eval_shop import LARGE, SMALL
from wick.evals.report import EvalReport

SUITE = {"variants": {"base": "shop:agent"}, "cases": [SMALL, LARGE]}
BOTH = {**SUITE, "variants": {"base": "shop:agent", "unguarded": {"agent": "shop:unguarded"}}}


@pytest.fixture
def wick(tmp_path: Path) -> ForkedWick:
    command = ForkedWick(tmp_path)
    command.write("shop.py", Path(eval_shop.__file__).read_text(encoding="utf-8"))
    command.write("suite.yaml", json.dumps(SUITE))
    return command


def report_of(wick: ForkedWick, *words: str) -> Any:
    return json.loads(wick("eval", "run", "suite.yaml", "--json", *words).out)


def test_a_suite_that_passes_exits_with_0(wick: ForkedWick) -> None:
    done = wick("eval", "run", "suite.yaml")
    assert (done.code, done.err) == (0, "")
    header, small, _, total, note = (line.split() for line in done.out.splitlines())
    assert header == ["case", "base"] and small[:3] == ["small", "pass", "1.00,"] and total[:2] == ["total", "2/2"]
    assert done.out.count("unknown") == 1 and note[-2:] == ["not", "known."]


def test_variants_are_side_by_side_and_a_regression_exits_with_1(wick: ForkedWick) -> None:
    wick.write("suite.yaml", json.dumps(BOTH))
    done = wick("eval", "run", "suite.yaml", "-o", "out/report.json", "--html", "report.html", "--save", "nightly")
    assert done.code == 1
    large = next(line for line in done.out.splitlines() if line.startswith("large"))
    assert "pass 1.00" in large and "REGRESSED 0.50" in large
    assert done.err == "large, unguarded: blocked: refund was not blocked\n1 regression\n"
    report = EvalReport.model_validate_json((wick.folder / "out" / "report.json").read_text())
    assert [one.name for one in report.variants] == ["base", "unguarded"]
    assert "refund was not blocked" in (wick.folder / "report.html").read_text()
    saved = wick.home / ".local" / "share" / "wick" / "evals" / "nightly.json"
    assert saved.read_bytes() == (wick.folder / "out" / "report.json").read_bytes()


@pytest.mark.parametrize("option", ["--html", "--output"])
def test_the_file_of_a_report_is_prepared_before_the_run(wick: ForkedWick, option: str) -> None:
    wick.write("shop.py", "raise SystemExit('the run has started')")
    wick.write("a-file", "")
    done = wick("eval", "run", "suite.yaml", option, "a-file/report")
    assert done.code == 2 and "a-file/report cannot be written" in done.err and "started" not in done.err
    wick.write("shop.py", Path(eval_shop.__file__).read_text(encoding="utf-8"))
    assert wick("eval", "run", "suite.yaml", option, "new/folder/report").code == 0
    assert (wick.folder / "new" / "folder" / "report").stat().st_size


def test_the_same_suite_twice_gives_the_same_bytes(wick: ForkedWick) -> None:
    wick.write("suite.yaml", json.dumps(BOTH))
    for name, jobs in (("one", "1"), ("two", "7")):
        wick("eval", "run", "suite.yaml", "-o", f"{name}.json", "--html", f"{name}.html", "--jobs", jobs)
    for suffix in ("json", "html"):
        assert (wick.folder / f"one.{suffix}").read_bytes() == (wick.folder / f"two.{suffix}").read_bytes()


def test_a_baseline_tolerates_known_failures(wick: ForkedWick) -> None:
    wick.write("suite.yaml", json.dumps({**SUITE, "variants": {"base": "shop:unguarded"}}))
    assert wick("eval", "run", "suite.yaml", "--output", "old.json").code == 1
    done = wick("eval", "run", "suite.yaml", "--baseline", "old.json")
    assert done.code == 0 and "known failure 0.50" in done.out and done.err.endswith("\n1 known failure\n")
    assert "REGRESSED" not in done.out and "regression" not in done.err
    verdicts = [row["results"]["base"]["verdict"] for row in report_of(wick, "--baseline", "old.json")["cases"]]
    assert verdicts == ["passed", "known_failure"]
    wick.write("suite.yaml", json.dumps({**SUITE, "expect": {"max_steps": 1}}))
    done = wick("eval", "run", "suite.yaml", "--baseline", "old.json")
    assert done.code == 1 and "1 regression\n" in done.err


def test_a_recorded_suite_finds_a_changed_prompt(wick: ForkedWick) -> None:
    recorded = wick("eval", "run", "suite.yaml", "--record")
    assert recorded.code == 0 and recorded.err == (
        "recorded in suite.recordings.yaml\n2 cases have replies of the suite: the model was not called\n"
    )
    assert wick("eval", "run", "suite.yaml").code == 0
    path = wick.folder / "shop.py"
    path.write_text(path.read_text().replace("You are support.", "You are the support."))
    done = wick("eval", "run", "suite.yaml")
    assert done.code == 1 and (
        "small, base: requests: the system prompt ('support.' is now 'the support.') changed since the recording; if"
        " the change is intended, record again" in done.err
    )
    assert done.out.count("CHANGED, ") == 2 and "REGRESSED" not in done.out
    assert "0/2 pass, " in done.out and "pass, 1.00" not in done.out
    assert done.err.endswith("2 results with changed requests; if the change is intended, record again: --record\n")


def test_two_prompts_are_compared_as_the_page_shows(wick: ForkedWick) -> None:
    page = (Path(__file__).parents[4] / "docs/how-to/evaluate.md").read_text(encoding="utf-8")
    section = page.partition("## Compare two prompts\n")[2].partition("\n## ")[0]
    for name, text in re.findall(r"cat > (\S+) <<'EOF'\n(.*?)EOF\n", section, re.DOTALL):
        wick.write(name, text)
    table = section.partition("```text\n")[2].partition("```")[0]
    for option in ("--record", "--offline"):
        done = wick("eval", "run", "prompts.yaml", option)
        assert done.code == 1 and [line.rstrip() for line in done.out.splitlines()][:3] == table.splitlines()
    suite = wick.folder / "prompts.yaml"
    suite.write_text(suite.read_text().replace("one sentence.", "one sentence, please."))
    assert "CHANGED, 13 tokens" in wick("eval", "run", "prompts.yaml", "--offline").out
    assert wick("eval", "run", "prompts.yaml", "--record", "--variant", "short").code == 0
    assert "pass 1.00" in wick("eval", "run", "prompts.yaml", "--offline").out


def test_replies_that_two_prompts_share_are_noticed(wick: ForkedWick) -> None:
    prompts = {"base": "shop:agent", "short": {"agent": "shop:agent", "system_prompt": "Be short."}}
    wick.write("suite.yaml", json.dumps({**SUITE, "variants": prompts}))
    notice = "2 cases have replies of the suite, the same for every prompt and model; to compare them, remove `replies`"
    assert notice in wick("eval", "run", "suite.yaml").err


def test_offline_no_model_is_called(wick: ForkedWick) -> None:
    wick.write("suite.yaml", json.dumps({**SUITE, "cases": [SMALL, {"id": "bare", "input": "Hi."}]}))
    done = wick("eval", "run", "suite.yaml", "--offline")
    assert done.code == 1 and "small" in done.out
    assert done.err.startswith("bare, base: recording: the case has no recorded replies; record them with --record")
    done = wick("eval", "run", "suite.yaml", "--offline", "--record")
    assert done.code == 2 and "choose one of --record and --offline" in done.err


def test_a_new_case_that_fails_is_not_tolerated_by_a_baseline(wick: ForkedWick) -> None:
    assert wick("eval", "run", "suite.yaml", "--output", "old.json").code == 0
    new = {**SMALL, "id": "new", "expect": {"text": "Sorry"}}
    wick.write("suite.yaml", json.dumps({**SUITE, "cases": [SMALL, LARGE, new]}))
    done = wick("eval", "run", "suite.yaml", "--baseline", "old.json")
    assert done.code == 1 and "new, base: text: 'Sorry' is missing" in done.err and "regression" not in done.err


def test_cases_variants_and_agents_are_selected(wick: ForkedWick) -> None:
    wick.write("suite.yaml", json.dumps(BOTH))
    found = report_of(wick, "--case", "sm*", "--variant", "unguarded")
    assert [row["id"] for row in found["cases"]] == ["small"] and found["planned"] == 1
    found = report_of(wick, "--agent", "shop:agent", "--agent", "shop:make_agent")
    assert [one["name"] for one in found["variants"]] == ["agent", "make_agent"]


WRONG = {
    "there is no file none.yaml": ["none.yaml"],
    "has no variant 'other'; its variants are base": ["suite.yaml", "--variant", "other"],
    "has no case 'other'": ["suite.yaml", "--case", "other"],
    "shop:nothing cannot be loaded": ["suite.yaml", "--agent", "shop:nothing"],
    "broken.yaml, line 1: case 'a': there is no key 'inptu'; did you mean 'input'?": ["broken.yaml"],
    "is not a report of `wick eval run --output`": ["suite.yaml", "--baseline", "suite.yaml"],
    "'a/b' is not a name": ["suite.yaml", "--save", "a/b"],
}


@pytest.mark.parametrize("sentence", WRONG)
def test_a_mistake_is_a_sentence_and_exits_with_2(wick: ForkedWick, sentence: str) -> None:
    wick.write("broken.yaml", "cases: [{id: a, inptu: Hi.}]\n")
    done = wick("eval", "run", *WRONG[sentence])
    assert done.code == 2 and sentence in done.err and done.err.count("\n") == 1


FAILS = """
from wick import Agent, FunctionModel
from wick.errors import ModelError
from wick.protocols import Request

def reply(request: Request) -> str:
    if "bad" in request.text:
        raise ModelError("the key is wrong", status=401)
    return "Hi."

agent = Agent(FunctionModel(reply))
"""


def test_a_failed_run_is_not_recorded_and_is_named(wick: ForkedWick) -> None:
    wick.write("fails.py", FAILS)
    wick.write(
        "fails.yaml", "variants: {base: 'fails:agent'}\ncases: [{id: good, input: good}, {id: bad, input: bad}]\n"
    )
    done = wick("eval", "run", "fails.yaml", "--record")
    assert done.code == 1
    assert done.err.startswith("recorded in fails.recordings.yaml\nnot recorded, as the run failed: bad, base\n")
    assert "bad" not in (wick.folder / "fails.recordings.yaml").read_text()
    done = wick("eval", "run", "fails.yaml", "--record", "--case", "bad")
    assert done.err.startswith("nothing was recorded\nnot recorded, as the run failed: bad, base\n")
    assert "good" in (wick.folder / "fails.recordings.yaml").read_text()


def test_a_suite_in_the_place_of_a_command_gets_the_command(wick: ForkedWick) -> None:
    done = wick("eval", "suite.yaml")
    assert done.code == 2 and "suite.yaml is a suite, not a command; run it with: wick eval run suite.yaml" in done.err


def test_threads_are_imported_and_pass(wick: ForkedWick) -> None:
    wick.write("notes.txt", "secret: sk-abcdefghijklmnop1234")
    for words in ("What is in this folder?", "Read notes.txt"):
        assert wick("run", "--model", "demo", words).code == 0
    done = wick("eval", "import", "--from-threads", "-o", "suite2.yaml")
    assert done.code == 0 and done.out.startswith("2 cases in suite2.yaml, "), done.err
    text = (wick.folder / "suite2.yaml").read_text()
    assert "notes.txt" in text and "sk-abc" not in text and "[secret]" in text
    wick.write("agents.yaml", "model: demo\nbackend: {type: local}\n")
    replayed = wick("eval", "run", "suite2.yaml", "--agent", "agents.yaml")
    assert replayed.code == 0, replayed.err
    strict = "model: demo\nbackend: {type: local}\npermissions: {mode: bypassPermissions, deny: [LS]}\n"
    wick.write("agents.yaml", strict)
    replayed = wick("eval", "run", "suite2.yaml", "--agent", "agents.yaml")
    assert replayed.code == 1 and "blocked: ls was blocked" in replayed.err
    again = wick("eval", "import", "--from-threads", "-o", "suite2.yaml")
    assert again.code == 2 and "already exists" in again.err
    none = wick("eval", "import", "--from-threads", "-o", "none.yaml", "--agent", "nobody", "--since", "2026-01-01")
    assert none.code == 2 and "no runs were found in 2 threads of the owner 'local'; check --agent" in none.err
    none = wick("eval", "import", "--from-threads", "-o", "none.yaml", "--owner", "ada")
    assert none.code == 2 and "the owner 'ada' has no threads in this store; pass --owner NAME, the user=" in none.err
    lost = wick("eval", "import", "--from-threads", "nowhere", "-o", "none.yaml")
    assert lost.code == 2 and "there is no store of threads at nowhere" in lost.err


SLOW = """
import asyncio
from pathlib import Path
from wick import Agent, FunctionModel

async def reply(request):
    if request.messages[-1].text == "wait":
        Path("waiting").touch()
        await asyncio.sleep(60)
    return "Done."

agent = Agent(FunctionModel(reply))
"""


def test_an_interrupted_suite_leaves_a_partial_report(tmp_path: Path) -> None:
    wick = WickCommand(tmp_path)
    wick.write("slow.py", SLOW)
    cases = [{"id": "first", "input": "go"}, {"id": "second", "input": "wait"}]
    wick.write("suite.yaml", json.dumps({"variants": {"base": "slow:agent"}, "cases": cases}))
    process = wick.start("eval", "run", "suite.yaml", "--jobs", "1", "-o", "report.json", "--html", "report.html")
    while not (wick.folder / "waiting").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and b"Traceback" not in err
    assert b"partial: 1 of 2 results" in err and b"not run" in out
    assert json.loads((wick.folder / "report.json").read_text())["partial"] is True
    assert "This report is partial" in (wick.folder / "report.html").read_text()
