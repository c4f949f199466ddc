"""`geval judge check` and `geval judge list`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_judge import FakeJudge
from fake_model import Table
from helpers import write_template
from typer.testing import CliRunner

from geval.cli.judge import app
from geval.errors import ConfigError, FatalError
from geval.judges.base import JUDGES
from geval.judges.check import EXAMPLES

TEMPLATE = """---
name: fit
locale: ko
inputs: {answer: {type: text}}
scale: {labels: {매우 미흡: 0, 매우 우수: 1}}
criteria: {fit: 답변이 맞는가?}
output: {order: score_only, reason: false}
---
{% extends "_geval.jinja" %}
{% block sample %}{{ answer }}{% endblock %}
"""


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def checked(fake: FakeJudge, spec: str, *more: str) -> dict[str, Any]:
    found = json.loads(run("check", spec, "--base-url", fake.base_url, "--json", *more))
    assert isinstance(found, dict)
    return found


def test_everything_that_an_endpoint_can_do(fake_judge: FakeJudge, hosts_called: set[str]) -> None:
    fake_judge.set(prefill="continue", systemone=True, top_cap=20)
    found = checked(fake_judge, "vllm:m")
    trials = {t["method"]: t for t in found["trials"]}
    assert list(trials) == ["exact", "decision", "logprobs", "samples"]
    for method in ("exact", "decision", "logprobs"):
        assert trials[method]["expected"] == pytest.approx(4.4)
        assert trials[method]["coverage"] == pytest.approx(1)
        assert trials[method]["levels"]["4"] == pytest.approx(0.6)
    assert trials["samples"]["answer"] in ("4", "5")
    assert trials["samples"]["expected"] is None
    assert found["facts"]["probabilities"] == "raw"
    assert found["facts"]["alternatives"] == 20
    assert found["facts"]["a begun reply is continued"] == "continue"
    assert found["tokens"] == {str(n): [str(n)] for n in range(1, 6)}
    assert found["price"] is None
    assert found["auto"]["without reasons"] == ["exact", "decision", "logprobs", "samples"]
    assert found["auto"]["with reasons"] == ["exact", "logprobs", "samples"]
    assert hosts_called == {fake_judge.host}


def test_it_is_told_in_words(fake_judge: FakeJudge) -> None:
    fake_judge.set(processed=True, refuse={"seed"})
    text = run("check", "openai:m", "--base-url", fake_judge.base_url)
    assert "probabilities: processed" in text
    assert "4.400" in text
    assert "refused: seed" in text
    assert "auto: logprobs then samples" in text
    assert "level 3: '3'" in text
    assert "price: unknown" in text


def test_how_the_levels_of_a_template_are_spelled(fake_judge: FakeJudge, tmp_path: Path) -> None:
    path = write_template(tmp_path, TEMPLATE, "fit.ko.jinja")
    fake_judge.set(default=Table({"매우 우수": 0.8, "매우 미흡": 0.2}))
    found = checked(fake_judge, "openai:m", "--template", str(path))
    assert found["tokens"] == {"매우 미흡": ["매우", " 미흡"], "매우 우수": ["매우", " 우수"]}
    trials = {t["method"]: t for t in found["trials"]}
    assert trials["logprobs"]["expected"] == pytest.approx(0.8)


def test_anthropic_has_samples_alone(fake_judge: FakeJudge) -> None:
    found = checked(fake_judge, "anthropic:m")
    assert [t["method"] for t in found["trials"]] == ["samples"]
    assert found["tokens"] == {}
    assert found["auto"]["with reasons"] == ["samples"]
    assert fake_judge.count() == 2, "one to find out, one to show"


def test_it_does_not_believe_an_earlier_probe(fake_judge: FakeJudge) -> None:
    assert "logprobs" in checked(fake_judge, "openai:m")["methods"]
    fake_judge.set(refuse={"logprobs"})
    assert checked(fake_judge, "openai:m")["methods"] == ["samples", "single"]


def test_a_method_that_fails_is_a_line(fake_judge: FakeJudge) -> None:
    fake_judge.set(decisions=True, decision_refuses=True)
    (decision, *_) = checked(fake_judge, "openai:m")["trials"]
    assert decision["error"] == "no probabilities came"
    assert "no probabilities came" in run("check", "openai:m", "--base-url", fake_judge.base_url)


def test_a_judge_that_cannot_be_reached(fake_judge: FakeJudge) -> None:
    fake_judge.set(key="right")
    with pytest.raises(FatalError, match="access refused"):
        checked(fake_judge, "openai:m")
    with pytest.raises(ConfigError, match="unknown judge 'opnai:m'"):
        run("check", "opnai:m")


def test_recorded_replies(fake_judge: FakeJudge, tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    path.write_text('{"id": "1", "criterion": "c", "alternatives": {"4": 1.0}}\n')
    found = json.loads(run("check", f"replay:{path}", "--json"))
    assert found["methods"] == ["logprobs"]
    assert found["trials"][0]["error"]
    assert found["price"]["input"] == 0


@pytest.mark.fault("X7")
def test_what_can_be_used_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts_called: set[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / "geval.toml").write_text(
        '[judges.mine]\nspec = "openai:m"\nbase_url = "https://box.test/v1"\n'
        'api_key_env = "BOX_KEY"\nrpm = 3\n'
        '[judges.other]\nspec = "openai:m"\napi_key_env = "NO_SUCH_KEY"\n'
    )
    monkeypatch.setenv("BOX_KEY", "key-secret-0123456789")
    text = run("list", "--json")
    assert "secret" not in text
    found = {j["name"]: j for j in json.loads(text)["judges"]}
    assert set(found) == {*JUDGES, "mine", "other"}
    assert found["mine"] == {
        "name": "mine",
        "spec": "openai:m",
        "usable": True,
        "why": "box.test, key from BOX_KEY",
    }
    assert not found["openai"]["usable"]
    assert "NO_SUCH_KEY" in found["other"]["why"]
    assert found["vllm"]["usable"]
    assert hosts_called == set(), "nobody is called"
    assert "box.test" in run("list")


def test_every_judge_has_an_example() -> None:
    assert EXAMPLES.keys() == JUDGES.keys()
