"""A whole study with a judge whose right prompt is known: result, budget, folder, bad input."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from tuning_judge import INDIFFERENT, PromptJudge, Taste, rows, template

import geval
from geval.errors import DataError, RunError, TemplateError, UsageError
from geval.optimize.labelled import load
from geval.optimize.tuning import plan
from geval.template import Template, parse


def tune(out: Path, judge: PromptJudge, data: Any = None, **options: Any) -> geval.Tuned:
    given: dict[str, Any] = {
        "template": template(), "judge": judge, "group": "document", "budget": 400,
        "proposer": "none", "out": out, "report": False,
    }  # fmt: skip
    return geval.tune(rows(150) if data is None else data, **{**given, **options})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[geval.Tuned, PromptJudge, Path]:
    out = tmp_path_factory.mktemp("study") / "out"
    judge = PromptJudge()
    return tune(out, judge, rows(300), budget=1000, report=True, cache=False), judge, out


def test_a_prompt_that_the_judge_likes_better_is_found_and_shown(
    finished: tuple[geval.Tuned, PromptJudge, Path],
) -> None:
    tuned, judge, _ = finished
    assert tuned.verdict == "better"
    taste = Taste()
    row = rows(1, seed=9)[0]
    prompt = tuned.template.render(row)[-1]["content"]
    assert taste.sd(prompt) < taste.sd(template().render(row)[-1]["content"]) - 0.4
    optimized = tuned.template.front.optimized
    assert optimized is not None
    assert optimized["judge"] == "fake"
    assert optimized["parent"] == template().fingerprint
    assert optimized["verdict"] == "better"
    assert optimized["requests"]["total"] <= 1000
    assert judge.calls <= 1000
    assert tuned.paid["requests"] == judge.calls


def test_the_tuned_file_lints_renders_and_scores_like_any_other(
    finished: tuple[geval.Tuned, PromptJudge, Path], tmp_path: Path
) -> None:
    tuned, _, _ = finished
    again = Template.load(tuned.path)
    assert again.fingerprint == tuned.template.fingerprint
    data = [{k: v for k, v in r.items() if k != "score"} for r in rows(4, seed=5)]
    run = geval.score(data, template=tuned.path, judge=PromptJudge(), out=tmp_path / "run")  # type: ignore[arg-type]
    assert all(r["status"] == "scored" for r in run.results())


@pytest.mark.fault("A1")
def test_demos_come_from_train_and_test_rows_are_judged_under_two_templates_only(
    finished: tuple[geval.Tuned, PromptJudge, Path],
) -> None:
    tuned, judge, _ = finished
    data = load(rows(300), template=template(), group="document")
    from geval.optimize.split import split

    parts = split(data.group, data.level(), 0)
    demos = {d["answer"] for d in tuned.template.front.demos}
    train = {data.samples[i].fields["answer"] for i in parts.train}
    assert demos
    assert demos <= train
    for i in parts.test:
        answer = data.samples[i].fields["answer"]
        seen = {p.replace(str(answer), "") for p in judge.prompts if f"]{answer}[" in p}
        assert 1 <= len(seen) <= 2


def test_the_report_is_whole_and_escapes_everything(
    finished: tuple[geval.Tuned, PromptJudge, Path],
) -> None:
    tuned, _, out = finished
    from geval.optimize.report import html

    page = (out / "report.html").read_text(encoding="utf-8")
    assert tuned.report == out / "report.html"
    for told in ("better", "Plan and cost", "Before and after", "What changed", "<svg", "paid"):
        assert told in page
    record = json.loads(json.dumps(tuned.result))
    evil = "<script>alert(1)</script>"
    record["identity"]["judge"]["spec"] = evil
    record["notes"] = [evil]
    record["diff"] = [f"+ {evil}"]
    record["proposals"] = [
        {"dimension": evil, "choice": evil, "round": 0, "text": evil, "refused": evil}
    ]
    assert evil not in html(record, tuned.paid)


def test_the_same_command_asks_nothing_and_writes_the_same_bytes(
    finished: tuple[geval.Tuned, PromptJudge, Path],
) -> None:
    tuned, first, out = finished
    before = tuned.path.read_bytes()
    result = (out / "study" / "result.json").read_bytes()
    judge = PromptJudge()
    again = tune(out, judge, rows(300), budget=1000)
    assert judge.calls == 0
    assert again.path.read_bytes() == before
    assert (out / "study" / "result.json").read_bytes() == result
    assert again.paid["requests"] == first.calls


@pytest.mark.parametrize("budget", [181, 240, 301])
def test_never_one_request_more_than_the_budget(tmp_path: Path, budget: int) -> None:
    judge = PromptJudge()
    tuned = tune(tmp_path / "out", judge, budget=budget)
    assert judge.calls <= budget
    assert tuned.result["requests"]["total"] <= budget
    assert tuned.result["result"]["rows"] == 45


def test_a_warm_cache_changes_the_bill_and_nothing_else(tmp_path: Path) -> None:
    first = tune(tmp_path / "a", PromptJudge(), budget=300)
    judge = PromptJudge()
    second = tune(tmp_path / "b", judge, budget=300)  # the user's cache is warm now
    assert judge.calls == 0
    assert second.path.read_bytes() == first.path.read_bytes()
    assert second.result["requests"] == first.result["requests"]
    assert (second.paid["requests"], second.paid["from_cache"]) == (0, first.paid["requests"])


class Killed(BaseException):
    """Ends the process's work as Ctrl-C would."""


@pytest.mark.fault("A3")
@pytest.mark.parametrize("at", [1, 70, 230, 318])
def test_a_study_that_was_broken_off_ends_as_an_unbroken_one(tmp_path: Path, at: int) -> None:
    whole = tune(tmp_path / "whole", PromptJudge(), budget=320, cache=False)

    def die(n: int) -> None:
        if n == at:
            raise Killed

    with pytest.raises(Killed):
        tune(tmp_path / "broken", PromptJudge(on_call=die), budget=320, cache=False)
    rest = PromptJudge()
    ended = tune(tmp_path / "broken", rest, budget=320, cache=False)
    assert 0 < rest.calls <= 321 - at + PromptJudge.concurrency
    assert ended.path.read_bytes() == whole.path.read_bytes()
    names = ("result.json",)
    for name in names:
        one, two = (tmp_path / d / "study" / name for d in ("whole", "broken"))
        assert one.read_bytes() == two.read_bytes()


def test_a_second_process_is_refused_and_another_study_is_not_mixed_in(tmp_path: Path) -> None:
    failure: list[BaseException] = []

    def body() -> None:
        try:
            tune(tmp_path / "out", PromptJudge(), budget=200)
        except RunError as caught:
            failure.append(caught)

    def second(n: int) -> None:
        if n == 5:
            thread = threading.Thread(target=body)
            thread.start()
            thread.join()

    tune(tmp_path / "out", PromptJudge(on_call=second), budget=200)
    assert "another process" in str(failure[0])
    with pytest.raises(RunError, match="seed was 0, now 1"):
        tune(tmp_path / "out", PromptJudge(), budget=200, seed=1)
    tune(tmp_path / "out", PromptJudge(), budget=200, seed=1, force_new=True)


@pytest.mark.fault("A12")
def test_a_judge_that_no_prompt_improves_leaves_the_prompt_as_it_was(tmp_path: Path) -> None:
    tuned = tune(tmp_path / "out", PromptJudge(INDIFFERENT))
    assert tuned.verdict == "no_evidence"
    assert tuned.template.fingerprint == template().fingerprint
    if tuned.candidate is not None:
        candidate = parse(tuned.candidate.read_bytes(), tuned.candidate)
        assert candidate.fingerprint != template().fingerprint


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda: rows(12), "12 rows with a label; tuning needs at least 20"),
        (lambda: [{**r, "document": "d"} for r in rows(60)], "1 groups"),
        (lambda: [{**r, "score": 3} for r in rows(60)], "every label of 'quality' is 3"),
        (lambda: [{**r, "score": r["score"] + 2} for r in rows(60)], "outside its scale 1 to 5"),
        (lambda: [{k: v for k, v in r.items() if k != "score"} for r in rows(60)], "no column"),
        (lambda: [{**r, "score": "banana"} for r in rows(60)], "no labels"),
    ],
)
def test_labels_that_cannot_be_used_are_told_before_anything_is_asked(
    tmp_path: Path, data: Any, message: str
) -> None:
    judge = PromptJudge()
    with pytest.raises(DataError, match=message):
        tune(tmp_path / "out", judge, data())
    assert judge.calls == 0
    assert not (tmp_path / "out").exists()


@pytest.mark.fault("D11")
def test_ids_that_do_not_match_are_told() -> None:
    data = [{k: v for k, v in r.items() if k != "score"} for r in rows(60)]
    labels = [{"id": f"x{r['id']}", "score": r["score"]} for r in rows(60)]
    with pytest.raises(DataError, match=r"no row has a label[\s\S]*'r0'[\s\S]*'xr0'"):
        load(labels, data=data, template=template())
    told: list[str] = []
    labels = [{"id": r["id"], "score": r["score"]} for r in rows(70)[5:]]
    joined = load(labels, data=data, template=template(), note=told.append, group=None)
    assert joined.n == 55
    assert any("5 rows without a label" in t for t in told)
    assert any("10 labels belong to no row" in t for t in told)


def test_labels_on_another_scale_are_mapped_when_told() -> None:
    data = [{**r, "score": (r["score"] - 1) * 25} for r in rows(60)]
    joined = load(data, template=template(), label_scale=(0, 100), group="document")
    assert set(joined.human["quality"]) <= {1.0, 2.0, 3.0, 4.0, 5.0}


def test_a_budget_that_is_too_small_says_how_much_is_needed(tmp_path: Path) -> None:
    for budget in (30, 130):
        with pytest.raises(UsageError, match="Give at least"):
            tune(tmp_path / f"o{budget}", PromptJudge(), budget=budget)


def test_templates_by_units_are_refused() -> None:
    with pytest.raises(TemplateError, match="units"):
        load([{"answer": "a", "contexts": ["b"], "score": 1}], template="faithfulness")


def test_few_rows_are_explored_and_never_called_better(tmp_path: Path) -> None:
    tuned = tune(tmp_path / "out", PromptJudge(), rows(50), budget=500)
    assert tuned.result["explore"]
    assert tuned.verdict != "better"


@pytest.mark.fault("R3")
def test_a_plan_asks_nothing(tmp_path: Path) -> None:
    judge = PromptJudge()
    found = plan(
        rows(200),
        template=template(),
        judge=judge,
        group="document",
        budget=900,  # type: ignore[arg-type]
    )
    assert judge.calls == 0
    assert (found.seed_requests, found.test_requests) == (60, 120)
    assert found.choices["order"] == ["own", "score_only", "reason_first"]
    assert "Is the answer right" in found.prompt[-1]["content"]


@pytest.mark.fault("C9")
async def test_it_works_inside_a_running_event_loop(tmp_path: Path) -> None:
    tuned = tune(tmp_path / "out", PromptJudge(), rows(60), budget=200)
    assert tuned.path.exists()


def test_several_criteria_are_tuned_together(tmp_path: Path) -> None:
    two = template(
        criteria={"quality": {"text": "Is it right?"}, "style": {"text": "Is it well written?"}}
    )
    data = [{**r, "quality": r["score"], "style": r["score"]} for r in rows(120)]
    for r in data:
        del r["score"]
    tuned = tune(tmp_path / "out", PromptJudge(), data, template=two, budget=500)
    assert set(tuned.result["result"]["figures"]) == {"quality", "style"}
    assert tuned.result["requests"]["total"] <= 500


@pytest.mark.fault("A13")
def test_scoring_with_another_judge_than_the_tuned_one_is_told(
    finished: tuple[geval.Tuned, PromptJudge, Path], tmp_path: Path
) -> None:
    class Other(PromptJudge):
        spec = "other"

        def identity(self) -> dict[str, Any]:
            return {"judge": "other", "endpoint": "other", "model": "other-1"}

    tuned, _, _ = finished
    data = [{k: v for k, v in r.items() if k != "score"} for r in rows(2, seed=5)]
    for judge, told in ((PromptJudge(), False), (Other(), True)):
        notes: list[str] = []
        geval.score(
            data, template=tuned.path, judge=judge, out=tmp_path / judge.spec, note=notes.append
        )  # type: ignore[arg-type]
        assert any("was tuned for fake, not for other" in n for n in notes) is told
