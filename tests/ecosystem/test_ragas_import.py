"""The user's own ragas (0.4 or newer): every metric that asks a judge becomes a template."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from geval.authoring.importing import convert, load, write
from geval.errors import ConfigError
from geval.lint.check import lint_file


@pytest.fixture(autouse=True)
def _ragas() -> None:
    try:
        importlib.import_module("ragas.metrics.collections")
    except Exception as error:
        pytest.skip(f"ragas cannot be imported: {error}")


@pytest.mark.parametrize(
    "metric",
    ["faithfulness", "AnswerRelevancy", "context_recall", "context_precision", "factual_correctness",
     "sql_semantic_equivalence", "topic_adherence"],
)  # fmt: skip
def test_an_installed_metric_becomes_a_template(tmp_path: Path, metric: str) -> None:
    template, lost = convert(load(f"ragas:{metric}"))
    path = write(template, lost, tmp_path)
    assert [f for f in lint_file(path) if f.severity == "error"] == []
    assert len(template.criteria[0].text) > 50


def test_an_unknown_metric_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'faithfulness'"):
        load("ragas:faithfullness")
