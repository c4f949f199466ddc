"""`geval rescore`: the numbers a new scoring would give, without a call, beside the old run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import test_unit_runs as units
from helpers import FULL, ROWS, TEMPLATE, recording, write_lines, write_template
from test_runs import KOREAN, interrupted, make, make_korean
from typer.testing import CliRunner

from geval import score
from geval.cli import app
from geval.errors import GevalError, RunError, TemplateError, UsageError
from geval.runs.rescore import rescore
from geval.runs.run import Run

CALIBRATION = """calibration:
  accuracy:
    map: {kind: affine, intercept: -0.5, slope: 1.1}
    level_prior: [0.1, 0.1, 0.2, 0.3, 0.3]
    strength: 0.8
  style:
    map: {kind: isotonic, x: [1, 3, 5], y: [1, 2, 5]}
"""
SAME = ("score", "normalized", "raw_score", "status", "warnings", "error", "se", "reason", "passed")


def told(run: Run) -> list[dict[str, Any]]:
    return [
        {k: pytest.approx(v, abs=1e-8) if isinstance(v, float) else v
         for k, v in r.items() if k in (*SAME, "id", "criterion", "coverage", "probs", "units")}
        for r in run.to_records()
    ]  # fmt: skip


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.is_file()}


def scored_with(folder: Path, text: str, out: str = "fresh") -> Run:
    """The same replies through a new scoring: what a rescoring must come to."""
    (folder / out).mkdir()
    path = write_template(folder / out, text)
    return make(folder, f"{out}/run", template=path)


LIGHT = TEMPLATE.replace("weight: 2", "weight: 0.5")
NO_CAP = TEMPLATE.replace("cap: {criterion: accuracy, below: 3, max: 2}\n", "")
OTHER_CAP = NO_CAP.replace("output:", "cap: {criterion: style, below: 4, max: 3}\noutput:")
CALIBRATED = TEMPLATE.replace("output:", CALIBRATION + "output:")
WITHOUT = TEMPLATE.replace("weight: 2", "weight: 0")


@pytest.mark.fault("C3")
@pytest.mark.parametrize("text", [LIGHT, NO_CAP, OTHER_CAP, CALIBRATED, WITHOUT])
def test_a_template_with_the_same_prompts_gives_what_scoring_with_it_gives(
    text: str, tmp_path: Path
) -> None:
    run = make(tmp_path, reasons="all")
    before = bytes_of(run.folder)
    fresh = scored_with(tmp_path, text)
    done = rescore(run, template=tmp_path / "fresh/fit.en.jinja", out=tmp_path / "again")
    assert told(done.run) == told(fresh)
    assert done.run.summary["overall"] == pytest.approx(fresh.summary["overall"])
    assert done.run.manifest["template"] == fresh.manifest["template"]
    assert done.changes
    assert bytes_of(run.folder) == before
    assert (done.run.folder / "replies.jsonl").read_bytes() == before["replies.jsonl"]
    assert done.run.manifest["summary"] == json.loads(json.dumps(done.run.summary))
    # And back: nothing of the first scores is lost on the way.
    back = rescore(done.run, template=write_template(tmp_path), out=tmp_path / "back")
    assert told(back.run) == told(run)


def test_options_do_what_the_template_would(tmp_path: Path) -> None:
    run = make(tmp_path)
    by_weight = rescore(run, weights={"accuracy": 0.5}, out=tmp_path / "w")
    assert told(by_weight.run) == told(scored_with(tmp_path, LIGHT))
    assert by_weight.changes == ("weights.accuracy: 2 → 0.5",)
    (tmp_path / "c.yaml").write_text(CALIBRATION, encoding="utf-8")
    calibrated = rescore(run, calibration=tmp_path / "c.yaml", out=tmp_path / "c")
    assert told(calibrated.run) == told(scored_with(tmp_path, CALIBRATED, "fresh2"))
    plain = rescore(calibrated.run, calibration="none", out=tmp_path / "n")
    assert told(plain.run) == told(run)
    assert plain.run.manifest["rescored"]["run"] == "c"


def test_what_changed_is_told(tmp_path: Path) -> None:
    run = make(tmp_path)
    done = rescore(run, weights={"accuracy": 0.0}, out=tmp_path / "w")
    old = {r["id"]: r["normalized"] for r in run.results() if r["criterion"] == "overall"}
    new = {r["id"]: r["normalized"] for r in done.run.results() if r["criterion"] == "overall"}
    assert (done.rows, done.moved) == (3, 2)  # b stays under its cap
    largest = max(old, key=lambda i: abs(old[i] - new[i]))
    assert (done.most[0].id, done.most[0].before, done.most[0].after) == (
        largest, old[largest], new[largest],
    )  # fmt: skip
    assert done.before["overall"]["mean"] == run.summary["overall"]["mean"]
    assert done.after["overall"]["mean"] == done.run.summary["overall"]["mean"]


@pytest.mark.fault("P15")
def test_a_threshold_gives_three_states(tmp_path: Path) -> None:
    run = make(tmp_path, without="c")
    done = rescore(run, threshold=0.5, out=tmp_path / "t")
    passed = {r["id"]: r["passed"] for r in done.run.results() if r["criterion"] == "overall"}
    assert passed == {"a": True, "b": False, "c": None}
    assert done.after["passed"] == {"threshold": 0.5, "passed": 1, "failed": 1, "unscored": 1}
    assert done.moved == 0
    # Everything else is as it was, and the threshold stays where other things change.
    plain = [{k: v for k, v in r.items() if k != "passed"} for r in done.run.results()]
    assert plain == run.to_records()
    again = rescore(done.run, weights={"style": 9}, out=tmp_path / "u")
    assert again.after["passed"]["threshold"] == 0.5
    for bad in (-0.1, 1.5, float("nan")):
        with pytest.raises(UsageError, match="from 0 to 1"):
            rescore(run, threshold=bad, out=tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (TEMPLATE.replace("Is the answer right?", "Is it right?"), {}),
        (TEMPLATE.replace("5: right", "5: perfect"), {}),
        (TEMPLATE.replace("Question:", "Asked:"), {}),
    ],
)
def test_a_template_with_other_prompts_is_refused(
    text: str, options: dict[str, Any], tmp_path: Path
) -> None:
    run = make(tmp_path)
    path = write_template(tmp_path, text, "other.en.jinja")
    with pytest.raises(RunError, match=r"its prompts or scales differ(.|\n)*geval score"):
        rescore(run, template=path, out=tmp_path / "x", **options)
    assert not (tmp_path / "x").exists()


def test_what_does_not_fit_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    run = make(tmp_path)
    (tmp_path / "bad.yaml").write_text("calibration:\n  acuracy: {map: {kind: identity}}\n")
    wrong: list[tuple[dict[str, Any], type[GevalError], str]] = [
        ({}, UsageError, "nothing would change"),
        ({"weights": {"accuracy": 2.0}}, UsageError, "nothing would change"),
        ({"weights": {"acuracy": 1}}, UsageError, "Did you mean 'accuracy'"),
        ({"weights": {"accuracy": -1}}, UsageError, "weight"),
        ({"weights": {"accuracy": float("nan")}}, UsageError, "weight"),
        ({"weights": {"accuracy": 0, "style": 0}}, UsageError, "weight 0"),
        ({"aggregate": {"min": {}}}, UsageError, "no units"),
        ({"calibration": tmp_path / "bad.yaml"}, TemplateError, "Did you mean 'accuracy'"),
        ({"calibration": tmp_path / "none.yaml"}, TemplateError, "none.yaml"),
        ({"threshold": 0.5, "out": run.folder}, RunError, "there already"),
        ({"threshold": 0.5, "out": tmp_path / "c.txt"}, RunError, "there already"),
    ]
    (tmp_path / "c.txt").write_text("mine")
    before = sorted(p.name for p in tmp_path.iterdir())
    for options, kind, text in wrong:
        with pytest.raises(kind, match=text):
            rescore(run, **{"out": tmp_path / "x", **options})
        assert sorted(p.name for p in tmp_path.iterdir()) == before
    with pytest.raises(UsageError, match="no units"):
        rescore(run, aggregate={"mean": {}}, out=tmp_path / "x")


def test_units_are_aggregated_anew(tmp_path: Path) -> None:
    records = [
        units.claims("One.", "Two.", "Three."),
        *(units.verdict(i, p) for i, p in enumerate((0.9, 0.2, 0.6))),
    ]
    run = units.score(tmp_path, records)
    done = rescore(run, aggregate={"min": {}}, out=tmp_path / "min")
    least = units.FAITH.replace("criteria:", "unit_aggregate: min\ncriteria:")
    fresh = units.score(tmp_path, records, least, out=tmp_path / "fresh")
    assert told(done.run) == told(fresh)
    assert units.line(done.run)["score"] == pytest.approx(0.2)
    assert done.changes == ('unit_aggregate: {"mean": {}} → {"min": {}}',)
    with pytest.raises(UsageError, match="Did you mean 'mean'"):
        rescore(run, aggregate={"meen": {}}, out=tmp_path / "x")
    with pytest.raises(UsageError, match="f1"):  # it holds two sets against each other
        rescore(run, aggregate={"f1": {}}, out=tmp_path / "x")


def test_two_sets_of_units_can_become_either_side(tmp_path: Path) -> None:
    records = [
        units.claims("One."),
        units.claims("Ref one.", "Ref two.", of="reference"),
        *(units.verdict(i, p, "correct") for i, p in enumerate((0.9, 0.4, 0.7))),
    ]
    run = units.score(tmp_path, records, units.BOTH)
    precise = rescore(run, aggregate={"precision": {}}, out=tmp_path / "p")
    assert units.line(precise.run, "correct")["score"] == pytest.approx(0.9)
    recall = rescore(run, aggregate={"recall": {}}, out=tmp_path / "r")
    assert units.line(recall.run, "correct")["score"] == pytest.approx(0.55)
    beta = units.BOTH.replace("unit_aggregate: f1", "unit_aggregate: {f_beta: {beta: 2}}")
    fresh = units.score(tmp_path, records, beta, out=tmp_path / "fresh")
    done = rescore(run, aggregate={"f_beta": {"beta": 2.0}}, out=tmp_path / "b")
    assert told(done.run) == told(fresh)
    # What was judged on one side tells nothing of the other.
    one = units.score(
        tmp_path, records, units.BOTH.replace("unit_aggregate: f1", "unit_aggregate: recall"),
        out=tmp_path / "one",
    )  # fmt: skip
    with pytest.raises(UsageError, match="other side"):
        rescore(one, aggregate={"precision": {}}, out=tmp_path / "x")
    with pytest.raises(UsageError, match="judged none of them"):
        rescore(one, template=write_template(tmp_path, units.BOTH, "both.en.jinja"),
                out=tmp_path / "x")  # fmt: skip


def test_an_unscored_unit_keeps_its_row_unscored(tmp_path: Path) -> None:
    run = units.score(tmp_path, [units.claims("One.", "Two."), units.verdict(0, 0.9)])
    assert units.line(run)["status"] == "unscored"
    done = rescore(run, aggregate={"min": {}}, out=tmp_path / "min")
    found = units.line(done.run)
    assert (found["status"], found["score"]) == ("unscored", None)
    assert found["error"]["kind"] == "unit_unscored"
    assert units.line(done.run, "overall")["score"] is None


def test_an_interrupted_run_stays_one_and_can_be_continued(tmp_path: Path) -> None:
    run = interrupted(make(tmp_path))
    done = rescore(run, weights={"accuracy": 0.5}, out=tmp_path / "again")
    assert done.run.manifest["status"] == "interrupted"
    assert [r["id"] for r in done.run.results()] == ["a", "a", "a"]
    (tmp_path / "light").mkdir()
    whole = score(
        ROWS, template=write_template(tmp_path / "light", LIGHT), cache=False,
        judge=recording(tmp_path, FULL, "one.jsonl"), out=tmp_path / "again",
    )  # fmt: skip
    assert told(whole) == told(scored_with(tmp_path, LIGHT))


def test_an_empty_run_and_runs_damaged_by_hand(tmp_path: Path) -> None:
    run = make(tmp_path)
    empty = shutil.copytree(run.folder, tmp_path / "empty")
    (empty / "results.jsonl").write_text("", encoding="utf-8")
    done = rescore(Run(empty), threshold=0.5, out=tmp_path / "e")
    assert (done.rows, done.moved) == (0, 0)
    records = run.to_records()
    damages: list[list[dict[str, Any]]] = [
        records[1:],  # a criterion is missing
        [{**records[0], "score": "4"}, *records[1:]],
        [{**records[0], "raw_score": None}, *records[1:]],
        [{**records[0], "probs": [0.5]}, *records[1:]],
        [{**records[0], "levels": ["a", "b"]}, *records[1:]],
        [{**records[0], "error": "x"}, *records[1:]],
    ]
    (tmp_path / "c.yaml").write_text(CALIBRATION, encoding="utf-8")
    for n, lines in enumerate(damages):
        write_lines(run.folder / "results.jsonl", lines)
        with pytest.raises((RunError, UsageError)):
            rescore(Run(run.folder), calibration=tmp_path / "c.yaml", out=tmp_path / f"d{n}")
        assert not (tmp_path / f"d{n}").exists()
        assert not list(tmp_path.glob(".d*.tmp"))


def test_the_command_says_what_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path)
    done = CliRunner().invoke(
        app, ["rescore", "last", "--weights", "accuracy=0.5,style=3", "--threshold", "0.5"]
    )
    assert done.exit_code == 0, done.exception
    for text in ("weights.accuracy: 2 → 0.5", "weights.style: 1 → 3", "threshold: - → 0.5"):
        assert text in done.stdout
    assert "of 3 rows have another overall score" in done.stdout
    folder = Path(done.stdout.split("run folder ")[1].strip())
    assert folder.parent == Path("runs")
    assert (folder / "report.html").exists()
    shown = CliRunner().invoke(app, ["show", "last"])
    assert "rescored from one" in " ".join(shown.stdout.split())
    assert "at 0.5" in shown.stdout
    told = json.loads(CliRunner().invoke(app, ["rescore", "one", "-w", "style=2", "--json"]).stdout)
    assert told["changes"] == ["weights.style: 1 → 2"]
    for bad in (["-w", "style"], ["-w", "style=x"], ["-w", "style=1,style=2"],
                ["--aggregate", "f_beta:beta"]):  # fmt: skip
        assert isinstance(
            CliRunner().invoke(app, ["rescore", "one", *bad]).exception, UsageError
        ), bad


def test_korean_runs_speak_korean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = make_korean(tmp_path)
    done = CliRunner().invoke(app, ["rescore", "ko", "-w", "accuracy=5", "-o", "new"])
    assert done.exit_code == 0, done.exception
    assert "종합 점수가 달라짐" in done.stdout
    assert "이전" in done.stdout
    assert "정확성" in done.stdout
    light = KOREAN.replace("weight: 2", "weight: 5")
    fresh = make_korean(tmp_path, "runs/fresh")
    assert told(Run("new")) != told(fresh)
    Path("light").mkdir()
    path = write_template(tmp_path / "light", light, "적합.ko.jinja")
    assert told(Run("new")) == told(make(tmp_path, "runs/light", template=path))
    assert run.manifest["template"]["fingerprint"] == Run("new").manifest["template"]["fingerprint"]
