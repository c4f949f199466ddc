"""Faults of the field that no other file has a place for, and that none is forgotten."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers import ROWS, TEMPLATE, replay, write_template

import geval
from geval.distribution import Reading
from geval.errors import TemplateError
from geval.judges.base import Alternative, Choice, Token
from geval.reading.reader import read_choice
from geval.scale import Scale


def said(row: str, criterion: str, text: str) -> dict[str, str]:
    return {"id": row, "criterion": criterion, "text": text}


JUDGE_LAYER = [
    "S1",
    "S2",
    "S3",
    "S4",
    "S5",
    "S6",
    "S7",
    "S8",
    "S10",
    "S11",
    "S12",
    "S13",
    "S14",
    "S15",
    "S17",
    "S19",
    "S20",
    "S23",
    "S24",
    "S25",
    "S26",
    "S28",
    "S29",
    "S30",
    "P1",
    "P2",
    "P3",
    "P4",
    "P5",
    "P7",
    "P8",
    "P10",
    "P11",
    "P12",
    "P13",
    "P15",
    "N1",
    "N2",
    "N3",
    "N5",
    "N7",
    "N10",
    "N11",
    "N12",
    "N13",
    "C1",
    "C2",
    "C3",
    "C6",
    "C7",
    "C8",
    "C9",
    "C10",
    "C12",
    "R1",
    "R2",
    "R3",
    "R7",
    "R8",
    "R9",
    "R10",
    "R11",
    "X1",
    "X7",
]


def test_each_fault_of_the_judge_layer_has_a_test() -> None:
    text = "".join(p.read_text(encoding="utf-8") for p in Path(__file__).parent.glob("*.py"))
    marked = set(re.findall(r"fault\(\"(\w+)\"\)", text))
    assert sorted(set(JUDGE_LAYER) - marked) == []


@pytest.mark.fault("S14")
@pytest.mark.parametrize("levels", [(1, 5), (0, 1), (0, 10), (-2, 2)])
def test_prompt_parser_and_score_have_one_scale(levels: tuple[int, int], tmp_path: Path) -> None:
    low, high = levels
    named = "{" + ", ".join(f"{v}: level {v}" for v in range(low, high + 1)) + "}"
    front = re.sub(r"levels: \{.*\}", f"levels: {named}", TEMPLATE)
    front = re.sub(r"cap: .*\n", "", front)
    template = geval.Template.load(write_template(tmp_path, front))
    prompt = template.render(geval.Sample("a", ROWS[0]))[-1]["content"]
    scale = template.criterion().scale
    assert [int(v) for v in scale.values] == list(range(low, high + 1))
    assert all(str(v) in prompt for v in range(low, high + 1))
    records = [said("a", name, str(high)) for name in ("accuracy", "style")]
    run = geval.score(
        ROWS[:1], template=template, judge=replay(tmp_path, records), out=tmp_path / "run",
        method="single", reasons="none",
    )  # fmt: skip
    (overall,) = (r for r in run.results() if r["criterion"] == "overall")
    assert overall["score"] == 1.0


@pytest.mark.fault("S17")
def test_small_probabilities_count() -> None:
    from math import log

    listed = {"5": 0.95, "1": 0.009, "2": 0.008, "3": 0.009, "4": 0.024}
    token = Token("5", log(0.95), tuple(Alternative(t, log(p)) for t, p in listed.items()))
    reading = read_choice(Choice("5", tokens=(token,)), Scale.of(1, 2, 3, 4, 5), 0)
    assert isinstance(reading, Reading)
    expected = sum(int(t) * p for t, p in listed.items()) / sum(listed.values())
    assert reading.distribution("logprobs").mean == pytest.approx(expected, abs=1e-12)


@pytest.mark.fault("S23")
@pytest.mark.parametrize("criteria", ["criteria: {}", "criteria: {accuracy: '  '}"])
def test_a_template_without_a_criterion_is_refused(criteria: str, tmp_path: Path) -> None:
    text = re.sub(r"criteria:\n(?:  .*\n)+", criteria + "\n", TEMPLATE)
    with pytest.raises(TemplateError, match="criteri"):
        geval.Template.load(write_template(tmp_path, text))


@pytest.mark.fault("S29")
def test_scores_in_a_sliver_of_the_range_are_told(tmp_path: Path) -> None:
    rows = [{**ROWS[0], "id": str(n)} for n in range(12)]
    records = [said(str(n), name, "4") for n in range(12) for name in ("accuracy", "style")]
    run = geval.score(
        rows, template=write_template(tmp_path), judge=replay(tmp_path, records),
        out=tmp_path / "run", method="single", reasons="none",
    )  # fmt: skip
    assert set(run.summary["narrow"]) >= {"accuracy", "style"}


@pytest.mark.fault("P15")
def test_pass_fail_and_unscored_are_three_states(tmp_path: Path) -> None:
    records = [
        said("a", "accuracy", "5"),
        said("b", "accuracy", "1"),
        said("c", "accuracy", "I would rather not say"),
    ]
    one = TEMPLATE.replace("  style: Is the answer well written?\n", "")
    run = geval.score(
        ROWS, template=write_template(tmp_path, one), judge=replay(tmp_path, records),
        out=tmp_path / "run", method="single", reasons="none",
    )  # fmt: skip
    seen = {
        r["id"]: (r["status"], r["score"]) for r in run.results() if r["criterion"] == "accuracy"
    }
    assert seen == {"a": ("scored", 5.0), "b": ("scored", 1.0), "c": ("unscored", None)}


@pytest.mark.fault("R11")
def test_the_reason_column_is_always_there(tmp_path: Path) -> None:
    records = [said("a", "accuracy", "5"), said("a", "style", "5")]
    run = geval.score(
        ROWS[:1], template=write_template(tmp_path), judge=replay(tmp_path, records),
        out=tmp_path / "run", method="single", reasons="none",
    )  # fmt: skip
    assert all("reason" in r for r in run.results())
    table = run.to_pandas()
    assert {"accuracy_reason", "style_reason"} <= set(table.columns)
