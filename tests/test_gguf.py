"""The header of a GGUF file, from files built here by the specification."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from geval.errors import ConfigError
from geval.judges.gguf import Header, read_header
from geval.judges.llama import needed_memory

UINT32, STRING, ARRAY, INT32 = 4, 8, 9, 5


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def pair(key: str, kind: int, value: Any) -> bytes:
    if kind == STRING:
        packed = text(value)
    elif kind == ARRAY:
        inner, items = value
        packed = struct.pack("<IQ", inner, len(items)) + b"".join(
            text(i) if inner == STRING else struct.pack("<i", i) for i in items
        )
    else:
        packed = struct.pack("<I", value)
    return text(key) + struct.pack("<I", kind) + packed


PAIRS = [
    pair("general.architecture", STRING, "toy"),
    pair("general.name", STRING, "장난감 Model"),
    pair("toy.block_count", UINT32, 3),
    pair("toy.context_length", UINT32, 4096),
    pair("toy.embedding_length", UINT32, 64),
    pair("toy.attention.head_count", UINT32, 4),
    pair("toy.attention.head_count_kv", UINT32, 2),
    pair("tokenizer.ggml.tokens", ARRAY, (STRING, ["a", "<|im_end|>", "<|x|>", "<stop>"])),
    pair("tokenizer.ggml.token_type", ARRAY, (INT32, [1, 3, 3, 3])),
    pair("tokenizer.ggml.eos_token_id", UINT32, 3),
]


def write(path: Path, pairs: list[bytes], version: int = 3) -> Path:
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", version, 0, len(pairs)) + b"".join(pairs))
    return path


def test_what_is_read(tmp_path: Path) -> None:
    header = read_header(write(tmp_path / "toy.gguf", PAIRS))
    assert header == Header(
        name="장난감 Model",
        architecture="toy",
        context=4096,
        heads=4,
        token_bytes=3 * 2 * (16 + 16) * 2,  # layers, key-value heads, widths, bytes
        control={1: "<|im_end|>", 2: "<|x|>", 3: "<stop>"},
        ends=frozenset({1, 3}),
    )


def test_heads_that_differ_by_layer(tmp_path: Path) -> None:
    pairs = [p for p in PAIRS if b"head_count_kv" not in p]
    pairs.append(pair("toy.attention.head_count_kv", ARRAY, (INT32, [0, 1, 4])))
    assert read_header(write(tmp_path / "toy.gguf", pairs)).token_bytes == 2 * 32 * 5


def test_a_file_without_a_name_has_its_own(tmp_path: Path) -> None:
    pairs = [p for p in PAIRS if b"general.name" not in p]
    assert read_header(write(tmp_path / "toy.gguf", pairs)).name == "toy"


@pytest.mark.parametrize("left", [10, 30, 120, 300, -1])
def test_a_header_that_is_cut_off(tmp_path: Path, left: int) -> None:
    path = write(tmp_path / "toy.gguf", PAIRS)
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(ConfigError, match="cannot be read"):
        read_header(path)


def test_other_versions_and_other_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="GGUF version 9"):
        read_header(write(tmp_path / "toy.gguf", PAIRS, version=9))
    (tmp_path / "toy.gguf").write_bytes(b"")
    with pytest.raises(ConfigError, match="no GGUF file"):
        read_header(tmp_path / "toy.gguf")


def test_the_memory_of_the_default_model() -> None:
    header = Header("", "qwen2", 32768, 12, 28672, {}, frozenset())
    small, large = (needed_memory(1_117_320_768, header, c) for c in (8192, 32768))
    assert 1.7e9 < small < 1.9e9
    assert large - small == (28672 + 4 * 12 * 512) * (32768 - 8192)
