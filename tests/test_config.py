"""geval.toml: where it is found, what it may say, how a judge's name is resolved."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geval.config import RUN_OPTIONS, Config, find_config, load_config, read_config, resolve_judge
from geval.errors import ConfigError
from geval.judges.base import JUDGES
from geval.toml_lines import key_lines

GOOD = """
[judges.mini]
spec = "openai:gpt-x"
base_url = "https://host.example/v1"
api_key_env = "MY_KEY"
method = "logprobs"
concurrency = 4
rpm = 60
tpm = 100_000
timeout = 30
temperature = 0
seed = 7
reasoning = "low"
extra = { service_tier = "flex" }

[judges.local]
spec = "local:weights/m.gguf"

[prices."host.example".gpt-x]
input = 1
output = 2
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "a" / "b").mkdir(parents=True)
    return tmp_path


def write(folder: Path, text: str = GOOD, name: str = "geval.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def faults(folder: Path, text: str, name: str = "geval.toml") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_config(write(folder, text, name))
    assert str(folder / name) in str(caught.value)
    return list(caught.value.faults)


# Where it is


def test_the_nearest_file_up_to_the_root_of_the_repository_counts(repository: Path) -> None:
    below = repository / "a" / "b"
    assert find_config(below) is None
    project = write(repository, '[tool.geval.judges.x]\nspec = "local"\n', "pyproject.toml")
    assert find_config(below) == project
    own = write(repository)
    assert find_config(below) == own
    nearer = write(repository / "a", "[tool.other]\n", "pyproject.toml")
    assert find_config(below) == own
    nearer.write_text("[tool.geval]\n", encoding="utf-8")
    assert find_config(below) == nearer
    assert load_config(below).judges == {}


def test_nothing_above_the_repository_or_the_home_folder_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    inner = tmp_path / "home" / "work"
    inner.mkdir(parents=True)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "elsewhere")
    assert find_config(inner) is None
    assert find_config(tmp_path) == tmp_path / "geval.toml"
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert find_config(inner) is None
    home = write(tmp_path / "home")
    assert find_config(inner) == home
    (inner / ".git").touch()  # a worktree has a file there
    assert find_config(inner) is None


def test_a_broken_pyproject_that_is_not_about_geval_is_no_matter(repository: Path) -> None:
    project = write(repository, "[tool.other\n", "pyproject.toml")
    assert find_config(repository) is None
    project.write_text("[tool.geval\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="line 1"):
        find_config(repository)


def test_without_a_file_everything_is_empty(repository: Path) -> None:
    assert load_config(repository) == Config()


# What it says


def test_a_good_file(tmp_path: Path) -> None:
    config = read_config(write(tmp_path, "\ufeff" + GOOD))
    mini = config.judges["mini"]
    assert mini.spec == "openai:gpt-x"
    assert mini.options() == {
        "base_url": "https://host.example/v1", "api_key_env": "MY_KEY", "method": "logprobs",
        "concurrency": 4, "rpm": 60, "tpm": 100_000, "timeout": 30.0, "temperature": 0.0,
        "seed": 7, "reasoning": "low", "extra": {"service_tier": "flex"},
    }  # fmt: skip
    assert set(RUN_OPTIONS) < set(mini.options())
    assert config.prices == {"host.example": {"gpt-x": {"input": 1, "output": 2}}}


def test_every_fault_is_told_with_its_line_and_the_nearest_name(tmp_path: Path) -> None:
    told = faults(
        tmp_path,
        """[judge.mini]
spec = "local"
[judges.a]
spec = "opena:gpt-x"
concurency = 4
timeout = "soon"
[judges."b c"]
spec = "local"
method = "logprob"
[judges.c]
rpm = 0
[prices.host.m]
inputs = 1
output = 1
""",
    )
    expected = {
        "geval.toml:1: unknown key 'judge'. Did you mean 'judges'?",
        "geval.toml:4: judges.a.spec: unknown judge 'opena'. Did you mean 'openai'?",
        "geval.toml:5: judges.a: unknown key 'concurency'. Did you mean 'concurrency'?",
        "geval.toml:6: judges.a.timeout: Input should be a valid number",
        "geval.toml:7: 'b c' is no name for a judge",
        "geval.toml:9: judges.b c.method: unknown method. Did you mean 'logprobs'?",
        "geval.toml:10: judges.c: spec is missing",
        "geval.toml:11: judges.c.rpm: Input should be greater than or equal to 1",
        "geval.toml:12: prices.host.m.input: Field required",
        "geval.toml:13: prices.host.m.inputs: unknown key. Did you mean 'input'?",
    }
    assert {start for start in expected for text in told if text.startswith(start)} == expected
    assert len(told) == len(expected)


def test_faults_of_a_pyproject_stand_at_their_line(tmp_path: Path) -> None:
    text = '[project]\nname = "x"\n\n[tool.geval.judges]\na.spec = "local"\na.rpn = 1\n'
    (told,) = faults(tmp_path, text, "pyproject.toml")
    assert told.startswith("pyproject.toml:6: judges.a: unknown key 'rpn'. Did you mean 'rpm'?")


@pytest.mark.parametrize(
    "text",
    [
        "judges = 1\n",
        "[judges]\na = 1\n",
        "[[judges]]\na = 1\n",
        "prices = []\n",
        "[prices]\na = 1\n",
    ],
)
def test_what_is_no_table_is_told(tmp_path: Path, text: str) -> None:
    assert len(faults(tmp_path, text)) == 1
    project = text.replace("[judges", "[tool.geval.judges").replace("[prices", "[tool.geval.prices")
    if project != text and not text.startswith("[["):
        assert len(faults(tmp_path, project, "pyproject.toml")) == 1
    assert len(faults(tmp_path, "[tool]\ngeval = 1\n", "pyproject.toml")) == 1


def test_broken_toml_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="line 2"):
        read_config(write(tmp_path, "[judges]\na b\n"))


SECRET = "sk-abcdefghijklmnop"  # no key of anybody


@pytest.mark.fault("X7")
@pytest.mark.parametrize(
    "line",
    [
        f'api_key = "{SECRET}"',
        f'API-Key = "{SECRET}"',
        f'openai_api_key = "{SECRET}"',
        f'token = "{SECRET}"',
        f'api_key_env = "{SECRET}"',
        'api_key_env = "sk_abcdefghijklmnop"',
        f'extra = {{ api_key = "{SECRET}" }}',
    ],
)
def test_a_key_in_the_file_is_refused_and_never_shown(tmp_path: Path, line: str) -> None:
    (told,) = faults(tmp_path, f'[judges.a]\nspec = "openai:m"\n{line}\n')
    assert told.startswith("geval.toml:3: ")
    assert "environment variable" in told
    assert "abcdefgh" not in told


# Names


def test_a_name_of_the_configuration(tmp_path: Path) -> None:
    config = read_config(write(tmp_path))
    for spec in ("mini", "@mini", " mini "):
        resolved = resolve_judge(spec, {"concurrency": 9, "method": None}, config)
        assert resolved.spec == "openai:gpt-x"
        assert resolved.options["concurrency"] == 9
        assert resolved.options["method"] == "logprobs"
        assert resolved.options["temperature"] == 0.0


def test_a_built_in_name_wins_and_the_configured_one_is_reached_by_a_sign(tmp_path: Path) -> None:
    config = read_config(write(tmp_path))
    assert resolve_judge("local", {}, config) == ("local", {})
    assert resolve_judge("@local", {}, config) == ("local:weights/m.gguf", {})
    assert resolve_judge("openai:mini", {"base_url": "http://h/v1"}, config) == (
        "openai:mini", {"base_url": "http://h/v1"},
    )  # fmt: skip


def test_a_file_named_in_the_configuration_stands_beside_it(tmp_path: Path) -> None:
    config = read_config(write(tmp_path))
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "m.gguf").touch()
    assert resolve_judge("@local", {}, config).spec == f"local:{tmp_path / 'weights' / 'm.gguf'}"


def test_the_configuration_of_the_working_folder_is_taken(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(repository)
    monkeypatch.chdir(repository / "a")
    assert resolve_judge("mini").spec == "openai:gpt-x"
    write(repository, "[judges.broken]\n")
    for name in JUDGES:  # a built-in judge needs no configuration
        assert resolve_judge(name).spec == name


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("mimi", "Did you mean 'mini'?"),
        ("opnai:gpt-x", "Did you mean 'openai'?"),
        ("@mimi", "Did you mean '@mini'? Known: @local, @mini."),
        ("mini:x", "Did you mean 'mini'?"),
        ("@", "Known: @local, @mini."),
        ("", "Known: "),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest(tmp_path: Path, spec: str, hint: str) -> None:
    with pytest.raises(ConfigError, match="unknown judge") as caught:
        resolve_judge(spec, {}, read_config(write(tmp_path)))
    assert hint in str(caught.value)


@pytest.mark.fault("X7")
def test_a_configured_key_goes_to_no_other_host(tmp_path: Path) -> None:
    config = read_config(write(tmp_path))
    for url in ("https://other.example/v1", "http://host.example/v1", "https://host.example:1/v1"):
        with pytest.raises(ConfigError, match="belongs to another host"):
            resolve_judge("mini", {"base_url": url}, config)
        named = resolve_judge("mini", {"base_url": url, "api_key_env": "OTHER"}, config)
        assert named.options["api_key_env"] == "OTHER"
    same = resolve_judge("mini", {"base_url": "https://HOST.example/v2"}, config)
    assert same.options["base_url"] == "https://HOST.example/v2"


# Lines


def test_lines_of_keys() -> None:
    text = '''a = 1
[b]  # c
"x.y".z = 2
text = """
[no]
no = 1
"""
 [ b . 'c' ]
d = { e = 1 }
[[list]]
k = 1
[[list]]
k = 2
'''
    assert key_lines(text) == {
        ("a",): 1, ("b",): 2, ("b", "x.y"): 3, ("b", "x.y", "z"): 3, ("b", "text"): 4,
        ("b", "c"): 8, ("b", "c", "d"): 9, ("list",): 10, ("list", "k"): 11,
    }  # fmt: skip


@given(st.text())
def test_lines_of_any_text_can_be_asked_for(text: str) -> None:
    count = text.count("\n") + 1
    assert all(1 <= line <= count for line in key_lines(text).values())


@pytest.mark.fault("X7")
def test_a_key_nested_in_extra_is_refused_and_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "geval.toml"
    path.write_text(
        '[judges.a]\nspec = "openai:m"\n[judges.a.extra.headers]\nAuthorization = "Bearer s3cret"\n'
        '[judges.b]\nspec = "openai:m"\n[[judges.b.extra.tools]]\napi-key = "s3cret"\n',
        encoding="utf-8",
    )
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    told = str(caught.value)
    assert "Authorization" in told
    assert "api-key" in told
    assert "s3cret" not in told
