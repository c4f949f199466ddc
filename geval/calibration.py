"""From a judge's expected score to the people's scale: a monotone map per criterion, frozen.

A template's front matter holds it, outside the fingerprint, so it costs no call to change:

    calibration:
      accuracy:
        map: {kind: affine, intercept: -0.4, slope: 1.1}
        level_prior: [0.1, 0.1, 0.2, 0.3, 0.3]
        strength: 1.0

`score` first divides the level probabilities by the prior (`geval.agreement.level_prior`), then
maps the expected value. The raw score stays beside the new one.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from geval.errors import TemplateError, nearest

if TYPE_CHECKING:
    from geval.result import Score
    from geval.template import Template

_OLD = re.compile(r"^calibration:[^\n]*\n(?:[ \t]+[^\n]*\n|\n(?=[ \t]))*", re.MULTILINE)
"""A block in front matter: its key, and the indented or blank lines below it."""

Kind = Literal["identity", "affine", "isotonic"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class MapSpec(_Part):
    """A rising map: `intercept + slope * x`, or linear between the knots `x`, `y`."""

    kind: Kind = "identity"
    intercept: float = 0.0
    slope: float = Field(default=1.0, gt=0)
    x: tuple[float, ...] = ()
    y: tuple[float, ...] = ()

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if self.kind != "isotonic":
            return self
        if len(self.x) != len(self.y) or len(self.x) < 2:
            raise ValueError("an isotonic map needs `x` and `y` of one length, at least 2")
        if any(b <= a for values in (self.x, self.y) for a, b in pairwise(values)):
            raise ValueError("the knots of an isotonic map must rise")
        return self

    def __call__(self, value: float) -> float:
        """The mapped value; beyond the knots the outer pieces go on."""
        if self.kind == "identity":
            return value
        if self.kind == "affine":
            return self.intercept + self.slope * value
        at = min(max(bisect_right(self.x, value), 1), len(self.x) - 1)
        (a, b), (c, d) = self.x[at - 1 : at + 1], self.y[at - 1 : at + 1]
        return c + (d - c) * (value - a) / (b - a)


class CalibrationSpec(_Part):
    """What is done to the scores of one criterion."""

    map: MapSpec = MapSpec()
    level_prior: tuple[float, ...] | None = None
    strength: float = Field(default=1.0, ge=0, le=1)

    @model_validator(mode="after")
    def _is_a_prior(self) -> Self:
        prior = self.level_prior
        if prior is not None and (not prior or any(p <= 0 for p in prior)):
            raise ValueError("`level_prior` needs a number above 0 for each level")
        return self


def apply(template: Template, score: Score) -> Score:
    """`score` calibrated as the template says; `raw_score` keeps what it was.

    It depends on this row alone, never on the others of its run.
    """
    spec = (template.front.calibration or {}).get(score.criterion)
    if spec is None or score.score is None:
        return score
    d = score.distribution
    value = score.score
    scale = d.scale if d else score.scale
    if spec.level_prior is not None and d is not None:
        # A panel's median is moved as far as the mean of its distribution is.
        value += _mean(corrected(d.probs, spec), d.scale.values) - d.mean
    value = spec.map(value)
    if scale is not None:
        value = min(max(value, scale.low), scale.high)
    return replace(score, score=value, raw_score=score.score)


def corrected(probs: Sequence[float], spec: CalibrationSpec) -> list[float]:
    """Level probabilities divided by the prior to the power of `strength`."""
    if spec.level_prior is None:
        return list(probs)
    if len(spec.level_prior) != len(probs):
        raise TemplateError(
            f"level_prior has {len(spec.level_prior)} numbers, the scale {len(probs)} levels"
        )
    parts = [p / q**spec.strength for p, q in zip(probs, spec.level_prior, strict=True)]
    whole = math.fsum(parts)
    return [p / whole for p in parts]


def _mean(probs: Sequence[float], values: Sequence[float]) -> float:
    return math.fsum(p * v for p, v in zip(probs, values, strict=True))


def with_file(template: Template, path: str | Path) -> Template:
    """The template with the calibration of a file that `geval calibrate --out` wrote.

    Raises TemplateError for a file that is none, or names a criterion the template lacks.
    """
    from geval.yaml import load_yaml

    path = Path(path)
    try:
        tree = load_yaml(path.read_bytes(), str(path))
    except OSError as error:
        raise TemplateError(
            f"cannot read the calibration: {error.strerror}", where=str(path)
        ) from None
    data = tree.data.get("calibration") if isinstance(tree.data, Mapping) else None
    if not isinstance(data, Mapping):
        raise TemplateError("holds no `calibration`", where=str(path))
    try:
        specs = {str(name): CalibrationSpec.model_validate(value) for name, value in data.items()}
    except ValidationError as error:
        fault = error.errors()[0]
        raise TemplateError(
            f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}", where=str(path)
        ) from None
    unknown = [name for name in specs if name not in template.front.criteria]
    if unknown:
        raise TemplateError(
            f"no criterion {unknown[0]!r}",
            where=str(path),
            hint=nearest(unknown[0], template.front.criteria),
        )
    return replace(template, front=template.front.model_copy(update={"calibration": specs}))


def block(specs: Mapping[str, CalibrationSpec]) -> str:
    """The YAML of a calibration, as it stands in front matter."""
    lines = ["calibration:"]
    for name, spec in specs.items():
        lines.append(f"  {name}:")
        lines.append(f"    map: {_flow(spec.map.model_dump(exclude_defaults=True))}")
        if spec.level_prior is not None:
            lines.append(f"    level_prior: {_flow(list(spec.level_prior))}")
            lines.append(f"    strength: {spec.strength:g}")
    return "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def write_into(path: Path, specs: Mapping[str, CalibrationSpec], fingerprint: str | None) -> None:
    """Put a calibration into a template file; everything else keeps its bytes.

    Criteria that `specs` does not name keep theirs. Raises TemplateError where the file is
    another template than the one that was scored.
    """
    from geval.runs.run import write_atomic
    from geval.template import parse, search_path, split
    from geval.yaml import decode

    try:
        content = path.read_bytes()
    except OSError as error:
        raise TemplateError(
            f"cannot read the template: {error.strerror}",
            where=str(path),
            hint="--write takes the path of a template file of yours.",
        ) from None
    template = parse(content, path, search_path([path.parent]))
    if fingerprint is not None and template.fingerprint != fingerprint:
        raise TemplateError(
            f"is not the template that was scored (fingerprint {template.fingerprint}, "
            f"the run has {fingerprint})",
            where=str(path),
            hint="Score with this file first.",
        )
    merged = {**(template.front.calibration or {}), **specs}
    text = decode(content, str(path))
    head, body, _ = split(text)
    assert head is not None
    kept = re.sub(
        r"^calibration:[^\n]*\n(?:[ \t]+[^\n]*\n|\n(?=[ \t]))*", "", head + "\n", flags=re.M
    )
    new = f"---\n{kept}{block(merged)}---\n{body}"
    parse(new.encode(), path, search_path([path.parent]))
    write_atomic(path, new)
