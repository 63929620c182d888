"""Launches of AITER's fmha_v3_bwd objects: numpy in, held against exact gradients.

A backward pass is three launches: `odo` makes D, the row sums of dO * O; a kernel makes dK and dV
and adds up dQ with atomics (fp32, or 16 bits); `dq_convert` rounds the fp32 sums. Argument blocks
and grids are those of AITER's host code (csrc/cpp_itfs/mha_bwd.cu, csrc/include/mha_bwd.h). Batch
mode, [batch, tokens, heads, depth]; rows are longer than their heads, and what lies between is NaN
and has to stay so in the outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import ml_dtypes
import numpy as np
from aiter import Case, Error, Outcome, object_file
from gradient_oracle import BF16, BF16_RTZ, F16, F16_RTZ, Gradients, Head, Narrow, gradients

from mlagen.binary import load_code_object
from mlagen.emulator import Argument, Buffer, EmulationResult, Launch, Mode, Settings, emulate
from mlagen.problem.formats import accumulated, confidence

FOLDER = "fmha_v3_bwd"
PAD = 16  # elements between the end of one token's heads and the next token
POISON = 0x7FD3  # a NaN of f16 and of bf16 that no instruction makes
Array = np.ndarray
LOG2E = np.float32(np.log2(np.e))


@dataclass(frozen=True, slots=True)
class Traits:
    """What an object's name says."""

    depth: int
    v_depth: int
    half: bool
    mask: str  # "", "top" (row r sees keys up to r) or "bottom" (aligned at the last row and key)
    atomic32: bool
    narrow: Narrow

    @staticmethod
    def of(path: str) -> Traits:
        name = Path(path).stem
        parts = name.split("_")
        depth = int(parts[1][2:])
        half, truncated = "fp16" in parts, "rtz" in parts
        if half:  # v_cvt_pkrtz_f16_f32 or v_cvt_pk_f16_f32
            truncated = depth == 64 or (depth == 192 and parts[2] != "128")
        narrow = (F16_RTZ if truncated else F16) if half else BF16_RTZ if truncated else BF16
        mask = "bottom" if "br" in parts else "top" if "causal" in parts else ""
        v_depth = 128 if parts[1:3] == ["hd192", "128"] else depth
        return Traits(depth, v_depth, half, mask, "a32" in parts, narrow)

    @property
    def tile(self) -> int:
        """Keys of a workgroup, by AITER's table (fmha_bwd_dqdkdv.csv, column ts)."""
        if self.depth == 128:
            return 256
        return 64 if self.v_depth == 192 else 192

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float16) if self.half else np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Problem:
    """`queries` x `keys`, `heads` of Q on half as many of K and V."""

    path: str
    queries: int
    keys: int
    batch: int = 1
    heads: int = 2
    kv_heads: int = 1
    seed: int = 0

    @property
    def traits(self) -> Traits:
        return Traits.of(self.path)

    @property
    def label(self) -> str:
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return f"{batch}{self.queries}x{self.keys}, heads {self.heads}/{self.kv_heads}"


@dataclass(frozen=True, eq=False)
class Tensors:
    """[batch, tokens, pitch] as stored."""

    q: Array
    k: Array
    v: Array
    do: Array


@lru_cache(maxsize=4)
def tensors(p: Problem) -> Tensors:
    t = p.traits
    random = np.random.default_rng(p.seed + 5)

    def made(tokens: int, heads: int, depth: int) -> Array:
        array = np.full((p.batch, tokens, heads * depth + PAD), np.nan, t.dtype)
        array[..., : heads * depth] = random.normal(0, 1, (p.batch, tokens, heads * depth))
        return array

    return Tensors(
        made(p.queries, p.heads, t.depth),
        made(p.keys, p.kv_heads, t.depth),
        made(p.keys, p.kv_heads, t.v_depth),
        made(p.queries, p.heads, t.v_depth),
    )


def head_of(array: Array, batch: int, head: int, depth: int) -> Array:
    """[tokens, depth] of one head."""
    return array[batch, :, head * depth : (head + 1) * depth]


def head(p: Problem, batch: int, index: int, drop: int | None = None) -> Head:
    """One head as the oracle takes it. `drop`: a key that is hidden from all rows."""
    t, data = p.traits, tensors(p)
    kv = index // (p.heads // p.kv_heads)
    seen = np.ones((p.queries, p.keys), bool)
    if t.mask:
        offset = p.keys - p.queries if t.mask == "bottom" else 0
        seen = np.arange(p.keys)[None] <= np.arange(p.queries)[:, None] + offset
    if drop is not None:
        seen[:, drop] = False
    q, k, v, do = (
        head_of(array, batch, which, depth).astype(np.float64)
        for array, which, depth in (
            (data.q, index, t.depth), (data.k, kv, t.depth),
            (data.v, kv, t.v_depth), (data.do, index, t.v_depth),
        )
    )  # fmt: skip
    return Head(q, k, v, do, seen, t.depth**-0.5, t.narrow, t.tile)


@lru_cache(maxsize=8)
def answers(p: Problem, drop: int | None = None) -> dict[tuple[int, int], Gradients]:
    """The oracle's answer by batch entry and head."""
    t = p.traits
    elements = p.batch * p.heads * (p.queries * t.depth + p.keys * (t.depth + t.v_depth))
    return {
        (b, h): gradients(head(p, b, h, drop), elements)
        for b in range(p.batch)
        for h in range(p.heads)
    }


def _strides(array: Array, depth: int) -> tuple[int, int, int]:
    """Bytes from a head, a batch entry, a token to the next."""
    return depth * array.itemsize, array[0].nbytes, array.shape[2] * array.itemsize


def _launch(
    code: bytes,
    values: dict[int, Buffer | np.generic],
    grid: tuple[int, int, int],
    mode: Mode,
    seed: int,
    backwards: bool = False,
) -> EmulationResult:
    """`backwards`: the workgroups' order; nothing promises one."""
    loaded = load_code_object(code)
    end = loaded.kernel().kernarg_bytes
    arguments = [Argument(offset, value) for offset, value in values.items() if offset < end]
    groups = [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
    launch = Launch(grid, (256, 1, 1), arguments)
    chosen = groups[::-1] if backwards else groups
    return emulate(loaded, launch, Settings(mode=mode, seed=seed, workgroups=chosen))


def launch(
    p: Problem, code: bytes, mode: Mode, seed: int, backwards: bool = False
) -> tuple[EmulationResult, Array, Array, Array]:
    """Runs dqdkdv. Returns dQ (fp32 [batch, heads, queries, depth], or 16 bits [batch, queries,
    pitch]), dK and dV [batch, keys, pitch], these by head of Q."""
    t, data = p.traits, tensors(p)
    if t.atomic32:
        dq = np.zeros((p.batch, p.heads, p.queries, t.depth), np.float32)
    else:
        dq = np.zeros((p.batch, p.queries, p.heads * t.depth + PAD), t.dtype)
    dk = np.full((p.batch, p.keys, p.heads * t.depth + PAD), POISON, np.uint16)
    dv = np.full((p.batch, p.keys, p.heads * t.v_depth + PAD), POISON, np.uint16)
    given = answers(p)
    lse, d = (
        np.array([[getattr(given[b, h], name)[:, 0] for h in range(p.heads)]
                  for b in range(p.batch)], np.float32)
        for name in ("lse", "d")
    )  # fmt: skip
    hs = {name: _strides(array, depth) for name, array, depth in (
        ("q", data.q, t.depth), ("k", data.k, t.depth), ("v", data.v, t.v_depth),
        ("do", data.do, t.v_depth), ("dk", dk, t.depth), ("dv", dv, t.v_depth),
    )}  # fmt: skip
    words = {
        0xB0: p.queries, 0xC0: t.tile * hs["k"][2],
        0xD0: hs["q"][0], 0xE0: hs["q"][1], 0xF0: hs["q"][2], 0x100: p.heads // p.kv_heads,
        0x110: hs["k"][0], 0x120: hs["k"][1], 0x130: hs["k"][2], 0x140: hs["dk"][2],
        0x150: p.keys, 0x160: t.depth, 0x170: t.v_depth, 0x180: p.heads,
        0x190: hs["v"][0], 0x1A0: hs["v"][1], 0x1B0: hs["v"][2],
        0x1C0: hs["do"][0], 0x1D0: hs["do"][1], 0x1E0: hs["do"][2],
        0x1F0: hs["dk"][0], 0x200: hs["dk"][1], 0x210: hs["dv"][0], 0x220: hs["dv"][1],
        0x230: hs["dv"][2], 0x240: p.queries * 4, 0x290: p.queries, 0x2A0: 0, 0x2B0: 0,
    }  # fmt: skip
    values: dict[int, Buffer | np.generic] = {o: np.uint32(v) for o, v in words.items()}
    values |= {offset: np.uint64(0) for offset in (0x250, 0x260, 0x270, 0x280)}
    values |= {0x90: np.float32(t.depth**-0.5), 0xA0: LOG2E}
    values |= {0x00: Buffer("dQ", dq), 0x10: Buffer("dK", dk, "write")}
    values[0x20] = Buffer("dV", dv, "write")
    for offset, name, array in (
        (0x30, "Q", data.q), (0x40, "K", data.k), (0x50, "V", data.v), (0x60, "dO", data.do),
        (0x70, "LSE", lse), (0x80, "D", d),
    ):  # fmt: skip
        values[offset] = Buffer(name, array, "read")
    tiles = -(-p.keys // t.tile)
    grid = (-(-tiles // 2) if t.mask else tiles, p.heads, p.batch)
    result = _launch(code, values, grid, mode, seed, backwards)
    return result, dq, dk, dv


def _against(name: str, got: Array, exact: Array, limit: Array) -> Error:
    found = got.astype(np.float64)
    error = np.abs(found - exact)
    nans = int(np.isnan(error).sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error == 0, 0.0, error / limit)
    return Error(name, float(np.nanmax(error)), float(np.nanmax(ratio)), nans)


def worst(errors: list[Error]) -> tuple[Error, ...]:
    """One error an output."""
    found: dict[str, Error] = {}
    for e in errors:
        old = found.get(e.output, Error(e.output, 0.0, 0.0, 0))
        found[e.output] = Error(
            e.output, max(old.error, e.error), max(old.ratio, e.ratio), old.nans + e.nans
        )
    return tuple(found.values())


def judge(
    p: Problem, dq: Array, dk: Array, dv: Array, drop: int | None = None
) -> tuple[Error, ...]:
    """All three gradients against the oracle, and that nothing else was written."""
    t, errors = p.traits, []
    tiles = -(-p.keys // t.tile)
    for (b, h), exact in answers(p, drop).items():
        value, bound = exact.dq
        if t.atomic32:
            errors.append(_against("dQ", dq[b, h], value, bound))
        else:  # a workgroup's share is rounded, and every sum
            bound = bound + 2 * tiles * (t.narrow.unit * exact.added + t.narrow.smallest)
            errors.append(_against("dQ", head_of(dq, b, h, t.depth), value, bound))
        for name, got, depth, (value, bound) in (
            ("dK", dk, t.depth, exact.dk), ("dV", dv, t.v_depth, exact.dv),
        ):  # fmt: skip
            limit = bound + t.narrow.error(np.abs(value) + bound)
            errors.append(_against(name, head_of(got.view(t.dtype), b, h, depth), value, limit))
    strays = sum(int((got[..., -PAD:] != POISON).sum()) for got in (dk, dv))
    if not t.atomic32:
        strays += int((dq[..., -PAD:] != 0).sum())
    if strays:
        errors.append(Error("outside", float(strays), np.inf, 0))
    return worst(errors)


def run(p: Problem, mode: Mode, seed: int = 0) -> Outcome:
    """One launch of the object that the problem names, judged."""
    result, dq, dk, dv = launch(p, object_file(p.path).read_bytes(), mode, seed)
    return Outcome(judge(p, dq, dk, dv), result.findings, result.wave_instructions, result.seconds)


def run_odo(p: Problem, mode: Mode, seed: int = 0) -> Outcome:
    """`odo`: D of an O that is dO of another seed, fp32 [batch, heads, queries]."""
    t = p.traits
    do = tensors(p).do
    o = tensors(Problem(p.path, p.queries, p.keys, p.batch, p.heads, p.kv_heads, 77)).do
    d = np.full((p.batch, p.heads, p.queries), np.nan, np.float32)
    stride = _strides(do, t.v_depth)
    words = (*stride, *stride, p.queries * 4, d[0].nbytes, 4, p.queries, t.v_depth)
    values: dict[int, Buffer | np.generic] = {
        0x30 + 0x10 * i: np.uint32(word) for i, word in enumerate(words)
    }
    values |= {0xE0: np.uint64(0), 0xF0: np.uint64(0), 0x20: Buffer("D", d, "write")}
    values |= {0x00: Buffer("O", o, "read"), 0x10: Buffer("dO", do, "read")}
    grid = (-(-p.queries // 128), p.heads, p.batch)
    result = _launch(object_file(p.path).read_bytes(), values, grid, mode, seed)
    factor = accumulated(t.v_depth, confidence(d.size))
    errors = []
    for b in range(p.batch):
        for h in range(p.heads):
            x, y = (head_of(a, b, h, t.v_depth).astype(np.float64) for a in (o, do))
            # Products are exact in fp32 for bf16 and f16; a product may be rounded all the same.
            limit = (factor + 2.0**-24) * (np.abs(x) * np.abs(y)).sum(1)
            errors.append(_against("D", d[b, h], (x * y).sum(1), limit))
    return Outcome(worst(errors), result.findings, result.wave_instructions, result.seconds)


def run_convert(p: Problem, mode: Mode, seed: int = 0) -> Outcome:
    """`dq_convert`: the fp32 sums rounded to nearest even, exactly."""
    t = p.traits
    random = np.random.default_rng(p.seed)
    acc = random.normal(0, 1, (p.batch, p.heads, p.queries, t.depth)).astype(np.float32)
    dq = np.full((p.batch, p.queries, p.heads * t.depth + PAD), POISON, np.uint16)
    words = (acc[0, 0].nbytes, acc[0].nbytes, 4 * t.depth, *_strides(dq, t.depth), p.queries,
             t.depth)  # fmt: skip
    values: dict[int, Buffer | np.generic] = {
        0x20 + 0x10 * i: np.uint32(word) for i, word in enumerate(words)
    }
    values |= {0xA0: np.uint64(0), 0xB0: np.uint64(0), 0x10: Buffer("dQ", dq, "write")}
    values[0x00] = Buffer("sums", acc, "read")
    grid = (-(-p.queries // 64), p.heads, p.batch)
    result = _launch(object_file(p.path).read_bytes(), values, grid, mode, seed)
    errors = []
    for b in range(p.batch):
        for h in range(p.heads):
            exact = acc[b, h].astype(t.dtype).astype(np.float64)
            got = head_of(dq.view(t.dtype), b, h, t.depth)
            errors.append(_against("dQ", got, exact, np.zeros(())))
    if (dq[..., -PAD:] != POISON).any():
        errors.append(Error("outside", 1.0, np.inf, 0))
    return Outcome(worst(errors), result.findings, result.wave_instructions, result.seconds)


def _case(p: Problem, runner: Callable[[Problem, Mode, int], Outcome]) -> Case:
    return Case(p.path, p.label, partial(runner, p))


def _padding(stem: str) -> str:
    return "_pssk" if stem.startswith(("hd64", "hd192_128")) else "_psskddv"


def _names() -> list[str]:
    """The batch-mode objects with sums in fp32 and any lengths, and hd64 with 16-bit sums."""
    names = []
    for dims in ("hd64", "hd128", "hd192", "hd192_128"):
        for mask in ("", "_causal", "_causal_br"):
            halves = ("_fp16", "_bf16")
            for half in halves:
                cut = half == "_bf16" and dims in ("hd64", "hd192")
                for rounding in ("_rtne", "_rtna", "_rtz") if cut else ("",):
                    names.append(f"bwd_{dims}{half}{mask}_a32{rounding}{_padding(dims)}")
    return names


LONG, MASKED = (100, 450), (130, 300)  # several tiles of keys, ragged at both ends
A16 = ("bwd_hd64_fp16_a16", "bwd_hd64_bf16_a16_rtne", "bwd_hd64_fp16_causal_a16",
       "bwd_hd64_bf16_causal_a16_rtz")  # fmt: skip


def _problems() -> list[Problem]:
    made = []
    for name in _names():
        sizes = MASKED if "causal" in name else LONG
        made.append(Problem(f"{FOLDER}/{name}.co", *sizes))
    # AITER's host code takes these where queries and keys are as many, a multiple of 64.
    made += [Problem(f"{FOLDER}/{name}.co", 384, 384) for name in A16]
    return made


PROBLEMS = _problems()
HELPERS = [
    _case(Problem(f"{FOLDER}/bwd_hd{depth}_{kind}_{half}.co", 200, 1, batch=2), runner)
    for depth in (64, 128, 192)
    for half in ("bf16", "fp16")
    for kind, runner in (("odo", run_odo), ("dq_convert", run_convert))
]
CASES = [*(_case(p, run) for p in PROBLEMS), *HELPERS]
