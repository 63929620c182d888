"""Launches of AITER's fmha_v3_fwd objects: numpy in, held against the exact oracle.

The argument block, grid and option word are those of AITER's host code (csrc/cpp_itfs/mha_fwd.cu).
Rows of Q, K and V are longer than their heads, and what lies between is NaN; outputs start as
poison, and what a launch must not write has to keep it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import ml_dtypes
import numpy as np
from aiter import Case, Error, Outcome, object_file
from foreign_oracle import BF16, E4M3, Answer, Attention, Pattern, attend, expected

from mlagen.emulator import Argument, Buffer, EmulationResult, Launch, Mode, Settings, emulate
from mlagen.problem.expected import compare

FP8 = np.dtype(ml_dtypes.float8_e4m3fn)
BFLOAT = np.dtype(ml_dtypes.bfloat16)
O_POISON, LSE_POISON = 0x7FD3, 0x7FC1D2E3  # NaNs that no instruction makes
PAD = 16  # elements between the end of one token's heads and the next token
# The hd256 objects: the magic number 0x4e7de250 is 2^23 (127 - shift); used where a whole tile of a
# wave has P <= 2^-3.5 of the row sum so far (one more factor of 2^0.5 for what is itself inexact).
PATTERN = Pattern(127.0 - float(np.uint32(0x4E7DE250).view(np.float32)) / 2**23, 2.0**-3)


@dataclass(frozen=True, slots=True)
class Traits:
    """What an object's name says: head dims, formats, mask, mode; the tile by AITER's table."""

    depth: int
    v_depth: int
    fp8: bool
    causal: bool
    group: bool

    @staticmethod
    def of(path: str) -> Traits:
        parts = Path(path).stem.split("_")
        dims = [int(part[2:]) for part in parts if part.startswith("hd")]
        return Traits(dims[0], dims[-1], "fp8" in parts, "causal" in parts, "group" in parts)

    @property
    def tile(self) -> tuple[int, int]:
        """Rows of queries and of keys."""
        if self.depth == 192:
            return 128, 128
        return 256, 128 if self.fp8 and self.depth == 128 else 64

    @property
    def threads(self) -> int:
        return 256 if self.depth == 192 else 512


@dataclass(frozen=True)
class Problem:
    """`lengths`: (queries, keys) of every sequence; in batch mode all the same. `padded`: rows that
    each takes in memory, group mode only (default: its length). `option` None: the host's choice.
    `spread`: standard deviation of Q and K, which sets how peaked the weights are."""

    path: str
    lengths: tuple[tuple[int, int], ...]
    heads: int = 1
    kv_heads: int = 1
    lse: bool = True
    option: int | None = None
    padded: tuple[tuple[int, int], ...] | None = None
    spread: float = 1.0
    seed: int = 0

    @property
    def traits(self) -> Traits:
        return Traits.of(self.path)

    @property
    def rows(self) -> tuple[tuple[int, int], ...]:
        """Rows that each sequence takes in memory."""
        return self.padded or self.lengths

    @property
    def option_word(self) -> int:
        if self.option is not None:
            return self.option
        downgraded = self.traits.causal and (self.heads % 8 or max(self.lengths)[0] > 16384)
        return 3 if downgraded else 5

    @property
    def label(self) -> str:
        """For tests and tables."""
        lengths = "+".join(f"{q}x{k}" for q, k in dict.fromkeys(self.lengths))
        batch = len(self.lengths) if not self.traits.group else 1
        parts = [f"{batch} x {lengths}" if batch > 1 else lengths]
        parts.append(f"heads {self.heads}/{self.kv_heads}")
        if self.option is not None:
            parts.append(f"option {self.option}")
        if self.padded:
            parts.append("padded")
        if not self.lse:
            parts.append("no LSE")
        return ", ".join(parts)


@dataclass(frozen=True, eq=False)
class Tensors:
    """Inputs as stored: [tokens, heads * depth + PAD], sequences one after the other. `starts`:
    first rows of Q and K of every sequence, and the ends. Descales are 1 for bf16."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    starts: tuple[np.ndarray, np.ndarray]
    logical: tuple[np.ndarray, np.ndarray]
    scale: float
    descales: tuple[np.float32, np.float32, np.float32]


@lru_cache(maxsize=4)
def tensors(p: Problem) -> Tensors:
    """Inputs of a problem."""
    t = p.traits
    random = np.random.default_rng(p.seed + 1)
    dtype = FP8 if t.fp8 else BFLOAT
    starts, logical = (
        tuple(np.cumsum([0, *(pair[side] for pair in of)], dtype=np.int32) for side in (0, 1))
        for of in (p.rows, p.lengths)
    )

    def made(side: int, heads: int, depth: int, spread: float) -> np.ndarray:
        array = np.full((starts[side][-1], heads * depth + PAD), np.nan, dtype)
        for start, pair in zip(starts[side], p.lengths, strict=False):
            values = random.normal(0.0, spread, (pair[side], heads * depth))
            array[start : start + pair[side], : heads * depth] = values.astype(dtype)
        return array

    descales = (0.75, 1.25, 0.5) if t.fp8 else (1.0, 1.0, 1.0)
    return Tensors(
        made(0, p.heads, t.depth, p.spread),
        made(1, p.kv_heads, t.depth, p.spread),
        made(1, p.kv_heads, t.v_depth, 1.0),
        (starts[0], starts[1]),
        (logical[0], logical[1]),
        float(np.float32(t.depth**-0.5)),
        (np.float32(descales[0]), np.float32(descales[1]), np.float32(descales[2])),
    )


def grid(p: Problem) -> tuple[int, int, int]:
    """Workgroups: with a mask, each does a tile and its mirror image."""
    tiles = -(-max(q for q, _ in p.lengths) // p.traits.tile[0])
    share = -(-tiles // (2 if p.traits.causal else 1))
    if p.traits.group:
        return p.heads, len(p.lengths), share
    return share, p.heads, len(p.lengths)


def launch(
    p: Problem, code: bytes, mode: Mode, seed: int, **options: object
) -> tuple[EmulationResult, np.ndarray, np.ndarray]:
    """Runs it. Returns O as stored [tokens, heads * v_depth + PAD] (bf16) and LSE (fp32): batch
    mode [batch, heads, queries], group mode [heads, tokens]."""
    t, data = p.traits, tensors(p)
    o = np.full((len(data.q), p.heads * t.v_depth + PAD), O_POISON, np.uint16)
    tokens = len(data.q)
    shape = (1, p.heads, tokens) if t.group else (len(p.lengths), p.heads, p.lengths[0][0])
    lse = np.full(shape, LSE_POISON, np.uint32)
    size = data.q.itemsize
    pitch = {name: array.shape[1] * array.itemsize for name, array in
             (("q", data.q), ("k", data.k), ("v", data.v), ("o", o))}  # fmt: skip
    words = {
        0x60: p.lengths[0][0] if not t.group else max(q for q, _ in p.lengths),
        0x70: pitch["q"],
        0x80: t.tile[0] * pitch["q"],
        0x90: t.depth * size,
        0xA0: 0 if t.group else p.lengths[0][0] * pitch["q"],
        0xB0: p.heads // p.kv_heads,
        0xC0: pitch["k"],
        0xD0: t.depth * size,
        0xE0: 0 if t.group else p.lengths[0][1] * pitch["k"],
        0xF0: p.option_word,
        0x100: int(p.lse),
        0x110: p.lengths[0][1] if not t.group else max(k for _, k in p.lengths),
        0x120: t.depth,
        0x130: t.v_depth,
        0x140: p.heads,
        0x150: pitch["v"],
        0x160: t.v_depth * size,
        0x170: 0 if t.group else p.lengths[0][1] * pitch["v"],
        0x180: pitch["o"],
        0x190: t.v_depth * 2,
        0x1A0: 0 if t.group else p.lengths[0][0] * pitch["o"],
        0x1D0: lse.shape[2] * 4,
    }
    buffers = {
        0x00: Buffer("O", o, "write"),
        0x10: Buffer("Q", data.q, "read"),
        0x20: Buffer("K", data.k, "read"),
        0x30: Buffer("V", data.v, "read"),
        0x40: Buffer("LSE", lse, "write"),
    }
    if t.group:
        names = ("logical q", "logical k", "physical q", "physical k")
        arrays = (*data.logical, *data.starts)
        for offset, name, array in zip((0x1B0, 0x1C0, 0x1E0, 0x1F0), names, arrays, strict=True):
            buffers[offset] = Buffer(name, array, "read")
    if t.fp8:
        for offset, name, value in zip(
            (0x200, 0x210, 0x220), ("q descale", "k descale", "v descale"), data.descales,
            strict=True,
        ):  # fmt: skip
            buffers[offset] = Buffer(name, np.array([value]), "read")
    arguments = [Argument(0x50, np.float32(data.scale))]
    arguments += [Argument(offset, np.uint32(value)) for offset, value in words.items()]
    arguments += [Argument(offset, buffer) for offset, buffer in buffers.items()]
    result = emulate(
        code,
        Launch(grid=grid(p), block=(t.threads, 1, 1), arguments=arguments),
        Settings(mode=mode, seed=seed, threads=1, **options),  # type: ignore[arg-type]
    )
    return result, o.view(BFLOAT), lse.view(np.float32)


def sequence(p: Problem, index: int, head: int, drop: int | None = None) -> Attention:
    """One sequence and head as the oracle takes it. `drop`: a key that is hidden from all rows."""
    t, data = p.traits, tensors(p)
    queries, keys = p.lengths[index]
    kv_head = head // (p.heads // p.kv_heads)

    def part(array: np.ndarray, side: int, which: int, depth: int) -> np.ndarray:
        start = int(data.starts[side][index])
        rows = array[start : start + p.lengths[index][side]]
        return rows[:, which * depth : (which + 1) * depth].astype(np.float64)

    seen = np.ones((queries, keys), bool)
    if t.causal:
        seen &= np.arange(keys)[None, :] <= np.arange(queries)[:, None] + keys - queries
    if drop is not None:
        seen[:, drop] = False
    q_descale, k_descale, v_descale = map(float, data.descales)
    return Attention(
        part(data.q, 0, head, t.depth),
        part(data.k, 1, kv_head, t.depth),
        part(data.v, 1, kv_head, t.v_depth),
        seen,
        data.scale * q_descale * k_descale,
        v_descale,
        E4M3 if t.fp8 else BF16,
        t.tile[1],
        PATTERN if t.depth == 256 else None,
    )


@lru_cache(maxsize=8)
def answers(p: Problem, drop: int | None = None) -> tuple[tuple[Answer, ...], ...]:
    """The oracle's answer, by sequence and head."""
    elements = sum(q for q, _ in p.lengths) * p.heads * p.traits.v_depth
    return tuple(
        tuple(attend(sequence(p, index, head, drop), elements) for head in range(p.heads))
        for index in range(len(p.lengths))
    )


def judge(p: Problem, o: np.ndarray, lse: np.ndarray, drop: int | None = None) -> tuple[Error, ...]:
    """O and LSE against the oracle, and that nothing else was written."""
    t, data = p.traits, tensors(p)
    width = p.heads * t.v_depth
    untouched_o, untouched_lse = np.ones(o.shape, bool), np.ones(lse.shape, bool)
    found: dict[str, Error] = {}
    for index, of_heads in enumerate(answers(p, drop)):
        start, queries = int(data.starts[0][index]), p.lengths[index][0]
        own = slice(start, start + queries)
        untouched_o[own, :width] = False
        got = {"O": o[own, :width].reshape(1, queries, p.heads, t.v_depth)}
        want = {"O": (np.stack([a.o for a in of_heads], 1),
                      np.stack([a.o_bound for a in of_heads], 1))}  # fmt: skip
        if p.lse:
            at = (0, slice(None), own) if t.group else (index, slice(None), slice(0, queries))
            untouched_lse[at] = False
            got["LSE"] = lse[at].T[None, :, :, None]
            want["LSE"] = (np.stack([a.lse for a in of_heads], 1),
                           np.stack([a.lse_bound for a in of_heads], 1))  # fmt: skip
        for name, array in got.items():
            if not array.size:
                continue
            made = compare(expected(name, *want[name]), array)
            new = Error(name, made.max_error, made.max_ratio, made.nans)
            found[name] = _worse(found[name], new) if name in found else new
    strays = int((o.view(np.uint16) != O_POISON)[untouched_o].sum())
    strays += int((lse.view(np.uint32) != LSE_POISON)[untouched_lse].sum())
    if strays:
        found["outside"] = Error("outside", float(strays), np.inf, 0)
    return tuple(found.values())


def _worse(a: Error, b: Error) -> Error:
    return Error(a.output, max(a.error, b.error), max(a.ratio, b.ratio), a.nans + b.nans)


def run(p: Problem, mode: Mode, seed: int = 0, code: bytes | None = None) -> Outcome:
    """One launch of the object that the problem names (or of `code`), judged."""
    made, o, lse = launch(p, code or object_file(p.path).read_bytes(), mode, seed)
    return Outcome(judge(p, o, lse), made.findings, made.wave_instructions, made.seconds)


def case(p: Problem) -> Case:
    """The problem as the report and the tests take it."""
    runner: Callable[[Mode, int], Outcome] = partial(run, p)
    return Case(p.path, p.label, runner)


NAMES = tuple(
    f"fwd_{shape}{causal}{group}"
    for shape in ("hd128_bf16", "hd192_hd128_bf16", "hd128_fp8", "hd256_fp8")
    for causal in ("", "_causal")
    for group in ("", "_group")
)


def _problems() -> list[Problem]:
    """What the tests and the report launch: every object, ragged in every way."""
    batch = (
        Problem("", ((200, 300),)),
        Problem("", ((600, 520),), heads=2),  # several query tiles; two heads share keys
        Problem("", ((130, 65), (130, 65)), heads=2, kv_heads=2, option=0),
        Problem("", ((1, 300),), lse=False),
        Problem("", ((100, 1),)),
        Problem("", ((300, 100),)),  # more queries than keys
    )
    causal = (Problem("", ((700, 700),), heads=8, kv_heads=8),)  # option 5; the others take 3
    grouped = (
        Problem("", ((300, 257), (1, 70), (129, 400)), heads=2),
        Problem("", ((300, 257), (40, 70)), heads=2, padded=((310, 260), (64, 80))),
        Problem("", ((100, 257), (30, 0), (0, 40), (20, 30))),  # nothing to see, nobody to look
        Problem("", ((300, 100), (50, 60)), option=0),
    )
    made = []
    for name in NAMES:
        path = f"fmha_v3_fwd/{name}.co"
        chosen = grouped if "group" in name else (*batch, *(causal if "causal" in name else ()))
        made += [replace(p, path=path) for p in chosen]
    return made


PROBLEMS = _problems()
CASES = [case(p) for p in PROBLEMS]
