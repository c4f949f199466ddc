"""What a probe found, kept between runs: one small JSON file per endpoint, model and options.

The files lie beside the reply cache (GEVAL_CACHE names another place) and hold nothing of the
user's data and no key. A file that is old, broken or of another form is as good as none, and one
that cannot be written costs a probe the next time, never a run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

FORMAT = 1
DAYS = timedelta(days=7)
HOUR = timedelta(hours=1)
"""For a server on this machine: it is started anew with other options, and a probe is free."""


class Kept:
    """The place of what is known about `what` (plain JSON values), for as long as `age`."""

    def __init__(self, what: Mapping[str, Any], age: timedelta = DAYS) -> None:
        self.what, self.age = dict(what), age

    @property
    def path(self) -> Path:
        """The file, named by the host for those who look."""
        from geval.traffic.cache import cache_path

        text = json.dumps(self.what, sort_keys=True, ensure_ascii=False)
        digest = hashlib.sha256(text.encode()).hexdigest()[:20]
        host = re.sub(r"[^\w.-]+", "_", str(self.what.get("endpoint", "")))[:60]
        return cache_path().parent / "probes" / f"{host}-{digest}.json"

    def load(self) -> dict[str, Any] | None:
        """What was found, None where nothing is known or it is too old."""
        try:
            record = json.loads(self.path.read_text(encoding="utf-8"))
            date = datetime.fromisoformat(record["date"])
            fresh = timedelta() <= datetime.now(UTC) - date <= self.age
            if record["format"] == FORMAT and fresh:
                return dict(record["found"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return None

    def save(self, found: Mapping[str, Any]) -> None:
        """Keep `found`, dated now."""
        date = datetime.now(UTC).isoformat(timespec="seconds")
        record = {"format": FORMAT, "date": date, "what": self.what, "found": dict(found)}
        path = self.path
        new = path.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(json.dumps(record, ensure_ascii=False, indent=1), encoding="utf-8")
            new.replace(path)

    def forget(self) -> None:
        """Let the next run probe again."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
