"""Launches of AITER's mla decode objects, and the cases of the report.

Offsets and meanings of the arguments are those of AITER's launcher (`csrc/py_itfs_cu/asm_mla.cu`).
Every output starts as NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from aiter import Case, Outcome, object_file
from mla_kernels import KERNELS, Kernel
from mla_oracle import merged, of_merged
from mla_problem import D_QK, D_V, Array, Decode, Item, work_tables
from mla_results import check, outcome

from mlagen.binary import load_code_object
from mlagen.emulator import Argument, Buffer, EmulationResult, Launch, Mode, Settings, emulate
from mlagen.problem.formats import BF16


def decode_arguments(
    problem: Decode,
    *,
    r: Array,
    lse: Array,
    final: Array | None,
    final_lse: Array | None,
    splits: int,
    mqa: int,
    work: Buffer | None = None,
    persistent: bool = False,
    legacy_flag: bool = False,
    prefill: bool = False,
) -> list[Argument]:
    """The 368 bytes that all decode kernels share, of which each reads its own part."""
    none = np.uint64(0)

    def read(name: str, array: Array) -> Buffer:
        return Buffer(name, array, "read")

    def write(name: str, array: Array | None) -> Buffer | np.uint64:
        return none if array is None else Buffer(name, array, "write")

    kv_bytes = problem.cache.dtype.itemsize * D_QK * problem.page_size
    q_bytes = problem.q.dtype.itemsize * D_QK * problem.heads
    q_bytes *= 1 if prefill else problem.tokens
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
        0xF0: np.uint32(splits == 1) if legacy_flag else write("output", final),
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


SPLIT_POISON = np.uint32(0xFFFFFFFF)  # a NaN in fp32 and, twice, in bf16


def launch_split(
    code: bytes, kernel: Kernel, problem: Decode, splits: int, mode: Mode, seed: int
) -> Outcome:
    """A kernel whose grid is [blocks of query rows, sequences, splits of the keys]."""
    total, heads = problem.sequences * problem.tokens, problem.heads
    raw = np.full((total, splits, heads, D_V), SPLIT_POISON, np.uint32)
    lse = np.full((total, splits, heads), np.nan, np.float32)
    final = np.full((total, heads, D_V), np.nan, BF16) if kernel.final_single else None
    arguments = decode_arguments(
        problem, r=raw, lse=lse, final=final, final_lse=np.full((total, heads), np.nan, np.float32),
        splits=splits, mqa=kernel.mqa or heads * problem.tokens, legacy_flag=kernel.legacy_flag,
        prefill=kernel.prefill,
    )  # fmt: skip
    grid = (-(-heads * problem.tokens // kernel.rows), problem.sequences, splits)
    result = _emulate(code, grid, arguments, mode, seed)
    if splits == 1 and kernel.single is not None and final is None:
        final = raw.view(BF16).reshape(-1)[: total * heads * D_V].reshape(total, heads, D_V)
    errors = []
    for b in range(problem.sequences):
        keys, at = range(problem.local(b)), slice(b * problem.tokens, (b + 1) * problem.tokens)
        rows = problem.expected(b, range(problem.tokens), keys, kernel.p_format)
        if splits == 1 and final is not None:
            errors += check("", rows, final[at].reshape(-1, D_V), None)
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
        b, first = item.sequence, int(problem.kv_indptr[item.sequence])
        start = item.sequence * problem.tokens
        tokens = range(item.qo_start - start, item.qo_end - start)
        if kernel.token_items:
            ends = [x - first * problem.page_size for x in (item.kv_start, item.kv_end)]
        else:
            ends = [(x - first) * problem.page_size for x in (item.kv_start, item.kv_end)]
        keys = range(*(min(end, problem.local(b)) for end in ends))
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
            np.stack(
                [x[i.partial : i.partial + count].reshape(count * heads, -1) for i in own_parts]
            )
            for x in (r, lse)
        )
        tokens = range(first_token - b * problem.tokens, end - b * problem.tokens)
        rows = problem.expected(b, tokens, range(problem.local(b)), kernel.p_format)
        errors += check("merged ", of_merged(rows), *merged(o, part[..., 0]))
    return outcome(errors, result)


def _emulate(
    code: bytes, grid: tuple[int, int, int], arguments: list[Argument], mode: Mode, seed: int
) -> EmulationResult:
    loaded = load_code_object(code)
    end = loaded.kernel().kernarg_bytes
    known = [a for a in arguments if a.offset + 8 <= end or a.offset + 4 == end]
    return emulate(
        loaded,
        Launch(grid=grid, block=(256, 1, 1), arguments=known),
        Settings(mode=mode, seed=seed),
    )


def problem(kernel: Kernel, lengths: tuple[int, ...], **other: object) -> Decode:
    """A problem that a kernel is for, with `lengths` keys (of this rank)."""
    fp8 = {"q_scale": 0.5, "kv_scale": 1.5} if kernel.q_format == "e4m3" else {}
    if kernel.kv_format != kernel.q_format:
        fp8 = {"kv_scale": 1.5}
    if kernel.unit_kv_scale:
        fp8 = {"q_scale": 0.5}
    share = {"world": 2, "rank": 1} if kernel.round_robin else {}
    return Decode(**{  # type: ignore[arg-type]
        "heads": kernel.heads, "tokens": kernel.tokens, "q_format": kernel.q_format,
        "kv_format": kernel.kv_format, "causal": kernel.causal, "page_size": kernel.page_size,
        "lengths": tuple(2 * n for n in lengths) if share else lengths, "spread": 2.0,
        **fp8, **share, **other,
    })  # fmt: skip


def whole(kernel: Kernel, of: Decode, sequence: int) -> Item:
    """All keys of a sequence, final."""
    unit = of.page_size if kernel.token_items else 1
    first = int(of.kv_indptr[sequence]) * unit
    end = first + of.local(sequence) if kernel.token_items else int(of.kv_indptr[sequence + 1])
    qo = sequence * of.tokens
    return Item(sequence, -1, qo, qo + of.tokens, first, end)


def halves(kernel: Kernel, of: Decode, sequence: int, keys: int, partial: int) -> tuple[Item, Item]:
    """A sequence cut after `keys` keys: parts at rows `partial` and after."""
    item = whole(kernel, of, sequence)
    cut = item.kv_start + (keys if kernel.token_items else keys // of.page_size)
    places = (item.sequence, item.qo_start, item.qo_end)
    first = Item(places[0], partial, *places[1:], item.kv_start, cut, of.local(sequence) - keys)
    return first, Item(places[0], partial + of.tokens, *places[1:], cut, item.kv_end)


def run(name: str, label: str, mode: Mode, seed: int) -> Outcome:
    """One of the launches that every object gets: see `LABELS`."""
    kernel = KERNELS[name]
    code = object_file(f"mla/{name}.co").read_bytes()
    of = problem(kernel, (150, 61), dyadic=label.endswith("dyadic"), seed=seed)
    if not kernel.persistent:
        return launch_split(code, kernel, of, int(label[0]), mode, seed)
    groups: list[list[Item]] = [[whole(kernel, of, 0)], [whole(kernel, of, 1)]]
    if label.startswith("parts"):
        first, second = halves(kernel, of, 0, 128, 0)
        groups = [[first, whole(kernel, of, 1)], [second]]
    return launch_persistent(code, kernel, of, groups, mode, seed)


def labels(kernel: Kernel) -> tuple[str, ...]:
    """Launches of two sequences, of 150 and 61 keys: whole or with the keys of the first in two."""
    if kernel.persistent:
        return ("whole", "parts, dyadic")
    return ("1 split", "2 splits, dyadic") if kernel.splits > 1 else ("1 split", "1 split, dyadic")


CASES = [
    Case(f"mla/{name}.co", label, partial_run)
    for name, kernel in KERNELS.items()
    for label in labels(kernel)
    for partial_run in [lambda mode, seed, n=name, t=label: run(n, t, mode, seed)]
]


def short_tail(code: bytes, mode: Mode, seed: int, *, launcher: str = "2026-08") -> Outcome:
    """`mla_a8w8_qh32_qseqlen4_gqaratio32_ps` on 129 keys and four tokens, one final work item.

    Tiles of 64 keys: the causal mask of the first tokens begins in the second tile, and one key is
    left for a third. AITER's pull request 2106 is about such tails. Launchers before 2026-06 pass
    tokens * heads at 0x80, later ones heads.
    """
    heads = 32
    mqa = heads if launcher >= "2026-06" else 4 * heads
    kernel = Kernel(heads, 4, "e4m3", "e4m3", persistent=True, mqa=mqa)
    of = Decode(heads, (129,), 4, "e4m3", "e4m3", spread=4.0)
    return launch_persistent(code, kernel, of, [[whole(kernel, of, 0)]], mode, seed)
