"""A sweep over the cross product of problems, knobs and targets: every form builds or is refused.

    run.py -o out/sweep --sample 2000 --shard 0/2   # what is there is not done again
    run.py -o out/sweep --among num_heads=24,28,96 --among page_size=1 --among persistent=1
    run.py -o out/sweep --report                    # of all shards

`make sweep` runs it: `make sweep SAMPLE=2000 SHARD=0/2 SEED=1`. Results are lines of JSON, a file a
shard. A form whose PTX is that of an assembled one but for numbers is generated and proved, not
assembled ("proved"); with `--assemble` all are. Exit code 4: a form spills, is not proved, or ends
in an error that is no refusal.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")
sys.path.insert(0, str(Path(__file__).resolve().parent))

from judged import BUILDS, GOOD, judged  # noqa: E402
from swept_forms import Form, forms  # noqa: E402

from mlagen.codegen.schedules import names  # noqa: E402


def shard(drawn: Iterator[Form], text: str) -> Iterator[Form]:
    """Of all forms those of "INDEX/OF"."""
    index, of = (int(n) for n in text.split("/"))
    return islice(drawn, index, None, of)


def among(text: str) -> tuple[str, tuple[str, ...]]:
    """Of "num_heads=24,96" the name and its values."""
    name, sign, values = text.partition("=")
    if not (name and sign and values):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE,VALUE")
    return name, tuple(values.split(","))


def results(output: Path) -> list[dict[str, Any]]:
    """All lines of all shards."""
    return [
        json.loads(line)
        for path in sorted(output.glob("shard_*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def sweep(todo: Iterator[Form], output: Path, file: str, seconds: float, every: bool) -> None:
    """Judge the forms that `output` does not have, and say which are not good. `every`: each is
    assembled, also one that differs from another in numbers alone."""
    output.mkdir(parents=True, exist_ok=True)
    found = results(output)
    done = {line["form"] for line in found}
    assembled = {line["alike"] for line in found if line["outcome"] == BUILDS and line["alike"]}
    until = time.monotonic() + seconds
    with (output / file).open("a") as lines:
        for form in todo:
            if str(form) in done:
                continue
            one = judged(form, () if every else assembled)
            if one.outcome == BUILDS and one.alike:
                assembled.add(one.alike)
            lines.write(json.dumps(one.to_fields()) + "\n")
            lines.flush()
            if not one.good:
                print(f"{one.outcome}: {one.form}\n    {one.message}", flush=True)
            if time.monotonic() > until:
                return


def table(found: list[dict[str, Any]]) -> str:
    """Forms by kernel and outcome."""
    outcomes = Counter((line["form"].split()[0], line["outcome"]) for line in found)
    kinds = sorted({kind for _, kind in outcomes}, key=lambda kind: (kind not in GOOD, kind))
    rows = [("kernel", *kinds)]
    for kernel in sorted({kernel for kernel, _ in outcomes}):
        rows.append((kernel, *(str(outcomes[kernel, kind]) for kind in kinds)))
    totals = Counter(line["outcome"] for line in found)
    rows.append(("all", *(str(totals[kind]) for kind in kinds)))
    return "\n".join("  ".join(f"{cell:26}" if n == 0 else f"{cell:>10}"
                               for n, cell in enumerate(row)) for row in rows)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("out/sweep"))
    parser.add_argument("--sample", type=int, default=2000, help="forms of all shards")
    parser.add_argument("--shard", default="0/1", metavar="INDEX/OF")
    parser.add_argument("--seed", type=int, default=0, help="another one draws other forms")
    parser.add_argument("--kernel", action="append", default=[], choices=names())
    parser.add_argument("--among", action="append", default=[], metavar="NAME=VALUE,…", type=among,
                        help="what a field or a knob is drawn from")  # fmt: skip
    parser.add_argument("--assemble", action="store_true", help="each form, the alike ones too")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--report", action="store_true", help="the table of what is there")
    given = parser.parse_args()
    if not given.report:
        gc.disable()
        drawn = islice(forms(given.seed, tuple(given.kernel), dict(given.among)), given.sample)
        name = f"shard_{given.shard.replace('/', '_of_')}.jsonl"
        sweep(shard(drawn, given.shard), given.output, name, given.seconds, given.assemble)
    found = results(given.output)
    print(table(found))
    return 0 if all(line["outcome"] in GOOD for line in found) else 4


if __name__ == "__main__":
    sys.exit(main())
