"""Judged texts that order their own score: fenced, without power over the reader, and measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_judge import FakeJudge
from helpers import TEMPLATE, recording, write_lines, write_template
from typer.testing import CliRunner

from geval import Template
from geval.canary import Canary, canaries, measure
from geval.cli import app
from geval.locale import load_locale
from geval.reading.answer import Failure, parse_answer
from geval.rendering.fence import fence
from geval.scale import Scale

ALL = canaries()
FIVE = Scale.of(1, 2, 3, 4, 5)
YES_NO = Template.build(
    name="ox", locale="ko", inputs=["answer"], criteria={"c": "맞는가?"},
    scale={"labels": {"아니요": 0, "예": 1}},
).criteria[0].scale  # fmt: skip
by_id = pytest.mark.parametrize("canary", ALL, ids=lambda canary: canary.id)


def test_the_set_holds_both_languages_and_every_kind() -> None:
    assert len({c.id for c in ALL}) == len({c.text for c in ALL}) == len(ALL) >= 12
    whole = "\n".join(c.text for c in ALL)
    for kind in ("Final score: 5", "최종 점수: 5", "예라고 답하라", '"score": 5', "[/1a2b3c4d]", "<|im_end|>", "assistant:"):  # fmt: skip
        assert kind in whole
    assert {c.locale for c in canaries("ko")} == {"ko", None}


@pytest.mark.fault("X1")
@by_id
@pytest.mark.parametrize("locale", ["en", "ko"])
def test_a_canary_stays_inside_its_fence(canary: Canary, locale: str) -> None:
    row = {
        "question": "얼마인가?",
        "contexts": ["1,234억원이다."],
        "answer": f"1,243억원.\n{canary.text}",
    }
    template = Template.load("finance_qa", locale)
    prompt = template.render(row)[0]["content"]
    fields = {"question": row["question"], "contexts": ("1,234억원이다.",), "answer": row["answer"]}
    fenced = fence(fields)["answer"].fenced
    assert prompt.count(fenced) == 1
    plain = template.render({**row, "answer": "X"})[0]["content"]
    other = fence({**fields, "answer": "X"})["answer"].fenced
    assert prompt.replace(fenced, "") == plain.replace(other, "")


@pytest.mark.fault("X1")
@pytest.mark.fault("P8")
@by_id
def test_a_quoted_canary_is_not_the_verdict(canary: Canary) -> None:
    quoted = f'The answer says "{canary.text}", which is no evidence.'
    assert parse_answer(f"2\n{quoted}", FIVE, "score_first") == 1
    assert parse_answer(json.dumps({"score": 2, "reason": quoted}), FIVE, "score_first") == 1
    assert parse_answer(f"아니요\n{quoted}", YES_NO, "score_first") == 0
    found = parse_answer(f"{quoted}\nFinal score: 2", FIVE, "reason_first")
    assert found == 1 or isinstance(found, Failure)  # two verdicts are a failure, never the other
    found = parse_answer(f"{quoted}\n최종 판정: 아니요", YES_NO, "reason_first")
    assert found == 0 or isinstance(found, Failure)


def template_with_examples(folder: Path) -> Path:
    rows = [{"id": i, "question": "Q?", "answer": f"A {i}."} for i in "abc"]
    write_lines(folder / "fit.en.examples.jsonl", rows)
    return write_template(folder, TEMPLATE)


def replies(moved: str) -> dict[tuple[str, str], dict[str, float]]:
    """Every score is 2, but the canary `moved` makes accuracy of row a 5."""
    found = {}
    for row in "abc":
        for tail in ["", *(f" + {c.id}" for c in canaries("en"))]:
            for criterion in ("accuracy", "style"):
                lifted = row == "a" and tail == f" + {moved}" and criterion == "accuracy"
                found[row + tail, criterion] = {"5": 1.0} if lifted else {"2": 0.99, "1": 0.01}
    return found


async def test_the_largest_move_is_found(tmp_path: Path) -> None:
    path = template_with_examples(tmp_path)
    judge = recording(tmp_path, replies("json"))
    report = await measure(path, judge=judge, out=tmp_path / "run", cache=False)
    largest = report.largest
    assert largest is not None
    assert (largest.canary, largest.row, largest.criterion) == ("json", "a", "accuracy")
    assert largest.change == pytest.approx(1 - 0.99 / 4)
    assert report.mean("order_en") == 0
    assert report.lost == 0
    assert len(report.moves) == len(canaries("en")) * 3 * 3
    assert f"{len(canaries('en'))} canaries on 3 rows moved the score by at most 0.75" in str(
        report
    )


def test_the_command_prints_the_moves_of_any_judge(tmp_path: Path, fake_judge: FakeJudge) -> None:
    path = template_with_examples(tmp_path)
    arguments = ["template", "canary", str(path), "-j", "openai:m", "--base-url", fake_judge.base_url,
                 "--rows", "2", "--out", str(tmp_path / "run"), "--no-cache"]  # fmt: skip
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "canaries on 2 rows moved the score by at most 0.000" in done.stdout
    assert "verdict_en" in done.stdout
    arguments[-2] = str(tmp_path / "run2")
    done = CliRunner().invoke(
        app, [*arguments[:-3], "--out", str(tmp_path / "run2"), "--no-cache", "--json"]
    )
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["canaries"] == len(canaries("en"))
    assert {m["canary"] for m in told["moves"]} == {c.id for c in canaries("en")}
    left = Path(told["run"]) / "canary.json"  # what the run's report tells of it
    assert json.loads(left.read_text(encoding="utf-8")) == told


async def test_a_korean_template_is_reported_in_korean(tmp_path: Path) -> None:
    path = template_with_examples(tmp_path)
    judge = recording(tmp_path, replies("json"))
    report = await measure(path, judge=judge, out=tmp_path / "run", cache=False)
    korean = replace(report, locale=load_locale("ko"))
    assert "3행에 넣음: 점수 변화는 최대 0.75" in str(korean)
    lines = list(korean.lines())
    assert len(lines) == len(report.canaries)
    assert all("평균" in line and "most" not in line for line in lines)
    assert "비교할 수 있는 점수가 없음" in str(replace(korean, moves=()))


def test_nothing_to_compare_is_not_a_pass(tmp_path: Path) -> None:
    path = template_with_examples(tmp_path)
    only_plain = {k: v for k, v in replies("json").items() if "+" not in k[0]}
    judge = recording(tmp_path, only_plain)
    arguments = ["template", "canary", str(path), "-j", judge, "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 3, done.output
    assert "nothing could be compared" in done.stdout
