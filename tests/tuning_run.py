"""One study in a process of its own, to be killed: OUT BUDGET ROWS SEED PAUSE."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tuning_judge import KEY, TEXT, PromptJudge, rows, template

import geval


def write(prompt: str) -> str:
    """Proposals: steps where a list is asked for, else a text that the judge likes."""
    if "[[ ##" not in prompt:
        return "1. Look at the question.\n2. Look at the answer.\n3. Choose a level."
    last = prompt.rsplit("with the field `[[ ## ", 1)[-1].split(" ##", 1)[0]
    return f"[[ ## {last} ## ]]\n{KEY} {TEXT}\n\n[[ ## completed ## ]]"


def main() -> None:
    out, budget, count, seed, pause = sys.argv[1:]

    def waits(n: int) -> None:
        print(n, flush=True)
        time.sleep(float(pause))

    tuned = geval.tune(
        rows(int(count), int(seed)),
        template=template(),
        judge=PromptJudge(writes=write, on_call=waits),
        group="document",
        budget=int(budget),
        out=Path(out),
        cache=False,
        report=False,
        seed=int(seed),
    )
    print("verdict", tuned.verdict, flush=True)


if __name__ == "__main__":
    main()
