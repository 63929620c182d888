"""Launches of AITER's pa objects: one decoded token a sequence on a paged K/V cache.

The argument block and grid are those of AITER's launcher (csrc/py_itfs_cu/asm_pa.cu), the cache's
layout that of its tests (op_tests/test_pa.py): K [blocks, heads, depth / x, 16, x], V [blocks,
heads, 16 / x, depth, x] with x elements in 16 bytes. Blocks are dealt at random; what no sequence
may see of the cache is 50 times as large as the rest (of 8-bit caches: its scales). It cannot be
NaN: the kernels multiply it by weights of 0. O starts as NaN.

Without quantisation O is held against exact fp64 attention with a derived bound. Kernels with an
8-bit cache round Q and P to 8 bits as well, by rules that AITER does not state; they are held to
AITER's own criterion, `checkAllclose`: of inputs in [-1, 1] no more than 5 % of the outputs are
further than 0.01 + 0.01 |O| from those of exact attention.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import ml_dtypes
import numpy as np
from aiter import Case, Error, Outcome, object_file
from foreign_oracle import Attention, Rounding, attend
from gradient_oracle import BF16, F16, Narrow

from mlagen.binary import load_code_object
from mlagen.emulator import Argument, Buffer, Launch, Mode, Settings, emulate

DEPTH, BLOCK, TABLE = 128, 16, 24  # elements a head, keys a block, blocks a row of the table
AITER_TOLERANCE, AITER_SHARE = 0.01, 0.05
HIDDEN = 50.0
Array = np.ndarray


@dataclass(frozen=True)
class Problem:
    """`lengths`: keys of every sequence."""

    path: str
    lengths: tuple[int, ...]
    kv_heads: int = 2
    seed: int = 0

    @property
    def parts(self) -> list[str]:
        return Path(self.path).stem.split("_")

    @property
    def heads(self) -> int:
        """Of Q."""
        return self.kv_heads * (16 if "gqa16" in self.parts else 8)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float16 if "fp16" in self.parts else ml_dtypes.bfloat16)

    @property
    def cache_dtype(self) -> np.dtype:
        kinds = {"pertokenFp8": ml_dtypes.float8_e4m3fn, "pertokenInt8": np.int8}
        return np.dtype(kinds.get(self.parts[2], self.dtype))

    @property
    def quantised(self) -> bool:
        return self.cache_dtype != self.dtype

    @property
    def narrow(self) -> Narrow:
        """P is truncated to f16 (v_cvt_pkrtz_f16_f32), rounded to bf16; O likewise."""
        return replace(F16, truncated=True) if self.dtype == np.float16 else BF16

    @property
    def label(self) -> str:
        return f"keys {'+'.join(map(str, self.lengths))}, heads {self.heads}/{self.kv_heads}"


@dataclass(frozen=True, eq=False)
class Tensors:
    """`k`, `v`: what the cache stands for, [blocks, kv heads, BLOCK, DEPTH] in fp64; `stored`: K, V
    and their scales as the kernel reads them."""

    q: Array
    k: Array
    v: Array
    stored: tuple[Array, Array, Array | None, Array | None]
    table: Array


@lru_cache(maxsize=4)
def tensors(p: Problem) -> Tensors:
    random = np.random.default_rng(p.seed + 3)
    blocks = len(p.lengths) * TABLE
    shape = (blocks, p.kv_heads, BLOCK, DEPTH)
    draw = random.uniform if p.quantised else random.normal
    spread = (-1.0, 1.0) if p.quantised else (0.0, 1.0)
    q = draw(*spread, (len(p.lengths), p.heads, DEPTH)).astype(p.dtype)
    table = random.permutation(blocks).astype(np.int32).reshape(len(p.lengths), TABLE)
    hidden = np.ones((blocks, BLOCK), bool)
    for row, keys in zip(table, p.lengths, strict=True):
        for key in range(keys):
            hidden[row[key // BLOCK], key % BLOCK] = False
    values, stored, scales = [], [], []
    for _ in "kv":
        x = draw(*spread, shape)
        scale = None
        if p.quantised:
            largest = 127.0 if p.cache_dtype == np.int8 else 448.0
            scale = (np.abs(x).max(-1, keepdims=True) / largest).astype(np.float32)
            x = np.rint(x / scale) if p.cache_dtype == np.int8 else x / scale
        x = x.astype(p.cache_dtype)
        values.append(x.astype(np.float64) * (1.0 if scale is None else scale))
        unseen = np.broadcast_to(hidden[:, None, :, None], shape)
        if scale is None:
            x = np.where(unseen, HIDDEN * x.astype(np.float32), x).astype(x.dtype)
        else:
            scale = np.where(unseen[..., :1], np.float32(HIDDEN) * scale, scale)
        stored.append(x)
        scales.append(scale)
    wide = 16 // p.cache_dtype.itemsize
    k = stored[0].reshape(*shape[:3], DEPTH // wide, wide).transpose(0, 1, 3, 2, 4)
    v = stored[1].reshape(*shape[:2], BLOCK // wide, wide, DEPTH).transpose(0, 1, 2, 4, 3)
    made = (np.ascontiguousarray(k), np.ascontiguousarray(v), scales[0], scales[1])
    return Tensors(q, values[0], values[1], made, table)


def sequence(p: Problem, index: int, kv_head: int, drop: int | None = None) -> Attention:
    """The heads of Q that share one head of a sequence's cache. `drop`: a key that is hidden."""
    data, keys, share = tensors(p), p.lengths[index], p.heads // p.kv_heads
    places = data.table[index, np.arange(keys) // BLOCK], kv_head, np.arange(keys) % BLOCK
    seen = np.ones((share, keys), bool)
    if drop is not None:
        seen[:, drop] = False
    q = data.q[index, kv_head * share : (kv_head + 1) * share].astype(np.float64)
    rounding = Rounding(p.narrow.unit, p.narrow.smallest, 16)
    return Attention(
        q, data.k[places], data.v[places], seen, DEPTH**-0.5, 1.0, rounding, BLOCK * 16
    )


def judge(p: Problem, o: Array, drop: int | None = None) -> tuple[Error, ...]:
    """O [sequences, heads, DEPTH] as stored against exact attention."""
    share, elements = p.heads // p.kv_heads, o.size
    errors, limits = [], []
    for index in range(len(p.lengths)):
        for kv_head in range(p.kv_heads):
            of = sequence(p, index, kv_head, drop)
            exact = attend(of, elements)
            bound = exact.o_bound
            if p.narrow.truncated:  # all errors of P have one sign: they add up
                scores = np.where(of.seen, of.q @ of.k.T * of.scale, -np.inf)
                weights = np.exp(scores - scores.max(1, keepdims=True))
                weights /= weights.sum(1, keepdims=True)
                bound = bound + p.narrow.unit * (weights @ np.abs(of.v))
            got = o[index, kv_head * share : (kv_head + 1) * share].astype(np.float64)
            errors.append(np.abs(got - exact.o))
            if p.quantised:
                limits.append(AITER_TOLERANCE * (1.0 + np.abs(exact.o)))
            else:
                limits.append(bound + p.narrow.error(np.abs(exact.o) + bound))
    error, limit = np.concatenate(errors), np.concatenate(limits)
    nans = int(np.isnan(error).sum())
    error = np.where(np.isnan(error), np.inf, error)
    ratio = error / limit
    # The criterion of quantised kernels lets a share of the elements be further off.
    top = np.sort(ratio, axis=None)[-1 - int(AITER_SHARE * ratio.size) * p.quantised]
    return (Error("O", float(error.max()), float(top), nans),)


def run(p: Problem, mode: Mode, seed: int = 0, drop: int | None = None) -> Outcome:
    """One launch of the object that the problem names, judged."""
    data = tensors(p)
    k, v, k_scale, v_scale = data.stored
    o = np.full((len(p.lengths), p.heads, DEPTH), np.nan, p.dtype)
    values: dict[int, Buffer | np.generic] = {
        0x00: Buffer("O", o, "write"),
        0x10: Buffer("Q", data.q, "read"),
        0x20: Buffer("K", k, "read"),
        0x30: Buffer("V", v, "read"),
        0x40: Buffer("block table", data.table, "read"),
        0x50: Buffer("lengths", np.array(p.lengths, np.int32), "read"),
        0x60: np.uint64(0) if k_scale is None else Buffer("K scales", k_scale, "read"),
        0x70: np.uint64(0) if v_scale is None else Buffer("V scales", v_scale, "read"),
        0x80: np.float32(np.log2(np.e) / DEPTH**0.5),
        0x90: np.uint32(TABLE),
        0xA0: np.uint32(p.kv_heads),
        0xB0: np.uint32(data.q[0].nbytes),
        0xC0: np.uint32(k[0].nbytes),
        0xD0: np.uint32(k[0, 0].nbytes),
        0xE0: np.uint32(0),
        0xF0: np.uint32(p.heads // p.kv_heads),
        0x100: np.uint64(0),
    }
    loaded = load_code_object(object_file(p.path).read_bytes())
    end = loaded.kernel().kernarg_bytes
    result = emulate(
        loaded,
        Launch(
            grid=(p.kv_heads, len(p.lengths), 1),
            block=(256, 1, 1),
            arguments=[Argument(offset, value) for offset, value in values.items() if offset < end],
        ),
        Settings(mode=mode, seed=seed),
    )
    return Outcome(judge(p, o, drop), result.findings, result.wave_instructions, result.seconds)


PLAIN = ("pa_fp16_noquant_gqa8_1tg_4w", "pa_fp16_noquant_gqa16_1tg_4w",
         "pa_bf16_noquant_gqa8_1tg_4w", "pa_bf16_noquant_gqa16_1tg_4w")  # fmt: skip
QUANTISED = tuple(
    f"pa_{q}_{kind}_{gqa}_2tg_4w{tail}"
    for q in ("fp16", "bf16")
    for kind, gqa, tails in (
        ("pertokenInt8", "gqa8", ("",)),
        ("pertokenInt8", "gqa16", ("",)),
        ("pertokenFp8", "gqa8", ("", "_hp", "_uhp")),
        ("pertokenFp8", "gqa16", ("",)),
    )
    for tail in tails
)
PROBLEMS = [Problem(f"pa/{name}.co", (150, 61)) for name in (*PLAIN, *QUANTISED)]
PROBLEMS += [Problem(f"pa/{name}.co", (256, 1, 300)) for name in PLAIN]
CASES = [Case(p.path, p.label, partial(run, p)) for p in PROBLEMS]
