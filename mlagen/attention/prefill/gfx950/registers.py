"""Registers that every prefill kernel on gfx950 has: row state, arguments, buffer resources.

What only some problems need is allocated for those alone and is None for the others; so a plain
kernel holds nothing for features that it does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mlagen.attention.prefill.gfx950.arguments import argument_registers
from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.dsl import Signature
from mlagen.targets.gfx950.dsl import EntryRegisters, Regs, Ring, Space
from mlagen.targets.gfx950.dsl.layout import BitMap

WINDOWED = ("sliding_window_causal", "chunked_causal")  # masks that hide keys from below


class PrefillState:
    """What follows the entry registers and the schedule's tiles, in this order: a few registers
    of row state, the lanes' addresses (`_lanes`), and scalars.

    `buffers`: names of the tensors that have a buffer resource each; `walks`: bytes of a row of
    each tensor whose next tile's byte offset is counted.
    """

    queries: Regs  # the schedule's tiles that every kernel has
    output: Regs

    def __init__(
        self,
        k: PrefillConfig,
        s: Space,
        entry: EntryRegisters,
        signature: Signature,
        buffers: Sequence[str],
        walks: Mapping[str, int],
    ) -> None:
        self.walks = walks
        self.items, self.item = entry.items, entry.item
        self.blocks: Regs | None = None  # first and last + 1 block of keys of the work item
        # The thread's number; a temporary, which lasts until the first tile.
        self.thread = entry.temp[0]
        self.temp, self.kernarg, self.group = entry.temp, entry.kernarg, entry.group
        self.wave, self.tiles = entry.wave, entry.tiles
        self._rows(k, s)
        self._lanes(s)
        self._scalars(k, s, signature, buffers)
        self._of_features(k, s, tuple(walks))

    @property
    def operands(self) -> dict[str, Any]:
        """What templates call registers: by the names that they have here."""
        arguments = self.arguments.regs
        return {**vars(self), "arguments": arguments, "O": self.output, "Q": self.queries}

    def _lanes(self, s: Space) -> None:
        """What a lane fetches of a tile and where it reads it in LDS."""
        raise NotImplementedError

    def _addresses(self, s: Space, rings: Iterable[Ring]) -> None:
        """`addresses`: by ring, its window and the map of a base, the register with the LDS address
        that a lane reads."""
        self.addresses: dict[str, dict[tuple[int, BitMap], Regs]] = {}
        for ring in rings:
            bases = dict.fromkeys(
                (window, base)
                for window in range(len(ring.windows))
                for area in ring.areas
                for base in area.plan.bases
            )
            what = f"LDS address this lane reads of each {ring.name} tile"
            block = s.registers.block(f"{ring.name}ADR", len(bases), what, align=1).regs()
            self.addresses[ring.name] = dict(zip(bases, block, strict=True))

    def _rows(self, k: PrefillConfig, s: Space) -> None:
        def one(name: str, comment: str, align: int = 1) -> Regs:
            return s.registers.block(name, 1, comment, align=align).regs()

        self.maximum = one("M", "running row maximum, log2 units", align=2)
        self.row_sum = one("L", "row sum of P")
        self.previous = one("MP", "maximum before the last move")
        self.masked = one("NEG", "-inf, the score of a masked key")
        self.limit = one("LIMIT", "first masked key of this lane's query, minus 4 * half")
        self.row_offset = one("QOFF", "byte offset of the query row")
        windowed = k.mask.name in WINDOWED
        self.start = (
            one("START", "first key that this lane's query sees, minus 4 * half")
            if windowed
            else None
        )
        self.lse_offset = one("LSEOFF", "byte offset of the row's LSE") if k.lse else None

    def _scalars(
        self, k: PrefillConfig, s: Space, signature: Signature, buffers: Sequence[str]
    ) -> None:
        scalar = s.registers.scalar
        self.arguments = argument_registers(s, signature)
        given = self.arguments.regs
        self.page_table = given.get("page_table", given.get("page_list"))
        self.buffers = {
            name: scalar(f"SRD{name}", 4, f"buffer resource of {name}", align=4) for name in buffers
        }
        # A work item loads its arguments anew: those that only its setup needs make room.
        once = self.arguments.once if self.item is not None else None
        room = (once[:8], once[8:10]) if once is not None and len(once) >= 10 else (None, None)
        self.compare = scalar("CMP", 8, "lane masks of the key mask", align=2, over=room[0])
        self.grown = scalar(
            "GROWN", 2, "all ones: the maximum moved on this tile", align=2, over=room[1]
        )
        self.lds_wave = scalar("LDSW", 1, "wave * 1024, its part of a DMA pass")
        self.mask_end = scalar("MASKEND", 1, "end key of the tile that is masked next")
        self.visible = scalar("VISIBLE", 1, "keys that every query row of this wave sees")
        self.scratch = scalar("TMP", 6, "scalar temporaries", align=2)

    def _of_features(self, k: PrefillConfig, s: Space, walks: Sequence[str]) -> None:
        """Scalars that only some problems have."""

        def when(needed: bool, name: str, count: int, comment: str, align: int = 1) -> Any:
            return s.registers.scalar(name, count, comment, align=align) if needed else None

        paged = k.page_size > 0
        self.tile_offsets = {
            name: when(not paged, f"{name}OFF", 1, f"byte offset of the next {name} tile to fetch")
            for name in walks
        }
        self.all_start = when(
            k.mask.name in WINDOWED, "ALLSTART", 1,
            "end of the first tile whose first key every row of this wave sees",
        )  # fmt: skip
        self.first_seen = when(
            k.mask.name in WINDOWED, "SEEN", 1, "first key that some row of the workgroup sees"
        )
        if k.lse:
            self.buffers["LSE"] = s.registers.scalar("SRDLSE", 4, "buffer resource of lse", align=4)
        self.query_range = when(
            k.ragged, "QROWS", 2, "first query row of this sequence, and how many", 2
        )
        self.key_range = when(
            k.ragged and not paged, "KVROWS", 2, "first row of K and V, and how many", 2
        )
        self.first_position = (
            when(True, "FIRSTPOS", 1, "position of the sequence's first query row")
            if k.by_sequence
            else self.arguments["start_pos"]
        )
        if self.key_range is not None:
            self.key_count = self.key_range[1]
        elif paged:
            self.key_count = when(True, "KEYS", 1, "keys of this sequence")
        else:
            self.key_count = self.arguments["num_keys"]
        self.seen_keys = (
            when(True, "SEENKEYS", 1, "keys up to the last that some row of the workgroup sees")
            if paged and k.mask.name != "null"
            else self.key_count
        )
