"""Templates built in code, and templates written to files."""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from geval.data import load_samples, read_rows
from geval.errors import DataError, TemplateError
from geval.front import FrontMatter
from geval.locale import column_families
from geval.rendering.guide import guides
from geval.sample import Sample
from geval.template import FRAME, Template, faults_of, locale_folders, parse, search_path
from geval.yaml import Fault, Tree, plain, unix, validation_faults


def build(content: Mapping[str, Any], body: str | None, folders: Sequence[Path]) -> Template:
    """A template from front matter as a mapping. Raises TemplateError with every fault."""
    given = {k: v for k, v in content.items() if v is not None}
    inputs = given.get("inputs")
    if isinstance(inputs, Sequence) and not isinstance(inputs, str):
        given["inputs"] = {name: {} for name in inputs}
    if "scale" in given:
        given["scale"] = _scale(given["scale"])
    tree = Tree(given, given, 0)
    name = str(given.get("name", "template"))
    try:
        front = FrontMatter.model_validate(given)
    except ValidationError as error:
        raise _refusal(name, validation_faults(error, tree, FrontMatter)) from None
    template = Template(
        front, unix(default_body(front) if body is None else body), None, tuple(folders)
    )
    faults = [] if _is_text(template) else [Fault(0, "holds half a character, which is no text")]
    faults = faults or faults_of(template, tree)
    if faults:
        raise _refusal(name, faults)
    return template


def _refusal(name: str, faults: Sequence[Fault]) -> TemplateError:
    count = f"{len(faults)} fault{'s' if len(faults) > 1 else ''}"
    return TemplateError(f"template {name!r} has {count}", faults=[f.message for f in faults])


def _scale(scale: Any) -> Any:
    """Values with anchors, or bare values, in the form that a file has."""
    if isinstance(scale, Mapping):
        form = {"levels", "labels", "not_applicable"}
        return scale if form & set(map(str, scale)) else {"levels": dict(scale)}
    if isinstance(scale, Sequence) and not isinstance(scale, str):
        return {"levels": dict.fromkeys(scale)}
    return scale


def default_body(front: FrontMatter) -> str:
    """The default frame with every input under its label."""
    lines = ['{% extends "' + FRAME + '" %}', "{% block sample %}"]
    guiding = {s for c in front.criteria.values() for s in (c.text_from, c.anchors_from)}
    for name, spec in front.inputs.items():
        if name in guiding:
            continue
        label = "{{ label('" + name + "') }}"
        if spec.type == "texts":
            line = "{% for item in " + name + " %}\n" + label + " {{ loop.index }}: {{ item }}\n"
            line += "{% endfor %}"
        else:
            between = ":\n" if spec.type == "messages" else ": "
            line = label + between + "{{ " + name + " }}"
        lines.append(line if spec.required else "{% if " + name + " %}\n" + line + "\n{% endif %}")
    return "\n".join([*lines, "{% endblock %}", ""])


def _is_text(template: Template) -> bool:
    try:
        (template.body + template.front.model_dump_json()).encode()
    except ValueError:
        return False
    return True


def save(template: Template, path: Path, *, overwrite: bool = False) -> Path:
    """See `Template.save`."""
    if path.exists() and not overwrite:
        raise TemplateError(
            "the file is there already", where=str(path), hint="Say overwrite=True to replace it."
        )
    content = f"---\n{head_of(template)}---\n{template.body.removeprefix(chr(10))}".encode()
    try:
        saved = parse(content, path, search_path())
    except TemplateError as error:
        raise TemplateError(
            f"the template cannot be saved as {path.name}: {error.what}",
            where=str(path),
            faults=error.faults,
            hint="Parts that it includes must lie beside the file or in ./templates.",
        ) from None
    if saved.fingerprint != template.fingerprint:
        raise TemplateError(
            "the template would be another one when it is loaded from there: its parts or its "
            "locale are found elsewhere",
            where=str(path),
        )
    write_whole(path, content)
    return path


def write_whole(path: Path, content: bytes) -> None:
    """The whole file or none of it, also when the process is killed."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise TemplateError(f"cannot be written: {error.strerror}", where=str(path)) from None
    finally:
        beside.unlink(missing_ok=True)


def head_of(template: Template) -> str:
    """Front matter as YAML; as it was written where nothing in it was changed."""
    yaml = YAML(typ="rt")
    yaml.width = 10**6
    yaml.allow_unicode = True
    wanted = _content(template.front)
    node: Any = CommentedMap()
    if template.head is not None:
        node = yaml.load(io.StringIO(template.head))
        written = FrontMatter.model_validate(plain(node))
        if written == template.front:
            return template.head + "\n" * bool(template.head)
        was = _content(written)
        for key in [k for k in node if k in was and k not in wanted]:
            del node[key]
        wanted = {k: v for k, v in wanted.items() if k not in was or was[k] != v}
        _update(node, wanted)
    else:
        node.update(wanted)
    text = io.StringIO()
    yaml.dump(node, text)
    return text.getvalue()


def _content(front: FrontMatter) -> dict[str, Any]:
    """Front matter as plain values, without what is the default anyway."""
    content: dict[str, Any] = front.model_dump(mode="json", exclude_defaults=True)
    content = {"name": front.name, "locale": front.locale, **content}
    for spec in [content, *content["criteria"].values()]:
        scale = spec.get("scale") or {}
        if scale.get("levels"):
            scale["levels"] = {_number(float(k)): v for k, v in scale["levels"].items()}
        if scale.get("labels"):
            scale["labels"] = {k: _number(v) for k, v in scale["labels"].items()}
        if "weight" in spec:
            spec["weight"] = _number(spec["weight"])
    return content


def _number(value: float) -> int | float:
    return int(value) if value.is_integer() else value


def _update(node: Any, changes: Mapping[str, Any]) -> None:
    """Put `changes` into a document, key by key, so that the comments between them stay."""
    for key, value in changes.items():
        old = node.get(key)
        if isinstance(old, CommentedMap) and isinstance(value, Mapping):
            for gone in [k for k in old if k not in value]:
                del old[gone]
            _update(old, {k: v for k, v in value.items() if plain(old.get(k)) != v})
        else:
            node[key] = value


def sample_of(template: Template, row: Mapping[str, Any]) -> Sample:
    """One row as a sample of `template`. Raises DataError with every fault."""
    families = column_families(locale_folders(template.folders))
    criteria = [c.name for c in template.criteria]
    loaded = load_samples(
        read_rows([dict(row)]),
        template.front.inputs,
        families,
        criteria=criteria,
        readers=guides(template),
    )
    for sample in loaded.samples():
        return replace(sample)
    raise DataError("the row cannot be read")
