"""Template: a rubric template file, loaded and validated.

A file is YAML front matter between two `---` lines and a Jinja body. Everything that can change
a prompt or its reading is in the fingerprint; weights, aggregate, calibration and provenance are
not, so they can change without voiding replies.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from geval.data.values import is_missing
from geval.errors import TemplateError, UsageError, nearest
from geval.front import FrontMatter, ScaleSpec
from geval.locale import DEFAULT, Locale, load_locale
from geval.scale import Scale
from geval.yaml import MAX_FILE, Fault, Tree, decode, load_yaml, read_text, validation_faults

if TYPE_CHECKING:
    from geval.judges.base import Message
    from geval.prompt import Renderer
    from geval.sample import Sample

SUFFIX = ".jinja"
FRAME = "_geval.jinja"
_PART = re.compile(r"[\w.-]{1,100}")
_JUDGED = ("answer", "response", "summary", "translation", "output")


@dataclass(frozen=True)
class Criterion:
    """One thing a template judges, with its scale built for the locale.

    `text_from` and `anchors_from` name inputs that hold its text and anchors
    (geval.rendering.guide); `rubric` is a row's rubric in words.
    """

    name: str
    title: str
    text: str
    weight: float
    steps: tuple[str, ...]
    scale: Scale
    text_from: str = ""
    anchors_from: str = ""
    rubric: str = ""


@dataclass(frozen=True)
class Template:
    """A rubric template: what is judged, on which scale, and the prompt.

        Template.load("finance_qa", "ko")                    # a file, by name or path
        Template.build(name=..., inputs=..., criteria=..., scale=...)    # in code
        template.render({"question": "...", "answer": "..."})            # the messages for a row
        template.save("templates/mine.en.jinja")

    `front` is the front matter, `body` the Jinja text, `path` the file it was read from, `folders`
    the search path of the parts it extends or includes; `head` is the front matter as written.
    `falling` names the levels from the highest down in prompts, to see what their order does
    (`geval calibrate --both-orders`); no file says it.
    """

    front: FrontMatter
    body: str
    path: Path | None = None
    folders: tuple[Path, ...] = ()
    body_line: int = field(default=1, compare=False, repr=False)
    head: str | None = field(default=None, compare=False, repr=False)
    falling: bool = False

    @classmethod
    def load(
        cls, name: str | Path, locale: str | None = None, folders: Iterable[str | Path] = ()
    ) -> Template:
        """Load a template by path, or by name from `folders`, ./templates or the shipped ones.

        Raises TemplateError with every fault, each with file and line.
        """
        search = search_path(folders)
        path = find(name, locale, search)
        return parse(path.read_bytes(), path, search)

    @classmethod
    def build(
        cls,
        *,
        name: str,
        inputs: Mapping[str, Any] | Sequence[str],
        criteria: Mapping[str, Any],
        scale: Mapping[Any, Any] | Sequence[float] | None = None,
        body: str | None = None,
        locale: str = DEFAULT,
        folders: Iterable[str | Path] = (),
        **front: Any,
    ) -> Template:
        """A template from the same parts as a file has.

            Template.build(
                name="politeness",
                inputs=["question", "answer"],
                criteria={"tone": "Is the answer polite?"},
                scale={1: "insulting", 2: "neutral", 3: "friendly"},
            )

        `inputs` are names, or names with types (`{"history": "messages"}`). `scale` gives values
        with anchors, bare values, or what a file has (`{"labels": {"no": 0, "yes": 1}}`). The
        default `body` prints every input under its label. `front` is further front matter.
        Raises TemplateError with every fault.
        """
        from geval.authoring.saving import build

        content = {"name": name, "locale": locale, "inputs": inputs, "criteria": criteria}
        return build({**content, "scale": scale, **front}, body, search_path(folders))

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the template to `path`; loaded again it has the same fingerprint.

        Comments of the file it was loaded from stay. The file appears whole or not at all. Raises
        TemplateError where one is there already (unless `overwrite`) or where it would not load.
        """
        from geval.authoring.saving import save

        return save(self, Path(path), overwrite=overwrite)

    @property
    def name(self) -> str:
        """The template's name."""
        return self.front.name

    @cached_property
    def locale(self) -> Locale:
        """Language of the prompt and of the reasons."""
        return load_locale(self.front.locale, locale_folders(self.folders))

    @cached_property
    def criteria(self) -> tuple[Criterion, ...]:
        """What is judged, in the order of the file."""
        built = []
        for name, spec in self.front.criteria.items():
            scale = spec.scale or self.front.scale
            if scale is None:  # units are judged by two words where nothing else is said
                no, yes = self.locale.verdict
                scale = ScaleSpec(labels={yes: 1, no: 0})
            built.append(
                Criterion(
                    name,
                    spec.title or name,
                    spec.text,
                    spec.weight,
                    spec.steps or self.front.steps,
                    scale.build(self.locale),
                    spec.text_from,
                    spec.anchors_from,
                )
            )
        return tuple(built)

    @property
    def judged(self) -> str:
        """Name of the field that is judged."""
        if self.front.judged:
            return self.front.judged
        inputs = self.front.inputs
        known = [name for name in _JUDGED if name in inputs]
        required = [name for name, spec in inputs.items() if spec.required]
        return known[0] if known else (required or list(inputs))[-1]

    @cached_property
    def renderer(self) -> Renderer:
        """Compiled once; renders every prompt of this template."""
        from geval.prompt import Renderer

        return Renderer(self)

    def render(
        self, sample: Sample | Mapping[str, Any], criterion: str | None = None
    ) -> tuple[Message, ...]:
        """The messages a judge gets for `criterion` (default: the first) of a row.

        A plain dict is read as a row of data is: columns are found by their known names. Raises
        DataError for a row that lacks a field, TemplateError for a template that fails on it.
        """
        from geval.authoring.saving import sample_of

        row = sample_of(self, sample) if isinstance(sample, Mapping) else sample
        return self.renderer.render(row, self.criterion(criterion))

    def criterion(self, name: str | None = None) -> Criterion:
        """The criterion `name`, or the first. Raises TemplateError for an unknown one."""
        if name is None:
            return self.criteria[0]
        for criterion in self.criteria:
            if criterion.name == name:
                return criterion
        raise TemplateError(
            f"template {self.name!r} has no criterion {name!r}",
            hint=nearest(name, [c.name for c in self.criteria]),
        )

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits over all that can change a prompt or its reading."""
        front = self.front
        content: dict[str, Any] = {
            "inputs": {k: [v.type, v.required] for k, v in front.inputs.items()},
            "judged": self.judged,
            "criteria": [
                [c.name, c.title, c.text, list(c.steps), _scale_content(c.scale), *_sources(c)]
                for c in self.criteria
            ],
            "output": front.output.model_dump(),
            "units": [spec.model_dump() for spec in front.units],
            "demos": list(front.demos),
            "body": self.body.strip(),
            "parts": dict(self.parts),
            "locale": self.locale.model_dump(
                include={"code", "frame", "labels", "answer_labels"}, mode="json"
            ),
        }
        if self.falling:
            content["falling"] = True
        canonical = json.dumps(content, ensure_ascii=False, sort_keys=True, default=str)
        return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @cached_property
    def parts(self) -> Mapping[str, str]:
        """Sources of the parts that the body extends or includes, and theirs.

        They are read once: what the fingerprint covers is what is rendered.
        """
        from geval.prompt import parts_of

        return parts_of(self.body, self.folders)

    def examples(self) -> Path | None:
        """The examples file beside the template, where there is one."""
        if self.path is None:
            return None
        path = self.path.with_name(f"{self.name}.{self.front.locale}.examples.jsonl")
        return path if path.is_file() else None


def _sources(criterion: Criterion) -> list[str]:
    named = [criterion.text_from, criterion.anchors_from]
    return named if any(named) else []


def _scale_content(scale: Scale) -> list[Any]:
    levels = [[v.value, list(v.spellings), v.name, v.anchor] for v in scale.levels]
    return [levels, scale.not_applicable, list(scale.not_applicable_spellings), list(scale.order)]


def shipped_folder() -> Path:
    """Folder of the templates that come with geval."""
    return Path(str(resources.files("geval.templates")))


def search_path(folders: Iterable[str | Path] = ()) -> tuple[Path, ...]:
    """Folders searched for templates, in order; a named folder must exist."""
    named = [Path(f) for f in folders]
    for folder in named:
        if not folder.is_dir():
            raise TemplateError(f"the template folder {str(folder)!r} does not exist")
    here = Path("templates")
    both = [*named, *([here] if here.is_dir() else []), shipped_folder()]
    return tuple(dict.fromkeys(f.resolve() for f in both))


def locale_folders(folders: Iterable[Path]) -> tuple[Path, ...]:
    """Folders named `locales` beside the template folders."""
    beside = (folder.parent / "locales" for folder in folders)
    return tuple(dict.fromkeys(f for f in beside if f.is_dir()))


def available(folders: Sequence[Path]) -> dict[str, dict[str, Path]]:
    """Name -> locale -> file of every template on the search path; the first folder wins."""
    found: dict[str, dict[str, Path]] = {}
    for folder in folders:
        for path in sorted(folder.glob(f"*.*{SUFFIX}")):
            name, _, locale = path.name.removesuffix(SUFFIX).rpartition(".")
            if name and not name.startswith("_"):
                found.setdefault(name, {}).setdefault(locale, path)
    return dict(sorted(found.items()))


def find(name: str | Path, locale: str | None, folders: Sequence[Path]) -> Path:
    """The file of a template. Raises TemplateError that names the nearest ones."""
    text = str(name)
    if text.endswith(SUFFIX) or "/" in text or "\\" in text:
        path = Path(name)
        if not path.is_file():
            raise TemplateError(f"there is no template file {text!r}")
        return path.resolve()
    known = available(folders)
    if text not in known:
        raise TemplateError(
            f"unknown template {text!r}",
            hint=nearest(text, known) + " A path to a .jinja file works too.",
        )
    locales = known[text]
    chosen = locale or (DEFAULT if DEFAULT in locales else sorted(locales)[0])
    if chosen not in locales:
        raise TemplateError(
            f"template {text!r} has no locale {chosen!r}", hint=nearest(chosen, locales)
        )
    return locales[chosen]


def source(name: str, folders: Sequence[Path]) -> str:
    """Body of the template file `name` on the search path, without its front matter.

    Lines keep their numbers: the front matter is replaced by empty lines.
    """
    if not _PART.fullmatch(name):
        raise TemplateError(
            f"the template part {name[:80]!r} is not on the search path: a part is named by its "
            "file name alone"
        )
    for folder in folders:
        path = (folder / name).resolve()
        if path.is_file() and path.parent == folder.resolve():
            text = read_text(path)
            head, body, line = split(text)
            return "\n" * (line - 1) + body if head is not None else text
    raise TemplateError(f"the template part {name!r} is not on the search path")


def split(text: str) -> tuple[str | None, str, int]:
    """(front matter or None, body, line at which the body begins) of a template file."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return None, text, 1
    for number, line in enumerate(lines[1:], start=2):
        if line.rstrip() == "---":
            return "\n".join(lines[1 : number - 1]), "\n".join(lines[number:]), number + 1
    return None, text, 1


def parse(content: bytes, path: Path, folders: Sequence[Path] = ()) -> Template:
    """A template from the bytes of a file. Raises TemplateError with every fault and its line."""
    template, faults = examine(content, path, folders)
    errors = [f for f in faults if f.severity == "error"]
    if template is None or errors:
        raise TemplateError(
            f"the template has {len(errors)} fault{'s' if len(errors) > 1 else ''}",
            faults=[f"{path}:{f.line}: {f.message}" for f in errors],
            hint=f"`geval template lint {path}` checks it without scoring.",
        )
    return template


def examine(
    content: bytes, path: Path, folders: Sequence[Path] = ()
) -> tuple[Template | None, list[Fault]]:
    """A template from the bytes of a file, as far as it goes, and what is wrong with it."""
    try:
        if len(content) > MAX_FILE:
            told = f"the file has {len(content):,} bytes (at most {MAX_FILE:,}): is it a template?"
            raise TemplateError(told, where=f"{path}:1")
        text = decode(content, str(path))
        head, body, body_line = split(text)
        if head is None:
            return None, [
                Fault(1, "a template begins with YAML front matter between two '---' lines")
            ]
        tree = load_yaml(head, str(path), first_line=2)
    except TemplateError as error:
        line = int(error.where.rpartition(":")[2]) if error.where and ":" in error.where[-6:] else 1
        return None, [Fault(line, error.what)]
    if not isinstance(tree.data, Mapping):
        return None, [Fault(2, "the front matter is not a mapping of keys to values")]
    try:
        front = FrontMatter.model_validate(tree.data)
    except ValidationError as error:
        return None, validation_faults(error, tree, FrontMatter)
    search = tuple(dict.fromkeys((path.parent.resolve(), *folders, shipped_folder().resolve())))
    template = Template(front, body, path, search, body_line, head)
    return template, faults_of(template, tree)


def faults_of(template: Template, tree: Tree) -> list[Fault]:
    """Faults that show when scales, locale and body are put together."""
    from geval.prompt import body_fault

    try:
        template.locale  # noqa: B018 - loading it is the check
    except UsageError as error:
        return [Fault(tree.line(["locale"]), f"locale: {error}")]
    try:
        template.criteria  # noqa: B018
    except UsageError as error:
        return [Fault(tree.line(["scale"]), f"scale: {error}")]
    fault = body_fault(template)
    found = [] if fault is None else [fault]
    for index, demo in enumerate(template.front.demos):
        line = tree.line(["demos", index])
        found += [Fault(line, f"demo: {told}") for told in _demo_faults(template, demo)]
    return sorted(found, key=lambda found: found.line)


def _demo_faults(template: Template, demo: Mapping[str, Any]) -> list[str]:
    """What keeps a demo from being shown: fields or scores that the template does not know."""
    from geval.prompt import demo_fields

    scores = demo.get("scores")
    if not isinstance(scores, Mapping) or not scores:
        return ["it needs `scores`: criterion to human score"]
    found = []
    for name, value in scores.items():
        criterion = next((c for c in template.criteria if c.name == name), None)
        if criterion is None:
            found.append(f"unknown criterion {name!r}")
            continue
        words = criterion.scale.allowed
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not (number and value in criterion.scale.values) and str(value) not in words:
            found.append(f"{name} is {value!r}, not on the scale {', '.join(words)}")
    inputs = template.front.inputs
    unknown = set(map(str, demo)) - set(inputs) - {"scores"}
    found += [f"unknown field {name!r}" for name in sorted(unknown)]
    missing = [n for n, spec in inputs.items() if spec.required and is_missing(demo.get(n))]
    found += [f"the required field {name!r} is missing" for name in missing]
    try:
        demo_fields(template, demo)
    except ValueError as error:
        found.append(str(error))
    return found
