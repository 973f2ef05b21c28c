"""Measure the same work with wick, with other frameworks, and written by hand: the programs of bench/peers/.

    python bench/peers.py                       # all; the first time it creates an environment for each, with uv
    python bench/peers.py --quick               # one round of small cases
    python bench/peers.py --only wick,agno      # some; the floor always runs
    python bench/peers.py --here                # the packages of this Python instead of the environments

See bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Any
from urllib.request import urlopen

from measure import table

HERE = Path(__file__).parent / "peers"
ENVIRONMENTS, PINS = HERE / ".envs", HERE / "pins"
SECONDS = 600  # time limit of one program


@dataclass(frozen=True, slots=True)
class Peer:
    """A program of bench/peers/, and its environment."""

    name: str
    program: str
    environment: str = ""
    own_prompt: bool = False  # it has its own system prompt and tools
    by_hand: bool = False  # without a framework

    @property
    def home(self) -> Path:
        return ENVIRONMENTS / (self.environment or self.program)

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"


FLOOR, WICK, FULL, DEEP = "bare aiohttp + orjson", "wick", "wick, all capabilities", "deepagents"
PEERS = {
    peer.name: peer
    for peer in (
        Peer(FLOOR, "bare_aiohttp", by_hand=True),
        Peer("bare httpx2 + orjson", "bare_httpx2", by_hand=True),
        Peer("the OpenAI SDK alone", "openai_sdk", by_hand=True),
        Peer(WICK, "wick"),
        Peer("agno", "agno"),
        Peer("google-adk", "google_adk"),
        Peer("langchain", "langchain"),
        Peer("openai-agents", "openai_agents"),
        Peer("pydantic-ai", "pydantic_ai"),
        Peer("smolagents", "smolagents"),
        Peer("strands-agents", "strands"),
        Peer(FULL, "wick_full", "wick", own_prompt=True),
        Peer(DEEP, "deepagents", own_prompt=True),
    )
}
OTHERS = [name for name, peer in PEERS.items() if not peer.by_hand and name not in (WICK, FULL)]


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario and its size. `requests` computes the number of requests of some runs."""

    key: str
    scenario: str
    count: int = 1

    def requests(self, runs: Any) -> int:
        if self.scenario == "step":
            return 3 + int(runs) * (self.count + 1)
        if self.scenario == "many":
            return 3 + int(runs) * 6
        if self.scenario == "delta":
            return 1 + sum(runs)
        return 2 if self.scenario == "ready" else 0


def cases(quick: bool) -> list[Case]:
    steps = (5, 10, 20) if quick else (20, 100, 200)
    many, words, agents = (10, 100, 50) if quick else (100, 1_000, 1_000)
    return [
        Case("import", "import"),
        Case("ready", "ready"),
        *(Case(f"step_{count}", "step", count) for count in steps),
        Case("many", "many", many),
        Case("delta", "delta", words),
        Case("agents", "agents", agents),
    ]


# -- environments ---------------------------------------------------------------------------------------------------


def prepare(peer: Peer) -> str:
    """Create the environment of a peer, unless it exists with the current pins. Return an error, or an empty string."""
    pins = PINS / f"{peer.home.name}.txt"
    ready = peer.home / "ready"
    if ready.exists() and ready.read_text() == pins.read_text():
        return ""
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if uv is None:
        return "uv is missing; install it with pip install uv"
    print(f"creating an environment for {peer.name} …", flush=True)
    install = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(peer.python)]
    commands = [
        [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(peer.home)],
        [*install, "--requirement", str(pins)],
    ]
    if peer.home.name == "wick":
        commands.append([*install, "--no-deps", "--editable", str(HERE.parent.parent)])
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        if done.returncode:
            return "the installation failed: " + _last(done.stderr)
    ready.write_text(pins.read_text())
    return ""


def _last(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no output")


# -- running programs -----------------------------------------------------------------------------------------------


@contextmanager
def provider() -> Iterator[str]:
    """Run the model in a separate process, and yield its address."""
    command = [sys.executable, str(HERE / "provider.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.stdin.close()  # the process exits at the end of its input


@dataclass(slots=True)
class Bench:
    """Runs programs, and stores their figures, the requests to the model, and errors, by peer and case."""

    address: str
    here: bool
    figures: dict[tuple[str, str], list[dict[str, Any]]]
    asked: dict[tuple[str, str], list[Any]]
    errors: dict[tuple[str, str], str]

    def do(self, peer: Peer, case: Case) -> None:
        key = peer.name, case.key
        if key in self.errors:
            return
        record = f"{peer.program}-{case.key}"
        found = self.run(peer, case, f"{self.address}/{record}/v1")
        with urlopen(f"{self.address}/{record}") as response:
            asked = json.load(response)
        if isinstance(found, str):
            self.errors[key] = found
            return
        self.figures.setdefault(key, []).append(found)
        expected = case.requests(found.get("runs"))
        if asked["requests"] != expected:
            self.errors[key] = f"{asked['requests']:,} requests instead of {expected:,}"
        self.asked[key] = [one for one, _ in asked["conversations"]]

    def run(self, peer: Peer, case: Case, url: str) -> dict[str, Any] | str:
        """Run a program, and return its figures, or an error."""
        python = sys.executable if self.here else str(peer.python)
        command = [python, str(HERE / f"with_{peer.program}.py"), case.scenario, url, str(case.count)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=_environment())
        except subprocess.TimeoutExpired:
            return f"timeout after {SECONDS} s"
        return _last(done.stderr) if done.returncode else json.loads(_last(done.stdout))  # type: ignore[no-any-return]


def _environment() -> dict[str, str]:
    """Return the environment variables of a program: without the keys, proxies and settings of the user."""
    kept = {
        name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR", "SYSTEMROOT")
    }
    return {**kept, "PYTHONHASHSEED": "0", "OPENAI_API_KEY": "key"}


def difference(own: Sequence[Any], floor: Sequence[Any], own_prompt: bool) -> str:
    """Describe the first difference between the requests of a program and those of the floor."""
    mine, theirs = _comparable_parts(own, own_prompt), _comparable_parts(floor, own_prompt)
    if len(mine) != len(theirs):
        return f"{len(mine)} conversations instead of {len(theirs)}"
    for one, other in zip(mine, theirs, strict=True):
        if one["tools"] != other["tools"]:
            return f"its tools are {', '.join(one['tools'])}"
        if unlike := _first_differences(one["messages"], other["messages"]):
            return unlike
        if len(one["messages"]) != len(other["messages"]):
            return f"a conversation has {len(one['messages'])} messages instead of {len(other['messages'])}"
    return ""


def _comparable_parts(conversations: Sequence[Any], own_prompt: bool) -> list[dict[str, Any]]:
    if not own_prompt:
        return [*conversations]
    return [
        {"tools": [], "messages": [message for message in one["messages"] if message[0] != "system"]}
        for one in conversations
    ]


def _first_differences(own: Sequence[Any], floor: Sequence[Any]) -> str:
    """Describe the first message of each role that differs."""
    found: dict[str, str] = {}
    for said, meant in zip(own, floor, strict=False):
        if said != meant and meant[0] not in found:
            alike = takewhile(lambda pair: pair[0] == pair[1], zip(said[1], meant[1], strict=False))
            at = sum(1 for _ in alike)
            found[meant[0]] = f"{_short(said, at)} instead of {_short(meant, at)}"
    return "; ".join(found.values())


def _short(message: Any, at: int) -> str:
    """Return a message from the position at which it differs."""
    role, text, calls, _ = message
    shown = repr(("…" if at else "") + text[at : at + 50] + ("…" if len(text) > at + 50 else ""))
    return f"{role} {shown}" + (f" with {len(calls)} calls" if calls else "")


# -- figures --------------------------------------------------------------------------------------------------------


def report(bench: Bench, peers: Sequence[Peer], failed: Mapping[str, str], asked: Sequence[Case]) -> dict[str, Any]:
    """Return the report of each peer: its versions, the difference of its work, and its figures."""
    return {peer.name: _report_peer(bench, peer, asked) for peer in peers if peer.name not in failed} | {
        name: {"error": error} for name, error in failed.items()
    }


def _report_peer(bench: Bench, peer: Peer, asked: Sequence[Case]) -> dict[str, Any]:
    imported = bench.figures.get((peer.name, "import"), [{"versions": {}}])[0]
    versions = imported["versions"]
    told: dict[str, Any] = {"version": next(iter(versions.values()), ""), "versions": versions}
    told["different"] = next(filter(None, (_describe_difference(bench, peer, case) for case in asked)), "")
    for case in asked:
        if error := bench.errors.get((peer.name, case.key)):
            told[case.key] = {"error": error}
        else:
            told[case.key] = _medians(bench, peer, case)
    return told


def _describe_difference(bench: Bench, peer: Peer, case: Case) -> str:
    own, floor = bench.asked.get((peer.name, case.key)), bench.asked.get((FLOOR, case.key))
    return difference(own, floor, peer.own_prompt) if own is not None and floor is not None else ""


RATIOS = {"us": False, "per_second": True, "per_cpu_second": True, "cpu_ms": False}  # True if more is better


def _medians(bench: Bench, peer: Peer, case: Case) -> dict[str, float]:
    rounds, floors = bench.figures[peer.name, case.key], bench.figures.get((FLOOR, case.key), [{}])
    names = [name for name in rounds[0] if name not in ("runs", "versions")]
    found = {name: round(median(one[name] for one in rounds), 3) for name in names}
    for name in names:
        if name in RATIOS and name in floors[0]:
            pairs = zip(rounds, floors, strict=False)
            shares = [base[name] / one[name] if RATIOS[name] else one[name] / base[name] for one, base in pairs]
            found[f"{name}_ratio" if case.scenario == "many" else "ratio"] = round(median(shares), 3)
    return found


# -- reporting ------------------------------------------------------------------------------------------------------


def tell(peers: Mapping[str, Any], asked: Sequence[Case]) -> None:
    steps = [case.key for case in asked if case.scenario == "step"]
    heads = [key.removeprefix("step_") for key in steps]
    _table(
        "a step: CPU ms by steps in the conversation, and times the floor",
        ["", *heads, *(f"× {head}" for head in heads), f"{heads[-1]} : {heads[0]}"],
        peers,
        lambda told: [
            *(_get(told, key, "us", 1_000) for key in steps),
            *(_get(told, key, "ratio") for key in steps),
            _over(_get(told, steps[-1], "us"), _get(told, steps[0], "us")),
        ],
    )
    _table(
        "many concurrent runs, five steps each: per second, per second of CPU, and times the CPU of the floor",
        ["", "runs/s", "per CPU s", "×"],
        peers,
        lambda told: [_get(told, "many", name) for name in ("per_second", "per_cpu_second", "per_cpu_second_ratio")],
    )
    _table(
        "a delta of a streamed reply: CPU µs, and times the floor",
        ["", "µs", "×"],
        peers,
        lambda told: [_get(told, "delta", "us"), _get(told, "delta", "ratio")],
    )
    _table(
        "import, and ready (import, an agent, a first run): CPU ms and MB of the process",
        ["", "import", "MB", "ready", "MB"],
        peers,
        lambda told: [_get(told, case, name) for case in ("import", "ready") for name in ("cpu_ms", "rss_mb")],
    )
    _table(
        "an agent: CPU µs and kB",
        ["", "µs", "kB"],
        peers,
        lambda told: [_get(told, "agents", name) for name in ("us", "kb")],
    )
    _remarks(peers)


def _table(title: str, heads: Sequence[str], peers: Mapping[str, Any], row: Any) -> None:
    rows = [[name, *row(told)] for name, told in peers.items() if "error" not in told]
    table(title, heads, [line for line in rows if any(cell is not None for cell in line[1:])])


def _get(told: Mapping[str, Any], case: str, name: str, unit: float = 1) -> float | None:
    value = told.get(case, {}).get(name)
    return None if value is None else value / unit


def _over(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def _remarks(peers: Mapping[str, Any]) -> None:
    print("\nversions, differences and errors")
    for name, told in peers.items():
        print(f"  {name}: {', '.join(f'{key} {value}' for key, value in told.get('versions', {}).items())}")
        if error := told.get("error"):
            print(f"    {error}")
        if different := told.get("different"):
            print(f"    not the same work: {different}")
        for key, figures in told.items():
            if isinstance(figures, dict) and "error" in figures:
                print(f"    {key}: {figures['error']}")


# -- goals ----------------------------------------------------------------------------------------------------------


def goals(peers: Mapping[str, Any], asked: Sequence[Case]) -> list[dict[str, Any]]:
    """Return the goals with their figures; goals without measured peers are left out."""
    first, *_, last = [case.key for case in asked if case.scenario == "step"]
    wick, deep = peers.get(WICK, {}), peers.get(DEEP, {})

    def best(case: str, name: str, choose: Any = min) -> float | None:
        found = [_get(peers.get(peer, {}), case, name) for peer in OTHERS]
        return choose((value for value in found if value is not None), default=None)

    def times(case: str, name: str) -> float | None:
        return _over(best(case, name), _get(wick, case, name))

    rows = [
        ("a step, times the floor", _get(wick, first, "ratio"), 2.4, True),
        ("the last step length, times the floor", _get(wick, last, "ratio"), 2.4, True),
        ("the last step length, times the first", _over(_get(wick, last, "us"), _get(wick, first, "us")), 1.15, True),
        ("a step, times less than the best peer", times(first, "us"), 15, False),
        ("the last step length, times less than the best peer", times(last, "us"), 100, False),
        ("a delta, times the floor", _get(wick, "delta", "ratio"), 2.5, True),
        ("a delta, times less than the best peer", times("delta", "us"), 12, False),
        ("runs per second", _get(wick, "many", "per_second"), 240, False),
        ("runs per second, times the best peer",
         _over(_get(wick, "many", "per_second"), best("many", "per_second", max)), 10, False),
        ("ready, times less CPU than the best peer", times("ready", "cpu_ms"), 3, False),
        ("ready, MB", _get(wick, "ready", "rss_mb"), 50, True),
        ("an agent, µs", _get(wick, "agents", "us"), 200, True),
        ("an agent, kB", _get(wick, "agents", "kb"), 20, True),
        ("a step with all capabilities, times less than deepagents",
         _over(_get(deep, first, "us"), _get(peers.get(FULL, {}), first, "us")), 8, False),
    ]  # fmt: skip
    return [
        {"goal": name, "figure": round(figure, 2), "aim": aim, "most": most,
         "met": figure <= aim if most else figure >= aim}
        for name, figure, aim, most in rows if figure is not None
    ]  # fmt: skip


def tell_goals(found: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        [one["goal"], one["figure"], f"{'at most' if one['most'] else 'at least'} {one['aim']:g}",
         "met" if one["met"] else "MISSED"]
        for one in found
    ]  # fmt: skip
    table("goals", ["", "figure", "aim", ""], rows)


# -- the program ----------------------------------------------------------------------------------------------------


def run_programs(peers: Sequence[Peer], asked: Sequence[Case], rounds: int, here: bool) -> Bench:
    """Run all programs: in each round every case with every peer, in a different order each round."""
    with provider() as address:
        bench = Bench(address, here, {}, {}, {})
        for peer in peers:
            bench.run(peer, Case("import", "import"), address)  # writes bytecode and fills the disk's caches
        for number in range(rounds):
            for case in asked:
                for peer in Random(number).sample([*peers], len(peers)):
                    bench.do(peer, case)
            print(f"round {number + 1} of {rounds}", flush=True)
    return bench


def select_peers(only: str) -> list[Peer]:
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in [peer.program for peer in PEERS.values()]:
            known = ", ".join(peer.program for peer in PEERS.values())
            raise SystemExit(f"there is no program {name!r}; there are {known}")
    return [peer for peer in PEERS.values() if not names or peer.program in names or peer.name == FLOOR]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="one round of small cases")
    options.add_argument("--here", action="store_true", help="use the packages of this Python")
    options.add_argument("--only", default="", metavar="NAMES", help="run only these programs, such as wick,agno")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json", type=Path, default=HERE.parent / "results" / "peers.json", metavar="FILE")
    given = options.parse_args()
    start, asked, peers = perf_counter(), cases(given.quick), select_peers(given.only)
    failed = {} if given.here else {peer.name: error for peer in peers if (error := prepare(peer))}
    rounds = 1 if given.quick else given.rounds
    bench = run_programs([peer for peer in peers if peer.name not in failed], asked, rounds, given.here)
    told = report(bench, peers, failed, asked)
    tell(told, asked)
    found = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "quick": given.quick,
        "rounds": rounds,
        "peers": told,
        "goals": goals(told, asked),
    }
    tell_goals(found["goals"])
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"\n{perf_counter() - start:.0f} s; written to {given.json}")


if __name__ == "__main__":
    main()
