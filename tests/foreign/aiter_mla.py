"""Launches of AITER's mla objects: prefill (`mla_pfl_qh192...`) and the decode kernels.

Offsets and meanings of the arguments are those of AITER's launchers (`csrc/py_itfs_cu/asm_mla.cu`).
Every output starts as NaN, as do all pages that no table names and the rows past a last page's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from aiter import Error, Outcome
from mla_oracle import Format, Rows, attention, merged, of_merged

from mlagen.binary import load_code_object
from mlagen.emulator import Argument, Buffer, EmulationResult, emulate
from mlagen.emulator.api import Mode
from mlagen.problem.expected import Expected, compare
from mlagen.problem.formats import BF16

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
DTYPES: dict[Format, np.dtype[Any]] = {"bf16": BF16, "e4m3": E4M3}
D_QK, D_V = 576, 512
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Item:
    """One piece of work of a persistent kernel.

    Query tokens [qo_start, qo_end) of a sequence over entries [kv_start, kv_end) of the page list;
    `kv_offset` keys of the sequence lie behind these. `partial`: -1 writes the final output, else
    the row of the partial buffers. `head` is read by the prefill kernels only.
    """

    sequence: int
    partial: int
    qo_start: int
    qo_end: int
    kv_start: int
    kv_end: int
    kv_offset: int = 0
    head: int = 0

    def words(self) -> list[int]:
        return [
            self.sequence,
            self.partial,
            self.qo_start,
            self.qo_end,
            self.kv_start,
            self.kv_end,
            self.kv_offset,
            self.head | (self.head + 1) << 16,
        ]


def work_tables(groups: Sequence[Sequence[Item]]) -> tuple[Array, Array]:
    """`work_indptr` [groups + 1] and `work_info` [items, 8] of each workgroup's items."""
    counts = np.cumsum([0, *(len(group) for group in groups)])
    info = [item.words() for group in groups for item in group]
    return counts.astype(np.int32), np.array(info, np.int32).reshape(-1, 8)


@dataclass(frozen=True)
class Decode:
    """A decode problem: `lengths` keys a sequence, `tokens` queries each, over a paged cache.

    `dyadic`: scores are whole numbers of log2 units, where no P is rounded (`mla_oracle`).
    `world`, `rank`: of a cache dealt out by token (context parallel); `lengths` are then global and
    this rank's are those at rank, rank + world, ...
    """

    heads: int
    lengths: tuple[int, ...]
    tokens: int = 1
    q_format: Format = "bf16"
    kv_format: Format = "bf16"
    causal: bool = True
    page_size: int = 1
    dyadic: bool = False
    q_scale: float = 1.0
    kv_scale: float = 1.0
    world: int = 1
    rank: int = 0
    seed: int = 0
    spread: float = 1.0  # of the scores, in natural units
    spare_pages: int = field(default=5)

    @property
    def sequences(self) -> int:
        return len(self.lengths)

    def local(self, sequence: int) -> int:
        """Keys of a sequence that lie in this rank's cache."""
        return len(range(self.rank, self.lengths[sequence], self.world))

    @cached_property
    def kv_indptr(self) -> Array:
        pages = [-(-self.local(b) // self.page_size) for b in range(self.sequences)]
        return np.cumsum([0, *pages]).astype(np.int32)

    @cached_property
    def last_page(self) -> Array:
        counts = [self.local(b) for b in range(self.sequences)]
        return np.array([(n - 1) % self.page_size + 1 if n else 0 for n in counts], np.int32)

    @cached_property
    def qo_indptr(self) -> Array:
        return (np.arange(self.sequences + 1) * self.tokens).astype(np.int32)

    @cached_property
    def scale(self) -> float:
        """The softmax scale that the kernel is handed (without those of q and kv)."""
        if self.dyadic:
            return float(np.log(2.0)) / (self.q_scale * self.kv_scale)
        return float(np.float32(self.spread * D_QK**-0.5 / (self.q_scale * self.kv_scale)))

    @cached_property
    def pages(self) -> Array:
        """The page list: a random choice of the cache's pages, in random order."""
        rng = np.random.default_rng((self.seed, 1))
        used = int(self.kv_indptr[-1])
        return rng.permutation(used + self.spare_pages)[:used].astype(np.int32)

    @cached_property
    def q(self) -> Array:
        """[sequences * tokens, heads, 576]."""
        rng = np.random.default_rng((self.seed, 2))
        shape = (self.sequences * self.tokens, self.heads, D_QK)
        if not self.dyadic:
            return rng.standard_normal(shape, np.float32).astype(DTYPES[self.q_format])
        # Four columns of each row count, of all parts of the depth; k is -1, 0 or 1 everywhere.
        q = np.zeros(shape, np.float32)
        at = np.argsort(rng.random(shape), axis=-1)[..., :4]
        np.put_along_axis(q, at, rng.choice([-1.0, 1.0], at.shape).astype(np.float32), axis=-1)
        return q.astype(DTYPES[self.q_format])

    @cached_property
    def keys(self) -> tuple[Array, ...]:
        """Each sequence's rows of this rank, [local, 576]."""
        rng = np.random.default_rng((self.seed, 3))
        rows = []
        for b in range(self.sequences):
            shape = (self.local(b), D_QK)
            plain = rng.standard_normal(shape, np.float32)
            if self.dyadic:
                plain = rng.integers(-1, 2, shape).astype(np.float32)
            rows.append(plain.astype(DTYPES[self.kv_format]))
        return tuple(rows)

    @cached_property
    def cache(self) -> Array:
        """[pages, page_size, 576]; NaN wherever no key lies."""
        total = len(self.pages) + self.spare_pages
        cache = np.full((total, self.page_size, D_QK), np.nan, DTYPES[self.kv_format])
        for b, rows in enumerate(self.keys):
            for i, row in enumerate(rows):
                page = self.pages[self.kv_indptr[b] + i // self.page_size]
                cache[page, i % self.page_size] = row
        return cache

    def visible(self, sequence: int, tokens: range, keys: range) -> npt.NDArray[np.bool_]:
        """[tokens, keys]: which of this rank's keys the tokens (of the sequence's) see."""
        place = np.array(keys) * self.world + self.rank
        length = self.lengths[sequence]
        last = np.full(len(tokens), length)
        if self.causal:
            last = length - self.tokens + np.array(tokens) + 1
        return place[None, :] < last[:, None]

    def expected(self, sequence: int, tokens: range, keys: range, p_format: Format) -> Rows:
        """Rows (token, head) over a range of this rank's keys."""
        start = sequence * self.tokens
        q = self.q[start + tokens.start : start + tokens.stop].astype(np.float64)
        k = self.keys[sequence][keys.start : keys.stop].astype(np.float64)
        visible = np.repeat(self.visible(sequence, tokens, keys), self.heads, axis=0)
        return attention(
            q.reshape(-1, D_QK),
            k,
            k[:, :D_V],
            visible,
            scale=float(np.float32(self.scale)) * self.q_scale * self.kv_scale,
            p_format=p_format,
            v_scale=self.kv_scale,
        )


def check(output: str, rows: Rows, got_o: Array, got_lse: Array | None) -> list[Error]:
    """Rows' O [rows, d_v], and their LSE [rows], against the expectation."""
    errors = [_check(f"{output}O", rows.o, rows.o_bound, got_o)]
    if got_lse is not None:
        bound = rows.lse_bound[:, None]
        errors.append(_check(f"{output}LSE", rows.lse[:, None], bound, got_lse[:, None]))
    return errors


def _check(output: str, values: Array, bounds: Array, got: Array) -> Error:
    expected = Expected(
        oracle="exact",
        values=values[None, :, None],
        bounds=bounds[None, :, None],
        rows=np.arange(len(values)),
        heads=np.array([0]),
        output=output,
    )
    found = compare(expected, got[None, :, None])
    return Error(output, found.max_error, found.max_ratio, found.nans)


def worst(errors: Sequence[Error]) -> tuple[Error, ...]:
    """One error an output: the worst ratio, the largest error, all NaNs."""
    names = dict.fromkeys(e.output for e in errors)
    of = {name: [e for e in errors if e.output == name] for name in names}
    return tuple(
        Error(
            name,
            float(np.nanmax([e.error for e in some])),
            max(e.ratio for e in some),
            sum(e.nans for e in some),
        )
        for name, some in of.items()
    )


def decode_arguments(
    problem: Decode,
    *,
    r: Array,
    lse: Array,
    final: Array | None,
    final_lse: Array | None,
    splits: int,
    mqa: int,
    work: Buffer | None,
    persistent: bool,
) -> list[Argument]:
    """The 368 bytes that all decode kernels share, of which each reads its own part."""
    none = np.uint64(0)

    def read(name: str, array: Array) -> Buffer:
        return Buffer(name, array, "read")

    def write(name: str, array: Array | None) -> Buffer | np.uint64:
        return none if array is None else Buffer(name, array, "write")

    kv_bytes = problem.cache.dtype.itemsize * D_QK * problem.page_size
    q_bytes = problem.q.dtype.itemsize * D_QK * problem.heads * problem.tokens
    split_indptr = (np.arange(problem.sequences + 1) * splits).astype(np.int32)
    global_indptr = np.cumsum([0, *problem.lengths]).astype(np.int32)
    values: dict[int, Buffer | np.generic] = {
        0x00: write("R", r),
        0x10: write("LSE", lse),
        0x20: read("Q", problem.q),
        0x30: read("KV", problem.cache),
        0x40: read("kv_indptr", problem.kv_indptr),
        0x50: read("kv_page_indices", problem.pages),
        0x60: read("kv_last_page_lens", problem.last_page),
        0x70: np.float32(problem.scale),
        0x80: np.uint32(mqa),
        0x90: np.uint32(splits),
        0xA0: np.uint32(q_bytes),
        0xB0: np.uint32(kv_bytes),
        0xC0: np.uint32(problem.page_size.bit_length() - 1),
        0xD0: read("qo_indptr", problem.qo_indptr),
        0xE0: work if work is not None else read("num_kv_splits_indptr", split_indptr),
        0xF0: write("output", final),
        0x100: read("q_scale", np.array([problem.q_scale], np.float32)),
        0x110: read("kv_scale", np.array([problem.kv_scale], np.float32)),
        0x120: np.uint32(splits if persistent else splits == 1),
        0x130: write("final LSE", final_lse),
        0x140: read("g_kv_indptr", global_indptr) if problem.world > 1 else none,
        0x150: np.uint32(problem.world),
        0x160: np.uint32(problem.rank),
    }
    if problem.q_format == "bf16":
        values[0x100] = none
    if problem.kv_format == "bf16":
        values[0x110] = none
    return [Argument(offset, value) for offset, value in values.items()]


@dataclass(frozen=True, slots=True)
class Kernel:
    """What one decode object is for: AITER's `mla_asm.csv`, and the choices of its launcher.

    `rows`: of the query block [tokens * heads] that one workgroup takes. `mqa`: the argument at
    0x80. `single`: the format of R when there is one split; with more it is fp32.
    """

    path: str
    heads: int
    tokens: int
    q_format: Format
    kv_format: Format
    persistent: bool = False
    causal: bool = True
    lse: bool = False
    round_robin: bool = False
    rows: int = 128
    mqa: int | None = None
    single: Format | None = "bf16"

    @property
    def p_format(self) -> Format:
        return "e4m3" if self.q_format == "e4m3" else "bf16"


SPLIT_POISON = np.uint32(0xFFFFFFFF)  # a NaN in fp32 and, twice, in bf16


def launch_split(
    code: bytes, kernel: Kernel, problem: Decode, splits: int, mode: Mode, seed: int
) -> Outcome:
    """A kernel whose grid is [blocks of query rows, sequences, splits of the keys]."""
    total, heads = problem.sequences * problem.tokens, problem.heads
    raw = np.full((total, splits, heads, D_V), SPLIT_POISON, np.uint32)
    lse = np.full((total, splits, heads), np.nan, np.float32)
    final_lse = np.full((total, heads), np.nan, np.float32)
    mqa = kernel.mqa or heads * problem.tokens
    arguments = decode_arguments(
        problem, r=raw, lse=lse, final=None, final_lse=final_lse, splits=splits, mqa=mqa,
        work=None, persistent=False,
    )  # fmt: skip
    grid = (-(-heads * problem.tokens // kernel.rows), problem.sequences, splits)
    result = _emulate(code, grid, arguments, mode, seed)
    errors = []
    for b in range(problem.sequences):
        keys, at = range(problem.local(b)), slice(b * problem.tokens, (b + 1) * problem.tokens)
        rows = problem.expected(b, range(problem.tokens), keys, kernel.p_format)
        if splits == 1 and kernel.single is not None:
            o = raw.view(BF16).reshape(-1)[: total * heads * D_V].reshape(total, heads, D_V)[at]
            errors += check("", rows, o.reshape(-1, D_V), None)
            continue
        o, part = (x[at].swapaxes(0, 1) for x in (raw.view(np.float32), lse))
        both = merged(o.reshape(splits, -1, D_V), part.reshape(splits, -1))
        errors += check("", of_merged(rows), *both)
    return outcome(errors, result)


def launch_persistent(
    code: bytes,
    kernel: Kernel,
    problem: Decode,
    groups: Sequence[Sequence[Item]],
    mode: Mode,
    seed: int,
) -> Outcome:
    """A kernel whose workgroups each take the items of `groups`: every item's own output is held
    against the expectation of its keys, then the merged ones against that of all."""
    total, heads = problem.sequences * problem.tokens, problem.heads
    items = [item for group in groups for item in group]
    parts = [item for item in items if item.partial >= 0]
    size = max((item.partial + item.qo_end - item.qo_start for item in parts), default=1)
    r = np.full((size, heads, D_V), np.nan, np.float32)
    lse = np.full((size, heads), np.nan, np.float32)
    final = np.full((total, heads, D_V), np.nan, BF16)
    final_lse = np.full((total, heads), np.nan, np.float32)
    indptr, info = (Buffer(n, t, "read") for n, t in zip(
        ("work_indptr", "work_info"), work_tables(groups), strict=True))  # fmt: skip
    at = (1 << 40, 1 << 41)
    tables = [
        Argument(0x08 + 0x10 * i, Buffer(b.name, b.array, "read", a))  # padding that nobody reads
        for i, (b, a) in enumerate(zip((indptr, info), at, strict=True))
    ]
    arguments = tables + decode_arguments(
        problem, r=r, lse=lse, final=final, final_lse=final_lse if kernel.lse else None, splits=1,
        mqa=kernel.mqa or heads * problem.tokens,
        work=Buffer("work", np.array(at, np.uint64), "read"), persistent=True,
    )  # fmt: skip
    result = _emulate(code, (len(groups), 1, 1), arguments, mode, seed)
    errors = []
    for item in items:
        b, first = item.sequence, problem.kv_indptr[item.sequence]
        start = item.sequence * problem.tokens
        tokens = range(item.qo_start - start, item.qo_end - start)
        pages = (int(item.kv_start - first), int(item.kv_end - first))
        keys = range(
            pages[0] * problem.page_size, min(pages[1] * problem.page_size, problem.local(b))
        )
        rows = problem.expected(b, tokens, keys, kernel.p_format)
        if item.partial < 0:
            own = slice(item.qo_start, item.qo_end)
            got = final_lse[own].reshape(-1) if kernel.lse else None
            errors += check("", rows, final[own].reshape(-1, D_V), got)
        else:
            own = slice(item.partial, item.partial + len(tokens))
            errors += check("partial ", rows, r[own].reshape(-1, D_V), lse[own].reshape(-1))
    tiles = dict.fromkeys((item.sequence, item.qo_start, item.qo_end) for item in parts)
    for b, first_token, end in tiles:
        own_parts = [i for i in parts if (i.sequence, i.qo_start) == (b, first_token)]
        count = end - first_token
        o, part = (
            np.stack([x[i.partial : i.partial + count].reshape(count * heads, -1) for i in own_parts])
            for x in (r, lse)
        )
        tokens = range(first_token - b * problem.tokens, end - b * problem.tokens)
        rows = problem.expected(b, tokens, range(problem.local(b)), kernel.p_format)
        errors += check("merged ", of_merged(rows), *merged(o, part[..., 0]))
    return outcome(errors, result)


def outcome(errors: Sequence[Error], result: EmulationResult) -> Outcome:
    return Outcome(worst(errors), result.findings, result.wave_instructions, result.seconds)


def _emulate(
    code: bytes, grid: tuple[int, int, int], arguments: list[Argument], mode: Mode, seed: int
) -> EmulationResult:
    loaded = load_code_object(code)
    end = loaded.kernel().kernarg_bytes
    known = [a for a in arguments if a.offset + 8 <= end or a.offset + 4 == end]
    return emulate(loaded, grid=grid, block=(256, 1, 1), arguments=known, mode=mode, seed=seed)
