from __future__ import annotations

import csv
from pathlib import Path

import pytest
from helpers import write_lines
from test_agreement import make_run
from typer.testing import CliRunner

from geval import agree
from geval.agreement.label_sheet import choose
from geval.cli import app
from geval.data import read_rows


def invoke(*args: object) -> None:
    done = CliRunner().invoke(app, [str(a) for a in args])
    assert done.exit_code == 0, (done.output, done.exception)


@pytest.mark.parametrize("ending", ["csv", "xlsx"])
def test_a_filled_sheet_is_read_back(tmp_path: Path, ending: str) -> None:
    run = make_run(tmp_path)
    rows = [
        {"id": f"행{i}", "group": f"d{i // 4}", "question": "Q?", "answer": f"=A{i}"}
        for i in range(40)
    ]
    data = write_lines(tmp_path / "rows.jsonl", rows)
    sheet = tmp_path / f"labels.{ending}"
    invoke("label-sheet", data, "--run", run, "--n", 12, "--annotators", "김,이", "--out", sheet)
    written = [row.values for row in read_rows(sheet)]
    assert len(written) == 12
    assert len({row["group"] for row in written}) == 10  # each group once before any twice
    assert written[0]["answer"].startswith("'=A")
    filled = [{**row, "accuracy/김": "4점", "accuracy/이": "보류", "style/김": 2, "style/이": 3}
              for row in written]  # fmt: skip
    found = agree(run, filled, draws=0)
    assert found.criteria["accuracy"].n == 12
    assert found.criteria["style"].points[0][0] == 2.5


def test_the_least_sure_come_first_and_a_file_is_never_overwritten(tmp_path: Path) -> None:
    sd = {"a": 0.1, "b": 0.9, "c": 0.5, "d": 0.8}
    groups = {"b": "x", "d": "x", "c": "y", "a": "y"}
    assert choose(list("abcd"), groups, sd, 3, 0) == ["b", "c", "d"]
    by_chance = choose([str(i) for i in range(100)], {}, None, 10, 1)
    assert by_chance == choose([str(i) for i in range(100)], {}, None, 10, 1)
    sheet = tmp_path / "labels.csv"
    sheet.write_text("id\n")
    data = write_lines(tmp_path / "rows.jsonl", [{"id": "1", "answer": "A"}])
    done = CliRunner().invoke(
        app, ["label-sheet", str(data), "--criteria", "fit", "--out", str(sheet)]
    )
    assert "already there" in str(done.exception)
    assert list(csv.reader(sheet.open())) == [["id"]]


def test_a_contradicted_reference_stands_in_a_column_of_the_sheet(tmp_path: Path) -> None:
    rows = [
        {"id": str(i), "context": "Revenue was $5.2 million.", "reference": f"${v} million"}
        for i, v in enumerate(("5.2", "2.5"))
    ]
    data, sheet = write_lines(tmp_path / "rows.jsonl", rows), tmp_path / "labels.csv"
    invoke("label-sheet", data, "--criteria", "fit", "--out", sheet)
    written = {row.values["id"]: row.values for row in read_rows(sheet)}
    assert not written["0"].get("reference_contradicts")
    assert written["1"]["reference_contradicts"] == "$2.5 million"
