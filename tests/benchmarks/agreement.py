"""Agreement: time of the bootstrap, and known values from stored replies of published studies.

    python tests/benchmarks/agreement.py
    GEVAL_BENCH_DATA=FOLDER python tests/benchmarks/agreement.py    # the stored replies too

The replies may not be redistributed, so the folder is named and never part of the project.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import geval
from geval.agreement.measure import Agreement, agree
from geval.agreement.metrics import METRICS
from geval.agreement.pairs import Pairs
from geval.agreement.resample import draw_weights
from geval.settings import Settings

TEMPLATE = """---
name: stored
locale: en
inputs: {{text: {{type: text}}}}
judged: text
scale: {{levels: {{{levels}}}}}
criteria: {{{criteria}}}
output: {{order: {order}, reason: {reason}}}
---
{{% extends "_geval.jinja" %}}
{{% block sample %}}
{{{{ text }}}}
{{% endblock %}}
"""


def timed(rows: int = 10_000, groups: int = 500, draws: int = 2_000) -> None:
    """Every statistic of the expected value, of the likeliest level, and of two-level labels.

    Processor time stands beside the clock: other work on the machine is not in it.
    """
    rng = np.random.default_rng(0)
    human = rng.integers(1, 6, rows).astype(float)
    probs = rng.dirichlet(np.ones(5), rows)
    group, system = rng.integers(0, groups, rows), rng.integers(0, 8, rows)
    score = np.clip(probs @ np.arange(1, 6) + 0.3 * human, 1, 5)
    weights = draw_weights(groups, draws, 0)
    print(f"{draws} draws over {rows} rows, {groups} groups (clock, processor)")
    for title, judge, people in (
        ("expected value", score, human),
        ("likeliest level", np.round(score), human),
        ("two labels", score, np.where(human > 3, 5.0, 1.0)),
    ):
        p = Pairs(judge, people, group, levels=[1, 2, 3, 4, 5], probs=probs, system=system)
        start, work = time.perf_counter(), time.process_time()
        for name, metric in METRICS.items():
            if "two_levels" in metric.needs and title != "two labels":
                continue
            begun, worked = time.perf_counter(), time.process_time()
            metric.fn(p, weights)
            spent = time.process_time() - worked
            if spent > 0.05:
                print(f"  {name:22}{time.perf_counter() - begun:6.2f} {spent:6.2f} s")
        print(f"{title:24}{time.perf_counter() - start:6.2f} {time.process_time() - work:6.2f} s")


def lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def run_of(
    folder: Path,
    name: str,
    records: list[dict[str, Any]],
    aspects: dict[str, list[int]],
    order: str,
) -> geval.Run:
    """A run over stored replies, by the replay judge and the method of the template's order."""
    replies = folder / f"{name}.jsonl"
    replies.write_text(
        "".join(
            json.dumps({"id": r["item"], "criterion": r["aspect"], "responses": r["responses"]})
            + "\n"
            for r in records
        )
    )
    first = next(iter(aspects.values()))
    template = folder / f"stored_{name}.en.jinja"
    template.write_text(
        TEMPLATE.format(
            levels=", ".join(f"{v:g}: a" for v in first),
            criteria=", ".join(f"{a}: {{text: Is it so?}}" for a in aspects),
            order=order,
            reason="true" if order == "reason_first" else "false",
        ).replace("name: stored", f"name: stored_{name}")
    )
    ids = list(dict.fromkeys(r["item"] for r in records))
    several = order == "score_only"
    return asyncio.run(
        geval.ascore(
            [{"id": i, "text": i} for i in ids],
            template=template,
            judge=f"replay:{replies}",
            method="samples" if several else "single",
            out=folder / name,
            cache=False,
            settings=Settings(
                samples_min=20, samples_max=20, max_failed_samples=0.95, reasons="none"
            ),
        )
    )


def shown(found: Agreement, aspect: str, expected: dict[str, Any], title: str) -> None:
    one = found.criteria[aspect]
    print(f"{title}: n {one.n}")
    for level in ("pooled", "per_group"):
        for metric in ("pearson", "spearman", "kendall_b"):
            value, wanted = one.value(metric, "score", level), expected[level][metric]
            assert value is not None
            print(
                f"  {level:10}{metric:10}{value:9.6f}  expected {wanted:9.6f}  {value - wanted:+.6f}"
            )


def topical(data: Path, folder: Path, expected: dict[str, Any]) -> None:
    stored = [
        r for r in lines(data / "replay_topical_chat_gpt35_NOCOMMIT.jsonl.gz")
        if r["prompt"] == "geval"
    ]  # fmt: skip
    for aspect, levels in (("naturalness", [1.0, 2.0, 3.0]), ("groundedness", [0.0, 1.0])):
        mine = [r for r in stored if r["aspect"] == aspect]
        run = run_of(folder, aspect, mine, {aspect: levels}, "score_only")
        labels = [
            {"id": r["item"], "group": r["item"].split("/")[1], aspect: r["human"]} for r in mine
        ]
        key = f"replay_topical_chat_gpt35/geval/{aspect}/authors_rule_missing0_mean20"
        for misses in ("zero", "missing"):
            found = agree(run, labels, misses=misses, draws=0)  # type: ignore[arg-type]
            shown(found, aspect, expected[key], f"{aspect}, misses {misses}")


# Replies that the published figures read otherwise: (aspect, item) -> the value they rest on.
READ_OTHERWISE = {
    ("coherence", "dm-test-dea0ed2e/M15"): 4.0,  # "... I give it a 4.": no verdict is marked here
    ("coherence", "dm-test-9afda3cd/M20"): 4.0,  # "... so it gets a 4."
    ("relevance", "dm-test-dea0ed2e/M20"): 3.0,  # "... so I would give it a 3."
    ("consistency", "dm-test-6c1341be/M17"): 5.0,  # "... 4.5/5": the scale's end was read
    ("consistency", "dm-test-c6667409/M11"): 1.0,  # "... 2.": misread
    ("fluency", "dm-test-c6667409/M9"): 5.0,  # "... 4.5": misread
}


def read_their_way(run: geval.Run, labels: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    """With exactly these replies read as published, the published figures come out."""
    people = {r["id"]: r for r in labels}
    scores: dict[str, dict[str, float]] = {}
    for r in run.results():
        item = re.sub(r"^summeval/(dm-test-\w{8})\w*/", r"\1/", r["id"])
        value = READ_OTHERWISE.get((r["criterion"], item), r["score"])
        if value is not None:
            scores.setdefault(r["criterion"], {})[r["id"]] = value
    for aspect, by_id in scores.items():
        if aspect == "overall":
            continue
        p = Pairs(
            list(by_id.values()),
            [people[i]["labels"][aspect] for i in by_id],
            [people[i]["group"] for i in by_id],
        )
        wanted = expected[f"replay_summeval_gpt4_rts/{aspect}"]
        apart = max(
            abs(float(METRICS[metric + at].fn(p, p.ones)[0]) - wanted[level][metric])
            for level, at in (("pooled", ""), ("per_group", "@per_group"))
            for metric in ("pearson", "spearman", "kendall_b")
        )
        print(f"summeval {aspect}, read their way: n {p.n}, at most {apart:.1e} apart")


def summeval(data: Path, folder: Path, expected: dict[str, Any]) -> None:
    stored = lines(data / "replay_summeval_gpt4_rts_NOCOMMIT.jsonl.gz")
    halves = [n / 2 for n in range(2, 11)]  # some replies say 4.5
    aspects = dict.fromkeys(dict.fromkeys(r["aspect"] for r in stored), halves)
    run = run_of(folder, "summeval", stored, aspects, "reason_first")
    labels = lines(data / "summeval_dev.jsonl.gz")
    labels = [{k: r[k] for k in ("id", "group", "labels")} for r in labels]
    found = agree(run, labels, draws=0)
    read_their_way(run, labels, expected)
    for aspect in aspects:
        shown(found, aspect, expected[f"replay_summeval_gpt4_rts/{aspect}"], f"summeval {aspect}")
    replies = {(r["item"], r["aspect"]): r["responses"][0] for r in stored}
    for r in run.results():
        if r["status"] != "scored" and r["criterion"] != "overall":
            print("not read:", r["id"], r["criterion"], r["error"]["kind"], r["error"]["message"])
        elif r["criterion"] != "overall":
            text = replies[r["id"], r["criterion"]]
            last = float(re.findall(r"\d+(?:\.\d+)?", text)[-1])
            if last != r["score"]:
                print(
                    "last digit is another:", r["id"], r["criterion"], r["score"], repr(text[-90:])
                )


def main() -> None:
    if not os.environ.get("GEVAL_BENCH_NO_TIME"):
        timed()
    where = os.environ.get("GEVAL_BENCH_DATA")
    if not where:
        print("GEVAL_BENCH_DATA names no folder: stored replies are left out")
        return
    data = Path(where)
    expected = json.loads((data / "expected_correlations.json").read_text())
    with tempfile.TemporaryDirectory() as name:
        topical(data, Path(name), expected)
        summeval(data, Path(name), expected)


if __name__ == "__main__":
    main()
