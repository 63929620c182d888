"""Sparse prefill for sm_100a of ours beside FlashMLA's: errors, executed work, and a bound by pipe.

    MLAGEN_FOREIGN_PTX=FOLDER python benchmarks/mla_sparse_vs_flashmla_sm100.py [--heads 64 128]
        [--topk 1024 2048] [--only mlagen] [--json]

FOLDER holds FlashMLA's kernels as PTX (docs/foreign_ptx.md); ours alone need none. Both get the
same arrays: one query, standard normal bf16 numbers, rows of 576 columns, all places of the list
valid, a sink. Work is what 64 more keys cost all blocks of the query: the difference of two lists,
divided. Errors are those of O against fp64, as parts of what the formats allow.

The bound is a PREDICTION, of no chip's time: the clocks that each pipe of an SM would be busy for
64 keys if it did nothing else and were never late. `RATES` has the rates and where they are
published. Products take time by their operations, whatever their shape. Warp instructions are
PTX's, which ptxas turns into fewer or more. SMEM is taken without conflicts of banks, and each
product reads its operands anew; generic loads and stores count as SMEM's.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

SCHEMA = "mlagen.benchmark.mla_sparse_vs_flashmla_sm100/1"
VARIABLE = "MLAGEN_FOREIGN_PTX"
FOREIGN = Path(__file__).resolve().parents[1] / "tests" / "foreign"  # has FlashMLA's launches
KEYS, CACHE = 64, 4096  # that work is told for; rows of the cache
LANES, D_QK, D_V = 32, 576, 512
PEAK = 2250  # TFLOP/s of a B200, dense bf16: NVIDIA's data sheet


@dataclass(frozen=True)
class Rate:
    """What a pipe of one SM does a clock, and who says so."""

    amount: float
    what: str
    source: str


_FA4 = "FlashAttention-4, arXiv 2603.05451"
_CORNELL = (
    "Cornell Virtual Workshop, Inside a Blackwell B200 SM "
    "(cvw.cac.cornell.edu/gpu-architecture/horizon-gpus-blackwell-b200/b200_sm)"
)
RATES = {
    "tensor": Rate(8192, "floating-point operations of bf16", f"{_FA4}; data sheet: 2,250 TFLOP/s"),
    "SMEM": Rate(
        128, "bytes",
        f"{_FA4}; measured with operands of products by SemiAnalysis, Dissecting Nvidia Blackwell, "
        "31 March 2026. That fetched rows and threads share it is an assumption",
    ),
    "ex2": Rate(16, "lanes", _FA4),
    "fp32": Rate(
        128, "lanes of fma, mul and add",
        f"{_CORNELL}. That an f32x2 is two of them is an assumption",
    ),
    "issue": Rate(4, "warp instructions", f"{_CORNELL}: four processing blocks, a warp each"),
}  # fmt: skip


def constants(entry: Any) -> dict[str, int]:
    """Registers that are only ever set to one number."""
    from mlagen.ptx.effects import written

    found: dict[str, set[Any]] = {}
    for i in entry.instructions:
        plain = i.name == "mov" and not i.guard and isinstance(i.operands[1], int)
        for name in written(i):
            found.setdefault(name, set()).add(i.operands[1] if plain else None)
    return {
        name: next(iter(values))
        for name, values in found.items()
        if len(values) == 1 and None not in values
    }


def product(i: Any, known: dict[str, int]) -> dict[str, float]:
    """Of a tcgen05.mma, of both SMs of a pair together: operations, two of e4m3 as one of bf16, and
    bytes that it reads."""
    from mlagen.errors import UnsupportedError
    from mlagen.ptx.syntax import MemoryOperand

    word = i.operands[3]
    word = word if isinstance(word, int) else known.get(word)
    if word is None:
        raise UnsupportedError(f"line {i.line}: the text does not tell its instruction descriptor")
    rows, columns, depth = (word >> 24 & 31) * 16, (word >> 17 & 63) * 8, 32  # bytes
    own = 0 if isinstance(i.operands[1], MemoryOperand) else rows  # A in tensor memory is no SMEM
    return {
        "products": 1, "tensor": rows * columns * depth,
        "SMEM of products": (own + columns) * depth,
    }  # fmt: skip


def width(i: Any) -> int:
    """Bytes a lane of a load or store."""
    vector = next((int(p[1:]) for p in i.parts if p in ("v2", "v4", "v8")), 1)
    return vector * int(i.parts[-1].lstrip("bsuf")) // 8


def moved(i: Any) -> dict[str, float]:
    """Of tcgen05.ld and .st: registers of all lanes."""
    from mlagen.ptx.syntax import Vector

    held = next((x for x in i.operands if isinstance(x, Vector)), None)
    return {f"TMEM words, {i.parts[1]}": LANES * (len(held.items) if held else 1)}


def work_of(i: Any, known: dict[str, int], box: int) -> dict[str, float]:
    """What one execution by a warp is. `box`: bytes of a row that a gather4 fetches."""
    name, parts = i.name, i.parts
    if name == "tcgen05":
        if parts[1] == "mma":
            return product(i, known)
        if parts[1] in ("ld", "st"):
            return moved(i)
        return {"commits": 1} if parts[1] == "commit" else {}
    if name == "cp" and "gather4" in i.opcode:
        return {"gather4": 1, "bytes fetched": 4 * box}
    if name == "cp" and parts[1] == "async" and "shared" in parts and "global" in parts:
        size = next(x for x in i.operands if isinstance(x, int))
        return {"cp.async": 1, "bytes fetched": LANES * size}
    if name == "cp" and "arrive" in parts:
        return {"mbarrier arrivals": 1}
    if name == "ex2":
        return {"ex2": LANES * (2 if parts[-1].endswith("x2") else 1)}
    if name in ("fma", "mul", "add", "sub") and parts[-1] in ("f32", "f32x2"):
        return {"fp32": LANES * (2 if parts[-1] == "f32x2" else 1)}
    if name in ("ld", "st") and not {"global", "param", "const", "local"} & set(parts):
        return {"SMEM of threads": LANES * width(i)}
    if name == "mbarrier":
        return {"mbarrier waits" if "wait" in parts[1] else "mbarrier arrivals": 1}
    return {"named barriers": 1} if name in ("bar", "barrier") else {}


def work(entry: Any, executions: Any, box: int) -> Counter[str]:
    """What all executions of a run are."""
    known = constants(entry)
    found: Counter[str] = Counter()
    for i in entry.instructions:
        times = executions.get(i.index, 0)
        if times:
            found["issue"] += times
            for what, amount in work_of(i, known, box).items():
                found[what] += times * amount
    found["SMEM"] = sum(found[n] for n in ("SMEM of products", "SMEM of threads", "bytes fetched"))
    return found


@dataclass(frozen=True)
class Run:
    """One launch: work of all blocks, and the largest error of O as a part of what is allowed."""

    work: Counter[str]
    error: float
    outside: int
    seconds: float


def arrays_of(heads: int, topk: int) -> dict[int, Any]:
    """A call, as FlashMLA's kernel takes it."""
    import flashmla_blackwell as fb

    indices = np.random.default_rng(3).permutation(CACHE)[:topk][None].astype(np.int32)
    sink = np.random.default_rng(4).standard_normal(heads).astype(np.float32)
    q, kv = fb.normal(1, (1, heads, D_QK)), fb.normal(2, (CACHE, 1, D_QK))
    return fb.call_of(q, kv, indices, sink)


def judged(arrays: dict[int, Any], out: Any) -> tuple[float, int]:
    """The largest error as a part of its bound, and how many are greater."""
    import flashmla_blackwell as fb
    import flashmla_kernels as fm

    rows = arrays[fm.KV][arrays[fm.INDICES][0], 0]
    want = fb.attended(
        arrays[fm.Q][0], rows, np.float32(fb.SCALE), roundings=1, sink=arrays[fm.SINK]
    )
    parts = np.abs(out.astype(np.float64) - want.out) / want.out_bound
    return float(parts.max()), int((~(parts <= 1)).sum())


def theirs(heads: int, topk: int) -> Run:
    """FlashMLA's kernel."""
    import flashmla_blackwell as fb
    import flashmla_kernels as fm

    from mlagen.emulator import Settings, emulate

    arrays = arrays_of(heads, topk)
    module, launch = fb.prefill_launch(heads, arrays)
    result = emulate(module, launch, Settings(sanitize=False))
    error, outside = judged(arrays, arrays[fm.OUT][0])
    done = work(module.entries[0], result.executions, box=128)  # 64 columns of bf16
    return Run(done, error, outside, result.seconds)


def ours(heads: int, topk: int) -> Run:
    """What is built for the problem."""
    import flashmla_blackwell as fb
    import flashmla_kernels as fm

    from mlagen.app.build import build_artifact
    from mlagen.families.mla_sparse.kernel import sparse_kernel
    from mlagen.launch import EmulatedLauncher
    from mlagen.ptx import read_ptx

    artifact = build_artifact("mla_sparse_prefill_sm100", {"num_heads": heads}, {})
    kernel = sparse_kernel(artifact, EmulatedLauncher(sanitize=False))
    arrays = arrays_of(heads, topk)
    q, kv, indices, sink = (arrays[name] for name in (fm.Q, fm.KV, fm.INDICES, fm.SINK))
    ran = kernel.run(q, kv[:, 0], indices, scale=fb.SCALE, sink=sink)
    emulation = ran.reports[0].emulation
    error, outside = judged(arrays, ran.output[0])
    done = work(read_ptx(artifact.text).entries[0], emulation.executions, box=128)
    return Run(done, error, outside, emulation.seconds)


@dataclass(frozen=True)
class Told:
    """What 64 keys cost. `work`: of all blocks; `clocks`: of each pipe of one SM; `bound`: its
    slowest; `share`: the part of the tensor peak that this leaves."""

    who: str
    heads: int
    work: dict[str, float]
    clocks: dict[str, float]
    bound: str
    share: float
    error: float
    outside: int


def compared(
    who: str,
    run: Callable[[int, int], Run],
    heads: int,
    fewer: int,
    more: int,
    width: int = D_QK,
) -> Told:
    """A kernel by two runs. `width`: columns of a key."""
    first, second = run(heads, fewer), run(heads, more)
    units = (more - fewer) / KEYS
    names = sorted(first.work | second.work)
    per = {name: (second.work[name] - first.work[name]) / units for name in names}
    blocks = -(-heads // 64)
    clocks = {pipe: per.get(pipe, 0.0) / rate.amount / blocks for pipe, rate in RATES.items()}
    slowest = max(clocks, key=lambda pipe: clocks[pipe])
    useful = 2 * heads * KEYS * (width + D_V) / RATES["tensor"].amount / blocks
    return Told(
        who, heads, per, clocks, slowest, useful / clocks[slowest],
        max(first.error, second.error), first.outside + second.outside,
    )  # fmt: skip


ROWS = (
    "products", "commits", "TMEM words, ld", "TMEM words, st", "ex2", "fp32", "gather4", "cp.async",
    "bytes fetched", "SMEM of products", "SMEM of threads", "mbarrier arrivals", "mbarrier waits",
    "named barriers", "issue",
)  # fmt: skip
TITLES = {
    "ex2": "ex2, lanes", "fp32": "fp32, lanes", "mbarrier waits": "mbarrier waits, each try",
    "named barriers": "named barriers, bar.warp.sync", "issue": "warp instructions, all",
}  # fmt: skip


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """In markdown."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def told(found: list[Told]) -> str:
    """Both tables and the errors."""
    head = ("", *(f"{one.who}, {one.heads} heads" for one in found))
    executed = [
        (TITLES.get(name, name), *(f"{one.work.get(name, 0):,.0f}" for one in found))
        for name in ROWS
    ]
    clocks = [
        (f"{pipe}: {rate.amount:,.0f} {rate.what}", *(f"{one.clocks[pipe]:,.0f}" for one in found))
        for pipe, rate in RATES.items()
    ]
    clocks.append(("slowest pipe", *(one.bound for one in found)))
    clocks.append(("at most, of the tensor peak", *(f"{one.share:.0%}" for one in found)))
    clocks.append((f"of {PEAK:,} TFLOP/s", *(f"{one.share * PEAK:,.0f}" for one in found)))
    errors = [
        f"{one.who}, {one.heads} heads: largest error of O {one.error:.3f} of its bound, "
        f"{one.outside} outside" for one in found
    ]  # fmt: skip
    return "\n".join([
        f"Executed for {KEYS} keys, all blocks", "", table(head, executed), "",
        f"PREDICTION: clocks of one SM for {KEYS} keys, each pipe alone", "", table(head, clocks),
        "", *(f"{pipe}: {rate.source}" for pipe, rate in RATES.items()), "", *errors,
    ])  # fmt: skip


RUNS = {"FlashMLA": theirs, "mlagen": ours}


def parsed(parser: argparse.ArgumentParser, most: int) -> tuple[argparse.Namespace, list[str]]:
    """The options, and whose kernels are asked for. `most`: places of the longest list."""
    parser.add_argument("--topk", type=int, nargs=2, default=[1024, 2048], metavar=("N", "M"))
    parser.add_argument("--only", choices=RUNS, help="one of the two kernels")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    asked = [options.only] if options.only else [*RUNS]
    if "FlashMLA" in asked and VARIABLE not in os.environ:
        parser.error(
            f"${VARIABLE} names no folder with FlashMLA's kernels as PTX; --only mlagen needs none"
        )
    fewer, more = options.topk
    if not 0 < fewer < more <= most or fewer % 128 or more % 128:
        parser.error(f"--topk {fewer} {more}: two multiples of 128 in ascending order to {most}")
    sys.path.insert(0, str(FOREIGN))
    return options, asked


def printed(found: list[Told], schema: str, *, as_json: bool) -> int:
    """Prints what was found. The exit status: whether a result is outside its bound."""
    if as_json:
        rates = {name: asdict(rate) for name, rate in RATES.items()}
        print(json.dumps({"schema": schema, "rates": rates, "kernels": [*map(asdict, found)]}))
    else:
        print(told(found))
    return int(any(one.outside for one in found))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--heads", type=int, nargs="+", default=[64, 128], choices=[64, 128])
    options, asked = parsed(parser, CACHE)
    found = [
        compared(who, RUNS[who], heads, *options.topk) for heads in options.heads for who in asked
    ]
    return printed(found, SCHEMA, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
