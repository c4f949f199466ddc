"""From a template and a sample to the messages a judge gets.

Templates run in `geval.rendering.sandbox`; judged text is data (`geval.rendering.fence`): it is
never rendered, and it arrives byte-identical between two markers that it cannot contain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import meta, nodes

from geval.data.values import as_messages, as_text, as_texts, is_missing
from geval.errors import DataError, TemplateError, nearest
from geval.judges.base import Message
from geval.rendering.fence import Judged, conversation, fence, size, texts_of
from geval.rendering.filters import text_of
from geval.rendering.guide import guides, resolved
from geval.rendering.sandbox import (
    Budget,
    Environment,
    callable_in_templates,
    hold,
    line_of,
    printed,
    within,
)
from geval.sample import Sample
from geval.template import Criterion, Template, source
from geval.units.parts import Unit, UnitSpec
from geval.yaml import Fault

_GIVEN = frozenset(
    {
        "say",
        "label",
        "criterion",
        "output",
        "allowed",
        "words",
        "numeric",
        "not_applicable",
        "demos",
        "judged",
        "unit",
        "against",
        "split",
    }
)
_BODY = "<body>"
_PART = ""
"""Among the fields of a row: the unit that is judged, or the text that is split."""

MAX_PARTS = 50
"""Parts that one template may be made of."""


class Renderer:
    """A template's environment and compiled body (see `Template.renderer`)."""

    def __init__(self, template: Template) -> None:
        self.template = template
        self.environment = Environment(template.parts)
        self.body = self._compiled("\n" * (template.body_line - 1) + template.body, _BODY)
        self._frame: dict[str, jinja2.Template] = {}
        self._guides = guides(template).keys()

    def _compiled(self, text: str, filename: str) -> jinja2.Template:
        code = self.environment.compile(text, filename=filename)
        return jinja2.Template.from_code(self.environment, code, self.environment.make_globals({}))

    @callable_in_templates
    def say(self, key: str, **variables: Any) -> Any:
        """The frame string `key` of the locale, with its variables filled in."""
        frame = self.template.locale.frame
        if text_of(key) not in frame:
            raise jinja2.TemplateRuntimeError(f"say({key!r}): {nearest(str(key), frame)}")
        if key not in self._frame:
            self._frame[key] = self._compiled(frame[key], f"<{key}>")
        return self._frame[key].render(variables)

    @callable_in_templates
    def label(self, field: str) -> str:
        """The heading of a field in prompts."""
        return self.template.locale.labels.get(text_of(field), field)

    def render(
        self,
        sample: Sample,
        criterion: Criterion,
        *,
        only_number: bool = False,
        unit: Unit | None = None,
    ) -> tuple[Message, ...]:
        """The messages for one criterion of one sample, or of one unit of it.

        Where the template has units and none is given, one stands in to show the prompt (for
        claims the whole text). `only_number` adds the locale's line that asks once more for nothing
        but a level. Raises TemplateError that names the variable, the template and the row.
        """
        if unit is None and self.template.front.units:
            from geval.units.split import preview

            unit = preview(self.template, sample)

        def more(fields: Mapping[str, Any]) -> dict[str, Any]:
            return {} if unit is None else self._unit(unit, fields)

        part = None if unit is None else unit.text
        text, fields = self._rendered(sample, criterion, part, more, only_number=only_number)
        self._complete(text, fields, sample, unit)
        self._tells_what_is_judged(text, criterion)
        return ({"role": "user", "content": text.strip()},)

    def render_split(self, sample: Sample, spec: UnitSpec) -> tuple[Message, ...]:
        """The messages that ask for the claims of a field. Raises TemplateError as `render`."""
        from geval.units.split import source_texts

        whole = "\n".join(source_texts(spec, sample))

        def more(fields: Mapping[str, Any]) -> dict[str, Any]:
            question = fields.get("question") if spec.of != "question" else None
            asked = {"label": self.label(spec.of), "text": fields[_PART], "question": question}
            settings = {"atomicity": spec.atomicity, "coverage": spec.coverage}
            return {"split": {"of": spec.of, **asked, **settings}}

        text, fields = self._rendered(sample, self.template.criteria[0], whole, more)
        if whole.strip() and fields[_PART].fenced not in text:
            raise TemplateError(
                "the question for claims does not show the whole text",
                where=self._where(),
                hint="A block `split` of your own must print {{ split.text }}.",
            )
        return ({"role": "user", "content": text.strip()},)

    def _unit(self, unit: Unit, fields: Mapping[str, Any]) -> dict[str, Any]:
        """What a template is told of a unit, and of the field it is held against."""
        spec = unit.spec
        kind = {"claims": "claim", "sentences": "sentence"}.get(spec.by, spec.of)
        label = self.label("context" if kind == "contexts" else kind)
        against = {
            "of": spec.against,
            "label": self.label(spec.against),
            "text": fields.get(spec.against),
        }
        return {
            "unit": {"label": label, "text": fields[_PART]},
            "against": against,
            "judged": label,
        }

    def _rendered(
        self,
        sample: Sample,
        criterion: Criterion,
        part: str | None,
        more: Callable[[Mapping[str, Any]], dict[str, Any]],
        *,
        only_number: bool = False,
    ) -> tuple[str, dict[str, Any]]:
        """The text, and the fields as they are printed; `part` of a sample among them."""
        try:
            given = self._texts({k: v for k, v in sample.fields.items() if k not in self._guides})
        except ValueError as error:
            raise DataError(f"a field {error}", where=f"{sample.source}, id {sample.id}") from None
        if part is not None:
            given[_PART] = part
        rubric = [str(v) for k, v in sample.fields.items() if k in self._guides and v is not None]
        fields = fence(given, besides=rubric)
        try:
            with within(Budget.for_data(*size(given))):
                criterion = resolved(criterion, sample.fields)
                text = self._body({**self._variables(fields, criterion, given), **more(fields)})
                if only_number:
                    words = [level.word for level in criterion.scale.named]
                    words += criterion.scale.beside
                    again = self.say("only_number", allowed=", ".join(words))
                    text = f"{text.rstrip()}\n\n{again}"
        except jinja2.UndefinedError as error:
            raise self._undefined(error, sample) from None
        except TemplateError:
            raise
        except Exception as error:  # a template is foreign code: whatever it does is its fault
            raise TemplateError(
                f"cannot be rendered for {sample.source} (id {sample.id!r}): {_told(error)}",
                where=self._where(error),
            ) from None
        if not _is_unicode(text):
            told = "prints half a character, which is no text"
            raise TemplateError(told, where=self._where())
        return text, fields

    def _texts(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Fields as the texts that are printed: text, a tuple of texts, or None."""
        inputs = self.template.front.inputs
        found: dict[str, Any] = {}
        for name, value in fields.items():
            if name in inputs and inputs[name].type == "messages" and isinstance(value, tuple):
                found[name] = conversation(value, self.template.locale.speakers)
            elif isinstance(value, (list, tuple)):
                found[name] = tuple(as_text(item) for item in value)
            else:
                found[name] = None if value is None else as_text(value)
        return found

    def _variables(
        self, fields: Mapping[str, Any], criterion: Criterion, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        scale = criterion.scale
        template = self.template
        levels = scale.levels[::-1] if template.falling else scale.levels
        words = [level.word for level in scale.named][:: -1 if template.falling else 1]
        variables: dict[str, Any] = {
            **dict.fromkeys(template.front.inputs),
            **fields,
            "say": self.say,
            "label": self.label,
            "judged": self.label(template.judged),
            "unit": None,
            "against": None,
            "split": None,
            "criterion": {
                "name": criterion.name,
                "title": criterion.title,
                "text": criterion.text,
                "steps": criterion.steps,
                "anchors": [
                    (level.word, level.name, level.anchor) for level in levels if level.anchor
                ],
                "not_applicable": scale.not_applicable,
                "rubric": criterion.rubric,
            },
            "output": template.front.output.model_dump(),
            "allowed": ", ".join(words),
            "words": words,
            "numeric": scale.numeric,
            "not_applicable": scale.not_applicable_spellings[0] if scale.not_applicable else "",
            "demos": [],
        }
        variables["demos"] = [
            {"text": self._demo(demo, variables, given), "value": demo["scores"][criterion.name]}
            for demo in template.front.demos
            if criterion.name in demo.get("scores", {})
        ]
        return variables

    def _demo(
        self, demo: Mapping[str, Any], variables: Mapping[str, Any], sample: Mapping[str, Any]
    ) -> str | Judged:
        """The sample block, filled with a demo's own fields."""
        fields = self._texts(demo_fields(self.template, demo))
        fenced = fence(fields, besides=texts_of(sample))
        blank = dict.fromkeys(self.template.front.inputs)
        context = self.body.new_context({**variables, **blank, **fenced})
        block = context.blocks.get("sample") or self.body.blocks.get("sample")
        if block is None:
            raise jinja2.TemplateRuntimeError("demos need a block named `sample`")
        render = block[-1] if isinstance(block, list) else block
        return _stripped(self.environment.concat(render(context)))

    def _body(self, variables: dict[str, Any]) -> str:
        pieces = []
        for piece in self.body.generate(variables):
            text: str = piece if isinstance(piece, str) else printed(piece)
            hold(len(text))
            pieces.append(text)
        return "".join(pieces)

    def _where(self, error: BaseException | None = None) -> str:
        line = line_of(error, _BODY) if error else None
        place = str(self.template.path or self.template.name)
        return f"{place}:{line}" if line else place

    def _undefined(self, error: jinja2.UndefinedError, sample: Sample) -> TemplateError:
        name = str(error.message or "").partition("'")[2].partition("'")[0]
        known = [*self.template.front.inputs, *sample.extra]
        return TemplateError(
            f"{error.message} ({sample.source}, id {sample.id!r})",
            where=self._where(error),
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

    def _complete(
        self, text: str, fields: Mapping[str, Any], sample: Sample, unit: Unit | None
    ) -> None:
        """Every required field must stand in the prompt whole: a judge that is blind is wrong.

        Of the fields that units are about, the unit and what it is held against must.
        """
        hidden: set[str] = set()
        if unit is not None:
            if fields[_PART].fenced not in text:
                raise TemplateError(
                    f"the prompt does not show the unit ({sample.source}, id {sample.id!r})",
                    where=self._where(),
                    hint="A block `unit` of your own must print {{ unit.text }}.",
                )
            units = self.template.front.units
            hidden = {name for spec in units for name in (spec.of, spec.against)}
            hidden.discard(unit.spec.against)
        for name, spec in self.template.front.inputs.items():
            value = fields.get(name)
            if not spec.required or value is None or name in hidden or name in self._guides:
                continue
            parts = value if isinstance(value, tuple) else (value,)
            if not all(part.fenced in text for part in parts):
                raise TemplateError(
                    f"the prompt does not show the whole field {name!r} "
                    f"({sample.source}, id {sample.id!r})",
                    where=self._where(),
                    hint=f"Print it as {{{{ {name} }}}}, without filters.",
                )


def demo_fields(template: Template, demo: Mapping[str, Any]) -> dict[str, Any]:
    """A demo's fields as a row would give them. Raises ValueError that names the field."""
    fields: dict[str, Any] = {}
    for name, spec in template.front.inputs.items():
        value = demo.get(name)
        try:
            if is_missing(value):
                fields[name] = None
            elif spec.type == "text":
                fields[name] = as_text(value)
            else:
                convert = as_texts if spec.type == "texts" else as_messages
                fields[name] = convert(value, lambda _: None)
        except ValueError as error:
            raise ValueError(f"the field {name!r} {error}") from None
    return fields


def _is_unicode(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _stripped(text: str | Judged) -> str | Judged:
    return text.strip() if isinstance(text, str) else Judged(text.fenced.strip())


def _told(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "macros that call each other without end"
    if isinstance(error, (jinja2.TemplateError, ValueError)):
        return str(error)[:500]
    return f"{type(error).__name__}: {error}"[:300]


def parts_of(body: str, folders: Sequence[Path]) -> dict[str, str]:
    """Sources of the parts that a body extends, includes or imports, and theirs.

    Raises TemplateError for a part that is missing or that comes back to itself.
    """
    parts: dict[str, str] = {}

    def add(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            way = " -> ".join([*above[above.index(name) :], name])
            raise TemplateError(f"the template part {name!r} includes itself ({way})")
        if name not in parts:
            if len(parts) == MAX_PARTS:
                raise TemplateError(f"more than {MAX_PARTS} template parts")
            parts[name] = source(name, folders)
            for other in dict.fromkeys(referenced(parts[name])):
                add(other, (*above, name))

    for name in dict.fromkeys(referenced(body)):
        add(name, ())
    return parts


def referenced(body: str) -> Iterator[str]:
    """Names of the templates that a body extends, includes or imports."""
    try:
        tree = Environment().parse(body)
    except jinja2.TemplateSyntaxError:
        return
    yield from (name for name in meta.find_referenced_templates(tree) if name)


def body_fault(template: Template) -> Fault | None:
    """The first thing that keeps a template's body from being rendered, or None."""
    text = "\n" * (template.body_line - 1) + template.body
    try:
        tree = Environment().parse(text)
        parts = template.parts
        renderer = template.renderer  # compiling it is the check
    except jinja2.TemplateSyntaxError as error:
        return Fault(error.lineno, f"Jinja: {error.message}")
    except TemplateError as error:
        return Fault(_line_of_reference(tree, error.what) or template.body_line, error.what)
    for name in parts:
        try:
            renderer.environment.get_template(name)
        except jinja2.TemplateSyntaxError as error:
            line = _line_of_reference(tree, repr(name)) or template.body_line
            return Fault(line, f"{name}, line {error.lineno}: Jinja: {error.message}")
    parsed = [Environment().parse(part) for part in parts.values()]
    fault = _frame_fault(template, tree, parsed)
    if fault:
        return fault
    inputs = template.front.inputs
    for name in sorted(meta.find_undeclared_variables(tree) - _GIVEN - {"range", "namespace"}):
        if name not in inputs:
            return Fault(
                _line_of(tree, name),
                f"the body uses {name!r}, which is no input. {nearest(name, inputs)}",
            )
    used = set().union(*(_names(one) for one in (tree, *parsed)))
    shown = template.front.shown_as_units(_names(tree))
    for name, spec in inputs.items():
        if name in guides(template):
            if name in _names(tree):
                told = f"the body prints {name!r}, which is shown as the criterion already"
                return Fault(_line_of(tree, name), told)
        elif spec.required and name not in used | shown:
            return Fault(template.body_line, f"the body never prints the required input {name!r}")
    return None


def _frame_fault(
    template: Template, tree: nodes.Template, parts: Sequence[nodes.Template]
) -> Fault | None:
    """A block that no frame has, or a body that hides the criterion."""
    blocks = {block.name for part in parts for block in part.find_all(nodes.Block)}
    used = set().union(*(_names(one) for one in (tree, *parts)))
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


def _line_of_reference(tree: nodes.Template, told: str) -> int | None:
    """The line at which a part that `told` names is extended or included."""
    kinds = (nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport)
    for node in tree.find_all(kinds):
        name = node.template if isinstance(node, kinds) else None
        if isinstance(name, nodes.Const) and repr(name.value)[:60] in told:
            return node.lineno
    return None


def _names(tree: nodes.Template) -> set[str]:
    return {node.name for node in tree.find_all(nodes.Name) if node.ctx == "load"}


def _line_of(tree: nodes.Template, name: str) -> int:
    lines: Iterable[int] = (n.lineno for n in tree.find_all(nodes.Name) if n.name == name)
    return min(lines, default=1)
