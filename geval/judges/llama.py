"""Opening a model in llama.cpp (package xllamacpp): parameters, memory, the cause of a failure."""

from __future__ import annotations

import importlib
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from geval.errors import ConfigError
from geval.judges.gguf import Header
from geval.judges.machine import cpu_limit, free_memory
from geval.judges.weights import WeightFile

UBATCH = 512
"""Tokens that are evaluated together."""

_SCRATCH = 256 << 20  # bytes of the engine beside weights, context and attention
_SILENT, _ERRORS, _INFO = -1, 1, 3  # verbosity
_PATH_LIMIT = 100  # bytes of a socket's path; systems allow 104 or 108


def check_memory(weights: WeightFile, header: Header, context: int) -> None:
    """Raise ConfigError where the model would not fit into the memory that is free."""
    needed = needed_memory(weights.size, header, context)
    free = free_memory()
    if free is not None and needed > free:
        raise ConfigError(
            f"the local model needs about {_gb(needed)} of memory with a context of {context} "
            f"tokens, {_gb(free)} are free",
            where=weights.path.name,
            hint="Close other programs, set a smaller GEVAL_CONTEXT, or take a smaller model: "
            "local:/path/model.gguf.",
        )


def needed_memory(size: int, header: Header, context: int) -> int:
    """Bytes: the weights, the key-value cache, one layer's attention, and the rest."""
    attention = 4 * header.heads * UBATCH * context
    return size + header.token_bytes * context + attention + _SCRATCH


def open_server(path: Path, context: int, *, verbose: bool = False) -> Any:
    """Load a model. Raises ConfigError with the engine's own reason.

    The engine insists on a listening socket. Where the system has sockets in the file system it
    gets one in a private folder, which is removed at once: nobody can connect to it any more.
    Elsewhere it listens on this machine only, with a random key and nothing for browsers.
    """
    _read_through(path)
    folder = tempfile.mkdtemp(prefix="geval-") if os.name == "posix" else None
    socket = f"{folder}/door.sock" if folder else ""
    host = socket if socket and len(os.fsencode(socket)) <= _PATH_LIMIT else "127.0.0.1"
    try:
        return serve(parameters(path, context, host=host, verbose=verbose))
    except RuntimeError as error:
        cause = _cause(path, context) or str(error)
        raise ConfigError(
            f"the engine cannot load this model: {cause}",
            where=path.name,
            hint="The file may be damaged (compare its sha256 with its source), too large for "
            "the memory, or of a kind that this version of xllamacpp does not know.",
        ) from error
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


def serve(wanted: Any) -> Any:
    """A running engine (`xllamacpp.Server`) for these parameters.

    It is asked something at once: an engine that is freed before its loop has begun never ends,
    and holds Python's lock while it waits.
    """
    server = _engine().Server(wanted)
    server.handle_completions({"prompt": "1", "max_tokens": 1})
    return server


def parameters(path: Path, context: int, *, host: str, verbose: bool = False) -> Any:
    """The engine's parameters (`xllamacpp.CommonParams`)."""
    engine = _engine()
    p = engine.CommonParams()
    p.model.path = str(path)
    p.n_ctx = context
    p.n_ubatch = UBATCH
    p.n_parallel = 1  # with several slots a shared prefix is evaluated once per slot
    p.cache_prompt = True
    p.swa_full = True  # models with a sliding window reuse no prefix without it
    p.cache_ram_mib = 0  # by default up to 8 GB of earlier prompts are kept
    p.fit_params = False  # never another context than the one that is recorded
    p.warmup = False
    # Neither repacked weights nor flash attention: with them the result depends on how much of
    # the prompt was cached. Without, memory and loading time fall and the speed stays.
    p.no_extra_bufts = True
    p.flash_attn_type = engine.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    # A reply is text as it was generated: thinking stays in it, where tokens and text agree.
    p.reasoning_format = engine.common_reasoning_format.COMMON_REASONING_FORMAT_NONE
    p.enable_reasoning = 0
    p.hostnames = [host]
    p.api_keys = [secrets.token_hex(32)]
    p.cors_origins = ""
    p.cors_methods = ""
    p.cors_headers = ""
    p.cors_credentials = False
    p.ui = False
    p.endpoint_slots = False
    p.verbosity = _INFO if verbose else _SILENT
    # By default one thread per physical core; less where this process may use fewer.
    if (cpus := cpu_limit()) is not None:
        p.cpuparams.n_threads = cpus
    # Threads that spin while they wait make a busy machine several times slower.
    p.cpuparams.poll = p.cpuparams_batch.poll = 0
    return p


def _engine() -> Any:
    try:
        return importlib.import_module("xllamacpp")
    except ImportError as error:
        raise ConfigError(
            f"the engine of the local judge cannot be imported: {error}",
            hint='Install it: pip install "geval[local]".',
        ) from error


def _read_through(path: Path) -> None:
    """Bring the file into the page cache.

    The engine holds Python's lock while it loads: waiting for the disk is better done here.
    """
    with path.open("rb", buffering=0) as file:
        block = bytearray(8 << 20)
        while file.readinto(block):
            pass


def _cause(path: Path, context: int) -> str:
    """Why a load failed: tried again in another process, whose stderr can be read safely.

    The engine gives its reasons only on file descriptor 2, which the whole process shares.
    """
    script = (
        "import sys, xllamacpp as engine\n"
        "p = engine.CommonParams()\n"
        "p.model.path, p.n_ctx, p.verbosity = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])\n"
        "p.ui = p.warmup = p.fit_params = False\n"
        "p.api_keys, p.n_parallel, p.no_extra_bufts = [sys.argv[4]], 1, True\n"
        "engine.Server(p)\n"
    )
    command = [sys.executable, "-c", script, str(path), str(context), str(_ERRORS)]
    try:
        tried = subprocess.run(
            [*command, secrets.token_hex(32)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    log = tried.stderr.decode("utf-8", "replace").replace(str(path), path.name)
    lines = re.findall(r"^[\d.]+ E (.*)$", log, re.MULTILINE)
    for pattern in (r"error loading model: (.*)", r"(insufficient memory.*)", r"(failed to .*)"):
        for line in lines:
            if found := re.search(pattern, line):
                return found[1].strip()
    return lines[0].strip() if lines else ""


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
