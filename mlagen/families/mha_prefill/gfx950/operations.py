"""MHA / GQA prefill in bf16 on gfx950: the operations a schedule arranges.

As `PrefillAttention` says, with whole tiles of K and V in registers beside two score tiles: while
the matrix pipe works on one tile, the vector pipe works on the other.
"""

from __future__ import annotations

from mlagen.attention.prefill.facts import PrefillFacts
from mlagen.attention.prefill.gfx950.attention import PrefillAttention, SoftmaxForm
from mlagen.attention.prefill.gfx950.fragments import BF16, FORMATS, MFMA_K, MFMA_ROWS
from mlagen.attention.prefill.gfx950.pages import PagedArea, PagedRing, Pages
from mlagen.attention.prefill.gfx950.setup import Fetch, FetchLanes, Setup, lds_addresses
from mlagen.dsl import Binding, Operation, Tile, Value, bind
from mlagen.errors import ConfigError
from mlagen.families.mha_prefill.gfx950.form import operands, refuse_unsupported, signature
from mlagen.families.mha_prefill.gfx950.moves import Mover
from mlagen.families.mha_prefill.gfx950.tile_registers import PrefillRegisters
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.targets.gfx950.dsl import EntryRegisters, Regs, Ring, Space


def begin(k: MhaConfigV2, s: Space) -> EntryRegisters:
    """Declares the registers that the kernel starts with. ConfigError for a problem that these
    operations are not for."""
    if k.dtype != "bf16":
        raise ConfigError(
            f"dtype={k.dtype}: these operations multiply bf16",
            hint="those of StreamedAttention (prefill/gfx950/streamed) multiply fp8 as well",
        )
    refuse_unsupported(k)
    return s.entry("head", "query tile", "batch")


class Attention(PrefillAttention):
    """The operations of one prefill kernel over its rings and registers (`PrefillRegisters`)."""

    regs: PrefillRegisters

    def __init__(
        self,
        k: MhaConfigV2,
        s: Space,
        entry: EntryRegisters,
        keys: Ring,
        values: Ring,
        *,
        mixed: bool = False,
    ) -> None:
        self.k, self.keys, self.values, self.form = k, keys, values, FORMATS["bf16"]
        self.config, self.qk_steps = k, k.depth // MFMA_K
        self.softmax = SoftmaxForm(k.kv_block // 4, mixed=mixed)
        self.tensors = operands(k).tensors
        self.regs = PrefillRegisters(k, s, entry, keys, values)
        paged = [
            PagedRing(
                ring,
                (PagedArea(tensor, self.regs.sources[ring.name], 0),),
                self.regs.buffers[ring.name],
            )
            for ring, tensor in zip((keys, values), self.tensors.key_rows, strict=True)
        ]
        self.pages = Pages(k, s, self.regs, paged) if k.page_size else None
        s.signature, s.facts = signature(k), PrefillFacts.of(k)
        s.plain = self._plain_order(
            (
                "arguments",
                *(("sequence",) if k.by_sequence else ()),
                *("buffers", "walk", "lanes"),
                *(("begin_pages",) if k.page_size else ()),
                "load_queries",
            )
        )
        for ring, target in ((keys, self.regs.key_tile), (values, self.regs.value_tile)):
            bind(ring, Mover(k, self.regs, ring, target, self.pages))

    def scores(self, at: Binding) -> Regs:
        return self.regs.scores.regs(at.phase)

    def score_value(self, tile: Tile) -> Value:
        return self.regs.scores.at(tile)

    # ---- once a workgroup -------------------------------------------------------------------

    def setup(self) -> None:
        """Arguments, head remap, the sequence's rows and keys, tiles to walk, buffer resources and
        lane addresses. A workgroup without a row ends here."""
        lanes = self._lanes()
        setup = Setup(self.k, self.regs, self.tensors, self.pages)
        for name, context in (
            *setup.first(),
            *setup.tile([(self.regs.row_offset, self.config.q_row_stride * BF16, 4)]),
            ("lanes", setup.lanes(lambda at: lanes)),
            *setup.begin_pages(lambda at: (self.keys, self.values)),
        ):
            leaves = name == "sequence" and self.k.ragged
            self._record(name, None, context, leaves=leaves)

    def store(self) -> None:
        """O and the LSE to global memory."""
        self._store_lse()
        self._store_output(self.regs.row_offset, of_bf16_rows=True)

    # ---- once a tile ------------------------------------------------------------------------

    def qk(self, tile: Tile) -> Operation:
        """S = K Q^T."""
        blocks = self.k.kv_block // MFMA_ROWS
        return self._record(
            "qk",
            tile,
            lambda at: {
                "S": [self.scores(at).part(b, 16) for b in range(blocks)],
                "K": self.regs.key_tile,
                "Q": self.regs.queries,
                "steps": self.config.depth // MFMA_K,
                "blocks": blocks,
            },
            folder="mha_prefill",
            defines=(self.score_value(tile),),
            uses=(self.keys.register_value(tile),),
        )

    def pv(self, tile: Tile) -> Operation:
        """O += V^T P, strip of 16 keys by strip."""
        blocks = self.config.depth // MFMA_ROWS
        return self._record(
            "pv",
            tile,
            lambda at: {
                "O": [self.regs.output.part(b, 16) for b in range(blocks)],
                "V": self.regs.value_tile,
                "P": self.scores(at),
                "strips": self.k.kv_block // MFMA_K,
                "blocks": blocks,
                "first": at.first,
            },
            folder="mha_prefill",
            uses=(self.values.register_value(tile), self.score_value(tile)),
            first_differs=True,
        )

    # ---- templates --------------------------------------------------------------------------

    def _lanes(self) -> FetchLanes:
        rings = (self.keys, self.values)
        row_bytes = self.config.kv_row_stride * BF16
        rows = [
            self.pages.plans[ring.name].areas[0].lane_row if self.pages else ring.dma.row
            for ring in rings
        ]
        fetches = [
            Fetch(ring.name, self.regs.sources[ring.name], row, ring.dma.byte, row_bytes)
            for ring, row in zip(rings, rows, strict=True)
        ]
        return FetchLanes(
            tuple(fetches),
            lds_addresses(self.regs, rings),
            ((self.regs.lds_wave, 0, self.keys.dma.wave_stride),),
        )
