"""Fuzzing of everything that reads foreign code: runs batches in processes that may die.

    PYTHONPATH=. python tests/foreign/fuzz.py --cases 100000 --seed 1
    PYTHONPATH=. python tests/foreign/fuzz.py --ptx --cases 50000 --seed 1

Prints the cases by class and outcome. A crash, a hang (no case ends within --patience seconds), a
write into a guard zone or an exception that is no MlagenError is a failure: it is named with the
call that makes it again (--again "class/seed/number"), and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "binary"))

import fuzz_cases
import ptx_fuzz_cases

SHARE = {  # of all cases
    "noise": 0.15,
    "truncated": 0.15,
    "flipped": 0.15,
    "text noise": 0.2,
    "pieces": 0.15,
    "words": 0.1,
    "manifests": 0.1,
}
PTX_SHARE = {
    "ptx pieces": 0.3,
    "ptx kernels": 0.25,
    "ptx tensors": 0.15,
    "ptx files": 0.05,
    "ptx noise": 0.1,
    "ptx launches": 0.15,
}
_BATCH = 2500
_ADDRESSES = 8 << 30  # bytes that a worker may have mapped


@dataclass
class Tally:
    """Outcomes by class, and what failed."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.outcomes += other.outcomes
        self.failures += other.failures

    @property
    def cases(self) -> int:
        return sum(self.outcomes.values()) + len(self.failures)


def try_case(name: str, seed: int, number: int) -> tuple[str, str]:
    """(outcome, failure): one of them is empty."""
    try:
        cases = ptx_fuzz_cases if name in PTX_SHARE else fuzz_cases
        case, source = cases.make(name, seed, number)
        return cases.judge(case, source), ""
    except Exception:
        return "", f"{name}/{seed}/{number}\n{traceback.format_exc()}"


def run_here(name: str, seed: int, first: int, count: int, tally: Tally) -> None:
    """Cases in this process."""
    for number in range(first, first + count):
        outcome, failure = try_case(name, seed, number)
        if failure:
            tally.failures.append(failure)
        else:
            tally.outcomes[name, outcome] += 1


def _limit() -> None:
    """No memory beyond what a case may take: what asks for more is a failure."""
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _work(name: str, seed: int, first: int, count: int) -> None:
    """A process of its own: one line a case, so that the case that ends it is known."""
    _limit()
    for number in range(first, first + count):
        outcome, failure = try_case(name, seed, number)
        print(json.dumps([number, outcome, failure]), flush=True)


def run_apart(name: str, seed: int, first: int, count: int, tally: Tally, patience: float) -> None:
    """Cases in processes that are replaced when one crashes or hangs."""
    end = first + count
    while first < end:
        command = [sys.executable, __file__, "--worker", f"{name}/{seed}/{first}/{end - first}"]
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
            done = _listen(process, name, tally, patience)
            first += done
            if first >= end:
                process.wait()
                return
            process.kill()
            code = process.wait()
            errors.seek(0)
            said = errors.read().decode(errors="replace")[-600:]
        tally.failures.append(
            f"{name}/{seed}/{first}\nthe process ended or hung (exit {code}): {said}"
        )
        first += 1


def _listen(process: subprocess.Popen[bytes], name: str, tally: Tally, patience: float) -> int:
    """Take the worker's lines until it ends or stays silent; how many cases it finished."""
    import os
    import select

    assert process.stdout is not None
    stream, rest, done = process.stdout.fileno(), b"", 0
    allowed = patience + 240  # the first case waits for the engine to be compiled
    while True:
        ready, _, _ = select.select([stream], [], [], allowed)
        chunk = os.read(stream, 1 << 16) if ready else b""
        if not chunk:
            return done
        allowed = patience
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            _, outcome, failure = json.loads(line)
            done += 1
            if failure:
                tally.failures.append(failure)
            else:
                tally.outcomes[name, outcome] += 1


def table(tally: Tally) -> str:
    """Outcomes as lines of a Markdown table."""
    lines = ["| class | outcome | cases |", "|---|---|---|"]
    for (name, outcome), count in sorted(tally.outcomes.items()):
        lines.append(f"| {name} | {outcome} | {count} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--patience", type=float, default=60.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--ptx", action="store_true", help="PTX texts and launch files")
    parser.add_argument("--only", choices=sorted(SHARE | PTX_SHARE))
    parser.add_argument("--again", metavar="CLASS/SEED/NUMBER")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        name, seed, first, count = given.worker.split("/")
        _work(name, int(seed), int(first), int(count))
        return 0
    if given.again:
        name, seed, number = given.again.split("/")
        outcome, failure = try_case(name, int(seed), int(number))
        print(outcome or failure)
        return bool(failure)
    tally, started = Tally(), time.perf_counter()
    batches = []
    for name, share in (PTX_SHARE if given.ptx else SHARE).items():
        count = round(given.cases * share) if given.only in (None, name) else 0
        batches += [(name, at, min(_BATCH, count - at)) for at in range(0, count, _BATCH)]

    def batch(name: str, first: int, count: int) -> Tally:
        part = Tally()
        run_apart(name, given.seed, first, count, part, given.patience)
        print(f"{name} from {first}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
        return part

    with ThreadPoolExecutor(given.jobs) as pool:
        for part in pool.map(lambda one: batch(*one), batches):
            tally.add(part)
    print(table(tally))
    print(f"\n{tally.cases} cases, {len(tally.failures)} failures, ", end="")
    print(f"{time.perf_counter() - started:.0f} s")
    for failure in tally.failures[:40]:
        print(f"\nFAILED {failure}")
    return bool(tally.failures)


if __name__ == "__main__":
    sys.exit(main())
