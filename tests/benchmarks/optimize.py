"""What tuning finds and what it claims, on judges whose right prompt is known.

    python tests/benchmarks/optimize.py            # known, null and kill: under ten minutes
    python tests/benchmarks/optimize.py known      # 20 seeds beside random search and MIPROv2
    python tests/benchmarks/optimize.py null       # 200 seeds of a judge that no prompt improves
    python tests/benchmarks/optimize.py kill       # kill -9 at ten random moments
    GEVAL_BENCH_DATA=DIR python tests/benchmarks/optimize.py --real    # local model, real labels

`known` and `null` judge by a table: the noise of `tuning_judge.Taste` on the prompt that the
candidate renders, without a request for each row. Split, search, racing, promotion, calibration
and test are those of `geval.tune`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tuning_judge import INDIFFERENT, KEY, LEVELS, TEXT, Taste, rows, template  # noqa: E402

from geval.optimize.labelled import Labelled, load  # noqa: E402
from geval.optimize.ledger import BudgetSpent, Ledger  # noqa: E402
from geval.optimize.loop import Options, Outcome, Proposal, Standing, Study  # noqa: E402
from geval.optimize.objective import Judged, row_losses  # noqa: E402
from geval.optimize.space import demo_sets, set_text, structural  # noqa: E402
from geval.optimize.split import split  # noqa: E402
from geval.template import Template  # noqa: E402

ROWS, PER = 300, 5
TEXTS = (
    "Is the answer right in every part?",
    f"{KEY} {TEXT}",
    "Would an expert accept the answer?",
    "Is the answer free of errors and omissions?",
    f"Is the answer right? {KEY}",
    "How good is the answer?",
)
ORDERS = ("score_only", "score_first")
MIPRO_SEEDS = 8
"""Seeds on which MIPROv2 is run: it takes half a minute each."""


class TableJudge:
    """An `Evaluator`: quality seen through the noise that the candidate's prompt has."""

    def __init__(self, data: Labelled, ledger: Ledger, taste: Taste, seed: int) -> None:
        self.data, self.ledger, self.taste, self.seed = data, ledger, taste, seed
        self.levels = {"quality": tuple(float(v) for v in LEVELS)}
        self.known: dict[str, tuple[Judged, Any]] = {}
        self.shared = np.random.default_rng([seed, 77]).normal(size=data.n)

    def sd(self, made: Template) -> float:
        return self.taste.sd(made.render(self.data.samples[0])[-1]["content"])

    def __call__(self, made: Template, wanted: Any) -> Judged:
        key = made.fingerprint
        if key not in self.known:
            own = np.random.default_rng([self.seed, zlib.crc32(key.encode())])
            noise = 0.6 * self.shared + 0.8 * own.normal(size=self.data.n)
            probs = bell(self.data.human["quality"] + self.sd(made) * noise)
            self.known[key] = (Judged.empty(self.levels, self.data.n), probs)
        judged, probs = self.known[key]
        todo = [int(i) for i in wanted if not judged.asked[i]]
        with self.ledger.work():
            for i in todo:
                self.ledger.enter(f"{key}/{i}", 1)
        judged.probs["quality"][todo] = probs[todo]
        judged.asked[todo] = True
        judged.tokens[todo] = 150 + 60 * len(made.front.demos)
        return judged


def bell(middle: Any) -> Any:
    weights = np.exp(-0.5 * ((np.array(list(LEVELS)) - np.asarray(middle)[:, None]) / 0.7) ** 2)
    weights += 1e-9
    return weights / weights.sum(axis=1, keepdims=True)


class Scripted:
    """A proposer that writes the same six texts, a request each."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def __call__(self, standing: Standing) -> list[Proposal]:
        if standing.round:
            return []
        made = []
        for n, text in enumerate(TEXTS):
            with self.ledger.work():
                self.ledger.enter(f"text {n}", 1)
            made.append(Proposal("text:quality", f"p{n}", text, set_text("quality", text)))
        return made


def study(seed: int, calls: int, taste: Taste, count: int = ROWS) -> tuple[Outcome, TableJudge]:
    """A study whose search may make `calls` requests; the test's come on top."""
    data = load(rows(count, seed, PER), template=template(), group="document")
    parts = split(data.group, data.level(), seed)
    ledger = Ledger(calls + 2 * len(parts.test))
    judge = TableJudge(data, ledger, taste, seed)
    options = Options(seed=seed, orders=ORDERS)
    return Study(data, judge, ledger, options, proposer=Scripted(ledger)).run(), judge


def random_search(seed: int, calls: int, taste: Taste) -> float:
    """Noise of the best of random combinations of the same choices, each judged on all dev rows."""
    data = load(rows(ROWS, seed, PER), template=template(), group="document")
    parts = split(data.group, data.level(), seed)
    ledger = Ledger(calls)
    judge = TableJudge(data, ledger, taste, seed)
    demos, _ = demo_sets(data, parts.train, seed)
    space = structural(data.template, data.criteria, ORDERS, demos)
    space = space.grown(
        "text:quality", {f"p{n}": set_text("quality", t) for n, t in enumerate(TEXTS)}
    )
    rng = Random(seed)
    best, found, params = float("inf"), judge.sd(data.template), dict(space.own)
    for n in range(len(TEXTS)):
        ledger.enter(f"text {n}", 1)
    while True:
        made = space.apply(params)
        try:
            judged = judge(made, parts.dev)
        except BudgetSpent:
            return found
        losses = row_losses(judged, judge.levels, data.human, data.group, parts.dev)
        if losses.mean() < best:
            best, found = float(losses.mean()), judge.sd(made)
        params = {key: rng.choice(list(options)) for key, options in space.choices.items()}


def mipro(seed: int, calls: int, taste: Taste) -> float:
    """Noise of what `dspy.MIPROv2` (instruction and demos) chooses within the same calls."""
    import dspy
    from dspy import lm15

    data = load(rows(ROWS, seed, PER), template=template(), group="document")
    parts = split(data.group, data.level(), seed)
    shared = np.random.default_rng([seed, 77]).normal(size=data.n)
    levels = np.array(list(LEVELS), float)
    scores: dict[tuple[str, int], dict[int, float]] = {}
    spent = 0

    def sd_of(key: tuple[str, int]) -> float:
        demos = max((k for k in (0, 2, 4) if k <= key[1]), default=0)
        own = taste.sd(template().render(data.samples[0])[-1]["content"])
        gain = taste.key * (KEY in key[0]) + taste.demos.get(demos, 0.0)
        return own - gain

    class Program(dspy.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.judge = dspy.Predict(dspy.Signature("row -> score", TEXT))

        def forward(self, row: int) -> Any:
            nonlocal spent
            key = (self.judge.signature.instructions, len(self.judge.demos))
            known = scores.setdefault(key, {})
            if row not in known:
                if spent >= calls:
                    raise BudgetSpent
                spent += 1
                own = np.random.default_rng([seed, zlib.crc32(repr(key).encode()), row])
                noise = 0.6 * shared[row] + 0.8 * own.normal()
                seen = data.human["quality"][row] + sd_of(key) * noise
                known[row] = float(bell([seen])[0] @ levels)
            return dspy.Prediction(score=known[row])

    texts = iter(TEXTS * 20)

    class Pool:
        def complete(self, request: Any) -> Any:
            name = "proposed_instruction" if "proposed_instruction" in str(request) else "x"
            text = f"[[ ## {name} ## ]]\n{next(texts)}\n\n[[ ## completed ## ]]"
            return lm15.Response(id=None, model="pool", message=lm15.Message.assistant(text),
                                 finish_reason="stop", usage=lm15.Usage())  # fmt: skip

    def metric(example: Any, prediction: Any, trace: Any = None) -> float:
        return 1 - abs(prediction.score - example.score) / 4

    def examples(part: Any) -> list[Any]:
        return [
            dspy.Example(row=int(i), score=float(data.human["quality"][i])).with_inputs("row")
            for i in part
        ]

    lm = dspy.LM("bench/pool", engine=Pool(), cache=False)
    logging.getLogger("dspy").setLevel(logging.CRITICAL)
    trials = max(2, int((calls - len(parts.dev)) / (35 + len(parts.dev) / 5)))
    chosen: Any = None
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        dspy.context(lm=lm),
        contextlib.suppress(BudgetSpent),
    ):
        tuner = dspy.MIPROv2(
            metric=metric, prompt_model=lm, task_model=lm, auto=None, num_candidates=7,
            max_bootstrapped_demos=1, max_labeled_demos=4, seed=seed, num_threads=1, verbose=False,
        )  # fmt: skip
        best = tuner.compile(
            Program(), trainset=examples(parts.train), valset=examples(parts.dev),
            num_trials=trials, minibatch_size=35, minibatch_full_eval_steps=5,
            program_aware_proposer=False, data_aware_proposer=False, tip_aware_proposer=False,
            fewshot_aware_proposer=False,
        )  # fmt: skip
        chosen = (best.judge.signature.instructions, len(best.judge.demos))
    if chosen is None:  # cut off: the best of what was judged on all dev rows
        whole = {k: v for k, v in scores.items() if len(v) == len(parts.dev)} or scores
        human = data.human["quality"]
        chosen = min(whole, key=lambda k: np.mean([abs(v - human[i]) for i, v in whole[k].items()]))
    return sd_of(chosen)


def spearman_of(sd: float) -> float:
    """Rank correlation that a judge of this noise has with people, on many rows."""
    from scipy.stats import spearmanr

    rng = np.random.default_rng(0)
    human = rng.choice(5, 40_000, p=np.array([1, 2, 3, 2, 2]) / 10) + 1.0
    seen = bell(human + sd * rng.normal(size=len(human))) @ np.array(list(LEVELS))
    return float(spearmanr(human, seen).statistic)


def _known(job: tuple[int, int]) -> dict[str, Any]:
    seed, calls = job
    taste = Taste()
    outcome, judge = study(seed, calls, taste)
    found = {"seed": seed, "calls": calls, "geval": judge.sd(outcome.tuned),
             "verdict": outcome.result.verdict, "candidates": len(outcome.tried),
             "used": outcome.requests["search"], "random": random_search(seed, calls, taste)}  # fmt: skip
    if calls == 600 and seed < MIPRO_SEEDS:
        found["MIPROv2"] = mipro(seed, calls, taste)
    return found


def known(pool: ProcessPoolExecutor, seeds: int) -> dict[str, Any]:
    """Best configuration found, regret and calls at several budgets."""
    taste = Taste()
    worst = taste.sd(template().render(rows(1)[0])[-1]["content"])
    jobs = [(seed, calls) for calls in (300, 600, 1200, 2400) for seed in range(seeds)]
    done = list(pool.map(_known, jobs))
    top = spearman_of(taste.least)
    print(f"known: best noise {taste.least:.2f} (spearman {top:.3f}), the seed's {worst:.2f} "
          f"({spearman_of(worst):.3f}), {seeds} seeds")  # fmt: skip
    table = []
    for calls in (300, 600, 1200, 2400):
        mine = [d for d in done if d["calls"] == calls]
        for name in ("geval", "random", "MIPROv2"):
            values = [d[name] for d in mine if name in d]
            if not values:
                continue
            regret = [top - spearman_of(v) for v in values]
            best = sum(v <= taste.least + 0.01 for v in values)
            line = {"calls": calls, "search": name, "best found": f"{best}/{len(values)}",
                    "regret": round(float(np.mean(regret)), 4),
                    "worst regret": round(float(np.max(regret)), 4)}  # fmt: skip
            if name == "geval":
                line |= {
                    "candidates": round(float(np.mean([d["candidates"] for d in mine])), 1),
                    "used": max(d["used"] for d in mine),
                    "better": sum(d["verdict"] == "better" for d in mine),
                }
            table.append(line)
            print("  " + ", ".join(f"{k} {v}" for k, v in line.items()))
    return {"known": table}


def _null(seed: int) -> str:
    return study(seed, 500, INDIFFERENT, 200)[0].result.verdict


def null(pool: ProcessPoolExecutor, seeds: int) -> dict[str, Any]:
    """How often a judge that no prompt improves is called better."""
    from scipy.stats import binomtest

    said = list(pool.map(_null, range(seeds)))
    count = said.count("better")
    ends = binomtest(count, seeds).proportion_ci(method="exact")
    print(f"null: better {count} of {seeds} = {count / seeds:.3f} [{ends.low:.3f}, {ends.high:.3f}], "
          f"worse {said.count('worse')}")  # fmt: skip
    return {"null": {"better": count, "of": seeds, "low": ends.low, "high": ends.high}}


def kill(moments: int = 10) -> dict[str, Any]:
    """Killed at random moments, then the same command: the same bytes as an unbroken study."""

    def start(out: Path) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            str(HERE.parent / "tuning_run.py"),
            str(out),
            "300",
            "100",
            "1",
            "0",
        ]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def content(out: Path) -> dict[str, bytes]:
        paths = [*out.rglob("*.jinja"), out / "study" / "result.json"]
        return {str(p.relative_to(out)): p.read_bytes() for p in paths}

    with tempfile.TemporaryDirectory() as folder:
        whole, broken = Path(folder) / "whole", Path(folder) / "broken"
        told, _ = start(whole).communicate()
        calls = sum(line.isdigit() for line in told.split("\n"))
        rng = Random(11)
        at = []
        for _ in range(moments):
            process = start(broken)
            assert process.stdout is not None
            left = rng.randrange(1, max(2, calls // 6))
            for line in process.stdout:
                if line.strip() == str(left):
                    os.kill(process.pid, signal.SIGKILL)
                    at.append(left)
                    break
            process.wait()
        start(broken).communicate()
        same = content(whole) == content(broken)
        print(f"kill: {calls} calls unbroken, killed {len(at)} times after {at} calls of a sitting, "
              f"same bytes: {same}")  # fmt: skip
        return {"kill": {"times": len(at), "same": same}}


PLAIN = """---
name: nli
locale: ko
inputs: {premise: text, hypothesis: text}
judged: hypothesis
scale:
  levels: {1: 전제와 모순됨, 2: 전제로는 알 수 없음, 3: 전제에서 따라 나옴}
criteria:
  entailment: 전제에 비추어 가설이 참인가
output: {order: score_only, reason: false}
---
{% extends "_geval.jinja" %}
{% block sample %}
전제: {{ premise }}
가설: {{ hypothesis }}
{% endblock %}
"""


def real(folder: Path, out: Path, budget: int) -> dict[str, Any]:
    """The local judge on 200 rows of KLUE-NLI, from a plain two-line template."""
    import geval

    source = _klue(folder)
    (out / "templates").mkdir(parents=True, exist_ok=True)
    path = out / "templates" / "nli.ko.jinja"
    path.write_text(PLAIN, encoding="utf-8")
    begun = time.monotonic()
    tuned = geval.tune(
        source, template=path, judge="local", group="document", budget=budget, out=out / "nli",
        note=lambda text: print(text, file=sys.stderr, flush=True),
    )  # fmt: skip
    told = {**tuned.result["result"], "requests": tuned.result["requests"], "paid": tuned.paid,
            "seconds": round(time.monotonic() - begun), "choices": tuned.result["choices"],
            "report": str(tuned.report)}  # fmt: skip
    print(json.dumps(told, ensure_ascii=False, indent=1))
    return {"real": told}


def _klue(folder: Path) -> list[dict[str, Any]]:
    """200 pairs in their documents (a premise has several hypotheses), labels 1, 2, 3."""
    files = sorted(p for p in folder.rglob("*") if "nli" in p.name.lower() and p.is_file())
    files = [p for p in files if p.suffix in (".json", ".jsonl", ".gz", ".parquet", ".csv", ".tsv")]
    if not files:
        raise SystemExit(f"no KLUE-NLI file under {folder} (GEVAL_BENCH_DATA)")
    from geval.data import read_rows

    words = {"contradiction": 1, "neutral": 2, "entailment": 3, 2: 1, 1: 2, 0: 3, "2": 1, "1": 2,
             "0": 3}  # fmt: skip
    by_premise: dict[str, list[dict[str, Any]]] = {}
    for row in read_rows(files[0]):
        values = row.values
        label = values.get("gold_label", values.get("label"))
        if label in words and values.get("premise") and values.get("hypothesis"):
            by_premise.setdefault(str(values["premise"]), []).append({**values, "label": label})
    several = [group for group in by_premise.values() if len(group) > 1] or list(
        by_premise.values()
    )
    Random(0).shuffle(several)
    found = []
    for number, group in enumerate(several):
        found += [
            {"id": f"{number}-{i}", "document": f"d{number}", "premise": r["premise"],
             "hypothesis": r["hypothesis"], "entailment": words[r["label"]]}
            for i, r in enumerate(group)
        ]  # fmt: skip
        if len(found) >= 200:
            break
    return found[:200]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", help="known, null, kill; default: all three")
    parser.add_argument("--real", action="store_true", help="the local model on real labels")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--null-seeds", type=int, default=200)
    parser.add_argument("--budget", type=int, default=1_500)
    parser.add_argument("--out", type=Path, default=Path("tuned-benchmark"))
    given = parser.parse_args()
    if given.real:
        real(Path(os.environ["GEVAL_BENCH_DATA"]), given.out, given.budget)
        return
    wanted = given.what or ["known", "null", "kill"]
    begun = time.monotonic()
    with ProcessPoolExecutor(max_workers=2) as pool:
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "known": lambda: known(pool, given.seeds),
            "null": lambda: null(pool, given.null_seeds),
            "kill": kill,
        }
        for name in wanted:
            parts[name]()
            print(f"  {time.monotonic() - begun:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
