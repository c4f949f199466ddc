"""The shipped templates and their examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from geval.data import load_samples, read_rows
from geval.lint.check import disagreements, lint_file
from geval.locale import column_families, load_locale, locale_codes
from geval.template import Template, available, search_path, shipped_folder

SHIPPED = [
    path
    for locales in available([shipped_folder()]).values()
    for path in locales.values()
]  # fmt: skip
NAMES = [path.name for path in SHIPPED]


@pytest.mark.parametrize("path", SHIPPED, ids=NAMES)
def test_a_shipped_template_has_no_fault(path: Path) -> None:
    assert lint_file(path) == []


@pytest.mark.parametrize("path", SHIPPED, ids=NAMES)
def test_its_examples_render_and_are_labelled_on_its_scales(path: Path) -> None:
    template = Template.load(path)
    examples = template.examples()
    assert examples is not None
    rows = [json.loads(line) for line in examples.read_text(encoding="utf-8").splitlines()]
    assert 8 <= len(rows) <= 20
    loaded = load_samples(read_rows(examples), template.front.inputs, column_families())
    assert loaded.n == len(rows)
    for sample in loaded.samples():
        for criterion in template.criteria:
            assert template.renderer.render(sample, criterion)
    for row in rows:
        assert row["kind"]
        for criterion in template.criteria:
            label = row["label"][criterion.name]
            if template.front.units:  # an aggregate lies anywhere on the scale
                assert criterion.scale.low <= label <= criterion.scale.high
                continue
            assert label in criterion.scale.values or (
                label == "not_applicable" and criterion.scale.not_applicable
            )


@pytest.mark.fault("T7")
def test_locales_of_one_template_agree() -> None:
    for name, locales in available(search_path()).items():
        found = [Template.load(name, locale) for locale in locales]
        for other in found[1:]:
            assert disagreements(found[0], other) == [], name


@pytest.mark.fault("T8")
def test_every_locale_has_the_keys_of_english() -> None:
    english = load_locale("en")
    for code in locale_codes():
        locale = load_locale(code)
        assert set(locale.frame) == set(english.frame), code
        assert set(locale.labels) == set(english.labels), code
        assert set(locale.report) == set(english.report), code
        assert locale.code == code


def test_right_and_wrong_answers_share_their_material_word_for_word() -> None:
    for path in SHIPPED:
        template = Template.load(path)
        examples = template.examples()
        assert examples is not None
        rows = [json.loads(line) for line in examples.read_text(encoding="utf-8").splitlines()]
        given = [name for name in template.front.inputs if name != template.judged]
        if path.name.startswith("context_") and template.front.units:
            continue  # there the documents are what is judged
        material = {json.dumps([row.get("contexts") or row.get("reference")]) for row in rows}
        if not template.front.units:
            material = {json.dumps([row.get(name) for name in given]) for row in rows}
        assert len(material) <= len(rows) / 2, path.name
