"""`geval.report`: one HTML file for people, in which nothing of the judged data can run."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from helpers import FULL, ROWS, recording, write_lines, write_template
from test_cli import geval

from geval import score
from geval.errors import RunError
from geval.report import write_report
from geval.report.collect import LOWEST, Clusters, Collector
from geval.report.interval import MOST_DRAWN, intervals
from geval.report.page import escape, json_text
from geval.runs.run import Run

HOSTILE = (
    "</script><img src=x onerror=\"document.title='run'\"><!--<script> ]]> "
    "<a href=\"javascript:document.title='run'\">go</a> \u2028\u2029 &lt; {{7*7}} 한국어 \x00\x1b\u202e"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A small run; c is not recorded for style, so it is unscored."""
    folder = tmp_path_factory.mktemp("small")
    known = {k: v for k, v in FULL.items() if k != ("c", "style")}
    return score(
        ROWS,
        template=write_template(folder),
        judge=recording(folder, known),
        out=folder / "run",
        reasons="all",
        cache=False,
    )


class Page(HTMLParser):
    """What a parser makes of a page: elements with attributes, the texts of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inner: list[tuple[str, str]] = []
        self.words: list[str] = []
        self._now = ""
        self.feed(text)
        self.text = text

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._now = tag
        if tag in ("script", "style"):
            self.inner.append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        self._now = ""

    def handle_data(self, data: str) -> None:
        if self._now in ("script", "style"):
            self.inner[-1] = (self._now, self.inner[-1][1] + data)
        else:
            self.words.append(data)

    def data(self, name: str) -> Any:
        """The JSON block `name`."""
        scripts = [a for t, a in self.elements if t == "script"]
        texts = [text for tag, text in self.inner if tag == "script"]
        (found,) = (t for a, t in zip(scripts, texts, strict=True) if a.get("id") == name)
        return json.loads(found)


def page_of(run: Run, path: Path) -> Page:
    return Page(write_report(run, path).read_text(encoding="utf-8"))


def changed(run: Run, folder: Path, records: Sequence[Mapping[str, Any]], **manifest: Any) -> Run:
    """A run of other records, as a judge or a hand may have left them."""
    folder.mkdir()
    told = {**run.manifest, **manifest}
    (folder / "manifest.json").write_text(json.dumps(told), encoding="utf-8")
    write_lines(folder / "results.jsonl", records)
    return Run(folder)


def test_the_report_tells_what_a_run_found(run: Run, tmp_path: Path) -> None:
    page = page_of(run, tmp_path / "r.html")
    shown = " ".join(page.words)
    assert "2 of 3" in shown
    assert f"{run.summary['overall']['mean']:.3f}" in shown
    assert f"{run.summary['overall']['pessimistic_mean']:.3f}" in shown
    assert "rejected 1" in shown
    assert run.manifest["data"]["sha256"] in shown
    assert run.manifest["template"]["fingerprint"] in shown
    assert "logprobs" in shown
    rows = page.data("rows")
    assert [row["id"] for row in rows] == ["a", "b", "c"]
    assert rows[0]["cells"][0]["probs"] == [0, 0, 0, 600, 400]
    assert rows[0]["cells"][0]["score"] == pytest.approx(4.4)
    assert rows[0]["cells"][0]["reason"] == "Because."
    assert rows[2]["status"] == "unscored"
    assert "score" not in rows[2]
    assert "capped_by_accuracy" in rows[1]["warnings"]
    # The worst row comes first, with the prompt that its reason answers.
    assert shown.index("Lowest rows") < shown.index("capped by accuracy", shown.index("Lowest"))
    assert "Q2?" in shown


def test_histograms_count_every_scored_row(run: Run, tmp_path: Path) -> None:
    rows = (tmp_path / "rows").open("w+b")
    found = Collector(run.manifest, rows)
    for record in run.results():
        found.add(record)
    rows.close()
    for name, figures in found.criteria.items():
        assert sum(figures.bins) == found.tally.n[name]["scored"]
    assert found.criteria["accuracy"].bins[int(0.85 * 20)] == 1  # 4.4 on 1..5


def test_nothing_of_the_data_becomes_markup(run: Run, tmp_path: Path) -> None:
    records = []
    for record in run.to_records():
        record["id"] = HOSTILE + record["id"]
        record["warnings"] = [*record["warnings"], HOSTILE]
        if record["criterion"] != "overall":
            record["reason"] = HOSTILE
            record["units"] = [{"text": HOSTILE, "of": HOSTILE, "p": 0.5, "reason": HOSTILE}]
            record["jurors"] = [{"judge": HOSTILE, "score": 3, "reason": HOSTILE, "probs": [1]}]
            record["method"] = HOSTILE
        else:
            record["numbers_unmatched"] = [HOSTILE]
        records.append(record)
    titles = {"accuracy": HOSTILE, "style": HOSTILE}
    template = {**run.manifest["template"], "titles": titles, "name": HOSTILE, "locale": 'en">'}
    judges = [{"spec": HOSTILE, HOSTILE: HOSTILE}]
    hostile = changed(run, tmp_path / "h", records, template=template, judges=judges)
    (tmp_path / "h" / "canary.json").write_text(json.dumps({"largest": HOSTILE}))
    page = page_of(hostile, tmp_path / "r.html")
    plain = page_of(run, tmp_path / "plain.html")
    allowed = {tag for tag, _ in plain.elements} | {"table", "tr", "th", "td", "details", "summary"}
    assert {tag for tag, _ in page.elements} <= allowed | {"pre"}
    for _, attributes in page.elements:
        assert not any(
            name.startswith("on") or name in ("style", "href", "src") for name in attributes
        )
    assert sum(tag == "script" for tag, _ in page.elements) == 3
    assert page.data("rows")[0]["cells"][0]["reason"] == HOSTILE
    assert "\u2028" not in "".join(text for tag, text in page.inner if tag == "script")


def test_the_policy_lets_in_the_pages_own_script_and_style_alone(run: Run, tmp_path: Path) -> None:
    page = page_of(run, tmp_path / "r.html")
    (policy,) = (
        a["content"] or ""
        for tag, a in page.elements
        if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )
    told = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert told["default-src"] == "'none'"
    for tag in ("style", "script"):
        text = [t for kind, t in page.inner if kind == tag][-1]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert told[f"{tag}-src"] == f"'sha256-{digest}'"
    assert "unsafe" not in policy
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page.text)


@pytest.mark.parametrize(
    "text", ["</script>", "<!--", "&amp;", "\u2028", "\ud800", "한국어", "\x00"]
)
def test_json_in_a_page_is_read_back_as_it_was(text: str) -> None:
    held = json_text({"t": text})
    assert json.loads(held) == {"t": text}
    assert not set("<>&\u2028\u2029") & set(held)
    held.encode("utf-8")
    escape(text).encode("utf-8")


def test_korean_runs_are_told_in_korean(run: Run, tmp_path: Path) -> None:
    template = {**run.manifest["template"], "locale": "ko"}
    korean = changed(run, tmp_path / "k", run.to_records(), template=template)
    page = page_of(korean, tmp_path / "r.html")
    assert dict(page.elements)["html"] == {"lang": "ko"}
    shown = " ".join(page.words)
    for word in ("평가 보고서", "3행 중 2행", "점수가 가장 낮은 행", "전체 행", "템플릿 지문"):
        assert word in shown
    assert "Lowest rows" not in shown
    assert page.data("meta")["word"]["page_search"] == "검색"


def test_units_jurors_noise_and_canary_are_shown(run: Run, tmp_path: Path) -> None:
    records = []
    for record in run.to_records():
        if record["criterion"] != "overall":
            unit = {"text": "Sales rose.", "of": "answer", "status": "scored", "p": 0.25}
            record["units"] = [unit] * 70
            record["jurors"] = [
                {"judge": "one", "status": "scored", "score": 4.0, "probs": [0, 0, 0, 1, 0]},
                {"judge": "two", "status": "unscored", "score": None, "error": "no answer"},
            ]
        records.append(record)
        again = {**record, "repeat": 1}
        if record["criterion"] == "overall" and record["normalized"] is not None:
            again |= {"normalized": 0.1, "score": 0.1}
        records.append(again)
    records.sort(key=lambda r: (r["id"], r["repeat"]))
    settings = {**run.manifest["settings"], "repeat": 2}
    more = changed(run, tmp_path / "m", records, settings=settings)
    canary = {"canaries": 6, "rows": 5, "largest": 0.25, "mean": 0.125}
    (more.folder / "canary.json").write_text(json.dumps(canary), encoding="utf-8")
    page = page_of(more, tmp_path / "r.html")
    shown = " ".join(page.words)
    assert "moved it by at most 0.250" in shown
    assert "over repeats of 2 rows" in shown
    assert "Judges of the panel" in shown
    row = page.data("rows")[0]
    assert row["cells"][0]["units"][0] == {"text": "Sales rose.", "of": "answer", "p": 0.25}
    assert len(row["cells"][0]["units"]) + row["cells"][0]["more_units"] == 70
    assert row["cells"][0]["jurors"][1] == {"judge": "two", "error": "no answer"}
    assert [r.get("repeat") for r in page.data("rows")[:2]] == [None, 1]


def test_an_unfinished_run_and_an_empty_one_have_a_report(run: Run, tmp_path: Path) -> None:
    lines = run.to_records()[:4]  # one row, and the first line of another
    page = page_of(changed(run, tmp_path / "u", lines, status="running"), tmp_path / "r.html")
    assert "1 of 3 rows are done" in " ".join(page.words)
    assert len(page.data("rows")) == 1
    empty = page_of(changed(run, tmp_path / "e", [], status="running"), tmp_path / "e.html")
    assert empty.data("rows") == []


@pytest.mark.parametrize(
    "change",
    [{"units": 3}, {"repeat": "x"}, {"jurors": ["x"]}, {"warnings": None}],
)
def test_a_line_changed_by_hand_is_named(run: Run, tmp_path: Path, change: dict[str, Any]) -> None:
    records = run.to_records()
    records = [{**record, **change} for record in records]
    with pytest.raises(RunError, match=r"results\.jsonl"):
        write_report(changed(run, tmp_path / "x", records), tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()
    assert not list(tmp_path.glob(".*.tmp"))


def test_intervals_draw_groups_not_rows() -> None:
    """Ten copies of a row tell no more than the row: the interval must not shrink."""
    alone, copies, rows = (Clusters(["c"]) for _ in range(3))
    for i in range(40):
        value = (i % 5) / 4
        alone.add(None, {"c": value})
        for _ in range(10):
            copies.add(f"g{i}", {"c": value})
            rows.add(None, {"c": value})
    (low, high), (low_copies, high_copies), (low_rows, high_rows) = (
        intervals(c)[0]["c"] for c in (alone, copies, rows)
    )
    assert (low_copies, high_copies) == pytest.approx((low, high))
    assert high_rows - low_rows < (high - low) / 2


def test_many_rows_have_the_same_interval_by_either_way() -> None:
    def clusters(n: int) -> Clusters:
        found = Clusters(["c"])
        for i in range(n):
            found.add(None, {"c": (i % 10) / 10})
        return found

    few, how_few = intervals(clusters(MOST_DRAWN))
    many, how_many = intervals(clusters(MOST_DRAWN + 10))
    assert (how_few, how_many) == ("bootstrap", "normal")
    assert few["c"] == pytest.approx(many["c"], abs=0.003)
    assert intervals(clusters(1))[0] == {}


def test_a_core_install_has_a_report_without_intervals(run: Run, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('numpy', 'scipy', 'matplotlib'): sys.modules[name] = None\n"
        "from geval.runs.run import Run\nfrom geval.report import write_report\n"
        "print(write_report(Run(sys.argv[1]), __import__('pathlib').Path(sys.argv[2])))"
    )
    path = tmp_path / "r.html"
    done = subprocess.run(
        [sys.executable, "-c", code, str(run.folder), str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "No intervals: they need numpy" in path.read_text(encoding="utf-8")


def test_score_writes_it_and_report_writes_it_again(tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    write_template(tmp_path / "templates")
    write_lines(tmp_path / "rows.jsonl", ROWS)
    recording(tmp_path, FULL)
    arguments = ("score", "rows.jsonl", "-t", "fit", "-j", "replay:replies.jsonl", "--out", "run")
    done = geval(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"report: run.report\.html \(\d+ kB\)", done.stderr)
    page = tmp_path / "run" / "report.html"
    first = page.read_bytes()
    page.unlink()
    again = geval("report", "run", "--open", "no", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert again.stdout.strip() == str(Path("run") / "report.html")
    assert page.read_bytes() == first
    # A run that goes on is not kept from its folder by the report.
    assert geval(*arguments, cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "nowhere"], "nowhere"),
        (["report", "run", "--open", "ye"], "Did you mean 'yes'?"),
        (["report", "run", "--out", "no/such/r.html"], "cannot be written"),
    ],
)
def test_bad_commands_are_told_once(
    run: Run, tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "run").symlink_to(run.folder)
    done = geval(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def many(run: Run, n: int) -> Iterator[dict[str, Any]]:
    records = run.to_records()[:3]
    for i in range(n):
        for record in records:
            value = (i * 37 % 1000) / 1000
            source = {**record["source"], "order": i}
            yield {**record, "id": f"{i:05}", "normalized": value, "score": value, "source": source}


def test_the_table_holds_the_worst_of_very_many_rows(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geval.report.MOST_ROWS", 100)
    page = page_of(changed(run, tmp_path / "b", list(many(run, 1000))), tmp_path / "r.html")
    kept = page.data("rows")
    assert sorted(row["score"] for row in kept) == [i / 1000 for i in range(100)]
    assert [row["id"] for row in kept] == sorted(row["id"] for row in kept)
    assert "100 worst of 1,000 rows" in " ".join(page.words)


def test_memory_hardly_grows_with_rows(run: Run, tmp_path: Path) -> None:
    def peak(n: int) -> int:
        big = changed(run, tmp_path / f"b{n}", [])
        write_lines(big.folder / "results.jsonl", many(run, n))
        tracemalloc.start()
        write_report(big)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(10)
    small, large = peak(1000), peak(6000)
    assert (large - small) / 5000 < 250  # bytes a row; a line of results has 2,000


def test_only_so_many_rows_are_shown_as_lowest(run: Run, tmp_path: Path) -> None:
    page = page_of(changed(run, tmp_path / "b", list(many(run, 500))), tmp_path / "r.html")
    assert sum(a.get("class") == "id" for _, a in page.elements) == LOWEST


# In a browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    import shutil

    own = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_api.sync_playwright() as started:
        try:
            browser = started.chromium.launch(executable_path=own, args=sandbox)
        except sync_api.Error as error:
            pytest.skip(f"no chromium to open the report in: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


class Opened:
    """A page in the browser, with all that it did beside showing itself."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.page = browser.new_page(viewport={"width": 1280, "height": 900}, **options)
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        address = path.resolve().as_uri()
        self.page.on(
            "request",
            lambda request: None if request.url == address else self.said.append(request.url),
        )
        self.page.goto(address)

    def ids(self) -> list[str]:
        """Of the rows that the table shows."""
        texts = self.page.locator("#table button.open").all_inner_texts()
        return [text.strip() for text in texts]

    def search(self, text: str, rows: int) -> list[str]:
        """The ids found, once there are as many as said."""
        self.page.fill("#search", text)
        expect = "n => document.querySelectorAll('#table button.open').length === n"
        self.page.wait_for_function(expect, arg=rows)
        return self.ids()


@pytest.mark.browser
def test_search_sort_pages_and_details_work(run: Run, tmp_path: Path, chromium: Any) -> None:
    big = changed(run, tmp_path / "b", [])
    records = list(many(run, 10_000))
    records[3 * 777] |= {"reason": "유일한 판단 이유: 매출 1,234억원"}
    write_lines(big.folder / "results.jsonl", records)
    opened = Opened(chromium, write_report(big))
    page = opened.page
    assert opened.ids() == [f"{i:05}" for i in range(50)]
    page.click("#next")
    assert opened.ids()[0] == "00050"
    page.click("thead th:nth-child(2) button")
    lowest = opened.ids()
    page.click("thead th:nth-child(2) button")
    assert lowest[:3] == ["00000", "01000", "02000"]
    assert opened.ids()[0] == "00027"  # 27 * 37 = 999
    assert opened.search("1,234억원 매출", 1) == ["00777"]
    page.click("#table button.open")
    assert "유일한 판단 이유" in page.locator("tr.detail").inner_text()
    assert page.locator("tr.detail svg.levels").count() > 0
    assert page.locator("#table button.open").get_attribute("aria-expanded") == "true"
    assert opened.search("nothing of the kind", 0) == []
    page.screenshot(path=tmp_path / "table.png")
    assert opened.said == []


@pytest.mark.browser
def test_hostile_rows_do_not_run(run: Run, tmp_path: Path, chromium: Any) -> None:
    records = run.to_records()
    for record in records:
        record["id"] += HOSTILE
        record["reason"] = HOSTILE if record["criterion"] != "overall" else None
        record["warnings"] = [HOSTILE]
        if record["criterion"] != "overall":
            record["units"] = [{"text": HOSTILE, "p": 0.5, "reason": HOSTILE}]
            record["jurors"] = [{"judge": HOSTILE, "score": 3.0, "reason": HOSTILE}]
    titles = {"accuracy": HOSTILE, "style": HOSTILE}
    template = {**run.manifest["template"], "titles": titles}
    hostile = changed(run, tmp_path / "h", records, template=template)
    opened = Opened(chromium, write_report(hostile))
    page = opened.page
    title = page.title()
    for button in page.locator("#table button.open").all():
        button.click()
    page.locator("thead button").first.click()
    opened.search("img src=x", len(ROWS))
    page.wait_for_timeout(200)
    assert page.title() == title != "run"
    assert page.locator("img, a, iframe, [onerror]").count() == 0
    assert "onerror" in page.locator("tr.detail").first.inner_text()
    # Even what a hole would let in does not run: the policy forbids it.
    page.evaluate(
        "() => { const s = document.createElement('div'); try { s.innerHTML = "
        "'<img src=x onerror=\"document.title=1\">'; document.body.append(s) } catch (e) {} }"
    )
    page.wait_for_timeout(200)
    assert page.title() == title
    page.screenshot(path=tmp_path / "hostile.png", full_page=True)


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_screen_in_light_and_dark(
    run: Run, tmp_path: Path, chromium: Any, width: int, scheme: str
) -> None:
    template = {
        **run.manifest["template"],
        "locale": "ko",
        "titles": {"accuracy": "수치 정확성", "style": "완결성"},
    }
    korean = changed(run, tmp_path / "k", run.to_records(), template=template)
    opened = Opened(chromium, write_report(korean), color_scheme=scheme)
    page = opened.page
    page.set_viewport_size({"width": width, "height": 900})
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(map(int, re.findall(r"\d+", paper)[:3])) > 380
    assert light == (scheme == "light")
    assert "수치 정확성" in page.locator("thead").inner_text()
    assert page.locator("#show option").nth(1).inner_text() == "채점 안 된 행 (1)"
    page.select_option("#show", "unscored")
    assert opened.ids() == ["▸ c"] or opened.ids() == ["c"]
    assert opened.said == []
