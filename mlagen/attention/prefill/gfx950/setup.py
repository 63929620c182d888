"""What a prefill kernel does once a workgroup before its tiles: operands of the setup's templates.

They are operations of their own, because each is readable alone: arguments, sequence (where lengths
differ by sequence), buffers, walk, lanes, begin_pages (where paged). They share scalar temporaries,
in this order: head, K/V head, first query row, then three of no fixed meaning; and the vector
temporary T, the thread's number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlagen.attention.prefill.gfx950.division import Divider, exact_reciprocal
from mlagen.attention.prefill.gfx950.pages import Pages
from mlagen.attention.prefill.gfx950.registers import WINDOWED, PrefillState
from mlagen.attention.prefill.gfx950.tensors import PrefillTensors
from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.dsl import Binding
from mlagen.targets.gfx950.dsl import Regs, Ring
from mlagen.targets.gfx950.dsl.layout import BitMap


@dataclass(frozen=True, slots=True)
class Fetch:
    """What a thread of the fetching waves fetches of a tile: a row (of pages: one of a page) and a
    byte of the tensor, from `first_byte` of the head on, as an offset in `source`."""

    name: str
    source: Regs
    row: BitMap
    byte: BitMap
    row_bytes: int
    first_byte: int = 0


@dataclass(frozen=True, slots=True)
class LdsAddress:
    """A register with a lane's LDS address: a map of the thread, from LDS byte `start` on."""

    register: Regs
    base: BitMap
    start: int


@dataclass(frozen=True, slots=True)
class FetchLanes:
    """What each lane fetches and reads. `blocks`: (register, first fetching wave, bytes from one
    wave's part of a DMA pass to the next)."""

    fetches: tuple[Fetch, ...]
    addresses: tuple[LdsAddress, ...]
    blocks: tuple[tuple[Regs, int, int], ...]


def lds_addresses(regs: PrefillState, rings: Sequence[Ring]) -> tuple[LdsAddress, ...]:
    """What each lane reads of some rings."""
    return tuple(
        LdsAddress(register, base, ring.windows[window])
        for ring in rings
        for (window, base), register in regs.addresses[ring.name].items()
    )


Context = Mapping[str, Any] | Callable[[Binding], Mapping[str, Any]]


class Setup:
    """Operands of the setup's templates besides registers, in their order: `first` (what is done
    where a workgroup is one query tile), `tile` (what depends on the query tile), `lanes`,
    `begin_pages`."""

    def __init__(
        self,
        k: PrefillConfig,
        regs: PrefillState,
        tensors: PrefillTensors,
        pages: Pages | None = None,
    ) -> None:
        self.k, self.regs, self.pages = k, regs, pages
        self.common = _common(k, regs, tensors)

    def first(self) -> Iterator[tuple[str, Context]]:
        """Arguments, head, first query row; rows and keys of the sequence."""
        yield "arguments", self.common
        if self.k.by_sequence:
            yield "sequence", self.common

    def tile(self, rows: Sequence[tuple[Regs, int, int]]) -> Iterator[tuple[str, Context]]:
        """Buffer resources, tiles to walk. `rows`: registers that get a lane's byte offset of its
        query's row, with the bytes of a row and the shift of the half-wave's part."""
        page_buffers = self.pages.buffers if self.pages else ()
        yield "buffers", self.common | {"page_buffers": page_buffers}
        yield "walk", self.common | _walk(self.k, self.regs) | {"row_offsets": rows}

    def lanes(self, lanes: Callable[[Binding], FetchLanes]) -> Context:
        """What each lane fetches and reads."""
        return lambda at: self.common | {"lanes": lanes(at)}

    def begin_pages(
        self, rings: Callable[[Binding], Sequence[Ring]]
    ) -> Iterator[tuple[str, Context]]:
        """Where the page look-ups of the fetched rings begin, after `tile` and `lanes`; nothing
        where K and V are contiguous."""
        pages = self.pages
        if pages is not None:
            yield "begin_pages", lambda at: self.common | pages.begin(rings(at))


def _common(k: PrefillConfig, regs: PrefillState, tensors: PrefillTensors) -> dict[str, Any]:
    arguments = regs.arguments.regs
    half = BitMap.of(lambda thread: thread >> 5 & 1, 9)
    row = BitMap.of(lambda thread: (thread >> 6) * k.q_block_size + thread % 32, 9)
    return {
        "half": half.moves(),
        "row_map": row.moves(),
        "argument_loads": regs.arguments.loads,
        "group_x": regs.group[0],
        "group_y": regs.group[1],
        "group_z": regs.group[2],
        "by_item": regs.item is not None,
        "seq_len": regs.query_range[1] if k.ragged else arguments["seq_len"],
        "ragged": k.ragged,
        "paged": k.page_size > 0,
        "causal": k.mask.name != "null",
        "lse": k.lse,
        "sink_logit": arguments["q"][0],  # the pointer is not needed once SRDQ is made
        "q_tile": k.q_tile,
        "heads": k.num_heads,
        "group": k.group,
        "group_magic": exact_reciprocal(k.group, k.num_heads),
        "kv_heads": k.num_kv_heads,
        "tensors": tensors,
    }


def _walk(k: PrefillConfig, regs: PrefillState) -> dict[str, Any]:
    windowed = k.mask.name in WINDOWED
    window = getattr(k.mask, "window", 0)
    return {
        "tile_offsets": [
            (regs.tile_offsets[name], row_bytes)
            for name, row_bytes in regs.walks.items()
            if regs.tile_offsets[name]
        ],
        "windowed": windowed,
        "mask": k.mask.name,
        "window": window,
        "chunks": Divider.of(window) if windowed else None,
        "rows_per_wave": k.q_block_size,
        "kv_shift": k.kv_block.bit_length() - 1,
    }
