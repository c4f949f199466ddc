"""From a template and a sample to the messages a judge gets.

The environment is Jinja's immutable sandbox with undefined names as errors. Judged text is data:
it is never rendered, and it arrives byte-identical between two markers that it cannot contain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from geval.errors import TemplateError, nearest
from geval.josa import particle
from geval.judges.base import Message
from geval.sample import Sample
from geval.template import Criterion, Template, source
from geval.yaml import Fault

MAX_PROMPT = 4_000_000
"""Characters; a template that prints more than this beyond its data is running away."""

MAX_RANGE = 1_000

_GIVEN = frozenset(
    {
        "say",
        "label",
        "criterion",
        "output",
        "allowed",
        "numeric",
        "not_applicable",
        "demos",
        "judged",
    }
)


class Judged(str):
    """Text under judgement: printed between markers, whatever it says."""

    __slots__ = ("marker",)
    marker: str


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "**"})

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.filters["josa"] = _josa

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        # Fields of mappings are items, not attributes; only loop variables have any.
        return isinstance(obj, (LoopContext, Namespace)) and not attr.startswith("_")

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if not all(isinstance(side, (int, float)) and abs(side) < 1e6 for side in (left, right)):
            raise jinja2.TemplateRuntimeError(f"`{operator}` works on small numbers only")
        if operator == "**" and abs(right) > 16:
            raise jinja2.TemplateRuntimeError("the exponent is too large")
        return super().call_binop(context, operator, left, right)


def _range(*arguments: int) -> range:
    steps = range(*arguments)
    if len(steps) > MAX_RANGE:
        raise jinja2.TemplateRuntimeError(f"range of {len(steps)} steps (at most {MAX_RANGE})")
    return steps


def _print(value: Any) -> Any:
    """What `{{ value }}` prints."""
    if isinstance(value, Judged):
        return f"[{value.marker}]{value!s}[/{value.marker}]"
    if isinstance(value, tuple):
        return "\n".join(str(_print(item)) for item in value)
    if value is None:
        raise jinja2.UndefinedError("a field that this row does not have is printed")
    return value


def _josa(value: Any, pair: str) -> str:
    """The value, fenced where it is judged text, and the Korean particle that fits it."""
    return f"{_print(value)}{particle(str(value), pair)}"


def _environment(template: Template) -> _Environment:
    environment = _Environment(
        loader=jinja2.FunctionLoader(lambda name: source(name, template.folders)),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_print,
        optimized=False,
    )
    environment.globals.clear()
    environment.globals["range"] = _range
    environment.globals["namespace"] = Namespace
    return environment


class Renderer:
    """A template's environment and compiled body (see `Template.renderer`)."""

    def __init__(self, template: Template) -> None:
        self.template = template
        self.environment = _environment(template)
        self.body = self.environment.from_string("\n" * (template.body_line - 1) + template.body)
        self._frame = {
            key: self.environment.from_string(text) for key, text in template.locale.frame.items()
        }

    def say(self, key: str, **variables: Any) -> str:
        """The frame string `key` of the locale, with its variables filled in."""
        if key not in self._frame:
            raise jinja2.TemplateRuntimeError(f"say({key!r}): {nearest(key, self._frame)}")
        return self._frame[key].render(variables)

    def label(self, field: str) -> str:
        """The heading of a field in prompts."""
        return self.template.locale.labels.get(field, field)

    def render(
        self, sample: Sample, criterion: Criterion, *, only_number: bool = False
    ) -> tuple[Message, ...]:
        """The messages for one criterion of one sample.

        `only_number` adds the locale's line that asks once more for nothing but a level. Raises
        TemplateError that names the variable, the template and the row.
        """
        fields = _fenced(sample.fields)
        try:
            text = self._bounded(self._variables(fields, criterion))
            if only_number:
                allowed = ", ".join(criterion.scale.allowed)
                text = f"{text.rstrip()}\n\n{self.say('only_number', allowed=allowed)}"
        except jinja2.UndefinedError as error:
            raise self._undefined(error, sample) from None
        except (
            jinja2.TemplateError,
            TypeError,
            ValueError,
            ArithmeticError,
            RecursionError,
        ) as error:
            raise TemplateError(
                f"cannot be rendered for {sample.source} (id {sample.id!r}): {error}",
                where=self._where(),
            ) from None
        self._complete(text, fields, sample)
        self._tells_what_is_judged(text, criterion)
        return ({"role": "user", "content": text.strip()},)

    def _variables(self, fields: Mapping[str, Any], criterion: Criterion) -> dict[str, Any]:
        scale = criterion.scale
        template = self.template
        variables: dict[str, Any] = {
            **dict.fromkeys(template.front.inputs),
            **fields,
            "say": self.say,
            "label": self.label,
            "judged": self.label(template.judged),
            "criterion": {
                "name": criterion.name,
                "title": criterion.title,
                "text": criterion.text,
                "steps": criterion.steps,
                "anchors": [
                    (level.word, level.name, level.anchor) for level in scale.levels if level.anchor
                ],
                "not_applicable": scale.not_applicable,
            },
            "output": template.front.output.model_dump(),
            "allowed": ", ".join(level.word for level in scale.levels),
            "numeric": scale.numeric,
            "not_applicable": scale.not_applicable_spellings[0] if scale.not_applicable else "",
            "demos": [],
        }
        variables["demos"] = [
            {"text": self._demo(demo, variables), "value": demo["scores"][criterion.name]}
            for demo in template.front.demos
            if criterion.name in demo.get("scores", {})
        ]
        return variables

    def _demo(self, demo: Mapping[str, Any], variables: Mapping[str, Any]) -> str:
        """The sample block, filled with a demo's own fields."""
        given = {k: v for k, v in demo.items() if k in self.template.front.inputs}
        fields = {k: tuple(v) if isinstance(v, (list, tuple)) else v for k, v in given.items()}
        blank = dict.fromkeys(self.template.front.inputs)
        context = self.body.new_context({**variables, **blank, **_fenced(fields)})
        block = context.blocks.get("sample") or self.body.blocks.get("sample")
        if block is None:
            raise jinja2.TemplateRuntimeError("demos need a block named `sample`")
        render = block[-1] if isinstance(block, list) else block
        return "".join(render(context)).strip()

    def _bounded(self, variables: dict[str, Any]) -> str:
        pieces, size = [], 0
        for piece in self.body.generate(variables):
            pieces.append(piece)
            size += len(piece)
            if size > MAX_PROMPT:
                raise jinja2.TemplateRuntimeError(f"prints more than {MAX_PROMPT:,} characters")
        return "".join(pieces)

    def _where(self) -> str:
        return str(self.template.path or self.template.name)

    def _undefined(self, error: jinja2.UndefinedError, sample: Sample) -> TemplateError:
        name = str(error.message or "").partition("'")[2].partition("'")[0]
        known = [*self.template.front.inputs, *sample.extra]
        return TemplateError(
            f"{error.message} ({sample.source}, id {sample.id!r})",
            where=self._where(),
            hint=(nearest(name, known) if name else "")
            or "Guard an optional field with {% if field %}.",
        )

    def _tells_what_is_judged(self, text: str, criterion: Criterion) -> None:
        """The judge must read the criterion and every level it may answer."""
        missing = [word for word in criterion.scale.allowed if word not in text]
        if criterion.text not in text:
            missing.insert(0, "the criterion's text")
        if missing:
            raise TemplateError(
                f"the prompt of criterion {criterion.name!r} does not show {', '.join(missing)}",
                where=self._where(),
                hint='Begin the body with {% extends "_geval.jinja" %}, or print `criterion` and '
                "`allowed` in it.",
            )

    def _complete(self, text: str, fields: Mapping[str, Any], sample: Sample) -> None:
        """Every required field must stand in the prompt whole: a judge that is blind is wrong."""
        for name, spec in self.template.front.inputs.items():
            value = fields.get(name)
            if not spec.required or value is None:
                continue
            parts = value if isinstance(value, tuple) else (value,)
            if not all(_print(part) in text for part in parts):
                raise TemplateError(
                    f"the prompt does not show the whole field {name!r} "
                    f"({sample.source}, id {sample.id!r})",
                    where=self._where(),
                    hint=f"Print it as {{{{ {name} }}}}, without filters.",
                )


def _fenced(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as `Judged` text, each with a marker that no field contains."""
    texts = [t for v in fields.values() for t in (v if isinstance(v, tuple) else (v,)) if t]
    everything = "\n".join(map(str, texts))

    def judged(text: str) -> Judged:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        # The hash keeps prompts stable; text that holds its own marker gets a longer one.
        length = next((n for n in range(8, 65) if digest[:n] not in everything), 64)
        result = Judged(text)
        result.marker = digest[:length]
        return result

    return {
        name: tuple(judged(str(t)) for t in value)
        if isinstance(value, tuple)
        else (None if value is None else judged(str(value)))
        for name, value in fields.items()
    }


def referenced(body: str) -> Iterator[str]:
    """Names of the templates that a body extends, includes or imports."""
    try:
        tree = _parser().parse(body)
    except jinja2.TemplateSyntaxError:
        return
    yield from (name for name in meta.find_referenced_templates(tree) if name)


def _parser() -> jinja2.Environment:
    # Sandboxed as well: looking for undeclared names folds constants, `"x" * 10**9` among them.
    return _Environment(trim_blocks=True, lstrip_blocks=True, optimized=False)


def body_fault(template: Template) -> Fault | None:
    """The first thing that keeps a template's body from being rendered, or None."""
    text = "\n" * (template.body_line - 1) + template.body
    try:
        tree = _parser().parse(text)
        template.renderer  # noqa: B018 - compiling it is the check
    except jinja2.TemplateSyntaxError as error:
        return Fault(error.lineno, f"Jinja: {error.message}")
    except TemplateError as error:
        return Fault(template.body_line, error.what)
    # Jinja itself tells an unknown filter in a branch only once that branch is rendered.
    for kind, known in ((nodes.Filter, _FILTERS), (nodes.Test, _TESTS)):
        for node in tree.find_all(kind):
            if node.name not in known:
                what = kind.__name__.lower()
                return Fault(
                    node.lineno, f"unknown {what} {node.name!r}. {_near(node.name, known)}"
                )
    fault = _frame_fault(template, tree)
    if fault:
        return fault
    inputs = template.front.inputs
    for name in sorted(meta.find_undeclared_variables(tree) - _GIVEN - {"range", "namespace"}):
        if name not in inputs:
            return Fault(
                _line_of(tree, name),
                f"the body uses {name!r}, which is no input. {nearest(name, inputs)}",
            )
    used = _names(tree)
    for part in referenced(template.body):
        used |= _names(_parser().parse(source(part, template.folders)))
    for name, spec in inputs.items():
        if spec.required and name not in used:
            return Fault(template.body_line, f"the body never prints the required input {name!r}")
    return None


_FILTERS = _parser().filters.keys()
_TESTS = _parser().tests.keys()


def _frame_fault(template: Template, tree: nodes.Template) -> Fault | None:
    """A part that is missing, a block that no frame has, or a body that hides the criterion."""
    blocks: set[str] = set()
    used = _names(tree)
    for part in referenced(template.body):
        try:
            parsed = _parser().parse(source(part, template.folders))
        except TemplateError as error:
            return Fault(template.body_line, error.what)
        except jinja2.TemplateSyntaxError as error:
            return Fault(template.body_line, f"{part}: Jinja: {error.message}")
        blocks |= {block.name for block in parsed.find_all(nodes.Block)}
        used |= _names(parsed)
    if any(tree.find_all(nodes.Extends)):
        for block in tree.find_all(nodes.Block):
            if blocks and block.name not in blocks:
                told = f"the frame has no block {block.name!r}. {nearest(block.name, blocks)}"
                return Fault(block.lineno, told)
    if "criterion" not in used:
        return Fault(
            template.body_line,
            "the prompt would show neither the criterion nor its levels: begin the body with "
            '{% extends "_geval.jinja" %}',
        )
    return None


def _near(name: str, known: Iterable[str]) -> str:
    """The nearest known name; the list of all filters would be too long to help."""
    close = get_close_matches(name, known, n=1)
    return f"Did you mean {close[0]!r}?" if close else ""


def _names(tree: nodes.Template) -> set[str]:
    return {node.name for node in tree.find_all(nodes.Name) if node.ctx == "load"}


def _line_of(tree: nodes.Template, name: str) -> int:
    lines: Iterable[int] = (n.lineno for n in tree.find_all(nodes.Name) if n.name == name)
    return min(lines, default=1)
