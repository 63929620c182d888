"""The fuzzer of schedules as a command: random edits, who refused them, who is right.

    run.py -o out/fuzz --edits gfx950=3000 --edits sm_90a=1000 --share 0/2
    run.py -o out/fuzz --report            # the tables of all shares
    run.py --one mha_prefill_v2:17 --show  # one edit again, with its text

Results are lines of JSON, one file a share; what is there is not done again. Exit code 4: an edit
was proved and is wrong, did not end, or raised what is no error of mlagen's.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "ptx")]
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")
# The process that forks imports the same modules.
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:3])

from fuzzed import CASES, Case, named  # noqa: E402
from judge import SIZES, attempt, different, draw, prepare, survey  # noqa: E402
from table import failures, summary, tables  # noqa: E402

from mlagen.tune.sandbox import Sandbox, TimedOut  # noqa: E402

LIMIT = 90.0  # seconds of one edit, building and judging
TARGETS = ("gfx950", "sm_90a", "sm_100a")


def plan(counts: dict[str, int], cases: list[Case], first: int = 0) -> list[tuple[Case, int]]:
    """Cases and seeds of a campaign of so many edits a target, all of them different; -1 is the
    unedited kernel. `first`: the first seed."""
    found = []
    for target, count in counts.items():
        of = [case for case in cases if case.target == target]
        whole = sum(case.share for case in of)
        for case in of:
            with tempfile.TemporaryDirectory(prefix="mlagen-fuzz-") as folder:
                seeds = different(
                    survey(case, Path(folder)), round(count * case.share / whole), first
                )
            found += [(case, seed) for seed in [-1, *seeds]]
    return found


def campaign(
    work: list[tuple[Case, int]], output: Path, *, share: tuple[int, int], seconds: float
) -> int:
    """Try the edits of a share that `output` does not have; how many were tried."""
    index, of = share
    done = {(x["case"], x["seed"]) for x in results(output)}
    own = [x for n, x in enumerate(work) if n % of == index]
    todo = [x for x in own if (x[0].name, x[1]) not in done]
    started, tried = time.monotonic(), 0
    output.mkdir(parents=True, exist_ok=True)
    with (output / f"share_{index}_of_{of}.jsonl").open("a") as lines:
        for case in dict.fromkeys(case for case, _ in todo):
            with tempfile.TemporaryDirectory(prefix="mlagen-fuzz-") as folder:
                place = Path(folder)
                sandbox = Sandbox(partial(prepare, case, place))
                for seed in (s for c, s in todo if c is case):
                    if time.monotonic() - started > seconds:
                        sandbox.close()
                        return tried
                    result = one(sandbox, case, place, seed)
                    lines.write(json.dumps(result) + "\n")
                    lines.flush()
                    tried += 1
                    if result["outcome"] in ("wrong", "crash", "hang", "died"):
                        print(f"{result['outcome']}: {case.name}:{seed} {result['edits']}: "
                              f"{result.get('message')}", flush=True)  # fmt: skip
                sandbox.close()
    return tried


def one(sandbox: Sandbox, case: Case, folder: Path, seed: int) -> dict[str, Any]:
    """One edit in a process of its own."""
    try:
        return sandbox.call(attempt, case, folder, seed, limit=LIMIT)  # type: ignore[no-any-return]
    except Exception as error:  # of the judge too: nothing of a campaign is lost by one edit
        doing = (folder / "doing").read_text() if (folder / "doing").exists() else ""
        outcome = "hang" if isinstance(error, TimedOut) else "died"
        change = draw(survey(case, folder), seed)
        return {
            "case": case.name, "seed": seed, "kind": change.kind, "outcome": outcome,
            "edits": [f"{e.kind}: {e.text}" for e in change.edits],
            "error": type(error).__name__, "message": f"{error}, at: {doing}",
        }  # fmt: skip


def results(output: Path) -> list[dict[str, Any]]:
    """All lines of all shares."""
    return [
        json.loads(line)
        for path in sorted(output.glob("share_*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("out/fuzz"))
    parser.add_argument("--edits", action="append", default=[], metavar="TARGET=COUNT")
    parser.add_argument("--case", action="append", default=[], help="only these cases")
    parser.add_argument("--share", default="0/1", metavar="INDEX/OF")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--one", metavar="CASE:SEED", help="one edit, shown whole")
    parser.add_argument("--show", action="store_true", help="with the edited source")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--sizes", action="store_true", help="edits of sizes alone")
    parser.add_argument("--report", action="store_true", help="the table of what is there")
    given = parser.parse_args()
    if given.one:
        name, _, seed = given.one.partition(":")
        with tempfile.TemporaryDirectory(prefix="mlagen-fuzz-") as folder:
            case = named(name)
            if given.show:
                print(draw(survey(case, Path(folder)), int(seed)).text)
            print(json.dumps(attempt(case, Path(folder), int(seed)), indent=2))
        return 0
    if not given.report:
        counts = {t: int(c) for t, c in (x.split("=") for x in given.edits)}
        cases = [named(name) for name in given.case] or list(CASES)
        index, of = (int(x) for x in given.share.split("/"))
        started = time.monotonic()
        work = plan(counts, cases, SIZES * given.sizes + given.first)
        tried = campaign(work, given.output, share=(index, of), seconds=given.seconds)
        minutes = (time.monotonic() - started) / 60
        print(f"{tried} edits in {minutes:.1f} minutes, {tried / max(minutes, 1e-9):.0f} a minute")
    found = results(given.output)
    print(tables(found))
    print(summary(found))
    return 4 if failures(found) else 0


if __name__ == "__main__":
    sys.exit(main())
