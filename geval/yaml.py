"""YAML 1.2 with line numbers: `yes` and `no` stay text, a duplicate key is an error."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from geval.errors import TemplateError, nearest

MAX_FILE = 2_000_000
"""Bytes of a template or locale file."""

MAX_YAML = 300_000
"""Characters of YAML: reading it takes a second at most."""

MAX_DEPTH = 200
_BRACKET = re.compile(r"[\[\]{}]")

MAX_ITEMS = 50_000
"""Items of a YAML document, each alias counted with what it stands for."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong in a file: line counted from 1, 0 where it has none.

    `severity` is error, warning or info; `rule` names the check; `path` is set where the fault
    is in another file than the one that was looked at.
    """

    line: int
    message: str
    severity: str = "error"
    rule: str = ""
    path: Path | None = None


@dataclass(frozen=True)
class Tree:
    """Plain data read from YAML, and the document it came from, for line numbers."""

    data: Any
    node: Any
    first_line: int

    def line(self, path: Sequence[Any]) -> int:
        """The line of the deepest part of `path` that exists."""
        node, line = self.node, self.first_line
        for key in path:
            position = getattr(node, "lc", None)
            if position is None:
                break
            try:
                if isinstance(node, Mapping):
                    real = next(k for k in node if k == key or str(k) == str(key))
                    line = self.first_line + position.key(real)[0]
                    node = node[real]
                else:
                    line = self.first_line + position.item(int(key))[0]
                    node = node[int(key)]
            except (StopIteration, KeyError, IndexError, ValueError, TypeError):
                break
        return line


def load_yaml(content: bytes | str, where: str, *, first_line: int = 1) -> Tree:
    """Parse one YAML document. Raises TemplateError with file and line.

    Size, depth and aliases are bounded: a few lines of aliases can stand for billions of items.
    """
    text = decode(content, where) if isinstance(content, bytes) else content
    if len(text) > MAX_YAML:
        raise TemplateError(
            f"{len(text):,} characters of YAML (at most {MAX_YAML:,})",
            where=f"{where}:{first_line}",
        )
    if _depth(text) > MAX_DEPTH:
        told = "not valid YAML: nested too deeply"
        raise TemplateError(told, where=f"{where}:{first_line}")
    try:
        node = YAML(typ="rt").load(io.StringIO(text))
        data = plain(node)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = first_line + mark.line if mark else first_line
        problem = " ".join(part for part in (error.context, error.problem) if part)
        raise TemplateError(f"not valid YAML: {problem}", where=f"{where}:{line}") from None
    except YAMLError as error:
        told = str(error).strip().partition("\n")[0]
        raise TemplateError(f"not valid YAML: {told}", where=f"{where}:{first_line}") from None
    except RecursionError:
        told = "nested too deeply, or an alias of itself"
        raise TemplateError(f"not valid YAML: {told}", where=f"{where}:{first_line}") from None
    except Exception as error:  # an odd tag or number inside ruamel
        raise TemplateError(f"not valid YAML: {error}", where=f"{where}:{first_line}") from None
    return Tree(data, node, first_line)


def _depth(text: str) -> int:
    """The most brackets that are open at once, also those in text: reading them takes long."""
    depth = most = 0
    for bracket in _BRACKET.findall(text):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        most = max(most, depth)
    return most


def read_text(path: Path) -> str:
    """The text of a template or locale file. Raises TemplateError where it is none."""
    try:
        size = path.stat().st_size
        if size > MAX_FILE:
            raise TemplateError(
                f"the file has {size:,} bytes (at most {MAX_FILE:,}): is it a template?",
                where=str(path),
            )
        return decode(path.read_bytes(), str(path))
    except OSError as error:
        raise TemplateError(f"cannot be read: {error.strerror}", where=str(path)) from None


def decode(content: bytes, where: str) -> str:
    """UTF-8 text with or without a byte order mark, line ends as \\n."""
    try:
        return unix(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
        raise TemplateError(
            f"not UTF-8: byte 0x{content[error.start]:02x} at offset {error.start}"
            + (" (it is UTF-16)" if wide else ""),
            where=where,
            hint="Save the file as UTF-8.",
        ) from None


def unix(text: str) -> str:
    """`text` with line ends as \\n."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def plain(node: Any) -> Any:
    """Round-trip nodes as ordinary dict, list, str, int and float; raises YAMLError for a bomb."""
    left = [MAX_ITEMS]

    def copy(node: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise YAMLError(f"more than {MAX_ITEMS:,} items, with all its aliases")
        if isinstance(node, Mapping):
            return {key(k): copy(v) for k, v in node.items()}
        if isinstance(node, list):
            return [copy(v) for v in node]
        if isinstance(node, int) and not isinstance(node, bool) and abs(node) > 10**18:
            raise YAMLError("a number of more than 18 digits")
        for kind in (bool, int, float, str):
            if isinstance(node, kind):
                return kind(node)
        return node

    def key(node: Any) -> Any:
        if isinstance(node, (Mapping, list, tuple)):
            raise YAMLError("a key is a list or a mapping")
        return copy(node)

    return copy(node)


def validation_faults(error: ValidationError, tree: Tree, model: type[BaseModel]) -> list[Fault]:
    """Each fault pydantic found, with its line and, for an unknown key, the nearest known one."""
    faults = []
    for detail in error.errors():
        path = [part for part in detail["loc"] if part not in ("function-after", "[key]")]
        name = ".".join(str(p) for p in path)
        line = tree.line(path)
        if detail["type"] == "extra_forbidden":
            known = _keys_at(model, path[:-1])
            faults.append(Fault(line, f"unknown key {name!r}. {nearest(str(path[-1]), known)}"))
        elif detail["type"] == "missing":
            faults.append(Fault(tree.line(path[:-1]), f"the key {name!r} is missing"))
        else:
            message = _in_words(detail)
            faults.append(Fault(line, f"{name}: {message}" if name else message))
    return sorted(faults, key=lambda fault: fault.line)


_KINDS = {
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "dict_type": "must be a mapping of keys to values",
    "mapping_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of keys to values",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "finite_number": "must be a finite number",
    "string_pattern_mismatch": "must be letters, digits and underscores and begin with a letter",
}
"""What pydantic finds wrong with a value, by its type of error, in plain words."""


def _in_words(detail: Any) -> str:
    """One pydantic fault as a plain sentence that shows the value."""
    kind, given = detail["type"], detail.get("input")
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", detail["ctx"]["expected"])
        return f"{given!r} is not known. {nearest(str(given), choices)}"
    if kind == "greater_than_equal":
        return f"must be at least {detail['ctx']['ge']:g}, this is {given!r}"
    if kind in _KINDS:
        shown = repr(given) if not isinstance(given, Mapping | list | tuple) else "a list"
        shown = "a mapping" if isinstance(given, Mapping) else "empty" if given is None else shown
        told = f"{_KINDS[kind]}, this is {shown}"
        levels = "levels" in detail["loc"] and "[key]" in detail["loc"]
        return f"{told} (words go under `labels`: {given}: 1)" if levels else told
    return str(detail["msg"]).removeprefix("Value error, ")


def _keys_at(model: type[BaseModel], path: Sequence[Any]) -> list[str]:
    """Field names of the model that stands at `path` below `model`."""
    current: type[BaseModel] | None = model
    for part in path:
        if current is not None and str(part) in current.model_fields:
            current = _model_in(current.model_fields[str(part)].annotation)
        # Any other part is a key of a mapping or an index: the model inside stays the same.
    return sorted(current.model_fields) if current is not None else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        found = _model_in(argument)
        if found is not None:
            return found
    return None
