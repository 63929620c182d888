"""Leaves out each operation of each form of every shipped schedule, example and tutorial kernel.

    python tests/deleted/run.py                    # drop; the whole of it
    python tests/deleted/run.py --kind swap --kind shift --sample 40 --salt 1

`drop` takes each operation, and each statement that records some, away; `swap` exchanges two
neighbours, `shift` changes a tile by one. Each change is built, but not assembled. What survives is
printed. Of dropped ones only hints may: exit code 4 where others do. A survivor of the other kinds
may be right, and `mlagen verify` tells.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from attempts import attempt, attempts_by_value, edits, harmless
from schedule_forms import candidates, examples, forms, written


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kind", action="append", choices=("drop", "swap", "shift"))
    parser.add_argument("--sample", type=int, help="edits of a form, drawn by the salt; all")
    parser.add_argument("--salt", type=int, default=0)
    parser.add_argument("--share", default="0/1", metavar="INDEX/OF")
    given = parser.parse_args()
    kinds = tuple(given.kind or ("drop",))
    index, of = (int(x) for x in given.share.split("/"))
    rng, counts, bad = random.Random(given.salt), Counter[tuple[str, str]](), 0
    with tempfile.TemporaryDirectory(prefix="mlagen-deleted-") as folder:
        known = [*forms(candidates()), *forms([*examples(), *written(Path(folder))])]
        print(f"{len(known)} forms", flush=True)
        for form in known[index::of]:
            tried = list(attempts_by_value(form)) if "drop" in kinds else []
            changed = edits(form, kinds)
            if given.sample is not None:
                changed = rng.sample(changed, min(given.sample, len(changed)))
            for outcome in (*(each() for each in tried), *(attempt(form, x) for x in changed)):
                counts[outcome.kind, outcome.word] += 1
                allowed = harmless(outcome)
                bad += outcome.word == "crashed" or (outcome.kind == "drop" and not allowed)
                if outcome.word in ("survived", "crashed"):
                    print(f"{outcome}{allowed and f' ({allowed})'}", flush=True)
    for (kind, word), count in sorted(counts.items()):
        print(f"{kind:6} {word:9} {count}")
    return 4 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
