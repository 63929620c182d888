"""MLA decode on Hopper in the absorbed form: the operations a schedule arranges.

One block computes 64 heads of one sequence. S = Q K^T over 576 columns, O += P V over the first 512
columns of the same rows. Two math warpgroups take turns: the left one has the scores of even tiles
and output columns 0..255, the right one those of odd tiles and columns 256..511. Each multiplies
its own P from registers and the other's from SMEM, so a pair of tiles is four products of P V, and
while one warpgroup is at its softmax the other keeps the matrix pipe busy.

Both follow one running maximum M: the left one finds it after the even tile and tells the right
one, which finds it after the odd tile and tells it back.

Softmax in base 2: P = exp2(c * S - c * M) with c = scale * log2(e). P is rounded to bf16 for the
products; for the right columns an even tile's P is rounded after it has followed the odd tile's
maximum. The row sum adds the unrounded values.
"""

from __future__ import annotations

from typing import Any, Literal

from mlagen.dsl import (
    Access,
    Handoff,
    Operation,
    PipelineSpace,
    RingTile,
    Signature,
    Tile,
    Value,
    WarpRole,
    bind,
    record,
)
from mlagen.dsl.signature import TensorMap, pack
from mlagen.dsl.smem import Message
from mlagen.errors import ConfigError
from mlagen.problem import MlaDecodeConfig

HEADS = 64  # query rows a block: one wgmma M
COLUMNS = 64  # bf16 columns of a 128-byte tile
SLOTS = 2  # the even and the odd tile
FLOAT = 4  # bytes
# wgmma descriptors: 128-byte swizzle, 8 rows are 1024 bytes (PTX ISA, matrix descriptor). Across
# the rows, the distance to the next 64 columns is added.
COLUMN_MAJOR = 1 << 62 | 1024 >> 4 << 32
ROW_MAJOR = COLUMN_MAJOR | 1 << 16


class MlaDecode:
    """The operations of one decode kernel, its tiles, messages and registers.

    `left` and `right`: hand-offs of the cache's columns that the left warpgroup refills (0..255)
    and of those that the right one does; `boxes` tiles of 64 columns share a barrier.
    """

    def __init__(
        self, k: MlaDecodeConfig, s: PipelineSpace, left: WarpRole, right: WarpRole, *, boxes: int
    ) -> None:
        refuse_unsupported(k)
        self.k, self.roles = k, (left, right)
        self.parts, self.value_parts = k.d_qk // COLUMNS, k.d_v // COLUMNS
        self._tiles(s, boxes)
        self._messages(s)
        self._registers(s)
        s.signature = signature(k, right.warps.stop * 32)
        for handoff in (*self.left, *self.right):
            bind(handoff, self._mover(handoff))

    def _tiles(self, s: PipelineSpace, boxes: int) -> None:
        k, row = self.k, 2 * COLUMNS
        names = tuple(role.name for role in self.roles)
        self.queries = [
            s.smem.tile(f"Q{j}", "q", rows=HEADS, row_bytes=row, slots=1) for j in range(self.parts)
        ]
        self.keys = [
            s.smem.tile(f"K{j}", "cache", rows=k.page_size, row_bytes=row, slots=SLOTS)
            for j in range(self.parts)
        ]
        *latent, rope = self.queries
        self.query = s.smem.handoff(
            "query", *latent, producer=names[0], consumer=names, resident=True
        )
        self.query_rope = s.smem.handoff(
            "query rope", rope, producer=names[0], consumer=names, resident=True
        )
        middle = self.value_parts // 2
        self.staged = (
            s.smem.scratch("O left", *self.queries[:middle]),
            s.smem.scratch("O right", *self.queries[middle : self.value_parts]),
        )
        self.left, self.right = (
            tuple(
                s.smem.handoff(
                    f"cache {first}", *self.keys[first : min(first + boxes, stop)],
                    producer=role.name, consumer=names,
                )
                for first in range(start, stop, boxes)
            )
            for role, start, stop in zip(
                self.roles, (0, middle), (middle, self.parts), strict=True
            )
        )  # fmt: skip

    def _messages(self, s: PipelineSpace) -> None:
        left, right = (role.name for role in self.roles)
        size = HEADS * self.k.page_size * 2
        self.p_left = s.smem.message("P left", size, producer=left, consumer=right)
        # By then the rotary part of Q is in registers.
        self.p_right = s.smem.message(
            "P right", size, producer=right, consumer=left, over=self.queries[-1]
        )
        rows = HEADS * FLOAT
        self.max_left = s.smem.message("M left", rows, producer=left, consumer=right)
        self.max_right = s.smem.message("M right", rows, producer=right, consumer=left)
        self.sum_left = s.smem.message("l left", rows, producer=left, consumer=right)
        self.sum_right = s.smem.message("l right", rows, producer=right, consumer=left)

    def _registers(self, s: PipelineSpace) -> None:
        k = self.k
        self.supply: dict[str, Any] = {
            "o": s.named("o", ".f32", k.d_v // 4, "O: 64 heads x half of d_v"),
            "s": s.named("s", ".f32", k.page_size // 2, "S, then P: 64 heads x a page"),
            "p": s.named("p", ".b32", k.page_size // 4, "P as bf16, operand A of P V"),
            "qr": s.named("qr", ".b32", COLUMNS // 4, "rotary part of Q, operand A of Q K^T"),
        }
        for name, why in (
            ("cm", "c times the running maximum of this thread's two rows"),
            ("l", "row sums of this warpgroup's tiles"),
            ("alpha", "what the last maxima do to O and l"),
        ):
            self.supply[name] = s.named(name, ".f32", 2, why)
        self.supply["pages"] = s.named("page", ".b32", SLOTS, "pages of the next two copies")
        self.supply["tables"] = s.named("table", ".b64", SLOTS, "entries of the two after them")
        for name, type, why in (
            ("batch", ".b32", "sequence of this block"),
            ("head", ".b32", "first head of this block"),
            ("length", ".b32", "keys of the sequence"),
            ("valid", ".b32", "keys left from this warpgroup's next tile on"),
            ("row", ".b32", "first of this thread's two rows"),
            ("fragment", ".b32", "row and 16-byte column that this lane moves of an operand A"),
            ("c", ".f32", "scale * log2(e)"),
            ("row_major", ".b64", "descriptor of SMEM read along its rows (K-major)"),
            ("column_major", ".b64", "descriptor of SMEM read across its rows (MN-major)"),
            ("table_end", ".b64", "end of this sequence's entries of the block table"),
            ("map_q", ".b64", "tensor map of q"),
            ("map_cache", ".b64", "tensor map of the cache"),
            ("map_o", ".b64", "tensor map of o"),
        ):
            self.supply[name] = s.named(name, type, 1, why)[0]

    # ---- before the loop --------------------------------------------------------------------

    def place(self, role: WarpRole) -> None:
        """Which sequence and heads this block has, how many tiles, and its first two pages."""
        self._record(
            "place", None, role=role, page_shift=self.k.page_size.bit_length() - 1, heads=HEADS,
            # `maximum` counts down before it looks.
            count_from=(SLOTS - self.roles.index(role)) * self.k.page_size,
            row_major_bits=hex(ROW_MAJOR),
            column_major_bits=hex(COLUMN_MAJOR | self._apart // 16 << 16),
        )  # fmt: skip

    def load_queries(self, tile: Tile, role: WarpRole) -> None:
        """The block's 64 heads of Q, once, with the first tile."""
        self._record(
            "load_queries", tile, role=role, domain="first",
            loads=[
                (handoff, [(tile, COLUMNS * self.queries.index(tile)) for tile in handoff.tiles])
                for handoff in (self.query, self.query_rope)
            ],
            num_heads=self.k.num_heads,
            defines=(Value(self.query.name), Value(self.query_rope.name)),
        )  # fmt: skip

    def clear(self) -> None:
        """O = 0, l = 0, M = -inf: what an empty sequence leaves."""
        self._record("clear", None, defines=(Value("O"),))

    def keep_rope(self, tile: Tile) -> None:
        """The rotary part of Q to registers, when the first tile is on its way."""
        self._record("keep_rope", tile, domain="first", tile_=self.queries[-1],
                     uses=(Value(self.query_rope.name),), defines=(Value("Q rope"),))  # fmt: skip

    # ---- scores -----------------------------------------------------------------------------

    def qk(self, tile: Tile, half: tuple[Handoff, ...], *, first: bool) -> None:
        """S = Q K^T over the columns of `half`, a group a hand-off; `first`: S starts here."""
        for handoff in half:
            self._record(
                "qk", tile,
                tiles_=[(self.keys.index(t), t) for t in handoff.tiles],
                queries=self.queries, overwrites=first and handoff is half[0],
                uses=(Value(handoff.name, tile), Value(self.query.name), Value("Q rope")),
                defines=(Value("S"),), asynchronous=True,
            )  # fmt: skip

    def heed(self, tile: Tile) -> None:
        """Follow the left warpgroup's maximum after `tile`: alpha, and l with it."""
        self._record("heed", tile, template="follow", message=self.max_left, scores=False,
                     uses=(Value(self.max_left.name, tile), Value("l")),
                     defines=(Value("alpha"), Value("l")))  # fmt: skip

    def follow(self, tile: Tile) -> None:
        """Follow the right warpgroup's maximum after `tile`: alpha; l and this one's P with it."""
        self._record("follow", tile, message=self.max_right, scores=True,
                     uses=(Value(self.max_right.name, tile), Value("S")),
                     defines=(Value("alpha"), Value("l"), Value("S")))  # fmt: skip

    def maximum(self, tile: Tile, message: Message, *, fresh: bool) -> None:
        """Mask, row maximum, alpha; the maximum goes to the other warpgroup. `fresh`: alpha starts
        here, otherwise it already holds what the other's maximum does."""
        self._record("maximum", tile, message=message, page=self.k.page_size, fresh=fresh,
                     stride=SLOTS * self.k.page_size,
                     uses=(Value("S"),),
                     defines=(Value("S"), Value("alpha"), Value(message.name, tile)))  # fmt: skip

    def exponent(self, tile: Tile) -> None:
        """P = exp2(c S - c M) in place of S, its bf16 as operand A, row sums."""
        self._record("exponent", tile, uses=(Value("S"), Value("alpha")),
                     defines=(Value("S"), Value("P"), Value("l")))  # fmt: skip

    def rescale(self, tile: Tile) -> None:
        """O *= alpha."""
        self._record("rescale", tile, uses=(Value("alpha"), Value("O")), defines=(Value("O"),))

    # ---- products ---------------------------------------------------------------------------

    def clean(self, tile: Tile, role: WarpRole) -> None:
        """Rows behind the sequence's end become 0 in SMEM: P is 0 there, but 0 * NaN is not."""
        names = [h.name for h in (*self.left, *self.right)]
        self._record(
            "clean", tile, keys=self.keys[: self.value_parts], page=self.k.page_size,
            role=role,
            uses=tuple(Value(name, tile) for name in names),
            defines=tuple(Value(name, tile) for name in names),
            joins=True, guarded=True,
        )  # fmt: skip

    def publish(self, tile: Tile, message: Message) -> None:
        """P as bf16 to SMEM, for the other warpgroup."""
        self._record("publish", tile, message=message, packed=message is self.p_right,
                     uses=(Value("S"), Value("P")),
                     defines=(Value(message.name, tile),))  # fmt: skip

    def pv(self, tile: Tile, half: tuple[Handoff, ...], message: Message | None = None) -> None:
        """O += P V over the columns of `half`, one group; P from registers, or from the other's
        message."""
        held = [t for h in half for t in h.tiles if self.keys.index(t) < self.value_parts]
        first = self.keys.index(held[0]) % (self.value_parts // 2)
        each = COLUMNS // 2  # accumulators of 64 columns
        source = Value(message.name, tile) if message else Value("P")
        self._record(
            "pv", tile, message=message, values=held, columns=COLUMNS * len(held),
            o=self.supply["o"][each * first : each * (first + len(held))],
            steps=self.k.page_size // 16,
            uses=(source, *(Value(h.name, tile) for h in half if set(h.tiles) & set(held))),
            defines=(Value("O"),), asynchronous=True,
        )  # fmt: skip

    def next_page(self, tile: Tile) -> None:
        """Look up the page that is copied a pass after that of `tile`."""
        self._record("next_page", tile, index=tile.offset % SLOTS)

    # ---- after the loop ---------------------------------------------------------------------

    def give_sum(self, message: Message) -> None:
        """This warpgroup's row sums to the other one."""
        self._record("give_sum", None, message=message, defines=(Value(message.name),))

    def finish(self, message: Message, role: WarpRole) -> None:
        """O / l to memory by way of SMEM, this warpgroup's columns; LSE by the left one."""
        index = self.roles.index(role)
        staged, columns = self.staged[index], self.k.d_v // 2
        self._record(
            "finish", None, message=message, left=index == 0, role=role, staged=staged,
            boxes=[
                (staged.base + self.queries[0].bytes * box, index * columns + COLUMNS * box)
                for box in range(columns // COLUMNS)
            ],
            num_heads=self.k.num_heads, uses=(Value(message.name), Value("O")),
            defines=(Value(staged.name),), joins=True,
        )  # fmt: skip

    # ---- spelling ---------------------------------------------------------------------------

    @property
    def _apart(self) -> int:
        """Bytes between neighbouring columns of tiles."""
        return self.keys[1].base - self.keys[0].base

    def _mover(self, handoff: Handoff) -> Any:
        role = next(role for role in self.roles if role.name == handoff.producer)

        def mover(kind: str, tile: Tile) -> Operation:
            return self._operation(
                "copy", tile, access=Access("copy", RingTile(handoff.name, tile)),
                handoff=handoff, role=role, page=self.k.page_size,
                boxes=[(t, COLUMNS * self.keys.index(t)) for t in handoff.tiles],
                page_id=self.supply["pages"][tile.offset % SLOTS],
            )  # fmt: skip

        return mover

    def _record(self, name: str, tile: Tile | None, **more: Any) -> Operation:
        return record(self._operation(name, tile, **more))

    def _operation(
        self,
        name: str,
        tile: Tile | None,
        *,
        uses: tuple[Value, ...] = (),
        defines: tuple[Value, ...] = (),
        access: Access | None = None,
        asynchronous: bool = False,
        joins: bool = False,
        guarded: bool = False,
        domain: Literal["every", "first"] = "every",
        template: str = "",
        **context: Any,
    ) -> Operation:
        supply = {**self.supply, **context}
        return Operation(
            name, f"mla_decode/{template or name}.ptx.j2", tile, lambda at: supply,
            defines=defines, uses=uses, access=access, asynchronous=asynchronous, joins=joins,
            guarded=guarded, domain=domain,
        )  # fmt: skip


def signature(k: MlaDecodeConfig, threads: int) -> Signature:
    """q: [B, H, 576], cache: [blocks, page, 576] and o: [B, H, 512] by tensor map; lse: [B, H]."""
    return Signature(
        pack(
            ("q", TensorMap("q", k.dtype, k.d_qk, COLUMNS, HEADS), "read"),
            ("cache", TensorMap("cache", k.dtype, k.d_qk, COLUMNS, k.page_size), "read"),
            ("block_table", "pointer:int32", "read"),
            ("cache_lengths", "pointer:int32", "read"),
            ("o", TensorMap("o", k.output_dtype, k.d_v, COLUMNS, HEADS), "write"),
            ("lse", "pointer:fp32", "write"),
            ("max_pages", "u32", "value"),
            ("scale_log2e", "f32", "value"),
            ("scale", "f32", "value"),
        ),
        grid=(("num_heads", HEADS), ("batch", 1)),
        block=(threads, 1, 1),
    )


def refuse_unsupported(k: MlaDecodeConfig) -> None:
    """ConfigError for a valid problem that this kernel is not generated for, naming what it is."""
    for name, value, made in (
        ("num_heads", k.num_heads % HEADS, f"multiples of {HEADS}"),
        ("page_size", k.page_size != 64, "64"),
        ("q_len", k.q_len != 1, "1"),
        ("dtype", k.dtype != "bf16", "bf16"),
        ("output_dtype", k.output_dtype != "bf16", "bf16"),
    ):
        if value:
            raise ConfigError(
                f"{name}={getattr(k, name)} is a valid MlaDecodeConfig, but mla_decode_sm90 does "
                f"not make it",
                hint=f"{name} generated: {made}",
            )
