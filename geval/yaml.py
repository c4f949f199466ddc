"""YAML 1.2 with line numbers: `yes` and `no` stay text, a duplicate key is an error."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from geval.errors import TemplateError, nearest


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong in a file: line counted from 1, 0 where it has none."""

    line: int
    message: str
    severity: str = "error"


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
    """Parse one YAML document. Raises TemplateError with file and line."""
    text = decode(content, where) if isinstance(content, bytes) else content
    try:
        node = YAML(typ="rt").load(io.StringIO(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = first_line + mark.line if mark else first_line
        problem = " ".join(part for part in (error.context, error.problem) if part)
        raise TemplateError(f"not valid YAML: {problem}", where=f"{where}:{line}") from None
    except YAMLError as error:
        raise TemplateError(f"not valid YAML: {error}", where=where) from None
    return Tree(plain(node), node, first_line)


def decode(content: bytes, where: str) -> str:
    """UTF-8 text with or without a byte order mark, line ends as \\n."""
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise TemplateError(
            f"not UTF-8: byte 0x{content[error.start]:02x} at offset {error.start}",
            where=where,
            hint="Save the file as UTF-8.",
        ) from None


def plain(node: Any) -> Any:
    """Round-trip nodes as ordinary dict, list, str, int and float."""
    if isinstance(node, Mapping):
        return {plain(k): plain(v) for k, v in node.items()}
    if isinstance(node, list):
        return [plain(v) for v in node]
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node


def validation_faults(error: ValidationError, tree: Tree, model: type[BaseModel]) -> list[Fault]:
    """Each fault pydantic found, with its line and, for an unknown key, the nearest known one."""
    faults = []
    for detail in error.errors():
        path = [part for part in detail["loc"] if part != "function-after"]
        name = ".".join(str(p) for p in path)
        line = tree.line(path)
        if detail["type"] == "extra_forbidden":
            known = _keys_at(model, path[:-1])
            faults.append(Fault(line, f"unknown key {name!r}. {nearest(str(path[-1]), known)}"))
        elif detail["type"] == "missing":
            faults.append(Fault(tree.line(path[:-1]), f"the key {name!r} is missing"))
        else:
            message = detail["msg"].removeprefix("Value error, ")
            faults.append(Fault(line, f"{name}: {message}" if name else message))
    return sorted(faults, key=lambda fault: fault.line)


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
