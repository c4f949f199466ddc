"""`geval agree` from a run folder made with recorded replies, in English and Korean."""

from __future__ import annotations

import asyncio
import csv
import json
from pathlib import Path
from typing import Any

import pytest
from helpers import TEMPLATE, write_lines, write_template
from typer.testing import CliRunner

import geval
from geval import agree
from geval.agreement.labels import Wanted, read_labels
from geval.cli import app
from geval.errors import DataError

CAP = "cap: {criterion: accuracy, below: 3, max: 2}\n"
LEVELS = 5


def probs(human: int, row: int) -> dict[str, float]:
    """A judge that leans towards the people's level, and a level off in every fifth row."""
    seen = min(LEVELS, human + 1) if row % 5 == 0 else human
    weights = [1 / (1 + 3 * abs(k - seen)) for k in range(1, LEVELS + 1)]
    return {str(k): w / sum(weights) * 0.999 for k, w in enumerate(weights, 1)}


def make_run(
    folder: Path, locale: str = "en", n: int = 40, criteria: Any = ("accuracy", "style")
) -> Path:
    text = TEMPLATE.replace(CAP, "").replace("locale: en", f"locale: {locale}")
    template = write_template(folder, text, f"fit.{locale}.jinja")
    rows = [{"id": f"행{i}", "question": "Q?", "answer": f"A{i}."} for i in range(n)]
    replies = [
        {"id": f"행{i}", "criterion": c, "alternatives": probs(1 + i * 7 % 5, i)}
        for i in range(n)
        for c in ("accuracy", "style")
    ]
    spec = f"replay:{write_lines(folder / 'rec.jsonl', replies)}"
    run = asyncio.run(
        geval.ascore(rows, template=template, judge=spec, reasons="none", out=folder / "run")
    )
    return run.folder


def labels_file(folder: Path, header: list[str], rows: list[list[Any]], **kw: Any) -> Path:
    path = folder / "labels.csv"
    with path.open("w", newline="", **({"encoding": "utf-8"} | kw)) as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path)


def human(i: int) -> int:
    return 1 + i * 7 % 5


@pytest.mark.fault("D11")
def test_join_is_told_and_ids_compare_after_nfc(run: Path, tmp_path: Path) -> None:
    nfd = "\u1112\u1162\u11bc"  # 행, decomposed
    rows = [[f"{nfd}{i}", f"d{i // 4}", human(i)] for i in range(30)] + [["other", "d", 3]]
    found = agree(run, labels_file(tmp_path, ["id", "group", "accuracy"], rows), draws=200)
    assert (found.join["data"], found.join["labels"], found.join["matched"]) == (40, 31, 30)
    assert found.join["unknown"] == ["other"]
    assert len(found.join["unlabelled"]) == 10
    one = found.criteria["accuracy"]
    assert (one.n, one.groups) == (30, 8)
    spearman = one.value("spearman")
    assert spearman is not None
    assert spearman > 0.8
    assert "style: no labels" in found.notes


def test_figures_are_those_of_the_results(run: Path, tmp_path: Path) -> None:
    from scipy import stats

    labels = labels_file(tmp_path, ["id", "accuracy"], [[f"행{i}", human(i)] for i in range(40)])
    one = agree(run, labels, draws=50).criteria["accuracy"]
    lines = [r for r in geval.Run(run).results() if r["criterion"] == "accuracy"]
    own = [human(int(r["id"][1:])) for r in lines]
    expected = stats.spearmanr([r["score"] for r in lines], own).statistic
    assert one.value("spearman") == pytest.approx(expected)
    mode = stats.spearmanr([r["mode"] for r in lines], own).statistic
    assert one.value("spearman", "mode") == pytest.approx(mode)
    bias = sum(r["score"] for r in lines) / 40 - sum(own) / 40
    assert one.value("mean_bias") == pytest.approx(bias)
    assert one.gain is not None
    assert one.gain["value"] == pytest.approx(expected - mode)


def test_spellings_are_mapped_and_told(run: Path, tmp_path: Path) -> None:
    rows = [["행0", "4점"], ["행1", "상"], ["행2", "△"], ["행3", "X"], ["행4", "보류"], ["행5", "-"],
            ["행6", ""], ["행7", "５"], ["행8", "2"]]  # fmt: skip
    labels = labels_file(tmp_path, ["번호", "accuracy"], rows, encoding="cp949")
    found = agree(run, labels, draws=0)
    told = next(n for n in found.notes if n.startswith("label map"))
    assert all(s in told for s in ("4점 = 4", "상 = 5", "△ = 3", "X = 1"))
    assert "3 blank or withheld labels are missing, not 0" in found.notes
    assert found.criteria["accuracy"].n == 6
    own = agree(run, labels, draws=0, label_map=["상=4,X="])
    assert own.criteria["accuracy"].n == 5


def test_a_korean_run_is_told_all_in_korean(tmp_path: Path) -> None:
    run = make_run(tmp_path, "ko")
    rows = [
        [f"행{i}", f"d{i // 4}", "상" if i < 8 else ["보류", f"{human(i)}점"][i % 2], 30 * human(i)]
        for i in range(40)
    ]
    labels = labels_file(tmp_path, ["번호", "문서번호", "accuracy", "style"], rows)
    args = ["agree", str(run), "--labels", str(labels), "--draws", "20"]
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 0, done.output
    for words in ("표기 해석: 상 = 5", "결측이다", "순위만 비교한다", "제외: 기댓값 "):
        assert words in done.output
    assert "label" not in done.output.replace("--label", "")
    assert "missing" not in done.output


def test_a_cell_that_is_no_label_is_named_with_its_row(run: Path, tmp_path: Path) -> None:
    labels = labels_file(tmp_path, ["id", "accuracy"], [["행0", "4"], ["행1", "좋은편"]])
    with pytest.raises(DataError) as caught:
        agree(run, labels)
    assert "row 3, column accuracy" in str(caught.value)
    assert "좋은편" in str(caught.value)


def test_unknown_column_names_the_nearest(run: Path, tmp_path: Path) -> None:
    labels = labels_file(tmp_path, ["id", "acuracy"], [["행0", "4"]])
    with pytest.raises(DataError, match="Did you mean 'acuracy'"):
        agree(run, labels)
    with pytest.raises(DataError, match="Did you mean 'accuracy'"):
        agree(run, labels, columns=["acuracy=acuracy"])
    assert agree(run, labels, columns=["accuracy=acuracy"], draws=0).criteria["accuracy"].n == 1


@pytest.mark.parametrize("shape", ["columns", "named", "rows", "objects"])
def test_annotators_in_columns_and_rows(run: Path, tmp_path: Path, shape: str) -> None:
    said = {i: (human(i), max(1, human(i) - i % 2)) for i in range(30)}
    labels: Any
    columns: Any = ()
    if shape == "columns":
        labels = labels_file(tmp_path, ["id", "A", "B"], [[f"행{i}", *v] for i, v in said.items()])
        columns = ["accuracy=A", "accuracy=B"]
    elif shape == "named":
        header = ["id", "accuracy/김", "accuracy/이"]
        labels = labels_file(tmp_path, header, [[f"행{i}", *v] for i, v in said.items()])
    elif shape == "rows":
        rows = [[f"행{i}", who, v[k]] for i, v in said.items() for k, who in enumerate("김이")]
        labels = labels_file(tmp_path, ["id", "평가자", "accuracy"], rows)
    else:
        labels = [{"id": f"행{i}", "labels": {"accuracy": v[0]}, "annotators": {"accuracy": list(v)}}
                  for i, v in said.items()]  # fmt: skip
    one = agree(run, labels, columns=columns, draws=0).criteria["accuracy"]
    assert one.n == 30
    assert one.ceiling is not None
    assert one.ceiling["annotators"] == 2
    assert 0 < float(one.ceiling["alpha_interval"] or 0) < 1
    assert one.points[0][0] == pytest.approx(sum(said[int("0")]) / 2)


@pytest.mark.parametrize("locale", ["en", "ko"])
def test_a_reference_that_its_documents_contradict_is_flagged(tmp_path: Path, locale: str) -> None:
    run = make_run(tmp_path, locale)
    data = [
        {
            "id": f"행{i}", "문서번호": f"d{i // 4}", "system": "ab"[i % 2],
            "질문": "2024년 매출은?", "contexts": ["매출은 1,234억원이고 비용은 1,000억원이다."],
            # right, derived (234), from the question (2024), and wrong in two rows
            "정답": ["1,234억원", "이익은 234억원", "2024년 1234억원", "매출 1,243억원"][
                3 if i in (3, 7) else i % 3
            ],
        }
        for i in range(40)
    ]  # fmt: skip
    labels = [{"id": f"행{i}", "accuracy": human(i)} for i in range(30)]
    found = agree(run, labels, data=data, draws=0)
    one = found.criteria["accuracy"]
    assert one.contradicted is not None
    assert one.contradicted["rows"] == ["행3", "행7"]
    assert one.contradicted["without"] != one.contradicted["value"]
    note = next(n for n in found.notes if n.startswith("reference_contradicts"))
    assert "행3 (1,243억원), 행7 (1,243억원)" in note
    assert ("믿을 수 없다" in note) == (locale == "ko")
    kept = [row for row in labels if row["id"] not in ("행3", "행7")]
    less = agree(run, kept, data=data, draws=0).criteria["accuracy"]
    assert less.contradicted is None
    assert less.value("spearman", "score", "per_group") == pytest.approx(
        one.contradicted["without"]
    )
    # the group and the system of rows without a label come from the data too
    assert one.groups == 8
    assert one.by_system["a"]["n_rest"] == 5
    assert one.differences[0]["groups"] == 10
    path = write_lines(tmp_path / "rows.jsonl", data)
    file = labels_file(tmp_path, ["id", "accuracy"], [list(row.values()) for row in labels])
    args = ["agree", str(run), "--labels", str(file), "--data", str(path), "--draws", "20"]
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 0, done.output
    assert ("2행을 뺀 값" if locale == "ko" else "without the 2 rows") in done.output


def test_two_labels_of_one_annotator_for_one_row(run: Path, tmp_path: Path) -> None:
    labels = labels_file(tmp_path, ["id", "accuracy"], [["행0", "4"], ["행0", "2"]])
    with pytest.raises(DataError, match="a second label"):
        agree(run, labels)


@pytest.mark.fault("A7")
def test_another_scale_compares_ranks_only_unless_told(run: Path, tmp_path: Path) -> None:
    rows = [[f"행{i}", 25 * (human(i) - 1)] for i in range(40)]
    labels = labels_file(tmp_path, ["id", "accuracy"], rows)
    one = agree(run, labels, draws=0).criteria["accuracy"]
    assert "label-scale" in " ".join(one.notes)
    with pytest.raises(KeyError):
        one.value("mae")
    assert one.people is None
    mapped = agree(run, labels, draws=0, label_scale=(0, 100)).criteria["accuracy"]
    straight = [[f"행{i}", human(i)] for i in range(40)]
    direct = agree(run, labels_file(tmp_path, ["id", "accuracy"], straight), draws=0)
    assert mapped.value("mae") == pytest.approx(direct.criteria["accuracy"].value("mae"))


def test_no_p_value_under_ten_rows(run: Path, tmp_path: Path) -> None:
    for n in (9, 10):
        rows = [[f"행{i}", human(i)] for i in range(n)]
        found = agree(run, labels_file(tmp_path, ["id", "accuracy"], rows), draws=200)
        figure = found.criteria["accuracy"].figures[0]
        assert (figure.p is None) == (n < 10)


def test_nothing_matches(run: Path, tmp_path: Path) -> None:
    labels = labels_file(tmp_path, ["id", "accuracy"], [["x", "4"]])
    with pytest.raises(DataError, match="no scored row has a label"):
        agree(run, labels)


@pytest.mark.fault("A13")
def test_judge_in_the_headline_and_its_family_warned_of(run: Path, tmp_path: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    manifest["judges"][0]["spec"] = "openai:gpt-6-luna"
    (run / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    rows = [[f"행{i}", "gpt-4o" if i % 2 else "T5", human(i)] for i in range(20)]
    found = agree(run, labels_file(tmp_path, ["id", "system", "accuracy"], rows), draws=0)
    assert found.judge == "openai:gpt-6-luna"
    assert any("one family: gpt" in n for n in found.notes)


@pytest.mark.parametrize(
    ("locale", "words"),
    [("en", ["joined: data 40", "expected value"]), ("ko", ["대조: 자료 40", "기댓값"])],
)
def test_command_line_speaks_the_template_s_language(
    tmp_path: Path, locale: str, words: list[str]
) -> None:
    run = make_run(tmp_path, locale)
    rows = [[f"행{i}", f"d{i // 4}", human(i) if i < 30 else "", human(i)] for i in range(40)]
    labels = labels_file(tmp_path, ["id", "group", "accuracy", "style"], rows)
    done = CliRunner().invoke(app, ["agree", str(run), "--labels", str(labels), "--draws", "100"])
    assert done.exit_code == 0, done.output
    for word in words:
        assert word in done.output
    done = CliRunner().invoke(
        app, ["agree", str(run), "--labels", str(labels), "--draws", "100", "--json"]
    )
    told = json.loads(done.stdout)
    assert told["criteria"]["accuracy"]["n"] == 30
    assert told["criteria"]["accuracy"]["people"]["n_rest"] == 10
    assert "NaN" not in done.stdout


@pytest.mark.parametrize("locale", ["en", "ko"])
def test_plan(tmp_path: Path, locale: str) -> None:
    run = make_run(tmp_path, locale)
    rows = [[f"행{i}", f"d{i // 4}", human(i) if i < 20 else ""] for i in range(40)]
    labels = labels_file(tmp_path, ["id", "group", "accuracy"], rows)
    args = ["agree", str(run), "--labels", str(labels), "--plan", "--width", "1.5"]
    done = CliRunner().invoke(app, [*args, "--json"])
    assert done.exit_code == 0, done.output
    line = json.loads(done.stdout)
    assert (line["have_rows"], line["have_groups"]) == (40, 10)
    assert line["rows"] is None or line["groups"] == min(10, line["rows"])
    done = CliRunner().invoke(app, args)
    assert ("구간 폭 1.5" if locale == "ko" else "interval 1.5 wide") in done.output


def test_report_is_one_file_that_runs_nothing(tmp_path: Path) -> None:
    run = make_run(tmp_path, "ko")
    rows = [[f"행{i}", "<script>alert(1)</script>", human(i)] for i in range(40)]
    labels = labels_file(tmp_path, ["id", "group", "accuracy"], rows)
    page = tmp_path / "report.html"
    args = ["agree", str(run), "--labels", str(labels), "--draws", "50", "--html", str(page)]
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 0, done.output
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") == 3
    assert "사람" in text
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "<img" not in text
    assert "<image" not in text  # the page's policy would not show it
    assert 'src="http' not in text
    assert 'url("http' not in text


def test_a_sheet_for_each_annotator(run: Path, tmp_path: Path) -> None:
    from openpyxl import Workbook

    book = Workbook()
    for number, who in enumerate(("김", "이")):
        sheet = book.active if number == 0 else book.create_sheet()
        assert sheet is not None
        sheet.title = who
        sheet.append(["수동 평가 결과"])
        sheet.append(["번호", "accuracy"])
        for i in range(20):
            sheet.append([f"행{i}", f"{max(1, human(i) - number)}점"])
    path = tmp_path / "labels.xlsx"
    book.save(path)
    one = agree(run, path, draws=0).criteria["accuracy"]
    assert one.n == 20
    assert one.ceiling is not None
    assert one.ceiling["annotators"] == 2


def test_a_missing_extra_is_one_line_with_the_install_command(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(geval.ConfigError, match=r'pip install "geval\[stats\]"'):
        agree(run, [{"id": "행0", "accuracy": 4}])


def test_misses_zero_reads_the_first_digit_of_every_sample(tmp_path: Path) -> None:
    text = TEMPLATE.replace(CAP, "").replace(
        "score_first, reason: true", "score_only, reason: false"
    )
    template = write_template(tmp_path, text)
    said = {"a": ["4", "5", "I pass", "4"], "b": ["2", "2", "2", "Score: 3"], "c": ["1"] * 4}
    replies = [
        {"id": i, "criterion": c, "responses": r}
        for i, r in said.items()
        for c in ("accuracy", "style")
    ]
    spec = f"replay:{write_lines(tmp_path / 'rec.jsonl', replies)}"
    rows = [{"id": i, "question": "Q?", "answer": f"A {i}."} for i in said]
    options = geval.Settings(samples_min=4, samples_max=4, max_failed_samples=0.9, reasons="none")
    run = asyncio.run(
        geval.ascore(
            rows,
            template=template,
            judge=spec,
            method="samples",
            settings=options,
            out=tmp_path / "run",
        )
    )
    labels = [{"id": i, "accuracy": v} for i, v in zip("abc", (4, 2, 1), strict=True)]
    ours = agree(run, labels, draws=0).criteria["accuracy"]
    assert ours.value("mean_bias") == pytest.approx((13 / 3 + 9 / 4 + 1 - 7) / 3)
    zero = agree(run, labels, draws=0, misses="zero").criteria["accuracy"]
    assert zero.value("mean_bias") == pytest.approx((13 / 4 + 9 / 4 + 1 - 7) / 3)


def test_columns_given_to_a_criterion_are_not_the_overall_score_too() -> None:
    scales = {"accuracy": (1, 5), "style": (1, 5), "overall": (0, 1)}
    rows = [{"id": "1", "평가자1": 4, "평가자2": 2}]
    free = read_labels(rows, Wanted(scales))
    assert free.columns == {"overall": ("평가자1", "평가자2")}
    given = read_labels(rows, Wanted(scales, columns={"style": ["평가자1", "평가자2"]}))
    assert given.columns == {"style": ("평가자1", "평가자2")}
