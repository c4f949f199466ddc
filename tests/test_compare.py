"""`geval compare`: two runs paired over the rows that both scored."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers import FULL, ROWS, TEMPLATE, recording, write_lines, write_template
from test_report import HOSTILE, Page
from test_runs import interrupted, make, make_korean
from typer.testing import CliRunner, Result

from geval import score
from geval.cli import app, ui
from geval.errors import RunError, UsageError
from geval.report.compare import html
from geval.runs.compare import compare, holm
from geval.runs.run import Run

OTHER = {**FULL, ("a", "accuracy"): {"5": 1.0}, ("b", "accuracy"): {"3": 0.5, "2": 0.5}}
Command = Callable[..., Result]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setattr(ui.out, "_width", 240)
    monkeypatch.setattr(ui.err, "_width", 240)
    return lambda *arguments: CliRunner().invoke(app, ["compare", *map(str, arguments)])


def second(folder: Path, known: Mapping[Any, Any] = OTHER, **more: Any) -> Run:
    return make(folder, "runs/two", **{"judge": recording(folder, known, "two.jsonl"), **more})


def many(folder: Path, name: str, values: Mapping[str, tuple[float, float]], **source: Any) -> Run:
    """A run of given normalised scores by row, on the lines of a real one."""
    run = make(folder, f"runs/{name}")
    first, style, whole = run.to_records()[:3]
    lines = []
    for key, (a, b) in values.items():
        place = {**whole["source"], **{k: f(key) for k, f in source.items()}}
        for record, value in ((first, a), (style, b), (whole, (a + b) / 2)):
            lines.append({**record, "id": key, "normalized": value, "source": place})
    write_lines(run.folder / "results.jsonl", lines)
    return Run(run.folder)


def test_rows_scored_in_both_are_paired(tmp_path: Path) -> None:
    a, b = make(tmp_path, without="c"), second(tmp_path)
    found = compare(a, b)
    assert found.counts == {
        "both": 3, "scored_both": 2, "only_a": 0, "only_b": 0,
        "unscored_a": 1, "unscored_b": 0, "unscored_both": 0, "not_applicable": 0,
    }  # fmt: skip
    old = {(r["id"], r["criterion"]): r["normalized"] for r in a.results()}
    new = {(r["id"], r["criterion"]): r["normalized"] for r in b.results()}
    for one in (*found.criteria, found.overall):
        pairs = [(old[i, one.criterion], new[i, one.criterion]) for i in "ab"]
        assert one.n == 2
        assert one.mean_a == pytest.approx(statistics.fmean(p[0] for p in pairs))
        assert one.mean_b == pytest.approx(statistics.fmean(p[1] for p in pairs))
        assert one.diff == pytest.approx(one.mean_b - one.mean_a)
    accuracy, style = found.criteria
    assert (accuracy.wins, accuracy.losses, accuracy.ties) == (2, 0, 0)
    assert (style.wins, style.losses, style.ties) == (0, 0, 2)
    assert (style.sign_p, style.wilcoxon_p, style.verdict) == (None, None, "no_evidence")
    assert [row.id for row in found.most] == ["a"]  # b stays under its cap
    assert (found.most[0].a, found.most[0].b) == (old["a", "overall"], new["a", "overall"])
    assert found.most[0].criterion == "accuracy"


def test_holm_steps_down() -> None:
    assert holm([0.01, 0.04, None, 0.03, 0.005]) == pytest.approx([0.03, 0.06, None, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_real_difference_is_found_and_chance_is_not(tmp_path: Path) -> None:
    rng = random.Random(3)
    old = {f"r{n}": (rng.uniform(0.2, 0.7), rng.uniform(0.2, 0.7)) for n in range(80)}
    new = {k: (a + 0.05 + rng.gauss(0, 0.05), b + rng.gauss(0, 0.05)) for k, (a, b) in old.items()}
    found = compare(many(tmp_path, "one", old), many(tmp_path, "two", new))
    accuracy, style = found.criteria
    assert (accuracy.verdict, style.verdict) == ("better", "no_evidence")
    assert accuracy.low is not None and accuracy.high is not None  # noqa: PT018
    assert 0 < accuracy.low < 0.05 < accuracy.high < 0.1
    assert style.low is not None and style.high is not None  # noqa: PT018
    assert style.low < 0 < style.high
    for one in found.criteria:
        assert one.wilcoxon_holm is not None and one.wilcoxon_p is not None  # noqa: PT018
        assert one.wilcoxon_p <= one.wilcoxon_holm <= min(1, 2 * one.wilcoxon_p) + 1e-12
    back = compare(found.b, found.a)
    assert back.criteria[0].verdict == "worse"
    assert back.criteria[0].wins == accuracy.losses


def test_rows_of_one_document_are_not_independent(tmp_path: Path) -> None:
    rng = random.Random(5)
    documents = {n: rng.gauss(0.01, 0.1) for n in range(12)}
    old = {f"r{n}": (0.5, 0.5) for n in range(240)}
    new = {f"r{n}": (0.5 + documents[n // 20] + rng.gauss(0, 0.01), 0.5) for n in range(240)}

    def group(key: str) -> str:
        return f"d{int(key[1:]) // 20}"

    plain = compare(many(tmp_path, "one", old), many(tmp_path, "two", new)).criteria[0]
    grouped = compare(
        many(tmp_path, "g1", old, group=group), many(tmp_path, "g2", new, group=group)
    )
    inside = grouped.criteria[0]
    assert (plain.clusters, inside.clusters, grouped.grouped) == (240, 12, True)
    assert plain.diff == pytest.approx(inside.diff)
    assert None not in (plain.high, plain.low, inside.high, inside.low)
    assert inside.high - inside.low > 2 * (plain.high - plain.low)  # type: ignore[operator]
    assert inside.wilcoxon_p > plain.wilcoxon_p  # type: ignore[operator]
    assert any(note.code == "few" for note in grouped.notes)


def test_runs_of_other_rows_are_matched_by_id_or_refused(tmp_path: Path) -> None:
    a = make(tmp_path)
    rows = [*ROWS[1:], {"id": "d", "question": "Q?", "answer": "A."}]
    answers = {**FULL, ("d", "accuracy"): {"3": 1.0}, ("d", "style"): {"3": 1.0}}
    b = score(rows, template=write_template(tmp_path), cache=False, out=tmp_path / "b",
              judge=recording(tmp_path, answers, "b.jsonl"))  # fmt: skip
    found = compare(a, b)
    assert (found.counts["both"], found.counts["only_a"], found.counts["only_b"]) == (2, 1, 1)
    assert "data" in {note.code for note in found.notes}
    strangers = [{**row, "id": f"x{row['id']}"} for row in ROWS]
    other = {(f"x{i}", c): p for (i, c), p in FULL.items()}
    c = score(strangers, template=write_template(tmp_path), cache=False, out=tmp_path / "c",
              judge=recording(tmp_path, other, "c.jsonl"))  # fmt: skip
    with pytest.raises(RunError, match=r"no row is scored in both(.|\n)*'a'(.|\n)*'xa'"):
        compare(a, c)
    with pytest.raises(UsageError, match="with itself"):
        compare(a, Run(a.folder))
    (c.folder / "results.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(RunError, match="no row is scored in both"):
        compare(a, c)


@pytest.mark.fault("S24")
@pytest.mark.fault("A13")
def test_what_differs_besides_the_scores_is_told(tmp_path: Path) -> None:
    a = make(tmp_path)
    codes = {note.code for note in compare(a, second(tmp_path)).notes}
    assert codes == {"judges", "few"}
    folder = tmp_path / "other"
    folder.mkdir()
    text = TEMPLATE.replace("weight: 2", "weight: 3").replace("Is the answer right?", "Right?")
    b = interrupted(
        make(folder, template=write_template(folder, text), repeat=2, reasons="none"), 7
    )
    codes = {note.code for note in compare(a, b).notes}
    assert codes == {"judges", "few", "template", "scoring", "settings", "incomplete"}


def test_repeats_are_averaged_before_they_are_paired(tmp_path: Path) -> None:
    a = make(tmp_path)
    b = second(tmp_path, repeat=3)
    lines = b.to_records()
    for record in lines:
        if record["id"] == "a" and record["criterion"] == "accuracy":
            value = (0.2, 0.4, 0.9)[record["repeat"]]
            record |= {"status": "scored", "normalized": value, "error": None}
    write_lines(b.folder / "results.jsonl", lines)
    found = compare(a, Run(b.folder))
    assert found.counts["both"] == 3
    assert found.criteria[0].n == 3
    others = [r["normalized"] for r in lines
              if r["criterion"] == "accuracy" and r["repeat"] == 0 and r["id"] != "a"]  # fmt: skip
    assert found.criteria[0].mean_b == pytest.approx(statistics.fmean([0.5, *others]))


def test_where_lower_is_better_a_fall_is_a_win(tmp_path: Path) -> None:
    runs = []
    for name, value in (("one", 0.8), ("two", 0.3)):
        run = many(tmp_path, name, {f"r{n}": (value, value) for n in range(30)})
        template = {**run.manifest["template"], "unit_aggregate": {"noise_sensitivity": {}}}
        told = json.dumps({**run.manifest, "template": template})
        (run.folder / "manifest.json").write_text(told, encoding="utf-8")
        runs.append(Run(run.folder))
    found = compare(*runs)
    assert found.overall.wins == 30
    assert found.overall.verdict == "better"
    assert found.overall.diff == pytest.approx(-0.5)


@pytest.mark.parametrize(
    "damage", [{"normalized": "x"}, {"status": "odd"}, {"source": 3}, {"error": "x"}]
)
def test_a_line_changed_by_hand_is_named_or_left(damage: dict[str, Any], tmp_path: Path) -> None:
    a, b = make(tmp_path), second(tmp_path)
    records = b.to_records()
    write_lines(b.folder / "results.jsonl", [{**records[0], **damage}, *records[1:]])
    if "source" in damage:  # no group, which is nothing to compare
        assert compare(a, Run(b.folder)).counts["both"] == 3
        return
    with pytest.raises(RunError, match=r"results\.jsonl"):
        compare(a, Run(b.folder))


def test_the_command_prints_both_and_writes_a_page(tmp_path: Path, command: Command) -> None:
    a, b = make(tmp_path, reasons="all"), second(tmp_path, reasons="all")
    done = command(a.folder, b.folder, "--html", tmp_path / "c.html")
    assert done.exit_code == 0, done.exception
    for text in ("3 scored in both", "accuracy", "style", "overall", "2/0/1", "Wilcoxon"):
        assert text in done.stdout
    assert "the judges differ" in done.stderr
    told = json.loads(command(a.folder, b.folder, "--json").stdout)
    assert told["counts"]["scored_both"] == 3
    assert [c["criterion"] for c in told["criteria"]] == ["accuracy", "style"]
    assert told["most"][0]["reason_b"] == "Because."
    page = Page((tmp_path / "c.html").read_text(encoding="utf-8"))
    shown = " ".join(page.words)
    assert "the judges differ" in shown
    assert "Because." in shown
    assert sum(tag == "svg" for tag, _ in page.elements) == 3
    wrong = command(a.folder, b.folder, "--html", tmp_path)
    assert isinstance(wrong.exception, RunError)


def test_nothing_of_the_data_becomes_markup_or_acts(tmp_path: Path, command: Command) -> None:
    a, b = make(tmp_path), second(tmp_path)
    for run in (a, b):
        records = [{**r, "id": HOSTILE + r["id"], "reason": HOSTILE} for r in run.to_records()]
        write_lines(run.folder / "results.jsonl", records)
        manifest = dict(run.manifest)
        titles = {"accuracy": f"$x^2$ {HOSTILE}", "style": HOSTILE}
        manifest["template"] = {**manifest["template"], "titles": titles, "name": HOSTILE}
        manifest["data"] = {**manifest["data"], "name": HOSTILE}
        (run.folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    page = Page(html(compare(Run(a.folder), Run(b.folder))))
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "img", "iframe", "object", "link", "base", "form", "a"}
    assert not [k for _, attrs in page.elements for k in attrs if k.startswith("on")]
    policies = [a["content"] for t, a in page.elements if a.get("http-equiv")]
    assert "script-src 'none'" in (policies[0] or "")
    assert "default-src 'none'" in (policies[0] or "")
    done = command(a.folder, b.folder)
    assert done.exit_code == 0, done.exception
    for char in "\x1b\x00\u202e":
        assert char not in done.output


def test_korean_runs_are_compared_in_korean(tmp_path: Path, command: Command) -> None:
    a = make_korean(tmp_path)
    b = make_korean(tmp_path, "runs/b", judge=recording(tmp_path, OTHER, "o.jsonl"))
    done = command(a.folder, b.folder, "--html", tmp_path / "c.html")
    assert done.exit_code == 0, done.exception
    for text in (
        "정확성",
        "종합",
        "모두 채점된 행 3",
        "차이가 있다고 볼 근거 없음",
        "B 우세/열세/동점",
    ):
        assert text in done.stdout
    assert "심사 모델이 다름" in done.stderr
    page = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert '<html lang="ko">' in page
    assert "두 실행의 비교" in page
    assert "정확성" in page[page.index("<svg") :]
