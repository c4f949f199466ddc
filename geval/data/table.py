"""A run as a table for people: a row per sample (wide) or per sample and criterion (long)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from geval.data import read_rows
from geval.data.columns import fold
from geval.data.values import as_text, is_missing, plain
from geval.data.write import MARK
from geval.errors import DataError
from geval.locale import column_families
from geval.result import OVERALL
from geval.runs.run import Run

Record = dict[str, Any]
Place = tuple[str | None, int | None]

_LONG = (
    *("status", "score", "normalized", "sd", "mode", "levels", "probs", "method", "coverage"),
    *("reason", "warnings", "judge"),
)


def wide(run: Run, inputs: Mapping[Place, Record] | None = None) -> list[Record]:
    """One record per sample and repeat, in the order of the data; all have the same keys.

    Scores of criteria are in units of their scale, `overall` is on 0..1; an unscored one is None.
    `inputs` are the data's columns by sheet and row (`input_columns`).
    """
    criteria = list(run.manifest["template"]["weights"])
    repeats = any(record["repeat"] for record in run.results())
    rows: dict[tuple[str, int], Record] = {}
    order: dict[tuple[str, int], tuple[int, int]] = {}
    given = list(dict.fromkeys(name for row in (inputs or {}).values() for name in row))
    for record in run.results():
        key = (record["id"], record["repeat"])
        if key not in rows:
            rows[key] = _empty(record, criteria, given, repeats, run)
            _take_inputs(rows[key], (inputs or {}).get(_place(record), {}))
            order[key] = (record["source"].get("order", len(order)), record["repeat"])
        _add(rows[key], record)
    return [rows[key] for key in sorted(rows, key=lambda k: order[k])]


def _empty(
    record: Record, criteria: list[str], given: list[str], repeats: bool, run: Run
) -> Record:
    own: Record = {"id": record["id"]}
    if repeats:
        own["repeat"] = record["repeat"]
    own |= {"sheet": record["source"].get("sheet"), "row": record["source"].get("row")}
    own |= {_own_name(name): None for name in given}
    own |= {OVERALL: None, "status": None}
    for name in criteria:
        for kind in ("", "_sd", "_status", "_coverage", "_method", "_reason"):
            own[name + kind] = None
    return {**own, "error": None, "warnings": [], MARK: run.folder.name}


def _own_name(column: str) -> str:
    """The data's columns cannot be taken for geval's."""
    return f"input_{column}"


def _take_inputs(row: Record, values: Record) -> None:
    for name, value in values.items():
        row[_own_name(name)] = value


def _add(row: Record, record: Record) -> None:
    name = record["criterion"]
    prefix = "" if name == OVERALL else f"{name}_"
    row[name] = record["score"]
    row[f"{prefix}status"] = record["status"]
    if name != OVERALL:
        for kind in ("sd", "coverage", "method", "reason"):
            row[prefix + kind] = record[kind]
    row["warnings"] = list(dict.fromkeys([*row["warnings"], *record["warnings"]]))
    if record["error"] and name != OVERALL and row["error"] is None:
        row["error"] = f"{name}: {record['error']['message']}"


def long(run: Run) -> Iterator[Record]:
    """One record per result line, as they were written, without what only machines read."""
    for record in run.results():
        error = record["error"]
        yield {
            **{name: record[name] for name in ("id", "repeat")},
            "sheet": record["source"].get("sheet"),
            "row": record["source"].get("row"),
            "criterion": record["criterion"],
            **{name: record.get(name) for name in _LONG},
            "error": error and error["message"],
            MARK: run.folder.name,
        }


def _place(record: Record) -> Place:
    return record["source"].get("sheet"), record["source"].get("row")


def input_columns(run: Run, data: str) -> dict[Place, Record]:
    """The columns of the data file that was judged, by sheet and row.

    Raises DataError where the file is not the one of the run.
    """
    sheets = {record["source"].get("sheet") for record in run.results()} - {None}
    sheet = None if not sheets else next(iter(sheets)) if len(sheets) == 1 else "*"
    header = {fold(name) for names in column_families().values() for name in names}
    rows = read_rows(data, sheet=sheet, header=header)
    check_same(run, rows.sha256(), data)
    return {
        (row.source.sheet, row.source.row): {
            name: _input(value) for name, value in row.values.items()
        }
        for row in rows
    }


def check_same(run: Run, sha256: str, data: str) -> None:
    """Raise DataError unless `sha256` is that of the data which the run judged."""
    told = run.manifest["data"]
    if told["sha256"] != sha256:
        raise DataError(
            "is not the data that was judged: it was changed, or it is another file",
            where=data,
            hint=f"The run {run.folder.name} judged {told['name']!r}.",
        )


def _input(value: Any) -> Any:
    if is_missing(value):
        return None
    if isinstance(value, (list, tuple, dict)):
        return plain(value)
    try:
        return value if isinstance(value, str) else as_text(value)
    except ValueError:
        return None
