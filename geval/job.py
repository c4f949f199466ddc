"""What will be judged: template, locale and rows, all checked before the first call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from geval.data import FileRows, Rows, header_names, load_samples, mapped_names, read_rows
from geval.data.rows import Filled
from geval.data.validate import Loaded
from geval.data.values import as_messages, as_text, as_texts, is_missing
from geval.errors import DataError, TemplateError, UsageError, nearest
from geval.locale import column_families, guess_locale, words
from geval.notes import sayer
from geval.rendering.guide import guides
from geval.template import Template, available, find, locale_folders, parse, search_path

Note = Callable[[str], None]
ColumnMap = Mapping[str, str | Sequence[str]] | Iterable[str]


def silent(note: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Job:
    """What `ascore` will do, checked: template chosen, rows validated. Nothing was judged yet.

    `parameters` are fields that have one value for all rows.
    """

    template: Template
    data: Loaded
    note: Note = silent
    parameters: Mapping[str, Any] = field(default_factory=dict)


def prepare(
    data: Any = None,
    *,
    template: str | Path | Template,
    locale: str | None = None,
    templates: Iterable[str | Path] = (),
    columns: ColumnMap = (),
    sheet: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    skip_invalid: bool = False,
    note: Note = silent,
) -> Job:
    """Load the template, choose its locale, map the columns and check every row.

    `parameters` are fields with one value for all rows; they stand in place of such columns.

    Without `data` the template's own examples are taken. Raises TemplateError or DataError with
    every fault found.
    """
    folders = search_path(templates)
    rows = None if data is None else read_rows(data, sheet=sheet)
    if isinstance(template, Template):
        chosen = template
    else:
        chosen = _load(template, locale, folders, rows, columns, note)
    note = sayer(note, chosen.locale)
    if rows is None:
        examples = chosen.examples()
        if examples is None:
            raise DataError(
                f"template {chosen.name!r} has no examples file, so there is nothing to score",
                hint="Give a data file: geval score DATA --template "
                f"{chosen.name} (.jsonl, .csv, ...).",
            )
        note(words(chosen.locale)["note_examples"].format(name=examples.name))
        rows = read_rows(examples)
    families = column_families(locale_folders(chosen.folders))
    inputs = chosen.front.inputs
    _set_header(rows, chosen, columns)
    readers = guides(chosen)
    given = _given(parameters or {}, chosen)
    if given:
        rows = Filled(rows, given)
    loaded = load_samples(
        rows,
        inputs,
        families,
        columns,
        skip_invalid=skip_invalid,
        criteria=[c.name for c in chosen.criteria],
        readers=readers,
    )
    word = words(chosen.locale)
    shown = loaded.mapping.shown(word["no_column"], word["row_number"], word["label_of"])
    note(f"{word['columns']}: {shown}")
    for text in loaded.notes:
        note(text)
    first = next(iter(loaded.samples()))
    for criterion in chosen.criteria:  # what fails on every row fails before the first call
        chosen.renderer.render(first, criterion)
    for spec in chosen.front.unit_sets if chosen.front.units else ():
        if spec.by == "claims":
            chosen.renderer.render_split(first, spec)
    return Job(chosen, loaded, note, given)


def _given(parameters: Mapping[str, Any], template: Template) -> dict[str, Any]:
    """Values for all rows, each checked as a cell of its field would be."""
    inputs, found = template.front.inputs, {}
    for name, value in parameters.items():
        if name not in inputs:
            raise UsageError(
                f"template {template.name!r} has no field {name!r}", hint=nearest(name, inputs)
            )
        read: Callable[[Any], Any] = {
            "text": as_text,
            "texts": lambda v: list(as_texts(v, silent)),
            "messages": lambda v: list(as_messages(v, silent)),
        }[inputs[name].type]
        try:
            if is_missing(value):
                raise ValueError("is blank")
            found[name] = guides(template).get(name, read)(value)
        except ValueError as error:
            raise UsageError(f"--param {name} {error}") from None
    return found


def _load(
    name: str | Path,
    locale: str | None,
    folders: Sequence[Path],
    rows: Rows | None,
    columns: ColumnMap,
    note: Note,
) -> Template:
    """The template; among several locales the one of the data's language."""
    path = find(name, locale, folders)
    chosen = parse(path.read_bytes(), path, folders)
    if locale is not None and chosen.front.locale != locale:
        raise TemplateError(
            f"is written for locale {chosen.front.locale!r}, not {locale!r}", where=str(path)
        )
    locales = available(folders).get(str(name), {})
    if locale is None and rows is not None and len(locales) > 1:
        _set_header(rows, chosen, columns)
        guess = _language(rows, locales, locale_folders(folders))
        if guess and guess != chosen.front.locale:
            path = locales[guess]
            chosen = parse(path.read_bytes(), path, folders)
        key = "note_locale_guessed" if guess else "note_locale_default"
        note(words(chosen.locale)[key].format(locale=chosen.front.locale))
    return chosen


def _set_header(rows: Rows, template: Template, columns: ColumnMap) -> None:
    """Tell a reader the names by which it knows a header, before it reads anything."""
    if isinstance(rows, FileRows):
        families = column_families(locale_folders(template.folders))
        rows.header = header_names(template.front.inputs, families) | mapped_names(columns)


def _language(rows: Rows, locales: Iterable[str], folders: tuple[Path, ...]) -> str | None:
    """Language of the first rows' texts, among `locales`."""
    try:
        first = [row.values for row in islice(rows, 50)]
    except DataError:
        return None  # its faults are told once, when the rows are checked
    texts = (str(value) for values in first for value in values.values() if value)
    return guess_locale(texts, locales, folders)
