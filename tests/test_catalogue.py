"""The words of the shipped templates, and a run of each with recorded replies.

`python tests/test_catalogue.py` writes tests/prompts.json anew after a prompt was changed on
purpose.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from helpers import write_lines

import geval
from geval.data import load_samples, read_rows
from geval.locale import column_families
from geval.rendering.guide import guides
from geval.sample import Sample
from geval.scale import Scale
from geval.template import Template, available, shipped_folder
from geval.units.split import preview

PROMPTS = Path(__file__).with_name("prompts.json")
SHIPPED = [p for found in available([shipped_folder()]).values() for p in found.values()]
JUDGED_AT_ONCE = [p for p in SHIPPED if not Template.load(p).front.units]
_MARK = re.compile(r"\[/?[0-9a-f]{8,64}\]")
_NAMES = {"SQL", "JSON", "claims"}  # the last is the key of a reply


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def first_sample(template: Template) -> Sample:
    loaded = load_samples(
        read_rows(template.examples()),
        template.front.inputs,
        column_families(),
        readers=guides(template),
    )
    return next(iter(loaded.samples()))


def prompts(template: Template, sample: Sample) -> list[str]:
    """Each criterion's prompt; with units those of a unit of each set, and each split's question.

    The unit is the first that needs no judge, or the whole text (`preview`).
    """
    renderer, units = template.renderer, template.front.unit_sets
    found = [
        renderer.render(sample, criterion, unit=preview(template, sample, which) if units else None)
        for which in range(len(units) or 1)
        for criterion in template.criteria
    ]
    asked = {spec.source: spec for spec in units if spec.by == "claims"}
    found += [renderer.render_split(sample, spec) for spec in asked.values()]
    return [message["content"] for messages in found for message in messages]


def hashes() -> dict[str, list[str]]:
    """Of each template and locale: a short hash of each prompt of its first example."""
    found = {}
    for path in SHIPPED:
        template = Template.load(path)
        texts = prompts(template, first_sample(template))
        found[path.name] = [hashlib.sha256(t.encode()).hexdigest()[:12] for t in texts]
    return found


def korean(kind: str) -> Any:
    """A value without a Latin letter, for a field of type `kind`."""
    text = "가나다"
    return {"text": text, "texts": (text,), "messages": ({"role": "user", "content": text},)}[kind]


@pytest.mark.parametrize("path", [p for p in SHIPPED if ".ko." in p.name], ids=lambda p: p.name)
def test_a_korean_prompt_is_korean_in_one_register(path: Path) -> None:
    template = Template.load(path)
    fields = {name: korean(spec.type) for name, spec in template.front.inputs.items()}
    for text in prompts(template, Sample("a", fields)):
        bare = _MARK.sub("", text)
        assert set(re.findall(r"[A-Za-z]{2,}", bare)) <= _NAMES
        for wrong in ("당신은", "등급", "주어진 ", "에 대해 "):
            assert wrong not in bare, wrong
        polite = re.findall(r"\S*(?:세요|해요|예요|어요|아요|습니다|습니까)[.?!\n]", bare)
        assert polite == []


@pytest.mark.parametrize("path", [p for p in SHIPPED if ".en." in p.name], ids=lambda p: p.name)
def test_an_english_prompt_holds_no_hangul_but_that_of_its_data(path: Path) -> None:
    template = Template.load(path)
    fields = {n: "abc" if s.type == "text" else ("abc",) for n, s in template.front.inputs.items()}
    fields |= {
        n: ({"role": "user", "content": "abc"},)
        for n, s in template.front.inputs.items()
        if s.type == "messages"
    }
    for text in prompts(template, Sample("a", fields)):
        assert not re.search(r"[가-힣]", text)


@pytest.mark.parametrize("path", JUDGED_AT_ONCE, ids=names(JUDGED_AT_ONCE))
def test_a_prompt_ends_in_the_order_to_write_a_level(path: Path) -> None:
    template = Template.load(path)
    sample = first_sample(template)
    for criterion in template.criteria:
        last = template.render(sample, criterion.name)[0]["content"].splitlines()[-1]
        assert all(level.word in last for level in criterion.scale.levels)


@pytest.mark.fault("T6")
def test_no_public_prompt_changes_unnoticed() -> None:
    told = "changed on purpose? raise the template's version, run python tests/test_catalogue.py"
    assert json.loads(PROMPTS.read_text(encoding="utf-8")) == hashes(), told


def alternatives(scale: Scale, label: Any) -> dict[str, float]:
    if label == "not_applicable":
        return {scale.not_applicable_spellings[0]: 1.0}
    word = {level.value: level.word for level in scale.levels}
    other = scale.low if label != scale.low else scale.high
    return {word[label]: 0.9, word[other]: 0.1}


@pytest.mark.parametrize("path", JUDGED_AT_ONCE, ids=names(JUDGED_AT_ONCE))
def test_its_examples_score_as_the_judge_says(path: Path, tmp_path: Path) -> None:
    template = Template.load(path)
    examples = template.examples()
    assert examples is not None
    rows = [json.loads(line) for line in examples.read_text(encoding="utf-8").splitlines()]
    records, expected = [], {}
    for row in rows:
        for c in template.criteria:
            label = row["label"][c.name]
            said = alternatives(c.scale, label)
            text = max(said, key=said.__getitem__)
            records.append(
                {"id": row["id"], "criterion": c.name, "alternatives": said, "text": text}
            )
            value = {level.word: level.value for level in c.scale.levels}
            expected[row["id"], c.name] = (
                None if label == "not_applicable" else sum(p * value[w] for w, p in said.items())
            )
    judge = f"replay:{write_lines(tmp_path / 'recorded.jsonl', records)}"
    run = geval.score(None, template=path, judge=judge, reasons="none", out=tmp_path / "run")
    lines = [line for line in run.results() if line["criterion"] != "overall"]
    assert len(lines) == len(expected)
    for line in lines:
        want = expected[line["id"], line["criterion"]]
        assert line["status"] == ("not_applicable" if want is None else "scored")
        assert line["score"] == (None if want is None else pytest.approx(want))


if __name__ == "__main__":
    PROMPTS.write_text(json.dumps(hashes(), indent=1) + "\n", encoding="utf-8")
