"""GEMM on gfx950: the operations a schedule arranges, and the registers they share.

Eight waves, two along M and four along N. The matrix pipe computes C^T = B A^T: its A operand is
32 rows of B, its B operand 32 rows of A, so that a lane owns one row of C and four neighbouring
columns in neighbouring registers, and stores them together.

The rows of A are two rings, one for each half of the block, so that a wave needs the registers of
half its rows only, and the first half's slot is free for its next tile while the second is in use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gemm.problem import BF16, FAR, GemmConfig, Tiles
from mlagen.dsl import (
    Access,
    Binding,
    Operation,
    PlainOrder,
    Signature,
    Tile,
    Value,
    bind,
    exactly,
    record,
)
from mlagen.dsl.signature import pack
from mlagen.errors import ScheduleError
from mlagen.targets.gfx950.dsl import EntryRegisters, Reads, Regs, Ring, Space, laid_out
from mlagen.targets.gfx950.dsl.layout import BitMap

# v_mfma_f32_32x32x16_bf16 (CDNA4 ISA guide, matrix instruction layouts), lane l: operands row
# l % 32, k = 8 * (l / 32) + 0..7; result column l % 32, register r is row 8 * (r / 4)
# + 4 * (l / 32) + r % 4.
BLOCK = 32
STEP = 16
READ = 16  # bytes that a lane reads at once
WAVES_M, WAVES_N = 2, 4
WAVES = WAVES_M * WAVES_N
THREADS = 64 * WAVES
WIDTHS = ("wide", "narrow")  # of stores: one that skips itself by N, or the other


def reads(tile: Tiles, rows: int, operand: str) -> Reads:
    """How waves read a tile of `rows` rows of A, or of B: each those that it multiplies."""
    shares = WAVES_M if operand == "A" else WAVES_N
    mine = rows // shares  # rows that one wave reads

    def fragment(step: int, block: int) -> Callable[[int], tuple[int, int]]:
        def place(thread: int) -> tuple[int, int]:
            wave, lane = divmod(thread, 64)
            part = wave // WAVES_N if operand == "A" else wave % WAVES_N
            row = mine * part + BLOCK * block + lane % BLOCK
            return row, BF16 * (STEP * step + 8 * (lane // BLOCK))

        return place

    fragments = [
        fragment(step, block) for step in range(tile.k // STEP) for block in range(mine // BLOCK)
    ]
    return Reads(fragments, READ, f"{operand}, rows x K, read by ds_read_b128", THREADS)


class Gemm:
    """The operations of one kernel over its rings and the schedule's register tiles: those of its
    rings, and the accumulators C: for each half of the rows, each block of 32 of them and of the
    wave's columns.
    """

    def __init__(
        self, k: GemmConfig, tile: Tiles, s: Space, entry: EntryRegisters, *rings: Ring
    ) -> None:
        self.k, self.tile, self.entry = k, tile, entry
        self.rings = {ring.name: ring for ring in rings}
        self.blocks_m = tile.m // 2 // WAVES_M // BLOCK  # of a half, a wave
        self.blocks_n = tile.n // WAVES_N // BLOCK  # a wave
        # What operations touch of the schedule's rings and register tiles.
        for ring, rows in zip(rings, (tile.m // 2, tile.m // 2, tile.n), strict=True):
            laid_out(ring, [(rows, BF16 * tile.k)], waves=WAVES, width=READ)
        self.fragments = {
            name: s.registers.taken(
                name, exactly("registers", ring.whole_tile[1], "a wave's part of a tile")
            ).regs()
            for name, ring in self.rings.items()
        }
        sums = tile.m * tile.n // THREADS
        self.sums = s.registers.taken("C", exactly("registers", sums, "sums of a lane"))
        self.source = self._one(s, "SRC", "byte offset this lane fetches of each tile")
        self.column = self._one(s, "COL", "byte of K in a tile that this lane fetches")
        self.row_offset = self._one(s, "ROW", "byte offset of this lane's row of C, 4 * half on")
        self.limit = self._one(s, "LIMIT", "columns of C left of the edge, minus 4 * half")
        self.half = self._one(s, "HALF", "4 in lanes 32..63, 0 in the others")
        self._lane_addresses(s)
        self._scalars(s)
        s.signature = signature(tile)
        s.plain = PlainOrder(
            before=("setup",),
            tile=("copy A0", "copy A1", "copy B", "read B", "read A0", "mma0", "read A1", "mma1"),
            after=tuple(f"store_{width}_{k.output_dtype}" for width in WIDTHS),
        )
        for ring in self.rings.values():
            bind(ring, self._mover(ring))

    def _one(self, s: Space, name: str, comment: str) -> Regs:
        return s.registers.block(name, 1, comment, align=1).regs()

    def _lane_addresses(self, s: Space) -> None:
        """One register for each (window, lane map) that a read of any ring starts from."""
        needed: dict[tuple[int, BitMap], None] = {}
        for ring in self.rings.values():
            for slot in range(ring.slots):
                for base in ring.plan.bases:
                    needed[ring.windows[ring.window(slot)], base] = None
        block = s.registers.block("ADR", len(needed), "LDS addresses this lane reads", align=1)
        self.addresses = {key: block.regs()[n] for n, key in enumerate(needed)}

    def _scalars(self, s: Space) -> None:
        scalar = s.registers.scalar
        self.arguments = scalar("ARG", 8, "arguments a, b, c, m, n", align=4)
        self.depth = scalar("KARG", 1, "argument k")
        self.buffers = {
            name: scalar(f"SRD{name}", 4, f"buffer resource of {name}", align=4) for name in "ABC"
        }
        self.lds_wave = scalar("LDSW", 1, "wave * 1024, its part of a DMA pass")
        self.row_bytes = scalar("ROWB", 1, "bytes of a row of A and of B")
        self.pass_bytes = scalar("PASSB", 1, "bytes of the rows that one DMA pass covers")
        self.half_bytes = scalar("HALFB", 1, "bytes of half of A's rows")
        self.offsets = {
            name: scalar(f"{name}OFF", 1, f"byte of K of the next {name} tile to fetch")
            for name in self.rings
        }
        self.out_rows = scalar("OUTROW", 2 * self.blocks_m, "byte offsets of the blocks of C rows")
        self.scratch = scalar("TMP", 4, "scalar temporaries", align=2)

    # ---- once a workgroup -------------------------------------------------------------------

    def setup(self) -> None:
        """Arguments, tile count, buffer resources and lane addresses."""
        k, t, plans = self.k, self.tile, [ring.dma for ring in self.rings.values()]
        if any((plan.row, plan.byte) != (plans[0].row, plans[0].byte) for plan in plans):
            raise ScheduleError("A and B are fetched by different lanes: one SRC does not serve")
        mine_n = t.n // WAVES_N
        rows_m = BLOCK * self.blocks_m

        def row(thread: int) -> int:
            return rows_m * (thread // 64 // WAVES_N) + thread % BLOCK

        def column(thread: int) -> int:
            return mine_n * (thread // 64 % WAVES_N) + 4 * (thread % 64 // BLOCK)

        bits = THREADS.bit_length() - 1
        self._record(
            "setup",
            entry=self.entry,
            arguments=self.arguments,
            depth=self.depth,
            buffers=self.buffers,
            lds_wave=self.lds_wave,
            row_bytes=self.row_bytes,
            pass_bytes=self.pass_bytes,
            pass_rows=THREADS * 16 // (t.k * BF16),
            half_bytes=self.half_bytes,
            half_rows=t.m // 2,
            offsets=self.offsets,
            out_rows=self.out_rows,
            blocks_m=self.blocks_m,
            scratch=self.scratch,
            source=self.source,
            source_row=plans[0].row.moves(),
            column=self.column,
            source_byte=plans[0].byte.moves(),
            addresses=[
                (register, base.moves(), base.constant, window)
                for (window, base), register in self.addresses.items()
            ],
            row_offset=self.row_offset,
            out_row=BitMap.of(row, bits, what="row of C").moves(),
            limit=self.limit,
            half=self.half,
            out_column=BitMap.of(column, bits, what="column of C").moves(),
            m_tile=t.m,
            n_tile=t.n,
            k_tile=t.k,
            k_shift=t.k.bit_length() - 1,
            out_bytes=k.output_bytes,
        )

    def store(self) -> None:
        """C to memory: 16 bytes a lane where N allows, one element a lane where it does not. Rows
        beyond M and columns beyond N are dropped by the range check."""
        for width in WIDTHS:
            self._record(
                f"store_{width}_{self.k.output_dtype}",
                guarded=True,
                sums=[
                    [self._sum(half, m, n) for half in (0, 1) for m in range(self.blocks_m)]
                    for n in range(self.blocks_n)
                ],
                rows=[self.out_rows[n] for n in range(2 * self.blocks_m)],
                size_n=self.arguments[7],
                row_offset=self.row_offset,
                limit=self.limit,
                half=self.half,
                buffer=self.buffers["C"],
                temp=self.entry.temp,
                scratch=self.scratch,
                far=FAR,
            )

    # ---- once a tile ------------------------------------------------------------------------

    def mma(self, tile: Tile, half: int, *, order: str) -> Operation:
        """C of this half of the rows += A B^T. `order` says which operand is kept longer."""
        name = f"A{half}"
        a, b = self.fragments[name], self.fragments["B"]

        def products(step: int) -> list[tuple[int, int]]:
            if order == "keep A":
                return [(m, n) for m in range(self.blocks_m) for n in range(self.blocks_n)]
            return [(m, n) for n in range(self.blocks_n) for m in range(self.blocks_m)]

        def context(at: Binding) -> Mapping[str, Any]:
            return {
                "products": [
                    (
                        self._sum(half, m, n),
                        b.part(step * self.blocks_n + n, 4),
                        a.part(step * self.blocks_m + m, 4),
                        at.first and step == 0,
                    )
                    for step in range(self.tile.k // STEP)
                    for m, n in products(step)
                ]
            }

        return record(
            Operation(
                f"mma{half}",
                "gemm/mma.s.j2",
                tile,
                context,
                uses=(Value(name, tile), Value("B", tile)),
                first_differs=True,
            )
        )

    # ---- templates --------------------------------------------------------------------------

    def _sum(self, half: int, m: int, n: int) -> Regs:
        return self.sums.regs().part((half * self.blocks_m + m) * self.blocks_n + n, 16)

    def _mover(self, ring: Ring) -> Callable[[Any, Tile], Operation]:
        def copied(at: Binding) -> Mapping[str, Any]:
            return {
                "passes": [ring.slot_base(at.phase) + lds for lds in ring.dma.lds_offsets],
                "source": self.source,
                "column": self.column,
                "buffer": self.buffers[ring.name[0]],
                "offset": self.offsets[ring.name],
                "first": self.half_bytes if ring.name == "A1" else 0,
                "tile_bytes": self.tile.k * BF16,
                "row_bytes": self.row_bytes,
                "pass_bytes": self.pass_bytes,
                "lds_wave": self.lds_wave,
                "temp": self.entry.temp,
                "scratch": self.scratch,
                "far": FAR,
            }

        def loaded(at: Binding) -> Mapping[str, Any]:
            window = ring.windows[ring.window(at.phase)]
            first = ring.slot_base(at.phase) - window
            return {
                "reads": [
                    (
                        self.fragments[ring.name].part(index, 4),
                        self.addresses[window, ring.plan.bases[base]],
                        first + offset,
                    )
                    for index, (base, offset) in enumerate(ring.plan.reads)
                ]
            }

        def mover(kind: Any, tile: Tile) -> Operation:
            copying = kind == "copy"
            return Operation(
                kind,
                f"gemm/{kind}.s.j2",
                tile,
                copied if copying else loaded,
                defines=() if copying else (ring.register_value(tile),),
                access=Access(kind, ring.at(tile)),
            )

        return mover

    def _record(self, name: str, *, guarded: bool = False, **context: Any) -> Operation:
        operation = Operation(name, f"gemm/{name}.s.j2", None, lambda at: context, guarded=guarded)
        return record(operation)


def signature(tile: Tiles) -> Signature:
    """a [m, k], b [n, k], c [m, n], contiguous. Neighbouring workgroups share rows of A."""
    pointers = (("a", "pointer", "read"), ("b", "pointer", "read"), ("c", "pointer", "write"))
    sizes = tuple((name, "u32", "value") for name in "mnk")
    return Signature(
        pack(*pointers, *sizes),
        grid=(("n", tile.n), ("m", tile.m)),
        block=(THREADS, 1, 1),
    )
