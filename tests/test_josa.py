"""Korean particles fit whatever word they follow."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from helpers import TEMPLATE, write_template
from hypothesis import given
from hypothesis import strategies as st

from geval.errors import TemplateError
from geval.rendering.josa import josa
from geval.sample import Sample
from geval.template import Template

READINGS = [
    # word, with 을/를, with 으로/로
    ("매출", "매출을", "매출로"),
    ("이익", "이익을", "이익으로"),
    ("자료", "자료를", "자료로"),
    ("해당없음", "해당없음을", "해당없음으로"),
    ("해당 없음", "해당 없음을", "해당 없음으로"),
    ("「매출」", "「매출」을", "「매출」로"),
    ("‘예’", "‘예’를", "‘예’로"),
    ('"답변"', '"답변"을', '"답변"으로'),
    ("[자료]", "[자료]를", "[자료]로"),
    ("0", "0을", "0으로"),
    ("1", "1을", "1로"),
    ("2", "2를", "2로"),
    ("3", "3을", "3으로"),
    ("4", "4를", "4로"),
    ("5", "5를", "5로"),
    ("6", "6을", "6으로"),
    ("7", "7을", "7로"),
    ("8", "8을", "8로"),
    ("9", "9를", "9로"),
    ("10", "10을", "10으로"),
    ("1,200", "1,200을", "1,200으로"),
    ("3000", "3000을", "3000으로"),
    ("10000", "10000을", "10000으로"),
    ("100,000,000", "100,000,000을", "100,000,000으로"),
    ("1000000000000", "1000000000000를", "1000000000000로"),
    ("10000000000000", "10000000000000을", "10000000000000으로"),
    ("1.5", "1.5를", "1.5로"),
    ("2.10", "2.10을", "2.10으로"),
    ("3.1", "3.1을", "3.1로"),
    ("(12)", "(12)를", "(12)로"),
    ("12.3%", "12.3%를", "12.3%로"),
    ("0.5%p", "0.5%p를", "0.5%p로"),
    ("５％", "５％를", "５％로"),
    ("1,234억", "1,234억을", "1,234억으로"),
    ("2조", "2조를", "2조로"),
    ("4점", "4점을", "4점으로"),
    ("3Q25", "3Q25를", "3Q25로"),
    ("ROE", "ROE를", "ROE로"),
    ("LG", "LG를", "LG로"),
    ("IBM", "IBM을", "IBM으로"),
    ("S-OIL", "S-OIL을", "S-OIL로"),
    ("PER", "PER을", "PER로"),
    ("다솜전자(연결)", "다솜전자(연결)를", "다솜전자(연결)로"),
    ("Apple", "Apple을(를)", "Apple(으)로"),
    ("△", "△을(를)", "△(으)로"),
    ("", "을(를)", "(으)로"),
]


@pytest.mark.parametrize(("word", "object_", "means"), READINGS)
def test_the_particle_follows_the_sound_of_the_word(word: str, object_: str, means: str) -> None:
    assert josa(word, "을/를") == object_
    assert josa(word, "를/을") == object_
    assert josa(word, "으로/로") == means


@pytest.mark.parametrize(
    ("pair", "closed", "open_"),
    [
        ("은/는", "값은", "차는"),
        ("이/가", "값이", "차가"),
        ("과/와", "값과", "차와"),
        ("이라고/라고", "값이라고", "차라고"),
        ("이라/라", "값이라", "차라"),
        ("아/야", "값아", "차야"),
        ("이나/나", "값이나", "차나"),
    ],
)
def test_every_pair(pair: str, closed: str, open_: str) -> None:
    assert josa("값", pair) == closed
    assert josa("차", pair) == open_


SYLLABLE = st.integers(ord("가"), ord("힣")).map(chr)


@given(st.text(), SYLLABLE, st.text("\"'”’」』)]", max_size=3))
def test_only_the_last_syllable_counts(before: str, last: str, closing: str) -> None:
    has_final = len(unicodedata.normalize("NFD", last)) == 3
    bracket = "(" in unicodedata.normalize("NFKC", before)
    word = f"{last}{closing}" if bracket else f"{before}{last}{closing}"
    assert josa(word, "은/는") == word + ("은" if has_final else "는")


@given(st.text())
def test_any_text_gets_one_of_the_three_forms(word: str) -> None:
    assert josa(word, "이/가").removeprefix(word) in ("이", "가", "이(가)")


@pytest.mark.parametrize("pair", ["은", "은/가", "", "/", "은/는/이"])
def test_what_is_no_pair_is_told(pair: str) -> None:
    with pytest.raises(ValueError, match="no pair of particles"):
        josa("값", pair)


def test_a_template_uses_it_and_judged_text_stays_fenced(tmp_path: Path) -> None:
    text = TEMPLATE.replace(
        "Answer: {{ answer }}", "{{ answer|josa('은/는') }} {{ 10|josa('을/를') }}"
    )
    template = Template.load(write_template(tmp_path, text))
    sample = Sample(id="a", fields={"question": "Q?", "answer": "매출"})
    (message,) = template.render(sample)
    assert "]매출[/" in message["content"]
    assert "]은 10을" in message["content"]


def test_a_wrong_pair_in_a_template_is_told_with_its_line(tmp_path: Path) -> None:
    text = TEMPLATE.replace(
        "Answer: {{ answer }}", "{% if reference %}\n{{ question|josa('은') }}\n{% endif %}"
    )
    line = text.split("\n").index("{{ question|josa('은') }}") + 1
    with pytest.raises(TemplateError, match=rf":{line}: .*no pair of particles"):
        Template.load(write_template(tmp_path, text))
