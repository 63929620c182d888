"""What MHA prefill does once a workgroup before its tiles: operands of the setup's templates.

They are five operations, because each is readable alone: arguments, sequence (where lengths differ
by sequence), buffers, walk, lanes. They share scalar temporaries, in this order: head, K/V head,
first query row, then three of no fixed meaning; and the vector temporary T, the thread's number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mlagen.dsl import Ring
from mlagen.dsl.layout import BitMap
from mlagen.kernels.division import Divider, exact_reciprocal
from mlagen.kernels.fragments import BF16
from mlagen.kernels.mha_prefill_numbers import LOG2E, LOWEST, hex_float
from mlagen.kernels.mha_prefill_pages import Pages
from mlagen.kernels.mha_prefill_registers import WINDOWED, PrefillRegisters
from mlagen.problem import MhaConfig


def setup_operations(
    k: MhaConfig, regs: PrefillRegisters, rings: tuple[Ring, ...], pages: Pages | None
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(template, operands) of each operation, in order."""
    common = _common(k, regs)
    yield "arguments", common
    if k.by_sequence:
        yield "sequence", common
    yield "buffers", common | _buffers(k, regs, pages)
    yield "walk", common | _walk(k, regs)
    yield (
        "lanes",
        common
        | {
            "loads": _loads(regs, rings, pages),
            "last_entry": pages.last_entry if pages else None,
            "page_divider": pages.divider if pages else None,
            "page_size": k.page_size,
        },
    )


def _common(k: MhaConfig, regs: PrefillRegisters) -> dict[str, Any]:
    arguments = regs.arguments.regs
    return {
        "arguments": arguments,
        "argument_loads": regs.arguments.loads,
        "kernarg": regs.kernarg,
        "group_x": regs.group[0],
        "group_y": regs.group[1],
        "group_z": regs.group[2],
        "wave": regs.wave,
        "tiles": regs.tiles,
        "lds_wave": regs.lds_wave,
        "scratch": regs.scratch,
        "temp": regs.temp,
        "thread": regs.temp[0],
        "seq_len": regs.query_range[1] if k.ragged else arguments["seq_len"],
        "query_range": regs.query_range,
        "key_range": regs.key_range,
        "key_count": regs.key_count,
        "num_keys": regs.key_count,
        "first_position": regs.first_position,
        "start_pos": regs.first_position,
        "mask_end": regs.mask_end,
        "ragged": k.ragged,
        "paged": k.page_size > 0,
        "lse": k.lse,
        "sink": k.sink,
        "sink_logit": arguments["q"][0],  # the pointer is not needed once SRDQ is made
        "q_tile": k.q_tile,
        "heads": k.num_heads,
        "group": k.group,
        "group_magic": exact_reciprocal(k.group, k.num_heads),
        "kv_heads": k.num_kv_heads,
        "kv_magic": exact_reciprocal(k.group, k.num_heads),
        "q_row_bytes": k.num_heads * k.depth * BF16,
        "kv_row_bytes": k.num_kv_heads * k.depth * BF16,
        "q_head_bytes": k.depth * BF16,
    }


def _buffers(k: MhaConfig, regs: PrefillRegisters, pages: Pages | None) -> dict[str, Any]:
    return {
        "buffers": regs.buffers,
        "page_buffers": pages.buffers if pages else (),
        "o_row_bytes": k.num_heads * k.depth * k.output_bytes,
        "o_head_bytes": k.depth * k.output_bytes,
    }


def _walk(k: MhaConfig, regs: PrefillRegisters) -> dict[str, Any]:
    half = BitMap.of(lambda thread: thread >> 5 & 1, 9)
    row = BitMap.of(lambda thread: (thread >> 6) * k.q_block_size + thread % 32, 9)
    windowed = k.mask.name in WINDOWED
    window = getattr(k.mask, "window", 0)
    return {
        "half": half.moves(),
        "row_map": row.moves(),
        "row_offset": regs.row_offset,
        "lse_offset": regs.lse_offset,
        "limit": regs.limit,
        "start": regs.start,
        "visible": regs.visible,
        "all_start": regs.all_start,
        "tile_offsets": regs.tile_offsets,
        "masked": regs.masked,
        "maximum": regs.maximum,
        "previous": regs.previous_max,
        "row_sum": regs.row_sum,
        "causal": k.mask.name != "null",
        "windowed": windowed,
        "mask": k.mask.name,
        "window": window,
        "chunks": Divider.of(window) if windowed else None,
        "rows_per_wave": k.q_block_size,
        "kv_block": k.kv_block,
        "kv_shift": k.kv_block.bit_length() - 1,
        "lowest": hex_float(LOWEST),
        "log2e": hex_float(LOG2E),
    }


def _loads(
    regs: PrefillRegisters, rings: tuple[Ring, ...], pages: Pages | None
) -> dict[str, dict[str, Any]]:
    result = {}
    for ring in rings:
        paged = pages.rings[ring.name] if pages else None
        result[ring.name] = {
            "source": regs.sources[ring.name],
            "row": (paged.lane_row if paged else ring.dma.row).moves(),
            "byte": ring.dma.byte.moves(),
            "next_key": paged.next_key if paged else None,
            "entry": paged.entry if paged else None,
            "inside": paged.inside if paged else None,
            "wave_row": paged.wave_row.moves() if paged else (),
            "addresses": [
                (regs.address(ring, window, index), base.moves(), base.constant, start)
                for window, start in enumerate(ring.windows)
                for index, base in enumerate(ring.plan.bases)
            ],
        }
    return result
