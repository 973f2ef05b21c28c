"""The benchmarks run, and their reports have the figures they promise. How good they are is for people to judge."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from math import isfinite
from pathlib import Path
from typing import Any

import pytest

import engines

BENCH = Path(__file__).parents[3] / "bench"
COSTS = {"us", "floor_us", "own_us", "ratio"}


def run(name: str, report: Path, *more: str) -> tuple[str, dict[str, Any]]:
    """Return output and result file of a quick run."""
    command = [sys.executable, str(BENCH / name), "--quick", "--json", str(report), *more]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(report.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    return run("loop.py", tmp_path_factory.mktemp("bench") / "results" / "loop.json")


@pytest.fixture(scope="module")
def backends(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    engines.find_engine()  # or a skip with the missing component
    return run("backends.py", tmp_path_factory.mktemp("bench") / "results" / "backends.json")


@pytest.fixture(scope="module")
def executables(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    return run("executables.py", tmp_path_factory.mktemp("bench") / "results" / "executables.json")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    return run("models.py", tmp_path_factory.mktemp("bench") / "results" / "models.json")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    return run("server.py", tmp_path_factory.mktemp("bench") / "results" / "server.json")


def rows(report: dict[str, Any], *groups: str) -> list[dict[str, Any]]:
    return [row for row in report["rows"] if row["group"] in groups]


def test_every_figure_is_there(bench: tuple[str, dict[str, Any]]) -> None:
    _, report = bench
    assert report["quick"] is True
    assert Counter(row["group"] for row in report["rows"]) == {
        "step": 9, "growth": 3, "flow": 6, "ring": 30, "delta": 3, "agent": 3, "import": 3
    }  # fmt: skip
    assert {row["messages"] for row in rows(report, "step", "ring")} == {20, 200, 2_000}
    assert {row["case"] for row in rows(report, "step", "growth")} == {"no hooks", "a few hooks", "20 hooks"}


def test_measurements_are_not_zero(bench: tuple[str, dict[str, Any]]) -> None:
    _, report = bench
    for row in rows(report, "step", "delta", "agent"):
        assert row["us"] > 0 and row["floor_us"] > 0 and row["ratio"] > 0, row
    assert all(row["bytes"] > 0 for row in rows(report, "agent"))
    assert all(row["ms"] > 0 and row["rss_mb"] > 0 and row["ratio"] > 0 for row in rows(report, "import"))


def test_small_differences_are_numbers(bench: tuple[str, dict[str, Any]]) -> None:
    """On a busy machine noise may exceed the cost of one ring; it is a number all the same."""
    _, report = bench
    for row in rows(report, "ring", "growth"):
        assert row.keys() >= COSTS and all(isfinite(row[key]) for key in COSTS), row


def test_goals_are_shown_for_measurements_with_a_goal(bench: tuple[str, dict[str, Any]]) -> None:
    _, report = bench
    goals = {row["goal_us"] for row in rows(report, "delta", "agent")}
    few = {row["goal_us"] for row in rows(report, "step") if row["case"] == "a few hooks"}
    assert goals | few == {5.0, 150.0, 200.0}


def test_a_table_is_printed_for_each_group(bench: tuple[str, dict[str, Any]]) -> None:
    printed, report = bench
    for row in report["rows"]:
        assert any(line.strip().startswith(row["case"]) for line in printed.splitlines()), row["case"]


# -- models ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_every_client_is_measured_in_every_way(models: tuple[str, dict[str, Any]]) -> None:
    _, report = models
    assert Counter(row["group"] for row in report["rows"]) == {"call": 21, "delta": 14, "growth": 7}
    assert Counter(row["messages"] for row in rows(report, "call")) == {20: 7, 100: 7, 200: 7}
    assert Counter(row["pace"] for row in rows(report, "delta")) == {"burst": 7, "live": 7}
    assert len({row["case"] for row in report["rows"]}) == 7


@pytest.mark.long
def test_asking_costs_something_and_the_floor_is_its_own_measure(models: tuple[str, dict[str, Any]]) -> None:
    _, report = models
    assert all(row["us"] > 0 and row["ratio"] > 0 for row in rows(report, "call"))
    assert all(isfinite(row[key]) for row in rows(report, "delta", "growth") for key in COSTS)
    floors = [row for row in rows(report, "call", "delta") if "bare aiohttp" in row["case"]]
    assert len(floors) == 10 and {row["ratio"] for row in floors} == {1.0}


@pytest.mark.long
def test_goals_are_shown_only_for_own_clients(models: tuple[str, dict[str, Any]]) -> None:
    _, report = models
    for row in rows(report, "call", "delta"):
        goal = 1.3 if row["group"] == "call" else 2.0
        assert row["goal_ratio"] == (goal if row["case"].endswith("wick's client") else None), row


@pytest.mark.long
def test_the_tables_have_a_line_for_each_client(models: tuple[str, dict[str, Any]]) -> None:
    printed, report = models
    lines = Counter(line.strip().split("  ")[0] for line in printed.splitlines())
    assert all(lines[row["case"]] == 3 for row in report["rows"])


# -- backends -------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_every_way_to_a_command_and_a_file_is_measured(backends: tuple[str, dict[str, Any]]) -> None:
    _, report = backends
    assert Counter(row["group"] for row in report["rows"]) == {"command": 21, "file": 24, "goal": 5}
    assert Counter(row["in_flight"] for row in rows(report, "command")) == {1: 7, 8: 7, 64: 7}
    assert Counter(row["case"] for row in rows(report, "command")).keys() >= {"Docker by daemon", "Local, bubblewrap"}
    assert all(row["p99_ms"] >= row["p50_ms"] > 0 and row["ratio"] > 0 for row in rows(report, "command", "file"))
    assert all(row["per_second"] > 0 for row in rows(report, "command"))


@pytest.mark.long
def test_a_ratio_to_itself_is_one(backends: tuple[str, dict[str, Any]]) -> None:
    _, report = backends
    own = [row for row in rows(report, "command") if row["case"] == "the docker exec command"]
    own += [row for row in rows(report, "file") if row["case"].startswith("open()")]
    assert len(own) == 7 and {row["ratio"] for row in own} == {1.0}


@pytest.mark.long
def test_each_goal_is_reported(backends: tuple[str, dict[str, Any]]) -> None:
    printed, report = backends
    for row in rows(report, "goal"):
        met = row["figure"] <= row["goal"] if row["most"] else row["figure"] >= row["goal"]
        (line,) = [line for line in printed.splitlines() if line.strip().startswith(row["case"])]
        assert line.endswith("met" if row["met"] else "MISSED")
        assert met is row["met"] or row["figure"] == row["goal"]  # a figure is rounded


@pytest.mark.long
def test_server_costs_are_measured(server: tuple[str, dict[str, Any]]) -> None:
    printed, report = server
    assert Counter((row["group"], row["case"]) for row in rows(report, "streams", "burst", "first event")) == {
        (group, case): 1 for group in ("streams", "burst", "first event") for case in ("bare", "wick")
    }
    for row in rows(report, "streams", "burst"):
        assert row["failed"] == 0 and row["opened"] == row["streams"] and row["us"] > 0 and row["events"] > 0
        assert row["late_p99_ms"] >= row["late_p50_ms"] >= 0
    assert all(row["events"] == row["expected"] == row["streams"] * 100 for row in rows(report, "burst"))
    assert all(row["p99_ms"] >= row["p50_ms"] > 0 for row in rows(report, "first event"))
    assert [row["count"] for row in rows(report, "memory")] == [40, 40, 1]
    told = [line for line in printed.splitlines() if line.endswith((" met", " MISSED"))]
    assert len(rows(report, "goal")) == len(told) == 5


# -- hook programs --------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_evals_are_measured(tmp_path: Path) -> None:
    printed, report = run("evals.py", tmp_path / "evals.json")
    assert len(rows(report, "evals")) == 4 and all(row["per_minute"] > 0 for row in report["rows"])
    assert "goal 1,000 in a minute" in printed


def test_every_way_to_a_hook_program_is_measured(executables: tuple[str, dict[str, Any]]) -> None:
    _, report = executables
    assert Counter(row["group"] for row in report["rows"]) == {"call": 12, "goal": 2}
    assert Counter(row["in_flight"] for row in rows(report, "call")) == {1: 6, 32: 6}
    assert all(row["p99_ms"] >= row["p50_ms"] > 0 and row["per_second"] > 0 for row in rows(report, "call"))
    floors = [row for row in rows(report, "call") if row["case"] == "a bare pipe"]
    assert len(floors) == 2 and {row["ratio"] for row in floors} == {1.0}


@pytest.mark.long
def test_each_hook_program_goal_is_reported(executables: tuple[str, dict[str, Any]]) -> None:
    printed, report = executables
    for row in rows(report, "goal"):
        (line,) = [line for line in printed.splitlines() if line.strip().startswith(f"{row['case']}: ms")]
        assert line.endswith("met" if row["met"] else "MISSED")
        assert row["met"] is (row["figure"] <= row["goal"])


# -- other frameworks -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """wick, alone and with all capabilities, beside the floor; the others need environments of their own."""
    report = tmp_path_factory.mktemp("bench") / "results" / "peers.json"
    return run("peers.py", report, "--here", "--only", "wick,wick_full")


PEERS = {"bare aiohttp + orjson", "wick", "wick, all capabilities"}
FIGURES = {
    "import": {"cpu_ms", "rss_mb", "ratio"}, "ready": {"cpu_ms", "rss_mb", "ratio"},
    "step_5": {"us", "ratio"}, "step_10": {"us", "ratio"}, "step_20": {"us", "ratio"}, "delta": {"us", "ratio"},
    "many": {"per_second", "per_cpu_second", "per_second_ratio", "per_cpu_second_ratio"},
}  # fmt: skip


@pytest.mark.long
def test_every_figure_of_a_peer_is_there(peers: tuple[str, dict[str, Any]]) -> None:
    _, report = peers
    assert report["quick"] and report["cores"] and report["python"] and report["date"]
    assert report["peers"].keys() == PEERS
    for name, told in report["peers"].items():
        assert told["version"] == next(iter(told["versions"].values()))
        assert {case: told[case].keys() for case in FIGURES} == FIGURES, name
        assert all(told[case][key] > 0 for case in FIGURES.keys() - {"delta"} for key in FIGURES[case]), name
        assert isfinite(told["delta"]["us"])
    made = {name for name, told in report["peers"].items() if told.get("agents")}
    assert made == PEERS - {"bare aiohttp + orjson"}


@pytest.mark.long
def test_wick_sends_the_same_request_as_the_baseline(peers: tuple[str, dict[str, Any]]) -> None:
    printed, report = peers
    assert {name: told["different"] for name, told in report["peers"].items()} == dict.fromkeys(PEERS, "")
    assert "not the same work" not in printed and "instead of" not in printed


@pytest.mark.long
def test_each_peer_goal_is_reported(peers: tuple[str, dict[str, Any]]) -> None:
    printed, report = peers
    told = [line for line in printed.splitlines() if line.endswith((" met", " MISSED"))]
    assert len(told) == len(report["goals"]) == 8
    assert all(line.strip().startswith(one["goal"]) for line, one in zip(told, report["goals"], strict=True))


def encode_request(*messages: dict[str, Any], tools: tuple[str, ...] = ("forecast",)) -> bytes:
    named = [{"type": "function", "function": {"name": name}} for name in tools]
    return json.dumps({"messages": messages, "tools": named}).encode()


SYSTEM, USER = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello."}
CALL = {"id": "a", "type": "function", "function": {"name": "forecast", "arguments": '{"days": 1}'}}
CALLED: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWERED = {"role": "tool", "tool_call_id": "a", "content": "Sunny."}


@pytest.fixture
def comparing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The requests of two programs, compared."""
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.syspath_prepend(str(BENCH / "peers"))
    provider, runner = loaded(BENCH / "peers" / "provider.py"), loaded(BENCH / "peers.py")

    def compare(own: list[bytes], floor: list[bytes], own_prompt: bool = False) -> str:
        mine, theirs = ([one for one, _ in provider.transcript(it)["conversations"]] for it in (own, floor))
        return str(runner.difference(mine, theirs, own_prompt))

    return compare


def loaded(path: Path) -> Any:
    spec = spec_from_file_location(f"bench_{path.stem}", path)
    assert spec and spec.loader
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_rephrased_work_counts_as_equal(comparing: Any) -> None:
    developer = {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}
    other = {**CALL, "id": "b", "function": {"name": "forecast", "arguments": '{"days":1}'}}
    called = {"role": "assistant", "content": "", "tool_calls": [other]}
    own = [encode_request(developer, USER), encode_request(developer, USER, called, {**ANSWERED, "tool_call_id": "b"})]
    assert comparing(own, [encode_request(SYSTEM, USER), encode_request(SYSTEM, USER, CALLED, ANSWERED)]) == ""


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ([encode_request(SYSTEM, USER)], "2 messages instead of 4"),
        ([encode_request(SYSTEM, USER, CALLED, {**ANSWERED, "content": "Rain."})], "'Rain.' instead of tool 'Sunny.'"),
        ([encode_request(SYSTEM, USER, CALLED, {**ANSWERED, "tool_call_id": "c"})], "instead of"),
        ([encode_request(SYSTEM, USER, CALLED, ANSWERED, tools=("other",))], "its tools are other"),
        (
            [encode_request(SYSTEM, USER, CALLED, ANSWERED), encode_request(SYSTEM, USER, ANSWERED)],
            "2 conversations instead of 1",
        ),
        ([encode_request({**SYSTEM, "content": "Be brief. You are Bob."}, USER, CALLED, ANSWERED)], "'… You are Bob.'"),
    ],
)
def test_different_work_is_reported(comparing: Any, own: list[bytes], says: str) -> None:
    assert says in comparing(own, [encode_request(SYSTEM, USER, CALLED, ANSWERED)])


def test_an_own_prompt_is_ignored_where_allowed(comparing: Any) -> None:
    own = [encode_request({**SYSTEM, "content": "I am long."}, USER, CALLED, ANSWERED, tools=("forecast", "ls"))]
    assert comparing(own, [encode_request(SYSTEM, USER, CALLED, ANSWERED)], own_prompt=True) == ""
