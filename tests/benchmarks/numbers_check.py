"""How many example rows of finance_qa have figures that no source holds, by kind of answer.

python tests/benchmarks/numbers_check.py            with the reference answers
python tests/benchmarks/numbers_check.py --without  without them
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict

from geval.checks import checked
from geval.sample import Sample
from geval.template import Template


def main() -> None:
    without = "--without" in sys.argv
    print("| locale | kind | rows | with unmatched figures |\n|---|---|---|---|")
    for locale in ("ko", "en"):
        template = Template.load("finance_qa", locale)
        path = template.examples()
        assert path is not None
        seen: dict[str, list[bool]] = defaultdict(list)
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            fields = {name: row.get(name) for name in template.front.inputs}
            if without:
                fields["reference"] = None
            right = row["label"].get("overall_right")
            kind = f"{'right' if right else 'wrong'}: {row['kind']}"
            seen[kind].append(bool(checked(template, Sample(row["id"], fields))))
        for kind, found in sorted(seen.items()):
            print(f"| {locale} | {kind} | {len(found)} | {sum(found)} |")
        for side in ("right", "wrong"):
            found = [f for kind, all_ in seen.items() if kind.startswith(side) for f in all_]
            print(f"| {locale} | all {side} | {len(found)} | {sum(found)} |")


if __name__ == "__main__":
    main()
