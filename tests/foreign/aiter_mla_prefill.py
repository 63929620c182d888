"""Launches of AITER's persistent MLA prefill (`mla_pfl_qh192_vh128_m32x8_n128x1_causal0/1`).

Arguments as in AITER's launcher (`mla_prefill_ps_asm_fwd` of `csrc/py_itfs_cu/asm_mla.cu`); the
work of each workgroup is that of `mla_problem.Item`, in tiles of 256 query tokens of one head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from aiter import Case, Error, Outcome, object_file
from mla_oracle import Rows, attention, merged, of_merged
from mla_problem import E4M3, Array, Item, work_tables
from mla_results import check, outcome

from mlagen.emulator import Argument, Buffer, Launch, Mode, Settings, emulate
from mlagen.problem.formats import BF16

D_QK, D_V, TILE = 192, 128, 256


@dataclass(frozen=True)
class Prefill:
    """`tokens` queries and `lengths` keys a sequence, e4m3, as many K/V heads as query heads.

    Pages hold one key; the list is in random order, pages that it does not name are NaN. `dyadic`:
    scores are whole numbers of log2 units (`mla_oracle`).
    """

    heads: int
    tokens: tuple[int, ...]
    lengths: tuple[int, ...]
    causal: bool
    dyadic: bool = False
    q_scale: float = 0.5
    k_scale: float = 0.75
    v_scale: float = 1.5
    seed: int = 0

    @cached_property
    def qo_indptr(self) -> Array:
        return np.cumsum([0, *self.tokens]).astype(np.int32)

    @cached_property
    def kv_indptr(self) -> Array:
        return np.cumsum([0, *self.lengths]).astype(np.int32)

    @cached_property
    def pages(self) -> Array:
        rng = np.random.default_rng((self.seed, 1))
        used = sum(self.lengths)
        return (rng.permutation(used + 7)[:used]).astype(np.int32)

    @property
    def scale(self) -> float:
        if self.dyadic:
            return float(np.log(2.0)) / (self.q_scale * self.k_scale)
        return float(np.float32(2.0 * D_QK**-0.5 / (self.q_scale * self.k_scale)))

    @cached_property
    def arrays(self) -> tuple[Array, Array, Array]:
        """Q [tokens, heads, 192], K [pages, heads, 192], V [pages, heads, 128]."""
        rng = np.random.default_rng((self.seed, 2))
        keys = (sum(self.lengths), self.heads)
        q = rng.standard_normal((sum(self.tokens), self.heads, D_QK), np.float32)
        k, v = (rng.standard_normal((*keys, depth), np.float32) for depth in (D_QK, D_V))
        if self.dyadic:
            at = np.argsort(rng.random(q.shape), axis=-1)[..., :4]
            signs = rng.choice([-1.0, 1.0], at.shape).astype(np.float32)
            q = np.zeros_like(q)
            np.put_along_axis(q, at, signs, axis=-1)
            k = rng.integers(-1, 2, k.shape).astype(np.float32)
        paged = []
        for rows in (k, v):
            cache = np.full((len(self.pages) + 7, *rows.shape[1:]), np.nan, np.float32)
            # Beyond the list's end the kernels read page 0 with a P of 0.
            cache[0] = rng.standard_normal(rows.shape[1:])
            cache[self.pages] = rows
            paged.append(cache.astype(E4M3))
        return q.astype(E4M3), paged[0], paged[1]

    def tiles(self) -> list[Item]:
        """One final item a tile of 256 tokens and head, its keys cut where the mask ends."""
        items = []
        for b, (tokens, length) in enumerate(zip(self.tokens, self.lengths, strict=True)):
            q, kv = int(self.qo_indptr[b]), int(self.kv_indptr[b])
            for head in range(self.heads):
                for start in range(0, tokens, TILE):
                    end = min(start + TILE, tokens)
                    keys = min(length - tokens + end, length) if self.causal else length
                    items.append(
                        Item(b, -1, q + start, q + end, kv, kv + keys, length - keys, head)
                    )
        return items

    def expected(self, item: Item, whole: bool = False) -> Rows:
        """The item's rows over its keys, or over all of the sequence's."""
        b, head = item.sequence, item.head
        kv = int(self.kv_indptr[b])
        ends = (kv, int(self.kv_indptr[b + 1])) if whole else (item.kv_start, item.kv_end)
        q, k, v = self.arrays
        keys = self.pages[ends[0] : ends[1]]
        token = np.arange(item.qo_start, item.qo_end) - int(self.qo_indptr[b])
        last = np.full(len(token), self.lengths[b])
        if self.causal:
            last = self.lengths[b] - self.tokens[b] + token + 1
        visible = np.arange(ends[0] - kv, ends[1] - kv)[None, :] < last[:, None]
        return attention(
            q[item.qo_start : item.qo_end, head].astype(np.float64),
            k[keys, head].astype(np.float64),
            v[keys, head].astype(np.float64),
            visible,
            scale=float(np.float32(self.scale)) * self.q_scale * self.k_scale,
            p_format="e4m3",
            v_scale=self.v_scale,
        )


def cut(item: Item, keys: int, partial: int) -> tuple[Item, Item]:
    """An item in two, after `keys` keys; a part has 256 rows of the partial buffers."""
    place = (item.sequence, partial, item.qo_start, item.qo_end)
    middle = item.kv_start + keys
    rest = item.kv_end - middle + item.kv_offset
    return (
        Item(*place, item.kv_start, middle, rest, item.head),
        Item(item.sequence, partial + TILE, *place[2:], middle, item.kv_end, 0, item.head),
    )


def launch(
    code: bytes, problem: Prefill, groups: Sequence[Sequence[Item]], mode: Mode, seed: int
) -> Outcome:
    """Every item's output against the expectation of its keys, the merged ones against all."""
    q, k, v = problem.arrays
    items = [item for group in groups for item in group]
    parts = [item for item in items if item.partial >= 0]
    size = max((item.partial + TILE for item in parts), default=1)
    o = np.full((len(q), problem.heads, D_V), np.nan, BF16)
    partial_o = np.full((size, problem.heads, D_V), np.nan, np.float32)
    partial_lse = np.full((size, problem.heads), np.nan, np.float32)
    indptr, info = work_tables(groups)
    scales = (problem.q_scale, problem.k_scale, problem.v_scale)
    arrays = [
        ("Q", q, "read"), ("K", k, "read"), ("V", v, "read"), ("O", o, "write"),
        ("partial O", partial_o, "write"), ("partial LSE", partial_lse, "write"),
        ("work_indptr", indptr, "read"), ("work_info", info, "read"),
        ("qo_indptr", problem.qo_indptr, "read"), ("kv_indptr", problem.kv_indptr, "read"),
        ("kv_page_indices", problem.pages, "read"),
        *((f"{name}_scale", np.array([scale], np.float32), "read")
          for name, scale in zip("qkv", scales, strict=True)),
    ]  # fmt: skip
    counts = (len(q), problem.heads, len(k), len(problem.pages))
    arguments = [
        *(Argument(16 * i, Buffer(n, a, w)) for i, (n, a, w) in enumerate(arrays)),
        Argument(0xE0, np.float32(problem.scale)),
        *(Argument(0xF0 + 16 * i, np.uint32(count)) for i, count in enumerate(counts)),
    ]
    grid = (len(groups), 1, 1)
    result = emulate(
        code,
        Launch(grid=grid, block=(512, 1, 1), arguments=arguments),
        Settings(mode=mode, seed=seed),
    )
    errors: list[Error] = []
    for item in items:
        if item.partial < 0:
            errors += check("", problem.expected(item), o[item.qo_start : item.qo_end, item.head],
                            None)  # fmt: skip
            continue
        own = slice(item.partial, item.partial + item.qo_end - item.qo_start)
        got = (partial_o[own, item.head], partial_lse[own, item.head])
        errors += check("partial ", problem.expected(item), *got)
    for place in dict.fromkeys((i.sequence, i.head, i.qo_start, i.qo_end) for i in parts):
        own_parts = [i for i in parts if (i.sequence, i.head, i.qo_start, i.qo_end) == place]
        rows = place[3] - place[2]
        both = (
            np.stack([x[i.partial : i.partial + rows, i.head] for i in own_parts])
            for x in (partial_o, partial_lse)
        )
        errors += check("merged ", of_merged(problem.expected(own_parts[0], True)), *merged(*both))
    return outcome(errors, result)


def _run(causal: bool, label: str, mode: Mode, seed: int) -> Outcome:
    code = object_file(f"mla/mla_pfl_qh192_vh128_m32x8_n128x1_causal{int(causal)}.co").read_bytes()
    if label.startswith("1 item"):
        problem = Prefill(1, (40,), (200,), causal, "dyadic" in label, seed=seed)
        return launch(code, problem, [problem.tiles()], mode, seed)
    problem = Prefill(2, (300, 21), (333, 150), causal, "dyadic" in label, seed=seed)
    first, *others = problem.tiles()
    parts = cut(first, 128, 0)
    groups = [[parts[0], others[0], others[4]], [others[1], others[3], parts[1]], [others[2]]]
    return launch(code, problem, groups, mode, seed)


LABELS = ("1 item", "3 workgroups, 7 items, 1 in two parts, dyadic")
CASES = [
    Case(f"mla/mla_pfl_qh192_vh128_m32x8_n128x1_causal{int(causal)}.co", label, run)
    for causal in (False, True)
    for label in LABELS
    for run in [lambda mode, seed, c=causal, t=label: _run(c, t, mode, seed)]
]
