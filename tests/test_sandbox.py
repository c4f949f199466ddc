"""Hostile templates and hostile data: a rendered prompt with every fence whole, or one error."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geval.data.values import as_messages
from geval.errors import DataError, TemplateError
from geval.prompt import MAX_PARTS
from geval.rendering.fence import conversation, fence
from geval.rendering.sandbox import (
    CHARACTERS,
    MAX_DEPTH,
    MAX_RANGE,
    MAX_SOURCE,
    STEPS,
    Budget,
    Environment,
    within,
)
from geval.sample import Sample, Source
from geval.template import Template, parse
from geval.yaml import MAX_FILE, MAX_ITEMS, MAX_YAML, load_yaml

HEAD = """---
name: plain
inputs:
  question: text
  answer: text
  note: {type: text, required: false}
  contexts: {type: texts, required: false}
scale:
  levels: {1: wrong, 2: right}
criteria:
  fit: Does the answer fit the question?
---
{% extends "_geval.jinja" %}
{% block sample %}
Q {{ question }}
A {{ answer }}
"""
GROW = "{% set ns = namespace(x='aaaaaaaaaa', y=[1]) %}{% for i in range(900) %}"


def load(hostile: str, folder: Path = Path("/nowhere")) -> Template:
    text = HEAD + hostile + "\n{% endblock %}\n"
    return parse(text.encode("utf-8", "surrogatepass"), folder / "plain.en.jinja")


def prompt(
    hostile: str, answer: str = "An Answer.", note: str | None = "A Note.", folder: Path = Path("/nowhere")
) -> str:  # fmt: skip
    fields = {"question": "Why?", "answer": answer, "note": note, "contexts": ("One", "Two")}
    sample = Sample("7", fields, source=Source("rows.csv", 8))
    return load(hostile, folder).render(sample)[0]["content"]


def fenced(text: str) -> str:
    marker = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"[{marker}]{text}[/{marker}]"


@pytest.mark.fault("X4")
@pytest.mark.parametrize(
    "bomb",
    [
        "{% for i in range(1000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}",
        "{% for i in range(999) %}{% for j in range(99) %}{% if i in range(1000) %}{% endif %}{% endfor %}{% endfor %}",
        GROW + "{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        GROW + "{% set ns.x = ns.x + ns.x %}{% endfor %}",
        GROW + "{% set ns.y = ns.y + ns.y %}{% endfor %}",
        GROW + "{% set ns.x = ns.x|replace('a', ns.x) %}{% endfor %}",
        GROW + "{% set ns.x = [ns.x, ns.x]|join(ns.x) %}{% endfor %}",
        GROW + "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
        GROW + "{% set ns.x = (ns.x ~ '\n')|indent(100) %}{% endfor %}",
        GROW + "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.y == [ns.y] }}{{ ns.y|tojson }}",
        GROW + "{% set ns.y = (ns.y, ns.y) %}{% endfor %}{{ {'a': 1}[ns.y] }}",
        GROW + "{% set ns.y = (ns.y, ns.y) %}{% endfor %}{{ ns.y in criterion }}",
        GROW + "{% set ns.y = (ns.y, ns.y) %}{% endfor %}{{ label(ns.y) }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "".join(f"{{% macro m{i}() %}}{{{{ m{i + 1}() }}}}{{{{ m{i + 1}() }}}}{{% endmacro %}}" for i in range(40))
        + "{% macro m40() %}{% endmacro %}{{ m0() }}",
        "{% set x %}{% for i in range(1000) %}" + "x" * 9000 + "{% endfor %}{% endset %}",
        "{% for i in range(1000) %}" + "x" * 9000 + "{% endfor %}",
        "{% for i in range(1000) %}{% for j in range(90) %}{{ note }}{% endfor %}{% endfor %}",
        "{{ 'x' * 1000000000 }}",
        "{{ [1] * 1000000000 }}",
        "{{ 'x'|center(1000000000) }}",
        "{{ '%1000000000d'|format(1) }}",
        "{{ [1]|batch(1000000000)|list }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ range(1000000000)|list }}",
        "{{ " + "9" * 9000 + " }}",
        "{{ " + "(" * 9000 + "1" + ")" * 9000 + " }}",
        "{{ 1" + " + 1" * 9000 + " }}",
        "{{ 'a'" + "|upper" * 9000 + " }}",
        "{% for i in [1] %}" * 25 + "{% endfor %}" * 25,
        "{{ 1 }}" * 20_000,
        "x" * 5_000_000,
    ],
    ids=lambda bomb: bomb[:60],
)  # fmt: skip
def test_a_bomb_is_an_error_before_it_has_gone_off(bomb: str) -> None:
    with pytest.raises(TemplateError) as error:
        prompt(bomb, note="n" * 1000)
    assert len(str(error.value)) < 1000
    assert "plain.en.jinja" in str(error.value)


def test_a_budget_is_spent_before_the_work_is_done() -> None:
    environment, budget = Environment(), Budget(steps=1_000, characters=100)
    with within(budget), pytest.raises(Exception, match="characters"):
        environment.from_string("{{ 'a'|replace('a', 'bbbbbbbbbb') ~ x }}").render(x="y" * 100)
    with within(Budget(steps=100)), pytest.raises(Exception, match="steps"):
        environment.from_string("{% for i in range(100) %}{% endfor %}").render()


def test_budgets_do_not_hold_back_long_documents() -> None:
    answer = "문서 {{ 7*7 }} " * 700_000  # more than the template's own characters
    assert len(answer) > CHARACTERS
    assert fenced(answer) in prompt("", answer)
    many = tuple(f"c{i}" for i in range(20_000))
    sample = Sample("1", {"question": "q", "answer": "a", "note": None, "contexts": many})
    loop = "{% for c in contexts %}{{ loop.index }} {{ c }}\n{% endfor %}"
    assert len(many) * 30 > STEPS
    assert load(loop).render(sample)[0]["content"].count("\n") > len(many)


@pytest.mark.fault("T1")
@pytest.mark.parametrize(
    "body",
    [
        "{{ note }}",
        "{{ note ~ '' }}",
        "{{ 'a: ' ~ note ~ '!' }}",
        "{{ [note, question]|join(', ') }}",
        "{% set y = note %}{{ y }}",
        "{% set y %}<{{ note }}>{% endset %}{{ y }}",
        "{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(note) }}",
        "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}{{ note }}{% endcall %}",
        "{{ note|default('none') }}",
        "{{ [question, note]|last }}",
        "{% if note is string and note != none %}{{ note }}{% endif %}",
        "{{ say('text', text=note) }}",
        "{{ note|josa('은/는') }}",
        "{% with x = [note] %}{{ x[0] }}{% endwith %}",
        "{{ {'a': note}.a }}",
    ],
)
def test_judged_text_keeps_its_fence_wherever_it_goes(body: str) -> None:
    text = "  <b> {{ x }} ß ﬁ\t끝 "
    found = prompt(body, note=text)
    assert fenced(text) in found
    assert found.count(text) == 1


@pytest.mark.fault("T1")
@pytest.mark.parametrize(
    "body",
    [
        "{{ note|trim }}",
        "{{ note|upper }}",
        "{{ note[:3] }}",
        "{{ note[0] }}",
        "{{ note + '' }}",
        "{{ (note ~ '')|lower }}",
        "{{ [note]|join|replace('a', 'b') }}",
        "{{ contexts|first|indent }}",
        "{{ note|string }}",
        "{{ note|tojson }}",
        "{{ [note]|tojson }}",
        "{{ note|length }}",
        "{{ note|int }}",
        "{{ note == 'A Note.' }}",
        "{{ 'A' in note }}",
        "{% for letter in note %}{{ letter }}{% endfor %}",
        "{% filter upper %}{{ note }}{% endfilter %}",
        "{% set y = note %}{{ y|title }}",
        "{% set y %}{{ note }}{% endset %}{{ y[2:] }}",
        "{% set y|upper %}{{ note }}{% endset %}{{ y }}",
        "{% macro m(x) %}{{ x|upper }}{% endmacro %}{{ m(note) }}",
        "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(note)|upper }}",
        "{% macro m() %}{{ caller()|upper }}{% endmacro %}{% call m() %}{{ note }}{% endcall %}",
        "{{ say('text', text=note)|upper }}",
        "{{ note * 2 }}",
        "{{ note % 1 }}",
        "{% set a, b = note %}",
    ],
)
def test_what_would_change_judged_text_says_to_print_it(body: str) -> None:
    with pytest.raises(TemplateError, match=r"print(ed)? it as \{\{|only texts, numbers"):
        prompt(body)


@pytest.mark.parametrize(
    "body",
    [
        "{{ say }}",
        "{{ say|string }}",
        "{{ say ~ '' }}",
        "{{ [say]|join }}",
        "{{ namespace }}",
        "{{ namespace(a=1) }}",
        "{{ range }}",
        "{% for i in [1] %}{{ loop }}{% endfor %}",
        "{% for i in [1] %}{{ loop.cycle }}{% endfor %}",
        "{% macro m() %}{% endmacro %}{{ m }}",
        "{{ super }}",
        "{{ criterion }}",
        "{{ criterion|items }}",
        "{{ nothing }}",
        "{{ criterion.nothing }}",
        "{{ {'a': 1}.b }}",
        "{{ [1]|random }}",
        "{{ [1]|shuffle }}",
        "{{ say|pprint }}",
        "{{ criterion|xmlattr }}",
        "{{ '\\ud800' }}",
    ],
)
def test_nothing_prints_the_inside_of_python(body: str) -> None:
    with pytest.raises(TemplateError) as error:
        prompt(body)
    assert " at 0x" not in str(error.value)


@pytest.mark.fault("X3")
@pytest.mark.parametrize(
    "body",
    [
        "{{ ''.__class__ }}",
        "{{ criterion['__class__'] }}",
        "{{ criterion|attr('__class__') }}",
        "{{ say.__globals__ }}",
        "{{ say.im_func }}",
        "{{ '{0.__class__}'.format(say) }}",
        "{{ range(3).start }}",
        "{{ (1).real }}",
        "{{ self.__init__ }}",
        "{{ self._TemplateReference__context }}",
        "{% macro m() %}{% endmacro %}{{ m.name }}",
        "{% for i in [1] %}{{ loop._iterable }}{% endfor %}",
        "{{ super.super }}",
        "{% autoescape true %}{{ note }}{% endautoescape %}",
        "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{{ say(*['intro']) }}",
        "{{ [1].append(2) }}",
    ],
)
def test_no_attribute_of_an_object_is_reached(body: str) -> None:
    with pytest.raises(TemplateError):
        prompt(body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("{% include note %}", "a name in quotes"),
        ("{% include '_geval' ~ '.jinja' %}", "a name in quotes"),
        ("{% include ['_geval.jinja'] %}", "a name in quotes"),
        ("{% import note as x %}", "a name in quotes"),
        ("{% from note import x %}", "a name in quotes"),
        ("{% include 'none.jinja' ignore missing %}", "ignore missing"),
        ("{% include 'none.jinja' %}", "'none.jinja' is not on the search path"),
        ("{% include '../secret.jinja' %}", "not on the search path"),
        ("{% include '/etc/passwd' %}", "not on the search path"),
        ("{% include 'a\\u0000.jinja' %}", "not on the search path"),
        ("{% include '" + "a" * 5000 + "' %}", "not on the search path"),
        ("{% include 'one.jinja' %}", r"includes itself \(one.jinja -> two.jinja -> one.jinja\)"),
        ("{% include 'plain.en.jinja' %}", "includes itself"),
        ("{% include 'odd.jinja' %}", "odd.jinja, line 2: .*unknown filter 'shuffle'"),
    ],
)
def test_parts_have_constant_names_and_come_from_the_search_path(
    tmp_path: Path, body: str, said: str
) -> None:
    (tmp_path.parent / "secret.jinja").write_text("secret")
    (tmp_path / "one.jinja").write_text("{% include 'two.jinja' %}")
    (tmp_path / "two.jinja").write_text("{% if note %}{% include 'one.jinja' %}{% endif %}")
    (tmp_path / "odd.jinja").write_text("\n{{ [1]|shuffle }}")
    (tmp_path / "plain.en.jinja").write_text(HEAD + body + "{% endblock %}")
    with pytest.raises(TemplateError, match=said) as error:
        prompt(body, folder=tmp_path)
    assert "plain.en.jinja:17: " in str(error.value)


def test_a_part_is_rendered_as_the_fingerprint_saw_it(tmp_path: Path) -> None:
    part = tmp_path / "part.jinja"
    part.write_text("the first text")
    template = load("{% include 'part.jinja' %}", tmp_path)
    before = template.fingerprint
    part.write_text("another text")
    sample = Sample("1", {"question": "q", "answer": "a", "note": None, "contexts": None})
    assert "the first text" in template.render(sample)[0]["content"]
    assert (
        template.fingerprint == before != load("{% include 'part.jinja' %}", tmp_path).fingerprint
    )


@pytest.mark.fault("X1")
def test_no_text_holds_a_marker_not_even_one_that_quotes_every_hash() -> None:
    question = "What is it?"
    digest = hashlib.sha256(question.encode()).hexdigest()
    for quoted in (digest, digest.upper(), f"[/{digest[:8]}]", f"x{digest}x"):
        found = fence({"question": question, "answer": f"a {quoted} b"})["question"].fenced
        marker = re.match(r"\[(\w+)\]", found)
        assert marker is not None
        assert marker[1] not in quoted.lower()
        assert len(marker[1]) >= 8


@pytest.mark.parametrize(
    "bomb",
    [
        "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
            f"{c}: &{c} [{','.join(['*' + p] * 9)}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
        ),
        "a: " + "[" * 100_000,
        "- " * 50_000 + "x",
        "? " * 50_000,
        "a: " + "9" * 100_000,
        "a: 0x" + "f" * 10_000,
        "? [a, b]\n: 1",
        "a: 2025-13-45",
        "a: \0",
        "a: !!binary xx",
        "a:\n" + "  k: v\n" * 50_000,
    ],
    ids=lambda bomb: bomb[:30],
)  # fmt: skip
def test_hostile_yaml_is_one_error_with_its_place(bomb: str) -> None:
    with pytest.raises(TemplateError, match=r"front.yaml:\d+: ") as error:
        load_yaml(bomb, "front.yaml")
    assert len(str(error.value)) < 1000


def test_an_alias_may_be_used() -> None:
    assert load_yaml("a: &s {1: x}\nb: *s", "f").data == {"a": {1: "x"}, "b": {1: "x"}}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{1: wrong, 2: right}", "{1: wrong, 1.0e+308: right}", "between -1e6 and 1e6"),
        ("{1: wrong, 2: right}", "{1: wrong, .nan: right}", "between -1e6 and 1e6"),
        ("{1: wrong, 2: right}", "{1: wrong, .inf: right}", "between -1e6 and 1e6"),
        ("fit: Does", "fit: {weight: 1.0e+308, text: x}\n  more: Does", "between 1e-6 and 1e6"),
        ("fit: Does", "fit: {weight: 1.0e-320, text: x}\n  more: Does", "between 1e-6 and 1e6"),
        ("fit: Does", "fit: {weight: .nan, text: x}\n  more: Does", "weight"),
        ("scale:", "demos: [{question: q, answer: a, scores: {fit: 7}}]\nscale:", "not on the scale 1, 2"),
        ("scale:", "demos: [{question: q, answer: a, scores: {fit: true}}]\nscale:", "not on the scale"),
        ("scale:", "demos: [{question: q, answer: a, scores: {fi: 1}}]\nscale:", "unknown criterion 'fi'"),
        ("scale:", "demos: [{question: q, scores: {fit: 1}}]\nscale:", "'answer' is missing"),
        ("scale:", "demos: [{question: q, answer: a}]\nscale:", "needs `scores`"),
    ],
)  # fmt: skip
def test_numbers_and_demos_outside_of_reason_are_refused_when_loading(
    old: str, new: str, said: str
) -> None:
    text = (HEAD + "{% endblock %}").replace(old, new, 1)
    with pytest.raises(TemplateError, match=said) as error:
        parse(text.encode(), Path("/nowhere/plain.en.jinja"))
    assert re.search(r"plain\.en\.jinja:\d+: ", str(error.value))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "front matter"),
        (b"---\n", "front matter"),
        (b"---\n---\n", "not a mapping"),
        (b"\xff\xfe" + (HEAD + "{% endblock %}").encode("utf-16-le"), "UTF-16"),
        ((HEAD + "\0{% endblock %}").encode(), "NUL"),
        (HEAD.partition("{% ext")[0].encode(), "neither the criterion nor its levels"),
        (b"x" * 10_000_000, "at most 2,000,000"),
    ],
)
def test_files_that_are_no_templates(content: bytes, said: str) -> None:
    with pytest.raises(TemplateError, match=said):
        parse(content, Path("/nowhere/plain.en.jinja"))


def test_half_a_character_in_the_data_is_a_data_error() -> None:
    with pytest.raises(DataError, match=r"half a character.*"):
        prompt("", answer="a\ud800")


@pytest.mark.fault("P11")
def test_a_conversation_is_a_turn_a_line_with_calls_as_readable_json() -> None:
    messages = [
        {"role": "user", "content": "환율은?\n오늘 것"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "c1", "type": "function",
             "function": {"name": "환율", "arguments": '{"통화": "\\ub2ec\\ub7ec"}'}}]},
        {"role": "tool", "name": "환율", "content": '{"원": 1400}'},
        {"role": "심판", "content": "끝"},
    ]  # fmt: skip
    speakers = {
        "user": "사용자",
        "assistant": "어시스턴트",
        "tool": "도구",
        "tool_call": "도구 호출",
    }
    assert conversation(messages, speakers).split("\n") == [
        "사용자: 환율은?",
        "오늘 것",
        '어시스턴트 도구 호출: {"name": "환율", "arguments": {"통화": "달러"}}',
        '도구(환율): {"원": 1400}',
        "심판: 끝",
    ]


@pytest.mark.fault("P12")
def test_pieces_of_text_are_one_content_and_other_pieces_stay_json() -> None:
    text = {"type": "text", "text": "하나"}
    image = {"type": "image_url", "image_url": {"url": "x"}}
    rows = [{"role": "user", "content": [text, text]}, {"role": "user", "content": [text, image]}]
    one, two = as_messages(rows, lambda _: None)
    assert one["content"] == "하나\n하나"
    assert json.loads(two["content"]) == [text, image]
    assert "하나" in two["content"]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.text(max_size=8), st.text(max_size=30)), min_size=1, max_size=4))
def test_contents_of_a_conversation_arrive_unchanged(turns: list[tuple[str, str]]) -> None:
    messages = [{"role": role, "content": content} for role, content in turns]
    found = conversation(messages, {})
    for role, content in turns:
        assert f"{role}: {content}" in found
    assert len(found) == sum(len(r) + len(c) + 3 for r, c in turns) - 1


def test_half_a_character_in_a_tool_call_is_a_data_error() -> None:
    call = {"function": {"name": "f", "arguments": '{"a": "\\ud800"}'}}
    with pytest.raises(ValueError, match="half a character"):
        conversation([{"role": "assistant", "content": "", "tool_calls": [call]}], {})


WORDS = ["note", "answer", "question", "contexts", "criterion", "say", "label", "range", "namespace", "loop", "x", "ns", "demos", "super", "caller", "'a'", "1", "99999", "[note, 1]", "{'a': note}", "none"]  # fmt: skip
NAMES = ["upper", "join", "replace('a', note)", "first", "default(note)", "tojson", "list", "length", "string", "indent(9)", "josa('은/는')", "random", "attr('__class__')"]  # fmt: skip
ATTRIBUTES = ["__class__", "__globals__", "items", "format", "index", "text", "x", "_x", "super", "name"]  # fmt: skip


def expressions() -> st.SearchStrategy[str]:
    return st.recursive(
        st.sampled_from(WORDS),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(["~", "+", "*", "**", "==", "in", "%", "and"]), inner).map(
                lambda t: f"({t[0]} {t[1]} {t[2]})"
            ),
            st.tuples(inner, st.sampled_from(NAMES)).map(lambda t: f"({t[0]}|{t[1]})"),
            st.tuples(inner, st.sampled_from(ATTRIBUTES)).map(lambda t: f"{t[0]}.{t[1]}"),
            st.tuples(inner, inner).map(lambda t: f"{t[0]}[{t[1]}]"),
            inner.map(lambda e: f"{e}[:2]"),
            st.tuples(inner, inner).map(lambda t: f"{t[0]}({t[1]})"),
            inner.map(lambda e: f"[{e}, {e}]"),
        ),
        max_leaves=6,
    )  # fmt: skip


def bodies() -> st.SearchStrategy[str]:
    leaf = st.one_of(
        expressions().map(lambda e: "{{ " + e + " }}"),
        expressions().map(lambda e: "{% set x = " + e + " %}{{ x }}"),
        st.text(max_size=8),
        st.sampled_from(["{% include note %}", "{% include 'x' %}", "{{", "%}", "{#", "{% raw %}"]),
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(expressions(), inner).map(lambda t: f"{{% for i in {t[0]} %}}{t[1]}{{% endfor %}}"),
            inner.map(lambda b: f"{{% for i in range(999) %}}{b}{{% endfor %}}"),
            inner.map(lambda b: f"{{% set x %}}{b}{{% endset %}}{{{{ x }}}}{{{{ x ~ x }}}}"),
            inner.map(lambda b: f"{{% macro m(x) %}}{b}{{% endmacro %}}{{{{ m(note) }}}}{{{{ m(m) }}}}"),
            inner.map(lambda b: f"{{% filter upper %}}{b}{{% endfilter %}}"),
            st.tuples(inner, inner).map("".join),
        ),
        max_leaves=4,
    )  # fmt: skip


@pytest.mark.fault("X3")
@settings(max_examples=120, deadline=None, derandomize=True)
@given(bodies(), st.text(max_size=30), st.none() | st.text(min_size=1, max_size=30))
def test_whatever_is_written_ends_in_a_whole_prompt_or_in_one_error(
    body: str, answer: str, note: str | None
) -> None:
    try:
        found = prompt(body, answer, note)
    except (TemplateError, DataError):
        return
    parts = fence({"question": "Why?", "answer": answer, "note": note, "contexts": ("One", "Two")})
    for name in ("question", "answer"):
        assert parts[name].fenced in found
    assert " at 0x" not in found.replace(answer, "").replace(note or "\0", "")
    assert "<class" not in found.replace(answer, "").replace(note or "\0", "")
    if note and len(note) > 12 and note in found:  # an optional field, where it is printed at all
        rest = found.replace(parts["note"].fenced, "").replace(parts["answer"].fenced, "")
        assert note not in rest


def test_the_docs_name_every_filter_and_limit() -> None:
    text = (Path(__file__).parents[1] / "docs" / "template-language.md").read_text(encoding="utf-8")
    listed = re.findall(r"`(\w+)`", text.partition("Filters: ")[2].partition("\n\n")[0])
    assert listed == sorted(n for n in Environment().filters if not n.startswith("-"))
    for limit in (MAX_FILE, MAX_YAML, MAX_SOURCE, STEPS, CHARACTERS, MAX_RANGE, MAX_ITEMS):
        assert f"{limit:,}" in text
    assert f"{MAX_DEPTH} levels" in text
    assert f"{MAX_PARTS}; named" in text
