"""The header of a GGUF weight file: what has to be known about a model before it is loaded.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little endian.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geval.errors import ConfigError

MAGIC = b"GGUF"

_SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?QqdB", strict=False))
_STRING, _ARRAY = 8, 9
_CONTROL = 3  # tokenizer.ggml.token_type of tokens that are no text

# Tokens at which llama.cpp ends a reply whatever the header says (llama-vocab.cpp).
_END_NAMES = frozenset(
    [
        *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>"),
        *("<|calls|>", "<end_of_turn>", "<turn|>", "<|endoftext|>", "<|end_of_text|>"),
        *("<|eom_id|>", "<|end_of_turn|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "</s>", "<eos>"),
        *("<end_of_utterance>", "<｜end▁of▁sentence｜>"),
        *("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"),
    ]
)


@dataclass(frozen=True, slots=True)
class Header:
    """What the header says.

    `context` is the longest context the model was trained for, in tokens (0 = not told).
    `token_bytes` is the memory one token of context takes in a 16-bit key-value cache.
    `control` maps token ids that stand for no text to their names; at those in `ends` a reply ends.
    """

    name: str
    architecture: str
    context: int
    heads: int
    token_bytes: int
    control: Mapping[int, str]
    ends: frozenset[int]


def check_magic(path: Path) -> None:
    """Raise ConfigError where the file cannot be read or does not begin as GGUF files do."""
    try:
        with path.open("rb") as file:
            first = file.read(4)
    except OSError as error:
        raise ConfigError(
            f"the weight file cannot be read: {error.strerror or error}", where=str(path)
        ) from error
    if first != MAGIC:
        raise ConfigError(
            f"no GGUF file: it begins with {first!r}, not {MAGIC!r}",
            where=str(path),
            hint="The local judge runs models in the GGUF format of llama.cpp.",
        )


def read_header(path: Path) -> Header:
    """Read the header; the weights behind it are not touched. Raises ConfigError."""
    check_magic(path)
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            return _header(_Reader(data).pairs(), path)
    except (struct.error, IndexError, KeyError, UnicodeDecodeError, ValueError, OSError) as error:
        raise ConfigError(
            f"the header of this GGUF file cannot be read ({error})",
            where=str(path),
            hint="It may be cut off: compare its size and sha256 with its source.",
        ) from error


def _header(pairs: Mapping[str, Any], path: Path) -> Header:
    architecture = str(pairs.get("general.architecture", ""))

    def number(key: str, default: Any = 0) -> Any:
        return pairs.get(f"{architecture}.{key}", default)

    layers = int(number("block_count"))
    heads = _most(number("attention.head_count", 1))
    size = int(number("embedding_length")) // max(heads, 1)
    widths = int(number("attention.key_length", size)) + int(number("attention.value_length", size))
    kv_heads = number("attention.head_count_kv", heads)
    kv_heads = sum(kv_heads) if isinstance(kv_heads, list) else int(kv_heads) * layers
    types = pairs.get("tokenizer.ggml.token_type", [])
    tokens = pairs.get("tokenizer.ggml.tokens", [])
    control = {
        index: tokens[index].decode("utf-8", "replace")
        for index, kind in enumerate(types)
        if kind == _CONTROL and index < len(tokens)
    }
    named = (pairs.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot", "eom"))
    return Header(
        name=str(pairs.get("general.name") or path.stem),
        architecture=architecture,
        context=int(number("context_length")),
        heads=heads,
        token_bytes=2 * widths * kv_heads,
        control=control,
        ends=frozenset(i for i in named if i is not None)
        | frozenset(i for i, name in control.items() if name in _END_NAMES),
    )


def _most(value: Any) -> int:
    return max(value) if isinstance(value, list) else int(value)


class _Reader:
    """Key-value pairs of the header; strings inside arrays stay bytes."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 4

    def pairs(self) -> dict[str, Any]:
        version, _tensors, count = self._take("IQQ")
        if version not in (2, 3):
            raise ValueError(f"GGUF version {version}")
        found: dict[str, Any] = {}
        for _ in range(count):
            key = self._string().decode()
            (kind,) = self._take("I")
            found[key] = self._value(kind)
        return found

    def _take(self, form: str) -> tuple[Any, ...]:
        taken = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return taken

    def _string(self) -> bytes:
        (length,) = self._take("Q")
        if self.at + length > len(self.data):
            raise ValueError("it ends within a text")
        self.at += length
        return self.data[self.at - length : self.at]

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string().decode("utf-8", "replace")
        if kind != _ARRAY:
            return self._take(_SCALARS[kind])[0]
        inner, count = self._take("IQ")
        if count > len(self.data):
            raise ValueError("it ends within a list")
        if inner == _STRING:
            return [self._string() for _ in range(count)]
        if inner == _ARRAY:
            return [self._value(inner) for _ in range(count)]
        return list(self._take(f"{count}{_SCALARS[inner]}"))
