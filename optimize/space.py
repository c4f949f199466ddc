"""What may be changed in a template: named choices, and the candidate that a set of them makes.

A choice is data put into a slot of the front matter. The body, the inputs, the locale and the
levels are never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from geval.front import CriterionSpec, FrontMatter, OutputSpec, ScaleSpec
from geval.stats import numpy
from geval.template import Template

from .labelled import Labelled

OWN = "own"
"""The choice that leaves the template as it is."""

Params = Mapping[str, str]
Change = Callable[[FrontMatter], FrontMatter]


@dataclass(frozen=True)
class Space:
    """Dimension -> choice -> what it changes, the template's own choice first."""

    seed: Template
    choices: Mapping[str, Mapping[str, Change]]

    @property
    def size(self) -> int:
        """How many candidates there are."""
        count = 1
        for options in self.choices.values():
            count *= len(options)
        return count

    @property
    def own(self) -> dict[str, str]:
        """The choices that make the seed."""
        return dict.fromkeys(self.choices, OWN)

    def apply(self, params: Params) -> Template:
        """The candidate. Raises ValueError where the choices do not go together."""
        front = self.seed.front
        for dimension, choice in params.items():
            if choice != OWN:
                front = self.choices[dimension][choice](front)
        if front == self.seed.front:
            return self.seed
        return replace(self.seed, front=FrontMatter.model_validate(front.model_dump()))

    def grown(self, dimension: str, options: Mapping[str, Change]) -> Space:
        """The space with more choices in one dimension."""
        held = {OWN: _unchanged, **self.choices.get(dimension, {})}
        return replace(self, choices={**self.choices, dimension: {**held, **options}})


def _unchanged(front: FrontMatter) -> FrontMatter:
    return front


def structural(
    template: Template, criteria: Sequence[str], orders: Sequence[str], demos: Mapping[str, Change]
) -> Space:
    """Choices that need nobody to write: order of score and reason, levels' wording, demos."""
    choices: dict[str, dict[str, Change]] = {}

    def add(dimension: str, name: str, change: Change) -> None:
        choices.setdefault(dimension, {OWN: _unchanged})[name] = change

    own = template.front.output
    for order in orders:
        if order != own.order:
            add("order", order, _order(order))
    for name in criteria:
        spec = template.front.criteria[name]
        if (spec.steps or template.front.steps) and not spec.text_from:
            add(f"steps:{name}", "none", set_steps(name, ()))
        if spec.anchors_from:
            continue
        scale = spec.scale or template.front.scale
        if scale is None:
            continue
        values = list(scale.levels) or list(scale.labels.values())
        has = any(scale.levels.values()) or bool(scale.anchors)
        if has:
            add(f"anchors:{name}", "none", set_anchors(name, {}))
        names = template.locale.level_names.get(len(values), ())
        if scale.levels and names:
            named = dict(zip(sorted(values), names, strict=True))
            add(f"anchors:{name}", "named", set_anchors(name, named))
    if template.front.demos:
        add("demos", "none", lambda front: front.model_copy(update={"demos": ()}))
    for key, change in demos.items():
        add("demos", key, change)
    return Space(template, choices)


def _order(order: str) -> Change:
    def change(front: FrontMatter) -> FrontMatter:
        reason = front.output.reason or order == "reason_first"
        output = OutputSpec(order=order, reason=reason)  # type: ignore[arg-type]
        return front.model_copy(update={"output": output})

    return change


def _with(front: FrontMatter, name: str, **changes: Any) -> FrontMatter:
    spec: CriterionSpec = front.criteria[name].model_copy(update=changes)
    return front.model_copy(update={"criteria": {**front.criteria, name: spec}})


def set_text(name: str, text: str) -> Change:
    """A criterion's text."""
    return lambda front: _with(front, name, text=text)


def set_steps(name: str, steps: Sequence[str]) -> Change:
    """A criterion's steps; those of the whole template become the other criteria's own."""

    def change(front: FrontMatter) -> FrontMatter:
        if front.steps:
            for other, spec in front.criteria.items():
                if not spec.steps:
                    front = _with(front, other, steps=front.steps)
            front = front.model_copy(update={"steps": ()})
        return _with(front, name, steps=tuple(steps))

    return change


def set_anchors(name: str, anchors: Mapping[float, str]) -> Change:
    """Texts of a criterion's levels by value; its levels and their words stay."""

    def change(front: FrontMatter) -> FrontMatter:
        scale = front.criteria[name].scale or front.scale
        assert scale is not None
        if scale.levels:
            levels = {value: anchors.get(value) for value in scale.levels}
            new = scale.model_copy(update={"levels": levels})
        else:
            texts = {w: anchors[v] for w, v in scale.labels.items() if v in anchors}
            new = scale.model_copy(update={"anchors": texts})
        return _with(front, name, scale=ScaleSpec.model_validate(new.model_dump()))

    return change


def demo_sets(
    rows: Labelled, train: Any, seed: int, sizes: Sequence[int] = (2, 4), sets: int = 2
) -> tuple[dict[str, Change], dict[str, tuple[int, ...]]]:
    """Sets of human-scored rows of `train` as choices, and the row numbers of each.

    Each set is spread over the levels that people gave; longer rows than most are left out, since
    every prompt pays for them.
    """
    np = numpy()
    template = rows.template
    if any(spec.type == "messages" for spec in template.front.inputs.values()) or any(
        template.front.criteria[c].text_from or template.front.criteria[c].anchors_from
        for c in rows.criteria
    ):
        return {}, {}
    rng = np.random.default_rng([seed, 2])
    level = rows.level()
    whole = [int(i) for i in train if _on_levels(rows, int(i))]
    size = {i: sum(len(str(v)) for v in rows.samples[i].fields.values() if v) for i in whole}
    middle = float(np.median(list(size.values()))) if size else 0.0
    pool = [i for i in whole if size[i] <= 1.5 * middle]
    found: dict[str, Change] = {}
    used: dict[str, tuple[int, ...]] = {}
    for count in sizes:
        if len(pool) < count:
            continue
        for letter in "abcdefgh"[:sets]:
            shuffled = sorted(rng.permutation(pool), key=lambda i: level[i])
            # One of each part of the range, in mixed order: a rising row of scores is a pattern.
            cells = np.array_split(np.array(shuffled), count)
            chosen = [int(rng.choice(cell)) for cell in cells]
            chosen = [int(i) for i in rng.permutation(chosen)]
            if tuple(chosen) not in used.values():
                found[f"{count}{letter}"] = _set_demos([_demo(rows, i) for i in chosen])
                used[f"{count}{letter}"] = tuple(chosen)
    return found, used


def _on_levels(rows: Labelled, index: int) -> bool:
    """Whether people's mean lies on a level (or near one) for each criterion."""
    for name in rows.criteria:
        values = numpy().asarray(rows.template.criterion(name).scale.values)
        value = rows.human[name][index]
        step = (values.max() - values.min()) / (len(values) - 1)
        if not abs(values - value).min() <= 0.2 * step:  # NaN is not
            return False
    return True


def _demo(rows: Labelled, index: int) -> dict[str, Any]:
    scores = {}
    for name in rows.criteria:
        scale = rows.template.criterion(name).scale
        level = min(scale.levels, key=lambda v: abs(v.value - rows.human[name][index]))
        number = int(level.value) if float(level.value).is_integer() else level.value
        scores[name] = number if scale.numeric else level.word
    fields = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in rows.samples[index].fields.items()
        if value is not None
    }
    return {**fields, "scores": scores}


def _set_demos(demos: Sequence[Mapping[str, Any]]) -> Change:
    return lambda front: front.model_copy(update={"demos": tuple(dict(d) for d in demos)})
