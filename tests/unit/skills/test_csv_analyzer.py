"""The CSV analyzer: figures that are right, and files as they really are."""

from __future__ import annotations

import csv
import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipped_skills import DATA, load_program

analyze = load_program("csv-analyzer")
Run = Any


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Analyze these bytes; return the report."""

    def run(data: bytes | str, *options: str, code: int = 0) -> Any:
        path = tmp_path / "data.csv"
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        assert analyze.main([str(path), "--json", *options]) == code
        said = capsys.readouterr()
        return json.loads(said.out) if code == 0 else said.err

    return run


def column(found: Any, name: str) -> Any:
    return next(one for one in found["columns"] if one["name"] == name)


# -- figures --------------------------------------------------------------------------------------------------------


def test_the_figures_of_anscombe(run: Run) -> None:
    rows = [line.split(",") for line in (DATA / "anscombe.csv").read_text().splitlines()]
    for name in ("I", "II", "III", "IV"):
        text = "\n".join(",".join(row[1:]) for row in rows if row[0] in ("set", name))
        found = run(text)
        x, y = column(found, "x"), column(found, "y")
        assert (x["count"], x["mean"], x["sum"], x["stdev"] ** 2) == (11, 9, 99, pytest.approx(11))
        assert y["mean"] == pytest.approx(7.5, abs=0.005) and y["stdev"] ** 2 == pytest.approx(4.12, abs=0.01)
        assert found["correlations"][0]["r"] == pytest.approx(0.816, abs=0.001)
    assert (x["median"], x["q1"], x["q3"], x["outliers"]) == (8, 8, 8, 1)


@given(st.lists(st.floats(-1e9, 1e9).map(lambda x: round(x, 3)), min_size=2, max_size=30))
def test_statistics_are_those_of_the_library(numbers: list[float]) -> None:
    found = analyze.describe_column("x", [str(number) for number in numbers], False, 5)
    assert found["mean"] == pytest.approx(statistics.fmean(numbers), abs=1e-6)
    assert found["median"] == pytest.approx(statistics.median(numbers))
    assert found["stdev"] == pytest.approx(statistics.stdev(numbers), abs=1e-6)
    assert (found["min"], found["max"], found["sum"]) == (min(numbers), max(numbers), math.fsum(numbers))


def test_kinds_of_columns(run: Run) -> None:
    found = run(
        "i,n,t,b,d,e\n1,1.5,x,yes,2024-01-31,\n2,2,y,no,2024-02-29,NA\n3,$3,x,No,2023-12-31,null\n4,1,z,yes,2024-01-01,-\n"
    )
    assert [one["type"] for one in found["columns"]] == ["integer", "number", "text", "boolean", "date", "empty"]
    assert column(found, "t")["top"][0] == ["x", 2] and column(found, "b")["top"] == [["yes", 2], ["no", 2]]
    assert (column(found, "d")["first"], column(found, "d")["last"]) == ("2023-12-31", "2024-02-29")
    assert column(found, "e")["missing"] == 4


@pytest.mark.parametrize(
    ("text", "european", "value"),
    [
        ("1,234.5", False, 1234.5), ("1.234,5", True, 1234.5), ("12,5", True, 12.5), ("-3", False, -3),
        ("+.5", False, 0.5),
        ("€ 5", False, 5), ("12 %", False, 12), ("1e3", False, 1000), ("1,23", False, None), ("1e999", False, None),
        ("inf", False, None), ("nan", False, None), ("0x10", False, None), ("1_000", False, None), ("", False, None),
        ("1.2.3", False, None), ("٣", False, 3),
    ],
)  # fmt: skip
def test_numbers(text: str, european: bool, value: float | None) -> None:
    assert analyze.parse_number(text, european) == value


# -- odd files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters(run: Run, delimiter: str) -> None:
    found = run(delimiter.join("abc") + "\n" + delimiter.join("123") + "\n" + delimiter.join("456") + "\n")
    assert found["delimiter"] == delimiter and [one["sum"] for one in found["columns"]] == [5, 7, 9]


def test_quoted_delimiters_and_newlines(run: Run) -> None:
    found = run('name,n\n"a, ""b""\nc",1\n"d;e;f;g",2\n')
    assert found["rows"] == 2 and found["delimiter"] == ","
    assert column(found, "name")["top"][0] == ['a, "b"\nc', 1]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_encodings(run: Run, encoding: str) -> None:
    found = run("größe,n\nü,1\n".encode(encoding))
    assert found["columns"][0]["name"] == "größe" and found["encoding"] == encoding


def test_rows_of_the_wrong_length(run: Run) -> None:
    found = run("a,b,c\n1,2\n1,2,3\n\n1,2,3,4\n , ,\n4,5,6\n1,2,3\n")
    assert found["rows"] == 5 and column(found, "c")["missing"] == 1 and column(found, "c")["sum"] == 15
    assert found["problems"] == [
        "rows with too few fields: 1 (line 2); absent fields count as missing",
        "rows with too many fields: 1 (line 5); extra fields were ignored",
        "blank rows: 2; they were skipped",
        "rows that are exact copies of others: 2; they were counted",
    ]


def test_non_numeric_values(run: Run) -> None:
    found = run("a\n" + "\n".join(map(str, range(9))) + "\noops\n")
    assert column(found, "a")["sum"] == 36 and column(found, "a")["odd_values"] == ["oops"]
    assert found["problems"] == ["values of a that are not numbers: 1 ('oops'); they were ignored"]


@pytest.mark.parametrize(
    ("data", "options", "header", "rows"),
    [
        ("1,2\n3,4\n", (), False, 2),
        ("a,b\n3,4\n", (), True, 1),
        ("a,b\n3,4\n", ("--no-header",), False, 2),
        ("1,2\n3,4\n", ("--header",), True, 1),
        ("a,b\nc,d\n", (), True, 1),
        ("2024,x\n1,2\n", (), False, 2),
        ("a,b\n", (), True, 0),
    ],
)
def test_headers(run: Run, data: str, options: tuple[str, ...], header: bool, rows: int) -> None:
    found = run(data, *options)
    assert (found["header"], found["rows"]) == (header, rows)


def test_unnamed_columns(run: Run) -> None:
    found = run("a,,a\nx,y,z\n")
    assert [one["name"] for one in found["columns"]] == ["a", "column 2", "a (3)"]


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf", b" , \n"])
def test_an_empty_file(run: Run, data: bytes) -> None:
    assert "is empty: there is nothing to analyze" in run(data, code=1)


def test_one_cell_one_column_and_nul(run: Run) -> None:
    assert run("x")["columns"][0] == {"name": "x", "type": "empty", "count": 0, "missing": 0}
    assert run("x\n1\n2\n")["columns"][0]["mean"] == 1.5
    assert run(b"a,b\n1\0,2\n")["columns"][0]["sum"] == 1


def test_a_quotation_that_never_ends(run: Run) -> None:
    found = run('a,b\n1,"2\n3,4\n')
    assert found["rows"] == 1 and column(found, "b")["type"] == "text"


def test_constant_columns_have_no_correlation(run: Run) -> None:
    assert run("a,b\n1,5\n2,5\n3,5\n")["correlations"] == []


def test_an_explicit_delimiter(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(run("a:b\n1:2\n", "--delimiter", ":")["columns"]) == 2
    assert len(run("a\tb\n1\t2\n", "--delimiter", "\\t")["columns"]) == 2
    assert "a delimiter is one character" in run("a", "--delimiter", "::", code=2)


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze.main(["/no/such/file.csv"]) == 1
    assert "cannot be analyzed" in capsys.readouterr().err


@given(st.binary(max_size=200) | st.text(',;"\n\r\tab1. ', max_size=100).map(str.encode))
def test_any_input_gives_a_report_or_an_error(tmp_path_factory: Any, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(data)
    try:
        found = analyze.analyze_table(analyze.Table(str(path)), 5)
    except (analyze.Unreadable, csv.Error) as error:
        assert str(error)
    else:
        assert json.loads(json.dumps(found, allow_nan=False)) and analyze.format_report("any.csv", found)


# -- reports and charts ---------------------------------------------------------------------------------------------


def test_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze.main([str(DATA / "planets.csv")]) == 0
    said = capsys.readouterr().out
    assert "8 rows, 4 columns; delimiter `,`, encoding utf-8, with a header" in said
    assert "- **moons** (integer): count 8, missing 0, distinct 7, min 0, max 146, sum 288, mean 36, median 9" in said


@pytest.mark.parametrize(
    ("name", "bars", "label"), [("moons", 5, "0 – 29.2"), ("planet", 8, "Mercury"), ("kind", 5, "1 – 1.4")]
)
def test_charts(tmp_path: Path, name: str, bars: int, label: str) -> None:
    target = tmp_path / "c.svg"
    assert analyze.main([str(DATA / "planets.csv"), "--chart", name, "--output", str(target)]) == 0
    drawn = target.read_text(encoding="utf-8")
    assert drawn.count("<rect x=") == bars and f">{label}</text>" in drawn


def test_a_chart_escapes_file_content(tmp_path: Path, run: Run) -> None:
    target = tmp_path / "c.svg"
    (tmp_path / "x.csv").write_text("t\n<script>alert(1)</script>\n")
    assert analyze.main([str(tmp_path / "x.csv"), "--chart", "t", "--output", str(target)]) == 0
    assert "<script" not in target.read_text() and "&lt;script&gt;" in target.read_text()


def test_a_chart_of_a_column_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze.main([str(DATA / "planets.csv"), "--chart", "rings"]) == 1
    assert "there is no column 'rings'; the columns are planet, kind" in capsys.readouterr().err
