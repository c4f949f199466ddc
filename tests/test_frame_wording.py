"""What a judge reads about a level outside the scale does not contradict the order that ends it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from helpers import TEMPLATE, write_template

from geval.sample import Sample
from geval.template import Template

SAMPLE = Sample(id="a", fields={"question": "Q?", "answer": "A."})
WITHOUT = TEMPLATE.replace("  not_applicable: nothing to judge\n", "")


def prompt(folder: Path, text: str, locale: str) -> str:
    text = text.replace("locale: en", f"locale: {locale}")
    template = Template.load(write_template(folder, text, f"fit.{locale}.jinja"))
    return template.render(SAMPLE)[0]["content"]


@pytest.mark.parametrize(
    ("locale", "wanted"),
    [
        (
            "en",
            "Where no score can be given, N/A takes its place.",
        ),
        (
            "ko",
            "점수를 매길 수 없으면 ‘해당없음’이라고 쓴다.",
        ),
    ],
)
def test_the_other_answer_stands_before_the_order_to_write_a_number(
    tmp_path: Path, locale: str, wanted: str
) -> None:
    *_, before, reason, last = prompt(tmp_path, TEMPLATE, locale).splitlines()
    assert before == wanted
    assert "1, 2, 3, 4, 5" in last
    assert "1, 2, 3, 4, 5" not in reason


PUBLISHED = {
    "en": "20b51689f5305987",
    "ko": "d2bea20d63a4a7d2",
}


@pytest.mark.fault("T6")
@pytest.mark.parametrize("locale", ["en", "ko"])
def test_prompts_without_such_a_level_are_what_they_were(tmp_path: Path, locale: str) -> None:
    content = prompt(tmp_path, WITHOUT, locale)
    assert hashlib.sha256(content.encode()).hexdigest()[:16] == PUBLISHED[locale]


@pytest.mark.parametrize("locale", ["en", "ko"])
def test_words_instead_of_numbers(tmp_path: Path, locale: str) -> None:
    levels = "  levels: {1: wrong, 2: mostly wrong, 3: half right, 4: mostly right, 5: right}"
    text = TEMPLATE.replace(levels, "  labels: {bad: 0, good: 1}")
    text = text.replace("cap: {criterion: accuracy, below: 3, max: 2}\n", "")
    content = prompt(tmp_path, text, locale)
    assert "숫자" not in content
    assert "one number" not in content
