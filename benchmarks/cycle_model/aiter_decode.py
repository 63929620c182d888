"""Launches of AITER's MLA decode kernels, and how AITER distributes their work.

The argument block is that of csrc/py_itfs_cu/asm_mla.cu; who gets which keys is what
csrc/kernels/mla/metadata/v1_2_device.cuh (persistent kernels) and `get_meta_param` of aiter/mla.py
(the others) compute. The objects are the user's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from cycle_model.aiter_prefill import rows_of
from cycle_model.decode import DecodeKernel, Part

from mlagen.binary import CodeObject
from mlagen.emulator import Argument, Buffer, EmulationResult, Launch, Settings, emulate
from mlagen.emulator.streams import ExecutedStream

Array = npt.NDArray[Any]
D_QK, D_V = 576, 512
_LENGTHS: Final = (1024, 2048)  # keys of the two runs
_GRAIN: Final = 16  # keys: persistent parts begin at whole ones
_FIXED: Final = 16  # grains that a part counts more than its keys
_OVERHEAD: Final = 84.1  # keys that a split is taken to cost
_MOST_SPLITS: Final = 16
_TABLES: Final = (1 << 40, 1 << 41)  # addresses of the tables of persistent work


@dataclass(frozen=True, slots=True)
class Decode:
    """A decode object. `rows`: of queries that a workgroup takes; `tile`: of keys; `persistent`:
    it takes parts from a table, else one split of a sequence."""

    name: str
    rows: int
    tile: int
    fp8: bool
    persistent: bool

    @property
    def path(self) -> str:
        """Below the folder."""
        return f"mla/{self.name}.co"


DECODE: dict[str, Decode] = {
    kernel.name: kernel
    for kernel in (
        Decode("mla_a16w16_qh64_qseqlen1_gqaratio64_v3_ps", 64, 64, False, True),
        Decode("mla_a16w16_qh32_qseqlen4_gqaratio32_ps", 128, 32, False, True),
        Decode("mla_a16w16_qh64_qseqlen1_gqaratio64_v3", 64, 64, False, False),
        Decode("MLA_A16W16_1TG_4W_64mx1_16nx1_Coex0_Msk1_QH16", 64, 16, False, False),
        Decode("mla_dec_stage1_bf16_a16w16_subQ16_mqa16", 16, 64, False, False),
        Decode("mla_dec_stage1_bf16_a16w16_subQ128_mqa128", 128, 16, False, False),
        Decode("mla_a16w16_qh16_m16x4_n16x1_coex0_mask1_ps", 64, 16, False, True),
        Decode("mla_a8w8_qh16_qseqlen1_gqaratio16_ps", 16, 128, True, True),
        Decode("mla_a8w8_qh32_qseqlen1_gqaratio32_ps", 32, 128, True, True),
        Decode("mla_a8w8_qh16_qseqlen4_gqaratio16_v3_ps", 64, 64, True, True),
        Decode("mla_a8w8_qh32_qseqlen4_gqaratio32_ps", 128, 64, True, True),
        Decode("mla_a8w8_qh128_m32x4_n16x2_msk0_ps", 128, 32, True, True),
    )
}


@dataclass(frozen=True, eq=False)
class Call:
    """One sequence and one new token: `q` [heads, 576] and `cache` [rows, 576] as stored (16 bits a
    number, or 8), the cache's row of every key, and scales. `out`: bf16 bits [heads, 512]."""

    q: Array
    cache: Array
    pages: Array
    scale: float
    out: Array
    q_scale: float = 1.0
    kv_scale: float = 1.0


def execute_decode(
    code: CodeObject, kernel: Decode, call: Call, *, part: bool = False, record: bool = False
) -> EmulationResult:
    """A workgroup that goes through all keys of a call, and writes `out`; `part`: a part's results
    instead, as of split work.

    Loads land at once: some objects use page numbers before their wait
    (docs/foreign_kernels_mla.md).
    """
    arguments = _arguments(kernel, call, part)
    end = code.kernel().kernarg_bytes
    known = [a for a in arguments if a.offset + 8 <= end or a.offset + 4 == end]
    return emulate(
        code,
        Launch(grid=(1, 1, 1), block=(256, 1, 1), arguments=known),
        Settings(sanitize=False, mode="earliest", threads=1, record=record),
    )


def record_decode(code: CodeObject, kernel: Decode, heads: int, keys: int) -> ExecutedStream:
    """What a workgroup executes on all `keys` of one sequence, of one new token."""
    # No two rows of the sequence lie side by side, as in a large pool of pages of one key.
    pages = (3 * np.random.default_rng(0).permutation(keys)).astype(np.int32)
    call = Call(
        rows_of(heads, D_QK, kernel.fp8, 1),
        rows_of(3 * keys, D_QK, kernel.fp8, 2),
        pages,
        D_QK**-0.5,
        np.zeros((heads, D_V), np.uint16),
    )
    return execute_decode(code, kernel, call, part=True, record=True).streams[0]


def decode_kernel(code: CodeObject, kernel: Decode, heads: int) -> DecodeKernel:
    """An object as the model takes it, with `heads` query heads a sequence."""
    rows = min(heads, kernel.rows)
    streams = {n: record_decode(code, kernel, rows, n) for n in _LENGTHS}
    return DecodeKernel(kernel.name, code.kernel(), streams, rows, kernel.tile)


def _arguments(kernel: Decode, call: Call, part: bool) -> list[Argument]:
    heads, keys = len(call.q), len(call.pages)
    row = D_QK * call.cache.dtype.itemsize
    results = np.zeros((heads, D_V), np.float32)
    values: dict[int, Buffer | np.generic] = {
        0x00: Buffer("R", call.out if _writes_final(kernel, part) else results, "write"),
        0x10: Buffer("LSE", np.zeros(heads, np.float32), "write"),
        0x20: Buffer("Q", call.q, "read"),
        0x30: Buffer("KV", call.cache, "read"),
        0x40: Buffer("kv_indptr", np.array([0, keys], np.int32), "read"),
        0x50: Buffer("kv_page_indices", call.pages, "read"),
        0x60: Buffer("kv_last_page_lens", np.ones(1, np.int32), "read"),
        0x70: np.float32(call.scale),
        0x80: np.uint32(heads),
        0x90: np.uint32(1),
        0xA0: np.uint32(heads * row),
        0xB0: np.uint32(row),
        0xC0: np.uint32(0),
        0xD0: Buffer("qo_indptr", np.array([0, 1], np.int32), "read"),
        0xF0: Buffer("output", call.out if kernel.persistent else results.copy(), "write"),
        0x100: _scale("q_scale", call.q_scale) if kernel.fp8 else np.uint64(0),
        0x110: _scale("kv_scale", call.kv_scale) if kernel.fp8 else np.uint64(0),
        0x120: np.uint32(1),
        **{offset: np.uint64(0) for offset in (0x130, 0x140)},
        0x150: np.uint32(1),
        0x160: np.uint32(0),
    }
    if kernel.persistent:
        slot = 0 if part else -1  # of R, or the final output
        item = np.array([[0, slot, 0, 1, 0, keys, 0, 1 << 16]], np.int32)
        tables = (Buffer("work_indptr", np.array([0, 1], np.int32), "read", _TABLES[0]),
                  Buffer("work_info", item, "read", _TABLES[1]))  # fmt: skip
        values[0xE0] = Buffer("work", np.array(_TABLES, np.uint64), "read")
        extra = [Argument(0x08 + 0x10 * i, table) for i, table in enumerate(tables)]
        return extra + [Argument(offset, value) for offset, value in values.items()]
    values[0xE0] = Buffer("num_kv_splits_indptr", np.array([0, 1], np.int32), "read")
    return [Argument(offset, value) for offset, value in values.items()]


def _writes_final(kernel: Decode, part: bool) -> bool:
    """With one split, objects that are not persistent write the output where parts would go."""
    return not kernel.persistent and not part


def _scale(name: str, value: float) -> Buffer:
    return Buffer(name, np.array([value], np.float32), "read")


def persistent_groups(lengths: Sequence[int], cus: int, most_splits: int = 0) -> list[list[Part]]:
    """Parts by workgroup, one workgroup a compute unit: all keys in one line, cut evenly.
    `most_splits`: of a sequence, 0 for as many as there are compute units."""
    grains = [-(-n // _GRAIN) for n in lengths]
    shares = min(cus, most_splits * len(lengths)) if most_splits else cus
    payload = -(-sum(g + _FIXED for g in grains) // shares) + _FIXED
    groups: list[list[Part]] = [[]]
    left = payload
    for sequence, (count, length) in enumerate(zip(grains, lengths, strict=True)):
        at = 0
        while at < count:
            if left <= _FIXED:
                groups.append([])
                left = payload
            taken = min(count - at, left - _FIXED)
            keys = min(taken * _GRAIN, length - at * _GRAIN)
            groups[-1].append(Part(sequence, at, keys, taken < count))
            at += taken
            left -= taken + _FIXED
            if at < count:
                left = 0
    return groups


def split_count(batch: int, keys: int, cus: int) -> int:
    """Splits of every sequence of a launch that is not persistent."""

    def worth(count: int) -> float:
        groups = batch * count
        full = groups / (-(-groups // cus) * cus)
        return full * keys / (keys + _OVERHEAD * count)

    return max(range(1, _MOST_SPLITS + 1), key=worth)


def split_groups(lengths: Sequence[int], splits: int, tile: int) -> list[list[Part]]:
    """A workgroup for each split of each sequence: tiles are dealt out in turn."""

    def parts() -> Iterator[Part]:
        for split in range(splits):
            for sequence, length in enumerate(lengths):
                tiles = len(range(split, -(-length // tile), splits))
                if tiles:
                    yield Part(sequence, split, tiles * tile, True)

    return [[part] for part in parts()]
