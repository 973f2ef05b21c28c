"""Each skill that is shipped, carried out: found, read, its program run in a sandbox on real data, its result used."""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from local_sandbox import Make, folder, local, needs_bubblewrap
from shipped_skills import DATA, PROGRAMS
from wick import Agent, FunctionModel, ToolCall
from wick.capabilities.filesystem import Filesystem
from wick.capabilities.skills import Skills
from wick.capabilities.todos import Todos
from wick.protocols import Request

pytestmark = needs_bubblewrap
__all__ = ["folder", "local"]  # fixtures

ROOT = Path(__file__).parents[4]
Step = tuple[str, dict[str, Any]] | Callable[[str], tuple[str, dict[str, Any]]]


@pytest.fixture
def carry_out(local: Make) -> Callable[..., Any]:
    """Let a model run steps: a tool with arguments, or a function of the last result."""

    async def carry_out(skill: str, *steps: Step) -> list[str]:
        backend = local()
        said: list[str] = []

        def answer(request: Request) -> ToolCall | str:
            if request.messages[-1].role == "tool":
                said.append(request.messages[-1].text)
            if len(said) == len(steps):
                return "done"
            assert f"[{skill}] " in request.system
            step = steps[len(said)]
            name, args = step(said[-1]) if callable(step) else step
            return ToolCall(str(len(said)), name, args)

        hooks = [Filesystem(backend), Skills(backend=backend, shipped=True), Todos()]
        result = await Agent(FunctionModel(answer), hooks=hooks).run("go")
        assert result.text == "done"
        assert PROGRAMS[skill] in said[0] and f".skills/{skill}/SKILL.md" in said[0]
        return said[1:]

    return carry_out


def bring(folder: Path, file: Path, name: str = "") -> None:
    """Put a real file into the workspace."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, folder / (name or file.name))


def program(skill: str, args: str) -> Step:
    return "execute", {"command": f"python3 .skills/{skill}/{PROGRAMS[skill]} {args}"}


def load(skill: str) -> Step:
    return "load_skill", {"name": skill}


def write(path: str, content: str) -> Step:
    return "write_file", {"path": path, "content": content}


def printed(text: str, code: int = 0) -> str:
    """Return the output of a command without its status line."""
    told = json.loads(text)
    assert told["exit_code"] == code, told
    return str(told["stdout"])


async def test_csv_analyzer(carry_out: Any, folder: Path) -> None:
    bring(folder, DATA / "anscombe.csv", "data.csv")
    told, as_json, drawn, chart = await carry_out(
        "csv-analyzer",
        load("csv-analyzer"),
        program("csv-analyzer", "data.csv"),
        program("csv-analyzer", "data.csv --json"),
        program("csv-analyzer", "data.csv --chart y --output y.svg"),
        ("read_file", {"path": "y.svg"}),
    )
    assert "44 rows, 3 columns" in printed(told) and "x / y: 0.816 over 44 rows" in printed(told)
    sets, x, y = json.loads(printed(as_json))["columns"]
    assert (sets["type"], sets["distinct"]) == ("text", 4)
    assert (x["mean"], round(x["stdev"] ** 2, 2), x["median"]) == (9, 10.23, 8)
    assert round(y["mean"], 2) == 7.50 and y["max"] == 12.74
    assert printed(drawn) == "wrote y.svg\n" and chart.startswith("<svg ") and chart.count("<rect") > 5


async def test_data_analysis(carry_out: Any, folder: Path) -> None:
    bring(folder, DATA / "planets.csv")
    bring(folder, DATA / "kinds.json")
    query = (
        "SELECT kinds.kind, COUNT(*) AS planets, SUM(moons) AS moons FROM planets "
        "JOIN kinds ON kinds.id = planets.kind GROUP BY 1 ORDER BY moons DESC"
    )
    tables, answer, wrong = await carry_out(
        "data-analysis",
        load("data-analysis"),
        program("data-analysis", "planets.csv kinds.json --tables"),
        program("data-analysis", f'planets.csv kinds.json "{query}" --json'),
        program("data-analysis", 'planets.csv "SELECT rings FROM planets"'),
    )
    assert "## planets: 8 rows" in printed(tables) and "- diameter_km (integer)" in printed(tables)
    assert json.loads(printed(answer)) == [
        {"kind": "gas giant", "planets": 2, "moons": 241},
        {"kind": "ice giant", "planets": 2, "moons": 44},
        {"kind": "terrestrial", "planets": 4, "moons": 3},
    ]
    assert "no such column: rings" in json.loads(wrong)["stderr"]


BUGGY = """\
import subprocess


def archive(files=[], *, target="/tmp/x"):
    try:
        subprocess.run(f"tar cf {target} {' '.join(files)}", shell=True)
    except:
        pass
    return files is 0
"""


async def test_code_review(carry_out: Any, folder: Path) -> None:
    shutil.copytree(ROOT / "src" / "wick" / "capabilities", folder / "src")
    said, found = await carry_out(
        "code-review",
        load("code-review"),
        write("src/archive.py", BUGGY),
        program("code-review", "src --json"),
    )
    assert json.loads(said)["path"] == "src/archive.py"
    places = [
        (place["line"], place["kind"]) for place in json.loads(printed(found)) if place["file"].endswith("archive.py")
    ]
    assert places == [(4, "bug"), (6, "injection"), (7, "error"), (7, "error"), (9, "bug")]
    others = {
        place["file"]: place["kind"] for place in json.loads(printed(found)) if place["kind"] in ("syntax", "unread")
    }
    assert not others, "all of wick's own code was read"


REPORT = """\
# How many dependencies does the core of wick have?

{answer}

## Sources

[1] The project's file: pyproject.toml
[2] How to contribute: docs/CONTRIBUTING.md
"""


async def test_research(carry_out: Any, folder: Path) -> None:
    bring(folder, ROOT / "pyproject.toml")
    bring(folder / "docs", ROOT / "CONTRIBUTING.md")
    found, _, checked, _, again = await carry_out(
        "research",
        load("research"),
        ("grep", {"pattern": "dependenc"}),
        write("research/report.md", REPORT.format(answer="It has 5 [1].\n\nA test counts them: 5, said in 2024 [3].")),
        program("research", "research/report.md"),
        write("research/report.md", REPORT.format(answer="It has 5, and a test counts them [1][2].")),
        program("research", "research/report.md"),
    )
    assert "CONTRIBUTING.md" in found
    assert printed(checked, 1).splitlines() == [
        "- [3] is cited, but is not in the list of sources",
        "- source [2] is never cited",
        "2 sources, 2 citations, 2 problems",
    ]
    assert printed(again) == "2 sources, 2 citations, 0 problems\n"


async def test_summarization(carry_out: Any, folder: Path) -> None:
    bring(folder, ROOT / "LICENSE", "source.md")
    good = "Anyone may use, change and sell the software if the notice stays; there is no warranty."
    source, _, checked, _, again = await carry_out(
        "summarization",
        load("summarization"),
        ("read_file", {"path": "source.md"}),
        write("summary.md", f"{good} It was approved by Stanford in 1987."),
        program("summarization", "source.md summary.md --words 60"),
        write("summary.md", good),
        program("summarization", "source.md summary.md --words 60"),
    )
    assert "MIT" in source
    assert "figures that the source does not have: 1987" in printed(checked, 1)
    assert "names that the source does not have: Stanford" in printed(checked, 1)
    assert printed(again).endswith(", 0 problems\n")


def png() -> bytes:
    """A red square."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\xff\0\0" * 8 for _ in range(8))
    header = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


async def test_slides(carry_out: Any, folder: Path, tmp_path: Path) -> None:
    picture = tmp_path / "harvest.png"
    picture.write_bytes(png())
    bring(folder, picture)

    def the_example(instructions: str) -> tuple[str, dict[str, Any]]:
        """The deck that the instructions show."""
        inside = instructions.split("   ---\n   title:", 1)[1].split("   ```", 1)[0]
        lines = f"   ---\n   title:{inside}".splitlines()
        return "write_file", {"path": "deck.md", "content": "\n".join(line[3:] for line in lines)}

    _, built, deck = await carry_out(
        "slides",
        load("slides"),
        the_example,
        program("slides", "deck.md --output deck.html"),
        ("read_file", {"path": "deck.html"}),
    )
    assert printed(built) == "wrote deck.html: 2 slides\n"
    assert deck.count("<section ") == 2 and "<strong>April</strong>" in deck
    assert '<img alt="Harvest by month" src="data:image/png;base64,' in deck
    assert "<td>80 t</td>" in deck and "<aside>Tell them about the night of the 23rd.</aside>" in deck
