"""How far the shipped templates agree with people, on public human-labelled sets.

    GEVAL_BENCH_DATA=FOLDER python tests/benchmarks/template_quality.py [TASK ...] [--judge local]
        [--full] [--part tune|report|both] [--out FOLDER]

FOLDER holds the sets as .jsonl.gz (fields: id, group, system, inputs, labels; see `TASKS` for their
names). Without `--full` a seeded subset is judged that takes about an hour with the local judge.
The groups of a subset go to two halves in turn: templates may be tuned on `tune`; the figures of
docs/templates.md are those of `report`. A killed run continues. Prints a line per task and
criterion: rows, the weighted score and the mode beside it, coverage, tokens a row.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import geval
from geval.template import Template

SEED = 20261130
Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A template on a set: how rows are made, and the label and the statistic of each criterion.

    `labels`: criterion -> label (a minus in front turns a penalty round). `metric`: `auc`,
    `spearman`, `group_spearman` (within each group, then averaged) or `pairs` (the share of pairs
    whose better side scores higher). `source` is the text of
    a template that is not shipped.
    """

    template: str
    locale: str
    files: tuple[str, ...]
    fields: Callable[[Row], Row]
    labels: dict[str, str]
    metric: str
    groups: int | None = None
    rows: int | None = None
    keep: Callable[[Row], bool] = lambda row: True
    changes: dict[str, Any] = field(default_factory=dict)
    source: str = ""


def _renamed(**names: str) -> Callable[[Row], Row]:
    return lambda row: {ours: row["inputs"][theirs] for ours, theirs in names.items()}


_PLAIN = """---
name: plain
locale: {locale}
inputs:
  contexts: {{type: texts}}
  answer: {{type: text}}
criteria:
  faithfulness:
    text: {text}
    scale: {{labels: {labels}}}
output: {{order: score_only, reason: false}}
---
{text_name}: {{% for c in contexts %}}{{{{ c }}}}{{% endfor %}}

{claim_name}: {{{{ answer }}}}
{{{{ criterion.text }}}} {form}
"""
PLAIN = {
    "ko": _PLAIN.format(
        locale="ko", text="위 글만 보고 판단할 때 위 문장은 맞는가?", labels="{예: 1, 아니요: 0}",
        text_name="글", claim_name="문장", form="예 또는 아니요로만 답하시오.",
    ),
    "en": _PLAIN.format(
        locale="en", text="Is the claim supported by the text alone?", labels="{yes: 1, no: 0}",
        text_name="Text", claim_name="Claim", form="Answer yes or no.",
    ),
}  # fmt: skip
"""A question without a frame: what a rubric template has to be worth more than."""

ASPECTS = ("coherence", "consistency", "fluency", "relevance")

TASKS: dict[str, Task] = {
    "faithfulness": Task(
        "faithfulness", "ko", ("ko_klue_nli_dev",),
        lambda row: {"contexts": [row["inputs"]["source"]], "answer": row["inputs"]["claim"]},
        {"faithfulness": "supported"}, "auc", rows=150,
        # The answer is one claim already: no call splits it.
        changes={"units": [{"of": "answer", "by": "item", "against": "contexts"}]},
    ),
    "faithfulness_en": Task(
        "faithfulness", "en", ("ko_klue_nli_dev",),
        lambda row: {"contexts": [row["inputs"]["source"]], "answer": row["inputs"]["claim"]},
        {"faithfulness": "supported"}, "auc", rows=150,
        changes={"units": [{"of": "answer", "by": "item", "against": "contexts"}]},
    ),
    **{
        f"plain_{locale}": Task(
            "plain", locale, ("ko_klue_nli_dev",),
            lambda row: {"contexts": [row["inputs"]["source"]], "answer": row["inputs"]["claim"]},
            {"faithfulness": "supported"}, "auc", rows=150, source=source,
        )
        for locale, source in PLAIN.items()
    },
    "summarization": Task(
        "summarization", "en", ("summeval_dev",), _renamed(source="source", summary="summary"),
        {name: name for name in ASPECTS}, "group_spearman", groups=5,
    ),
    "dialogue": Task(
        "dialogue", "en", ("topical_chat",),
        _renamed(history="history", fact="fact", response="response"),
        {n: n for n in ("naturalness", "coherence", "engagingness", "groundedness")},
        "spearman", groups=15,
    ),
    "translation_mqm": Task(
        "translation", "ko", ("ko_mqm_dev_NOCOMMIT",),
        _renamed(source="source", reference="reference", translation="translation"),
        {"accuracy": "-accuracy_penalty", "fluency": "-fluency_penalty", "style": "-style_penalty"},
        "spearman", rows=60,
    ),
    "translation_da": Task(
        "translation", "ko", ("ko_mt_da_doc1",),
        _renamed(source="source", reference="reference", translation="translation"),
        {"accuracy": "adequacy", "fluency": "fluency"}, "spearman",
    ),
    "safety": Task(
        "safety", "ko", ("ko_square_responses_dev",),
        _renamed(question="question", answer="response"), {"overall": "acceptable"}, "auc",
        rows=100, keep=lambda row: row["labels"]["acceptable_share"] in (0, 1),
    ),
    "answer_quality": Task(
        "answer_relevancy", "en", ("llmbar_natural",), lambda row: row["fields"],
        {"overall": "preferred"}, "pairs", groups=50,
    ),
}  # fmt: skip


def load(task: Task, folder: Path, full: bool) -> list[Row]:
    """The rows of a task, in a fixed order; a seeded subset of groups or rows unless `full`."""
    rows: list[Row] = []
    for name in task.files:
        with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
            rows += [row for row in map(json.loads, file) if task.keep(row)]
    if task.metric == "pairs":
        rows = [side for row in rows for side in _sides(row)]
    groups = list(dict.fromkeys(str(row["group"]) for row in rows))
    random.Random(SEED).shuffle(groups)
    wanted = set(groups if full or task.groups is None else groups[: task.groups])
    rows = sorted(
        (r for r in rows if str(r["group"]) in wanted), key=lambda r: groups.index(str(r["group"]))
    )
    return rows if full or task.rows is None else rows[: task.rows]


def _sides(row: Row) -> Iterator[Row]:
    """Both answers of a pair, each a row of its own."""
    for side in (1, 2):
        yield {
            "id": f"{row['id']}/{side}",
            "group": row["group"],
            "fields": {
                "question": row["inputs"]["instruction"],
                "answer": row["inputs"][f"output_{side}"],
            },
            "labels": {"preferred": int(row["labels"]["preferred"] == side)},
        }


def part(rows: Sequence[Row], wanted: str) -> list[Row]:
    """The rows of one half: groups go to `report` and `tune` in turn, in their seeded order."""
    groups = list(dict.fromkeys(str(row["group"]) for row in rows))
    half = {g: ("report", "tune")[number % 2] for number, g in enumerate(groups)}
    return [row for row in rows if wanted in ("both", half[str(row["group"])])]


def auc(scores: Sequence[float], labels: Sequence[float]) -> float:
    """Chance that a positive row scores above a negative one; ties count half."""
    good = [s for s, y in zip(scores, labels, strict=True) if y]
    bad = [s for s, y in zip(scores, labels, strict=True) if not y]
    return sum((a > b) + 0.5 * (a == b) for a in good for b in bad) / (len(good) * len(bad))


def spearman(scores: Sequence[float], labels: Sequence[float]) -> float | None:
    """Rank correlation; None where one side is constant."""
    from scipy.stats import spearmanr

    if len(set(scores)) < 2 or len(set(labels)) < 2:
        return None
    return float(spearmanr(scores, labels).statistic)


def statistic(metric: str, rows: Sequence[tuple[str, float, float]]) -> float | None:
    """The figure over (group, score, label)."""
    if metric == "auc":
        return auc([s for _, s, _ in rows], [y for *_, y in rows])
    if metric == "spearman":
        return spearman([s for _, s, _ in rows], [y for *_, y in rows])
    groups = defaultdict(list)
    for group, score, label in rows:
        groups[group].append((score, label))
    if metric == "pairs":
        both = [pair for pair in groups.values() if len(pair) == 2]
        better = [(a, b) if y > z else (b, a) for (a, y), (b, z) in both]
        return sum((a > b) + 0.5 * (a == b) for a, b in better) / len(better)
    each = [spearman([s for s, _ in g], [y for _, y in g]) for g in groups.values()]
    known = [value for value in each if value is not None]
    return sum(known) / len(known) if known else None


def mode_of(record: Row, by_id: dict[str, list[Row]]) -> float | None:
    """What a judge that prints one level would have said."""
    if record["criterion"] == "overall":
        own = [r for r in by_id[record["id"]] if r["criterion"] != "overall"]
        modes = [mode_of(r, by_id) for r in own]
        known = [m for m in modes if m is not None]
        return sum(known) / len(known) if known else None
    if record.get("units"):
        probs = record["units"][0]["probs"]
        return None if probs is None else float(probs[-1] > 0.5)
    mode = record["mode"]
    return None if mode is None else float(mode)


def load_template(task: Task, folder: Path) -> Template:
    """The shipped template of a task, or the one whose text it holds."""
    if not task.source:
        return Template.load(task.template, task.locale)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{task.template}.{task.locale}.jinja"
    path.write_text(task.source, encoding="utf-8")
    return Template.load(path)


def judge(name: str, task: Task, args: argparse.Namespace) -> None:
    """Score the rows of a task and print its lines."""
    rows = part(load(task, args.data, args.full), args.part)
    template = load_template(task, args.out)
    if task.changes:
        front = template.front.model_dump(exclude_unset=True) | task.changes
        template = replace(template, front=type(template.front).model_validate(front))
    run = geval.score(
        [{"id": row["id"], **task.fields(row)} for row in rows],
        template=template,
        judge=args.judge,
        reasons="none",
        out=args.out / f"{name}-{args.part}",
        note=lambda text: None,
        force_new=args.force_new,
    )
    by_id = defaultdict(list)
    for record in run.results():
        by_id[record["id"]].append(record)
    usage = run.summary["usage"]
    read = usage.get("prompt_tokens", 0)
    for criterion, label in task.labels.items():
        weighted, mode, coverage = [], [], []
        for row in rows:
            (record,) = (r for r in by_id[row["id"]] if r["criterion"] == criterion)
            if record["score"] is None:
                continue
            value = -row["labels"][label[1:]] if label[0] == "-" else row["labels"][label]
            group = str(row["group"])
            weighted.append((group, record["score"], value))
            mode.append((group, mode_of(record, by_id) or 0.0, value))
            coverage.append(record["coverage"] or 0.0)
        print(
            f"{name:16} {args.part:6} {criterion:14} {task.metric:14} "
            f"rows {len(weighted)}/{len(rows)}  weighted {_shown(statistic(task.metric, weighted))}"
            f"  mode {_shown(statistic(task.metric, mode))}"
            f"  coverage {sum(coverage) / max(1, len(coverage)):.3f}"
            f"  tokens/row {read / len(rows):.0f} (reused {usage.get('cached_tokens', 0) / len(rows):.0f})",
            flush=True,
        )


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def main() -> None:
    """Run the named tasks, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--judge", default="local")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--part", choices=("tune", "report", "both"), default="report")
    parser.add_argument("--out", type=Path, default=Path("runs/template_quality"))
    parser.add_argument("--force-new", action="store_true")
    args = parser.parse_args()
    folder = os.environ.get("GEVAL_BENCH_DATA")
    if not folder:
        parser.error("GEVAL_BENCH_DATA names no folder")
    args.data = Path(folder)
    if unknown := [name for name in args.tasks if name not in TASKS]:
        parser.error(f"unknown task {unknown[0]!r}; known: {', '.join(TASKS)}")
    for name in args.tasks or TASKS:
        judge(name, TASKS[name], args)


if __name__ == "__main__":
    main()
