"""Random hostile templates over random hostile data: a prompt within its budget, or one error."""

from __future__ import annotations

import random

import pytest
from test_sandbox import load

from geval.errors import DataError, TemplateError
from geval.rendering.sandbox import CHARACTERS
from geval.sample import Sample, Source

ATOMS = [
    *("note", "question", "contexts", "criterion", "say", "label", "loop", "self", "super", "range"),
    *("'a'", "'%s'", "'{0.__class__}'", "''", "0", "-1", "10**9", "1.5", "none", "true", "[1, 2]"),
    *("{'a': 1}", "('a',) ", "x", "m", "caller", "namespace(a=1)", "'\\ud800'", "'\\0'", "9" * 30),
]  # fmt: skip
FILTERS = ["center(10**8)", "replace('a', 'a' * 999)", "indent(999)", "join('x')", "list", "upper",
           "tojson", "batch(10**8)", "format(1)", "attr('__class__')", "map('upper')", "sort",
           "default('d')", "josa('은/는')", "string", "items", "first", "length", "int"]  # fmt: skip
DATA = [
    "{{ 7*7 }}{% raw %}",
    "\0",
    "\ud800",
    "é" * 1_000_000,
    "{% include 'x' %}",
    "",
    "[/0]",
    "가" * 9,
]


def expression(rng: random.Random, depth: int = 0) -> str:
    if depth > 3 or rng.random() < 0.3:
        return rng.choice(ATOMS)
    one, two = expression(rng, depth + 1), expression(rng, depth + 1)
    return rng.choice(
        [
            f"({one} {rng.choice(['+', '*', '**', '~', '%', '//', '-', 'in', '==', 'and'])} {two})",
            f"({one})|{rng.choice(FILTERS)}",
            f"({one}).{rng.choice(['__class__', 'mro', 'a', 'append', 'format', '__globals__'])}",
            f"({one})[{two}]",
            f"({one})[{two}:]",
            f"({one})({two})",
            f"range({one}, {two})",
            f"[{one}, {two}]",
        ]
    )


def statement(rng: random.Random, depth: int = 0) -> str:
    if depth > 3 or rng.random() < 0.3:
        return f"{{{{ {expression(rng)} }}}}"
    inner = "".join(statement(rng, depth + 1) for _ in range(rng.randint(1, 2)))
    value = expression(rng)
    return rng.choice(
        [
            f"{{% for x in range(999) %}}{inner}{{% endfor %}}",
            f"{{% for x in {value} %}}{inner}{{% endfor %}}",
            f"{{% macro m(x) %}}{inner}{{{{ m(x) }}}}{{% endmacro %}}{{{{ m({value}) }}}}",
            f"{{% set x %}}{inner}{{% endset %}}{{% set x = x ~ x ~ x %}}{inner}",
            "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}"
            f"{inner}{{% endfor %}}",
            f"{{% if {value} %}}{inner}{{% else %}}{{% include '_geval.jinja' %}}{{% endif %}}",
            f"{{% filter {rng.choice(FILTERS)} %}}{inner}{{% endfilter %}}",
            f"{{% call m({value}) %}}{inner}{{% endcall %}}",
            f"{{% with x = {value} %}}{inner}{{% endwith %}}",
            f"{{% import '{rng.choice(['_geval.jinja', 'x', '/etc/passwd'])}' as x %}}{inner}",
        ]
    )


@pytest.mark.fault("X3")
@pytest.mark.fault("X4")
@pytest.mark.parametrize("seed", range(60))
def test_a_random_template_renders_in_its_budget_or_is_one_error(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(5):
        fields = {
            "question": rng.choice(DATA),
            "answer": rng.choice(DATA),
            "note": rng.choice([*DATA, None]),
            "contexts": rng.choice([(), ("One", "Two"), tuple(DATA[:3]), None]),
        }
        sample = Sample("7", fields, source=Source("rows.csv", 8))
        body = "".join(statement(rng) for _ in range(rng.randint(1, 3)))
        said, most = outcome(body, sample)
        assert len(said) <= most, body
        assert " at 0x" not in said, body


def outcome(body: str, sample: Sample) -> tuple[str, int]:
    """The prompt or the error of a template, and how long it may be."""
    try:
        template = load(body)
        return template.render(sample)[0]["content"], CHARACTERS + 5 * len(str(sample.fields))
    except (TemplateError, DataError) as error:
        return str(error), 2_000


def test_the_random_templates_are_not_all_refused() -> None:
    sample = Sample("7", {"question": "q", "answer": "a", "note": "n", "contexts": ("c",)})
    limits = set()
    for seed in range(60):
        limits.add(outcome(statement(random.Random(seed), 3), sample)[1])
    assert len(limits) == 2  # prompts and errors
