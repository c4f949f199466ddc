"""A run that is killed at random moments, and what it loses.

    python tests/benchmarks/resume.py [--rows 2000] [--kills 10] [--seed 1]

The same command is started again after each SIGKILL, against a fake judge on a real socket. Prints
the rows lost, the lines that stand twice, and the calls made beyond those that were in flight when
the process died.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from fake_judge import FakeJudge
from fake_model import Table
from helpers import TEMPLATE, write_lines, write_template

IN_FLIGHT = 16


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as name, FakeJudge() as fake:
        folder = Path(name)
        fake.set(default=Table({"4": 0.6, "5": 0.4}), latency=0.005)
        one = TEMPLATE.replace("  style: Is the answer well written?\n", "")
        template = write_template(folder, one)
        data = write_lines(
            folder / "rows.jsonl",
            ({"id": f"r{n}", "question": f"Q{n}?", "answer": f"A{n}."} for n in range(args.rows)),
        )
        command = [
            sys.executable, "-m", "geval", "score", str(data), "--template", str(template),
            "--judge", "openai:fake-1", "--base-url", fake.base_url, "--out", str(folder / "run"),
            "--reasons", "none", "--no-cache", "--quiet", "--concurrency", str(IN_FLIGHT),
        ]  # fmt: skip
        environment = {**os.environ, "GEVAL_CACHE": str(folder / "cache")}
        results = folder / "run/results.jsonl"
        marks = sorted(rng.sample(range(1, 2 * args.rows), args.kills))
        for mark in marks:
            process = subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            while process.poll() is None and lines_of(results) < mark:
                time.sleep(0.003)
            process.send_signal(signal.SIGKILL)
            process.wait()
            print(f"killed at {lines_of(results):,} lines", flush=True)
        code = subprocess.run(command, env=environment, capture_output=True).returncode
        seen = Counter(
            (r["id"], r["criterion"])
            for r in map(json.loads, results.read_text(encoding="utf-8").splitlines())
        )
        prompts = (body["messages"][-1]["content"] for body in fake.bodies())
        # The probe's calls carry no row.
        asked = Counter(found[1] for p in prompts if (found := re.search(r"\](A\d+)\.\[", p)))
        again = sum(count - 1 for count in asked.values())
        print(f"exit code {code}")
        print(f"rows lost: {args.rows - len({i for i, _ in seen})}")
        print(f"lines that stand twice: {sum(count > 1 for count in seen.values())}")
        print(
            f"calls made again: {again:,} over {args.kills} kills "
            f"(at most {IN_FLIGHT} in flight each: {IN_FLIGHT * args.kills:,})"
        )


def lines_of(path: Path) -> int:
    """Lines of a file that may not be there yet."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


if __name__ == "__main__":
    main()
