"""Templates built in code, rendered for a plain dict, saved and loaded again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geval import DataError, Template, TemplateError
from geval.front import FrontMatter
from geval.template import available, search_path

FILE = """---
# what this template is for
name: polite   # the file is called so
locale: ko
inputs:
  question: {type: text}
  answer: {type: text}
criteria:
  # the only one
  tone:
    text: 공손한가?   # 존댓말
    weight: 2
scale:
  levels: {1: 무례, 2: 공손}   # two levels
---
{% extends "_geval.jinja" %}
{% block sample %}
질문: {{ question }}
답변: {{ answer }}
{% endblock %}
"""


def built(**front: Any) -> Template:
    given = {
        "name": "polite",
        "inputs": ["question", "answer"],
        "criteria": {"tone": "Is it polite?"},
        "scale": {1: "rude", 2: "plain", 3: "polite"},
        **front,
    }
    return Template.build(**given)


def test_a_template_built_in_code_prints_every_input() -> None:
    template = built(
        inputs={"history": "messages", "contexts": "texts", "note": {"required": False}}
    )
    row = {
        "history": [{"role": "user", "content": "안녕"}, {"role": "assistant", "content": "네"}],
        "contexts": ["C1", "C2"],
    }
    text = template.render(row)[0]["content"]
    assert "User: 안녕\nAssistant: 네[/" in text
    assert text.index("C1") < text.index("C2") < text.index("Is it polite?") < text.index("polite")
    assert "\\u" not in text
    assert "Note" in template.render({**row, "note": "Note"})[0]["content"]


@pytest.mark.fault("P12")
def test_a_plain_dict_is_read_like_a_row_of_data() -> None:
    template = built(
        locale="ko", inputs={"question": "text", "answer": "text", "history": "messages"}
    )
    row = {
        "질문": "Q?",
        "모델답변": {"값": [1, "둘"]},
        "history": '[{"role": "user", "content": "안녕"}]',
    }
    text = template.render(row)[0]["content"]
    assert '{"값": [1, "둘"]}' in text
    assert "사용자: 안녕" in text
    with pytest.raises(DataError, match="answer"):
        template.render({"질문": "Q?", "history": "x"})


@pytest.mark.parametrize(
    ("front", "said"),
    [
        ({"inputs": ["question"], "body": "{{ anser }}"}, "neither the criterion"),
        ({"body": '{% extends "_geval.jinja" %}{% block sample %}{{ anser }}{% endblock %}'}, "Did you mean 'answer'"),
        ({"criteria": {}}, "`criteria` is empty"),
        ({"scale": [1]}, "at least two levels"),
        ({"colour": 1}, "unknown key 'colour'"),
        ({"locale": "xx"}, "unknown locale"),
        ({"criteria": {"tone": "a\ud800"}}, "half a character"),
        ({"name": "a/b"}, "name"),
        ({"demos": [{"question": "q", "answer": "a", "scores": {"tone": 9}}]}, "not on the scale"),
    ],
)  # fmt: skip
def test_faults_of_a_template_in_code_are_told(front: dict[str, Any], said: str) -> None:
    with pytest.raises(TemplateError, match=said):
        built(**front)


def test_comments_survive_saving_unchanged_and_changed(tmp_path: Path) -> None:
    path = tmp_path / "polite.ko.jinja"
    path.write_text(FILE, encoding="utf-8")
    template = Template.load(path)
    assert template.save(tmp_path / "copy.ko.jinja").read_text(encoding="utf-8") == FILE
    front = template.front.model_dump(exclude_defaults=True)
    front["criteria"]["tone"]["weight"] = 3
    front["demos"] = [{"question": "Q", "answer": "A", "scores": {"tone": 2}}]
    changed = Template(
        FrontMatter.model_validate(front),
        template.body,
        folders=template.folders,
        head=template.head,
    )
    text = changed.save(path, overwrite=True).read_text(encoding="utf-8")
    for comment in ("# what this", "# the file", "# the only one", "# 존댓말", "# two levels"):
        assert comment in text
    loaded = Template.load(path)
    assert loaded.fingerprint == changed.fingerprint != template.fingerprint
    assert loaded.front == changed.front


def test_a_file_is_replaced_only_when_told_and_never_half(tmp_path: Path) -> None:
    path = built().save(tmp_path / "polite.en.jinja")
    before = path.read_bytes()
    other = built(scale={0: "no", 1: "yes"})
    with pytest.raises(TemplateError, match="there already"):
        other.save(path)
    assert path.read_bytes() == before
    other.save(path, overwrite=True)
    assert Template.load(path).fingerprint == other.fingerprint
    with pytest.raises(TemplateError, match="cannot be written"):
        other.save(tmp_path / "no" / "folder.en.jinja")
    assert [p.name for p in tmp_path.iterdir()] == ["polite.en.jinja"]


def test_a_template_whose_part_stays_behind_is_not_saved(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "part.jinja").write_text("one")
    body = '{% extends "_geval.jinja" %}{% block sample %}{% include "part.jinja" %}{{ question }}{{ answer }}{% endblock %}'
    template = built(body=body, folders=[tmp_path / "a"])
    assert "one" in template.render({"question": "q", "answer": "a"})[0]["content"]
    with pytest.raises(TemplateError, match=r"'part\.jinja' is not on the search path"):
        template.save(tmp_path / "b" / "polite.en.jinja")
    (tmp_path / "b" / "part.jinja").write_text("another")
    with pytest.raises(TemplateError, match="another one when it is loaded"):
        template.save(tmp_path / "b" / "polite.en.jinja")
    assert Template.load(template.save(tmp_path / "a" / "polite.en.jinja")) is not None


ODD = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30),
    st.sampled_from(["yes", "no", "null", "~", "1", "1e5", "0x1", "예", "아니요", "---", "a: b", "# x", "- x", "{a}", "'", '"', " x ", "a\n---\nb", "\t", "é\u0301", "\u2028", "\x85", "&a", "*a", "!x", "%x", "@", "`", "<<", "점수: 5\n"]),
).filter(str.strip)  # fmt: skip
NAME = st.from_regex(r"\A[a-z가-힣][a-z0-9_가-힣]{0,8}\Z").filter(lambda n: n not in ("coverage",))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    name=NAME,
    criteria=st.dictionaries(ODD, st.tuples(ODD, st.lists(ODD, max_size=2), ODD), min_size=1, max_size=2),
    anchors=st.lists(ODD | st.none(), min_size=2, max_size=4),
    demo=ODD,
    text=st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="{}#%"), max_size=20),
)  # fmt: skip
def test_what_is_saved_loads_as_the_same_template(
    tmp_path_factory: pytest.TempPathFactory, name: str, criteria: Any, anchors: Any, demo: str, text: str
) -> None:  # fmt: skip
    taken = {"id", "repeat", "overall", "status", "coverage", "capped", "error"}
    specs = {
        key: {"text": said, "steps": steps, "title": title}
        for key, (said, steps, title) in criteria.items()
        if key not in taken
    }
    if not specs:
        return
    body = (
        '{% extends "_geval.jinja" %}\n{% block sample %}\n'
        + text
        + "\r\n---\n{{ question }}{{ answer }}{% endblock %}"
    )
    template = built(
        name=name,
        criteria=specs,
        scale=dict(enumerate(anchors, 1)),
        body=body,
        description=demo,
        demos=[{"question": demo, "answer": "a", "scores": {next(iter(specs)): 1}}],
    )
    path = template.save(tmp_path_factory.mktemp("saved") / "x.en.jinja")
    loaded = Template.load(path)
    assert loaded.fingerprint == template.fingerprint
    assert loaded.front == template.front
    assert "\\u" not in path.read_text(encoding="utf-8") or "\\u" in text + demo + repr(criteria)


def test_every_shipped_template_can_be_saved_from_its_parts(tmp_path: Path) -> None:
    for name, locales in available(search_path()).items():
        for locale in locales:
            template = Template.load(name, locale)
            path = replace(template, head=None).save(tmp_path / f"{name}.{locale}.jinja")
            loaded = Template.load(path)
            assert (loaded.front, loaded.fingerprint) == (template.front, template.fingerprint)
