"""The front matter of a template file, as pydantic models: unknown keys are errors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from geval.calibration import CalibrationSpec
from geval.errors import nearest
from geval.locale import DEFAULT, Locale
from geval.reading.answer import Order
from geval.reading.wording import wording
from geval.scale import Scale, scale_from
from geval.units.parts import AGGREGATES, UnitSpec, aggregate_faults

Kind = Literal["text", "texts", "messages"]
Check = Literal["numbers"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class InputSpec(_Part):
    """One field of a sample: its type, whether a row must have it, and further column names."""

    type: Kind = "text"
    required: bool = True
    aliases: tuple[str, ...] = ()


class ScaleSpec(_Part):
    """Levels by value with anchor texts, or words with values; and a level outside the scale.

    `anchors` are texts for words of `labels`. A prompt names numbers upward and words as they are
    written; with the best word first, small judges tell levels apart better.
    """

    levels: dict[float, str | None] = Field(default_factory=dict)
    labels: dict[str, float] = Field(default_factory=dict)
    anchors: dict[str, str] = Field(default_factory=dict)
    not_applicable: str | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if bool(self.levels) == bool(self.labels):
            raise ValueError(
                "a scale has either `levels` (value: anchor) or `labels` (word: value)"
            )
        values = list(self.levels) or list(self.labels.values())
        if len(values) < 2:
            raise ValueError(f"a scale needs at least two levels, this one has {len(values)}")
        if len(set(values)) < len(values):
            raise ValueError("two levels have the same value")
        wild = [value for value in values if not abs(value) <= 1e6]
        if wild:
            raise ValueError(f"the level {wild[0]:g} is not a number between -1e6 and 1e6")
        if len(values) > 101:
            raise ValueError(f"a scale has at most 101 levels, this one has {len(values)}")
        for word in self.anchors:
            if word not in self.labels:
                raise ValueError(f"anchors: no label {word!r}. {nearest(word, self.labels)}")
        return self

    def build(self, locale: Locale) -> Scale:
        """The `Scale` in the words of `locale`."""
        values: Mapping[str, float] | Sequence[float] = self.labels or list(self.levels)
        return scale_from(
            values,
            anchors={value: text for value, text in self.levels.items() if text}
            | {self.labels[word]: text for word, text in self.anchors.items()},
            names=locale.level_names.get(len(values), ()) if self.levels else (),
            groups=locale.levels,
            not_applicable=self.not_applicable or "",
            not_applicable_spellings=locale.not_applicable,
            wording=wording(locale),
        )


class CriterionSpec(_Part):
    """One thing a template judges; `scale` and `steps` override those of the template.

    `text_from` names an input that holds the text, `anchors_from` one that holds the anchors.
    """

    text: str = ""
    text_from: str = ""
    anchors_from: str = ""
    title: str = ""
    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    steps: tuple[str, ...] = ()
    scale: ScaleSpec | None = None

    @field_validator("weight")
    @classmethod
    def _weighs_something(cls, weight: float) -> float:
        # Weights beyond these are typing errors, and their sums and shares lose all digits.
        if weight and not 1e-6 <= weight <= 1e6:
            raise ValueError(f"the weight {weight:g} is not 0 and not between 1e-6 and 1e6")
        return weight

    @field_validator("text")
    @classmethod
    def _bare(cls, text: str) -> str:
        return text.strip()

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.text and not self.text_from:
            raise ValueError("a criterion needs a text that says what is judged")
        if self.text and self.text_from:
            raise ValueError("a criterion has either `text` or `text_from`")
        return self


class OutputSpec(_Part):
    """Form of the judge's reply: where the score stands, and whether a reason is asked for.

    `score_only` asks for nothing beside the score; a reason is then asked for in a turn of its
    own, behind the score that was read. Small judges rate better when nothing else is asked.
    """

    order: Order = "score_first"
    reason: bool = True

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.order == "reason_first" and not self.reason:
            raise ValueError("`order: reason_first` needs `reason: true`")
        return self


class CapSpec(_Part):
    """Where the score of `criterion` is under `below`, the overall score is at most `max`.

    `below` and `max` are in units of that criterion's scale.
    """

    criterion: str
    below: float
    max: float


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, Mapping) else value


def _named(value: Any) -> Any:
    """`mean` and `{f_beta: {beta: 2}}` in one form: name to parameters."""
    if isinstance(value, str):
        return {value: {}}
    if isinstance(value, Mapping):
        return {name: {} if given is None else given for name, given in value.items()}
    return value


def _spelled_out(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: {"text": v} if isinstance(v, str) else v for k, v in value.items()}
    return value


def _inputs_spelled_out(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: {"type": v} if isinstance(v, str) else (v or {}) for k, v in value.items()}
    return value


_COLUMNS = {
    "id", "repeat", "overall", "status", "coverage", "capped", "error", "numbers_unmatched",
}  # fmt: skip


class FrontMatter(_Part):
    """The front matter of a template file."""

    name: str = Field(pattern=r"^[^\W\d]\w*$")
    locale: str = DEFAULT
    version: int | str = 1
    description: str = ""
    inputs: Annotated[dict[str, InputSpec], BeforeValidator(_inputs_spelled_out)]
    judged: str | None = None
    scale: ScaleSpec | None = None
    criteria: Annotated[dict[str, CriterionSpec], BeforeValidator(_spelled_out)]
    steps: tuple[str, ...] = ()
    output: OutputSpec = OutputSpec()
    units: Annotated[tuple[UnitSpec, ...], BeforeValidator(_listed)] = ()
    unit_aggregate: Annotated[dict[str, dict[str, float]] | None, BeforeValidator(_named)] = None
    aggregate: Literal["weighted_mean"] = "weighted_mean"
    cap: Annotated[tuple[CapSpec, ...], BeforeValidator(_listed)] = ()
    checks: tuple[Check, ...] = ()
    demos: tuple[dict[str, Any], ...] = ()
    calibration: dict[str, CalibrationSpec] | None = None
    optimized: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not self.criteria:
            raise ValueError("`criteria` is empty: name at least one thing to judge")
        if not self.inputs:
            raise ValueError("`inputs` is empty: name the fields of a row")
        without = [n for n, c in self.criteria.items() if c.scale is None and self.scale is None]
        if without and not self.units:  # a unit is judged by yes or no where nothing is said
            raise ValueError(f"no scale for {', '.join(without)}: give the template a `scale`")
        taken = sorted(_COLUMNS & set(self.criteria))
        if taken:
            raise ValueError(f"a criterion cannot be named {taken[0]!r}: results use the name")
        if not any(c.weight > 0 for c in self.criteria.values()):
            raise ValueError("every criterion has weight 0: the overall score would be empty")
        if self.judged is not None and self.judged not in self.inputs:
            raise ValueError(
                f"judged: unknown input {self.judged!r}. {nearest(self.judged, self.inputs)}"
            )
        for fault in self._unit_faults():
            raise ValueError(fault)
        for name, criterion in self.criteria.items():
            for key in ("text_from", "anchors_from"):
                self._guide(name, key, getattr(criterion, key))
        for name in self.calibration or {}:
            if name not in self.criteria:
                guess = nearest(name, self.criteria)
                raise ValueError(f"calibration: unknown criterion {name!r}. {guess}")
        for name, one in (self.calibration or {}).items():
            scale = self.criteria[name].scale or self.scale
            count = len(scale.levels or scale.labels) if scale else 0
            if one.level_prior is not None and len(one.level_prior) != count:
                raise ValueError(
                    f"calibration: level_prior of {name!r} has {len(one.level_prior)} numbers "
                    f"for {count} levels"
                )
        for cap in self.cap:
            if cap.criterion not in self.criteria:
                guess = nearest(cap.criterion, self.criteria)
                raise ValueError(f"cap: unknown criterion {cap.criterion!r}. {guess}")
            scale = self.criteria[cap.criterion].scale or self.scale
            values = list(scale.levels or scale.labels.values()) if scale else [0.0, 1.0]
            for name, value in (("below", cap.below), ("max", cap.max)):
                if values and not min(values) <= value <= max(values):
                    raise ValueError(
                        f"cap: {name} is {value:g}, outside the scale of {cap.criterion!r} "
                        f"({min(values):g} to {max(values):g})"
                    )
        return self

    def _unit_faults(self) -> Iterator[str]:
        """What is wrong with `units` and `unit_aggregate`."""
        if not self.units:
            if self.unit_aggregate is not None:
                yield "`unit_aggregate` needs `units`: say what the units are"
            return
        if self.unit_aggregate is not None and len(self.unit_aggregate) != 1:
            yield "`unit_aggregate` names one aggregate, such as mean or {f_beta: {beta: 2}}"
            return
        for spec in self.units:
            for key, name in (("of", spec.of), ("against", spec.against)):
                if name not in self.inputs:
                    yield f"units: {key}: unknown input {name!r}. {nearest(name, self.inputs)}"
                elif not self.inputs[name].required:
                    yield f"units: {key}: the input {name!r} must be required"
                elif self.inputs[name].type == "messages":
                    yield f"units: {key}: the input {name!r} holds messages; take text or texts"
        yield from aggregate_faults(self.units, self.aggregate_name, self.aggregate_parameters)

    def shown_as_units(self, body: Collection[str]) -> frozenset[str]:
        """The fields that a body with these names prints without naming them.

        The frame prints units; `against` is whatever field they are held against.
        """
        shown = {spec.of for spec in self.units}
        if "against" in body:
            shown |= {spec.against for spec in self.units}
        return frozenset(shown)

    @property
    def aggregate_name(self) -> str:
        """How units become the score of a criterion; `mean` where nothing is said."""
        return next(iter(self.unit_aggregate or {}), "mean")

    @property
    def aggregate_parameters(self) -> dict[str, float]:
        """Parameters of the aggregate, by name."""
        return (self.unit_aggregate or {}).get(self.aggregate_name, {})

    @property
    def unit_sets(self) -> tuple[UnitSpec, ...]:
        """The sets of units that the aggregate reads: of two, `precision` reads the first alone."""
        return tuple(self.units[i] for i in AGGREGATES[self.aggregate_name].reads(len(self.units)))

    def _guide(self, criterion: str, key: str, source: str) -> None:
        """An input that guides the judge is a text, and is not what is judged."""
        if not source:
            return
        if source not in self.inputs:
            guess = nearest(source, self.inputs)
            raise ValueError(f"{criterion}: {key}: unknown input {source!r}. {guess}")
        if self.inputs[source].type != "text" or source == self.judged:
            raise ValueError(f"{criterion}: {key}: {source!r} must be a text that is not judged")
