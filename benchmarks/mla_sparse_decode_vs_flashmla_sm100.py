"""Sparse decode for sm_100a of ours beside FlashMLA's: errors, executed work, and a bound by pipe.

    MLAGEN_FOREIGN_PTX=FOLDER python benchmarks/mla_sparse_decode_vs_flashmla_sm100.py
        [--only mlagen] [--topk 1024 2048] [--json]

FOLDER holds FlashMLA's kernels as PTX (docs/foreign_ptx.md); ours alone need none. Both get the
same arrays: one request of one token, V3.2 rows of 656 bytes (64 heads; 128, which FlashMLA does as
two launches) and 584-byte rows (128 heads, its kernel for few keys), scales that are powers of two,
all places of the list valid, a sink, one part. What 64 more keys cost is the difference of two
lists, divided; rates and bound are those of `mla_sparse_vs_flashmla_sm100.py`, a PREDICTION. Bytes
that FlashMLA fetches by TMA are counted by its maps: e4m3 and rope of each row, once. FlashMLA's
kernel for V3.2 rows has a race (docs/foreign_ptx.md), so that it runs in mode earliest.
"""

from __future__ import annotations

import argparse
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
from mla_sparse_vs_flashmla_sm100 import Run, compared, parsed, printed, work

SCHEMA = "mlagen.benchmark.mla_sparse_decode_vs_flashmla_sm100/1"
MOST = 2048  # places of a list
CASES = (("v32", 64), ("v32", 128), ("model1", 128))
FETCHED = {"v32": 512 + 128, "model1": 512 + 128}  # bytes of a row that FlashMLA's boxes have


def judged(call: Any, out: Any) -> tuple[float, int]:
    """The largest error as a part of its bound, and how many are greater."""
    from flashmla_oracle import attended

    want = attended(call.q, call.keys[call.indices], call.scale, roundings=1, sink=call.sink)
    parts = np.abs(out.astype(np.float64) - want.out) / want.out_bound
    return float(parts.max()), int((~(parts <= 1)).sum())


def theirs(rows: str, heads: int, topk: int) -> Run:
    """FlashMLA's kernel, launched as often as its host code does."""
    import flashmla_blackwell_decode as fd

    call = fd.call_of(rows, heads, topk)
    out, entry, results = fd.decode(call, sanitize=False, mode="earliest")
    done: Counter[str] = Counter()
    for result in results:
        done += work(entry, result.executions, box=0)
    fetched = FETCHED[rows] * topk * len(results)
    done["bytes fetched"] += fetched
    done["SMEM"] += fetched
    return Run(done, *judged(call, out), sum(result.seconds for result in results))


def ours(rows: str, heads: int, topk: int) -> Run:
    """What is built for the problem."""
    import flashmla_blackwell_decode as fd

    from mlagen.app.build import build_artifact
    from mlagen.families.mla_sparse.kernel import sparse_kernel
    from mlagen.launch import EmulatedLauncher
    from mlagen.ptx import read_ptx

    fields = {"num_heads": heads, "rows": rows, "d_qk": fd.WIDTH[rows]}
    artifact = build_artifact("mla_sparse_decode_sm100", fields, {})
    kernel = sparse_kernel(artifact, EmulatedLauncher(sanitize=False))
    call = fd.call_of(rows, heads, topk)
    cache = call.cache[:, :, 0]
    ran = kernel.run(call.q[None, None], cache, call.indices[None, None],
                     scale=float(call.scale), sink=call.sink, splits=1)  # fmt: skip
    emulation = ran.reports[0].emulation
    done = work(read_ptx(artifact.text).entries[0], emulation.executions, box=0)
    return Run(done, *judged(call, ran.output[0, 0]), emulation.seconds)


RUNS = {"FlashMLA": theirs, "mlagen": ours}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options, asked = parsed(parser, MOST)
    import flashmla_blackwell_decode as fd

    found = [
        compared(f"{who}, {rows}", partial(RUNS[who], rows), heads, *options.topk, fd.WIDTH[rows])
        for rows, heads in CASES
        for who in asked
    ]
    return printed(found, SCHEMA, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
