"""The judge `replay:FILE`: answers from recorded replies and calls nobody.

FILE is a run folder, its `replies.jsonl`, or any JSON lines (also gzipped) of the same fields
(`geval.judges.records`). Lines written by hand may be short:

    {"id": "1", "criterion": "c", "text": "4"}                        one answer
    {"id": "1", "criterion": "c", "alternatives": {"4": 0.6, "5": 0.4}}  probabilities at it
    {"id": "1", "criterion": "c", "responses": ["4", "5", "4"]}       samples 0, 1, 2

A reply is found by its prompt, else by id and criterion (without a criterion: for all of them).
Of two lines for one call the later counts. Only places are held in memory, not replies.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from geval.errors import ConfigError, RejectedError, nearest
from geval.judges.base import METHODS, Choice, Method, Reply, Request, Usage
from geval.judges.records import record_to_reply
from geval.notes import told

_MOST_CHOICES = 1024  # of one record: the number of a choice shares an integer with its offset
_TEXT = "text"  # samples and single answers are the same kind of record


class ReplayJudge:
    """Recorded replies as a judge. Raises ConfigError for a broken line, naming file and line."""

    def __init__(self, path: Path) -> None:
        self.spec = f"replay:{path}"
        self.concurrency = 16
        self.path = path / "replies.jsonl" if path.is_dir() else path
        self._places: dict[int, int] = {}
        self._methods: set[Method] = set()
        self._models: set[str] = set()
        self._several = self._plain = False
        self._notes: list[str] = []
        self._told_by_id = self._by_id_now = False
        self._file, self._sha256 = _open(self.path)
        self._scan()

    @classmethod
    def from_spec(cls, argument: str, **unknown: Any) -> ReplayJudge:
        """The judge `replay:ARGUMENT`."""
        if unknown:
            name = next(iter(unknown))
            raise ConfigError(f"the judge replay has no option {name!r}", hint=nearest(name, ()))
        if not argument.strip():
            raise ConfigError("the judge replay needs a file", hint="Write replay:FILE.")
        return cls(Path(argument))

    # Judge protocol

    async def methods(self) -> tuple[Method, ...]:
        """The methods whose replies the file holds, in the order `auto` tries them."""
        found = set(self._methods)
        if self._plain:
            found.add("samples" if self._several else "single")
        order = ("exact", *(m for m in METHODS if m != "exact"))
        return tuple(m for m in order if m in found)

    async def complete(self, request: Request) -> Reply:
        """The recorded reply. Raises RejectedError where there is none."""
        self._by_id_now = False
        choices: list[Choice] = []
        usage, model, level_probs = Usage(), "", None
        held, last = None, -1
        for step in range(max(1, request.n)):
            place = self._find(request, request.index + step)
            if place is None:
                break
            offset, number = divmod(place, _MOST_CHOICES)
            if offset != last:
                held, last = self._read(offset), offset
                # The tokens of a record of several samples count once.
                usage += held.usage if number == 0 else Usage()
            assert held is not None
            choices.append(held.choices[number])
            model, level_probs = held.model, held.level_probs
        if held is None:
            raise self._missing(request)
        notes, self._notes = tuple(self._notes), []
        warnings = ("prompt_differs_from_recording",) if self._by_id_now else ()
        return Reply(tuple(choices), usage, model, level_probs, notes, warnings)

    def identity(self) -> dict[str, Any]:
        """File, its hash, and the models that were recorded."""
        return {
            "judge": "replay",
            "file": self.path.name,
            "sha256": self._sha256,
            "recorded": sorted(self._models),
        }

    async def aclose(self) -> None:
        """Close the file."""
        self._file.close()

    # Index

    def _scan(self) -> None:
        for number, offset, line in _lines(self._file):
            try:
                record = json.loads(line.decode("utf-8-sig" if offset == 0 else "utf-8"))
                record = full_record(record)
            except (ValueError, TypeError) as error:
                if not line.endswith(b"\n") and line.startswith(b'{"prompt_sha256"'):
                    self._notes.append(told("replay_cut", path=self.path))
                    break
                raise ConfigError(
                    f"not a recorded reply: {error}",
                    where=f"{self.path}:{number}",
                    hint='The least is {"id": "1", "criterion": "c", "text": "4"}.',
                ) from None
            self._add(record, offset)

    def _add(self, record: Mapping[str, Any], offset: int) -> None:
        if record["model"]:
            self._models.add(record["model"])
        method = record["method"]
        count = len(record["choices"])
        if method:
            self._methods.add(method)
        else:
            self._plain = True
            self._several |= count > 1 or record["index"] > 0
        kind = method if method in ("exact", "logprobs", "decision") else _TEXT
        for number in range(count):
            index, place = record["index"] + number, offset * _MOST_CHOICES + number
            for key in _keys(record["prompt_sha256"], kind, index, record):
                self._places[key] = place

    def _find(self, request: Request, index: int) -> int | None:
        call = request.call
        fields = {
            "prefill": request.prefill, "purpose": call.purpose, "repeat": call.repeat,
            "id": call.id, "criterion": call.criterion, "unit": call.unit,
        }  # fmt: skip
        kinds = [request.method if request.method in ("exact", "logprobs", "decision") else _TEXT]
        if request.method == "single":  # the text of any other reply is one answer too
            kinds += ["logprobs", "exact"]
        for kind in kinds:
            exact, prompt, *by_id = _keys(request.prompt_sha256, kind, index, fields)
            for key in (exact, prompt):
                if key in self._places:
                    return self._places[key]
            by_id += _keys("", kind, index, {**fields, "criterion": ""})[2:]
            for key in by_id:
                if key in self._places:
                    return self._by_id(self._places[key])
        return None

    def _by_id(self, place: int) -> int:
        """Tell once that prompts differ, where the recording knows its prompts."""
        if self._record(place // _MOST_CHOICES)["prompt_sha256"]:
            self._by_id_now = True
            if not self._told_by_id:
                self._told_by_id = True
                self._notes.append(told("replay_by_id", path=self.path))
        return place

    def _record(self, offset: int) -> dict[str, Any]:
        self._file.seek(offset)
        line = self._file.readline()
        return full_record(json.loads(line.decode("utf-8-sig" if offset == 0 else "utf-8")))

    def _read(self, offset: int) -> Reply:
        try:
            return record_to_reply(self._record(offset))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self._file.seek(0)
            number = self._file.read(offset).count(b"\n") + 1
            raise ConfigError(
                f"not a recorded reply: {error!r}", where=f"{self.path}:{number}"
            ) from None

    def _missing(self, request: Request) -> RejectedError:
        call = request.call
        unit = f", unit {call.unit}" if call.unit is not None else ""
        return RejectedError(
            f"no recorded reply for id {call.id!r}, criterion {call.criterion!r}{unit}, "
            f"{request.method} {request.index}, purpose {call.purpose!r}"
            + (f", prefill {request.prefill!r}" if request.prefill else "")
            + f" (prompt {request.prompt_sha256[:12]})",
            where=str(self.path),
            hint="The prompt, the rows or the settings differ from those of the recording.",
        )


def full_record(line: object) -> dict[str, Any]:
    """The record that a line stands for, with all fields that finding needs.

    Raises ValueError or TypeError for what is none.
    """
    if not isinstance(line, dict):
        raise TypeError("the line is no JSON object")
    record = {
        "prompt_sha256": "", "id": "", "criterion": "", "unit": None, "repeat": 0,
        "purpose": "score", "index": 0, "method": None, "prefill": "", "model": "",
    }  # fmt: skip
    record.update({key: value for key, value in line.items() if value is not None})
    record["id"], record["model"] = str(record["id"]), str(record["model"])
    for name in ("index", "repeat"):
        if not isinstance(record[name], int):
            raise TypeError(f"{name} is no whole number")
    if record["method"] is not None and record["method"] not in METHODS:
        raise ValueError(f"unknown method {record['method']!r}; {nearest('', METHODS)}")
    if "choices" not in line:
        _from_hand(record)
    choices = record["choices"]
    if not isinstance(choices, list) or not choices or len(choices) > _MOST_CHOICES:
        raise ValueError(f"choices must be a list of 1 to {_MOST_CHOICES}")
    if not all(isinstance(c, dict) and isinstance(c.get("text"), str) for c in choices):
        raise TypeError("each choice needs a text")
    return record


def _from_hand(record: dict[str, Any]) -> None:
    responses = record.get("responses")
    if responses is not None:
        if not isinstance(responses, list) or not all(isinstance(r, str) for r in responses):
            raise TypeError("responses must be a list of texts")
        record["choices"] = [{"text": text} for text in responses]
        return
    alternatives = record.get("alternatives")
    if alternatives is not None:
        record["method"] = record["method"] or "logprobs"
        record["choices"] = [_with_alternatives(record.get("text"), alternatives)]
        return
    if not isinstance(record.get("text"), str):
        raise TypeError("neither text, alternatives, responses nor choices")
    record["choices"] = [{"text": record["text"]}]


def _with_alternatives(text: object, alternatives: object) -> dict[str, Any]:
    """A choice whose first token has these probabilities; without a text it is the likeliest."""
    if not isinstance(alternatives, dict) or not alternatives:
        raise TypeError('alternatives must be like {"4": 0.6, "5": 0.4}')
    for value in alternatives.values():
        if not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ValueError(f"{value!r} is no probability")
    if math.fsum(alternatives.values()) > 1 + 1e-6:
        raise ValueError("the probabilities sum to more than 1")
    # Written by hand, a probability of 1 is meant; read from a server it is how a list is missing.
    logs = {t: math.log(min(p, 1 - 1e-12)) if p > 0 else None for t, p in alternatives.items()}
    if text is None:
        text = max(alternatives, key=lambda t: alternatives[t])
    if not isinstance(text, str):
        raise TypeError("text is no text")
    sampled = max((t for t in alternatives if text.startswith(t)), key=len, default=None)
    if sampled is None:
        raise ValueError("text begins with none of the alternatives")
    tokens: list[list[Any]] = [[sampled, logs[sampled], list(map(list, logs.items()))]]
    if text[len(sampled) :]:
        tokens.append([text[len(sampled) :], None, []])
    return {"text": text, "tokens": tokens}


def _keys(sha256: str, kind: str, index: int, fields: Mapping[str, Any]) -> list[int]:
    """Keys of a call, most telling first: prompt and place, prompt alone, place alone."""
    call = (kind, index, fields["prefill"], fields["purpose"], fields["repeat"])
    place = (fields["id"], fields["criterion"], fields["unit"])
    return [
        _hash("both", sha256, place, call) if sha256 else -1,
        _hash("prompt", sha256, call) if sha256 else -1,
        _hash("place", place, call),
    ]


def _hash(*parts: object) -> int:
    """64 bits: a few bytes per call instead of its text."""
    digest = hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest)


def _open(path: Path) -> tuple[IO[bytes], str]:
    """The file for reading at any place (a gzipped one unpacked aside), and its sha256."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise ConfigError(
            f"cannot read the recorded replies: {error.strerror}", where=str(path)
        ) from None
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    file.seek(0)
    if file.read(2) != b"\x1f\x8b":
        file.seek(0)
        return file, digest
    file.seek(0)
    unpacked = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the judge
    try:
        with file, gzip.GzipFile(fileobj=file) as packed:
            while block := packed.read(1 << 20):
                unpacked.write(block)
    except (OSError, EOFError) as error:
        raise ConfigError(f"cannot be unpacked: {error}", where=str(path)) from None
    unpacked.seek(0)
    return unpacked, digest


def _lines(file: IO[bytes]) -> Iterator[tuple[int, int, bytes]]:
    """Number, offset and bytes of every line that is not blank."""
    file.seek(0)
    offset = 0
    for number, line in enumerate(file, start=1):
        if line.strip():
            yield number, offset, line
        offset += len(line)
