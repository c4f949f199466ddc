"""Time and memory as rows grow, through a stand-in judge in the same process.

    python tests/benchmarks/growth.py [--rows 10000 100000]

Each size runs in a process of its own. Prints seconds, peak memory (resident), its growth in bytes
a row beyond the first size, and the size of the run's files.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from helpers import TEMPLATE, write_template

import geval
from geval.judges.base import Alternative, Choice, Method, Reply, Request, Token, Usage

_PROBS = {"4": 0.6, "5": 0.3, "3": 0.06, "2": 0.03, "1": 0.01}
_TOKEN = Token("4", math.log(0.6), tuple(Alternative(t, math.log(p)) for t, p in _PROBS.items()))


class StandIn:
    """Answers at once, always the same."""

    spec, concurrency = "stand-in", 64

    async def methods(self) -> tuple[Method, ...]:
        """Log-probabilities alone."""
        return ("logprobs",)

    async def complete(self, request: Request) -> Reply:
        """The same distribution for each prompt."""
        return Reply((Choice("4", tokens=(_TOKEN,)),), Usage(1, 100, 1))

    def identity(self) -> dict[str, Any]:
        """Nothing but its name."""
        return {"judge": "stand-in"}

    async def aclose(self) -> None:
        """Nothing to close."""


def measure(rows: int) -> None:
    """Score `rows` rows and print one JSON line."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one = TEMPLATE.replace("  style: Is the answer well written?\n", "")
        template = write_template(folder, one)
        data = folder / "rows.jsonl"
        with data.open("w", encoding="utf-8") as file:
            for n in range(rows):
                file.write(json.dumps({"id": f"row-{n}", "question": f"Q{n}?", "answer": f"A{n}."}))
                file.write("\n")
        started, cpu = time.perf_counter(), time.process_time()
        run = geval.score(
            data, template=template, judge=StandIn(), reasons="none", cache=False,
            out=folder / "run",
        )  # fmt: skip
        assert run.manifest["summary"]["overall"]["scored"] == rows
        print(
            json.dumps(
                {
                    "rows": rows,
                    "seconds": time.perf_counter() - started,
                    "cpu": time.process_time() - cpu,
                    "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                    "results": (folder / "run/results.jsonl").stat().st_size,
                    "replies": (folder / "run/replies.jsonl").stat().st_size,
                }
            )
        )


def main() -> None:
    """Measure each size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        measure(args.one)
        return
    first: dict[str, Any] | None = None
    for rows in args.rows:
        done = subprocess.run(
            [sys.executable, __file__, "--one", str(rows)],
            capture_output=True,
            text=True,
            check=True,
        )
        told = json.loads(done.stdout.splitlines()[-1])
        first = first or told
        extra = told["rows"] - first["rows"]
        grown = f"{(told['peak'] - first['peak']) / extra:.0f} bytes a row more" if extra else ""
        print(
            f"{rows:>9,} rows  {told['seconds']:7.1f} s  {told['cpu'] / rows * 1e3:.2f} ms CPU a row  "
            f"peak {told['peak'] / 1e6:.0f} MB  results {told['results'] / 1e6:.1f} MB  "
            f"replies {told['replies'] / 1e6:.1f} MB  {grown}",
            flush=True,
        )


if __name__ == "__main__":
    main()
