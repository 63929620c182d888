"""FlashMLA's own test of dense decoding, as it is fetched, over `mlagen.compat.flash_mla`.

    python tests/gpu/flash_mla_tests.py FOLDER [--jobs N] [--seconds N] [--only speed|results]

FOLDER is a checkout of FlashMLA; its tests/test_flash_mla_dense_decoding.py is imported and its
main() called. Nothing in it is changed but which of its cases a process runs: `--part` takes a
share of them, `--jobs` starts a process for each share; no case is begun after `--seconds`. Needs a
Hopper GPU, torch and triton.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
TEST = "test_flash_mla_dense_decoding"
KEPT = ("FAILED", "RESULT")


def share(case: Any, parts: int) -> int:
    """Which part runs a case. One part builds a kernel for all its cases; caches of 8 KV heads are
    large, and one part has them all."""
    if parts > 1 and case.h_kv == 8:
        return 0
    key = f"{case.h_q}/{case.h_kv}/{case.s_q}/{case.is_causal and case.s_q > 1}"
    return 1 + zlib.crc32(key.encode()) % (parts - 1) if parts > 1 else 0


def run(folder: Path, part: int, parts: int, only: str | None, most: float) -> int:
    """Runs a share of the cases; how many failed or were not begun."""
    import torch

    from mlagen.compat import flash_mla

    flash_mla.install()
    sys.path.insert(0, str(folder / "tests"))
    module = importlib.import_module(TEST)
    original, passed, failed, left = module.test_flash_mla, 0, 0, 0
    started = time.monotonic()

    def test(case: Any) -> None:
        nonlocal passed, failed, left
        if only is not None and case.test_performance != (only == "speed"):
            return
        if share(case, parts) != part:
            return
        if time.monotonic() - started > most:
            left += 1
            return
        for _ in range(20):
            torch.cuda.empty_cache()
            try:
                original(case)
            except torch.cuda.OutOfMemoryError:
                time.sleep(3)  # the other parts hold the memory
                continue
            except Exception as error:
                failed += 1
                print(f"FAILED {case}: {type(error).__name__}: {error}", flush=True)
            else:
                passed += 1
            return
        failed += 1
        print(f"FAILED {case}: no memory", flush=True)

    module.test_flash_mla = test
    module.main(torch.bfloat16)
    seconds = time.monotonic() - started
    counts = f"{passed} passed, {failed} failed, {left} not begun"
    print(f"RESULT part {part}/{parts}: {counts}, {seconds:.0f} s")
    return failed + left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", default="0/1", metavar="I/N")
    parser.add_argument("--only", choices=["speed", "results"])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    if not (options.folder / "tests" / f"{TEST}.py").is_file():
        raise SystemExit(f"{options.folder} is no checkout of FlashMLA: it has no tests/{TEST}.py")
    if options.jobs == 1:
        part, parts = map(int, options.part.split("/"))
        raise SystemExit(bool(run(options.folder, part, parts, options.only, options.seconds)))
    base = [sys.executable, __file__, str(options.folder), "--seconds", str(options.seconds)]
    base += [] if options.only is None else ["--only", options.only]
    started = [
        subprocess.Popen([*base, "--part", f"{part}/{options.jobs}"], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for part in range(options.jobs)
    ]  # fmt: skip
    for process in started:
        text, _ = process.communicate()
        lines = [line for line in text.splitlines() if line.startswith(KEPT) or "TFLOPS" in line]
        print("\n".join(lines or text.splitlines()[-15:]), flush=True)
    raise SystemExit(any(process.returncode for process in started))


if __name__ == "__main__":
    main()
