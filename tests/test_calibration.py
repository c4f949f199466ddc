from __future__ import annotations

import asyncio
import csv
import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import TEMPLATE, write_lines, write_template
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import geval
from geval.agreement.fit import fit
from geval.agreement.level_prior import batch_prior, order_prior
from geval.calibration import CalibrationSpec, MapSpec, corrected
from geval.cli import app
from geval.errors import DataError, TemplateError, UsageError
from geval.judges.base import prompt_sha256

BARE = TEMPLATE.replace("cap: {criterion: accuracy, below: 3, max: 2}\n", "")
COMMENTED = BARE.replace(
    "output:", "# 손으로 쓴 설명\ncalibration: null   # filled by calibrate\noutput:"
)


def score(folder: Path, template: Path, name: str, n: int = 60, **options: Any) -> geval.Run:
    rows = [{"id": str(i), "question": "Q?", "answer": f"A{i}."} for i in range(n)]
    replies = [
        {"id": str(i), "criterion": c, "alternatives": alternatives(human(i))}
        for i in range(n)
        for c in ("accuracy", "style")
    ]
    spec = f"replay:{write_lines(folder / 'rec.jsonl', replies)}"
    return asyncio.run(
        geval.ascore(
            rows, template=template, judge=spec, reasons="none", out=folder / name, **options
        )
    )


def human(i: int) -> int:
    return 1 + i * 7 % 5


def alternatives(level: int) -> dict[str, float]:
    """A mild judge: half of its probability is on 5 whatever it reads."""
    probs = dict.fromkeys("12345", 0.02) | {"5": 0.47}
    probs[str(level)] += 0.44
    return probs


def labels(folder: Path, n: int = 60) -> Path:
    path = folder / "labels.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(
            [["id", "group", "accuracy"], *([i, f"d{i // 3}", human(i)] for i in range(n))]
        )
    return path


def run_cli(*args: object) -> str:
    done = CliRunner().invoke(app, [str(a) for a in args])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_fitted_written_and_applied_with_the_raw_score_beside(tmp_path: Path) -> None:
    template = write_template(tmp_path, COMMENTED)
    before = geval.Template.load(template)
    run = score(tmp_path, template, "raw")
    told = run_cli("calibrate", run.folder, "--labels", labels(tmp_path), "--write", template)
    assert "accuracy: affine, 60 rows in 20 groups" in told
    text = template.read_text(encoding="utf-8")
    assert "# 손으로 쓴 설명" in text
    assert text.count("calibration:") == 1
    after = geval.Template.load(template)
    assert after.fingerprint == before.fingerprint
    again = score(tmp_path, template, "calibrated")
    raw = {(r["id"], r["criterion"]): r for r in run.results()}
    for r in again.results():
        old = raw[r["id"], r["criterion"]]
        assert r["raw_score"] == pytest.approx(old["score"])
        assert r["probs"] == old["probs"]
        if r["criterion"] == "accuracy":
            assert r["score"] == pytest.approx(human(int(r["id"])), abs=0.1)
            assert 1 <= r["score"] <= 5
        if r["criterion"] == "style":
            assert r["score"] == r["raw_score"]
    found = geval.agree(again, labels(tmp_path), draws=200).criteria["accuracy"]
    assert found.value("mae", "raw") == pytest.approx(
        geval.agree(run, labels(tmp_path), draws=0).criteria["accuracy"].value("mae")
    )
    assert found.corrected is not None
    assert found.corrected["verdict"] == "better"


def test_writing_twice_keeps_one_block_and_all_else(tmp_path: Path) -> None:
    template = write_template(tmp_path, COMMENTED)
    run = score(tmp_path, template, "run")
    for _ in range(2):
        run_cli("calibrate", run.folder, "--labels", labels(tmp_path), "--write", template)
    text = template.read_text(encoding="utf-8")
    assert text.count("\ncalibration:") == 1
    head, _, rest = text.partition("calibration:\n")
    assert COMMENTED.replace("calibration: null   # filled by calibrate\n", "") == (
        head + rest[rest.index("---\n") :]
    )


def test_another_template_is_refused(tmp_path: Path) -> None:
    run = score(tmp_path, write_template(tmp_path, BARE), "run")
    other = write_template(tmp_path, BARE.replace("right?", "true?"), "other.en.jinja")
    content = other.read_bytes()
    with pytest.raises(TemplateError, match="not the template that was scored"):
        run_cli("calibrate", run.folder, "--labels", labels(tmp_path), "--write", other)
    assert other.read_bytes() == content


def test_level_prior_without_labels(tmp_path: Path) -> None:
    template = write_template(tmp_path, BARE)
    run = score(tmp_path, template, "run")
    file = tmp_path / "calibration.yaml"
    run_cli("calibrate", run.folder, "--unlabelled", "--strength", 0.7, "--out", file)
    again = score(tmp_path, template, "corrected", calibration=file)
    raw = {r["id"]: r["score"] for r in run.results() if r["criterion"] == "accuracy"}
    own = {r["id"]: r["score"] for r in again.results() if r["criterion"] == "accuracy"}
    assert np.mean(list(own.values())) == pytest.approx(3, abs=0.6)
    assert np.mean(list(raw.values())) > 3.8
    # a row's score does not depend on the other rows of its run
    few = score(tmp_path, template, "few", n=3, calibration=file)
    for r in few.results():
        if r["criterion"] == "accuracy":
            assert r["score"] == pytest.approx(own[r["id"]])
    assert again.manifest["template"]["calibration"]["accuracy"]["strength"] == 0.7


def test_overall_keeps_its_raw_score(tmp_path: Path) -> None:
    template = write_template(tmp_path, BARE)
    run = score(tmp_path, template, "run", n=12)
    file = tmp_path / "calibration.yaml"
    run_cli("calibrate", run.folder, "--unlabelled", "--out", file)
    again = score(tmp_path, template, "corrected", n=12, calibration=file)
    before = {r["id"]: r["score"] for r in run.results() if r["criterion"] == "overall"}
    for r in again.results():
        if r["criterion"] == "overall":
            assert r["raw_score"] == pytest.approx(before[r["id"]])
            assert r["score"] != pytest.approx(r["raw_score"])


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("calibration: {acuracy: {map: {kind: affine}}}", "Did you mean 'accuracy'"),
        ("calibration: {accuracy: {map: {kind: affine, slope: -1}}}", "greater than 0"),
        ("calibration: {accuracy: {level_prior: [0.5, 0.5]}}", "2 numbers for 5 levels"),
        ("calibration: {accuracy: {map: {kind: isotonic, x: [1, 2], y: [2, 2]}}}", "must rise"),
    ],
)
def test_faults_of_a_calibration_are_found_at_load(tmp_path: Path, text: str, fault: str) -> None:
    path = write_template(tmp_path, BARE.replace("output:", f"{text}\noutput:"))
    with pytest.raises(TemplateError, match=fault):
        geval.Template.load(path)


def test_kinds_are_chosen_on_held_out_groups() -> None:
    rng = np.random.default_rng(5)
    human = rng.integers(1, 6, 300).astype(float)
    group = np.repeat(np.arange(60), 5)
    straight = np.clip(human + rng.normal(0, 0.5, 300), 1, 5)
    assert fit(straight[:100], human[:100], group[:100], 1, 5).map.kind in ("identity", "affine")
    off = 3 + 0.3 * (human - 3) + rng.normal(0, 0.05, 300)
    found = fit(off, human, group, 1, 5)
    assert found.map.kind != "identity"
    assert found.held_out["rmse"] < found.raw["rmse"] / 2
    bent = 1 + 4 * ((human - 1) / 4) ** 4 + rng.normal(0, 0.02, 300)
    curve = fit(bent, human, group, 1, 5)
    assert curve.map.kind == "isotonic"
    values = [curve.map(v) for v in np.linspace(1, 5, 200)]
    assert all(b > a for a, b in itertools.pairwise(values))


def test_noise_alone_is_not_calibrated_and_few_rows_are_refused() -> None:
    rng = np.random.default_rng(2)
    human = rng.uniform(1, 5, 60)
    assert fit(human + rng.normal(0, 0.1, 60), human, np.arange(60), 1, 5).map.kind == "identity"
    with pytest.raises(DataError, match="at least 20 rows in 5 groups"):
        fit(human[:19], human[:19], np.arange(19), 1, 5)
    with pytest.raises(DataError, match="in 1 groups"):
        fit(human, human, np.zeros(60), 1, 5)


@given(
    st.lists(st.floats(0.01, 1), min_size=3, max_size=3),
    st.lists(st.floats(0.01, 1), min_size=3, max_size=3),
)
def test_prior_keeps_probabilities_and_strength_0_is_none(p: list[float], q: list[float]) -> None:
    probs = [v / sum(p) for v in p]
    spec = CalibrationSpec(level_prior=tuple(q), strength=1.0)
    assert sum(corrected(probs, spec)) == pytest.approx(1)
    assert corrected(probs, spec.model_copy(update={"strength": 0.0})) == pytest.approx(probs)


def test_prior_of_the_order_leaves_what_the_rows_hold() -> None:
    """Nine rows of ten are right; naming yes first adds to yes by odds of 3 to 1."""
    rows = [0.9 if i % 10 else 0.1 for i in range(50)]
    first = {str(i): [1 - p, p] for i, p in enumerate(rows)}
    tilted = {i: corrected(p, CalibrationSpec(level_prior=(0.75, 0.25))) for i, p in first.items()}
    other = {i: corrected(p, CalibrationSpec(level_prior=(0.25, 0.75))) for i, p in first.items()}
    prior = order_prior(tilted, other)
    assert prior[1] > prior[0]
    kept = np.mean([corrected(p, CalibrationSpec(level_prior=prior))[1] for p in tilted.values()])
    assert kept > 0.75
    assert batch_prior(list(tilted.values()))[1] > 0.8
    with pytest.raises(DataError, match="at least 10"):
        batch_prior([[0.5, 0.5]] * 9)


def test_identity_map() -> None:
    assert MapSpec()(2.5) == 2.5


def recorded_in_both_orders(folder: Path, template: Path, n: int) -> tuple[Path, str]:
    """Rows, and a judge that likes the level named first: in either order its odds are 4 to 1."""
    rows = [{"id": str(i), "question": "Q?", "answer": f"답변 {i}."} for i in range(n)]
    rising = geval.Template.load(template)
    records = []
    for falling in (False, True):
        one = dataclasses.replace(rising, falling=falling)
        for i, row in enumerate(rows):
            for c in ("accuracy", "style"):
                probs = dict.fromkeys("12345", 0.1)
                probs[str(human(i))] += 0.5
                probs["5" if falling else "1"] *= 4
                records.append(
                    {
                        "id": row["id"], "criterion": c,
                        "prompt_sha256": prompt_sha256(one.render(row, c)),
                        "alternatives": {k: v / sum(probs.values()) for k, v in probs.items()},
                    }
                )  # fmt: skip
    spec = f"replay:{write_lines(folder / 'orders.jsonl', records)}"
    return write_lines(folder / "rows.jsonl", rows), spec


def test_prior_from_a_data_file_judged_in_both_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    template = write_template(tmp_path, BARE)
    before = geval.Template.load(template)
    assert dataclasses.replace(before, falling=True).fingerprint != before.fingerprint
    data, spec = recorded_in_both_orders(tmp_path, template, 20)
    args = ("calibrate", "--unlabelled", data, "-t", template, "--judge", spec)
    run_cli(*args, "--both-orders", "--write", template)
    after = geval.Template.load(template)
    assert after.fingerprint == before.fingerprint
    assert after.front.calibration is not None
    prior = after.front.calibration["accuracy"].level_prior
    assert prior is not None
    assert prior[0] == max(prior)
    assert prior[-1] == min(prior)
    # The order moves the ends apart by about 4 to 1 in each direction; half of it is this order's.
    assert prior[0] / prior[-1] == pytest.approx(4, rel=0.4)
    again = geval.score(data, template=template, judge=spec, reasons="none")
    people = [{"id": str(i), "accuracy": human(i)} for i in range(20)]
    one = geval.agree(again, people, draws=200).criteria["accuracy"]
    bias, raw = one.value("mean_bias"), one.value("mean_bias", "raw")
    assert bias is not None
    assert raw is not None
    assert abs(bias) < abs(raw) / 2
    assert one.corrected is not None


def test_prior_from_a_data_file_and_faults_of_asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    template = write_template(tmp_path, BARE)
    data, spec = recorded_in_both_orders(tmp_path, template, 12)
    args = ("calibrate", "--unlabelled", data, "-t", template, "--judge", spec)
    told = run_cli(*args, "--strength", 0.5)
    assert "level prior over 12 rows" in told
    assert "strength: 0.5" in told
    with pytest.raises(UsageError, match="for a data file"):
        run_cli("calibrate", "--unlabelled", data, "--both-orders")
    with pytest.raises(UsageError, match="one of them"):
        run_cli("calibrate", data, "-t", template)
    own = '{% extends "_geval.jinja" %}{% block sample %}{{ question }}{{ answer }}{% endblock %}'
    own += "{% block criterion %}Levels 1 to 5, N/A: {{ criterion.text }}{% endblock %}"
    own += "{% block output %}Say a number.{% endblock %}"
    fixed = write_template(tmp_path, BARE.partition("---\n{%")[0] + "---\n" + own, "own.en.jinja")
    with pytest.raises(UsageError, match="changes no prompt"):
        run_cli("calibrate", "--unlabelled", data, "-t", fixed, "--judge", spec, "--both-orders")
