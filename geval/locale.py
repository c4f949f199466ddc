"""A language: frame wording, spellings of levels, column names, report words: one YAML file each.

Nothing else in the project knows a language. Shipped locales lie in the package `geval.locales`;
a folder `locales/` beside the user's own `templates/` may add or replace one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from geval.errors import TemplateError, nearest
from geval.yaml import load_yaml, validation_faults

DEFAULT = "en"


class Part(BaseModel):
    """A section of a locale file that is united with those of the other locales.

    A Korean answer to an English prompt, a Korean footer in a workbook that is judged in English:
    such words are known whatever the locale of the run is.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)


class ReadingWords(Part):
    """Words by which a judge's reply is read.

    `score_keys` and `reason_keys` are keys of a JSON reply, `answer_words` stand before an answer,
    `final` begin the label of the last one. `tails` right behind a level leave it what it is
    ("4점"), `own_words` begin like a level with a tail and are none (중요). `points` are the unit
    of a score, `full_marks` its maximum; words of `bounds` and `counters` behind a number say that
    it is no level ("5점 중", "3건"), those of `between` with a further number ("1 to 5"); `counted`
    make it an amount; `of_scale` before a further number name the scale. `out_of` stands between
    score and maximum. `level_prefixes`, `level_suffixes` may stand around a level that is the key
    of a rubric. `quoted_on` begin what goes on after a quotation ("좋다."고 말했다).
    """

    score_keys: tuple[str, ...] = ()
    reason_keys: tuple[str, ...] = ()
    answer_words: tuple[str, ...] = ()
    final: tuple[str, ...] = ()
    tails: tuple[str, ...] = ()
    own_words: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    full_marks: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()
    between: tuple[str, ...] = ()
    counters: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()
    of_scale: tuple[str, ...] = ()
    out_of: tuple[str, ...] = ()
    level_prefixes: tuple[str, ...] = ()
    level_suffixes: tuple[str, ...] = ()
    quoted_on: tuple[str, ...] = ()


class DataWords(Part):
    """Words by which a table is read.

    `footers` begin rows of totals, `required_marks` stand in brackets behind a column's name,
    `ask` are names of columns that mean several fields. Cells of labels: `units` behind a number,
    `missing` for none, words for the `bottom`, the `middle` and the `top` of a scale.
    `remove_protection` tells how a protected file is opened to others.
    """

    footers: tuple[str, ...] = ()
    required_marks: tuple[str, ...] = ()
    ask: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    units: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    bottom: tuple[str, ...] = ()
    middle: tuple[str, ...] = ()
    top: tuple[str, ...] = ()
    remove_protection: tuple[str, ...] = ()


class LintPatterns(Part):
    """Regular expressions for what a template says; a number in `scores` stands in a group.

    `scores` find a number that a text calls a score, `reason_first` and `score_first` an order of
    the two, `orders` what reads like an order to the judge.
    """

    scores: tuple[str, ...] = ()
    reason_first: tuple[str, ...] = ()
    score_first: tuple[str, ...] = ()
    orders: tuple[str, ...] = ()

    @field_validator("*")
    @classmethod
    def _compiles(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
        return patterns


class Locale(BaseModel):
    """The content of `locales/<code>.yaml`.

    `frame` holds Jinja strings used by `say()` in templates, `labels` the headings of fields in
    a prompt, `levels` the other spellings of a level's word, `not_applicable` the spellings of
    that answer (the first is the one a judge is asked to print), `speakers` the names of the roles
    of a conversation (and of `tool_call`), `answer_labels` the words after
    which a reason-first answer stands, `verdict` the two words of a unit's verdict (not so, so),
    `columns` names of data columns by canonical field. `reading`, `data` and `lint` are united with
    those of the other locales; `authoring` holds the texts of new templates, `report` the words of
    tables and reports, `notes` what a run tells.
    `script` is what the language is written in ("Latin", "Hangul", "Kana+Han": see
    `geval.reading.language.SCRIPTS`), by which reasons are checked; empty for no check.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    code: str
    name: str
    in_english: str = ""
    script: str = ""
    sentence_endings: tuple[str, ...] = ()
    frame: Mapping[str, str]
    labels: Mapping[str, str]
    answer_labels: tuple[str, ...]
    level_names: Mapping[int, tuple[str, ...]] = Field(default_factory=dict)
    levels: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    not_applicable: tuple[str, ...]
    verdict: tuple[str, str] = ("no", "yes")
    speakers: Mapping[str, str] = Field(default_factory=dict)
    columns: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    reading: ReadingWords = ReadingWords()
    data: DataWords = DataWords()
    lint: LintPatterns = LintPatterns()
    authoring: Mapping[str, str | tuple[str, ...]] = Field(default_factory=dict)
    report: Mapping[str, str] = Field(default_factory=dict)
    notes: Mapping[str, str] = Field(default_factory=dict)

    @field_validator("script")
    @classmethod
    def _known_script(cls, script: str) -> str:
        from geval.reading.language import SCRIPTS

        for name in filter(None, script.split("+")):
            if name not in SCRIPTS:
                raise ValueError(f"unknown script {name!r}. {nearest(name, SCRIPTS)}")
        return script

    @property
    def english(self) -> str:
        """The name of the language in English, for messages to authors."""
        return self.in_english or self.name

    @property
    def scripts(self) -> tuple[str, ...]:
        """The scripts of the language, empty where none is declared."""
        return tuple(filter(None, self.script.split("+")))


def locale_codes(folders: Iterable[Path] = ()) -> tuple[str, ...]:
    """Codes of all locales that can be loaded, sorted."""
    shipped = resources.files("geval.locales")
    names = [entry.name for entry in shipped.iterdir()]
    for folder in folders:
        if folder.is_dir():
            names.extend(entry.name for entry in folder.iterdir())
    return tuple(sorted({name[:-5] for name in names if name.endswith(".yaml")}))


@lru_cache(maxsize=64)
def load_locale(code: str, folders: tuple[Path, ...] = ()) -> Locale:
    """The locale `code`, from the first of `folders` that has it, else the shipped one.

    Raises TemplateError for an unknown code or a file with faults (each with its line).
    """
    for folder in folders:
        path = folder / f"{code}.yaml"
        if path.is_file():
            return read_locale(path.read_bytes(), str(path))
    shipped = resources.files("geval.locales") / f"{code}.yaml"
    if not shipped.is_file():
        raise TemplateError(f"unknown locale {code!r}", hint=nearest(code, locale_codes(folders)))
    return read_locale(shipped.read_bytes(), f"locales/{code}.yaml")


def read_locale(content: bytes, where: str) -> Locale:
    """The locale that a file holds. Raises TemplateError for its faults, each with its line."""
    tree = load_yaml(content, where)
    try:
        locale = Locale.model_validate(tree.data)
    except ValidationError as error:
        faults = validation_faults(error, tree, Locale)
        raise TemplateError(
            "the locale file has faults",
            where=where,
            faults=[f"line {f.line}: {f.message}" for f in faults],
        ) from None
    if locale.code != DEFAULT:
        missing = [key for key in load_locale(DEFAULT).frame if key not in locale.frame]
        if missing:
            raise TemplateError(
                f"the locale file lacks wording: frame.{', frame.'.join(missing)}",
                where=f"{where}:{tree.line(['frame'])}",
                hint=f"Write it in the language of the locale; {DEFAULT}.yaml has every key.",
            )
    return locale


@lru_cache(maxsize=8)
def column_families(folders: tuple[Path, ...] = ()) -> dict[str, tuple[str, ...]]:
    """Names of data columns by canonical field, united over all locales."""
    families: dict[str, list[str]] = {}
    for code in locale_codes(folders):
        for name, names in load_locale(code, folders).columns.items():
            families.setdefault(name, []).extend(names)
    return {name: tuple(dict.fromkeys(names)) for name, names in families.items()}


def own_folders() -> tuple[Path, ...]:
    """The folder of the user's own locales, where there is one, for what no template is at hand."""
    here = Path("locales").resolve()
    return (here,) if here.is_dir() else ()


P = TypeVar("P", bound=Part)


def united(part: type[P], folders: tuple[Path, ...] = ()) -> P:
    """A section of the locale files, united over all locales: English first, then by code."""
    found = _united(part, folders)
    assert isinstance(found, part)
    return found


@lru_cache(maxsize=32)
def _united(part: type[Part], folders: tuple[Path, ...]) -> Part:
    codes = sorted(locale_codes(folders), key=lambda code: (code != DEFAULT, code))
    return merged(
        part,
        *(
            value
            for code in codes
            for value in vars(load_locale(code, folders)).values()
            if isinstance(value, part)
        ),
    )


def merged(part: type[P], *several: P) -> P:
    """The words of several sections in one, each once, in their order."""
    found: dict[str, Any] = {}
    for name in part.model_fields:
        values = [getattr(one, name) for one in several]
        if any(isinstance(value, Mapping) for value in values):
            found[name] = {k: v for value in values for k, v in value.items()}
        else:
            found[name] = tuple(dict.fromkeys(v for value in values for v in value))
    return part(**found)


def guess_locale(
    texts: Iterable[str], available: Iterable[str], folders: tuple[Path, ...] = ()
) -> str | None:
    """The language of `texts` among `available`, by script; None where it cannot be told.

    A locale whose script is not Latin is told by a fifth of the letters (names and figures in
    business text are often Latin). Only locales that declare a script are ever guessed.
    """
    from geval.reading.language import letters_of

    joined = "\n".join(texts)
    letters = sum(char.isalpha() for char in joined)
    known = set(available)
    if not letters:
        return None
    shares = {
        code: letters_of(joined, locale.scripts)
        for code in sorted(known)
        if (locale := load_locale(code, folders)).scripts and "Latin" not in locale.scripts
    }
    best = max(shares, key=lambda code: shares[code], default=None)
    if best is not None and shares[best] >= letters / 5:
        return best
    return DEFAULT if DEFAULT in known else None


def words(locale: Locale) -> Mapping[str, Any]:
    """Report words of a locale, falling back to English ones."""
    return {**load_locale(DEFAULT).report, **locale.report}


def authoring(locale: Locale) -> Mapping[str, Any]:
    """Texts of new templates in a locale, falling back to English ones."""
    return {**load_locale(DEFAULT).authoring, **locale.authoring}


def report_words(code: str, folders: tuple[Path, ...] = ()) -> Mapping[str, Any]:
    """Report words by the code of a locale; English where its file is no longer at hand."""
    try:
        return words(load_locale(code, folders))
    except TemplateError:
        return words(load_locale(DEFAULT))
