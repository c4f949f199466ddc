"""Runs against a server that fails: retries, deadlines, budgets, interrupts, resume, panels."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fake_judge import FakeJudge
from fake_model import Table
from helpers import ROWS, TEMPLATE, write_lines, write_template

import geval
from geval.errors import BudgetError, ConfigError, FatalError, RunError
from geval.judges.base import Choice, Reply, Request, Usage, open_judge
from geval.settings import Settings
from geval.traffic.cache import cache_key
from geval.traffic.limits import Limits

ONE = TEMPLATE.replace("  style: Is the answer well written?\n", "")
QUICK = Limits(attempts=3, attempt_timeout=0.5, row_timeout=5, heartbeat=0.2)


def score(folder: Path, fake: FakeJudge, **options: Any) -> geval.Run:
    path = write_template(folder, options.pop("text", ONE))
    options = {"limits": QUICK, "out": folder / "run", "reasons": "none", **options}
    judge = options.pop("judge", "openai:fake-1")
    data = options.pop("data", ROWS)
    return geval.score(data, template=path, judge=judge, base_url=fake.base_url, **options)


def by_id(run: geval.Run, criterion: str = "accuracy") -> dict[str, dict[str, Any]]:
    return {r["id"]: r for r in run.results() if r["criterion"] == criterion}


def test_a_server_gives_its_distribution(tmp_path: Path, fake_judge: FakeJudge) -> None:
    fake_judge.set(tables={"A2.": Table({"1": 0.5, "2": 0.5})}, default=Table({"4": 0.6, "5": 0.4}))
    run = score(tmp_path, fake_judge)
    rows = by_id(run)
    assert rows["a"]["score"] == pytest.approx(4.4, abs=1e-6)
    assert rows["b"]["score"] == pytest.approx(1.5, abs=1e-6)
    assert rows["a"]["method"] == "logprobs"
    assert run.manifest["paid"]["calls"] >= 3
    assert run.manifest["judges"][0]["endpoint"] == fake_judge.host


@pytest.mark.fault("N10")
def test_a_storm_of_refusals_is_waited_out(tmp_path: Path, fake_judge: FakeJudge) -> None:
    fake_judge.fail(429, times=2, retry_after="0")
    run = score(tmp_path, fake_judge)
    assert run.summary["overall"]["scored"] == 3


@pytest.mark.fault("N10")
def test_a_spent_quota_is_not_retried_and_stops_the_run(
    tmp_path: Path, fake_judge: FakeJudge
) -> None:
    score(tmp_path, fake_judge, out=tmp_path / "probe")
    fake_judge.forget()
    fake_judge.fail(429, code="insufficient_quota")
    with pytest.raises(FatalError):
        score(tmp_path, fake_judge, cache=False, limits=Limits(concurrency=1))
    assert fake_judge.count() == 1


@pytest.mark.fault("N12")
def test_a_missing_model_is_found_before_the_first_row(
    tmp_path: Path, fake_judge: FakeJudge
) -> None:
    fake_judge.set(models=frozenset({"other"}))
    with pytest.raises(FatalError):
        score(tmp_path, fake_judge)
    assert not (tmp_path / "run").exists()


@pytest.mark.fault("N11")
def test_a_hanging_row_is_unscored_and_named_and_the_others_are_judged(
    tmp_path: Path, fake_judge: FakeJudge
) -> None:
    score(tmp_path, fake_judge, out=tmp_path / "probe", cache=False)
    told: list[str] = []
    limits = Limits(attempts=1, attempt_timeout=1.0, row_timeout=2, heartbeat=0.1, concurrency=1)
    fake_judge.fail("hang", times=1)
    run = score(tmp_path, fake_judge, limits=limits, cache=False, note=told.append)
    counts = run.summary["overall"]
    assert (counts["scored"], counts["unscored"]) == (2, 1)
    (failed,) = (r for r in by_id(run).values() if r["status"] == "unscored")
    assert failed["error"]["retryable"]
    assert "no reply within" in failed["error"]["message"]
    assert any("waiting for a reply: " + failed["id"] in text for text in told)


@pytest.mark.fault("C6")
@pytest.mark.fault("R7")
@pytest.mark.parametrize("kind", [500, 503, "cut", "cut_body", "garbage"])
def test_a_broken_reply_costs_its_row_at_most(
    tmp_path: Path, fake_judge: FakeJudge, kind: int | str
) -> None:
    score(tmp_path, fake_judge, out=tmp_path / "probe", cache=False)
    fake_judge.fail(kind, times=1)  # type: ignore[arg-type]
    run = score(tmp_path, fake_judge, cache=False)
    assert run.summary["overall"]["scored"] == 3


@pytest.mark.fault("C8")
def test_retryable_rows_are_judged_again_and_appear_once(
    tmp_path: Path, fake_judge: FakeJudge
) -> None:
    score(tmp_path, fake_judge, out=tmp_path / "probe", cache=False)
    fake_judge.fail(500, times=3)
    limits = Limits(attempts=1, concurrency=1)
    first = score(tmp_path, fake_judge, limits=limits, cache=False)
    assert first.summary["overall"]["scored"] == 0
    fake_judge.heal()
    second = score(tmp_path, fake_judge, limits=limits, cache=False)
    assert second.summary["overall"]["scored"] == 3
    assert set(Counter((r["id"], r["criterion"]) for r in second.results()).values()) == {1}


@pytest.mark.fault("C1")
@pytest.mark.fault("S28")
def test_repeats_are_asked_anew_and_their_noise_is_told(
    tmp_path: Path, fake_judge: FakeJudge
) -> None:
    fake_judge.set(default=Table({"1": 0.5, "5": 0.5}), refuse={"logprobs", "top_logprobs"})
    run = score(tmp_path, fake_judge, repeat=4)
    noise = run.summary["noise"]
    assert noise["rows"] == 3
    assert noise["sd"] > 0
    assert 0 <= noise["flip_rate"] <= 1
    drawn = {(r["id"], r["repeat"]): tuple(r["probs"]) for r in run.results() if r["probs"]}
    assert len(drawn) == 12
    assert len(set(drawn.values())) > 1


def test_a_warm_rerun_makes_no_call_and_gives_the_same_lines(
    tmp_path: Path, fake_judge: FakeJudge
) -> None:
    first = score(tmp_path, fake_judge, out=tmp_path / "1", reasons="all")
    fake_judge.forget()
    second = score(tmp_path, fake_judge, out=tmp_path / "2", reasons="all")
    assert fake_judge.count("/v1/chat/completions") <= 1  # the probe of a new process at most
    read = lambda run: sorted((run.folder / "results.jsonl").read_text("utf-8").splitlines())  # noqa: E731
    assert read(first) == read(second)
    assert second.manifest["paid"]["calls"] == 0
    assert second.manifest["paid"]["cache_hits"] >= 3


@pytest.mark.parametrize("limits", [Limits(max_calls=2), Limits(max_tokens=300)])
def test_a_budget_stops_before_the_next_call_and_the_run_continues(
    tmp_path: Path, fake_judge: FakeJudge, limits: Limits
) -> None:
    rows = [{"id": str(i), "question": "Q?", "answer": f"A{i}."} for i in range(30)]
    score(tmp_path, fake_judge, data=rows[:1], out=tmp_path / "probe", cache=False)
    fake_judge.forget()
    with pytest.raises(BudgetError, match="is reached"):
        score(tmp_path, fake_judge, data=rows, limits=limits, cache=False)
    asked = fake_judge.count()
    if limits.max_calls is not None:
        assert asked <= limits.max_calls + 1  # and the probe
    assert asked < 30
    run = score(tmp_path, fake_judge, data=rows, cache=False)
    assert run.summary["overall"]["scored"] == 30


def test_a_panel_pools_its_judges_and_survives_one(tmp_path: Path, fake_judge: FakeJudge) -> None:
    broken = write_lines(
        tmp_path / "r.jsonl",
        [{"id": i, "criterion": "accuracy", "alternatives": {"2": 0.98, "1": 0.02}} for i in "ab"],
    )
    judges = ["openai:fake-1", f"replay:{broken}"]
    path = write_template(tmp_path, ONE)
    (tmp_path / "geval.toml").write_text(
        f'[judges.fake]\nspec = "openai:fake-1"\nbase_url = "{fake_judge.base_url}"\n', "utf-8"
    )
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        judges[0] = "fake"
        run = geval.score(ROWS, template=path, judge=judges, reasons="none", out=tmp_path / "run")
        middle = geval.score(
            ROWS, template=path, judge=judges, reasons="none", pool="median", out=tmp_path / "m"
        )
    finally:
        os.chdir(here)
    rows = by_id(run)
    assert rows["a"]["score"] == pytest.approx((4.4 + 1.98) / 2, abs=1e-6)
    assert rows["a"]["spread"] == pytest.approx((4.4 - 1.98) / 2, abs=1e-6)
    assert [j["status"] for j in rows["a"]["jurors"]] == ["scored", "scored"]
    assert rows["c"]["score"] == pytest.approx(4.4, abs=1e-6)
    assert rows["c"]["warnings"] == [f"juror_failed_replay:{broken}"]
    assert [j["status"] for j in rows["c"]["jurors"]] == ["scored", "unscored"]
    assert by_id(middle)["a"]["score"] == pytest.approx((4.4 + 1.98) / 2, abs=1e-6)


def test_two_judges_of_one_spec_both_count(tmp_path: Path, fake_judge: FakeJudge) -> None:
    other = FakeJudge(default=Table({"1": 0.98, "2": 0.02}))
    (tmp_path / "here").mkdir()
    with other:
        config = "".join(
            f'[judges.{name}]\nspec = "openai:fake-1"\nbase_url = "{url}"\n'
            for name, url in (("a", fake_judge.base_url), ("b", other.base_url))
        )
        (tmp_path / "here" / "geval.toml").write_text(config, "utf-8")
        means = []
        for order in (["a", "b"], ["b", "a"]):
            done = subprocess.run(
                [sys.executable, "-m", "geval", "score", str(write_lines(tmp_path / "r.jsonl", ROWS)),
                 "-t", str(write_template(tmp_path, ONE)), "-j", order[0], "-j", order[1], "--json",
                 "-q", "-o", str(tmp_path / order[0]), "--reasons", "none"],
                cwd=tmp_path / "here", capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            lines = [json.loads(line) for line in done.stdout.splitlines()]
            (line,) = (x for x in lines if x["id"] == "a" and x["criterion"] == "accuracy")
            assert len(line["jurors"]) == 2
            means.append(line["score"])
    assert means[0] == means[1] == pytest.approx((4.4 + 1.02) / 2, abs=1e-6)


@pytest.mark.fault("C2")
def test_two_addresses_on_one_host_are_two_judges(fake_judge: FakeJudge) -> None:
    def identity(url: str) -> dict[str, Any]:
        return open_judge("openai:fake-1", base_url=url).identity()

    one, two = identity(fake_judge.base_url), identity(f"http://{fake_judge.host}/other/v1")
    assert one["endpoint"] == two["endpoint"]
    request = Request(({"role": "user", "content": "x"},), "single", 8)
    assert cache_key(one, request) != cache_key(two, request)


class Odd:
    """A judge whose answers have a shape that no code expects."""

    spec, concurrency = "odd", 4

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def methods(self) -> tuple[Any, ...]:
        return ("logprobs",)

    async def complete(self, request: Any) -> Any:
        raise self.error

    def identity(self) -> dict[str, Any]:
        return {"judge": "odd", "endpoint": "odd.example"}

    async def aclose(self) -> None:
        return None


@pytest.mark.fault("C6")
@pytest.mark.parametrize(
    "error", [TypeError("5"), KeyError("choices"), OverflowError("1e999"), RecursionError("deep")]
)
def test_a_reply_of_an_odd_shape_is_an_unscored_row(tmp_path: Path, error: Exception) -> None:
    run = geval.score(
        ROWS, template=write_template(tmp_path, ONE), judge=Odd(error), out=tmp_path / "r"
    )
    assert run.summary["overall"]["unscored"] == 3
    assert run.summary["failures"] == {"rejected": 3}


def test_results_without_their_manifest_are_not_added_to(
    tmp_path: Path, fake_judge: FakeJudge
) -> None:
    score(tmp_path, fake_judge)
    (tmp_path / "run" / "manifest.json").unlink()
    before = (tmp_path / "run" / "results.jsonl").read_bytes()
    with pytest.raises(RunError, match=r"without their manifest\.json"):
        score(tmp_path, fake_judge)
    assert (tmp_path / "run" / "results.jsonl").read_bytes() == before


@pytest.mark.fault("C9")
async def test_it_works_inside_a_running_event_loop(tmp_path: Path, fake_judge: FakeJudge) -> None:
    assert score(tmp_path, fake_judge).summary["overall"]["scored"] == 3
    path = write_template(tmp_path, ONE)
    runs = await asyncio.gather(
        *(
            geval.ascore(
                ROWS, template=path, judge="openai:fake-1", base_url=fake_judge.base_url,
                reasons="none", out=tmp_path / f"g{i}",
            )
            for i in range(3)
        )
    )  # fmt: skip
    assert [r.summary["overall"]["scored"] for r in runs] == [3, 3, 3]


def command(folder: Path, fake: FakeJudge, *more: str) -> list[str]:
    path = write_template(folder, ONE)
    return [
        sys.executable, "-m", "geval", "score", str(folder / "rows.jsonl"), "-t", str(path),
        "-j", "openai:fake-1", "--base-url", fake.base_url, "--reasons", "none", "-o",
        str(folder / "run"), *more,
    ]  # fmt: skip


def wait_for_results(folder: Path, least: int, process: subprocess.Popen[str]) -> None:
    path = folder / "run" / "results.jsonl"
    for _ in range(3000):
        if path.exists() and path.read_bytes().count(b"\n") >= least:
            return
        if process.poll() is not None:
            raise AssertionError(f"ended early: {process.communicate()}")
        time.sleep(0.01)
    raise AssertionError("no results came")


@pytest.mark.fault("N11")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_loses_nothing_and_continues(
    tmp_path: Path, fake_judge: FakeJudge, how: signal.Signals
) -> None:
    rows = [{"id": str(i), "question": "Q?", "answer": f"A{i}."} for i in range(300)]
    write_lines(tmp_path / "rows.jsonl", rows)
    fake_judge.set(latency=0.02)
    arguments = command(tmp_path, fake_judge, "--concurrency", "4", "--no-cache")
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    wait_for_results(tmp_path, 20, process)
    process.send_signal(how)
    _, told = process.communicate(timeout=60)
    if how is signal.SIGINT:
        assert process.returncode == 130, told
        assert "continues" in told
        manifest = json.loads((tmp_path / "run" / "manifest.json").read_text("utf-8"))
        assert manifest["status"] == "interrupted"
    done = {
        json.loads(line)["id"]
        for line in (tmp_path / "run" / "results.jsonl").read_text("utf-8").splitlines(True)
        if line.endswith("\n") and json.loads(line)["criterion"] == "overall"
    }
    fake_judge.forget()
    fake_judge.set(latency=0.0)
    again = subprocess.run(arguments, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert again.returncode == 0, again.stderr
    results = [
        json.loads(line) for line in (tmp_path / "run" / "results.jsonl").open(encoding="utf-8")
    ]
    assert Counter((r["id"], r["criterion"]) for r in results) == Counter(
        (row["id"], c) for row in rows for c in ("accuracy", "overall")
    )
    asked_again = [s for s in fake_judge.bodies() if "rows" not in s]
    assert len(asked_again) <= len(rows) - len(done) + 3  # and the probe


def test_two_processes_on_one_folder_are_told_apart(tmp_path: Path, fake_judge: FakeJudge) -> None:
    rows = [{"id": str(i), "question": "Q?", "answer": f"A{i}."} for i in range(100)]
    write_lines(tmp_path / "rows.jsonl", rows)
    fake_judge.set(latency=0.05)
    arguments = command(tmp_path, fake_judge, "--concurrency", "1", "--no-cache")
    first = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_results(tmp_path, 2, first)
        fake_judge.set(latency=600)  # the first one waits for as long as the second needs
        second = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert second.returncode == 2
        assert "another process is writing" in second.stderr
    finally:
        first.kill()
        first.wait()


@pytest.mark.fault("R3")
def test_a_dry_run_asks_nothing(tmp_path: Path, fake_judge: FakeJudge) -> None:
    write_lines(tmp_path / "rows.jsonl", ROWS)
    done = subprocess.run(
        command(tmp_path, fake_judge, "--dry-run"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert fake_judge.count() == 0
    assert "3 to " in done.stdout
    assert "unknown: no price" in done.stdout
    assert "Is the answer right?" in done.stdout
    assert not (tmp_path / "run").exists()


def test_an_unknown_pool_or_no_judge(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no judge"):
        geval.score(ROWS, template=write_template(tmp_path), judge=[])


class Renamed:
    """A judge whose endpoint says which model answered."""

    spec, concurrency = "renamed", 1

    def __init__(self, model: str, stop_after: int = 99) -> None:
        self.model, self.left = model, stop_after

    async def methods(self) -> tuple[str, ...]:
        return ("samples", "single")

    async def complete(self, request: Request) -> Reply:
        self.left -= 1
        if self.left < 0:
            raise FatalError("switched off")
        return Reply((Choice("4"),) * request.n, Usage(calls=1), self.model)

    def identity(self) -> dict[str, Any]:
        return {"judge": "renamed", "revision": self.model}

    async def aclose(self) -> None:
        pass


def test_a_model_that_changes_inside_a_run_is_told(tmp_path: Path) -> None:
    path = write_template(tmp_path, ONE)
    told: list[str] = []
    options: dict[str, Any] = {
        "template": path, "out": tmp_path / "run", "note": told.append, "cache": False,
        "method": "single", "reasons": "none",
    }  # fmt: skip
    with pytest.raises(FatalError):
        geval.score(ROWS, judge=Renamed("model-1", stop_after=1), **options)
    assert not any("two models" in text for text in told)
    run = geval.score(ROWS, judge=Renamed("model-2"), **options)
    assert [text for text in told if "model-2" in text and "model-1" in text]
    seen = [r["revision"] for r in run.results() if r["criterion"] == "accuracy"]
    assert seen == ["model-1", "model-2", "model-2"]


def test_counting_answers_for_want_of_probabilities_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    geval.score(
        ROWS, template=write_template(tmp_path, ONE), judge=Renamed("m"), out=tmp_path / "run",
        note=told.append, reasons="none",
    )  # fmt: skip
    assert any("gives no probabilities" in text and "4 to 20" in text for text in told)


def test_waiting_for_a_place_is_named_and_is_no_time_of_the_row(
    tmp_path: Path, fake_judge: FakeJudge
) -> None:
    # The second criterion waits for the first: together longer than one may take.
    fake_judge.set(latency=1.6)
    told: list[str] = []
    limits = Limits(concurrency=1, attempts=1, attempt_timeout=9, row_timeout=2.6, heartbeat=0.2)
    run = score(
        tmp_path, fake_judge, text=TEMPLATE, data=ROWS[:1], limits=limits, note=told.append,
        method="single", cache=False,
    )  # fmt: skip
    assert run.summary["overall"]["scored"] == 1
    assert any("waiting for a place in flight: " in text for text in told)


def test_the_time_of_a_run_ends_it_while_it_waits_for_a_place(
    tmp_path: Path, fake_judge: FakeJudge
) -> None:
    limits = Limits(rpm=1, attempt_timeout=5, run_timeout=1.0)
    rows = [{**ROWS[0], "id": str(n)} for n in range(6)]
    with pytest.raises(BudgetError, match="run-timeout"):
        score(tmp_path, fake_judge, data=rows, limits=limits, cache=False)
    assert geval.Run(tmp_path / "run").manifest["status"] == "interrupted"


def test_a_plan_needs_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    path = write_template(tmp_path, ONE)
    for judge in ("openai:m", "anthropic:m"):
        planned = asyncio.run(geval.api.aplan(ROWS, template=path, judge=judge))
        assert planned.rows == len(ROWS)


@pytest.mark.parametrize(
    ("spec", "wanted"), [("local", "low"), ("replay:x", "all"), ("mine", "low")]
)
def test_reasons_by_default_follow_the_judge_that_answers(
    spec: str, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("geval.toml").write_text('[judges.mine]\nspec = "local"\n', encoding="utf-8")
    Path("x").write_text("", encoding="utf-8")
    from geval.judges.panel import open_seat, run_settings

    judge = open_seat(spec, None, False, Limits()).judge
    assert run_settings(Settings(reply_tokens=99), [judge], None, None, None).reasons == wanted
