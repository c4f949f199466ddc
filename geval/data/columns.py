"""Which column is which field of a template.

A field takes the column that the first of these steps finds: the user's map, the field's exact
name, the template's own aliases, the family of names shared by all locales. Two columns found in
one step are an error, never a silent choice.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from geval.data.mapping import ColumnMapping, Input
from geval.errors import DataError, nearest
from geval.locale import DataWords, own_folders, united

# beside the template's fields; further names come with the families of the locales
_OWN: dict[str, tuple[str, ...]] = {
    "id": ("id", "sample_id", "row_id"),
    "group": ("group", "group_id", "doc_id", "document_id"),
    "label": ("label", "labels"),
}
_UNSEEN = re.compile(r"[\u200b\u200c\u200d\u2060\ufeff]")
_NUMBERED = re.compile(r"(.+?)([0-9]+)")


UserMap = Mapping[str, str | Sequence[str]] | Iterable[str]


@lru_cache(maxsize=8)
def _required_mark(folders: tuple[Path, ...]) -> re.Pattern[str]:
    marks = "|".join(map(re.escape, united(DataWords, folders).required_marks))
    return re.compile(rf"[(\[（【]\s*({marks})\s*[)\]）】]", re.IGNORECASE)


def clean(name: str) -> str:
    """A column's name without what spreadsheets add: line breaks, `*`, "(필수)"; NFC."""
    name = _UNSEEN.sub("", unicodedata.normalize("NFC", name))
    name = _required_mark(own_folders()).sub(" ", name)
    return " ".join(name.split()).strip("* ")


def fold(name: str) -> str:
    """The form in which names are compared: clean, case-folded, without spaces and underscores."""
    return unicodedata.normalize("NFC", re.sub(r"[\s_]", "", clean(name).casefold()))


def header_names(
    inputs: Mapping[str, Input], families: Mapping[str, Sequence[str]]
) -> frozenset[str]:
    """Folded names of the required fields, by which a reader can tell a header from a title."""
    return frozenset(
        fold(name)
        for field_name, spec in inputs.items()
        if spec.required
        for name in (field_name, *spec.aliases, *_family(field_name, families, inputs))
    )


def mapped_names(user: UserMap) -> frozenset[str]:
    """Folded names of the columns that the user names."""
    return frozenset(fold(column) for columns in _pairs(user).values() for column in columns) - {""}


def map_columns(
    columns: Iterable[str],
    inputs: Mapping[str, Input],
    families: Mapping[str, Sequence[str]],
    user: UserMap = (),
    *,
    criteria: Iterable[str] = (),
    readers: Mapping[str, Callable[[Any], Any]] | None = None,
) -> ColumnMapping:
    """Find the column of each input, of the id, the group and the label.

    `families` are names by canonical field. `user` are pairs `field=column` or a mapping; a
    field of type `texts` may have several columns, an optional one an empty name for none.
    Columns named like one of `criteria` are labels.
    Raises DataError for a column that is missing, unknown, or one of two.
    """
    present = tuple(dict.fromkeys(columns))
    finder = _Finder(present, inputs, families, readers or ())
    finder.take_user(_pairs(user))
    for step in (finder.exact, finder.same, finder.alias, finder.family):
        finder.take(step)
    finder.check()
    found = finder.found
    taken = {column for used in found.values() for column in used}
    wanted = set(criteria)
    labels = tuple(column for column in present if column in wanted and column not in taken)
    own = {name: next(iter(found.get(name, ())), None) for name in _OWN if name not in inputs}
    return ColumnMapping(
        inputs=inputs,
        fields={name: found.get(name, ()) for name in inputs},
        criteria=labels,
        used=frozenset(taken.union(labels)),
        readers=readers or {},
        **own,
    )


class _Finder:
    """The search for columns, step by step; a column once taken is out of the later steps."""

    def __init__(
        self,
        columns: tuple[str, ...],
        inputs: Mapping[str, Input],
        families: Mapping[str, Sequence[str]],
        guides: Collection[str] = (),
    ) -> None:
        self.guides = guides
        self.columns, self.inputs, self.families = columns, inputs, families
        self.found: dict[str, tuple[str, ...]] = {}
        # names of several families are asked about: by folded name, the families
        # names that mean several families in common use: asked about, never taken
        ask = united(DataWords, own_folders()).ask
        self.shared = {fold(name): list(kinds) for name, kinds in ask.items()}
        for kind, names in families.items():
            for name in {fold(name) for name in names}:
                self.shared.setdefault(name, []).append(kind)
        self.shared = {name: sorted(set(k)) for name, k in self.shared.items() if len(set(k)) > 1}
        self.wanted = [*inputs, *(name for name in _OWN if name not in inputs)]

    def exact(self, name: str) -> list[tuple[str, ...]]:
        """The field's name to the letter."""
        return [(name,)] if name in self.columns else []

    def same(self, name: str) -> list[tuple[str, ...]]:
        """The field's name, folded."""
        return self._candidates(name, {fold(name)})

    def alias(self, name: str) -> list[tuple[str, ...]]:
        """The template's own aliases."""
        own = self.inputs[name].aliases if name in self.inputs else ()
        return self._candidates(name, {fold(alias) for alias in own})

    def family(self, name: str) -> list[tuple[str, ...]]:
        """The family's names, without those that mean another family as well."""
        own = () if name in self.inputs else _OWN[name]
        names = {fold(n) for n in (*_family(name, self.families, self.inputs), *own)}
        return self._candidates(name, names - self.shared.keys())

    def take_user(self, pairs: Mapping[str, tuple[str, ...]]) -> None:
        """What the user says; it must be there."""
        for given, columns in pairs.items():
            name = next((n for n in self.wanted if n == given), None) or next(
                (n for n in self.wanted if fold(n) == fold(given)), None
            )
            if name is None:
                raise DataError(f"--map: no field {given!r}", hint=nearest(given, self.wanted))
            required = name in self.inputs and self.inputs[name].required
            if columns == ("",) and not required:
                self.found[name] = ()
                continue
            if len(columns) > 1 and (name not in self.inputs or self.inputs[name].type != "texts"):
                raise DataError(f"--map: {name} takes one column, not {len(columns)}")
            self.found[name] = tuple(self._column(name, column) for column in columns)

    def _column(self, name: str, given: str) -> str:
        if given in self.columns:
            return given
        same = [column for column in self.columns if fold(column) == fold(given)]
        if len(same) != 1:
            raise DataError(
                f"--map: no column {given!r} for {name}", hint=nearest(given, self.columns)
            )
        return same[0]

    def take(self, step: Callable[[str], list[tuple[str, ...]]]) -> None:
        """One step for all fields that have no column yet."""
        claims: dict[tuple[str, ...], list[str]] = {}
        for name in self.wanted:
            if name in self.found:
                continue
            candidates = step(name)
            if len(candidates) > 1 and name in ("group", "label") and name not in self.inputs:
                continue  # scoring needs neither: no choice is made, the columns stay extra
            if len(candidates) > 1:
                self._ask(name, candidates)
            for candidate in candidates:
                claims.setdefault(candidate, []).append(name)
        for candidate, names_of in claims.items():
            self.found[self._owner(candidate, names_of)] = candidate

    def _candidates(self, name: str, names: set[str]) -> list[tuple[str, ...]]:
        taken = {column for columns in self.found.values() for column in columns}
        free = [column for column in self.columns if column not in taken]
        found = [(column,) for column in free if fold(column) in names]
        if name not in self.inputs or self.inputs[name].type != "texts":
            return list(found)
        series: dict[str, list[tuple[int, str]]] = {}
        for column in free:
            match = _NUMBERED.fullmatch(fold(column))
            if match and match[1] in names and fold(column) not in names:
                series.setdefault(match[1], []).append((int(match[2]), column))
        return [*found, *(tuple(column for _, column in sorted(s)) for s in series.values())]

    def _owner(self, candidate: tuple[str, ...], names: list[str]) -> str:
        """The one of several fields that takes a column: canonical name, then required."""
        ranks = {
            name: (name not in self.inputs, name not in self.families, not self._required(name))
            for name in names
        }
        best = [name for name in names if ranks[name] == min(ranks.values())]
        if len(best) > 1:
            column = " + ".join(candidate)
            raise DataError(
                f"column {column!r} may be {' or '.join(best)}",
                hint=f"Say which: --map {best[0]}={candidate[0]}",
            )
        return best[0]

    def _ask(self, name: str, candidates: list[tuple[str, ...]]) -> NoReturn:
        columns = [" + ".join(candidate) for candidate in candidates]
        none = "" if self._required(name) else f" (or --map {name}= for none)"
        raise DataError(
            f"{len(columns)} columns may be {name}: {', '.join(map(repr, columns))}",
            hint=f"Say which: --map {name}={candidates[0][0]}{none}",
        )

    def _required(self, name: str) -> bool:
        return name in self.inputs and self.inputs[name].required

    def check(self) -> None:
        """Ask about names of two families; name every required field without a column."""
        taken = {column for columns in self.found.values() for column in columns}
        missing = []
        for name, spec in self.inputs.items():
            if name in self.found:
                continue
            mine = {fold(n) for n in (name, *_family(name, self.families, self.inputs))}
            for column in self.columns:
                kinds = self.shared.get(fold(column), ())
                if column not in taken and any(fold(k) in mine for k in kinds):
                    raise DataError(
                        f"column {column!r} may be {' or '.join(kinds)}",
                        hint=f"Say which: --map {name}={column} (or rename the column)",
                    )
            if spec.required:
                missing.append((name, self._like(mine, taken)))
        if missing:
            first, like = missing[0]
            for_all = f", or give one text for all rows: --param {first}=TEXT"
            raise DataError(
                f"no column for {', '.join(name for name, _ in missing)}",
                faults=[f"{name} may be {' or '.join(map(repr, c))}" for name, c in missing if c],
                hint=f"{nearest(first, self.columns)}\n"
                f"Name it: --map {first}={like[0] if like else 'COLUMN'}"
                f"{for_all if first in self.guides else ''}",
            )

    def _like(self, names: set[str], taken: set[str]) -> list[str]:
        """Columns whose name begins like the field: 답변_A and 답변_B for 답변."""
        free = [column for column in self.columns if column not in taken]
        return [c for c in free if any(len(n) > 1 and fold(c).startswith(n) for n in names)]


def _family(
    name: str, families: Mapping[str, Sequence[str]], inputs: Mapping[str, Input]
) -> list[str]:
    """Names of the families that `name` is in, without those of other fields of the template."""
    others = {fold(other) for other in inputs if other != name}
    return [
        alias
        for kind, names in families.items()
        if fold(name) in {fold(kind), *map(fold, names)}
        for alias in (kind, *names)
        if fold(alias) not in others
    ]


def _pairs(user: UserMap) -> dict[str, tuple[str, ...]]:
    if isinstance(user, Mapping):
        return {
            name: (columns,) if isinstance(columns, str) else tuple(columns)
            for name, columns in user.items()
        }
    found: dict[str, tuple[str, ...]] = {}
    for pair in user:
        name, equals, column = pair.partition("=")
        if not equals or not name.strip():
            raise DataError(f"--map {pair}: expected field=column")
        found[name.strip()] = (*found.get(name.strip(), ()), column.strip())
    return found
