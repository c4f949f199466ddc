"""Lint: every fault of a template at once, with file and line.

A check is a function from a `Subject` to faults, and a line in `CHECKS`. Errors keep a template
from being used, warnings are likely mistakes, hints are worth knowing and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2

from geval.errors import TemplateError, UsageError, nearest
from geval.lint import locales, shape, words
from geval.lint.subject import Subject, subject_of
from geval.template import SUFFIX, Template, available, examine, search_path, split
from geval.yaml import Fault, decode

Check = Callable[[Subject], Iterable[Fault]]

CHECKS: tuple[Check, ...] = (
    shape.name_of_file,
    shape.unused_inputs,
    shape.optional_judged,
    shape.levels_out_of_order,
    shape.levels_with_a_gap,
    shape.levels_alike,
    shape.equal_texts,
    shape.weights_of_zero,
    shape.prompts,
    shape.locales_disagree,
    shape.examples,
    words.numbers_outside,
    words.reason_order,
    words.other_language,
    words.injection,
    words.jinja_in_texts,
    words.particles,
    locales.wording,
)

HINT = "info"


def lint_targets(
    targets: Sequence[str | Path],
    folders: Iterable[str | Path] = (),
    *,
    method: str = "auto",
    hints: bool = False,
) -> tuple[list[Path], list[tuple[Path, Fault]]]:
    """Check files, folders and templates by name; without any, the folder ./templates.

    Returns the files that were checked and what is wrong. Raises TemplateError for a target that
    does not exist, naming the nearest.
    """
    named = list(folders)
    search = search_path(named)
    if not targets and not Path("templates").is_dir():
        raise UsageError(
            "there is no folder ./templates to check",
            hint="Name template files, folders or templates: geval template lint PATH|NAME...",
        )
    files: list[Path] = []
    for target in targets or ["templates"]:
        files += _files_of(target, search)
    files = list(dict.fromkeys(files))
    found = []
    for path in files:
        faults = lint_file(path, search, method=method, hints=hints)
        found += [(fault.path or path, fault) for fault in faults]
    return files, list(dict.fromkeys(found))  # templates of one language share a locale file


def lint_paths(paths: Iterable[Path]) -> tuple[list[Path], list[tuple[Path, Fault]]]:
    """As `lint_targets`, for paths."""
    return lint_targets(list(paths))


def _files_of(target: str | Path, search: Sequence[Path]) -> list[Path]:
    path, text = Path(target), str(target)
    if path.is_dir():
        return sorted(p for p in path.rglob(f"*.*{SUFFIX}") if not p.name.startswith("_"))
    if path.is_file():
        return [path]
    known = available(search)
    if text in known:
        return list(known[text].values())
    if text.endswith(SUFFIX) or "/" in text or "\\" in text:
        beside = [p.name for p in path.parent.glob(f"*{SUFFIX}")] if path.parent.is_dir() else []
        hint = nearest(path.name, beside) if beside else None
        raise TemplateError(f"there is no template file {text!r}", hint=hint)
    raise TemplateError(f"there is no template, file or folder {text!r}", hint=nearest(text, known))


def lint_file(
    path: Path,
    folders: Iterable[str | Path] | None = None,
    *,
    method: str = "auto",
    hints: bool = False,
) -> list[Fault]:
    """What is wrong with a template or locale file, by line; `hints` adds what is worth knowing."""
    if path.suffix == locales.SUFFIX:
        return locales.lint_locale(path)
    search = search_path(()) if folders is None else tuple(Path(f) for f in folders)
    content = path.read_bytes()
    template, faults = examine(content, path, search)
    if template is None:
        return _sorted([*faults, *_body_syntax(content, path)])
    subject = subject_of(template, path, content, search, method)
    if subject is None:
        return _sorted(faults)
    faults = [*faults, *shape.undeclared(subject)]
    for check in CHECKS:
        # What cannot be rendered for a fault told above is not told twice.
        blocked = any(fault.severity == "error" for fault in faults)
        if blocked and check in (shape.prompts, shape.examples):
            continue
        faults += [replace(f, rule=f.rule or check.__name__) for f in check(subject)]
    return _sorted(f for f in faults if hints or f.severity != HINT)


def _sorted(faults: Iterable[Fault]) -> list[Fault]:
    """By line, each said once."""
    once = {(f.path, f.line, f.message): f for f in faults}
    return sorted(once.values(), key=lambda f: (str(f.path or ""), f.line))


def _body_syntax(content: bytes, path: Path) -> Iterator[Fault]:
    """A fault of the body's Jinja, where the front matter is too broken to go further."""
    from geval.rendering.sandbox import Environment

    try:
        _, body, line = split(decode(content, str(path)))
        Environment().parse("\n" * (line - 1) + body)
    except jinja2.TemplateSyntaxError as error:
        yield Fault(error.lineno, f"Jinja: {error.message}")
    except TemplateError:
        return


def disagreements(a: Template, b: Template) -> list[str]:
    """What two locales of a template should share and do not."""
    return [what for what, _ in shape.differing(a, b)]


def to_dict(path: Path, fault: Fault) -> Mapping[str, Any]:
    """One fault as a line of JSON."""
    return {
        "file": str(path),
        "line": fault.line,
        "severity": fault.severity,
        "rule": fault.rule,
        "message": fault.message,
    }
