"""FlashMLA's own tests, as they are fetched, over `mlagen.compat.flash_mla`.

    python tests/gpu/flash_mla_tests.py FOLDER [--test dense|prefill|decode] [--jobs N]
        [--seconds N] [--only speed|results] [--where EXPRESSION]

FOLDER is a checkout of FlashMLA, in whose files nothing is changed. A test's main block runs once
with a function in the place of the test's own that notes the cases; then the test's own function
runs a share of them, or of those for which the expression of `c`, a case, is true. `--jobs` starts
a process for each share; cases of one kernel stay together, and the largest are in the first share,
one after another. No case is begun after `--seconds`. What tests print of cases that pass is left
out, but for times. Needs a Hopper GPU, torch, triton, rich.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen
from threading import Timer
from typing import Any
from unittest.mock import MagicMock, patch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
TESTS = {  # files, and the names of their functions
    "dense": ("test_flash_mla_dense_decoding", "test_flash_mla"),
    "prefill": ("test_flash_mla_sparse_prefill", "run_test"),
    "decode": ("test_flash_mla_sparse_decoding", "test_flash_mla"),
}
SPEED = re.compile(r"TFlops|TFLOPS|\bus\b")
COUNTS = re.compile(r"(\d+) passed, (\d+) failed, (\d+) not begun")
TRIES = 40  # for a case that finds no memory, which the other parts hold
SHOWN = 3  # of the slowest cases
LATE = 60.0  # seconds: a case that takes longer is told of, as it may never end
KEPT = ("FAILED", "STOPPED", "SPEED", "SLOW", "LATE", "RESULT", "    ")
# Numbers: what a case costs besides its own, and from when on a GPU has no room for one a part.
LEAST, HEAVY = 10**9, 3.5e9
LONGEST = 3  # times the mean: the longest sequence of a case, about


def kernel(case: Any) -> tuple[Any, ...]:
    """What cases of one kernel have in common."""
    if hasattr(case, "s_k"):
        return case.h_kv, case.h_q, case.s_q, case.is_causal and case.s_q > 1
    if case.decode is None:
        return case.d_qk, case.h_q
    return case.d_qk, case.h_q, case.s_q, case.decode.extra_topk is not None


def weight(case: Any) -> int:
    """Numbers of the cache, of gathered rows, of queries and, as they are held twice, of scores;
    about."""
    if hasattr(case, "s_k"):
        return case.b * LONGEST * case.s_k * case.h_kv * case.d
    queries, topk, rows, more = case.s_q, case.topk, 0, case.decode
    if more is not None:
        queries, topk = more.b * queries, topk + (more.extra_topk or 0)
        rows = more.b * LONGEST * (case.s_kv + (more.extra_s_k or 0))
    return queries * (topk * (case.d_qk + 2 * case.h_q) + case.h_q * case.d_qk) + rows * case.d_qk


def timed(case: Any) -> bool:
    return bool(case.test_performance) if hasattr(case, "s_k") else case.num_runs > 0


def shares(cases: list[Any], parts: int) -> list[list[Any]]:
    """Cases of each part: those that are heavy in the first one; the others in the order of their
    kernels, cut where parts weigh the same."""
    order = sorted(cases, key=lambda case: (weight(case) <= HEAVY, kernel(case)))
    costs = [LEAST + weight(case) for case in order]
    heavy = sum(cost for case, cost in zip(order, costs, strict=True) if weight(case) > HEAVY)
    first, total = max(heavy, sum(costs) // parts), sum(costs)
    found: list[list[Any]] = [[] for _ in range(parts)]
    before = 0
    for case, cost in zip(order, costs, strict=True):
        if before < first or parts == 1:
            part = 0
        else:
            part = 1 + (before - first) * (parts - 1) // (total - first)
        found[part].append(case)
        before += cost
    return found


@dataclass(frozen=True)
class Test:
    """A test file: its function, and the cases of its main block with their seeds of a whole
    run."""

    function: Any
    cases: list[Any]

    @staticmethod
    def of(folder: Path, name: str) -> Test:
        file, function = TESTS[name]
        path = folder / "tests" / f"{file}.py"
        *body, main = ast.parse(path.read_text()).body
        assert isinstance(main, ast.If), f"{path} does not end with its main block"
        names: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
        exec(compile(ast.Module(body, []), path, "exec"), names)
        own, cases = names[function], []

        def note(case: Any) -> Any:
            if getattr(case, "seed", 0) == -1:  # the next number of a counter
                case.seed = len(cases)
            cases.append(case)
            return names["Result"](True, *[0.0] * 6) if "Result" in names else True

        names[function] = note
        if "rich" in names:
            names["rich"] = MagicMock()  # a table of all cases
        with (
            redirect_stdout(StringIO()), patch.object(sys, "argv", [str(path)]),
            patch.dict(os.environ, NO_COOLDOWN="1"),
        ):  # fmt: skip
            exec(compile(ast.Module([main], []), path, "exec"), names)
        return Test(own, cases)


def without_memory(error: Exception) -> bool:
    text = str(error).lower().replace("_", " ")
    return "out of memory" in text or "alloc failed" in text


def judged(function: Any, case: Any, said: StringIO) -> str:
    """What is wrong with a case, nothing if it passes. `said`: what its test prints."""
    import torch

    wrong = ""
    for attempt in range(TRIES):
        if attempt:  # what the last one held is given back now
            torch.cuda.empty_cache()
            time.sleep(1)
        torch.use_deterministic_algorithms(False)  # an attempt may have ended where they are on
        said.seek(0)
        said.truncate()
        try:
            with redirect_stdout(said):
                result = function(case)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
            if not without_memory(error):
                return wrong
        else:
            passed = result is None or bool(getattr(result, "is_correct", result))
            return "" if passed else "another result"
    return f"no memory: {wrong}"


def run(options: argparse.Namespace, part: int, parts: int) -> int:
    """Runs a share of the cases; how many failed or were not begun."""
    started = time.monotonic()
    import torch

    from mlagen.compat import flash_mla

    flash_mla.install()
    sys.path.insert(0, str(options.folder / "tests"))
    test = Test.of(options.folder, options.test)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // parts))
    wanted = [
        c for c in test.cases
        if options.only in (None, "speed" if timed(c) else "results")
        and eval(options.where, {"c": c})
    ]  # fmt: skip
    cases, passed, failed, slow = shares(wanted, parts)[part], 0, 0, []
    for case in cases:
        began = time.monotonic()
        if began - started > options.seconds:
            break
        if timed(case):
            time.sleep(0.3)  # as the tests do
        said = StringIO()
        late = Timer(LATE, print, [f"LATE after {LATE:.0f} s: {case}"], {"file": sys.stdout})
        late.start()
        wrong = judged(test.function, case, said)
        late.cancel()
        slow.append((time.monotonic() - began, str(case)))
        lines = said.getvalue().splitlines()
        if wrong:
            failed += 1
            print(f"FAILED {case}: {wrong}", *lines[2:][-6:], sep="\n    ")
            try:
                torch.cuda.synchronize()
            except Exception as error:
                print(f"STOPPED: the GPU takes no more work of this process: {error}")
                break
        else:
            passed += 1
        if timed(case):
            print(f"SPEED {case}", *filter(SPEED.search, lines), sep="\n    ")
    for seconds, name in sorted(slow, reverse=True)[:SHOWN]:
        print(f"SLOW {seconds:.1f} s: {name}")
    left = len(cases) - passed - failed
    counts = f"{passed} passed, {failed} failed, {left} not begun"
    seconds = time.monotonic() - started
    print(f"RESULT {options.test} part {part}/{parts}: {counts}, {seconds:.0f} s")
    return failed + left


def run_parts(options: argparse.Namespace) -> int:
    """Runs all shares at once; how many cases failed or were not begun, or processes died."""
    base = [sys.executable, __file__, str(options.folder), "--test", options.test]
    base += ["--seconds", str(options.seconds), "--where", options.where]
    base += [] if options.only is None else ["--only", options.only]

    def one(part: int) -> tuple[int, int, int, int]:
        command, lines = [*base, "--part", f"{part}/{options.jobs}"], []
        with Popen(command, text=True, stdout=PIPE, stderr=STDOUT) as process:
            assert process.stdout is not None
            most = min(options.seconds + 2 * LATE, threading.TIMEOUT_MAX)
            kill = Timer(most, process.kill)
            kill.start()
            for line in process.stdout:
                lines.append(line.rstrip())
                if line.startswith(KEPT):
                    print(lines[-1], flush=True)
        kill.cancel()
        found = COUNTS.search("\n".join(lines))
        if found is None:
            print(f"DIED part {part}: exit status {process.returncode}", *lines[-25:], sep="\n    ")
            return 0, 0, 0, 1
        passed, failed, left = map(int, found.groups())
        return passed, failed, left, 0

    with ThreadPoolExecutor(options.jobs) as pool:
        passed, failed, left, died = map(sum, zip(*pool.map(one, range(options.jobs)), strict=True))
    more = f", {died} parts died" if died else ""
    print(f"TOTAL {options.test}: {passed} passed, {failed} failed, {left} not begun{more}")
    return failed + left + died


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--test", choices=list(TESTS), default="dense")
    parser.add_argument("--part", default="0/1", metavar="I/N")
    parser.add_argument("--only", choices=["speed", "results"])
    parser.add_argument("--where", default="True")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    file, _ = TESTS[options.test]
    if not (options.folder / "tests" / f"{file}.py").is_file():
        raise SystemExit(f"{options.folder} is no checkout of FlashMLA: it has no tests/{file}.py")
    if options.jobs > 1:
        raise SystemExit(bool(run_parts(options)))
    part, parts = map(int, options.part.split("/"))
    raise SystemExit(bool(run(options, part, parts)))


if __name__ == "__main__":
    main()
