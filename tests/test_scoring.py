"""From a recorded reply to a result, by every way in."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from helpers import FULL, ROWS, TEMPLATE, recording, replay, write_lines, write_template

import geval
from geval.errors import ConfigError
from geval.settings import Settings, choose_methods
from geval.template import Template


def lines(run: geval.Run, criterion: str) -> dict[str, dict[str, Any]]:
    return {r["id"]: r for r in run.results() if r["criterion"] == criterion}


def score(folder: Path, judge: str, template: str = TEMPLATE, **options: Any) -> geval.Run:
    path = write_template(folder, template)
    options = {"out": folder / "run", **options}
    return geval.score(options.pop("data", ROWS), template=path, judge=judge, **options)


def test_expected_value_overall_and_cap(tmp_path: Path) -> None:
    run = score(tmp_path, recording(tmp_path, FULL))
    accuracy, overall = lines(run, "accuracy"), lines(run, "overall")
    assert accuracy["a"]["score"] == pytest.approx(4.4)
    assert accuracy["a"]["normalized"] == pytest.approx(0.85)
    assert accuracy["a"]["mode"] == 4
    assert accuracy["a"]["method"] == "logprobs"
    assert accuracy["a"]["coverage"] == pytest.approx(1.0)
    assert accuracy["a"]["reason"] == "Because."
    style = lines(run, "style")["a"]["normalized"]
    assert overall["a"]["score"] == pytest.approx((2 * 0.85 + style) / 3)
    # A wrong core value is not averaged away by good style.
    assert overall["b"]["score"] == pytest.approx(0.25)
    assert overall["b"]["warnings"] == ["capped_by_accuracy"]
    assert overall["c"]["warnings"] == []


@pytest.mark.fault("S2")
async def test_every_entry_point_gives_the_same_number(tmp_path: Path) -> None:
    judge = recording(tmp_path, FULL)
    path = write_template(tmp_path)
    data = write_lines(tmp_path / "rows.jsonl", ROWS)

    def numbers(run: geval.Run) -> list[tuple[str, str, float | None]]:
        return sorted((r["id"], r["criterion"], r["score"]) for r in run.results())

    common: dict[str, Any] = {"template": path, "judge": judge}
    awaited = await geval.ascore(ROWS, **common, out=tmp_path / "1")
    called = await asyncio.to_thread(geval.score, str(data), **common, out=tmp_path / "2")
    inside_a_loop = geval.score(ROWS, **common, out=tmp_path / "3")
    process = await asyncio.create_subprocess_exec(
        "geval", "score", str(data), "-t", str(path), "-j", judge, "--json", "-o", str(tmp_path / "4"),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    printed, _ = await process.communicate()
    assert process.returncode == 0
    from_command = sorted(
        (r["id"], r["criterion"], r["score"])
        for r in map(json.loads, printed.decode().splitlines())
    )
    again = await geval.ascore(
        ROWS, template=path, judge=f"replay:{tmp_path / '1'}", out=tmp_path / "5"
    )
    assert numbers(awaited) == numbers(called) == numbers(inside_a_loop) == from_command
    assert numbers(again) == numbers(awaited)


@pytest.mark.fault("S24")
@pytest.mark.fault("S25")
@pytest.mark.fault("S26")
def test_a_failed_row_is_neither_a_number_nor_hidden(tmp_path: Path) -> None:
    table = TEMPLATE.replace("  style: Is the answer well written?\n", "").replace(
        "weight: 2", "weight: 1"
    )
    scale = "  levels: {0: wrong, 10: right}"
    table = table.replace(
        "  levels: {1: wrong, 2: mostly wrong, 3: half right, 4: mostly right, 5: right}", scale
    )
    table = table.replace("cap: {criterion: accuracy, below: 3, max: 2}\n", "")
    answers = {("a", "accuracy"): {"10": 0.9, "0": 0.1}, ("c", "accuracy"): {"10": 0.85, "0": 0.15}}
    run = score(tmp_path, recording(tmp_path, answers), table)
    overall = run.summary["overall"]
    assert overall["scored"] == 2
    assert overall["unscored"] == 1
    assert overall["mean"] == pytest.approx(0.875)
    assert overall["pessimistic_mean"] == pytest.approx((0.9 + 0.85) / 3)
    failed = lines(run, "accuracy")["b"]
    assert (failed["status"], failed["score"], failed["normalized"]) == ("unscored", None, None)
    assert failed["error"]["kind"] == "rejected"
    assert "no recorded reply" in failed["error"]["message"]


@pytest.mark.fault("S5")
def test_low_coverage_is_unscored_with_its_cause(tmp_path: Path) -> None:
    answers = {**FULL, ("b", "accuracy"): {"4": 0.05, "The": 0.95}}
    run = score(tmp_path, recording(tmp_path, answers))
    failed = lines(run, "accuracy")["b"]
    assert failed["error"]["kind"] == "low_coverage"
    assert failed["coverage"] == pytest.approx(0.05)
    assert failed["score"] is None
    assert lines(run, "overall")["b"]["status"] == "unscored"
    assert run.summary["methods"] == {"logprobs": 5}
    assert run.summary["failures"] == {"low_coverage": 1}


def test_not_applicable_leaves_the_weights(tmp_path: Path) -> None:
    word = Template.load(write_template(tmp_path)).criteria[0].scale.allowed[-1]
    answers = {**FULL, ("a", "accuracy"): {word: 0.9, "5": 0.1}}
    run = score(tmp_path, recording(tmp_path, answers))
    line = lines(run, "accuracy")["a"]
    assert (line["status"], line["score"]) == ("not_applicable", None)
    assert line["not_applicable"] == pytest.approx(0.9)
    assert lines(run, "overall")["a"]["score"] == lines(run, "style")["a"]["normalized"]


def test_a_criterion_without_weight_is_judged_but_not_counted(tmp_path: Path) -> None:
    text = TEMPLATE.replace(
        "style: Is the answer well written?", "style: {text: Style?, weight: 0}"
    )
    answers = {k: v for k, v in FULL.items() if k != ("a", "style")}
    run = score(tmp_path, recording(tmp_path, answers), text)
    assert lines(run, "style")["a"]["status"] == "unscored"
    assert lines(run, "overall")["a"]["score"] == pytest.approx(0.85)


@pytest.mark.fault("S13")
def test_an_answer_outside_the_scale_is_never_clamped(tmp_path: Path) -> None:
    answers = {**FULL, ("b", "accuracy"): {"11": 0.95, "1": 0.05}}
    run = score(tmp_path, recording(tmp_path, answers))
    assert lines(run, "accuracy")["b"]["score"] is None


def test_samples_are_drawn_until_the_error_is_small(tmp_path: Path) -> None:
    agreeing = ["4"] * 20
    torn = ["1", "5"] * 10
    judge = replay(
        tmp_path,
        [
            {
                "id": i,
                "criterion": c,
                "responses": torn if (i, c) == ("b", "accuracy") else agreeing,
            }
            for i in "abc"
            for c in ("accuracy", "style")
        ],
    )
    run = score(tmp_path, judge, reasons="none")
    easy, hard = lines(run, "accuracy")["a"], lines(run, "accuracy")["b"]
    assert easy["method"] == hard["method"] == "samples"
    assert easy["score"] == 4
    assert hard["score"] == pytest.approx(3.0)
    assert 4 <= easy["n_samples"] < hard["n_samples"] == 20
    assert 0 < easy["se"] < 0.25 < hard["se"]


def test_failed_samples_are_counted_apart(tmp_path: Path) -> None:
    few, many = ["4", "x"] + ["4"] * 18, ["4", "x"] * 10
    judge = replay(
        tmp_path,
        [
            {"id": i, "criterion": c, "responses": many if i == "b" else few}
            for i in "abc"
            for c in ("accuracy", "style")
        ],
    )
    run = score(tmp_path, judge, reasons="none")
    assert lines(run, "accuracy")["a"]["score"] == 4
    assert any(
        w.startswith("failed_samples_1_of_") for w in lines(run, "accuracy")["a"]["warnings"]
    )
    assert lines(run, "accuracy")["b"]["error"]["kind"] == "too_few_samples"


def test_single_only_when_it_is_asked_for(tmp_path: Path) -> None:
    judge = replay(
        tmp_path,
        [{"id": i, "criterion": c, "text": "4"} for i in "abc" for c in ("accuracy", "style")],
    )
    with pytest.raises(ConfigError, match="gives no probabilities"):
        score(tmp_path, judge, reasons="none")
    asked = score(tmp_path, judge, reasons="none", method="single", out=tmp_path / "2")
    assert lines(asked, "accuracy")["a"]["score"] == 4
    assert lines(asked, "accuracy")["a"]["method"] == "single"


@pytest.mark.fault("S5")
def test_a_named_method_that_cannot_be_had_fails_loudly(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot serve the method 'exact'"):
        score(tmp_path, recording(tmp_path, FULL), method="exact")
    with pytest.raises(ConfigError, match="unknown method 'logprob'"):
        score(tmp_path, recording(tmp_path, FULL), method="logprob")
    assert not (tmp_path / "run").exists()


def test_the_order_of_auto(tmp_path: Path) -> None:
    template = Template.load(write_template(tmp_path))
    served = ("single", "samples", "logprobs", "decision", "exact")
    assert choose_methods("auto", served, template, "none") == (
        "exact", "decision", "logprobs", "samples",
    )  # fmt: skip
    assert choose_methods("auto", served, template, "all") == ("exact", "logprobs", "samples")
    with pytest.raises(ConfigError, match="--method single"):
        choose_methods("auto", ("single",), template, "all")


@pytest.mark.fault("S1")
def test_reason_first_reads_the_last_label(tmp_path: Path) -> None:
    text = TEMPLATE.replace("order: score_first", "order: reason_first")
    head = "항목 4개 중 2개 누락\n최종 점수: "
    tokens = [[c, -1e-9, [[c, -1e-9], ["5", -20.0]]] for c in head]
    tokens.append(["2", -0.5108, [["2", -0.5108], ["3", -0.9163]]])
    judge = replay(
        tmp_path,
        [
            {
                "id": i,
                "criterion": c,
                "method": "logprobs",
                "choices": [{"text": head + "2", "finish": "stop", "tokens": tokens}],
            }
            for i in "abc"
            for c in ("accuracy", "style")
        ],
    )
    line = lines(score(tmp_path, judge, text), "accuracy")["a"]
    assert line["score"] == pytest.approx(2.4, abs=1e-3)
    assert line["reason"] == "항목 4개 중 2개 누락"


def test_results_hold_finite_json_only(tmp_path: Path) -> None:
    run = score(tmp_path, recording(tmp_path, FULL))
    for name in ("results.jsonl", "replies.jsonl", "manifest.json"):
        text = (run.folder / name).read_text(encoding="utf-8")
        assert "NaN" not in text
        assert "Infinity" not in text


def test_settings_are_recorded(tmp_path: Path) -> None:
    chosen = Settings(min_coverage=0.5, reasons="none")
    answers = {**FULL, ("b", "accuracy"): {"4": 0.6, "The": 0.4}}
    run = score(tmp_path, recording(tmp_path, answers), settings=chosen)
    assert lines(run, "accuracy")["b"]["score"] == 4
    assert run.manifest["settings"]["min_coverage"] == 0.5
