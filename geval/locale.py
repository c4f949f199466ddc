"""A language: frame wording, spellings of levels, column names, report words: one YAML file each.

Nothing else in the project knows a language. Shipped locales lie in the package `geval.locales`;
a folder `locales/` beside the user's own `templates/` may add or replace one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from geval.errors import TemplateError, nearest
from geval.yaml import load_yaml, validation_faults

DEFAULT = "en"


class Locale(BaseModel):
    """The content of `locales/<code>.yaml`.

    `frame` holds Jinja strings used by `say()` in templates, `labels` the headings of fields in
    a prompt, `levels` the other spellings of a level's word, `not_applicable` the spellings of
    that answer (the first is the one a judge is asked to print), `speakers` the names of the roles
    of a conversation (and of `tool_call`), `answer_labels` the words after
    which a reason-first answer stands, `verdict` the two words of a unit's verdict (not so, so),
    `columns` names of data columns by canonical field.
    `script` is what the language is written in ("Latin", "Hangul", "Kana+Han": see
    `geval.reading.language.SCRIPTS`), by which reasons are checked; empty for no check.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    code: str
    name: str
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
    report: Mapping[str, str] = Field(default_factory=dict)

    @field_validator("script")
    @classmethod
    def _known_script(cls, script: str) -> str:
        from geval.reading.language import SCRIPTS

        for name in filter(None, script.split("+")):
            if name not in SCRIPTS:
                raise ValueError(f"unknown script {name!r}. {nearest(name, SCRIPTS)}")
        return script

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
            return _parse(path.read_bytes(), str(path))
    shipped = resources.files("geval.locales") / f"{code}.yaml"
    if not shipped.is_file():
        raise TemplateError(f"unknown locale {code!r}", hint=nearest(code, locale_codes(folders)))
    return _parse(shipped.read_bytes(), f"locales/{code}.yaml")


def _parse(content: bytes, where: str) -> Locale:
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


def report_words(code: str, folders: tuple[Path, ...] = ()) -> Mapping[str, Any]:
    """Report words by the code of a locale; English where its file is no longer at hand."""
    try:
        return words(load_locale(code, folders))
    except TemplateError:
        return words(load_locale(DEFAULT))
