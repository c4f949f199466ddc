"""Writing templates: new, diff, list, steps, import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_cli import geval

from geval.authoring.diff import diff
from geval.authoring.draft import Plan, new
from geval.authoring.importing import convert, load, write
from geval.errors import ConfigError, TemplateError, UsageError
from geval.lint.check import lint_file
from geval.template import Template


@pytest.mark.parametrize("locale", ["en", "ko"])
@pytest.mark.parametrize("levels", ["1-5", "yes-no", "0,1,2", "나쁨,보통,좋음"])
def test_a_starter_lints_clean_and_renders_its_examples(
    tmp_path: Path, locale: str, levels: str
) -> None:
    plan = Plan("mine", locale, "response", ["question", "contexts", "history"], levels)
    path, examples = new(plan, tmp_path / "templates")
    assert [f for f in lint_file(path, hints=True) if f.severity != "info"] == []
    template = Template.load(path)
    assert template.judged == "response"
    row = json.loads(examples.read_text(encoding="utf-8").splitlines()[0])
    assert row["response"] in template.render(row)[0]["content"]


@pytest.mark.parametrize(("source", "locale"), [("en", "ko"), ("ko", "en")])
def test_a_skeleton_has_the_source_in_comments_and_the_same_shape(
    tmp_path: Path, source: str, locale: str
) -> None:
    original = Template.load("finance_qa", source)
    path, _ = new(Plan("finance_qa", locale), tmp_path, original)
    assert [f.message for f in lint_file(path, hints=True)] == []
    text = path.read_text(encoding="utf-8")
    for criterion in original.criteria:
        (line,) = [n for n in text.split("\n") if " ".join(criterion.text.split()) in n]
        assert line.lstrip().startswith("#")
    made = Template.load(path)
    for one, other in zip(made.criteria, original.criteria, strict=True):
        assert (one.name, one.weight, one.scale.values) == (
            other.name,
            other.weight,
            other.scale.values,
        )
    assert made.front.cap == original.front.cap
    assert made.front.inputs.keys() == original.front.inputs.keys()


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "mine.ko.examples.jsonl").write_text("mine", encoding="utf-8")
    with pytest.raises(TemplateError, match="stays as it is"):
        new(Plan("mine", "ko"), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.ko.examples.jsonl"]
    for plan in (
        Plan("my name"),
        Plan("x", levels="5"),
        Plan("x", inputs=["a b"]),
        Plan("x", "xx"),
    ):
        with pytest.raises(UsageError):
            new(plan, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.ko.examples.jsonl"]


def test_new_from_the_command_line(tmp_path: Path) -> None:
    done = geval("template", "new", "mine", cwd=tmp_path, stdin="")
    assert done.returncode == 0, done.stderr
    assert "defaults" in done.stderr
    assert (tmp_path / "templates" / "mine.en.jinja").is_file()
    again = geval("template", "new", "mine", cwd=tmp_path, stdin="")
    assert (again.returncode, "stays as it is" in again.stderr) == (2, True)
    far = geval("template", "new", "x", "--from", "finance", cwd=tmp_path)
    assert (far.returncode, "finance_qa" in far.stderr) == (2, True)
    listed = geval("template", "list", "--json", cwd=tmp_path)
    rows = {row["name"]: row for row in json.loads(listed.stdout)}
    assert rows["mine"]["inputs"] == ["question", "answer"]
    assert rows["finance_qa"]["from"] == "geval"
    assert geval("template", "lint", cwd=tmp_path).returncode == 0


def test_diff_tells_paths_body_and_fingerprints(tmp_path: Path) -> None:
    path, _ = new(Plan("mine"), tmp_path)
    text = path.read_text(encoding="utf-8")
    other = tmp_path / "other.en.jinja"
    other.write_text(text.replace("version: 1", "version: 2"), encoding="utf-8")
    one, two = Template.load(path), Template.load(other)
    assert diff(one, one) == []
    assert diff(one, two) == ["+ version: 2"]
    other.write_text(
        text.replace("answers about half", "half").replace("question') }}", "question') }}!"),
        encoding="utf-8",
    )
    lines = diff(one, Template.load(other))
    assert "scale.levels.3.0: 'answers about half' -> 'half'" in lines
    assert any(line.startswith("+") and "!" in line for line in lines)
    done = geval("template", "diff", path, other, cwd=tmp_path)
    assert (done.returncode, "different fingerprints" in done.stderr) == (0, True)
    assert "\x1b" not in done.stdout


STEPS_EN = "Here they are:\n1. Read what was asked.\n2. Read the answer.\n3. Compare the two.\n"
STEPS_KO = "1. 요구한 것을 확인한다.\n2. 답변을 읽는다.\n3. 둘을 대조한다.\n"


def recorded(folder: Path, text: str) -> str:
    record = {"id": "mine", "criterion": "quality", "purpose": "steps", "responses": [text, text]}
    line = json.dumps(record, ensure_ascii=False)
    (folder / "steps.jsonl").write_text(line + "\n", encoding="utf-8")
    return "replay:steps.jsonl"


@pytest.mark.parametrize(("locale", "reply"), [("en", STEPS_EN), ("ko", STEPS_KO)])
def test_steps_are_drafted_into_the_file_and_nothing_else_changes(
    tmp_path: Path, locale: str, reply: str
) -> None:
    path, _ = new(Plan("mine", locale), tmp_path / "templates")
    before = Template.load(path)
    judge = recorded(tmp_path, reply)
    done = geval("template", "steps", "mine", "-j", judge, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    after = Template.load(path)
    assert len(after.criteria[0].steps) == 3
    assert after.body == before.body
    comments = [n for n in (before.head or "").split("\n") if n.startswith("#")]
    assert all(line in (after.head or "") for line in comments)
    plain = after.front.model_copy(
        update={
            "criteria": {
                k: c.model_copy(update={"steps": ()}) for k, c in after.front.criteria.items()
            }
        }
    )
    assert plain == before.front
    content = path.read_bytes()
    again = geval("template", "steps", "mine", "-j", judge, cwd=tmp_path)
    assert (again.returncode, "--force" in again.stderr) == (2, True)
    assert path.read_bytes() == content
    forced = geval("template", "steps", "mine", "-j", judge, "--force", cwd=tmp_path)
    assert forced.returncode == 0, forced.stderr


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("1. One.\n2. Two.", "2 steps"),
        ("1. Look at {{ answer }}.\n2. Read on.\n3. Decide now.", "Jinja"),
        (STEPS_KO, "language"),
        ("1. " + "x" * 400 + "\n2. Read on.\n3. Decide.", "403 characters"),
    ],
)
def test_a_draft_that_cannot_be_used_leaves_the_file_alone(
    tmp_path: Path, reply: str, said: str
) -> None:
    path, _ = new(Plan("mine"), tmp_path / "templates")
    content = path.read_bytes()
    done = geval("template", "steps", "mine", "-j", recorded(tmp_path, reply), cwd=tmp_path)
    assert done.returncode == 2
    assert said.replace("403", "400") in done.stderr
    assert path.read_bytes() == content


RAGAS = {
    "ragas_version": "0.4.3",
    "language": "english",
    "instruction": "Decide whether the claim follows from the context. Answer in JSON.",
    "examples": [
        {"input": {"context": "Ida was born in Graz.", "claim": "Ida is from Graz."}, "output": {"verdict": 1}},
        {"input": {"context": "Ida was born in Graz.", "claim": "Ida is 40."}, "output": {"verdict": 0}},
        {"input": {"context": "Rain fell.", "claim": ""}, "output": {"verdict": 0}},
    ],
}  # fmt: skip
HAYSTACK = [
    {"inputs": {"responses": "이다는 그라츠에서 태어났다."}, "outputs": {"score": 1}},
    {"inputs": {"responses": "모른다."}, "outputs": {"score": 0}},
]


def test_a_saved_ragas_prompt_becomes_a_template(tmp_path: Path) -> None:
    (tmp_path / "claim check.json").write_text(json.dumps(RAGAS), encoding="utf-8")
    done = geval("template", "import", "claim check.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    path = tmp_path / "templates" / "claim_check.en.jinja"
    template = Template.load(path)
    assert template.criteria[0].text == RAGAS["instruction"]
    assert template.criteria[0].scale.allowed == ("no", "yes")
    assert [demo["scores"]["quality"] for demo in template.front.demos] == [1, 0]
    text = path.read_text(encoding="utf-8")
    assert "# not carried over: example 3: it lacks a field" in text
    assert "example 3" in done.stderr
    assert "Ida is from Graz." in template.render({"context": "x", "claim": "y"})[0]["content"]
    assert [f for f in lint_file(path) if f.severity == "error"] == []
    again = geval("template", "import", "claim check.json", cwd=tmp_path)
    assert (again.returncode, "stays as it is" in again.stderr) == (2, True)


def test_haystack_examples_become_demos_in_their_language(tmp_path: Path) -> None:
    (tmp_path / "h.json").write_text(json.dumps(HAYSTACK), encoding="utf-8")
    done = geval("template", "import", "h.json", "--name", "origin", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    template = Template.load(tmp_path / "templates" / "origin.ko.jinja")
    assert template.criteria[0].scale.allowed == ("아니요", "예")
    assert "그라츠" in template.render({"responses": "x"})[0]["content"]
    assert "instruction" in done.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON"),
        ("{}", "neither"),
        ('[{"inputs": 1}]', "example 1"),
        ("[]", "no input fields"),
    ],
)
def test_a_file_that_is_neither_is_refused(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "x.json").write_text(content, encoding="utf-8")
    done = geval("template", "import", "x.json", cwd=tmp_path)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "templates").exists()


def fake_ragas(folder: Path) -> None:
    """A package laid out as ragas 0.4 is: a metric's class and its prompts in one folder each."""
    files = {
        "ragas/__init__.py": "__version__ = '0.4.9'",
        "ragas/prompt/metrics/base_prompt.py": "class BasePrompt:\n    instruction: str\n",
        "ragas/metrics/collections/__init__.py": (
            "from ragas.metrics.collections.base import BaseMetric\n"
            "from ragas.metrics.collections.claim_check import ClaimCheck\n"
        ),
        "ragas/metrics/collections/base.py": "class BaseMetric: pass",
        "ragas/metrics/collections/claim_check/__init__.py": "from .metric import ClaimCheck",
        "ragas/metrics/collections/claim_check/metric.py": (
            "from ragas.metrics.collections.base import BaseMetric\n"
            "from .util import CheckPrompt, SplitPrompt\n"
            "class ClaimCheck(BaseMetric): pass\n"
        ),
        "ragas/metrics/collections/claim_check/util.py": """
from pydantic import BaseModel
from ragas.prompt.metrics.base_prompt import BasePrompt
class Text(BaseModel):
    answer: str
class Claims(BaseModel):
    claims: list[str]
class SplitPrompt(BasePrompt):
    input_model, output_model = Text, Claims
    instruction = "Take the text apart."
    examples = [(Text(answer="a"), Claims(claims=["a"]))]
class Given(BaseModel):
    context: str
    statements: list[str]
class One(BaseModel):
    statement: str
    verdict: int
class Verdicts(BaseModel):
    statements: list[One]
class CheckPrompt(BasePrompt):
    input_model, output_model = Given, Verdicts
    instruction = "Decide whether each statement follows from the context."
    examples = [(
        Given(context="Rain fell.", statements=["It was wet.", "Snow fell."]),
        Verdicts(statements=[One(statement="It was wet.", verdict=1),
                             One(statement="Snow fell.", verdict=0)]),
    )]
""",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in list(folder.rglob("*.py")):
        for parent in path.parents:
            if parent == folder:
                break
            (parent / "__init__.py").touch()


def test_an_installed_ragas_metric_becomes_a_template_that_judges_one_claim_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ragas(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    for name in [n for n in sys.modules if n.split(".")[0] == "ragas"]:
        monkeypatch.delitem(sys.modules, name)
    try:
        template, lost = convert(load("ragas:claim_check"))
        with pytest.raises(ConfigError, match="claim_chekc") as error:
            load("ragas:claim_chekc")
    finally:
        for name in [n for n in sys.modules if n.split(".")[0] == "ragas"]:
            del sys.modules[name]
    assert "claim_check" in str(error.value)
    assert template.front.description == "from ragas 0.4.9, CheckPrompt"
    assert template.judged == "statements"
    assert {n: s.type for n, s in template.front.inputs.items()} == {
        "context": "text",
        "statements": "text",
    }
    shown = [(d["statements"], d["scores"]["quality"]) for d in template.front.demos]
    assert shown == [("It was wet.", 1), ("Snow fell.", 0)]
    assert [text for text in lost if "SplitPrompt" in text] == lost
    assert lint_file(write(template, lost, tmp_path)) == []


def test_new_asks_on_a_terminal_and_takes_defaults(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "geval", "template", "new", "mine"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        os.write(ours, "ko\n\n질문\nyes-no\n\n".encode())
        _, told = process.communicate(timeout=120)
    os.close(theirs)
    os.close(ours)
    assert process.returncode == 0, told.decode()
    template = Template.load(tmp_path / "templates" / "mine.ko.jinja")
    assert list(template.front.inputs) == ["질문", Plan("mine").judged]
    assert template.criteria[0].scale.allowed == ("아니요", "예")
    assert b"Enter takes" in told
